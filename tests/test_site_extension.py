"""The Sphinx extension of the book: maths, figures, markers; and the build refuses what it must refuse."""

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
from conftest import ROOT
from docutils import nodes
from docutils.utils import new_document
from pybtex.database import Entry, Person

sys.path.insert(0, str(ROOT / "book/_site/ext"))
from workloads_site import cells, citing, figures, front, maths, publishing

from workloads_book import ledger

needs_katex = pytest.mark.skipif(not maths.KATEX.is_dir(), reason="KaTeX is not installed: run `make book`")

FORMULAS = [
    r"C = 6 N D",
    r"\lceil n/p \rceil + \lfloor x \rfloor",
    r"\operatorname{softmax}(QK^\top/\sqrt{d})",
    r"10^{12}\,\mathrm{FLOP/s}",
    r"\$0.30",
    r"f(n) = \begin{cases} n(n+1)/2 & \text{if causal} \\ n^2 & \text{otherwise} \end{cases}",
    r"\mathbf{x} \in \mathbb{R}^{d}",
    r"\hat{\eta} \approx 41\,\%",
    r"\underbrace{2N}_{\text{per token}} D",
    r"\sum_{\ell=1}^{L} \int_0^T \prod_i x_i \,\mathrm{d}t",
    r"\begin{bmatrix} 1 & 2 \\ 3 & 4 \end{bmatrix}",
    r"\displaystyle \frac{2 \left(3 D N \left(n^{2} + 2\right) + \sqrt{n}\right)}{n^{2} + 2}",
    r"\displaystyle \begin{cases} N & \text{for}\: N > 1 \\D & \text{otherwise} \end{cases}",
    r"\displaystyle \left[\begin{matrix}N & D\\\left\lceil{\frac{n}{2}}\right\rceil & \max\left(D, N\right)\end{matrix}\right]",
]


@needs_katex
@pytest.mark.parametrize("tex", FORMULAS)
@pytest.mark.parametrize("display", [False, True])
def test_formula_is_set_for_the_eye_and_for_assistive_technology(tex, display):
    html, error = maths.render(tex, display)
    assert error is None and "katex-error" not in html
    assert "<math" in html and 'aria-hidden="true"' in html


@needs_katex
@pytest.mark.parametrize(
    "tex",
    [
        "\\begin{align}\na &= b \\\\\n&= c\n\\end{align}",
        "a = b \\\\\nc = d",
        "a = b\n\nc = d",
        "\\begin{equation}\nx = 1\n\\end{equation}",
        "\\begin{alignat}{2} a &= b & c \\end{alignat}",
        r"x = \begin{cases} 1 \\ 2 \end{cases}",
    ],
)
def test_blocks_of_several_lines_are_set(tex):
    html, error = maths.render(maths.prepare(tex), True)
    assert error is None and "eqn-num" not in html


@pytest.mark.parametrize("tex", FORMULAS)
def test_without_katex_a_formula_is_mathml(tex, monkeypatch):
    pytest.importorskip("latex2mathml", reason="latex2mathml is not installed: formulas need KaTeX")
    monkeypatch.setattr(maths, "KATEX", ROOT / "nowhere")
    html, error = maths.render.__wrapped__(tex, True)
    assert error is None and html.startswith("<math") and 'display="block"' in html


def test_only_a_line_break_of_its_own_makes_an_aligned_block():
    assert maths.prepare(r"f = \begin{cases} 1 \\ 2 \end{cases}").startswith("f")
    assert maths.prepare(r"a \\ b").startswith(r"\begin{aligned}")


@needs_katex
@pytest.mark.parametrize("tex", [r"\frac{1", r"\nosuchmacro", r"x_1_2"])
def test_wrong_maths_is_reported(tex):
    assert maths.render(tex)[1]


SVG = """<?xml version="1.0"?><!DOCTYPE svg PUBLIC "x" "y">
<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="432pt" height="252pt" viewBox="0 0 432 252" version="1.1">
<title>Two &amp; three</title><metadata>dropped</metadata><defs><style type="text/css">*{stroke: red}</style><clipPath id="p1"><rect/></clipPath></defs>
<g id="unused"><path d="M0 0" clip-path="url(#p1)" style="fill: #FFFFFF; stroke: #1f2933"/><use xlink:href="#m1" style="stroke: #9aa5b1"/><path id="m1"/></g></svg>"""  # noqa: E501


def test_figure_takes_the_colours_of_the_page_and_unique_ids():
    alt, svg = figures.inline(SVG, "f3-")
    assert alt == "Two & three" and 'aria-label="Two &amp; three"' in svg and 'role="img"' in svg
    assert 'clip-path="url(#f3-p1)"' in svg and 'id="f3-p1"' in svg and 'href="#f3-m1"' in svg and 'id="f3-m1"' in svg
    assert "fill: var(--wl-paper); stroke: currentColor" in svg and "stroke: var(--wl-grid)" in svg
    assert 'viewBox="0 0 432 252"' in svg and " width=" not in svg and " height=" not in svg
    for gone in ("<style", "metadata", "<title", "unused", "xlink", "DOCTYPE"):
        assert gone not in svg


def test_a_formula_in_a_figure_is_one_line_of_text():
    """Matplotlib's characters, italics behind the rest, in the order in which they stand; a power and an index are smaller and shifted."""
    spans = [
        ("0", "0", "10px", "", "a"),
        ("18", "0", "10px", "", "="),
        ("6", "-4", "7px", "", "12"),
        ("30", "2", "7px", "font-style: oblique; ", "k"),
    ]
    drawn = "".join(
        f'<tspan x="{x}" y="{y}" style="{slant}font-size: {size}; font-family: F; fill: red">{c}</tspan>' for x, y, size, slant, c in spans
    )
    svg = figures.inline(
        SVG.replace('<g id="unused">', f'<g id="unused"><text>{drawn}</text><text style="font: 10px F">plain</text>'), "f3-"
    )[1]
    text = re.search(r"<text .*?</text>", svg)[0]
    assert re.sub("<[^>]+>", "", text) == "a12=k" and "text-anchor: middle; fill: red" in text and 'x="17.1"' in text
    runs = re.findall(r"<tspan([^>]*)>([^<]+)<", text)
    assert [said for _, said in runs] == ["a", "12", "=", "k"] and [('.8em"' in form, "italic" in form) for form, _ in runs[:3]] == [
        (False, False),
        (True, False),
        (False, False),
    ]
    assert 'dy="-0.50em"' in runs[1][0] and 'dy="0.40em"' in runs[2][0] and 'dy="0.25em"' in runs[3][0] and "italic" in runs[3][0]
    assert '<text style="font: 10px F">plain</text>' in svg


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize(("theme", "paper"), [("html {", "#ffffff"), ('html[data-theme="dark"] {', "#14181e")])
def test_the_colours_of_figures_can_be_read_as_text_in_both_themes(theme, paper):
    """Every data colour has a shade a theme with a contrast of at least 4.5 to 1 on its paper; every one of the style has such a shade."""
    css = (ROOT / "book/_site/static/workloads.css").read_text(encoding="utf-8")
    line = next(line for line in css.splitlines() if line.startswith(theme) and "--wl-blue" in line)
    shades = dict(re.findall(r"(--wl-\w+): (#\w{6})", line))
    for name, shade in shades.items():
        bright, dim = sorted((luminance(shade), luminance(paper)), reverse=True)
        assert (bright + 0.05) / (dim + 0.05) >= 4.5, name
    style = (ROOT / "lib/workloads_book/book.mplstyle").read_text(encoding="utf-8")
    cycle = re.findall(r"'(\w{6})'", style[style.index("cycler(") :].splitlines()[0])
    assert {figures.COLOURS[f"#{colour}"] for colour in cycle} == {f"var({name})" for name in shades}


def test_the_text_of_a_figure_is_at_least_eleven_pixels_high_on_a_phone():
    for inches in (3, 4.8, 6, 9):
        text, least = figures.on_a_phone(72 * inches)
        assert text * max(figures.PHONE, least) / (72 * inches) >= 11
    assert figures.on_a_phone(72 * 4.8)[1] <= figures.PHONE, "a figure of the usual size fits without scrolling"


def cell(*outputs):
    made = nodes.container(nb_element="cell_code", hide_mode="input", cell_metadata={}, prompt_show="", prompt_hide="")
    made += nodes.container(nb_element="cell_code_source")
    shown = nodes.container(nb_element="cell_code_output")
    shown += outputs
    made += shown
    return made


def test_folded_code_says_what_it_makes():
    figure, page = (lambda: nodes.container(classes=["wl-figure-box"])), new_document("page")
    page += [cell(), cell(figure()), cell(nodes.table()), cell(figure(), figure(), nodes.table())]
    app = SimpleNamespace(config=SimpleNamespace(nb_cell_metadata_key="mystnb"))
    cells.name_folded_code(app, page)
    assert [c["prompt_show"] for c in page.children] == [
        "Show the code",
        "Show the code of the figure",
        "Show the code of the table",
        "Show the code of the figures and the table",
    ]


def test_names_of_models_stay_in_one_piece():
    page = new_document("page")
    page += nodes.paragraph("", "", nodes.Text("Qwen3-30B-A3B on an H100 SXM, and "), nodes.literal("", "Qwen3-8B"))
    page += nodes.paragraph("", "A two-way street, Llama-3.1-8B.")
    cells.keep_names(None, page)
    assert [n.astext() for n in page.findall(nodes.inline)] == ["Qwen3-30B-A3B", "H100 SXM", "Llama-3.1-8B"]
    assert page.astext() == "Qwen3-30B-A3B on an H100 SXM, and Qwen3-8B\n\nA two-way street, Llama-3.1-8B."


def test_works_that_would_be_cited_alike_get_letters():
    entries = [
        Entry("misc", {"title": title, "year": year}, {"author": [Person(last=name)]})
        for title, year, name in (("B", "2025", "Lab"), ("A", "2025", "Lab"), ("C", "2025", "Other"), ("D", "2024", "Lab"))
    ]
    for _ in range(2):  # a second time changes nothing
        citing.tell_apart(entries)
        assert [e.fields["year"] for e in entries] == ["2025b", "2025a", "2025", "2024"]


def test_a_page_says_what_it_is_about():
    page = {"title": "T", "lead": "", "parts": [["T", "t", "First sentence. " + "word " * 60, ""]]}
    said = publishing.described(page)
    assert said.startswith("First sentence. word") and len(said) <= publishing.LONGEST + 2
    assert publishing.described(page | {"lead": 'What is "x"? 42.'}) == 'What is "x"? 42.'
    alone = publishing.tags("T", 'a "b"', "S", "", "")
    named = publishing.tags("T", "d", "S", "https://a.example.org/t.html", "https://a.example.org/p.png")
    assert 'content="a &quot;b&quot;"' in alone and "og:url" not in alone and "og:image" not in alone
    assert "og:url" in named and "og:image" in named and "summary_large_image" in named


def test_the_reference_to_the_book_follows_its_citation_file(tmp_path):
    (tmp_path / "CITATION.cff").write_text(
        "title: T\nauthors:\n  - given-names: Ada\n    family-names: Example\nversion: 1.0\ndate-released: 2026-01-02\n"
    )
    said = front.citation(tmp_path)
    assert said["sentence"] == "Ada Example: T. Version 1.0, 2 January 2026."
    assert "year = {2026}" in said["bibtex"] and "url" not in said["bibtex"]


def test_the_landing_page_counts_what_is_there():
    found = front.amounts()
    assert found["rows"] == len(ledger.rows()) and found["pages"] > 40
    assert found["exercises"] == len(list((ROOT / "exercises").glob("*/*.ipynb"))) and found["calculators"] >= 14
    picture = front.picture()
    assert "20%" in picture and 'role="img"' in picture


def test_solution_markers_do_not_show():
    code = "def f():\n    ### BEGIN SOLUTION\n    return 1\n    ### END SOLUTION\n\n"
    code += "### BEGIN HIDDEN TESTS\nassert f()\n### END HIDDEN TESTS"
    assert cells.MARKER.sub("", code) == "def f():\n    return 1\n\nassert f()\n"


def small_book(folder, page):
    """A book of two pages with the configuration of this one; returns the build's exit code and messages."""
    (folder / "book").mkdir()
    for name in ("_config.yml", "book/_site"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "book/references.bib").write_text("")
    (folder / "book/index.md").write_text("# Start\n\n## Here\n")
    if isinstance(page, str):
        (folder / "book/page.md").write_text(page)
    else:
        nbformat.write(page, folder / "book/page.ipynb")
    (folder / "_toc.yml").write_text("format: jb-book\nroot: book/index\nchapters:\n- file: book/page\n")
    done = subprocess.run(
        [Path(sys.executable).with_name("jupyter-book"), "build", ".", "-W", "-n", "--keep-going", "--quiet"],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout + done.stderr


def notebook(*sources):
    nb = nbformat.v4.new_notebook(metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}})
    nb.cells = [nbformat.v4.new_markdown_cell("# Page"), *map(nbformat.v4.new_code_cell, sources)]
    return nb


@needs_katex
def test_build_passes_on_a_sound_page_and_fails_on_broken_ones(tmp_path):
    sound, broken, failing, bare = (tmp_path / n for n in ("sound", "broken", "failing", "bare"))
    for folder in (sound, broken, failing, bare):
        folder.mkdir()
    assert small_book(sound, "# Page\n\nSee [there](index.md#here), $x^2$.\n")[0] == 0
    code, said = small_book(broken, "# Page\n\n[gone](gone.md) [no anchor](index.md#nowhere) {ref}`nothing` {cite}`nobody` $\\frac{1$\n")
    assert code != 0
    for part in ("gone.md", "nowhere", "nothing", "nobody", "KaTeX"):
        assert part in said
    code, said = small_book(failing, notebook("1 / 0"))
    assert code != 0 and "ZeroDivisionError" in said
    code, said = small_book(
        bare, notebook('from IPython.display import SVG\nSVG(\'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1 1"/>\')')
    )
    assert code != 0 and "lacks an alt text" in said

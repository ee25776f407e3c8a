"""The Sphinx extension of the book: maths, figures, markers; and the build refuses what it must refuse."""

import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "book/_site/ext"))
from workloads_site import cells, figures, maths

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

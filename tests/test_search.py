"""The full-text search: it finds what stands on the pages, from a server and from the disk, and shows what a reader reads."""

import json
import re
import sys

import pytest
from conftest import ROOT, SITE, site_pages
from docutils import nodes
from docutils.utils import new_document

sys.path.insert(0, str(ROOT / "book/_site/ext"))
from workloads_site import search

PAGES = [name for name in site_pages() if (ROOT / name).with_suffix(".ipynb").exists() or (ROOT / name).with_suffix(".md").exists()]
BUILT = pytest.mark.skipif(not PAGES, reason="the site is not built: run `make book`")
ASKED = {  # what is typed: the page that has it, and whether it must come first
    "roofline check": ("book/flop-accounting/roofline-check", True),  # a title
    "idle time stretch": ("book/workloads/3-1-3", False),  # a sentence
    "Kingman": ("book/workloads/3-1-3-queues", True),  # a formula's name
    "hundred attempts whole bar": ("book/workloads/3-2-2", False),  # the caption of a figure
    "F-4": ("exercises/f-04/f-04", True),  # an exercise, by its number
    "zeppelin": ("", False),  # nowhere
    "success_ratio_needed": ("book/workloads/3-2-2", False),  # a function, where a page uses it
    "crossover_length": ("book/reference/api/learning.rl.phases", True),  # a function, where it is explained
}


@pytest.fixture(params=["server", "disk"])
def base(request):
    return request.getfixturevalue("served") if request.param == "server" else f"{SITE.as_uri()}/"


@pytest.fixture
def tab(browser):
    context = browser.new_context(viewport={"width": 360, "height": 740}, color_scheme="dark")
    yield context.new_page()
    context.close()


def search_for(tab, words):
    """Type words into the search that opens over a page; the addresses of what is found."""
    tab.keyboard.press("Control+k")
    tab.locator("input[name=q]:focus").wait_for()
    tab.keyboard.type(words)
    tab.keyboard.press("Enter")
    tab.wait_for_url("**/search.html?*")
    tab.wait_for_function("/finished|did not match/.test(document.querySelector('.search-summary')?.textContent)")
    return tab.eval_on_selector_all("#search-results li > a", "found => found.map(a => new URL(a.href).pathname)")


@BUILT
def test_words_are_found_where_they_stand(base, tab):
    trouble = []
    tab.on("pageerror", lambda e: trouble.append(str(e)))
    tab.on("console", lambda m: m.type == "error" and trouble.append(m.text))
    for words, (page, first) in ASKED.items():
        tab.goto(f"{base}book/for-readers.html")
        found = search_for(tab, words)
        if not page:
            assert not found, words
            continue
        at = [n for n, path in enumerate(found) if path.endswith(f"/{page}.html")]
        assert at, f"{words}: {page} is not found"
        assert not first or at[0] == 0, f"{words}: {page} comes as number {at[0] + 1}"
    assert not trouble


@BUILT
def test_excerpts_read_well_on_a_phone_in_the_dark(served, tab):
    tab.goto(f"{served}book/for-readers.html")
    search_for(tab, "Amdahl")
    tab.locator("#search-results p.context").first.wait_for()
    tab.wait_for_function("[...document.querySelectorAll('#search-results li')].every(e => e.querySelector('p.context'))")
    excerpts = tab.locator("#search-results p.context").all_inner_texts()
    assert all("amdahl" in e.lower() for e in excerpts) and len(excerpts) >= 3
    assert not [e for e in excerpts if re.search(r"\\[a-z]{2,}|Show the|[MmLl]-?\d+\.\d+ -?\d+\.\d+", e)]
    assert tab.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    light = tab.eval_on_selector("#search-results p.context", "e => getComputedStyle(e).color.match(/[\\d.]+/g).slice(0, 3).map(Number)")
    assert min(light) > 120


@BUILT
@pytest.mark.parametrize("name", PAGES)
def test_every_page_has_the_search(name):
    text = (SITE / name).read_text(encoding="utf-8")
    assert 'class="btn search-button' in text and re.search(r'<form [^>]*action="[^"]*search\.html"', text)


@BUILT
def test_the_index_holds_no_source_of_formulas_and_no_folded_code():
    text = (SITE / "searchindex.js").read_text(encoding="utf-8")
    terms = json.loads(text[text.index("(") + 1 : text.rindex(")")])["terms"]
    assert {"kingman", "backlog", "cost_ratio"} <= set(terms)
    assert not {"frac", "lfloor", "barh", "ncol"} & set(terms)


def test_the_index_reads_sentences_and_shown_code_alone():
    page = new_document("page")
    folded, shown = nodes.container(nb_element="cell_code_source"), nodes.container(nb_element="cell_code_source")
    folded += nodes.literal_block("", "plumbing()")
    shown += nodes.literal_block("", "backlog()")
    hidden, output = search.HideCodeCellNode(), search.HideCodeCellNode()
    hidden += folded
    output += nodes.container("", nodes.paragraph("", "stated inputs"), nb_element="cell_code_output")
    for child in (
        nodes.paragraph("", "", nodes.Text("A queue of "), nodes.math("", r"\frac{1}{2}"), nodes.Text(" holds.")),
        nodes.math_block("", r"\lambda"),
        nodes.raw("", "<figure><svg><text>axis</text></svg><figcaption>A caption</figcaption></figure>", format="html"),
        nodes.raw("", "<p>list of pages</p>", format="html", classes=["wl-unread"]),
        hidden,
        shown,
        output,
    ):
        page += child
    read = search.readable(page)
    text = " ".join(re.sub(r"<[^>]+>", " ", read.astext()).split())
    assert text == "A queue of holds. A caption backlog() stated inputs"
    assert "plumbing" in page.astext(), "the page itself stays whole"

"""Without JavaScript a page still shows its text, formulas, figures, tables and results, in either preference of the system."""

import re

import pytest
from conftest import SITE

PAGES = [
    "book/workloads/3-1-3",
    "book/flop-accounting/formulas",
    "book/calculators",
    "exercises/3-02/3-02",
    "book/reference/audit",
    "book/bibliography",
]
pytestmark = pytest.mark.skipif(not SITE.is_dir(), reason="the site is not built: run `make book`")

SEEN = """() => {
  const seen = e => e.checkVisibility() && e.getBoundingClientRect().height > 0 && e.getBoundingClientRect().width > 0;
  const open = e => !e.closest("details:not([open])");
  const start = e => e.outerHTML.slice(0, 90);
  const hidden = selector => [...document.querySelectorAll("article " + selector)]
    .filter(e => e.textContent.trim() && open(e) && !e.closest(".wl-on-paper") && !seen(e)).map(start);
  const light = colour => {
    const [r, g, b, a] = colour.match(/[\\d.]+/g).map(Number);
    return a === 0 ? null : (0.2126*r + 0.7152*g + 0.0722*b) / 255;
  };
  const paper = e => {
    for (; e; e = e.parentElement) { const l = light(getComputedStyle(e).backgroundColor); if (l !== null) return l; }
    return 1;
  };
  const texts = [...document.querySelectorAll("article :is(p, li, td, th, pre, code, figcaption, label, legend, h1, h2, h3)")]
    .filter(e => e.checkVisibility() && e.textContent.trim());
  return {
    hidden: ["h1", "h2", "p", ".math .katex-html", ".wl-figure svg", "table", "pre", "figcaption"].flatMap(hidden),
    faint: texts.filter(e => Math.abs(light(getComputedStyle(e).color) - paper(e)) < 0.4).map(start),
    coloured: new Set([...document.querySelectorAll("article .highlight span")].map(e => getComputedStyle(e).color)).size,
    code: document.querySelectorAll("article .highlight span").length,
    waits: [...document.querySelectorAll("article")].map(e => e.innerText).join(" "),
    contents: document.querySelectorAll(".bd-sidebar-primary a.reference").length,
  };
}"""


@pytest.fixture(scope="module", params=["light", "dark"])
def tab(browser, request):
    """A tab without scripts; `evaluate` still asks what it shows."""
    context = browser.new_context(java_script_enabled=False, color_scheme=request.param, viewport={"width": 1280, "height": 900})
    yield context.new_page()
    context.close()


@pytest.mark.parametrize("page", PAGES)
def test_page_is_whole_without_javascript(page, tab):
    tab.goto((SITE / f"{page}.html").as_uri())
    assert tab.title() and tab.locator("article h1").inner_text().strip()
    seen = tab.evaluate(SEEN)
    assert seen["hidden"] == [] and seen["faint"] == []
    assert seen["coloured"] > 1 or not seen["code"], "code has its colours"
    assert seen["contents"] > 10 and not re.search(r"Loading|Please activate JavaScript", seen["waits"])
    assert len(seen["waits"]) > 1000


def test_a_folded_solution_opens_without_javascript(tab):
    tab.goto((SITE / "exercises/3-02/3-02.html").as_uri())
    solution = tab.locator("details.hide").first
    assert not solution.locator("pre").first.is_visible()
    solution.locator("summary").click()
    assert solution.locator("pre").first.is_visible()

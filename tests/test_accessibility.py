"""Every page keeps the rules of WCAG 2.1 A and AA, as far as axe sees them."""
import pytest
from conftest import ROOT, SITE, site_pages

PAGES = [page for page in site_pages() if page != "index.html"]
AXE = ROOT / "book/_site/node_modules/axe-core/axe.min.js"
# a formula is MathML, a figure an image with a text: what draws them is hidden from the reader, and from axe (it would take seconds)
RULES = """document.querySelectorAll(".katex-html, .wl-figure svg > *").forEach(e => e.remove());
axe.run({runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}).then(
  found => found.violations.map(v => [v.id, v.nodes[0].html.slice(0, 150), v.nodes[0].failureSummary]))"""


@pytest.fixture(scope="module")
def tabs(browser):
    """A tab in the light theme and one in the dark."""
    return [browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme=theme, reduced_motion="reduce") for theme in ("light", "dark")]


@pytest.mark.skipif(not PAGES or not AXE.exists(), reason="the site is not built: run `make book`")
@pytest.mark.parametrize("page", PAGES)
def test_page_keeps_the_rules_of_accessibility(page, tabs):
    """Every other page is seen in the dark theme."""
    tab = tabs[PAGES.index(page) % 2]
    tab.goto((SITE / page).as_uri())
    tab.evaluate(AXE.read_text(encoding="utf8"))
    assert tab.evaluate(RULES) == []

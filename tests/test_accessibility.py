"""Every page keeps the rules of WCAG 2.1 A and AA, as far as axe sees them."""
import pytest
from conftest import ROOT, SITE, site_pages

PAGES = [page for page in site_pages() if page != "index.html"]
AXE = ROOT / "book/_site/node_modules/axe-core/axe.min.js"
RULES = """axe.run({exclude: [[".katex"], [".wl-figure svg *"]]}, {runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}).then(
  found => found.violations.map(v => [v.id, v.nodes[0].html.slice(0, 150), v.nodes[0].failureSummary]))"""


@pytest.mark.skipif(not PAGES or not AXE.exists(), reason="the site is not built: run `make book`")
@pytest.mark.parametrize("page", PAGES)
def test_page_keeps_the_rules_of_accessibility(page, browser):
    """Every other page is seen in the dark theme."""
    opened = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme=("light", "dark")[PAGES.index(page) % 2], reduced_motion="reduce")
    opened.goto((SITE / page).as_uri())
    opened.evaluate(AXE.read_text(encoding="utf8"))
    assert opened.evaluate(RULES) == []
    opened.close()

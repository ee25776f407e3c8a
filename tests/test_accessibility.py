"""Every page keeps the rules of WCAG 2.1 A and AA, as far as axe sees them: in the light and in the dark, with fields also on a phone.

Pages are made by one template from elements of some hundred kinds (a name and its classes): axe looks at the fewest pages that
hold them all. With SWEEP in the environment (`make sweep`) it looks at every page.
"""

import pytest
from conftest import ROOT, SITE, SWEEP, covering, kinds, site_pages

EVERY = [page for page in site_pages() if page != "index.html"]
HELD = {page: kinds(page) for page in EVERY}
PAGES = EVERY if SWEEP else covering(HELD)
WITH_FIELDS = [page for page in PAGES if {"input", "select", "textarea"} & {name for name, _ in HELD[page]}]
AXE = ROOT / "book/_site/node_modules/axe-core/axe.min.js"
OF_COLOUR = ["color-contrast", "link-in-text-block"]  # what another theme can break
# a formula is MathML, a figure an image with a text: what draws them is hidden from the reader, and from axe (it would take seconds)
PREPARE = """document.querySelectorAll(".katex-html, .wl-figure svg > *").forEach(e => e.remove())"""
RUN = """([where, rules]) => axe.run(where, {runOnly: rules}).then(
  found => found.violations.map(v => [v.id, v.nodes[0].html.slice(0, 150), v.nodes[0].failureSummary]))"""
ALL = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]
pytestmark = pytest.mark.skipif(not PAGES or not AXE.exists(), reason="the site is not built: run `make book`")


@pytest.fixture(scope="module")
def tab(browser):
    page = browser.new_page(reduced_motion="reduce")
    yield page
    page.close()


def opened(tab, page, width):
    """The page in the light theme, with axe in it."""
    tab.set_viewport_size({"width": width, "height": 900})
    tab.emulate_media(color_scheme="light")
    tab.goto((SITE / page).as_uri())
    tab.evaluate(AXE.read_text(encoding="utf8"))
    tab.evaluate(PREPARE)
    return tab


def dark(tab):
    tab.emulate_media(color_scheme="dark")
    tab.wait_for_function("document.documentElement.dataset.theme == 'dark'", timeout=5000)
    return tab


def test_the_pages_looked_at_hold_all_kinds_of_elements_and_are_few():
    assert covering({"a": {1, 2}, "b": {2, 3, 4}, "c": {4}, "d": {1}}) == ["b", "a"]
    assert set().union(*(HELD[page] for page in PAGES)) == set().union(*HELD.values()) and len(HELD[PAGES[0]]) > 50
    assert 10 < len(PAGES) <= len(EVERY) and WITH_FIELDS


@pytest.mark.parametrize("page", PAGES)
def test_page_keeps_the_rules_of_accessibility_in_the_light_and_in_the_dark(page, tab):
    """All rules in the light; in the dark once more those that look at colours."""
    opened(tab, page, 1280)
    assert tab.evaluate(RUN, ["html", ALL]) == []
    assert dark(tab).evaluate(RUN, ["html", {"type": "rule", "values": OF_COLOUR}]) == []


@pytest.mark.parametrize("page", WITH_FIELDS)
def test_fields_keep_the_rules_of_accessibility_on_a_phone(page, tab):
    assert dark(opened(tab, page, 360)).evaluate(RUN, ["main", ALL]) == []


def test_faint_text_would_be_seen_in_either_theme(tab):
    """Text of the page's own colour in the light, then in the dark, and a field without a name."""
    plant = """colour => { const p = document.createElement("p"); p.textContent = "faint"; p.style.color = colour;
      document.querySelector("article").append(p, document.createElement("input")); }"""
    opened(tab, PAGES[0], 1280).evaluate(plant, "#eee")
    assert {v[0] for v in tab.evaluate(RUN, ["html", ALL])} == {"color-contrast", "label"}
    dark(opened(tab, PAGES[0], 1280)).evaluate(plant, "#333")
    assert {v[0] for v in tab.evaluate(RUN, ["html", {"type": "rule", "values": OF_COLOUR}])} == {"color-contrast"}

"""Every page keeps the rules of WCAG 2.1 A and AA, as far as axe sees them: in the light and in the dark, with fields also on a phone.

The entries of the library are made by one template: of their pages those are looked at that hold an element of a kind (its name and its
classes) that no page before them holds.
"""

import re

import pytest
from conftest import ROOT, SITE, site_pages

KIND = re.compile(r'<(\w+)(?:[^>]*?\bclass="([^"]*)")?')


def looked_at(pages):
    """Pages without the entries of the library that hold nothing new."""
    seen = set()
    for page in pages:
        if not page.startswith("book/reference/api/"):
            yield page
            continue
        kinds = set(KIND.findall((SITE / page).read_text(encoding="utf8").partition("<main")[2]))
        if kinds - seen:
            yield page
        seen |= kinds


PAGES = list(looked_at(page for page in site_pages() if page != "index.html"))
WITH_FIELDS = [
    page for page in PAGES if re.search(r"<(input|select|textarea)\b", (SITE / page).read_text(encoding="utf8").partition("<main")[2])
]
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

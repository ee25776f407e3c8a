"""The site on a phone of 360 pixels: text of figures, tables, the map, the drawer of contents, the bar of buttons."""

from itertools import pairwise

import pytest
from conftest import SITE

pytestmark = pytest.mark.skipif(not (SITE / "book/index.html").exists(), reason="the site is not built: run `make book`")
SHOWN = [
    "book/counting-rules",
    "book/flop-accounting/roofline-check",
    "book/workloads/3-1-3",
    "book/workloads/3-6-1",
    "book/beyond/how-far",
]
TEXT = """() => [...document.querySelectorAll("figure.wl-figure svg")].flatMap(svg => [...svg.querySelectorAll("text")].map(
  e => parseFloat(getComputedStyle(e).fontSize) * svg.getBoundingClientRect().width / svg.viewBox.baseVal.width))"""


@pytest.fixture(scope="module")
def phone(browser):
    context = browser.new_context(viewport={"width": 360, "height": 740}, has_touch=True)
    yield context.new_page()
    context.close()


@pytest.mark.parametrize("name", SHOWN)
def test_the_text_of_figures_is_eleven_pixels_high(name, phone, served):
    phone.goto(f"{served}{name}.html")
    sizes = phone.evaluate(TEXT)
    assert len(sizes) > 10 and min(sizes) >= 10.95


@pytest.mark.parametrize("name", SHOWN)
def test_the_first_column_of_a_wide_table_stays_while_the_rest_scrolls(name, phone, served):
    phone.goto(f"{served}{name}.html")
    boxes = phone.query_selector_all(".pst-scrollable-table-container:has(thead th:nth-child(3))")
    for box in boxes:
        box.scroll_into_view_if_needed()
        seen = box.evaluate(
            """e => { e.scrollLeft = 1e4; const all = e.getBoundingClientRect(), cell = c => e.querySelector(c).getBoundingClientRect();
            return [cell("tbody td:first-child").left - all.left, all.right - cell("tbody tr td:last-child").right]; }"""
        )
        assert min(seen) > -2, "the first and the last column are in sight together"


@pytest.mark.parametrize("name", ["book/predict-this-computer", "book/flop-accounting/assumptions", "book/workloads/3-6-3"])
def test_what_stands_in_a_table_stays_in_its_cell(name, phone, served):
    phone.goto(f"{served}{name}.html")
    cells = phone.evaluate(
        """() => [...document.querySelectorAll("main td:has(.katex, code)")].filter(e => e.checkVisibility()).map(e => {
          const end = e.getBoundingClientRect().right, inside = [...e.querySelectorAll(".katex-html, code")];
          return [e.innerText.slice(0, 40), Math.max(...inside.map(c => c.getBoundingClientRect().right)) - end]; })"""
    )
    assert len(cells) > 4 and [text for text, beyond in cells if beyond > 2] == []


def test_rows_of_the_map_do_not_overlap(phone, served):
    phone.goto(f"{served}book/map.html")
    rows = phone.evaluate(
        """() => [...document.querySelectorAll(".wl-map-rows > li")].map(e => {
          const boxes = [...e.querySelectorAll("a, small")].map(c => c.getBoundingClientRect());
          return [Math.min(...boxes.map(b => b.top)), Math.max(...boxes.map(b => b.bottom)), Math.max(...boxes.map(b => b.right))]; })"""
    )
    rows = [row for row in rows if None not in row]
    assert len(rows) > 50 and all(above[1] <= below[0] + 1 for above, below in pairwise(rows))
    assert max(right for *_, right in rows) <= 360


@pytest.mark.parametrize("name", ["book/counting-rules", "exercises/c-01/c-01", "book/index"])
def test_all_buttons_stand_in_one_line_and_are_equally_large(name, phone, served):
    phone.goto(f"{served}{name}.html")
    icons = phone.evaluate(
        """() => [...document.querySelectorAll(".header-article__inner :is(a, button)")].filter(e => e.checkVisibility()).map(
          e => [e.getBoundingClientRect(), e.querySelector("i, svg, span.fa-list, .fa-bars")?.getBoundingClientRect()]).map(
          ([b, i]) => [(b.top + b.bottom) / 2, b.right, i ? i.height : 0])"""
    )
    middles, rights, heights = zip(*icons)
    assert len(icons) >= 5 and max(middles) - min(middles) <= 2 and max(rights) <= 360
    assert max(heights) <= 1.3 * min(h for h in heights if h)


def test_the_contents_of_a_page_go_away_when_one_of_their_lines_is_chosen(phone, served):
    phone.goto(f"{served}book/counting-rules.html")
    phone.click("button.secondary-toggle")
    link = phone.locator("#pst-secondary-sidebar-modal a.nav-link").nth(2)
    link.wait_for()
    there = link.get_attribute("href")
    link.tap()
    phone.wait_for_function("!document.querySelector('#pst-secondary-sidebar-modal').open")
    assert phone.url.endswith(there)
    phone.wait_for_function("id => Math.abs(document.querySelector(id).getBoundingClientRect().top) < 200", arg=there)

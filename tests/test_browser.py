"""Every page in a real browser without a network: no error, no foreign request, maths set, light and dark, phone width, weight.

The entries of the library are made by one template: of them the fewest that hold every kind of element, and the longest, or all with
SWEEP in the environment (`make sweep`).
"""

import functools
import gzip
import re
from urllib.parse import urlsplit

import pytest
from conftest import SITE, SWEEP, covering, kinds, site_pages

ENTRIES = [page for page in site_pages() if page.startswith("book/reference/api/")]
LONGEST = sorted(ENTRIES, key=lambda page: (SITE / page).stat().st_size)[-3:]
SEEN = ENTRIES if SWEEP else {*covering({page: kinds(page) for page in ENTRIES}), *LONGEST}
# one page leads to the first page, one stands for what is not there
PAGES = [page for page in site_pages() if page not in ("index.html", "404.html") and (page in SEEN or page not in ENTRIES)]
PHONE, DESK = {"width": 360, "height": 740}, {"width": 1280, "height": 900}
MOST_BYTES = 240_000  # of a page with all that it loads, compressed; the heaviest has 232,000
LOADED = re.compile(r'<(?:script|link)[^>]*(?:src|href)="([^"#?]*\.(?:js|css))')

MEASURE = """() => {
  const luminance = c => { const [r, g, b] = c.match(/[\\d.]+/g).map(Number); return (0.2126*r + 0.7152*g + 0.0722*b) / 255; };
  const style = getComputedStyle(document.body), box = e => e.getBoundingClientRect();
  return {
    wider: document.documentElement.scrollWidth - innerWidth,
    sticking: [...document.querySelectorAll("article.bd-article > *, article.bd-article > section > *")].filter(
      e => box(e).right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80)),
    paper: luminance(style.backgroundColor), ink: luminance(style.color),
    formulas: document.querySelectorAll("article .math").length,
    set: [...document.querySelectorAll("article .math .katex-html")].filter(e => e.textContent.trim()).length,
    seen: [...document.querySelectorAll("article .math .katex-html")].some(e => e.checkVisibility()),
    spoken: document.querySelectorAll("article .math math").length,
    errors: document.querySelectorAll(".katex-error").length,
    fonts: [...document.fonts].filter(f => f.family.includes("KaTeX") && f.status == "loaded").length,
  };
}"""


@pytest.fixture(scope="module")
def tab(browser):
    context = browser.new_context(viewport=PHONE, color_scheme="light")
    yield context.new_page()
    context.close()


@functools.cache
def compressed(path):
    data = path.read_bytes()
    if path.suffix in (".woff", ".woff2"):
        return len(data)
    return len(gzip.compress(data, 6))


def named(page):
    """Bytes of a page, of the styles and scripts that it names, and nearly of the fonts that its formulas need, compressed."""
    file, text = SITE / page, (SITE / page).read_text(encoding="utf8")
    files = [file, *(file.parent / source for source in LOADED.findall(text))]
    return sum(compressed(f.resolve()) for f in files if f.exists()) + sum(
        9_000 for font in ("mathsf", "mathcal", "mathbb") if font in text
    )


@pytest.mark.skipif(not PAGES, reason="the site is not built: run `make book`")
@pytest.mark.parametrize("page", PAGES)
def test_page_reads_offline_on_a_phone_in_light_and_dark(page, served, tab):
    trouble, loaded = [], set()
    listeners = {
        "console": lambda m: m.type == "error" and trouble.append(m.text),
        "pageerror": lambda e: trouble.append(str(e)),
        "requestfailed": lambda r: r.failure == "net::ERR_ABORTED" or trouble.append(f"failed: {r.url}"),  # the page before was left
        "request": lambda r: loaded.add(r.url),
    }
    for event, listener in listeners.items():
        tab.on(event, listener)
    try:
        tab.emulate_media(color_scheme="light")
        tab.goto(served + page)
        tab.wait_for_selector("main")
        tab.evaluate("document.fonts.ready.then(() => 0)")
        light = tab.evaluate(MEASURE)
        tab.emulate_media(color_scheme="dark")
        tab.wait_for_function("document.documentElement.dataset.theme == 'dark'", timeout=5000)
        dark = tab.evaluate(MEASURE)
    finally:
        for event, listener in listeners.items():
            tab.remove_listener(event, listener)
    assert not trouble
    assert [u for u in loaded if not u.startswith((served, "data:", "blob:"))] == []
    assert light["wider"] <= 0 and not light["sticking"]
    assert light["paper"] > 0.9 and light["ink"] < 0.3
    assert dark["paper"] < 0.2 and dark["ink"] > 0.6
    assert light["errors"] == 0
    if light["formulas"]:
        assert light["set"] >= light["formulas"] and light["spoken"] >= light["formulas"]
        assert light["fonts"] or not light["seen"]


@pytest.mark.skipif(not PAGES, reason="the site is not built: run `make book`")
def test_no_page_is_heavy(browser, served):
    """The twelve heaviest as a first visitor loads them: in a browser that holds nothing."""
    heaviest = sorted(PAGES, key=named)[-12:]
    weights = {}
    for page in heaviest:
        context = browser.new_context(viewport=PHONE)
        tab, loaded = context.new_page(), set()
        tab.on("request", lambda r, loaded=loaded: loaded.add(r.url))
        tab.goto(served + page, wait_until="load")
        tab.evaluate("document.fonts.ready.then(() => 0)")
        weights[page] = sum(compressed(SITE / urlsplit(u).path.lstrip("/")) for u in loaded if u.startswith(served))
        context.close()
    assert max(weights.values()) <= MOST_BYTES, weights


@pytest.mark.skipif(not PAGES, reason="the site is not built: run `make book`")
def test_site_reads_from_the_disk(browser):
    """Opened as files, without a server: style, maths, the table of contents and the next page work."""
    page = browser.new_page(viewport=DESK)
    trouble = []
    page.on("pageerror", lambda e: trouble.append(str(e)))
    page.on("requestfailed", lambda r: trouble.append(r.url))
    page.goto((SITE / "index.html").as_uri())
    page.wait_for_selector("article h1")
    page.click(".prev-next-area a.right-next")
    page.wait_for_selector("article h1")
    assert page.evaluate("getComputedStyle(document.querySelector('.bd-sidebar-primary')).display") != "none"
    assert page.evaluate("document.querySelectorAll('.katex-error').length") == 0
    assert not trouble
    page.close()

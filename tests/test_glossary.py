"""The glossary: in order, each word on the page that it names; and the definitions in place, on the built pages and in a browser."""

import re
import sys
from collections import Counter
from html import unescape

import pytest
from conftest import ROOT, SITE, site_pages

sys.path.insert(0, str(ROOT / "book/_site/ext"))
import content
from workloads_site import glossary, notation

TEXT = (ROOT / "book/reference/glossary.md").read_text(encoding="utf8")
ENTRIES = [block.strip("\n").split("\n") for block in re.split(r"\n\n(?=\S)", TEXT.split("```{glossary}\n")[1].split("```")[0])]
NAMES = [[line for line in entry if line and line[0] != " "] for entry in ENTRIES]
PAGES = [page for page in site_pages() if 'data-means="' in (SITE / page).read_text(encoding="utf8")]
HINT = re.compile(r'<a data-means="([^"]*)" class="wl-term[^"]*" href="([^"#]*)#([^"]*)">(.*?)</a>', re.DOTALL)
built = pytest.mark.skipif(not PAGES, reason="the site is not built: run `make book`")
# bold for emphasis, or as the label of a short list
EMPHASIS = {
    "memory",
    "flop count",
    "v2",
    "models",
    "measured",
    "when",
    "which steps must wait",
    "restored",
    "first",
    "queues",
    "prepared",
    "computes",
    "returns",
    "steps",
    "own",
    "max",
    "sum",
    "bound",
    "valley",
    "mooncake trace",
    "input",
    "path",
    "area",
    "encoder",
    "decoder",
    "break even",
    "filter",
    "mute",
    "stop",
    "release",
    "bf16 weight",
    "pairs",
    "total",
    "active",
    "utilisation",
    "time",
    "machines or software",
    "then requests enter",
    "published figure",
}


def order(name):
    return re.sub(r"[^a-z0-9 ]", "", name.lower())


def test_words_stand_in_the_order_of_the_alphabet_and_once():
    first = [order(names[0]) for names in NAMES]
    assert first == sorted(first)
    assert max(Counter(name.lower() for names in NAMES for name in names).values()) == 1
    assert 90 <= len(NAMES) <= 200


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry[0])
def test_a_word_is_defined_and_stands_on_the_page_it_names(entry):
    names = [line for line in entry if line and line[0] != " "]
    definition, link = (line.strip() for line in entry[len(names) :] if line.strip())
    assert definition.endswith(".") and len(definition) < 300
    title, target = re.fullmatch(r"\[(.+)\]\(\.\./(.+\.ipynb)\)", link).groups()
    page = content.page(ROOT / "book" / target)
    assert title == page.title
    text = f"{page.markdown}\n{page.code}".lower()
    assert any(name.lower() in text for name in names)


def defined(page):
    """What a chapter sets in bold, as it does where it defines a word; labels that end a sentence are left out."""
    for cell in content.page(ROOT / f"{page}.ipynb").cells[1:]:
        if cell.kind == "markdown":
            bold = re.findall(r"\*\*([^*\n\[$]+)\*\*(?!:)", cell.source)
            yield from (text for text in bold if not text.endswith((".", ":")) and text.count(" ") < 3)


@pytest.mark.parametrize("page", notation.pages())
def test_words_that_a_chapter_defines_are_in_the_glossary(page):
    known = {name.lower() for names in NAMES for name in names}
    forms = lambda w: {w, w.rstrip("s"), w + "s", re.sub("ies$", "y", w), re.sub("es$", "", w), re.sub("ed$", "", w)}
    assert [word for word in defined(page) if not forms(word.lower()) & known and word.lower() not in EMPHASIS] == []


def test_everyday_words_are_names_of_the_glossary():
    assert not glossary.EVERYDAY - {name for names in NAMES for name in names}


@pytest.mark.parametrize(
    "name, text, found",
    [
        ("decode step", "Decode steps read", "Decode steps"),
        ("decode step", "each decode\nstep", "decode\nstep"),
        ("policy", "two policies", "policies"),
        ("MFU", "an mfu", None),
        ("MFU", "its MFU.", "MFU"),
        ("batch", "micro-batch", None),
        ("FLOP", "FLOP/s", None),
        ("ridge", "bridge", None),
        ("prefill", "prefilled", None),
    ],
)
def test_names_are_found_in_running_text(name, text, found):
    match = re.search(rf"(?<![\w/-]){glossary._pattern(name)}(?![\w/]|-\w)", text)
    assert (match and match[0]) == found


@built
@pytest.mark.parametrize("page", PAGES)
def test_hints_of_a_page(page):
    """Each leads to its word in the glossary and carries that word's definition; a page has each word once, and few enough to stay calm."""
    html = (SITE / page).read_text(encoding="utf8")
    words = (SITE / "book/reference/glossary.html").read_text(encoding="utf8")
    hints = HINT.findall(html)
    assert len(hints) == html.count('data-means="') <= 25
    plain = [{re.sub(r"\W+", " ", name).strip().lower() for name in names} for names in NAMES]
    wanted = [unescape(target).removeprefix("term-").replace("-", " ").lower() for _, _, target, _ in hints]
    entries = [next(i for i, names in enumerate(plain) if target in names) for target in wanted]
    assert len(set(entries)) == len(entries)
    for (means, path, target, _), entry in zip(hints, entries):
        assert (SITE / page).parent.joinpath(path).resolve() == SITE / "book/reference/glossary.html"
        assert f'id="{target}"' in words
        assert means and unescape(means) == re.sub(r"['’]", "’", ENTRIES[entry][len(NAMES[entry])].strip()).replace("...", "…")
    assert "hints.js" in html


@built
def test_no_hint_in_headings_code_links_formulas_or_tables():
    for page in PAGES:
        html = (SITE / page).read_text(encoding="utf8")
        for tag in ("h1", "h2", "h3", "pre", "code", "table", "figcaption", "strong"):
            for part in re.findall(rf"<{tag}[ >].*?</{tag}>", html, re.DOTALL):
                assert "data-means=" not in part, (page, part[:200])


@built
def test_the_glossary_explains_itself():
    assert "data-means=" not in (SITE / "book/reference/glossary.html").read_text(encoding="utf8")


def box(tab):
    return tab.evaluate("""() => { const h = document.getElementById("wl-hint"), r = h.getBoundingClientRect();
        return {seen: !h.hidden, text: h.textContent, left: r.left, right: r.right, top: r.top, bottom: r.bottom,
          wide: document.documentElement.scrollWidth - innerWidth,
                by: document.querySelector("[aria-describedby=wl-hint]")?.textContent ?? null}; }""")


@pytest.fixture(params=["light", "dark"])
def tab(browser, served, request):
    context = browser.new_context(viewport={"width": 360, "height": 740}, color_scheme=request.param, has_touch=True)
    page = context.new_page()
    page.goto(served + max(PAGES, key=lambda p: (SITE / p).read_text(encoding="utf8").count("data-means=")))
    yield page
    context.close()


@built
def test_the_definition_shows_on_hover_stays_under_the_pointer_and_leaves_with_escape(tab):
    links = tab.locator("a.wl-term")
    for at in range(links.count()):
        links.nth(at).scroll_into_view_if_needed()
        if not links.nth(at).is_visible() or links.nth(at).evaluate("link => link.getClientRects().length > 1"):
            continue  # one broken across lines has no corner to point at
        tab.mouse.move(1, 1)
        links.nth(at).hover(position={"x": 3, "y": 5})
        tab.wait_for_function(
            "means => !document.getElementById('wl-hint').hidden && document.getElementById('wl-hint').textContent == means",
            arg=links.nth(at).get_attribute("data-means"),
        )
        now = box(tab)
        assert now["text"] == links.nth(at).get_attribute("data-means") and now["by"] == links.nth(at).text_content()
        assert now["left"] >= 0 and now["right"] <= 360 and now["wide"] <= 0 and now["top"] >= 0
    hint = tab.locator("#wl-hint")
    hint.hover()
    tab.wait_for_timeout(400)
    assert box(tab)["seen"]
    tab.keyboard.press("Escape")
    assert not box(tab)["seen"] and box(tab)["by"] is None
    links.first.scroll_into_view_if_needed()
    links.first.hover()
    tab.wait_for_function("!document.getElementById('wl-hint').hidden")
    tab.mouse.move(1, 1)
    tab.wait_for_function("document.getElementById('wl-hint').hidden")


@built
def test_the_definition_shows_on_focus_and_leaves_with_it(tab):
    first = tab.locator("a.wl-term").first
    first.focus()
    tab.keyboard.press("Tab")
    tab.keyboard.press("Shift+Tab")
    assert tab.evaluate("document.activeElement == document.querySelector('a.wl-term')")
    assert box(tab)["seen"] and box(tab)["text"] == first.get_attribute("data-means")
    tab.keyboard.press("Escape")
    assert not box(tab)["seen"] and tab.evaluate("document.activeElement.classList.contains('wl-term')")
    tab.keyboard.press("Tab")
    tab.keyboard.press("Shift+Tab")
    assert box(tab)["seen"]
    tab.keyboard.press("Tab")
    tab.wait_for_function("document.getElementById('wl-hint').hidden || document.activeElement.classList.contains('wl-term')")


@built
def test_a_touch_shows_the_definition_and_a_second_one_follows_the_link(tab):
    first = tab.locator("a.wl-term").first
    first.scroll_into_view_if_needed()
    address = tab.url
    first.tap()
    assert tab.url == address and box(tab)["seen"]
    tab.locator("article h1").first.tap()
    assert not box(tab)["seen"]
    first.tap()
    first.tap()
    tab.wait_for_url("**/glossary.html#term-*")


@built
def test_the_definition_can_be_read_in_both_themes(tab):
    first = tab.locator("a.wl-term").first
    first.scroll_into_view_if_needed()
    first.hover()
    tab.wait_for_function("!document.getElementById('wl-hint').hidden")
    assert (
        tab.evaluate("""() => {
      const lum = c => {
        const [r, g, b] = c.match(/[\\d.]+/g).map(v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
        return .2126 * r + .7152 * g + .0722 * b; };
      const ratio = (a, b) => (Math.max(a, b) + .05) / (Math.min(a, b) + .05), style = getComputedStyle(document.getElementById("wl-hint"));
      return ratio(lum(style.color), lum(style.backgroundColor)); }""")
        >= 4.5
    )

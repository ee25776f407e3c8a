"""The built site: every internal link, anchor and asset resolves, nothing comes from another host, every page and figure is complete."""

import functools
import re
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

import content
import pytest
from conftest import ROOT, SITE, site_pages

pytestmark = pytest.mark.skipif(not SITE.is_dir(), reason="the site is not built: run `make book`")
VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}


class Page(HTMLParser):
    """What the tests ask of a page: ids, references, what it loads, headings, figures and images."""

    def __init__(self, path):
        super().__init__()
        self.ids, self.title, self.redirect = set(), "", None
        self.twice, self.references, self.loads, self.images, self.figures = [], [], [], [], []
        self.stack = []
        self.headings = 0
        self.feed(path.read_text(encoding="utf8"))

    def handle_starttag(self, tag, attributes):
        a = dict(attributes)
        if tag not in VOID:
            self.stack.append(tag)
        if identifier := a.get("id"):
            self.twice += [identifier] if identifier in self.ids else []
            self.ids.add(identifier)
        if tag == "a" and a.get("name"):
            self.ids.add(a["name"])
        if tag == "meta" and a.get("http-equiv", "").lower() == "refresh":
            self.redirect = a["content"].partition("url=")[2]
        for key in ("href", "src", "xlink:href"):
            if a.get(key) is not None:
                self.references.append(a[key])
                if tag in ("script", "img", "iframe", "source", "image") or (
                    tag == "link" and a.get("rel") in ("stylesheet", "preload", "icon")
                ):
                    self.loads.append(a[key])
        if tag == "img":
            self.images.append(a)
        if tag == "h1":
            self.headings += 1
        if tag == "figure":
            self.figures.append({"class": a.get("class"), "alt": None, "caption": ""})
        if tag == "svg" and "figure" in self.stack:
            self.figures[-1]["alt"] = a.get("aria-label") if a.get("role") == "img" else None

    def handle_endtag(self, tag):
        if tag in self.stack:
            del self.stack[len(self.stack) - 1 - self.stack[::-1].index(tag) :]

    def handle_data(self, data):
        if "title" in self.stack and "svg" not in self.stack:
            self.title += data
        if "figcaption" in self.stack:
            self.figures[-1]["caption"] += data


PAGES = site_pages()
WRITTEN = [name for name in PAGES if (ROOT / name).with_suffix(".ipynb").exists() or (ROOT / name).with_suffix(".md").exists()]


@functools.cache
def parsed(name):
    """A page of the site; None if there is none."""
    return Page(SITE / name) if name in PAGES else None


def missing(name, reference):
    """Is there nothing at ``reference`` seen from page ``name``?"""
    url = urlsplit(reference)
    if url.scheme or url.netloc or reference.startswith(("mailto:", "javascript:")):
        return False
    target = ((SITE / name).parent / unquote(url.path)).resolve() if url.path else (SITE / name).resolve()
    if target.is_dir():
        target /= "index.html"
    if not target.is_relative_to(SITE.resolve()) or not target.exists():
        return True
    page = parsed(target.relative_to(SITE.resolve()).as_posix())
    return bool(page and url.fragment and unquote(url.fragment) not in page.ids)


@pytest.mark.parametrize("name", PAGES)
def test_links_anchors_and_assets_resolve(name):
    page = parsed(name)
    assert not [r for r in page.references if missing(name, r)]
    assert page.redirect is None or not missing(name, page.redirect)


def badly_formed(reference):
    """Is it an address elsewhere that no reader should be sent to: not https, no host with a dot, a space or a stray sign at its end?"""
    if not re.match(r"[a-z][a-z0-9+.-]*:|//", reference) or reference.startswith(("mailto:", "data:", "blob:")):
        return False
    return not re.fullmatch(r"https://[a-z0-9-]+(\.[a-z0-9-]+)+(:\d+)?(/[^\s<>\"`{}|\\^]*)?(?<![.,;])", reference)


@pytest.mark.parametrize("name", PAGES)
def test_addresses_elsewhere_are_well_formed(name):
    assert not [r for r in parsed(name).references if badly_formed(r)]


def test_a_badly_formed_address_would_be_seen():
    bad = ["http://example.org", "https://example", "https://example.org/a b", "https://example.org/a.", "//example.org/x.js", "file:///a"]
    assert all(map(badly_formed, bad))
    good = ["https://arxiv.org/abs/2601.00001", "https://a.example.org/x?y=1#z", "mailto:a@example.org", "page.html#https", "../a", "#top"]
    assert not any(map(badly_formed, good))


def test_what_is_offered_to_download_is_there():
    """Notebooks and starters by a link each, from their page; nothing lies there that no page offers."""
    offered = {
        ((SITE / name).parent / unquote(r)).resolve()
        for name in WRITTEN
        for r in parsed(name).references
        if r.endswith(".ipynb") and not urlsplit(r).query
    }  # a query asks for the live notebook
    there = {p.resolve() for folder in ("_sources", "starters") for p in (SITE / folder).rglob("*.ipynb")}
    assert there and {p for p in offered if not p.exists()} == set() and there - offered == set()


def test_a_dead_link_or_anchor_would_be_seen():
    name = WRITTEN[0]
    assert missing(name, "no-such-page.html") and missing(name, "#no-such-anchor") and missing(name, "../_static/no-such.css")
    assert not missing(name, "") and not missing(name, "https://example.org/elsewhere")


@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_loaded_from_another_host(name):
    assert not [u for u in parsed(name).loads if urlsplit(u).netloc]
    text = (SITE / name).read_text(encoding="utf8")
    assert str(ROOT) not in text, "the page names a folder of the machine that built it"


def test_no_style_sheet_asks_another_host():
    for sheet in SITE.rglob("_static/**/*.css"):
        assert not re.search(r"""(?:url\(|@import)\s*["']?(?:https?:)?//""", sheet.read_text(encoding="utf8")), sheet.name


@pytest.mark.parametrize("name", WRITTEN)
def test_page_has_a_title_and_one_main_heading(name):
    page = parsed(name)
    # the theme's print version repeats the main heading
    assert page.title.strip() and page.headings == 2
    assert not page.twice, "ids that occur twice"


@pytest.mark.parametrize("name", [n for n in WRITTEN if (ROOT / n).with_suffix(".ipynb").exists()])
def test_page_offers_its_notebook(name):
    source = (ROOT / name).with_suffix(".ipynb")
    offered = SITE / "_sources" / source.relative_to(ROOT)
    assert offered.read_text(encoding="utf-8") == content.completed_text(source.read_text(encoding="utf-8"), ".ipynb")
    assert any(offered.resolve() == ((SITE / name).parent / unquote(r)).resolve() for r in parsed(name).references if r.endswith(".ipynb"))


@pytest.mark.parametrize("name", PAGES)
def test_figures_have_alt_text_and_caption(name):
    for figure in parsed(name).figures:
        assert figure["caption"].strip(), figure
        assert figure["class"] != "wl-figure" or (figure["alt"] or "").strip(), figure
    for image in parsed(name).images:
        assert image.get("alt", "").strip() and "_images/" not in image["alt"], image


def test_notebooks_of_the_book_are_all_in_the_table_of_contents():
    for folder in ("book", "exercises"):
        for source in (ROOT / folder).rglob("*.ipynb"):
            if "_site" not in source.parts and ".ipynb_checkpoints" not in source.parts:
                assert source.relative_to(ROOT).with_suffix(".html").as_posix() in PAGES, f"{source.name} is in no part of _toc.yml"

"""The way through the book: every page says what it gives, needs, leaves out and leads to, and the map shows them all."""

import json
import re
import shutil
import sys
from collections import Counter
from graphlib import TopologicalSorter
from html.parser import HTMLParser
from importlib import import_module

import pytest
from conftest import ROOT, SITE

sys.path.insert(0, str(ROOT / "book/_site/ext"))
import library
from workloads_site import wayfinding

PAGES = wayfinding.book(ROOT)
ORDER = list(PAGES)
EXERCISES = [name for name, page in PAGES.items() if page.exercise]
SECTIONS = [name for name in PAGES if re.fullmatch(r"book/workloads/3-\d", name)]
REFERENCE = [name for name in PAGES if name.startswith("book/reference/") and not name.endswith("template")]
CHAPTERS = [name for name in PAGES if name.startswith("book/") and name not in REFERENCE and (ROOT / f"{name}.ipynb").exists()]

LIST = r"(?:- [^\n]+\n){2,4}"
TABLE = r"\| (?:formula|rule|question) \|[^\n]*where it holds \|[^\n]*\n\|[:\-| ]+\|\n(?:\|[^\n]+\|(?:\n|$)){1,}"
OPENING = re.compile(
    r"# (?P<title>[^\n]+)\n\n\*\*(?P<answer>[^\n]+)\*\*\n\nAfter this page you can:\n\n(?P<can>" + LIST + r")\n"
    r"\*(?P<minutes>\d+) minutes\. Builds on (?P<builds>[^\n]+)\*"
)
CLOSING = re.compile(
    r"## What this leaves out\n\n(?P<leaves>[^#]+?)\n\n(?:## Formulas and where they hold\n\n(?P<table>" + TABLE + r")\n+)?"
    r"## Exercises, sources, next\n\n\*\*Exercises:\*\* (?P<exercises>[^\n]+)\n\n"
    r"\*\*Sources:\*\* (?P<sources>[^\n]+)\n\n\*\*Next:\*\* (?P<next>[^\n]+)\s*"
)

EXERCISE = re.compile(r"# (?:Exercise|Design) [A-Z0-9.-]+: [^\n]+\n\n\*\d+ minutes\. Builds on [^\n]+\. Goal: [^\n]+\.\*$")


def metadata(path):
    if path.suffix == ".ipynb":
        return json.loads(path.read_text(encoding="utf-8"))["metadata"]["workloads"]["minutes"]
    return int(re.search(r"\A---\nworkloads: \{minutes: (\d+)\}\n---\n", path.read_text(encoding="utf-8"))[1])


def reading_minutes(path):
    """How long a page takes: 200 words a minute, and a while for each piece of code, figure, line of a table and formula."""
    words = code = figures = tables = lines = formulas = 0
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        tags = set(cell["metadata"].get("tags", []))
        shown = ["".join(cell["source"])] if cell["cell_type"] == "markdown" else []
        code += cell["cell_type"] == "code" and not tags & {"remove-input", "hide-input", "remove-cell", "hide-cell"}
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            figures += "image/svg+xml" in data
            formulas += "text/latex" in data
            shown += ["".join(data.get("text/markdown", ""))] * (not tags & {"remove-cell", "hide-output"})
        for text in shown:
            formulas += text.count("$$") // 2
            tables += len(re.findall(r"^\|[:\-| ]+\|$", text, re.MULTILINE))
            lines += len(re.findall(r"^\|", text, re.MULTILINE))
            words += len(re.sub(r"^\s*\|.*$|\$\$.*?\$\$", "", text, flags=re.MULTILINE).split())
    return words / 200 + code / 4 + figures * 3 / 4 + tables / 4 + lines / 20 + formulas / 4


def faults(root, pages, name):
    """What a chapter page or a section page lacks."""
    path = wayfinding.source(root, name)
    front, text, _ = wayfinding.texts(path)
    opening, closing = OPENING.match(front), CLOSING.search(text)
    if not opening:
        return ["its opening is not title, answer, what you can do, minutes, what it builds on"]
    if not closing or closing.end() != len(text):
        return ["its end is not what it leaves out, formulas, exercises, sources, next"]
    found, order = [], list(pages)
    if not opening["answer"].endswith("."):
        found.append("the answer is no sentence")
    if int(opening["minutes"]) != metadata(path):
        found.append("minutes in the text and in the metadata differ")
    if not closing["table"] and name not in SECTIONS:
        found.append("no table of formulas")
    parts = {"builds": opening["builds"], "exercises": closing["exercises"], "next": closing["next"]}
    without = [part for part, said in parts.items() if not wayfinding.links(said, path, root)]
    found += [f"no link under {part}" for part in without if part != "builds" or name != CHAPTERS[0]]
    if not re.search(r"\{cite\}|table|bibliography|those of the pages", closing["sources"]):
        found.append("no source")
    if not any(to.startswith("exercises/") for to in wayfinding.links(closing["exercises"], path, root)):
        found.append("no exercise")
    found += [f"no page {to}" for to in wayfinding.links(text, path, root) if not wayfinding.source(root, to)]
    page = pages[name]
    if not page.next or page.next[0] not in pages or (order.index(page.next[0]) <= order.index(name) and not last(name)):
        found.append("the next page does not lead on")
    return found


def last(name):
    """The chapters end with the summary; of the pages beside the book each may point anywhere."""
    return PAGES[name].part not in ("The ground", "FLOP Accounting", "Inference and Training Workloads")


@pytest.mark.parametrize("name", [*CHAPTERS, *SECTIONS])
def test_a_page_has_its_opening_and_its_end(name):
    assert faults(ROOT, PAGES, name) == []


@pytest.mark.parametrize("name", CHAPTERS)
def test_the_minutes_of_a_page_are_what_reading_it_takes(name):
    path = wayfinding.source(ROOT, name)
    assert metadata(path) == pytest.approx(reading_minutes(path), rel=1 / 3, abs=2)


@pytest.mark.parametrize("name", CHAPTERS)
def test_the_functions_named_beside_formulas_exist(name):
    closing = CLOSING.search(wayfinding.texts(wayfinding.source(ROOT, name))[1])
    for module, function in re.findall(r"`(\w+)\.(\w+)`", closing["table"] or ""):
        assert callable(getattr(import_module(library.short()[module]), function)), function


def test_pages_build_on_earlier_pages_alone():
    tuple(TopologicalSorter({name: page.builds for name, page in PAGES.items()}).static_order())
    assert [(name, to) for name, page in PAGES.items() for to in page.builds if ORDER.index(to) >= ORDER.index(name)] == []


def test_from_the_first_page_one_comes_by_next_through_every_chapter():
    """Following the first link of each closing one meets every page of the three parts, but for the sections' own front pages."""
    here, met = CHAPTERS[0], []
    while here and here not in met:
        met.append(here)
        here = next(iter(PAGES[here].next), None)
    assert [n for n in ORDER if n in CHAPTERS and not last(n) and n not in met] == []


@pytest.mark.parametrize("name", EXERCISES)
def test_an_exercise_and_the_pages_it_practises_lead_to_each_other(name):
    page, path = PAGES[name], wayfinding.source(ROOT, name)
    assert EXERCISE.match(wayfinding.texts(path)[0])
    assert page.minutes == metadata(path) and page.builds and page.next
    for chapter in page.builds:
        at = wayfinding.source(ROOT, chapter)
        assert name in wayfinding.links(CLOSING.search(wayfinding.texts(at)[1])["exercises"], at, ROOT), f"{chapter} does not name it"
        assert chapter in page.next or chapter.startswith("book/workloads/3-4"), f"no way back to {chapter}"
    assert ORDER.index(page.next[0]) > ORDER.index(name)
    grading = [cell["metadata"].get("nbgrader", {}) for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]]
    points = sum(cell["points"] for cell in grading if cell.get("grade"))
    assert 1 <= page.minutes / points <= 3


# --- the map ------------------------------------------------------------------------------------------------------------


class Links(HTMLParser):
    def __init__(self, html):
        super().__init__()
        self.found, self.alt = [], []
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        a = dict(attributes)
        if tag == "a":
            self.found.append(a["href"])
        if tag == "svg":
            self.alt.append(a["aria-label"])


def test_every_page_is_on_the_map_once():
    """The modules of the library are found from their index."""
    links = Links(wayfinding.drawn(PAGES, "../"))
    assert Counter(links.found) == Counter(f"../{name}.html" for name in PAGES if PAGES[name].parent != "book/reference/api/index")
    assert len(links.alt) == 1 and links.alt[0].strip()


def test_the_map_has_an_arc_for_every_link_and_says_it_in_words():
    html, between = wayfinding.drawn(PAGES, ""), [(a, n) for n in PAGES if n not in EXERCISES for a in PAGES[n].builds if PAGES[a].minutes]
    assert html.count("<path ") == len(between) > 40
    for earlier, name in between:
        line = re.search(rf'<li [^>]*>(?:(?!</li>).)*href="{re.escape(name)}\.html"(?:(?!</li>).)*</li>', html)[0]
        assert wayfinding.escape(PAGES[earlier].title) in line.partition("builds on")[2]


def test_the_table_of_contents_is_read_as_the_file_lists_it():
    listed = re.findall(r"file: (\S+)", (ROOT / "_toc.yml").read_text(encoding="utf-8"))
    assert [name for name in ORDER if name in listed] == listed and len(set(listed)) == len(listed)


def test_the_landing_page_leads_to_the_map():
    page = ROOT / "book/index.md"
    assert "book/map" in wayfinding.links(page.read_text(encoding="utf-8").partition("| If you want")[0], page, ROOT)


def test_layers_are_those_of_the_names_a_page_uses():
    text = "from workloads.counts import flops\nfrom workloads_book import say\nsay(flops.pairs(8))"
    assert wayfinding.layers(text) == {"counts"}
    assert wayfinding.layers("import workloads as wl\nwl.model('x'), wl.rl_step") == {"facts", "learning"}
    assert wayfinding.layers("from workloads.times import (\n    machine,\n    roofline as r,\n)\nr.ridge") == {"times"}
    assert wayfinding.layers("import json") == frozenset()


# --- the built site -----------------------------------------------------------------------------------------------------


class Foot(HTMLParser):
    """Links at the foot of a page, and what else helps to get about."""

    def __init__(self, html):
        super().__init__()
        self.to, self.top = {}, False
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        a = dict(attributes)
        kind = a.get("class") or ""
        if tag == "a" and kind in ("left-prev", "right-next"):
            self.to[kind] = a["href"]
        self.top |= "pst-back-to-top" in (a.get("id") or "")


@pytest.mark.skipif(not (SITE / "book/index.html").exists(), reason="the site is not built: run `make book`")
def test_previous_and_next_at_the_foot_follow_the_contents():
    order = ["book/index", *(name for name in PAGES if (SITE / f"{name}.html").exists())]
    for before, name, after in zip([None, *order], order, [*order[1:], None]):
        page = SITE / f"{name}.html"
        foot = Foot(page.read_text(encoding="utf-8"))
        found = {kind: (page.parent / to).resolve().relative_to(SITE).with_suffix("").as_posix() for kind, to in foot.to.items()}
        assert found == {kind: other for kind, other in (("left-prev", before), ("right-next", after)) if other}, name
        assert foot.top, f"no way back to the top of {name}"


@pytest.mark.skipif(not (SITE / "book/index.html").exists(), reason="the site is not built: run `make book`")
def test_names_in_the_sidebar_are_short():
    sidebar = (SITE / "book/index.html").read_text(encoding="utf-8").partition("bd-links")[2].partition("</nav>")[0]
    names = re.findall(r'<a class="reference internal" href="(?!\.\./exercises)[^"]*">\s*([^<]+?)\s*</a>', sidebar)
    assert len(names) > 40 and [name for name in names if len(name) > 40] == []


# --- the checks themselves ----------------------------------------------------------------------------------------------


@pytest.fixture
def planted(tmp_path):
    """A page as it is, after a change of its text."""

    def plant(old, new, name="book/flop-accounting/throughput"):
        for here in filter(None, (wayfinding.source(ROOT, other) for other in PAGES)):
            there = tmp_path / here.relative_to(ROOT)
            there.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(here, there)
        shutil.copy(ROOT / "_toc.yml", tmp_path)
        path = wayfinding.source(tmp_path, name)
        notebook = json.loads(path.read_text(encoding="utf-8"))
        changed = 0
        for cell in notebook["cells"]:
            if cell["cell_type"] == "markdown" and re.search(old, "".join(cell["source"]), re.DOTALL):
                cell["source"], changed = re.sub(old, new, "".join(cell["source"]), flags=re.DOTALL), changed + 1
        assert changed == 1
        path.write_text(json.dumps(notebook), encoding="utf-8")
        return faults(tmp_path, wayfinding.book(tmp_path), name)

    return plant


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        (r"\n\*\*A GPU[^\n]*\*\*\n", "", "its opening"),
        (r"After this page.*?(?=\*\d+ min)", "", "its opening"),
        (r"\*14 minutes\.", "*15 minutes.", "minutes in the text"),
        (r" Builds on [^\n]*\*", "*", "its opening"),
        (r"Builds on [^\n]*\*", "Builds on much.*", "no link under builds"),
        (r"## What this leaves out", "## Limits", "its end"),
        (r"## Formulas and where.*?(?=## Ex)", "", "no table"),
        (r"\*\*Exercises:[^\n]*\n\n", "", "its end"),
        (r"\*\*Exercises:[^\n]*\n", "**Exercises:** [none](formulas.ipynb).\n", "no exercise"),
        (r"\*\*Sources:[^\n]*\n", "**Sources:** common knowledge.\n", "no source"),
        (r"\*\*Next:.*", "", "its end"),
        (r"\*\*Next:.*", "**Next:** more.", "no link under next"),
        (r"\*\*Next:.*", "**Next:** [back](formulas.ipynb).", "the next page does not lead on"),
        (r"(\*\*Next:\*\* \[[^\]]*\]\()roofline-check", r"\1no-such-page", "no page book/flop-accounting/no-such-page"),
    ],
)
def test_a_page_without_a_part_is_found(planted, old, new, fault):
    assert any(f.startswith(fault) for f in planted(old, new))

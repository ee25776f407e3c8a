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
import content
import library
from workloads_site import wayfinding

PAGES = wayfinding.book(ROOT)
ORDER = list(PAGES)
EXERCISES = [name for name, page in PAGES.items() if page.exercise]
SECTIONS = [name for name in PAGES if re.fullmatch(r"book/workloads/3-\d", name)]
REFERENCE = [name for name in PAGES if name.startswith("book/reference/") and not name.endswith("template")]
CHAPTERS = [name for name in PAGES if name.startswith("book/") and name not in REFERENCE and (ROOT / f"{name}.ipynb").exists()]

LIST = r"(?:- [^\n]+[^,;.\n][,;]\n){1,3}- [^\n]+[^,;.\n]\.\n"
TABLE = r"\| (?:formula|rule|question) \|[^\n]*where it holds \|[^\n]*\n\|[:\-| ]+\|\n(?:\|[^\n]+\|(?:\n|$)){1,}"
OPENING = re.compile(
    r"# (?P<title>[^\n]+)\n\n\*\*(?P<answer>[^\n]+)\*\*\n\nAfter this page you can:\n\n(?P<can>" + LIST + r")\n"
    r"\*(?P<minutes>\d+) minutes?\. Builds on (?P<builds>[^\n]+)\*"
)
CLOSING = re.compile(
    r"## What this leaves out\n\n(?P<leaves>[^#]+?)\n\n(?:## Formulas and where they hold\n\n(?P<table>" + TABLE + r")\n+)?"
    r"## Exercises, sources, next\n\n\*\*Exercises:\*\* (?P<exercises>[^\n]+)\n\n"
    r"\*\*Sources:\*\* (?P<sources>[^\n]+)\n\n\*\*Next:\*\* (?P<next>[^\n]+)\s*"
)

EXERCISE = re.compile(r"# (?:Exercise|Design) [A-Z0-9.-]+: [^\n]+\n\n\*\d+ minutes\. Builds on [^\n]+\. Goal: [^\n]+\.\*$")


def faults(root, pages, name):
    """What a chapter page or a section page lacks."""
    path = wayfinding.source(root, name)
    page, order = content.page(path, root), list(pages)
    opening, closing = OPENING.match(page.front), CLOSING.search(page.markdown)
    if not opening:
        return ["its opening is not title, answer, what you can do, minutes, what it builds on"]
    if not closing or closing.end() != len(page.markdown):
        return ["its end is not what it leaves out, formulas, exercises, sources, next"]
    found = [f"it says twice: {said}" for said in ("After this page you can:", "**Next:**") if page.markdown.count(said) != 1]
    if not opening["answer"].endswith("."):
        found.append("the answer is no sentence")
    if int(opening["minutes"]) != page.minutes:
        found.append("minutes in the text and in the metadata differ")
    if not closing["table"] and name not in SECTIONS:
        found.append("no table of formulas")
    without = [part for part in ("builds", "exercises", "next") if not page.leads(part)]
    found += [f"no link under {part}" for part in without if part != "builds" or name != CHAPTERS[0]]
    if not re.search(r"\{cite\}|table|bibliography|those of the pages", closing["sources"]):
        found.append("no source")
    if not any(to.startswith("exercises/") for to in page.leads("exercises")):
        found.append("no exercise")
    found += [f"no page {to}" for to in page.links if not wayfinding.source(root, to)]
    following = pages[name].next
    if not following or following[0] not in pages or (order.index(following[0]) <= order.index(name) and not last(name)):
        found.append("the next page does not lead on")
    return found


def last(name):
    """The chapters end with the summary; of the pages beside the book each may point anywhere."""
    return PAGES[name].part not in ("The ground", "FLOP Accounting", "Inference and Training Workloads")


@pytest.mark.parametrize("name", [*CHAPTERS, *SECTIONS])
def test_a_page_has_its_opening_and_its_end(name):
    assert faults(ROOT, PAGES, name) == []


@pytest.mark.parametrize("name", CHAPTERS)
def test_the_functions_named_beside_formulas_exist(name):
    closing = CLOSING.search(content.page(wayfinding.source(ROOT, name)).markdown)
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
    assert EXERCISE.match(content.page(path).front) and page.builds and page.next
    for chapter in page.builds:
        assert name in content.page(wayfinding.source(ROOT, chapter)).leads("exercises"), f"{chapter} does not name it"
        assert chapter in page.next or chapter.startswith("book/workloads/3-4"), f"no way back to {chapter}"
    assert ORDER.index(page.next[0]) > ORDER.index(name)
    grading = [cell.metadata.get("nbgrader", {}) for cell in content.page(path).cells]
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
    assert "book/map" in content.links(page.read_text(encoding="utf-8").partition("| If you want")[0], page)


def test_layers_are_those_of_the_names_a_page_uses():
    assert wayfinding.layers({"workloads.counts.flops.pairs", "workloads_book.page.say"}) == {"counts"}
    assert wayfinding.layers({"workloads.facts.models.model", "workloads.learning.rl.step.rl_step"}) == {"facts", "learning"}
    assert wayfinding.layers({"workloads.units.binary"}) == wayfinding.layers(()) == frozenset()


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

NAME = "book/flop-accounting/throughput"
BODY = """## What this leaves out

Much.

## Formulas and where they hold

| formula | where it holds | library |
|:---|:---|:---|
| $W / \\beta$ | always | `roofline.ridge` |

## Exercises, sources, next

**Sources:** {cite}`name2020`."""
SAYS = {
    "builds": "[before](flops-are-not-time.ipynb)",
    "goals": ["read this", "copy that"],
    "exercises": "[F-3](../../exercises/f-03/f-03.ipynb).",
    "next": "[the roofline check](roofline-check.ipynb), because it follows.",
}


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory):
    """A copy of the book's pages."""
    folder = tmp_path_factory.mktemp("book")
    for here in filter(None, [ROOT / "_toc.yml", *(wayfinding.source(ROOT, other) for other in PAGES)]):
        there = folder / here.relative_to(ROOT)
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(here, there)
    return folder


def planted(folder, says=SAYS, front="# Title\n\n**The answer is 42.**", body=BODY):
    """What is wrong with a page that says this."""
    cells = [{"cell_type": "markdown", "metadata": {}, "source": text} for text in (front, body)]
    path = folder / f"{NAME}.ipynb"
    path.write_text(json.dumps({"cells": cells, "metadata": {"workloads": says}}), encoding="utf-8")
    return faults(folder, wayfinding.book(folder), NAME)


def without(key):
    return {k: v for k, v in SAYS.items() if k != key}


def test_a_page_with_all_its_parts_passes(elsewhere):
    assert planted(elsewhere) == []


@pytest.mark.parametrize(
    ("page", "fault"),
    [
        ({"front": "# Title"}, "its opening"),
        ({"front": "# Title\n\n**The answer is 42**"}, "the answer is no sentence"),
        ({"front": "# Title\n\n**The answer is 42.**\n\nAfter this page you can:"}, "it says twice"),
        ({"says": without("goals")}, "its opening"),
        ({"says": SAYS | {"goals": ["read this"]}}, "its opening"),
        ({"says": SAYS | {"goals": ["read this", "copy that."]}}, "its opening"),
        ({"says": without("builds")}, "its opening"),
        ({"says": SAYS | {"builds": "much"}}, "no link under builds"),
        ({"says": without("exercises")}, "its end"),
        ({"says": SAYS | {"exercises": "[none](formulas.ipynb)."}}, "no exercise"),
        ({"says": without("next")}, "its end"),
        ({"says": SAYS | {"next": "more."}}, "no link under next"),
        ({"says": SAYS | {"next": "[back](formulas.ipynb)."}}, "the next page does not lead on"),
        ({"says": SAYS | {"next": "[on](no-such-page.ipynb)."}}, "no page book/flop-accounting/no-such-page"),
        ({"body": BODY.replace("What this leaves out", "Limits")}, "its end"),
        ({"body": re.sub(r"## Formulas.*?(?=## Ex)", "", BODY, flags=re.DOTALL)}, "no table"),
        ({"body": BODY.replace("{cite}`name2020`", "common knowledge")}, "no source"),
    ],
)
def test_a_page_without_a_part_is_found(elsewhere, page, fault):
    assert any(f.startswith(fault) for f in planted(elsewhere, **page))

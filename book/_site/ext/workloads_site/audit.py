"""The audit on the site: all rows of the ledger with what the pages computed, the differences from print, links to each check.

``{audit} counts`` numbers of rows by section, ``{audit} rows`` all rows with a filter, ``{audit} differences`` what does not follow, with
its corrections, ``{audit} totals`` one sentence. All of it is read from the outputs that the notebooks store, by the functions of audit.py.
"""

import re
from functools import lru_cache
from html import escape
from pathlib import Path

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from workloads_book import ledger
from workloads_book.page import VERDICTS, in_unit, place

from .exercises import GROUPS

SITE = Path(__file__).parents[2]
import audit

LEDGER = Path(ledger.__file__).with_name("data") / "ledger.json"
ROLES = {
    "derived": "derived",
    "given": "input",
    "measured": "measurement",
    "exercise": "exercise",
    "corrected": "correction",
    "figure": "figure",
    "recorded": "record",
    "words": "statement",
}
KINDS = {"wl-agrees": "bear out", "wl-differs": "differ", "wl-corrected": "correct or add", "wl-measured": "set a model beside"}
DIFFERS, ELSEWHERE = "≠ differs from print", "not on this site"
SECTIONS = {"3 intro": "Opening of chapter 3", "footnotes": "Footnotes", "code-task-trace": "Trace of a code task"}
EXPLAINED = (DIFFERS, "corrected", "added", "model against measurement")  # their notes stand in the table


# --------------------------------------------------------------------------------------------------------------------------- what is stored
class Stored:
    """What the stored notebooks say of every row, and the names of the pages."""

    def __init__(self):
        pages = audit.stored()
        records = audit.collected(pages)
        self.counts = audit.counts(records)
        self.by_id, self.shown = {}, {r["id"] for r in records} - {r["id"] for r in records if r["kind"] == "check"}
        for line in audit.audit(records):
            self.by_id.setdefault(line["id"], []).append(line)
        self.names = {name: _short(page.title) for name, page in pages.items()}

    def verdict(self, row):
        """The verdict of the row's check; how it is shown; or that no page of this site has it, as in a class's site the exercises."""
        if row.id not in self.by_id:
            return ELSEWHERE
        text = self.by_id[row.id][0]["verdict"]
        return f"shown: {text}" if row.id in self.shown else text

    def computed(self, row):
        return "" if self.verdict(row) == ELSEWHERE or row.id in self.shown else in_unit(row, self.by_id[row.id][0]["computed"])

    def links(self, row, here):
        """The pages of a row, each linked to the line that holds it."""
        pages = dict.fromkeys(line["page"] for line in self.by_id.get(row.id, ()))
        href = lambda p: f"{here}{Path(p).with_suffix('.html').as_posix()}#{place(row.id)}"
        return ", ".join(f'<a href="{href(p)}">{escape(self.names[p])}</a>' for p in pages)


@lru_cache(1)
def _stored(times):
    """What is stored, read once for all directives of a build."""
    return Stored()


def _short(title):
    """A short name of a page: the number of its section or exercise, else its title up to a colon."""
    return (re.match(r"Exercise [\w-]+|\d[\d.]*\d", title) or [title.partition(":")[0]])[0]


def kind(verdict):
    """The style class of a verdict; none for what is shown only."""
    return next((mark for start, mark in VERDICTS.items() if verdict.startswith(start)), "")


def documents():
    """(document, its title, its sections): numbered ones by number, others as they come."""
    titles = dict(GROUPS)
    for document in dict.fromkeys(d for d, _ in audit.sections()):
        found = [s for d, s in audit.sections() if d == document]
        yield document, titles[document], sorted(found, key=lambda s: s if s[0].isdigit() else "9") if document == "workloads" else found


def heading(section):
    """A section's name as a heading."""
    return SECTIONS.get(section, f"Section {section}" if section[:2] == "3." else section)


# ------------------------------------------------------------------------------------------------------------------------ HTML parts
def _table(name, caption, heads, lines, foot=""):
    head = "".join(f'<th scope="col">{h}</th>' for h in heads)
    foot = foot and f"<tfoot>{foot}</tfoot>"
    return (
        f'<div class="pst-scrollable-table-container"><table class="table {name}"><caption>{caption}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody>{foot}</table></div>"
    )


def totals(stored):
    """One sentence with the numbers of all rows."""
    rows, checked, shown, missing = map(sum, zip(*stored.counts.values()))
    text = f"{rows:,} rows: {checked} are computed and checked, {shown} are shown as printed"
    return f"<p>{text}{f', {missing} are on no page of this site' if missing else ''}.</p>"


def counts(stored):
    """Rows, checks and verdicts of every section."""

    def tally(found):
        verdicts = [kind(stored.verdict(row)) for row in found if row.id in stored.by_id and row.id not in stored.shown]
        return [verdicts.count(mark) for mark in KINDS]

    def line(name, numbers, tag="td"):
        cells = "".join(f'<td class="text-right">{n or "–"}</td>' for n in numbers)
        return f'<tr><th scope="row">{name}</th>{cells}</tr>'

    heads = ["Section", "rows", "checked", "shown", *KINDS.values()]
    for document, title, names in documents():
        numbers = {s: [*stored.counts[document, s][:3], *tally(audit.sections()[document, s])] for s in names}
        link = lambda s: f'<a href="#{nodes.make_id(f"{document}-{s}")}">{escape(heading(s).removeprefix("Section "))}</a>'
        lines = [line(link(s), n) for s, n in numbers.items()]
        yield _table("wl-counts", f"{title}: rows and verdicts by section", heads, lines, line("All", map(sum, zip(*numbers.values()))))


def _row(row, stored, here):
    verdict = stored.verdict(row)
    known = verdict != ELSEWHERE
    note = f"<p>{escape(row.note)}</p>" if verdict in EXPLAINED or (known and row.status == "discrepancy") else ""
    cells = [
        f"<td>{escape(row.printed or '–') if known else ''}</td>",
        f"<td>{escape(stored.computed(row))}</td>",
        f'<td class="{kind(verdict)}">{escape(verdict)}</td>',
        f"<td>{stored.links(row, here)}</td>",
    ]
    about = f"<span><code>{row.id}</code> {ROLES[row.role]}</span>{note}"
    return f'<tr id="row-{row.id}"><th scope="row">{escape(row.what)}{about}</th>{"".join(cells)}</tr>'


def rows(stored, here):
    """A section node for each document and section, with its table."""
    heads = ["Row", "printed", "computed", "verdict", "page"]
    for document, title, names in documents():
        part = nodes.section("", nodes.title("", title), ids=[f"rows-{document}"], names=[])
        for name in names:
            found = audit.sections()[document, name]
            table = _table("wl-audit", f"{escape(heading(name))}: {len(found)} rows", heads, [_row(r, stored, here) for r in found])
            part += nodes.section(
                "", nodes.title("", heading(name)), nodes.raw("", table, format="html"), ids=[nodes.make_id(f"{document}-{name}")], names=[]
            )
        yield part


def _select(name, label, options):
    options = "".join(f"<option>{escape(o)}</option>" for o in dict.fromkeys(options))
    choice = f'<select id="wl-{name}" name="{name}"><option value="">all</option>{options}</select>'
    return f'<div><label for="wl-{name}">{label}</label>{choice}</div>'


def form(stored):
    """The filter; the page's script uncovers it."""
    every = ledger.rows().values()
    verdicts = sorted({stored.verdict(r) for r in every}, key=lambda v: (v.startswith("shown"), not v.startswith("✓"), v))
    return (
        '<form class="wl-filter" role="search" aria-label="Filter of the rows" hidden>'
        '<div><label for="wl-text">Words or row</label><input type="search" id="wl-text" name="text" autocomplete="off"></div>'
        + _select("section", "Section", (heading(s) for _, _, names in documents() for s in names))
        + _select("verdict", "Verdict", verdicts)
        + _select("role", "Kind of row", (ROLES[r.role] for r in every))
        + '<button type="reset">Show all</button><p role="status"></p></form>'
        '<p class="wl-on-paper">On paper stand the rows that differ. All others are on this page of the site, which prints what its filter '
        "leaves, and in the table that <code>make audit</code> writes.</p>"
    )


def differences(stored, here):
    """By section: what does not follow, with the reason, and folded below it the values that correct or add to what is printed."""
    for document, title, names in documents():
        part = nodes.section("", nodes.title("", f"In {title}"), ids=[f"differences-{document}"], names=[])
        for name in names:
            found = [r for r in audit.sections()[document, name] if stored.verdict(r) != ELSEWHERE]
            wrong = [r for r in found if r.status == "discrepancy"]
            right = [r for r in found if stored.verdict(r) == "corrected"]
            if wrong or right:
                part += nodes.section("", nodes.title("", heading(name)), ids=[nodes.make_id(f"differences-{document}-{name}")], names=[])
            if wrong:
                part[-1] += nodes.raw("", _reasons(f"What does not follow: {heading(name)}", wrong, stored, here), format="html")
            if right:
                table = _reasons(f"Corrected values: {heading(name)}", right, stored, here)
                counted = f"{len(right)} corrected value{'s' * (len(right) > 1)}"
                part[-1] += nodes.raw("", f'<details class="wl-corrections"><summary>{counted}</summary>{table}</details>', format="html")
        yield part


def _reasons(caption, found, stored, here):
    heads = ["Figure or statement", "printed", "computed", "why", "page"]
    lines = [
        f'<tr><th scope="row">{escape(r.what)}</th><td>{escape(r.printed or "–")}</td>'
        f"<td>{escape(stored.computed(r) or 'in words')}</td>"
        f"<td>{escape(r.note)}</td><td>{stored.links(r, here)}</td></tr>"
        for r in found
    ]
    return _table("wl-audit wl-reasons", escape(caption), heads, lines)


class Directive(SphinxDirective):
    """``{audit} counts``, ``{audit} rows``, ``{audit} differences`` or ``{audit} totals``."""

    required_arguments = 1

    def run(self):
        for path in [*audit.every_notebook(), LEDGER, SITE / "audit.py"]:
            self.env.note_dependency(str(path))
        stored = _stored(tuple(p.stat().st_mtime_ns for p in audit.every_notebook()))
        here, part = "../" * self.env.docname.count("/"), self.arguments[0]
        if part == "rows":
            return [nodes.raw("", form(stored), format="html"), *rows(stored, here)]
        if part == "differences":
            return list(differences(stored, here))
        if part in ("counts", "totals"):
            html = totals(stored) if part == "totals" else totals(stored) + "".join(counts(stored))
            return [nodes.raw("", html, format="html")]
        raise self.error(f"the part must be counts, rows, differences or totals, got {part!r}")


def load_on_pages(app, pagename, templatename, context, doctree):
    """Style sheet and script for the pages that hold such tables."""
    if 'class="table wl-audit' in context.get("body", "") or 'class="table wl-counts' in context.get("body", ""):
        app.add_css_file("audit/audit.css", priority=920)
    if 'class="wl-filter"' in context.get("body", ""):
        app.add_js_file("audit/audit.js", loading_method="defer")


def setup(app):
    app.add_directive("audit", Directive)
    app.connect("html-page-context", load_on_pages, priority=400)

"""What the pages check of the ledger: nothing unknown, nothing stale, and every row of a finished section."""

import json
import sys
from pathlib import Path

import nbformat
import pytest

from workloads_book import ledger
from workloads_book.page import CHECKS

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "book/_site"))
import audit
import content


def test_pages_check_and_show_what_the_finished_sections_hold():
    done = audit.finished(audit.FINISHED.read_text(encoding="utf-8"))
    assert list(audit.problems(audit.collected(audit.stored()), done)) == []


# --- the audit itself, on planted pages ---------------------------------------------------------------------------------


def page(*records):
    """A page of one cell that shows these records."""
    output = nbformat.v4.new_output("display_data", {CHECKS: list(records), "text/markdown": "| |"})
    cell = nbformat.v4.new_code_cell("check_table({})", outputs=[output], execution_count=1)
    return content.Page(nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# Title"), cell]))


def checked(row):
    return {"id": row.id, "computed": row.expected, "verdict": ledger.verdict(row.id, row.expected), "kind": "check"}


def shown(row):
    return {"id": row.id, "computed": row.value, "verdict": "input", "kind": "shown"}


INTRO = ("workloads", "3 intro")
EVENTS = ("workloads", "3.1.2")  # rows of both kinds: given and derived


def records_of(section, kind=None):
    rows = audit.sections()[section]
    return [(kind or (checked if r.role in audit.CHECKED else shown))(r) for r in rows]


def test_a_complete_section_has_no_problem():
    records = audit.collected({"a.ipynb": page(*records_of(EVENTS))})
    assert len(records) == 8 and list(audit.problems(records, [EVENTS])) == []


def test_a_row_that_no_page_covers_is_reported_once_its_section_is_finished():
    records = audit.collected({"a.ipynb": page(*records_of(INTRO)[1:])})
    assert list(audit.problems(records, [])) == []
    (problem,) = audit.problems(records, [INTRO])
    assert "intro-mean-input" in problem and "checked nowhere" in problem


def test_showing_does_not_replace_a_check_but_a_check_replaces_showing():
    only_shown = audit.collected({"a.ipynb": page(*records_of(EVENTS, shown))})
    assert sorted(p.split()[2] for p in audit.problems(only_shown, [EVENTS])) == ["s312-area", "s312-rank-480", "s312-rank-four"]
    only_checked = audit.collected({"a.ipynb": page(*records_of(EVENTS, checked))})
    assert list(audit.problems(only_checked, [EVENTS])) == []


def test_an_unknown_row_is_reported():
    records = audit.collected({"a.ipynb": page({"id": "no-such-row", "computed": 1, "verdict": "✓", "kind": "check"})})
    assert list(audit.problems(records, [])) == ["a.ipynb: no ledger row 'no-such-row'"]
    assert audit.audit(records) == []


def test_a_stored_check_that_would_raise_is_reported():
    record = {**records_of(INTRO)[0], "computed": 4609.0}
    (problem,) = audit.problems(audit.collected({"a.ipynb": page(record)}), [])
    assert "computed 4609.0" in problem and "expected 4608.0" in problem


def test_a_stored_verdict_that_would_read_otherwise_is_reported():
    record = {**records_of(INTRO)[0], "verdict": "corrected"}
    (problem,) = audit.problems(audit.collected({"a.ipynb": page(record)}), [])
    assert "run the page again" in problem


def test_an_unknown_kind_is_reported():
    record = {**records_of(INTRO)[0], "kind": "guessed"}
    (problem,) = audit.problems(audit.collected({"a.ipynb": page(record)}), [])
    assert "unknown kind 'guessed'" in problem


@pytest.mark.parametrize(
    "text, message",
    [("workloads\t3.9.9\n", "no rows"), ("workloads 3 intro\n", "no rows"), ("workloads\t3 intro\nworkloads\t3 intro\n", "twice")],
)
def test_the_list_of_finished_sections_refuses(text, message):
    with pytest.raises(ValueError, match=message):
        audit.finished(text)


def test_the_list_of_finished_sections_is_read_without_its_comments():
    assert audit.finished("# a comment\n\nworkloads\t3 intro\nflop-accounting\tKey takeaway\n") == [
        ("workloads", "3 intro"),
        ("flop-accounting", "Key takeaway"),
    ]


def test_the_audit_is_in_the_order_of_the_ledger_and_does_not_depend_on_that_of_the_pages():
    pages = {"b.ipynb": page(*records_of(INTRO)), "a.ipynb": page(*reversed(records_of(INTRO)), *records_of(EVENTS))}
    rows = audit.audit(audit.collected(pages))
    assert rows == audit.audit(audit.collected(dict(reversed(pages.items()))))
    assert [(r["id"], r["page"]) for r in rows[:3]] == [
        ("intro-mean-input", "a.ipynb"),
        ("intro-mean-input", "b.ipynb"),
        ("intro-mean-output", "a.ipynb"),
    ]
    assert list(rows[0]) == ["id", "document", "section", "role", "printed", "computed", "verdict", "page"]
    json.dumps(rows)


def test_the_summary_counts_every_row_once():
    records = audit.collected({"a.ipynb": page(*records_of(EVENTS)), "b.ipynb": page(*records_of(EVENTS), *records_of(INTRO)[:1])})
    lines = list(audit.summary(records, [EVENTS]))
    line = next(x for x in lines if "3.1.2" in x)
    assert line.split()[:4] == ["8", "3", "5", "0"] and line.endswith("(finished)")
    assert lines[-1].split() == ["981", "4", "5", "972", "all"]


def test_sections_hold_every_row():
    assert sum(map(len, audit.sections().values())) == len(ledger.rows())


def test_rows_of_a_section_are_described_in_full():
    row = ledger.row("we31-card-rate")
    text = audit.described(row)
    assert all(str(part) in text for part in (row.id, row.role, row.status, row.what, row.printed, row.expected, row.formula, row.note))


def test_an_unknown_section_names_the_known_ones():
    with pytest.raises(SystemExit, match="workloads: 3.1.3"):
        audit.of_section("3.9.9")
    assert audit.of_section("workloads: 3.1.3") == audit.of_section("3.1.3")

"""The audit on the site, the filter in a browser, and the list of what moved since a revision."""

import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from conftest import ROOT, SITE

from workloads_book import ledger
from workloads_book.page import CHECKS

sys.path.insert(0, str(ROOT / "book/_site/ext"))
import content
from workloads_site import audit as page
from workloads_site.audit import audit

needs_site = pytest.mark.skipif(not (SITE / "book/reference/audit.html").exists(), reason="the site is not built: run `make book`")


def notebook(*records, title="# 3.1.2 Events"):
    """A notebook of one cell that shows these records."""
    output = nbformat.v4.new_output("display_data", {CHECKS: list(records), "text/markdown": "| |"})
    cell = nbformat.v4.new_code_cell("check_table({})", outputs=[output], execution_count=1)
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(title), cell])


def record(row_id, computed=None, verdict=None, kind="check"):
    computed = ledger.row(row_id).expected if computed is None else computed
    return {"id": row_id, "computed": computed, "verdict": verdict or ledger.verdict(row_id, computed), "kind": kind}


@pytest.fixture(scope="module")
def book():
    """What the tables are made from, with the book's notebooks."""
    return page.Stored()


@pytest.fixture
def stored(monkeypatch):
    """What the tables are made from, with planted notebooks."""

    def planted(**notebooks):
        monkeypatch.setattr(audit, "stored", lambda: {f"book/{name}.ipynb": content.Page(nb) for name, nb in notebooks.items()})
        return page.Stored()

    return planted


def table_row(row_id, stored):
    return page._row(ledger.row(row_id), stored, "../../")


# ------------------------------------------------------------------------------------------------------------------------------- tables
def test_the_tables_hold_every_row_once(book):
    html = "".join(part.astext() for part in page.rows(book, "../../"))
    assert sorted(re.findall(r'<tr id="row-([^"]+)">', html)) == sorted(ledger.rows())


def test_a_checked_row_says_what_is_printed_and_computed_and_where(stored):
    html = table_row("int-838-label", stored(a=notebook(record("int-838-label"), title="# Throughput: two rates")))
    parts = "<td>~70%</td>", "50.0299%", "wl-differs", "≠ differs from print", ledger.row("int-838-label").note
    assert all(part in html for part in parts)
    assert '<a href="../../book/a.html#check-int-838-label">Throughput</a>' in html


def test_a_row_that_is_only_shown_says_so_and_claims_no_computed_value(stored):
    found = stored(a=notebook(record("roo-1024", 1024, "input", "shown")))
    html = table_row("roo-1024", found)
    assert "<td></td>" in html and "shown: input" in html
    assert found.counts["flop-accounting", ledger.row("roo-1024").section][1:3] == (0, 1)


def test_a_row_on_two_pages_links_to_both_and_is_counted_once(stored):
    row = record("int-838-label")
    found = stored(a=notebook(row, title="# First"), b=notebook(row, title="# Exercise F-3: a name"))
    assert re.findall(r'book/(\w)\.html#check-int-838-label">([^<]+)<', table_row("int-838-label", found)) == [
        ("a", "First"),
        ("b", "Exercise F-3"),
    ]
    assert sum(n[1] for n in found.counts.values()) == 1


def test_a_row_of_no_page_tells_neither_figure_nor_note(stored):
    """So the site of a class keeps what its exercises ask for."""
    html = table_row("we3-4-added", stored(a=notebook(record("int-838-label"))))
    row = ledger.row("we3-4-added")
    assert "not on this site" in html and row.printed not in html and row.note not in html
    assert "we3-4-added" not in "".join(part.astext() for part in page.differences(stored(), ""))


def test_counts_add_up_to_all_rows(book):
    html = "".join(page.counts(book))
    feet = re.findall(r"<tfoot>(.*?)</tfoot>", html)
    totals = [[int(n.replace("–", "0")) for n in re.findall(r">([\d–]+)</td>", foot)] for foot in feet]
    assert sum(t[0] for t in totals) == len(ledger.rows())
    for rows, checked, shown, *verdicts in totals:
        assert rows == checked + shown and checked == sum(verdicts)
    assert f"{sum(t[1] for t in totals)} are computed and checked" in page.totals(book)


def test_every_verdict_of_a_check_has_a_kind(book):
    checked = [row for row in ledger.rows().values() if row.id not in book.shown]
    assert {page.kind(book.verdict(row)) for row in checked} == set(page.KINDS)
    assert page.kind("shown: input") == ""


def test_differences_hold_every_discrepancy_and_every_correction(book):
    html = "".join(part.astext() for part in page.differences(book, "../../"))
    for row in ledger.rows().values():
        assert (f'#{page.place(row.id)}"' in html) == (row.status == "discrepancy" or book.verdict(row) == "corrected")


def test_places_are_distinct_and_fit_for_a_selector():
    places = [page.place(row_id) for row_id in ledger.rows()]
    assert len(set(places)) == len(places) and all(re.fullmatch(r"check-[\w-]+", name, re.ASCII) for name in places)


def test_sections_are_in_the_order_of_their_numbers():
    (numbers,) = [names for document, _, names in page.documents() if document == "workloads"]
    assert numbers[:3] == ["3 intro", "3.1.1", "3.1.2"] and numbers[-2:] == ["footnotes", "code-task-trace"]
    assert page.heading("3.1.1") == "Section 3.1.1" and page.heading("Key takeaway") == "Key takeaway"


# ---------------------------------------------------------------------------------------------------------------------- places to land
def test_a_row_has_its_place_on_a_page_once(monkeypatch):
    from workloads_book import page as shows

    shown = []
    monkeypatch.setattr("IPython.display.display", lambda data, raw=False: shown.append(data["text/html"]))
    monkeypatch.setattr(shows, "_placed", set())
    row = next(r for r in ledger.rows().values() if r.status == "reproduced" and r.expected is not None)
    shows.check_table({row.id: row.expected})
    shows.check_table({row.id: row.expected})
    assert [text.count(f'id="{page.place(row.id)}"') for text in shown] == [1, 0]


@needs_site
def test_the_links_of_the_audit_lead_to_the_lines_that_hold_the_checks():
    html = (SITE / "book/reference/audit.html").read_text(encoding="utf-8")
    links = re.findall(r'href="([^"#]+)#check-([^"]+)"', html)
    assert len(links) >= len(ledger.rows())
    texts = {target: (SITE / "book/reference" / target).resolve().read_text(encoding="utf-8") for target in {t for t, _ in links}}
    for target, row_id in links:
        line = re.search(rf'<(tr|p)[^>]* id="check-{re.escape(row_id)}".*?</\1>', texts[target], re.DOTALL)
        assert line, (target, row_id)


# ------------------------------------------------------------------------------------------------------------------------------ filter
@pytest.fixture
def tab(browser, served):
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    tab = context.new_page()
    tab.goto(f"{served}book/reference/audit.html")
    yield tab
    context.close()


def visible(tab):
    rows = "[...document.querySelectorAll('table.wl-audit tbody tr')]"
    return tab.evaluate(f"{rows}.filter(r => r.checkVisibility()).map(r => r.id.slice(4))")


@needs_site
def test_the_filter_shows_what_fits_and_says_how_much(tab):
    status = tab.locator(".wl-filter [role=status]")
    assert len(visible(tab)) == len(ledger.rows()) and status.inner_text() == f"All {len(ledger.rows())} rows."
    tab.get_by_label("Verdict").select_option("≠ differs from print")
    differing = {r.id for r in ledger.rows().values() if r.status == "discrepancy" and r.expected is not None}
    assert set(visible(tab)) == differing and status.inner_text() == f"{len(differing)} of {len(ledger.rows())} rows."
    tab.get_by_label("Section").select_option("Key takeaway")
    assert set(visible(tab)) == {"key-3pct", "key-35pct"}
    assert tab.get_by_role("heading", name="The formulas").is_hidden()
    tab.get_by_label("Words or row").fill("TRAINING mfu")
    assert visible(tab) == ["key-35pct"]
    tab.get_by_role("button", name="Show all").click()
    tab.wait_for_function("document.querySelector('.wl-filter [role=status]').textContent.startsWith('All')")
    assert len(visible(tab)) == len(ledger.rows())


@needs_site
def test_kinds_of_rows_are_those_of_the_ledger(tab):
    tab.get_by_label("Kind of row").select_option("exercise")
    assert set(visible(tab)) == {r.id for r in ledger.rows().values() if r.role == "exercise"}


@needs_site
def test_a_word_that_no_row_holds_leaves_none_and_says_so(tab):
    tab.get_by_label("Words or row").fill("no such figure anywhere")
    assert visible(tab) == [] and tab.locator(".wl-filter [role=status]").inner_text().startswith("0 of")


@needs_site
def test_paper_holds_what_differs_or_what_the_filter_left(tab, served):
    differing = {r.id for r in ledger.rows().values() if r.status == "discrepancy" and r.expected is not None}
    tab.emulate_media(media="print")
    assert set(visible(tab)) == differing and tab.locator(".wl-on-paper").is_visible()
    assert tab.get_by_role("heading", name="Section 3.1.1").is_visible()  # its place remains: links lead there
    tab.emulate_media(media="screen")
    assert tab.locator(".wl-on-paper").is_hidden()
    tab.get_by_label("Words or row").fill("c-mfu-train-4096")
    tab.emulate_media(media="print")
    assert visible(tab) == ["c-mfu-train-4096"]  # a row that agrees
    tab.goto(f"{served}book/reference/errata.html")
    assert tab.locator("table.wl-reasons tbody tr:visible").count() >= len(differing)


@needs_site
def test_without_javascript_the_table_is_complete_and_the_filter_is_not_there(browser, served):
    context = browser.new_context(java_script_enabled=False, viewport={"width": 360, "height": 740})
    tab = context.new_page()
    tab.goto(f"{served}book/reference/audit.html")
    assert tab.locator("table.wl-audit tbody tr:visible").count() == len(ledger.rows())
    assert tab.locator("form.wl-filter").is_hidden()
    context.close()


@needs_site
def test_a_link_into_a_folded_solution_unfolds_it(tab, served):
    link = tab.locator("#row-ex3-2-two-backlog a").first
    link.click()
    tab.wait_for_selector("#check-ex3-2-two-backlog", state="visible")
    assert tab.url.endswith("#check-ex3-2-two-backlog")


# ------------------------------------------------------------------------------------------------------------------------------- moved
@pytest.fixture
def repository(tmp_path):
    """A repository with one stored notebook; `commit(records)` stores others, and gives the revision."""

    def git(*command):
        settings = ("-c", "user.name=Test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false")
        return subprocess.run(["git", "-C", str(tmp_path), *settings, *command], check=True, capture_output=True, text=True).stdout.strip()

    def commit(*records, name="book/a.ipynb"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(notebook(*records), path)
        git("add", ".")
        git("commit", "-q", "--allow-empty", "-m", "notebooks")
        return git("rev-parse", "HEAD")

    git("init", "-q")
    return tmp_path, commit


def moved(root, before, after):
    return list(audit.moved(*(audit.collected(audit.stored_at(revision, root)) for revision in (before, after))))


def test_a_moved_value_a_moved_verdict_and_rows_that_come_and_go_are_listed(repository):
    root, commit = repository
    before = commit(record("int-209"), record("int-838", 837.5, "✓ reproduces"), record("int-838-label", 50.0, "≠ differs from print"))
    after = commit(record("int-209"), record("int-838", 838.0, "✓ reproduces"), record("roo-1024", 1024, "input", "shown"))
    assert moved(root, before, after) == [
        "int-838: 837.5 (✓ reproduces) -> 838.0 (✓ reproduces)",
        "int-838-label: 50.0 (≠ differs from print) -> nowhere",
        "roo-1024: nowhere -> 1024 (input)",
    ]
    again = commit(record("int-209"), record("int-838", 838.0, "corrected"), record("roo-1024", 1024, "input", "shown"))
    assert moved(root, after, again) == ["int-838: 838.0 (✓ reproduces) -> 838.0 (corrected)"]


def test_a_check_on_another_page_or_on_one_more_has_not_moved(repository):
    root, commit = repository
    before = commit(record("int-209"))
    after = commit(record("int-209"), name="exercises/a/b.ipynb")
    assert moved(root, before, after) == [] and len(audit.stored_at(after, root)) == 2


def test_notebooks_outside_book_and_exercises_do_not_count(repository):
    root, commit = repository
    before = commit(record("int-209"))
    assert moved(root, before, commit(record("int-838"), name="elsewhere/c.ipynb")) == []


def test_an_unknown_revision_is_refused(repository):
    root, commit = repository
    commit(record("int-209"))
    with pytest.raises(ValueError, match="no-such-revision"):
        audit.stored_at("no-such-revision", root)


def test_from_the_command_line_an_unknown_revision_is_told():
    run = subprocess.run([sys.executable, Path(audit.__file__), "--moved", "no-such-revision"], capture_output=True, text=True)
    assert run.returncode == 1 and "no-such-revision" in run.stderr and "Traceback" not in run.stderr

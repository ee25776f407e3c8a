"""Collect what the pages check and show of the ledger: `audit.py` writes _build/audit.json and prints a count per section.

`audit.py --missing 3.1.3`   rows of a section that no page checks (or shows) yet
`audit.py --rows 3.1.3`      all rows of a section: id, role, status, label, figure, inputs, formula, expected value, note
`audit.py --sections`        the names of the sections
`audit.py --moved REVISION`  checks and shown rows whose value or verdict differs between the notebooks of that git revision and these

It reads the outputs that the notebooks store; nbval compares those with a fresh execution. Rows whose role is derived,
exercise, figure or corrected count when a page checks them, all others when a page shows them.
"""

import argparse
import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import content
from notebooks import ROOT, every_notebook

from workloads_book import ledger

CHECKED = ("derived", "exercise", "figure", "corrected")  # roles that a page must compute
FINISHED = Path(__file__).with_name("finished.txt")


def collected(pages):
    """One record (id, computed, verdict, kind, page) for every check and every shown row, of {name: page}."""
    return [{**record, "page": name} for name, page in pages.items() for record in page.records]


def stored():
    """All chapters and exercises by their path in the project."""
    return {p.relative_to(ROOT).as_posix(): content.page(p) for p in every_notebook()}


def stored_at(revision, root=ROOT):
    """The chapters and exercises of a git revision by their path; ValueError where git knows no such revision."""

    def git(*command):
        run = subprocess.run(["git", "-C", str(root), *command], capture_output=True, text=True, encoding="utf-8")
        if run.returncode:
            raise ValueError(f"revision must be one that git knows, got {revision!r}: {run.stderr.strip()}")
        return run.stdout

    names = git("ls-tree", "-r", "--name-only", f"{revision}^{{commit}}", "--", "book", "exercises").splitlines()
    return {name: content.Page(json.loads(git("show", f"{revision}:{name}"))) for name in names if name.endswith(".ipynb")}


def moved(before, now):
    """Lines of text: rows that the second records hold and the first do not, or the reverse, and rows whose value or verdict differs."""

    def texts(records, row_id):
        return sorted({f"{r['computed']} ({r['verdict']})" for r in records if r["id"] == row_id})

    order = {row_id: i for i, row_id in enumerate(ledger.rows())}
    for row_id in sorted({r["id"] for r in before + now}, key=lambda i: (order.get(i, len(order)), i)):
        was, is_now = texts(before, row_id), texts(now, row_id)
        if was != is_now:
            yield f"{row_id}: {', '.join(was) or 'nowhere'} -> {', '.join(is_now) or 'nowhere'}"


def finished(text):
    """Sections of the list of finished ones: lines "document<TAB>section"; an unknown one is an error."""
    lines = [line.strip() for line in text.splitlines()]
    found = [tuple(line.split("\t")) for line in lines if line and not line.startswith("#")]
    for pair in found:
        if pair not in sections():
            raise ValueError(f"finished.txt: no rows of {pair!r} in the ledger")
    if len(set(found)) != len(found):
        raise ValueError("finished.txt names a section twice")
    return found


def sections():
    """{(document, section): its rows}, in the order of the ledger."""
    found = {}
    for row in ledger.rows().values():
        found.setdefault((row.document, row.section), []).append(row)
    return found


def covered(row, records):
    """Whether the records hold what the row's role asks for."""
    kinds = {r["kind"] for r in records if r["id"] == row.id}
    return "check" in kinds or (row.role not in CHECKED and bool(kinds))


def problems(records, done):
    """What is wrong: unknown rows, checks that no longer hold, rows of finished sections that no page covers."""
    for r in records:
        if r["id"] not in ledger.rows():
            yield f"{r['page']}: no ledger row {r['id']!r}"
        elif r["kind"] == "check":
            try:
                text = ledger.verdict(r["id"], r["computed"])
            except ledger.Mismatch as error:
                yield f"{r['page']}: {error}"
            else:
                if text != r["verdict"]:
                    yield f"{r['page']}: {r['id']} is stored as {r['verdict']!r} and now reads {text!r}; run the page again"
        elif r["kind"] != "shown":
            yield f"{r['page']}: {r['id']} has the unknown kind {r['kind']!r}"
    for section in done:
        for row in sections()[section]:
            if not covered(row, records):
                verb = "checked" if row.role in CHECKED else "shown"
                yield f"{': '.join(section)}: {row.id} ({row.role}: {row.what}) is {verb} nowhere"


def audit(records):
    """The records beside their ledger rows, in the order of the ledger, then of the pages."""
    order = {row_id: i for i, row_id in enumerate(ledger.rows())}
    known = [r for r in records if r["id"] in order]
    return [
        {
            "id": r["id"],
            "document": row.document,
            "section": row.section,
            "role": row.role,
            "printed": row.printed,
            "computed": r["computed"],
            "verdict": r["verdict"],
            "page": r["page"],
        }
        for r in sorted(known, key=lambda r: (order[r["id"]], r["kind"] != "check", r["page"]))
        for row in [ledger.row(r["id"])]
    ]


def counts(records):
    """{section: (its rows, how many are checked, how many only shown, how many lack what their role asks for)}."""
    checked = {r["id"] for r in records if r["kind"] == "check"}
    shown = {r["id"] for r in records} - checked
    return {
        section: (
            len(rows),
            sum(r.id in checked for r in rows),
            sum(r.id in shown for r in rows),
            sum(not covered(r, records) for r in rows),
        )
        for section, rows in sections().items()
    }


def summary(records, done):
    """Lines of text: rows, checked, shown and missing of every section, and of all."""
    yield f"{'rows':>5} {'checked':>7} {'shown':>5} {'missing':>7}  section"
    found = counts(records)
    for section, numbers in found.items():
        yield "{:5} {:7} {:5} {:7}  {}{}".format(*numbers, ": ".join(section), " (finished)" if section in done else "")
    yield "{:5} {:7} {:5} {:7}  all".format(*map(sum, zip(*found.values())))


def of_section(name):
    """Rows of the sections with that name (or of "document: name")."""
    found = [row for section, rows in sections().items() if name in (section[1], ": ".join(section)) for row in rows]
    if not found:
        sys.exit(f"no section {name!r}; the sections are:\n" + "\n".join(": ".join(s) for s in sections()))
    return found


def described(row):
    """All of a row in a few lines."""
    r = asdict(row)
    inputs = ", ".join(f"{k}={v}" for k, v in r["inputs"].items()) if isinstance(r["inputs"], dict) else r["inputs"]
    lines = [
        f"{r['id']}  [{r['role']}, {r['status']}]  {r['what']}",
        f"    printed {r['printed']!r}, value {r['value']!r} ± {r['tol']!r}, unit {r['unit']!r}, expected {r['expected']!r}",
    ]
    r["inputs"] = inputs
    lines += [f"    {name}: {r[name]}" for name in ("inputs", "formula", "note", "source") if r[name]]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked = parser.add_mutually_exclusive_group()
    asked.add_argument("--missing", metavar="SECTION")
    asked.add_argument("--rows", metavar="SECTION")
    asked.add_argument("--sections", action="store_true")
    asked.add_argument("--moved", metavar="REVISION")
    a = parser.parse_args()
    if a.sections:
        return print("\n".join(f"{len(rows):4}  {': '.join(section)}" for section, rows in sections().items()))
    if a.moved:
        try:
            lines = list(moved(collected(stored_at(a.moved)), collected(stored())))
        except ValueError as error:
            sys.exit(str(error))
        return print("\n".join(lines) or f"No value and no verdict moved since {a.moved}.")
    if a.rows:
        return print("\n".join(map(described, of_section(a.rows))))
    records = collected(stored())
    done = finished(FINISHED.read_text(encoding="utf-8"))
    if a.missing:
        missing = [row for row in of_section(a.missing) if not covered(row, records)]
        return print("\n".join(f"{row.id:28} {row.role:9} {row.status:11} {row.what}" for row in missing) or "nothing is missing")
    target = ROOT / "_build/audit.json"
    target.parent.mkdir(exist_ok=True)
    rows = ",\n".join(json.dumps(row, ensure_ascii=False) for row in audit(records))
    target.write_text(f"[\n{rows}\n]\n", encoding="utf-8")
    print("\n".join(summary(records, done)))
    wrong = list(problems(records, done))
    print("\n".join(wrong) if wrong else f"The checks are in {target.relative_to(ROOT)}; nothing is wrong.")
    return len(wrong) > 0


if __name__ == "__main__":
    sys.exit(main())

"""What a notebook shows: numbers in sentences, tables, checks against the ledger, figures.

Every function displays Markdown (or SVG) and so reads the same in Jupyter, in a browser kernel and on the built site.
"""

import math

from workloads.units import binary, number, quantity

from .figures import figure
from .ledger import row, verdict

__all__ = ["binary", "check", "check_table", "figure", "given", "number", "quantity", "row", "say", "table"]
CHECKS = "application/vnd.workloads.checks+json"
# say nothing behind a number
_BARE = {"ratio", "fraction", "rank", "index", "log10", "score", "exponent", "version", "fit parameter", "unit", "factor"}


def _display(markdown, **extra):
    from IPython.display import display

    display({"text/markdown": markdown, "text/plain": markdown, **extra}, raw=True)


def say(text):
    """Show a sentence (Markdown) whose numbers were put in by the page."""
    _display(text)


def _cell(value):
    text = (value if isinstance(value, str) else number(value)).replace("|", "\\|")
    return text.replace("$", "\\$") if text.count("$") % 2 else text  # an amount of money, not half a formula


def table(header, lines):
    """Show a table: a list of column heads, and one list of cells (texts, or numbers for the formatter) a line.

    A head that ends in ">" is right-aligned.
    """
    lines = [list(line) for line in lines]
    for line in lines:
        if len(line) != len(header):
            raise ValueError(f"lines must have {len(header)} cells as the header has, got {line!r}")
    _display("\n".join(_rows(header, lines)))


def _rows(header, lines):
    yield "| " + " | ".join(_cell(h.removesuffix(">")) for h in header) + " |"
    yield "|" + "|".join("---:" if h.endswith(">") else ":---" for h in header) + "|"
    for line in lines:
        yield "| " + " | ".join(map(_cell, line)) + " |"


def _digits(row):
    """Significant digits in which a computed value is shown: six, or as many as the printed figure has."""
    if not row.printed or not row.tol or not row.value or isinstance(row.value, str):
        return 6
    return max(6, math.floor(math.log10(abs(row.value))) - math.floor(math.log10(2 * row.tol) + 1e-9) + 1)


def _with_unit(value, unit, digits=6):
    if isinstance(value, str):
        return value
    text = number(value, digits)
    if not unit or unit in _BARE:
        return text
    return f"{text}%" if unit == "%" else f"{text}×" if unit == "x" else f"{text} {unit}"


def in_unit(row, value):
    """A value as a check shows it: in the row's unit, with enough digits to be told from the printed figure, one more
    where it is a tie.

    Example:
        >>> in_unit(row("we3-4-added"), 1229.142766911488), in_unit(row("ced-ratio"), 50.78125)
        ('1,229.143 TFLOPs', '50.78125%')
    """
    digits = _digits(row)
    if not isinstance(value, str):
        digits += f"{float(value):.13e}".partition("e")[0].lstrip("-").replace(".", "")[digits:].rstrip("0") == "5"
    return _with_unit(value, row.unit, digits)


def _record(row_id, value, text, kind):
    if value is not None and not isinstance(value, (str, int)):
        value = float(f"{float(value):.12g}")
    return {"id": row_id, "computed": value, "verdict": text, "kind": kind}


def check_table(values):
    """Show printed figure, computed value and verdict for many ledger rows: ``{row id: value in the row's unit}``.

    Raises:
        workloads_book.ledger.Mismatch: at the first value that the row does not bear out.
    """
    lines, records = [], []
    for row_id, value in values.items():
        r, text = row(row_id), verdict(row_id, value)
        lines.append([r.what, r.printed or "not printed", in_unit(r, value), text])
        records.append(_record(row_id, value, text, "check"))
    _display("\n".join(_rows(["Checked", "printed>", "computed>", "verdict"], lines)), **{CHECKS: records})


def check(row_id, value):
    """Show printed figure, computed value and verdict for one ledger row, in one line."""
    r, text = row(row_id), verdict(row_id, value)
    printed = f"printed {r.printed}" if r.printed else "not printed"
    _display(f"**Check** {r.what}: {printed}, computed {in_unit(r, value)}: {text}.", **{CHECKS: [_record(row_id, value, text, "check")]})


def given(*row_ids):
    """Show rows that are not computed here: stated inputs, measurements, recorded values, statements in words."""
    names = {"given": "input", "measured": "measurement", "recorded": "recorded", "words": "statement"}
    lines, records = [], []
    for row_id in row_ids:
        r = row(row_id)
        kind = names.get(r.role, r.role)
        shown = r.printed or _with_unit(r.value, r.unit)
        lines.append([r.what, shown, kind + (f"; {r.source}" if r.source else "")])
        records.append(_record(row_id, r.value, kind, "shown"))
    _display("\n".join(_rows(["As printed", "figure>", "kind"], lines)), **{CHECKS: records})

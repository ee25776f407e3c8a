"""The ledger: every figure that the two source documents print, with an independently established value.

A row holds the printed figure (`printed` as text, `value` as a number in `unit`, `tol` the half-width of its rounding), the
value that was found apart from this library (`expected`, from `formula` over `inputs`), and its `status`:

reproduced    the expected value rounds to the printed one
external      it agrees with a public source named in the row
discrepancy   it does not agree with the printed figure; `note` says why
corrected     a value that replaces or adds to what is printed
measured      a recorded observation; a model is set against it, not equal to it

`verdict` compares a computed value with the row and raises where the two part ways.
"""

import json
import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path

RELATIVE = 1e-6  # a computed value must meet `expected` to this


class Mismatch(AssertionError):
    """A computed value and its ledger row disagree."""


@dataclass(frozen=True)
class Row:
    """One figure of the documents: where it stands, what it is, as printed and as found; the fields are described
    above.
    """

    id: str
    document: str
    section: str
    role: str
    what: str
    printed: str | None
    value: float | int | str | None
    unit: str | None
    tol: float | None
    inputs: dict | str
    formula: str | None
    expected: float | int | str | None
    status: str
    note: str
    source: str | None


@cache
def rows():
    """All rows by id, in the order of the documents.

    Example:
        >>> len(rows())
        981
    """
    data = json.loads((Path(__file__).parent / "data" / "ledger.json").read_text(encoding="utf-8"))
    return {r["id"]: Row(**r) for r in data}


def row(row_id):
    """The row of that id; an unknown id is an error that names the nearest ones.

    Example:
        >>> row("frm-rollout").value
        2
    """
    if row_id not in rows():
        import difflib

        near = difflib.get_close_matches(row_id, rows(), n=3)
        raise KeyError(f"no ledger row {row_id!r}" + (f"; near: {', '.join(near)}" if near else ""))
    return rows()[row_id]


def _agrees(row, value):
    """Whether the value rounds to the printed figure; None where none is printed."""
    if row.value is None:
        return None
    if isinstance(row.value, str):
        return value == row.value
    return abs(value - row.value) <= (row.tol or 0) * (1 + 1e-9) + 1e-9 * abs(row.value)


def verdict(row_id, value):
    """What the comparison of a computed value with its row says, as a short text.

    Args:
        value: the value in the row's unit (a number, or a text where the row holds a text).

    Raises:
        Mismatch: when the value leaves `expected` (1e-6 relative), when a figure recorded as reproduced misses the
            printed rounding, and when a recorded discrepancy begins to agree.

    Example:
        >>> verdict("frm-rollout", 8.4e15 / (64 * 16 * 512 * 8e9))
        '✓ reproduces'
        >>> verdict(
        ...     "model-total-params", 8190735360
        ... )  # no figure is printed: equal to a computation made apart from the library
        '✓ computed twice'
    """
    r = row(row_id)
    if r.expected is None:
        raise Mismatch(f"{row_id}: the row has no expected value to compare with; show it instead")
    if isinstance(r.expected, str):
        if value != r.expected:
            raise Mismatch(f"{row_id}: computed {value!r}, expected {r.expected!r}")
    else:
        value = float(value) if not isinstance(value, int) else value
        if not math.isclose(value, r.expected, rel_tol=RELATIVE, abs_tol=1e-12):
            raise Mismatch(f"{row_id}: computed {value!r} {r.unit or ''}, expected {r.expected!r}")
    agrees = _agrees(r, value)
    if r.status == "measured":
        return "model against measurement" if r.role == "corrected" else "✓ as recorded"
    if r.status == "discrepancy":
        if agrees:
            raise Mismatch(f"{row_id}: recorded as a discrepancy, but {value!r} agrees with the printed {r.printed!r}")
        return "≠ differs from print"
    if r.status == "corrected":
        return "added" if agrees is None else "✓ agrees" if agrees else "corrected"
    if agrees is None and r.status == "reproduced":  # the document gives no number here
        return "added" if r.role == "corrected" else "✓ bears out the words"
    if agrees is False:
        raise Mismatch(f"{row_id}: computed {value!r} does not round to the printed {r.printed!r} ({r.value} ± {r.tol} {r.unit or ''})")
    if r.status == "external":
        return "✓ agrees with its source"
    return "✓ reproduces" if r.printed else "✓ computed twice"

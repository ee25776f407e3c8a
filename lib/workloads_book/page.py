"""What a notebook shows: numbers in sentences, tables, checks against the ledger, figures.

Every function displays Markdown (or SVG) and so reads the same in Jupyter, in a browser kernel and on the built site.
"""

import math
from html import escape

from workloads.units import binary, number, quantity

from . import explained
from .figures import counted, figure
from .ledger import row, verdict

__all__ = ["binary", "check_table", "figure", "guess", "number", "quantity", "row", "say", "show_explanation", "table"]
CHECKS = "application/vnd.workloads.checks+json"
VERDICTS = {"✓": "wl-agrees", "≠": "wl-differs", "corrected": "wl-corrected", "added": "wl-corrected", "model": "wl-measured"}
# say nothing behind a number
_BARE = {"ratio", "fraction", "rank", "index", "log10", "score", "exponent", "version", "fit parameter", "unit", "factor"}


def _display(markdown, **extra):
    from IPython.display import display

    data = {"text/markdown": markdown, "text/plain": markdown, **extra}
    display({kind: part for kind, part in data.items() if part is not None}, raw=True)


def say(text):
    """Show a sentence (Markdown) whose numbers were put in by the page."""
    _display(text)


def show_explanation(explanation, title="Where this number comes from"):
    """Show what `workloads.explain` gives: its formula, and folded below it lists that unfold level by level, down to the sources.

    Args:
        explanation: of a number.
        title: of the fold.
    """
    _display(explained.maths(explanation, levels=1).partition("\n")[0])
    folded = f'<details class="wl-explained"><summary>{escape(title)}</summary>{explained.html(explanation)}</details>'
    _display(title, **{"text/html": folded, "text/markdown": None})


def _cell(value):
    text = (value if isinstance(value, str) else number(value)).replace("|", "\\|")
    return text.replace("$", "\\$") if text.count("$") % 2 else text  # an amount of money, not half a formula


def table(header, lines, caption=""):
    """Show a table: a list of column heads, and one list of cells (texts, or numbers for the formatter) a line.

    A head that ends in ">" is right-aligned. With a caption the table has a number, by which the text refers to it.
    """
    lines = [list(line) for line in lines]
    for line in lines:
        if len(line) != len(header):
            raise ValueError(f"lines must have {len(header)} cells as the header has, got {line!r}")
    above = f"*{counted('Table')}.* {caption}\n\n" if caption else ""
    _display(above + "\n".join(_rows(header, lines)))


def guess(question, value, unit, why):
    """Ask before telling: the answer is folded; on the site a reader locks in a number first and then sees how far off it was.

    Args:
        question: Markdown, answered by one number.
        value: that number, in ``unit`` (a text to show behind it, or nothing).
        why: the arithmetic of the answer in one sentence (Markdown).

    Raises:
        ValueError: where the value is not a finite number.
    """
    if not math.isfinite(value):
        raise ValueError(f"value must be a finite number ({unit}), got {value!r}")
    shown = f"{number(value, 3)} {unit}".rstrip()
    opened = f'<details class="wl-guess" data-value="{float(f"{float(value):.6g}"):g}" data-unit="{escape(unit)}">'
    _display(f"**Guess first.** {question}\n\n{opened}<summary>Show the answer</summary>\n\n**{shown}.** {why}\n\n</details>")


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


KINDS = {"given": "input", "measured": "measurement", "recorded": "recorded", "words": "statement"}  # of rows that no page computes
DIFFERS = ("≠", "corrected", "model")  # beginnings of verdicts that say so
_placed = set()  # rows that have their place on the page: a link leads to the first


def check_table(values, given=()):
    """Check computed values against the printed figures of the ledger, and show it as one folded line.

    Args:
        values: {row id: value in the row's unit}.
        given: ids of rows that stand here and are not computed: inputs, measurements, recorded values, statements in words.

    Raises:
        workloads_book.ledger.Mismatch: at the first value that the row does not bear out.
    """
    lines, records = [], []
    for row_id, value in values.items():
        r, text = row(row_id), verdict(row_id, value)
        lines.append((row_id, r.what, r.printed or "–", in_unit(r, value), text))
        records.append(_record(row_id, value, text, "check"))
    for row_id in given:
        r = row(row_id)
        kind = KINDS.get(r.role, r.role)
        lines.append((row_id, r.what, r.printed or _with_unit(r.value, r.unit), "", kind + (f"; {r.source}" if r.source else "")))
        records.append(_record(row_id, r.value, kind, "shown"))
    said = summary([record["verdict"] for record in records if record["kind"] == "check"], len(given))
    html = _folded(said, lines)
    _display(said, **{"text/html": html, CHECKS: records}, **{"text/markdown": None})


def summary(verdicts, shown=0):
    """What a folded line says of its rows.

    Example:
        >>> summary(["✓ reproduces"] * 6 + ["≠ differs from print"])
        '7 figures checked: 6 reproduce, 1 differs'
        >>> summary(["✓ reproduces"], shown=3)
        '1 figure checked: it reproduces; 3 inputs listed'
    """
    n, differ = len(verdicts), sum(v.startswith(DIFFERS) for v in verdicts)
    listed = f"{shown} input{'s' * (shown != 1)} listed"
    if not n:
        return listed
    if n == 1 or differ in (0, n):
        found = f"{'it' if n == 1 else 'all'} {'differ' if differ else 'reproduce'}{'s' * (n == 1)}"
    else:
        found = f"{n - differ} reproduce{'s' * (n - differ == 1)}, {differ} differ{'s' * (differ == 1)}"
    return f"{n} figure{'s' * (n != 1)} checked: {found}" + (f"; {listed}" if shown else "")


def place(row_id):
    """Where on a page the check of a row stands: an id to link to.

    Example:
        >>> place("v4.1")
        'check-v4-1'
    """
    return "check-" + row_id.replace(".", "-")


def _folded(said, lines):
    """HTML of a folded table of checks; the first line of each row on a page bears its id."""
    rows = []
    for row_id, what, printed, computed, text in lines:
        here = f' id="{place(row_id)}"' * (row_id not in _placed)
        _placed.add(row_id)
        kind = next((name for start, name in VERDICTS.items() if text.startswith(start)), "wl-shown")
        cells = "".join(f"<td>{escape(cell)}</td>" for cell in (what, printed, computed))
        rows.append(f'<tr{here}>{cells}<td class="{kind}">{escape(text)}</td></tr>')
    head = "".join(f'<th scope="col">{name}</th>' for name in ("figure", "printed", "computed", "verdict"))
    body = f'<table class="table"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
    return f'<details class="wl-checks"><summary>{said}</summary><div class="wl-scroll">{body}</div></details>'

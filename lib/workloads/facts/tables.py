"""The fact tables: tab-separated text files, one value a row, every cell filled ("-" where a column does not apply)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import cache
from pathlib import Path

from ..checks import one_of
from ..numeric import Number
from ..units import GB, TB, TERA

_PREFIXED = {"GB": GB, "GB/s": GB, "TB/s": TB, "TFLOP/s": TERA, "%": Fraction(1, 100)}
_PREFIX = re.compile("[nµmkMGTPE]i?(B|FLOP|s)(/|$)|%")


@cache
def table(name: str) -> tuple[dict[str, str], ...]:
    """Rows of one fact table, in file order.

    Args:
        name: the file's stem ("hardware", "models", "measurements").

    Returns:
        Tuple of dictionaries, column name to text.

    Raises:
        ValueError: for an unknown table, a row of the wrong length or an empty cell.

    Example:
        >>> table("hardware")[0]["item"]
        'H100 SXM'
    """
    path = Path(__file__).with_name("data") / f"{name}.tsv"
    if not path.is_file():
        raise ValueError(f"table must be one of {sorted(p.stem for p in path.parent.glob('*.tsv'))}, got {name!r}")
    columns, *lines = (line.split("\t") for line in path.read_text(encoding="utf-8").splitlines())
    for number, cells in enumerate(lines, 2):
        if len(cells) != len(columns) or not all(cell.strip() for cell in cells):
            raise ValueError(f"{name}.tsv line {number} must fill {len(columns)} columns, got {cells!r}")
    return tuple(dict(zip(columns, cells)) for cells in lines)


def lines_of(source: str | Path | Iterable[str]) -> list[str]:
    """The lines of a text: of the file at a path, or as they are given (an open file, a list).

    Args:
        source: a path, or lines.

    Example:
        >>> lines_of(["a", "b"])
        ['a', 'b']
    """
    if isinstance(source, (str, Path)):
        return Path(source).read_text(encoding="utf-8").splitlines()
    return list(source)


def item_values(name: str, item: str) -> dict[str, Number]:
    """Values of one item of a fact table, by quantity, in the library's own units (see `base_value`).

    Args:
        name: of the table.
        item: as its first column names it.

    Example:
        >>> item_values("media", "Qwen3-VL-4B vision encoder")["layers"]
        24
    """
    return {row["quantity"]: base_value(row) for row in table(name) if row["item"] == item}


def base_value(row: Mapping[str, str]) -> Number:
    """Value of a row in the library's own units (bytes, seconds, FLOP/s, a fraction for a percentage): an `int` if it
    is whole.

    Args:
        row: a dictionary of the table's columns.

    Raises:
        ValueError: for a prefix that no table uses so far.

    Example:
        >>> base_value({"value": "3.35", "unit": "TB/s"}), base_value({"value": "38", "unit": "%"})
        (3350000000000, 0.38)
    """
    if _PREFIX.match(row["unit"]):
        one_of(row["unit"], "unit with a prefix", tuple(_PREFIXED))
    value = Fraction(row["value"]) * _PREFIXED.get(row["unit"], 1)
    return int(value) if value.denominator == 1 else float(value)

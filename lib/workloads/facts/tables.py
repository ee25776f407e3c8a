"""The fact tables: tab-separated text files, one value a row, every cell filled ("-" where a column does not apply), and
TOML files, one table an item.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

from ..checks import one_of
from ..numeric import Number
from ..units import GB, GIB, MIB, TB, TERA

_PREFIXED = {"GB": GB, "MiB": MIB, "GiB": GIB, "GB/s": GB, "TB/s": TB, "TFLOP/s": TERA, "%": Fraction(1, 100)}
_PREFIX = re.compile("[nµmkMGTPE]i?(B|FLOP|s)(/|$)|%")


@cache
def table(name: str) -> tuple[dict[str, Any], ...]:
    """Rows of one fact table, in file order.

    Args:
        name: the file's stem ("accelerators", "models", "measurements").

    Returns:
        Tuple of dictionaries, column name to text; of a TOML file item, quantity, value (as typed), source and note.

    Raises:
        ValueError: for an unknown table, a row of the wrong length or an empty cell.

    Example:
        >>> table("accelerators")[0]["item"], table("models")[0]["value"]
        ('H100 SXM', 36)
    """
    folder = Path(__file__).with_name("data")
    if (path := folder / f"{name}.toml").is_file():
        items = tomllib.loads(path.read_text(encoding="utf-8")).items()
        return tuple(row for item, record in items for row in _rows(item, **record))
    if not (path := folder / f"{name}.tsv").is_file():
        raise ValueError(f"table must be one of {sorted(p.stem for p in folder.glob('*.t*'))}, got {name!r}")
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


def _rows(item, source, note="-", sources=(), notes=(), **values):
    """Rows of one table of a TOML file: a note belongs to the source that it stands beside."""
    sources, notes = dict(sources), dict(notes)
    for quantity, value in values.items():
        about = {"source": sources.get(quantity, source), "note": notes.get(quantity, "-" if quantity in sources else note)}
        yield {"item": item, "quantity": quantity, "value": value, **about}


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

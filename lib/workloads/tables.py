"""The fact tables: tab-separated text files, one value a row, every cell filled ("-" where a column does not apply)."""
from fractions import Fraction
from functools import cache
from pathlib import Path

from .domain import one_of
from .units import GB, TB, TERA

_PLAIN = ("elements", "layers", "heads", "experts", "flag", "parameters", "GPUs", "sequences", "tokens", "tokens/s/GPU", "ratio", "B", "s")
_UNITS = {"GB": GB, "GB/s": GB, "TB/s": TB, "TFLOP/s": TERA, "%": Fraction(1, 100)} | dict.fromkeys(_PLAIN, 1)


@cache
def table(name):
    """Rows of one fact table, in file order.

    Parameters: name, the file's stem ("hardware", "models", "measurements").
    Returns: tuple of dictionaries, column name to text.
    Raises: ValueError for an unknown table, a row of the wrong length or an empty cell.

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


def base_value(row):
    """Value of a row in the library's own units (bytes, seconds, FLOP/s, a fraction for a percentage): an `int` if it is whole.

    Raises: ValueError for a unit the tables do not use.

    >>> base_value({"value": "3.35", "unit": "TB/s"}), base_value({"value": "38", "unit": "%"})
    (3350000000000, 0.38)
    """
    value = Fraction(row["value"]) * _UNITS[one_of(row["unit"], "unit", tuple(_UNITS))]
    return int(value) if value.denominator == 1 else float(value)

"""A number that says what it is: a count, a lower bound, a model of what to expect, or a measurement."""

from dataclasses import dataclass

from .checks import one_of
from .numeric import Number
from .units import quantity

KINDS = "count", "bound", "model", "measurement"


@dataclass(frozen=True)
class Result:
    """A value in base units, its unit and its kind; `band`, where known, the range (low, high) that measurements take.

    Example:
        >>> print(Result(0.0354, "s", "bound"))
        35.40 ms (bound)
    """

    value: Number
    unit: str
    kind: str
    band: tuple | None = None

    def __post_init__(self):
        one_of(self.kind, "kind", KINDS)

    def __str__(self):
        return f"{quantity(self.value, self.unit)} ({self.kind})"

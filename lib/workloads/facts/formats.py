"""Number formats: the bytes that a value takes, and which part of a model is kept in which."""

from __future__ import annotations

from dataclasses import dataclass

from ..checks import keep, one_of, positive
from ..units import Bytes

BYTES: dict[str | float, float] = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1, "fp4": 0.5, "int4": 0.5}


def _format(value, name, unit):
    return one_of(value, name, tuple(BYTES)) if isinstance(value, str) else positive(value, f"{name}, where it is no name,", unit)


@dataclass(frozen=True)
class Formats:
    """How a model is kept: each the name of a format in BYTES (scales left out), or bytes a value (B).

    Attributes:
        weights: of all matrices.
        cache: of keys and values.

    Raises:
        ValueError: for a name that is not known, or bytes that are not above 0.

    Example:
        >>> Formats(weights="fp8").weight_bytes, Formats().cache_bytes
        (1, 2)
    """

    weights: str | Bytes = "bf16"
    cache: str | Bytes = "bf16"

    def __post_init__(self):
        keep(self, _format, "B", "weights", "cache")

    @property
    def weight_bytes(self) -> Bytes:
        """Bytes of a weight (B)."""
        return BYTES.get(self.weights, self.weights)

    @property
    def cache_bytes(self) -> Bytes:
        """Bytes of a cached value (B)."""
        return BYTES.get(self.cache, self.cache)


BF16 = Formats()

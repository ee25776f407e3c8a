"""Number formats: the bytes that a value takes, and which part of a model is kept in which."""

from __future__ import annotations

from dataclasses import dataclass

from ..checks import one_of, positive
from ..units import Bytes

BYTES = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1, "fp4": 0.5, "int4": 0.5}


def _bytes_of(format: Bytes | str, name: str = "format") -> Bytes:
    """Bytes of one value in a format, scales left out (B); a number stands for itself.

    Args:
        name: as the table writes it.

    Example:
        >>> _bytes_of("fp8"), _bytes_of(0.75)
        (1, 0.75)
    """
    if isinstance(format, str):
        return BYTES[one_of(format, name, tuple(BYTES))]
    return positive(format, f"{name}, where it is no name,", "B")


@dataclass(frozen=True)
class Formats:
    """How a model is kept: weights and cache, each the name of a format or bytes a value.

    Example:
        >>> Formats(weights="fp8").weight_bytes, Formats().cache_bytes
        (1, 2)
    """

    weights: str | float = "bf16"
    cache: str | float = "bf16"

    def __post_init__(self):
        _bytes_of(self.weights, "weights")
        _bytes_of(self.cache, "cache")

    @property
    def weight_bytes(self) -> Bytes:
        """Bytes of a weight (B)."""
        return _bytes_of(self.weights)

    @property
    def cache_bytes(self) -> Bytes:
        """Bytes of a cached value (B)."""
        return _bytes_of(self.cache)


BF16 = Formats()

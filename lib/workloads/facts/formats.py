"""Number formats: the bytes that a value takes, and which part of a model is kept in which."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from ..checks import keep, one_of, positive
from ..units import Bytes
from .tables import table

Widths = Bytes | Mapping[str, Bytes]


def _each(row):
    """Bytes of a value of a format: of a block with its scales over the values in it."""
    whole, rest = divmod(int(row["bytes"]), int(row["values"]))
    return whole if rest == 0 else int(row["bytes"]) / int(row["values"])


BYTES: dict[str, float] = {row["format"]: _each(row) for row in table("formats")}


_OF_WEIGHTS = ("embedding", "attention", "ffn", "router", "experts", "shared_experts", "biases", "norms", "head", "other")
_OF_CACHE = ("key", "value", "latent", "rope", "index", "entry", "other")


def _format(value, name, unit):
    if isinstance(value, Mapping):
        parts = {one_of(part, f"part of {name}", _OF_CACHE if name == "cache" else _OF_WEIGHTS): each for part, each in value.items()}
        return MappingProxyType({part: _format(each, f"{name}[{part!r}]", unit) for part, each in parts.items()})
    return one_of(value, name, tuple(BYTES)) if isinstance(value, str) else positive(value, f"{name}, where it is no name,", unit)


def _bytes(value):
    if isinstance(value, Mapping):
        return {part: _bytes(each) for part, each in value.items()}
    return BYTES.get(value, value)


@dataclass(frozen=True)
class Formats:
    """How a model is kept: each the name of a format in BYTES, or bytes a value (B), or {part: one of these}.

    Attributes:
        weights: of all parameters; by part "embedding", "attention", "ffn", "router", "experts", "shared_experts",
            "biases", "norms", "head", and "other" for those not named.
        cache: of keys and values; by part "key", "value", "latent", "rope", "index", "entry", and "other".

    Raises:
        ValueError: for a name that is not known, or bytes that are not above 0.

    Example:
        >>> Formats(weights="fp8").weight_bytes, Formats().cache_bytes
        (1, 2)
        >>> Formats(weights={"experts": "mxfp4", "other": "bf16"}).weight_bytes
        {'experts': 0.53125, 'other': 2}
    """

    weights: str | Bytes | Mapping[str, str | Bytes] = field(default="bf16", hash=False)
    cache: str | Bytes | Mapping[str, str | Bytes] = field(default="bf16", hash=False)

    def __post_init__(self):
        keep(self, _format, "B", "weights", "cache")

    @property
    def weight_bytes(self) -> Widths:
        """Bytes of a weight (B), of each part where they differ."""
        return _bytes(self.weights)

    @property
    def cache_bytes(self) -> Widths:
        """Bytes of a cached value (B), of each part where they differ."""
        return _bytes(self.cache)


BF16 = Formats()

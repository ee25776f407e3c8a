"""Facts about models: exact shapes, a stack of layers each (data/models.toml)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields
from functools import cache
from itertools import groupby
from typing import Any

from ..checks import flag, formula, keep, nonnegative, one_of, some, whole
from .layers import KINDS, Attention, Experts, Gated, LatentAttention, Layer
from .tables import table


def _shared(model, part, name):
    """A size that all layers share; what a feed-forward part lacks counts as 0 and is no other size."""
    parts = [getattr(layer, part) for _, layer in model.stack]
    lacking = getattr(Experts, name, 0) if part == "ffn" else None
    found = dict.fromkeys(getattr(kind, name, lacking) for kind in parts if kind is not None)
    if part == "ffn" and len(found) > 1:
        found.pop(0, None)
    if len(found) > 1 or None in found or not found:
        raise ValueError(f"{name} must be the same in all layers of {model.name!r} to be read as one, got {list(found)}")
    return next(iter(found))


def _size(part, name, doc):
    return property(lambda model: _shared(model, part, name), doc=doc)


@dataclass(frozen=True, init=False)
class Model:
    """Shape of a decoder-only transformer with RMS norms: a stack of layers between embedding and vocabulary head.

    Sizes of layers stand in the stack. Where one kind is used throughout, or first dense layers and then layers with
    experts, they may be given by name instead, and are read by name: `Model("mine", hidden=4096, vocab=32_000,
    layers=32, heads=32, kv_heads=8, head_dim=128, ffn=14_336)`. With a stack and sizes, the sizes are changed in it.

    Attributes:
        name: as the table or its user writes it.
        hidden: width of a position (elements).
        vocab: rows of the embedding.
        stack: pairs (how many layers, Layer), from the embedding up.
        tied: output head and embedding share one matrix.
        published_parameters: total that the publisher states, exact or rounded; None if none is recorded.
        positions: rows of a learned table of positions (0: none).
        mtp: further prediction layers (multi-token prediction), each like the last layer; no count holds them but
            `parameter_counts.mtp_parameters`.

    Raises:
        ValueError: for a size that is not a whole number, sizes that contradict each other, or a size read as one that
            layers do not share.

    Example:
        >>> small = Layer(Attention(heads=4, kv_heads=2, head_dim=8), Gated(ffn=96))
        >>> Model("mine", 32, 1000, [(3, small)]) == Model(
        ...     "mine", 32, 1000, layers=3, heads=4, kv_heads=2, head_dim=8, ffn=96
        ... )
        True
    """

    name: str
    hidden: int
    vocab: int
    stack: tuple[tuple[int, Layer], ...]
    tied: bool = False
    published_parameters: int | None = None
    positions: int = 0
    mtp: int = 0

    heads = _size("mixer", "heads", "Query heads.")
    kv_heads = _size("mixer", "kv_heads", "Key and value heads.")
    head_dim = _size("mixer", "head_dim", "Width of a head (its part without rotation under MLA).")
    value_dim = _size("mixer", "value_dim", "Width of a head's value.")
    qkv_bias = _size("mixer", "qkv_bias", "Biases on Q, K, V.")
    qk_norm = _size("mixer", "qk_norm", "A norm on each head's Q and K.")
    latent = _size("mixer", "latent", "Width of the cached latent (MLA), else 0.")
    rope_dim = _size("mixer", "rope_dim", "Width of the shared rotary key (MLA), else 0.")
    query_rank = _size("mixer", "query_rank", "Rank of the compressed query (MLA), else 0.")
    attention = _size("mixer", "attention", 'Kind of attention: "mha", "gqa", "mqa" or "mla".')
    ffn = _size("ffn", "ffn", "Inner width of the dense feed-forward layers, 0 where there are none.")
    experts = _size("ffn", "experts", "Routed experts of a layer, 0 where there are none.")
    active_experts = _size("ffn", "active_experts", "Routed experts that a token uses.")
    expert_ffn = _size("ffn", "expert_ffn", "Inner width of an expert.")
    shared_experts = _size("ffn", "shared_experts", "Experts that every token uses.")

    def __init__(
        self,
        name: str,
        hidden: int,
        vocab: int,
        stack: Sequence[tuple[int, Layer]] = (),
        tied: bool = False,
        published_parameters: int | None = None,
        positions: int = 0,
        mtp: int = 0,
        **sizes: Any,
    ):
        if sizes:
            stack = _stack(**(_sizes(Model(name, hidden, vocab, stack)) if stack else {}) | sizes)
        counted = tuple((whole(count, "layers", least=1), layer) for count, layer in some(stack, "stack", "layer"))
        for field, value in zip(fields(self), (name, hidden, vocab, counted, tied, published_parameters, positions, mtp)):
            object.__setattr__(self, field.name, value)
        self.__post_init__()

    def __post_init__(self):
        keep(self, whole, "", "hidden", "vocab", least=1)
        keep(self, whole, "", "positions", "mtp")
        keep(self, flag, "", "tied")
        keep(self, whole, "", "published_parameters", unknown=True)

    @property
    def layers(self) -> int:
        """How many layers."""
        return sum(count for count, _ in self.stack)

    @property
    def dense_layers(self) -> int:
        """First layers without experts, in a model with experts; else 0."""
        sparse = [bool(getattr(layer.ffn, "experts", 0)) for _, layer in self.stack]
        if sparse != sorted(sparse):
            raise ValueError(f"dense_layers must all stand before those with experts to be read as one, got {self.stack!r}")
        return sum(count for count, layer in self.stack if not getattr(layer.ffn, "experts", 0)) if any(sparse) else 0


SIZES = tuple(dict.fromkeys(f.name for kind in (Attention, LatentAttention, Gated, Experts) for f in fields(kind)))


def _stack(layers=None, dense_layers=0, **sizes):
    """Layers of one kind, or dense ones and then ones with experts, from their sizes by name."""
    layers, dense = whole(layers, "layers", least=1), whole(dense_layers, "dense_layers")
    nonnegative(layers - dense, "layers - dense_layers")
    if dense and not sizes.get("experts"):
        raise ValueError(f"experts must be above 0 where dense_layers are, got {sizes.get('experts', 0)!r}")
    mixer = _part(LatentAttention if sizes.get("latent") else Attention, sizes)
    counts = ((dense, Gated), (layers - dense, Experts)) if sizes.get("experts") else ((layers, Gated),)
    ffns = [(count, _part(kind, sizes)) for count, kind in counts if kind is Experts or count != 0]
    parts = (mixer, *(part for _, part in ffns))
    for name, value in sizes.items():
        owners = [part for part in parts if hasattr(part, one_of(name, "size of a layer", SIZES))]
        if not owners and value:
            raise ValueError(f"{name} must be 0 in {' and '.join(type(part).__name__ for part in reversed(parts))}, got {value!r}")
        if owners and value not in [getattr(part, name) for part in owners] and not (name == "value_dim" and value is None):
            raise ValueError(f"{name} must be {getattr(owners[0], name)!r} in {owners[0]!r}, got {value!r}")
    return tuple((count, Layer(mixer, part)) for count, part in ffns if count != 0)


def _part(kind, sizes):
    """A part of a kind from the sizes that it has."""
    given = {f.name: sizes.get(f.name, f.default) for f in fields(kind)}
    for name, value in given.items():
        if value is MISSING:
            raise ValueError(f"{name} must be given for {kind.__name__}, got none")
    return kind(**given)


def _sizes(model):
    """Sizes by name of a stack that they can make."""
    names = {name: part for _, layer in model.stack for part in ("mixer", "ffn") for name in getattr(getattr(layer, part), "__dict__", ())}
    sizes = {name: _shared(model, part, name) for name, part in names.items()}
    return {"layers": model.layers, "dense_layers": model.dense_layers, **sizes}


@cache
def _models():
    shapes = {}
    for row in table("models"):
        shapes.setdefault(row["item"], {})[row["quantity"]] = row["value"]
    return {name: Model(name, **shape | _layers(**shape)) for name, shape in shapes.items()}


def _layers(stack: Any = (), **_: Any) -> dict[str, Any]:
    """The stack of a record that writes its layers out, runs of one kind in turn, or an order of letters and what each means."""
    part = lambda sizes: KINDS[sizes["kind"]](**{name: size for name, size in sizes.items() if name != "kind"}) if sizes else None
    if "order" in stack:  # a letter a layer, from the embedding up
        stack = [stack[letter] | {"layers": len(list(run))} for letter, run in groupby(stack["order"])]
    made = [(run["layers"], Layer(part(run.get("mixer")), part(run.get("ffn")), run.get("streams", 1))) for run in stack]
    return {"stack": made} if stack else {}


def models() -> dict[str, Model]:
    """All models of the table, by name.

    Example:
        >>> len(models()) >= 12
        True
    """
    return dict(_models())


@formula
def model(name: str) -> Model:
    """One model of the table.

    Args:
        name: as the table writes it.

    Raises:
        ValueError: for an unknown name; the message lists the known ones.

    Example:
        >>> model("Qwen3-8B").layers, model("DeepSeek-V3").attention
        (36, 'mla')
    """
    return _models()[one_of(name, "model", tuple(_models()))]

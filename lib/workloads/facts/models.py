"""Facts about models: exact shapes, a stack of layers each (data/models.toml)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields
from functools import cache
from typing import Any

from ..checks import flag, formula, keep, nonnegative, one_of, some, whole
from ..numeric import Number, is_symbolic
from ..units import Bytes
from .tables import table


@dataclass(frozen=True)
class Attention:
    """Full attention over keys and values of its own: multi-head (MHA), grouped-query (GQA) or multi-query (MQA).

    Attributes:
        heads: query heads.
        kv_heads: key and value heads.
        head_dim: width of a head's query and key.
        value_dim: width of a head's value (default head_dim).
        qkv_bias: biases on Q, K, V.
        qk_norm: a norm on each head's Q and K.
    """

    heads: int
    kv_heads: int
    head_dim: int
    value_dim: Number = None  # head_dim where none is given
    qkv_bias: bool = False
    qk_norm: bool = False

    latent = rope_dim = query_rank = 0  # of LatentAttention alone

    def __post_init__(self):
        if self.value_dim is None:
            object.__setattr__(self, "value_dim", self.head_dim)
        keep(self, whole, "", "heads", "kv_heads", "head_dim", "value_dim", least=1)
        keep(self, flag, "", "qkv_bias", "qk_norm")
        _refuse_below(-(self.heads % self.kv_heads), "heads", "a multiple of kv_heads", self)

    @property
    def attention(self) -> str:
        """Kind of attention: "mha", "gqa" or "mqa"."""
        return "mha" if self.kv_heads == self.heads else "mqa" if self.kv_heads == 1 else "gqa"


@dataclass(frozen=True)
class LatentAttention:
    """Multi-head latent attention (MLA): one cached latent and one rotary key for all heads.

    Attributes:
        heads: query heads.
        head_dim: width of a head's query and key, its part without rotation.
        latent: width of the cached latent.
        rope_dim: width of the shared rotary key.
        query_rank: rank of the compressed query (0: not compressed).
        value_dim: width of a head's value (default head_dim).
    """

    heads: int
    head_dim: int
    latent: int
    rope_dim: int = 0
    query_rank: int = 0
    value_dim: Number = None  # head_dim where none is given

    attention = "mla"
    qkv_bias = qk_norm = False  # of Attention alone

    def __post_init__(self):
        if self.value_dim is None:
            object.__setattr__(self, "value_dim", self.head_dim)
        keep(self, whole, "", "heads", "head_dim", "latent", "value_dim", least=1)
        keep(self, whole, "", "rope_dim", "query_rank")

    @property
    def kv_heads(self) -> int:
        """Keys and values made from the latent: as many as queries."""
        return self.heads


@dataclass(frozen=True)
class Gated:
    """Gated feed-forward part (SwiGLU): three matrices.

    Attributes:
        ffn: inner width.
    """

    ffn: int

    experts = active_experts = expert_ffn = shared_experts = 0  # of Experts alone

    def __post_init__(self):
        keep(self, whole, "", "ffn", least=1)


@dataclass(frozen=True)
class Plain(Gated):
    """Feed-forward part of two matrices with an activation between them, as in GPT-3, BLOOM, MPT or Falcon.

    Attributes:
        ffn: inner width.
    """


@dataclass(frozen=True)
class Experts:
    """Mixture of experts (MoE): a router, and gated experts of one width.

    Attributes:
        experts: routed experts.
        active_experts: how many of them a token uses.
        expert_ffn: inner width of an expert.
        shared_experts: experts of the same width that every token uses.
    """

    experts: int
    active_experts: int
    expert_ffn: int
    shared_experts: int = 0

    ffn = 0  # of Gated alone

    def __post_init__(self):
        keep(self, whole, "", "experts", "active_experts", "expert_ffn", least=1)
        keep(self, whole, "", "shared_experts")
        _refuse_below(self.experts - self.active_experts, "active_experts", "at most experts", self)


def _refuse_below(room, name, rule, shape):
    if not is_symbolic(room) and room < 0:
        raise ValueError(f"{name} must be {rule}, got {getattr(shape, name)!r} in {shape!r}")


@dataclass(frozen=True)
class Layer:
    """One layer: what mixes positions, then what each position passes alone.

    Attributes:
        mixer: Attention or LatentAttention.
        ffn: Gated, Plain or Experts.
    """

    mixer: Attention | LatentAttention
    ffn: Gated | Experts


def _size(part, name, doc):
    """A size that all layers share, read off the model; what a feed-forward part lacks counts as 0 and is no other size."""

    def _read(model):
        found = dict.fromkeys(getattr(getattr(layer, part), name, None) for _, layer in model.stack)
        if part == "ffn" and len(found) > 1:
            found.pop(0, None)
        if len(found) > 1 or None in found:
            raise ValueError(f"{name} must be the same in all layers of {model.name!r} to be read as one, got {list(found)}")
        return next(iter(found))

    return property(_read, doc=doc)


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
        **sizes: Any,
    ):
        if sizes:
            stack = _stack(**(_sizes(Model(name, hidden, vocab, stack)) if stack else {}) | sizes)
        counted = tuple((whole(count, "layers", least=1), layer) for count, layer in some(stack, "stack", "layer"))
        for field, value in zip(fields(self), (name, hidden, vocab, counted, tied, published_parameters)):
            object.__setattr__(self, field.name, value)
        self.__post_init__()

    def __post_init__(self):
        keep(self, whole, "", "hidden", "vocab", least=1)
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
        return sum(count for count, layer in self.stack if not layer.ffn.experts) if any(sparse) else 0


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
        if value not in [getattr(part, name) for part in owners] and not (name == "value_dim" and value is None):
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
    names = {name: 0 for _, layer in model.stack for part in (layer.mixer, layer.ffn) for name in vars(part)}
    return {name: getattr(model, name) for name in ("layers", "dense_layers", *names)}


@dataclass(frozen=True)
class RecurrentModel:
    """Shape of a model whose memory of a sequence is a state of constant size: no KV cache.

    Attributes:
        name: as the table or its user writes it.
        layers: layers, each with a state of its own.
        hidden: width of a position.
        heads: each layer keeps heads matrices of head_dim x state_dim.
        head_dim: each layer keeps heads matrices of head_dim x state_dim.
        state_dim: each layer keeps heads matrices of head_dim x state_dim.
        matrix_bytes_per_value: width of a value of these matrices (B).
        vector_values: further values a layer keeps (convolution window, shifted tokens).
        vector_bytes_per_value: width of one of those (B).
        published_parameters: as the publisher rounds them.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    head_dim: int
    state_dim: int
    matrix_bytes_per_value: Bytes
    vector_values: int
    vector_bytes_per_value: Bytes
    published_parameters: int | None = None

    def __post_init__(self):
        for size in fields(self)[1:-1]:
            keep(self, whole, "", size.name, least=0 if size.name.startswith("vector") else 1)
        keep(self, whole, "", "published_parameters", unknown=True, least=1)


@cache
def _models():
    shapes = {}
    for row in table("models"):
        shapes.setdefault(row["item"], {})[row["quantity"]] = row["value"]
    return {name: (RecurrentModel if "state_dim" in shape else Model)(name, **shape) for name, shape in shapes.items()}


def models() -> dict[str, Model | RecurrentModel]:
    """All models of the table, by name.

    Example:
        >>> len(models()) >= 12
        True
    """
    return dict(_models())


@formula
def model(name: str) -> Model | RecurrentModel:
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

"""Parameters, matrix by matrix: which exist, and which take part in one token's products.

Each kind of mixer and of feed-forward part has one function here that says all that counts need to know of it; whatever is counted of a
model is a sum over its stack of layers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from ..checks import formula, one_of
from ..facts.models import Attention, Experts, Gated, LatentAttention, Model, Plain
from ..numeric import Number
from ..units import Count

PARTS = ("embedding", "attention", "ffn", "router", "experts", "shared experts", "head")


@dataclass(frozen=True)
class Matrix:
    """One kind of weight matrix [inputs, outputs]: how many the model holds, and how many of them one token passes
    through.
    """

    part: str
    name: str
    inputs: int
    outputs: int
    copies: int
    used: int

    @property
    def parameters(self) -> Count:
        """Weights of all copies."""
        return self.inputs * self.outputs * self.copies

    @property
    def active(self) -> Count:
        """Weights that take part in one token's products: each costs one multiply-add."""
        return self.inputs * self.outputs * self.used


class _PartCounts(NamedTuple):
    """What one mixer or feed-forward part of a layer counts, beside its hidden width.

    Attributes:
        matrices: its Matrix objects.
        norms: weights of its norms, the one in front of it included.
        biases: weights of its biases.
        pair: multiply-adds of all heads for the score of a query-key pair, and for its value.
        absorbed: the same where queries meet the cached latent itself; None where there is no latent.
        cached: values that a token leaves in the cache.
        cache_heads: into how many parts that cache can be split.
    """

    matrices: tuple[Matrix, ...]
    norms: Count
    biases: Count = 0
    pair: tuple[Number, Number] = (0, 0)
    absorbed: tuple[Number, Number] | None = None
    cached: Count = 0
    cache_heads: Count = 1


def _attention(m, hidden):
    query, key, value = m.heads * m.head_dim, m.kv_heads * m.head_dim, m.kv_heads * m.value_dim
    shapes = (("query", hidden, query), ("key", hidden, key), ("value", hidden, value))
    return _PartCounts(
        _matrices("attention", *shapes, ("attention output", m.heads * m.value_dim, hidden)),
        norms=hidden + 2 * m.head_dim * int(m.qk_norm),
        biases=(query + key + value) * int(m.qkv_bias),
        pair=(query, m.heads * m.value_dim),
        cached=key + value,
        cache_heads=m.kv_heads,
    )


def _latent_attention(m, hidden):
    width = m.heads * (m.head_dim + m.rope_dim)
    query = (("query", hidden, width),)
    if m.query_rank:
        query = (("query down", hidden, m.query_rank), ("query up", m.query_rank, width))
    latent = ("latent down", hidden, m.latent + m.rope_dim), ("latent up", m.latent, m.heads * (m.head_dim + m.value_dim))
    return _PartCounts(
        _matrices("attention", *query, *latent, ("attention output", m.heads * m.value_dim, hidden)),
        norms=hidden + m.query_rank + m.latent,
        pair=(width, m.heads * m.value_dim),
        absorbed=(m.heads * (m.latent + m.rope_dim), m.heads * m.latent),
        cached=m.latent + m.rope_dim,
    )


def _gated(ffn, hidden):
    return _PartCounts(_gated_matrices("ffn", hidden, ffn.ffn), norms=hidden)


def _plain(ffn, hidden):
    return _PartCounts(_matrices("ffn", ("ffn up", hidden, ffn.ffn), ("ffn down", ffn.ffn, hidden)), norms=hidden)


def _experts(ffn, hidden):
    router = _matrices("router", ("router", hidden, ffn.experts))
    routed = _gated_matrices("experts", hidden, ffn.expert_ffn, ffn.experts, ffn.active_experts)
    shared = _gated_matrices("shared experts", hidden, ffn.expert_ffn, ffn.shared_experts, ffn.shared_experts)
    return _PartCounts(router + routed + shared * (ffn.shared_experts != 0), norms=hidden)


def _matrices(part, *shapes, copies=1, used=1):
    return tuple(Matrix(part, name, inputs, outputs, copies, used) for name, inputs, outputs in shapes)


def _gated_matrices(part, hidden, width, copies=1, used=1):
    shapes = ((f"{part} gate", hidden, width), (f"{part} up", hidden, width), (f"{part} down", width, hidden))
    return _matrices(part, *shapes, copies=copies, used=used)


KINDS = {Attention: _attention, LatentAttention: _latent_attention, Gated: _gated, Plain: _plain, Experts: _experts}


def _counted(part, hidden):
    if type(part) not in KINDS:
        raise ValueError(f"part of a layer must be one of {', '.join(kind.__name__ for kind in KINDS)}, got {part!r}")
    return KINDS[type(part)](part, hidden)


@lru_cache(maxsize=256)
def stack_counts(model: Model) -> tuple[tuple[Count, _PartCounts, _PartCounts], ...]:
    """What the layers of a model count, from the embedding up: how many, their mixer, their feed-forward part.

    Args:
        model: a Model.

    Raises:
        ValueError: for a kind of part that has no counts here, or a RecurrentModel.

    Example:
        >>> from workloads.facts.models import model
        >>> [(count, mixer.cached) for count, mixer, ffn in stack_counts(model("DeepSeek-V3"))]
        [(3, 576), (58, 576)]
    """
    if not isinstance(model, Model):
        raise ValueError(f"model must be a Model with attention, got {model!r}")
    counted = lambda part: _counted(part, model.hidden)
    return tuple((count, counted(layer.mixer), counted(layer.ffn)) for count, layer in model.stack)


@lru_cache(maxsize=256)
def matrices(model: Model) -> tuple[Matrix, ...]:
    """Weight matrices of a model, in the order a token meets them.

    Args:
        model: a Model.

    Returns:
        Tuple of Matrix, each of one of the PARTS.

    Assumptions:
        An embedding row is looked up, so no weight of the table is used in a product; a tied head is a product with
        that same table, so it adds no copy.

    Example:
        >>> from workloads.facts.models import model
        >>> [(w.name, w.inputs, w.outputs) for w in matrices(model("Qwen3-8B"))][1:3]
        [('query', 4096, 4096), ('key', 4096, 1024)]
    """
    m, found = model, {}
    for count, w in ((count, w) for count, *parts in stack_counts(m) for part in parts for w in part.matrices):
        key = (w.part, w.name, w.inputs, w.outputs)
        before = found.get(key, Matrix(*key, copies=0, used=0))
        found[key] = Matrix(*key, copies=before.copies + count * w.copies, used=before.used + count * w.used)
    embedding = Matrix("embedding", "embedding", m.vocab, m.hidden, 1, 0)
    head = Matrix("head", "head", m.hidden, m.vocab, int(not m.tied), 1)
    return (embedding, *found.values(), head)


@formula
def active_weights(model: Model, *parts: str) -> Count:
    """Weights that take part in one token's products (count): of the parts named, or of all.

    Equation:
        sum over matrices of inputs x outputs x used.

    Args:
        model: a Model.
        *parts: names in PARTS.

    Raises:
        ValueError: for another name.

    Example:
        >>> from workloads.facts.models import model
        >>> active_weights(model("Qwen3-8B")), active_weights(model("Qwen3-8B"), "head")
        (7568097280, 622329856)
    """
    for part in parts:
        one_of(part, "part", PARTS)
    return sum(w.active for w in matrices(model) if not parts or w.part in parts)


@dataclass(frozen=True)
class Parameters:
    """Parameters of a model by kind, all layers together."""

    embedding: int
    attention: int
    ffn: int
    router: int
    experts: int
    shared_experts: int
    biases: int
    norms: int
    head: int

    @property
    def linear(self) -> Count:
        """Weights of all matrices inside the layers, routed experts included."""
        return self.attention + self.ffn + self.router + self.experts + self.shared_experts

    @property
    def total(self) -> Number:
        """All parameters; a tied head is part of the embedding and counts once."""
        return self.embedding + self.linear + self.biases + self.norms + self.head


@formula
def parameters(model: Model) -> Parameters:
    """Parameters of a model by kind, from its shape.

    Equation:
        sum over matrices of inputs x outputs x copies, plus norms (2 a layer and 1 of width hidden; with QK norms 2 of
        width head_dim a layer; under MLA one of query_rank and one of latent a layer) and Q, K, V biases where present.

    Args:
        model: a Model.

    Returns:
        Parameters.

    Assumptions:
        No learned position table, no other biases, no extra prediction layers (multi-token prediction).

    Example:
        >>> from workloads.facts.models import model
        >>> count = parameters(model("Qwen3-8B"))
        >>> count.total, count.linear, count.head, count.norms
        (8190735360, 6945767424, 622329856, 308224)
    """
    by_part, stack = {}, stack_counts(model)
    for w in matrices(model):
        by_part[w.part] = by_part.get(w.part, 0) + w.parameters
    norms = sum(count * (mixer.norms + ffn.norms) for count, mixer, ffn in stack) + model.hidden
    biases = sum(count * (mixer.biases + ffn.biases) for count, mixer, ffn in stack)
    return Parameters(biases=biases, norms=norms, **{part.replace(" ", "_"): by_part.get(part, 0) for part in PARTS})


@formula
def active_parameters(model: Model) -> Count:
    """Parameters that serve one token: all but the routed experts it does not use.

    Equation:
        total - experts x (1 - active_experts / experts).

    Args:
        model: a Model.

    Returns:
        Parameters, embedding and head included (the count that publishers call "activated").

    Example:
        >>> from workloads.facts.models import model
        >>> round(active_parameters(model("Qwen3-30B-A3B")) / 1e9, 2)
        3.35
    """
    idle = sum((w.copies - w.used) * w.inputs * w.outputs for w in matrices(model) if w.part == "experts")
    return parameters(model).total - idle

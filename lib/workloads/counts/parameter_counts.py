"""Parameters, matrix by matrix: which exist, and which take part in one token's products."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ..checks import formula, one_of
from ..facts.models import Model, with_attention
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


def _attention_matrices(m):
    width = m.heads * (m.head_dim + m.rope_dim)
    query = [("query", m.hidden, width)]
    if m.query_rank:
        query = [("query down", m.hidden, m.query_rank), ("query up", m.query_rank, width)]
    key_value = [("key", m.hidden, m.kv_heads * m.head_dim), ("value", m.hidden, m.kv_heads * m.value_dim)]
    if m.latent:
        key_value = [("latent down", m.hidden, m.latent + m.rope_dim), ("latent up", m.latent, m.heads * (m.head_dim + m.value_dim))]
    shapes = [*query, *key_value, ("attention output", m.heads * m.value_dim, m.hidden)]
    return [Matrix("attention", name, inputs, outputs, m.layers, m.layers) for name, inputs, outputs in shapes]


def _gated(part, m, width, copies, used):
    shapes = (("gate", m.hidden, width), ("up", m.hidden, width), ("down", width, m.hidden))
    return [Matrix(part, f"{part} {name}", inputs, outputs, copies, used) for name, inputs, outputs in shapes]


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
    m = with_attention(model)
    sparse_layers = m.layers - m.dense_layers
    found = [Matrix("embedding", "embedding", m.vocab, m.hidden, 1, 0), *_attention_matrices(m)]
    if not m.experts:
        found += _gated("ffn", m, m.ffn, m.layers, m.layers)
    else:
        found += _gated("ffn", m, m.ffn, m.dense_layers, m.dense_layers)
        found += [Matrix("router", "router", m.hidden, m.experts, sparse_layers, sparse_layers)]
        found += _gated("experts", m, m.expert_ffn, sparse_layers * m.experts, sparse_layers * m.active_experts)
        found += _gated("shared experts", m, m.expert_ffn, sparse_layers * m.shared_experts, sparse_layers * m.shared_experts)
    found += [Matrix("head", "head", m.hidden, m.vocab, 0 if m.tied else 1, 1)]
    return tuple(w for w in found if w.copies != 0 or w.used != 0)


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
    m, by_part = with_attention(model), {}
    for w in matrices(m):
        by_part[w.part] = by_part.get(w.part, 0) + w.parameters
    norms = m.layers * (2 * m.hidden + m.query_rank + m.latent + 2 * m.head_dim * int(m.qk_norm)) + m.hidden
    biases = m.layers * (m.heads * m.head_dim + m.kv_heads * (m.head_dim + m.value_dim)) * int(m.qkv_bias)
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

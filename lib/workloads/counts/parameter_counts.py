"""Parameters, matrix by matrix: which exist, and which take part in one token's products.

Each kind of mixer and of feed-forward part has one function here that says all that counts need to know of it; whatever is counted of a
model is a sum over its stack of layers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from ..checks import formula, one_of
from ..facts import layers
from ..facts.models import Model
from ..numeric import Number
from ..units import Bytes, Count, Share
from .spans import Span

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
        matrices: its Matrix objects; one without copies is no weight, but work on a state.
        norms: weights of its norms, the one in front of it included.
        biases: weights of its biases, and single values such as decays.
        spans: of an attention, the Span objects.
        state: bytes that a sequence keeps, whatever its length (B).
        expert_biases: those of routed experts among its biases, read with the expert alone.
    """

    matrices: tuple[Matrix, ...]
    norms: Count
    biases: Count = 0
    spans: tuple[Span, ...] = ()
    state: Bytes = 0
    expert_biases: Count = 0


def _attention(m, hidden):
    query, key, value = m.heads * m.head_dim, m.kv_heads * m.head_dim, m.kv_heads * m.value_dim
    shapes = (("query", hidden, query), ("key", hidden, key), ("value", hidden, value))[: 2 if m.keys_as_values else 3]
    gate = {"": 0, "head": m.heads, "value": m.heads * m.value_dim}[m.gate]
    shapes += (("output gate", hidden, gate),) * (m.gate != "")
    normed = query + key if m.qk_norm == "all" else 2 * m.head_dim * int(m.qk_norm)
    reach = m.window or m.chunk
    return _PartCounts(
        _matrices("attention", *shapes, ("attention output", m.heads * m.value_dim, hidden)),
        norms=hidden + normed,
        biases=(query + key + value) * int(m.qkv_bias) + hidden * int(m.output_bias) + m.heads * int(m.sinks),
        spans=(Span((query, m.heads * m.value_dim), {"key": key, "value": value}, None, m.kv_heads, reach, reach, chunk=m.chunk != 0),),
    )


def _latent_attention(m, hidden):
    width = m.heads * (m.head_dim + m.rope_dim)
    query = (("query", hidden, width),)
    if m.query_rank:
        query = (("query down", hidden, m.query_rank), ("query up", m.query_rank, width))
    latent = ("latent down", hidden, m.latent + m.rope_dim), ("latent up", m.latent, m.heads * (m.head_dim + m.value_dim))
    absorbed = (m.heads * (m.latent + m.rope_dim), m.heads * m.latent)
    cached = {"latent": m.latent, "rope": m.rope_dim} if m.rope_dim else {"latent": m.latent}
    main = Span((width, m.heads * m.value_dim), cached, absorbed, sees=m.top_k)
    return _PartCounts(
        _matrices("attention", *query, *latent, *_index_shapes(m, hidden), ("attention output", m.heads * m.value_dim, hidden)),
        norms=hidden + m.query_rank + m.latent + 2 * m.index_dim,
        spans=(main, _index_span(m)) if m.index_heads else (main,),
    )


def _index_shapes(m, hidden):
    shapes = ("index query", m.query_rank, m.index_heads * m.index_dim), ("index weights", hidden, m.index_heads)
    return (*shapes, ("index key", hidden, m.index_dim)) if m.index_heads else ()


def _index_span(m, every=1):
    """Each pair of positions is scored by all heads of the indexer, and their scores weighted and added."""
    work = m.index_heads * (m.index_dim + 1)
    return Span((work, 0), {"index": m.index_dim}, (work, 0), every=every)


def _compressed_attention(m, hidden):
    width, low = m.heads * m.head_dim, m.output_groups * m.output_rank
    shapes = (("query down", hidden, m.query_rank), ("query up", m.query_rank, width), ("key value", hidden, m.head_dim))
    shapes += (("output down", width // m.output_groups, low), ("output up", low, hidden))
    far, spans, made = (), (Span((width, width), {"key": m.head_dim}, sees=m.window, keeps=m.window),), (1 + m.overlap) * m.head_dim
    if m.ratio:
        far += (("entry", hidden, made), ("entry gate", hidden, made))
        spans += (Span((width, width), {"entry": m.head_dim}, sees=m.top_k, every=m.ratio),)
    if m.index_heads:
        scored = (1 + m.overlap) * m.index_dim
        far += (*_index_shapes(m, hidden)[:2], ("index entry", hidden, scored), ("index entry gate", hidden, scored))
        spans += (_index_span(m, m.ratio),)
    blocks = m.ratio * sum(outputs for name, _, outputs in far if name.endswith("entry"))  # a bias for each position of an entry
    norms = hidden + m.query_rank + m.head_dim + (m.head_dim if m.ratio else 0) + m.index_dim
    return _PartCounts(_matrices("attention", *shapes, *far), norms, m.heads * int(m.sinks) + blocks, spans)


def _gated_delta(m, hidden):
    key, value = m.key_heads * m.key_dim, m.heads * m.value_dim
    shapes = (("query key value gate", hidden, 2 * key + 2 * value), ("decay and rate", hidden, 2 * m.heads))
    shapes += (("convolution", m.conv, 2 * key + value), ("attention output", value, hidden))
    matrix, window = m.heads * m.key_dim * m.value_dim, m.conv * (2 * key + value)
    return _PartCounts(
        (*_matrices("attention", *shapes), _on_state("state read, corrected, read", 3 * matrix)),
        norms=hidden + m.value_dim,
        biases=2 * m.heads,
        state=matrix * m.state_value_bytes + 2 * window,
    )


def _state_space(m, hidden):
    inner, mixed = m.heads * m.head_dim, 2 * m.groups * m.state_dim
    shapes = (("input", hidden, 2 * inner + mixed + m.heads), ("convolution", m.conv, inner + mixed), ("attention output", inner, hidden))
    matrix, window = inner * m.state_dim, m.conv * (inner + mixed)
    return _PartCounts(
        (*_matrices("attention", *shapes), _on_state("state written, read", 2 * matrix)),
        norms=hidden + inner,
        biases=3 * m.heads + inner + mixed,
        state=matrix * m.state_value_bytes + 2 * window,
    )


def _rwkv(m, hidden):
    inner, matrix = m.heads * m.head_dim, m.heads * m.head_dim**2
    shapes = (("receptance", hidden, inner), ("key", hidden, inner), ("value", hidden, inner), ("attention output", inner, hidden))
    for name, rank in (("decay", m.decay_rank), ("rate", m.rate_rank), ("gate", m.gate_rank), ("value mix", m.value_rank)):
        shapes += ((f"{name} down", hidden, rank), (f"{name} up", rank, inner)) * (rank != 0)
    return _PartCounts(
        (*_matrices("attention", *shapes), _on_state("state read, corrected, read", 3 * matrix)),
        norms=2 * hidden + 2 * inner,
        biases=6 * hidden + (5 + (m.value_rank != 0)) * inner,
        state=matrix * m.state_value_bytes + 2 * 2 * hidden,
    )


def _on_state(name, work):
    """Multiply-adds of a token on a state: work without a weight."""
    return Matrix("attention", name, 1, work, 0, 1)


def _gated(ffn, hidden):
    return _PartCounts(_gated_matrices("ffn", hidden, ffn.ffn), norms=hidden)


def _plain(ffn, hidden):
    return _PartCounts(_matrices("ffn", ("ffn up", hidden, ffn.ffn), ("ffn down", ffn.ffn, hidden)), norms=hidden)


def _experts(ffn, hidden):
    inner, width = ffn.expert_hidden or hidden, ffn.expert_ffn
    found = _matrices("router", ("router", hidden, ffn.experts))
    if ffn.expert_hidden:
        found += _matrices("ffn", ("experts down", hidden, inner), ("experts up", inner, hidden))
    found += _gated_matrices("experts", inner, width, ffn.experts, ffn.active_experts)[int(ffn.plain) :]
    if ffn.shared_experts != 0:
        counts = (ffn.shared_experts, ffn.shared_experts)
        found += _gated_matrices("shared experts", hidden, ffn.shared_ffn or width, *counts)[int(ffn.plain) :]
    found += _matrices("shared experts", ("shared gate", hidden, 1)) * ffn.shared_gate
    found += _gated_matrices("ffn", hidden, ffn.dense_ffn) * (ffn.dense_ffn != 0)
    outputs = ffn.experts * ((1 if ffn.plain else 2) * width + inner) if ffn.biases else 0
    biases = outputs + ffn.experts * (int(ffn.biases) + int(ffn.router_bias))
    return _PartCounts(found, norms=hidden, biases=biases, expert_biases=outputs)


def _matrices(part, *shapes, copies=1, used=1):
    return tuple(Matrix(part, name, inputs, outputs, copies, used) for name, inputs, outputs in shapes)


def _gated_matrices(part, hidden, width, copies=1, used=1):
    shapes = ((f"{part} gate", hidden, width), (f"{part} up", hidden, width), (f"{part} down", width, hidden))
    return _matrices(part, *shapes, copies=copies, used=used)


_OF_MIXERS = (_attention, _latent_attention, _compressed_attention, _gated_delta, _state_space, _rwkv)
COUNTS: dict[type, Callable] = dict(zip(layers.KINDS.values(), (*_OF_MIXERS, _gated, _plain, _experts), strict=True))  # in their order


def _counted(part, hidden, streams):
    if part is None:
        return _PartCounts((), 0)
    if type(part) not in COUNTS:
        raise ValueError(f"part of a layer must be one of {', '.join(kind.__name__ for kind in COUNTS)}, got {part!r}")
    found = COUNTS[type(part)](part, hidden)
    if streams == 1:
        return found
    mixed, group = streams * (streams + 2), "attention" if isinstance(part, layers.Mixer) else "ffn"
    return found._replace(
        matrices=(*found.matrices, *_matrices(group, ("stream mixing", streams * hidden, mixed))), biases=found.biases + mixed + 3
    )


@lru_cache(maxsize=256)
def stack_counts(model: Model) -> tuple[tuple[Count, _PartCounts, _PartCounts], ...]:
    """What the layers of a model count, from the embedding up: how many, their mixer, their feed-forward part.

    Args:
        model: a Model.

    Raises:
        ValueError: for a kind of part that has no counts here, or what is no Model.

    Example:
        >>> from workloads.facts.models import model
        >>> [(count, mixer.spans[0].cached) for count, mixer, ffn in stack_counts(model("DeepSeek-V3"))]
        [(3, {'latent': 512, 'rope': 64}), (58, {'latent': 512, 'rope': 64})]
    """
    if not isinstance(model, Model):
        raise ValueError(f"model must be a Model, got {model!r}")
    counted = lambda part, layer: _counted(part, model.hidden, layer.streams)
    return tuple((count, counted(layer.mixer, layer), counted(layer.ffn, layer)) for count, layer in model.stack)


@lru_cache(maxsize=256)
def spans(model: Model) -> tuple[tuple[Count, Span], ...]:
    """What queries of a model meet, over its attention layers: how many layers, and a `Span` of each.

    Args:
        model: a Model.

    Example:
        >>> from workloads.facts.models import model
        >>> [(count, span.heads) for count, span in spans(model("Qwen3-8B"))]
        [(36, 8)]
    """
    return tuple((count, span) for count, mixer, _ in stack_counts(model) for span in mixer.spans)


@lru_cache(maxsize=256)
def even_spans(model: Model) -> tuple[tuple[Count, Span], ...]:
    """The `spans` of a model whose every attention layer meets every pair and keeps every position.

    Args:
        model: a Model.

    Raises:
        ValueError: for another, by name: one number for each pair or token would be silently wrong.

    Example:
        >>> from workloads.facts.models import model
        >>> len(even_spans(model("DeepSeek-V3")))
        2
    """
    found = spans(model)
    if not all(span.even for _, span in found):
        raise ValueError(f"model must meet every pair and keep every position to be counted by the token, got {model.name}")
    return found


@lru_cache(maxsize=256)
def absorbs(model: Model) -> bool:
    """Whether decode lets queries meet the cached latent itself (MLA).

    Args:
        model: a Model.

    Example:
        >>> from workloads.facts.models import model
        >>> absorbs(model("DeepSeek-V3")), absorbs(model("Qwen3-8B"))
        (True, False)
    """
    return any(span.absorbed for _, span in spans(model))


def _expert_biases(model):
    """Biases of routed experts, which lie where their matrices lie."""
    return sum(layers * ffn.expert_biases for layers, _, ffn in stack_counts(model))


@lru_cache(maxsize=256)
def expert_share(model: Model) -> Share:
    """Share of the routed experts that a token uses (1 without experts).

    Args:
        model: a Model.

    Raises:
        ValueError: where layers have several.

    Example:
        >>> from workloads.facts.models import model
        >>> expert_share(model("DeepSeek-V3"))
        0.03125
    """
    found = {w.used / w.copies for _, _, ffn in stack_counts(model) for w in ffn.matrices if w.part == "experts"} or {1}
    if len(found) > 1:
        raise ValueError(f"experts must be used in one share in all layers of {model.name!r}, got {sorted(found)}")
    return found.pop()


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
        RMS norms: those with a bias hold as many more, which is left out. Prediction layers are left out
            (`mtp_parameters`).

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
    by_part["embedding"] += model.positions * model.hidden
    return Parameters(biases=biases, norms=norms, **{part.replace(" ", "_"): by_part.get(part, 0) for part in PARTS})


@formula
def mtp_parameters(model: Model) -> Count:
    """Parameters of the further prediction layers (multi-token prediction), which no other count holds.

    Equation:
        mtp x (one layer as the last of the stack + a projection of two hidden widths to one + three norms).

    Args:
        model: a Model.

    Assumptions:
        Embedding and head are the model's own.

    Example:
        >>> from workloads.facts.models import model
        >>> from dataclasses import replace
        >>> round(mtp_parameters(replace(model("DeepSeek-V3"), mtp=1)) / 1e9, 1)
        11.6
    """
    stack_counts(model)
    last = replace(model, stack=((1, model.stack[-1][1]),), positions=0, mtp=0)
    count = parameters(last)
    return model.mtp * (count.linear + count.biases + count.norms + 2 * model.hidden**2 + 2 * model.hidden)


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

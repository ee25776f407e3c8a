"""Bytes: what weights, KV cache, state and training hold, and what a decode step moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from ..checks import flag, formula, fraction, nonnegative, positive, whole
from ..facts.models import Model
from ..numeric import Number, floor, maximum, where
from ..units import Bytes, BytesPerToken, Count, Share, Tokens
from .parameter_counts import even_spans, parameters, spans, stack_counts


@formula
def weight_bytes(model: Model, bytes_per_parameter: Bytes = 2) -> Bytes:
    """Bytes of all weights of a model.

    Equation:
        parameters x bytes_per_parameter; with {part: width} a sum over the parts.

    Args:
        model: a Model.
        bytes_per_parameter: 2 for BF16, 1 for FP8 (scales left out), 4 for FP32; or {part: width}, see `Formats`.

    Example:
        >>> from workloads.facts.models import model
        >>> weight_bytes(model("Qwen3-8B"))
        16381470720
    """
    return _stored(parameters(model), bytes_per_parameter)


def _stored(count, width):
    if not isinstance(width, Mapping):
        return count.total * positive(width, "bytes_per_parameter", "B")
    return sum(size * _width(width, part, "bytes_per_parameter") for part, size in vars(count).items() if size)


def _width(width, part, name):
    """Bytes of a value of a part: the one width, or the part's own, or that of all others."""
    if not isinstance(width, Mapping):
        return positive(width, name, "B")
    if part not in width and "other" not in width:
        raise ValueError(f"{name} must say how {part!r} is kept, or 'other', got {dict(width)}")
    return positive(width.get(part, width.get("other")), f"{name}[{part!r}]", "B")


def _cached(spans, width):
    """Bytes that a position leaves in the cache, or an entry of several, over layers: [(bytes, span)] (B)."""
    entry = lambda span: sum(values * _width(width, what, "bytes_per_value") for what, values in span.cached.items())
    return [(count * entry(span), span) for count, span in spans]


@formula
def weights_picked(weights: Number, experts: Number, share: Share, tokens: Tokens) -> Number:
    """Weights that the tokens of a step meet: all but the routed experts that no token picks, on average.

    Equation:
        weights - experts (1 - share)^tokens.

    Args:
        weights: all that a step can meet, experts included (count or B).
        experts: of them in routed experts (in the same unit).
        share: of the experts that one token uses, in (0, 1].
        tokens: in the step.

    Assumptions:
        Every expert is equally likely and tokens choose independently.

    Example:
        >>> round(weights_picked(100, 80, 8 / 128, 64), 2)
        98.71
    """
    nonnegative(positive(weights, "weights") - nonnegative(experts, "experts"), "weights - experts")
    rest = 1 - fraction(share, "share")
    left = (float(rest) if isinstance(rest, Fraction) else rest) ** nonnegative(tokens, "tokens")  # exact, it would hardly end
    return weights - experts * left


@formula
def weights_read_per_step(model: Model, bytes_per_parameter: Bytes = 2, batch: Count = 1) -> Bytes:
    """Bytes of weights that one decode step reads, whatever the number of sequences (for a dense model).

    Equation:
        (parameters - embedding table) x bytes_per_parameter; the table is read too when the head shares it. With
        experts, only those that some sequence picked, with their biases: of E experts with k active, E (1 - (1 -
        k/E)^batch) on average.

    Args:
        model: a Model.
        bytes_per_parameter: width of a stored weight (B).
        batch: sequences in the step (matters with experts only).

    Assumptions:
        Each matrix is read once a step; every expert is equally likely and sequences choose independently.

    Example:
        >>> from workloads.facts.models import model
        >>> weights_read_per_step(model("Qwen3-8B"))
        15136811008
    """
    count = parameters(model)
    batch = positive(batch, "batch", "sequences")
    routed = Counter()
    for layers, _, ffn in stack_counts(model):
        picked = [w for w in ffn.matrices if w.part == "experts"]
        for w in picked:
            routed[w.used / w.copies, "experts"] += layers * w.parameters
        for w in picked[:1]:
            routed[w.used / w.copies, "biases"] += layers * ffn.expert_biases
    if isinstance(bytes_per_parameter, Mapping):
        width = {part: _width(bytes_per_parameter, part, "bytes_per_parameter") for (_, part), size in routed.items() if size}
        table = 0 if model.tied else count.embedding * _width(bytes_per_parameter, "embedding", "bytes_per_parameter")
        read, each = _stored(count, bytes_per_parameter) - table, 1
    else:
        read, width, each = count.total - (0 if model.tied else count.embedding), {}, bytes_per_parameter
    for (share, part), size in routed.items():
        read = weights_picked(read, size * width.get(part, 1), share, batch)
    return read * positive(each, "bytes_per_parameter", "B")


@formula
def kv_bytes_per_token(model: Model, bytes_per_value: Bytes = 2) -> BytesPerToken:
    """Bytes of KV cache that one token of one sequence takes, over all layers (B/token).

    Equation:
        layers kv_heads (head_dim + value_dim) b, that is 2 layers kv_heads head_dim b for equal widths of keys and
        values; MLA keeps one latent and one rotary key for all heads: layers (latent + rope_dim) b.

    Args:
        model: a Model.
        bytes_per_value: b: 2 for BF16, 1 for FP8, 0.75 for 6 bits.

    Example:
        >>> from workloads.facts.models import model
        >>> kv_bytes_per_token(model("Qwen3-8B")), kv_bytes_per_token(model("DeepSeek-V3"))
        (147456, 70272)
    """
    met = even_spans(model)
    if isinstance(bytes_per_value, Mapping):
        return sum(size for size, _ in _cached(met, bytes_per_value))
    values = sum(count * sum(span.cached.values()) for count, span in met)
    return values * positive(bytes_per_value, "bytes_per_value", "B")


@formula
def kv_bytes(model: Model, tokens: Tokens, batch: Count = 1, bytes_per_value: Bytes = 2, in_flight: Count = 1) -> Bytes:
    """Bytes of KV cache of sequences of equal length.

    Equation:
        batch x tokens x (B/token); of a layer with a window of W positions min(tokens, W - 1 + in_flight) in place of
        tokens, of one that keeps entries of r positions floor(tokens / r).

    Args:
        model: a Model.
        tokens: tokens a sequence.
        batch: sequences.
        bytes_per_value: width of a cached value (B), or {part: width}, see `Formats`.
        in_flight: tokens of a sequence that one call computes, the first of which still needs its whole window.

    Assumptions:
        No sharing of prefixes, no rounding up to whole blocks; of blocks of positions the last counts in full. States
        of constant size are `state_bytes`.

    Example:
        >>> from workloads.facts.models import model
        >>> kv_bytes(model("Qwen3-8B"), 4096)
        603979776
    """
    batch, tokens = nonnegative(batch, "batch", "sequences"), nonnegative(tokens, "tokens")
    in_flight = whole(in_flight, "in_flight", "tokens", least=1)
    if all(span.even for _, span in spans(model)):
        return batch * tokens * kv_bytes_per_token(model, bytes_per_value)
    return batch * _kept(model, tokens, bytes_per_value, in_flight)


def _kept(model, tokens, bytes_per_value, in_flight):
    """Cache of one sequence, span by span (B)."""
    return sum(size * span.kept(tokens, in_flight) for size, span in _cached(spans(model), bytes_per_value))


def _by_span(model, bytes_per_value, cards):
    """`_cached` of a model, as often as cards that share it store it."""
    return [(size * _copies(span.heads, cards), span) for size, span in _cached(spans(model), bytes_per_value)]


def _copies(heads, cards):
    return cards if heads == 1 else maximum(1, cards / heads)


@formula
def kv_copies(model: Model, cards: Count, expert_parallel: bool = False, tokens: Tokens | None = None) -> Number:
    """How often cards that share one copy of the weights together store one sequence's cache.

    Equation:
        max(1, cards / kv_heads) under tensor parallelism, since a head is the smallest part that a card can take; cards
        under MLA, whose latent has no heads to split; 1 under expert parallelism, where each card has sequences of its
        own.

    Args:
        model: a Model.
        cards: cards that share the model.
        expert_parallel: whether each card has sequences of its own.
        tokens: of a sequence; needed where layers with windows have other heads than those without.

    Example:
        >>> from workloads.facts.models import model
        >>> (
        ...     kv_copies(model("Qwen3-30B-A3B"), 8),
        ...     kv_copies(model("DeepSeek-V3"), 8),
        ...     kv_copies(model("DeepSeek-V3"), 8, expert_parallel=True),
        ... )
        (2.0, 8, 1)
    """
    met, cards = spans(model), whole(cards, "cards", least=1)
    tokens = None if tokens is None else positive(tokens, "tokens")
    if flag(expert_parallel, "expert_parallel") or not met:
        return 1
    copies = {span.heads: _copies(span.heads, cards) for _, span in met}
    if len(copies) == 1:
        return next(iter(copies.values()))
    if tokens is None and not all(span.even for _, span in met):
        raise ValueError(f"tokens must be given where windows and full attention have other heads, got none for {model.name}")
    kept = lambda span: 1 if tokens is None else span.kept(tokens)
    sizes = [(count * sum(span.cached.values()) * kept(span), span) for count, span in met]
    return sum(size * copies[span.heads] for size, span in sizes) / sum(size for size, _ in sizes)


@formula
def cards_that_hold(
    model: Model, memory_bytes: Bytes, tokens: Tokens = 0, batch: Count = 1, bytes_per_parameter: Bytes = 2, bytes_per_value: Bytes = 2
) -> Count | None:
    """Smallest number of cards that hold one copy of the weights under tensor parallelism, and the cache of a batch
    beside it.

    Equation:
        the least g with g memory >= weights + batch (tokens x (B/token) x kv_copies(g) + state).

    Args:
        model: a Model.
        memory_bytes: of one card (B).
        tokens: of each sequence.
        batch: sequences.
        bytes_per_parameter: width of a stored weight (B).
        bytes_per_value: width of a cached value (B).

    Returns:
        Count | None: Cards; None where no number up to 1,024 does: under MLA every card must hold all latents.

    Assumptions:
        Weights split evenly, nothing else needs memory.

    Example:
        >>> from workloads.facts.models import model
        >>> (
        ...     cards_that_hold(model("Llama-3.1-405B"), 96e9),
        ...     cards_that_hold(model("DeepSeek-V3"), 141e9, 8447, 769, bytes_per_parameter=1),
        ... )
        (9, None)
    """
    room = positive(memory_bytes, "memory_bytes", "B")
    weights, cache = weight_bytes(model, bytes_per_parameter) + state_bytes(model, batch), kv_bytes(model, tokens, batch, bytes_per_value)
    return next(
        (cards for cards in range(1, 1025) if cards * room >= weights + cache * kv_copies(model, cards, tokens=maximum(tokens, 1))), None
    )


@formula
def state_bytes(model: Model, batch: Count = 1) -> Bytes:
    """Bytes of state that layers without a cache keep, whatever the length of the sequences (B).

    Equation:
        batch x sum over layers of (state of a layer x its width + window of its convolution x 2).

    Args:
        model: a Model; one of attention alone keeps none.
        batch: sequences.

    Example:
        >>> from workloads.facts.models import model
        >>> state_bytes(model("Mamba-2-2.7B")), state_bytes(model("RWKV-7-2.9B"))
        (86638592, 21299200)
    """
    return nonnegative(batch, "batch", "sequences") * sum(count * mixer.state for count, mixer, _ in stack_counts(model))


@dataclass(frozen=True)
class _DecodeTraffic:
    """Bytes that one decode step moves between memory and chip."""

    weights: Bytes
    embedding_rows: Bytes
    kv_read: Bytes
    kv_written: Bytes
    state: Bytes = 0

    @property
    def total(self) -> Bytes:
        """All of them."""
        return self.weights + self.embedding_rows + self.kv_read + self.kv_written + self.state


@formula
def decode_traffic(
    model: Model, past: Tokens, batch: Count = 1, bytes_per_parameter: Bytes = 2, bytes_per_value: Bytes = 2
) -> _DecodeTraffic:
    """Bytes that one decode step reads and writes.

    Equation:
        weights once + batch x (embedding row + past x KV/token read + 1 x KV/token written + 2 x state); of layers with
        windows, blocks, an indexer or compressed entries what a query meets.

    Args:
        model: a Model.
        past: tokens of each sequence in the cache before the step (a mean will do).
        batch: sequences.
        bytes_per_parameter: width of a stored weight (B).
        bytes_per_value: width of a cached value (B).

    Returns:
        DecodeTraffic.

    Assumptions:
        A lower bound. Activations stay on the chip, every weight and cached value crosses once.

    Example:
        >>> from workloads.facts.models import model
        >>> decode_traffic(model("Qwen3-8B"), past=2742, batch=64).total
        41023531008
    """
    weights = weights_read_per_step(model, bytes_per_parameter, batch)
    past, batch = nonnegative(past, "past", "tokens"), positive(batch, "batch", "sequences")
    row, state = batch * model.hidden * _width(bytes_per_parameter, "embedding", "bytes_per_parameter"), 2 * state_bytes(model, batch)
    if all(span.even for _, span in spans(model)):
        entry = kv_bytes_per_token(model, bytes_per_value)
        return _DecodeTraffic(weights, row, batch * past * entry, batch * entry, state)
    cached = _cached(spans(model), bytes_per_value)
    read, written = (sum(size * span.read(past) for size, span in cached), sum(size / span.every for size, span in cached))
    return _DecodeTraffic(weights, row, batch * read, batch * written, state)


@formula
def prefill_bytes(
    model: Model, new: Tokens, past: Tokens = 0, batch: Count = 1, bytes_per_parameter: Bytes = 2, bytes_per_value: Bytes = 2
) -> Bytes:
    """Bytes that a prefill moves: the least that must cross between memory and chip (B).

    Equation:
        weights read + B (n embedding rows + (p + n) KV/token): the past is read, the new entries are written; a state is
        written, and read where a past made it.

    Args:
        model: a Model.
        new: tokens of each sequence computed and cached before.
        past: tokens of each sequence computed and cached before.
        batch: sequences.
        bytes_per_parameter: width of a stored weight (B).
        bytes_per_value: width of a cached value (B).

    Assumptions:
        As in `decode_traffic`.

    Example:
        >>> from workloads.facts.models import model
        >>> prefill_bytes(model("Qwen3-8B"), 8192)
        16411879424
    """
    new, batch = positive(new, "new", "tokens"), positive(batch, "batch", "sequences")
    weights = weights_read_per_step(model, bytes_per_parameter, batch * new)
    rows = new * model.hidden * _width(bytes_per_parameter, "embedding", "bytes_per_parameter")
    tokens, state = new + nonnegative(past, "past", "tokens"), state_bytes(model)
    even = all(span.even for _, span in spans(model))
    cache = kv_bytes(model, tokens, 1, bytes_per_value) if even else _kept(model, tokens, bytes_per_value, new)
    if state:
        cache = cache + state * where(past > 0, 2, 1)
    return weights + batch * (rows + cache)


@formula
def sequences_that_fit(memory_bytes: Bytes, resident_bytes: Bytes, bytes_per_sequence: Bytes, copies: Count = 1) -> Count:
    """Largest number of sequences whose cache fits beside what is resident.

    Equation:
        copies x max(0, floor((memory - resident) / bytes_per_sequence)).

    Args:
        memory_bytes: of one pool (B).
        resident_bytes: weights and whatever else stays (B).
        bytes_per_sequence: state of one sequence (B).
        copies: how many such pools. Pooled: 8 cards as one memory with one set of weights. Per copy: one card with its
            own weights, copies = 8.

    Returns:
        Whole sequences; 0 when the resident bytes alone do not fit.

    Assumptions:
        An upper bound, nothing else needs memory.

    Example:
        >>> (
        ...     sequences_that_fit(8 * 80e9, 16_381_470_720, 603_979_776),
        ...     sequences_that_fit(80e9, 16_381_470_720, 603_979_776, copies=8),
        ... )
        (1032, 840)
    """
    free = positive(memory_bytes, "memory_bytes", "B") - nonnegative(resident_bytes, "resident_bytes", "B")
    return whole(copies, "copies", least=1) * maximum(0, floor(free // positive(bytes_per_sequence, "bytes_per_sequence", "B")))

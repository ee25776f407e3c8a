"""Roofline time of one step of a serving engine: prompt chunks and decoding rows of many requests in one batch.

Costs are kept as whole ticks of 10**-21 s per unit of work: a sum of many steps in closed form then equals the sum step by step exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import lcm
from operator import mul
from typing import NamedTuple

from ..checks import formula, fraction, keep, nonnegative, one_of, positive, some, whole
from ..counts import memory
from ..counts.flops import forward
from ..counts.memory import state_bytes, weights_read_per_step
from ..counts.parameter_counts import absorbs, expert_share, matrices, parameters, spans
from ..counts.passes import Pass
from ..counts.spans import Span
from ..facts.formats import BF16, Formats
from ..facts.models import Model
from ..numeric import Number, sum_of_larger
from ..times.machine import Machine
from ..units import Bytes, BytesPerSecond, Count, FlopCount, Seconds, Share, Tokens

TICKS = 10**21  # per second


@dataclass(frozen=True)
class Overheads:
    """What a step takes that its FLOPs and bytes do not show; nothing by default.

    Attributes:
        step: fixed time of a step: launches, host, latency of the cards' talk; layers x that of a layer (s).
        token: time of each token that passes the layers: what cards say to each other, over their link (s/token).
        cache_rate: the most that attention reads of the cache, all cards together; None: the machine's bandwidth (B/s).
        rows: a step is computed for a whole multiple of so many tokens (graphs are recorded for some sizes only): the
            padded ones pick experts too.

    Example:
        >>> Overheads(step=32 * 40e-6).step
        0.00128
    """

    step: Seconds = 0
    token: Seconds = 0
    cache_rate: BytesPerSecond | None = None
    rows: Count = 1

    def __post_init__(self):
        keep(self, nonnegative, "s", "step", "token")
        keep(self, positive, "B/s", "cache_rate", unknown=True)
        keep(self, whole, "tokens", "rows", least=1)


class Kind(NamedTuple):
    """Layers whose cost is no line in the context: a window, a block, an indexer's choice, entries of several positions; or
    a state.

    Attributes:
        span: what a query meets; None: a state, which each token passes.
        pair_flops: of a prompt chunk, per (query, key) pair; of a state per token.
        entry_bytes: per cached entry that a chunk reads or writes; of a state each time that it is read or written.
        decode_flops: of a decoding row, per entry that it meets; of a state per token.
        decode_bytes: likewise; of a state to read and to write it.

    Example:
        >>> window = Kind(Span((64, 64), {"key": 64}, sees=3, keeps=3), 256, 128, 256, 128)
        >>> window.seen(4, 10), window.moved(4, 10)
        (12, 6)
    """

    span: Span | None
    pair_flops: FlopCount
    entry_bytes: Bytes
    decode_flops: FlopCount
    decode_bytes: Bytes

    def seen(self, new: Tokens, past: Tokens) -> Count:
        """Pairs of a chunk of a prompt.

        Args:
            new: tokens of the chunk.
            past: tokens before it.
        """
        return self.span.seen(new, past) if self.span else new

    def moved(self, new: Tokens, past: Tokens) -> Count:
        """Entries that a chunk reads or writes.

        Args:
            new: tokens of the chunk.
            past: tokens before it.
        """
        return self.span.kept(past + new, new) if self.span else 1 + (past > 0)


@dataclass(frozen=True)
class StepTime:
    """Roofline time of one engine step, from counts of the model and rates of the machine.

    With its mfu = mbu = 1, "max" is a lower bound of a step, and "sum" one for an engine that does not overlap its
    operators; with fitted shares both are models.

    Attributes:
        linear_flops: per token through all layers.
        head_flops: per row of logits.
        pair_flops: per (query, key) pair.
        layer_bytes: weights read once a step.
        head_bytes: weights read once a step.
        kv_bytes: per token of context.
        machine: a Machine.
        form: "max": one roofline over the whole step, max(all FLOPs / peak, all bytes / bandwidth). "sum": four
            operators one after the other (the layers' matrices, the head, attention of the prompt chunks, attention of
            the decoding rows; the last two for each `Kind` by itself), each the larger of its two times.
        decode_pair_flops: per pair of a decoding row, where it differs from pair_flops (MLA); None: as pair_flops.
        expert_bytes: routed experts, beside layer_bytes, read once a step if every one is picked.
        chances: of each routed expert of a layer to be picked by a token, of its own choice: expert i is read with 1 -
            (1 - chance)^tokens. Uneven routing has uneven chances.
        beside: `Overheads`.
    """

    linear_flops: FlopCount
    head_flops: FlopCount
    pair_flops: FlopCount
    layer_bytes: Bytes
    head_bytes: Bytes
    kv_bytes: Bytes
    machine: Machine
    form: str = "sum"
    decode_pair_flops: FlopCount | None = None
    expert_bytes: Bytes = 0
    chances: Sequence[Share] = ()
    beside: Overheads = Overheads()

    kinds = ()  # of UnevenTime alone

    def __post_init__(self):
        for name in ("linear_flops", "head_flops", "pair_flops", "layer_bytes", "head_bytes", "kv_bytes", "expert_bytes"):
            keep(self, nonnegative, "FLOP" if name.endswith("flops") else "B", name)
        keep(self, nonnegative, "FLOP", "decode_pair_flops", unknown=True)
        chances = tuple(fraction(chance, "chances", zero=True) for chance in self.chances)
        object.__setattr__(self, "chances", tuple(some(chances, "chances of experts that have bytes")) if self.expert_bytes else chances)
        one_of(self.form, "form", ("sum", "max"))
        positive(self.step(1, 1, 0, 0, 1), "time of a step", "ticks")

    @cached_property
    def _ticks(self):
        flops = [Pass(f, 0) for f in (self.linear_flops, self.head_flops, self.pair_flops)]
        moves = [Pass(0, b) for b in (self.layer_bytes, self.head_bytes, self.kv_bytes)]
        ticks = [round(TICKS * self.machine.seconds(cost)) for cost in flops + moves]
        if self.beside.cache_rate is not None:
            ticks[-1] = max(ticks[-1], round(TICKS * self.kv_bytes / self.beside.cache_rate))
        decode = ticks[2] if self.decode_pair_flops is None else round(TICKS * self.machine.seconds(Pass(self.decode_pair_flops, 0)))
        return (*ticks, decode, round(TICKS * self.beside.step), round(TICKS * self.beside.token))

    @cached_property
    def _kind_ticks(self):
        """Of each kind: a pair and an entry of a chunk, FLOPs and bytes of a decoding row's entry."""
        rate, found = self.beside.cache_rate, []
        for kind in self.kinds:
            passes = Pass(kind.pair_flops, 0), Pass(0, kind.entry_bytes), Pass(kind.decode_flops, 0), Pass(0, kind.decode_bytes)
            ticks = [round(TICKS * self.machine.seconds(cost)) for cost in passes]
            if rate is not None and kind.span:
                ticks[1::2] = max(ticks[1], round(TICKS * kind.entry_bytes / rate)), max(ticks[3], round(TICKS * kind.decode_bytes / rate))
            found.append(ticks)
        return found

    def _experts(self, tokens):
        """Ticks of the routed experts that so many tokens pick, on average (of a model that has some)."""
        computed, known = -(-tokens // self.beside.rows) * self.beside.rows, self.__dict__.setdefault("_known", {})
        if computed not in known:
            picked = sum(1 - (1 - chance) ** computed for chance in self.chances) / len(self.chances)
            known[computed] = round(TICKS * self.machine.seconds(Pass(0, self.expert_bytes * picked)))
        return known[computed]

    def step(
        self, tokens: Tokens, logits: Number, pairs: Number, context: Tokens, decode_context: Tokens, met: Sequence[Sequence[Count]] = ()
    ) -> Number:
        """Ticks of one step: ``tokens`` through the layers, ``logits`` rows through the head; the prompt chunks with
        their (query, key) ``pairs`` and ``context`` (tokens whose KV they read or write); the decoding rows with
        their summed context.

        Args:
            tokens: through the layers.
            logits: rows through the head.
            pairs: (query, key) pairs of the prompt chunks.
            context: tokens whose KV is read or written.
            decode_context: summed context of the decoding rows (tokens).
            met: for each of ``kinds``, what chunks meet (pairs), what they read or write (entries), what the decoding rows
                meet (entries).
        """
        linear, head, pair, layers, head_weights, kv, decode, step, token = self._ticks
        layers, beside = layers + self._experts(tokens) if self.expert_bytes else layers, step + token * tokens
        if self.form == "max":
            compute = linear * tokens + head * logits + pair * pairs + decode * decode_context
            moved = layers + head_weights + kv * (context + decode_context)
            for (of_pair, of_entry, flops, size), (seen, entries, decoding) in zip(self._kind_ticks, met) if met else ():
                compute, moved = compute + of_pair * seen + flops * decoding, moved + of_entry * entries + size * decoding
            return beside + max(compute, moved)
        attention = max(pair * pairs, kv * context) + max(decode, kv) * decode_context
        for (of_pair, of_entry, flops, size), (seen, entries, decoding) in zip(self._kind_ticks, met) if met else ():
            attention += max(of_pair * seen, of_entry * entries) + max(flops, size) * decoding
        return beside + max(linear * tokens, layers) + max(head * logits, head_weights) + attention

    def spans(self, rows: Count, context: Tokens, met: Sequence[tuple[Sequence[Count], Count]] = ()) -> Callable[[Count], Number]:
        """Ticks of several decode steps in a row, as a function of their number: ``rows`` with summed ``context`` in the
        first, each one token longer step by step.

        Args:
            rows: decoding rows.
            context: tokens whose KV is read or written.
            met: for each of ``kinds`` the entries that the rows meet in the first steps, as many as it has positions in an
                entry, and how many more after each such cycle.
        """
        linear, head, _, layers, head_weights, kv, decode, step, token = self._ticks
        layers, beside = layers + self._experts(rows) if self.expert_bytes else layers, step + token * rows
        if self.form == "max":
            compute, moved, parts = (linear + head) * rows, layers + head_weights, (decode, kv)
        else:  # operators one after the other: each counts with the larger of its times, whatever the others do
            compute, moved, parts = max(linear * rows, layers) + max(head * rows, head_weights), 0, (max(decode, kv), 0)
        if met:
            return self._uneven(beside, (compute, moved), [(*parts, (context,), rows)], met)
        first = compute + parts[0] * context, moved + parts[1] * context
        if (first[0] - first[1]) * (parts[0] - parts[1]) < 0:  # what is less at first grows faster, and may overtake
            return lambda steps: steps * beside + sum_of_larger(0, steps - 1, *((at, part * rows) for at, part in zip(first, parts)))
        once, more = beside + max(first), max(parts) * rows
        return lambda steps: steps * once + steps * (steps - 1) // 2 * more  # rows gain a token each, step by step

    def _uneven(self, beside, fixed, lines, met):
        """`spans` where rows gain entries in cycles: the steps at one place of the cycle are straight lines."""
        weigh = (lambda flops, size: (flops, size)) if self.form == "max" else (lambda flops, size: (max(flops, size), 0))
        lines = lines + [(*weigh(*ticks[2:]), *levels) for ticks, levels in zip(self._kind_ticks, met)]
        cycle = lcm(*(len(first) for *_, first, _ in lines))
        each = [[first[j % len(first)] + j // len(first) * gain for j in range(cycle + 1)] for *_, first, gain in lines]
        compute, moved = ([fixed[i] + sum(map(mul, [line[i] for line in lines], step)) for step in zip(*each)] for i in (0, 1))
        done = list(accumulate(map(max, compute, moved), initial=0))
        slopes = compute[-1] - compute[0], moved[-1] - moved[0]
        larger = lambda steps, j: sum_of_larger(0, (steps - 1 - j) // cycle, (compute[j], slopes[0]), (moved[j], slopes[1]))
        return lambda steps: steps * beside + (done[steps] if steps <= cycle else sum(larger(steps, j) for j in range(cycle)))

    def seconds(self, *counts: Number) -> Seconds:
        """Time of one step (s); counts as for `step`.

        Args:
            *counts: as for `step`.
        """
        return self.step(*counts) / TICKS


@dataclass(frozen=True)
class UnevenTime(StepTime):
    """`StepTime` of a model with windows, blocks, indexers, compressed entries or states.

    Attributes:
        kinds: a `Kind` for all layers that are alike, beside those that meet and keep every position.
    """

    kinds: Sequence[Kind] = ()  # pyrefly: ignore[bad-override]

    def __post_init__(self):
        object.__setattr__(self, "kinds", tuple(self.kinds))
        super().__post_init__()


@formula
def step_time(
    model: Model,
    machine: Machine,
    form: str = "sum",
    formats: Formats = BF16,
    beside: Overheads = Overheads(),
    chances: Sequence[Share] = (),
) -> StepTime:
    """The `StepTime` of a model on a machine, which shares one copy by tensor parallelism.

    Args:
        model: a Model.
        machine: a Machine.
        form: "max": one roofline over the whole step, max(all FLOPs / peak, all bytes / bandwidth). "sum": four
            operators one after the other (the layers' matrices, the head, attention of the prompt chunks, attention of
            the decoding rows), each the larger of its two times.
        formats: a `Formats`.
        beside: `Overheads`.
        chances: of a layer's routed experts to be picked by a token (none given: all alike).

    Assumptions:
        The embedding rows that a step looks up are left out (below 1e-4 of the bytes). MLA meets keys and values expanded
        from the latent in prompt chunks (the expansion of a past is left out), the latent itself in decode steps. A query
        reads its window alone, whatever the cache keeps; a state is read and written once a decode step and once a chunk.

    Example:
        >>> from workloads.facts.accelerators import accelerator
        >>> from workloads.facts.models import model
        >>> bound = step_time(model("Qwen3-8B"), Machine(accelerator("RTX PRO 6000 Blackwell Workstation")))
        >>> round(1000 * bound.seconds(64, 64, 0, 0, 64 * 2743), 2)
        22.89
        >>> mixture = step_time(model("Qwen3-30B-A3B"), Machine(accelerator("H100 SXM")))
        >>> round(1000 * mixture.seconds(1, 1, 0, 0, 1000), 2), round(1000 * mixture.seconds(64, 64, 0, 0, 64000), 2)
        (1.85, 19.64)
    """
    widths, token = formats.weight_bytes, forward(model, 1)
    head_bytes = memory._width(widths, "head", "weights") * model.hidden * model.vocab
    read, left = weights_read_per_step(model, widths), 1 - expert_share(model)
    experts = (weights_read_per_step(model, widths, 10**9) - read) / left if parameters(model).experts and left else 0  # 10**9 pick all
    even, kinds, on_state = _kinds(model, formats, machine.count)
    layers = read - head_bytes - experts * (1 - left) if experts else read - head_bytes
    counts = token.projections + token.ffn - on_state, token.head, even.pair_flops, layers, head_bytes, even.entry_bytes, machine, form
    routed = (experts, (some(chances, "chances") if chances else (1 - left,)) if experts else ())
    counts += even.decode_flops if absorbs(model) else None, *routed, beside
    return UnevenTime(*counts, kinds) if kinds else StepTime(*counts)


def _kinds(model, formats, cards):
    """Layers that meet and keep every position, the other kinds, and FLOPs of a token on states."""
    met = dict.fromkeys([(0, 0, 1, False)], Kind(Span((0, 0), {}), 0, 0, 0, 0))
    for (count, span), (size, _) in zip(spans(model), memory._by_span(model, formats.cache_bytes, cards)):
        reach, flops = (span.sees, span.keeps, span.every, span.chunk), 2 * count * sum(span.absorbed or span.pair)
        before = met.get(reach, Kind(span, 0, 0, 0, 0))
        more = 2 * count * sum(span.pair), size, flops, size
        met[reach] = Kind(before.span, *map(sum, zip(before[1:], more)))
    even, *kinds = met.values()
    state, work = state_bytes(model), 2 * sum(w.active for w in matrices(model) if not w.copies and w.part == "attention")
    return even, (*kinds, Kind(None, work, state, work, 2 * state)) if state else tuple(kinds), work

"""Roofline time of one step of a serving engine: prompt chunks and decoding rows of many requests in one batch.

Costs are kept as whole ticks of 10**-21 s per unit of work: a sum of many steps in closed form then equals the sum step by step exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from ..checks import formula, fraction, keep, nonnegative, one_of, positive, some, whole
from ..counts import memory
from ..counts.flops import attention_flops_per_pair, forward
from ..counts.layout import Layout
from ..counts.memory import kv_bytes_per_token, weights_read_per_step
from ..counts.parameter_counts import absorbs, expert_share, parameters
from ..counts.passes import Pass
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
            the decoding rows), each the larger of its two times.
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

    def __post_init__(self):
        for name in ("linear_flops", "head_flops", "pair_flops", "layer_bytes", "head_bytes", "kv_bytes", "expert_bytes"):
            keep(self, nonnegative, "FLOP" if name.endswith("flops") else "B", name)
        keep(self, nonnegative, "FLOP", "decode_pair_flops", unknown=True)
        chances = tuple(fraction(chance, "chances", zero=True) for chance in self.chances)
        object.__setattr__(self, "chances", tuple(some(chances, "chances of experts that have bytes")) if self.expert_bytes else chances)
        one_of(self.form, "form", ("sum", "max"))
        positive(self.span(1, 1, 1), "time of a step", "ticks")

    @cached_property
    def _ticks(self):
        flops = [Pass(f, 0) for f in (self.linear_flops, self.head_flops, self.pair_flops)]
        moves = [Pass(0, b) for b in (self.layer_bytes, self.head_bytes, self.kv_bytes)]
        ticks = [round(TICKS * self.machine.seconds(cost)) for cost in flops + moves]
        if self.beside.cache_rate is not None:
            ticks[-1] = max(ticks[-1], round(TICKS * self.kv_bytes / self.beside.cache_rate))
        decode = ticks[2] if self.decode_pair_flops is None else round(TICKS * self.machine.seconds(Pass(self.decode_pair_flops, 0)))
        return (*ticks, decode, round(TICKS * self.beside.step), round(TICKS * self.beside.token))

    def _experts(self, tokens):
        """Ticks of the routed experts that so many tokens pick, on average (of a model that has some)."""
        computed, known = -(-tokens // self.beside.rows) * self.beside.rows, self.__dict__.setdefault("_known", {})
        if computed not in known:
            picked = sum(1 - (1 - chance) ** computed for chance in self.chances) / len(self.chances)
            known[computed] = round(TICKS * self.machine.seconds(Pass(0, self.expert_bytes * picked)))
        return known[computed]

    def step(self, tokens: Tokens, logits: Number, pairs: Number, context: Tokens, decode_context: Tokens) -> Number:
        """Ticks of one step: ``tokens`` through the layers, ``logits`` rows through the head; the prompt chunks with
        their (query, key) ``pairs`` and ``context`` (tokens whose KV they read or write); the decoding rows with
        their summed context.

        Args:
            tokens: through the layers.
            logits: rows through the head.
            pairs: (query, key) pairs of the prompt chunks.
            context: tokens whose KV is read or written.
            decode_context: summed context of the decoding rows (tokens).
        """
        linear, head, pair, layers, head_weights, kv, decode, step, token = self._ticks
        layers, beside = layers + self._experts(tokens) if self.expert_bytes else layers, step + token * tokens
        if self.form == "max":
            compute = linear * tokens + head * logits + pair * pairs + decode * decode_context
            return beside + max(compute, layers + head_weights + kv * (context + decode_context))
        attention = max(pair * pairs, kv * context) + max(decode, kv) * decode_context
        return beside + max(linear * tokens, layers) + max(head * logits, head_weights) + attention

    def span(self, rows: Count, context: Tokens, steps: Count) -> Number:
        """Ticks of several decode steps in a row: ``rows`` with summed ``context`` in the first, each one token longer
        step by step.

        Args:
            rows: decoding rows.
            context: tokens whose KV is read or written.
            steps: in a row.
        """
        return self.spans(rows, context)(steps)

    def spans(self, rows: Count, context: Tokens) -> Callable[[Count], Number]:
        """`span` as a function of the steps alone, for a search among them.

        Args:
            rows: decoding rows.
            context: tokens whose KV is read or written.
        """
        linear, head, _, layers, head_weights, kv, decode, step, token = self._ticks
        layers, beside = layers + self._experts(rows) if self.expert_bytes else layers, step + token * rows
        if self.form == "max":
            compute, memory = (linear + head) * rows + decode * context, layers + head_weights + kv * context
            return lambda steps: steps * beside + sum_of_larger(0, steps - 1, (compute, decode * rows), (memory, kv * rows))
        each = max(decode, kv)
        once, more = beside + max(linear * rows, layers) + max(head * rows, head_weights) + each * context, each * rows
        return lambda steps: steps * once + steps * (steps - 1) // 2 * more  # rows gain a token each, step by step

    def seconds(self, *counts: Number) -> Seconds:
        """Time of one step (s); counts as for `step`.

        Args:
            *counts: as for `step`.
        """
        return self.step(*counts) / TICKS


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
        from the latent in prompt chunks (the expansion of a past is left out), the latent itself in decode steps.

    Raises:
        ValueError: for a state of constant size, and for windows, blocks and indexers: their cost is no line in the
            context.

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
    if memory.state_bytes(model):
        raise ValueError(f"model must have attention in all layers, got {model.name}")
    widths, token = formats.weight_bytes, forward(model, 1)
    head_bytes = memory._width(widths, "head", "weights") * model.hidden * model.vocab
    read, left = weights_read_per_step(model, widths), 1 - expert_share(model)
    experts = (weights_read_per_step(model, widths, 10**9) - read) / left if parameters(model).experts and left else 0  # 10**9 pick all
    return StepTime(
        token.projections + token.ffn,
        token.head,
        attention_flops_per_pair(model),
        read - head_bytes - experts * (1 - left) if experts else read - head_bytes,
        head_bytes,
        Layout(tensor=machine.count).kv_copies(model) * kv_bytes_per_token(model, formats.cache_bytes),
        machine,
        form,
        attention_flops_per_pair(model, absorbed=True) if absorbs(model) else None,
        experts,
        (some(chances, "chances") if chances else (1 - left,)) if experts else (),
        beside,
    )

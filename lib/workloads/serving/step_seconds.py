"""Roofline time of one step of a serving engine: prompt chunks and decoding rows of many requests in one batch.

Costs are kept as whole ticks of 10**-21 s per unit of work: a sum of many steps in closed form then equals the sum step by step exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ..checks import formula, keep, nonnegative, one_of, positive
from ..counts import memory, parameter_counts
from ..counts.flops import attention_flops_per_pair, forward
from ..counts.layout import Layout
from ..counts.memory import kv_bytes_per_token, weights_read_per_step
from ..counts.passes import Pass
from ..facts.formats import BF16, Formats
from ..facts.models import Model
from ..numeric import Number, line_sum, sum_of_larger
from ..times.machine import Machine
from ..units import Bytes, Count, FlopCount, Seconds, Tokens

TICKS = 10**21  # per second


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
    """

    linear_flops: FlopCount
    head_flops: FlopCount
    pair_flops: FlopCount
    layer_bytes: Bytes
    head_bytes: Bytes
    kv_bytes: Bytes
    machine: Machine
    form: str = "sum"

    def __post_init__(self):
        for name in ("linear_flops", "head_flops", "pair_flops", "layer_bytes", "head_bytes", "kv_bytes"):
            keep(self, nonnegative, "FLOP" if name.endswith("flops") else "B", name)
        one_of(self.form, "form", ("sum", "max"))
        positive(self.span(1, 1, 1), "time of a step", "ticks")

    @cached_property
    def _ticks(self):
        flops = [Pass(f, 0) for f in (self.linear_flops, self.head_flops, self.pair_flops)]
        moves = [Pass(0, b) for b in (self.layer_bytes, self.head_bytes, self.kv_bytes)]
        return tuple(round(TICKS * self.machine.seconds(cost)) for cost in flops + moves)

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
        linear, head, pair, layers, head_weights, kv = self._ticks
        if self.form == "max":
            compute, memory = (linear * tokens + head * logits + pair * (pairs + decode_context), kv * (context + decode_context))
            return max(compute, layers + head_weights + memory)
        attention = max(pair * pairs, kv * context) + max(pair, kv) * decode_context
        return max(linear * tokens, layers) + max(head * logits, head_weights) + attention

    def span(self, rows: Count, context: Tokens, steps: Count) -> Number:
        """Ticks of several decode steps in a row: ``rows`` with summed ``context`` in the first, each one token longer
        step by step.

        Args:
            rows: decoding rows.
            context: tokens whose KV is read or written.
            steps: in a row.
        """
        linear, head, pair, layers, head_weights, kv = self._ticks
        if self.form == "max":
            compute, memory = (linear + head) * rows + pair * context, layers + head_weights + kv * context
            return sum_of_larger(0, steps - 1, (compute, pair * rows), (memory, kv * rows))
        once = max(linear * rows, layers) + max(head * rows, head_weights)
        return steps * once + max(pair, kv) * line_sum(0, steps - 1, context, rows)

    def seconds(self, *counts: Number) -> Seconds:
        """Time of one step (s); counts as for `step`.

        Args:
            *counts: as for `step`.
        """
        return self.step(*counts) / TICKS


@formula
def step_time(model: Model, machine: Machine, form: str = "sum", formats: Formats = BF16) -> StepTime:
    """The `StepTime` of a dense model with ordinary attention on a machine, which shares one copy by tensor parallelism.

    Args:
        model: a Model.
        machine: a Machine.
        form: "max": one roofline over the whole step, max(all FLOPs / peak, all bytes / bandwidth). "sum": four
            operators one after the other (the layers' matrices, the head, attention of the prompt chunks, attention of
            the decoding rows), each the larger of its two times.
        formats: a `Formats`.

    Assumptions:
        The embedding rows that a step looks up are left out (below 1e-4 of the bytes).

    Raises:
        ValueError: for experts (the weights read depend on the rows of a step) and for MLA (a pair's cost depends on
            the stage).

    Example:
        >>> from workloads.facts.accelerators import accelerator
        >>> from workloads.facts.models import model
        >>> bound = step_time(model("Qwen3-8B"), Machine(accelerator("RTX PRO 6000 Blackwell Workstation")))
        >>> round(1000 * bound.seconds(64, 64, 0, 0, 64 * 2743), 2)
        22.89
    """
    if parameter_counts.parameters(model).experts or parameter_counts.absorbs(model) or memory.state_bytes(model):
        raise ValueError(f"model must be dense, with ordinary attention, got {model.name}")
    token, head_bytes = forward(model, 1), formats.weight_bytes * model.hidden * model.vocab
    return StepTime(
        token.projections + token.ffn,
        token.head,
        attention_flops_per_pair(model),
        weights_read_per_step(model, formats.weight_bytes) - head_bytes,
        head_bytes,
        Layout(tensor=machine.count).kv_copies(model) * kv_bytes_per_token(model, formats.cache_bytes),
        machine,
        form,
    )

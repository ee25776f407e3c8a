"""Roofline time of one step of a serving engine: prompt chunks and decoding rows of many requests in one batch.

Costs are kept as whole ticks of 10**-21 s per unit of work: a sum of many steps in closed form then equals the sum step by step exactly.
"""
from dataclasses import dataclass
from functools import cached_property

from .domain import formula, fraction, keep, nonnegative, one_of, positive
from .flops import attention_flops_per_pair, forward
from .memory import kv_bytes_per_token, weights_read_per_step
from .roofline import compute_seconds, transfer_seconds

TICKS = 10**21      # per second


@dataclass(frozen=True)
class StepTime:
    """Roofline time of one engine step, from counts of the model and rates of the accelerator.

    linear_flops per token through all layers, head_flops per row of logits, pair_flops per (query, key) pair; layer_bytes and head_bytes:
    weights read once a step; kv_bytes per token of context; peak (FLOP/s), bandwidth (B/s); mfu and mbu: the shares of them reached.

    form "max": one roofline over the whole step, max(all FLOPs / peak, all bytes / bandwidth). "sum": four operators one after the other
    (the layers' matrices, the head, attention of the prompt chunks, attention of the decoding rows), each the larger of its two times.
    With mfu = mbu = 1, "max" is a lower bound of a step, and "sum" one for an engine that does not overlap its operators; with fitted
    shares both are models.
    """
    linear_flops: float
    head_flops: float
    pair_flops: float
    layer_bytes: float
    head_bytes: float
    kv_bytes: float
    peak: float
    bandwidth: float
    mfu: float = 1
    mbu: float = 1
    form: str = "sum"

    def __post_init__(self):
        for name in ("linear_flops", "head_flops", "pair_flops", "layer_bytes", "head_bytes", "kv_bytes"):
            keep(self, nonnegative, "FLOP" if name.endswith("flops") else "B", name)
        keep(self, positive, "FLOP/s", "peak")
        keep(self, positive, "B/s", "bandwidth")
        keep(self, fraction, "", "mfu", "mbu")
        one_of(self.form, "form", ("sum", "max"))
        positive(self.span(1, 1, 1), "time of a step", "ticks")

    @cached_property
    def _ticks(self):
        flops = [compute_seconds(f, self.peak, self.mfu) for f in (self.linear_flops, self.head_flops, self.pair_flops)]
        moves = [transfer_seconds(b, self.bandwidth, self.mbu) for b in (self.layer_bytes, self.head_bytes, self.kv_bytes)]
        return tuple(round(TICKS * seconds) for seconds in flops + moves)

    def step(self, tokens, logits, pairs, context, decode_context):
        """Ticks of one step: ``tokens`` through the layers, ``logits`` rows through the head; the prompt chunks with their (query, key)
        ``pairs`` and ``context`` (tokens whose KV they read or write); the decoding rows with their summed context.
        """
        linear, head, pair, layers, head_weights, kv = self._ticks
        if self.form == "max":
            compute, memory = linear * tokens + head * logits + pair * (pairs + decode_context), kv * (context + decode_context)
            return max(compute, layers + head_weights + memory)
        attention = max(pair * pairs, kv * context) + max(pair, kv) * decode_context
        return max(linear * tokens, layers) + max(head * logits, head_weights) + attention

    def span(self, rows, context, steps):
        """Ticks of several decode steps in a row: ``rows`` with summed ``context`` in the first, each one token longer step by step."""
        linear, head, pair, layers, head_weights, kv = self._ticks
        total = steps * context + rows * (steps * (steps - 1) // 2)
        if self.form == "max":
            lead = (linear + head) * rows - layers - head_weights + (pair - kv) * context     # FLOPs' time less bytes', first step
            return steps * (layers + head_weights) + kv * total + _positive_part(lead, (pair - kv) * rows, steps)
        return steps * (max(linear * rows, layers) + max(head * rows, head_weights)) + max(pair, kv) * total

    def seconds(self, *counts):
        """Time of one step (s); counts as for `step`."""
        return self.step(*counts) / TICKS


@formula
def step_time(model, card, mfu=1, mbu=1, form="sum", precision="bf16", bytes_per_value=2):
    """The `StepTime` of a dense model with ordinary attention on an accelerator.

    Parameters: model, a `models.Model`; card, a `hardware.Accelerator`; mfu, mbu and form as in `StepTime`; precision of the peak;
    bytes_per_value (B) of weights and KV.
    Assumptions: the embedding rows that a step looks up are left out (below 1e-4 of the bytes).
    Raises: ValueError for experts (the weights read depend on the rows of a step) and for MLA (a pair's cost depends on the stage).

    >>> from workloads.hardware import accelerator
    >>> from workloads.models import model
    >>> bound = step_time(model("Qwen3-8B"), accelerator("RTX PRO 6000 Blackwell Workstation"))
    >>> round(1000 * bound.seconds(64, 64, 0, 0, 64 * 2743), 2)
    22.89
    """
    if model.experts or model.latent:
        raise ValueError(f"model must be dense, with ordinary attention, got {model.name}")
    bytes_per_value = positive(bytes_per_value, "bytes_per_value", "B")
    token, head_bytes = forward(model, 1), bytes_per_value * model.hidden * model.vocab
    return StepTime(token.projections + token.ffn, token.head, attention_flops_per_pair(model),
                    weights_read_per_step(model, bytes_per_value) - head_bytes, head_bytes, kv_bytes_per_token(model, bytes_per_value),
                    card.peak(precision), card.bandwidth, mfu, mbu, form)


def _positive_part(first, slope, steps):
    """Sum over j < steps of max(0, first + slope j), in integers."""
    if slope > 0:
        first, slope = first + slope * (steps - 1), -slope
    if first <= 0:
        return 0
    count = min(steps, -(first // slope)) if slope else steps
    return count * first + slope * (count * (count - 1) // 2)

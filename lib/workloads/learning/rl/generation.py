"""Decode of a rollout, step by step in closed form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...checks import finite, formula, nonnegative, positive
from ...counts import memory
from ...numeric import Number, floor, maximum, minimum, total, where
from ...times import roofline
from ...units import Bytes, Count, FlopCount, Seconds
from .configuration import RLStep


# --------------------------------------------------------------------------------------------------------------------------- decode
def _line_sum(start, stop, level, slope):
    """Sum of level + slope t over t = start .. stop."""
    return (stop - start + 1) * (level + slope * (start + stop) / 2)


@formula
def sum_of_larger(start: Number, stop: Number, a: Sequence[Number], b: Sequence[Number]) -> Number:
    """Sum over t = start .. stop of the larger of two straight lines a and b, each (level, slope): max(a0 + a1 t, b0 +
    b1 t).

    The lines cross once at most, so a lies above b in one run at one end; what it adds there goes on top of the sum of
    b.

    Args:
        start: first t, a whole number.
        stop: last t, a whole number.
        a: (level, slope) of a line.
        b: (level, slope) of the other.

    Example:
        >>> sum_of_larger(1, 4, (0, 2), (5, 0)) == max(2, 5) + max(4, 5) + max(6, 5) + max(8, 5)
        True
    """
    start, stop = finite(start, "start"), finite(stop, "stop")
    a, b = (tuple(finite(part, f"line {name}") for part in line) for name, line in (("a", a), ("b", b)))
    level, slope = a[0] - b[0], a[1] - b[1]
    crossing = -level / where(slope == 0, 1, slope)  # may be infinite: cut to the range first
    turn = maximum(floor(minimum(maximum(crossing, start - 1), stop)), start - 1)
    before, after = _line_sum(start, turn, level, slope), _line_sum(turn + 1, stop, level, slope)
    return _line_sum(start, stop, *b) + maximum(before, 0) + maximum(after, 0)


@formula
def weights_read(step: RLStep, rows: Count) -> Bytes:
    """Weight bytes that one GPU reads in a decode step (B).

    Equation:
        (W - R - embedding)/g + R - (E/g)(1 - s)^rows. R is replicated; E are the routed experts, of which a token uses
        the share s (see `memory.idle_experts`).

    Args:
        step: an RLStep.
        rows: sequences on its copy.

    Example:
        >>> from workloads.learning.rl.configuration import RLStep
        >>> weights_read(RLStep(gpus_per_copy=2), rows=64)
        8000000000.0
    """
    rows = nonnegative(rows, "rows", "sequences")
    split = (step.weight_bytes - step.replicated_bytes - step.embedding_bytes) / step.gpus_per_copy + step.replicated_bytes
    return split - step.expert_bytes / step.gpus_per_copy * memory.idle_experts(step.expert_share, rows)


def _runs(step):
    """Runs of decode steps with the same sequences alive: (first, last step, share alive, cached tokens read as (level,
    slope)), the tokens as a multiple of the batch.
    """
    lengths = step.fed if step.stragglers else ((1, step.mean_fed),)
    start = 1
    for k, (_, stop) in enumerate(lengths):
        alive = total(share for share, _ in lengths[k:])
        final = total(share * (step.prompt_tokens + tokens) for share, tokens in lengths[k:])
        yield start, stop, alive, (final, 0) if step.context == "full" else (alive * step.prompt_tokens, alive)
        start = stop + 1


@dataclass(frozen=True)
class Decode:
    """Decode of one wave on one copy of the weights: seconds; FLOPs on the copy; bytes that each of its GPUs moves;
    decode steps.
    """

    seconds: Seconds
    flops: FlopCount
    bytes: Bytes
    steps: Count


@formula
def decode(step: RLStep, batch: Count) -> Decode:
    """Decode of one wave of sequences on one copy of the weights, all starting together.

    Equation:
        sum over t of max(bytes_t / (mbu bandwidth), FLOPs_t / (decode_mfu g peak)); per GPU bytes_t = weights read +
        n_t (2 state + kv c_t) kv_copies / g, FLOPs_t = n_t (2N + pair_flops c_t), with n_t sequences alive at context
        c_t (the token of step t reads its own entry too).

    Args:
        step: an RLStep.
        batch: sequences of the wave.

    Returns:
        Decode.

    Example:
        >>> from workloads.learning.rl.configuration import printed_page
        >>> wave = decode(printed_page(), batch=128)
        >>> round(wave.seconds, 1), wave.flops == 2 * 8e9 * 128 * 4096, wave.steps
        (145.2, True, 4096)
    """
    seconds = work = moved = stop = 0
    batch = positive(batch, "batch", "sequences")
    pair = step.pair_flops if step.decode_pair_flops is None else step.decode_pair_flops
    entry = step.kv_copies * step.kv_bytes / step.gpus_per_copy
    for start, stop, alive, (level, slope) in _runs(step):
        rows = batch * alive
        fixed = weights_read(step, rows) + rows * 2 * step.kv_copies * step.state_bytes / step.gpus_per_copy
        transfer = (fixed + batch * entry * level, batch * entry * slope)
        arithmetic = (rows * (2 * step.parameters + pair * step.prompt_tokens), rows * pair)
        seconds += _seconds(step, start, stop, transfer, arithmetic)
        work, moved = work + _line_sum(start, stop, *arithmetic), moved + _line_sum(start, stop, *transfer)
    return Decode(seconds, work, moved, stop)


def _seconds(step, start, stop, transfer, arithmetic):
    transfer = tuple(roofline.transfer_seconds(part, step.bandwidth, step.mbu) for part in transfer)
    if step.decode_bound == "memory":
        return _line_sum(start, stop, *transfer)
    rate = step.gpus_per_copy * step.peak
    return sum_of_larger(start, stop, transfer, tuple(roofline.compute_seconds(part, rate, step.decode_mfu) for part in arithmetic))

"""Decode of a rollout, step by step in closed form."""

from __future__ import annotations

from dataclasses import dataclass

from ...checks import formula, positive
from ...counts import flops
from ...numeric import Number, ceil, floor, is_array, is_symbolic, line_sum, sum_of_larger, total
from ...times import roofline, split
from ...units import Bytes, Count, FlopCount, Seconds
from .configuration import RLStep

PIECES = 32  # of decode on a layout, at least: each takes the time of its mean context


@dataclass(frozen=True)
class Phase:
    """What a phase of the step costs.

    Attributes:
        seconds: time that the phase takes (s).
        flops: 0 for the optimizer, which moves bytes.
        bytes: in decode, those that each sampling GPU moves (B; None elsewhere: not counted).
        steps: steps of the model, in decode.
    """

    seconds: Seconds
    flops: FlopCount = 0
    bytes: Bytes = None
    steps: Number = None


@formula
def decode(step: RLStep, batch: Count) -> Phase:
    """Decode of one wave of sequences on one copy of the weights, all starting together.

    Equation:
        sum over t of max(bytes_t / (mbu bandwidth), FLOPs_t / (decode_mfu g peak)); per GPU bytes_t = weights read +
        n_t (2 state + kv c_t) kv_copies / g, FLOPs_t = n_t (2N + pair_flops c_t), with n_t sequences alive at context
        c_t (the token of step t reads its own entry too); with a layout, `split.decode_seconds` at the mean context of
        each of many pieces. engine_seconds for each step.

    Args:
        step: an RLStep.
        batch: sequences of the wave.

    Returns:
        Phase, with FLOPs on the copy.

    Example:
        >>> from workloads.learning.rl.configuration import printed_page
        >>> wave = decode(printed_page(), batch=128)
        >>> round(wave.seconds, 1), wave.flops == 2 * 8e9 * 128 * 4096, wave.steps
        (145.2, True, 4096)
    """
    if step.placement.generation is not None:
        return _on_layout(step, positive(batch, "batch", "sequences"))
    policy, placement, prompt = step.policy, step.placement, step.rollout.prompt_tokens
    seconds, work, moved, stop, batch = 0, 0, 0, 0, positive(batch, "batch", "sequences")
    pair = policy.pair_flops if policy.decode_pair_flops is None else policy.decode_pair_flops
    entry = placement.kv_copies * policy.kv_bytes / placement.gpus_per_copy
    for start, stop, alive, (level, slope), left in _runs(step.rollout):
        rows = batch * alive
        fixed = step.weights_read(rows) + rows * 2 * placement.kv_copies * policy.state_bytes / placement.gpus_per_copy
        transfer = (fixed + batch * entry * level, batch * entry * slope)
        arithmetic = (rows * (2 * policy.parameters + pair * prompt), rows * pair)
        for first, last, *lines in _reaching(step, (start, stop), left, rows, (transfer, arithmetic)):
            seconds += _seconds(step, first, last, *lines)
            work, moved = work + line_sum(first, last, *lines[1]), moved + line_sum(first, last, *lines[0])
    return Phase(seconds + step.rollout.engine_seconds * stop, work, moved, stop)


def _on_layout(step, batch):
    """`decode` on a layout: the time between two ends of a length is that of pieces, each as long as a part of the longest."""
    side, rollout, seconds, work, moved, stop = step.placement.generation, step.rollout, 0, 0, 0, 0
    model, layout, formats = side.model, side.layout, side.formats
    for start, stop, alive, _, _ in _runs(rollout):
        pieces = max(1, min(floor(stop - start + 1), ceil(PIECES * (stop - start + 1) / rollout.longest)))
        steps, rows = (stop - start + 1) / pieces, batch * alive
        for k in range(pieces):
            at = max(0, rollout.prompt_tokens + start + (k + 0.5) * steps - 1.5)  # cached before a step of the piece, in the mean
            seconds += steps * split.decode_seconds(model, side.machine, layout, at, rows, formats, side.plan).total
            work += steps * flops.decode_step(model, at, rows).total
            moved += steps * split._decode_bytes(model, layout, at, rows, formats)
    return Phase(seconds + rollout.engine_seconds * stop, work, moved, stop)


def _reaching(step, run, left, rows, lines):
    """Pieces of a run of decode steps: (first, last, line of bytes, line of FLOPs), with what the policy's spans add to them.

    In a piece what rows meet grows evenly, or by the even steps of a compressed cache; its sum is exact.
    """
    if not step.policy.spans:
        return [(*run, *lines)]
    prompt, copies = step.rollout.prompt_tokens, step.placement.kv_copies / step.placement.gpus_per_copy
    if is_array(prompt + run[1]) or is_symbolic(prompt + run[1]):
        raise ValueError(f"completion must be numbers, where layers have windows, got {run[1]!r}")
    met = lambda first, steps=1: step.policy.met(steps, prompt + first - 1)[1:]
    final = step.rollout.context == "full" and total(share * met(tokens)[0] for share, tokens in left) / total(share for share, _ in left)
    seen = lambda first, steps=1: (copies * (steps * final or met(first, steps)[0]), met(first, steps)[1])
    bends = [range(s.sees, floor(prompt + run[1]), s.sees) if s.chunk else [s.every * s.sees] for s, *_ in step.policy.spans if s.sees]
    to = sorted({at - prompt for of in bends for at in of if run[0] <= at - prompt < run[1]})
    pieces = zip([run[0] - 1, *to], [*to, run[1]])
    parts = [(a + 1, b - a - 1, zip(lines, seen(a + 1, b - a), seen(a + 1), seen(b))) for a, b in pieces if b > a]
    return [(0, more, *(_line(rows, start, more, *part) for part in both)) for start, more, both in parts]


def _line(rows, start, more, line, summed, first, last):
    slope = max(0, last - first) / max(1, more)
    return line[0] + line[1] * start + rows * (summed / (more + 1) - slope * more / 2), line[1] + rows * slope


def _runs(rollout):
    """Runs of decode steps with the same sequences alive: (first, last step, share alive, cached tokens read as (level,
    slope), lengths left), the tokens as a multiple of the batch.
    """
    start, lengths = 1, rollout.fed if rollout.stragglers else ((1, rollout.mean_fed),)
    for k, (_, stop) in enumerate(lengths):
        alive = total(share for share, _ in lengths[k:])
        final = total(share * (rollout.prompt_tokens + tokens) for share, tokens in lengths[k:])
        yield start, stop, alive, (final, 0) if rollout.context == "full" else (alive * rollout.prompt_tokens, alive), lengths[k:]
        start = stop + 1


def _seconds(step, start, stop, transfer, arithmetic):
    gpu, rate = step.gpu, step.placement.gpus_per_copy * step.gpu.peak
    transfer = tuple(roofline.transfer_seconds(part, gpu.bandwidth, gpu.mbu) for part in transfer)
    if step.rollout.decode_bound == "memory":
        return line_sum(start, stop, *transfer)
    return sum_of_larger(start, stop, transfer, tuple(roofline.compute_seconds(part, rate, gpu.decode_mfu) for part in arithmetic))

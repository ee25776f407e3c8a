"""Decode of a rollout, step by step in closed form."""

from __future__ import annotations

from dataclasses import dataclass

from ...checks import formula, positive
from ...numeric import Number, is_array, is_symbolic, line_sum, sum_of_larger, total
from ...times import roofline
from ...units import Bytes, Count, FlopCount, Seconds
from .configuration import RLStep


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
        c_t (the token of step t reads its own entry too).

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
    policy, placement, prompt = step.policy, step.placement, step.rollout.prompt_tokens
    seconds = work = moved = stop = 0
    batch = positive(batch, "batch", "sequences")
    pair = policy.pair_flops if policy.decode_pair_flops is None else policy.decode_pair_flops
    entry = placement.kv_copies * policy.kv_bytes / placement.gpus_per_copy
    for start, stop, alive, (level, slope) in _runs(step.rollout):
        rows = batch * alive
        fixed = step.weights_read(rows) + rows * 2 * placement.kv_copies * policy.state_bytes / placement.gpus_per_copy
        transfer = (fixed + batch * entry * level, batch * entry * slope)
        arithmetic = (rows * (2 * policy.parameters + pair * prompt), rows * pair)
        for first, last, read, done in _reaching(step, start, stop):
            lines = (transfer, arithmetic)
            if policy.spans:
                lines = (transfer[0] + rows * read, transfer[1]), (arithmetic[0] + rows * done, arithmetic[1])
            seconds += _seconds(step, first, last, *lines)
            work, moved = work + line_sum(first, last, *lines[1]), moved + line_sum(first, last, *lines[0])
    return Phase(seconds, work, moved, stop)


def _reaching(step, start, stop):
    """Pieces of a run of decode steps: (first, last, bytes read a row, FLOPs a row) that the policy's spans add; one, or one a step."""
    if not step.policy.spans:
        return [(start, stop, 0, 0)]
    if step.rollout.context == "full" or is_array(stop) or is_symbolic(stop) or start != int(start) or stop != int(stop):
        raise ValueError(f"completion must be whole tokens, each step at its own context, where layers have windows, got {stop!r}")
    prompt, copies = step.rollout.prompt_tokens, step.placement.kv_copies / step.placement.gpus_per_copy
    met = ((at, step.policy.met(1, prompt + at - 1)) for at in range(int(start), int(stop) + 1))
    return [(at, at, copies * read, done) for at, (_, read, done) in met]


def _runs(rollout):
    """Runs of decode steps with the same sequences alive: (first, last step, share alive, cached tokens read as (level,
    slope)), the tokens as a multiple of the batch.
    """
    lengths = rollout.fed if rollout.stragglers else ((1, rollout.mean_fed),)
    start = 1
    for k, (_, stop) in enumerate(lengths):
        alive = total(share for share, _ in lengths[k:])
        final = total(share * (rollout.prompt_tokens + tokens) for share, tokens in lengths[k:])
        yield start, stop, alive, (final, 0) if rollout.context == "full" else (alive * rollout.prompt_tokens, alive)
        start = stop + 1


def _seconds(step, start, stop, transfer, arithmetic):
    gpu = step.gpu
    transfer = tuple(roofline.transfer_seconds(part, gpu.bandwidth, gpu.mbu) for part in transfer)
    if step.rollout.decode_bound == "memory":
        return line_sum(start, stop, *transfer)
    rate = step.placement.gpus_per_copy * gpu.peak
    return sum_of_larger(start, stop, transfer, tuple(roofline.compute_seconds(part, rate, gpu.decode_mfu) for part in arithmetic))

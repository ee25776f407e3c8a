"""One step of reinforcement learning from rewards: rollout, log-probability passes, training, optimizer.

`rl_step` turns an `RLStep` into seconds, FLOPs, bytes and a memory verdict. The rollout is a roofline model: each
decode step takes the longer of its memory time and its compute time.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, fields, replace
from typing import Any

from ...checks import formula, positive
from ...numeric import Number, bisect, ceil, is_array, maximum, total, where
from ...times import roofline
from ...units import Bytes, FlopCount, FlopsPerByte, Seconds, Share, Tokens
from .capacity import overflow_length, sequences_per_copy
from .configuration import RLStep
from .generation import Phase, decode
from .sides import side_seconds

CHUNK = 2**14  # elements of a sweep at a time


# ------------------------------------------------------------------------------------------------------------- the step
@dataclass(frozen=True)
class Breakdown:
    """What a step costs, phase by phase. A value is a number, an array or an expression, as the step's fields were.

    Attributes:
        step: the RLStep.
        prefill: of the prompts.
        decode: of the completions.
        logprob: passes over the finished samples.
        training: forward and backward passes.
        optimizer: the update.
        sampled_tokens: tokens that decode returns.
        trained_tokens: epochs counted.
        forward_tokens: prefill and log-probabilities.
        waves: equal batches, one after the other, into which memory splits the rollout.
    """

    step: RLStep
    prefill: Phase
    decode: Phase
    logprob: Phase
    training: Phase
    optimizer: Phase
    sampled_tokens: Tokens
    trained_tokens: Tokens
    forward_tokens: Tokens
    waves: Number

    @property
    def rollout(self) -> Phase:
        """Prefill of the prompts and decode."""
        return Phase(self.prefill.seconds + self.decode.seconds, self.prefill.flops + self.decode.flops)

    @property
    def learning(self) -> Phase:
        """Log-probability passes, training and optimizer."""
        seconds = self.logprob.seconds + self.training.seconds + self.optimizer.seconds
        return Phase(seconds, self.logprob.flops + self.training.flops)

    @property
    def step_seconds(self) -> Seconds:
        """Seconds of all phases, or of the longer side where sampling and training overlap, and of whatever else runs
        alone (s).
        """
        sides, placement = (self.rollout.seconds, self.learning.seconds), self.step.placement
        return where(placement.overlap, maximum(*sides), sum(sides)) + self.step.method.other_seconds

    @property
    def rollout_share(self) -> Share:
        """The rollout's part of the seconds of all phases (0 to 1); other_seconds not counted."""
        return self.rollout.seconds / (self.rollout.seconds + self.learning.seconds)

    @property
    def step_flops(self) -> FlopCount:
        """FLOPs of all phases."""
        return self.rollout.flops + self.logprob.flops + self.training.flops

    @property
    def rollout_mfu(self) -> Share:
        """FLOPs of the rollout over what the sampling GPUs could have done (0 to 1)."""
        return self._mfu(self.rollout.flops, self.rollout.seconds, self.step.placement.sampling_gpus)

    @property
    def training_mfu(self) -> Share:
        """FLOPs of training over what the training GPUs could have done, the optimizer's time included (0 to 1)."""
        return self._mfu(self.training.flops, self.training.seconds + self.optimizer.seconds, self.step.placement.gpus, True)

    @property
    def step_mfu(self) -> Share:
        """FLOPs of the step over what all GPUs could have done in its time, at training's peak (0 to 1)."""
        return self._mfu(self.step_flops, self.step_seconds, self.step.placement.all_gpus, True)

    def _mfu(self, work, seconds, gpus, training=False):
        side = self.step.placement.training if training else None
        return roofline.mfu(work, seconds, gpus * (side or self.step.gpu).peak)

    @property
    def intensity(self) -> FlopsPerByte:
        """FLOPs of decode per byte moved, over the whole rollout (FLOP/B)."""
        return roofline.intensity(self.decode.flops, self.decode.bytes * self.step.placement.sampling_gpus)

    @property
    def ridge(self) -> FlopsPerByte:
        """Intensity (FLOP/B) above which arithmetic limits."""
        return roofline.ridge(self.step.gpu.peak, self.step.gpu.bandwidth)

    @property
    def regime(self) -> str:
        """Regime of decode: "memory-bound" where its intensity lies below the ridge point, else "compute-bound"."""
        return where(self.intensity < self.ridge, "memory-bound", "compute-bound")

    @property
    def bytes_per_decode_step(self) -> Bytes:
        """Bytes that a GPU moves in a decode step, on average (B)."""
        return self.decode.bytes / self.decode.steps

    @property
    def fit(self) -> Number:
        """Sequences that memory holds per copy (of `step.batch`)."""
        return sequences_per_copy(self.step)

    @property
    def fits(self) -> bool:
        """Whether the batch is held at once, at full length."""
        return self.fit >= self.step.batch

    @property
    def held_bytes(self) -> Bytes:
        """Weights, cache of the whole batch at full length and training state that a sampling GPU would hold (B)."""
        step = self.step
        return step.resident_bytes + step.batch * step.sequence_bytes / step.placement.gpus_per_copy

    @property
    def gpu_seconds(self) -> Seconds:
        """GPU-seconds paid for."""
        return self.step.placement.all_gpus * self.step_seconds


def _known_flops(step):
    """FLOPs of passes over known tokens: (prefill of all prompts, one forward pass over all samples, training).

    Prefill 2N P + a P(P+1)/2 a prompt; forward 2N T + a T(T+1)/2 a sample; training epochs ((6, or 4 under LoRA, + 2
    with recomputation) N T + (3, or 4) a T(T+1)/2) a kept sample. T: prompt P and completion tokens read; a:
    pair_flops; means over the lengths. Where the head skips rows, N T becomes N T - head parameters x rows skipped.
    """
    rollout, method, a, n = step.rollout, step.method, step.policy.pair_flops, step.policy.parameters
    prompt, tokens, head = rollout.prompt_tokens, rollout.mean_sample, step.policy.head_parameters
    causal = lambda length: length * ((length + 1) / 2)  # query-key pairs, of a mean length too
    pairs = total(share * causal(prompt + count) for share, count in rollout.fed)
    first = n * prompt - (head * (prompt - where(prompt == 0, 0, 1)) if rollout.prefill_head == "last" else 0)
    known = n * tokens - (head * (tokens - rollout.mean_completion) if method.pass_head == "labels" else 0)
    attention, of_prompt = a * pairs, a * causal(prompt)
    if step.policy.spans:
        attention += total(share * step.policy.met(prompt + count)[0] for share, count in rollout.fed)
        of_prompt += step.policy.met(prompt)[0]
    prefill = rollout.prefills * (2 * first + of_prompt)
    training = method.epochs * rollout.kept * (method.train_rule * known + (3 + method.recompute) * attention)
    return prefill, rollout.samples * (2 * known + attention), training


def _waves(step):
    if step.placement.capacity == "ignored":
        return 1
    return ceil(step.batch / positive(sequences_per_copy(step), "sequences that memory holds beside the weights"))


@formula
def rl_step(step: RLStep) -> Breakdown:
    """Seconds, FLOPs, bytes, tokens and memory of one step, by phase.

    Equation:
        rollout = (prefill + waves x decode of one wave) / num_iterations; passes over known tokens FLOPs / (mfu gpus
        peak); optimizer bytes / (mbu gpus bandwidth). The step is the sum, or the longer side where sampling and
        training overlap, plus other_seconds. Waves: ceil(batch / sequences that fit), 1 where capacity is "ignored".
        Phases of a side with a layout: see `sides.side_seconds`.

    Args:
        step: an RLStep.

    Returns:
        Breakdown.

    Raises:
        ValueError: where memory holds not even one sequence (capacity "waves").

    Example:
        >>> from workloads.learning.rl.configuration import printed_page
        >>> printed = rl_step(printed_page())
        >>> round(printed.rollout.seconds, 1), round(printed.rollout_share, 3), printed.regime
        (145.2, 0.75, 'memory-bound')
    """
    rollout, policy, gpu, placement, method = step.rollout, step.policy, step.gpu, step.placement, step.method
    waves, sampling, uses = _waves(step), placement.sampling_gpus, method.num_iterations
    wave, repeated = decode(step, step.batch / waves), waves / uses
    prefill, forward, training = _known_flops(step)
    passed = lambda work, gpus: Phase(roofline.compute_seconds(work, gpus * gpu.peak, gpu.mfu), work)
    moved = method.updates * method.optimizer_bytes * method.trainable_share * policy.all_parameters
    generated = repeated * wave.flops * sampling / placement.gpus_per_copy
    known_tokens = rollout.prefills * rollout.prompt_tokens + method.passes * rollout.samples * rollout.mean_sample
    found = Breakdown(
        step,
        prefill=passed(prefill / uses, sampling),
        decode=Phase(repeated * wave.seconds, generated, repeated * wave.bytes, repeated * wave.steps),
        logprob=passed(method.passes * forward / uses, placement.gpus),
        training=passed(training, placement.gpus),
        optimizer=Phase(roofline.transfer_seconds(moved, placement.gpus * gpu.bandwidth, gpu.mbu)),
        sampled_tokens=rollout.samples * rollout.mean_completion / uses,
        trained_tokens=method.epochs * rollout.kept * rollout.mean_sample,
        forward_tokens=known_tokens / uses,
        waves=waves,
    )
    return replace(found, **{name: replace(getattr(found, name), seconds=seconds) for name, seconds in side_seconds(step).items()})


@formula
def sweep(step: RLStep) -> Breakdown:
    """`rl_step` for whole arrays: fields that are one-dimensional arrays of one length are taken element by element.

    Worked off in chunks that stay in the processor's cache.

    Args:
        step: an RLStep with at least one array.

    Returns:
        Breakdown whose dependent values are float64 arrays, equal to `rl_step` of each element.

    Raises:
        ValueError: for arrays of other shapes, or none.

    Example:
        >>> from workloads.learning.rl.configuration import RLStep
        >>> import numpy
        >>> sweep(RLStep(completion=numpy.array([1024, 2048]))).waves.tolist()
        [1.0, 1.0]
    """
    varied = {name: v for name, v in step.values.items() if is_array(v)}
    shapes = {v.shape for v in varied.values()}
    if len(shapes) != 1 or len(next(iter(shapes))) != 1:
        raise ValueError(f"array fields must be one-dimensional and of one length, got shapes {sorted(shapes)}")
    starts = range(0, next(iter(shapes))[0], CHUNK)
    chunk = lambda start: step.having(**{name: v[start : start + CHUNK] for name, v in varied.items()})
    found: Any = _joined([rl_step(chunk(start)) for start in starts])
    return replace(found, step=step)


def _joined(parts):
    """One result from those of the chunks: arrays one after the other."""
    first = parts[0]
    if isinstance(first, (Breakdown, Phase)):
        return replace(first, **{f.name: _joined([getattr(part, f.name) for part in parts]) for f in fields(first)})
    return sys.modules["numpy"].concatenate(parts) if is_array(first) else first


@formula
def crossover_length(step: RLStep) -> Tokens | None:
    """Mean completion at which rollout and learning take equally long (tokens), by bisection.

    Learning is what the step counts of log-probabilities, training and optimizer.

    Args:
        step: an RLStep (its own completion does not matter but for its shape).

    Returns:
        Tokens, between 1 and 2^20 or the length at which not one sequence fits; None where the same side is longer at
        both ends, so that no crossing is known.

    Example:
        >>> from workloads.learning.rl.configuration import printed_page
        >>> round(crossover_length(printed_page()))
        715
    """

    def lead(tokens: Tokens) -> Number:
        result = rl_step(step.having_mean(tokens))
        return result.rollout.seconds - result.learning.seconds

    low, high = 1, 2**20
    if step.placement.capacity == "waves" and step.policy.kept(2**41) > step.policy.kept(2**40):
        high = min(high, overflow_length(step, 1) * step.rollout.mean_completion / step.rollout.longest)
    if lead(low) >= 0 or lead(high) <= 0:
        return None
    return bisect(lead, low, high)

"""One step of reinforcement learning from rewards: rollout, log-probability passes, training, optimizer.

`RLStep` holds the workload, the model as plain numbers, the machine, the efficiencies, and every assumption as a switch. `step` turns
it into seconds, FLOPs, bytes and a memory verdict. Fields may be numbers, NumPy arrays (a sweep) or SymPy symbols (the algebra). The
rollout is a roofline model: each decode step takes the longer of its memory time and its compute time.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, fields, replace

from ...checks import formula
from ...numeric import Number, is_array, maximum, total, where
from ...times import roofline
from ...units import Bytes, Count, FlopCount, FlopsPerByte, FlopsPerSecond, Seconds, Share, Tokens
from .capacity import overflow_length, resident_bytes, sequence_bytes, sequences_that_fit, waves
from .configuration import RLStep, _bisect, with_completion
from .generation import _line_sum, decode

CHUNK = 2**14  # elements of a sweep at a time


# ------------------------------------------------------------------------------------------------------------------------- the step
@dataclass(frozen=True)
class Breakdown:
    """What a step costs, phase by phase. A field is a number, an array or an expression, as the configuration was.

    Tokens: sampled, trained on (epochs counted), passed forward (prefill and log-probabilities).

    Attributes:
        prefill_seconds: of the phase.
        decode_seconds: of the phase.
        logprob_seconds: of the phase.
        training_seconds: of the phase.
        optimizer_seconds: of the phase.
        other_seconds: whatever else runs alone.
        step_seconds: of all phases.
        prefill_flops: of the phase.
        decode_flops: of the phase.
        logprob_flops: of the phase.
        training_flops: of the phase.
        sampled_tokens: in decode.
        trained_tokens: epochs counted.
        forward_tokens: prefill and log-probabilities.
        decode_bytes: moved by each sampling GPU (B) in decode_steps steps.
        decode_steps: see `decode_bytes`.
        batch: sequences per copy.
        fit: sequences that memory holds per copy.
        held_bytes: weights, cache of the whole batch at full length and training state that a sampling GPU would hold
            (B), of memory_bytes.
        memory_bytes: see `held_bytes`.
        sampling_gpus: how many.
        training_gpus: how many.
        gpus: how many.
        peak: in FLOP/s.
        ridge: in FLOP/B.
    """

    prefill_seconds: Seconds
    decode_seconds: Seconds
    logprob_seconds: Seconds
    training_seconds: Seconds
    optimizer_seconds: Seconds
    other_seconds: Seconds
    step_seconds: Seconds
    prefill_flops: FlopCount
    decode_flops: FlopCount
    logprob_flops: FlopCount
    training_flops: FlopCount
    sampled_tokens: Tokens
    trained_tokens: Tokens
    forward_tokens: Tokens
    decode_bytes: Bytes
    decode_steps: Number
    batch: Count
    fit: Number
    waves: Number
    held_bytes: Bytes
    memory_bytes: Bytes
    sampling_gpus: Count
    training_gpus: Count
    gpus: Count
    peak: FlopsPerSecond
    ridge: FlopsPerByte

    @property
    def rollout_seconds(self) -> Seconds:
        """Prefill of the prompts and decode (s)."""
        return self.prefill_seconds + self.decode_seconds

    @property
    def learning_seconds(self) -> Seconds:
        """Log-probability passes, training and optimizer (s)."""
        return self.logprob_seconds + self.training_seconds + self.optimizer_seconds

    @property
    def rollout_share(self) -> Share:
        """The rollout's part of the seconds of all phases (0 to 1); other_seconds not counted."""
        return self.rollout_seconds / (self.rollout_seconds + self.learning_seconds)

    @property
    def rollout_flops(self) -> FlopCount:
        """FLOPs of prefill and decode."""
        return self.prefill_flops + self.decode_flops

    @property
    def step_flops(self) -> FlopCount:
        """FLOPs of all phases."""
        return self.rollout_flops + self.logprob_flops + self.training_flops

    @property
    def rollout_mfu(self) -> Share:
        """FLOPs of the rollout over what the sampling GPUs could have done (0 to 1)."""
        return roofline.mfu(self.rollout_flops, self.rollout_seconds, self.sampling_gpus * self.peak)

    @property
    def training_mfu(self) -> Share:
        """FLOPs of training over what the training GPUs could have done, the optimizer's time included (0 to 1)."""
        return roofline.mfu(self.training_flops, self.training_seconds + self.optimizer_seconds, self.training_gpus * self.peak)

    @property
    def step_mfu(self) -> Share:
        """FLOPs of the step over what all GPUs could have done in its time (0 to 1)."""
        return roofline.mfu(self.step_flops, self.step_seconds, self.gpus * self.peak)

    @property
    def intensity(self) -> FlopsPerByte:
        """FLOPs of decode per byte moved, over the whole rollout (FLOP/B)."""
        return roofline.intensity(self.decode_flops, self.decode_bytes * self.sampling_gpus)

    @property
    def regime(self) -> str:
        """Regime of decode: "memory-bound" where its intensity lies below the ridge point, else "compute-bound"."""
        return where(self.intensity < self.ridge, "memory-bound", "compute-bound")

    @property
    def bytes_per_decode_step(self) -> Bytes:
        """Bytes that a GPU moves in a decode step, on average (B)."""
        return self.decode_bytes / self.decode_steps

    @property
    def fits(self) -> bool:
        """Whether the batch is held at once, at full length."""
        return self.fit >= self.batch

    @property
    def gpu_seconds(self) -> Seconds:
        """GPU-seconds paid for."""
        return self.gpus * self.step_seconds


@formula
def pass_flops(step: RLStep) -> tuple[FlopCount, FlopCount, FlopCount]:
    """FLOPs of passes over known tokens: (prefill of all prompts, one forward pass over all samples, training).

    Equation:
        prefill 2N P + a P(P+1)/2 a prompt; forward 2N T + a T(T+1)/2 a sample; training epochs ((6, or 4 under LoRA, +
        2 with recomputation) N T + (3, or 4) a T(T+1)/2) a kept sample. T: prompt P and completion tokens read; a:
        pair_flops; means over the lengths. Where the head skips rows, N T becomes N T - head parameters x rows skipped.

    Args:
        step: an RLStep.

    Example:
        >>> from workloads.learning.rl.configuration import RLStep
        >>> prefill, forward, training = pass_flops(RLStep())
        >>> prefill, forward == 2 * 8e9 * 1024 * 4096, training / forward
        (0.0, True, 3.0)
    """
    a, n, prompt, tokens = step.pair_flops, step.parameters, step.prompt_tokens, step.mean_sample
    pairs = total(share * _line_sum(1, prompt + count, 0, 1) for share, count in step.fed)
    first = n * prompt - step.head_parameters * (prompt - where(prompt == 0, 0, 1)) if step.prefill_head == "last" else n * prompt
    known = n * tokens - step.head_parameters * (tokens - step.mean_completion) if step.pass_head == "labels" else n * tokens
    prefill = step.prefills * (2 * first + a * _line_sum(1, prompt, 0, 1))
    training = step.epochs * step.kept * (step.train_rule * known + (3 + step.recompute) * a * pairs)
    return prefill, step.samples * (2 * known + a * pairs), training


@formula
def rl_step(config: RLStep) -> Breakdown:
    """Seconds, FLOPs, bytes, tokens and memory of one step, by phase.

    Equation:
        rollout = (prefill + waves x decode of one wave) / rollout_uses; passes over known tokens FLOPs / (mfu gpus
        peak); optimizer bytes / (mbu gpus bandwidth). The step is the sum, or the longer side where sampling and
        training overlap, plus other_seconds.

    Args:
        config: an RLStep.

    Returns:
        Breakdown.

    Raises:
        ValueError: where memory holds not even one sequence (capacity "waves").

    Example:
        >>> from workloads.learning.rl.configuration import printed_page
        >>> printed = rl_step(printed_page())
        >>> round(printed.rollout_seconds, 1), round(printed.rollout_share, 3), printed.regime
        (145.2, 0.75, 'memory-bound')
    """
    c, rounds = config, waves(config)
    wave, repeated = decode(c, c.batch / rounds), rounds / c.rollout_uses
    prefill, forward, training = pass_flops(c)
    passes = c.reference + c.policy_logprobs + c.teachers
    prefill, forward = prefill / c.rollout_uses, passes * forward / c.rollout_uses
    seconds = lambda work, gpus: roofline.compute_seconds(work, gpus * c.peak, c.mfu)
    update = roofline.transfer_seconds(c.optimizer_bytes * c.trainable_share * c.all_parameters, c.gpus * c.bandwidth, c.mbu)
    rollout = seconds(prefill, c.sampling_gpus) + repeated * wave.seconds
    learning = seconds(forward, c.gpus) + seconds(training, c.gpus) + update
    return Breakdown(
        prefill_seconds=seconds(prefill, c.sampling_gpus),
        decode_seconds=repeated * wave.seconds,
        logprob_seconds=seconds(forward, c.gpus),
        training_seconds=seconds(training, c.gpus),
        optimizer_seconds=update,
        other_seconds=c.other_seconds,
        step_seconds=where(c.overlap, maximum(rollout, learning), rollout + learning) + c.other_seconds,
        prefill_flops=prefill,
        decode_flops=repeated * wave.flops * c.sampling_gpus / c.gpus_per_copy,
        logprob_flops=forward,
        training_flops=training,
        sampled_tokens=c.samples * c.mean_completion / c.rollout_uses,
        trained_tokens=c.epochs * c.kept * c.mean_sample,
        forward_tokens=(c.prefills * c.prompt_tokens + passes * c.samples * c.mean_sample) / c.rollout_uses,
        decode_bytes=repeated * wave.bytes,
        decode_steps=repeated * wave.steps,
        batch=c.batch,
        fit=sequences_that_fit(c),
        waves=rounds,
        held_bytes=resident_bytes(c) + c.batch * sequence_bytes(c) / c.gpus_per_copy,
        memory_bytes=c.memory_bytes,
        sampling_gpus=c.sampling_gpus,
        training_gpus=c.gpus,
        gpus=c.all_gpus,
        peak=c.peak,
        ridge=roofline.ridge(c.peak, c.bandwidth),
    )


@formula
def sweep(config: RLStep) -> Breakdown:
    """`step` for whole arrays: fields of `config` that are one-dimensional arrays of one length are taken element by
    element.

    Worked off in chunks that stay in the processor's cache.

    Args:
        config: an RLStep with at least one array.

    Returns:
        Breakdown whose dependent fields are float64 arrays, equal to `step` of each element.

    Raises:
        ValueError: for arrays of other shapes, or none.

    Example:
        >>> from workloads.learning.rl.configuration import RLStep
        >>> import numpy
        >>> sweep(RLStep(completion=numpy.array([1024, 2048]))).waves.tolist()
        [1.0, 1.0]
    """
    varied = {f.name: v for f in fields(config) if is_array(v := getattr(config, f.name))}
    shapes = {v.shape for v in varied.values()}
    if len(shapes) != 1 or len(next(iter(shapes))) != 1:
        raise ValueError(f"array fields must be one-dimensional and of one length, got shapes {sorted(shapes)}")
    size, out = next(iter(shapes))[0], {}
    for start in range(0, size, CHUNK):
        part = rl_step(replace(config, **{name: v[start : start + CHUNK] for name, v in varied.items()}))
        for f in fields(part):
            value = getattr(part, f.name)
            if is_array(value):
                out.setdefault(f.name, sys.modules["numpy"].empty(size))[start : start + CHUNK] = value
            else:
                out[f.name] = value
    return Breakdown(**out)


@formula
def crossover_length(config: RLStep) -> Tokens | None:
    """Mean completion at which rollout and learning take equally long (tokens), by bisection.

    Learning is what the configuration counts of log-probabilities, training and optimizer.

    Args:
        config: an RLStep (its own completion does not matter but for its shape).

    Returns:
        Tokens, between 1 and 2^20 or the length at which not one sequence fits; None where the same side is longer at
        both ends, so that no crossing is known.

    Example:
        >>> from workloads.learning.rl.configuration import printed_page
        >>> round(crossover_length(printed_page()))
        715
    """

    def lead(tokens: Tokens) -> Number:
        result = rl_step(with_completion(config, tokens))
        return result.rollout_seconds - result.learning_seconds

    low, high = 1, 2**20
    if config.capacity == "waves" and config.kv_bytes > 0:
        high = min(high, overflow_length(config, 1) * config.mean_completion / config.longest)
    if lead(low) >= 0 or lead(high) <= 0:
        return None
    return _bisect(lead, low, high)

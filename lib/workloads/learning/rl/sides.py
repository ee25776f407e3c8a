"""Sides of an RL step on layouts: prefill, passes over samples, training and update with all that splitting costs."""

from __future__ import annotations

from ...checks import formula, nonnegative
from ...counts import memory
from ...counts.layout_memory import must_fit, training_bytes
from ...counts.parameter_counts import parameters
from ...counts.request_tokens import Request
from ...numeric import floor
from ...times import roofline, split
from ...units import Seconds
from .configuration import RLStep, for_model
from .parts import Side


@formula
def on_layouts(generation: Side, training: Side, **changes: object) -> RLStep:
    """The step whose two sides run one model on layouts, formats and shares of their own.

    Args:
        generation: of each copy that samples; its machine's peak and memory are those of the step.
        training: of the GPUs that learn, which also sample unless rollout_gpus says otherwise.
        **changes: every other field of RLStep.

    Returns:
        RLStep

    Example:
        >>> from workloads.counts.layout import Layout, Plan
        >>> from workloads.facts import accelerators, models
        >>> from workloads.times.machine import Machine
        >>> qwen, card, apart = models.model("Qwen3-32B"), accelerators.accelerator("H100 SXM"), Plan(overlap="nothing")
        >>> sampling = Side(qwen, Machine(card, 4, mbu=0.7), Layout(tensor=4), apart)
        >>> learning = Side(qwen, Machine(card, 32, mfu=0.35), Layout(tensor=4, pipeline=4, data=2), apart)
        >>> step = on_layouts(sampling, learning, completion=2048, updates=4)
        >>> step.placement.gpus, step.placement.gpus_per_copy, step.batch
        (32, 4, 128.0)
    """
    model, layout, machine = generation.model, generation.layout, generation.machine
    weights = memory.weight_bytes(model, generation.formats.weight_bytes)
    widths = weights / parameters(model).total, generation.formats.cache_bytes
    sides = dict(gpus=training.layout.gpus, gpus_per_copy=layout.gpus, generation=generation, training=training)
    reached = dict(mbu=machine.mbu, decode_mfu=machine.mfu, mfu=training.machine.mfu)
    own = dict(weight_bytes=weights, memory_bytes=machine.memory_bytes / machine.count, recompute=training.plan.recompute == "layers")
    step = for_model(model, machine.accelerator, machine.arithmetic, *widths, **{**sides, **reached, **own, **changes})
    return step.having(kv_copies=layout.kv_copies(model, step.rollout.prompt_tokens + step.rollout.longest))


@formula
def side_seconds(step: RLStep) -> dict[str, Seconds]:
    """Seconds of the phases whose side has a layout, by name; decode is left out (see `generation.decode`).

    Equation:
        prefill: `split.prefill_seconds` of a copy's prompts; log-probabilities: the same over all samples, with the head's rows;
        training: epochs x updates x `split.training_seconds` of an update's samples; optimizer: updates x optimizer_bytes
        x parameters that a card updates / (mbu bandwidth).

    Args:
        step: an RLStep.

    Assumptions:
        Samples pass with their mean length, rounded, or as packs.

    Raises:
        ValueError: for packs that do not hold the samples; for a training state that does not fit, unless capacity is
            "ignored".

    Example:
        >>> side_seconds(RLStep())
        {}
    """
    rollout, placement, method, found = step.rollout, step.placement, step.method, {}
    if (side := placement.generation) is not None and rollout.prompt_tokens > 0:
        prompts = rollout.prefills * side.layout.gpus / placement.sampling_gpus
        found["prefill"] = _forward(side, rollout.prompt_tokens, prompts, rollout.prefill_head) / method.num_iterations
    if (side := placement.training) is not None:
        tokens, own = side.packs or (max(1, round(rollout.mean_sample)), rollout.kept / method.updates)
        every = own * method.updates if side.packs else rollout.samples  # sequences of a pass over all samples
        nonnegative(
            own * (tokens + 1) * method.updates - rollout.kept * rollout.mean_sample, "room of packs beyond their samples", "tokens"
        )
        labels = min(tokens, floor(rollout.mean_completion * rollout.samples / every))
        rows = labels if method.pass_head == "labels" else "all"
        for stage in {0, side.layout.pipeline - 1} if placement.capacity == "waves" else ():
            held = training_bytes(side.model, side.layout, tokens, own, side.plan, stage)
            must_fit(held, side.machine.memory_bytes / side.layout.gpus)
        once = split.training_seconds(side.model, side.machine, side.layout, tokens, own, side.plan).total
        updated = sum(size / (copies if side.plan.zero else 1) for size, copies, _ in side.layout.groups(side.model))
        moved = method.updates * method.optimizer_bytes * updated
        found["logprob"] = method.passes * _forward(side, tokens, every, rows) / method.num_iterations
        found["training"] = method.epochs * method.updates * once
        found["optimizer"] = roofline.transfer_seconds(moved, side.machine.accelerator.bandwidth, side.machine.mbu)
    return found


def _forward(side, tokens, batch, head):
    request = Request(tokens, 1)
    return split._forward_seconds(side.model, side.machine, side.layout, request, batch, side.formats, side.plan, head).total

"""Seconds of a split model: training step, prefill, decode step, each as computing, communication, bubble and fixed time."""

from __future__ import annotations

from dataclasses import dataclass

from ..checks import formula, positive
from ..counts import flops, memory
from ..counts.communication import forward_traffic, training_traffic
from ..counts.layout import USUAL, Layout, Plan
from ..counts.layout_memory import _expert_bytes
from ..counts.parameter_counts import active_weights
from ..counts.request_tokens import Request
from ..counts.training_memory import RECIPES
from ..facts.formats import BF16, Formats
from ..facts.models import Model
from ..numeric import maximum
from ..units import Count, Seconds, Tokens
from .links import sending_seconds
from .machine import Machine
from .pipeline import bubble_seconds
from .roofline import roofline_seconds


@dataclass(frozen=True)
class _SplitSeconds:
    """Seconds of a step on a layout, by part; what arithmetic hides of communication is left out.

    Attributes:
        compute: of arithmetic or of transfers from memory, whichever is longer (s).
        communication: not hidden (s).
        bubble: of the pipeline (s).
        fixed: of layers and step (s).
    """

    compute: Seconds
    communication: Seconds
    bubble: Seconds
    fixed: Seconds

    @property
    def total(self) -> Seconds:
        """All four (s)."""
        return self.compute + self.communication + self.bubble + self.fixed


def _parts(machine, plan, stages, work, moved, sent, layers, passes=1, forward=1):
    """The parts of a step from one card's FLOPs, bytes moved and bytes sent; `layers` is how many it passes in all."""
    card, fixed = machine.accelerator, layers * plan.layer_seconds
    compute = roofline_seconds(work, moved, card.peak(machine.arithmetic), card.bandwidth, machine.mfu, machine.mbu)
    talk = {kind: sending_seconds(part, card, plan.fast_latency, plan.network_latency) for kind, part in sent.items()}
    told, apart = sum(talk.values()), plan.overlap == "nothing"
    each = (compute + fixed + apart * (told - talk.get("data", 0))) / passes
    bubble = bubble_seconds(stages, passes, each * forward, each * (1 - forward), plan.schedule, plan.chunks)
    return _SplitSeconds(compute, told if apart else maximum(0, told - compute), bubble, fixed + plan.step_seconds)


def _passes(machine, layout, batch, plan):
    """Micro-batches of a copy."""
    if layout.gpus != machine.count:
        raise ValueError(f"layout must be of the machine's {machine.count} accelerators, got {layout.gpus}")
    return positive(batch, "batch", "sequences") / (layout.data * plan.micro_batch)


def _uneven(model, tokens, plan):
    """FLOPs of a forward pass that the busiest card's experts add to the mean, over all cards."""
    return (plan.imbalance - 1) * 2 * active_weights(model, "experts") * tokens


def _weights_read(model, layout, formats, rows):
    """Bytes of weights that a card of each stage together read for so many tokens of one copy (B)."""
    read, ways = lambda met: memory.weights_read_per_step(model, formats.weight_bytes, met), layout.groups(model)[1][2]
    experts, every = _expert_bytes(model, formats), read(10**9)  # tokens that leave no expert out
    return (every - experts) / layout.tensor + (experts - every + read(rows * ways / layout.tensor)) / ways


@formula
def training_seconds(model: Model, machine: Machine, layout: Layout, tokens: Tokens, batch: Count, plan: Plan = USUAL) -> _SplitSeconds:
    """Seconds of the passes of a training step on a layout, forward and backward, without the update.

    Equation:
        compute: max(FLOPs of all / cards / (mfu peak), bytes of a card / (mbu bandwidth)), its weights three times a
        micro-batch; communication: `training_traffic` over the links, with
        overlap "all" only what lasts longer than the computing; bubble: of passes that compute (with overlap "nothing"
        and communicate); fixed: layers / p x passes x micro-batches x layer_seconds + step_seconds.

    Args:
        model: a Model.
        machine: a Machine of as many accelerators as the layout.
        layout: a `Layout`.
        tokens: of each sequence.
        batch: sequences over all copies.
        plan: a `Plan`.

    Returns:
        _SplitSeconds: With overlap "all", no latency and mfu = mbu = 1 a lower bound.

    Assumptions:
        Layers, and work of head and embedding, are even over stages.

    Raises:
        ValueError: for a machine of another size, or a link that is used and not known.

    Example:
        >>> from workloads.facts import accelerators, models
        >>> eight = Machine(accelerators.accelerator("H100 SXM"), 8, mfu=0.5)
        >>> step = training_seconds(models.model("Llama-3.1-8B"), eight, Layout(data=8), 8192, 64, Plan(zero=3))
        >>> round(step.total, 2), step.communication, step.bubble
        (6.82, 0, 0.0)
    """
    passes, p, again = _passes(machine, layout, batch, plan), layout.pipeline, plan.recompute == "layers"
    done = flops.training(model, tokens, batch, recompute="layers" if again else "nothing")
    work = (done.total + (3 + again) * _uneven(model, tokens * batch, plan)) / layout.gpus
    moved = 3 * passes * sum(size for size, _, _ in layout.groups(model)) * RECIPES[plan.recipe].weights
    sent = training_traffic(model, layout, tokens, batch, plan, machine.accelerator.domain)
    layers = model.layers / p * passes * (2 + again)
    return _parts(machine, plan, p, work, moved, sent, layers, passes, done.forward.total / done.total)


@formula
def prefill_seconds(
    model: Model, machine: Machine, layout: Layout, request: Request | Tokens, batch: Count = 1, formats: Formats = BF16, plan: Plan = USUAL
) -> _SplitSeconds:
    """Seconds of a prefill on a layout: from the prompts to one row of logits each.

    Equation:
        as `training_seconds`, forward only: each card reads its weights once a micro-batch, and the cache of the past.

    Args:
        model: a Model.
        machine: a Machine of as many accelerators as the layout.
        layout: a `Layout`.
        request: a Request, or the number of new tokens.
        batch: equal requests over all copies.
        formats: a `Formats`.
        plan: a `Plan`: micro-batches, latencies, overlap.

    Returns:
        _SplitSeconds

    Example:
        >>> from workloads.facts import accelerators, models
        >>> eight = Machine(accelerators.accelerator("H100 SXM"), 8)
        >>> step = prefill_seconds(models.model("Llama-3.1-70B"), eight, Layout(tensor=8), 8192, plan=Plan(overlap="nothing"))
        >>> round(step.compute, 3), round(step.communication, 3)
        (0.153, 0.084)
    """
    request = request if isinstance(request, Request) else Request(request, 1)
    return _forward_seconds(model, machine, layout, request, batch, formats, plan, "last")


def _forward_seconds(model, machine, layout, request, batch, formats, plan, head):
    """`prefill_seconds` of a request, with as many rows of logits as `head` says."""
    new, past, p, passes = request.new, request.past, layout.pipeline, _passes(machine, layout, batch, plan)
    work = flops.forward(model, new, past, batch, head=head).total + _uneven(model, new * batch, plan)
    cache = memory.kv_bytes(model, new + past, plan.micro_batch, formats.cache_bytes) * layout.kv_copies(model, new + past)
    moved = _weights_read(model, layout, formats, new * plan.micro_batch) + cache / (layout.tensor * layout.context)
    sent = forward_traffic(model, layout, new, plan.micro_batch, machine.accelerator.domain, chunks=plan.chunks)
    sent = {kind: part * (passes / p) for kind, part in sent.items()}
    return _parts(machine, plan, p, work / layout.gpus, passes / p * moved, sent, model.layers / p * passes, passes)


@formula
def decode_seconds(
    model: Model, machine: Machine, layout: Layout, context: Tokens, batch: Count = 1, formats: Formats = BF16, plan: Plan = USUAL
) -> _SplitSeconds:
    """Seconds of a decode step on a layout: one token for each sequence.

    Equation:
        the sequences of a copy / pipeline (at least 1) pass all stages one after the other, while others are in the
        other stages: max(FLOPs / t, (weights + cache x kv_copies) / t) of the t cards of a stage, and what they send.

    Args:
        model: a Model.
        machine: a Machine of as many accelerators as the layout.
        layout: a `Layout`; context parallelism is refused.
        context: tokens of each sequence in the cache before the step.
        batch: sequences over all copies.
        formats: a `Formats`.
        plan: a `Plan`: latencies, fixed times, overlap.

    Returns:
        _SplitSeconds

    Example:
        >>> from workloads.facts import accelerators, models
        >>> eight = Machine(accelerators.accelerator("H100 SXM"), 8)
        >>> step = decode_seconds(models.model("Llama-3.1-70B"), eight, Layout(tensor=8), 4096)
        >>> round(1e3 * step.total, 2)
        5.24
    """
    t = layout.only("tensor", "pipeline", "data", "expert").tensor
    own = maximum(1, _passes(machine, layout, batch, USUAL) / layout.pipeline)
    work = flops.decode_step(model, context, own).total + _uneven(model, own, plan)
    sent = forward_traffic(model, layout, 1, own, machine.accelerator.domain)
    return _parts(machine, plan, 1, work / t, _stage_bytes(model, layout, context, own, formats), sent, model.layers)


def _stage_bytes(model, layout, context, own, formats):
    """Bytes that a card of each stage together move in a decode step of so many sequences of one copy (B)."""
    moved = memory.decode_traffic(model, context, own, formats.weight_bytes, formats.cache_bytes)
    cache = (moved.kv_read + moved.kv_written) * layout.kv_copies(model, context + 1) + moved.state + moved.embedding_rows
    return _weights_read(model, layout, formats, own) + cache / layout.tensor


def _decode_bytes(model, layout, context, batch, formats):
    """Bytes that a card moves while each of so many sequences over all copies gets a token: all that pass its stage (B)."""
    each = batch / layout.data
    own = maximum(1, each / layout.pipeline)
    return _stage_bytes(model, layout, context, own, formats) * each / own / layout.pipeline

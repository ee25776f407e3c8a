"""What one accelerator of a layout must hold: weights, training state, activations, cache, logits; and what does not fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..checks import formula, one_of, positive, whole
from ..facts.formats import BF16, Formats
from ..facts.models import Model
from ..numeric import Number, minimum
from ..units import Bytes, Count, Tokens, quantity
from . import memory
from .layout import SCHEDULES, USUAL, Layout, Plan
from .parameter_counts import _expert_biases, parameters
from .training_memory import LOGIT_COPIES, RECIPES, activation_bytes, logits_bytes


@dataclass(frozen=True)
class _HeldBytes:
    """Bytes that one accelerator holds, in the order in which they must find room."""

    weights: Bytes
    gradients: Bytes = 0
    optimizer: Bytes = 0
    activations: Bytes = 0
    cache: Bytes = 0
    logits: Bytes = 0

    @property
    def total(self) -> Bytes:
        """All of them."""
        return sum(vars(self).values())


@formula
def in_flight(stages: Count, micro_batches: Count, schedule: str = "1f1b", chunks: Count = 1, stage: Count = 0) -> Number:
    """Micro-batches whose activations a stage of a pipeline holds at most.

    Equation:
        "gpipe" all m; "1f1b" min(m, p - s); "zero-bubble" min(m, p); "interleaved" min(m, (2 (p - 1 - s) + (v - 1) p +
        1)/v), each chunk being one of v parts.

    Args:
        stages: p.
        micro_batches: m.
        schedule: as in `pipeline.bubble_seconds`.
        chunks: v, of the "interleaved" schedule.
        stage: s, from 0.

    Source:
        Narayanan et al. 2021; Qi et al. 2023.

    Example:
        >>> in_flight(8, 32), in_flight(8, 32, stage=7), in_flight(8, 32, "interleaved", chunks=2)
        (8, 1, 11.5)
    """
    p, m = whole(stages, "stages", least=1), positive(micro_batches, "micro_batches")
    s, v = whole(stage, "stage", most=p - 1), whole(chunks, "chunks", least=1)
    held = {"gpipe": m, "1f1b": p - s, "zero-bubble": p, "interleaved": (2 * (p - 1 - s) + (v - 1) * p + 1) / v}
    return minimum(m, held["1f1b" if v == 1 and schedule == "interleaved" else one_of(schedule, "schedule", SCHEDULES)])


@formula
def training_bytes(
    model: Model, layout: Layout, tokens: Tokens, batch: Count, plan: Plan = USUAL, stage: Count = 0, copies: Sequence[Count] = LOGIT_COPIES
) -> _HeldBytes:
    """Bytes that one accelerator holds in training at the turn from forward to backward.

    Equation:
        parameters of the stage / tensor (routed experts / their ways) x recipe, what ZeRO shards over the copies; inputs
        and kept values of layers / (pipeline x tensor x context) x micro-batches in flight, of layers that are computed
        again one; in the last stage, of one micro-batch, final norm and logits / (tensor x context).

    Args:
        model: a Model.
        layout: a `Layout`.
        tokens: of each sequence.
        batch: sequences over all copies.
        plan: a `Plan`.
        stage: of the pipeline, from 0: the first holds most activations, the last the logits.
        copies: bytes a value of each copy of the logits, as in `logits_bytes`.

    Returns:
        _HeldBytes

    Assumptions:
        A lower bound of what trainers report: activations are split by tensor parallelism everywhere (with sequence
        parallelism between the matrices), layers evenly over stages. Gathered weights, gradients of activations, buffers
        and fragments come on top.

    Source:
        Korthikanti et al. 2022; Rajbhandari et al. 2020.

    Example:
        >>> from workloads.facts.models import model
        >>> held = training_bytes(model("Llama-3.1-70B"), Layout(tensor=8, pipeline=4, data=2), 8192, 64)
        >>> [round(part / 1e9, 1) for part in (held.weights, held.gradients, held.optimizer, held.activations)]
        [4.5, 9.1, 13.6, 22.5]
    """
    p, count, recipe, each = layout.pipeline, parameters(model), RECIPES[plan.recipe], plan.micro_batch / (layout.tensor * layout.context)
    last, table = whole(stage, "stage", most=p - 1) == p - 1, count.embedding
    tables = (stage == 0) * table + last * (count.head or (stage > 0) * table) - (table + count.head) / p
    (shared, copies_of_all, _), (experts, of_experts, _) = layout.groups(model)
    sharded = lambda least, n: n if plan.zero >= least else 1
    held = lambda least: (shared + tables / layout.tensor) / sharded(least, copies_of_all) + experts / sharded(least, of_experts)
    kept = activation_bytes(model, tokens, recompute=plan.recompute, copies=copies)
    m = positive(batch, "batch", "sequences") / (layout.data * plan.micro_batch)
    flying = in_flight(p, m, plan.schedule, plan.chunks, stage) / p
    activations = kept.layer_inputs * flying + kept.layers * (1 if plan.recompute == "layers" else flying) + last * kept.final_norm
    moments = recipe.master_weights + recipe.first_moment + recipe.second_moment
    state = held(3) * recipe.weights, held(2) * recipe.gradients, held(1) * moments
    return _HeldBytes(*state, activations * each, logits=last * kept.logits * each)


@formula
def serving_bytes(model: Model, layout: Layout, tokens: Tokens, batch: Count, formats: Formats = BF16) -> _HeldBytes:
    """Bytes that one accelerator holds while it serves: weights, cache, one row of logits for each sequence; mean over
    stages.

    Equation:
        weights / tensor (routed experts / their ways), cache and state of its copy's sequences x kv_copies / (tensor x
        context), both / pipeline; rows x vocabulary x 4 B / tensor.

    Args:
        model: a Model.
        layout: a `Layout`.
        tokens: of each sequence.
        batch: sequences over all copies.
        formats: a `Formats`.

    Returns:
        _HeldBytes

    Assumptions:
        A lower bound: activations, buffers and whole blocks of the cache come on top.

    Example:
        >>> from workloads.facts.models import model
        >>> held = serving_bytes(model("DeepSeek-V3"), Layout(data=32, expert=32), 8192, 256, Formats(weights="fp8"))
        >>> round(held.weights / 1e9, 1), round(held.cache / 1e9, 1)
        (37.6, 4.6)
    """
    own, experts, p = positive(batch, "batch", "sequences") / layout.data, _expert_bytes(model, formats), layout.pipeline
    weights = (memory.weight_bytes(model, formats.weight_bytes) - experts) / layout.tensor + experts / layout.groups(model)[1][2]
    cache = memory.kv_bytes(model, positive(tokens, "tokens"), own, formats.cache_bytes) * layout.kv_copies(model, tokens) / layout.context
    held = (cache + memory.state_bytes(model, own)) / (layout.tensor * p)
    return _HeldBytes(weights / p, cache=held, logits=logits_bytes(own * model.vocab, (4,)) / layout.tensor)


def _expert_bytes(model, formats):
    width = formats.weight_bytes
    of = lambda part: width.get(part, width.get("other", 0)) if isinstance(width, Mapping) else width
    return parameters(model).experts * of("experts") + _expert_biases(model) * of("biases")


@formula
def must_fit(held: _HeldBytes, memory_bytes: Bytes) -> _HeldBytes:
    """What an accelerator is to hold, if it can.

    Args:
        held: from `training_bytes` or `serving_bytes`.
        memory_bytes: of the accelerator (B).

    Returns:
        _HeldBytes

    Raises:
        ValueError: that names the first part for which no room is left, in the order of the parts, in GB.

    Example:
        >>> from workloads.facts.models import model
        >>> must_fit(serving_bytes(model("Llama-3.1-70B"), Layout(tensor=2), 8192, 4), 80e9).total / 1e9
        75.9...
        >>> must_fit(serving_bytes(model("Llama-3.1-70B"), Layout(), 8192, 4), 80e9)
        Traceback (most recent call last):
        ...
        ValueError: weights must fit the 80 GB that are left of 80 GB, got 141.1 GB
    """
    room = positive(memory_bytes, "memory_bytes", "B")
    for name, size in vars(held).items():
        if size > room:
            left = f"{quantity(room, 'B')} that are left of {quantity(memory_bytes, 'B')}"
            raise ValueError(f"{name} must fit the {left}, got {quantity(size, 'B')}")
        room -= size
    return held

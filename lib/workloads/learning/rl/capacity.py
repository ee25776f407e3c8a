"""What fits on the GPUs that sample, beside the weights: sequences, lengths, the smallest split."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...checks import MANY, formula, positive, whole
from ...counts import memory
from ...numeric import Number, bisect
from ...units import Count, Tokens
from .configuration import RLStep


@formula
def sequences_per_copy(step: RLStep) -> Number:
    """Sequences that one copy of the weights holds at once (its max_num_seqs), each with the longest length reserved (a
    whole number, 0 if none).

    Equation:
        floor(g (memory - resident) / bytes of a sequence), by `memory.sequences_that_fit`.

    Args:
        step: an RLStep.

    Example:
        >>> from workloads.learning.rl.configuration import RLStep
        >>> sequences_per_copy(RLStep(completion=4096)), sequences_per_copy(RLStep(completion=500_000))
        (100, 0)
    """
    g = step.placement.gpus_per_copy
    return memory.sequences_that_fit(g * step.gpu.memory_bytes, g * step.resident_bytes, step.sequence_bytes)


@formula
def smallest_copy(step_of: Callable[..., Any], gpus: Count) -> Count:
    """Least number of GPUs a copy of the weights (tensor_parallel_size) with which one sequence fits, among those that
    divide the GPUs evenly; None if none does.

    Equation:
        min of the g with gpus mod g = 0 and sequences_per_copy >= 1.

    Args:
        step_of: a function that gives the RLStep with g GPUs a copy (how often the cache is stored depends on g, too).
        gpus: those that sample, a whole number.

    Example:
        >>> from workloads.learning.rl.configuration import for_model
        >>> from workloads.facts import accelerators
        >>> from workloads.facts import models
        >>> big, card = models.model("Llama-3.1-70B"), accelerators.accelerator("H100 SXM")
        >>> smallest_copy(lambda g: for_model(big, card, gpus_per_copy=g), 8)
        4
    """
    gpus = whole(gpus, "gpus", least=1, most=MANY)
    return next((g for g in range(1, gpus + 1) if gpus % g == 0 and sequences_per_copy(step_of(g)) >= 1), None)


@formula
def overflow_length(step: RLStep, sequences: Count | None = None) -> Tokens:
    """Longest completion with which so many sequences still fit on a copy (tokens).

    Equation:
        (g (memory - resident) / (n kv_copies) - state) / kv - prompt; by bisection where layers keep less than all.

    Args:
        step: an RLStep.
        sequences: n (None: the batch). At or below 0 they fit at no length.

    Raises:
        ValueError: for a model whose cache does not grow.

    Example:
        >>> from workloads.learning.rl.configuration import RLStep
        >>> round(overflow_length(RLStep())), round(overflow_length(RLStep(), sequences=256))
        (3221, 1611)
    """
    n, placement = step.batch if sequences is None else positive(sequences, "sequences"), step.placement
    room = placement.gpus_per_copy * (step.gpu.memory_bytes - step.resident_bytes) / (n * placement.kv_copies)
    if step.policy.spans:
        positive(step.policy.kept(2**41) - step.policy.kept(2**40), "kv_bytes of layers that keep all positions", "B/token")
        return (1 - 2**-52) * bisect(lambda tokens: step.policy.kept(tokens) - room, 0, 2**40) - step.rollout.prompt_tokens
    kv_bytes = positive(step.policy.kv_bytes, "kv_bytes", "B/token")
    return (room - step.policy.state_bytes) / kv_bytes - step.rollout.prompt_tokens

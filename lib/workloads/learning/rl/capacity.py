"""What fits on the GPUs that sample: weights, state, sequences, waves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...checks import MANY, formula, positive, whole
from ...counts import memory
from ...numeric import Number, ceil
from ...units import Bytes, Count, Tokens
from .configuration import RLStep


# --------------------------------------------------------------------------------------------------------------------------- memory
@formula
def resident_bytes(step: RLStep) -> Bytes:
    """Bytes that a sampling GPU holds before any cache (B).

    Equation:
        overhead copies ((W - R)/g + R), and where rollout and training share GPUs held_state_bytes x trained parameters
        / gpus.

    Args:
        step: an RLStep.

    Example:
        >>> from workloads.learning.rl.configuration import RLStep
        >>> resident_bytes(RLStep()) / 1e9
        19.2
    """
    weights = (step.weight_bytes - step.replicated_bytes) / step.gpus_per_copy + step.replicated_bytes
    state = step.held_state_bytes * step.trainable_share * step.all_parameters / step.gpus if step.rollout_gpus is None else 0
    return step.overhead * step.copies * weights + state


@formula
def sequence_bytes(step: RLStep) -> Bytes:
    """Cache and state of the longest sequence, prompt included, over all GPUs of a copy (B).

    Equation:
        kv_copies (kv (prompt + longest) + state).

    Args:
        step: an RLStep.

    Example:
        >>> from workloads.learning.rl.configuration import RLStep
        >>> sequence_bytes(RLStep(completion=4096))
        603979776
    """
    return step.kv_copies * (step.kv_bytes * (step.prompt_tokens + step.longest) + step.state_bytes)


@formula
def sequences_that_fit(step: RLStep) -> Number:
    """Sequences that one copy of the weights holds at once, each with the longest length reserved (a whole number, 0 if
    none).

    Equation:
        floor(g (memory - resident) / bytes of a sequence).

    Args:
        step: an RLStep.

    Example:
        >>> from workloads.learning.rl.configuration import RLStep
        >>> sequences_that_fit(RLStep(completion=4096)), sequences_that_fit(RLStep(completion=500_000))
        (100, 0)
    """
    g = step.gpus_per_copy
    return memory.sequences_that_fit(g * step.memory_bytes, g * resident_bytes(step), sequence_bytes(step))


@formula
def smallest_copy(step_of: Callable[..., Any], gpus: Count) -> Count:
    """Least number of GPUs a copy of the weights with which one sequence fits, among those that divide the GPUs evenly;
    None if none does.

    Equation:
        min of the g with gpus mod g = 0 and sequences_that_fit >= 1.

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
    return next((g for g in range(1, gpus + 1) if gpus % g == 0 and sequences_that_fit(step_of(g)) >= 1), None)


@formula
def waves(step: RLStep) -> Count:
    """Equal batches, one after the other, into which memory splits the rollout (count).

    Equation:
        ceil(batch / sequences that fit); 1 where capacity is "ignored".

    Args:
        step: an RLStep.

    Raises:
        ValueError: where memory holds not even one sequence.

    Example:
        >>> from workloads.learning.rl.configuration import RLStep
        >>> waves(RLStep(completion=4096)), waves(RLStep(completion=16_384))
        (2, 6)
    """
    if step.capacity == "ignored":
        return 1
    return ceil(step.batch / positive(sequences_that_fit(step), "sequences that memory holds beside the weights"))


@formula
def overflow_length(step: RLStep, sequences: Count | None = None) -> Tokens:
    """Longest completion with which so many sequences still fit on a copy (tokens).

    Equation:
        (g (memory - resident) / (n kv_copies) - state) / kv - prompt.

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
    n = step.batch if sequences is None else positive(sequences, "sequences")
    room = step.gpus_per_copy * (step.memory_bytes - resident_bytes(step)) / (n * step.kv_copies)
    return (room - step.state_bytes) / positive(step.kv_bytes, "kv_bytes", "B/token") - step.prompt_tokens

"""Batches: tokens of an update, documents packed into sequences, the input pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from workloads import checks
from workloads.counts import flops
from workloads.numeric import Number
from workloads.times import taskgraph
from workloads.units import Count, Seconds, Tokens


# Batches
class UpdateTokens(NamedTuple):
    """Tokens of one update: read by the model, and counted in the loss."""

    inputs: int
    supervised: int


@checks.formula
def update_tokens(sequences: Count, length: Tokens, micro_batches: Count = 1, labels: Tokens | None = None) -> UpdateTokens:
    """Tokens that one parameter update processes, as `UpdateTokens`.

    Equation:
        a B P inputs and a B P_label supervised tokens.

    Args:
        sequences: B of a micro-batch.
        length: P (tokens).
        micro_batches: a, added up before the update.
        labels: supervised tokens of a sequence (all if left out).

    Raises:
        ValueError: for counts that are not whole, or more labels than tokens.

    Example:
        >>> update_tokens(2, 4096, micro_batches=8, labels=1024)
        UpdateTokens(inputs=65536, supervised=16384)
    """
    count = checks.whole(sequences, "sequences", least=1) * checks.whole(micro_batches, "micro_batches", least=1)
    length = checks.whole(length, "length", "tokens", least=1)
    labels = length if labels is None else checks.whole(labels, "labels", "tokens")
    checks.nonnegative(length - labels, "length - labels", "tokens")
    return UpdateTokens(count * length, count * labels)


@checks.formula
def document_pairs(lengths: Sequence[Tokens]) -> Number:
    """Causal query-key pairs of documents that share a sequence and do not see each other.

    Equation:
        sum of n (n + 1)/2 over the documents.

    Args:
        lengths: of the documents, one or more (tokens).

    Example:
        >>> document_pairs([4096, 4096]), document_pairs([7168, 1024])
        (16781312, 26218496)
    """
    return sum(flops.pairs(checks.whole(length, "length", "tokens", least=1)) for length in checks.some(lengths, "lengths"))


@checks.formula
def pack(lengths: Sequence[Tokens], capacity: Tokens) -> list[list[Number]]:
    """Documents packed into sequences, as a list of lists of lengths: each goes to the first sequence with room,
    longest first.

    Args:
        lengths: one or more (tokens).
        capacity: tokens of a sequence.

    Assumptions:
        first-fit decreasing, which needs at most 11/9 of the fewest possible sequences (plus 6/9).

    Raises:
        ValueError: for a document longer than a sequence.

    Example:
        >>> pack([700, 300, 600, 400], 1000)
        [[700, 300], [600, 400]]
    """
    sequences, capacity = [], checks.whole(capacity, "capacity", "tokens", least=1)
    for length in sorted((checks.whole(n, "length", "tokens", least=1) for n in checks.some(lengths, "lengths")), reverse=True):
        checks.nonnegative(capacity - length, "capacity - length", "tokens")
        # first fit: the oldest sequence with room, not the fullest
        room = next((s for s in sequences if sum(s) + length <= capacity), None)
        room.append(length) if room is not None else sequences.append([length])
    return sequences


class _Batch(NamedTuple):
    """When the input of one batch is prepared and when it is computed (`taskgraph.Interval`s, s)."""

    prepare: taskgraph.Interval
    compute: taskgraph.Interval


@checks.formula
def input_timeline(prepare_seconds: Sequence[Seconds], compute_seconds: Sequence[Seconds], buffers: Count = 2) -> tuple[_Batch, ...]:
    """Preparing the input of one batch while another is computed, a tuple of `_Batch`es.

    Equation:
        batch i is prepared once batch i - 1 is, and once batch i - buffers has been computed and left its buffer; it is
        computed once it is prepared and batch i - 1 is computed. With equal times and two buffers or more a batch takes
        max(prepare, compute) in the long run, with one buffer prepare + compute.

    Args:
        prepare_seconds: of each batch (s).
        compute_seconds: of each batch (s).
        buffers: whole number >= 1 (2: double buffering).

    Raises:
        ValueError: for lists of unequal length or none, or a negative time.

    Example:
        >>> [batch.compute for batch in input_timeline([3, 3, 3], [4, 4, 4])]
        [Interval(start=3, end=7), Interval(start=7, end=11), Interval(start=11, end=15)]
    """
    prepare, compute = checks.some(prepare_seconds, "prepare_seconds"), checks.some(compute_seconds, "compute_seconds")
    if len(prepare) != len(compute):
        raise ValueError(f"compute_seconds must hold as many values as prepare_seconds, {len(prepare)}, got {len(compute)}")
    buffers = checks.whole(buffers, "buffers", least=1)
    stages = []
    for i in range(len(prepare)):
        filled, emptied = [("prepare", i - 1), ("compute", i - buffers)], [("prepare", i), ("compute", i - 1)]
        stages += [
            taskgraph.Stage((kind, i), seconds, tuple(stage for stage in after if stage[1] >= 0))
            for kind, seconds, after in (("prepare", prepare[i], filled), ("compute", compute[i], emptied))
        ]
    windows = taskgraph.earliest(stages)
    return tuple(_Batch(windows["prepare", i], windows["compute", i]) for i in range(len(prepare)))

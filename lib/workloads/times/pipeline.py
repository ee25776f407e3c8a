"""Pipelines: the time in which a stage has nothing to do, by schedule."""

from __future__ import annotations

from ..checks import formula, multiple, nonnegative, one_of, positive, whole
from ..counts.layout import SCHEDULES
from ..units import Count, Seconds, Share


@formula
def bubble_seconds(
    stages: Count, micro_batches: Count, forward: Seconds, backward: Seconds, schedule: str = "1f1b", chunks: Count = 1
) -> Seconds:
    """Time that each stage of a pipeline waits in a step of training (s).

    Equation:
        (p - 1)(f + b) in "gpipe" and "1f1b", which differ in what they hold, not in time; (p - 1)(f + b)/v
        "interleaved"; (p - 1) f "zero-bubble", which puts the products for weights, half of b, off into the gaps.

    Args:
        stages: p.
        micro_batches: m; a multiple of the stages where they are interleaved.
        forward: f, of one micro-batch through one stage (s).
        backward: b, the same (s); 0 for a pass without training.
        schedule: "gpipe", "1f1b", "interleaved" or "zero-bubble" (ZB-H1, which holds as much as "1f1b").
        chunks: v, parts of the model on each stage, in the "interleaved" schedule.

    Assumptions:
        Equal stages and messages that take no time. "zero-bubble" as long as m is at least p and b twice f, else it may
        wait longer.

    Source:
        Huang et al. 2019; Narayanan et al. 2021; Qi et al. 2023.

    Example:
        >>> bubble_seconds(8, 32, forward=1, backward=2), bubble_seconds(8, 32, 1, 2, "interleaved", chunks=3)
        (21.0, 7.0)
    """
    stages, micro_batches = whole(stages, "stages", least=1), positive(micro_batches, "micro_batches")
    parts = whole(chunks, "chunks", least=1, most=None if one_of(schedule, "schedule", SCHEDULES) == "interleaved" else 1)
    forward, backward = nonnegative(forward, "forward", "s"), nonnegative(backward, "backward", "s")
    if parts > 1:
        multiple(micro_batches, stages, "micro_batches, where stages are interleaved,")
    return (stages - 1) * (forward if schedule == "zero-bubble" else (forward + backward) / parts)


@formula
def bubble_share(
    stages: Count, micro_batches: Count, forward: Seconds = 1, backward: Seconds = 2, schedule: str = "1f1b", chunks: Count = 1
) -> Share:
    """Share of a pipelined step in which a stage waits: its bubble over the whole.

    Equation:
        bubble / (m (f + b) + bubble): (p - 1)/(m + p - 1) for "gpipe" and "1f1b".

    Args:
        stages: p.
        micro_batches: m.
        forward: f, of one micro-batch through one stage (s).
        backward: b, the same (s).
        schedule: as in `bubble_seconds`.
        chunks: v, as there.

    Source:
        As `bubble_seconds`.

    Example:
        >>> round(bubble_share(8, 32), 4), bubble_share(8, 32) == bubble_share(8, 32, schedule="gpipe")
        (0.1795, True)
    """
    waits = bubble_seconds(stages, micro_batches, forward, backward, schedule, chunks)
    return waits / (micro_batches * positive(forward + backward, "forward + backward", "s") + waits)

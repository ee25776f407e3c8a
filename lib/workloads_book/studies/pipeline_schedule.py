"""Schedules of a pipeline, piece by piece: each stage works off its list, each piece waits for what it needs.

The orders are those of the papers; when a piece starts is not written into them but follows. `times.pipeline` has the formulas.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from workloads.checks import MANY, between, formula, keep, multiple, nonnegative, one_of, positive, some, whole
from workloads.counts.layout import SCHEDULES
from workloads.units import Count, Seconds, Share


@dataclass(frozen=True)
class Work:
    """A piece of work: its stage, "F" forward, "B" backward or "W" gradients of weights, micro-batch and chunk, all from 0; start
    and end (s).

    Example:
        >>> Work(0, "F", 0, 0, 1.0, 2.0).end
        2.0
    """

    stage: Count
    kind: str
    micro_batch: Count
    chunk: Count
    start: Seconds
    end: Seconds

    def __post_init__(self):
        keep(self, whole, "", "stage", "micro_batch", "chunk")
        one_of(self.kind, "kind", ("F", "B", "W"))
        keep(self, nonnegative, "s", "start", "end")


def _gpipe(p, m):
    return [[("F", i, 0) for i in range(m)] + [("B", i, 0) for i in reversed(range(m))] for _ in range(p)]


def _one_forward_one_backward(p, m):
    orders = []
    for s in range(p):
        ahead = min(m, p - 1 - s)
        order = [("F", i, 0) for i in range(ahead)]
        for i in range(m - ahead):
            order += [("F", ahead + i, 0), ("B", i, 0)]
        orders.append(order + [("B", i, 0) for i in range(m - ahead, m)])
    return orders


def _interleaved(p, m, v):
    """Megatron's order: groups of p micro-batches pass chunk after chunk."""
    turn = lambda k, back: ((k // (p * v)) * p + k % p, (v - 1 - k // p % v) if back else k // p % v)
    orders = []
    for s in range(p):
        ahead = min(m * v, 2 * (p - 1 - s) + (v - 1) * p)
        order = [("F", *turn(k, False)) for k in range(ahead)]
        for k in range(m * v - ahead):
            order += [("F", *turn(ahead + k, False)), ("B", *turn(k, True))]
        orders.append(order + [("B", *turn(k, True)) for k in range(m * v - ahead, m * v)])
    return orders


def _weights_put_off(p, m):
    """Stage s puts its weight gradients off by s micro-batches, and holds p of them at most (ZB-H1)."""
    orders = []
    for s in range(p):
        order = [("F", i, 0) for i in range(min(m, p - s))]
        for i in range(m):
            order.append(("B", i, 0))
            order += [("W", i - s, 0)] * (i >= s) + [("F", p - s + i, 0)] * (p - s + i < m)
        orders.append(order + [("W", i, 0) for i in range(max(0, m - s), m)])
    return orders


def _needed(kind, m, s, c, stages, chunks):
    """What a piece waits for: a forward for the one before it in the model, a backward for its forward and the backward behind it, a
    weight gradient for its own backward.
    """
    if kind == "F":
        return [("F", m, s - 1, c) if s else ("F", m, stages - 1, c - 1)] if s or c else []
    if kind == "W":
        return [("B", m, s, c)]
    behind = [("B", m, s + 1, c) if s + 1 < stages else ("B", m, 0, c + 1)] if s + 1 < stages or c + 1 < chunks else []
    return [("F", m, s, c), *behind]


@formula
def schedule_work(
    stages: Count, micro_batches: Count, forward: Seconds = 1, backward: Seconds = 2, schedule: str = "1f1b", chunks: Count = 1
) -> tuple[Work, ...]:
    """Every piece of work of a pipelined step with its time, stage after stage in the order of the schedule.

    Args:
        stages: p.
        micro_batches: m; a multiple of the stages where they are interleaved.
        forward: f, of one micro-batch through one stage (s).
        backward: b, the same (s); half of it for the weights in "zero-bubble".
        schedule: as in `pipeline.bubble_seconds`.
        chunks: v, parts of the model on each stage, in the "interleaved" schedule.

    Assumptions:
        Equal stages; messages that take no time.

    Source:
        Huang et al. 2019; Narayanan et al. 2021; Qi et al. 2023.

    Example:
        >>> [(w.kind, w.micro_batch, w.start, w.end) for w in schedule_work(2, 2) if w.stage == 0]
        [('F', 0, 0.0, 1.0), ('F', 1, 1.0, 2.0), ('B', 0, 4.0, 6.0), ('B', 1, 7.0, 9.0)]
    """
    p, m = int(whole(stages, "stages", least=1)), int(whole(micro_batches, "micro_batches", least=1))
    v = int(whole(chunks, "chunks", least=1, most=None if one_of(schedule, "schedule", SCHEDULES) == "interleaved" else 1))
    f, b = float(nonnegative(forward, "forward", "s")) / v, float(nonnegative(backward, "backward", "s")) / v
    if v > 1:
        multiple(m, p, "micro_batches, where stages are interleaved,")
    between(p * m * v, 1, MANY, "pieces of work", "")
    plain = {"gpipe": _gpipe, "1f1b": _one_forward_one_backward, "zero-bubble": _weights_put_off}
    orders = _interleaved(p, m, v) if v > 1 else plain["1f1b" if schedule == "interleaved" else schedule](p, m)
    takes = {"F": f, "B": b / 2 if schedule == "zero-bubble" else b, "W": b / 2}
    ended, done = {}, [[] for _ in orders]
    while any(len(work) < len(order) for work, order in zip(done, orders)):
        for s, (work, order) in enumerate(zip(done, orders)):
            while len(work) < len(order):
                kind, i, c = order[len(work)]
                needed = _needed(kind, i, s, c, p, v)
                if not all(piece in ended for piece in needed):
                    break
                start = max([work[-1].end if work else 0.0, *(ended[piece] for piece in needed)])
                work.append(Work(s, kind, i, c, start, start + takes[kind]))
                ended[kind, i, s, c] = start + takes[kind]
    return tuple(piece for work in done for piece in work)


@formula
def idle_share(work: Sequence[Work]) -> Share:
    """Share of a pipelined step in which its stages wait, counted in a schedule.

    Equation:
        1 - work of all stages / (stages x end of all work).

    Args:
        work: of `schedule_work`.

    Example:
        >>> from workloads.times.pipeline import bubble_share
        >>> round(idle_share(schedule_work(8, 32)), 4) == round(bubble_share(8, 32), 4)
        True
        >>> few = 4, 2, 1, 2, "zero-bubble"  # fewer micro-batches than stages
        >>> idle_share(schedule_work(*few)) > bubble_share(*few)
        True
    """
    some(work, "work", "piece")
    end = positive(max(piece.end for piece in work), "end of all work", "s")
    return 1 - sum(piece.end - piece.start for piece in work) / (end * (1 + max(piece.stage for piece in work)))


@formula
def most_held(work: Sequence[Work]) -> tuple[Count, ...]:
    """Chunks of micro-batches that each stage holds at most, from their forward to the piece that frees them: the gradients of weights
    where they are put off, else the backward.

    Args:
        work: of `schedule_work`.

    Example:
        >>> most_held(schedule_work(4, 8)), most_held(schedule_work(4, 8, schedule="gpipe"))
        ((4, 3, 2, 1), (8, 8, 8, 8))
    """
    stages, freed = 1 + max(piece.stage for piece in some(work, "work", "piece")), "W" if any(piece.kind == "W" for piece in work) else "B"
    held, most = [0] * stages, [0] * stages
    for piece in work:
        held[piece.stage] += (piece.kind == "F") - (piece.kind == freed)
        most[piece.stage] = max(most[piece.stage], held[piece.stage])
    return tuple(most)

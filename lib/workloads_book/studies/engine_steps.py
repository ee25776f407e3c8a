"""An engine step by step, to look at: who runs, who waits, whose each KV block is, what a step computed and whom it threw out.

The states are those of `simulation_steps`, written down as its loop has them before the tokens of a step come out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from workloads.checks import formula
from workloads.serving.arrivals import Arrival
from workloads.serving.engine import Engine
from workloads.serving.step_seconds import TICKS, StepTime
from workloads.units import Count, Seconds

from .simulation_steps import _walk


@dataclass(frozen=True)
class EngineStep:
    """One step of an engine. Requests are named by their places in the load.

    Attributes:
        computed: of each request in the step, in the order of the list, (place, tokens, whether it was within its known tokens).
        entered: that came in from the queue.
        preempted: (place, tokens computed in vain), in the order in which they were thrown out.
        waiting: the queue, front first.
        returned: that return a token at the end.
        ended: whose token is the last.
        blocks: whose each KV block is, by its number: the places that use it.
        why: the front of the queue stays out: "preemption", "seats", "budget", "blocks", or "" with an empty queue.
        start: of the step (s).
        end: of the step, when its tokens come out (s).

    Example:
        >>> EngineStep(((0, 8, True),), (0,), (), (1,), (0,), (), ((0,), ()), "blocks", start=0, end=1).used
        1
    """

    computed: tuple
    entered: tuple
    preempted: tuple
    waiting: tuple
    returned: tuple
    ended: tuple
    blocks: tuple
    why: str
    start: Seconds
    end: Seconds

    @property
    def used(self) -> Count:
        """KV blocks in use."""
        return sum(map(bool, self.blocks))


@formula
def every_step(load: Sequence[Arrival], engine: Engine, step_time: StepTime) -> tuple[EngineStep, ...]:
    """Every step of `simulation_steps.serve_stepwise`, as one looks at it.

    Args:
        load: a sequence of `arrivals.Arrival` in order of time.
        engine: an `Engine`.
        step_time: a `step_seconds.StepTime`.

    Raises:
        ValueError: as `simulation_steps.serve_stepwise`.

    Example:
        >>> from workloads.counts.request_tokens import Request
        >>> from workloads.facts.accelerators import Accelerator
        >>> from workloads.times.machine import Machine
        >>> second_a_token = StepTime(1, 0, 0, 0, 0, 0, Machine(Accelerator("one FLOP a second", 1, 1, {"bf16": 1})))
        >>> load = [Arrival(0, Request(4, 2)), Arrival(0, Request(2, 1))]
        >>> [(s.end, s.computed, s.waiting, s.why) for s in every_step(load, Engine(blocks=1, max_num_seqs=1), second_a_token)]
        [(4.0, ((0, 4, True),), (1,), 'seats'), (5.0, ((0, 1, False),), (1,), 'seats'), (7.0, ((1, 2, True),), (), '')]
    """
    steps = []

    def look(times, planned, victims, entered, running, waiting):
        start, end = times
        holders = [[] for _ in range(engine.blocks)]
        for row in running:
            for block in row.blocks:
                holders[block].append(row.place)
        steps.append(
            EngineStep(
                tuple((row.place, new, row.computed - new < row.target) for row, new in planned),
                tuple(row.place for row in entered),
                tuple((row.place, lost) for row, lost in victims),
                tuple(row.place for row in waiting),
                tuple(row.place for row, _ in planned if row.computed == row.known),
                tuple(row.place for row, _ in planned if row.computed == row.known == row.end - 1),
                tuple(map(tuple, holders)),
                _why(engine, planned, victims, running) if waiting else "",
                start / TICKS,
                end / TICKS,
            )
        )

    _walk(load, engine, step_time, look)
    return tuple(steps)


def _why(engine, planned, victims, running):
    """What keeps the front of a queue out: the first of the scheduler's conditions that does not hold."""
    if victims:
        return "preemption"
    if len(running) >= engine.max_num_seqs:
        return "seats"
    return "budget" if sum(new for _, new in planned) == engine.max_num_batched_tokens else "blocks"

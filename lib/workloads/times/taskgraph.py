"""Tasks as dependency graphs: when each stage can run, the path that decides, what faster or parallel stages save.

A task is a sequence of `Stage`s; a stage starts when every stage named in ``after`` has ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from typing import Any, NamedTuple

from .. import checks
from ..numeric import Number, total
from ..units import Count, Seconds


@dataclass(frozen=True)
class Stage:
    """One step of a task: a name, its seconds, the names of the stages it waits for.

    Example:
        >>> Stage("test", 6, after=("model",)).after
        ('model',)
    """

    name: str
    seconds: Seconds
    after: tuple = ()

    def __post_init__(self):
        checks.keep(self, checks.nonnegative, "s", "seconds", of=f" of stage {self.name!r}")
        if isinstance(self.after, str):
            raise ValueError(f"after of stage {self.name!r} must be a tuple of names, got {self.after!r}")
        object.__setattr__(self, "after", tuple(self.after))


class Interval(NamedTuple):
    """Start and end of a stage, in seconds from the start of the task."""

    start: Seconds
    end: float


@checks.formula
def chain(*stages: Stage) -> tuple[Stage, ...]:
    """The stages one after another, each waiting for the one before it; their own ``after`` is replaced.

    Args:
        *stages: Stages.

    Example:
        >>> [s.after for s in chain(Stage("plan", 2), Stage("test", 6))]
        [(), ('plan',)]
    """
    before = ((), *((s.name,) for s in stages))
    return tuple(replace(stage, after=after) for stage, after in zip(stages, before))


@checks.formula
def ordered(stages: Sequence[Stage]) -> tuple[Stage, ...]:
    """The stages in an order that respects every dependency.

    Args:
        stages: a sequence of `Stage`.

    Returns:
        Tuple of Stage.

    Raises:
        ValueError: for an empty task, a name used twice, a dependency that does not exist, or a cycle.

    Source:
        Topological sort (`graphlib`).

    Example:
        >>> [s.name for s in ordered([Stage("b", 1, ("a",)), Stage("a", 2)])]
        ['a', 'b']
    """
    named = {s.name: s for s in stages}
    if not named or len(named) != len(stages):
        raise ValueError(f"stages must be one or more with names used once, got {[s.name for s in stages]!r}")
    for stage in stages:
        for name in stage.after:
            checks.one_of(name, f"after of stage {stage.name!r}", tuple(named))
    try:
        return tuple(named[name] for name in TopologicalSorter({s.name: s.after for s in stages}).static_order())
    except CycleError as error:
        raise ValueError(f"stages must not wait for each other in a cycle, got {' -> '.join(error.args[1])}") from None


@checks.formula
def earliest(stages: Sequence[Stage]) -> dict[Any, Interval]:
    """Interval of every stage when each starts as soon as it may (s), a dict of name to `Interval`.

    Equation:
        start = largest end among the stages waited for (0 without any); end = start + seconds.

    Args:
        stages: a sequence of `Stage`.

    Assumptions:
        Nothing else limits a start: as many tools and models as the graph allows at once.

    Raises:
        ValueError: as `ordered` does.

    Source:
        Critical path method (Kelley and Walker 1959), forward pass.

    Example:
        >>> earliest([Stage("a", 2), Stage("b", 6, ("a",))])["b"]
        Interval(start=2, end=8)
    """
    intervals = {}
    for stage in ordered(stages):
        start = max((intervals[name].end for name in stage.after), default=0)
        intervals[stage.name] = Interval(start, start + stage.seconds)
    return intervals


@checks.formula
def span(stages: Sequence[Stage]) -> Seconds:
    """Shortest time in which the task can end (s): the length of its longest path.

    Args:
        stages: a sequence of `Stage`.

    Source:
        Critical path method, forward pass; see `earliest`.

    Example:
        >>> span(
        ...     [Stage("model", 2), Stage("a", 6, ("model",)), Stage("b", 10, ("model",)), Stage("end", 3, ("a", "b"))]
        ... )
        15
    """
    return max(interval.end for interval in earliest(stages).values())


@checks.formula
def work(stages: Sequence[Stage]) -> Seconds:
    """Time of all stages together (s): what one executor alone would need.

    Args:
        stages: a sequence of `Stage`.

    Example:
        >>> work([Stage("a", 6), Stage("b", 10)])
        16
    """
    return total(stage.seconds for stage in ordered(stages))


def _latest(stages):
    """Start of every stage when each starts as late as it may: the end is the smallest start that waits for it, else the span."""
    end, ends, starts = span(stages), {}, {}
    for stage in reversed(ordered(stages)):
        starts[stage.name] = ends.get(stage.name, end) - stage.seconds
        for name in stage.after:
            ends[name] = min(ends.get(name, end), starts[stage.name])
    return starts


@checks.formula
def slack(stages: Sequence[Stage]) -> dict[str, Seconds]:
    """Time by which each stage may slip without delaying the task (s), a dict by name.

    Equation:
        latest start less earliest start; 0 on every critical path, but for the rounding of floats.

    Args:
        stages: a sequence of `Stage`.

    Source:
        Critical path method.

    Example:
        >>> slack([Stage("a", 6), Stage("b", 10)])
        {'a': 4, 'b': 0}
    """
    late, early = _latest(stages), earliest(stages)
    return {stage.name: late[stage.name] - early[stage.name].start for stage in stages}


@checks.formula
def critical_path(stages: Sequence[Stage]) -> tuple[str, ...]:
    """Names along one longest path, from first to last stage. With several of equal length, one of them.

    Args:
        stages: a sequence of `Stage`.

    Source:
        Critical path method, followed back from the stage that ends last.

    Example:
        >>> critical_path([Stage("model", 2), Stage("a", 6, ("model",)), Stage("b", 10, ("model",))])
        ('model', 'b')
    """
    intervals, named = earliest(stages), {s.name: s for s in stages}
    path = [max(intervals, key=lambda name: intervals[name].end)]
    while named[path[0]].after:
        path.insert(0, max(named[path[0]].after, key=lambda name: intervals[name].end))
    return tuple(path)


@checks.formula
def executor_bounds(stages: Sequence[Stage], executors: Count) -> tuple[Seconds, Seconds]:
    """Least and most time that any greedy schedule on so many equal executors can take (s), a pair.

    Equation:
        max(span, work/m) <= time <= span + (work - span)/m.

    Args:
        stages: a sequence of `Stage`.
        executors: m, whole number >= 1.

    Assumptions:
        Greedy, that is, no executor idles while a stage is ready.

    Raises:
        ValueError: for fewer than one executor.

    Source:
        Graham 1966; Brent 1974.

    Example:
        >>> executor_bounds([Stage("a", 6), Stage("b", 10)], 2)
        (10, 13.0)
    """
    m, length, seconds = checks.whole(executors, "executors", least=1), span(stages), work(stages)
    return max(length, seconds / m), length + (seconds - length) / m


@checks.formula
def faster(stages: Sequence[Stage], factor: Number, *names: str) -> tuple[Stage, ...]:
    """The same task with the named stages running ``factor`` times as fast.

    Args:
        stages: a sequence of `Stage`.
        factor: above 0.
        *names: of stages.

    Raises:
        ValueError: for a factor that is not above 0 or a name that is no stage.

    Example:
        >>> span(faster([Stage("a", 6), Stage("b", 10)], 2, "b"))
        6
    """
    checks.positive(factor, "factor")
    for name in names:
        checks.one_of(name, "name", {s.name for s in stages})
    return tuple(replace(s, seconds=s.seconds / factor) if s.name in names else s for s in stages)


@checks.formula
def kept_seconds(stages: Sequence[Stage], *names: str) -> Seconds:
    """Time in which at least one of the named stages runs (s), each starting as early as it may.

    Equation:
        length of the union of their intervals. Times the bytes kept meanwhile it is the area that state takes (byte s).

    Args:
        stages: a sequence of `Stage`.
        *names: of stages.

    Raises:
        ValueError: for a name that is no stage.

    Example:
        >>> kept_seconds([Stage("a", 6), Stage("b", 10)], "a", "b")
        10
    """
    intervals, seconds, until = earliest(stages), 0, 0
    for start, end in sorted(intervals[checks.one_of(name, "name", intervals)] for name in names):
        seconds += max(0, end - max(start, until))
        until = max(until, end)
    return seconds

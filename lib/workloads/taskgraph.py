"""Tasks as dependency graphs: when each stage can run, the path that decides, what faster or parallel stages save.

A task is a sequence of `Stage`s; a stage starts when every stage named in ``after`` has ended.
"""
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

from . import domain
from .generic import total


@dataclass(frozen=True)
class Stage:
    """One step of a task: a name, its seconds, the names of the stages it waits for.

    >>> Stage("test", 6, after=("model",)).after
    ('model',)
    """

    name: str
    seconds: float
    after: tuple = ()

    def __post_init__(self):
        domain.keep(self, domain.nonnegative, "s", "seconds", of=f" of stage {self.name!r}")
        if isinstance(self.after, str):
            raise ValueError(f"after of stage {self.name!r} must be a tuple of names, got {self.after!r}")
        object.__setattr__(self, "after", tuple(self.after))


class Interval(NamedTuple):
    """Start and end of a stage, in seconds from the start of the task."""

    start: float
    end: float


@domain.formula
def chain(*stages):
    """The stages one after another, each waiting for the one before it; their own ``after`` is replaced.

    >>> [s.after for s in chain(Stage("plan", 2), Stage("test", 6))]
    [(), ('plan',)]
    """
    before = ((), *((s.name,) for s in stages))
    return tuple(replace(stage, after=after) for stage, after in zip(stages, before))


@domain.formula
def ordered(stages):
    """The stages in an order that respects every dependency.

    Parameters: stages, a sequence of `Stage`. Returns: tuple of Stage.
    Raises: ValueError for an empty task, a name used twice, a dependency that does not exist, or a cycle.

    >>> [s.name for s in ordered([Stage("b", 1, ("a",)), Stage("a", 2)])]
    ['a', 'b']

    Source: topological sort (`graphlib`).
    """
    named = {s.name: s for s in stages}
    if not named or len(named) != len(stages):
        raise ValueError(f"stages must be one or more with names used once, got {[s.name for s in stages]!r}")
    for stage in stages:
        for name in stage.after:
            domain.one_of(name, f"after of stage {stage.name!r}", tuple(named))
    try:
        return tuple(named[name] for name in TopologicalSorter({s.name: s.after for s in stages}).static_order())
    except CycleError as error:
        raise ValueError(f"stages must not wait for each other in a cycle, got {' -> '.join(error.args[1])}") from None


@domain.formula
def earliest(stages):
    """Interval of every stage when each starts as soon as it may (s), a dict of name to `Interval`.

    Equation: start = largest end among the stages waited for (0 without any); end = start + seconds.
    Assumptions: nothing else limits a start: as many tools and models as the graph allows at once.
    Raises: ValueError as `ordered` does.

    >>> earliest([Stage("a", 2), Stage("b", 6, ("a",))])["b"]
    Interval(start=2, end=8)

    Source: critical path method (Kelley and Walker 1959), forward pass.
    """
    intervals = {}
    for stage in ordered(stages):
        start = max((intervals[name].end for name in stage.after), default=0)
        intervals[stage.name] = Interval(start, start + stage.seconds)
    return intervals


@domain.formula
def span(stages):
    """Shortest time in which the task can end (s): the length of its longest path.

    >>> span([Stage("model", 2), Stage("a", 6, ("model",)), Stage("b", 10, ("model",)), Stage("end", 3, ("a", "b"))])
    15

    Source: critical path method, forward pass; see `earliest`.
    """
    return max(interval.end for interval in earliest(stages).values())


@domain.formula
def work(stages):
    """Time of all stages together (s): what one executor alone would need.

    >>> work([Stage("a", 6), Stage("b", 10)])
    16
    """
    return total(stage.seconds for stage in ordered(stages))


@domain.formula
def latest(stages):
    """Interval of every stage when each starts as late as it may without delaying the task (s), a dict of name to `Interval`.

    Equation: end = smallest start among the stages that wait for it (the span without any); start = end - seconds.
    Raises: ValueError as `ordered` does.

    >>> latest([Stage("a", 6), Stage("b", 10)])["a"]
    Interval(start=4, end=10)

    Source: critical path method, backward pass.
    """
    end, ends, intervals = span(stages), {}, {}
    for stage in reversed(ordered(stages)):
        intervals[stage.name] = Interval(ends.get(stage.name, end) - stage.seconds, ends.get(stage.name, end))
        for name in stage.after:
            ends[name] = min(ends.get(name, end), intervals[stage.name].start)
    return intervals


@domain.formula
def slack(stages):
    """Time by which each stage may slip without delaying the task (s), a dict by name.

    Equation: latest start less earliest start; 0 on every critical path, but for the rounding of floats.

    >>> slack([Stage("a", 6), Stage("b", 10)])
    {'a': 4, 'b': 0}

    Source: critical path method.
    """
    late, early = latest(stages), earliest(stages)
    return {stage.name: late[stage.name].start - early[stage.name].start for stage in stages}


@domain.formula
def critical_path(stages):
    """Names along one longest path, from first to last stage. With several of equal length, one of them.

    >>> critical_path([Stage("model", 2), Stage("a", 6, ("model",)), Stage("b", 10, ("model",))])
    ('model', 'b')

    Source: critical path method, followed back from the stage that ends last.
    """
    intervals, named = earliest(stages), {s.name: s for s in stages}
    path = [max(intervals, key=lambda name: intervals[name].end)]
    while named[path[0]].after:
        path.insert(0, max(named[path[0]].after, key=lambda name: intervals[name].end))
    return tuple(path)


@domain.formula
def executor_bounds(stages, executors):
    """Least and most time that any greedy schedule on so many equal executors can take (s), a pair.

    Equation: max(span, work/m) <= time <= span + (work - span)/m.
    Parameters: stages; executors m, whole number >= 1.
    Assumptions: greedy, that is, no executor idles while a stage is ready.
    Raises: ValueError for fewer than one executor.

    >>> executor_bounds([Stage("a", 6), Stage("b", 10)], 2)
    (10, 13.0)

    Source: Graham 1966; Brent 1974.
    """
    m, length, seconds = domain.whole(executors, "executors", least=1), span(stages), work(stages)
    return max(length, seconds / m), length + (seconds - length) / m


@domain.formula
def faster(stages, factor, *names):
    """The same task with the named stages running ``factor`` times as fast.

    Raises: ValueError for a factor that is not above 0 or a name that is no stage.

    >>> span(faster([Stage("a", 6), Stage("b", 10)], 2, "b"))
    6
    """
    domain.positive(factor, "factor")
    for name in names:
        domain.one_of(name, "name", {s.name for s in stages})
    return tuple(replace(s, seconds=s.seconds / factor) if s.name in names else s for s in stages)


@domain.formula
def kept_seconds(stages, *names):
    """Time in which at least one of the named stages runs (s), each starting as early as it may.

    Equation: length of the union of their intervals. Times the bytes kept meanwhile it is the area that state takes (byte s).
    Raises: ValueError for a name that is no stage.

    >>> kept_seconds([Stage("a", 6), Stage("b", 10)], "a", "b")
    10
    """
    intervals, seconds, until = earliest(stages), 0, 0
    for start, end in sorted(intervals[domain.one_of(name, "name", intervals)] for name in names):
        seconds += max(0, end - max(start, until))
        until = max(until, end)
    return seconds

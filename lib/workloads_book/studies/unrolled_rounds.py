"""Rounds of reinforcement learning one by one: who waits for whom, how old samples are when they are learned from, what may overlap.

`round_schedule` gives the pace of many rounds in closed form; this walks through them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from workloads import checks
from workloads.times import taskgraph
from workloads.times.taskgraph import Stage
from workloads.units import Count

from .round_schedule import CARRIED, Role, _writers, round_graph


@checks.formula
def unrolled(roles: Sequence[Role], rounds: Count, staleness: Count = 0) -> tuple[Stage, ...]:
    """Several rounds as one task graph; a role of round k (0, 1, ...) is the stage "name k".

    A stage waits for the writers of its data, for the same role's work on the round before, and, if it reads the
    generating weights, for those that round k - 1 - staleness wrote.

    Args:
        roles: sequence of `Role`.
        rounds: number of them.
        staleness: updates that a batch may lag behind (0: synchronous).

    Returns:
        Tuple of `taskgraph.Stage`; `taskgraph.earliest` makes it a schedule.

    Assumptions:
        Each role has machines of its own and takes the rounds in turn (roles that share machines are one role); batches
        are handed on whole.

    Raises:
        ValueError: as `round_graph`, and unless rounds >= 1 and staleness >= 0 are whole.

    Example:
        >>> loop = Role("rollout", 5, (CARRIED,), ("responses",)), Role("learner", 3, ("responses",), (CARRIED,))
        >>> taskgraph.span(unrolled(loop, 10)), taskgraph.span(unrolled(loop, 10, staleness=1))
        (80, 53)
    """
    rounds, staleness = (checks.whole(rounds, "rounds", least=1, most=10**5), checks.whole(staleness, "staleness", "updates"))
    graph, writer = round_graph(roles), _writers(roles)[CARRIED]
    readers = {role.name for role in roles if CARRIED in role.reads}

    def after(stage: Stage, k: int) -> Iterator[str]:
        yield from (f"{name} {k}" for name in stage.after)
        if k >= 1:
            yield f"{stage.name} {k - 1}"
        if stage.name in readers and k >= 1 + staleness:
            yield f"{writer} {k - 1 - staleness}"

    stage = lambda s, k: Stage(f"{s.name} {k}", s.seconds, tuple(dict.fromkeys(after(s, k))))
    return tuple(stage(s, k) for k in range(rounds) for s in graph)


@checks.formula
def lags(roles: Sequence[Role], rounds: Count, staleness: Count = 0) -> tuple[Count, ...]:
    """By how many updates each round's samples are behind when they are learned from (updates), one number a round.

    Round k is the update number k; its samples came from the newest weights that had arrived when its generation began,
    at most `staleness` updates behind. Lag: k less the updates in those weights.

    Args:
        roles: as in `unrolled`.
        rounds: number of them.
        staleness: updates that a batch may lag behind (0: synchronous).

    Assumptions:
        As in `unrolled`. With several roles that read the weights, the oldest counts.

    Raises:
        ValueError: as in `unrolled`.

    Example:
        >>> lags(
        ...     (Role("rollout", 5, (CARRIED,), ("responses",)), Role("learner", 3, ("responses",), (CARRIED,))),
        ...     5,
        ...     staleness=3,
        ... )
        (0, 1, 1, 1, 1)
    """
    rounds = checks.whole(rounds, "rounds", least=1)
    windows, writer = taskgraph.earliest(unrolled(roles, rounds, staleness)), _writers(roles)[CARRIED]
    starts = [min(windows[f"{role.name} {k}"].start for role in roles if CARRIED in role.reads) for k in range(rounds)]
    arrived = lambda moment, k: sum(windows[f"{writer} {j}"].end <= moment for j in range(k))
    return tuple(k - arrived(start, k) for k, start in enumerate(starts))


@checks.formula
def may_overlap(roles: Sequence[Role], staleness: Count = 0) -> tuple[tuple[str, str], ...]:
    """Pairs (role on a round, role on the next round) that may run at the same time, whatever their seconds.

    Neither waits, directly or through others, for the other.

    Args:
        roles: sequence of `Role`.
        staleness: updates by which the weights of a round may be behind.

    Returns:
        Tuple of pairs of names, in the order of the roles.

    Raises:
        ValueError: as `unrolled`.

    Example:
        >>> loop = Role("rollout", 5, (CARRIED,), ("responses",)), Role("learner", 3, ("responses",), (CARRIED,))
        >>> may_overlap(loop), may_overlap(loop, staleness=1)
        ((), (('learner', 'rollout'),))
    """
    before = {}
    for stage in taskgraph.ordered(unrolled(roles, 2, staleness)):
        before[stage.name] = set(stage.after).union(*(before[name] for name in stage.after))
    return tuple((a.name, b.name) for a in roles for b in roles if f"{a.name} 0" not in before[f"{b.name} 1"])

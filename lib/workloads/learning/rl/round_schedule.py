"""The cycle of reinforcement learning: roles and their data, rounds that overlap, staleness.

What one round costs in FLOPs, bytes and seconds is in `phases`; which stage waits for which is `taskgraph`. This module
joins the two: a `Role` reads and writes data and works for some seconds on each round. One piece of data, the weights
that generate, is written at the end of a round and read by a later one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ... import checks
from ...times import taskgraph
from ...times.taskgraph import Stage
from ...units import Count, Seconds
from .phases import Breakdown

CARRIED = "generating weights"  # what one round hands to a later one


# -------------------------------------------------------------------------------------------------- roles and one round
@dataclass(frozen=True)
class Role:
    """One party of the cycle: its name, its seconds for one round, the names of the data it reads and writes.

    Data that no role writes (prompts, a dataset) come from outside.

    Raises:
        ValueError: for negative seconds or a name that is a single string where a tuple is due.

    Example:
        >>> Role("reward", 6, ("responses",), ("rewards",)).writes
        ('rewards',)
    """

    name: str
    seconds: Seconds
    reads: tuple = ()
    writes: tuple = ()

    def __post_init__(self):
        checks.keep(self, checks.nonnegative, "s", "seconds", of=f" of role {self.name!r}")
        for field in ("reads", "writes"):
            names = getattr(self, field)
            if isinstance(names, str):
                raise ValueError(f"{field} of role {self.name!r} must be a tuple of names, got {names!r}")
            object.__setattr__(self, field, tuple(names))


def _writers(roles):
    """{data: name of the role that writes it}; data with two writers, or no role that reads or writes the carried
    weights, is an error.
    """
    names = [role.name for role in roles]
    written = [data for role in roles for data in role.writes]
    for what, found in (("names of roles", names), ("data that roles write", written)):
        if len(set(found)) != len(found):
            raise ValueError(f"{what} must differ, got {found!r}")
    checks.one_of(CARRIED, "data of the cycle", written)
    checks.one_of(CARRIED, "data of the cycle", [data for role in roles for data in role.reads])
    return {data: role.name for role in roles for data in role.writes}


@checks.formula
def round_graph(roles: Sequence[Role]) -> tuple[Stage, ...]:
    """One round as a task graph: each role a `taskgraph.Stage` that waits for the writers of what it reads.

    The generating weights make the whole a cycle. They come from an earlier round, so within a round nobody waits for
    them.

    Args:
        roles: sequence of `Role`.

    Returns:
        Tuple of Stage.

    Raises:
        ValueError: for two roles of one name, data with two writers, or a cycle that the generating weights do not
            close.

    Example:
        >>> loop = Role("rollout", 5, (CARRIED,), ("responses",)), Role("learner", 3, ("responses",), (CARRIED,))
        >>> [stage.after for stage in round_graph(loop)]
        [(), ('rollout',)]
    """
    writers = _writers(roles)
    after = lambda role: (writers[data] for data in role.reads if data in writers and data != CARRIED)
    return tuple(Stage(role.name, role.seconds, tuple(dict.fromkeys(after(role)))) for role in roles)


@checks.formula
def step_roles(result: Breakdown, reward_seconds: Seconds = 0, sync_seconds: Seconds = 0) -> tuple[Role, ...]:
    """Roles of an RL step with machines of their own for sampling and learning: rollout, reward, learner, weight
    transfer.

    Args:
        result: a `phases.Breakdown`.
        reward_seconds: of checking all responses (s).
        sync_seconds: of bringing new weights to the generating replicas (s). The learner's log-probability passes and
            update share its GPUs and are one role.

    Returns:
        Tuple of Role.

    Raises:
        ValueError: where the step already holds other_seconds: they would count twice.

    Example:
        >>> from workloads.learning.rl.configuration import printed_page
        >>> from workloads.learning.rl.phases import rl_step
        >>> [role.name for role in step_roles(rl_step(printed_page()), reward_seconds=5)]
        ['rollout', 'reward', 'learner', 'sync']
    """
    other = result.step.method.other_seconds
    if other != 0:
        raise ValueError(f"other_seconds (s) must be 0 where reward and transfer are roles of their own, got {other!r}")
    return (
        Role("rollout", result.rollout.seconds, ("prompts", CARRIED), ("responses",)),
        Role("reward", reward_seconds, ("responses",), ("rewards",)),
        Role("learner", result.learning.seconds, ("responses", "rewards"), ("new weights",)),
        Role("sync", sync_seconds, ("new weights",), (CARRIED,)),
    )


# -------------------------------------------------------------------------------------------------- rounds that overlap
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
def loop_seconds(roles: Sequence[Role]) -> Seconds:
    """Seconds from the start of the role that reads the generating weights to the end of the one that writes them: the
    longest way.

    The time that a change of the weights needs to come back as new weights. Several readers: the longest way from any
    of them.

    Args:
        roles: sequence of `Role`.

    Raises:
        ValueError: as `round_graph`, or when no reader's work reaches the writer.

    Example:
        >>> loop_seconds(
        ...     (Role("rollout", 5, (CARRIED,), ("responses",)), Role("learner", 3, ("responses",), (CARRIED,)))
        ... )
        8
    """
    readers, ways = {role.name for role in roles if CARRIED in role.reads}, {}
    for stage in taskgraph.ordered(round_graph(roles)):
        before = [ways[name] for name in stage.after if name in ways] + ([0] if stage.name in readers else [])
        if before:
            ways[stage.name] = max(before) + stage.seconds
    writer = _writers(roles)[CARRIED]
    if writer not in ways:
        names = [role.name for role in roles]
        raise ValueError(f"roles must lead from a reader of {CARRIED!r} to its writer {writer!r}, got {names!r}")
    return ways[writer]


@checks.formula
def round_seconds(roles: Sequence[Role], staleness: Count = 0) -> Seconds:
    """Seconds from one update to the next once the start is over: the cycle's steady pace.

    Equation:
        max(slowest role, loop / (staleness + 1)). The slowest role works on one round after another; and staleness + 1
        rounds at most are under way between a set of weights and the one it leads to.

    Args:
        roles: as in `unrolled`.
        staleness: updates that a batch may lag behind (0: synchronous).

    Assumptions:
        As in `unrolled`.

    Raises:
        ValueError: as in `unrolled`.

    Source:
        Largest ratio of time to rounds over the cycles of an event graph (Karp 1978; Baccelli et al. 1992).

    Example:
        >>> loop = Role("rollout", 5, (CARRIED,), ("responses",)), Role("learner", 3, ("responses",), (CARRIED,))
        >>> round_seconds(loop), round_seconds(loop, staleness=1), round_seconds(loop, staleness=9)
        (8.0, 5, 5)
    """
    staleness = checks.whole(staleness, "staleness", "updates")
    return max(loop_seconds(roles) / (staleness + 1), *(role.seconds for role in roles))


@checks.formula
def staleness_needed(roles: Sequence[Role]) -> Count:
    """Smallest staleness at which the slowest role never waits (updates): ceil(loop / slowest role) - 1.

    More staleness makes samples older and no round shorter. Ratios within 1e-9 of a whole number count as that number.

    Args:
        roles: sequence of `Role`.

    Raises:
        ValueError: as `loop_seconds`, or when no role takes any time.

    Example:
        >>> staleness_needed(
        ...     (Role("rollout", 5, (CARRIED,), ("responses",)), Role("learner", 3, ("responses",), (CARRIED,)))
        ... )
        1
    """
    loop = loop_seconds(roles)
    slowest = checks.positive(max(role.seconds for role in roles), "seconds of the slowest role", "s")
    return max(0, math.ceil(loop / slowest - 1e-9) - 1)


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

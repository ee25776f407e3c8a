"""The cycle of reinforcement learning: roles and their data, pace of rounds that overlap, staleness.

What one round costs in FLOPs, bytes and seconds is in `learning.rl.phases`; which stage waits for which is `taskgraph`. This module
joins the two: a `Role` reads and writes data and works for some seconds on each round. One piece of data, the weights
that generate, is written at the end of a round and read by a later one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from workloads import checks
from workloads.learning.rl.phases import Breakdown
from workloads.times import taskgraph
from workloads.times.taskgraph import Stage
from workloads.units import Count, Seconds

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
        roles: sequence of `Role`.
        staleness: updates that a batch may lag behind (0: synchronous).

    Assumptions:
        Each role has machines of its own and takes the rounds in turn (roles that share machines are one role); batches
        are handed on whole.

    Raises:
        ValueError: as `loop_seconds`, and unless staleness >= 0 is whole.

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

"""The cycle of reinforcement learning: roles and their data, rounds that overlap, samples kept, advantages, loss weights, new weights.

What one round costs in FLOPs, bytes and seconds is `rlstep`; which stage waits for which is `taskgraph`. This module joins the two: a
`Role` reads and writes data and works for some seconds on each round. One piece of data, the weights that generate, is written at the
end of a round and read by a later one.
"""
import math
from dataclasses import dataclass
from itertools import takewhile
from typing import NamedTuple

from . import attempts, domain, roofline, taskgraph
from .generic import total

CARRIED = "generating weights"      # what one round hands to a later one


# -------------------------------------------------------------------------------------------------------------- roles and one round
@dataclass(frozen=True)
class Role:
    """One party of the cycle: its name, its seconds for one round, the names of the data it reads and writes.

    Data that no role writes (prompts, a dataset) come from outside. Raises ValueError for negative seconds or a name that is a single
    string where a tuple is due.

    >>> Role("reward", 6, ("responses",), ("rewards",)).writes
    ('rewards',)
    """

    name: str
    seconds: float
    reads: tuple = ()
    writes: tuple = ()

    def __post_init__(self):
        domain.keep(self, domain.nonnegative, "s", "seconds", of=f" of role {self.name!r}")
        for field in ("reads", "writes"):
            if isinstance(getattr(self, field), str):
                raise ValueError(f"{field} of role {self.name!r} must be a tuple of names, got {getattr(self, field)!r}")
            object.__setattr__(self, field, tuple(getattr(self, field)))


def _writers(roles):
    """{data: name of the role that writes it}; data with two writers, or no role that reads or writes the carried weights, is an error."""
    names = [role.name for role in roles]
    written = [data for role in roles for data in role.writes]
    for what, found in (("names of roles", names), ("data that roles write", written)):
        if len(set(found)) != len(found):
            raise ValueError(f"{what} must differ, got {found!r}")
    domain.one_of(CARRIED, "data of the cycle", written)
    domain.one_of(CARRIED, "data of the cycle", [data for role in roles for data in role.reads])
    return {data: role.name for role in roles for data in role.writes}


@domain.formula
def round_graph(roles):
    """One round as a task graph: each role a `taskgraph.Stage` that waits for the writers of what it reads.

    The generating weights make the whole a cycle. They come from an earlier round, so within a round nobody waits for them.
    Parameters: roles, sequence of `Role`. Returns: tuple of Stage.
    Raises: ValueError for two roles of one name, data with two writers, or a cycle that the generating weights do not close.

    >>> loop = Role("rollout", 5, (CARRIED,), ("responses",)), Role("learner", 3, ("responses",), (CARRIED,))
    >>> [stage.after for stage in round_graph(loop)]
    [(), ('rollout',)]
    """
    writers = _writers(roles)
    after = lambda role: tuple(dict.fromkeys(writers[data] for data in role.reads if data in writers and data != CARRIED))
    return tuple(taskgraph.Stage(role.name, role.seconds, after(role)) for role in roles)


@domain.formula
def step_roles(result, reward_seconds=0, sync_seconds=0):
    """Roles of an RL step with machines of their own for sampling and learning: rollout, reward, learner, weight transfer.

    Parameters: result, an `rlstep.Breakdown`; reward_seconds, of checking all responses (s); sync_seconds, of bringing new weights to
    the generating replicas (s). The learner's log-probability passes and update share its GPUs and are one role.
    Returns: tuple of Role.
    Raises: ValueError where the step already holds other_seconds: they would count twice.

    >>> from workloads.rlstep import printed_page, step
    >>> [role.name for role in step_roles(step(printed_page()), reward_seconds=5)]
    ['rollout', 'reward', 'learner', 'sync']
    """
    if result.other_seconds != 0:
        raise ValueError(f"other_seconds (s) must be 0 where reward and transfer are roles of their own, got {result.other_seconds!r}")
    return (Role("rollout", result.rollout_seconds, ("prompts", CARRIED), ("responses",)),
            Role("reward", reward_seconds, ("responses",), ("rewards",)),
            Role("learner", result.learning_seconds, ("responses", "rewards"), ("new weights",)),
            Role("sync", sync_seconds, ("new weights",), (CARRIED,)))


# ------------------------------------------------------------------------------------------------------------- rounds that overlap
@domain.formula
def unrolled(roles, rounds, staleness=0):
    """Several rounds as one task graph; a role of round k (0, 1, ...) is the stage "name k".

    A stage waits for the writers of its data, for the same role's work on the round before, and, if it reads the generating weights,
    for those that round k - 1 - staleness wrote.
    Parameters: roles; rounds, number of them; staleness, updates that a batch may lag behind (0: synchronous).
    Returns: tuple of `taskgraph.Stage`; `taskgraph.earliest` makes it a schedule.
    Assumptions: each role has machines of its own and takes the rounds in turn (roles that share machines are one role); batches are
    handed on whole. Raises: ValueError as `round_graph`, and unless rounds >= 1 and staleness >= 0 are whole.

    >>> loop = Role("rollout", 5, (CARRIED,), ("responses",)), Role("learner", 3, ("responses",), (CARRIED,))
    >>> taskgraph.span(unrolled(loop, 10)), taskgraph.span(unrolled(loop, 10, staleness=1))
    (80, 53)
    """
    rounds, staleness = domain.whole(rounds, "rounds", least=1, most=10**5), domain.whole(staleness, "staleness", "updates")
    graph, writer = round_graph(roles), _writers(roles)[CARRIED]
    readers = {role.name for role in roles if CARRIED in role.reads}

    def after(stage, k):
        yield from (f"{name} {k}" for name in stage.after)
        if k >= 1:
            yield f"{stage.name} {k - 1}"
        if stage.name in readers and k >= 1 + staleness:
            yield f"{writer} {k - 1 - staleness}"
    return tuple(taskgraph.Stage(f"{s.name} {k}", s.seconds, tuple(dict.fromkeys(after(s, k)))) for k in range(rounds) for s in graph)


@domain.formula
def loop_seconds(roles):
    """Seconds from the start of the role that reads the generating weights to the end of the one that writes them: the longest way.

    The time that a change of the weights needs to come back as new weights. Several readers: the longest way from any of them.
    Raises: ValueError as `round_graph`, or when no reader's work reaches the writer.

    >>> loop_seconds((Role("rollout", 5, (CARRIED,), ("responses",)), Role("learner", 3, ("responses",), (CARRIED,))))
    8
    """
    readers, ways = {role.name for role in roles if CARRIED in role.reads}, {}
    for stage in taskgraph.ordered(round_graph(roles)):
        before = [ways[name] for name in stage.after if name in ways] + ([0] if stage.name in readers else [])
        if before:
            ways[stage.name] = max(before) + stage.seconds
    writer = _writers(roles)[CARRIED]
    if writer not in ways:
        raise ValueError(f"roles must lead from a reader of {CARRIED!r} to its writer {writer!r}, got {[role.name for role in roles]!r}")
    return ways[writer]


@domain.formula
def round_seconds(roles, staleness=0):
    """Seconds from one update to the next once the start is over: the cycle's steady pace.

    Equation: max(slowest role, loop / (staleness + 1)). The slowest role works on one round after another; and staleness + 1 rounds at
    most are under way between a set of weights and the one it leads to.
    Parameters, assumptions, raises: see `unrolled`.

    >>> loop = Role("rollout", 5, (CARRIED,), ("responses",)), Role("learner", 3, ("responses",), (CARRIED,))
    >>> round_seconds(loop), round_seconds(loop, staleness=1), round_seconds(loop, staleness=9)
    (8.0, 5, 5)

    Source: largest ratio of time to rounds over the cycles of an event graph (Karp 1978; Baccelli et al. 1992).
    """
    staleness = domain.whole(staleness, "staleness", "updates")
    return max(loop_seconds(roles) / (staleness + 1), *(role.seconds for role in roles))


@domain.formula
def staleness_needed(roles):
    """Smallest staleness at which the slowest role never waits (updates): ceil(loop / slowest role) - 1.

    More staleness makes samples older and no round shorter. Ratios within 1e-9 of a whole number count as that number.
    Raises: ValueError as `loop_seconds`, or when no role takes any time.

    >>> staleness_needed((Role("rollout", 5, (CARRIED,), ("responses",)), Role("learner", 3, ("responses",), (CARRIED,))))
    1
    """
    loop = loop_seconds(roles)
    slowest = domain.positive(max(role.seconds for role in roles), "seconds of the slowest role", "s")
    return max(0, math.ceil(loop / slowest - 1e-9) - 1)


@domain.formula
def lags(roles, rounds, staleness=0):
    """By how many updates each round's samples are behind when they are learned from (updates), one number a round.

    Round k is the update number k; its samples came from the newest weights that had arrived when its generation began, at most
    `staleness` updates behind. Lag: k less the updates in those weights.
    Parameters, assumptions, raises: see `unrolled`. With several roles that read the weights, the oldest counts.

    >>> lags((Role("rollout", 5, (CARRIED,), ("responses",)), Role("learner", 3, ("responses",), (CARRIED,))), 5, staleness=3)
    (0, 1, 1, 1, 1)
    """
    rounds = domain.whole(rounds, "rounds", least=1)
    windows, writer = taskgraph.earliest(unrolled(roles, rounds, staleness)), _writers(roles)[CARRIED]
    starts = [min(windows[f"{role.name} {k}"].start for role in roles if CARRIED in role.reads) for k in range(rounds)]
    arrived = lambda moment, k: sum(windows[f"{writer} {j}"].end <= moment for j in range(k))
    return tuple(k - arrived(start, k) for k, start in enumerate(starts))


@domain.formula
def may_overlap(roles, staleness=0):
    """Pairs (role on a round, role on the next round) that may run at the same time, whatever their seconds.

    Neither waits, directly or through others, for the other.
    Parameters: roles; staleness (updates). Returns: tuple of pairs of names, in the order of the roles.
    Raises: ValueError as `unrolled`.

    >>> loop = Role("rollout", 5, (CARRIED,), ("responses",)), Role("learner", 3, ("responses",), (CARRIED,))
    >>> may_overlap(loop), may_overlap(loop, staleness=1)
    ((), (('learner', 'rollout'),))
    """
    before = {}
    for stage in taskgraph.ordered(unrolled(roles, 2, staleness)):
        before[stage.name] = set(stage.after).union(*(before[name] for name in stage.after))
    return tuple((a.name, b.name) for a in roles for b in roles if f"{a.name} 0" not in before[f"{b.name} 1"])


# --------------------------------------------------------------------------------------------------- samples generated, samples kept
@domain.formula
def expected_generated(kept, fraction):
    """Samples to generate until so many are kept, on average (samples).

    Equation: kept / fraction, the mean of the negative binomial distribution.
    Parameters: kept, samples wanted; fraction of the generated ones that is kept, in (0, 1].
    Assumptions: each sample is kept or not with the same probability and without regard to the others. Where whole groups are kept or
    dropped, count groups.

    >>> expected_generated(16, 0.25)
    64.0
    """
    return domain.positive(kept, "kept", "samples") / domain.fraction(fraction, "fraction")


@domain.formula
def generated_spread(kept, fraction):
    """Standard deviation of the samples generated until so many are kept (samples).

    Equation: sqrt(kept (1 - fraction)) / fraction. Parameters and assumptions: see `expected_generated`.

    >>> round(generated_spread(16, 0.5), 3)
    5.657
    """
    kept, fraction = domain.positive(kept, "kept", "samples"), domain.fraction(fraction, "fraction")
    return (kept * (1 - fraction)) ** 0.5 / fraction


@domain.formula
def enough_chance(kept, fraction, generated):
    """Probability that so many generated samples leave at least `kept`, a fraction.

    Equation: sum over j = kept .. generated of C(generated, j) fraction^j (1 - fraction)^(generated - j).
    Parameters: kept, generated: whole numbers of samples; fraction in (0, 1]. Assumptions: see `expected_generated`.

    >>> round(enough_chance(16, 0.5, 32), 4)
    0.57
    """
    kept = domain.whole(kept, "kept", "samples", least=1, most=10**8)           # beyond it logarithms of factorials lose too many digits
    generated, fraction = domain.whole(generated, "generated", "samples", most=10**8), float(domain.fraction(fraction, "fraction"))
    if fraction == 1 or generated < kept:
        return float(generated >= kept)
    ways = lambda j: math.lgamma(generated + 1) - math.lgamma(j + 1) - math.lgamma(generated - j + 1)
    odds = lambda j: math.exp(ways(j) + j * math.log(fraction) + (generated - j) * math.log1p(-fraction))
    tail = range(kept - 1, -1, -1) if generated * fraction > kept else range(kept, generated + 1)      # the smaller one, away from the mean
    chance = total(takewhile(bool, map(odds, tail)))
    return 1 - chance if generated * fraction > kept else chance


@domain.formula
def generated_for(kept, fraction, confidence):
    """Fewest samples to generate so that `kept` remain with that probability (samples): a quantile of the negative binomial law.

    Parameters: kept, fraction: see `enough_chance`; confidence in (0, 1 - 1e-9].
    Raises: ValueError for a confidence nearer to 1: certainty takes no finite number.

    >>> generated_for(16, 0.5, 0.95)
    42
    """
    if domain.fraction(confidence, "confidence") > 1 - 1e-9:
        raise ValueError(f"confidence must be at most 1 - 1e-9, got {confidence!r}")
    low, high = domain.whole(kept, "kept", "samples", least=1) - 1, math.ceil(expected_generated(kept, fraction))
    while enough_chance(kept, fraction, high) < confidence:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough_chance(kept, fraction, middle) >= confidence else (middle, high)
    return high


# --------------------------------------------------------------------------------------------------------------- signal of a group
@domain.formula
def advantages(rewards, normalised=False):
    """Group-relative advantages of the responses to one prompt, a tuple.

    Equation: r_i - mean(r); normalised: (r_i - mean(r)) / std(r), with the standard deviation over the group (g in its denominator; with
    g - 1 all shrink by sqrt((g - 1)/g)).
    Parameters: rewards, one number a response. Equal rewards give zeros, normalised or not: there 0/0 is taken as 0.
    Raises: ValueError without a reward, or for one that is not finite.

    >>> advantages((1, 0, 0, 1)), advantages((1, 0, 0, 1), normalised=True), advantages((0.1, 0.1, 0.1))
    ((0.5, -0.5, -0.5, 0.5), (1.0, -1.0, -1.0, 1.0), (0.0, 0.0, 0.0))

    Source: group relative policy optimisation (Shao et al. 2024); without the division: Liu et al. 2025.
    """
    rewards = [domain.finite(r, "reward") for r in rewards]
    count, normalised = domain.whole(len(rewards), "number of rewards", least=1), domain.flag(normalised, "normalised")
    if all(r == rewards[0] for r in rewards):
        return (0.0,) * count
    mean = total(rewards) / count
    scale = math.sqrt(total((r - mean) ** 2 for r in rewards) / count) if normalised else 1
    return tuple((r - mean) / scale for r in rewards)


@domain.formula
def no_signal_chance(success, group, correlation=0):
    """Probability that all responses of a group earn the same reward, right or wrong, so that no advantage differs from 0.

    Equation: p^g + (1 - p)^g; at correlation rho two beta-binomial tails (`attempts.all_fail`).
    Parameters: success, rate p in [0, 1]; group, responses g >= 1; correlation rho in [0, 1] of two responses to one prompt: 0 if every
    prompt has the rate p, larger the more prompts differ in difficulty around the mean p.

    >>> no_signal_chance(0.5, 4), round(no_signal_chance(0.5, 4, correlation=0.5), 4)
    (0.125, 0.5469)
    """
    domain.whole(group, "group", "responses", least=1)
    return attempts.all_fail(success, group, correlation) + attempts.all_fail(1 - success, group, correlation)


# -------------------------------------------------------------------------------------------------------------- averages of the loss
AVERAGES = ("token", "sequence", "micro-batch")


@domain.formula
def token_weights(micro_batches, average):
    """Weight of each label's loss in the loss of an update, in the shape of `micro_batches`: one number a sequence.

    Equation: "token" 1 / labels of all; "sequence" 1 / (sequences x labels of the sequence); "micro-batch" 1 / (micro-batches x labels of
    the micro-batch), what averaging within each and then over them amounts to. Weight x labels sums to 1 in each.
    Parameters: micro_batches, a sequence of micro-batches, each a sequence of label counts; average, one of AVERAGES.
    Returns: tuple of tuples. Raises: ValueError for an empty batch or micro-batch or a sequence without labels.

    >>> token_weights(((6,), (2, 2)), "micro-batch")
    ((0.08333333333333333,), (0.125, 0.125))
    """
    counts = tuple(tuple(domain.whole(n, "labels of a sequence", "labels", least=1) for n in batch) for batch in micro_batches)
    domain.whole(min(map(len, counts), default=0), "sequences of a micro-batch", least=1)
    labels, sequences = total(map(total, counts)), total(map(len, counts))
    weight = {"token": lambda batch, n: 1 / labels, "sequence": lambda batch, n: 1 / (sequences * n),
              "micro-batch": lambda batch, n: 1 / (len(counts) * total(batch))}[domain.one_of(average, "average", AVERAGES)]
    return tuple(tuple(weight(batch, n) for n in batch) for batch in counts)


# ------------------------------------------------------------------------------------------------------- new weights for the replicas
class Sync(NamedTuple):
    """Transfer of new weights: seconds until the last replica has them, bytes that leave the learner, bytes received by all replicas."""

    seconds: float
    learner_bytes: float
    received_bytes: float


@domain.formula
def weight_sync(weight_bytes, replicas, bandwidth, scheme="independent", pieces=1, latency=0):
    """New weights for every replica, all links alike. Returns: `Sync`.

    Equation, with M bytes, r replicas, B byte/s and a latency l for each message:
      "independent"  r (M/B + l): the learner sends r copies over its one link
      "tree"         ceil(log2(r + 1)) (M/B + l): whoever has the weights passes them on, the number of holders doubles
      "ring"         (r + c - 1) (M/(c B) + l): a chain; each replica passes a piece on while it receives the next of c pieces
    Parameters: weight_bytes (B); replicas, whole number >= 1; bandwidth of a node's link in each direction (B/s); scheme; pieces c, used
    by "ring"; latency (s). Assumptions: a node sends one message and receives one at a time, both at full rate; no switch is a bottleneck.
    Nothing is faster than M/B. Raises: ValueError out of these ranges, or for pieces with another scheme.

    >>> [weight_sync(16e9, 4, 50e9, scheme).seconds for scheme in ("independent", "tree")]
    [1.28, 0.96]
    >>> weight_sync(16e9, 4, 50e9, "ring", pieces=100)
    Sync(seconds=0.3296, learner_bytes=16000000000.0, received_bytes=64000000000.0)

    Source: Chan et al. 2007 (broadcast: minimum spanning tree, pipelined chain).
    """
    replicas, pieces = (int(domain.whole(n, name, least=1)) for n, name in ((replicas, "replicas"), (pieces, "pieces")))
    domain.one_of(scheme, "scheme", ("independent", "tree", "ring"))
    if pieces > 1 and scheme != "ring":
        raise ValueError(f"pieces must be 1 for scheme {scheme!r}, got {pieces!r}")
    message = roofline.transfer_seconds(domain.positive(weight_bytes, "weight_bytes", "B") / pieces, bandwidth)
    steps = {"independent": replicas, "tree": replicas.bit_length(), "ring": replicas + pieces - 1}[scheme]
    copies = 1 if scheme == "ring" else steps
    return Sync(steps * (message + domain.nonnegative(latency, "latency", "s")), copies * weight_bytes, replicas * weight_bytes)

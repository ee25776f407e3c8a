"""Collectives: what one accelerator sends when a group of them sums, gathers or exchanges a message.

A group may stand in one fast domain (the cards of a node, joined by their own links) or reach over several, joined by a network. Then
each step runs once inside and once between domains, and a card sends over the network only its own part of what its domain needs.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass

from ..checks import MANY, flag, formula, multiple, nonnegative, one_of, positive, whole
from ..numeric import Number, ceil, minimum
from ..units import Bytes, Count, Tokens

SCHEMES = ("ring", "tree")


@dataclass(frozen=True)
class Traffic:
    """What one card sends in some exchange, and in how many messages one after the other: two add, one times a number.

    Attributes:
        fast: inside its domain (B).
        network: out of its domain (B).
        fast_messages: sent inside the domain, each after the one before.
        network_messages: the same out of the domain.

    Raises:
        ValueError: for a number below 0.

    Example:
        >>> (2 * Traffic(fast=4, fast_messages=1) + Traffic(network=1)).bytes
        9
    """

    fast: Bytes = 0
    network: Bytes = 0
    fast_messages: Count = 0
    network_messages: Count = 0

    def __post_init__(self):
        for name in vars(self):  # arrays too, for many messages or groups at once
            object.__setattr__(self, name, nonnegative(getattr(self, name), name))

    def __add__(self, other):
        return Traffic(*(a + b for a, b in zip(astuple(self), astuple(other))))

    def __mul__(self, factor):
        return Traffic(*(factor * part for part in astuple(self)))

    __rmul__ = __mul__

    @property
    def bytes(self) -> Bytes:
        """All that the card sends (B)."""
        return self.fast + self.network


def _spread(ranks, domain):
    """Members of a group, those of them in one domain, and how many domains they fill (the last one perhaps in part)."""
    ranks = whole(ranks, "ranks", least=1)
    inside = ranks if domain is None else minimum(ranks, whole(domain, "domain", least=1))
    return ranks, inside, ranks / inside


def _steps(members, scheme):
    """Messages one after the other: round a ring, or up a tree in which the informed double."""
    return ceil(members) - 1 if scheme == "ring" else (int(ceil(members)) - 1).bit_length()


@formula
def all_gather(message: Bytes, ranks: Count, domain: Count | None = None, scheme: str = "ring") -> Traffic:
    """What a card sends until every member of a group holds a message of which each held an equal part.

    Equation:
        message (1 - 1/d) inside a domain of d members and message (1/d - 1/n) over the network; steps: d - 1 and D - 1
        in a "ring", their binary logarithm rounded up for d and D in a "tree", with D = n/d domains.

    Args:
        message: the whole of it (B).
        ranks: n, members of the group.
        domain: members that one fast domain holds; left out, all.
        scheme: "ring", or "tree" (recursive doubling).

    Assumptions:
        A lower bound: each card lacks all but its own part, and a domain gets each byte from outside once. For a number
        of members that is no power of two, a tree needs some bytes more.

    Source:
        Chan et al. 2007 (lower bounds; bucket and recursive-doubling algorithms).

    Example:
        >>> all_gather(8e9, 8)
        Traffic(fast=7000000000.0, network=0.0, fast_messages=7, network_messages=0)
        >>> all_gather(8e9, 16, domain=8).network
        500000000.0
    """
    ranks, inside, domains = _spread(ranks, domain)
    message, scheme = nonnegative(message, "message", "B"), one_of(scheme, "scheme", SCHEMES)
    fast, network = message * (inside - 1) / inside, message * (ranks - inside) / (ranks * inside)
    return Traffic(fast, network, _steps(inside, scheme), _steps(domains, scheme))


@formula
def reduce_scatter(message: Bytes, ranks: Count, domain: Count | None = None, scheme: str = "ring") -> Traffic:
    """What a card sends until each member of a group holds its equal part of the sum of all their messages.

    Equation:
        as `all_gather`, whose steps it takes in reverse.

    Args:
        message: of each member (B).
        ranks: members of the group.
        domain: members that one fast domain holds; left out, all.
        scheme: "ring", or "tree" (recursive halving).

    Assumptions:
        As in `all_gather`; no switch adds on the way.

    Source:
        Chan et al. 2007.

    Example:
        >>> reduce_scatter(8e9, 8).bytes
        7000000000.0
    """
    return all_gather(message, ranks, domain, scheme)


@formula
def all_reduce(message: Bytes, ranks: Count, domain: Count | None = None, scheme: str = "ring") -> Traffic:
    """What a card sends until every member of a group holds the sum of all their messages.

    Equation:
        a reduce-scatter, then an all-gather: 2 message (1 - 1/n) in 2 (n - 1) steps round a ring.

    Args:
        message: of each member (B).
        ranks: n, members of the group.
        domain: members that one fast domain holds; left out, all.
        scheme: "ring", or "tree" (recursive halving and doubling).

    Assumptions:
        As in `all_gather`. A switch that adds what passes through it could halve the bytes; none is assumed.

    Source:
        Chan et al. 2007.

    Example:
        >>> all_reduce(8e9, 8)
        Traffic(fast=14000000000.0, network=0.0, fast_messages=14, network_messages=0)
        >>> all_reduce(8e9, 8, scheme="tree").fast_messages, all_reduce(8e9, 1).bytes
        (6, 0.0)
    """
    return 2 * all_gather(message, ranks, domain, scheme)


@formula
def all_to_all(message: Bytes, ranks: Count, domain: Count | None = None) -> Traffic:
    """What a card sends when each member of a group has another part for every member.

    Equation:
        message (d - 1)/n inside its domain of d of n members and message (n - d)/n over the network.

    Args:
        message: all parts of one member together, its own included (B).
        ranks: n, members of the group.
        domain: members that one fast domain holds; left out, all.

    Assumptions:
        Equal parts. Between domains a card talks to one partner in each, which passes on what is for its neighbours (free of
        charge).

    Example:
        >>> all_to_all(8e9, 8).bytes, all_to_all(8e9, 16, domain=8).network
        (7000000000.0, 4000000000.0)
    """
    ranks, inside, domains = _spread(ranks, domain)
    message = nonnegative(message, "message", "B")
    return Traffic(message * (inside - 1) / ranks, message * (ranks - inside) / ranks, inside - 1, ceil(domains) - 1)


@formula
def send(message: Bytes, fast: bool = True) -> Traffic:
    """What a card sends that passes a message on to one other.

    Args:
        message: of it (B).
        fast: whether both stand in one domain.

    Example:
        >>> send(1e9), send(1e9, fast=False).network
        (Traffic(fast=1000000000.0, network=0, fast_messages=1, network_messages=0), 1000000000.0)
    """
    message = nonnegative(message, "message", "B")
    return Traffic(fast=message, fast_messages=1) if flag(fast, "fast") else Traffic(network=message, network_messages=1)


@formula
def distinct_groups(experts: Count, active: Count, groups: Count) -> Number:
    """Groups of experts that a token meets, on average: its picks that fall into the same group count once.

    Equation:
        r (1 - C(E - E/r, k) / C(E, k)): less the groups that all k picks miss.

    Args:
        experts: E, routed.
        active: k, different ones that a token picks.
        groups: r, of equal size.

    Assumptions:
        Every choice of experts is equally likely.

    Example:
        >>> distinct_groups(8, 2, 8), round(distinct_groups(256, 8, 8), 3)
        (2.0, 5.295)
    """
    experts, groups = multiple(experts, whole(groups, "groups", least=1), "experts"), whole(groups, "groups")
    missed = 1.0
    for picked in range(whole(active, "active", least=1, most=minimum(experts, MANY))):
        missed *= (experts - experts / groups - picked) / (experts - picked)
    return groups * (1 - missed)


@formula
def dispatch(
    tokens: Tokens, hidden: Count, experts: Count, active: Count, ranks: Count, domain: Count | None = None, bytes_per_value: Bytes = 2
) -> Traffic:
    """What a card sends to bring its tokens to the experts that they picked; to bring the results back is as much.

    Equation:
        tokens hidden b x distinct ranks (1 - 1/n), of which distinct domains (1 - 1/D) once over the network.

    Args:
        tokens: on the card.
        hidden: width of a position.
        experts: routed.
        active: different ones that a token picks.
        ranks: n, cards that the experts are split over evenly.
        domain: of them in one fast domain; left out, all.
        bytes_per_value: b, as sent (B).

    Assumptions:
        A lower bound: copies of a token for experts on one card merge, and over the network those for one domain. Every choice
        is equally likely, so a card's own experts are picked as often as any.

    Example:
        >>> dispatch(8192, 8192, experts=8, active=2, ranks=8).bytes
        234881024.0
    """
    ranks, inside, domains = _spread(ranks, domain)
    domains = multiple(ranks, inside, "ranks, in domains of so many,") // inside
    row = nonnegative(tokens, "tokens") * whole(hidden, "hidden", least=1) * positive(bytes_per_value, "bytes_per_value", "B")
    sent = distinct_groups(experts, active, ranks) * (ranks - 1) / ranks
    out = distinct_groups(experts, active, domains) * (domains - 1) / domains
    return Traffic(row * (sent - out), row * out, inside - 1, domains - 1)

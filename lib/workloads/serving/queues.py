"""Waiting in front of servers under random arrivals: steady-state formulas, and the exact waits of one given list of arrivals.

Every steady-state formula needs utilization below 1; at or above it the queue has no mean, and the functions raise.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from itertools import pairwise

from ..checks import MANY, finite, formula, nonnegative, positive, whole
from ..numeric import Number
from ..units import Count, PerSecond, Seconds


@formula
def utilization(arrival_rate: PerSecond, mean_service: Seconds) -> Number:
    """Share of time a server is busy (a ratio).

    Equation:
        rho = lambda x E[X].

    Args:
        arrival_rate: lambda (1/s).
        mean_service: E[X] (s).

    Example:
        >>> utilization(4, 0.125)
        0.5
    """
    return nonnegative(arrival_rate, "arrival_rate", "1/s") * positive(mean_service, "mean_service", "s")


def _stable(arrival_rate, mean_service):
    rho = utilization(arrival_rate, mean_service)
    positive(1 - rho, "1 - arrival_rate x mean_service (utilization), which a steady state needs,")
    return rho


@formula
def mg1_wait(arrival_rate: PerSecond, mean_service: Seconds, service_scv: Number) -> Seconds:
    """Mean wait before service in M/G/1 (s), after Pollaczek and Khinchine.

    Equation:
        rho/(1 - rho) x (1 + c_X^2)/2 x E[X].

    Args:
        arrival_rate: lambda (1/s).
        mean_service: E[X] (s).
        service_scv: c_X^2 = Var X / E[X]^2: 0 for services that never vary (M/D/1), 1 for exponential ones (M/M/1).

    Assumptions:
        Poisson arrivals, one server, independent service times, first come first served.

    Raises:
        ValueError: at rho >= 1.

    Source:
        kleinrock1975queueing.

    Example:
        >>> mg1_wait(4, 0.125, 0), mg1_wait(4, 0.125, 1)
        (0.0625, 0.125)
    """
    rho = _stable(arrival_rate, mean_service)
    return rho * (1 + nonnegative(service_scv, "service_scv")) * mean_service / (2 * (1 - rho))


@formula
def gg1_wait(arrival_rate: PerSecond, mean_service: Seconds, arrival_scv: Number, service_scv: Number) -> Seconds:
    """Mean wait in G/G/1 by Kingman's approximation (s).

    Equation:
        rho/(1 - rho) x (c_A^2 + c_X^2)/2 x E[X].

    Args:
        arrival_rate: in 1/s.
        mean_service: E[X] (s).
        arrival_scv: c_A^2: variance over squared mean.
        service_scv: c_X^2: variance over squared mean.

    Assumptions:
        Exact for Poisson arrivals (c_A^2 = 1); otherwise best near rho = 1, for gaps that are independent of each
        other. It knows their spread and not their order: where a busy minute follows a quiet one the wait is a
        different one altogether.

    Raises:
        ValueError: at rho >= 1.

    Source:
        kingman1961queue.

    Example:
        >>> gg1_wait(4, 0.125, arrival_scv=9, service_scv=0)
        0.5625
    """
    rho = _stable(arrival_rate, mean_service)
    spread = nonnegative(arrival_scv, "arrival_scv") + nonnegative(service_scv, "service_scv")
    return rho * spread * mean_service / (2 * (1 - rho))


@formula
def fifo_waits(arrivals: Sequence[Number], services: Sequence[Seconds], servers: Count = 1) -> list[Seconds]:
    """Wait of each request of a list before its service (s), first come first served, exactly.

    Equation:
        w_i = max(0, earliest free time - t_i): each request goes to the server that is free first.

    Args:
        arrivals: t_i, moments in order (s).
        services: time that each request takes (s).
        servers: servers that take from one queue.

    Raises:
        ValueError: for arrivals out of order, or another number of services.

    Example:
        >>> fifo_waits([0, 1, 2], [3, 3, 3]), fifo_waits([0, 1, 2], [3, 3, 3], servers=2)
        ([0, 2, 4], [0, 0, 1])
    """
    servers = whole(servers, "servers", least=1, most=MANY)
    arrivals, services = ([finite(t, "arrival", "s") for t in arrivals], [nonnegative(t, "service", "s") for t in services])
    if len(arrivals) != len(services) or any(b < a for a, b in pairwise(arrivals)):
        raise ValueError(f"arrivals (s) must be in order and as many as services, got {len(arrivals)} and {len(services)}")
    free, waits = [-math.inf] * servers, []
    for arrival, service in zip(arrivals, services):
        start = max(arrival, free[0])
        heapq.heapreplace(free, start + service)
        waits.append(start - arrival)
    return waits

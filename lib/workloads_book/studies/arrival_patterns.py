"""Loads with a pattern of their own: clients that together shift the mix, sources that pause, and how bursty arrivals were.

The processes they are made of, windows and seeded arrival times, are those of `serving.arrivals`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import lcm

from workloads.checks import finite, formula, keep, nonnegative, positive
from workloads.numeric import Number, total
from workloads.serving.arrivals import Arrival, Window, _expected, _seed, _variation, _weighed, random_arrivals, random_times, uniform_times
from workloads.units import PerSecond, Seconds


@formula
def on_off_times(
    rate: PerSecond, on: Seconds, off: Seconds, seconds: Seconds, seed: int | str | None = None, start: Seconds = 0
) -> list[Seconds]:
    """Arrival times of a source that sends for a spell, is silent for another, and so on (s).

    One stream runs through all spells and stands still in between, so spells shorter than a gap keep the rate too.

    Equation:
        mean rate over whole periods = rate x on/(on + off).

    Args:
        rate: while it sends (requests/s).
        on: lengths of the spells (s).
        off: lengths of the spells (s).
        seconds: length of the span (s).
        seed: with one the stream is Poisson, without one evenly spaced.
        start: moment at which the span begins (s).

    Example:
        >>> on_off_times(2, on=1, off=2, seconds=5)
        [0.0, 0.5, 3.0, 3.5]
    """
    rate, on, off = (float(positive(rate, "rate", "requests/s")), float(positive(on, "on", "s")), float(nonnegative(off, "off", "s")))
    period, seconds, start = (finite(on + off, "on + off", "s"), float(nonnegative(seconds, "seconds", "s")), finite(start, "start", "s"))
    sending = (seconds - seconds % period) * (on / period) + min(on, seconds % period)
    held = positive(rate * on, "rate x on", "requests/spell")
    expected = _expected(rate, sending)
    stream = uniform_times(1, expected) if seed is None else random_times(1, expected, seed)
    return [start + spell * period + into / rate for spell, into in (divmod(t, held) for t in stream)]


@dataclass(frozen=True)
class Client:
    """A source of requests with a stable shape and a rate of its own that moves from window to window.

    Attributes:
        name: as the table or its user writes it.
        mix: pairs of a `Request` and its weight, a whole number, so that shares stay exact.
        rates: one a window (requests/s).
        cv: coefficient of variation of the gaps between its requests.
    """

    name: str
    mix: tuple
    rates: tuple
    cv: float = 1.0

    def __post_init__(self):
        keep(self, _weighed, "", "mix")
        keep(self, lambda rates, name, unit: tuple(nonnegative(rate, "rate", unit) for rate in rates), "requests/s", "rates")
        keep(self, lambda cv, name, unit: _variation(cv), "", "cv")


@formula
def client_arrivals(clients: Sequence[Client], seconds: Seconds, seed: int | str) -> list[Arrival]:
    """Arrivals of several clients over windows of ``seconds`` each, merged in time.

    Each client is generated apart, with its own rate, burstiness and mix, and the streams are superposed: the overall
    mix then shifts with the composition of clients even where no client changes its shape. A client's gaps run on from
    window to window, and each window holds rate x seconds of its requests on average; where its rate is 0 it is silent.

    Args:
        clients: Clients.
        seconds: length of each window (s).
        seed: of the draws.

    Returns:
        List of Arrival.

    Source:
        xiang2025servegen, for the composition by client.

    Example:
        >>> from workloads.counts.request_tokens import Request
        >>> chat = Client("chat", ((Request(500, 300), 1),), rates=(1.0, 2.0))
        >>> [a.client for a in client_arrivals([chat], 60, seed=1)][:2]
        ['chat', 'chat']
    """
    arrivals = []
    for client in clients:
        windows = [Window(seconds, rate, client.mix) for rate in client.rates]
        arrivals += random_arrivals(windows, client.cv, f"{_seed(seed)}/{client.name}", client.name)
    return sorted(arrivals, key=lambda a: a.time)


@formula
def windows_of(clients: Sequence[Client], seconds: Seconds) -> list[Window]:
    """The windows that a set of clients adds up to: rates summed, mixes weighted by the clients' rates.

    Args:
        clients: Clients.
        seconds: length of each window (s). Rates count as the decimals they are written as, so the weights come out
            whole.

    Returns:
        List of Window.

    Raises:
        ValueError: where clients differ in the number of windows, or all are silent in one.

    Example:
        >>> from workloads.counts.request_tokens import Request
        >>> a, b = Request(8192, 256), Request(1024, 2048)
        >>> docs, essays = Client("docs", ((a, 1),), (3.6, 0.4)), Client("essays", ((b, 1),), (0.4, 3.6))
        >>> [round(w.step_rate, 1) for w in windows_of([docs, essays], 60)]
        [1736.8, 7471.2]
    """
    windows = []
    for rates in zip(*(c.rates for c in clients), strict=True):
        shares = [
            (request, Fraction(str(rate)) * weight / sum(w for _, w in c.mix))
            for c, rate in zip(clients, rates)
            for request, weight in c.mix
        ]
        rate = positive(sum(share for _, share in shares), "sum of the clients' rates", "requests/s")
        unit = lcm(*((share / rate).denominator for _, share in shares))  # the smallest that makes every weight whole
        windows.append(Window(seconds, float(rate), tuple((request, int(share / rate * unit)) for request, share in shares if share)))
    return windows


@formula
def gap_cv(times: Sequence[Seconds]) -> Number:
    """Coefficient of variation of the gaps between arrivals (a ratio): 0 even, 1 Poisson, above 1 bursty.

    Equation:
        standard deviation of the gaps / their mean.

    Args:
        times: moments of arrival (s).

    Raises:
        ValueError: for fewer than three arrivals, or all at one time.

    Example:
        >>> gap_cv([0, 1, 2, 3]), round(gap_cv([0, 0, 0, 3]), 3)
        (0.0, 1.414)
    """
    times = [finite(t, "arrival time", "s") for t in times]
    gaps = [finite(b - a, "gap", "s") for a, b in pairwise(times)]
    if len(gaps) < 2 or sum(gaps) <= 0:
        raise ValueError(f"times must hold at least 3 arrivals at different times, got {len(times)}")
    mean = total(gaps) / len(gaps)
    return (total((g - mean) ** 2 for g in gaps) / len(gaps)) ** 0.5 / mean

"""What arrives when: time windows with a rate and a joint distribution of lengths, arrival processes.

Every random process takes a seed and draws from its own `random.Random`, so a page shows the same load in every build.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from ..checks import MANY, between, finite, formula, keep, nonnegative, positive, whole
from ..counts.request_tokens import Request
from ..numeric import Number, total
from ..units import Count, PerSecond, Seconds, Tokens


@dataclass(frozen=True)
class Window:
    """A time window with a constant request rate and mix.

    The mix is a joint distribution: the lengths of a request belong together and cannot be drawn apart. Means over it
    are exact where their values are whole.

    Attributes:
        seconds: length of the window (s).
        rate: arrivals on average (requests/s).
        mix: pairs of a `Request` and its weight, a whole number, so that shares stay exact.

    Example:
        >>> minute = Window(60, 4, ((Request(8192, 256), 9), (Request(1024, 2048), 1)))
        >>> print(minute.mean(lambda r: r.new))
        37376/5
        >>> minute.input_rate, minute.step_rate, round(minute.mean_step_context, 2)
        (29900.8, 1736.8, 5362.12)
    """

    seconds: Seconds
    rate: PerSecond
    mix: tuple

    def __post_init__(self):
        keep(self, nonnegative, "s", "seconds")
        keep(self, nonnegative, "requests/s", "rate")
        keep(self, _weighed, "", "mix")

    @formula
    def mean(self, of: Callable[[Request], Number]) -> Number:
        """Mean of ``of(request)`` over the mix (in its unit), a Fraction where its values are whole.

        Equation:
            sum of weight x of(request) / sum of weights.

        Args:
            of: a function of a Request.
        """
        return total(weight * Fraction(of(request)) for request, weight in self.mix) / sum(weight for _, weight in self.mix)

    @property
    @formula
    def input_rate(self) -> PerSecond:
        """New input tokens that arrive per second (tokens/s): rate x mean P."""
        return float(self.rate * self.mean(lambda r: r.new))

    @property
    @formula
    def step_rate(self) -> PerSecond:
        """Decode steps that arrive per second (request steps/s): rate x mean (G - 1)."""
        return float(self.rate * self.mean(lambda r: r.decode_steps))

    @property
    @formula
    def mean_step_context(self) -> Tokens:
        """Mean context over all decode steps (tokens): each request counts with its number of steps.

        Equation:
            mean of (G - 1) x (mean context of the request) / mean of (G - 1).

        Raises:
            ValueError: for a mix without a decode step.
        """
        context = self.mean(lambda r: r.decode_steps * r.mean_decode_context if r.decode_steps else 0)
        return float(context / positive(self.mean(lambda r: r.decode_steps), "decode steps of the mix", "steps/request"))


def _weighed(mix, name, unit):
    """The mix with whole weights, of which one at least is above 0."""
    mix = tuple((request, whole(weight, "weight of a request type", unit)) for request, weight in mix)
    positive(sum(weight for _, weight in mix), f"sum of the weights of the {name}")
    return mix


def _seed(seed):
    """A seed: text, or a number. None would draw other numbers every time."""
    if isinstance(seed, str):
        return seed
    seed = finite(seed, "seed")
    return int(seed) if seed % 1 == 0 else float(seed)


@formula
def overall_mean(windows: Sequence[Window], of: Callable[[Request], Number]) -> Number:
    """Mean of ``of(request)`` over all requests of several windows (in its unit): each window counts with its number of
    requests.

    Equation:
        sum of rate x seconds x mean / sum of rate x seconds.

    Args:
        windows: Windows, in order of time.
        of: a function of a Request.

    Example:
        >>> first = Window(60, 4, ((Request(8192, 256), 9), (Request(1024, 2048), 1)))
        >>> second = Window(60, 4, ((Request(8192, 256), 1), (Request(1024, 2048), 9)))
        >>> overall_mean([first, second], lambda r: r.new)
        4608.0
    """
    requests = [Fraction(w.rate) * Fraction(w.seconds) for w in windows]
    positive(sum(requests), "requests in the windows")
    return float(sum(n * w.mean(of) for n, w in zip(requests, windows)) / sum(requests))


class Arrival(NamedTuple):
    """One request at its ``time`` (s), and the name of the client that sent it."""

    time: Seconds
    request: Request
    client: str = ""

    hashes, after = (), None  # of Call alone


class Call(Arrival):
    """An arrival that shares a prefix with others, or waits for another to end (a closed loop).

    Args:
        time: of arrival; with ``after``, what passes between the end of that request and the arrival (s).
        request: a Request.
        client: that sent it.
        hashes: names of its blocks of tokens, in order: of the whole blocks of the prompt and, where known, of those that
            its output fills. Two requests with the same first names share that prefix.
        after: place in the load of an earlier request; this one arrives once that has ended.

    Example:
        >>> Call(2.5, Request(1000, 20), after=0).after
        0
    """

    def __new__(cls, time: Seconds, request: Request, client: str = "", hashes: Sequence[Hashable] = (), after: Count | None = None):
        """As `Arrival`, with what is this one's own."""
        made = super().__new__(cls, time, request, client)
        vars(made).update(hashes=tuple(hashes), after=after)
        return made


def _expected(rate, seconds):
    """Requests to expect in a span (a float); a list of more than a hundred million of them would not end."""
    rate, seconds = float(nonnegative(rate, "rate", "requests/s")), float(nonnegative(seconds, "seconds", "s"))
    return between(rate * seconds, 0, 10**8, "rate x seconds", "requests")


def _variation(cv):
    """A coefficient of variation for which Gamma gaps can be drawn: beyond these the draws run out of digits, or never
    end.
    """
    return float(between(cv, 1e-4, 1000, "cv"))


@formula
def uniform_times(rate: PerSecond, seconds: Seconds, start: Seconds = 0) -> list[Seconds]:
    """Arrival times at equal distances (s), the first at ``start``: rate x seconds of them, rounded.

    Equation:
        t_i = start + i / rate.

    Args:
        rate: arrivals on average (requests/s).
        seconds: length of the span (s).
        start: moment at which the span begins (s).

    Example:
        >>> uniform_times(4, 1)
        [0.0, 0.25, 0.5, 0.75]
    """
    count, rate, start = (round(_expected(rate, seconds)), nonnegative(rate, "rate", "requests/s"), finite(start, "start", "s"))
    return [start + i / rate for i in range(count)]


@formula
def renewal_times(spans: Sequence[Sequence[Seconds]], cv: Number, seed: int | str, start: Seconds = 0) -> list[list[Seconds]]:
    """Arrival times (s) of one source with Gamma gaps through spans of time in a row: a list for each span.

    The gaps are independent in *operational time*, which counts expected requests: it runs at the rate of the moment
    and stands still where the rate is 0. So a gap that begins in one span ends in a later one, and nothing restarts in
    between. The first is what remains of a gap at a moment chosen at random (of a gap in proportion to its length, a
    uniform share): with that, any stretch holds rate x seconds requests on average, however short it is and however
    bursty the source.

    Equation:
        operational time = sum of rate x seconds; gaps there of shape 1/cv^2 and mean 1.

    Args:
        spans: pairs of seconds (s) and rate (requests/s).
        cv: coefficient of variation of the gaps.
        seed: of the draws.
        start: moment at which the span begins (s).

    Source:
        kleinrock1975queueing, for what remains of a gap.

    Example:
        >>> [len(times) for times in renewal_times([(60, 4), (60, 0), (60, 1)], cv=0.01, seed=1)]
        [240, 0, 60]
    """
    shape, rng = 1 / _variation(cv) ** 2, random.Random(_seed(seed))
    gap = lambda: rng.gammavariate(shape, 1 / shape)
    ahead = gap() if cv == 1 else rng.random() * rng.gammavariate(shape + 1, 1 / shape)  # exponential gaps remember nothing
    begin, drawn = float(finite(start, "start", "s")), []
    for seconds, rate in spans:
        room, times = _expected(rate, seconds), []
        while ahead < room:
            times.append(begin + ahead / float(rate))
            ahead += gap()
        begin, ahead = begin + float(seconds), ahead - room  # the gap under way goes on in the next span
        drawn.append(times)
    return drawn


@formula
def random_times(rate: PerSecond, seconds: Seconds, seed: int | str, start: Seconds = 0, cv: Number = 1) -> list[Seconds]:
    """Arrival times of a Poisson process (s), or with another ``cv`` of one with Gamma gaps, from a source that has been
    sending for long.

    Equation:
        independent gaps of mean 1/rate and shape 1/cv^2; the first is what remains of one, see `renewal_times`.

    Args:
        rate: arrivals on average (requests/s).
        seconds: length of the span (s).
        seed: of the draws.
        start: moment at which the span begins (s).
        cv: coefficient of variation of the gaps: at 1 they are exponential, above it arrivals cluster, as in production
            traces, below it they are more even.

    Source:
        wang2025burstgpt, xiang2025servegen, for the shape.

    Example:
        >>> 3800 < len(random_times(4, 1000, seed=1)) < 4200
        True
        >>> len(random_times(4, 1000, seed=1, cv=0.01))
        4000
    """
    return renewal_times([(seconds, positive(rate, "rate", "requests/s"))], cv, seed, start)[0]


@formula
def interleaved(windows: Sequence[Window]) -> list[Arrival]:
    """Arrivals of several windows in a row, evenly spaced, types in turn by their weights: exact counts, no randomness.

    Args:
        windows: each with a mix: weights 9 and 1 give nine of the first type, then one of the second, and again.

    Returns:
        List of Arrival.

    Example:
        >>> a, b = Request(8192, 256), Request(1024, 2048)
        >>> [x.request is a for x in interleaved([Window(1, 4, ((a, 3), (b, 1)))])]
        [True, True, True, False]
    """
    arrivals, start = [], 0
    for window in windows:
        turn = [request for request, weight in window.mix for _ in range(weight)]
        times = uniform_times(window.rate, window.seconds, start)
        arrivals += [Arrival(t, turn[i % len(turn)]) for i, t in enumerate(times)]
        start += window.seconds
    return arrivals


@formula
def sampled(window: Window, times: Sequence[Seconds], seed: int | str, client: str = "") -> list[Arrival]:
    """Arrivals at the given times with types drawn from the mix of the window, whole requests at a time.

    Args:
        window: a Window.
        times: moments of arrival (s).
        seed: of the draws: the types have a stream of their own, so the seed of the times may be used again without
            tying long requests to long gaps.
        client: name of the sender.

    Returns:
        List of Arrival.

    Example:
        >>> mix = ((Request(8192, 256), 9), (Request(1024, 2048), 1))
        >>> 870 < sum(x.request.new == 8192 for x in sampled(Window(60, 4, mix), [0.0] * 1000, seed=1)) < 930
        True
    """
    requests, weights = zip(*window.mix)
    times = [finite(t, "arrival time", "s") for t in times]
    return [Arrival(t, r, client) for t, r in zip(times, random.Random(f"types/{_seed(seed)}").choices(requests, weights, k=len(times)))]


@formula
def random_arrivals(windows: Sequence[Window], cv: Number, seed: int | str, client: str = "") -> list[Arrival]:
    """Arrivals of one source with Gamma gaps through windows in a row, each request drawn from the mix of its window.

    Args:
        windows: Windows, in order of time.
        cv: coefficient of variation of the gaps, see `renewal_times`.
        seed: of the draws.
        client: name of the sender.

    Returns:
        List of Arrival.

    Example:
        >>> mix = ((Request(500, 300), 1),)
        >>> [a.time < 60 for a in random_arrivals([Window(60, 0, mix), Window(60, 1, mix)], cv=3, seed=1)][:2]
        [False, False]
    """
    windows = list(windows)
    streams = renewal_times([(w.seconds, w.rate) for w in windows], cv, seed)
    return [a for k, (w, times) in enumerate(zip(windows, streams)) for a in sampled(w, times, f"{_seed(seed)}/{k}", client)]


@formula
def counts(times: Sequence[Seconds], seconds: Seconds, bins: Count) -> list[Count]:
    """Arrivals (count) in each of ``bins`` equal parts of [0, seconds).

    Args:
        times: those outside are left out (s).
        seconds: length of the span (s).
        bins: how many parts.

    Example:
        >>> counts([0, 0.25, 1.5], seconds=2, bins=2)
        [2, 1]
    """
    bins = whole(bins, "bins", least=1, most=MANY)
    held = [0] * bins
    positive(seconds, "seconds", "s")
    for t in times:
        if 0 <= finite(t, "arrival time", "s") < seconds:
            held[int(t / seconds * bins)] += 1
    return held

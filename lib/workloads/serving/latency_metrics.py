"""What a user, an operator and a capacity plan measure: intervals between events, ranks, and state held over time.

All times are seconds on one clock; all state is bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from ..checks import finite, formula, fraction, nonnegative, some, whole
from ..numeric import Number, ceil, total
from ..units import Count, PerSecond, Seconds, Share, Tokens


def _interval(start, end, names):
    finite(start, names[0], "s")
    finite(end, names[1], "s")
    return nonnegative(end - start, f"time from {names[0]} to {names[1]}", "s")


@formula
def ttft(arrival: Seconds, first: Seconds) -> Seconds:
    """Time to first token (s).

    Equation:
        T_TTFT = t_1 - t_a.

    Args:
        arrival: t_a (s).
        first: t_1, when the first token is returned (s).

    Raises:
        ValueError: for a first token before the arrival.

    Example:
        >>> ttft(2.0, 2.75)
        0.75
    """
    return _interval(arrival, first, ("arrival", "first token"))


@formula
def request_seconds(arrival: Seconds, last: Seconds) -> Seconds:
    """Time of the whole request (s).

    Equation:
        T_request = t_G - t_a.

    Args:
        arrival: t_a (s).
        last: t_G, when the last token is returned (s).

    Raises:
        ValueError: for a last token before the arrival.

    Example:
        >>> request_seconds(2.0, 6.75)
        4.75
    """
    return _interval(arrival, last, ("arrival", "last token"))


@formula
def mean_token_interval(first: Seconds, last: Seconds, output: Tokens) -> Number:
    """TPOT: mean time per output token, between returned tokens (s/token).

    Equation:
        (t_G - t_1)/(G - 1).

    Args:
        first: t_1 (s).
        last: t_G (s).
        output: G (tokens).

    Raises:
        ValueError: at G = 1: a single token has no interval, and 0 would be a false pace.

    Example:
        >>> mean_token_interval(2.75, 6.75, 5)
        1.0
    """
    whole(output, "output", "tokens")
    if output < 2:
        raise ValueError(f"output (tokens) must be at least 2 for an interval between tokens to exist, got {output!r}")
    return _interval(first, last, ("first token", "last token")) / (output - 1)


@formula
def rank(count: Count, q: Share) -> Count:
    """Nearest rank of the q-quantile among sorted observations, counted from 1.

    Equation:
        ceil(q count).

    Args:
        count: of observations.
        q: in (0, 1], taken as the decimal it is written as: 0.95 of 480 is 456 exactly, and no rounding error can push
            it to 457.

    Example:
        >>> rank(4, 0.95), rank(480, 0.95), rank(100, 0.07)
        (4, 456, 7)
    """
    whole(count, "count", "observations", 1)
    # 0.95 is not 95/100 as a float: its text is
    return ceil(Fraction(str(fraction(q, "q"))) * int(count))


@formula
def nearest_rank(values: Sequence[Number], q: Share) -> Number:
    """The q-quantile of the values by nearest rank (in their unit): always one of the values, never between two.

    Args:
        values: at least one.
        q: in (0, 1], see `rank`.

    Example:
        >>> nearest_rank([3.0, 1.0, 9.0, 2.0], 0.95), nearest_rank([3.0, 1.0, 9.0, 2.0], 0.5)
        (9.0, 2.0)
    """
    values = sorted(finite(v, "value") for v in some(values, "values", "observation"))
    return values[rank(len(values), q) - 1]


@formula
def state_area(segments: Sequence[Sequence[Number]]) -> Number:
    """State held over time (byte s).

    Equation:
        A_M = integral of M(t) dt, here the sum of bytes x seconds over constant segments.

    Args:
        segments: pairs of bytes held and seconds.

    Example:
        >>> state_area([(2**30, 10)]) / 2**30
        10.0
    """
    return total(nonnegative(held, "bytes", "B") * nonnegative(seconds, "seconds", "s") for held, seconds in segments)


@formula
def little_occupancy(rate: PerSecond, seconds: Seconds, each: Number = 1) -> Number:
    """Mean amount present in steady state (requests if each = 1, bytes if each is bytes per request): Little's law.

    Equation:
        lambda x tau x M_0.

    Args:
        rate: lambda (1/s).
        seconds: tau, mean stay (s).
        each: M_0, what one of them holds; 1 counts them.

    Assumptions:
        Any arrival process, any order of service; long-run means of a system that is stable.

    Example:
        >>> little_occupancy(2, 10), little_occupancy(2, 10, each=2**30) / 2**30
        (20, 20.0)
    """
    return nonnegative(rate, "rate", "1/s") * nonnegative(seconds, "seconds", "s") * nonnegative(each, "each")

"""A backlog over time: its course through pieces of constant rates, with peak, area, balance and the wait of who comes then.

The queue is that of `serving.fluid`: work flows in and out at given rates and what is not served waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from workloads.checks import finite, formula, keep, nonnegative, some
from workloads.numeric import Number, is_array, total
from workloads.serving.arrivals import Window
from workloads.serving.fluid import drain_seconds, next_backlog
from workloads.units import PerSecond, Seconds


@dataclass(frozen=True)
class Piece:
    """A span of constant rates: ``seconds`` (s), ``arrival_rate`` and ``service_rate`` (work/s)."""

    seconds: Seconds
    arrival_rate: PerSecond
    service_rate: PerSecond

    def __post_init__(self):
        keep(self, nonnegative, "s", "seconds")
        keep(self, nonnegative, "work/s", "arrival_rate", "service_rate")


@formula
def backlog_path(pieces: Sequence[Piece], start: Number = 0, then: PerSecond | None = None) -> list[tuple[Number, Number]]:
    """Corner points (s, work) of the backlog over time: every boundary of a piece, and every instant at which the queue
    empties.

    Between two corners the backlog is a straight line.

    Args:
        pieces: in order of time.
        start: the backlog at time 0 (work).
        then: service rate after the last piece (work/s): nothing arrives any more, and a last corner is where the rest
            has drained. Left out, the path ends with the last piece.

    Example:
        >>> backlog_path([Piece(60, 1, 3), Piece(60, 5, 3), Piece(90, 0, 3)])
        [(0, 0), (60, 0), (120, 120), (160.0, 0), (210, 0)]
        >>> backlog_path([Piece(60, 5, 3)], then=3)
        [(0, 0), (60, 120), (100.0, 0)]
    """
    now, backlog = 0, nonnegative(start, "start", "work")
    path = [(now, backlog)]
    for piece in pieces:
        shrink = (piece.service_rate - piece.arrival_rate) * piece.seconds
        if 0 < backlog < shrink:
            path.append((now + backlog / (piece.service_rate - piece.arrival_rate), 0))
        arrived, served = piece.arrival_rate * piece.seconds, piece.service_rate * piece.seconds
        now, backlog = now + piece.seconds, next_backlog(backlog, arrived, served)
        path.append((now, backlog))
    if then is not None:
        drained = drain_seconds(backlog, then)
        path += [(now + drained, 0)] if backlog else []
    return path


def _corners(path):
    """The corners (s, work) of a path, one or more."""
    return [
        (finite(time, "time of a corner", "s"), nonnegative(backlog, "backlog at a corner", "work"))
        for time, backlog in some(path, "path", "corner")
    ]


@formula
def backlog_at(path: Sequence[Sequence[Number]], time: Seconds) -> Number:
    """Backlog at an instant of the path (work), by linear interpolation.

    Args:
        path: corners (s, work).
        time: moment that is asked for (s).

    Raises:
        ValueError: outside the path.

    Example:
        >>> backlog_at([(0, 0), (60, 0), (120, 120), (160, 0)], 130)
        90.0
    """
    path, time = _corners(path), finite(time, "time", "s")
    for (left, low), (right, high) in pairwise(path):
        if left <= time <= right:
            return low if right == left else low + (high - low) * (time - left) / (right - left)
    raise ValueError(f"time (s) must lie between {path[0][0]} and {path[-1][0]}, got {time!r}")


@formula
def largest(path: Sequence[Sequence[Number]]) -> Sequence[Number]:
    """The corner (s, work) with the largest backlog; the earliest if several share it.

    Args:
        path: corners (s, work).

    Example:
        >>> largest([(0, 0), (60, 0), (120, 120), (160, 0)])
        (120, 120)
    """
    return max(_corners(path), key=lambda corner: corner[1])


@formula
def backlog_area(path: Sequence[Sequence[Number]]) -> Number:
    """Integral of the backlog over time (work s). Divided by the work that arrived it is the mean delay of that work:
    Little's law.

    Equation:
        sum over the pieces of the path of seconds x (backlog at its start + backlog at its end) / 2.

    Args:
        path: corners (s, work).

    Example:
        >>> backlog_area([(0, 0), (60, 0), (120, 120), (160, 0)])
        6000.0
    """
    return total((right - left) * (low + high) / 2 for (left, low), (right, high) in pairwise(_corners(path)))


@formula
def balance(pieces: Sequence[Piece], start: Number = 0) -> tuple[Number, Number, Number]:
    """Work that arrived, was served and is left over (work).

    Equation:
        start + arrived = served + left. Served work is counted on its own, as busy capacity: mu while there is a
        backlog, the smaller of the two rates while there is none.

    Args:
        pieces: in order of time.
        start: the backlog at time 0 (work).

    Example:
        >>> balance([Piece(60, 1, 3), Piece(60, 5, 3)])
        (360, 240.0, 120)
    """
    arrived, served, backlog = (total(p.arrival_rate * p.seconds for p in pieces), [], nonnegative(start, "start", "work"))
    for p in pieces:
        emptied = _seconds_until_empty(p, backlog)
        served.append(p.service_rate * emptied + min(p.arrival_rate, p.service_rate) * (p.seconds - emptied))
        backlog = next_backlog(backlog, p.arrival_rate * p.seconds, p.service_rate * p.seconds)
    return arrived, float(total(served)), backlog


def _seconds_until_empty(piece, backlog):
    """Seconds of the piece during which work is waiting."""
    if piece.service_rate <= piece.arrival_rate:
        return piece.seconds if backlog or piece.arrival_rate > piece.service_rate else 0
    return min(piece.seconds, backlog / (piece.service_rate - piece.arrival_rate))


@formula
def delay_at(pieces: Sequence[Piece], time: Seconds, service_rate: PerSecond, start: Number = 0) -> Seconds:
    """How long work that arrives at an instant waits before it is reached, first come first served (s).

    Args:
        pieces: in order of time.
        time: the instant (s).
        service_rate: after the last piece (work/s).
        start: the backlog at time 0 (work). The backlog that it finds is worked off at the rates of the rest of the
            pieces.

    Example:
        >>> delay_at([Piece(60, 5, 3)], 60, service_rate=3)
        40.0
    """
    nonnegative(service_rate, "service_rate", "work/s")
    ahead = backlog_at(backlog_path(pieces, start), time)
    end, waited = 0, 0.0
    for piece in pieces:
        end += piece.seconds
        left = min(piece.seconds, max(0, end - time))
        if ahead <= piece.service_rate * left:
            return waited + (ahead / piece.service_rate if ahead else 0.0)
        ahead, waited = ahead - piece.service_rate * left, waited + left
    return waited + drain_seconds(ahead, service_rate)


@formula
def decode_pieces(windows: Sequence[Window], service_rate: PerSecond) -> list[Piece]:
    """The pieces of a load's decode work (steps/s): each window with its arriving decode steps.

    Args:
        windows: Windows, in order of time.
        service_rate: one for all windows, or a list of one a window (steps/s).

    Raises:
        ValueError: where the list has another length.

    Example:
        >>> from workloads.serving.arrivals import Window
        >>> from workloads.counts.request_tokens import Request
        >>> decode_pieces([Window(60, 4, ((Request(8192, 256), 1),))], service_rate=1500)
        [Piece(seconds=60, arrival_rate=1020.0, service_rate=1500)]
    """
    rates = list(service_rate) if isinstance(service_rate, (list, tuple)) or is_array(service_rate) else [service_rate] * len(windows)
    if len(rates) != len(windows):
        raise ValueError(f"service_rate (steps/s) must be one for all windows, or one for each of {len(windows)}, got {len(rates)}")
    return [Piece(w.seconds, w.step_rate, rate) for w, rate in zip(windows, rates)]

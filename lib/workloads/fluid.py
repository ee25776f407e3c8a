"""The fluid queue: work flows in and out at rates that are constant between instants, so the backlog is piecewise linear and exact.

Work is counted in any one unit (decode steps here); time in seconds. Randomness inside a piece is left out, so a fluid backlog is what
the mean rates alone force: where it is above 0, no order of service avoids it.
"""
from dataclasses import dataclass
from itertools import pairwise

from . import flops, memory, roofline
from .arrivals import step_rate
from .domain import finite, formula, keep, nonnegative, positive, some, whole
from .generic import is_array, is_symbolic, maximum, total


@dataclass(frozen=True)
class Piece:
    """A span of constant rates: ``seconds`` (s), ``arrival_rate`` and ``service_rate`` (work/s)."""
    seconds: float
    arrival_rate: float
    service_rate: float

    def __post_init__(self):
        keep(self, nonnegative, "s", "seconds")
        keep(self, nonnegative, "work/s", "arrival_rate", "service_rate")


@formula
def decode_rate(card, model, batch, past, cards=1, mfu=1, mbu=1):
    """Highest rate at which cards, each with a whole copy of the model and a batch of its own, do decode work (request steps/s).

    cards=4 means four whole copies, not one model split over four cards.

    Equation: cards x batch / roofline seconds of one step: FLOPs against the card's dense BF16 peak, bytes (weights, KV read and written,
    embedding rows) against its bandwidth.
    Parameters: card, an Accelerator; model, a Model; batch, sequences of a step; past, tokens of each (a mean will do: both counts are
    linear in it); cards; mfu, mbu in (0, 1].
    Assumptions: with mfu = mbu = 1 an upper bound of the rate.
    Raises: ValueError where one card holds less than the BF16 weights and the cache of its batch; it says what would fit.

    >>> from workloads.hardware import accelerator
    >>> from workloads.models import model
    >>> round(decode_rate(accelerator("RTX PRO 6000 Blackwell Workstation"), model("Qwen3-8B"), batch=64, past=2742), 2)
    2795.66
    """
    work, moved = flops.decode_step(model, past, batch).total, memory.decode_traffic(model, past, batch).total
    seconds = roofline.roofline_seconds(work, moved, card.peak("bf16"), card.bandwidth, mfu, mbu)
    _refuse_what_does_not_fit(card, model, batch, past)
    return whole(cards, "cards", "", 1) * batch / seconds


def _refuse_what_does_not_fit(card, model, batch, past):
    weights, cache = memory.weight_bytes(model), memory.kv_bytes(model, past, batch)
    if is_symbolic(cache) or weights + (most := cache.max() if is_array(cache) else cache) <= card.memory_bytes:
        return
    have = f"of one {card.name}, {card.memory_bytes:,} B"
    if weights > card.memory_bytes:
        least = memory.cards_that_hold(model, card.memory_bytes)
        raise ValueError(f"model must fit the memory {have}, since every card holds a whole copy, got {model.name} with {weights:,} B "
                         f"of weights: split over cards, a copy takes at least {least}")
    raise ValueError(f"batch x past (sequences x tokens) must leave a cache of at most {card.memory_bytes - weights:,} B, what the weights "
                     f"of {model.name} leave of the memory {have}: {(card.memory_bytes - weights) // memory.kv_bytes_per_token(model):,} "
                     f"tokens, got {most:,} B")


@formula
def next_backlog(backlog, arrived, served):
    """Backlog at the end of a window (work).

    Equation: Q_(k+1) = max(0, Q_k + A_k - mu_k dt). The maximum is why capacity left over in one window is lost for the next.
    Parameters: backlog Q_k; arrived A_k; served mu_k dt, what capacity allows (work).
    Assumptions: constant rates within the window; then it is exact.

    >>> next_backlog(0, 104, 335), next_backlog(0, 448, 335)
    (0, 113)
    """
    nonnegative(backlog, "backlog", "work"), nonnegative(arrived, "arrived", "work"), nonnegative(served, "served", "work")
    return maximum(0, backlog + arrived - served)


@formula
def burst_backlog(arrival_rate, service_rate, seconds):
    """Backlog after a burst that meets an empty queue (work).

    Equation: max(0, lambda_w - mu) x tau.
    Parameters: arrival_rate lambda_w, service_rate mu (work/s); seconds tau (s).

    >>> burst_backlog(7, 5, 30), burst_backlog(5, 7, 30)
    (60, 0)
    """
    excess = nonnegative(arrival_rate, "arrival_rate", "work/s") - nonnegative(service_rate, "service_rate", "work/s")
    return maximum(0, excess) * nonnegative(seconds, "seconds", "s")


@formula
def drain_seconds(backlog, service_rate, arrival_rate=0):
    """Time until a backlog is gone (s).

    Equation: Q/(mu - lambda_w); 0 without a backlog.
    Parameters: backlog Q (work); service_rate mu, arrival_rate lambda_w (work/s).
    Raises: ValueError where the queue does not shrink.

    >>> round(drain_seconds(56376, 5592), 2), drain_seconds(0, 5, arrival_rate=9)
    (10.08, 0.0)
    """
    nonnegative(backlog, "backlog", "work"), nonnegative(arrival_rate, "arrival_rate", "work/s")
    nonnegative(service_rate, "service_rate", "work/s")
    if backlog == 0:
        return 0.0
    return backlog / positive(service_rate - arrival_rate, "service_rate - arrival_rate", "work/s")


@formula
def backlog_path(pieces, start=0):
    """Corner points (s, work) of the backlog over time: every boundary of a piece, and every instant at which the queue empties.

    Between two corners the backlog is a straight line.

    Parameters: pieces, in order of time; start, the backlog at time 0 (work).

    >>> backlog_path([Piece(60, 1, 3), Piece(60, 5, 3), Piece(90, 0, 3)])
    [(0, 0), (60, 0), (120, 120), (160.0, 0), (210, 0)]
    """
    now, backlog = 0, nonnegative(start, "start", "work")
    path = [(now, backlog)]
    for piece in pieces:
        shrink = (piece.service_rate - piece.arrival_rate) * piece.seconds
        if 0 < backlog < shrink:
            path.append((now + backlog / (piece.service_rate - piece.arrival_rate), 0))
        now, backlog = now + piece.seconds, next_backlog(backlog, piece.arrival_rate * piece.seconds, piece.service_rate * piece.seconds)
        path.append((now, backlog))
    return path


@formula
def path_until_empty(pieces, service_rate, start=0):
    """The backlog's path (s, work) with one more corner: after the last piece nothing arrives and the rest drains.

    Parameters: pieces, start as in `backlog_path`; service_rate after the last piece (work/s).

    >>> path_until_empty([Piece(60, 5, 3)], service_rate=3)
    [(0, 0), (60, 120), (100.0, 0)]
    """
    path = backlog_path(pieces, start)
    end, rest = path[-1]
    drained = drain_seconds(rest, service_rate)
    return [*path, (end + drained, 0)] if rest else path


def _corners(path):
    """The corners (s, work) of a path, one or more."""
    return [(finite(time, "time of a corner", "s"), nonnegative(backlog, "backlog at a corner", "work"))
            for time, backlog in some(path, "path", "corner")]


@formula
def backlog_at(path, time):
    """Backlog at an instant of the path (work), by linear interpolation.

    Parameters: path, corners (s, work); time (s).
    Raises: ValueError outside the path.

    >>> backlog_at([(0, 0), (60, 0), (120, 120), (160, 0)], 130)
    90.0
    """
    path, time = _corners(path), finite(time, "time", "s")
    for (left, low), (right, high) in pairwise(path):
        if left <= time <= right:
            return low if right == left else low + (high - low) * (time - left) / (right - left)
    raise ValueError(f"time (s) must lie between {path[0][0]} and {path[-1][0]}, got {time!r}")


@formula
def peak(path):
    """The corner (s, work) with the largest backlog; the earliest if several share it.

    >>> peak([(0, 0), (60, 0), (120, 120), (160, 0)])
    (120, 120)
    """
    return max(_corners(path), key=lambda corner: corner[1])


@formula
def backlog_area(path):
    """Integral of the backlog over time (work s). Divided by the work that arrived it is the mean delay of that work: Little's law.

    Equation: sum over the pieces of the path of seconds x (backlog at its start + backlog at its end) / 2.

    >>> backlog_area([(0, 0), (60, 0), (120, 120), (160, 0)])
    6000.0
    """
    return total((right - left) * (low + high) / 2 for (left, low), (right, high) in pairwise(_corners(path)))


@formula
def work(pieces, start=0):
    """Work that arrived, was served and is left over (work).

    Equation: start + arrived = served + left. Served work is counted on its own, as busy capacity: mu while there is a backlog, the
    smaller of the two rates while there is none.
    Parameters: pieces; start, the backlog at time 0 (work).

    >>> work([Piece(60, 1, 3), Piece(60, 5, 3)])
    (360, 240.0, 120)
    """
    arrived, served, backlog = total(p.arrival_rate * p.seconds for p in pieces), [], nonnegative(start, "start", "work")
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
def delay_at(pieces, time, service_rate, start=0):
    """How long work that arrives at an instant waits before it is reached, first come first served (s).

    Parameters: pieces; time, the instant (s); service_rate after the last piece (work/s); start, the backlog at time 0 (work). The
    backlog that it finds is worked off at the rates of the rest of the pieces.

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
def decode_pieces(windows, service_rate):
    """The pieces of a load's decode work (steps/s): each window with its arriving decode steps.

    Parameters: windows; service_rate (steps/s), one for all windows, or a list of one a window.
    Raises: ValueError where the list has another length.

    >>> from workloads.arrivals import Window
    >>> from workloads.requests import Request
    >>> decode_pieces([Window(60, 4, ((Request(8192, 256), 1),))], service_rate=1500)
    [Piece(seconds=60, arrival_rate=1020.0, service_rate=1500)]
    """
    rates = list(service_rate) if isinstance(service_rate, (list, tuple)) or is_array(service_rate) else [service_rate] * len(windows)
    if len(rates) != len(windows):
        raise ValueError(f"service_rate (steps/s) must be one for all windows, or one for each of {len(windows)}, got {len(rates)}")
    return [Piece(w.seconds, step_rate(w), rate) for w, rate in zip(windows, rates)]

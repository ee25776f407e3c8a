"""Media that must arrive in time: chunks and their buffer, interruptions, observation at intervals.

All times are milliseconds (ms), the unit in which audio clocks tick: whole numbers and Fractions stay exact. Chunks are played in
order, each at its own speed, and none is dropped: a late chunk makes playback wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate
from typing import NamedTuple

from workloads.checks import MANY, finite, formula, fraction, nonnegative, positive, some, whole
from workloads.numeric import Number, ceil, is_array, maximum, total
from workloads.units import Bytes, Count, Milliseconds, PerSecond, Share, Tokens


@formula
def chunk_bytes(sample_rate: PerSecond, chunk: Milliseconds, channels: Count = 1, bytes_per_sample: Bytes = 2) -> Bytes:
    """Bytes of an uncompressed chunk of sound (B).

    Equation:
        rate x time x channels x bytes a sample.

    Args:
        sample_rate: samples of a channel (samples/s).
        chunk: length of a piece (ms).
        channels: 1 for mono, 2 for stereo.
        bytes_per_sample: width of a sample (B).

    Raises:
        ValueError: unless the chunk holds a whole number of samples.

    Example:
        >>> chunk_bytes(24_000, 20)
        960
    """
    samples = positive(sample_rate, "sample_rate", "samples/s") * Fraction(positive(chunk, "chunk", "ms")) / 1000
    values = whole(samples, "samples in a chunk", least=1) * whole(channels, "channels", least=1)
    return int(values * whole(bytes_per_sample, "bytes_per_sample", "B", least=1))


def _each(value, count, name, check=nonnegative):
    """The value for each of ``count`` chunks: one for all, or a sequence of them."""
    values = list(value) if isinstance(value, (list, tuple)) or is_array(value) else [value] * count
    if len(values) != count:
        raise ValueError(f"{name} (ms) must be one number or one for each of {count} chunks, got {len(values)}")
    return [check(v, name, "ms") for v in values]


class _Delivery(NamedTuple):
    """When a chunk has been captured, processed, sent and has arrived (ms)."""

    captured: float
    processed: float
    sent: float
    arrived: float


def _in_turn(ready, spent):
    """Ends of jobs that one worker does in order, each as soon as it is ready and the one before it done."""
    ends = []
    for start, busy in zip(ready, spent):
        ends.append(max(start, ends[-1] if ends else start) + busy)
    return ends


@formula
def deliveries(chunks: Count, chunk: Milliseconds, process: Milliseconds, send: Milliseconds, network: Milliseconds) -> list[_Delivery]:
    """Way of each chunk from microphone to player, a list of Delivery.

    Equation:
        captured_i = (i + 1) chunk; processed and sent: one at a time, in order; arrived = sent + network, in any order.

    Args:
        chunks: pieces of sound, sent one by one.
        chunk: ms of sound.
        process: one number, or one a chunk (ms).
        send: one number, or one a chunk (ms).
        network: one number, or one a chunk (ms).

    Assumptions:
        One model and one link, each working on one chunk at a time, side by side with each other; the network carries
        any number at once and may let one overtake another.

    Example:
        >>> deliveries(2, 20, process=12, send=1, network=5)[1]
        _Delivery(captured=40, processed=52, sent=53, arrived=58)
    """
    chunks, chunk = whole(chunks, "chunks", least=1, most=MANY), positive(chunk, "chunk", "ms")
    captured = [(i + 1) * chunk for i in range(chunks)]
    processed = _in_turn(captured, _each(process, chunks, "process"))
    sent = _in_turn(processed, _each(send, chunks, "send"))
    ways = zip(captured, processed, sent, _each(network, chunks, "network"))
    return [_Delivery(start, made, gone, gone + delay) for start, made, gone, delay in ways]


class _Play(NamedTuple):
    """A chunk at the player (ms): when it is due, when it starts and ends, how long playback stood still for it."""

    due: float
    start: Milliseconds
    end: float
    stall: float


def _offsets(arrivals, chunk):
    """Durations of the chunks, and the sum of those before each."""
    whole(len(arrivals), "number of chunks", least=1)
    durations = _each(chunk, len(arrivals), "chunk", positive)
    return durations, list(accumulate(durations, initial=0))[:-1]


@formula
def playback(arrivals: Sequence[Milliseconds], chunk: Milliseconds, buffer: Milliseconds) -> list[_Play]:
    """Playback of chunks in order: a `_Play` for each of them.

    Equation:
        start_0 = a_0 + buffer; due_i = start_0 + sound before i; start_i = max(a_i, end_(i-1)); stall_i = start_i -
        end_(i-1).

    Args:
        arrivals: a_i (ms), in the order of the sound.
        chunk: its duration (ms): one number, or one a chunk.
        buffer: wait between the first arrival and the first sound (ms).

    Assumptions:
        The buffer is waited for once; after a stall the late chunk is played at once, and all that follow are late by
        it.

    Example:
        >>> [play.start for play in playback([38, 58, 123, 98], 20, buffer=40)]
        [78, 98, 123, 143]
    """
    durations, before = _offsets(arrivals, chunk)
    first = finite(arrivals[0], "arrivals", "ms") + nonnegative(buffer, "buffer", "ms")
    plays, end = [], first
    for arrival, duration, sound in zip(arrivals, durations, before):
        start = max(finite(arrival, "arrivals", "ms"), end)
        plays.append(_Play(first + sound, start, start + duration, start - end))
        end = start + duration
    return plays


@formula
def smallest_buffer(arrivals: Sequence[Milliseconds], chunk: Milliseconds) -> Milliseconds:
    """Smallest buffer with which these arrivals play without a stall (ms).

    Equation:
        max over i of a_i - a_0 - sound before i. A smaller buffer b stalls for exactly the rest, this less b.

    Args:
        arrivals: a_i (ms), in the order of the sound.
        chunk: its duration (ms): one number, or one a chunk.

    Example:
        >>> smallest_buffer([38, 58, 123, 98], 20)
        45
    """
    _, before = _offsets(arrivals, chunk)
    return max(finite(arrival, "arrivals", "ms") - arrivals[0] - sound for arrival, sound in zip(arrivals, before))


@formula
def arrived_audio(arrivals: Sequence[Milliseconds], chunk: Milliseconds, time: Milliseconds) -> Milliseconds:
    """Sound that can be played by a time (ms): A(t), the chunks up to the first that is missing.

    Args:
        arrivals: a_i (ms), in the order of the sound.
        chunk: its duration (ms): one number, or one a chunk.
        time: moment that is asked for (ms).

    Example:
        >>> arrived_audio([38, 58, 123, 98], 20, 110), arrived_audio([38, 58, 123, 98], 20, 123)
        (40, 80)
    """
    durations, _ = _offsets(arrivals, chunk)
    # a chunk can be played once it and all before it are there
    complete = accumulate((finite(arrival, "arrivals", "ms") for arrival in arrivals), max)
    return total(duration for ready, duration in zip(complete, durations) if ready <= finite(time, "time", "ms"))


@formula
def heard(plays: Sequence[_Play], end: Milliseconds, start: Milliseconds | None = None) -> Milliseconds:
    """Sound that is heard between two times (ms), stalls left out: P(t) from the first sound on, or what still comes out
    after an interruption.

    Args:
        plays: from `playback`.
        end: moment that is asked for (ms).
        start: in ms; left out, the first sound or the end, whichever comes first.

    Raises:
        ValueError: for an end before the start.

    Example:
        >>> plays = playback([38, 58, 123, 98], 20, buffer=40)
        >>> heard(plays, 120), heard(plays, 130, start=110)
        (40, 15)
    """
    plays, end = some(plays, "plays", "chunk"), finite(end, "end", "ms")
    start = min(end, plays[0].start) if start is None else finite(start, "start", "ms")
    nonnegative(end - start, "end - start", "ms")
    for play in plays:
        for name, time in play._asdict().items():
            finite(time, f"{name} of a chunk", "ms")
    return total(max(0, min(end, play.end) - max(start, play.start)) for play in plays)


@formula
def next_tick(time: Milliseconds, period: Milliseconds) -> Milliseconds:
    """First tick at or after a time (ms), of a clock that acts every period from time 0 on.

    Equation:
        ceil(time / period) period, the ratio taken exactly.

    Args:
        time: moment that is asked for (ms).
        period: from one tick to the next (ms).

    Example:
        >>> next_tick(128, 10), next_tick(130, 10)
        (130, 130)
    """
    return ceil(Fraction(finite(time, "time", "ms")) / Fraction(positive(period, "period", "ms"))) * period


@formula
def miss_probability(duration: Milliseconds, period: Milliseconds) -> Number:
    """Chance that an event which lasts some time falls between two looks, one every period.

    Equation:
        max(0, 1 - duration / period).

    Args:
        duration: both ms, or any one unit.
        period: both ms, or any one unit.

    Assumptions:
        A look takes no time and sees all that is there; the event's start is equally likely at every point of a period.

    Example:
        >>> miss_probability(500, 2000), miss_probability(500, 400)
        (0.75, 0)
    """
    return maximum(0, 1 - nonnegative(duration, "duration", "ms") / positive(period, "period", "ms"))


@formula
def observation_tokens(time: Milliseconds, period: Milliseconds, tokens: Tokens, kept: Share = 1) -> Tokens:
    """Tokens that looks leave in the context, on average (tokens).

    Equation:
        time / period x kept x tokens a look.

    Args:
        time: moment that is asked for (ms).
        period: from one look to the next (ms).
        tokens: of a look.
        kept: share of the looks that a filter passes on, in [0, 1].

    Example:
        >>> observation_tokens(60_000, 500, tokens=400, kept=0.25)
        12000.0
    """
    looks = nonnegative(time, "time", "ms") / positive(period, "period", "ms")
    return looks * fraction(kept, "kept", zero=True) * nonnegative(tokens, "tokens")


@formula
def milliseconds_until_full(room: Tokens, period: Milliseconds, tokens: Tokens, kept: Share = 1) -> Milliseconds:
    """Time until looks have filled the room in a context (ms).

    Equation:
        room / (kept x tokens a look) x period.

    Args:
        room: tokens.
        period: from one look to the next (ms).
        tokens: of a look.
        kept: share of the looks passed on, in (0, 1].

    Raises:
        ValueError: for kept = 0: such a context never fills.

    Example:
        >>> milliseconds_until_full(32_000, 500, tokens=400)
        40000.0
    """
    looks = nonnegative(room, "room", "tokens") / (positive(tokens, "tokens") * fraction(kept, "kept"))
    return looks * positive(period, "period", "ms")

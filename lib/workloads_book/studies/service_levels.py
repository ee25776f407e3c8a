"""A request's timestamps and the chunks of its stream, deadlines it may keep, and the rate of requests that keep them.

The intervals themselves are those of `serving.latency_metrics`. All times are seconds on one clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from workloads.checks import finite, formula, keep, nonnegative, positive, some, whole
from workloads.serving.latency_metrics import _interval, mean_token_interval, request_seconds, ttft
from workloads.units import Count, PerSecond, Seconds


@dataclass(frozen=True)
class Events:
    """Timestamps of one request (s), in the order in which they happen, and the tokens it returned.

    Attributes:
        arrival: when the request comes in (s).
        scheduled: leaves the queue.
        prepared: input tokenised and in device memory.
        computed: first token exists.
        first: first token at the client.
        last: last token at the client.
        output: tokens returned.

    Raises:
        ValueError: where one lies before its predecessor.
    """

    arrival: Seconds
    scheduled: Seconds
    prepared: float
    computed: float
    first: Seconds
    last: Seconds
    output: int

    def __post_init__(self):
        keep(self, whole, "tokens", "output", least=1)
        names = ("arrival", "scheduled", "prepared", "computed", "first", "last")
        keep(self, finite, "s", *names)
        for before, after in pairwise(names):
            _interval(getattr(self, before), getattr(self, after), (before, after))

    @property
    def ttft_stages(self) -> dict[str, Seconds]:
        """The four stages whose times add up to the TTFT (s): queueing, preparation, computation, return.

        Example:
            >>> Events(0.0, 1.5, 1.75, 2.25, 2.5, 4.5, 9).ttft_stages
            {'queueing': 1.5, 'preparation': 0.25, 'computation': 0.5, 'return': 0.25}
        """
        marks = (self.arrival, self.scheduled, self.prepared, self.computed, self.first)
        stages = ("queueing", "preparation", "computation", "return")
        return {name: end - start for name, start, end in zip(stages, marks, marks[1:])}


@dataclass(frozen=True)
class Chunk:
    """Tokens that reach the client together at one ``time`` (s)."""

    time: Seconds
    tokens: int

    def __post_init__(self):
        keep(self, finite, "s", "time")
        keep(self, whole, "", "tokens", least=1)


def _in_order(chunks):
    chunks = some(chunks, "chunks", "chunk")
    for before, after in pairwise(chunks):
        _interval(before.time, after.time, ("a chunk", "the next chunk"))
    return chunks


@formula
def chunk_intervals(chunks: Sequence[Chunk]) -> list[Seconds]:
    """ITL, inter-token latency: times between successive chunks (s), what a reader of the stream feels; one fewer than there are chunks.

    Args:
        chunks: in order of time.

    Raises:
        ValueError: for no chunk, or chunks out of order.

    Example:
        >>> chunk_intervals([Chunk(1.0, 1), Chunk(1.5, 8), Chunk(2.5, 8)])
        [0.5, 1.0]
    """
    chunks = _in_order(chunks)
    return [after.time - before.time for before, after in pairwise(chunks)]


@formula
def time_of_token(chunks: Sequence[Chunk], index: Count) -> Seconds:
    """Time at which a token has reached the client (s).

    Args:
        chunks: in order of time.
        index: of the token, from 1. Behind h hidden reasoning tokens, token 1 is the first internal one and token h + 1
            the first visible one.

    Raises:
        ValueError: if the stream ends before that token.

    Example:
        >>> time_of_token([Chunk(1.0, 1), Chunk(1.5, 8), Chunk(2.5, 8)], 10)
        2.5
    """
    whole(index, "index", "", 1)
    seen = 0
    for chunk in _in_order(chunks):
        seen += chunk.tokens
        if seen >= index:
            return chunk.time
    raise ValueError(f"index must be at most {seen}, the tokens in the stream, got {index!r}")


@dataclass(frozen=True)
class Objectives:
    """SLO: deadlines of a request (TTFT s, TPOT s/token, whole request s); one that is None is not asked for."""

    ttft: float | None = None
    token_interval: float | None = None
    request: float | None = None

    def __post_init__(self):
        for name, unit in (("ttft", "s"), ("token_interval", "s/token"), ("request", "s")):
            keep(self, nonnegative, unit, name, unknown=True)

    def met_by(self, events: Events) -> bool:
        """Whether a request keeps every deadline; a pace is not asked of a request with a single token.

        Args:
            events: the request's Events.

        Example:
            >>> Objectives(ttft=2.5, token_interval=0.2).met_by(Events(0.0, 1.5, 1.75, 2.25, 2.5, 4.5, 9))
            False
        """
        held = [(self.ttft, ttft(events.arrival, events.first)), (self.request, request_seconds(events.arrival, events.last))]
        if events.output > 1:
            held.append((self.token_interval, mean_token_interval(events.first, events.last, events.output)))
        return all(limit is None or spent <= limit for limit, spent in held)


@formula
def goodput(requests: Sequence[Events], objectives: Objectives, seconds: Seconds, accepted: Sequence[bool] | None = None) -> PerSecond:
    """Requests per second that keep every deadline and pass the quality check (requests/s).

    Equation:
        number of requests that meet the objectives and are accepted / seconds.

    Args:
        requests: their Events.
        objectives: Objectives.
        seconds: the span (s).
        accepted: of each request, whether its result passed; without it every finished request counts as passed.

    Assumptions:
        Late and wrong results count as nothing, not as a part.

    Example:
        >>> goodput([Events(0, 0, 0, 1, 1, 2, 5), Events(0, 3, 3, 4, 4, 5, 5)], Objectives(ttft=2), seconds=10)
        0.1
    """
    requests = list(requests)
    accepted = [True] * len(requests) if accepted is None else list(accepted)
    if len(accepted) != len(requests):
        raise ValueError(f"accepted must hold one verdict per request ({len(requests)}), got {len(accepted)}")
    return sum(bool(ok) and objectives.met_by(e) for e, ok in zip(requests, accepted)) / positive(seconds, "seconds", "s")

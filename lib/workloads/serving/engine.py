"""The engine of one replica as the simulators know it: its settings, the requests it holds, and what a run says.

Time is counted in whole ticks (see `step_seconds`), so that a sum in closed form equals the sum step by step exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..checks import finite, flag, keep, nonnegative, some, whole
from ..numeric import Number
from ..units import Count, Seconds, Tokens
from .latency_metrics import nearest_rank, request_seconds, ttft
from .step_seconds import TICKS


@dataclass(frozen=True)
class Engine:
    """Scheduler settings of one replica, by vLLM's names.

    Every running request must get a token of the budget, so that decoding requests never wait for each other.

    Attributes:
        blocks: usable KV blocks (vLLM reports them as num_gpu_blocks).
        block_size: tokens.
        max_num_batched_tokens: token budget, most tokens of one step.
        max_num_seqs: seats, most running requests.
        max_model_len: most tokens of a request, prompt and output together.
        whole_sequence: admit only what fits whole (else: what fits its first chunk).
        prefix_caching: keep whole blocks by the names of `arrivals.Call` until their room is needed, least recently used
            first, and let later requests find them.
        planned_ahead: a step is planned while the one before it runs (asynchronous scheduling): what arrives then waits for
            one step more.
        host_seconds: between arrival and queue: HTTP, tokens, the way to the engine (s).

    Example:
        >>> Engine(blocks=10921).blocks_of(8193)
        513
    """

    blocks: int
    block_size: int = 16
    max_num_batched_tokens: int = 4096
    max_num_seqs: int = 64
    max_model_len: int = 10240
    whole_sequence: bool = True
    prefix_caching: bool = False
    planned_ahead: bool = False
    host_seconds: Seconds = 0

    def __post_init__(self):
        for name, unit in (("blocks", ""), ("block_size", "tokens"), ("max_num_seqs", "requests"), ("max_model_len", "tokens")):
            keep(self, whole, unit, name, least=1)
        keep(self, whole, "tokens/step", "max_num_batched_tokens", least=self.max_num_seqs)
        keep(self, flag, "", "whole_sequence", "prefix_caching", "planned_ahead")
        keep(self, nonnegative, "s", "host_seconds")

    def blocks_of(self, tokens: Tokens) -> Number:
        """Blocks that hold so many tokens: ceil(tokens / block size).

        Args:
            tokens: length of a sequence (tokens).
        """
        return -(-tokens // self.block_size)


@dataclass(frozen=True)
class Served:
    """One request after the run, times in s: arrival, scheduled (first in a step), first token, last token; and its
    preemptions.
    """

    arrival: Seconds
    scheduled: Seconds
    first: Seconds
    last: Seconds
    prompt: int
    output: int
    preemptions: int


@dataclass(frozen=True)
class Run:
    """Result of a simulation: every request's times, and what follows from them: p95 of TTFT, makespan, preemptions.

    Attributes:
        requests: `Served`, in order of arrival.
        steps: of the engine.
        events: rounds of the simulator's loop.
        timeline: for the last step of every event (time of its end in s, KV blocks in use, requests in the step).

    Example:
        >>> run = Run((Served(0.0, 0.5, 1.0, 3.0, prompt=8, output=2, preemptions=0),), steps=2, events=2, timeline=())
        >>> run.p95_times()
        {'request_p95': 3.0, 'ttft_p95': 1.0, 'wait_p95': 0.5, 'makespan': 3.0}
        >>> run.outstanding(2)
        1
    """

    requests: tuple
    steps: int
    events: int
    timeline: tuple

    @property
    def preemptions(self) -> Count:
        """Preemptions of all requests together (events)."""
        return sum(r.preemptions for r in self.requests)

    @property
    def makespan(self) -> Seconds:
        """Time from the first arrival to the last token of all (s)."""
        return max(r.last for r in self.requests) - self.requests[0].arrival

    def p95_times(self) -> dict[str, Seconds]:
        """Nearest-rank p95 of request time, TTFT and wait for the first scheduling, and the makespan (s)."""
        return {
            "request_p95": nearest_rank([request_seconds(r.arrival, r.last) for r in self.requests], 0.95),
            "ttft_p95": nearest_rank([ttft(r.arrival, r.first) for r in self.requests], 0.95),
            "wait_p95": nearest_rank([r.scheduled - r.arrival for r in self.requests], 0.95),
            "makespan": self.makespan,
        }

    def outstanding(self, time: Seconds) -> Count:
        """Requests that have arrived and not ended at a time (count).

        Args:
            time: moment that is asked for (s).
        """
        finite(time, "time", "s")
        return sum(r.arrival <= time < r.last for r in self.requests)


def _ticks(seconds):
    """Whole ticks, rounded up."""
    parts, whole_ = seconds.as_integer_ratio()
    return -(-parts * TICKS // whole_)


class _Row:
    """State of a request in an engine. known = prompt + returned tokens; target = tokens to compute before it decodes
    (again); place in the load; index in the order of arrival.
    """

    __slots__ = (
        "after arrival blocks computed end finish first hashes index known last offset place preemptions prompt restored scheduled target"
    ).split()

    def __init__(self, place, arrival, engine):
        self.place, self.index, self.after, self.hashes = place, place, arrival.after, arrival.hashes
        self.arrival = _ticks(arrival.time) + (_ticks(engine.host_seconds) if engine.host_seconds else 0)
        self.prompt, self.restored = int(arrival.request.past + arrival.request.new), int(arrival.request.past)
        self.end = self.prompt + int(arrival.request.output)
        self.known = self.target = self.prompt
        self.computed, self.preemptions, self.blocks = 0, 0, None
        self.scheduled = self.first = self.last = None

    def __lt__(self, other):
        return (self.arrival, self.place) < (other.arrival, other.place)

    def preempt(self) -> None:
        self.computed, self.target, self.preemptions = 0, self.known, self.preemptions + 1

    def sample(self, now: Number) -> bool:
        """Return a token at ``now``; whether it was the last."""
        self.known += 1
        if self.first is None:
            self.first = now
        if self.known == self.end:
            self.last = now
        return self.known == self.end


def _rows(load, engine):
    load, previous = some(load, "load", "arrival"), 0
    for place, arrival in enumerate(load):
        (time, request, _), hashes, after = arrival, arrival.hashes, arrival.after
        if after is not None:
            nonnegative(time, "time after a request", "s")
            if whole(after, "after") >= place:
                raise ValueError(f"after must be the place of an earlier request, below {place}, got {after!r}")
        elif nonnegative(time, "arrival", "s") < previous:
            raise ValueError(f"arrivals (s) must be in order, got {time!r} after {previous!r}")
        else:
            previous = time
        if (request.past or hashes) and not engine.prefix_caching:
            raise ValueError(
                f"past (tokens) must be 0 and hashes must be empty without prefix caching, got {request.past!r}, {len(hashes)}"
            )
        tokens = request.past + request.new + request.output
        if tokens > engine.max_model_len:
            raise ValueError(f"new + output (tokens) must be at most the engine's max_model_len {engine.max_model_len}, got {tokens!r}")
        if engine.blocks_of(tokens - 1) > engine.blocks:
            pool = f"{engine.blocks} blocks of {engine.block_size}, needs {engine.blocks_of(tokens - 1)}"
            raise ValueError(f"new + output - 1 (tokens) must fit the pool of {pool}, got {tokens - 1!r}")
    return load, [_Row(i, a, engine) for i, a in enumerate(load)]


def _run(load, rows, steps, events, timeline, engine):
    host, served = _ticks(engine.host_seconds) if engine.host_seconds else 0, []
    for a, r in zip(load, rows):
        arrival = a.time if a.after is None else (r.arrival - host) / TICKS
        served.append(Served(arrival, r.scheduled / TICKS, r.first / TICKS, r.last / TICKS, r.prompt, a.request.output, r.preemptions))
    return Run(tuple(served), steps, events, tuple((now / TICKS, used, running) for now, used, running in timeline))

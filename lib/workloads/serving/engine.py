"""The engine of one replica as the simulators know it: its settings, the requests it holds, and what a run says.

Time is counted in whole ticks (see `step_seconds`), so that a sum in closed form equals the sum step by step exactly.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import gcd, inf, lcm
from typing import Any, NamedTuple

from ..checks import finite, flag, formula, keep, nonnegative, positive, some, whole
from ..counts import memory
from ..facts.formats import BF16, Formats
from ..facts.models import Model
from ..numeric import Number
from ..units import Bytes, Count, Seconds, Tokens
from .latency_metrics import nearest_rank, request_seconds, ttft
from .step_seconds import TICKS

WHOLE = ((0, 1),)  # every layer keeps every position


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
        groups: of layers with a cache, (positions that they keep, 0 for all; blocks that block_size tokens take in them).
            What a chunk under way needs beside its window is taken for part of the activations.
        seat: blocks that a running request takes for its states, whatever its length.

    Example:
        >>> Engine(blocks=10921).blocks_of(8193), Engine(blocks=10921, groups=((0, 1), (128, 1)), seat=2).blocks_of(8193)
        (513, 523)
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
    groups: tuple[tuple[Tokens, Count], ...] = WHOLE
    seat: int = 0

    def __post_init__(self):
        for name, unit in (("blocks", ""), ("block_size", "tokens"), ("max_num_seqs", "requests"), ("max_model_len", "tokens")):
            keep(self, whole, unit, name, least=1)
        keep(self, whole, "tokens/step", "max_num_batched_tokens", least=self.max_num_seqs)
        keep(self, flag, "", "whole_sequence", "prefix_caching", "planned_ahead")
        keep(self, nonnegative, "s", "host_seconds")
        keep(self, whole, "blocks", "seat")
        groups = tuple((whole(kept, "positions of groups"), whole(blocks, "blocks of groups", least=1)) for kept, blocks in self.groups)
        object.__setattr__(self, "groups", groups)
        if self.prefix_caching and (self.seat or groups != WHOLE):
            raise ValueError(
                f"prefix_caching must be False where windows drop their past or states are kept, got {groups}, seat {self.seat}"
            )

    def blocks_of(self, tokens: Tokens) -> Number:
        """Blocks that hold a sequence: of each group of layers ceil(tokens that it keeps / block size), and its seat.

        Args:
            tokens: length of a sequence (tokens).
        """
        if self.groups == WHOLE:
            return self.seat - (-tokens // self.block_size)
        held = ((min(tokens, kept) if kept else tokens, blocks) for kept, blocks in self.groups)
        return self.seat - sum(blocks * (-length // self.block_size) for length, blocks in held)


@formula
def cache_pool(
    model: Model, free: Bytes, cards: Count = 1, block_size: Tokens = 16, formats: Formats = BF16, whole_past: bool = False
) -> dict[str, Any]:
    """The pool of an engine, as keywords of `Engine`: blocks, block_size, groups, seat.

    Equation:
        a block is the greatest common measure of what block_size tokens leave in the layers of each group; blocks =
        floor(free / block), seat = ceil(state of a sequence / block).

    Args:
        model: a Model.
        free: memory of all cards beside the weights (B).
        cards: that share the model by tensor parallelism: what a card cannot split, each keeps.
        block_size: tokens.
        formats: a `Formats`.
        whole_past: layers with a window keep every position all the same (as an engine without groups of layers does);
            by default only their window, as `kv_bytes` counts.

    Example:
        >>> from workloads.facts.models import model
        >>> cache_pool(model("gpt-oss-120b"), 16e9)
        {'blocks': 27126, 'block_size': 16, 'groups': ((0, 1), (128, 1)), 'seat': 0}
        >>> cache_pool(model("Mamba-2-2.7B"), 16e9)
        {'blocks': 184, 'block_size': 16, 'groups': (), 'seat': 1}
    """
    free, state, sizes = positive(free, "free", "B"), Fraction(memory.state_bytes(model)), {}
    block_size = int(whole(block_size, "block_size", "tokens", least=1))
    for size, span in memory._by_span(model, formats.cache_bytes, whole(cards, "cards", least=1)):
        kept = 0 if flag(whole_past, "whole_past") else span.keeps
        sizes[kept] = sizes.get(kept, 0) + Fraction(size) / span.every * block_size
    parts = sizes.values() or [positive(state, f"cache or state of {model.name}", "B")]
    block = Fraction(gcd(*(part.numerator for part in parts)), lcm(*(part.denominator for part in parts)))
    groups = tuple((kept, int(size / block)) for kept, size in sorted(sizes.items()))
    return {"blocks": int(free // block), "block_size": block_size, "groups": groups, "seat": int(-(-state // block))}


class Served(NamedTuple):
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

    Raises:
        ValueError: for a number of steps or events that is none.

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
    timeline: Sequence

    def __post_init__(self):
        keep(self, whole, "", "steps", "events")

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
        new, self.restored = int(arrival.request.new), int(arrival.request.past)
        self.prompt = new + self.restored if self.restored else new  # the same object: a run may keep millions
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


def _checked(load, engine, step_time):
    """A load as a list, if it can be served."""
    load, previous = load if isinstance(load, (list, tuple)) and load else some(load, "load", "arrival"), 0
    if engine.prefix_caching and any(kind.span is None for kind in step_time.kinds):
        raise ValueError("prefix_caching must be False for a model with states: none is kept for a prefix, got True")
    for place, arrival in enumerate(load):
        (time, request, _), hashes, after = arrival, arrival.hashes, arrival.after
        if after is None and type(time) in (int, float) and previous <= time < inf:
            previous = time
        elif after is not None:
            nonnegative(time, "time after a request", "s")
            if whole(after, "after") >= place:
                raise ValueError(f"after must be the place of an earlier request, below {place}, got {after!r}")
        elif nonnegative(time, "arrival", "s") < previous:  # what is no plain number, or out of order
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
    return load


def _served(row, arrival, engine):
    """A request that has ended, in seconds."""
    came = arrival.time if arrival.after is None else (row.arrival - _ticks(engine.host_seconds)) / TICKS
    return Served(came, row.scheduled / TICKS, row.first / TICKS, row.last / TICKS, row.prompt, arrival.request.output, row.preemptions)


class _Timeline(Sequence):
    """Events of a run, packed: a run may have millions."""

    def __init__(self, engine):
        narrow = lambda most: array(next(code for code in "hiq" if most < 2 ** (8 * array(code).itemsize - 1)))
        self._parts = array("d"), narrow(engine.blocks), narrow(engine.max_num_seqs)

    def add(self, now: Number, used: Count, running: Count) -> None:
        """One event more."""
        times, blocks, rows = self._parts
        times.append(now / TICKS), blocks.append(used), rows.append(running)

    def __len__(self):
        return len(self._parts[0])

    def __getitem__(self, place):
        found = [part[place] for part in self._parts]
        return tuple(zip(*found)) if isinstance(place, slice) else tuple(found)

    def __eq__(self, other):
        return tuple(self) == tuple(other)

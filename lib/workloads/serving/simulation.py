"""Continuous batching of one replica: a scheduler in the manner of vLLM's, driven by the roofline time of each step.

`serve_stepwise` takes one engine step after the other and is the reference. `serve` gives the same result, to the last digit, at a
cost that grows with the number of events (arrivals, chunks, completions, preemptions) and not with the number of steps.

Rules of one step. (1) Running requests in list order take one token each, or as much of their prompt as the token budget leaves. Where a
block of KV is missing, the last of the list is preempted: its blocks are freed and it goes to the front of the queue, to be computed
again from its first token. (2) If nothing was preempted, requests enter from the front of the queue while budget and seats are left and
the whole sequence known so far would fit the free blocks (only the blocks of the first chunk are taken). (3) A request whose known
tokens are all computed returns one more. KV of the last token is never written.

Left out: prefix caching, priorities, speculative decoding, time on the host between steps.

Time is counted in whole ticks (see `steptime`), so that a sum in closed form equals the sum step by step exactly.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any

from ..checks import finite, flag, formula, keep, nonnegative, some, whole
from ..numeric import Number
from ..units import Count, Seconds, Tokens
from .arrivals import Arrival
from .latency_metrics import nearest_rank, request_seconds, ttft
from .step_seconds import TICKS, StepTime


@dataclass(frozen=True)
class Engine:
    """Scheduler settings of one replica.

    The budget must give every seat a token, so that decoding requests never wait for each other.

    Attributes:
        blocks: usable KV blocks.
        block_size: tokens.
        token_budget: most tokens of one step.
        seats: most running requests.
        max_length: most tokens of a request, prompt and output together.
        whole_sequence: admit only what fits whole (else: what fits its first chunk).

    Example:
        >>> Engine(blocks=10921).blocks_of(8193)
        513
    """

    blocks: int
    block_size: int = 16
    token_budget: int = 4096
    seats: int = 64
    max_length: int = 10240
    whole_sequence: bool = True

    def __post_init__(self):
        for name, unit in (("blocks", ""), ("block_size", "tokens"), ("seats", "requests"), ("max_length", "tokens")):
            keep(self, whole, unit, name, least=1)
        keep(self, whole, "tokens/step", "token_budget", least=self.seats)
        keep(self, flag, "", "whole_sequence")

    def blocks_of(self, tokens: Tokens) -> Number:
        """Blocks that hold so many tokens: ceil(tokens / block size).

        Args:
            tokens: how many.
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
    """Result of a simulation: the requests in order of arrival, engine steps, events (rounds of the simulator's loop),
    and the timeline: for the last step of every event (time of its end in s, KV blocks in use, requests in the
    step).
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


@formula
def p95_times(run: Run) -> dict[str, Seconds]:
    """Nearest-rank p95 of request time, TTFT and wait for the first scheduling, and the makespan (s), a dict named as
    `replay.Measured`.

    Args:
        run: a `Run`.

    Example:
        >>> p95_times(
        ...     Run((Served(0.0, 0.5, 1.0, 3.0, prompt=8, output=2, preemptions=0),), steps=2, events=2, timeline=())
        ... )
        {'request_p95': 3.0, 'ttft_p95': 1.0, 'wait_p95': 0.5, 'makespan': 3.0}
    """
    return {
        "request_p95": nearest_rank([request_seconds(r.arrival, r.last) for r in run.requests], 0.95),
        "ttft_p95": nearest_rank([ttft(r.arrival, r.first) for r in run.requests], 0.95),
        "wait_p95": nearest_rank([r.scheduled - r.arrival for r in run.requests], 0.95),
        "makespan": run.makespan,
    }


@formula
def outstanding(run: Run, time: Seconds) -> Count:
    """Requests that have arrived and not ended at a time (count).

    Args:
        run: a `Run`.
        time: in s.

    Example:
        >>> outstanding(
        ...     Run((Served(0.0, 0.5, 1.0, 3.0, prompt=8, output=2, preemptions=0),), steps=2, events=2, timeline=()),
        ...     time=2,
        ... )
        1
    """
    finite(time, "time", "s")
    return sum(r.arrival <= time < r.last for r in run.requests)


class _Row:
    """State of a request in an engine. known = prompt + returned tokens; target = tokens to compute before it decodes
    (again).
    """

    __slots__ = (
        "arrival",
        "computed",
        "end",
        "finish",
        "first",
        "index",
        "known",
        "last",
        "offset",
        "preemptions",
        "prompt",
        "scheduled",
        "target",
    )

    def __init__(self, index, arrival):
        seconds, parts = arrival.time.as_integer_ratio()
        self.index, self.arrival, self.prompt = index, -(-seconds * TICKS // parts), int(arrival.request.new)
        self.end = self.prompt + int(arrival.request.output)
        self.known = self.target = self.prompt
        self.computed = self.preemptions = 0
        self.scheduled = self.first = self.last = None

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
    for time, request, _ in load:
        if nonnegative(time, "arrival", "s") < previous:
            raise ValueError(f"arrivals (s) must be in order, got {time!r} after {previous!r}")
        if request.past:
            raise ValueError(f"past (tokens) must be 0, prefix caching is not modelled, got {request.past!r}")
        tokens, previous = request.new + request.output, time
        if tokens > engine.max_length:
            raise ValueError(f"new + output (tokens) must be at most the engine's max_length {engine.max_length}, got {tokens!r}")
        if engine.blocks_of(tokens - 1) > engine.blocks:
            pool = f"{engine.blocks} blocks of {engine.block_size}"
            raise ValueError(f"new + output - 1 (tokens) must fit the pool of {pool}, got {tokens - 1!r}")
    return load, [_Row(i, a) for i, a in enumerate(load)]


def _run(load, rows, steps, events, timeline):
    served = (
        Served(a.time, r.scheduled / TICKS, r.first / TICKS, r.last / TICKS, a.request.new, a.request.output, r.preemptions)
        for a, r in zip(load, rows)
    )
    return Run(tuple(served), steps, events, tuple((now / TICKS, used, running) for now, used, running in timeline))


@formula
def serve_stepwise(load: Sequence[Arrival], engine: Engine, step_time: StepTime) -> Run:
    """Run of a load on one replica, one engine step after the other. Slow and plain: the reference for `serve`.

    Args:
        load: a sequence of `arrivals.Arrival` in order of time.
        engine: an `Engine`.
        step_time: a `step_seconds.StepTime`.

    Returns:
        Run.

    Raises:
        ValueError: for an empty or unsorted load and for a request beyond the pool or the length limit.

    Example:
        >>> from workloads.serving.arrivals import Arrival
        >>> from workloads.counts.request_tokens import Request
        >>> from workloads.facts.accelerators import Accelerator
        >>> from workloads.times.machine import Machine
        >>> second_a_token = StepTime(1, 0, 0, 0, 0, 0, Machine(Accelerator("one FLOP a second", 1, 1, {"bf16": 1})))
        >>> serve_stepwise(
        ...     [Arrival(1.0, Request(100, 3))], Engine(blocks=10, token_budget=64, seats=2), second_a_token
        ... ).steps
        4
    """
    load, rows = _rows(load, engine)
    coming, waiting, running, timeline = deque(rows), deque(), [], []
    blocks, free, now, steps = engine.blocks_of, engine.blocks, 0, 0
    while coming or waiting or running:
        while coming and coming[0].arrival <= now:
            waiting.append(coming.popleft())
        if not (waiting or running):
            now = coming[0].arrival
            continue
        budget, planned, preempted = engine.token_budget, [], False
        while len(planned) < len(running):  # (1) running requests, in list order
            row = running[len(planned)]
            new = min(row.known - row.computed, budget)
            need = blocks(row.computed + new) - blocks(row.computed)
            while need > free and len(running) > len(planned):
                victim = running.pop()
                free += blocks(victim.computed)
                victim.preempt()
                waiting.appendleft(victim)
                preempted = True
            if len(running) > len(planned):  # unless it was preempted itself
                free, budget = free - need, budget - new
                planned.append((row, new))
        while not preempted and waiting and budget and len(running) < engine.seats:  # (2) admission
            row = waiting[0]
            new = min(row.known, budget)
            if blocks(row.known if engine.whole_sequence else new) > free:
                break
            free, budget = free - blocks(new), budget - new
            running.append(waiting.popleft())
            planned.append((row, new))
            row.scheduled = now if row.scheduled is None else row.scheduled
        tokens = logits = pairs = context = decode_context = 0
        for row, new in planned:
            if row.computed >= row.target:
                decode_context += row.computed + new
            else:
                pairs += new * row.computed + new * (new + 1) // 2
                context += row.computed + new
            tokens += new
            row.computed += new
            logits += row.computed == row.known
        now, steps = now + step_time.step(tokens, logits, pairs, context, decode_context), steps + 1
        timeline.append((now, engine.blocks - free, len(running)))
        for row, _ in planned:  # (3) tokens come out
            if row.computed == row.known and row.sample(now):
                running.remove(row)
                free += blocks(row.computed)
    return _run(load, rows, steps, steps, timeline)


class _Decoding:
    """The decoding rows, advanced all at once: a row's computed tokens are the common step count plus its own offset."""

    def __init__(self, block_size):
        self.rows, self.ends, self.step, self.context = {}, [], 0, 0  # rows: in list order; ends: heap of finishing steps
        self.size, self.phases = block_size, [0] * block_size  # phases: rows by offset modulo the block size

    def join(self, row: Any) -> None:
        row.offset, row.finish = row.computed - self.step, self.step + row.end - row.known
        self.rows[row] = None
        self.context += row.computed + 1
        self.phases[row.offset % self.size] += 1
        heappush(self.ends, (row.finish, row.index, row))

    def leave(self, row: Any) -> None:
        del self.rows[row]
        row.computed = self.step + row.offset
        row.known = row.computed + 1
        self.context -= row.known
        self.phases[row.offset % self.size] -= 1

    def advance(self, steps: Count) -> None:
        self.step += steps
        self.context += steps * len(self.rows)

    def next_end(self) -> tuple[Number | None, Any]:
        """Steps until a row returns its last token, and that row; entries of rows that were preempted since are
        dropped.
        """
        while self.ends:
            finish, _, row = self.ends[0]
            if row in self.rows and row.finish == finish:
                return finish - self.step, row
            heappop(self.ends)
        return None, None

    def ended(self) -> Any:
        """A row that has returned its last token and now leaves; None if there is none."""
        steps, row = self.next_end()
        if steps == 0:
            self.leave(row)
            return row
        return None

    def need(self) -> Number:
        """Blocks that the next step takes: one for every row whose tokens fill whole blocks."""
        return self.phases[-self.step % self.size]

    def span_need(self, steps: Count) -> Number:
        """Blocks that the next so many steps take: one a row in every block_size steps."""
        cycles, rest = divmod(steps, self.size)
        return cycles * len(self.rows) + sum(self.phases[-(self.step + j) % self.size] for j in range(rest))

    def steps_within(self, free: Number) -> Number:
        """Most steps for which the free blocks last."""
        cycles, free = divmod(free, len(self.rows))
        steps = cycles * self.size
        while (free := free - self.phases[-(self.step + steps) % self.size]) >= 0:
            steps += 1
        return steps


def _chunk_step(step_time, decoding, chunks):
    """Ticks of a step that computes the (row, tokens) chunks beside the decoding rows."""
    tokens = logits = len(decoding.rows)
    pairs = context = 0
    for row, new in chunks:
        pairs += new * row.computed + new * (new + 1) // 2
        context += row.computed + new
        tokens += new
        row.computed += new
        logits += row.computed == row.known
    return step_time.step(tokens, logits, pairs, context, decoding.context)


def _span(step_time, decoding, free, gap):
    """Steps and ticks of a span of pure decoding: up to a row's last token, the step for which blocks are missing, or
    the first step boundary at or beyond ``gap`` ticks (None: no arrival can enter).
    """
    rows, context = len(decoding.rows), decoding.context
    steps = min(decoding.next_end()[0], decoding.steps_within(free))
    if gap is not None:
        steps = min(steps, 1 + bisect_left(range(1, steps), gap, key=lambda n: step_time.span(rows, context, n)))
    return steps, step_time.span(rows, context, steps)


@formula
def serve(load: Sequence[Arrival], engine: Engine, step_time: StepTime) -> Run:
    """Run of a load on one replica, from event to event: equal to `serve_stepwise` in every number but ``events``; the
    timeline holds the last steps of the events only.

    Between events every decoding row gains a token a step and nothing else moves, so a span of steps is an arithmetic
    series. An arrival ends a span only if it could enter: a blocked queue stays blocked, since free blocks only fall. A
    step with prompt chunks or a preemption is an event by itself. The decoding rows come first in the running list, and
    at most one row behind them, the last, is within its prompt: the budget has a token for every seat, and no one
    enters behind an unfinished prompt.

    Args:
        load: a sequence of `arrivals.Arrival` in order of time.
        engine: an `Engine`.
        step_time: a `step_seconds.StepTime`.

    Raises:
        ValueError: as in `serve_stepwise`.

    Example:
        >>> from workloads.serving.arrivals import Arrival
        >>> from workloads.counts.request_tokens import Request
        >>> from workloads.facts.accelerators import Accelerator
        >>> from workloads.times.machine import Machine
        >>> second_a_token = StepTime(1, 0, 0, 0, 0, 0, Machine(Accelerator("one FLOP a second", 1, 1, {"bf16": 1})))
        >>> run = serve([Arrival(1.0, Request(100, 3))], Engine(blocks=10, token_budget=64, seats=2), second_a_token)
        >>> run.steps, run.requests[0].first, run.requests[0].last
        (4, 101.0, 103.0)
    """
    load, rows = _rows(load, engine)
    coming, waiting, decoding, partial, timeline = deque(rows), deque(), _Decoding(engine.block_size), None, []
    blocks, free, now, events = engine.blocks_of, engine.blocks, 0, 0
    while coming or waiting or decoding.rows or partial:
        while coming and coming[0].arrival <= now:
            waiting.append(coming.popleft())
        if not (waiting or decoding.rows or partial):
            now = coming[0].arrival
            continue
        victims, chunks = [], []
        while decoding.need() > free:  # (1) decoding rows, then the unfinished prompt
            victim, partial = partial or next(reversed(decoding.rows)), None
            if victim in decoding.rows:
                decoding.leave(victim)
            victims.append(victim)
            free += blocks(victim.computed)
        left, budget = free - decoding.need(), engine.token_budget - len(decoding.rows)
        if partial:
            new = min(partial.known - partial.computed, budget)
            need = blocks(partial.computed + new) - blocks(partial.computed)
            if need > left:
                victims.append(partial)
                left += blocks(partial.computed)
            else:
                left, budget = left - need, budget - new
                chunks.append((partial, new))
            partial = None
        for victim in victims:
            victim.preempt()
            waiting.appendleft(victim)
        while not victims and waiting and budget and len(decoding.rows) + len(chunks) < engine.seats:  # (2) admission
            row = waiting[0]
            new = min(row.known, budget)
            if blocks(row.known if engine.whole_sequence else new) > left:
                break
            left, budget = left - blocks(new), budget - new
            chunks.append((waiting.popleft(), new))
            row.scheduled = now if row.scheduled is None else row.scheduled
        if chunks or victims:
            now, steps, free = now + _chunk_step(step_time, decoding, chunks), 1, left
        else:
            open_seat = coming and not waiting and len(decoding.rows) < engine.seats
            steps, ticks = _span(step_time, decoding, free, coming[0].arrival - now if open_seat else None)
            now, free = now + ticks, free - decoding.span_need(steps)
        decoding.advance(steps)
        events += 1
        timeline.append((now, engine.blocks - free, len(decoding.rows) + len(chunks)))
        while (row := decoding.ended()) is not None:  # (3) last tokens, then first tokens
            row.last = now
            free += blocks(row.computed)
        for row, _ in chunks:
            if row.computed < row.known:
                partial = row
            elif row.sample(now):
                free += blocks(row.computed)
            else:
                decoding.join(row)
    return _run(load, rows, decoding.step, events, timeline)

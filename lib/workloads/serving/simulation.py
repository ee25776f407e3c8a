"""Continuous batching of one replica, chunked prefill and preemption: a scheduler in the manner of vLLM's, by the roofline of each step.

`serve` goes from event to event: its cost grows with the number of arrivals, chunks, completions and preemptions and not with the number
of steps. `simulation_steps.serve_stepwise` takes one step after the other and gives the same result, to the last digit.

Rules of one step. (1) Running requests in list order take one token each, or as much of their prompt as the token budget leaves. Where a
block of KV is missing, the last of the list is preempted: its blocks are freed and it goes to the front of the queue, to be computed
again from its first token. (2) If nothing was preempted, requests enter from the front of the queue while budget and seats
(max_num_seqs) are left and the whole sequence known so far would fit the free blocks (only the blocks of the first chunk are taken).
(3) A request whose known tokens are all computed returns one more. KV of the last token is never written.

Left out: prefix caching, priorities, speculative decoding, time on the host between steps.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Any

from ..checks import formula
from ..numeric import Number
from ..units import Count
from .arrivals import Arrival
from .engine import Engine, Run, _rows, _run
from .step_seconds import StepTime


class _Decoding:
    """The decoding rows, advanced all at once: a row's computed tokens are the common step count plus its own offset."""

    def __init__(self, block_size):
        self.rows, self.ends = {}, []  # in list order; heap of finishing steps
        self.step, self.context = 0, 0
        # a row needs a block whenever its tokens fill whole ones: rows by offset modulo the block size say how many at a step
        self.size, self.phases = block_size, [0] * block_size

    def join(self, row: Any) -> None:
        row.offset = row.computed - self.step
        row.finish = self.step + row.end - row.known
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
            heappop(self.ends)  # left since: a heap gives up an entry only at its top
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
        cycles, free = divmod(free, len(self.rows))  # every block_size steps each row takes one block
        steps = cycles * self.size
        # fewer free blocks than rows are left: step by step, until a step wants more than there are
        while (free := free - self.phases[-(self.step + steps) % self.size]) >= 0:
            steps += 1
        return steps


def _chunk_step(step_time, decoding, chunks):
    """Ticks of a step that computes the (row, tokens) chunks beside the decoding rows."""
    tokens = logits = len(decoding.rows)
    pairs = context = 0
    for row, new in chunks:
        # a new token attends to all computed before the chunk, and within it to itself and those before it
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
    if gap is not None:  # seconds of n steps grow with n, so the first boundary at or beyond the gap is found by halving
        steps = min(steps, 1 + bisect_left(range(1, steps), gap, key=lambda n: step_time.span(rows, context, n)))
    return steps, step_time.span(rows, context, steps)


def _thrown_out(decoding, partial, free, blocks):
    """Rows preempted until the others' next step fits, last first; the unfinished prompt if it stays; the free blocks."""
    victims = []
    while decoding.need() > free:
        # the unfinished prompt stands last in the list, behind all decoding rows: it goes first
        victim, partial = partial or next(reversed(decoding.rows)), None
        if victim in decoding.rows:
            decoding.leave(victim)
        victims.append(victim)
        free += blocks(victim.computed)
    return victims, partial, free


def _admitted(waiting, engine, seats, budget, free):
    """Requests that enter from the front of the queue, with the tokens of their first chunks; the blocks left."""
    chunks = []
    while waiting and budget and len(chunks) < seats:
        row = waiting[0]
        new = min(row.known, budget)
        if engine.blocks_of(row.known if engine.whole_sequence else new) > free:
            break
        free, budget = free - engine.blocks_of(new), budget - new
        chunks.append((waiting.popleft(), new))
    return chunks, free


def _planned(decoding, partial, waiting, engine, free):
    """(1) and (2) of a step that begins: chunks to compute, rows preempted (back in the queue), the blocks then free."""
    blocks, chunks = engine.blocks_of, []
    victims, partial, free = _thrown_out(decoding, partial, free, blocks)
    left, budget = free - decoding.need(), engine.max_num_batched_tokens - len(decoding.rows)
    if partial:
        new = min(partial.known - partial.computed, budget)
        need = blocks(partial.computed + new) - blocks(partial.computed)
        if need > left:  # nobody stands behind it: it gives way itself
            victims.append(partial)
            left += blocks(partial.computed)
        else:
            left, budget = left - need, budget - new
            chunks.append((partial, new))
    for victim in victims:
        victim.preempt()
        waiting.appendleft(victim)
    if waiting and not victims:
        entered, left = _admitted(waiting, engine, engine.max_num_seqs - len(decoding.rows) - len(chunks), budget, left)
        chunks += entered
    return chunks, victims, left


def _returned(decoding, chunks, now, blocks):
    """(3) Last tokens of decoding rows, then first tokens of prompts: the unfinished prompt, and the blocks given back."""
    partial, freed = None, 0
    while (row := decoding.ended()) is not None:
        row.last = now
        freed += blocks(row.computed)
    for row, _ in chunks:
        if row.computed < row.known:
            partial = row
        elif row.sample(now):
            freed += blocks(row.computed)
        else:
            decoding.join(row)
    return partial, freed


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
        >>> run = serve([Arrival(1.0, Request(100, 3))], Engine(blocks=10, max_num_batched_tokens=64, max_num_seqs=2), second_a_token)
        >>> run.steps, run.requests[0].first, run.requests[0].last
        (4, 101.0, 103.0)
    """
    load, rows = _rows(load, engine)
    coming, waiting, decoding, partial, timeline = deque(rows), deque(), _Decoding(engine.block_size), None, []
    free, now, events = engine.blocks, 0, 0
    while coming or waiting or decoding.rows or partial:
        while coming and coming[0].arrival <= now:
            waiting.append(coming.popleft())
        if not (waiting or decoding.rows or partial):
            now = coming[0].arrival
            continue
        chunks, victims, left = _planned(decoding, partial, waiting, engine, free)
        for row, _ in chunks:
            row.scheduled = now if row.scheduled is None else row.scheduled
        if chunks or victims:  # one step, by itself
            now, steps, free = now + _chunk_step(step_time, decoding, chunks), 1, left
        else:  # pure decoding: jump to the step at which a row ends, a block is missing or an arrival can enter
            open_seat = coming and not waiting and len(decoding.rows) < engine.max_num_seqs
            steps, ticks = _span(step_time, decoding, free, coming[0].arrival - now if open_seat else None)
            now, free = now + ticks, free - decoding.span_need(steps)
        decoding.advance(steps)
        events += 1
        timeline.append((now, engine.blocks - free, len(decoding.rows) + len(chunks)))
        partial, freed = _returned(decoding, chunks, now, engine.blocks_of)
        free += freed
    return _run(load, rows, decoding.step, events, timeline)

"""Continuous batching of one replica, chunked prefill and preemption: a scheduler in the manner of vLLM's, by the roofline of each step.

`serve` goes from event to event: its cost grows with the number of arrivals, chunks, completions and preemptions and not with the number
of steps. `simulation_steps.serve_stepwise` takes one step after the other and gives the same result, to the last digit.

Rules of one step. (1) Running requests in list order take one token each, or as much of their prompt as the token budget leaves. Where a
block of KV is missing, the last of the list is preempted: its blocks are freed and it goes to the front of the queue, to be computed
again from its first token. (2) If nothing was preempted, requests enter from the front of the queue while budget and seats
(max_num_seqs) are left and the whole sequence known so far would fit the free blocks (only the blocks of the first chunk are taken).
(3) A request whose known tokens are all computed returns one more. KV of the last token is never written.

With prefix caching a request that enters finds the blocks that hold its first tokens (whole ones; its last known token is always
computed), shares them with whoever uses them, and its own get their names when their tokens are computed, those of its output when it
ends. Free blocks keep their content until they are taken, least recently used first; a request leaves its last block first. A block whose
content another one has already gets no name. Tokens of a ``past`` that has no names are restored into blocks of the request's own.

Left out: priorities, speculative decoding.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush
from math import inf
from typing import Any

from ..checks import formula
from ..numeric import Number
from ..units import Count
from .arrivals import Arrival
from .blocks import _CachingPool, _Coming, _Met, _Pool
from .engine import Engine, Run, _checked, _served, _Timeline
from .step_seconds import StepTime


class _Decoding:
    """The decoding rows, advanced all at once: a row's computed tokens are the common step count plus its own offset."""

    def __init__(self, engine, kinds):
        self.rows, self.ends = {}, []  # in list order; heap of finishing steps
        self.step, self.context = 0, 0
        # a row needs blocks whenever its tokens fill whole ones: rows by step modulo the block size say how many
        self.size, self.phases = engine.block_size, [0] * engine.block_size
        self.groups = [_Met(self.size, -(-kept // self.size), False, blocks, self.phases) for kept, blocks in engine.groups]
        self.kinds = [_Met(*((kind.span.every, kind.span.sees, kind.span.chunk) if kind.span else (1, 1))) for kind in kinds]
        self.filling = [met for met in (*self.groups, *self.kinds) if met.most]

    def join(self, row: Any) -> None:
        row.offset = row.computed - self.step
        row.finish = self.step + row.end - row.known
        self.rows[row] = None
        self.context += row.computed + 1
        self._change(row, 1)
        heappush(self.ends, (row.finish, row.index, row))

    def leave(self, row: Any) -> None:
        del self.rows[row]
        row.computed = self.step + row.offset
        row.known = row.computed + 1
        self.context -= row.known
        self._change(row, -1)

    def _change(self, row, sign):
        for group in self.groups:
            group.change(row.computed + self.size - 1, self.step, sign)
        for kind in self.kinds:
            kind.change(row.computed + 1, self.step, sign)

    def advance(self, steps: Count) -> None:
        for kind in self.kinds:
            kind.advance(self.step, steps)
        self.step += steps
        self.context += steps * len(self.rows)
        for met in self.filling:
            met.turn(self.step)

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
        if not self.ends or self.ends[0][0] > self.step:
            return None
        steps, row = self.next_end()
        if steps == 0:
            self.leave(row)
            return row
        return None

    def need(self) -> Number:
        """Blocks that the next step takes, for every row whose tokens fill whole ones."""
        return self.phases[(self.step + 1) % self.size]

    def span_need(self, steps: Count) -> Number:
        """Blocks that the next so many steps take: in every block_size steps what a block of all rows needs."""
        cycles, rest = divmod(steps, self.size)
        return cycles * sum(self.phases) + sum([self.phases[(self.step + j) % self.size] for j in range(1, rest + 1)])

    def steps_within(self, free: Number) -> Number:
        """Most steps for which the free blocks last, and all that rows meet grows evenly."""
        most = min([min(met.due) for met in self.filling if met.due], default=inf) - self.step
        if not (each := sum(self.phases)):
            return most
        cycles, free = divmod(free, each)  # every block_size steps each row takes a block of each group that still grows
        steps = cycles * self.size
        # fewer free blocks than that are left: step by step, until a step wants more than there are
        while steps < most and (free := free - self.phases[(self.step + steps + 1) % self.size]) >= 0:
            steps += 1
        return min(steps, most)


def _chunk_step(step_time, decoding, chunks):
    """Ticks of a step that computes the (row, tokens) chunks beside the decoding rows."""
    tokens = logits = len(decoding.rows)
    pairs = context = 0
    met = step_time.kinds and [
        (sum(kind.seen(new, row.computed) for row, new in chunks), sum(kind.moved(new, row.computed) for row, new in chunks), rows.total)
        for kind, rows in zip(step_time.kinds, decoding.kinds)
    ]
    for row, new in chunks:
        # a new token attends to all computed before the chunk, and within it to itself and those before it
        pairs += new * row.computed + new * (new + 1) // 2
        context += row.computed + new
        tokens += new
        row.computed += new
        logits += row.computed == row.known
    return step_time.step(tokens, logits, pairs, context, decoding.context, met)


def _span(step_time, decoding, free, gap, ahead):
    """A span of pure decoding: its steps, and ticks of so many. Up to a row's last token, the step for
    which blocks are missing, or the first step boundary at or beyond ``gap`` ticks (None: no arrival can enter), one more
    where steps are planned ahead.
    """
    steps = min(decoding.next_end()[0], decoding.steps_within(free))
    ticks = step_time.spans(len(decoding.rows), decoding.context, [kind.levels(decoding.step) for kind in decoding.kinds])
    if gap is not None:  # seconds of n steps grow with n, so the first boundary at or beyond the gap is found by halving
        steps = min(steps, 1 + bisect_left(range(1, steps), gap, key=ticks) + (ahead and gap > 0))
    return steps, ticks


def _thrown_out(decoding, partial, pool):
    """Rows preempted until the others' next step fits, last first; the unfinished prompt if it stays."""
    victims = []
    while decoding.need() > pool.free:
        # the unfinished prompt stands last in the list, behind all decoding rows: it goes first
        victim, partial = partial or next(reversed(decoding.rows)), None
        if victim in decoding.rows:
            decoding.leave(victim)
        victims.append(victim)
        pool.give(victim)
    return victims, partial


def _admitted(waiting, engine, seats, budget, pool):
    """Requests that enter from the front of the queue, with the tokens of their first chunks."""
    chunks = []
    while waiting and budget and len(chunks) < seats:
        row = waiting[0]
        found, idle = pool.found(row)
        computed = max(found, min(row.restored, row.known - 1) // engine.block_size) * engine.block_size
        new = min(row.known - computed, budget)
        if engine.blocks_of(row.known if engine.whole_sequence else computed + new) - found > pool.free - idle:
            break
        pool.enter(row, found)
        pool.take(engine.blocks_of(computed + new) - found)
        pool.fill(row, computed + new)
        row.computed, budget = computed, budget - new
        chunks.append((waiting.popleft(), new))
    return chunks


def _planned(decoding, partial, waiting, engine, pool):
    """(1) and (2) of a step that begins: chunks to compute, rows preempted (back in the queue), blocks that decoding took."""
    chunks = []
    victims, partial = _thrown_out(decoding, partial, pool) if decoding.need() > pool.free else ([], partial)
    taken, budget = decoding.need(), engine.max_num_batched_tokens - len(decoding.rows)
    pool.take(taken)
    if partial:
        new = min(partial.known - partial.computed, budget)
        need = engine.blocks_of(partial.computed + new) - engine.blocks_of(partial.computed)
        if need > pool.free:  # nobody stands behind it: it gives way itself
            victims.append(partial)
            pool.give(partial)
        else:
            pool.take(need)
            pool.fill(partial, partial.computed + new)
            budget -= new
            chunks.append((partial, new))
    for victim in victims:
        victim.preempt()
        waiting.appendleft(victim)
    if waiting and not victims:
        chunks += _admitted(waiting, engine, engine.max_num_seqs - len(decoding.rows) - len(chunks), budget, pool)
    return chunks, victims, taken


def _returned(decoding, chunks, now, pool):
    """(3) Last tokens of decoding rows, then first tokens of prompts: the unfinished prompt, and the rows that ended."""
    partial, ended = None, []
    while (row := decoding.ended()) is not None:
        row.last = now
        ended.append(row)
    for row, _ in chunks:
        if row.computed < row.known:
            partial = row
        elif row.sample(now):
            ended.append(row)
        else:
            decoding.join(row)
    for row in ended:
        pool.end(row)
    return partial, ended


@formula
def serve(load: Sequence[Arrival], engine: Engine, step_time: StepTime) -> Run:
    """Run of a load on one replica, from event to event: equal to `serve_stepwise` in every number but ``events``; the
    timeline holds the last steps of the events only.

    Between events every decoding row gains a token a step and nothing else moves, so a span of steps is an arithmetic
    series. An arrival ends a span only if it could enter: a blocked queue stays blocked, since free blocks only fall, and
    with them what it would find. A step with prompt chunks or a preemption is an event by itself. The decoding rows come
    first in the running list, and at most one row behind them, the last, is within its prompt: the budget has a token
    for every seat, and no one enters behind an unfinished prompt.

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
    load = _checked(load, engine, step_time)
    coming, waiting, decoding, partial, timeline = (
        _Coming(load, engine),
        deque(),
        _Decoding(engine, step_time.kinds),
        None,
        _Timeline(engine),
    )
    pool = (_CachingPool if engine.prefix_caching else _Pool)(engine)
    served: list[Any] = [None] * len(load)
    now = seen = 0
    while waiting or decoding.rows or partial or coming.first():
        horizon = seen if engine.planned_ahead and (decoding.rows or partial) else now
        while (row := coming.first()) is not None and row.arrival <= horizon:
            waiting.append(coming.pop())
        if not (waiting or decoding.rows or partial):
            now = coming.first().arrival
            continue
        chunks, victims, taken = _planned(decoding, partial, waiting, engine, pool)
        for row, _ in chunks:
            row.scheduled = now if row.scheduled is None else row.scheduled
        if chunks or victims:  # one step, by itself
            seen, now, steps = now, now + _chunk_step(step_time, decoding, chunks), 1
        else:  # pure decoding: jump to the step at which a row ends, a block is missing or an arrival can enter
            following = coming.first() if not waiting and len(decoding.rows) < engine.max_num_seqs else None
            gap = None if following is None else following.arrival - now
            if waiting and engine.prefix_caching and not engine.whole_sequence:
                gap = 0  # a chunk that did not fit may, once the blocks that it would have found are taken: look again at each step
            steps, ticks = _span(step_time, decoding, pool.free + taken, gap, engine.planned_ahead)
            pool.take(decoding.span_need(steps) - taken)
            seen, now = now + ticks(steps - 1) if engine.planned_ahead else now, now + ticks(steps)
        decoding.advance(steps)
        timeline.add(now, engine.blocks - pool.free, len(decoding.rows) + len(chunks))
        partial, ended = _returned(decoding, chunks, now, pool)
        for row in ended:
            served[row.place] = _served(row, load[row.place], engine)
            coming.ended(row, now)
    return Run(tuple(served), decoding.step, len(timeline), timeline)

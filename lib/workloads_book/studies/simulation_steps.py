"""The reference simulator: continuous batching of one replica, one engine step after the other. Slow and plain.

The rules are those of `simulation`, which gives the same result faster; the two share nothing but the state of a request.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from workloads.checks import formula
from workloads.serving.arrivals import Arrival
from workloads.serving.engine import Engine, Run, _checked, _Row, _served
from workloads.serving.step_seconds import TICKS, Kind, StepTime
from workloads.units import Count, Tokens


@formula
def serve_stepwise(load: Sequence[Arrival], engine: Engine, step_time: StepTime) -> Run:
    """Run of a load on one replica, one engine step after the other: the reference for `simulation.serve`.

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
        ...     [Arrival(1.0, Request(100, 3))], Engine(blocks=10, max_num_batched_tokens=64, max_num_seqs=2), second_a_token
        ... ).steps
        4
    """
    return _walk(load, engine, step_time)


def _walk(load, engine, step_time, look: Callable = lambda **_: None):
    """The run; before the tokens of a step come out, ``look`` sees who is where, as the engine itself has it."""
    load = _checked(load, engine, step_time)
    rows = [_Row(place, arrival, engine) for place, arrival in enumerate(load)]
    coming, waiting, running, timeline = [r for r in rows if r.after is None], deque(), [], []
    later, cache, now, seen, steps = [r for r in rows if r.after is not None], _Blocks(engine), 0, 0, 0
    while coming or waiting or running:
        while coming and coming[0].arrival <= (seen if engine.planned_ahead and running else now):
            waiting.append(coming.pop(0))
        if not (waiting or running):
            now = coming[0].arrival
            continue
        budget, planned, victims = engine.max_num_batched_tokens, [], []
        while len(planned) < len(running):  # (1) running requests, in list order
            row = running[len(planned)]
            new = min(row.known - row.computed, budget)
            # make room by preempting from the end of the list, at last this row itself
            while cache.missing(row, row.computed + new) > len(cache.free) and len(running) > len(planned):
                victim = running.pop()
                cache.give(victim)
                victims.append((victim, victim.computed))
                victim.preempt()
                waiting.appendleft(victim)
            if len(running) > len(planned):  # unless it was preempted itself
                cache.hold(row, row.computed + new, row.computed // engine.block_size)
                budget -= new
                planned.append((row, new))
        stayed = len(running)
        while not victims and waiting and budget and len(running) < engine.max_num_seqs:  # (2) admission
            row = waiting[0]
            row.blocks = cache.beginning(row)
            computed = engine.block_size * max(len(row.blocks), min(row.restored, row.known - 1) // engine.block_size)
            new = min(row.known - computed, budget)
            room = sum(block not in row.blocks for block in cache.free)
            if cache.missing(row, row.known if engine.whole_sequence else computed + new) > room:
                break
            for block in row.blocks:
                cache.share(block)
            row.computed, budget = computed, budget - new
            cache.hold(row, computed + new, len(row.blocks))
            running.append(waiting.popleft())
            planned.append((row, new))
            row.scheduled = now if row.scheduled is None else row.scheduled
        tokens = logits = pairs = context = decode_context = 0
        met = [_counted(kind, planned) for kind in step_time.kinds]
        for row, new in planned:
            # of a decoding row the context counts as both, pairs and cache read; a chunk reads its cache once for many pairs
            if row.computed >= row.target:
                decode_context += row.computed + new
            else:
                pairs += new * row.computed + new * (new + 1) // 2
                context += row.computed + new
            tokens += new
            row.computed += new
            logits += row.computed == row.known
        seen, now, steps = now, now + step_time.step(tokens, logits, pairs, context, decode_context, met), steps + 1
        timeline.append((now, engine.blocks - len(cache.free), len(running)))
        look(times=(seen, now), planned=planned, victims=victims, entered=running[stayed:], running=running, waiting=waiting)
        for row, _ in planned:  # (3) tokens come out
            if row.computed == row.known and row.sample(now):
                running.remove(row)
                cache.name(row, row.prompt // engine.block_size, row.computed)
                cache.give(row)
                for follower in (r for r in later if r.after == row.place):
                    follower.arrival += now
                    insort(coming, follower)
    served = tuple(_served(row, arrival, engine) for row, arrival in zip(rows, load))
    return Run(served, steps, steps, tuple((now / TICKS, used, running) for now, used, running in timeline))


def _counted(kind: Kind, planned: list) -> list:
    """Of one kind of layers: pairs and entries of the prompt chunks, entries that decoding rows meet."""
    span, pairs, entries, decoding = kind.span, 0, 0, 0
    for row, new in planned:
        met = [_meets(span, position) for position in range(row.computed + 1, row.computed + new + 1)]
        if row.computed >= row.target:
            decoding += sum(met)
        elif span is None:  # a state: read where a past has made it, written
            pairs, entries = pairs + new, entries + 1 + (row.computed > 0)
        else:
            past = row.computed if not span.keeps else min(row.computed, span.keeps - 1)
            pairs, entries = pairs + sum(met), entries + (past + new) // span.every
    return [pairs, entries, decoding]


def _meets(span: Any, position: Count) -> Count:
    """Entries that the query at a position meets."""
    if span is None:
        return 1
    if span.chunk:
        return (position - 1) % span.sees + 1
    return min(position // span.every, span.sees) if span.sees else position // span.every


class _Blocks:
    """Every block by its number: the free ones in the order of their last use, what each contains, how many use it."""

    def __init__(self, engine):
        self.size, self.engine = engine.block_size, engine
        self.free, self.content, self.users = dict.fromkeys(range(engine.blocks)), {}, [0] * engine.blocks

    def missing(self, row: Any, tokens: Tokens) -> Count:
        held = self.engine.seat  # each group of layers has a block of its own for the tokens that it keeps
        for kept, blocks in self.engine.groups:
            held += blocks * len(range(0, min(tokens, kept or tokens), self.size))
        return max(0, held - len(row.blocks))

    def beginning(self, row: Any) -> list:
        found, where = [], {name: block for block, name in self.content.items()}
        for name in row.hashes[: (row.known - 1) // self.size]:
            if name not in where:
                break
            found.append(where[name])
        return found

    def share(self, block: Count) -> None:
        self.users[block] += 1
        self.free.pop(block, None)

    def hold(self, row: Any, tokens: Tokens, named: Count) -> None:
        for _ in range(self.missing(row, tokens)):
            block = next(iter(self.free))
            self.content.pop(block, None)
            self.share(block)
            row.blocks.append(block)
        self.name(row, named, min(tokens, row.prompt))

    def name(self, row: Any, named: Count, tokens: Tokens) -> None:
        full = slice(named, tokens // self.size)
        for block, name in zip(row.blocks[full], row.hashes[full]):
            if name not in self.content.values():
                self.content[block] = name

    def give(self, row: Any) -> None:
        for block in reversed(row.blocks):
            self.users[block] -= 1
            if not self.users[block]:
                self.free[block] = None
        row.blocks = []

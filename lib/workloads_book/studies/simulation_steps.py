"""The reference simulator: continuous batching of one replica, one engine step after the other. Slow and plain.

The rules are those of `simulation`, which gives the same result faster; the two share nothing but the state of a request.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from workloads.checks import formula
from workloads.serving.arrivals import Arrival
from workloads.serving.engine import Engine, Run, _rows, _run
from workloads.serving.step_seconds import StepTime


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
    load, rows = _rows(load, engine)
    coming, waiting, running, timeline = deque(rows), deque(), [], []
    blocks, free, now, steps = engine.blocks_of, engine.blocks, 0, 0
    while coming or waiting or running:
        while coming and coming[0].arrival <= now:
            waiting.append(coming.popleft())
        if not (waiting or running):
            now = coming[0].arrival
            continue
        budget, planned, preempted = engine.max_num_batched_tokens, [], False
        while len(planned) < len(running):  # (1) running requests, in list order
            row = running[len(planned)]
            new = min(row.known - row.computed, budget)
            need = blocks(row.computed + new) - blocks(row.computed)
            # make room by preempting from the end of the list, at last this row itself
            while need > free and len(running) > len(planned):
                victim = running.pop()
                free += blocks(victim.computed)
                victim.preempt()
                waiting.appendleft(victim)
                preempted = True
            if len(running) > len(planned):  # unless it was preempted itself
                free, budget = free - need, budget - new
                planned.append((row, new))
        while not preempted and waiting and budget and len(running) < engine.max_num_seqs:  # (2) admission
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
            # of a decoding row the context counts as both, pairs and cache read; a chunk reads its cache once for many pairs
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

"""The engine that moves: a serving engine through a toy load, one step at a time."""

from itertools import pairwise

from workloads.checks import between
from workloads.counts.request_tokens import Request
from workloads.facts.accelerators import Accelerator
from workloads.serving.arrivals import Arrival
from workloads.serving.engine import Engine
from workloads.serving.step_seconds import StepTime
from workloads.times.machine import Machine
from workloads.units import number
from workloads_book.studies.engine_steps import every_step

from .. import plot
from ..plot import Axis, Line
from .forms import Input, calculator, count, doublings, group, number_of, result, switch
from .frames import chip, frame, lane, letters, stepper

SECOND_A_TOKEN = StepTime(1, 0, 0, 0, 0, 0, Machine(Accelerator("one FLOP a second", 1, 1, {"bf16": 1})))
TOY = "0 9 8\n0 6 10\n3 12 4\n8 5 7\n16 14 3\n30 4 5"
MOST_STEPS, MOST_REQUESTS, MOST_TOKENS = 150, 8, 200


def _load(text):
    """Arrivals from lines "arrives prompt output", in order of time."""
    load = []
    lines = [line for line in text.splitlines() if line.strip()]
    between(len(lines), 1, MOST_REQUESTS, "load", "lines, each a request")
    for place, line in enumerate(lines, 1):
        words = [n for word in line.replace(",", " ").split() if (n := number_of(word)) is not None]
        if len(words) != 3 or len(line.replace(",", " ").split()) != 3 or any(type(n) is not int for n in words[1:]):
            raise ValueError(f"load line {place} must be a time in s, then whole tokens of prompt and output, such as 3 12 4, got {line!r}")
        time, prompt, output = words
        if not 1 <= prompt <= MOST_TOKENS or not 1 <= output <= MOST_TOKENS:
            raise ValueError(f"load line {place} must have between 1 and {MOST_TOKENS} tokens of prompt and of output, got {line!r}")
        if not (load[-1].time if load else 0) <= time <= 10**6:
            raise ValueError(f"load line {place} must not arrive before the line above it, nor before 0 s or after 10⁶ s, got {line!r}")
        load.append(Arrival(time, Request(prompt, output)))
    return load


def _check_room(load, blocks, size):
    """Refuse a pool that the longest request does not fit, with the one that it does."""
    kept = [a.request.new + a.request.output - 1 for a in load]
    longest = max(kept)
    least = -(-longest // size)
    if blocks < least:
        raise ValueError(
            f"blocks must be at least {least}, got {blocks}: request {letters([kept.index(longest)])} keeps {longest} tokens at its end, "
            f"in blocks of {size}"
        )


@calculator(
    "engine",
    "An engine, step by step",
    "Who runs, who waits, whose blocks are taken away? Take the steps one by one, forwards and back.",
    count("max_num_seqs", "Seats", 3, "requests", 1, 8, range(1, 7)),
    count("blocks", "KV blocks", 10, "", 1, 60, range(6, 31)),
    count("max_num_batched_tokens", "Most tokens of a step", 12, "tokens", 1, 256, (4, 6, 8, 10, 12, 16, 24, 32)),
    Input("load", "Requests, one a line: arrives (s), prompt, output (tokens)", "text", TOY),
    *group(
        "Rules",
        count("block_size", "Tokens of a block", 4, "tokens", 1, 64, doublings(1, 16)),
        switch("whole_sequence", "Admit only what fits whole", True),
    ),
    presets={
        "Little memory": {},
        "Ample memory": dict(blocks=30),
        "One seat": dict(max_num_seqs=1),
        "Small chunks": dict(max_num_batched_tokens=4),
        "Six blocks, by hand": dict(blocks=6, block_size=1, max_num_batched_tokens=8, load="0 2 4\n0 2 4\n0 1 1"),
    },
)
def step_engine(load, **settings):
    """Every step of an engine that takes a second for each token: seats, queue, KV blocks, preemptions."""
    load = _load(load)
    if settings["max_num_batched_tokens"] < settings["max_num_seqs"]:
        raise ValueError(
            f"max_num_batched_tokens (tokens) must be at least {settings['max_num_seqs']}, a token for every seat, got "
            f"{settings['max_num_batched_tokens']}"
        )
    _check_room(load, settings["blocks"], settings["block_size"])
    engine = Engine(**settings)
    steps = every_step(load, engine, SECOND_A_TOKEN)
    if len(steps) > MOST_STEPS:
        raise ValueError(
            f"load must end within {MOST_STEPS} steps, so that one can take them, got {number(len(steps))}: choose shorter outputs, fewer "
            "requests or more tokens a step"
        )
    preempted = [place for s in steps for place, _ in s.preempted]
    lost = sum(tokens for s in steps for _, tokens in s.preempted)
    values = {
        "steps": len(steps),
        "end_seconds": steps[-1].end,
        "preemptions": len(preempted),
        "lost_tokens": lost,
        "most_blocks": max(s.used for s in steps),
        "most_waiting": max(len(s.waiting) for s in steps),
        "mean_batch": sum(len(s.computed) for s in steps) / len(steps),
    }
    again = f"{number(len(preempted))} preemption{'s' * (len(preempted) != 1)}" if preempted else "no preemption"
    text = (
        f"{number(len(load))} request{'s' * (len(load) != 1)} in {number(len(steps))} steps, {number(steps[-1].end)} s: {again}, at most "
        f"{number(values['most_blocks'])} of {number(engine.blocks)} blocks in use and {number(values['most_waiting'])} waiting."
    )
    told = list(_told(load, steps, engine))
    rows = [
        [str(i), f"{number(s.start)} to {number(s.end)} s", line, str(len(s.computed)), f"{s.used} of {engine.blocks}", letters(s.waiting)]
        for i, (s, line) in enumerate(zip(steps, told), 1)
    ]
    frames = [
        (f"Step {i} of {len(steps)}, {number(s.start)} to {number(s.end)} s. {line}", drawn)
        for i, (s, line, drawn) in enumerate(zip(steps, told, _frames(load, steps, engine)), 1)
    ]
    shown = result(text, values, _verdicts(values, engine), figures=[_plot(steps, engine)])
    head = ["step", "time", "what happened", "in the step>", "blocks>", "waiting"]
    return shown | {"steps": stepper(frames, head, rows, "All steps as a table")}


def _told(load, steps, engine):
    """One line for each step: what happened in it, in the order of the scheduler's rules."""
    computed, known, out = [0] * len(load), [a.request.new for a in load], set()
    many = lambda places, verb: f"{letters(places)} {verb}{'s' * (len(places) == 1)}"
    for s in steps:
        said = []
        for place, tokens in s.preempted:
            computed[place] = 0
            lost = f"the {tokens} tokens" if tokens > 1 else "the one token"
            said.append(f"No block is free: {letters([place])} is preempted, {lost} in its cache will be computed again.")
        new, back = [p for p in s.entered if p not in out], [p for p in s.entered if p in out]
        comes = [many(new, "enter")] * bool(new) + [many(back, "come") + " back"] * bool(back)
        said += [f"{' and '.join(comes)}."] * bool(comes)
        out |= {place for place, _ in s.preempted}
        done, decoding = [], [place for place, _, within in s.computed if not within]
        for place, tokens, within in s.computed:
            computed[place] += tokens
            if within:
                left = known[place] - computed[place]
                rest = f"{left} to go" if left else f"all {known[place]}" if tokens == known[place] else "the last"
                done.append(f"{letters([place])} prefills {tokens} token{'s' * (tokens != 1)}, {rest}")
        done += [many(decoding, "decode")] * bool(decoding)
        said.append(f"{'; '.join(done)}.")
        said += [_waits(s, engine, known[s.waiting[0]])] if s.why else []
        for place in s.returned:
            known[place] += 1
        if s.ended:
            blocks = sum(place in users for users in s.blocks for place in s.ended)
            verbs = ("is", "gives") if len(s.ended) == 1 else ("are", "give")
            said.append(f"{letters(s.ended)} {verbs[0]} finished and {verbs[1]} back {blocks} block{'s' * (blocks != 1)}.")
        yield " ".join(said)


def _waits(s, engine, known):
    front = letters(s.waiting[:1])
    if s.why == "preemption":
        return "In a step that preempts nobody enters."
    if s.why == "seats":
        return f"{front} waits: every seat is taken."
    if s.why == "budget":
        return f"{front} waits: the step has spent its {engine.max_num_batched_tokens} tokens."
    spent = sum(tokens for _, tokens, _ in s.computed)
    needed = engine.blocks_of(known if engine.whole_sequence else min(known, engine.max_num_batched_tokens - spent))
    free = engine.blocks - s.used
    return f"{front} waits: it needs {needed} block{'s' * (needed != 1)}, {number(free)} {'is' if free == 1 else 'are'} free."


def _frames(load, steps, engine):
    """HTML of each step: seats, queue and blocks drawn, and each request's state as a table."""
    computed, returned, ended = [0] * len(load), [0] * len(load), set()
    seats, before = [None] * engine.max_num_seqs, [()] * engine.blocks
    for s in steps:
        running = [place for place, *_ in s.computed]
        seats = [place if place in running else None for place in seats]
        for place in running:
            if place not in seats:
                seats[seats.index(None)] = place
        for place, _ in s.preempted:
            computed[place] = 0
        for place, tokens, _ in s.computed:
            computed[place] += tokens
        for place in s.returned:
            returned[place] += 1
        tokens = {place: f"+{n}" for place, n, _ in s.computed}
        lanes = [
            lane(
                f"Seats: {len(running)} of {len(seats)}, with the tokens of this step",
                [chip(p, tokens.get(p, ""), p in s.entered) for p in seats],
                "wl-seats",
            ),
            lane(f"Queue: {len(s.waiting)}", [chip(p, "", p in dict(s.preempted)) for p in s.waiting]),
            lane(
                f"KV blocks: {s.used} of {engine.blocks}",
                [chip(users[0], "", users != old) if users else chip(None) for users, old in zip(s.blocks, before)],
                "wl-pool",
            ),
        ]
        rows = []
        for place, arrival in enumerate(load):
            held, request = sum(place in users for users in s.blocks), arrival.request
            where = _where(place, s, seats, ended, arrival)
            kept = f"{computed[place]} in {held} block{'s' * (held != 1)}" if held else "none"
            rows.append([letters([place]), where, kept, f"{returned[place]} of {request.output}"])
        yield frame(lanes, ["who", "where", "in cache", "returned>"], rows)
        ended |= set(s.ended)
        for place in s.ended:
            computed[place] = 0
        before = [() if users and users[0] in s.ended else users for users in s.blocks]


def _where(place, s, seats, ended, arrival):
    if place in ended:
        return "done"
    if place in seats:
        return f"seat {seats.index(place) + 1}"
    if place in s.waiting:
        return f"queue, {s.waiting.index(place) + 1}"
    return f"at {number(arrival.time)} s"


def _verdicts(v, engine):
    if v["preemptions"]:
        yield (
            False,
            f"{number(v['preemptions'])} preemption{'s' * (v['preemptions'] != 1)}: {number(v['lost_tokens'])} computed tokens are lost "
            f"and computed again. More “KV blocks” than {engine.blocks}, or fewer “Seats”, can avoid it.",
        )
    else:
        yield True, "No preemption: a block was free whenever a running request needed one."
    yield None, f"{number(v['mean_batch'], 3)} requests share a step on average. A toy: every token takes a second, whatever it does."


def _plot(steps, engine):
    series = {
        "blocks in use": [s.used for s in steps],
        "in the step": [len(s.computed) for s in steps],
        "waiting": [len(s.waiting) for s in steps],
    }
    stairs = [
        Line(name, [(i, values[min(i, len(values) - 1)]) for i in range(len(values) + 1)], "steps") for name, values in series.items()
    ]
    rises = sum(a < b for a, b in pairwise(series["waiting"]))
    alt = (
        f"Blocks in use, requests in the step and waiting over {len(steps)} steps: at most {max(series['blocks in use'])} of "
        f"{engine.blocks} blocks, at most {max(series['in the step'])} requests in a step, at most {max(series['waiting'])} waiting; "
        f"the queue grows {rises} times."
    )
    picture = plot.lines(stairs, Axis("step", low=0, high=len(steps)), Axis("number"), alt, "engine", 170)
    return picture, "Blocks in use, requests in the step, and those that wait, step by step."

"""Calculators of tasks and media: the critical path, the cost of a success, the audio buffer."""

import random

from workloads.checks import between, one_of, positive
from workloads.counts import memory
from workloads.facts import models
from workloads.serving import latency_metrics
from workloads.times import roofline, taskgraph
from workloads.units import GIGA, number, quantity
from workloads_book.studies import attempts, playback
from workloads_book.studies.attempts import solved_within
from workloads_book.studies.measurements import decision_request

from .. import measured_runs, plot
from ..plot import Axis, Bar, Line
from .common import MODELS, PERCENT, clock, scaled
from .forms import Input, calculator, choice, count, doublings, group, num, possible, result

# task -------------------------------------------------------------------------------------------------------
TASK = "plan 2\nsearch 6 plan\ncompile 10 plan\nanswer 3 search compile"


def _stages(text):
    """Stages from lines "name seconds names-of-those-it-waits-for"."""
    stages = []
    for place, line in enumerate(filter(str.strip, text.splitlines()), 1):
        words = line.split()
        if len(words) < 2 or possible(lambda: float(words[1])) is None:
            raise ValueError(f"stages line {place} must be a name, its seconds, then what it waits for, got {line!r}")
        stages.append(taskgraph.Stage(words[0], possible(lambda: int(words[1])) or float(words[1]), words[2:]))
    between(len(stages), 1, 60, "stages", "lines")
    try:
        return taskgraph.ordered(stages)
    except ValueError as error:
        raise ValueError(f"stages: {error}") from None


@calculator(
    "task",
    "Critical path of a task",
    "Which stages decide when a task ends, what does a faster one save, and what does waiting hold in memory?",
    Input("stages", "Stages, one a line: name, seconds, what it waits for", "text", TASK),
    Input("stage", "A stage to make faster", "text", "compile"),
    num("factor", "Times as fast", 2, "", 0.01, 10**6, (1, 1.5, 2, 3, 5, 10, 100)),
    count("executors", "Stages that may run at once", 2, "", 1, 1000, range(1, 9)),
    *group(
        "State kept meanwhile",
        Input("waiting", "Stages that hold it", "text", "search compile"),
        count("tokens", "Context kept", 8192, "tokens", 0, 2**22, doublings(256, 2**20)),
        choice("model", "Model", MODELS),
    ),
)
def task(stages, stage, factor, executors, waiting, tokens, model):
    """Critical path, slack, bounds on few executors, Amdahl's law against the graph, and memory held over time."""
    graph = _stages(stages)
    names = tuple(s.name for s in graph)
    one_of(stage, "stage", names), [one_of(name, "waiting", names) for name in waiting.split()]
    span = taskgraph.span(graph)
    work = taskgraph.work(graph)
    slack = taskgraph.slack(graph)
    path = taskgraph.critical_path(graph)
    after = taskgraph.faster(graph, factor, stage)
    own = next(s.seconds for s in graph if s.name == stage)
    low, high = taskgraph.executor_bounds(graph, executors)
    held = memory.kv_bytes(models.model(model), tokens) + memory.state_bytes(models.model(model))
    kept = taskgraph.kept_seconds(graph, *waiting.split())
    share = own / positive(span, "span of stages", "s") if stage in path else 0
    values = {
        "span_seconds": span,
        "work_seconds": work,
        "path": list(path),
        "slack": [slack[s.name] for s in graph],
        "share": share,
        "amdahl_speedup": roofline.speedup(min(share, 1), factor),
        "new_span_seconds": taskgraph.span(after),
        "speedup": span / positive(taskgraph.span(after), "span of the faster stages", "s"),
        "least_seconds": low,
        "most_seconds": high,
        "held_bytes": held,
        "kept_seconds": kept,
        "area": latency_metrics.state_area([(held, kept)]),
    }
    text = (
        f"{clock(span)} at the earliest, along {' → '.join(path)}; {stage} {number(factor)} times as fast makes it "
        f"{clock(values['new_span_seconds'])}. "
        f"Waiting holds {quantity(held, 'B')} for {clock(kept)}: {number(values['area'] / GIGA, 4)} GB·s."
    )
    windows = taskgraph.earliest(graph)
    rows = [[s.name, clock(windows[s.name].start), clock(windows[s.name].end), clock(slack[s.name])] for s in graph]
    return result(
        text,
        values,
        _task_verdicts(values, stage, executors),
        [(["stage", "starts>", "ends>", "slack>"], rows)],
        [_gantt(graph, windows, path, span)],
    )


def _task_verdicts(v, stage, executors):
    if v["share"]:
        agree = abs(v["speedup"] - v["amdahl_speedup"]) < 1e-9 * v["speedup"]
        yield (
            agree,
            f"{stage} is {quantity(v['share'], '%', 3)} of the critical path. Amdahl's law promises {number(v['amdahl_speedup'], 4)} "
            f"times, the graph gives {number(v['speedup'], 4)}" + ("." if agree else ": another path becomes critical."),
        )
    else:
        yield False, f"{stage} is not on the critical path: making it faster saves {clock(v['span_seconds'] - v['new_span_seconds'])}."
    yield (
        None,
        f"With {number(executors)} at once, any order without idling takes between {clock(v['least_seconds'])} and "
        f"{clock(v['most_seconds'])}; the work is {clock(v['work_seconds'])}.",
    )


def _gantt(graph, windows, path, span):
    size, unit = scaled(span)
    rows = [(s.name, [Bar(0 if s.name in path else 4, windows[s.name].start / size, s.seconds / size)]) for s in graph]
    alt = (
        f"Schedule of {len(graph)} stages, each as early as it may start; it ends after {clock(span)}. On the critical path: "
        f"{', '.join(path)}."
    )
    return plot.bars(
        rows, ["on the critical path", "", "", "", "has slack"], Axis(f"time ({unit})"), alt, "task"
    ), "Every stage as early as it may start."


# cost of a success ------------------------------------------------------------------------------------------
@calculator(
    "success",
    "Cost of one success, and handing on",
    "Does a dearer attempt pay, when does trying again stop paying, and how many requests may be handed on?",
    num("old_cost", "Cost of an attempt, old method", 1.0, "any unit", 1e-9, 1e9),
    num("old_success", "Its success rate", 0.5, "", 0.001, 1, PERCENT),
    num("new_cost", "Cost of an attempt, new method", 2.0, "any unit", 1e-9, 1e9),
    num("new_success", "Its success rate", 0.8, "", 0.001, 1, PERCENT),
    num("correlation", "Correlation between attempts at one task", 0.0, "", 0, 1, [0, *PERCENT]),
    count("limit", "Most attempts at one task", 4, "attempts", 1, 64, range(1, 17)),
    *group(
        "Handing on",
        num("decision_cost", "Cost of a request, small model", decision_request("decision cost"), "$", 1e-12, 1e6),
        num("llm_cost", "Cost of a request, large model", decision_request("llm cost"), "$", 1e-12, 1e6),
        num("share", "Share handed on to the large model", 0.05, "", 0, 1, [0, *PERCENT]),
    ),
)
def success(old_cost, old_success, new_cost, new_success, correlation, limit, decision_cost, llm_cost, share):
    """Cost per success of two methods, with attempts that resemble each other; average cost of a request that may be
    handed on.
    """
    methods = {"old": (old_cost, old_success), "new": (new_cost, new_success)}
    values = {
        f"{name}: {key}": value
        for name, (c, p) in methods.items()
        for key, value in {
            "independent": attempts.cost_per_success(c, p),
            "stopped": attempts.stopped_cost_per_success(c, p, limit, correlation),
            "parallel": attempts.parallel_cost_per_success(c, p, limit, correlation),
            "solved": solved_within(p, limit, correlation),
            "attempts": attempts.attempts_used(p, limit, correlation),
        }.items()
    }
    values |= {
        "break_even_success": possible(lambda: attempts.break_even_success(new_cost, old_cost, old_success)),
        "average_dollars": attempts.handoff_cost(decision_cost, llm_cost, share),
        "doubling_share": possible(lambda: attempts.handoff_share(decision_cost, llm_cost, 2 * decision_cost)),
        "no_saving_share": possible(lambda: attempts.handoff_share(decision_cost, llm_cost, llm_cost)),
    }
    old, new = values["old: stopped"], values["new: stopped"]
    verdict = "cheaper" if new < old else "dearer" if new > old else "neither cheaper nor dearer"
    text = (
        f"One success costs {number(old, 4)} with the old method and {number(new, 4)} with the new one, which is {verdict}. "
        f"A request costs {quantity(values['average_dollars'], '$', 3)} on average with {quantity(share, '%', 3)} handed on."
    )
    rows = [
        [label, *(show(values[f"{name}: {key}"]) for name in methods)]
        for label, key, show in (
            ("cost of a success, attempts independent", "independent", lambda v: number(v, 4)),
            (f"tried up to {limit} times", "stopped", lambda v: number(v, 4)),
            (f"{limit} at once, always", "parallel", lambda v: number(v, 4)),
            ("tasks solved", "solved", lambda v: quantity(v, "%", 4)),
            ("attempts a task", "attempts", lambda v: number(v, 4)),
        )
    ]
    return result(
        text,
        values,
        _success_verdicts(values, share, new_success),
        [(["", "old>", "new>"], rows)],
        [_success_plot(methods, correlation, limit)],
    )


def _success_verdicts(v, share, new_success):
    even = v["break_even_success"]
    yield (
        even is not None and new_success >= even,
        f"Attempts independent, the new method pays from a success rate of {quantity(even, '%', 4)} on."
        if even
        else "No success rate repays the new method's cost, attempts independent.",
    )
    doubled, nothing = v["doubling_share"], v["no_saving_share"]
    if nothing is None:
        yield False, "The small model is dearer than the large one: handing on saves nothing."
    else:
        bill = f" From {quantity(doubled, '%', 3)} on, the hand-offs cost more than the small model." if doubled is not None else ""
        yield share < nothing, f"Handing on saves against the large model alone up to {quantity(nothing, '%', 4)} handed on." + bill


def _success_plot(methods, correlation, limit):
    most = max(8, limit)
    series = [
        Line(f"{name}, in turn", [(k, attempts.stopped_cost_per_success(c, p, k, correlation)) for k in range(1, most + 1)])
        for name, (c, p) in methods.items()
    ]
    series += [
        Line(f"{name}, at once", [(k, attempts.parallel_cost_per_success(c, p, k, correlation)) for k in range(1, most + 1)])
        for name, (c, p) in methods.items()
    ]
    top = 3 * max(y for s in series[:2] for _, y in s.points)
    return plot.lines(
        series,
        Axis("most attempts at a task", low=1, high=most),
        Axis("cost of one success", high=top),
        f"Cost of one success against the most attempts at a task, up to {most}, in turn until one succeeds and all at once, for both "
        "methods.",
        "success",
        220,
    ), f"Trying in turn until one succeeds, or all at once; correlation {number(correlation)} between attempts at one task."


# audio buffer -----------------------------------------------------------------------------------------------
RECORDED = {"first recorded turn": "first", "second recorded turn": "second"}


@calculator(
    "audio",
    "Audio buffer",
    "How long must a player wait before the first sound, so that it never has to stop?",
    num("buffer", "Wait before the first sound", 40, "ms", 0, 10**5, range(0, 201, 5)),
    num("chunk", "Sound in a chunk (recorded turns have their own)", 20, "ms", 1, 10000, (5, 10, 20, 40, 80, 100, 160, 200)),
    choice("source", "Arrivals", ("list", "computed", *RECORDED)),
    Input("arrivals_list", "List of arrivals (ms)", "text", "38 58 123 98"),
    *group(
        "Computed arrivals",
        count("chunks", "Chunks", 40, "", 1, 1000),
        num("process", "Processing of a chunk", 12, "ms", 0, 10**4, range(41)),
        num("send", "Sending", 1, "ms", 0, 10**4),
        num("network", "Network, least", 5, "ms", 0, 10**5),
        num("jitter", "Network, more at random up to", 30, "ms", 0, 10**5, range(0, 101, 5)),
        count("seed", "Random draw number", 1, "", 0, 10**6),
    ),
    presets={
        "Four chunks, one late": {},
        "Slow supply": dict(source="computed", process=25, jitter=0),
        "Random network": dict(source="computed"),
        "Recorded turn": dict(source="first recorded turn"),
    },
)
def audio(source, arrivals_list, chunk, buffer, chunks, process, send, network, jitter, seed):
    """Arrival and playback of chunks of sound: first sound, stalls, and the smallest buffer without any."""
    durations = chunk
    if source in RECORDED:
        turn = measured_runs.voice_record(RECORDED[source])
        came = turn.arrivals[: turn.answered]
        durations = turn.durations[: turn.answered]
        came = [a - turn.stopped for a in came]
    elif source == "computed":
        draw = random.Random(seed)
        came = [
            d.arrived for d in playback.deliveries(chunks, chunk, process, send, [network + jitter * draw.random() for _ in range(chunks)])
        ]
    else:
        came = [
            float(word) if possible(lambda: float(word)) is not None else _no_number(word)
            for word in arrivals_list.replace(",", " ").split()
        ]
        if early := next((t for t in came if t < 0), None):
            raise ValueError(f"arrivals_list must hold times of at least 0 ms, got {early:g}")
    plays = playback.playback(came, durations, buffer)
    least = playback.smallest_buffer(came, durations)
    stalls = [p.stall for p in plays if p.stall > 0]
    values = {
        name: float(v)
        for name, v in {
            "first_sound": plays[0].start,
            "end": plays[-1].end,
            "stalled": sum(stalls),
            "smallest_buffer": least,
            "sound": sum(p.end - p.start for p in plays),
        }.items()
    } | {"stalls": len(stalls), "chunks": len(plays)}
    if len(came) >= 10 and came[-1] > came[0]:
        values["supply"] = float(sum(p.end - p.start for p in plays[:-1]) / (came[-1] - came[0]))
    text = (
        f"First sound at {quantity(values['first_sound'], 'ms')}; {number(len(stalls))} stall{'s' * (len(stalls) != 1)}, "
        f"{quantity(values['stalled'], 'ms')} in all. "
        f"A buffer of {quantity(values['smallest_buffer'], 'ms')} would have none."
    )
    rows = [[i, *(quantity(float(v), "ms") for v in (a, p.due, p.start, p.stall))] for i, (a, p) in enumerate(zip(came, plays), 1)]
    shown = [r for r, p in zip(rows, plays) if p.stall > 0] if len(rows) > 12 else rows
    head = "chunk" if len(rows) <= 12 else "late chunk"
    tables = [([head, "arrives>", "due>", "starts>", "stall>"], shown[:20])] if shown else []
    return result(text, values, _audio_verdicts(values, buffer), tables, [_audio_plot(came, durations, plays)])


def _no_number(word):
    raise ValueError(f"arrivals_list must hold numbers, got {word!r}")


def _audio_verdicts(v, buffer):
    least = v["smallest_buffer"]
    if v["stalled"]:
        yield False, f"The buffer is {quantity(least - buffer, 'ms')} too small: playback stalls for just as long."
    else:
        yield True, f"No stall. Of the buffer, {quantity(buffer - least, 'ms')} were not needed: delay for safety."
    if v.get("supply"):
        yield (
            v["supply"] >= 1,
            f"{number(v['supply'], 4)} s of sound arrive in a second"
            + ("." if v["supply"] >= 1 else ": no buffer makes up for a slow supply for ever."),
        )


def _audio_plot(came, durations, plays):
    start, end = float(min(came)), float(plays[-1].end)
    size, unit = scaled((end - start) / 1000)
    size, sound = size * 1000, [float(p.end - p.start) for p in plays]
    ready = sorted({max(came[: i + 1]) for i in range(len(came))})
    arrived = [(start, 0.0)] + [(float(t), float(playback.arrived_audio(came, durations, t))) for t in ready] + [(end, sum(sound))]
    played, done = [(start, 0.0)], 0.0
    for p, length in zip(plays, sound):
        played += [(float(p.start), done), (float(p.end), done := done + length)]
    scale = lambda points: [((t - start) / size, s / size) for t, s in points]
    return plot.lines(
        [Line("can be played", scale(arrived), "steps"), Line("played", scale(played))],
        Axis(f"time since the first arrival ({unit})", low=0, high=(end - start) / size),
        Axis(f"sound ({unit})"),
        f"Two rising curves, sound that can be played and sound played, over {quantity(end - start, 'ms')}; where the second meets the "
        "first, playback stands still.",
        "audio",
        230,
    ), "Sound that can be played (steps) and sound played; their distance is what lies in the buffer."

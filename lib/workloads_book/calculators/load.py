"""Calculators of load: the roofline of one server, the backlog of a shifting load, the serving simulator."""

from math import gcd

from workloads.counts import memory, parameter_counts, request_tokens
from workloads.counts.layout import Layout
from workloads.counts.passes import decode, prefill
from workloads.facts import accelerators, models
from workloads.facts.formats import Formats
from workloads.serving import arrivals, fluid, latency_metrics, simulation, step_seconds
from workloads.serving.engine import WHOLE, Engine, cache_pool
from workloads.times import roofline
from workloads.times.machine import Machine, fits
from workloads.units import TERA, number, quantity
from workloads_book.studies import backlog_paths

from .. import measured_runs, plot
from ..plot import Axis, Line
from .common import (
    CARDS,
    EVEN,
    MEASURED_CARD,
    MODELS,
    PERCENT,
    clock,
    efficiencies,
    measured,
    must_fit,
    scaled,
    several,
    split_verdict,
    would_fit,
)
from .forms import calculator, choice, count, doublings, group, num, result, switch


# roofline of a server ---------------------------------------------------------------------------------------
@calculator(
    "roofline",
    "Roofline of one server",
    "What limits prefill and decode, how fast can they be at best, and how many sequences fit?",
    choice("model", "Model", MODELS),
    choice("accelerator", "Accelerator", CARDS),
    count("new", "Prompt: new tokens", 8192, "tokens", 1, 2**20, doublings(16, 2**17)),
    count("output", "Returned tokens", 256, "tokens", 2, 2**17, doublings(2, 2**15)),
    count("batch", "Sequences in a decode step", 32, "sequences", 1, 10**5, doublings(1, 1024)),
    *group(
        "Machine",
        count("cards", "Accelerators that act as one (tensor parallel)", 1, "", 1, 64, doublings(1, 64)),
        choice("precision", "Precision of the arithmetic", ("bf16", "fp8", "fp4")),
        *efficiencies(),
    ),
    *group(
        "Bytes and cache",
        num("bytes_per_parameter", "Bytes of a weight", 2, "B", 0.25, 4),
        num("bytes_per_value", "Bytes of a cached value", 2, "B", 0.25, 4),
        count("past", "Tokens cached before", 0, "tokens", 0, 2**20),
    ),
    exact=False,
)
def server(model, accelerator, cards, precision, bytes_per_parameter, bytes_per_value, mfu, mbu, new, output, past, batch):
    """Ridge, operating points, time to first token, interval between tokens, and sequences that fit."""
    m = models.model(model)
    card = accelerators.accelerator(accelerator)
    request = request_tokens.Request(new, output, past)
    box = Machine(card, cards, precision, mfu, mbu, memory="label")
    formats = Formats(bytes_per_parameter, bytes_per_value)
    layout = Layout(cards)
    end, copies, room = request.end_context, layout.kv_copies(m, request.end_context), box.memory_bytes
    weights = memory.weight_bytes(m, bytes_per_parameter)
    sequence = copies * memory.kv_bytes(m, end, bytes_per_value=bytes_per_value) + memory.state_bytes(m)
    fit, context = fits(m, box, end, formats, layout), request.mean_decode_context
    passes = {"prefill": prefill(m, request, 1, formats, layout)}
    passes |= {f"decode of {number(n)}": decode(m, context, n, formats, layout) for n in dict.fromkeys((1, min(batch, fit or batch)))}
    points = {
        name: {
            "flops": work.flops,
            "bytes": work.bytes,
            "intensity": work.intensity,
            "seconds": box.seconds(work) if fit else None,
            "regime": box.regime(work),
        }
        for name, work in passes.items()
    }
    interval = list(points.values())[-1]["seconds"] if fit >= batch else None
    values = {
        "ridge": box.ridge,
        "ttft_seconds": points["prefill"]["seconds"],
        "interval_seconds": interval,
        "fit": fit,
        "tokens_per_second": None if interval is None else batch / interval,
        "weight_bytes": weights,
        "sequence_bytes": sequence,
        "kv_copies": copies,
        **{f"{name}: {key}": value for name, point in points.items() for key, value in point.items()},
    }
    named = f"{several(cards, accelerator)} ({quantity(room, 'B')})"
    if fit >= batch:
        text = (
            f"First token after {quantity(values['ttft_seconds'], 's', 3)} {'at best' if mfu == mbu == 1 else 'in this model'}, then one "
            f"every {quantity(interval, 's', 3)} with {number(batch)} sequences: {number(values['tokens_per_second'], 4)} tokens/s. "
            f"{number(fit)} sequences fit."
        )
    else:
        would = would_fit(m, card, end, batch, 1, bytes_per_parameter, bytes_per_value)
        text = f"{_what_does_not_fit(model, named, batch, fit, weights, sequence, room)} {would}"
    least = 0 if interval is None else Machine(card, cards, precision).seconds(list(passes.values())[-1])
    usual = measured(
        "A step of decoding",
        least,
        "decode",
        bits=8 * bytes_per_parameter,
        experts=bool(parameter_counts.parameters(m).experts),
        chips=cards,
    )
    rows = [
        [name, quantity(p["flops"], "FLOP"), quantity(p["bytes"], "B"), f"{number(p['intensity'], 3)} FLOP/B"]
        + ([quantity(p["seconds"], "s", 3)] if fit else [])
        for name, p in points.items()
    ]
    return result(
        text,
        values,
        [*_server_verdicts(values, points, batch, copies, named, room), *split_verdict(m, cards), *usual],
        [(["work", "FLOPs>", "bytes>", "intensity>"] + ["time>"] * bool(fit), rows)],
        [_roofline_plot(points, box)],
    )


def _what_does_not_fit(model, machine, batch, fit, weights, sequence, room):
    many = f"{number(batch)} sequences" if batch > 1 else "a sequence"
    needs = f"needs {quantity(weights, 'B')} of weights + {quantity(batch * sequence, 'B')} of cache for {many}, has {quantity(room, 'B')}"
    fewer = "; the weights alone do not fit" if weights > room else f"; {number(fit)} would fit" if batch > 1 else ""
    return f"{model} does not fit {machine}: it {needs}{fewer}."


def _server_verdicts(values, points, batch, copies, machine, room):
    weights, fit = values["weight_bytes"], values["fit"]
    if weights > room:
        yield False, f"The weights alone, {quantity(weights, 'B')}, do not fit {machine}, {quantity(room, 'B')}."
    else:
        yield (
            fit >= batch,
            f"{number(batch)} sequences of {quantity(values['sequence_bytes'], 'B')} {'fit' if fit >= batch else 'do not fit'} beside the "
            f"weights ({quantity(weights, 'B')} of {quantity(room, 'B')}).",
        )
    if copies > 1:
        yield None, f"The cards split the heads, and together store each sequence's cache {number(copies, 3)} times."
    for name, p in points.items():
        yield None, f"{name.capitalize()} is {p['regime']}: {number(p['intensity'], 3)} FLOP/B, ridge {number(values['ridge'], 4)}."


def _roofline_plot(points, box):
    peak, bandwidth, mfu, mbu, ridge = box.peak, box.bandwidth, box.mfu, box.mbu, box.ridge
    low = min(0.5, *(p["intensity"] for p in points.values()))
    high = max(4 * ridge, *(2 * p["intensity"] for p in points.values()))
    roof = lambda a, b: [(i, roofline.attainable(i, a, b) / TERA) for i in (low, a / b, high)]
    series = [Line("roof", roof(peak, bandwidth))]
    series += [Line("reached", roof(mfu * peak, mbu * bandwidth))] if min(mfu, mbu) < 1 else []
    at = lambda p: (p["intensity"], roofline.attainable(p["intensity"], mfu * peak, mbu * bandwidth) / TERA)
    series += [Line(name, [at(p)], "points", (name,)) for name, p in points.items() if p["seconds"] is not None]
    alt = (
        f"Roofline, log-log: rate rises with intensity up to {number(ridge, 4)} FLOP/B, then stays at {quantity(peak, 'FLOP/s', 4)}. "
        + "; ".join(f"{name} at {number(p['intensity'], 3)} FLOP/B" for name, p in points.items())
    )
    return plot.lines(
        series, Axis("intensity (FLOP/B)", log=True), Axis("rate (TFLOP/s)", log=True), alt, "roofline"
    ), "The roof of the machine and where the work stands on it: left of the corner memory is the limit, right of it arithmetic."


# fluid backlog ----------------------------------------------------------------------------------------------
LOAD = (
    num("rate", "Requests a second", 4, "requests/s", 0.01, 1000, (0.5, 1, 2, 3, 4, 5, 6, 8, 10, 12, 16)),
    count("first_share", "Long inputs among them, first window", 90, "%", 0, 100, range(0, 101, 5)),
    count("second_share", "Long inputs among them, second window", 10, "%", 0, 100, range(0, 101, 5)),
)
REQUESTS = group(
    "Windows and requests",
    num("seconds", "Length of each window", 60, "s", 1, 3600, (10, 20, 30, 60, 120, 300)),
    count("long_prompt", "Long input: prompt", measured_runs.LONG_INPUT.new, "tokens", 1, 2**20),
    count("short_output", "Long input: output", measured_runs.LONG_INPUT.output, "tokens", 2, 2**17),
    count("short_prompt", "Long output: prompt", measured_runs.LONG_OUTPUT.new, "tokens", 1, 2**20),
    count("long_output", "Long output: output", measured_runs.LONG_OUTPUT.output, "tokens", 2, 2**17),
)


def _window(seconds, rate, long, total, long_prompt, short_output, short_prompt, long_output):
    """A window in which so many requests of a total have long inputs, weights in lowest terms."""
    types = (request_tokens.Request(long_prompt, short_output), long), (request_tokens.Request(short_prompt, long_output), total - long)
    return arrivals.Window(seconds, rate, tuple((request, weight // gcd(long, total)) for request, weight in types if weight))


SHIFTING = {"Shifting load": {}, "The same load, evenly mixed": dict(first_share=50, second_share=50)}


@calculator(
    "backlog",
    "Backlog of a shifting load",
    "Enough capacity on average: does a backlog build up all the same, and when is it gone?",
    *LOAD,
    count("cards", "Accelerators, each with a copy", 2, "", 1, 1024, range(1, 17)),
    *REQUESTS,
    *group(
        "Servers",
        choice("model", "Model", MODELS),
        choice("accelerator", "Accelerator", CARDS, MEASURED_CARD),
        count("batch", "Sequences in a decode step", 64, "sequences", 1, 4096, doublings(1, 1024)),
        *efficiencies(),
        choice("context", "Context behind the rate", ("one mean for all", "each window's own")),
    ),
    presets=SHIFTING,
    exact=False,
)
def backlog(model, accelerator, cards, batch, mfu, mbu, context, seconds, rate, first_share, second_share, **lengths):
    """Fluid backlog of decode work over two windows, against the same requests evenly mixed."""
    m, card = models.model(model), accelerators.accelerator(accelerator)
    box = Machine(card, mfu=mfu, mbu=mbu)
    windows = [_window(seconds, rate, share, 100, **lengths) for share in (first_share, second_share)]
    mixed = _window(2 * seconds, rate, first_share + second_share, 200, **lengths)
    contexts = [round(w.mean_step_context) for w in ([mixed] if context == "one mean for all" else [mixed, *windows])]
    must_fit(m, card, max(contexts), batch)
    at = lambda window: fluid.decode_rate(m, box, batch, round(window.mean_step_context), cards)
    rates = [at(mixed)] * 2 if context == "one mean for all" else [at(w) for w in windows]
    pieces = backlog_paths.decode_pieces(windows, rates)
    even = backlog_paths.decode_pieces([mixed], at(mixed))
    path = backlog_paths.backlog_path(pieces, then=rates[-1])
    flat = backlog_paths.backlog_path(even, then=at(mixed))
    arrived = backlog_paths.balance(pieces)[0]
    values = {
        "service_rate": rates,
        "step_rates": [w.step_rate for w in windows],
        "mixed_step_rate": mixed.step_rate,
        "input_rates": [w.input_rate for w in windows],
        "peak_steps": backlog_paths.largest(path)[1],
        "empty_seconds": path[-1][0],
        "mixed_peak_steps": backlog_paths.largest(flat)[1],
        "mean_delay_seconds": backlog_paths.backlog_area(path) / arrived,
        "longest_delay_seconds": max(backlog_paths.delay_at(pieces, t, rates[-1]) for t, _ in path if t <= 2 * seconds),
        "path": [list(p) for p in path],
        "fit": fits(m, box, round(mixed.mean_step_context)),
        "prompt_share": _prompt_seconds(m, box, mixed) / cards,
    }
    text = (
        f"The backlog grows to {number(round(values['peak_steps']))} steps and is gone {clock(values['empty_seconds'])} after the start; "
        f"evenly mixed, the same requests leave {number(round(values['mixed_peak_steps'])) if values['mixed_peak_steps'] else 'none'}."
        if values["peak_steps"]
        else f"No backlog: {number(round(min(rates)))} steps/s are always enough."
    )
    rows = [
        [name, number(round(w.input_rate)), number(round(w.step_rate)), number(round(r))]
        for name, w, r in (
            ("first window", windows[0], rates[0]),
            ("second window", windows[1], rates[1]),
            ("evenly mixed", mixed, at(mixed)),
        )
    ]
    return result(
        text,
        values,
        [*_backlog_verdicts(values, batch), *_decode_range(m, card, batch, contexts[0])],
        [(["window", "prompt tokens/s>", "decode steps/s>", "served at most>"], rows)],
        [_backlog_plot(path, flat, seconds)],
    )


def _decode_range(m, card, batch, context, remark=""):
    """Verdict: what measured machines need for a decode step of 16-bit weights beside its roofline."""
    what = f"A step of decoding {number(batch)} sequence{'s' * (batch != 1)} of {number(round(context))} tokens{remark}"
    least = Machine(card).seconds(decode(m, context, batch))
    yield from measured(what, least, "decode", experts=bool(parameter_counts.parameters(m).experts))


def _prompt_seconds(m, box, window):
    """Seconds of one card's arithmetic that the prompts of a second need."""
    return float(window.rate * window.mean(lambda r: round(prefill(m, r).flops))) / (box.mfu * box.peak)


def _backlog_verdicts(values, batch):
    enough = values["mixed_step_rate"] <= min(values["service_rate"])
    yield (
        enough,
        f"On average {number(round(values['mixed_step_rate']))} steps arrive a second, {'within' if enough else 'above'} the capacity"
        + ("." if enough else ": more “Accelerators” or fewer “Requests a second”."),
    )
    share = values["prompt_share"]
    yield (
        False if share >= 1 else None,
        f"Decoding alone is counted. The prompts would take {quantity(share, '%', 3)} of the arithmetic of all cards besides"
        + (": more than there is, whatever decoding needs." if share >= 1 else "."),
    )
    if values["peak_steps"]:
        yield False, f"Work waits {clock(values['mean_delay_seconds'], 3)} on average, at most {clock(values['longest_delay_seconds'], 3)}."
    yield (
        values["fit"] >= batch,
        f"{number(batch)} sequence{'s' * (batch > 1)} a card fit{'s' * (batch == 1)} ({number(values['fit'])} would).",
    )


def _backlog_plot(path, flat, seconds):
    end = max(path[-1][0], flat[-1][0])
    draw = lambda corners: [(t, q / 1000) for t, q in corners] + ([(end, 0)] if corners[-1][0] < end else [])
    alt = (
        f"Backlog over time. As it arrives: {number(round(backlog_paths.largest(path)[1]))} steps at most, "
        f"empty after {clock(path[-1][0])}. "
        f"Evenly mixed: {number(round(backlog_paths.largest(flat)[1]))} at most."
    )
    return plot.lines(
        [Line("as it arrives", draw(path)), Line("evenly mixed", draw(flat))],
        Axis("time (s)", low=0, high=end),
        Axis("backlog (thousand steps)"),
        alt,
        "backlog",
        220,
    ), f"Fluid backlog of decode steps, rates constant within each {clock(seconds)} window. A lower bound of what waits."


# serving simulator ------------------------------------------------------------------------------------------
SETTINGS = measured_runs.replay_settings()
FACTORS = measured_runs.replay_factors()
MEASURED = {"blocks": SETTINGS["blocks"]}
MOST_REQUESTS = 6000
WAIT_AT_END = 0.05  # share of all requests that may still wait when no more come, in a replica that keeps up
SHAPES = ("long_prompt", "short_output", "short_prompt", "long_output")


@calculator(
    "serving",
    "Serving simulator",
    "What do users wait for, and what does the memory pool do, when requests are batched continuously?",
    *LOAD,
    count("max_num_seqs", "Most running requests", SETTINGS["max_num_seqs"], "requests", 1, 4096, doublings(1, 1024)),
    *REQUESTS,
    *group(
        "Rhythm",
        choice("rhythm", "Arrivals", ("even", "random")),
        num("cv", "Random gaps: deviation over mean (1: Poisson)", 1, "", 0.1, 10),
        count("seed", "Random draw number", 1, "", 0, 10**6),
    ),
    *group(
        "Engine",
        choice("model", "Model", MODELS),
        choice("accelerator", "Accelerator", CARDS, MEASURED_CARD),
        num("memory_share", "Share of the memory that the engine may use", 0.9, "", 0.01, 1, PERCENT),
        count("blocks", "KV blocks (empty: all that fit)", None, "", 1, 10**7, optional=True),
        count("block_size", "Tokens of a block", SETTINGS["block_size"], "tokens", 1, 1024),
        count(
            "max_num_batched_tokens",
            "Most tokens of a step",
            SETTINGS["max_num_batched_tokens"],
            "tokens/step",
            1,
            2**20,
            doublings(256, 2**15),
        ),
        count("max_model_len", "Most tokens of a request", SETTINGS["max_model_len"], "tokens", 2, 2**21),
        switch("whole_sequence", "Admit only what fits whole", True),
    ),
    *group("Time of a step", *efficiencies(FACTORS["mfu"], FACTORS["mbu"]), choice("form", "Operators", ("sum", "max"))),
    presets={
        "Measured, shifting": MEASURED,
        "Measured, evenly mixed": dict(MEASURED, first_share=50, second_share=50),
        "Shifting, whole memory": {},
    },
    exact=False,
)
def simulator(
    seconds, rate, first_share, second_share, rhythm, cv, seed, model, accelerator, memory_share, blocks, mfu, mbu, form, **given
):
    """Continuous batching of a load on one replica: times to first and last token, preemptions, the pool over time."""
    lengths = {name: given.pop(name) for name in SHAPES}
    windows = [_window(seconds, rate, share, 100, **lengths) for share in (first_share, second_share)]
    if (coming := round(2 * rate * seconds)) not in range(1, MOST_REQUESTS + 1):
        wanted = "shorter windows or a lower rate" if coming else "longer windows or a higher rate"
        raise ValueError(
            f"rate (requests/s) must give between 1 and {number(MOST_REQUESTS)} requests in the two windows, so that a page simulates them "
            f"in seconds, got {number(coming)}: choose {wanted}"
        )
    load = tuple(arrivals.random_arrivals(windows, cv, seed) if rhythm == "random" else arrivals.interleaved(windows))
    if not load:
        raise ValueError(f"seed must be a draw with at least one request in the two windows, got {seed}, whose are empty: choose another")
    m, card = models.model(model), accelerators.accelerator(accelerator)
    engine, block_bytes = _pool(m, card, memory_share, blocks, load, given)
    run = simulation.serve(load, engine, step_seconds.step_time(m, Machine(card, mfu=mfu, mbu=mbu), form))
    waiting = _outstanding(run)
    found = {
        "requests": len(run.requests),
        "output_tokens": sum(r.output for r in run.requests),
        **run.p95_times(),
        "preemptions": run.preemptions,
        "steps": run.steps,
        "ttft_median": latency_metrics.nearest_rank([latency_metrics.ttft(r.arrival, r.first) for r in run.requests], 0.5),
        "most_outstanding": max(n for _, n in waiting),
        "blocks": engine.blocks,
        "pool_bytes": round(engine.blocks * block_bytes),
        "weight_bytes": memory.weight_bytes(m),
    }
    found["tokens_per_second"] = found["output_tokens"] / run.makespan
    found["left_waiting"] = sum(r.arrival <= 2 * seconds < r.scheduled for r in run.requests)
    known = (model, accelerator) == (EVEN[0], MEASURED_CARD) and engine == Engine(**SETTINGS)
    replays = (name for name in measured_runs.WINDOWS if known and load == measured_runs.replay_load(name))
    replay = next(map(measured_runs.measured_replay, replays), None)
    text = (
        f"{number(found['requests'])} requests: 95% have their first token within {clock(found['ttft_p95'], 3)} and end within "
        f"{clock(found['request_p95'], 3)}; "
        f"the last token comes after {clock(found['makespan'], 3)}. Preemptions: {number(found['preemptions'])}."
    )
    return result(
        text,
        found,
        [*_serving_verdicts(found, windows, replay), *_assumed(found, m, card, memory_share, mfu, mbu), *_busiest(run, engine, m, card)],
        [_serving_table(found, replay)],
        _serving_plots(run, engine, waiting),
    )


def _pool(m, card, share, blocks, load, settings):
    """The engine with its pool, blocks as given or all that fit beside the weights, and bytes of a block. Refused where
    they, or the longest request, do not fit.
    """
    size = settings["block_size"]
    longest = max(a.request.new + a.request.output - 1 for a in load) if load else 1
    must_fit(m, card, -(-longest // size) * size, share=share)
    known = 10**30  # of a pool that large its blocks say how large each is
    pool, block_bytes = (
        cache_pool(m, share * card.memory_bytes - memory.weight_bytes(m), 1, size),
        known / cache_pool(m, known, 1, size)["blocks"],
    )
    held, least = pool["blocks"], Engine(**settings | pool | {"blocks": 1}).blocks_of(longest)
    if blocks is not None and not least <= blocks <= held:
        raise ValueError(
            f"blocks must be at least {number(least)}, which the longest request of {number(longest)} tokens needs, and at most "
            f"{number(held)}, which fit beside the weights in {quantity(share * card.memory_bytes, 'B')} of one {card.name}, got "
            f"{number(blocks)}; left empty, it is {number(held)}"
        )
    return Engine(**settings | pool | {"blocks": held if blocks is None else blocks}), block_bytes


def _assumed(found, m, card, share, mfu, mbu):
    """Where the pool comes from, and on which machine the shares were fitted."""
    yield (
        None,
        f"The pool of {number(found['blocks'])} blocks takes {quantity(found['pool_bytes'], 'B')} beside weights of "
        f"{quantity(found['weight_bytes'], 'B')}; the engine may use {quantity(share * card.memory_bytes, 'B')}.",
    )
    kept = [f"{name} {FACTORS[key]}" for name, key, value in (("MFU", "mfu", mfu), ("MBU", "mbu", mbu)) if value == FACTORS[key]]
    if kept and (m.name, card.name) != (EVEN[0], MEASURED_CARD):
        yield (
            None,
            f"{' and '.join(kept)} {'were' if len(kept) > 1 else 'was'} fitted to {EVEN[0]} on {MEASURED_CARD}; for {m.name} on "
            f"{card.name} {'they are' if len(kept) > 1 else 'it is'} an assumption.",
        )


def _outstanding(run):
    """Corners (s, requests) of the number of requests that have arrived and not ended."""
    events = sorted([(r.arrival, 1) for r in run.requests] + [(r.last, -1) for r in run.requests])
    level, corners = 0, [(0, 0)]
    for time, change in events:
        level += change
        corners.append((time, level))
    return corners


def _busiest(run, engine, m, card):
    """Verdict: what measured machines need for the step of the most requests, its cache as many tokens as its blocks hold."""
    _, blocks, batch = max(run.timeline, key=lambda event: event[2])
    if engine.groups != WHOLE or engine.seat:
        return  # blocks of windows and states do not say how many tokens there are
    yield from _decode_range(m, card, batch, blocks * engine.block_size / batch, ", the most at once")


def _serving_verdicts(found, windows, measured):
    sent = sum(w.seconds for w in windows)
    left, keeps_up = found["left_waiting"], found["left_waiting"] <= WAIT_AT_END * found["requests"]
    yield (
        keeps_up,
        f"Requests come for {clock(sent)}. At that time {number(left) if left else 'none'} of {number(found['requests'])} still "
        f"wait{'s' * (left == 1)} for a first step; the last token comes after {clock(found['makespan'], 3)}."
        + ("" if keeps_up else " The queue grows: a second replica, or fewer “Requests a second”."),
    )
    again = found["preemptions"]
    yield (
        again == 0,
        f"{number(again)} preemption{'s' * (again != 1)}: each computes a request again from its first token."
        if again
        else "No preemption: the pool was never short of blocks.",
    )
    if measured:
        yield (
            None,
            f"This load was measured: request time within 95%, {clock(measured.request_p95, 3)} (predicted "
            f"{quantity(found['request_p95'] / measured.request_p95 - 1, '%', 2)} off).",
        )


def _serving_table(found, measured):
    rows = [
        ("request time, 95% within", "request_p95", clock),
        ("first token, 95% within", "ttft_p95", clock),
        ("wait before the first step, 95% within", "wait_p95", clock),
        ("last token of all", "makespan", clock),
        ("preemptions", "preemptions", number),
    ]
    own = [
        ("first token, half within", clock(found["ttft_median"])),
        ("output tokens/s", number(found["tokens_per_second"], 4)),
        ("engine steps", number(found["steps"])),
    ]
    if not measured:
        return ["", "simulated>"], [[label, text(found[key])] for label, key, text in rows] + [list(row) for row in own]
    return ["", "simulated>", "measured>"], [[label, text(found[key]), text(getattr(measured, key))] for label, key, text in rows] + [
        [*row, ""] for row in own
    ]


def _thinned(points, most=240):
    step = -(-len(points) // most)
    return points if step <= 1 else [*points[::step], points[-1]]


def _serving_plots(run, engine, waiting):
    size, unit = scaled(run.makespan)
    over = lambda points: [(t / size, v) for t, v in _thinned(points)]
    running = [(0, 0)] + [(t, n) for t, _, n in run.timeline]
    used = [(0, 0)] + [(t, 100 * blocks / engine.blocks) for t, blocks, _ in run.timeline]
    time = Axis(f"time ({unit})", low=0, high=max(t for t, _ in waiting) / size)
    most = max(n for _, n in waiting)
    return [
        (
            plot.lines(
                [Line("in the system", over(waiting)), Line("running", over(running))],
                time,
                Axis("requests"),
                f"Requests over time: at most {number(most)} in the system, at most {number(max(n for _, n in running))} running.",
                "serving-requests",
                190,
            ),
            "Requests that have arrived and not ended, and those in the running batch.",
        ),
        (
            plot.lines(
                [Line("KV blocks in use", over(used))],
                time,
                Axis("pool (%)", high=100),
                f"Share of the KV pool in use: at most {number(max(u for _, u in used), 3)}%.",
                "serving-pool",
                130,
            ),
            "KV blocks in use at the end of each event.",
        ),
    ]

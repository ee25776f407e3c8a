"""The book's calculators: each a function from plain inputs to a result, with its inputs as data beside it (see `workloads.forms`).

They hold no formula: they read inputs, call the library, and put its numbers into sentences, tables and plots. The standard library is
enough for all of it, so a page runs these very functions in the reader's browser.
"""
import random
from dataclasses import fields, replace
from functools import lru_cache, wraps
from math import gcd

from . import arrivals, attempts, budgets, fluid, flops, hardware, memory, metrics, models, plot, replay, requests, rlcycle, rlstep, roofline
from . import scaling, serving, steptime, streaming, taskgraph, training
from .attempts import solved_within
from .decision import published
from .domain import between, one_of, positive
from .forms import Calculator, Input, result
from .plot import Axis, Bar, Line
from .units import GIGA, HOUR, MINUTE, TERA, number, quantity

CALCULATORS = {}


def calculator(name, title, question, *inputs, presets=None, exact=True):
    """Decorator: the function becomes a `forms.Calculator` of CALCULATORS; called itself, it reads its arguments and knows their defaults."""
    def register(function):
        CALCULATORS[name] = made = Calculator(name, title, question, inputs, function, presets or {}, exact)
        return wraps(function)(lambda **given: made(**given))
    return register


def answer(name, given):
    """What a page shows for the inputs of a calculator (see `forms.Calculator.answer`)."""
    return CALCULATORS[name].answer(given)


def group(heading, *inputs):
    """The inputs under one heading."""
    return tuple(replace(i, group=heading) for i in inputs)


def num(name, label, default, unit="", low=0, high=None, stops=(), kind="number", **more):
    """A number as an input."""
    return Input(name, label, kind, default, unit, low, high, stops=tuple(stops), **more)


def count(name, label, default, unit="", low=1, high=None, stops=(), **more):
    """A whole number as an input."""
    return num(name, label, default, unit, low, high, stops, "whole", **more)


def choice(name, label, choices, default=None):
    """A choice as an input, the first one by default."""
    return Input(name, label, "choice", choices[0] if default is None else default, choices=tuple(choices))


def switch(name, label, default):
    """A switch as an input."""
    return Input(name, label, "switch", default)


def doublings(low, high):
    """low, 2 low, 4 low, ... up to high: stops of a slider."""
    return [low * 2**k for k in range((high // low).bit_length())]


PERCENT = [k / 20 for k in range(1, 21)]
ATTENTION = [name for name, m in models.models().items() if isinstance(m, models.Model)]
DENSE = [name for name in ATTENTION if not models.model(name).experts and not models.model(name).latent]
CARDS = list(hardware.accelerators())
MEASURED_CARD = "RTX PRO 6000 Blackwell Workstation"


def shared(mfu=1.0, mbu=1.0):
    """The two efficiencies as inputs."""
    return (num("mfu", "Share of the compute peak reached (MFU)", mfu, "", 0.001, 1, PERCENT),
            num("mbu", "Share of the bandwidth reached (MBU)", mbu, "", 0.001, 1, PERCENT))


def clock(seconds, digits=4):
    """Text of a time: seconds, minutes or hours."""
    size, unit = (1, "s") if seconds < 600 else (MINUTE, "min") if seconds < 2 * HOUR else (HOUR, "h")
    return quantity(seconds / size, unit, digits)


def scaled(seconds):
    """Size and name of the unit of time for an axis up to so many seconds."""
    return (1e-3, "ms") if seconds < 0.5 else (1, "s") if seconds < 300 else (MINUTE, "min") if seconds < 5 * HOUR else (HOUR, "h")


def plain(found):
    """Numbers of a dataclass by name."""
    return {f.name: getattr(found, f.name) for f in fields(found)}


def possible(compute):
    """The value, or None where the library refuses it."""
    try:
        return compute()
    except ValueError:
        return None


# ------------------------------------------------------------------------------------------------------------------------- 1 RL step
ROUND = rlstep.RLStep()
ROUND_MODEL, ROUND_CARD = "8B, round figures", "H100, round figures"
PHASES = {"prefill": "prefill", "decode": "decode", "logprob": "log-probabilities", "training": "training", "optimizer": "optimizer", "other": "other"}
PRINTED = {f.name: value for f in fields(rlstep.RLStep) if (value := getattr(rlstep.printed_page(), f.name)) != getattr(ROUND, f.name)}
ASSUMPTIONS = (
    switch("lora", "LoRA: no weight gradients, 4N for 6N", ROUND.lora),
    switch("reference", "Pass of a reference model", ROUND.reference),
    choice("context", "Cache read in a decode step", ("average", "full")),
    choice("capacity", "A cache that does not fit", ("waves", "ignored")),
    num("kv_bytes", "Cache bytes, where they are not the model's", None, "B/token", 1, 10**7, optional=True),
    *group("Further assumptions",
           choice("decode_bound", "Limit of a decode step", ("roofline", "memory")),
           switch("stragglers", "Decode lasts until the longest completion ends", ROUND.stragglers),
           switch("recompute", "Activations recomputed: one more forward", ROUND.recompute),
           switch("policy_logprobs", "Pass of the policy over finished samples", ROUND.policy_logprobs),
           count("teachers", "Passes of teachers", ROUND.teachers, "", 0, 16),
           choice("first_token", "First token comes from", ("decode", "prefill")),
           choice("prefill_head", "Head in a prefill", ("all", "last")),
           choice("pass_head", "Head in passes over samples", ("all", "labels")),
           count("epochs", "Training passes over the samples", ROUND.epochs, "", 1, 64),
           count("rollout_uses", "Steps that share one set of rollouts", ROUND.rollout_uses, "steps", 1, 64),
           num("optimizer_bytes", "Optimizer traffic", ROUND.optimizer_bytes, "B/parameter", 0, 100),
           num("trainable_share", "Share of the parameters trained", ROUND.trainable_share, "", 1e-6, 1),
           num("held_state_bytes", "Training state kept during rollout", ROUND.held_state_bytes, "B/parameter", 0, 100),
           count("copies", "Copies of the weights held", ROUND.copies, "", 1, 8),
           num("overhead", "Memory over that of the weights", ROUND.overhead, "", 1, 4),
           num("other_seconds", "Rewards, weight transfer: time alone", ROUND.other_seconds, "s", 0, 10**5)))


def _step_of(model, accelerator, bytes_per_parameter, bytes_per_value, expert_parallel, **given):
    """RLStep of a model and an accelerator by name; the round figures are those of the library's default step."""
    card = hardware.Accelerator(ROUND_CARD, ROUND.memory_bytes, ROUND.bandwidth, {"bf16": ROUND.peak}) if accelerator == ROUND_CARD \
        else hardware.accelerator(accelerator)
    if model != ROUND_MODEL:
        return rlstep.for_model(models.model(model), card, "bf16", bytes_per_parameter, bytes_per_value, expert_parallel, **given)
    cache = memory.kv_bytes_per_token(models.model("Qwen3-8B"), bytes_per_value)
    return rlstep.RLStep(peak=card.peak(), bandwidth=card.bandwidth, memory_bytes=card.memory_bytes, weight_bytes=ROUND.parameters * bytes_per_parameter,
                         **{"kv_bytes": cache, **given})


@lru_cache(maxsize=256)
def _crossover(config):
    return rlstep.crossover_length(config)


def _column(config):
    """What the calculator shows of one configuration, by name."""
    step = rlstep.step(config)
    rates = {f"{name}_mfu": possible(lambda: getattr(step, f"{name}_mfu")) for name in ("rollout", "training", "step")}
    derived = ("rollout_seconds", "learning_seconds", "rollout_share", "step_flops", "intensity", "regime", "fits")
    return {**plain(step), **{name: getattr(step, name) for name in derived}, **rates,
            "crossover_tokens": _crossover(rlstep.with_completion(config, 1024)),
            "overflow_tokens": rlstep.overflow_length(config) if config.kv_bytes > 0 else None}


def _printed_assumptions(model):
    return {name: value for name, value in PRINTED.items() if name != "kv_bytes" or model == ROUND_MODEL}


@calculator(
    "rl-step", "One step of reinforcement learning", "How long does a step take, what is it spent on, and which assumption decides?",
    num("completion", "Completion, mean", ROUND.completion, "tokens", 2, 2**20, doublings(128, 2**17)),
    choice("model", "Model", [ROUND_MODEL, *models.models()]),
    choice("accelerator", "Accelerator", [ROUND_CARD, *CARDS]),
    count("gpus", "GPUs", ROUND.gpus, "", 1, 10**5, doublings(1, 1024)),
    *ASSUMPTIONS,
    *group("Workload",
           count("prompts", "Prompts a step", ROUND.prompts, "", 1, 10**5, doublings(1, 1024)),
           count("group", "Completions a prompt", ROUND.group, "", 1, 1024, doublings(1, 64)),
           count("prompt_tokens", "Prompt", ROUND.prompt_tokens, "tokens", 0, 2**20),
           num("spread", "Spread of the lengths: deviation over mean", 0, "", 0, 5),
           num("longest", "Longest completion, where they spread", 32768, "tokens", 2, 2**21),
           num("kept_samples", "Completions used in training (empty: all)", None, "samples", 1, 10**8, optional=True),
           switch("shared_prompts", "One prefill for a group's prompt", ROUND.shared_prompts)),
    *group("Machine",
           count("gpus_per_copy", "GPUs that share one copy of the weights", ROUND.gpus_per_copy, "", 1, 1024),
           switch("expert_parallel", "They split the experts only", False),
           num("rollout_gpus", "GPUs for the rollout alone (empty: takes turns)", None, "", 1, 10**5, optional=True),
           switch("overlap", "Rollout and training at the same time", ROUND.overlap),
           num("bytes_per_parameter", "Bytes of a weight", 2, "B", 0.25, 8),
           num("bytes_per_value", "Bytes of a cached value", 2, "B", 0.25, 8),
           num("mbu", "Share of the bandwidth reached (MBU)", ROUND.mbu, "", 0.001, 1, PERCENT),
           num("mfu", "Share of the compute peak reached (MFU)", ROUND.mfu, "", 0.001, 1, PERCENT),
           num("decode_mfu", "The same for the arithmetic of decode", ROUND.decode_mfu, "", 0.001, 1)),
    presets={"As printed": PRINTED, "Corrected": {}}, exact=False)
def rl_step(model, completion, spread, longest, **given):
    """One RL step as printed, corrected, and with the reader's own assumptions: times, shares, crossover, memory."""
    own = {i.name: given.pop(i.name) for i in ASSUMPTIONS}
    lengths = completion
    if spread:
        positive(longest - completion, "longest - completion", "tokens")
        lengths = rlstep.lognormal_lengths(completion, spread, longest, count=32)
    chosen = {name: value for name, value in own.items() if name != "kv_bytes" or value is not None}
    build = lambda assumed: _column(_step_of(model, completion=lengths, **given, **assumed))
    columns = {"yours": build(chosen)}
    if chosen != {i.name: i.default for i in ASSUMPTIONS if i.default is not None}:
        columns = {"corrected": possible(lambda: build({})), **columns}
    else:
        columns = {"corrected": columns["yours"]}
    columns = {"as printed": possible(lambda: build(_printed_assumptions(model))), **columns}
    columns = {name: column for name, column in columns.items() if column}
    say = "; ".join(f"{name}: {clock(c['step_seconds'])}, {quantity(c['rollout_share'], '%', 3)} of it rollout" for name, c in columns.items())
    return result(f"A step takes, {say}.", {f"{name}: {key}": value for name, c in columns.items() for key, value in c.items()},
                  _step_verdicts(columns), [_step_table(columns)], [_step_bars(columns)])


def _step_verdicts(columns):
    name, c = list(columns.items())[-1]
    far = c["ridge"] / c["intensity"]
    yield None, f"Decode is {c['regime']}: {number(c['intensity'], 3)} FLOP/B against a ridge of {number(c['ridge'], 4)} ({name})."
    if c["fits"]:
        yield True, f"The cache of {number(c['batch'], 4)} sequences a copy fits ({number(c['fit'])} would)."
    else:
        parts = f"the rollout runs in {number(c['waves'])} parts" if c["waves"] > 1 else "the time ignores it"
        yield False, f"The cache of {number(c['batch'], 4)} sequences a copy does not fit ({number(c['fit'])} would): {parts}."
    if c["rollout_mfu"] is None:
        yield False, f"Decode would do more arithmetic than the peak allows, by {number(1 / far, 3)}: a step limited by memory alone is no model here."
    crossing = c["crossover_tokens"]
    yield None, "Rollout and learning take equally long " + (f"at {number(crossing, 4)} tokens." if crossing else "at no length in range.")


def _step_table(columns):
    rows = {"rollout": ("rollout_seconds", clock), "log-probabilities": ("logprob_seconds", clock), "training": ("training_seconds", clock),
            "optimizer": ("optimizer_seconds", clock), "whole step": ("step_seconds", clock),
            "rollout share": ("rollout_share", lambda v: quantity(v, "%", 3)),
            "FLOPs": ("step_flops", lambda v: quantity(v, "FLOP")), "MFU of the step": ("step_mfu", lambda v: quantity(v, "%", 3)),
            "decode": ("intensity", lambda v: f"{number(v, 3)} FLOP/B"), "sequences a copy": ("batch", lambda v: number(v, 4)),
            "that fit": ("fit", number), "weights and cache a GPU": ("held_bytes", lambda v: quantity(v, "B")),
            "equal times at": ("crossover_tokens", lambda v: f"{number(v, 4)} tokens"),
            "memory full at": ("overflow_tokens", lambda v: f"{number(max(0, int(v)))} tokens")}
    shown = lambda c, key, text: "n/a" if c[key] is None else text(c[key])
    return ["", *(name + ">" for name in columns)], [[row, *(shown(c, key, text) for c in columns.values())] for row, (key, text) in rows.items()]


def _step_bars(columns):
    size, unit = scaled(max(c["step_seconds"] for c in columns.values()))
    rows = [(f"{name}: {clock(c['step_seconds'])}, rollout {quantity(c['rollout_share'], '%', 3)}",
             plot.stacked([c[f"{phase}_seconds"] / size for phase in PHASES])) for name, c in columns.items()]
    alt = "Bars of the phases of a step, one after another. " + "; ".join(label for label, _ in rows)
    return plot.bars(rows, list(PHASES.values()), Axis(f"time ({unit})"), alt, "rl-step"), \
        "Phases of one step, one after another. As printed: the document's assumptions, on this workload and machine."


# ----------------------------------------------------------------------------------------------------------- 2 roofline of a server
@calculator(
    "roofline", "Roofline of one server", "What limits prefill and decode, how fast can they be at best, and how many sequences fit?",
    choice("model", "Model", ATTENTION),
    choice("accelerator", "Accelerator", CARDS),
    count("new", "Prompt: new tokens", 8192, "tokens", 1, 2**20, doublings(16, 2**17)),
    count("output", "Returned tokens", 256, "tokens", 2, 2**17, doublings(2, 2**15)),
    count("batch", "Sequences in a decode step", 32, "sequences", 1, 10**5, doublings(1, 1024)),
    *group("Machine", count("cards", "Accelerators that act as one", 1, "", 1, 64, doublings(1, 64)), choice("precision", "Precision of the arithmetic", ("bf16", "fp8")), *shared()),
    *group("Bytes and cache",
           num("bytes_per_parameter", "Bytes of a weight", 2, "B", 0.25, 4),
           num("bytes_per_value", "Bytes of a cached value", 2, "B", 0.25, 4),
           count("past", "Tokens cached before", 0, "tokens", 0, 2**20)), exact=False)
def server(model, accelerator, cards, precision, bytes_per_parameter, bytes_per_value, mfu, mbu, new, output, past, batch):
    """Ridge, operating points, time to first token, interval between tokens, and sequences that fit."""
    m, card, request = models.model(model), hardware.accelerator(accelerator), requests.Request(new, output, past)
    peak, bandwidth, context = cards * card.peak(precision), cards * card.bandwidth, requests.mean_decode_context(request)
    width = dict(bytes_per_parameter=bytes_per_parameter, bytes_per_value=bytes_per_value)
    work = {"prefill": (flops.forward(m, new, past, head="last").total, memory.prefill_bytes(m, new, past, **width))}
    for rows in dict.fromkeys((1, batch)):
        work[f"decode of {number(rows)}"] = flops.decode_step(m, context, rows).total, memory.decode_traffic(m, context, rows, **width).total
    points = {name: {"flops": f, "bytes": b, "intensity": roofline.intensity(f, b), "seconds": roofline.roofline_seconds(f, b, peak, bandwidth, mfu, mbu),
                     "regime": roofline.regime(f, b, peak, bandwidth, mfu, mbu)} for name, (f, b) in work.items()}
    last = points[list(points)[-1]]
    weights, sequence = memory.weight_bytes(m, bytes_per_parameter), memory.kv_bytes(m, requests.end_context(request), bytes_per_value=bytes_per_value)
    fit = memory.sequences_that_fit(cards * card.memory_bytes, weights, sequence)
    values = {"ridge": roofline.ridge(peak, bandwidth), "ttft_seconds": points["prefill"]["seconds"], "interval_seconds": last["seconds"], "fit": fit,
              "tokens_per_second": batch / last["seconds"], "weight_bytes": weights, "sequence_bytes": sequence,
              **{f"{name}: {key}": value for name, point in points.items() for key, value in point.items()}}
    kind = "at best" if mfu == mbu == 1 else "in this model"
    text = (f"First token after {quantity(values['ttft_seconds'], 's', 3)} {kind}, then one every {quantity(last['seconds'], 's', 3)} with "
            f"{number(batch)} sequences: {number(values['tokens_per_second'], 4)} tokens/s. {number(fit)} sequences fit.")
    rows = [[name, quantity(p["flops"], "FLOP"), quantity(p["bytes"], "B"), f"{number(p['intensity'], 3)} FLOP/B", quantity(p["seconds"], "s", 3)]
            for name, p in points.items()]
    return result(text, values, _server_verdicts(values, points, batch, fit, weights, cards * card.memory_bytes),
                  [(["work", "FLOPs>", "bytes>", "intensity>", "time>"], rows)],
                  [_roofline_plot(points, peak, bandwidth, mfu, mbu, values["ridge"])])


def _server_verdicts(values, points, batch, fit, weights, room):
    for name, p in points.items():
        yield None, f"{name.capitalize()} is {p['regime']}: {number(p['intensity'], 3)} FLOP/B, ridge {number(values['ridge'], 4)}."
    if weights > room:
        yield False, f"The weights alone, {quantity(weights, 'B')}, do not fit {quantity(room, 'B')}."
    else:
        told = "fit" if fit >= batch else "do not fit"
        yield fit >= batch, f"{number(batch)} sequences of {quantity(values['sequence_bytes'], 'B')} {told} beside the weights ({quantity(weights, 'B')} of {quantity(room, 'B')})."


def _roofline_plot(points, peak, bandwidth, mfu, mbu, ridge):
    low, high = min(0.5, *(p["intensity"] for p in points.values())), max(4 * ridge, *(2 * p["intensity"] for p in points.values()))
    roof = lambda a, b: [(i, roofline.attainable(i, a, b) / TERA) for i in (low, a / b, high)]
    series = [Line("roof", roof(peak, bandwidth))]
    series += [Line("reached", roof(mfu * peak, mbu * bandwidth))] if min(mfu, mbu) < 1 else []
    series += [Line(name, [(p["intensity"], p["flops"] / p["seconds"] / TERA)], "points", (name,)) for name, p in points.items()]
    alt = f"Roofline, log-log: rate rises with intensity up to {number(ridge, 4)} FLOP/B, then stays at {quantity(peak, 'FLOP/s', 4)}. " + "; ".join(
        f"{name} at {number(p['intensity'], 3)} FLOP/B" for name, p in points.items())
    return plot.lines(series, Axis("intensity (FLOP/B)", log=True), Axis("rate (TFLOP/s)", log=True), alt, "roofline"), \
        "The roof of the machine and where the work stands on it: left of the corner memory is the limit, right of it arithmetic."


# ------------------------------------------------------------------------------------------------------------------ 3 fluid backlog
LOAD = (num("rate", "Requests a second", 4, "requests/s", 0.01, 1000, (0.5, 1, 2, 3, 4, 5, 6, 8, 10, 12, 16)),
        count("first_share", "Long inputs among them, first window", 90, "%", 0, 100, range(0, 101, 5)),
        count("second_share", "Long inputs among them, second window", 10, "%", 0, 100, range(0, 101, 5)))
REQUESTS = group("Windows and requests",
                 num("seconds", "Length of each window", 60, "s", 1, 3600, (10, 20, 30, 60, 120, 300)),
                 count("long_prompt", "Long input: prompt", replay.LONG_INPUT.new, "tokens", 1, 2**20),
                 count("short_output", "Long input: output", replay.LONG_INPUT.output, "tokens", 2, 2**17),
                 count("short_prompt", "Long output: prompt", replay.LONG_OUTPUT.new, "tokens", 1, 2**20),
                 count("long_output", "Long output: output", replay.LONG_OUTPUT.output, "tokens", 2, 2**17))


def _windows(seconds, rate, shares, long_prompt, short_output, short_prompt, long_output):
    """Windows with these shares (whole percents) of long inputs, weights in lowest terms."""
    types = requests.Request(long_prompt, short_output), requests.Request(short_prompt, long_output)
    weights = [(share // gcd(share, 100), (100 - share) // gcd(share, 100)) for share in shares]
    return [arrivals.Window(seconds, rate, tuple((r, w) for r, w in zip(types, pair) if w)) for pair in weights]


def _mixed(windows, first_share, second_share, **load):
    """One window of the same requests, evenly mixed over the whole time."""
    both = first_share + second_share
    shares = (both // gcd(both, 200), (200 - both) // gcd(both, 200))
    types = [requests.Request(load["long_prompt"], load["short_output"]), requests.Request(load["short_prompt"], load["long_output"])]
    return arrivals.Window(2 * windows[0].seconds, windows[0].rate, tuple((r, w) for r, w in zip(types, shares) if w))


SHIFTING = {"Shifting load": {}, "The same load, evenly mixed": dict(first_share=50, second_share=50)}


@calculator(
    "backlog", "Backlog of a shifting load", "Enough capacity on average: does a backlog build up all the same, and when is it gone?",
    *LOAD, count("cards", "Accelerators, each with a copy", 2, "", 1, 1024, range(1, 17)),
    *REQUESTS,
    *group("Servers",
           choice("model", "Model", ATTENTION),
           choice("accelerator", "Accelerator", CARDS, MEASURED_CARD),
           count("batch", "Sequences in a decode step", 64, "sequences", 1, 4096, doublings(1, 1024)), *shared(),
           choice("context", "Context behind the rate", ("one mean for all", "each window's own"))), presets=SHIFTING, exact=False)
def backlog(model, accelerator, cards, batch, mfu, mbu, context, seconds, rate, first_share, second_share, **lengths):
    """Fluid backlog of decode work over two windows, against the same requests evenly mixed."""
    m, card = models.model(model), hardware.accelerator(accelerator)
    windows = _windows(seconds, rate, (first_share, second_share), **lengths)
    mixed = _mixed(windows, first_share, second_share, **lengths)
    at = lambda window: fluid.decode_rate(card, m, batch, round(arrivals.mean_step_context(window)), cards, mfu, mbu)
    rates = [at(mixed)] * 2 if context == "one mean for all" else [at(w) for w in windows]
    pieces, even = fluid.decode_pieces(windows, rates), fluid.decode_pieces([mixed], at(mixed))
    path, flat = fluid.path_until_empty(pieces, rates[-1]), fluid.path_until_empty(even, at(mixed))
    arrived = fluid.work(pieces)[0]
    values = {"service_rate": rates, "step_rates": [arrivals.step_rate(w) for w in windows], "mixed_step_rate": arrivals.step_rate(mixed),
              "input_rates": [arrivals.input_rate(w) for w in windows], "peak_steps": fluid.peak(path)[1], "empty_seconds": path[-1][0],
              "mixed_peak_steps": fluid.peak(flat)[1], "mean_delay_seconds": fluid.backlog_area(path) / arrived,
              "longest_delay_seconds": max(fluid.delay_at(pieces, t, rates[-1]) for t, _ in path if t <= 2 * seconds), "path": [list(p) for p in path],
              "fit": memory.sequences_that_fit(card.memory_bytes, memory.weight_bytes(m), memory.kv_bytes(m, round(arrivals.mean_step_context(mixed))))}
    text = (f"The backlog grows to {number(round(values['peak_steps']))} steps and is gone {clock(values['empty_seconds'])} after the start; "
            f"evenly mixed, the same requests leave {number(round(values['mixed_peak_steps'])) if values['mixed_peak_steps'] else 'none'}."
            if values["peak_steps"] else f"No backlog: {number(round(min(rates)))} steps/s are always enough.")
    rows = [[name, number(round(arrivals.input_rate(w))), number(round(arrivals.step_rate(w))), number(round(r))]
            for name, w, r in (("first window", windows[0], rates[0]), ("second window", windows[1], rates[1]), ("evenly mixed", mixed, at(mixed)))]
    return result(text, values, _backlog_verdicts(values, mixed, batch), [(["window", "prompt tokens/s>", "decode steps/s>", "served at most>"], rows)],
                  [_backlog_plot(path, flat, seconds)])


def _backlog_verdicts(values, mixed, batch):
    enough = values["mixed_step_rate"] <= min(values["service_rate"])
    yield enough, f"On average {number(round(values['mixed_step_rate']))} steps arrive a second, {'below' if enough else 'above'} the capacity."
    if values["peak_steps"]:
        yield False, f"Work waits {clock(values['mean_delay_seconds'], 3)} on average, at most {clock(values['longest_delay_seconds'], 3)}."
    yield values["fit"] >= batch, f"{number(batch)} sequences a card {'fit' if values['fit'] >= batch else 'do not fit'} ({number(values['fit'])} would)."


def _backlog_plot(path, flat, seconds):
    end = max(path[-1][0], flat[-1][0])
    draw = lambda corners: [(t, q / 1000) for t, q in corners] + ([(end, 0)] if corners[-1][0] < end else [])
    alt = f"Backlog over time. As it arrives: {number(round(fluid.peak(path)[1]))} steps at most, empty after {clock(path[-1][0])}. Evenly mixed: {number(round(fluid.peak(flat)[1]))} at most."
    return plot.lines([Line("as it arrives", draw(path)), Line("evenly mixed", draw(flat))], Axis("time (s)", low=0, high=end),
                      Axis("backlog (thousand steps)"), alt, "backlog", 220), \
        f"Fluid backlog of decode steps, rates constant within each {clock(seconds)} window. A lower bound of what waits."


# ----------------------------------------------------------------------------------------------------------- 4 serving simulator
SETTINGS, FACTORS = replay.replay_settings(), replay.replay_factors()
SHAPES = ("long_prompt", "short_output", "short_prompt", "long_output")


@calculator(
    "serving", "Serving simulator", "What do users wait for, and what does the memory pool do, when requests are batched continuously?",
    *LOAD, count("seats", "Most running requests", SETTINGS["seats"], "requests", 1, 4096, doublings(1, 1024)),
    *REQUESTS,
    *group("Rhythm", choice("rhythm", "Arrivals", ("even", "random")), num("cv", "Random gaps: deviation over mean (1: Poisson)", 1, "", 0.1, 10),
           count("seed", "Random draw number", 1, "", 0, 10**6)),
    *group("Engine",
           choice("model", "Model", DENSE),
           choice("accelerator", "Accelerator", CARDS, MEASURED_CARD),
           count("blocks", "KV blocks", SETTINGS["blocks"], "", 1, 10**7), count("block_size", "Tokens of a block", SETTINGS["block_size"], "tokens", 1, 1024),
           count("token_budget", "Most tokens of a step", SETTINGS["token_budget"], "tokens/step", 1, 2**20, doublings(256, 2**15)),
           count("max_length", "Most tokens of a request", SETTINGS["max_length"], "tokens", 2, 2**21),
           switch("whole_sequence", "Admit only what fits whole", True)),
    *group("Time of a step", *shared(FACTORS["mfu"], FACTORS["mbu"]), choice("form", "Operators", ("sum", "max"))),
    presets={"Measured, shifting": {}, "Measured, evenly mixed": dict(first_share=50, second_share=50)}, exact=False)
def simulator(seconds, rate, first_share, second_share, rhythm, cv, seed, model, accelerator, mfu, mbu, form, **given):
    """Continuous batching of a load on one replica: times to first and last token, preemptions, the pool over time."""
    windows = _windows(seconds, rate, (first_share, second_share), **{name: given.pop(name) for name in SHAPES})
    between(round(2 * rate * seconds), 1, 2000, "2 x rate x seconds", "requests")
    load = tuple(_random_load(windows, cv, seed) if rhythm == "random" else arrivals.interleaved(windows))
    engine = serving.Engine(**given)
    run = serving.serve(load, engine, steptime.step_time(models.model(model), hardware.accelerator(accelerator), mfu, mbu, form))
    waiting = _outstanding(run)
    found = {"requests": len(run.requests), "output_tokens": sum(r.output for r in run.requests), **serving.p95_times(run), "preemptions": run.preemptions,
             "steps": run.steps, "ttft_median": metrics.nearest_rank([metrics.ttft(r.arrival, r.first) for r in run.requests], 0.5),
             "most_outstanding": max(n for _, n in waiting)}
    found["tokens_per_second"] = found["output_tokens"] / run.makespan
    known = (model, accelerator) == (DENSE[0], MEASURED_CARD) and engine == serving.Engine(**SETTINGS)
    measured = next((replay.measured_replay(name) for name in replay.WINDOWS if known and load == replay.replay_load(name)), None)
    text = (f"{number(found['requests'])} requests: 95% have their first token within {clock(found['ttft_p95'], 3)} and end within {clock(found['request_p95'], 3)}; "
            f"the last token comes after {clock(found['makespan'], 3)}. Preemptions: {number(found['preemptions'])}.")
    return result(text, found, _serving_verdicts(found, windows, measured), [_serving_table(found, measured)], _serving_plots(run, engine, waiting))


def _random_load(windows, cv, seed):
    starts = [sum(w.seconds for w in windows[:k]) for k in range(len(windows))]
    return [a for k, (w, start) in enumerate(zip(windows, starts))
            for a in arrivals.sampled(w, arrivals.gamma_times(w.rate, cv, w.seconds, f"{seed}/{k}", start), f"{seed}/{k}")]


def _outstanding(run):
    """Corners (s, requests) of the number of requests that have arrived and not ended."""
    events = sorted([(r.arrival, 1) for r in run.requests] + [(r.last, -1) for r in run.requests])
    level, corners = 0, [(0, 0)]
    for time, change in events:
        level += change
        corners.append((time, level))
    return corners


def _serving_verdicts(found, windows, measured):
    sent = sum(w.seconds for w in windows)
    yield found["makespan"] <= 1.25 * sent, f"Requests come for {clock(sent)}; the replica needs {clock(found['makespan'], 3)} for them."
    yield found["preemptions"] == 0, f"{number(found['preemptions'])} preemptions: each computes a request again from its first token."
    if measured:
        yield None, f"This load was measured: request time within 95%, {clock(measured.request_p95, 3)} (predicted {quantity(found['request_p95'] / measured.request_p95 - 1, '%', 2)} off)."


def _serving_table(found, measured):
    rows = [("request time, 95% within", "request_p95", clock), ("first token, 95% within", "ttft_p95", clock), ("wait before the first step, 95% within", "wait_p95", clock),
            ("last token of all", "makespan", clock), ("preemptions", "preemptions", number)]
    own = [("first token, half within", clock(found["ttft_median"])), ("output tokens/s", number(found["tokens_per_second"], 4)), ("engine steps", number(found["steps"]))]
    if not measured:
        return ["", "simulated>"], [[label, text(found[key])] for label, key, text in rows] + [list(row) for row in own]
    return ["", "simulated>", "measured>"], [[label, text(found[key]), text(getattr(measured, key))] for label, key, text in rows] + [[*row, ""] for row in own]


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
    return [(plot.lines([Line("in the system", over(waiting)), Line("running", over(running))], time, Axis("requests"),
                        f"Requests over time: at most {number(most)} in the system, at most {number(max(n for _, n in running))} running.", "serving-requests", 190),
             "Requests that have arrived and not ended, and those in the running batch."),
            (plot.lines([Line("KV blocks in use", over(used))], time, Axis("pool (%)", high=100), f"Share of the KV pool in use: at most {number(max(u for _, u in used), 3)}%.",
                        "serving-pool", 130), "KV blocks in use at the end of each event.")]


# --------------------------------------------------------------------------------------------------------------------------- 5 task
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
    "task", "Critical path of a task", "Which stages decide when a task ends, what does a faster one save, and what does waiting hold in memory?",
    Input("stages", "Stages, one a line: name, seconds, what it waits for", "text", TASK),
    Input("stage", "A stage to make faster", "text", "compile"),
    num("factor", "Times as fast", 2, "", 0.01, 10**6, (1, 1.5, 2, 3, 5, 10, 100)),
    count("executors", "Stages that may run at once", 2, "", 1, 1000, range(1, 9)),
    *group("State kept meanwhile", Input("waiting", "Stages that hold it", "text", "search compile"), count("tokens", "Context kept", 8192, "tokens", 0, 2**22, doublings(256, 2**20)),
           choice("model", "Model", ATTENTION)))
def task(stages, stage, factor, executors, waiting, tokens, model):
    """Critical path, slack, bounds on few executors, Amdahl's law against the graph, and memory held over time."""
    graph = _stages(stages)
    names = tuple(s.name for s in graph)
    one_of(stage, "stage", names), [one_of(name, "waiting", names) for name in waiting.split()]
    span, work, slack = taskgraph.span(graph), taskgraph.work(graph), taskgraph.slack(graph)
    path, after = taskgraph.critical_path(graph), taskgraph.faster(graph, factor, stage)
    own = next(s.seconds for s in graph if s.name == stage)
    low, high = taskgraph.executor_bounds(graph, executors)
    held, kept = memory.kv_bytes(models.model(model), tokens), taskgraph.kept_seconds(graph, *waiting.split())
    share = own / positive(span, "span of stages", "s") if stage in path else 0
    values = {"span_seconds": span, "work_seconds": work, "path": list(path), "slack": [slack[s.name] for s in graph], "share": share,
              "amdahl_speedup": roofline.speedup(min(share, 1), factor), "new_span_seconds": taskgraph.span(after),
              "speedup": span / positive(taskgraph.span(after), "span of the faster stages", "s"), "least_seconds": low, "most_seconds": high,
              "held_bytes": held, "kept_seconds": kept, "area": metrics.state_area([(held, kept)])}
    text = (f"{clock(span)} at the earliest, along {' → '.join(path)}; {stage} {number(factor)} times as fast makes it {clock(values['new_span_seconds'])}. "
            f"Waiting holds {quantity(held, 'B')} for {clock(kept)}: {number(values['area'] / GIGA, 4)} GB·s.")
    windows = taskgraph.earliest(graph)
    rows = [[s.name, clock(windows[s.name].start), clock(windows[s.name].end), clock(slack[s.name])] for s in graph]
    return result(text, values, _task_verdicts(values, stage, executors), [(["stage", "starts>", "ends>", "slack>"], rows)], [_gantt(graph, windows, path, span)])


def _task_verdicts(v, stage, executors):
    if v["share"]:
        agree = abs(v["speedup"] - v["amdahl_speedup"]) < 1e-9 * v["speedup"]
        yield agree, f"{stage} is {quantity(v['share'], '%', 3)} of the critical path. Amdahl's law promises {number(v['amdahl_speedup'], 4)} times, the graph gives {number(v['speedup'], 4)}" + (
            "." if agree else ": another path becomes critical.")
    else:
        yield False, f"{stage} is not on the critical path: making it faster saves {clock(v['span_seconds'] - v['new_span_seconds'])}."
    yield None, f"With {number(executors)} at once, any order without idling takes between {clock(v['least_seconds'])} and {clock(v['most_seconds'])}; the work is {clock(v['work_seconds'])}."


def _gantt(graph, windows, path, span):
    size, unit = scaled(span)
    rows = [(s.name, [Bar(0 if s.name in path else 4, windows[s.name].start / size, s.seconds / size)]) for s in graph]
    alt = f"Schedule of {len(graph)} stages, each as early as it may start; it ends after {clock(span)}. On the critical path: {', '.join(path)}."
    return plot.bars(rows, ["on the critical path", "", "", "", "has slack"], Axis(f"time ({unit})"), alt, "task"), "Every stage as early as it may start."


# ------------------------------------------------------------------------------------------------------------- 6 cost per success
@calculator(
    "success", "Cost of one success, and handing on", "Does a dearer attempt pay, when does trying again stop paying, and how many requests may be handed on?",
    num("old_cost", "Cost of an attempt, old method", 1.0, "any unit", 1e-9, 1e9),
    num("old_success", "Its success rate", 0.5, "", 0.001, 1, PERCENT),
    num("new_cost", "Cost of an attempt, new method", 2.0, "any unit", 1e-9, 1e9),
    num("new_success", "Its success rate", 0.8, "", 0.001, 1, PERCENT),
    num("correlation", "Correlation between attempts at one task", 0.0, "", 0, 1, [0, *PERCENT]),
    count("limit", "Most attempts at one task", 4, "attempts", 1, 64, range(1, 17)),
    *group("Handing on",
           num("decision_cost", "Cost of a request, small model", published("decision cost"), "$", 1e-12, 1e6),
           num("llm_cost", "Cost of a request, large model", published("llm cost"), "$", 1e-12, 1e6),
           num("share", "Share handed on to the large model", 0.05, "", 0, 1, [0, *PERCENT])))
def success(old_cost, old_success, new_cost, new_success, correlation, limit, decision_cost, llm_cost, share):
    """Cost per success of two methods, with attempts that resemble each other; average cost of a request that may be handed on."""
    methods = {"old": (old_cost, old_success), "new": (new_cost, new_success)}
    values = {f"{name}: {key}": value for name, (c, p) in methods.items() for key, value in {
        "independent": attempts.cost_per_success(c, p), "stopped": attempts.stopped_cost_per_success(c, p, limit, correlation),
        "parallel": attempts.parallel_cost_per_success(c, p, limit, correlation), "solved": solved_within(p, limit, correlation),
        "attempts": attempts.attempts_used(p, limit, correlation)}.items()}
    values |= {"break_even_success": possible(lambda: attempts.break_even_success(new_cost, old_cost, old_success)),
               "average_dollars": attempts.handoff_cost(decision_cost, llm_cost, share),
               "doubling_share": possible(lambda: attempts.handoff_share(decision_cost, llm_cost, 2 * decision_cost)),
               "no_saving_share": possible(lambda: attempts.handoff_share(decision_cost, llm_cost, llm_cost))}
    old, new = values["old: stopped"], values["new: stopped"]
    verdict = "cheaper" if new < old else "dearer" if new > old else "neither cheaper nor dearer"
    text = (f"One success costs {number(old, 4)} with the old method and {number(new, 4)} with the new one, which is {verdict}. "
            f"A request costs {quantity(values['average_dollars'], '$', 3)} on average with {quantity(share, '%', 3)} handed on.")
    rows = [[label, *(show(values[f"{name}: {key}"]) for name in methods)] for label, key, show in (
        ("cost of a success, attempts independent", "independent", lambda v: number(v, 4)), (f"tried up to {limit} times", "stopped", lambda v: number(v, 4)),
        (f"{limit} at once, always", "parallel", lambda v: number(v, 4)), ("tasks solved", "solved", lambda v: quantity(v, "%", 4)), ("attempts a task", "attempts", lambda v: number(v, 4)))]
    return result(text, values, _success_verdicts(values, share, new <= old), [(["", "old>", "new>"], rows)],
                  [_success_plot(methods, correlation, limit)])


def _success_verdicts(v, share, pays):
    even = v["break_even_success"]
    yield pays, f"Attempts independent, the new method pays from a success rate of {quantity(even, '%', 4)} on." if even else "No success rate repays the new method's cost, attempts independent."
    doubled, nothing = v["doubling_share"], v["no_saving_share"]
    if nothing is None:
        yield False, "The small model is dearer than the large one: handing on saves nothing."
    else:
        bill = f" From {quantity(doubled, '%', 3)} on, the hand-offs cost more than the small model." if doubled is not None else ""
        yield share < nothing, f"Handing on saves against the large model alone up to {quantity(nothing, '%', 4)} handed on." + bill


def _success_plot(methods, correlation, limit):
    most = max(8, limit)
    series = [Line(f"{name}, in turn", [(k, attempts.stopped_cost_per_success(c, p, k, correlation)) for k in range(1, most + 1)]) for name, (c, p) in methods.items()]
    series += [Line(f"{name}, at once", [(k, attempts.parallel_cost_per_success(c, p, k, correlation)) for k in range(1, most + 1)]) for name, (c, p) in methods.items()]
    top = 3 * max(y for s in series[:2] for _, y in s.points)
    return plot.lines(series, Axis("most attempts at a task", low=1, high=most), Axis("cost of one success", high=top),
                      f"Cost of one success against the most attempts at a task, up to {most}, in turn until one succeeds and all at once, for both methods.", "success", 220), \
        f"Trying in turn until one succeeds, or all at once; correlation {number(correlation)} between attempts at one task."


# -------------------------------------------------------------------------------------------------------------------------- 7 audio
RECORDED = {"first recorded turn": "first", "second recorded turn": "second"}


@calculator(
    "audio", "Audio buffer", "How long must a player wait before the first sound, so that it never has to stop?",
    num("buffer", "Wait before the first sound", 40, "ms", 0, 10**5, range(0, 201, 5)),
    num("chunk", "Sound in a chunk (recorded turns have their own)", 20, "ms", 1, 10000, (5, 10, 20, 40, 80, 100, 160, 200)),
    choice("source", "Arrivals", ("list", "computed", *RECORDED)),
    Input("arrivals_list", "List of arrivals (ms)", "text", "38 58 123 98"),
    *group("Computed arrivals", count("chunks", "Chunks", 40, "", 1, 1000), num("process", "Processing of a chunk", 12, "ms", 0, 10**4, range(0, 41)), num("send", "Sending", 1, "ms", 0, 10**4),
           num("network", "Network, least", 5, "ms", 0, 10**5), num("jitter", "Network, more at random up to", 30, "ms", 0, 10**5, range(0, 101, 5)), count("seed", "Random draw number", 1, "", 0, 10**6)),
    presets={"Four chunks, one late": {}, "Slow supply": dict(source="computed", process=25, jitter=0), "Random network": dict(source="computed"),
             "Recorded turn": dict(source="first recorded turn")})
def audio(source, arrivals_list, chunk, buffer, chunks, process, send, network, jitter, seed):
    """Arrival and playback of chunks of sound: first sound, stalls, and the smallest buffer without any."""
    durations = chunk
    if source in RECORDED:
        turn = streaming.voice_record(RECORDED[source])
        came, durations = turn.arrivals[:turn.answered], turn.durations[:turn.answered]
        came = [a - turn.stopped for a in came]
    elif source == "computed":
        draw = random.Random(seed)
        came = [d.arrived for d in streaming.deliveries(chunks, chunk, process, send, [network + jitter * draw.random() for _ in range(chunks)])]
    else:
        came = [float(word) if possible(lambda: float(word)) is not None else _no_number(word) for word in arrivals_list.replace(",", " ").split()]
    plays, least = streaming.playback(came, durations, buffer), streaming.smallest_buffer(came, durations)
    stalls = [p.stall for p in plays if p.stall > 0]
    values = {name: float(v) for name, v in {"first_sound": plays[0].start, "end": plays[-1].end, "stalled": sum(stalls), "smallest_buffer": least,
                                             "sound": sum(p.end - p.start for p in plays)}.items()} | {"stalls": len(stalls), "chunks": len(plays)}
    if len(came) >= 10 and came[-1] > came[0]:
        values["supply"] = float(sum(p.end - p.start for p in plays[:-1]) / (came[-1] - came[0]))
    text = (f"First sound at {quantity(values['first_sound'], 'ms')}; {number(len(stalls))} stall{'s' * (len(stalls) != 1)}, {quantity(values['stalled'], 'ms')} in all. "
            f"A buffer of {quantity(values['smallest_buffer'], 'ms')} would have none.")
    rows = [[i, *(quantity(float(v), "ms") for v in (a, p.due, p.start, p.stall))] for i, (a, p) in enumerate(zip(came, plays), 1)]
    shown = [r for r, p in zip(rows, plays) if p.stall > 0] if len(rows) > 12 else rows
    head = "chunk" if len(rows) <= 12 else "late chunk"
    tables = [([head, "arrives>", "due>", "starts>", "stall>"], shown[:20])] if shown else []
    return result(text, values, _audio_verdicts(values, buffer), tables, [_audio_plot(came, durations, plays)])


def _no_number(word):
    raise ValueError(f"arrivals_list (ms) must hold numbers, got {word!r}")


def _audio_verdicts(v, buffer):
    least = v["smallest_buffer"]
    if v["stalled"]:
        yield False, f"The buffer is {quantity(least - buffer, 'ms')} too small: playback stalls for just as long."
    else:
        yield True, f"No stall. Of the buffer, {quantity(buffer - least, 'ms')} were not needed: delay for safety."
    if v.get("supply"):
        yield v["supply"] >= 1, f"{number(v['supply'], 4)} s of sound arrive in a second" + (
            "." if v["supply"] >= 1 else ": no buffer makes up for a slow supply for ever.")


def _audio_plot(came, durations, plays):
    start, end = float(min(came)), float(plays[-1].end)
    size, unit = scaled((end - start) / 1000)
    size, sound = size * 1000, [float(p.end - p.start) for p in plays]
    ready = sorted({max(came[:i + 1]) for i in range(len(came))})
    arrived = [(start, 0.0)] + [(float(t), float(streaming.arrived_audio(came, durations, t))) for t in ready] + [(end, sum(sound))]
    played, done = [(start, 0.0)], 0.0
    for p, length in zip(plays, sound):
        played += [(float(p.start), done), (float(p.end), done := done + length)]
    scale = lambda points: [((t - start) / size, s / size) for t, s in points]
    return plot.lines([Line("can be played", scale(arrived), "steps"), Line("played", scale(played))], Axis(f"time since the first arrival ({unit})", low=0, high=(end - start) / size),
                      Axis(f"sound ({unit})"), f"Two rising curves, sound that can be played and sound played, over {quantity(end - start, 'ms')}; where the second meets the first, playback stands still.", "audio", 230), \
        "Sound that can be played (steps) and sound played; their distance is what lies in the buffer."


# ----------------------------------------------------------------------------------------------------------------------- 8 training
TRAINED = {"all weights": None, "LoRA on attention": ("attention",), "LoRA on attention and FFN": ("attention", "ffn", "shared experts")}


@lru_cache(maxsize=8)
def _training_graph(model, tokens, trained, rank):
    m = models.model(model)
    if TRAINED[trained] is None:
        return training.transformer(m, tokens)
    names = tuple(w.name for w in models.matrices(m) if w.part in TRAINED[trained])
    return training.transformer(m, tokens, trained=lambda weight: False, lora_rank=rank, lora_on=names)


@calculator(
    "training", "Memory and FLOPs of training", "What must be kept, what is computed, and how long does an update take?",
    choice("model", "Model", ATTENTION),
    count("gpus", "GPUs that share the state evenly", 8, "", 1, 10**5, doublings(1, 1024)),
    count("tokens", "Tokens of a sequence", 8192, "tokens", 1, 2**20, doublings(128, 2**17)),
    choice("trained", "Trained", tuple(TRAINED)),
    choice("recipe", "Bytes a trained parameter", tuple(memory.RECIPES)),
    choice("recompute", "Recomputed in the backward pass", ("nothing", "layers", "stop early")),
    *group("Update", count("sequences", "Sequences on a GPU at once", 1, "", 1, 4096, doublings(1, 64)), count("micro_batches", "Such batches before an update", 8, "", 1, 4096, doublings(1, 128))),
    *group("Adapters", count("rank", "Rank of the adapters", 16, "", 1, 4096, doublings(1, 256)), num("frozen_bytes", "Bytes of a frozen weight", 2, "B", 0.25, 4)),
    *group("Machine", choice("accelerator", "Accelerator", CARDS), *shared(0.4, 0.7)))
def train(model, accelerator, gpus, mfu, mbu, tokens, sequences, micro_batches, trained, rank, recipe, frozen_bytes, recompute):
    """State, activations and FLOPs of one update; its time on so many accelerators."""
    m, card, graph = models.model(model), hardware.accelerator(accelerator), _training_graph(model, tokens, trained, rank)
    state = training.state_bytes(graph, recipe, frozen_bytes)
    forward, backward = training.forward_flops(graph), training.backward_flops(graph)
    again = flops.training(m, tokens, recompute=recompute).recomputed.total
    updated = training.update_tokens(gpus * sequences, tokens, micro_batches)
    learnt = sum(w.parameters for w in training.weights(graph).values() if w.trained)
    batches = gpus * sequences * micro_batches
    kept = 2 * sequences * sum(training.kept_elements(graph).values()) if recompute == "nothing" else None
    seconds = roofline.compute_seconds(batches * (forward + backward + again), gpus * card.peak(), mfu)
    writing = roofline.transfer_seconds(training.update_traffic(learnt, recipe).total, gpus * card.bandwidth, mbu)
    held = state.total / gpus + (kept or 0)
    values = {"state_bytes": state.total, **{f"state: {name}": v for name, v in plain(state).items()}, "activation_bytes": kept, "held_bytes": held, "trained_parameters": learnt,
              "forward_flops": forward, "backward_flops": backward, "recomputed_flops": again, "update_flops": batches * (forward + backward + again),
              "update_tokens": updated.inputs, "compute_seconds": seconds, "optimizer_seconds": writing,
              "rule": (forward + backward + again) / (models.parameters(m).total * tokens)}
    text = (f"An update of {number(updated.inputs)} tokens is {quantity(values['update_flops'], 'FLOP')} and takes {clock(seconds + writing, 3)}; "
            f"the training state is {quantity(state.total, 'B')}, {quantity(state.total / gpus, 'B')} on each of {number(gpus)} GPUs.")
    rows = [[name.replace("_", " "), quantity(v, "B")] for name, v in plain(state).items()]
    work = [["forward", quantity(forward, "FLOP")], ["backward", quantity(backward, "FLOP")], ["recomputed", quantity(again, "FLOP")]]
    return result(text, values, _train_verdicts(values, card, recompute), [(["state", "bytes>"], rows), (["one sequence", "work>"], work)],
                  [_memory_bars(state, kept, gpus, card)])


def _train_verdicts(v, card, recompute):
    fits, what = v["held_bytes"] <= card.memory_bytes, "state and activations" if v["activation_bytes"] is not None else "state (activations not counted under recomputation)"
    yield fits, f"A GPU holds {quantity(v['held_bytes'], 'B')} of {what}; it has {quantity(card.memory_bytes, 'B')}."
    yield None, f"{number(v['rule'], 4)} FLOPs a parameter and token. The rules say 6 for all weights and 4 for adapters{', and 2 more to recompute' if recompute != 'nothing' else ''}."
    if v["optimizer_seconds"] > 0:
        yield None, f"The update itself moves memory for {quantity(v['optimizer_seconds'], 's', 3)}, beside {clock(v['compute_seconds'], 3)} of arithmetic."


def _memory_bars(state, kept, gpus, card):
    parts = plain(state)
    lengths = [v / gpus / GIGA for v in parts.values()] + [(kept or 0) / GIGA]
    row = f"{quantity(sum(lengths) * GIGA, 'B')} on each of {number(gpus)} GPUs"
    names = [name.replace("_", " ") for name in parts] + ["activations"]
    alt = "Memory of a GPU: " + ", ".join(f"{name} {number(v, 3)} GB" for name, v in zip(names, lengths)) + f"; capacity {quantity(card.memory_bytes, 'B')}."
    return plot.bars([(row, plot.stacked(lengths))], names, Axis("memory (GB)"), alt, "training", (card.memory_bytes / GIGA, f"capacity {quantity(card.memory_bytes, 'B')}")), \
        "Memory of one GPU, training state shared evenly. Parameters of the recipe, and what the backward pass needs of the forward one."


# ----------------------------------------------------------------------------------------------------------------------- 9 RL cycle
@calculator(
    "rl-cycle", "RL cycle and the samples it keeps", "If only a part of the samples is kept, how long is a round, and what should be added: machines, or staleness?",
    num("retained", "Share of the generated samples that is kept", 0.5, "", 0.001, 1, PERCENT),
    count("kept", "Samples kept for an update", 16, "samples", 1, 2**13, doublings(4, 2**13)),
    count("rollout_gpus", "GPUs that generate", 4, "", 1, 10**5, doublings(1, 1024)),
    count("staleness", "Updates that samples may lag behind", 0, "updates", 0, 64, range(0, 9)),
    *group("Samples", count("group", "Samples of a prompt", 4, "", 1, 1024, doublings(1, 64)), count("prompt_tokens", "Prompt", 1024, "tokens", 0, 2**20),
           num("completion", "Completion", 256, "tokens", 2, 2**20, doublings(128, 2**17)), switch("shared_prompts", "One prefill for a group's prompt", False),
           num("confidence", "Certainty wanted of having enough", 0.95, "", 0.01, 0.999999)),
    *group("Machines", choice("model", "Model", ATTENTION), choice("accelerator", "Accelerator", CARDS),
           count("gpus", "GPUs that learn", 8, "", 1, 10**5, doublings(1, 1024)), count("gpus_per_copy", "GPUs that share one generating copy", 1, "", 1, 1024),
           num("mbu", "Share of the bandwidth reached (MBU)", ROUND.mbu, "", 0.001, 1, PERCENT), num("mfu", "Share of the compute peak reached (MFU)", ROUND.mfu, "", 0.001, 1, PERCENT)),
    *group("Checking and transfer", num("reward_seconds", "Checking of the responses", 2, "s", 0, 10**5), choice("scheme", "New weights go out by", ("independent", "tree", "ring")),
           num("link", "Link of a node", 50e9, "B/s", 1e6, 1e13)), exact=False)
def cycle(kept, retained, confidence, group, model, accelerator, gpus_per_copy, reward_seconds, scheme, link, staleness, **given):
    """Rounds of generation, checking, learning and weight transfer, against the share of samples that is kept."""
    replicas = max(1, given["rollout_gpus"] // gpus_per_copy)
    base = rlstep.for_model(models.model(model), hardware.accelerator(accelerator), prompts=kept / group, group=group, kept_samples=kept, gpus_per_copy=gpus_per_copy,
                            first_token="prefill", prefill_head="last", **given)
    sync = rlcycle.weight_sync(base.weight_bytes, replicas, link, scheme, pieces=256 if scheme == "ring" else 1)
    step_at = lambda share: rlstep.step(replace(base, prompts=rlcycle.expected_generated(kept, share) / group))
    roles = lambda share: rlcycle.step_roles(step_at(share), reward_seconds, sync.seconds)
    now = roles(retained)
    times = {role.name: role.seconds for role in now}
    values = {"generated": rlcycle.expected_generated(kept, retained), "spread": rlcycle.generated_spread(kept, retained), "generated_for": rlcycle.generated_for(kept, retained, confidence),
              "step_flops": step_at(retained).step_flops, "round_seconds": rlcycle.round_seconds(now, staleness), "loop_seconds": rlcycle.loop_seconds(now), "staleness_needed": rlcycle.staleness_needed(now),
              **{f"seconds: {name}": s for name, s in times.items()}, "curve": [[share, rlcycle.round_seconds(roles(share), staleness)] for share in PERCENT]}
    slowest = max(times, key=times.get)
    text = (f"{number(values['generated'], 4)} samples must be generated on average to keep {number(kept)}; a round takes {clock(values['round_seconds'])}, "
            f"and {slowest} is its slowest part ({clock(times[slowest])}).")
    rows = [[name, clock(s), quantity(s / values["round_seconds"], "%", 3)] for name, s in times.items()]
    return result(text, values, _cycle_verdicts(values, kept, confidence, staleness, slowest), [(["role", "seconds of a round>", "busy>"], rows)],
                  [_cycle_plot(values, retained, staleness)])


def _cycle_verdicts(v, kept, confidence, staleness, slowest):
    yield None, f"{number(v['generated_for'])} generated samples leave {number(kept)} with {quantity(confidence, '%')} certainty; the number needed spreads by {number(v['spread'], 3)}."
    enough = v["staleness_needed"]
    yield staleness >= enough, (f"The loop takes {clock(v['loop_seconds'])}. " + (
        f"With a staleness of {number(enough)} {slowest} never waits." if staleness < enough else f"{slowest.capitalize()} never waits; more staleness shortens nothing."))


def _cycle_plot(v, retained, staleness):
    size, unit = scaled(max(s for _, s in v["curve"]))
    series = [Line(f"staleness {staleness}", [(100 * share, s / size) for share, s in v["curve"]]), Line("yours", [(100 * retained, v["round_seconds"] / size)], "points", ("yours",))]
    alt = f"Round time against the share of samples kept, falling from {clock(v['curve'][0][1], 3)} at 5% to {clock(v['curve'][-1][1], 3)} at 100%; yours: {clock(v['round_seconds'], 3)}."
    return plot.lines(series, Axis("samples kept (%)", low=0, high=100), Axis(f"round ({unit})"), alt, "rl-cycle", 220), \
        "Time from one update to the next once the start is over, if every role takes the rounds in turn on machines of its own."


# -------------------------------------------------------------------------------------------------------------------- 10 scaling law
LAWS = list(scaling.published_laws())


@calculator(
    "scaling", "Scaling law: split of a budget, and break-even", "How large and how long should a model be trained, and when does a smaller one trained longer pay?",
    choice("law", "Law", LAWS, "chinchilla-refit"),
    num("budget", "Training budget", 5.76e23, "FLOP", 1e15, 1e30, [m * 10.0**k for k in range(18, 28) for m in (1, 2, 5)]),
    num("parameters", "A smaller model of your choice", 20e9, "parameters", 1e5, 1e14, [m * 10.0**k for k in range(7, 13) for m in (1, 2, 5)]),
    num("calls", "Calls over the life", 1e11, "calls", 1, 1e18, [m * 10.0**k for k in range(6, 16) for m in (1, 2, 5)]),
    *group("Calls", count("prompt", "Prompt of a call", 512, "tokens", 1, 2**20), count("output", "Output of a call", 128, "tokens", 1, 2**20)),
    *group("Device", choice("accelerator", "Accelerator", CARDS), num("mfu", "Share of the compute peak reached (MFU)", 0.4, "", 0.001, 1, PERCENT)),
    presets={"Chinchilla's budget": {}, "A thousandth of it": dict(budget=5.76e20, parameters=1e9, calls=1e9)}, exact=False)
def allocation(law, budget, parameters, prompt, output, calls, accelerator, mfu):
    """Compute-optimal split of a budget by a published law, and the calls after which a smaller model of equal loss has paid."""
    fitted = scaling.published_laws()[law]
    best_n, best_d = scaling.optimal_parameters(fitted, budget), scaling.optimal_tokens(fitted, budget)
    best, own_tokens = scaling.loss(fitted, best_n, best_d), budget / (6 * parameters)
    rate = mfu * hardware.accelerator(accelerator).peak()
    needed = possible(lambda: scaling.tokens_for_loss(fitted, parameters, best))
    crossing = possible(lambda: budgets.crossing_calls(fitted, parameters, best_n, best, prompt, output))
    extra = None if needed is None else flops.rule_6n(parameters, needed) - budget
    values = {"optimal_parameters": best_n, "optimal_tokens": best_d, "tokens_per_parameter": budgets.tokens_per_parameter(best_d, best_n), "loss": best,
              "own_tokens": own_tokens, "own_loss": scaling.loss(fitted, parameters, own_tokens), "tokens_for_loss": needed, "extra_flops": extra, "crossing_calls": crossing,
              "device_hours": roofline.compute_seconds(budget, rate) / HOUR, "exponents": list(scaling.allocation_exponents(fitted))}
    text = (f"{number(budget, 3)} FLOPs train {_big(best_n)} parameters on {_big(best_d)} tokens to {number(best, 4)} nats/token; {_big(parameters)} parameters reach {number(values['own_loss'], 4)} with the same budget.")
    rows = [["parameters", _big(best_n), _big(parameters)], ["tokens, same budget", _big(best_d), _big(own_tokens)], ["loss (nats/token)", number(best, 5), number(values["own_loss"], 5)],
            ["tokens to the optimum's loss", _big(best_d), "out of reach" if needed is None else _big(needed)],
            ["training to it (device-hours)", number(values["device_hours"], 4), "" if needed is None else number(flops.rule_6n(parameters, needed) / rate / HOUR, 4)],
            ["FLOPs of a call", *(quantity(budgets.call_flops(n, prompt, output), "FLOP", 4) for n in (best_n, parameters))]]
    figures = [_isoflop_plot(fitted, budget, best_n, parameters)]
    return result(text, values, _scaling_verdicts(values, parameters, calls), [(["", "compute-optimal>", "yours>"], rows)], figures)


def _big(value):
    """Text of a large count, in millions, billions (10^9) or trillions (10^12)."""
    size, name = next(((s, n) for s, n in ((1e12, " × 10¹²"), (1e9, " × 10⁹"), (1e6, " × 10⁶")) if value >= s), (1, ""))
    return number(value / size, 4) + name if value < 1e16 else number(value, 4)


def _scaling_verdicts(v, parameters, calls):
    larger = parameters >= v["optimal_parameters"]
    if larger:
        yield None, "Your model is not smaller than the optimum: it costs more to train to this loss and more to serve."
    elif v["tokens_for_loss"] is None:
        yield False, f"By this law {_big(parameters)} parameters cannot reach {number(v['loss'], 4)} nats/token on any number of tokens."
    else:
        crossing = v["crossing_calls"]
        pays = calls >= crossing
        yield pays, f"Trained on {_big(v['tokens_for_loss'])} tokens it reaches the optimum's loss, and has repaid the longer training after {_big(crossing)} calls; {_big(calls)} are planned."
    yield None, f"Optimal parameters grow as the {number(v['exponents'][0], 3)}th power of the budget, tokens as the {number(v['exponents'][1], 3)}th. A law holds for its own data, tokenizer and range."


def _isoflop_plot(law, budget, best_n, parameters):
    reach = max(30, 2 * best_n / parameters, 2 * parameters / best_n)
    sizes = [best_n * reach ** (k / 24) for k in range(-24, 25)]
    at = lambda n: (n / GIGA, scaling.loss(law, n, budget / (6 * n)))
    curve = [at(n) for n in sizes]
    low = min(y for _, y in curve)
    top = max(1.12 * low, at(parameters)[1] * 1.01)
    series = [Line("same budget", curve), Line("optimum", [at(best_n)], "points", ("optimum",)), Line("yours", [at(parameters)], "points", ("yours",))]
    alt = f"Loss against parameters at one training budget, a valley with its lowest point at {_big(best_n)} parameters; your {_big(parameters)} lie at {number(at(parameters)[1], 4)} nats/token."
    return plot.lines(series, Axis("parameters (10⁹)", log=True), Axis("loss (nats/token)", low=low - 0.1 * (top - low), high=top), alt, "scaling", 220), \
        "Loss by the law for every split of the budget between parameters and tokens."

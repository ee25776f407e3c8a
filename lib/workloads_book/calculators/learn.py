"""The form's other two tabs: days and dollars of training by layout, and a step of reinforcement learning over lengths."""

from dataclasses import dataclass, replace
from itertools import product
from math import ceil
from typing import Any, NamedTuple

from workloads import Layout, Machine
from workloads.costs.rent import rental_dollars
from workloads.counts import training_memory
from workloads.counts.layout import Plan
from workloads.counts.layout_memory import training_bytes
from workloads.learning.rl import capacity, configuration, phases
from workloads.times.split import training_seconds
from workloads.units import DAY, GIGA, number, quantity

from .. import bands, plot
from ..plot import Axis
from .common import clock, efficiencies, scaled, several
from .forms import calculator, choice, count, doublings, group, num, possible, result, switch
from .rl import PHASES, SHARES, learner_verdict, measured_parts, must_hold
from .yours import CARD, DOLLARS, MODEL, OWN_CARD, OWN_MODEL, Yours, link_missing, selection

OWN = ("model", "accelerator", "config", *(i.name for i in OWN_CARD))
GPUS = count("gpus", "GPUs", 64, "", 1, 10**5, doublings(1, 2**14))
SPLITS = (1, 2, 4, 8)  # of matrices, over GPUs of one fast domain
STAGES = (1, 2, 4, 8, 16)
RECOMPUTED = {"nothing": "nothing", "what costs no product": "selective", "whole layers": "layers"}
ZERO = {"optimizer state": 1, "gradients too": 2, "weights too": 3, "nothing": 0}
LENGTHS = (0.25, 0.5, 1, 2, 4)  # of the answers in the table


# ---------------------------------------------------------------------------------------------------------------------- train
@calculator(
    "train",
    "Train",
    "How many days and dollars does a training run take, on which layout, and does it fit?",
    MODEL,
    CARD,
    GPUS,
    DOLLARS,
    num("billions", "Tokens to train on", 100, "billion", 1e-3, 10**7, (1, 10, 100, 1000, 10000, 30000)),
    count("tokens", "Sequence", 8192, "tokens", 1, 2**20, doublings(256, 2**17)),
    count("sequences", "Sequences of a step, on all GPUs", 256, "", 1, 2**20, doublings(8, 2**14)),
    choice("recompute", "Activations computed again", tuple(RECOMPUTED)),
    *OWN_MODEL,
    *OWN_CARD,
    *group(
        "Layout (empty: the fastest that fits)",
        count("tensor", "GPUs that split each matrix (TP)", None, "", 1, 64, optional=True),
        count("pipeline", "Stages of a pipeline (PP)", None, "", 1, 256, optional=True),
        count("expert", "GPUs that split the experts (EP)", 1, "", 1, 1024, doublings(1, 64)),
        choice("zero", "Split over copies (ZeRO, FSDP)", tuple(ZERO)),
        count("micro_batch", "Sequences that pass together", 1, "", 1, 1024, doublings(1, 16)),
    ),
    *group(
        "Assumptions",
        *efficiencies(0.4, 0.7),
        choice("recipe", "Kept for each parameter", tuple(training_memory.RECIPES), "bf16 gradients"),
        num("overhead", "Memory in practice over what is counted", 1.25, "", 1, 4, (1, 1.1, 1.25, 1.5, 2)),
    ),
    presets={
        "8B, 100 billion tokens": {},
        "70B on 512 GPUs": dict(model="Llama-3.1-70B", gpus=512, billions=1000, sequences=512, recompute="whole layers"),
        "Eight GPUs": dict(gpus=8, billions=1, sequences=32, recompute="whole layers", zero="weights too"),
    },
    exact=False,
    more=lambda **given: layouts(**given),
)
def training_run(gpus, dollars, billions, **given):
    """Days, dollars and memory of a training run on the fastest layout that fits, by roofline and what GPUs send."""
    run = _run(gpus, dollars, **given)
    best = _best(run)
    steps = billions * GIGA / (run.sequences * run.tokens)
    model, layout, name = run.chosen.model, best.layout, several(gpus, run.chosen.card.name)
    values = {
        "tensor": layout.tensor,
        "pipeline": layout.pipeline,
        "data": layout.data,
        "held_bytes": best.held.total,
        "memory_bytes": run.room,
        "runs": run.holds(best),
        "steps": steps,
    }
    holds = f"a GPU needs at least {quantity(best.held.total, 'B')} and has {quantity(run.room, 'B')}"
    if values["runs"] is False:
        text = f"{model.name} does not fit {name}: {holds}, as {named(layout)}. {_way_out(run)}"
        return result(text, values, [(False, f"{holds[0].upper()}{holds[1:]}: this cannot run.")], (), [_held_bars(run, [best])])
    seconds = run.seconds(layout)
    cost = rental_dollars(gpus * steps * seconds.total, dollars)
    values |= {"step_seconds": seconds.total, "days": steps * seconds.total / DAY, "dollars": cost}
    values |= {f"step: {part}": value for part, value in vars(seconds).items()}
    bound = replace(run, machine=run.machine.reaching(), plan=replace(run.plan, overlap="all")).seconds(layout).total
    usual = bands.sentence("The whole run", steps * bound, "train", experts=run.chosen.experts, chips=gpus, tokens=run.tokens)
    text = (
        f"{name[0].upper()}{name[1:]} train{'s' * (gpus == 1)} {model.name} on {number(billions)} billion tokens in "
        f"{_days(values['days'])} for ${number(cost, 3)}, as {named(layout)}; {holds}."
    )
    verdicts = [
        _fits(run, best),
        (None, f"A step of {number(run.sequences * run.tokens)} tokens takes {clock(seconds.total, 3)}; there are {number(ceil(steps))}."),
        (None, usual),
    ]
    rows = [[part, clock(value, 3), quantity(value / seconds.total, "%", 3)] for part, value in vars(seconds).items() if value]
    return result(text, values, verdicts, [(["a step", "time>", "share>"], rows)], [_held_bars(run, [best])])


def _days(days):
    return f"{number(days, 3)} days" if days >= 2 else clock(days * DAY, 3)


def _fits(run, split):
    told = f"A GPU holds at least {quantity(split.held.total, 'B')} of {quantity(run.room, 'B')}"
    if run.holds(split) is None:
        return None, f"{told}. This may be too little: with buffers and fragments, {run.overhead:g} times as much, it would not fit."
    return True, f"{told}, enough for {run.overhead:g} times as much, with buffers and fragments."


class Split(NamedTuple):
    """A layout, and what its fullest GPU holds."""

    layout: Layout
    held: Any


@dataclass(frozen=True)
class Run:
    """A training run whose layout is open: machine, sequences of a step, plan, and ways that are given or None."""

    chosen: Yours
    machine: Machine
    tokens: int
    sequences: int
    plan: Plan
    tensor: int | None
    pipeline: int | None
    expert: int
    overhead: float

    @property
    def room(self):
        """Memory of a GPU (B)."""
        return self.machine.memory_bytes / self.machine.count

    def splits(self):
        """The layouts that the inputs leave open, with what the fullest GPU of each holds.

        Raises:
            ValueError: that names the input that leaves none.
        """
        found = []
        for t, p in product([self.tensor] if self.tensor else SPLITS, [self.pipeline] if self.pipeline else STAGES):
            copies, rest = self.machine.count // (t * p), self.machine.count % (t * p)
            own = self.sequences / (max(1, copies) * self.plan.micro_batch)
            if not rest and copies and own >= 1 and own % 1 == 0 and p <= self.chosen.model.layers and t * copies % self.expert == 0:
                found.append(Layout(t, p, copies, self.expert))
        if not found:
            gpus = number(self.machine.count)
            raise ValueError(
                f"sequences must be a multiple of the copies of the model and of what passes together, got {number(self.sequences)} for "
                f"{gpus} GPUs: a multiple of {gpus} × {number(self.plan.micro_batch)} would do, or other splits"
            )
        return [Split(layout, max((self._held(layout, s) for s in {0, layout.pipeline - 1}), key=lambda h: h.total)) for layout in found]

    def _held(self, layout, stage):
        return training_bytes(self.chosen.model, layout, self.tokens, self.sequences, self.plan, stage)

    def holds(self, split):
        """True where a GPU holds it with buffers, None where only what is counted, False where not even that."""
        held = split.held.total
        return False if held > self.room else None if held * self.overhead > self.room else True

    def seconds(self, layout):
        """Times of a step (s)."""
        return training_seconds(self.chosen.model, self.machine, layout, self.tokens, self.sequences, self.plan)


def _run(gpus, dollars, tokens, sequences, recompute, zero, micro_batch, tensor, pipeline, expert, recipe, overhead, mfu, mbu, **own):
    chosen = selection(**own)
    machine = Machine(chosen.card, gpus, mfu=mfu, mbu=mbu, dollars_per_gpu_hour=dollars)
    plan = Plan(micro_batch, zero=ZERO[zero], recompute=RECOMPUTED[recompute], recipe=recipe, overlap="nothing")
    return Run(chosen, machine, tokens, sequences, plan, tensor, pipeline, expert, overhead)


def _best(run):
    """The fastest of the layouts that hold best; where none holds, that which needs least memory."""
    found = run.splits()
    for sure in (True, None):
        held = [split for split in found if run.holds(split) is sure]
        timed = {split.layout: seconds.total for split in held if (seconds := possible(lambda: run.seconds(split.layout)))}
        if timed:
            return min((split for split in held if split.layout in timed), key=lambda split: timed[split.layout])
        if held:
            try:
                run.seconds(held[0].layout)
            except ValueError as error:  # no layout's links are known
                raise link_missing(error) from error
    return min(found, key=lambda split: split.held.total)


def named(layout):
    """A layout in words.

    Example:
        >>> named(Layout(tensor=8, data=2)), named(Layout())
        ('2 copies, TP8', '1 copy')
    """
    ways = {"TP": layout.tensor, "PP": layout.pipeline, "EP": layout.expert}
    copies = f"{number(layout.data)} cop{'y' if layout.data == 1 else 'ies'}"
    return ", ".join([copies, *(f"{way}{n}" for way, n in ways.items() if n > 1)])


def _way_out(run):
    """What would fit: layers computed again, weights split too, or more GPUs."""
    again = replace(run, plan=replace(run.plan, recompute="layers"))
    spread = replace(again, plan=replace(again.plan, zero=3))
    fits = lambda tried: any(tried.holds(split) is not False for split in possible(tried.splits) or ())
    if run != again and fits(again):
        return "What would do: “Activations computed again” of whole layers."
    if run != spread and fits(spread):
        return "What would do: “Activations computed again” of whole layers and “Split over copies” of weights too."
    gpus = run.machine.count
    for n in doublings(2 * gpus, 1024 * gpus):
        if fits(replace(spread, machine=replace(run.machine, count=n), sequences=max(n * run.plan.micro_batch, run.sequences))):
            return f"What would do: {number(n)} GPUs, whole layers computed again and weights split over copies."
    return "No number of GPUs up to a thousand times as many would do: the “Sequence” must be shorter, or split by hand."


def layouts(gpus, dollars, billions, **given):
    """Figure and table of the layouts: the fastest first, then those that do not fit."""
    run = _run(gpus, dollars, **given)
    found = run.splits()
    seconds = {split: possible(lambda: run.seconds(split.layout).total) for split in found if run.holds(split) is not False}
    found.sort(key=lambda split: (seconds.get(split) is None, seconds.get(split) or split.held.total))
    steps = billions * GIGA / (run.sequences * run.tokens)
    marks = {True: "yes", None: "perhaps", False: "no"}
    line = lambda split, s: [
        named(split.layout),
        quantity(split.held.total, "B", 3),
        marks[run.holds(split)],
        "" if s is None else clock(s, 3),
        "" if s is None else _days(steps * s / DAY),
        "" if s is None else f"${number(rental_dollars(gpus * steps * s, dollars), 3)}",
    ]
    head = ["layout", "a GPU holds>", "fits", "a step>", "the run>", "price>"]
    timed = sum(s is not None for s in seconds.values())
    return [_held_bars(run, found[:5])], [(head, [line(split, seconds.get(split)) for split in found[: max(8, timed)]])]


def _held_bars(run, found):
    names = list(vars(found[0].held))
    kept = [name for name in names if any(getattr(split.held, name) for split in found)]
    rows = [
        (f"{named(s.layout)}: {quantity(s.held.total, 'B', 3)}", plot.stacked([getattr(s.held, name) / GIGA for name in kept]))
        for s in found
    ]
    alt = f"Memory of the fullest GPU by layout. {'; '.join(row for row, _ in rows)}; a GPU has {quantity(run.room, 'B')}."
    caption = "Memory of the fullest GPU: a lower bound. Gathered weights, gradients of activations, buffers and fragments come on top."
    mark = run.room / GIGA, f"has {quantity(run.room, 'B')}"
    return plot.bars(rows, kept, Axis("memory (GB)"), alt, f"train-{len(found)}", mark), caption


# ------------------------------------------------------------------------------------------------------------------------- RL
@calculator(
    "rl",
    "RL",
    "How long is a step of reinforcement learning, what fills it, and how does that change with the length of answers?",
    MODEL,
    CARD,
    replace(GPUS, default=8),
    DOLLARS,
    count("prompts", "Prompts a step", 64, "", 1, 10**5, doublings(1, 1024)),
    count("group", "Answers a prompt", 16, "", 1, 1024, doublings(1, 64)),
    count("prompt_tokens", "Prompt", 512, "tokens", 1, 2**20, doublings(64, 2**15)),
    num("completion", "Answer, mean", 4096, "tokens", 2, 2**20, doublings(128, 2**17)),
    *OWN_MODEL,
    *OWN_CARD,
    *group(
        "Method",
        switch("lora", "LoRA: no weight gradients", False),
        switch("reference", "Pass of a reference model", True),
        switch("recompute", "Activations computed again", False),
        count("epochs", "Training passes over the samples", 1, "", 1, 64),
        count("steps", "Steps of the run", 1000, "", 1, 10**7, (100, 200, 500, 1000, 2000, 5000)),
    ),
    *group(
        "Assumptions",
        *efficiencies(SHARES["mfu"], SHARES["mbu"]),
        count("gpus_per_copy", "GPUs of a copy that generates (empty: as few as hold it)", None, "", 1, 1024, optional=True),
        num("other_seconds", "Rewards, weight transfer: time alone", 0, "s", 0, 10**5),
    ),
    presets={"8B on eight GPUs": {}, "LoRA": dict(lora=True), "Long answers": dict(completion=16384, gpus=64)},
    exact=False,
)
def reinforce(dollars, steps, gpus_per_copy, **given):
    """A step of RL: time, phases, shares, memory, price, and all of it over lengths."""
    chosen = selection(**{name: given.pop(name) for name in OWN})
    step_of = lambda g, n, **changes: configuration.for_model(
        chosen.model, chosen.card, **{**given, "gpus": n, "gpus_per_copy": g, **changes}
    )
    gpus = given["gpus"]
    least = gpus_per_copy or capacity.smallest_copy(lambda g: step_of(g, gpus), gpus) or 1
    must_hold(step_of, gpus, least, "gpus", chosen.model.name, chosen.card.name)
    at = lambda factor: _step_of_length(step_of, gpus, gpus_per_copy, factor * given["completion"])
    found = at(1)
    if unfit := list(learner_verdict(found.step)):
        text = f"{chosen.model.name} does not fit: {unfit[0][1].removesuffix('.')}; “LoRA” would keep less."
        return result(text, {"step_seconds": None, "gpus_per_copy": least}, unfit, (), [_learner_bar(found.step, gpus, chosen.model.name)])
    step, seconds = found.step, found.step_seconds
    cost = rental_dollars(gpus * seconds, dollars)
    parts = {PHASES[name]: getattr(found, name).seconds for name in PHASES if name != "other"} | {"other": step.method.other_seconds}
    values = {
        "step_seconds": seconds,
        "rollout_share": found.rollout_share,
        "gpus_per_copy": least,
        "waves": found.waves,
        "fit": found.fit,
        "step_dollars": cost,
        "run_dollars": steps * cost,
        "run_days": steps * seconds / DAY,
        **{f"seconds: {name}": part for name, part in parts.items()},
    }
    text = (
        f"A step takes {clock(seconds, 3)}, {quantity(found.rollout_share, '%', 3)} of it rollout, and costs ${number(cost, 3)}; "
        f"{number(steps)} steps take {_days(values['run_days'])} and ${number(steps * cost, 3)}."
    )
    held = f"{number(found.fit)} of the {number(step.batch, 4)} sequences of a copy of {number(least)} GPU{'s' * (least > 1)} fit at once"
    verdicts = [
        (True, f"{held}.") if found.fits else (None, f"{held}: the rollout runs in {number(found.waves)} parts."),
        (None, f"Decode is {found.regime}: {number(found.intensity, 3)} FLOP/B against a ridge of {number(found.ridge, 4)}."),
    ]
    verdicts += measured_parts(step)
    rows = [[name, clock(part, 3), quantity(part / seconds, "%", 3)] for name, part in parts.items() if part]
    by_length = [
        [number(factor * given["completion"], 6), *_length_row(s, rental_dollars(gpus * s.step_seconds, dollars))]
        for factor in LENGTHS
        if (s := possible(lambda: at(factor)))
    ]
    heads = ["answer, mean", "a step>", "rollout>", "price>", "parts of the rollout>"]
    size, unit = scaled(seconds)
    bars = [(f"a step: {clock(seconds, 3)}", plot.stacked([part / size for part in parts.values()]))]
    alt = "Phases of a step, one after another: " + ", ".join(f"{name} {clock(part, 3)}" for name, part in parts.items() if part) + "."
    figure = plot.bars(bars, list(parts), Axis(f"time ({unit})"), alt, "rl-phases"), "Phases of a step, one after another."
    return result(text, values, verdicts, [(["phase", "time>", "share>"], rows), (heads, by_length)], [figure])


def _learner_bar(step, gpus, model):
    state = training_memory.training_state_bytes(step.policy.all_parameters)
    parts = {name.replace("_", " "): value / gpus / GIGA for name, value in vars(state).items()}
    room = step.gpu.memory_bytes
    alt = f"State that learning of {model} keeps on a GPU, {number(sum(parts.values()), 4)} GB; a GPU has {quantity(room, 'B')}."
    mark = room / GIGA, f"has {quantity(room, 'B')}"
    bars = [(f"a GPU: {quantity(state.total / gpus, 'B')}", plot.stacked(list(parts.values())))]
    return plot.bars(bars, list(parts), Axis("memory (GB)"), alt, "rl-state", mark), "What learning keeps on each GPU, shared evenly."


def _step_of_length(step_of, gpus, gpus_per_copy, completion):
    of = lambda g: step_of(g, gpus, completion=completion)
    return phases.rl_step(of(gpus_per_copy or capacity.smallest_copy(of, gpus) or 1))


def _length_row(found, dollars):
    return clock(found.step_seconds, 3), quantity(found.rollout_share, "%", 3), f"${number(dollars, 3)}", number(found.waves)

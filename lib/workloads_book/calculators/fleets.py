"""The form's first tab: model, machine and load in, how many GPUs, how fast and at which price out."""

from bisect import bisect_left
from dataclasses import dataclass, replace

from workloads import Layout, Machine, Request, dollars_per_million, weight_bytes
from workloads.counts.layout_memory import serving_bytes
from workloads.plan import under_rate
from workloads.serving.queues import mg1_wait
from workloads.times.split import decode_seconds, prefill_seconds
from workloads.units import GIGA, number, quantity

from .. import bands, plot
from ..choosing import BATCHES, RUN, Copy, Guesses, copy, of_copy, pareto, pooled_wait
from ..plot import Axis, Line
from ..studies.speculation import accepted_length, break_even_batch
from .common import PERCENT, efficiencies, several
from .forms import calculator, choice, count, doublings, group, num, result
from .yours import CACHES, CARD, DOLLARS, MODEL, OWN_CARD, OWN_MODEL, WEIGHTS, Yours, link_missing, selection

MOST = 1024  # GPUs that are tried
TENSORS = tuple(doublings(1, 64))
TRIED = 4  # splits, from the smallest that holds the weights and a sequence
OWN = tuple(i.name for i in OWN_CARD)


@dataclass(frozen=True)
class Wanted:
    """The load and what is asked of it: requests (1/s), first token (s), time of a token (s)."""

    rate: float
    ttft: float
    interval: float


@dataclass(frozen=True)
class Fleet:
    """Equal copies under the load: what they need, with what is there, and how fast they are.

    Attributes:
        at_work: one of the copies.
        copies: how many.
        needs: {what: (needed, there, unit)}.
        batch: sequences of a copy.
        first: time of the first token (s); None where prompts alone fill the time.
        interval: time of a further token (s), or None.
    """

    at_work: Copy
    copies: int
    needs: dict
    batch: int
    first: float | None
    interval: float | None

    @property
    def tensor(self):
        """GPUs of a copy."""
        return self.at_work.machine.count

    @property
    def gpus(self):
        """GPUs in all."""
        return self.copies * self.tensor

    @property
    def missed(self):
        """Names of what is needed and not there."""
        return [what for what, (needed, there, _) in self.needs.items() if needed > there]

    @property
    def dollars(self):
        """Price of an hour."""
        return self.gpus * self.at_work.machine.dollars_per_gpu_hour

    def __str__(self):
        return f"{number(self.copies)} × TP{self.tensor}"


def fleet(at_work, copies, wanted):
    """So many copies under the load."""
    asked = (wanted.rate, at_work.request, copies, at_work.room, at_work.prompt, at_work.step)
    needs, batch, first, interval, _ = under_rate(*asked)
    needs = {what: (needed, there, unit) for what, (needed, there, unit, _) in needs.items()}
    if first is not None:
        needs |= {"first token": (first, wanted.ttft, "s"), "time of a token": (interval, wanted.interval, "s")}
    return Fleet(at_work, copies, needs, batch, first, interval)


def least_fleet(at_work, wanted):
    """The fewest copies that keep what is wanted, or as many as are tried."""
    most = MOST // at_work.machine.count
    enough = bisect_left(range(1, most), True, key=lambda n: not fleet(at_work, n, wanted).missed)
    return fleet(at_work, 1 + enough, wanted)


@dataclass(frozen=True)
class Setting:
    """What the inputs say: model and machine, one card with price and shares, formats, requests, guesses."""

    chosen: Yours
    card: Machine
    formats: object
    request: Request
    reserve: float
    guesses: Guesses

    def copy(self, tensor):
        """A copy on so many GPUs."""
        return copy(self.chosen.model, self.card, self.request, tensor, self.formats, self.reserve, self.guesses)


def setting(given):
    """The `Setting` of the form's inputs; others are left alone."""
    take = lambda *names: {name: given.pop(name) for name in names}
    chosen = selection(**take("model", "accelerator", "config", *OWN))
    weights = given.pop("weights")
    formats = chosen.formats(weights, given.pop("cache"))
    price = given.pop("dollars")
    card = Machine(chosen.card, 1, chosen.arithmetic(weights, formats), dollars_per_gpu_hour=price, **take("mfu", "mbu"))
    prompt, output, hits = take("prompt", "output", "hits").values()
    new = max(1, round(prompt * (1 - hits)))
    guesses = Guesses(**take("acceptance", "drafts", "draft_share"))
    return Setting(chosen, card, formats, Request(new, output, prompt - new), given.pop("reserve"), guesses)


def splits(found, gpus, tensor):
    """Copies that hold the weights and a sequence, from the smallest split on; with a number of GPUs those that divide it.

    Raises:
        ValueError: that says which input would have to be another one.
    """
    tried = [t for t in TENSORS if gpus is None or gpus % t == 0] if tensor is None else [tensor]
    held, trouble = [], None
    for t in tried:
        try:
            at_work = found.copy(t)
        except ValueError as error:
            trouble = error
            continue
        if at_work.room:
            held.append(at_work)
        if len(held) == TRIED:
            break
    if not held and trouble:
        raise link_missing(trouble) from trouble
    return held


@calculator(
    "serve",
    "Serve",
    "How many GPUs keep this load, how fast is it for a user, and what does a million tokens cost?",
    MODEL,
    WEIGHTS,
    CARD,
    count("cards", "GPUs (empty: as few as do it)", None, "", 1, MOST, optional=True),
    DOLLARS,
    num("rate", "Requests", 4, "1/s", 1e-4, 10**5, (0.1, 0.2, 0.5, 1, 2, 4, 8, 16, 32, 64, 128)),
    count("prompt", "Prompt", 2048, "tokens", 1, 2**20, doublings(16, 2**17)),
    count("output", "Answer", 256, "tokens", 2, 2**17, doublings(16, 2**14)),
    *OWN_MODEL,
    *OWN_CARD,
    *group(
        "Objectives",
        num("ttft", "First token, at most", 1, "s", 1e-3, 3600, (0.2, 0.5, 1, 2, 5, 10)),
        num("tpot", "Each further token, at most", 50, "ms", 0.01, 10**5, (10, 20, 30, 50, 100, 200)),
    ),
    *group(
        "Cache and guesses",
        num("hits", "Share of the prompt found in a prefix cache", 0, "", 0, 1, (0, 0.25, 0.5, 0.75, 0.9)),
        choice("cache", "Cache kept in", tuple(CACHES)),
        count("drafts", "Guesses a round (speculative decoding; 0: none)", 0, "", 0, 16, (0, 1, 2, 3, 4, 6, 8)),
        num("acceptance", "Share of the guesses kept", 0.7, "", 0, 1, (0.3, 0.5, 0.6, 0.7, 0.8, 0.9)),
        num("draft_share", "Time of drafting one, of the model's own step", 0.05, "", 0, 1),
    ),
    *group(
        "Assumptions",
        *efficiencies(0.5, 0.7),
        num("reserve", "Share of the memory kept for engine and activations", 0.1, "", 0, 0.9, PERCENT[:10]),
        count("tensor", "GPUs of a copy (empty: the best split)", None, "", 1, 64, optional=True),
    ),
    presets={
        "Chat": {},
        "Long documents": dict(prompt=32768, output=512, rate=0.5, ttft=10),
        "Agent with a cached prompt": dict(prompt=16384, output=512, hits=0.9, rate=2, ttft=2),
        "70B in FP8": dict(model="Llama-3.1-70B", weights="FP8"),
    },
    exact=False,
    more=lambda **given: tradeoff(**given),
)
def serve(cards, rate, ttft, tpot, tensor, **given):
    """GPUs, layout, memory, first token, interval and prices for a load, by roofline and queue."""
    found = setting(given)
    wanted = Wanted(rate, ttft, tpot / 1000)
    if tensor and cards and cards % tensor:
        raise ValueError(f"tensor must divide the {number(cards)} GPUs into copies, got {tensor}")
    held = splits(found, cards, tensor)
    if not held:
        return _too_large(found, cards, tensor)
    best = _best(held, cards, wanted)
    values = _values(found, best, rate)
    return result(
        _sentence(found, best, wanted, cards, values),
        values,
        [*_verdicts(found, best, values), *_measured(found, best, values), *_remarks(found, best)],
        list(_tables(found, best, values, wanted)),
        [memory_bar(found, best.at_work, best.batch)],
    )


def _tried(at_work, cards, wanted):
    return fleet(at_work, cards // at_work.machine.count, wanted) if cards else least_fleet(at_work, wanted)


def _best(held, cards, wanted):
    """The fleet that keeps what is wanted on the fewest GPUs, or misses least; the fastest of several."""
    found = []
    for at_work in held:
        if any(not f.missed and f.gpus < at_work.machine.count for f in found):
            break  # a wider split needs more
        found.append(_tried(at_work, cards, wanted))
    return min(found, key=lambda f: (len(f.missed), f.gpus, f.interval or 1e9))


def _values(found, best, rate):
    """Numbers of a fleet, by name; times and prices None where it does not keep up."""
    request, machine, model = found.request, best.at_work.machine, found.chosen.model
    layout, bound = Layout(tensor=machine.count), machine.reaching()
    known = best.first is not None and "decoded tokens" not in best.missed
    work = (request.mean_decode_context, best.batch, found.formats)
    least = prefill_seconds(model, bound, layout, request, 1, found.formats).total, decode_seconds(model, bound, layout, *work).total
    held = serving_bytes(model, layout, request.end_context, best.batch, found.formats)
    values = {
        "gpus": best.gpus,
        "copies": best.copies,
        "gpus_per_copy": best.tensor,
        "batch": best.batch,
        "room": best.at_work.room,
        "weight_bytes": weight_bytes(model, found.formats.weight_bytes),
        "held_bytes": held.total,
        "memory_bytes": machine.memory_bytes / machine.count,
        "first_bound": least[0],
        "interval_bound": least[1],
        "first_seconds": best.first if known else None,
        "interval_seconds": best.interval if known else None,
        "dollars_an_hour": best.dollars,
    }
    if not known:
        return values
    prompt = best.at_work.prompt
    fresh = prefill_seconds(model, machine, layout, request.new, 1, found.formats, RUN).total
    return values | {
        "wait_seconds": mg1_wait(rate / best.copies, prompt, 0),
        "pooled_wait_seconds": pooled_wait(rate, prompt, best.copies),
        "input_dollars": dollars_per_million(machine, fresh, request.new),
        "cached_dollars": dollars_per_million(machine, max(0, prompt - fresh), request.past) if request.past else None,
        "output_dollars": of_copy(best.at_work, "", best.batch).output_dollars,
        "all_dollars": dollars_per_million(replace(machine, count=best.gpus), 1, rate * request.output),
    }


def _sentence(found, best, wanted, cards, values):
    name = several(best.gpus, found.chosen.card.name)
    shape = f", as {best}," if best.gpus > 1 else ""
    load = f"{number(wanted.rate)} request{'s' * (wanted.rate != 1)}/s of {found.chosen.model.name}"
    keep = "keeps" if best.gpus == 1 else "keep"
    if best.missed and values["first_seconds"] is None:
        return f"{name[0].upper()}{name[1:]}{shape} cannot run {load}: {_lacking(best)}. {_way_out(found, wanted)}"
    told = (
        f"first token after {quantity(best.first, 's', 3)}, then one every {quantity(best.interval, 's', 3)} "
        f"({number(1 / best.interval, 3)} tokens/s for a user), ${number(values['all_dollars'], 3)} for a million answered tokens"
    )
    if best.missed:
        return (
            f"{name[0].upper()}{name[1:]}{shape} miss{'es' * (best.gpus == 1)} an objective under {load}: {told}. {_way_out(found, wanted)}"
        )
    few = "" if cards or best.gpus == 1 else ", and no fewer"
    return f"{name[0].upper()}{name[1:]}{few}{shape} {keep} {load}: {told}."


def _lacking(best):
    said = {"share of time for prompts": "prompts alone would take {} of the time", "decoded tokens": "answers need {}, and there are {}"}
    what = best.missed[0]
    needed, there, _ = best.needs[what]
    if what == "decoded tokens":
        return said[what].format(f"{number(needed, 3)} decoded tokens in each second", number(there, 3))
    return said[what].format(quantity(needed, "%", 3))


def _way_out(found, wanted):
    """What would keep the load: the fewest GPUs, or which objective is out of reach."""
    held = splits(found, None, None)
    kept = min((f for c in held if not (f := least_fleet(c, wanted)).missed), key=lambda f: f.gpus, default=None)
    if kept:
        return f"What would do: {several(kept.gpus, found.chosen.card.name)}, as {kept}."
    first, step = min(c.prompt for c in held), min(c.step(1) for c in held)
    return (
        f"No number of them up to {number(MOST)} would do. At its fastest a first token takes {quantity(first, 's', 3)} and a further one "
        f"{quantity(step, 's', 3)}: “First token, at most” and “Each further token, at most” must be at least that, or weights "
        "narrower, prompts shorter, GPUs faster."
    )


def _needs(found, room, gpus):
    """What a copy needs beside what the GPUs have, in words."""
    one = serving_bytes(found.chosen.model, Layout(), found.request.end_context, 1, found.formats)
    kept = f", {quantity(found.reserve, '%', 2)} of it kept free" if found.reserve else ""
    return (
        f"it needs {quantity(one.weights, 'B')} of weights + {quantity(one.cache, 'B')} of cache for a sequence of "
        f"{number(found.request.end_context)} tokens, and {several(gpus, found.chosen.card.name)} has {quantity(room, 'B')}{kept}"
    )


def _too_large(found, cards, tensor):
    """The result where no split of the GPUs holds the weights and a sequence."""
    gpus = tensor or cards or TENSORS[-1]
    card = replace(found.card, count=gpus)
    text = f"{found.chosen.model.name} does not fit: {_needs(found, card.memory_bytes, gpus)}."
    more = splits(found, None, None)
    if not more:
        raise ValueError(f"model must be smaller, or its weights narrower: {text.removesuffix('.')}")
    would = more[0].machine.count
    text += f" What would do: {several(would, found.chosen.card.name)}{' for each copy' * bool(tensor)}, or narrower weights."
    values = {"gpus": None, "weight_bytes": weight_bytes(found.chosen.model, found.formats.weight_bytes), "memory_bytes": card.memory_bytes}
    bar = memory_bar(found, Copy(card, found.formats, found.request, 0, 0, None), 1)
    return result(text, values, [(False, f"The model does not fit {several(gpus, found.chosen.card.name)}: this cannot run.")], (), [bar])


def _verdicts(found, best, v):
    runs = v["first_seconds"] is not None
    yield (
        runs if v["held_bytes"] <= v["memory_bytes"] else False,
        f"A GPU holds {quantity(v['held_bytes'], 'B')} with {number(best.batch)} sequence{'s' * (best.batch > 1)} of a copy, and has "
        f"{quantity(v['memory_bytes'], 'B')}; {number(best.at_work.room)} would fit.",
    )
    if not runs:
        yield False, f"This load cannot run: {_lacking(best)}."
        return
    for what, label in (("first token", "First token"), ("time of a token", "Each further token")):
        needed, there, _ = best.needs[what]
        yield what not in best.missed, f"{label}: {quantity(needed, 's', 3)}, at most {quantity(there, 's', 3)} asked."
    waits = f"A prompt waits {quantity(v['wait_seconds'], 's', 2)} for its copy (M/D/1)"
    pooled = f", {quantity(v['pooled_wait_seconds'], 's', 2)} where one queue feeds all copies (M/M/c)" * (best.copies > 1)
    yield None, f"{waits}{pooled}."
    g = found.guesses
    if g.drafts:
        model, machine, kept = found.chosen.model, best.at_work.machine, accepted_length(g.acceptance, g.drafts)
        upto = break_even_batch(model, machine, found.request.mean_decode_context, g.drafts, kept, g.draft_share, found.formats)
        pays = upto is None or best.batch <= upto
        ends = "at any batch" if upto is None else f"up to {number(upto, 3)} sequences in a step" if upto else "at no batch"
        yield pays, f"Guessing yields {number(kept, 3)} tokens a round and pays {ends}; here a step has {number(best.batch)}."


def _measured(found, best, v):
    """Bounds, and what measured machines need where somebody measured."""
    work = dict(bits=found.chosen.bits(found.formats), experts=found.chosen.experts, chips=best.tensor)
    yield None, bands.sentence("The prompt", v["first_bound"], "prefill", **work)
    yield None, bands.sentence("A step of decoding", v["interval_bound"], "decode", **work)


def _remarks(found, best):
    card = best.at_work.machine
    bits = number(found.chosen.bits(found.formats), 3)
    yield (
        None,
        f"{bits} bits a weight, arithmetic in {card.arithmetic.upper()}. The times of this model assume MFU {quantity(card.mfu, '%')}, MBU "
        f"{quantity(card.mbu, '%')}, and that nothing of what the GPUs of a copy send is hidden.",
    )


def _tables(found, best, v, wanted):
    if v["first_seconds"] is None:
        return
    yield (
        ["a user waits for", "bound>", "in this model>", "asked>"],
        [
            ["first token", quantity(v["first_bound"], "s", 3), quantity(best.first, "s", 3), quantity(wanted.ttft, "s", 3)],
            [
                "each further token",
                quantity(v["interval_bound"], "s", 3),
                quantity(best.interval, "s", 3),
                quantity(wanted.interval, "s", 3),
            ],
        ],
    )
    cached = [["input, read from the cache", v["cached_dollars"]]] if found.request.past else []
    rows = [
        ["input, computed", v["input_dollars"]],
        *cached,
        ["output", v["output_dollars"]],
        ["output at this load, all of the bill on it", v["all_dollars"]],
    ]
    yield ["a million tokens", "price>"], [[what, f"${number(price, 3)}"] for what, price in rows]


def _layouts(tried):
    line = lambda f: [
        str(f),
        number(f.gpus),
        number(f.dollars, 3),
        "" if f.first is None else quantity(f.first, "s", 3),
        "" if f.interval is None else quantity(f.interval, "s", 3),
        number(f.batch),
        "; ".join(f.missed) or "nothing",
    ]
    return ["copies", "GPUs>", "$/h>", "first>", "each>", "batch>", "missed"], list(map(line, tried))


def memory_bar(found, at_work, batch):
    """Figure: what a GPU of a copy holds with a batch, beside what it has."""
    layout, room = Layout(tensor=at_work.machine.count), at_work.machine.memory_bytes / at_work.machine.count
    held = serving_bytes(found.chosen.model, layout, found.request.end_context, batch, found.formats)
    parts = {"weights": held.weights, "KV cache": held.cache, "activations (logits)": held.logits, "reserve": found.reserve * room}
    lengths = [size / GIGA for size in parts.values()]
    said = ", ".join(f"{name} {number(size, 3)} GB" for name, size in zip(parts, lengths))
    row = f"a GPU, {number(batch)} sequence{'s' * (batch > 1)} of a copy"
    mark = room / GIGA, f"has {quantity(room, 'B')}"
    caption = f"Memory of a GPU: {said}. A lower bound: buffers and fragments must find room in the reserve."
    return plot.bars(
        [(row, plot.stacked(lengths))],
        list(parts),
        Axis("memory (GB)"),
        f"Memory of a GPU: {said}; it has {quantity(room, 'B')}.",
        "serve-memory",
        mark,
    ), caption


def tradeoff(cards, rate, ttft, tpot, tensor, **given):
    """Curve of what a GPU yields against what a user gets, over splits and batches, with the objective as a line; table of the splits."""
    found, wanted = setting(given), Wanted(rate, ttft, tpot / 1000)
    held = splits(found, cards, tensor)
    points = {c.machine.count: [of_copy(c, "", b) for b in BATCHES if b <= c.room] for c in held}
    if not held:
        return [], []
    asked, front = 1000 / tpot, pareto(p for line in points.values() for p in line)
    xy = lambda p: (1 / p.interval, p.tokens)
    top = 1.15 * max(p.tokens for p in front)
    wide = 1.05 * max(asked, *(1 / p.interval for p in front))
    series = [Line(f"TP{t}", list(map(xy, line))) for t, line in points.items()]
    series += [Line("asked", [(asked, 0), (asked, top)])]
    best = [p for p in front if 1 / p.interval >= asked]
    series += [Line("most within it", [xy(best[-1])], "points", (f"batch {number(best[-1].batch)}",))] if best else []
    alt = (
        f"Tokens a second of a GPU against those of a user, a line for each of {number(len(points))} splits; asked are "
        f"{number(asked, 3)} tokens/s of a user."
    )
    caption = (
        "What a GPU yields against what a user gets: batches 1, 2, 4, … along each line, never idle, prompts among the steps. Up and "
        "right is better; the upright line is the objective. TP: GPUs that share a copy."
    )
    rows = [
        [f"TP{p.tensor}, batch {number(p.batch)}", number(1 / p.interval, 3), number(p.tokens, 4), number(p.output_dollars, 3)]
        for p in front
    ]
    svg = plot.lines(
        series, Axis("tokens/s of a user", low=0, high=wide), Axis("tokens/s of a GPU", low=0, high=top), alt, "serve-curve", 240
    )
    return [(svg, caption)], [
        (["the best of both", "a user, 1/s>", "a GPU, 1/s>", "$ a million>"], rows),
        _layouts([_tried(c, cards, wanted) for c in held]),
    ]

"""Published measurements beside the bounds of the library: how far apart they are, by kind of work and publisher.

Nothing is fitted, and the measured column is only divided by. `python -m workloads_book.score` is the command of `predictions`.
"""

import csv
import re
import runpy
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import workloads as wl
from workloads.counts import flops, memory, parameter_counts
from workloads.facts.accelerators import Accelerator
from workloads.facts.layers import Attention, Experts, Layer, Plain
from workloads.facts.models import Model
from workloads.units import quantity

from . import bands as table_of_bands
from .bands import LEAST_PUBLISHERS, Band, class_of
from .rl_rows import rl_bound_of, rl_layouts

DATA = Path(__file__).with_name("data")
KINDS = ("train", "lora", "decode", "prefill", "static", "offline", "rl")
# bits of a stored weight, scales included (NVFP4: a byte of scale for 16 values; MXFP8: for 32), and the format it is multiplied in
FORMATS = {
    "fp32": (32, "bf16"),
    "bf16": (16, "bf16"),
    "fp16": (16, "bf16"),
    "fp8": (8, "fp8"),
    "mxfp8": (8.25, "fp8"),
    "fp4": (4.5, "fp4"),
    "nvfp4": (4.5, "fp4"),
    "int8": (8, "bf16"),
    "int4": (4, "bf16"),
}
# models with a layer that predicts a second token, which some count and some do not
PREDICTS_TWO = ("DeepSeek-V3", "DeepSeek-V4-Flash", "Nemotron-3-Super-120B-A12B")


class Unscored(ValueError):
    """A row that has no bound here; the message says why."""


@dataclass(frozen=True)
class Score:
    """One row beside its bound.

    Attributes:
        id: of the row.
        publisher: who printed it.
        kind: of work, one of KINDS.
        group: class whose rows are compared: kind, format, dense or experts, one chip or several, long sequences.
        bound: least seconds of the row's own work (a token of training, a step, a request, a batch).
        measured: seconds of the same work.
        careful: bound with attention and head at the 16-bit peak (training), else the same.
        flops: FLOPs of the work on all chips (count).
    """

    id: str
    publisher: str
    kind: str
    group: str
    bound: float
    measured: float
    careful: float
    flops: float

    @property
    def ratio(self):
        """Bound over measured: 1 on the roof; above 1 one of the two is wrong."""
        return self.bound / self.measured


@cache
def table(name):
    """Rows of a table of this package, as dictionaries of texts.

    Example:
        >>> table("measured_findings")[0]["id"]
        'splitwise-143'
    """
    return read(DATA / f"{name}.tsv")


def read(path):
    """Rows of a tab-separated file.

    Example:
        >>> list(read(DATA / "measured_findings.tsv")[0])
        ['id', 'cause']
    """
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def _known(name, what):
    found = next((row for row in table(f"measured_{what}s") if row["name"] == name), None)
    if not found:
        raise Unscored(f"no {what} {name!r} in the tables")
    return found


@cache
def model(name) -> Model:
    """The shape behind a name in the measurements; Unscored where the library cannot express it.

    Example:
        >>> model("TinyLlama-1.1B").layers
        22
    """
    row = _known(name, "model")
    if row["unknown"]:
        raise Unscored(f"{name}: {row['unknown']}")
    if row["as"]:
        found = wl.model(row["as"])
        assert isinstance(found, Model)
        return found
    whole = ("layers", "heads", "kv_heads", "head_dim", "ffn", "experts", "active_experts", "expert_ffn", "shared_experts", "dense_layers")
    sizes = {name: int(row[name]) for name in whole if int(row[name]) or name in ("layers", "heads")}
    if row["latent"] != "0":  # latent attention: each head has keys of its own
        sizes |= {size: int(row[size]) for size in ("latent", "rope_dim", "query_rank")}
    shape = Model(name, int(row["hidden"]), int(row["vocab"]), tied=row["tied"] == "True", **sizes)
    if row["gated"] == "yes":
        return shape
    plain = tuple((count, Layer(layer.mixer, Plain(shape.ffn))) for count, layer in shape.stack)
    return Model(name, shape.hidden, shape.vocab, plain, shape.tied)


@cache
def accelerator(name):
    """The accelerator behind a name in the measurements; a peak that no source prints is missing.

    Example:
        >>> accelerator("A10G").bandwidth
        600200000000.0
    """
    row = _known(name, "accelerator")
    if row["as"]:
        card = wl.accelerator(row["as"])
        return replace(card, memory_bytes=card.reported_bytes) if row["memory"] == "reported" else card
    peaks = {kind: float(row[kind]) for kind in ("bf16", "fp8", "fp4") if row[kind]}
    return Accelerator(name, float(row["memory"]), float(row["bandwidth"]), peaks, source=row["source"])


def _format(text):
    """(bytes a weight, format of the products) of a precision as the sources write it."""
    name = text.lower().removesuffix("?").partition(" ")[0].partition("/")[0].removesuffix("-cs").removesuffix("-mx")
    if bits := re.fullmatch(r"([\d.]+)bpw", name):
        return float(bits[1]) / 8, "bf16"
    if name not in FORMATS:
        raise Unscored(f"format {text!r} is not known")
    return FORMATS[name][0] / 8, FORMATS[name][1]


def weight_bits(text):
    """Bits of a stored weight of a precision as the sources write it.

    Example:
        >>> weight_bits("bf16"), weight_bits("mxfp8"), weight_bits("4.0bpw")
        (16.0, 8.25, 4.0)
    """
    return 8 * _format(text)[0]


def _peak(card, format):
    if format not in card.peaks:
        raise Unscored(f"no source prints the {format} peak of {card.name}")
    return card.peaks[format]


def _int(row, name):
    if not re.fullmatch(r"\d+", row[name]):
        raise Unscored(f"{name} is {row[name]!r}, not a number")
    return int(row[name])


def _cache_bytes(row):
    text = row["kv_precision"]
    return 2 if text in ("-", "") else _format(text)[0]


def _trained(shape, tokens, lora):
    """FLOPs of training one sequence: (attention and head, all else), causal, nothing recomputed."""
    once = flops.forward(shape, tokens)
    matrices = 2 if lora else 3  # frozen weights have no gradient of their own
    return 3 * once.attention + matrices * once.head, matrices * (once.projections + once.ffn)


def _training(row, shape, card, chips, format):
    """(bound, careful bound, measured, FLOPs) of training, in seconds of one sequence on all chips."""
    tokens, rate = _int(row, "isl"), float(row["measured"])
    sixteen, rest = _trained(shape, tokens, row["kind"] == "lora")
    per_second = {"tokens/s/GPU": rate * chips / tokens, "tokens/s (all)": rate / tokens, "sequences/s (all)": rate}
    if row["unit"] not in per_second:
        raise Unscored(f"unit {row['unit']!r} is not known for {row['kind']}")
    peak = _peak(card, format) * chips
    careful = sixteen / (_peak(card, "bf16") * chips) + rest / peak
    return (sixteen + rest) / peak, careful, 1 / per_second[row["unit"]], sixteen + rest


def _seconds(work, card, chips, format):
    """Roofline of a pass over pooled chips; without a printed peak the time of its transfers alone, still a bound."""
    compute = work.flops / (card.peaks[format] * chips) if format in card.peaks else 0
    return max(compute, work.bytes / (card.bandwidth * chips))


def _room(shape, card, chips, weight, cache, tokens):
    """Sequences whose cache and state fit beside the weights in pooled memory."""
    room, weights = card.memory_bytes * chips, memory.weight_bytes(shape, weight)
    one = memory.kv_bytes(shape, tokens, 1, cache) + memory.state_bytes(shape)
    fit = memory.sequences_that_fit(room, weights, one)
    if not fit:
        needs = f"needs {quantity(weights, 'B')} of weights + {quantity(one, 'B')} of cache, has {quantity(room, 'B')}"
        raise Unscored(f"{shape.name} with one sequence of {tokens} tokens does not fit {chips} x {card.name}: {needs}")
    return fit


def _serving(row, shape, card, chips, format, weight):
    """(bound, careful bound, measured, FLOPs) of one step, first token, batch or request."""
    kind, cache, rate = row["kind"], _cache_bytes(row), float(row["measured"])
    formats = wl.Formats(weights=weight, cache=cache)
    new, out = _int(row, "isl"), 1 if kind == "prefill" else _int(row, "osl")
    fit = _room(shape, card, chips, weight, cache, new + out)
    batch = fit if kind == "offline" else _int(row, "batch")
    if batch > fit:
        raise Unscored(f"batch {batch} of {new + out} tokens does not fit: at most {fit} do")
    if kind == "decode":
        work = wl.decode(shape, new + (out - 1) / 2, batch, formats)
        measured = rate if row["unit"].startswith("s") else batch / rate
        return *[_seconds(work, card, chips, format)] * 2, measured, work.flops
    request = wl.Request(new, out)
    first = wl.prefill(shape, request, batch, formats)
    steps = wl.decode(shape, request, batch, formats) if out > 1 else 0 * first
    if kind == "prefill":
        return *[_seconds(first, card, chips, format)] * 2, rate, first.flops
    if kind == "static":  # prefill, then decode: nothing overlaps
        bound = _seconds(first, card, chips, format) + _seconds(steps, card, chips, format)
        return bound, bound, batch * out / rate, (first + steps).flops
    both = _seconds(first + steps, card, chips, format) / batch  # of one request: prefill and decode may overlap
    return both, both, out / rate, (first + steps).flops / batch


def _rl(row, shape, card):
    """(bound, careful bound, measured, FLOPs) of a step, BF16, on the layouts of the row (see `rl_rows.rl_bound_of`).

    Prompts, which the rows leave out, count nothing.
    """
    try:
        copy = rl_layouts(row)[0].gpus
    except ValueError as why:
        raise Unscored(str(why)) from why
    _room(shape, card, copy, 2, 2, _int(row, "osl"))
    found = wl.rl_step(rl_bound_of(row, shape, card))
    return *[found.step_seconds] * 2, float(row["measured"]), found.step_flops


def score(row):
    """The row beside its bound.

    Args:
        row: a dictionary with the columns of ``data/measured.tsv`` (texts).

    Raises:
        Unscored: with the reason.

    Example:
        >>> row = next(row for row in table("measured") if row["id"] == "torchtitan-1")
        >>> round(score(row).ratio, 2)
        0.3
    """
    if row["kind"] not in KINDS:
        raise Unscored(f"kind {row['kind']!r} is not one of {', '.join(KINDS)}")
    shape, card, chips = model(row["model"]), accelerator(row["hardware"]), _int(row, "count")
    weight, format = _format(row["precision"])
    if row["kind"] in ("train", "lora"):
        found = _training(row, shape, card, chips, format)
    elif row["kind"] == "rl":
        found = _rl(row, shape, card)
    else:
        found = _serving(row, shape, card, chips, format, weight)
    bound, careful, measured, work = found
    return Score(row["id"], row.get("publisher", "?"), row["kind"], group(row), bound, measured, careful, work)


def group(row):
    """The class of a row: rows of one class are compared with each other.

    Example:
        >>> group(table("measured")[0])
        'train, 16 bits, dense, several chips'
    """
    experts = wl.parameters(model(row["model"])).experts > 0
    tokens = int(row["isl"]) if row["isl"].isdigit() else 0
    return class_of(row["kind"], weight_bits(row["precision"]), experts, int(row["count"]), tokens)


def scored(rows):
    """([Score, ...], {id: why not}) of rows.

    Example:
        >>> found, missing = scored(table("measured")[:10])
        >>> len(found) + len(missing)
        10
    """
    found, missing = [], {}
    for row in rows:
        try:
            found.append(score(row))
        except Unscored as why:
            missing[row["id"]] = str(why)
    return found, missing


@cache
def published():
    """Scores and gaps of all measurements that the book holds.

    Example:
        >>> len(published()[0]) > len(published()[1])
        True
    """
    return scored(table("measured"))


def quantile(ratios, share):
    """Weighted quantile: ``ratios`` is {publisher: [ratio, ...]}, and each publisher counts once, however many rows it has.

    Example:
        >>> quantile({"one": [1.0] * 99, "two": [3.0], "three": [2.0]}, 0.5)
        2.0
    """
    weighted = sorted((ratio, 1 / len(own)) for own in ratios.values() for ratio in own)
    goal, passed = share * len(ratios), 0.0
    for ratio, weight in weighted:
        passed += weight
        if passed >= goal - 1e-12:
            return ratio
    return weighted[-1][0]


def by_publisher(scores):
    """Ratios by publisher, {publisher: [ratio, ...]}, of those that are no findings (a ratio above 1 is an error on one side).

    Example:
        >>> by_publisher([Score("a", "one", "train", "", 1.0, 4.0, 1.0, 1.0), Score("b", "two", "train", "", 2.0, 1.0, 2.0, 1.0)])
        {'one': [0.25]}
    """
    found = defaultdict(list)
    for s in scores:
        if s.ratio <= 1:
            found[s.publisher].append(s.ratio)
    return dict(found)


def classes(scores):
    """Scores by class; one chip and several are taken together where neither alone has enough publishers and both together do.

    Example:
        >>> list(classes([Score("a", "one", "train", "train, one chip", 1.0, 4.0, 1.0, 1.0)]))
        ['train, one chip']
    """
    found, wider = defaultdict(list), defaultdict(list)
    for s in scores:
        found[s.group].append(s)
        wider[table_of_bands.any_chips(s.group)].append(s)
    enough = lambda members: len(by_publisher(members)) >= LEAST_PUBLISHERS
    narrow = {table_of_bands.any_chips(name) for name, members in found.items() if enough(members)}
    return {**found, **{name: members for name, members in wider.items() if name not in narrow and enough(members)}}


@cache
def bands(without=None):
    """Bands by class, {class: Band}, of those of all measurements with enough independent publishers.

    Args:
        without: a publisher whose rows are left out.

    Example:
        >>> bands()["train, 16 bits, dense, several chips"].publishers
        3
    """
    found = {}
    for name, members in classes(published()[0]).items():
        ratios = by_publisher(members)
        if len(ratios) < LEAST_PUBLISHERS:
            continue
        kept = {publisher: own for publisher, own in ratios.items() if publisher != without}
        low, middle, high = (quantile(kept, share) for share in (0.1, 0.5, 0.9))
        found[name] = Band(low, middle, high, sum(map(len, kept.values())), len(kept))
    return found


def held():
    """By class (rows inside the 80% band of the other publishers, rows): how far the bands are to be trusted.

    Example:
        >>> all(inside <= rows for inside, rows in held().values())
        True
    """
    found, members, whole = {}, classes(published()[0]), bands()
    for publisher in {s.publisher for s in published()[0]}:
        others = bands(without=publisher)
        for name in whole:
            own, band = by_publisher(members[name]).get(publisher, []), others[name]
            inside, total = found.get(name, (0, 0))
            found[name] = (inside + sum(band.low <= ratio <= band.high for ratio in own), total + len(own))
    return found


def errors():
    """By class the factor within which four in five rows of a publisher are what the others' middle says: the error bar of a forecast.

    Each publisher counts once, as in `quantile`.

    Example:
        >>> all(1 <= factor for factor in errors().values())
        True
    """
    members, found = classes(published()[0]), {}
    for name in bands():
        off = {}
        for publisher, own in by_publisher(members[name]).items():
            middle = bands(without=publisher)[name].middle
            off[publisher] = [max(ratio / middle, middle / ratio) for ratio in own]
        found[name] = quantile(off, 0.8)
    return found


def _changed(shape, stack):
    """The shape with other layers."""
    return Model(shape.name, shape.hidden, shape.vocab, tuple(stack), shape.tied)


def _one_more(shape, tokens):
    """FLOPs a token of training with the layer more that predicts a second token: the last one again, a projection and the head."""
    *others, (count, last) = shape.stack
    more = _changed(shape, (*others, (count + 1, last)))
    return flops.training(more, tokens).total / tokens + 3 * flops.forward(shape, tokens).head / tokens + 6 * 2 * shape.hidden**2


def _unseen(shape):
    """The shape to a rule that knows neither windows nor gates of experts."""
    mixer = lambda layer: replace(layer.mixer, window=0) if isinstance(layer.mixer, Attention) else layer.mixer
    ffn = lambda layer: replace(layer.ffn, plain=True) if isinstance(layer.ffn, Experts) else layer.ffn
    return _changed(shape, ((count, replace(layer, mixer=mixer(layer), ffn=ffn(layer))) for count, layer in shape.stack))


def rules(shape, tokens, lora=False):
    """FLOPs a token of training by the rules that publishers count by, {name of the rule: FLOPs}.

    Args:
        shape: a Model.
        tokens: of a sequence.
        lora: of adapters on frozen weights.

    Example:
        >>> found = rules(model("TinyLlama-1.1B"), 2048)
        >>> found["full square"] > found["causal pairs"] > found["6N, no embedding in N"]
        True
    """
    count = wl.parameters(shape)
    outside = count.total - count.embedding
    if lora:
        return {"causal pairs": sum(_trained(shape, tokens, True)) / tokens, "4N": 4 * count.total, "4N, no embedding in N": 4 * outside}
    found = {"causal pairs": flops.training(shape, tokens).total / tokens}
    if shape.name in PREDICTS_TWO:
        found["causal pairs and the layer that predicts a second token"] = _one_more(shape, tokens)
    if not all(met.even for _, met in parameter_counts.spans(shape)):
        unseen = _unseen(shape)
        even = unseen.stack != shape.stack and all(met.even for _, met in parameter_counts.spans(unseen))
        return found | ({"causal pairs, windows and gates of experts not seen": rules(unseen, tokens)["causal pairs"]} if even else {})
    found["full square"] = flops.training(shape, tokens, causal=False).total / tokens
    if not count.experts:
        square = 12 * shape.layers * shape.heads * shape.head_dim * tokens
        if isinstance(shape.stack[0][1].ffn, Plain):  # of their time, with a learned vector for each position
            positions = tokens * shape.hidden
            found["6N + 12LHQT, embedding and positions in N"] = 6 * (count.total + positions) + square
        found["6N + 12LHQT, embedding in N"] = 6 * count.total + square
        found["6N + 12LHQT, no embedding in N"] = 6 * outside + square
        found["6N, no embedding in N"] = 6 * outside
    return found


def convention(row):
    """(name of the rule, how far off) by which a publisher counted the FLOP/s, or the MFU, that a row prints beside its tokens/s.

    The rule whose FLOPs a token come closest; tokens/s and FLOP/s of a GPU divide to what was counted.

    Raises:
        Unscored: for a row that does not print both.

    Example:
        >>> row = next(row for row in table("measured") if row["id"] == "megatron_bridge-1")
        >>> convention(row)[0]
        'causal pairs and the layer that predicts a second token'
    """
    printed = {name: row[name] not in ("-", "") for name in ("reported_tflops", "reported_mfu")}
    if row["kind"] not in ("train", "lora") or row["unit"] != "tokens/s/GPU" or not any(printed.values()):
        raise Unscored("the row does not print tokens/s and FLOP/s of a GPU")
    shape, tokens = model(row["model"]), _int(row, "isl")
    if printed["reported_tflops"]:
        rate = float(row["reported_tflops"]) * 1e12
    else:
        rate = float(row["reported_mfu"]) / 100 * _peak(accelerator(row["hardware"]), _format(row["precision"])[1])
    found = rules(shape, tokens, row["kind"] == "lora")
    off = {name: rate / float(row["measured"]) / counted - 1 for name, counted in found.items()}
    name = min(off, key=lambda rule: abs(off[rule]))
    return name, off[name]


def spread(row):
    """Band of the class of a row, or where that has too few publishers of what there is: the number of publishers says which.

    Args:
        row: as in `score`; its measured column is not read.

    Raises:
        Unscored: where no row of the class has a bound.

    Example:
        >>> spread(next(row for row in table("forecasts") if row["kind"] == "offline")).publishers
        1
    """
    found = table_of_bands.of(group(row), bands())
    ratios = by_publisher([s for s in published()[0] if s.group == group(row)])
    if not found and not ratios:
        raise Unscored(f"nobody has measured work of class {group(row)!r}")
    low, middle, high = (quantile(ratios, share) for share in (0.1, 0.5, 0.9))
    return found or Band(low, middle, high, sum(map(len, ratios.values())), len(ratios))


def forecast(row, band):
    """(low, middle, high) of what a row that nobody has measured yet will print, in its unit.

    Low and high hold 80% of such rows if the class goes on as it was.

    Args:
        row: as in `score`; its measured column is not read.
        band: Band of its class: that of the day, or the one that was written down with the row.

    Example:
        >>> row = next(row for row in table("forecasts") if row["kind"] == "train")
        >>> low, middle, high = forecast(row, spread(row))
        >>> low < middle < high
        True
    """
    at_one = score({**row, "measured": "1"}).ratio  # of 1 in the row's unit
    ends = band.low, band.middle, band.high
    return tuple(sorted(at_one / end if row["unit"] in ("s", "s/step") else end / at_one for end in ends))


FORECAST = ("id", "p10", "p50", "p90", "rows", "publishers", "low", "middle", "high")


def forecast_line(row):
    """FORECAST of a row by the bands of today: what is written down with it.

    Example:
        >>> row = table("forecasts")[0]
        >>> forecast_line(row) == tuple(row[name] for name in FORECAST)
        True
    """
    band = spread(row)
    shares = map("{:.4g}".format, (band.low, band.middle, band.high))
    ends = (f"{float(f'{end:.3g}'):g}" for end in forecast(row, band))
    return row["id"], *shares, str(band.rows), str(band.publishers), *ends


def written(row):
    """Band that was written down with a forecast: later rows of its class move the table, not the forecast.

    Example:
        >>> [written(row).publishers for row in table("forecasts")[:2]]
        [3, 3]
    """
    low, middle, high = (float(row[end]) for end in ("p10", "p50", "p90"))
    return Band(low, middle, high, int(row["rows"]), int(row["publishers"]))


if __name__ == "__main__":  # what others predict needs this module: the command stands there
    runpy.run_module("workloads_book.predictions", run_name="__main__")

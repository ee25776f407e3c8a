"""Calculators of one RL step from four sides: rates, roofline check, table over lengths, prices. All four are the library's
`rl_step` of one `RLStep`; what a page may assume otherwise is a switch with the corrected step as its default.
"""

import re
from math import fsum

from workloads.learning.rl import capacity, phases
from workloads.times import roofline
from workloads.units import GIGA, TERA, number, quantity
from workloads_book.studies import price

from .. import plot
from ..plot import Axis, Line
from .common import CARDS, MODELS, PERCENT, assumed_shares, clock, measured
from .forms import Input, calculator, choice, count, doublings, group, num, number_of, possible, result, switch
from .rl import (
    ASSUMPTIONS,
    PRINTED,
    ROUND,
    ROUND_CARD,
    ROUND_MODEL,
    SHARES,
    learner_verdict,
    measured_parts,
    must_hold,
    named_card,
    named_step,
    without_cache,
)

EXAMPLE, EXAMPLE_KV = "8B, cache of 128 kB a token", 64_000  # the running example of part one; values that a token keeps
MODEL = choice("model", "Model", [ROUND_MODEL, EXAMPLE, *MODELS])
CARD = choice("accelerator", "Accelerator", [ROUND_CARD, *CARDS])
GPUS = count("gpus", "GPUs", ROUND["gpus"], "", 1, 10**5, doublings(1, 1024))
COMPLETION = num("completion", "Answer", ROUND["completion"], "tokens", 2, 2**20, doublings(128, 2**17))
REACHED = (
    num("mbu", "Share of the bandwidth reached (MBU)", ROUND["mbu"], "", 0.001, 1, PERCENT),
    num("mfu", "Share of the compute peak reached (MFU)", ROUND["mfu"], "", 0.001, 1, PERCENT),
)
SAMPLES = (
    count("prompts", "Prompts a step", ROUND["prompts"], "", 1, 10**5, doublings(1, 1024)),
    count("group", "Answers a prompt", ROUND["group"], "", 1, 1024, doublings(1, 64)),
)
SPLIT = count("gpus_per_copy", "GPUs that share one copy of the weights", 1, "", 1, 1024)
OWN = group(
    "Own model, own accelerator (empty: those chosen)",
    num("active_billion", "Active parameters", None, "billion", 1e-3, 10**5, optional=True),
    num("total_billion", "All parameters, all read in a decode step", None, "billion", 1e-3, 10**5, optional=True),
    num("kv_bytes", "Cache", None, "B/token", 1, 10**7, optional=True),
    num("bytes_per_parameter", "Bytes of a weight", 2, "B", 0.25, 8),
    num("bytes_per_value", "Bytes of a cached value", 2, "B", 0.25, 8),
    num("peak_tflops", "Dense peak", None, "TFLOP/s", 0.1, 10**6, optional=True),
    num("bandwidth_tbs", "Memory bandwidth", None, "TB/s", 1e-3, 10**4, optional=True),
    num("memory_gb", "Memory", None, "GB", 0.1, 10**5, optional=True),
)
SOURCE = "As FLOP Accounting assumed"
CACHE = switch("count_cache", "Cache counted among the bytes read", True)


def _assumptions(*names):
    """Switches of the rl-step form, by name."""
    return tuple(i for i in ASSUMPTIONS if i.name in names)


def _step(model, accelerator, bytes_per_parameter, bytes_per_value, own, **given):
    """RLStep of a model and a machine by name, with the reader's own sizes in the place of theirs."""
    if model == EXAMPLE:
        model, given["kv_bytes"] = ROUND_MODEL, EXAMPLE_KV * bytes_per_value
    if own["kv_bytes"] is not None:
        given["kv_bytes"] = own["kv_bytes"]
    step = named_step(model, accelerator, bytes_per_parameter, bytes_per_value, False, **given)
    sizes = dict(peak=("peak_tflops", TERA), bandwidth=("bandwidth_tbs", TERA), memory_bytes=("memory_gb", GIGA))
    changes = {name: own[key] * unit for name, (key, unit) in sizes.items() if own[key] is not None}
    active, every = own["active_billion"], own["total_billion"]
    if active is None and every is not None:
        raise ValueError("active_billion (billion) must be given beside total_billion: how many take part in a token's products")
    if active is not None:
        every = active if every is None else every
        if every < active:
            raise ValueError(f"total_billion (billion) must be at least the {number(active)} that are active, got {number(every)}")
        changes |= dict(parameters=active * GIGA, total_parameters=every * GIGA, weight_bytes=every * GIGA * bytes_per_parameter)
        changes |= dict(head_parameters=0, embedding_bytes=0, expert_bytes=0, expert_share=1, pair_flops=0, decode_pair_flops=None)
        changes |= dict(spans=tuple((span, each, 0, 0) for span, each, *_ in step.policy.spans))
    return step.having(**changes)


def _read(given):
    """The reader's own sizes, taken out of the inputs."""
    return {name: given.pop(name) for name in ("active_billion", "total_billion", "kv_bytes", "peak_tflops", "bandwidth_tbs", "memory_gb")}


def _gpus(gpus):
    return "one GPU" if gpus == 1 else f"{number(gpus)} GPUs"


def _named(model, own):
    return model if own["active_billion"] is None else f"a model of {number(own['active_billion'])} billion parameters"


def _machine(accelerator, own):
    changed = any(own[name] is not None for name in ("peak_tflops", "bandwidth_tbs", "memory_gb"))
    return "own accelerators" if changed else accelerator


def _remarks(step, accelerator, own, **shares):
    """Verdicts on the memory of the learner, on what is assumed of another machine or an own model."""
    yield from learner_verdict(step)
    yield from assumed_shares(named_card(accelerator), SHARES, **shares)
    if own["active_billion"] is not None and own["kv_bytes"] is None:
        yield None, "The cache of a token is that of the model chosen; attention's FLOPs are left out for a model given by its size."


# ------------------------------------------------------------------------------------------------------------ throughput
@calculator(
    "throughput",
    "Throughput by model and hardware",
    "How many tokens a second does a GPU generate, and how many does it train on?",
    MODEL,
    CARD,
    GPUS,
    count("batch", "Sequences decoded together, a copy", 64, "sequences", 1, 10**5, doublings(1, 1024)),
    COMPLETION,
    *REACHED,
    switch("lora", "LoRA: no weight gradients, 4N for 6N", False),
    CACHE,
    *group("Further assumptions", *_assumptions("context", "decode_bound", "recompute"), SPLIT),
    *OWN,
    presets={SOURCE: dict(batch=1, mbu=0.5, lora=True, count_cache=False), "Corrected": {}},
    exact=False,
)
def throughput(model, accelerator, gpus, batch, completion, count_cache, gpus_per_copy, **given):
    """Tokens a second of decode, forward and training, a GPU and on all of them; the curve over the batch."""
    own = _read(given)
    copies = gpus / gpus_per_copy
    build = lambda g, n: _step(model, accelerator, own=own, gpus=n, gpus_per_copy=g, completion=completion, **given)
    must_hold(build, gpus, gpus_per_copy, "gpus", _named(model, own), _machine(accelerator, own))
    base = build(gpus_per_copy, gpus).having(group=1, capacity="ignored")
    _must_hold_batch(base, build, batch, gpus)
    counted = {} if count_cache else without_cache(base)
    at = lambda n: base.having(prompts=n * copies, **counted)
    rate = lambda n: (found := phases.rl_step(at(n))).sampled_tokens / found.decode.seconds
    found = phases.rl_step(at(batch))
    alone = phases.rl_step(at(1).having(**without_cache(base), mbu=1, decode_mfu=1))
    fit = capacity.sequences_per_copy(base)
    values = {
        "alone_rate": alone.sampled_tokens / alone.decode.seconds / gpus,
        "decode_rate": rate(batch),
        "interval_seconds": found.decode.seconds / found.decode.steps,
        "forward_rate": found.forward_tokens / found.logprob.seconds,
        "training_rate": found.trained_tokens / found.training.seconds,
        "train_rule": base.method.train_rule,
        "fit": fit,
        "curve": [[n, rate(n) / gpus] for n in (*(n for n in doublings(1, 4096) if n < fit), min(fit, 10**5))],
    }
    each = {name: values[name] / gpus for name in ("decode_rate", "forward_rate", "training_rate")}
    least = phases.rl_step(at(batch).having(mbu=1, decode_mfu=1)).decode
    work = dict(bits=8 * given["bytes_per_parameter"], experts=base.policy.expert_bytes > 0)
    usual = measured("A step of decoding", least.seconds / least.steps, "decode", chips=gpus_per_copy, **work)
    together, s = ("one sequence at a time" if batch == 1 else f"{number(batch)} sequences together"), "s" * (gpus == 1)
    text = (
        f"{_gpus(gpus)[0].upper()}{_gpus(gpus)[1:]} generate{s} {number(values['decode_rate'], 4)} tokens/s "
        f"({number(each['decode_rate'], 4)} a GPU, {together}) and train{s} on {number(values['training_rate'], 5)} tokens/s. One sequence "
        f"alone: at most {number(values['alone_rate'], 3)} tokens/s a GPU."
    )
    rows = [
        ["generated, one sequence, all of the bandwidth", number(values["alone_rate"], 4), number(gpus * values["alone_rate"], 4)],
        [f"generated, {together}", number(each["decode_rate"], 4), number(values["decode_rate"], 4)],
        ["read in a forward pass", number(each["forward_rate"], 4), number(values["forward_rate"], 5)],
        [f"trained on ({base.method.train_rule}N)", number(each["training_rate"], 4), number(values["training_rate"], 5)],
    ]
    return result(
        text,
        values,
        [
            (None, f"A sequence gets a token every {quantity(values['interval_seconds'], 's', 3)}; decode is {found.regime}."),
            (True, f"{number(fit)} sequences of {number(completion)} tokens fit on a copy of the weights."),
            *_remarks(base, accelerator, own, mfu=given["mfu"], mbu=given["mbu"]),
            *usual,
        ],
        [(["tokens/s", "a GPU>", "all>"], rows)],
        [_throughput_plot(values, batch, each["decode_rate"])],
    )


def _must_hold_batch(step, build, batch, gpus):
    """Refuse a batch that a copy of the weights does not hold; say which split would."""
    fit, g = capacity.sequences_per_copy(step), step.placement.gpus_per_copy
    if fit >= batch:
        return
    wider = next((n for n in range(g + 1, gpus + 1) if gpus % n == 0 and capacity.sequences_per_copy(build(n, gpus)) >= batch), None)
    way = f"gpus_per_copy {number(wider)} would hold it" if wider else "shorter answers or more memory would hold it"
    raise ValueError(
        f"batch (sequences) must be at most {number(fit)}, got {number(batch)}: a copy needs {quantity(g * step.resident_bytes, 'B')} for "
        f"the weights + {quantity(batch * step.sequence_bytes, 'B')} of cache, {quantity(step.sequence_bytes, 'B')} for each sequence, and "
        f"has {quantity(g * step.gpu.memory_bytes, 'B')}; {way}"
    )


def _throughput_plot(v, batch, rate):
    alt = (
        f"Tokens a second of a GPU against the batch, log-log, from {number(v['curve'][0][1], 3)} with one sequence to "
        f"{number(v['curve'][-1][1], 4)} with {number(v['curve'][-1][0])}; yours: {number(rate, 4)} with {number(batch)}."
    )
    full = v["curve"][-1]
    series = [Line("generated", [tuple(p) for p in v["curve"]]), Line("yours", [(batch, rate)], "points", ("yours",))]
    series += [Line("memory full", [tuple(full)], "points", ("memory full",))] if full[0] == v["fit"] > 2 * batch else []
    rates = [rate, *(each for _, each in v["curve"])]
    axes = (
        Axis("sequences a copy", log=True, low=1, high=max(10, batch, full[0])),
        Axis("tokens/s a GPU", log=True, low=min(rates) / 2, high=max(rates) * 2),
    )
    caption = "Tokens a second that a GPU generates, against the sequences decoded together, up to what memory holds. A model."
    return plot.lines(series, *axes, alt, "throughput", 220), caption


# -------------------------------------------------------------------------------------------------------- roofline check
LENGTHS = {"at the start of the run": 0, "on average": 0.5, "at its end": 1}


@calculator(
    "roofline-check",
    "Roofline check of a rollout",
    "So many answers at once: what limits decode, and do their caches fit?",
    COMPLETION,
    num("growth", "Answers grow during the run by a factor", 1.5, "", 1, 100, (1, 1.25, 1.5, 2, 3, 4, 8)),
    MODEL,
    CARD,
    GPUS,
    *SAMPLES,
    SPLIT,
    CACHE,
    *_assumptions("lora", "context"),
    choice("checked", "Length at which memory and regime are checked", tuple(LENGTHS)),
    *group(
        "Further assumptions",
        *_assumptions("capacity", "reference", "decode_bound", "optimizer_bytes", "held_state_bytes", "copies", "overhead"),
        *REACHED,
    ),
    *OWN,
    presets={SOURCE: PRINTED | dict(completion=512, gpus_per_copy=8, copies=2, count_cache=False, checked="on average"), "Corrected": {}},
    exact=False,
)
def roofline_check(model, accelerator, gpus, gpus_per_copy, completion, growth, checked, count_cache, **given):
    """Regime, critical batch, intensity, memory, what LoRA and growing answers change."""
    own = _read(given)
    length = completion * (1 + (growth - 1) * LENGTHS[checked])
    at = lambda tokens, g, n: _step(model, accelerator, own=own, gpus=n, gpus_per_copy=g, completion=tokens, **given)
    must_hold(lambda g, n: at(completion * growth, g, n), gpus, gpus_per_copy, "gpus", _named(model, own), _machine(accelerator, own))
    step = at(length, gpus_per_copy, gpus)
    found, seen = phases.rl_step(step), phases.rl_step(step if count_cache else step.having(**without_cache(step)))
    of = lambda tokens, **changes: phases.rl_step(step.having(completion=tokens, **changes))
    full, adapters = of(length, lora=False), of(length, lora=True)
    run = [of(completion * (1 + (growth - 1) * k / 40)) for k in range(41)]
    seconds, g = [r.rollout.seconds for r in run], gpus_per_copy
    values = {
        "batch": step.batch,
        "ridge": seen.ridge,
        "intensity": seen.intensity,
        "regime": seen.regime,
        "critical_batch_without_cache": _critical_batch(step.having(**without_cache(step))),
        "critical_batch": _critical_batch(step if count_cache else step.having(**without_cache(step))),
        "cache_bytes": step.batch * step.sequence_bytes * gpus / g,
        "weight_bytes": gpus * step.resident_bytes,
        "memory_bytes": gpus * step.gpu.memory_bytes,
        "weight_share": step.resident_bytes / step.gpu.memory_bytes,
        "cache_share": step.batch * step.sequence_bytes / g / step.gpu.memory_bytes,
        "held_share": found.held_bytes / step.gpu.memory_bytes,
        "fit": found.fit * gpus / g,
        "waves": found.waves,
        "lora_saving": 1 - adapters.training.flops / full.training.flops,
        "full_rollout_share": full.rollout_share,
        "lora_rollout_share": adapters.rollout_share,
        "tokens_factor": fsum(r.sampled_tokens for r in run) / len(run) / run[0].sampled_tokens,
        "seconds_factor": fsum(seconds) / len(seconds) / seconds[0],
        "first_share": run[0].rollout_share,
        "last_share": run[-1].rollout_share,
    }
    samples, percent = given["prompts"] * given["group"], lambda v: quantity(v, "%", 3)
    critical = values["critical_batch"]
    fits = "fit at once" if found.fits else "do not fit at once"
    text = (
        f"Decode is {values['regime']}: {number(values['intensity'], 3)} FLOP/B against a ridge of {number(values['ridge'], 3)}. "
        f"{number(samples)} answers of {number(round(length))} tokens {fits}: with the weights they would take "
        f"{percent(values['held_share'])} of the memory."
    )
    rows = [
        ["sequences on a copy of the weights", number(step.batch, 4)],
        ["critical batch, weights alone read (the ridge at 2 B)", number(values["critical_batch_without_cache"], 3)],
        ["critical batch, cache counted" if count_cache else "critical batch as judged", number(critical, 3) if critical else "none"],
        ["arithmetic intensity of decode", f"{number(values['intensity'], 3)} FLOP/B"],
        ["caches", f"{quantity(values['cache_bytes'], 'B', 3)}, {percent(values['cache_share'])}"],
        ["weights and what stays", f"{quantity(values['weight_bytes'], 'B', 3)}, {percent(values['weight_share'])}"],
        [f"together, of {quantity(values['memory_bytes'], 'B', 3)}", percent(values["held_share"])],
        ["answers that fit at once", number(values["fit"])],
        ["training FLOPs that LoRA saves", percent(values["lora_saving"])],
        ["rollout share, all weights trained / LoRA", f"{percent(full.rollout_share)} / {percent(adapters.rollout_share)}"],
        [f"over a run that grows {growth:g}-fold: tokens", f"+{percent(float(values['tokens_factor']) - 1)}"],
        ["the same: rollout time", f"+{percent(float(values['seconds_factor']) - 1)}"],
        ["the same: rollout share", f"{percent(values['first_share'])} to {percent(values['last_share'])}"],
    ]
    return result(
        text,
        values,
        [*_roofline_verdicts(values, found, count_cache), *_remarks(step, accelerator, own, mfu=given["mfu"], mbu=given["mbu"])],
        [(["read-out", "value>"], rows)],
        [_memory_bar(step)],
    )


def _critical_batch(step):
    """Sequences on a copy from which on arithmetic limits decode, of what the whole rollout computes and reads on a GPU; None if none."""
    found = phases.rl_step(step.having(capacity="ignored"))
    g, weights = step.placement.gpus_per_copy, step.weights_read(step.batch)
    each = max(0, found.bytes_per_decode_step - weights) / step.batch
    return roofline.critical_batch(found.decode.flops / found.sampled_tokens / g, weights, each, step.gpu.peak, step.gpu.bandwidth)


def _roofline_verdicts(v, found, count_cache):
    if not count_cache:
        yield None, "The caches are left out of the bytes that decode reads; a real decode step reads them."
    elif v["critical_batch"] is None:
        yield (
            None,
            "No batch whatever makes decode compute-bound here: each sequence brings more bytes of cache than the ridge allows its FLOPs.",
        )
    else:
        yield (
            None,
            f"Decode would turn compute-bound at {number(v['critical_batch'], 3)} sequences a copy; {number(v['batch'], 4)} are there.",
        )
    fit, batch = found.fit, v["batch"]
    if found.fits:
        yield True, f"The caches of {number(batch, 4)} sequences a copy fit ({number(fit)} would)."
    else:
        parts = f"the rollout runs in {number(found.waves)} parts" if found.waves > 1 else "the time ignores it"
        yield False, f"The cache of {number(batch, 4)} sequences a copy does not fit ({number(fit)} would): {parts}."


def _memory_bar(step):
    size, gpu, unit = GIGA, step.gpu, "GB"
    cache = step.batch * step.sequence_bytes / step.placement.gpus_per_copy
    label = f"a GPU: {quantity(step.resident_bytes, 'B', 3)} and {quantity(cache, 'B', 3)}"
    row = (label, plot.stacked([step.resident_bytes / size, cache / size]))
    alt = f"Bar of what {label} of weights and caches; memory {quantity(gpu.memory_bytes, 'B', 3)}."
    mark = (gpu.memory_bytes / size, "memory")
    picture = plot.bars([row], ["weights and what stays", "caches"], Axis(f"held by a GPU ({unit})"), alt, "roofline-check", mark)
    return picture, "What one GPU would hold if all answers were there at once, beside its memory."


# ------------------------------------------------------------------------------------------------- table over lengths
CONVENTIONS = _assumptions("lora", "reference", "context", "capacity")
FINE = _assumptions("decode_bound", "optimizer_bytes")


@calculator(
    "step-by-length",
    "One step, by sequence length",
    "How do work, time and the rollout's share of a step grow with the length of the answers?",
    Input("lengths", "Lengths of the answers, in tokens", "text", "512 1024 2048 4096 8192 16384"),
    MODEL,
    CARD,
    GPUS,
    *REACHED,
    *CONVENTIONS,
    *group("Further assumptions", *SAMPLES, SPLIT, *FINE, choice("flops_column", "Training FLOPs in the table", ("as timed", "6N"))),
    *OWN,
    presets={SOURCE: PRINTED | dict(flops_column="6N"), "Corrected": {}},
    exact=False,
)
def step_by_length(lengths, model, accelerator, gpus, gpus_per_copy, flops_column, **given):
    """A step for each of several lengths: tokens, FLOPs, seconds, share; where rollout and learning take equally long."""
    own, lengths = _read(given), _lengths(lengths)
    at = lambda tokens, g=gpus_per_copy, n=gpus: _step(model, accelerator, own=own, gpus=n, gpus_per_copy=g, completion=tokens, **given)
    must_hold(lambda g, n: at(lengths[-1], g, n), gpus, gpus_per_copy, "gpus", _named(model, own), _machine(accelerator, own))
    found = {n: phases.rl_step(at(n)) for n in lengths}
    trained = {n: phases.rl_step(at(n).having(lora=False) if flops_column == "6N" else at(n)).training.flops for n in lengths}
    typical = 4096 if 4096 in lengths else lengths[len(lengths) // 2]
    crossing = possible(lambda: phases.crossover_length(at(typical)))
    one, first, last = found[typical], found[lengths[0]], found[lengths[-1]]
    values = {
        f"{name}: {n}": value
        for n, f in found.items()
        for name, value in {
            "tokens": f.sampled_tokens,
            "rollout_flops": f.rollout.flops,
            "training_flops": trained[n],
            "rollout_seconds": f.rollout.seconds,
            "training_seconds": f.training.seconds,
            "step_seconds": f.step_seconds,
            "rollout_share": f.rollout_share,
            "waves": f.waves,
        }.items()
    } | {"crossover_tokens": crossing}
    percent = lambda v: quantity(v, "%", 2)
    text = (
        f"At {number(typical)} tokens the rollout does {quantity(one.rollout.flops, 'FLOP', 3)} and learning "
        f"{quantity(one.logprob.flops + trained[typical], 'FLOP', 3)}, yet they take {clock(one.rollout.seconds, 3)} and "
        f"{clock(one.learning.seconds, 3)}: rollout is {percent(one.rollout_share)} of the step."
    )
    if len(lengths) > 1:
        text += (
            f" From {number(lengths[0])} to {number(lengths[-1])} tokens: {percent(first.rollout_share)} to {percent(last.rollout_share)}."
        )
    times = [
        [number(n), *(clock(s, 3) for s in (f.rollout.seconds, f.training.seconds, f.step_seconds)), percent(f.rollout_share)]
        for n, f in found.items()
    ]
    work = [
        [number(n), number(f.sampled_tokens), quantity(f.rollout.flops, "FLOP", 3), quantity(trained[n], "FLOP", 3)]
        for n, f in found.items()
    ]
    return result(
        text,
        values,
        [
            *_length_verdicts(found, crossing, flops_column, one),
            *_remarks(one.step, accelerator, own, mfu=given["mfu"], mbu=given["mbu"]),
            *measured_parts(one.step, f" at {number(typical)} tokens"),
        ],
        [
            (["answer", "rollout>", "training>", "whole step>", "rollout share>"], times),
            (["answer", "tokens a step>", "rollout FLOPs>", "training FLOPs>"], work),
        ],
        [_share_plot(found)],
    )


def _lengths(text):
    """Up to twelve lengths, rising, from a text."""
    words = [word.strip(",;") for word in re.split(r"[;\s]+", text) if word.strip(",;")]
    tokens = [number_of(word) for word in words]
    if bad := next((word for word, n in zip(words, tokens) if n is None or not 2 <= n <= 2**20), None):
        raise ValueError(f"lengths must be numbers of tokens between 2 and 1,048,576 with spaces between them, got {bad!r}")
    different = sorted({n for n in tokens if n is not None})
    if not 1 <= len(different) <= 12:
        raise ValueError(f"lengths must be one to twelve different numbers of tokens, got {number(len(different))}")
    return different


def _length_verdicts(found, crossing, flops_column, one):
    if crossing:
        yield None, f"Rollout and learning take equally long at {number(crossing, 3)} tokens."
    parts = {n: f.waves for n, f in found.items() if f.waves > 1}
    if parts:
        told = ", ".join(f"{number(waves)} parts at {number(n)} tokens" for n, waves in parts.items())
        yield None, f"Where the caches do not fit at once, the rollout runs one part after the other: {told}."
    elif unfit := [n for n, f in found.items() if not f.fits]:
        yield (
            False,
            f"From {number(unfit[0])} tokens on the caches would not fit ({number(found[unfit[0]].fit)} would): the time ignores it.",
        )
    if flops_column == "6N" and one.step.method.lora:
        yield None, "The table counts 6N for training and its times 4N, as the web page does: one of the two must be wrong."


def _share_plot(found):
    points = [(n, 100 * f.rollout_share) for n, f in found.items()]
    told = "; ".join(f"{number(n)} tokens {number(share, 2)}%" for n, share in points)
    series = [Line("rollout's share of the time", points), Line("lengths chosen", points, "points")]
    caption = "The rollout's share of rollout and learning, against the length of the answers. A model."
    if len(points) == 1:
        series = series[1:]
        low, high = points[0][0] / 2, points[0][0] * 2
    else:
        low, high = points[0][0], points[-1][0]
    axes = Axis("answer (tokens)", log=True, low=low, high=high), Axis("share (%)", low=0, high=100)
    return plot.lines(series, *axes, f"Rollout share against length: {told}.", "step-by-length", 200), caption


# ------------------------------------------------------------------------------------------------------------------ prices
@calculator(
    "token-prices",
    "Price of a million tokens",
    "On rented GPUs, what does a million sampled tokens cost, a million trained on, and a whole step?",
    num("dollars_per_gpu_hour", "Rent", 2, "$/GPU-h", 0.01, 1000, (0.5, 1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)),
    COMPLETION,
    MODEL,
    CARD,
    GPUS,
    *REACHED,
    *CONVENTIONS,
    *group(
        "A service that meters tokens (empty: none)",
        num("sampled_price", "Its price of sampled tokens", None, "$/million", 0, 10**6, optional=True),
        num("trained_price", "Its price of trained tokens", None, "$/million", 0, 10**6, optional=True),
        num("forward_price", "Its price of tokens passed forward", None, "$/million", 0, 10**6, optional=True),
    ),
    *group("Further assumptions", *SAMPLES, SPLIT, *FINE),
    *OWN,
    presets={SOURCE: PRINTED, "Corrected": {}},
    exact=False,
)
def token_prices(
    dollars_per_gpu_hour, completion, model, accelerator, gpus, gpus_per_copy, sampled_price, trained_price, forward_price, **given
):
    """The bill of a step, shared out over its tokens by the time of its phases; beside a metered bill."""
    own = _read(given)
    at = lambda tokens, g=gpus_per_copy, n=gpus: _step(model, accelerator, own=own, gpus=n, gpus_per_copy=g, completion=tokens, **given)
    must_hold(lambda g, n: at(completion, g, n), gpus, gpus_per_copy, "gpus", _named(model, own), _machine(accelerator, own))
    found = phases.rl_step(at(completion))
    prices, bill = price.token_prices(found, dollars_per_gpu_hour), price.step_dollars(found, dollars_per_gpu_hour)
    metered = _metered(found, sampled_price, trained_price, forward_price)
    curve = [
        (n, price.token_prices(f, dollars_per_gpu_hour)) for n in doublings(128, 2**17) if (f := possible(lambda: phases.rl_step(at(n))))
    ]
    values = {
        "step_dollars": bill,
        "step_seconds": found.step_seconds,
        "sampled_dollars": prices.sampled,
        "trained_dollars": prices.trained,
        "forward_dollars": prices.forward,
        "sampled_tokens": found.sampled_tokens,
        "trained_tokens": found.trained_tokens,
        "forward_tokens": found.forward_tokens,
        "metered_dollars": metered,
        "curve": [[n, p.sampled, p.trained] for n, p in curve],
    }
    ratio = f" ({number(prices.sampled / prices.trained, 3)} to 1)" if prices.trained else ""
    forward = f", a million passed forward {_dollars(prices.forward)}" if prices.forward is not None else ""
    text = (
        f"A million sampled tokens cost {_dollars(prices.sampled)}, a million trained on {_dollars(prices.trained)}{ratio}{forward}. "
        f"A step of {clock(found.step_seconds, 3)} on {_gpus(gpus)} costs {_dollars(bill)}."
    )
    lines = (
        ("sampled", found.sampled_tokens, found.decode.seconds, prices.sampled),
        ("passed forward", found.forward_tokens, found.logprob.seconds + found.prefill.seconds, prices.forward),
        ("trained on", found.trained_tokens, found.training.seconds + found.optimizer.seconds, prices.trained),
    )
    rows = [
        [name, number(tokens), clock(seconds, 3), _dollars(each), _dollars(each * tokens / 10**6)]
        for name, tokens, seconds, each in lines
        if each is not None
    ]
    return result(
        text,
        values,
        [
            *_price_verdicts(bill, metered),
            *_remarks(found.step, accelerator, own, mfu=given["mfu"], mbu=given["mbu"]),
            *measured_parts(found.step),
        ],
        [(["tokens", "in a step>", "time>", "a million>", "of the bill>"], rows)],
        [_price_plot(curve, completion, prices)],
    )


def _dollars(amount):
    return quantity(amount, "$", 3)


def _metered(found, sampled, trained, forward):
    """The step's bill at a service's prices; None where they are not all given."""
    if sampled is None and trained is None and forward is None:
        return None
    for name, value in (("sampled_price", sampled), ("trained_price", trained)):
        if value is None:
            raise ValueError(f"{name} ($/million) must be given beside the other prices of the service")
    if forward is None and found.forward_tokens > 0:
        raise ValueError("forward_price ($/million) must be given where tokens are passed forward, as in a pass of a reference model")
    return price.metered_dollars(found, price.Prices(sampled, trained, forward))


def _price_verdicts(bill, metered):
    if metered is None:
        return
    cheaper = "renting" if bill < metered else "the service"
    yield (
        None,
        f"The service would charge {_dollars(metered)} for this step, rent is {_dollars(bill)}: {cheaper} is cheaper, if no GPU idles.",
    )


def _price_plot(curve, completion, prices):
    series = [
        Line("sampled", [(n, p.sampled) for n, p in curve]),
        Line("trained on", [(n, p.trained) for n, p in curve]),
        Line("yours", [(completion, prices.sampled)], "points", ("yours",)),
    ]
    costs = [each for line in series for _, each in line.points]
    alt = (
        f"Dollars for a million tokens against the length of the answers; yours: {_dollars(prices.sampled)} sampled, "
        f"{_dollars(prices.trained)} trained on."
    )
    caption = (
        "Price of a million sampled tokens and of a million trained on, against the length of the answers. A model, at the rent chosen."
    )
    axes = Axis("answer (tokens)", log=True), Axis("$ a million", log=True, low=min(costs) / 2, high=max(costs) * 2)
    return plot.lines(series, *axes, alt, "token-prices", 220), caption

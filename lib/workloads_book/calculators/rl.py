"""Calculators of reinforcement learning: one step, and the cycle against the share of samples kept."""

from functools import lru_cache
from math import ceil

from workloads.checks import positive
from workloads.counts import memory, training_memory
from workloads.facts import accelerators, models
from workloads.learning.rl import capacity, configuration, phases
from workloads.units import number, quantity
from workloads_book.studies import round_schedule, samples, weight_sync

from .. import plot
from ..plot import Axis, Line
from .common import CARDS, MODELS, PERCENT, assumed_shares, clock, measured, scaled
from .forms import calculator, choice, count, doublings, group, num, possible, result, switch

# one step ---------------------------------------------------------------------------------------------------
ROUND = configuration.RLStep().values  # every field's default, by name
SHARES = {name: ROUND[name] for name in ("mfu", "mbu")}
ROUND_MODEL, ROUND_CARD = "8B, round figures", "H100, round figures"
PHASES = {
    "prefill": "prefill",
    "decode": "decode",
    "logprob": "log-probabilities",
    "training": "training",
    "optimizer": "optimizer",
    "other": "other",
}
PRINTED = {name: value for name, value in configuration.printed_page().values.items() if value != ROUND[name]}
ASSUMPTIONS = (
    switch("lora", "LoRA: no weight gradients, 4N for 6N", ROUND["lora"]),
    switch("reference", "Pass of a reference model", ROUND["reference"]),
    choice("context", "Cache read in a decode step", ("average", "full")),
    choice("capacity", "A cache that does not fit", ("waves", "ignored")),
    num("kv_bytes", "Cache bytes, where they are not the model's", None, "B/token", 1, 10**7, optional=True),
    *group(
        "Further assumptions",
        choice("decode_bound", "Limit of a decode step", ("roofline", "memory")),
        switch("stragglers", "Decode lasts until the longest completion ends", ROUND["stragglers"]),
        switch("recompute", "Activations recomputed: one more forward", ROUND["recompute"]),
        switch("policy_logprobs", "Pass of the policy over finished samples", ROUND["policy_logprobs"]),
        count("teachers", "Passes of teachers", ROUND["teachers"], "", 0, 16),
        choice("first_token", "First token comes from", ("decode", "prefill")),
        choice("prefill_head", "Head in a prefill", ("all", "last")),
        choice("pass_head", "Head in passes over samples", ("all", "labels")),
        count("epochs", "Training passes over the samples", ROUND["epochs"], "", 1, 64),
        count("num_iterations", "Steps that share one set of rollouts", ROUND["num_iterations"], "steps", 1, 64),
        num("optimizer_bytes", "Optimizer traffic", ROUND["optimizer_bytes"], "B/parameter", 0, 100),
        num("trainable_share", "Share of the parameters trained", ROUND["trainable_share"], "", 1e-6, 1),
        num("held_state_bytes", "Training state kept during rollout", ROUND["held_state_bytes"], "B/parameter", 0, 100),
        count("copies", "Copies of the weights held", ROUND["copies"], "", 1, 8),
        num("overhead", "Memory over that of the weights", ROUND["overhead"], "", 1, 4),
        num("other_seconds", "Rewards, weight transfer: time alone", ROUND["other_seconds"], "s", 0, 10**5),
    ),
)


def named_card(accelerator):
    """Accelerator by name; the round figures are those of the library's default step."""
    if accelerator != ROUND_CARD:
        return accelerators.accelerator(accelerator)
    return accelerators.Accelerator(ROUND_CARD, ROUND["memory_bytes"], ROUND["bandwidth"], {"bf16": ROUND["peak"]})


def must_hold(step_of, gpus, gpus_per_copy, gpus_name, model, accelerator):
    """Refuse copies of the weights that the GPUs cannot be split into, or that hold not one sequence; say which would.

    Args:
        step_of: the RLStep of g GPUs a copy and n that sample, a function of both.
        gpus: that sample.
        gpus_name: their input.
    """
    step = step_of(gpus_per_copy, gpus)
    least = capacity.smallest_copy(lambda g: step_of(g, gpus), gpus)
    if not gpus % gpus_per_copy and capacity.sequences_per_copy(step):
        return
    if least and gpus % gpus_per_copy:
        raise ValueError(
            f"gpus_per_copy must divide the {number(gpus)} GPUs that sample, into parts of at least {number(least)} for {model}, got "
            f"{gpus_per_copy}"
        )
    tokens = step.rollout.prompt_tokens + step.rollout.longest
    there = (
        f"a GPU needs {quantity(step.resident_bytes, 'B')} for the weights + "
        f"{quantity(step.sequence_bytes / gpus_per_copy, 'B')} for a sequence of {number(tokens)} tokens, and has "
        f"{quantity(step.gpu.memory_bytes, 'B')}"
    )
    if least:
        raise ValueError(
            f"gpus_per_copy must be at least {number(least)}, got {gpus_per_copy}: {there}; {number(least)} is the smallest part of "
            f"{number(gpus)} GPUs that holds {model} and a sequence"
        )
    more = next((n for n in (2**k for k in range(11)) if n > gpus and capacity.sequences_per_copy(step_of(n, n))), None)
    if more is None:
        raise ValueError(
            f"model must be smaller, or sequences shorter, got {model}: {there}, and no copy on up to 1,024 {accelerator} holds both"
        )
    raise ValueError(
        f"{gpus_name} must be at least {number(more)}, with gpus_per_copy {number(more)}, got {number(gpus)}: {there}; no part of "
        f"{number(gpus)} GPUs holds {model} and a sequence"
    )


def learner_verdict(step):
    """Said where the weights, and the gradients and optimizer state of what is trained, exceed the memory of the GPUs that learn."""
    gpus, memory_bytes, policy = step.placement.gpus, step.gpu.memory_bytes, step.policy
    trained = 0 if step.method.lora else step.method.trainable_share * policy.all_parameters
    state = training_memory.training_state_bytes(trained).total if trained else 0
    frozen = policy.weight_bytes * (1 - trained / policy.all_parameters)
    if state + frozen > gpus * memory_bytes:
        kept = f"Learning keeps {'at least ' * step.method.lora}{quantity(state + frozen, 'B')}"
        yield (
            False,
            f"{kept}, 18 B a trained parameter{' and the frozen weights' if frozen else ''}, more than {number(gpus)} GPUs of "
            f"{quantity(memory_bytes, 'B')} hold: it needs {number(ceil((state + frozen) / memory_bytes))}, or state kept elsewhere.",
        )


def without_cache(step, kv_bytes=0):
    """Changes to an RLStep that leave the model's cache out, or put one of so many bytes a token in its place; attention's FLOPs stay."""
    return dict(kv_bytes=kv_bytes, spans=tuple((span, 0, *work) for span, _, *work in step.policy.spans))


def named_step(model, accelerator, bytes_per_parameter, bytes_per_value, expert_parallel, **given):
    """RLStep of a model and an accelerator by name; the round figures are those of the library's default step."""
    card = named_card(accelerator)
    if model != ROUND_MODEL:
        step = configuration.for_model(models.model(model), card, "bf16", bytes_per_parameter, bytes_per_value, expert_parallel, **given)
        return step.having(**without_cache(step, given["kv_bytes"])) if "kv_bytes" in given else step
    cache = memory.kv_bytes_per_token(models.model("Qwen3-8B"), bytes_per_value)
    return configuration.RLStep(
        peak=card.peak(),
        bandwidth=card.bandwidth,
        memory_bytes=card.memory_bytes,
        weight_bytes=ROUND["parameters"] * bytes_per_parameter,
        **{"kv_bytes": cache, **given},
    )


@lru_cache(maxsize=256)
def _crossover(step):
    return phases.crossover_length(step)


def _column(step):
    """What the calculator shows of one step, by name."""
    found = phases.rl_step(step)
    cost = lambda kind, *names: {f"{name}_{kind}": getattr(getattr(found, name), kind) for name in names}
    totals = ("step_seconds", "step_flops", "sampled_tokens", "trained_tokens", "forward_tokens", "waves", "fit", "held_bytes")
    derived = ("rollout_share", "intensity", "ridge", "regime", "fits")
    return {
        **cost("seconds", "prefill", "decode", "logprob", "training", "optimizer", "rollout", "learning"),
        **cost("flops", "prefill", "decode", "logprob", "training"),
        **cost("bytes", "decode"),
        **cost("steps", "decode"),
        **{name: getattr(found, name) for name in (*totals, *derived)},
        **{name: possible(lambda: getattr(found, name)) for name in ("rollout_mfu", "training_mfu", "step_mfu")},
        "other_seconds": step.method.other_seconds,
        "batch": step.batch,
        "crossover_tokens": _crossover(step.having_mean(1024)),
        "overflow_tokens": possible(lambda: capacity.overflow_length(step)),
    }


def _printed_assumptions(model):
    return {name: value for name, value in PRINTED.items() if name != "kv_bytes" or model == ROUND_MODEL}


def measured_parts(step, where=""):
    """Verdicts: what measured machines need for a decode step and the training of an RL step, and that nobody can tell for all of it.

    Args:
        step: the RLStep; its bound is the same step at both peaks, where nothing is computed twice.
        where: what the sentences add, such as a length.
    """
    bound = phases.rl_step(step.having(mfu=1, mbu=1, decode_mfu=1, recompute=False))
    policy, rollout, gpus = step.policy, step.rollout, step.placement.gpus
    experts, tokens = policy.expert_bytes > 0, rollout.prompt_tokens + rollout.mean_completion
    bits = 8 * policy.weight_bytes / policy.all_parameters
    each = bound.decode.seconds / bound.decode.steps
    yield from measured(f"A step of decoding{where}", each, "decode", bits=bits, experts=experts, chips=step.placement.gpus_per_copy)
    kind = "lora" if step.method.lora else "train"
    yield from measured(f"Training in a step{where}", bound.training.seconds, kind, experts=experts, chips=gpus, tokens=tokens)
    yield from measured(f"The whole step{where}", bound.step_seconds, "rl", experts=experts, chips=gpus)


@calculator(
    "rl-step",
    "One step of reinforcement learning",
    "How long does a step take, what is it spent on, and which assumption decides?",
    num("completion", "Completion, mean", ROUND["completion"], "tokens", 2, 2**20, doublings(128, 2**17)),
    choice("model", "Model", [ROUND_MODEL, *MODELS]),
    choice("accelerator", "Accelerator", [ROUND_CARD, *CARDS]),
    count("gpus", "GPUs", ROUND["gpus"], "", 1, 10**5, doublings(1, 1024)),
    *ASSUMPTIONS,
    *group(
        "Workload",
        count("prompts", "Prompts a step", ROUND["prompts"], "", 1, 10**5, doublings(1, 1024)),
        count("group", "Completions a prompt", ROUND["group"], "", 1, 1024, doublings(1, 64)),
        count("prompt_tokens", "Prompt", ROUND["prompt_tokens"], "tokens", 0, 2**20),
        num("spread", "Spread of the lengths: deviation over mean", 0, "", 0, 5),
        num("longest", "Longest completion, where they spread", 32768, "tokens", 2, 2**21),
        num("kept_samples", "Completions used in training (empty: all)", None, "samples", 1, 10**8, optional=True),
        switch("shared_prompts", "One prefill for a group's prompt", ROUND["shared_prompts"]),
    ),
    *group(
        "Machine",
        count("gpus_per_copy", "GPUs that share one copy of the weights", ROUND["gpus_per_copy"], "", 1, 1024),
        switch("expert_parallel", "They split the experts only", False),
        count("rollout_gpus", "GPUs for the rollout alone (empty: takes turns)", None, "", 1, 10**5, optional=True),
        switch("overlap", "Rollout and training at the same time", ROUND["overlap"]),
        num("bytes_per_parameter", "Bytes of a weight", 2, "B", 0.25, 8),
        num("bytes_per_value", "Bytes of a cached value", 2, "B", 0.25, 8),
        num("mbu", "Share of the bandwidth reached (MBU)", ROUND["mbu"], "", 0.001, 1, PERCENT),
        num("mfu", "Share of the compute peak reached (MFU)", ROUND["mfu"], "", 0.001, 1, PERCENT),
        num("decode_mfu", "The same for the arithmetic of decode", ROUND["decode_mfu"], "", 0.001, 1),
    ),
    presets={"As printed": PRINTED, "Corrected": {}},
    exact=False,
)
def rl_step(model, completion, spread, longest, **given):
    """One RL step as printed, corrected, and with the reader's own assumptions: times, shares, crossover, memory."""
    own = {i.name: given.pop(i.name) for i in ASSUMPTIONS}
    lengths = completion
    if spread:
        positive(longest - completion, "longest - completion", "tokens")
        lengths = configuration.lognormal_lengths(completion, spread, longest, count=32)
    chosen = {name: value for name, value in own.items() if name != "kv_bytes" or value is not None}
    build = lambda assumed: _column(named_step(model, completion=lengths, **given, **assumed))
    sampling = "gpus" if given["rollout_gpus"] is None else "rollout_gpus"
    step_of = lambda g, n: named_step(model, completion=lengths, **{**given, **chosen, "gpus_per_copy": g, sampling: n})
    must_hold(step_of, given[sampling], given["gpus_per_copy"], sampling, model, given["accelerator"])
    own_step = step_of(given["gpus_per_copy"], given[sampling])
    columns = {"yours": build(chosen)}
    if chosen != {i.name: i.default for i in ASSUMPTIONS if i.default is not None}:
        columns = {"corrected": possible(lambda: build({})), **columns}
    else:
        columns = {"corrected": columns["yours"]}
    columns = {"as printed": possible(lambda: build(_printed_assumptions(model))), **columns}
    columns = {name: column for name, column in columns.items() if column}
    say = "; ".join(
        f"{name}: {clock(c['step_seconds'])}, {quantity(c['rollout_share'], '%', 3)} of it rollout" for name, c in columns.items()
    )
    return result(
        f"A step takes, {say}.",
        {f"{name}: {key}": value for name, c in columns.items() for key, value in c.items()},
        [
            *_step_verdicts(columns),
            *learner_verdict(own_step),
            *assumed_shares(named_card(given["accelerator"]), SHARES, mfu=given["mfu"], mbu=given["mbu"]),
            *measured_parts(own_step),
        ],
        [_step_table(columns)],
        [_step_bars(columns)],
    )


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
        yield (
            False,
            f"Decode would do more arithmetic than the peak allows, by {number(1 / far, 3)}: a step limited by memory alone is no "
            "model here.",
        )
    crossing = c["crossover_tokens"]
    yield None, "Rollout and learning take equally long " + (f"at {number(crossing, 4)} tokens." if crossing else "at no length in range.")


def _step_table(columns):
    rows = {
        "rollout": ("rollout_seconds", clock),
        "log-probabilities": ("logprob_seconds", clock),
        "training": ("training_seconds", clock),
        "optimizer": ("optimizer_seconds", clock),
        "whole step": ("step_seconds", clock),
        "rollout share": ("rollout_share", lambda v: quantity(v, "%", 3)),
        "FLOPs": ("step_flops", lambda v: quantity(v, "FLOP")),
        "MFU of the step": ("step_mfu", lambda v: quantity(v, "%", 3)),
        "decode": ("intensity", lambda v: f"{number(v, 3)} FLOP/B"),
        "sequences a copy": ("batch", lambda v: number(v, 4)),
        "that fit": ("fit", number),
        "weights and cache a GPU": ("held_bytes", lambda v: quantity(v, "B")),
        "equal times at": ("crossover_tokens", lambda v: f"{number(v, 4)} tokens"),
        "memory full at": ("overflow_tokens", lambda v: f"{number(max(0, int(v)))} tokens"),
    }
    shown = lambda c, key, text: "n/a" if c[key] is None else text(c[key])
    return ["", *(name + ">" for name in columns)], [
        [row, *(shown(c, key, text) for c in columns.values())] for row, (key, text) in rows.items()
    ]


def _step_bars(columns):
    size, unit = scaled(max(c["step_seconds"] for c in columns.values()))
    rows = [
        (
            f"{name}: {clock(c['step_seconds'])}, rollout {quantity(c['rollout_share'], '%', 3)}",
            plot.stacked([c[f"{phase}_seconds"] / size for phase in PHASES]),
        )
        for name, c in columns.items()
    ]
    alt = "Bars of the phases of a step, one after another. " + "; ".join(label for label, _ in rows)
    return plot.bars(
        rows, list(PHASES.values()), Axis(f"time ({unit})"), alt, "rl-step"
    ), "Phases of one step, one after another. As printed: what FLOP Accounting assumed, on this workload and machine."


# cycle ------------------------------------------------------------------------------------------------------
@calculator(
    "rl-cycle",
    "RL cycle and the samples it keeps",
    "If only a part of the samples is kept, how long is a round, and what should be added: machines, or staleness?",
    num("retained", "Share of the generated samples that is kept", 0.5, "", 0.001, 1, PERCENT),
    count("kept", "Samples kept for an update", 16, "samples", 1, 2**13, doublings(4, 2**13)),
    count("rollout_gpus", "GPUs that generate", 4, "", 1, 10**5, doublings(1, 1024)),
    count("staleness", "Updates that samples may lag behind", 0, "updates", 0, 64, range(9)),
    *group(
        "Samples",
        count("group", "Samples of a prompt", 4, "", 1, 1024, doublings(1, 64)),
        count("prompt_tokens", "Prompt", 1024, "tokens", 0, 2**20),
        num("completion", "Completion", 256, "tokens", 2, 2**20, doublings(128, 2**17)),
        switch("shared_prompts", "One prefill for a group's prompt", False),
        num("confidence", "Certainty wanted of having enough", 0.95, "", 0.01, 0.999999),
    ),
    *group(
        "Machines",
        choice("model", "Model", MODELS),
        choice("accelerator", "Accelerator", CARDS),
        count("gpus", "GPUs that learn", 8, "", 1, 10**5, doublings(1, 1024)),
        count("gpus_per_copy", "GPUs that share one generating copy", 1, "", 1, 1024),
        num("mbu", "Share of the bandwidth reached (MBU)", ROUND["mbu"], "", 0.001, 1, PERCENT),
        num("mfu", "Share of the compute peak reached (MFU)", ROUND["mfu"], "", 0.001, 1, PERCENT),
    ),
    *group(
        "Checking and transfer",
        num("reward_seconds", "Checking of the responses", 2, "s", 0, 10**5),
        choice("scheme", "New weights go out by", ("independent", "tree", "ring")),
        num("link", "Link of a node", 50e9, "B/s", 1e6, 1e13),
    ),
    exact=False,
)
def cycle(kept, retained, confidence, group, model, accelerator, gpus_per_copy, reward_seconds, scheme, link, staleness, **given):
    """Rounds of generation, checking, learning and weight transfer, against the share of samples that is kept."""
    m, card, samplers = models.model(model), accelerators.accelerator(accelerator), given.pop("rollout_gpus")
    fixed = dict(prompts=kept / group, group=group, kept_samples=kept, first_token="prefill", prefill_head="last", **given)
    step_of = lambda g, n: configuration.for_model(m, card, gpus_per_copy=g, rollout_gpus=n, **fixed)
    must_hold(step_of, samplers, gpus_per_copy, "rollout_gpus", model, accelerator)
    base, replicas = step_of(gpus_per_copy, samplers), samplers // gpus_per_copy
    sync = weight_sync.weight_sync(base.policy.weight_bytes, replicas, link, scheme, pieces=256 if scheme == "ring" else 1)
    step_at = lambda share: phases.rl_step(base.having(prompts=samples.expected_generated(kept, share) / group))
    roles = lambda share: round_schedule.step_roles(step_at(share), reward_seconds, sync.seconds)
    now = roles(retained)
    times = {role.name: role.seconds for role in now}
    values = {
        "generated": samples.expected_generated(kept, retained),
        "spread": samples.generated_spread(kept, retained),
        "generated_for": samples.generated_for(kept, retained, confidence),
        "step_flops": step_at(retained).step_flops,
        "round_seconds": (whole := round_schedule.round_seconds(now, staleness)),
        "loop_seconds": round_schedule.loop_seconds(now),
        "staleness_needed": round_schedule.staleness_needed(now),
        **{f"seconds: {name}": s for name, s in times.items()},
        "curve": [[share, round_schedule.round_seconds(roles(share), staleness)] for share in PERCENT],
    }
    slowest = max(times, key=lambda name: times[name])
    text = (
        f"{number(values['generated'], 4)} samples must be generated on average to keep {number(kept)}; a round takes "
        f"{clock(whole)}, and {slowest} is its slowest part ({clock(times[slowest])})."
    )
    rows = [[name, clock(s), quantity(s / whole, "%", 3)] for name, s in times.items()]
    return result(
        text,
        values,
        [
            *_cycle_verdicts(values, kept, confidence, staleness, slowest),
            *learner_verdict(base),
            *assumed_shares(card, SHARES, mfu=given["mfu"], mbu=given["mbu"]),
            *measured_parts(step_at(retained).step),
        ],
        [(["role", "seconds of a round>", "busy>"], rows)],
        [_cycle_plot(values, retained, staleness)],
    )


def _cycle_verdicts(v, kept, confidence, staleness, slowest):
    yield (
        None,
        f"{number(v['generated_for'])} generated samples leave {number(kept)} with {quantity(confidence, '%')} certainty; the number "
        f"needed spreads by {number(v['spread'], 3)}.",
    )
    enough = v["staleness_needed"]
    yield (
        staleness >= enough,
        (
            f"The loop takes {clock(v['loop_seconds'])}. "
            + (
                f"With a staleness of {number(enough)} {slowest} never waits."
                if staleness < enough
                else f"{slowest.capitalize()} never waits; more staleness shortens nothing."
            )
        ),
    )


def _cycle_plot(v, retained, staleness):
    size, unit = scaled(max(s for _, s in v["curve"]))
    series = [
        Line(f"staleness {staleness}", [(100 * share, s / size) for share, s in v["curve"]]),
        Line("yours", [(100 * retained, v["round_seconds"] / size)], "points", ("yours",)),
    ]
    alt = (
        f"Round time against the share of samples kept, falling from {clock(v['curve'][0][1], 3)} at 5% to "
        f"{clock(v['curve'][-1][1], 3)} at 100%; yours: {clock(v['round_seconds'], 3)}."
    )
    return plot.lines(
        series, Axis("samples kept (%)", low=0, high=100), Axis(f"round ({unit})"), alt, "rl-cycle", 220
    ), "Time from one update to the next once the start is over, if every role takes the rounds in turn on machines of its own."

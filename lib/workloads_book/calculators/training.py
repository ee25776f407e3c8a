"""Calculators of training: memory and FLOPs of an update, the split of a budget by a scaling law."""

from functools import lru_cache
from math import ceil

from workloads.counts import flops, parameter_counts, training_memory
from workloads.facts import accelerators, layers, models
from workloads.learning import scaling
from workloads.times import roofline
from workloads.units import GIGA, HOUR, number, quantity
from workloads_book.studies import backpropagation, graph_memory, lifetime, optimizer, training_batches, transformer_graph

from .. import plot
from ..plot import Axis, Line
from .common import ATTENTION, CARDS, PERCENT, assumed_shares, clock, efficiencies, measured, plain
from .forms import calculator, choice, count, doublings, group, num, possible, result

# training ---------------------------------------------------------------------------------------------------
SHARES = {"mfu": 0.4, "mbu": 0.7}
TRAINED = {"all weights": None, "LoRA on attention": ("attention",), "LoRA on attention and FFN": ("attention", "ffn", "shared experts")}
# sizes that the walk through a training step knows; a layer with any other is refused there
_KNOWN = {"heads", "kv_heads", "head_dim", "value_dim", "qkv_bias", "qk_norm", "latent", "rope_dim", "query_rank"}
_KNOWN |= {"ffn", "experts", "active_experts", "expert_ffn", "shared_experts"}


def _is_walked(m):
    parts = [part for _, layer in m.stack for part in (layer.mixer, layer.ffn)]
    plain_parts = all(type(part) is not layers.Plain and getattr(part, "qk_norm", True) != "all" for part in parts)
    return not m.positions and plain_parts and not any(size for part in parts for name, size in vars(part).items() if name not in _KNOWN)


WALKED = [name for name in ATTENTION if _is_walked(models.model(name))]


@lru_cache(maxsize=8)
def _training_graph(model, tokens, trained, rank):
    m, parts = models.model(model), TRAINED[trained]
    if parts is None:
        return transformer_graph.transformer(m, tokens)
    names = tuple(w.name for w in parameter_counts.matrices(m) if w.part in parts)
    return transformer_graph.transformer(m, tokens, trained=lambda weight: False, lora_rank=rank, lora_on=names)


@calculator(
    "training",
    "Memory and FLOPs of training",
    "What must be kept, what is computed, and how long does an update take?",
    choice("model", "Model", WALKED),
    count("gpus", "GPUs that share the state evenly", 8, "", 1, 10**5, doublings(1, 1024)),
    count("tokens", "Tokens of a sequence", 8192, "tokens", 1, 2**20, doublings(128, 2**17)),
    choice("trained", "Trained", tuple(TRAINED)),
    choice("recipe", "Bytes a trained parameter", tuple(training_memory.RECIPES)),
    choice("recompute", "Recomputed in the backward pass", ("nothing", "layers", "stop early")),
    *group(
        "Update",
        count("sequences", "Sequences on a GPU at once", 1, "", 1, 4096, doublings(1, 64)),
        count("micro_batches", "Such batches before an update", 8, "", 1, 4096, doublings(1, 128)),
    ),
    *group(
        "Adapters",
        count("rank", "Rank of the adapters", 16, "", 1, 4096, doublings(1, 256)),
        num("frozen_bytes", "Bytes of a frozen weight in the layers", 2, "B", 0.25, 4),
        num("unquantised_bytes", "Of one in embedding, head, norms (empty: the same, at least 2)", None, "B", 0.25, 4, optional=True),
    ),
    *group(
        "Machine",
        choice("accelerator", "Accelerator", CARDS),
        *efficiencies(**SHARES),
        num("overhead", "Memory over what is counted, for buffers and fragments", 1.25, "", 1, 4),
    ),
)
def train(model, accelerator, gpus, mfu, mbu, tokens, sequences, micro_batches, trained, rank, recipe, recompute, overhead, **frozen):
    """State, activations and FLOPs of one update; its time on so many accelerators."""
    m = models.model(model)
    card = accelerators.accelerator(accelerator)
    graph = _training_graph(model, tokens, trained, rank)
    state = graph_memory.training_state_bytes(graph, recipe, **frozen)
    forward = backpropagation.forward_flops(graph)
    backward = backpropagation.backward_flops(graph)
    again = flops.training(m, tokens, recompute=recompute).recomputed.total
    updated = training_batches.update_tokens(gpus * sequences, tokens, micro_batches)
    learnt = sum(w.parameters for w in transformer_graph.weights(graph).values() if w.trained)
    batches = gpus * sequences * micro_batches
    kept = training_memory.ActivationBytes(*(sequences * part for part in graph_memory.activation_bytes(graph, recompute)))
    seconds = roofline.compute_seconds(batches * (forward + backward + again), gpus * card.peak(), mfu)
    writing = roofline.transfer_seconds(optimizer.update_traffic(learnt, recipe).total, gpus * card.bandwidth, mbu)
    held = state.total / gpus + kept.total
    values = {
        "state_bytes": state.total,
        **{f"state: {name}": v for name, v in plain(state).items()},
        "activation_bytes": kept.total,
        **{f"activations: {name}": v for name, v in kept._asdict().items()},
        "held_bytes": held,
        "gpus_needed": _gpus_needed(state.total, kept.total, card.memory_bytes),
        "trained_parameters": learnt,
        "forward_flops": forward,
        "backward_flops": backward,
        "recomputed_flops": again,
        "update_flops": batches * (forward + backward + again),
        "update_tokens": updated.inputs,
        "compute_seconds": seconds,
        "optimizer_seconds": writing,
        "rule": (forward + backward + again) / (parameter_counts.parameters(m).total * tokens),
    }
    update = f"An update of {number(updated.inputs)} tokens is {quantity(values['update_flops'], 'FLOP')}"
    if held > card.memory_bytes:
        text = f"It does not fit: {_held(values, gpus, card)} {_what_would_fit(values, recompute)} {update}."
    else:
        text = f"{update} and takes {clock(seconds + writing, 3)}; {_held(values, gpus, card)}"
    bound = roofline.compute_seconds(batches * flops.training(m, tokens).total, gpus * card.peak())  # causal, nothing recomputed
    usual = (
        measured("An update", bound, "train", experts=bool(parameter_counts.parameters(m).experts), chips=gpus, tokens=tokens)
        if trained == "all weights"
        else ()
    )
    rows = [[name.replace("_", " "), quantity(v, "B"), quantity(v / gpus, "B")] for name, v in plain(state).items()]
    rows += [[_KEPT[recompute == "nothing"].get(name, name.replace("_", " ")), "", quantity(v, "B")] for name, v in kept._asdict().items()]
    work = [["forward", quantity(forward, "FLOP")], ["backward", quantity(backward, "FLOP")], ["recomputed", quantity(again, "FLOP")]]
    return result(
        text,
        values,
        [*_train_verdicts(values, card, recompute, overhead), *assumed_shares(card, SHARES, mfu=mfu, mbu=mbu), *usual],
        [(["held", "in all>", "on each GPU>"], rows), (["one sequence", "work>"], work)],
        [_memory_bars(state, kept, gpus, card)],
    )


_LOGITS = {"logits": "logits, in BF16 and twice in FP32"}
_KEPT = {True: {"layers": "what all layers keep besides"} | _LOGITS, False: {"layers": "one layer, computed again"} | _LOGITS}


def _gpus_needed(state, kept, memory_bytes):
    """Smallest number of GPUs over which the state can be spread so that one holds its share beside the activations;
    None if none.
    """
    return ceil(state / (memory_bytes - kept)) if kept < memory_bytes else None


def _each(gpus):
    return "one GPU" if gpus == 1 else f"each of {number(gpus)} GPUs"


def _held(v, gpus, card):
    holds = "holds" if v["held_bytes"] <= card.memory_bytes else "would hold"
    return (
        f"{_each(gpus)} {holds} at least {quantity(v['held_bytes'], 'B')}, {quantity(v['state_bytes'] / gpus, 'B')} of "
        f"training state and {quantity(v['activation_bytes'], 'B')} of activations, and has {quantity(card.memory_bytes, 'B')}."
    )


def _what_would_fit(v, recompute):
    if v["gpus_needed"]:
        return f"“GPUs that share the state evenly” would have to be at least {number(v['gpus_needed'])}."
    less = "“Tokens of a sequence” or “Sequences on a GPU at once” would have to be fewer"
    return f"The activations alone exceed it: {less}{', or layers recomputed' if recompute == 'nothing' else ''}."


def _train_verdicts(v, card, recompute, overhead):
    held, room = v["held_bytes"], card.memory_bytes
    holds = "holds" if held <= room else "would hold"
    told = f"A GPU {holds} at least {quantity(held, 'B')} of state and activations; it has {quantity(room, 'B')}"
    if held > room:
        yield False, f"{told}: this cannot run."
    elif overhead * held > room:
        yield None, f"{told}. This may be too little: with buffers and fragments, {overhead:g} times as much, it would not fit."
    else:
        yield True, f"{told}, enough for {overhead:g} times as much, with buffers and fragments."
    yield (
        None,
        f"{number(v['rule'], 4)} FLOPs a parameter and token. The rules say 6 for all weights and 4 for "
        f"adapters{', and 2 more to recompute' if recompute != 'nothing' else ''}.",
    )
    if v["optimizer_seconds"] > 0 and held <= room:
        yield (
            None,
            f"The update itself moves memory for {quantity(v['optimizer_seconds'], 's', 3)}, beside {clock(v['compute_seconds'], 3)} "
            "of arithmetic.",
        )


def _memory_bars(state, kept, gpus, card):
    parts = {
        "weights": state.weights / gpus,
        "gradients": state.gradients / gpus,
        "master weights": state.master_weights / gpus,
        "moments": (state.first_moment + state.second_moment) / gpus,
        "activations": kept.total - kept.logits,
        "logits": kept.logits,
    }
    lengths = [v / GIGA for v in parts.values()]
    row = f"at least {quantity(sum(parts.values()), 'B')} on {_each(gpus)}"
    alt = (
        "Memory of a GPU: "
        + ", ".join(f"{name} {number(v, 3)} GB" for name, v in zip(parts, lengths))
        + f"; capacity {quantity(card.memory_bytes, 'B')}."
    )
    mark = card.memory_bytes / GIGA, f"capacity {quantity(card.memory_bytes, 'B')}"
    caption = (
        "Memory of one GPU, training state shared evenly. A lower bound: gathered weights, gradients of activations, buffers and "
        "fragments come on top."
    )
    return plot.bars([(row, plot.stacked(lengths))], list(parts), Axis("memory (GB)"), alt, "training", mark), caption


# scaling law ------------------------------------------------------------------------------------------------
LAWS = list(scaling.published_laws())


@calculator(
    "scaling",
    "Scaling law: split of a budget, and break-even",
    "How large and how long should a model be trained, and when does a smaller one trained longer pay?",
    choice("law", "Law", LAWS, "chinchilla-refit"),
    num("budget", "Training budget", 5.76e23, "FLOP", 1e15, 1e30, [m * 10.0**k for k in range(18, 28) for m in (1, 2, 5)]),
    num(
        "parameters",
        "A smaller model of your choice",
        20e9,
        "parameters",
        1e5,
        1e14,
        [m * 10.0**k for k in range(7, 13) for m in (1, 2, 5)],
    ),
    num("calls", "Calls over the life", 1e11, "calls", 1, 1e18, [m * 10.0**k for k in range(6, 16) for m in (1, 2, 5)]),
    *group(
        "Calls", count("prompt", "Prompt of a call", 512, "tokens", 1, 2**20), count("output", "Output of a call", 128, "tokens", 1, 2**20)
    ),
    *group(
        "Device",
        choice("accelerator", "Accelerator", CARDS),
        num("mfu", "Share of the compute peak reached (MFU)", SHARES["mfu"], "", 0.001, 1, PERCENT),
    ),
    presets={"Chinchilla's budget": {}, "A thousandth of it": dict(budget=5.76e20, parameters=1e9, calls=1e9)},
    exact=False,
)
def allocation(law, budget, parameters, prompt, output, calls, accelerator, mfu):
    """Compute-optimal split of a budget by a published law, and the calls after which a smaller model of equal loss has
    paid.
    """
    fitted = scaling.published_laws()[law]
    best_n = scaling.optimal_parameters(fitted, budget)
    best_d = scaling.optimal_tokens(fitted, budget)
    best = scaling.loss(fitted, best_n, best_d)
    own_tokens = budget / (6 * parameters)
    rate = mfu * accelerators.accelerator(accelerator).peak()
    needed = possible(lambda: scaling.tokens_for_loss(fitted, parameters, best))
    crossing = possible(lambda: lifetime.crossing_calls(fitted, parameters, best_n, best, prompt, output))
    extra = None if needed is None else flops.rule_6n(parameters, needed) - budget
    values = {
        "optimal_parameters": best_n,
        "optimal_tokens": best_d,
        "tokens_per_parameter": scaling.tokens_per_parameter(best_d, best_n),
        "loss": best,
        "own_tokens": own_tokens,
        "own_loss": scaling.loss(fitted, parameters, own_tokens),
        "tokens_for_loss": needed,
        "extra_flops": extra,
        "crossing_calls": crossing,
        "device_hours": roofline.compute_seconds(budget, rate) / HOUR,
        "exponents": list(scaling.allocation_exponents(fitted)),
    }
    text = (
        f"{number(budget, 3)} FLOPs train {_big(best_n)} parameters on {_big(best_d)} tokens to {number(best, 4)} nats/token; "
        f"{_big(parameters)} parameters reach {number(values['own_loss'], 4)} with the same budget."
    )
    rows = [
        ["parameters", _big(best_n), _big(parameters)],
        ["tokens, same budget", _big(best_d), _big(own_tokens)],
        ["loss (nats/token)", number(best, 5), number(values["own_loss"], 5)],
        ["tokens to the optimum's loss", _big(best_d), "out of reach" if needed is None else _big(needed)],
        [
            "training to it (device-hours)",
            number(values["device_hours"], 4),
            "" if needed is None else number(flops.rule_6n(parameters, needed) / rate / HOUR, 4),
        ],
        ["FLOPs of a call", *(quantity(lifetime.call_flops(n, prompt, output), "FLOP", 4) for n in (best_n, parameters))],
    ]
    figures = [_isoflop_plot(fitted, budget, best_n, parameters)]
    verdicts = [*_scaling_verdicts(values, parameters, calls), *assumed_shares(accelerators.accelerator(accelerator), SHARES, mfu=mfu)]
    return result(text, values, verdicts, [(["", "compute-optimal>", "yours>"], rows)], figures)


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
        yield (
            pays,
            f"Trained on {_big(v['tokens_for_loss'])} tokens it reaches the optimum's loss, and has repaid the longer training after "
            f"{_big(crossing)} calls; {_big(calls)} are planned.",
        )
    yield (
        None,
        f"Optimal parameters grow as the {number(v['exponents'][0], 3)}th power of the budget, tokens as the "
        f"{number(v['exponents'][1], 3)}th. A law holds for its own data, tokenizer and range.",
    )


def _isoflop_plot(law, budget, best_n, parameters):
    reach = max(30, 2 * best_n / parameters, 2 * parameters / best_n)
    sizes = [best_n * reach ** (k / 24) for k in range(-24, 25)]
    at = lambda n: (n / GIGA, scaling.loss(law, n, budget / (6 * n)))
    curve = [at(n) for n in sizes]
    low = min(y for _, y in curve)
    top = max(1.12 * low, at(parameters)[1] * 1.01)
    series = [
        Line("same budget", curve),
        Line("optimum", [at(best_n)], "points", ("optimum",)),
        Line("yours", [at(parameters)], "points", ("yours",)),
    ]
    alt = (
        f"Loss against parameters at one training budget, a valley with its lowest point at {_big(best_n)} parameters; your "
        f"{_big(parameters)} lie at {number(at(parameters)[1], 4)} nats/token."
    )
    return plot.lines(
        series, Axis("parameters (10⁹)", log=True), Axis("loss (nats/token)", low=low - 0.1 * (top - low), high=top), alt, "scaling", 220
    ), "Loss by the law for every split of the budget between parameters and tokens."

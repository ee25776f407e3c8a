"""Calculators of training: memory and FLOPs of an update, the split of a budget by a scaling law."""

from functools import lru_cache

from . import budgets, flops, hardware, memory, models, plot, roofline, scaling, training
from .calculators_common import ATTENTION, CARDS, PERCENT, clock, efficiencies, plain
from .forms import calculator, choice, count, doublings, group, num, possible, result
from .plot import Axis, Line
from .units import GIGA, HOUR, number, quantity

# training ---------------------------------------------------------------------------------------------------
TRAINED = {"all weights": None, "LoRA on attention": ("attention",), "LoRA on attention and FFN": ("attention", "ffn", "shared experts")}


@lru_cache(maxsize=8)
def _training_graph(model, tokens, trained, rank):
    m, parts = models.model(model), TRAINED[trained]
    if parts is None:
        return training.transformer(m, tokens)
    names = tuple(w.name for w in models.matrices(m) if w.part in parts)
    return training.transformer(m, tokens, trained=lambda weight: False, lora_rank=rank, lora_on=names)


@calculator(
    "training",
    "Memory and FLOPs of training",
    "What must be kept, what is computed, and how long does an update take?",
    choice("model", "Model", ATTENTION),
    count("gpus", "GPUs that share the state evenly", 8, "", 1, 10**5, doublings(1, 1024)),
    count("tokens", "Tokens of a sequence", 8192, "tokens", 1, 2**20, doublings(128, 2**17)),
    choice("trained", "Trained", tuple(TRAINED)),
    choice("recipe", "Bytes a trained parameter", tuple(memory.RECIPES)),
    choice("recompute", "Recomputed in the backward pass", ("nothing", "layers", "stop early")),
    *group(
        "Update",
        count("sequences", "Sequences on a GPU at once", 1, "", 1, 4096, doublings(1, 64)),
        count("micro_batches", "Such batches before an update", 8, "", 1, 4096, doublings(1, 128)),
    ),
    *group(
        "Adapters",
        count("rank", "Rank of the adapters", 16, "", 1, 4096, doublings(1, 256)),
        num("frozen_bytes", "Bytes of a frozen weight", 2, "B", 0.25, 4),
    ),
    *group("Machine", choice("accelerator", "Accelerator", CARDS), *efficiencies(0.4, 0.7)),
)
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
    values = {
        "state_bytes": state.total,
        **{f"state: {name}": v for name, v in plain(state).items()},
        "activation_bytes": kept,
        "held_bytes": held,
        "trained_parameters": learnt,
        "forward_flops": forward,
        "backward_flops": backward,
        "recomputed_flops": again,
        "update_flops": batches * (forward + backward + again),
        "update_tokens": updated.inputs,
        "compute_seconds": seconds,
        "optimizer_seconds": writing,
        "rule": (forward + backward + again) / (models.parameters(m).total * tokens),
    }
    text = (
        f"An update of {number(updated.inputs)} tokens is {quantity(values['update_flops'], 'FLOP')} and takes "
        f"{clock(seconds + writing, 3)}; "
        f"the training state is {quantity(state.total, 'B')}, {quantity(state.total / gpus, 'B')} on each of {number(gpus)} GPUs."
    )
    rows = [[name.replace("_", " "), quantity(v, "B")] for name, v in plain(state).items()]
    work = [["forward", quantity(forward, "FLOP")], ["backward", quantity(backward, "FLOP")], ["recomputed", quantity(again, "FLOP")]]
    return result(
        text,
        values,
        _train_verdicts(values, card, recompute),
        [(["state", "bytes>"], rows), (["one sequence", "work>"], work)],
        [_memory_bars(state, kept, gpus, card)],
    )


def _train_verdicts(v, card, recompute):
    fits, what = (
        v["held_bytes"] <= card.memory_bytes,
        "state and activations" if v["activation_bytes"] is not None else "state (activations not counted under recomputation)",
    )
    yield fits, f"A GPU holds {quantity(v['held_bytes'], 'B')} of {what}; it has {quantity(card.memory_bytes, 'B')}."
    yield (
        None,
        f"{number(v['rule'], 4)} FLOPs a parameter and token. The rules say 6 for all weights and 4 for "
        f"adapters{', and 2 more to recompute' if recompute != 'nothing' else ''}.",
    )
    if v["optimizer_seconds"] > 0:
        yield (
            None,
            f"The update itself moves memory for {quantity(v['optimizer_seconds'], 's', 3)}, beside {clock(v['compute_seconds'], 3)} "
            "of arithmetic.",
        )


def _memory_bars(state, kept, gpus, card):
    parts = plain(state)
    lengths = [v / gpus / GIGA for v in parts.values()] + [(kept or 0) / GIGA]
    row = f"{quantity(sum(lengths) * GIGA, 'B')} on each of {number(gpus)} GPUs"
    names = [name.replace("_", " ") for name in parts] + ["activations"]
    alt = (
        "Memory of a GPU: "
        + ", ".join(f"{name} {number(v, 3)} GB" for name, v in zip(names, lengths))
        + f"; capacity {quantity(card.memory_bytes, 'B')}."
    )
    return plot.bars(
        [(row, plot.stacked(lengths))],
        names,
        Axis("memory (GB)"),
        alt,
        "training",
        (card.memory_bytes / GIGA, f"capacity {quantity(card.memory_bytes, 'B')}"),
    ), "Memory of one GPU, training state shared evenly. Parameters of the recipe, and what the backward pass needs of the forward one."


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
        num("mfu", "Share of the compute peak reached (MFU)", 0.4, "", 0.001, 1, PERCENT),
    ),
    presets={"Chinchilla's budget": {}, "A thousandth of it": dict(budget=5.76e20, parameters=1e9, calls=1e9)},
    exact=False,
)
def allocation(law, budget, parameters, prompt, output, calls, accelerator, mfu):
    """Compute-optimal split of a budget by a published law, and the calls after which a smaller model of equal loss has paid."""
    fitted = scaling.published_laws()[law]
    best_n, best_d = scaling.optimal_parameters(fitted, budget), scaling.optimal_tokens(fitted, budget)
    best, own_tokens = scaling.loss(fitted, best_n, best_d), budget / (6 * parameters)
    rate = mfu * hardware.accelerator(accelerator).peak()
    needed = possible(lambda: scaling.tokens_for_loss(fitted, parameters, best))
    crossing = possible(lambda: budgets.crossing_calls(fitted, parameters, best_n, best, prompt, output))
    extra = None if needed is None else flops.rule_6n(parameters, needed) - budget
    values = {
        "optimal_parameters": best_n,
        "optimal_tokens": best_d,
        "tokens_per_parameter": budgets.tokens_per_parameter(best_d, best_n),
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
        ["FLOPs of a call", *(quantity(budgets.call_flops(n, prompt, output), "FLOP", 4) for n in (best_n, parameters))],
    ]
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

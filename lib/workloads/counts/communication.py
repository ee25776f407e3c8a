"""What a model's layers send when they are split: tensor, sequence, context, expert, pipeline and data parallelism."""

from __future__ import annotations

from ..checks import formula, nonnegative, positive, whole
from ..facts.models import Model
from ..numeric import maximum, minimum, total
from ..units import Bytes, Count, Tokens
from .collectives import Traffic, all_gather, all_reduce, dispatch, reduce_scatter, send
from .layout import USUAL, Layout, Plan
from .parameter_counts import stack_counts
from .training_memory import RECIPES


@formula
def forward_traffic(
    model: Model,
    layout: Layout,
    tokens: Tokens,
    batch: Count = 1,
    domain: Count | None = None,
    bytes_per_value: Bytes = 2,
    chunks: Count = 1,
) -> dict[str, Traffic]:
    """What the cards of a pipeline, one of each stage, send together in a forward pass, by the kind of parallelism that
    asks for it.

    Equation:
        with T tokens in all: "tensor": an all-reduce of T/c hidden b behind each mixer and each feed-forward part that
        is split; "context": an all-gather of keys and values; "expert": dispatch and return of T/(c t) a layer;
        "pipeline": T/(c t) hidden b from stage to stage, p v - 1 times.

    Args:
        model: a Model.
        layout: a `Layout` of t tensor, c context, p pipeline and expert parallelism.
        tokens: of each sequence.
        batch: sequences of one copy in the pass.
        domain: cards that one fast domain holds: tensor ranks side by side, then context, data, stages; left out, all.
        bytes_per_value: b, of what is sent (B).
        chunks: v, parts of the model on a stage.

    Returns:
        dict[str, Traffic]: Through all layers; of one card in the mean, that over p.

    Assumptions:
        A lower bound. Sequence parallelism sends as much, as reduce-scatter and all-gather. Left out: embedding, head,
        scores of a router, states of mixers without a cache.

    Source:
        Shoeybi et al. 2019 (tensor); Korthikanti et al. 2022 (sequence); Liu et al. 2023 (context, as a ring); Narayanan
        et al. 2021 (pipeline, each card 1/t of a message).

    Example:
        >>> from workloads.facts.models import model
        >>> forward_traffic(model("Llama-3.1-70B"), Layout(tensor=8), 8192)["tensor"].bytes / 1e9
        37.580963...
    """
    t, c, near = layout.tensor, layout.context, _near(domain)
    width = positive(batch, "batch", "sequences") * positive(bytes_per_value, "bytes_per_value", "B")
    row = nonnegative(tokens, "tokens") * width / c
    tensor = context = expert = Traffic()
    for count, mixer, ffn in stack_counts(model):
        routed = [w for w in ffn.matrices if w.part == "experts" and layout.expert > 1]
        whole_on_a_card = {"experts", "router"} if routed else set()
        split = sum(bool({w.part for w in part.matrices} - whole_on_a_card) for part in (mixer, ffn))
        tensor += count * split * all_reduce(row * model.hidden, t, near(1))
        keys = width * total(sum(s.cached.values()) * s.kept(tokens) / minimum(t, s.heads) for s in mixer.spans)
        context += count * all_gather(keys, c, near(t))
        for w in routed[:1]:
            there = dispatch(row / t, w.inputs, w.copies, w.used, layout.expert, near(1), 1)
            expert += 2 * count * there
    hops = layout.pipeline * whole(chunks, "chunks", least=1) - 1
    pipeline = hops * send(row * model.hidden / t, domain is None or layout.gpus <= domain)
    return dict(tensor=tensor, context=context, expert=expert, pipeline=pipeline)


def _near(domain):
    """Members of a group in one domain that stand so many cards apart."""
    return lambda stride: None if domain is None else maximum(1, whole(domain, "domain", least=1) // stride)


@formula
def data_traffic(
    model: Model, layout: Layout, zero: Count = 1, domain: Count | None = None, weight_bytes: Bytes = 2, gradient_bytes: Bytes = 4
) -> Traffic:
    """What a card sends in a training step so that all copies of its weights stay alike.

    Equation:
        an all-reduce of the gradients over the copies without ZeRO, else a reduce-scatter; an all-gather of the weights
        in stages 1 and 2 after the update, in stage 3 before the forward and again before the backward pass.

    Args:
        model: a Model.
        layout: a `Layout`: copies are those of data and context parallelism, of routed experts perhaps fewer.
        zero: stage of ZeRO, 0 to 3 (FSDP).
        domain: cards that one fast domain holds; left out, all.
        weight_bytes: of a weight as gathered (B).
        gradient_bytes: of a gradient as summed (B).

    Assumptions:
        A lower bound: once a step, whatever the number of micro-batches.

    Source:
        Rajbhandari et al. 2020.

    Example:
        >>> from workloads.facts.models import model
        >>> [round(data_traffic(model("Llama-3.1-8B"), Layout(data=8), zero).bytes / 1e9, 1) for zero in (0, 1, 3)]
        [56.2, 42.2, 56.2]
    """
    gathers, sent, near = (0, 1, 1, 2)[whole(zero, "zero", most=3)], Traffic(), _near(domain)
    weight, gradient = positive(weight_bytes, "weight_bytes", "B"), positive(gradient_bytes, "gradient_bytes", "B")
    for size, copies, ways in layout.groups(model):
        n = copies if size else 1  # a model without experts sums nothing more
        sent += (reduce_scatter if gathers else all_reduce)(size * gradient, n, near(ways))
        sent += gathers * all_gather(size * weight, n, near(ways))
    return sent


@formula
def training_traffic(
    model: Model, layout: Layout, tokens: Tokens, batch: Count, plan: Plan = USUAL, domain: Count | None = None, bytes_per_value: Bytes = 2
) -> dict[str, Traffic]:
    """What a card sends in a training step, mean over stages, by kind.

    Equation:
        forward traffic of its copy / p, twice for forward and backward ("context" three times: the gradients of keys and
        values go back beside them), once more where layers are computed again; and "data", once.

    Args:
        model: a Model.
        layout: a `Layout`.
        tokens: of each sequence.
        batch: sequences over all copies.
        plan: a `Plan`: micro-batches, chunks, ZeRO, recomputation.
        domain: cards that one fast domain holds; left out, all.
        bytes_per_value: of activations as sent (B).

    Example:
        >>> from workloads.facts.models import model
        >>> sent = training_traffic(model("Llama-3.1-70B"), Layout(tensor=8, data=4), 8192, 64)
        >>> {kind: round(part.bytes / 1e9) for kind, part in sent.items() if part.bytes}
        {'tensor': 1203, 'data': 40}
    """
    passes = positive(batch, "batch", "sequences") / (layout.data * plan.micro_batch * layout.pipeline)
    once = forward_traffic(model, layout, tokens, plan.micro_batch, domain, bytes_per_value, plan.chunks)
    times, recipe = dict(tensor=2, context=3, expert=2, pipeline=2), RECIPES[plan.recipe]
    again = lambda kind: times[kind] + (plan.recompute == "layers" and kind != "pipeline")
    sent = {kind: part * (passes * again(kind)) for kind, part in once.items()}
    return sent | {"data": data_traffic(model, layout, plan.zero, domain, recipe.weights, recipe.gradients)}

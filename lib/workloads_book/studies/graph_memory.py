"""Bytes that training a graph holds: what its layers keep for the way back, and the state of the weights that it trains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from workloads import checks
from workloads.counts import training_memory
from workloads.counts.training_memory import LOGIT_COPIES, ActivationBytes, TrainingBytes, logits_bytes
from workloads.numeric import maximum, total
from workloads.units import Bytes, Count

from .backpropagation import Operation, kept_elements
from .transformer_graph import weights


def _layer_input_bytes(graph, bytes_per_value):
    """Bytes of the inputs of all layers: what recomputation keeps of them (B)."""
    sizes = {op.name: op.elements for op in graph}
    return sum(sizes[name] for name in _entered(graph)) * bytes_per_value


def _entered(graph):
    """Names of the outputs that layers take as their inputs."""
    return checks.some((op.reads[0] for op in graph if op.name.endswith(" attention norm")), "graph", "layer")


@checks.formula
def kept_layer_bytes(graph: Sequence[Operation], bytes_per_value: Bytes = 2) -> tuple[Bytes, ...]:
    """Bytes that each layer keeps for its backward pass beside its input, a tuple in forward order (B).

    Equation:
        bytes_per_value x the layer's own part of `kept_elements`; its last sum is the next one's input and is left out.

    Args:
        graph: from `transformer`, which says whether attention is fused.
        bytes_per_value: width of a kept value (B).

    Example:
        >>> from workloads_book.studies.transformer_graph import transformer
        >>> from workloads.facts.models import model
        >>> min(kept_layer_bytes(transformer(model("Qwen3-8B"), 8192)))
        1056964608
    """
    width = checks.positive(bytes_per_value, "bytes_per_value", "B")
    kept = kept_elements(graph)
    sums = {}
    for op in graph:
        if op.name.startswith("layer "):
            layer = op.name.split()[1]
            mine = 0 if op.name == f"layer {layer} ffn sum" else kept.get(op.name, 0)
            sums[layer] = sums.get(layer, 0) + mine * width
    return tuple(checks.some(sums.values(), "graph", "layer"))


@checks.formula
def activation_bytes(
    graph: Sequence[Operation], recompute: str = "nothing", bytes_per_value: Bytes = 2, copies: Sequence[Count] = LOGIT_COPIES
) -> ActivationBytes:
    """Bytes of the activations of one sequence, as `ActivationBytes`; some weights may be frozen or adapted.

    Equation:
        as `training_memory.activation_bytes`, by the walk through the graph.

    Args:
        graph: from `transformer`.
        recompute: as there.
        bytes_per_value: of everything but the logits (B).
        copies: of these, as in `logits_bytes`.

    Example:
        >>> from workloads_book.studies.transformer_graph import transformer
        >>> from workloads.facts.models import model
        >>> graph = transformer(model("Qwen3-8B"), 8192)
        >>> round(activation_bytes(graph).total / 1e9, 2), round(activation_bytes(graph, "layers").total / 1e9, 2)
        (53.05, 16.05)
    """
    checks.one_of(recompute, "recompute", ("nothing", "layers", "stop early", "selective"))
    kept, layers = kept_elements(graph), kept_layer_bytes(graph, bytes_per_value)
    of = lambda *names: bytes_per_value * sum(kept.get(name, 0) for name in names)
    if recompute == "nothing":
        inputs, turned = of(*_entered(graph)), sum(layers)
    else:
        inputs, turned = _layer_input_bytes(graph, bytes_per_value), max(layers)
    if recompute == "selective":
        products = (op for op in graph if op.flops and op.name.startswith("layer ") and not op.name.endswith("ffn down"))
        turned = bytes_per_value * sum(op.elements for op in products)
    last = [op.name for op in graph if op.name.endswith(" ffn sum")][-1]
    return ActivationBytes(inputs, turned, of(last, "norm", "label rows"), logits_bytes(kept.get("head", 0), copies))


@checks.formula
def training_state_bytes(
    graph: Sequence[Operation],
    recipe: str | TrainingBytes = "fp32 gradients",
    frozen_bytes: Bytes = 2,
    unquantised_bytes: Bytes | None = None,
) -> TrainingBytes:
    """Bytes of weights, gradients and optimizer state of mixed-precision training with Adam, some weights frozen.

    Equation:
        `training_memory.training_state_bytes` of the trained parameters, and with the weights, for each frozen one,
        frozen_bytes inside a matrix of the layers, unquantised_bytes in embedding, head and norms.

    Args:
        graph: Operations that say which of their weights are trained.
        recipe: as there.
        frozen_bytes: 2 for BF16, 0.5 for 4 bits, 0.5 + 1/16 for 4 bits with a 4-byte scale for each 64 weights (B).
        unquantised_bytes: left out, as frozen_bytes but at least 2, for what loads a model in 8 or 4 bits narrows its
            matrices only (B).

    Returns:
        TrainingBytes.

    Assumptions:
        Nothing is sharded; activations and buffers come on top.

    Raises:
        ValueError: if no weight is trained.

    Example:
        >>> from workloads_book.studies.backpropagation import Weight
        >>> graph = [
        ...     Operation("x"),
        ...     Operation("y", ("x",), Weight("W", 100, trained=False), 1),
        ...     Operation("z", ("y",), Weight("V", 10), 1),
        ... ]
        >>> training_state_bytes(graph).total
        380
    """
    width = checks.positive(frozen_bytes, "frozen_bytes", "B")
    outer = maximum(width, 2) if unquantised_bytes is None else checks.positive(unquantised_bytes, "unquantised_bytes", "B")
    of_graph = weights(graph).values()
    held = total(w.parameters * (outer if _outside_matrices(w.name) else width) for w in of_graph if not w.trained)
    state = training_memory.training_state_bytes(sum(w.parameters for w in of_graph if w.trained), recipe)
    return replace(state, weights=state.weights + held)


def _outside_matrices(weight):
    return weight in ("embedding", "head") or weight.endswith("norm")

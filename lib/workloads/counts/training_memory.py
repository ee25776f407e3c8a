"""Bytes that training holds: weights, gradients, optimizer state, activations, logits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from .. import checks
from ..checks import formula, keep, nonnegative, one_of, positive
from ..numeric import Number, maximum, total
from ..units import Bytes, Count
from .backpropagation import Operation, kept_elements
from .transformer_graph import weights

# Activations
LOGIT_COPIES = (2, 4, 4)  # bytes a value: logits as the head writes them, the same in FP32, their log-softmax (later its gradient)


@checks.formula
def logits_bytes(values: Number, copies: Sequence[Count] = LOGIT_COPIES) -> Bytes:
    """Bytes of the logits and of what the loss holds beside them (B).

    Equation:
        values x (sum of the bytes of all copies).

    Args:
        values: rows x vocabulary.
        copies: bytes a value of each: BF16 and twice FP32 where the loss is taken in FP32 of whole logits; (2,) where a
            kernel takes the loss in pieces.

    Example:
        >>> logits_bytes(8192 * 151_936)
        12446597120
    """
    return checks.nonnegative(values, "values") * sum(checks.positive(b, "copies", "B") for b in checks.some(copies, "copies", "copy"))


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
        >>> from workloads.counts.transformer_graph import transformer
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


class ActivationBytes(NamedTuple):
    """Bytes of activations at the turn from forward to backward: inputs of the layers, what layers keep besides (all,
    or the one that is computed again), input and output of the final norm with what a compact head gathers, logits
    with their copies.
    """

    layer_inputs: float
    layers: Count
    final_norm: float
    logits: float

    @property
    def total(self) -> Bytes:
        """All four."""
        return self.layer_inputs + self.layers + self.final_norm + self.logits


@checks.formula
def activation_bytes(
    graph: Sequence[Operation], recompute: str = "nothing", bytes_per_value: Bytes = 2, copies: Sequence[Count] = LOGIT_COPIES
) -> ActivationBytes:
    """Bytes of the activations of one sequence, as `ActivationBytes`.

    Equation:
        layer inputs + what all layers keep, or with recomputation the one that keeps most + final norm + logits; of
        layers with "selective" recomputation the outputs of their products, but for the last one.

    Args:
        graph: from `transformer`.
        recompute: as in `flops.training` ("layers" and "stop early" hold the same); or "selective": all that costs no
            product is computed again.
        bytes_per_value: of everything but the logits (B).
        copies: of these, as in `logits_bytes`.

    Assumptions:
        A lower bound of what trainers report: gradients of activations, gathered weights, buffers and fragments come on
        top. The layer is counted beside the logits; a trainer that frees all copies before it and uses the same memory
        again saves the smaller.

    Example:
        >>> from workloads.counts.transformer_graph import transformer
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


@dataclass(frozen=True)
class TrainingBytes:
    """Bytes of training state: of one parameter in a recipe, or of a whole model."""

    weights: float
    gradients: float
    master_weights: float
    first_moment: float
    second_moment: float

    def __post_init__(self):
        keep(self, nonnegative, "B", *vars(self))

    @property
    def total(self) -> Bytes:
        """Sum of all five."""
        return self.weights + self.gradients + self.master_weights + self.first_moment + self.second_moment


RECIPES = {
    "fp32 gradients": TrainingBytes(2, 4, 4, 4, 4),
    "bf16 gradients": TrainingBytes(2, 2, 4, 4, 4),
    "both gradients": TrainingBytes(2, 6, 4, 4, 4),
    "8-bit adam": TrainingBytes(2, 4, 4, 1, 1),
    "no master": TrainingBytes(2, 4, 0, 4, 4),
}


@formula
def training_state_bytes(
    trained: Count | Sequence[Operation],
    recipe: str | TrainingBytes = "fp32 gradients",
    frozen_bytes: Bytes = 2,
    unquantised_bytes: Bytes | None = None,
) -> TrainingBytes:
    """Bytes of weights, gradients and optimizer state of mixed-precision training with Adam.

    Equation:
        trained parameters x (bytes a parameter), item by item, 18 B in all for "fp32 gradients"; and with the weights,
        for each frozen one of a graph, frozen_bytes inside a matrix of the layers, unquantised_bytes in embedding, head
        and norms.

    Args:
        trained: how many parameters, every one trained; or a graph, Operations that say which of their weights are.
        recipe: a name in RECIPES or a TrainingBytes with bytes a parameter. Each named recipe changes one thing of the
            first: "bf16 gradients" 16 B, "both gradients" (BF16 beside FP32) 20 B, "8-bit adam" 12 B (its block scales,
            under 0.04 B, left out), "no master" 14 B.
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
        >>> from workloads.counts.backpropagation import Operation, Weight
        >>> training_state_bytes(8_190_735_360).total
        147433236480
        >>> graph = [
        ...     Operation("x"),
        ...     Operation("y", ("x",), Weight("W", 100, trained=False), 1),
        ...     Operation("z", ("y",), Weight("V", 10), 1),
        ... ]
        >>> training_state_bytes(graph).total
        380
    """
    width = positive(frozen_bytes, "frozen_bytes", "B")
    outer = maximum(width, 2) if unquantised_bytes is None else positive(unquantised_bytes, "unquantised_bytes", "B")
    held = 0
    if isinstance(trained, Sequence) and all(isinstance(op, Operation) for op in trained):
        of_graph = weights(trained).values()
        held = total(w.parameters * (outer if _outside_matrices(w.name) else width) for w in of_graph if not w.trained)
        trained = sum(w.parameters for w in of_graph if w.trained)
    parameters = positive(trained, "trained parameters")
    each = recipe if isinstance(recipe, TrainingBytes) else RECIPES[one_of(recipe, "recipe", tuple(RECIPES))]
    state = TrainingBytes(*(parameters * item for item in vars(each).values()))
    return replace(state, weights=state.weights + held)


def _outside_matrices(weight):
    return weight in ("embedding", "head") or weight.endswith("norm")

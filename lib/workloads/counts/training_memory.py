"""Bytes that training holds: weights, gradients, optimizer state, activations, logits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from .. import checks
from ..checks import formula, keep, nonnegative, one_of, positive
from ..facts.models import Model
from ..numeric import Number, total
from ..units import Bytes, Count, Tokens
from .parameter_counts import stack_counts

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


KEPT = {  # values that a layer keeps for a token of each matrix on the token's way: so many times its inputs, its outputs
    **dict.fromkeys(("query", "key", "value", "query down", "latent down", "router"), (0, 1)),
    **dict.fromkeys(("attention output", "ffn down", "shared experts down"), (1, 0)),
    **dict.fromkeys(("query up", "latent up", "experts down"), (1, 1)),
    **dict.fromkeys((f"{part} {name}" for part in ("ffn", "experts", "shared experts") for name in ("gate", "up")), (0, 1)),
}


def _kept_values(model, layer, mixer, ffn, selective):
    """Values that one layer keeps for one token beside its input (selectively: outputs of its products but for the last one).

    A layer of parts that are not counted so is refused.
    """
    m, found = layer.mixer, {w.name: w for w in (*mixer.matrices, *ffn.matrices)}
    gates, ups, downs = (sum(w.name.endswith(end) for w in ffn.matrices) for end in (" gate", " up", " down"))
    if found.keys() - KEPT.keys() or not found.keys() & {"value", "latent up"} or not gates == ups == downs > 0:
        raise ValueError(f"model must have attention and gated parts in each layer for its activations, got {layer!r} in {model.name}")
    if selective:
        return m.heads * m.value_dim + total(w.used * w.outputs for n, w in found.items() if n != "ffn down")
    turned = m.heads * (m.head_dim + m.rope_dim) if m.latent else (m.heads + m.kv_heads) * m.head_dim * (m.qk_norm is not False)
    return 3 * model.hidden + turned + total(w.used * (w.inputs * KEPT[n][0] + w.outputs * KEPT[n][1]) for n, w in found.items())


@formula
def activation_bytes(
    model: Model,
    tokens: Tokens,
    labels: Tokens | None = None,
    recompute: str = "nothing",
    bytes_per_value: Bytes = 2,
    copies: Sequence[Count] = LOGIT_COPIES,
) -> ActivationBytes:
    """Bytes of the activations of one sequence when every weight is trained, as `ActivationBytes`.

    Equation:
        layer inputs + what all layers keep, or with recomputation of whole layers the one that keeps most + final norm +
        logits. A layer keeps the inputs of its matrices and of its norms, query, key and value as attention meets them, what attention
        gives, gate, up and their product, and of experts also what they and the router give; with "selective"
        recomputation the outputs of its products, but for the last one.

    Args:
        model: a Model whose layers are attention and gated parts.
        tokens: of the sequence.
        labels: rows of the vocabulary head, gathered before it (a compact head); left out, all tokens.
        recompute: as in `flops.training` ("layers" and "stop early" hold the same); or "selective": all that costs no
            product is computed again.
        bytes_per_value: of everything but the logits (B).
        copies: of these, as in `logits_bytes`.

    Assumptions:
        Attention is one kernel that stores no scores. A lower bound of what trainers report: gradients of activations,
        gathered weights, buffers and fragments come on top. The layer is counted beside the logits; a trainer that frees
        all copies before it and uses the same memory again saves the smaller.

    Raises:
        ValueError: for other kinds of layers, by name.

    Example:
        >>> from workloads.facts.models import model
        >>> qwen = model("Qwen3-8B")
        >>> [round(activation_bytes(qwen, 8192, recompute=r).total / 1e9, 2) for r in ("nothing", "layers")]
        [53.05, 16.05]
    """
    one_of(recompute, "recompute", ("nothing", "layers", "stop early", "selective"))
    tokens = checks.whole(tokens, "tokens", least=1)
    rows = tokens if labels is None else checks.whole(labels, "labels", "tokens", least=1, most=tokens)
    width = positive(bytes_per_value, "bytes_per_value", "B")
    selective, stack = recompute == "selective", zip(stack_counts(model), model.stack)
    each = [(n, _kept_values(model, layer, mixer, ffn, selective)) for (_, mixer, ffn), (n, layer) in stack]
    held = total(n * kept for n, kept in each) if selective or recompute == "nothing" else max(kept for _, kept in each)
    ends = (tokens + rows) * model.hidden * width
    inputs = total(n for n, _ in each) * tokens * model.hidden * width
    return ActivationBytes(inputs, held * tokens * width, ends, logits_bytes(rows * model.vocab, copies))


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
def training_state_bytes(trained: Count, recipe: str | TrainingBytes = "fp32 gradients") -> TrainingBytes:
    """Bytes of weights, gradients and optimizer state of mixed-precision training with Adam.

    Equation:
        trained parameters x (bytes a parameter), item by item, 18 B in all for "fp32 gradients".

    Args:
        trained: how many parameters. Frozen ones hold their weights alone, which come on top.
        recipe: a name in RECIPES or a TrainingBytes with bytes a parameter. Each named recipe changes one thing of the
            first: "bf16 gradients" 16 B, "both gradients" (BF16 beside FP32) 20 B, "8-bit adam" 12 B (its block scales,
            under 0.04 B, left out), "no master" 14 B.

    Returns:
        TrainingBytes.

    Assumptions:
        Nothing is sharded; activations and buffers come on top.

    Raises:
        ValueError: if no weight is trained.

    Example:
        >>> training_state_bytes(8_190_735_360).total
        147433236480
    """
    parameters = positive(trained, "trained parameters")
    each = recipe if isinstance(recipe, TrainingBytes) else RECIPES[one_of(recipe, "recipe", tuple(RECIPES))]
    return TrainingBytes(*(parameters * item for item in vars(each).values()))

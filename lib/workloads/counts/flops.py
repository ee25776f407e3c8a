"""FLOP counts of transformer work: prefill, decode, training, and the 2N, 4N and 6N rules beside them.

One multiply-add is 2 FLOPs. Counted: every matrix product. Left out, as is usual: norms, softmax, activations, rotary
positions, residual additions and the embedding look-up (together well below 1% of the products here).
"""

from __future__ import annotations

from dataclasses import astuple, dataclass

from ..checks import flag, formula, nonnegative, one_of, positive, whole
from ..facts.models import Model
from ..numeric import quotient
from ..units import Count, FlopCount, Tokens
from .parameter_counts import absorbs, active_weights, even_spans, matrices, spans


@formula
def pairs(new: Tokens, past: Tokens = 0, causal: bool = True) -> Count:
    """Query-key pairs (count) when new tokens attend to themselves and to a past, in one sequence.

    Equation:
        causal P(P + 1)/2 + P S; full P (P + S).

    Args:
        new: tokens P computed in this call.
        past: tokens S already in the cache.
        causal: whether a token sees only itself and what precedes it (a kernel that multiplies the whole square and
            masks it does the full count).

    Returns:
        Pairs.

    Raises:
        ValueError: unless new is a whole number of at least 0 and past at least 0.

    Example:
        >>> pairs(8192), pairs(8192, causal=False), pairs(1, past=1024)
        (33558528, 67108864, 1025)
    """
    new, past = whole(new, "new", "tokens"), nonnegative(past, "past", "tokens")
    if not flag(causal, "causal"):
        return new * (new + past)
    return quotient(new * (new + 1), 2) + new * past


@formula
def attention_flops_per_pair(model: Model, absorbed: bool = False) -> FlopCount:
    """FLOPs of scores and values for one query-key pair, over all layers and heads (FLOP/pair).

    Equation:
        2 layers heads (width of a key + width of a value); with ordinary heads 4 layers heads head_dim.

    Args:
        model: a Model.
        absorbed: for MLA only: queries meet the cached latent itself (width latent + rope_dim for scores, latent for
            values) instead of keys and values expanded from it.

    Returns:
        FLOP/pair.

    Raises:
        ValueError: where some layer does not meet every pair (windows, blocks, an indexer): see `forward`.

    Example:
        >>> from workloads.facts.models import model
        >>> attention_flops_per_pair(model("Qwen3-8B"))
        589824
    """
    met = even_spans(model)
    return 2 * sum(_widths(met, _known(met, model, absorbed)))


def _known(spans, model, absorbed):
    if flag(absorbed, "absorbed") and not any(span.absorbed for _, span in spans):
        raise ValueError(f"absorbed must be False for attention without a latent, got {absorbed!r} for {model.name}")
    return absorbed


def _widths(spans, absorbed):
    """Multiply-adds of a query-key pair over layers and heads: for scores, for values."""
    pairs_of = [(count, (absorbed and span.absorbed) or span.pair) for count, span in spans]
    return tuple(sum(count * pair[part] for count, pair in pairs_of) for part in (0, 1))


@dataclass(frozen=True)
class Flops:
    """FLOPs (count) of a piece of work by component. Two can be added, and one multiplied by a number."""

    projections: FlopCount
    ffn: FlopCount
    scores: FlopCount
    values: FlopCount
    head: FlopCount

    @property
    def attention(self) -> FlopCount:
        """Scores and values: the part that grows with the number of pairs."""
        return self.scores + self.values

    @property
    def layers(self) -> FlopCount:
        """Everything but the vocabulary head."""
        return self.projections + self.ffn + self.attention

    @property
    def total(self) -> FlopCount:
        """All components."""
        return self.layers + self.head

    def __add__(self, other):
        return Flops(*(a + b for a, b in zip(astuple(self), astuple(other))))

    def __mul__(self, factor):
        return Flops(*(factor * part for part in astuple(self)))

    __rmul__ = __mul__


@formula
def forward(
    model: Model, new: Tokens, past: Tokens = 0, batch: Count = 1, head: str | Count = "all", causal: bool = True, absorbed: bool = False
) -> Flops:
    """FLOPs of one forward pass (prefill, scoring, the forward half of training) by component.

    Equation:
        2 tokens x (weights a token passes through) + pairs x FLOP/pair + 2 rows hidden vocab.

    Args:
        model: a Model.
        new: tokens computed in each sequence.
        past: tokens of each sequence already in the cache.
        batch: sequences of equal length.
        head: positions of each sequence that get a row of logits: "all", "last" (one) or a number of at most `new`.
        causal: whether a token sees only itself and what precedes it (a kernel that multiplies the whole square and
            masks it does the full count).
        absorbed: MLA only, see `attention_flops_per_pair`; without it the latents of the past are expanded again.

    Returns:
        Flops. Experts count as used (active and shared ones), with their router in ffn.

    Raises:
        ValueError: for a count that is not a whole number or out of range.

    Example:
        >>> from workloads.facts.models import model
        >>> forward(model("Qwen3-8B"), 8192).total
        143789331054592
    """
    met = spans(model)
    absorbed = _known(met, model, absorbed)
    batch = positive(batch, "batch", "sequences")
    new, past = whole(new, "new", "tokens", least=1), nonnegative(past, "past", "tokens")
    tokens, seen = new * batch, pairs(new, past, causal) * batch
    uneven = [(count, span) for count, span in met if not span.even]
    if uneven and not causal:
        raise ValueError(f"causal must be True for layers that do not meet every pair, got {causal!r} for {model.name}")
    scores, values = (2 * width * seen for width in _widths([part for part in met if part[1].even], absorbed))
    for part in uneven:
        score, value = _widths([part], absorbed)
        scores, values = scores + 2 * score * part[1].seen(new, past) * batch, values + 2 * value * part[1].seen(new, past) * batch
    expanded = 0 if absorbed else sum(w.active for w in matrices(model) if w.name == "latent up") * past * batch
    rows = _logit_rows(new, head) * batch
    projections = active_weights(model, "attention") * tokens + expanded
    ffn = active_weights(model, "ffn", "router", "experts", "shared experts") * tokens
    return Flops(2 * projections, 2 * ffn, scores, values, 2 * active_weights(model, "head") * rows)


def _logit_rows(new, head):
    if isinstance(head, str):
        return {"all": new, "last": 1}[one_of(head, "head", ("all", "last"))]
    head = whole(head, "head", "positions")
    nonnegative(new - head, "new - head", "positions")
    return head


@formula
def decode_step(model: Model, past: Tokens, batch: Count = 1) -> Flops:
    """FLOPs of one decode step: each sequence computes one token, which attends to its past and to itself.

    Equation:
        forward with new = 1 and one row of logits.

    Args:
        model: a Model.
        past: tokens of each sequence in the cache before the step (a mean will do: the count is linear in it).
        batch: sequences.

    Returns:
        Flops.

    Assumptions:
        MLA queries meet the cached latent itself (absorbed).

    Example:
        >>> from workloads.facts.models import model
        >>> decode_step(model("Qwen3-8B"), past=1024).total
        15740764160
    """
    return forward(model, 1, past, batch, head="last", absorbed=absorbs(model))


@dataclass(frozen=True)
class _TrainingFlops:
    """FLOPs (count) of training on some tokens: forward, backward, and what is computed again in between."""

    forward: Flops
    backward: Flops
    recomputed: Flops

    @property
    def total(self) -> FlopCount:
        """All three."""
        return self.forward.total + self.backward.total + self.recomputed.total


@formula
def training(
    model: Model, new: Tokens, batch: Count = 1, head: str | Count = "all", causal: bool = True, recompute: str = "nothing"
) -> _TrainingFlops:
    """FLOPs of a forward and a backward pass with every weight trained.

    Equation:
        backward = 2 x forward: each product Y = XW returns as two of the same size, dX = dY W^T and dW = X^T dY; scores
        and values likewise.

    Args:
        model: a Model.
        new: tokens computed in each sequence.
        batch: sequences of equal length.
        head: positions of each sequence that get a row of logits: "all", "last" (one) or a number of at most `new`.
        causal: whether a token sees only itself and what precedes it (a kernel that multiplies the whole square and
            masks it does the full count).
        recompute: activation checkpointing of whole layers: "nothing": every activation was kept; "layers": each
            layer's forward runs once more; "stop early": the same, but a layer stops once its last kept input exists:
            its down projection is not repeated.

    Returns:
        TrainingFlops.

    Raises:
        ValueError: for "stop early" with experts: their outputs are needed to train the router.

    Example:
        >>> from workloads.facts.models import model
        >>> training(model("Qwen3-8B"), 8192).total
        431367993163776
    """
    new, batch = whole(new, "new", "tokens", least=1), positive(batch, "batch", "sequences")
    once = forward(model, new, 0, batch, head, causal)
    return _TrainingFlops(once, 2 * once, _recomputed(model, once, new * batch, recompute))


def _recomputed(m, once, tokens, recompute):
    one_of(recompute, "recompute", ("nothing", "layers", "stop early"))
    if recompute == "nothing":
        return Flops(0, 0, 0, 0, 0)
    if recompute == "stop early" and active_weights(m, "experts"):
        raise ValueError(f"recompute must not be 'stop early' for a model with experts, got {m.name}")
    skipped = 2 * tokens * sum(w.active for w in matrices(m) if w.name == "ffn down") if recompute == "stop early" else 0
    return Flops(once.projections, once.ffn - skipped, once.scores, once.values, 0)


@formula
def rule_2n(parameters: Count, tokens: Tokens) -> FlopCount:
    """FLOPs of a forward pass by rule of thumb: 2 a parameter and token.

    Equation:
        2 N D. Each parameter takes part in one multiply-add per token.

    Args:
        parameters: N, that a token meets (count).
        tokens: D, passed through the model (tokens).

    Assumptions:
        No attention over the context; N may or may not contain the embedding table, which does no product.

    Example:
        >>> rule_2n(8e9, 512 * 1024)
        8388608000000000.0
    """
    return 2 * positive(parameters, "parameters") * nonnegative(tokens, "tokens")


@formula
def rule_4n(parameters: Count, tokens: Tokens) -> FlopCount:
    """FLOPs of training adapters (LoRA) on a frozen model by rule of thumb: 4 a parameter of the frozen model and
    token.

    Equation:
        4 N D: 2 N forward, 2 N for the gradient of the activations, which must pass back through every frozen matrix to
        reach the adapters below it; the 2 N of the frozen weights' own gradients fall away.

    Args:
        parameters: N, that a token meets (count).
        tokens: D, trained on (tokens).

    Assumptions:
        Adapters are small and reach down to the first layer. With adapters in the upper layers only, the backward pass
        ends earlier and costs less.

    Example:
        >>> rule_4n(8e9, 1)
        32000000000.0
    """
    return 4 * positive(parameters, "parameters") * nonnegative(tokens, "tokens")


@formula
def rule_6n(parameters: Count, tokens: Tokens) -> FlopCount:
    """FLOPs of training by rule of thumb: 6 a parameter and token.

    Equation:
        6 N D: 2 N forward, 2 N for the gradient of the activations, 2 N for that of the weights.

    Args:
        parameters: N, that a token meets (count).
        tokens: D, trained on (tokens).

    Assumptions:
        As in `rule_2n`; every weight is trained.

    Example:
        >>> rule_6n(8_190_735_360, 8192)
        402591024414720
    """
    return 6 * positive(parameters, "parameters") * nonnegative(tokens, "tokens")

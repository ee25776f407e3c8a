"""One pass of a model over tokens, as the FLOPs it computes and the bytes it moves: passes add, and multiply by a number."""

from __future__ import annotations

from dataclasses import dataclass

from ..checks import formula, nonnegative, positive, whole
from ..facts.formats import BF16, Formats
from ..facts.models import Model
from ..units import Bytes, Count, FlopCount, FlopsPerByte, Tokens
from . import flops, memory
from .layout import SINGLE, Layout
from .parameter_counts import absorbs, spans
from .request_tokens import Request


@dataclass(frozen=True)
class Pass:
    """FLOPs (count) and bytes moved (B) of some work, over all accelerators that do it: two add, one times a number.

    Attributes:
        flops: matrix work (count).
        bytes: what crosses between memory and chips (B).

    Raises:
        ValueError: for a number below 0.

    Example:
        >>> Pass(6, 2) + 2 * Pass(1, 1)
        Pass(flops=8, bytes=4)
    """

    flops: FlopCount
    bytes: Bytes

    def __post_init__(self):
        for name, unit in (("flops", "FLOP"), ("bytes", "B")):  # arrays too, for many batches or contexts at once
            object.__setattr__(self, name, nonnegative(getattr(self, name), name, unit))

    def __add__(self, other):
        return Pass(self.flops + other.flops, self.bytes + other.bytes)

    def __mul__(self, factor):
        return Pass(factor * self.flops, factor * self.bytes)

    __rmul__ = __mul__

    @property
    def intensity(self) -> FlopsPerByte:
        """Arithmetic intensity (FLOP/B)."""
        return self.flops / positive(self.bytes, "bytes of a pass", "B")


@formula
def prefill(
    model: Model, request: Request | Tokens, batch: Count = 1, formats: Formats = BF16, layout: Layout = SINGLE, head: str | Count = "last"
) -> Pass:
    """The prefill of requests: new tokens computed, past ones read from the cache, one row of logits each.

    Args:
        model: a Model.
        request: a Request, or the number of new tokens.
        batch: equal requests over all copies.
        formats: a `Formats`: of weights and cache.
        layout: a `Layout` of tensor and data parallelism; another split is refused by name.
        head: rows of logits: "last", "all", or a number (answers read off one pass).

    Returns:
        Pass: The bytes are a lower bound: weights and cache cross once, activations stay on the chips.

    Example:
        >>> from workloads.facts.models import model
        >>> prefill(model("Qwen3-8B"), Request(new=2048, output=4, past=6144)).flops
        37110366076928
    """
    if not isinstance(request, Request):
        request = Request(request, 1)
    new, past = request.new, request.past
    copies, own, cached = _split(model, batch, layout, new + past)
    work = flops.forward(model, new, past, batch, head=head).total
    weights = memory.prefill_bytes(model, new, past, own, formats.weight_bytes, formats.cache_bytes)
    extra = (cached - 1) * memory.kv_bytes(model, new + past, own, formats.cache_bytes)
    return Pass(work, copies * (weights + extra))


@formula
def decode(
    model: Model, context: Tokens | Request, batch: Count = 1, formats: Formats = BF16, layout: Layout = SINGLE, rows: Count = 1
) -> Pass:
    """One decode step: each sequence computes one token behind its context. Of a Request: all its decode steps together.

    Equation:
        of a Request G - 1 steps, at its mean context where FLOPs and bytes are linear in it, else one by one.

    Args:
        model: a Model.
        context: tokens of each sequence cached before the step (a mean will do), or a Request.
        batch: sequences over all copies, which decode together.
        formats: a `Formats`.
        layout: a `Layout` of tensor and data parallelism.
        rows: tokens of each sequence that the step computes, 1 + those that a draft has guessed: weights and cache are
            read once for all of them.

    Returns:
        Pass: the bytes a lower bound: each copy reads its weights once, each card the cache that it stores.

    Example:
        >>> from workloads.facts.models import model
        >>> decode(model("Qwen3-8B"), 2742, 64).bytes
        41023531008
        >>> decode(model("Qwen3-8B"), Request(new=1929, output=2)) == decode(model("Qwen3-8B"), 1929)
        True
    """
    if isinstance(context, Request):
        steps, start = context.output - 1, context.past + context.new
        if all(span.even for _, span in spans(model)):
            return steps * decode(model, start + (steps - 1) / 2, batch, formats, layout, rows)
        return sum((decode(model, start + step, batch, formats, layout, rows) for step in range(steps)), Pass(0, 0))
    context = nonnegative(context, "context", "tokens")
    copies, own, cached = _split(model, batch, layout, context + 1)
    moved = memory.decode_traffic(model, context, own, formats.weight_bytes, formats.cache_bytes)
    rest = moved.weights + moved.embedding_rows + cached * (moved.kv_read + moved.kv_written)
    if whole(rows, "rows", least=1) > 1:  # experts that the other rows pick, their embeddings and entries
        more = (rows - 1) * (moved.embedding_rows + cached * moved.kv_written)
        rest = rest + memory.weights_read_per_step(model, formats.weight_bytes, own * rows) - moved.weights + more
    work = flops.forward(model, rows, context, batch, absorbed=absorbs(model)).total
    return Pass(work, copies * (rest + moved.state if memory.state_bytes(model) else rest))


@formula
def training_step(model: Model, tokens: Tokens, batch: Count = 1, formats: Formats = BF16, recompute: str = "nothing") -> Pass:
    """Forward and backward pass over sequences with every weight trained, one row of logits a token; the optimizer is
    apart.

    Args:
        model: a Model.
        tokens: of each sequence.
        batch: sequences.
        formats: a `Formats`.
        recompute: activation checkpointing of whole layers: "nothing": every activation was kept; "layers": each
            layer's forward runs once more; "stop early": the same, but a layer stops once its last kept input exists:
            its down projection is not repeated.

    Returns:
        Pass: The bytes are a lower bound: weights are read forward and backward, gradients of their size written once.

    Example:
        >>> from workloads.facts.models import model
        >>> training_step(model("Qwen3-8B"), 8192).flops
        431367993163776
    """
    moved = 3 * memory.weight_bytes(model, formats.weight_bytes)
    return Pass(flops.training(model, tokens, batch, recompute=recompute).total, moved)


def _split(model, batch, layout, tokens):
    """Copies of the weights, sequences of each, and how often a copy's cards store a sequence's cache."""
    copies = layout.only("tensor", "data").data
    batch = positive(batch, "batch", "sequences")
    return copies, batch if copies == 1 else batch / copies, layout.kv_copies(model, tokens)

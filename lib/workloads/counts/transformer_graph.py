"""A transformer as a graph of operations, from the embedding to the loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from .. import checks
from ..facts.models import Model
from ..units import Count, FlopCount, Tokens
from . import flops as flops_module
from . import parameter_counts
from .backpropagation import Operation, Weight


# A transformer as a graph
@checks.formula
def transformer(
    model: Model,
    tokens: Tokens,
    labels: Tokens | None = None,
    trained: Callable[[str], bool] = lambda weight: True,
    lora_rank: Count = 0,
    lora_on: Sequence[str] = (),
    fused: bool = True,
) -> tuple[Operation, ...]:
    """Graph of one training forward pass over a sequence, down to the loss.

    Args:
        model: a Model.
        tokens: of the sequence, causal pairs.
        labels: rows of the vocabulary head, gathered before it (a compact head); left out, all tokens.
        trained: whether a weight is trained, asked by its name: "embedding", "layer 0 query", "layer 0 ffn down",
            "norm", "head".
        lora_rank: rank r of adapters W + A B on the matrices named in lora_on ("query", "ffn up", ...), always trained;
            0: none.
        lora_on: names of matrices, such as "query" or "ffn up".
        fused: attention in one kernel, whose scores are multiplied in a product but never stored (their second
            computation in its backward pass is left out). False: the scores after the softmax are stored, a full square
            for each query head.

    Returns:
        Tuple of Operations. Names begin with "layer i " inside layers.

    Assumptions:
        Attention keeps its output. SwiGLU keeps both inputs and its product, norms keep their input.

    Raises:
        ValueError: for adapters on a matrix that the model lacks or that its routed experts hold.

    Example:
        >>> from workloads.counts.backpropagation import backward_flops, forward_flops
        >>> from workloads.facts.models import model
        >>> graph = transformer(model("Qwen3-8B"), 8192)
        >>> forward_flops(graph), backward_flops(graph)
        (143789331054592, 287578662109184)
    """
    graph = _Transformer(model, tokens, trained, lora_rank, lora_on, checks.flag(fused, "fused"))
    rows = tokens if labels is None else checks.whole(labels, "labels", "tokens", least=1)
    checks.nonnegative(tokens - rows, "tokens - labels", "tokens")
    x = graph.add("embedding", weight=graph.weight("embedding", model.vocab * model.hidden), elements=tokens * model.hidden)
    for layer in graph.layers():
        x = graph.ffn(layer, graph.attention(layer, x))
    x = graph.norm("norm", x, model.hidden)
    if labels is not None:
        x = graph.add("label rows", x, elements=rows * model.hidden)
    head = graph.weight("embedding" if model.tied else "head", model.vocab * model.hidden)
    logits = graph.add("head", x, weight=head, flops=2 * rows * model.hidden * model.vocab, elements=rows * model.vocab)
    graph.add("loss", logits, saves=(logits,))
    return tuple(graph.operations)


class _Layer(NamedTuple):
    """One layer of the graph: its number, its mixer's shape, its matrices by name, what its mixer counts."""

    number: int
    mixer: Any
    matrices: dict
    counts: Any

    @property
    def at(self) -> str:
        """How names inside it begin."""
        return f"layer {self.number} "


class _Transformer:
    def __init__(self, model, tokens, trained, lora_rank, lora_on, fused):
        self.model, self.tokens, self.trained, self.fused, self.operations = model, tokens, trained, fused, []
        self.pairs = flops_module.pairs(checks.whole(tokens, "tokens", least=1))
        self.rank = checks.whole(lora_rank, "lora_rank", least=1 if lora_on else 0)
        self.lora_on = tuple(lora_on)
        possible = dict.fromkeys(w.name for w in parameter_counts.matrices(model) if w.part in ("attention", "ffn", "shared experts"))
        for name in self.lora_on:
            checks.one_of(name, "lora_on", tuple(possible))

    def layers(self) -> Iterator[_Layer]:
        stack = zip(self.model.stack, parameter_counts.stack_counts(self.model))
        every = [(layer.mixer, *parts) for (count, layer), (_, *parts) in stack for _ in range(count)]
        for number, (shape, mixer, ffn) in enumerate(every):
            yield _Layer(number, shape, {w.name: w for w in mixer.matrices + ffn.matrices}, mixer)

    def weight(self, name: str, parameters: Count) -> Weight:
        return Weight(name, parameters, bool(self.trained(name)))

    def add(
        self, name: str, *reads: str, weight: Weight | None = None, flops: FlopCount = 0, elements: Count = 0, saves: Sequence[str] = ()
    ) -> str:
        self.operations.append(Operation(name, reads, weight, flops, elements, saves))
        return name

    def norm(self, name: str, read: str, width: Count, copies: Count = 1) -> str:
        return self.add(name, read, weight=self.weight(name, width), elements=self.tokens * width * copies, saves=(read,))

    def linear(self, layer: _Layer, name: str, read: str) -> str:
        w, full = layer.matrices[name], layer.at + name
        bias = w.outputs if layer.mixer.qkv_bias and name in ("query", "key", "value") else 0
        out = self.add(
            full,
            read,
            weight=self.weight(full, w.parameters + bias),
            flops=2 * self.tokens * w.active,
            elements=self.tokens * w.outputs * w.used,
        )
        return self.adapter(full, read, out, w) if name in self.lora_on else out

    def adapter(self, full: str, read: str, out: str, w: parameter_counts.Matrix) -> str:
        low = self.add(
            f"{full} A",
            read,
            weight=Weight(f"{full} A", w.inputs * self.rank),
            flops=2 * self.tokens * w.inputs * self.rank,
            elements=self.tokens * self.rank,
        )
        high = self.add(
            f"{full} B",
            low,
            weight=Weight(f"{full} B", self.rank * w.outputs),
            flops=2 * self.tokens * self.rank * w.outputs,
            elements=self.tokens * w.outputs,
        )
        return self.add(f"{full} sum", out, high, elements=self.tokens * w.outputs)

    def rotated(self, layer: _Layer, name: str, read: str, heads: Count) -> str:
        m, full = layer.mixer, f"{layer.at}{name} rotated"
        elements = self.tokens * heads * (m.head_dim + m.rope_dim)
        if m.qk_norm:
            return self.add(full, read, weight=self.weight(f"{layer.at}{name} norm", m.head_dim), elements=elements, saves=(read,))
        return self.add(full, read, elements=elements)

    def attention(self, layer: _Layer, x: str) -> str:
        m, at = layer.mixer, layer.at
        y = self.norm(at + "attention norm", x, self.model.hidden)
        if m.query_rank:
            query = self.linear(layer, "query up", self.norm(at + "query down norm", self.linear(layer, "query down", y), m.query_rank))
        else:
            query = self.linear(layer, "query", y)
        if m.latent:
            key = value = self.linear(layer, "latent up", self.norm(at + "latent norm", self.linear(layer, "latent down", y), m.latent))
        else:
            key, value = self.linear(layer, "key", y), self.linear(layer, "value", y)
        query, key = self.rotated(layer, "query", query, m.heads), self.rotated(layer, "key", key, m.kv_heads)
        squares = 0 if self.fused else m.heads * self.tokens * self.tokens
        of_scores, of_values = (2 * self.pairs * width for width in layer.counts.pair)
        scores = self.add(at + "scores", query, key, flops=of_scores, elements=squares)
        elements = self.tokens * m.heads * m.value_dim
        mixed = self.add(at + "values", scores, value, flops=of_values, elements=elements, saves=(at + "values",))
        out = self.linear(layer, "attention output", mixed)
        return self.add(at + "attention sum", x, out, elements=self.tokens * self.model.hidden)

    def gated(self, layer: _Layer, part: str, read: str) -> str:
        gate, up = self.linear(layer, f"{part} gate", read), self.linear(layer, f"{part} up", read)
        elements = next(op.elements for op in self.operations if op.name == gate)
        return self.linear(layer, f"{part} down", self.add(f"{layer.at}{part} product", gate, up, elements=elements, saves=(gate, up)))

    def ffn(self, layer: _Layer, x: str) -> str:
        at, elements = layer.at, self.tokens * self.model.hidden
        y, out = self.norm(at + "ffn norm", x, self.model.hidden), []
        if "router" in layer.matrices:
            router, chosen = self.linear(layer, "router", y), self.gated(layer, "experts", y)
            out.append(self.add(at + "experts combined", chosen, router, elements=elements, saves=(chosen, router)))
        out += [self.gated(layer, part, y) for part in ("ffn", "shared experts") if f"{part} gate" in layer.matrices]
        return self.add(at + "ffn sum", x, *out, elements=elements)


# State
@checks.formula
def weights(graph: Sequence[Operation]) -> dict[str, Weight]:
    """The weights of a graph, a dict of name to `Weight`; a shared one counts once.

    Args:
        graph: Operations in forward order.

    Example:
        >>> from workloads.facts.models import model
        >>> sum(w.parameters for w in weights(transformer(model("Qwen3-8B"), 1)).values())
        8190735360
    """
    return {op.weight.name: op.weight for op in graph if op.weight}

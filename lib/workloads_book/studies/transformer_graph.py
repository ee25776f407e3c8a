"""A transformer as a graph of operations, from the embedding to the loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from workloads import checks
from workloads.counts import flops as flops_module
from workloads.counts import parameter_counts
from workloads.facts import layers
from workloads.facts.models import Model
from workloads.units import Count, Tokens

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
        >>> from .backpropagation import backward_flops, forward_flops
        >>> from workloads.facts.models import model
        >>> graph = transformer(model("Qwen3-8B"), 8192)
        >>> forward_flops(graph), backward_flops(graph)
        (143789331054592, 287578662109184)
    """
    graph = _Transformer(model, tokens, trained, lora_rank, lora_on, checks.flag(fused, "fused"))
    rows = tokens if labels is None else checks.whole(labels, "labels", "tokens", least=1)
    checks.nonnegative(tokens - rows, "tokens - labels", "tokens")
    x = graph.add("embedding", weight=graph.weight("embedding", model.vocab * model.hidden), elements=tokens * model.hidden)
    for _ in graph.layers():
        x = graph.ffn(graph.attention(x))
    x = graph.norm("norm", x, model.hidden)
    if labels is not None:
        x = graph.add("label rows", x, elements=rows * model.hidden)
    head = graph.weight("embedding" if model.tied else "head", model.vocab * model.hidden)
    logits = graph.add("head", x, weight=head, flops=2 * rows * model.hidden * model.vocab, elements=rows * model.vocab)
    graph.add("loss", logits, saves=(logits,))
    held, adapted = sum(w.parameters for w in weights(graph.operations).values()), lora_rank and lora_on
    if not adapted and held != parameter_counts.parameters(model).total:
        raise ValueError(f"model must have layers whose every weight this walk knows, got {model.name} ({held} weights found)")
    return tuple(graph.operations)


class _Transformer:
    def __init__(self, model, tokens, trained, lora_rank, lora_on, fused):
        self.model, self.tokens, self.trained, self.fused, self.operations = model, tokens, trained, fused, []
        parameter_counts.even_spans(model)
        self.pairs = flops_module.pairs(checks.whole(tokens, "tokens", least=1))
        self.rank = checks.whole(lora_rank, "lora_rank", least=1 if lora_on else 0)
        self.lora_on = tuple(lora_on)
        possible = dict.fromkeys(w.name for w in parameter_counts.matrices(model) if w.part in ("attention", "ffn", "shared experts"))
        for name in self.lora_on:
            checks.one_of(name, "lora_on", tuple(possible))

    def layers(self) -> Iterator[str]:
        """Each layer in turn as the one at hand: how names in it begin, its mixer, what that counts, its matrices by name."""
        stack = zip(self.model.stack, parameter_counts.stack_counts(self.model))
        every = ((layer.mixer, *parts) for (count, layer), (_, *parts) in stack for _ in range(count))
        for number, (self.mixer, self.counts, ffn) in enumerate(every):
            self.at, self.matrices = f"layer {number} ", {w.name: w for w in self.counts.matrices + ffn.matrices}
            yield self.at

    def weight(self, name: str, parameters: Count) -> Weight:
        return Weight(name, parameters, bool(self.trained(name)))

    def add(self, name: str, *reads: str, **what: Any) -> str:
        self.operations.append(Operation(name, reads, **what))
        return name

    def norm(self, name: str, read: str, width: Count) -> str:
        return self.add(name, read, weight=self.weight(name, width), elements=self.tokens * width, saves=(read,))

    def linear(self, name: str, read: str) -> str:
        if name not in self.matrices:
            raise ValueError(f"model must have a {name} matrix in each layer to be walked, got {self.mixer!r} in {self.model.name}")
        w, full = self.matrices[name], self.at + name
        bias = w.outputs if self.mixer.qkv_bias and name in ("query", "key", "value") else 0
        work, elements = 2 * self.tokens * w.active, self.tokens * w.outputs * w.used
        out = self.add(full, read, weight=self.weight(full, w.parameters + bias), flops=work, elements=elements)
        if name not in self.lora_on:
            return out
        high = self.adapter(f"{full} B", self.adapter(f"{full} A", read, w.inputs, self.rank), self.rank, w.outputs)
        return self.add(f"{full} sum", out, high, elements=self.tokens * w.outputs)

    def adapter(self, name: str, read: str, inputs: Count, outputs: Count) -> str:
        work, elements = 2 * self.tokens * inputs * outputs, self.tokens * outputs
        return self.add(name, read, weight=Weight(name, inputs * outputs), flops=work, elements=elements)

    def rotated(self, name: str, read: str, heads: Count) -> str:
        m, full = self.mixer, f"{self.at}{name} rotated"
        elements = self.tokens * heads * (m.head_dim + m.rope_dim)
        if not m.qk_norm:
            return self.add(full, read, elements=elements)
        return self.add(full, read, weight=self.weight(f"{self.at}{name} norm", m.head_dim), elements=elements, saves=(read,))

    def attention(self, x: str) -> str:
        m, at = self.mixer, self.at
        if not isinstance(m, layers.Attention | layers.LatentAttention):
            raise ValueError(f"model must have attention in each layer to be walked, got {m!r} in {self.model.name}")
        y = self.norm(at + "attention norm", x, self.model.hidden)
        if m.query_rank:
            query = self.linear("query up", self.norm(at + "query down norm", self.linear("query down", y), m.query_rank))
        else:
            query = self.linear("query", y)
        if m.latent:
            key = value = self.linear("latent up", self.norm(at + "latent norm", self.linear("latent down", y), m.latent))
        else:
            key, value = self.linear("key", y), self.linear("value", y)
        query, key = self.rotated("query", query, m.heads), self.rotated("key", key, m.kv_heads)
        of_scores, of_values = (2 * self.pairs * width for width in self.counts.spans[0].pair)
        squares, elements = 0 if self.fused else m.heads * self.tokens**2, self.tokens * m.heads * m.value_dim
        scores = self.add(at + "scores", query, key, flops=of_scores, elements=squares)
        mixed = self.add(at + "values", scores, value, flops=of_values, elements=elements, saves=(at + "values",))
        return self.add(at + "attention sum", x, self.linear("attention output", mixed), elements=self.tokens * self.model.hidden)

    def gated(self, part: str, read: str) -> str:
        gate, up = self.linear(f"{part} gate", read), self.linear(f"{part} up", read)
        elements = next(op.elements for op in self.operations if op.name == gate)
        return self.linear(f"{part} down", self.add(f"{self.at}{part} product", gate, up, elements=elements, saves=(gate, up)))

    def ffn(self, x: str) -> str:
        at, elements = self.at, self.tokens * self.model.hidden
        y, out = self.norm(at + "ffn norm", x, self.model.hidden), []
        if "router" in self.matrices:
            router, chosen = self.linear("router", y), self.gated("experts", y)
            out.append(self.add(at + "experts combined", chosen, router, elements=elements, saves=(chosen, router)))
        out += [self.gated(part, y) for part in ("ffn", "shared experts") if f"{part} gate" in self.matrices]
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

"""Training: products of a backward pass, found by walking the graph; what is kept until when; batches, input and update.

A forward pass is a sequence of `Operation`s, each of which names the earlier ones whose outputs it reads. A gradient is needed
for every trained weight, and for every output between such a weight and the loss. All else follows from that one rule: the
products of the backward pass, what must be kept for them, the FLOPs, and the bytes of state.
"""
from dataclasses import dataclass, replace
from typing import NamedTuple

from . import domain, flops, memory, models, taskgraph
from .generic import maximum


class Product(NamedTuple):
    """One matrix product: its name and the shapes of its two factors."""

    name: str
    left: tuple
    right: tuple

    @property
    def result(self):
        """Shape of the result."""
        return self.left[0], self.right[1]

    @property
    def flops(self):
        """FLOPs: 2 for each multiply-add, rows x inner x columns of them."""
        return 2 * self.left[0] * self.left[1] * self.right[1]


@domain.formula
def linear_products(rows, inputs, outputs):
    """The three products of training a linear layer Y = X W, as `Product`s: output, input gradient, weight gradient.

    Equation: Y = X W, dX = dY W^T, dW = X^T dY; each multiplies the same three sizes, so each is 2 m k n FLOPs.
    Parameters: rows m, tokens; inputs k; outputs n. X is [m, k], W [k, n], Y [m, n].
    Raises: ValueError for a size that is not a whole number of at least 1.

    >>> [(p.name, p.result, p.flops) for p in linear_products(5, 7, 11)]
    [('output', (5, 11), 770), ('input gradient', (5, 7), 770), ('weight gradient', (7, 11), 770)]
    """
    m, k, n = (domain.whole(size, name, least=1) for size, name in ((rows, "rows"), (inputs, "inputs"), (outputs, "outputs")))
    return Product("output", (m, k), (k, n)), Product("input gradient", (m, n), (n, k)), Product("weight gradient", (k, m), (m, n))


# The graph and the walk back

@dataclass(frozen=True)
class Weight:
    """Parameters of an operation: their name (two operations may share one), how many, whether they are trained."""

    name: str
    parameters: int
    trained: bool = True

    def __post_init__(self):
        domain.keep(self, domain.whole, "", "parameters", of=f" of {self.name!r}", least=1)
        domain.keep(self, domain.flag, "", "trained", of=f" of {self.name!r}")


@dataclass(frozen=True)
class Operation:
    """One step of a forward pass.

    Parameters
      name; reads: names of the earlier operations whose outputs it takes; weight: a Weight, or None
      flops: of its matrix product, whose two factors are what it reads and its weight, or the two outputs it reads; 0: no product
      elements: values in its output (0 where nothing of it is ever stored)
      saves: outputs, its own or among its reads, that its backward step needs beside the factors of a product
    Raises: ValueError for a product without exactly two factors, or saves that are neither read nor its own.
    """

    name: str
    reads: tuple = ()
    weight: Weight | None = None
    flops: int = 0
    elements: int = 0
    saves: tuple = ()

    def __post_init__(self):
        domain.keep(self, domain.nonnegative, "", "flops", "elements", of=f" of {self.name!r}")
        if self.flops and len(self.reads) + (self.weight is not None) != 2:
            raise ValueError(f"product {self.name!r} must have two factors, got reads {self.reads!r} and weight {self.weight!r}")
        for name in self.saves:
            domain.one_of(name, f"saves of {self.name!r}", (*self.reads, self.name))


@domain.formula
def needs_gradient(graph):
    """Names of the operations whose outputs need a gradient: those with a trained weight of their own or anywhere before them.

    Parameters: graph, Operations in forward order; every output reaches the loss.
    Raises: ValueError for an empty graph, a name used twice, or a read that no earlier operation provides.

    >>> frozen, adapter = Weight("W1", 4, trained=False), Weight("W2", 4)
    >>> sorted(needs_gradient([Operation("x"), Operation("a", ("x",), frozen, 8), Operation("b", ("a",), adapter, 8)]))
    ['b']
    """
    seen, found = set(), set()
    for op in graph:
        for name in op.reads:
            domain.one_of(name, f"reads of {op.name!r}", tuple(seen))
        if op.name in seen:
            raise ValueError(f"operations must have names used once, got {op.name!r} twice")
        seen.add(op.name)
        if (op.weight and op.weight.trained) or found.intersection(op.reads):
            found.add(op.name)
    domain.some(seen, "graph", "operation")
    return found


class BackwardStep(NamedTuple):
    """What one operation does on the way back: gradients passed on to what it read, its weight's gradient, FLOPs, outputs needed."""

    name: str
    input_gradients: tuple
    weight_gradient: bool
    flops: int
    needs: tuple


@domain.formula
def backward(graph):
    """Backward steps of a graph, last operation first; an operation with no gradient to pass on or to keep has none.

    Parameters: graph, Operations in forward order. Returns: tuple of `BackwardStep`.
    Equation: a product of F FLOPs takes F for each of its factors that needs a gradient, and needs the other factor for it.

    >>> w = Weight("W", 77)
    >>> backward([Operation("x", elements=35), Operation("y", ("x",), w, flops=770)])
    (BackwardStep(name='y', input_gradients=(), weight_gradient=True, flops=770, needs=('x',)),)
    """
    graded = needs_gradient(graph)
    return tuple(_step(op, graded) for op in reversed(graph) if op.name in graded)


def _step(op, graded):
    passed = tuple(name for name in op.reads if name in graded)
    trained = op.weight is not None and op.weight.trained
    needs = _other_factors(op, graded, trained) if op.flops else ()
    return BackwardStep(op.name, passed, trained, op.flops * (len(passed) + trained), tuple(dict.fromkeys((*needs, *op.saves))))


def _other_factors(op, graded, trained):
    if op.weight:
        return op.reads if trained else ()
    return tuple(mine for mine, other in zip(op.reads, reversed(op.reads)) if other in graded)


@domain.formula
def forward_flops(graph):
    """FLOPs (count) of the forward pass: the sum over all operations. Parameters: graph, Operations in forward order.

    >>> forward_flops([Operation("x"), Operation("y", ("x",), Weight("W", 77), flops=770)])
    770
    """
    return sum(op.flops for op in graph)


@domain.formula
def backward_flops(graph):
    """FLOPs (count) of the backward pass: the sum over the steps of `backward`. Parameters: graph, Operations in forward order.

    >>> backward_flops([Operation("x"), Operation("y", ("x",), Weight("W", 77), flops=770)])
    770
    """
    return sum(step.flops for step in backward(graph))


@domain.formula
def kept_elements(graph):
    """Values (count) of each output that must wait for the backward pass, a dict in forward order.

    Parameters: graph, Operations in forward order.

    >>> kept_elements([Operation("x", elements=35), Operation("y", ("x",), Weight("W", 77), flops=770, elements=55)])
    {'x': 35}
    """
    needed = {name for step in backward(graph) for name in step.needs}
    return {op.name: op.elements for op in graph if op.name in needed}


class Kept(NamedTuple):
    """Something that is kept: its name, its kind, first and last event of its life, how many values."""

    name: str
    kind: str
    start: int
    end: int
    elements: int


@domain.formula
def lifetimes(graph):
    """How long each output, each gradient of an output and each weight gradient is kept, as `Kept`s.

    Events: the forward step of operation i (of n) is event i, its backward step event 2n - 1 - i, the update event 2n. An
    "output" lives to its last reader, forward or backward; a "gradient" from the first backward step that contributes to it to
    the step that uses it up; a "weight gradient" from its first contribution to the update.

    >>> [k[:4] for k in lifetimes([Operation("x", elements=35), Operation("y", ("x",), Weight("W", 77), flops=770, elements=55)])]
    [('x', 'output', 0, 2), ('y', 'output', 1, 1), ('y', 'gradient', 2, 2), ('W', 'weight gradient', 2, 4)]
    """
    place, last = {op.name: i for i, op in enumerate(graph)}, 2 * len(graph) - 1
    uses, givers, weights = {op.name: [i] for i, op in enumerate(graph)}, {}, {}
    for i, op in enumerate(graph):
        for name in op.reads:
            uses[name].append(i)
    for step in backward(graph):
        event, weight = last - place[step.name], graph[place[step.name]].weight
        for name in step.needs:
            uses[name].append(event)
        for name in step.input_gradients:
            givers.setdefault(name, event)
        if step.weight_gradient:
            weights.setdefault(weight.name, Kept(weight.name, "weight gradient", event, last + 1, weight.parameters))
    found = [Kept(op.name, "output", i, max(uses[op.name]), op.elements) for i, op in enumerate(graph)]
    found += [Kept(s.name, "gradient", givers.get(s.name, last - place[s.name]), last - place[s.name], graph[place[s.name]].elements)
              for s in backward(graph)]
    return (*found, *weights.values())


@domain.formula
def elements_held(kept, event):
    """Values (count) alive during one event, of the `Kept`s given.

    Equation: sum of the elements of all whose start <= event <= end.
    Parameters: kept, from `lifetimes`; event, its number.

    >>> elements_held([Kept("x", "output", 0, 2, 35), Kept("y", "output", 1, 1, 55)], 1)
    90
    """
    event = domain.whole(event, "event")
    for k in kept:
        domain.whole(k.start, f"start of {k.name!r}"), domain.whole(k.end, f"end of {k.name!r}")
        domain.nonnegative(k.elements, f"elements of {k.name!r}")
    return sum(k.elements for k in kept if k.start <= event <= k.end)


# A transformer as a graph

@domain.formula
def transformer(model, tokens, labels=None, trained=lambda weight: True, lora_rank=0, lora_on=(), fused=True):
    """Graph of one training forward pass over a sequence, down to the loss.

    Parameters
      model: a Model; tokens of the sequence, causal pairs
      labels: rows of the vocabulary head, gathered before it (a compact head); left out, all tokens
      trained: whether a weight is trained, asked by its name: "embedding", "layer 0 query", "layer 0 ffn down", "norm", "head"
      lora_rank: rank r of adapters W + A B on the matrices named in lora_on ("query", "ffn up", ...), always trained; 0: none
      fused: attention in one kernel, whose scores are multiplied in a product but never stored (their second computation in its
        backward pass is left out). False: the scores after the softmax are stored, a full square for each query head
    Returns: tuple of Operations. Names begin with "layer i " inside layers.
    Assumptions: attention keeps its output. SwiGLU keeps both inputs and its product, norms keep their input.
    Raises: ValueError for adapters on a matrix that the model lacks or that its routed experts hold.

    >>> from workloads.models import model
    >>> graph = transformer(model("Qwen3-8B"), 8192)
    >>> forward_flops(graph), backward_flops(graph)
    (143789331054592, 287578662109184)
    """
    graph = _Transformer(model, tokens, trained, lora_rank, lora_on, domain.flag(fused, "fused"))
    rows = tokens if labels is None else domain.whole(labels, "labels", "tokens", least=1)
    domain.nonnegative(tokens - rows, "tokens - labels", "tokens")
    x = graph.add("embedding", weight=graph.weight("embedding", model.vocab * model.hidden), elements=tokens * model.hidden)
    for layer in range(model.layers):
        x = graph.ffn(layer, graph.attention(layer, x))
    x = graph.norm("norm", x, model.hidden)
    if labels is not None:
        x = graph.add("label rows", x, elements=rows * model.hidden)
    head = graph.weight("embedding" if model.tied else "head", model.vocab * model.hidden)
    logits = graph.add("head", x, weight=head, flops=2 * rows * model.hidden * model.vocab, elements=rows * model.vocab)
    graph.add("loss", logits, saves=(logits,))
    return tuple(graph.operations)


class _Transformer:
    def __init__(self, model, tokens, trained, lora_rank, lora_on, fused):
        self.model, self.tokens, self.trained, self.operations = model, tokens, trained, []
        self.squares = 0 if fused else model.heads * tokens * tokens
        self.once = flops.forward(model, tokens)
        self.matrices = {w.name: w for w in models.matrices(model)}
        self.rank = domain.whole(lora_rank, "lora_rank", least=1 if lora_on else 0)
        self.lora_on = tuple(lora_on)
        possible = tuple(w.name for w in self.matrices.values() if w.part in ("attention", "ffn", "shared experts"))
        for name in self.lora_on:
            domain.one_of(name, "lora_on", possible)

    def weight(self, name, parameters):
        return Weight(name, parameters, bool(self.trained(name)))

    def add(self, name, *reads, weight=None, flops=0, elements=0, saves=()):
        self.operations.append(Operation(name, reads, weight, flops, elements, saves))
        return name

    def norm(self, name, read, width, copies=1):
        return self.add(name, read, weight=self.weight(name, width), elements=self.tokens * width * copies, saves=(read,))

    def linear(self, layer, name, read):
        m, w, full = self.model, self.matrices[name], f"layer {layer} {name}"
        dense = m.dense_layers if m.experts else m.layers
        share = m.layers if w.part == "attention" else dense if w.part == "ffn" else m.layers - dense
        bias = w.outputs if m.qkv_bias and name in ("query", "key", "value") else 0
        out = self.add(full, read, weight=self.weight(full, w.parameters // share + bias), flops=2 * self.tokens * w.active // share,
                       elements=self.tokens * w.outputs * w.used // share)
        return self.adapter(full, read, out, w) if name in self.lora_on else out

    def adapter(self, full, read, out, w):
        low = self.add(f"{full} A", read, weight=Weight(f"{full} A", w.inputs * self.rank), flops=2 * self.tokens * w.inputs * self.rank,
                       elements=self.tokens * self.rank)
        high = self.add(f"{full} B", low, weight=Weight(f"{full} B", self.rank * w.outputs), flops=2 * self.tokens * self.rank * w.outputs,
                        elements=self.tokens * w.outputs)
        return self.add(f"{full} sum", out, high, elements=self.tokens * w.outputs)

    def rotated(self, layer, name, read, heads):
        m, full = self.model, f"layer {layer} {name} rotated"
        elements = self.tokens * heads * (m.head_dim + m.rope_dim)
        if m.qk_norm:
            return self.add(full, read, weight=self.weight(f"layer {layer} {name} norm", m.head_dim), elements=elements, saves=(read,))
        return self.add(full, read, elements=elements)

    def attention(self, layer, x):
        m, at = self.model, f"layer {layer} "
        y = self.norm(at + "attention norm", x, m.hidden)
        if m.query_rank:
            query = self.linear(layer, "query up", self.norm(at + "query down norm", self.linear(layer, "query down", y), m.query_rank))
        else:
            query = self.linear(layer, "query", y)
        if m.latent:
            key = value = self.linear(layer, "latent up", self.norm(at + "latent norm", self.linear(layer, "latent down", y), m.latent))
        else:
            key, value = self.linear(layer, "key", y), self.linear(layer, "value", y)
        query, key = self.rotated(layer, "query", query, m.heads), self.rotated(layer, "key", key, m.kv_heads)
        scores = self.add(at + "scores", query, key, flops=self.once.scores // m.layers, elements=self.squares)
        mixed = self.add(at + "values", scores, value, flops=self.once.values // m.layers, elements=self.tokens * m.heads * m.value_dim,
                         saves=(at + "values",))
        return self.add(at + "attention sum", x, self.linear(layer, "attention output", mixed), elements=self.tokens * m.hidden)

    def gated(self, layer, part, read):
        gate, up = self.linear(layer, f"{part} gate", read), self.linear(layer, f"{part} up", read)
        elements = next(op.elements for op in self.operations if op.name == gate)
        return self.linear(layer, f"{part} down", self.add(f"layer {layer} {part} product", gate, up, elements=elements, saves=(gate, up)))

    def ffn(self, layer, x):
        m, at = self.model, f"layer {layer} "
        y, out = self.norm(at + "ffn norm", x, m.hidden), []
        if not m.experts or layer < m.dense_layers:
            out.append(self.gated(layer, "ffn", y))
        else:
            router, chosen = self.linear(layer, "router", y), self.gated(layer, "experts", y)
            out.append(self.add(at + "experts combined", chosen, router, elements=self.tokens * m.hidden, saves=(chosen, router)))
            out += [self.gated(layer, "shared experts", y)] if m.shared_experts else []
        return self.add(at + "ffn sum", x, *out, elements=self.tokens * m.hidden)


# State

@domain.formula
def weights(graph):
    """The weights of a graph, a dict of name to `Weight`; a shared one counts once.

    >>> sum(w.parameters for w in weights(transformer(models.model("Qwen3-8B"), 1)).values())
    8190735360
    """
    return {op.weight.name: op.weight for op in graph if op.weight}


@domain.formula
def state_bytes(graph, recipe="fp32 gradients", frozen_bytes=2, unquantised_bytes=None):
    """Bytes of weights, gradients and optimizer state when a part of the weights is frozen, as `memory.TrainingBytes`.

    Equation: trained parameters x (bytes of the recipe), and with the weights, for each frozen one, frozen_bytes inside a matrix of
    the layers, unquantised_bytes in embedding, head and norms.
    Parameters: graph, Operations in forward order; recipe, as in `memory.training_state_bytes`; frozen_bytes (B): 2 for
    BF16, 0.5 for 4 bits, 0.5 + 1/16 for 4 bits with a 4-byte scale for each 64 weights; unquantised_bytes (B): left out, as
    frozen_bytes but at least 2, for what loads a model in 8 or 4 bits narrows its matrices only.
    Raises: ValueError if no weight is trained.

    >>> graph = [Operation("x"), Operation("y", ("x",), Weight("W", 100, trained=False), 1), Operation("z", ("y",), Weight("V", 10), 1)]
    >>> state_bytes(graph).total
    380
    """
    of_graph, width = weights(graph).values(), domain.positive(frozen_bytes, "frozen_bytes", "B")
    outer = maximum(width, 2) if unquantised_bytes is None else domain.positive(unquantised_bytes, "unquantised_bytes", "B")
    trained = domain.positive(sum(w.parameters for w in of_graph if w.trained), "trained parameters")
    frozen, around = (sum(w.parameters for w in of_graph if not w.trained and _outside_matrices(w.name) is out) for out in (False, True))
    state = memory.training_state_bytes(trained, recipe)
    return replace(state, weights=state.weights + frozen * width + around * outer)


def _outside_matrices(weight):
    return weight in ("embedding", "head") or weight.endswith("norm")


# Activations

LOGIT_COPIES = (2, 4, 4)        # bytes a value: logits as the head writes them, the same in FP32, their log-softmax (later its gradient)


@domain.formula
def logits_bytes(values, copies=LOGIT_COPIES):
    """Bytes of the logits and of what the loss holds beside them (B).

    Equation: values x (sum of the bytes of all copies).
    Parameters: values, rows x vocabulary; copies, bytes a value of each: BF16 and twice FP32 where the loss is taken in FP32 of whole
    logits; (2,) where a kernel takes the loss in pieces.

    >>> logits_bytes(8192 * 151_936)
    12446597120
    """
    return domain.nonnegative(values, "values") * sum(domain.positive(b, "copies", "B") for b in domain.some(copies, "copies", "copy"))


@domain.formula
def layer_input_bytes(graph, bytes_per_value=2):
    """Bytes of the inputs of all layers: what recomputation keeps of them (B).

    Equation: layers x tokens x hidden x bytes_per_value.
    Parameters: graph, from `transformer`; bytes_per_value (B).

    >>> layer_input_bytes(transformer(models.model("Qwen3-8B"), 8192)) == 36 * 8192 * 4096 * 2
    True
    """
    sizes = {op.name: op.elements for op in graph}
    return sum(sizes[name] for name in _entered(graph)) * domain.positive(bytes_per_value, "bytes_per_value", "B")


def _entered(graph):
    """Names of the outputs that layers take as their inputs."""
    return domain.some((op.reads[0] for op in graph if op.name.endswith(" attention norm")), "graph", "layer")


@domain.formula
def layer_bytes(graph, bytes_per_value=2):
    """Bytes that each layer keeps for its backward pass beside its input, a tuple in forward order (B).

    Equation: bytes_per_value x the layer's own part of `kept_elements`; its last sum is the next one's input and is left out.
    Parameters: graph, from `transformer`, which says whether attention is fused; bytes_per_value (B).

    >>> min(layer_bytes(transformer(models.model("Qwen3-8B"), 8192)))
    1056964608
    """
    width, kept, sums = domain.positive(bytes_per_value, "bytes_per_value", "B"), kept_elements(graph), {}
    for op in graph:
        if op.name.startswith("layer "):
            layer = op.name.split()[1]
            mine = 0 if op.name == f"layer {layer} ffn sum" else kept.get(op.name, 0)
            sums[layer] = sums.get(layer, 0) + mine * width
    return tuple(domain.some(sums.values(), "graph", "layer"))


class ActivationBytes(NamedTuple):
    """Bytes of activations at the turn from forward to backward: inputs of the layers, what layers keep besides (all, or the one that is
    computed again), input and output of the final norm with what a compact head gathers, logits with their copies."""

    layer_inputs: float
    layers: float
    final_norm: float
    logits: float

    @property
    def total(self):
        """All four."""
        return self.layer_inputs + self.layers + self.final_norm + self.logits


@domain.formula
def activation_bytes(graph, recompute="nothing", bytes_per_value=2, copies=LOGIT_COPIES):
    """Bytes of the activations of one sequence, as `ActivationBytes`.

    Equation: layer inputs + what all layers keep, or with recomputation the one that keeps most + final norm + logits.
    Parameters: graph, from `transformer`; recompute, as in `flops.training` ("layers" and "stop early" hold the same); bytes_per_value
    (B) of everything but the logits; copies of these, as in `logits_bytes`.
    Assumptions: a lower bound of what trainers report: gradients of activations, gathered weights, buffers and fragments come on top.
    The layer is counted beside the logits; a trainer that frees all copies before it and uses the same memory again saves the smaller.

    >>> graph = transformer(models.model("Qwen3-8B"), 8192)
    >>> round(activation_bytes(graph).total / 1e9, 2), round(activation_bytes(graph, "layers").total / 1e9, 2)
    (53.05, 16.05)
    """
    domain.one_of(recompute, "recompute", ("nothing", "layers", "stop early"))
    kept, layers = kept_elements(graph), layer_bytes(graph, bytes_per_value)
    of = lambda *names: bytes_per_value * sum(kept.get(name, 0) for name in names)
    if recompute == "nothing":
        inputs, turned = of(*_entered(graph)), sum(layers)
    else:
        inputs, turned = layer_input_bytes(graph, bytes_per_value), max(layers)
    last = [op.name for op in graph if op.name.endswith(" ffn sum")][-1]
    return ActivationBytes(inputs, turned, of(last, "norm", "label rows"), logits_bytes(kept.get("head", 0), copies))


# Update

class UpdateTraffic(NamedTuple):
    """Bytes that an optimizer update reads and writes (B)."""

    read: float
    written: float

    @property
    def total(self):
        """Both."""
        return self.read + self.written


@domain.formula
def update_traffic(parameters, recipe="fp32 gradients"):
    """Bytes that one Adam update moves, as `UpdateTraffic`.

    Equation: read gradients, master weights and both moments; write master weights, moments and the weights of the next
    forward pass. Without master weights the weights themselves are read and written. 30 B a parameter for "fp32 gradients".
    Parameters: parameters that are trained; recipe, as in `memory.training_state_bytes`.
    Assumptions: a lower bound. Everything crosses once (one fused kernel); clearing the gradients and their norm are left out.

    >>> update_traffic(1), update_traffic(1, "bf16 gradients").total
    (UpdateTraffic(read=16, written=14), 28)
    """
    parameters, each = domain.positive(parameters, "parameters"), memory.training_state_bytes(1, recipe)
    changed = each.first_moment + each.second_moment + (each.master_weights or each.weights)
    copied = each.weights if each.master_weights else 0
    return UpdateTraffic(parameters * (each.gradients + changed), parameters * (changed + copied))


# Batches

class UpdateTokens(NamedTuple):
    """Tokens of one update: read by the model, and counted in the loss."""

    inputs: int
    supervised: int


@domain.formula
def update_tokens(sequences, length, micro_batches=1, labels=None):
    """Tokens that one parameter update processes, as `UpdateTokens`.

    Equation: a B P inputs and a B P_label supervised tokens.
    Parameters: sequences B of a micro-batch; length P (tokens); micro_batches a; labels, supervised tokens of a sequence (all if
    left out).
    Raises: ValueError for counts that are not whole, or more labels than tokens.

    >>> update_tokens(2, 4096, micro_batches=8, labels=1024)
    UpdateTokens(inputs=65536, supervised=16384)
    """
    count = domain.whole(sequences, "sequences", least=1) * domain.whole(micro_batches, "micro_batches", least=1)
    length = domain.whole(length, "length", "tokens", least=1)
    labels = length if labels is None else domain.whole(labels, "labels", "tokens")
    domain.nonnegative(length - labels, "length - labels", "tokens")
    return UpdateTokens(count * length, count * labels)


@domain.formula
def document_pairs(lengths):
    """Causal query-key pairs of documents that share a sequence and do not see each other.

    Equation: sum of n (n + 1)/2 over the documents.
    Parameters: lengths (tokens) of the documents, one or more.

    >>> document_pairs([4096, 4096]), document_pairs([7168, 1024])
    (16781312, 26218496)
    """
    return sum(flops.pairs(domain.whole(length, "length", "tokens", least=1)) for length in domain.some(lengths, "lengths"))


@domain.formula
def pack(lengths, capacity):
    """Documents packed into sequences, as a list of lists of lengths: each goes to the first sequence with room, longest first.

    Parameters: lengths (tokens), one or more; capacity, tokens of a sequence.
    Raises: ValueError for a document longer than a sequence.
    Assumptions: first-fit decreasing, which needs at most 11/9 of the fewest possible sequences (plus 6/9).

    >>> pack([700, 300, 600, 400], 1000)
    [[700, 300], [600, 400]]
    """
    sequences, capacity = [], domain.whole(capacity, "capacity", "tokens", least=1)
    for length in sorted((domain.whole(n, "length", "tokens", least=1) for n in domain.some(lengths, "lengths")), reverse=True):
        domain.nonnegative(capacity - length, "capacity - length", "tokens")
        room = next((s for s in sequences if sum(s) + length <= capacity), None)
        room.append(length) if room is not None else sequences.append([length])
    return sequences


class Batch(NamedTuple):
    """When the input of one batch is prepared and when it is computed (`taskgraph.Interval`s, s)."""

    prepare: taskgraph.Interval
    compute: taskgraph.Interval


@domain.formula
def input_timeline(prepare_seconds, compute_seconds, buffers=2):
    """Preparing the input of one batch while another is computed, a tuple of `Batch`es.

    Equation: batch i is prepared once batch i - 1 is, and once batch i - buffers has been computed and left its buffer; it is
    computed once it is prepared and batch i - 1 is computed. With equal times and two buffers or more a batch takes
    max(prepare, compute) in the long run, with one buffer prepare + compute.
    Parameters: prepare_seconds, compute_seconds (s) of each batch; buffers, whole number >= 1 (2: double buffering).
    Raises: ValueError for lists of unequal length or none, or a negative time.

    >>> [batch.compute for batch in input_timeline([3, 3, 3], [4, 4, 4])]
    [Interval(start=3, end=7), Interval(start=7, end=11), Interval(start=11, end=15)]
    """
    prepare, compute = domain.some(prepare_seconds, "prepare_seconds"), domain.some(compute_seconds, "compute_seconds")
    if len(prepare) != len(compute):
        raise ValueError(f"compute_seconds must hold as many values as prepare_seconds, {len(prepare)}, got {len(compute)}")
    buffers = domain.whole(buffers, "buffers", least=1)
    stages = []
    for i in range(len(prepare)):
        filled, emptied = [("prepare", i - 1), ("compute", i - buffers)], [("prepare", i), ("compute", i - 1)]
        stages += [taskgraph.Stage((kind, i), seconds, tuple(stage for stage in after if stage[1] >= 0))
                   for kind, seconds, after in (("prepare", prepare[i], filled), ("compute", compute[i], emptied))]
    windows = taskgraph.earliest(stages)
    return tuple(Batch(windows["prepare", i], windows["compute", i]) for i in range(len(prepare)))

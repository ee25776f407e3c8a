"""Training: against loops that count multiply-adds, a tape that pulls gradients by need, a memory that frees, ticks of a clock."""

import random
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.counts import flops, training_memory
from workloads.counts.parameter_counts import parameters
from workloads.counts.training_memory import logits_bytes
from workloads.facts.layers import Attention, Experts, Gated, GatedDelta, Layer, Plain
from workloads.facts.models import Model, model, models
from workloads.facts.tables import table
from workloads_book.studies.backpropagation import (
    Operation,
    Weight,
    _Kept,
    backward,
    backward_flops,
    elements_held,
    forward_flops,
    kept_elements,
    lifetimes,
    linear_products,
)
from workloads_book.studies.graph_memory import activation_bytes, kept_layer_bytes, training_state_bytes
from workloads_book.studies.optimizer import update_traffic
from workloads_book.studies.training_batches import UpdateTokens, _Batch, document_pairs, input_timeline, pack, update_tokens
from workloads_book.studies.transformer_graph import transformer, weights

QWEN = model("Qwen3-8B")
TINY = Model("tiny", 8, 11, layers=3, heads=4, kv_heads=2, head_dim=3, ffn=10, qk_norm=True)
TRANSFORMERS = [m for name, m in models().items() if name not in {row["item"] for row in table("models") if row["quantity"] == "stack"}]
SIZES = st.integers(1, 5)


# The three products


def product(left, right, meter):
    """Matrix product in loops; every multiply-add is metered."""
    result = [[0] * len(right[0]) for _ in left]
    for i, row in enumerate(left):
        for j in range(len(right[0])):
            for t in range(len(right)):
                result[i][j] += row[t] * right[t][j]
                meter[0] += 2
    return result


def transposed(matrix):
    return [list(column) for column in zip(*matrix)]


def shape(matrix):
    return len(matrix), len(matrix[0])


@given(SIZES, SIZES, SIZES)
def test_three_products_cost_what_loops_count_and_have_their_shapes(m, k, n):
    x, w, dy = [[1] * k for _ in range(m)], [[1] * n for _ in range(k)], [[1] * n for _ in range(m)]
    for planned, (left, right) in zip(linear_products(m, k, n), ((x, w), (dy, transposed(w)), (transposed(x), dy)), strict=True):
        meter = [0]
        result = product(left, right, meter)
        assert (planned.left, planned.right, planned.result, planned.flops) == (shape(left), shape(right), shape(result), meter[0])


def test_the_two_gradients_are_the_derivatives_of_the_loss():
    x, w, g = (
        sympy.Matrix(*size, lambda i, j, name=name: sympy.Symbol(f"{name}_{i}{j}"))
        for name, size in (("x", (2, 3)), ("w", (3, 4)), ("g", (2, 4)))
    )
    loss = sum((x * w).multiply_elementwise(g))
    assert loss.diff(x) == g * w.T and loss.diff(w) == x.T * g
    _, dx, dw = linear_products(2, 3, 4)
    assert (dx.result, dw.result) == (x.shape, w.shape)


@pytest.mark.parametrize("sizes, message", [((0, 1, 1), "rows.* 0"), ((1, 2.5, 1), "inputs.* 2.5"), ((1, 1, -1), "outputs.* -1")])
def test_a_layer_needs_sizes(sizes, message):
    with pytest.raises(ValueError, match=message):
        linear_products(*sizes)


# The walk back, against a tape that pulls gradients by need.
# Operations on 2 x 2 matrices of whole numbers: X W, A B, A + B. The loss is the sum of all entries of all unread outputs.


@st.composite
def graphs(draw):
    graph = [Operation("input", elements=4)]
    for i in range(draw(st.integers(1, 7))):
        earlier = [op.name for op in graph]
        kind, first = draw(st.sampled_from(["linear", "multiply", "add"])), draw(st.sampled_from(earlier))
        if kind == "linear":
            graph.append(Operation(f"op{i}", (first,), Weight(f"W{i}", 4, draw(st.booleans())), flops=16, elements=4))
        else:
            graph.append(Operation(f"op{i}", (first, draw(st.sampled_from(earlier))), flops=16 * (kind == "multiply"), elements=4))
    read = {name for op in graph for name in op.reads}
    return (*graph, Operation("loss", tuple(op.name for op in graph if op.name not in read), elements=1))


class Tape:
    """Runs a graph on matrices; a gradient is computed when somebody asks for it, and every product is metered."""

    def __init__(self, graph, values):
        self.graph, self.values, self.meter, self.outputs, self.gradients = graph, values, [0], {}, {}
        self.used = set()  # outputs that a gradient product has read
        for op in graph[:-1]:
            self.outputs[op.name] = self.run(op)
        self.forward = self.meter[0]
        self.meter[0] = 0

    def factors(self, op):
        return [self.outputs[name] for name in op.reads] + ([self.values[op.weight.name]] if op.weight else [])

    def run(self, op):
        if op.name == "input":
            return self.values["input"]
        a, b = self.factors(op)
        return product(a, b, self.meter) if op.flops else [[p + q for p, q in zip(r, s)] for r, s in zip(a, b)]

    def share(self, op, place):
        """Gradient that one factor of one operation receives."""
        given_back = self.gradient(op.name)
        if not op.flops:
            return given_back
        a, b = self.factors(op)
        self.used |= {(*op.reads, "a weight")[1 - place]}
        return product(given_back, transposed(b), self.meter) if place == 0 else product(transposed(a), given_back, self.meter)

    def gradient(self, name):
        if name not in self.gradients:
            total = [[0, 0], [0, 0]]
            for op in self.graph[1:]:
                for place, read in enumerate(op.reads):
                    if read == name:
                        part = [[1, 1], [1, 1]] if op.name == "loss" else self.share(op, place)
                        total = [[p + q for p, q in zip(r, s)] for r, s in zip(total, part)]
            self.gradients[name] = total
        return self.gradients[name]

    def weight_gradients(self):
        return {op.weight.name: self.share(op, 1) for op in self.graph if op.weight and op.weight.trained}

    def loss(self):
        return sum(sum(map(sum, self.outputs[name])) for name in self.graph[-1].reads)


def values_of(graph, seed):
    rng = random.Random(seed)
    names = ("input", *(op.weight.name for op in graph if op.weight))
    return {name: [[rng.randint(-3, 3) for _ in range(2)] for _ in range(2)] for name in names}


@settings(max_examples=300)
@given(graphs(), st.integers(0, 99))
def test_walking_the_graph_costs_what_gradients_by_need_cost(graph, seed):
    tape = Tape(graph, values_of(graph, seed))
    gradients = tape.weight_gradients()
    assert forward_flops(graph) == tape.forward
    assert backward_flops(graph) == tape.meter[0]
    assert {step.name for step in backward(graph)} - {"loss"} == set(tape.gradients)
    assert set(kept_elements(graph)) == tape.used - {"a weight"}
    assert {step.name.replace("op", "W") for step in backward(graph) if step.weight_gradient} == set(gradients)


@settings(max_examples=100)
@given(graphs(), st.integers(0, 99))
def test_the_tape_itself_is_right_by_differences_of_the_loss(graph, seed):
    """A loss is linear in one entry of a weight that is used once, so one difference gives the derivative exactly."""
    values = values_of(graph, seed)
    copies = {op.name: 1 for op in graph}
    for op in graph[1:-1]:  # how often a weight's effect is multiplied with itself
        copies[op.name] = (max if not op.flops or op.weight else sum)(copies[name] for name in op.reads)
    if max(copies.values()) > 1:
        return
    for name, gradient in Tape(graph, values).weight_gradients().items():
        for i in range(2):
            for j in range(2):
                moved = [list(row) for row in values[name]]
                moved[i][j] += 1
                assert Tape(graph, {**values, name: moved}).loss() - Tape(graph, values).loss() == gradient[i][j]


def test_a_frozen_layer_still_passes_the_gradient_on():
    """x -> W1 (trained) -> W2 (frozen) -> W3 (trained): 3 products forward; back dW3, dX3, dX2, dW1."""
    chain = [
        Operation("x"),
        Operation("a", ("x",), Weight("W1", 1), 1),
        Operation("b", ("a",), Weight("W2", 1, trained=False), 1),
        Operation("c", ("b",), Weight("W3", 1), 1),
    ]
    assert (forward_flops(chain), backward_flops(chain)) == (3, 4)
    walked = [(step.name, step.input_gradients, step.weight_gradient) for step in backward(chain)]
    assert walked == [("c", ("b",), True), ("b", ("a",), False), ("a", (), True)]


@given(graphs(), st.data())
def test_freezing_a_weight_never_adds_work_or_state(graph, data):
    names = sorted(name for name, w in weights(graph).items() if w.trained)
    if not names:
        return
    frozen = data.draw(st.sampled_from(names))
    fewer = [replace(op, weight=replace(op.weight, trained=False)) if op.weight and op.weight.name == frozen else op for op in graph]
    assert backward_flops(fewer) <= backward_flops(graph) - 16
    assert set(kept_elements(fewer)) <= set(kept_elements(graph))


@pytest.mark.parametrize(
    "graph, message", [([], "graph"), ([Operation("a"), Operation("a")], "'a' twice"), ([Operation("a", ("b",))], "reads of 'a'.*'b'")]
)
def test_a_graph_must_be_in_order(graph, message):
    with pytest.raises(ValueError, match=message):
        backward(graph)


def test_an_operation_must_be_possible():
    with pytest.raises(ValueError, match="two factors"):
        Operation("a", ("x", "y"), Weight("W", 1), flops=1)
    with pytest.raises(ValueError, match="two factors"):
        Operation("a", ("x",), flops=1)
    with pytest.raises(ValueError, match="saves of 'a'.*'z'"):
        Operation("a", ("x",), saves=("z",))
    with pytest.raises(ValueError, match="flops of 'a'.*-1"):
        Operation("a", flops=-1)
    with pytest.raises(ValueError, match="parameters of 'W'.* 0"):
        Weight("W", 0)


# Lifetimes, against a memory that frees what has reached its end


def run_with(graph, kept):
    """Run forward, backward and update; anything read outside its life is an error. Returns the values held at each event."""
    ends = Counter()
    alive, held, n = set(), [], len(graph)
    steps = {step.name: step for step in backward(graph)}

    def begin(name, kind, event):
        for k in kept:
            if (k.name, k.kind) == (name, kind) and k.start == event:
                alive.add((name, kind))

    def touch(name, kind):
        if (name, kind) not in alive:
            raise KeyError((name, kind))

    for event in range(2 * n + 1):
        back = 2 * n - 1 - event
        op = graph[event] if event < n else graph[back] if event < 2 * n else None
        if event < n:
            begin(op.name, "output", event)
            for name in (op.name, *op.reads):
                touch(name, "output")
        elif op is None:
            for w in weights(graph).values():
                if w.trained:
                    touch(w.name, "weight gradient")
        elif op.name in steps:
            step = steps[op.name]
            if op is graph[-1]:
                begin(op.name, "gradient", event)  # the derivative of the loss by itself
            for name in step.input_gradients:
                begin(name, "gradient", event)
                touch(name, "gradient")
            if step.weight_gradient:
                begin(op.weight.name, "weight gradient", event)
                touch(op.weight.name, "weight gradient")
            touch(op.name, "gradient")
            for name in step.needs:
                touch(name, "output")
        held.append(sum(k.elements for k in kept if (k.name, k.kind) in alive))
        for k in kept:
            if k.end == event:
                alive.discard((k.name, k.kind))
                ends[k.name, k.kind] += 1
    assert not alive and set(ends.values()) <= {1}
    return held


@settings(max_examples=200)
@given(graphs())
def test_everything_is_there_when_it_is_read(graph):
    kept = lifetimes(graph)
    assert run_with(graph, kept) == [elements_held(kept, event) for event in range(2 * len(graph) + 1)]


@settings(max_examples=100)
@given(graphs(), st.data())
def test_nothing_may_be_freed_one_event_earlier(graph, data):
    kept = list(lifetimes(graph))
    i = data.draw(st.sampled_from([i for i, k in enumerate(kept) if k.end > k.start]))
    kept[i] = kept[i]._replace(end=kept[i].end - 1)
    with pytest.raises(KeyError):
        run_with(graph, kept)


def chain_of(layers):
    return [Operation("x0", elements=1), *(Operation(f"x{i}", (f"x{i - 1}",), Weight(f"W{i}", 1), 1, 1) for i in range(1, layers + 1))]


def test_the_first_layers_activations_live_longest():
    graph = chain_of(6)
    lives = {k.name: k.end - k.start for k in lifetimes(graph) if k.kind == "output"}
    assert [lives[f"x{i}"] for i in range(6)] == [12 - 2 * i for i in range(6)]
    assert lives["x6"] == 0 and set(kept_elements(graph)) == {f"x{i}" for i in range(6)}


def test_most_is_held_where_forward_turns_into_backward():
    kept = [k for k in lifetimes(chain_of(6)) if k.kind == "output"]
    held = [elements_held(kept, event) for event in range(14)]
    assert held == [1, 2, 3, 4, 5, 6, 7, 6, 5, 4, 3, 2, 1, 0]


def test_a_weight_gradient_waits_for_the_update():
    kept = {k.name: (k.start, k.end) for k in lifetimes(chain_of(3)) if k.kind == "weight gradient"}
    assert kept == {"W1": (6, 8), "W2": (5, 8), "W3": (4, 8)}


def test_a_shared_weight_has_one_gradient():
    shared = Weight("W", 1)
    graph = [Operation("x"), Operation("a", ("x",), shared, 1), Operation("b", ("a",), shared, 1)]
    assert [k for k in lifetimes(graph) if k.kind == "weight gradient"] == [_Kept("W", "weight gradient", 3, 6, 1)]
    assert sum(w.parameters for w in weights(graph).values()) == 1


# A transformer as a graph


@pytest.mark.parametrize("m", TRANSFORMERS, ids=lambda m: m.name)
def test_a_fully_trained_transformer_is_the_itemised_count(m):
    graph, count = transformer(m, 96), flops.training(m, 96)
    assert (forward_flops(graph), backward_flops(graph)) == (count.forward.total, count.backward.total)
    assert sum(w.parameters for w in weights(graph).values()) == parameters(m).total


@pytest.mark.parametrize("labels", [1, 40, 96])
def test_a_compact_head_is_the_itemised_count_too(labels):
    graph, count = transformer(TINY, 96, labels=labels), flops.training(TINY, 96, head=labels)
    assert forward_flops(graph) + backward_flops(graph) == count.total


def test_qwen3_8b_at_8192_tokens():
    graph = transformer(QWEN, 8192)
    assert (forward_flops(graph), backward_flops(graph)) == (143_789_331_054_592, 287_578_662_109_184)


def linear_weights(m):
    return m.hidden * m.heads * m.head_dim * 2 + m.hidden * m.kv_heads * m.head_dim * 2 + 3 * m.hidden * m.ffn


def test_only_the_head_trained_walks_no_further_than_the_head():
    graph = transformer(TINY, 7, trained=lambda name: name == "head")
    assert backward_flops(graph) == 2 * 7 * TINY.hidden * TINY.vocab
    assert backward(graph)[-1].name == "head"
    assert set(kept_elements(graph)) == {"norm", "head"}


def test_upper_layers_trained_stop_the_walk_at_the_first_of_them():
    """Layers 1 and 2 of 3 trained whole: both pay twice their forward products, layer 0 nothing, the frozen head its input gradient."""
    graph = transformer(TINY, 7, trained=lambda name: name.startswith(("layer 1", "layer 2")))
    attention = flops.pairs(7) * flops.attention_flops_per_pair(TINY) // TINY.layers
    assert backward_flops(graph) == 2 * 2 * (2 * 7 * linear_weights(TINY) + attention) + 2 * 7 * TINY.hidden * TINY.vocab


def test_all_but_the_embedding_saves_only_input_gradients_that_lead_nowhere():
    """With the first norm frozen as well, query, key and value of layer 0 have nobody to pass a gradient to."""
    full = backward_flops(transformer(TINY, 7))
    assert backward_flops(transformer(TINY, 7, trained=lambda name: name != "embedding")) == full
    saved = 2 * 7 * TINY.hidden * (TINY.heads + 2 * TINY.kv_heads) * TINY.head_dim
    assert backward_flops(transformer(TINY, 7, trained=lambda name: name not in ("embedding", "layer 0 attention norm"))) == full - saved


def test_adapters_cost_their_own_products_and_the_frozen_input_gradients():
    """Rank 2 on query and value of all layers, all else frozen."""
    graph = transformer(TINY, 7, trained=lambda name: False, lora_rank=2, lora_on=("query", "value"))
    wide = TINY.heads * TINY.head_dim, TINY.kv_heads * TINY.head_dim
    own = sum(2 * 7 * 2 * (TINY.hidden + width) for width in wide)  # A and B forward, one layer
    assert forward_flops(graph) == flops.forward(TINY, 7).total + TINY.layers * own
    assert sum(w.parameters for w in weights(graph).values() if w.trained) == TINY.layers * sum(2 * (TINY.hidden + width) for width in wide)
    # Backward: weight gradients of A and B in every layer (own), input gradients of B in every layer, of A above layer 0;
    # frozen matrices: output, FFN everywhere; query, key, value above layer 0. Attention: in layer 0 the key has no gradient.
    b, a = (sum(2 * 7 * 2 * x for x in sizes) for sizes in (wide, (TINY.hidden, TINY.hidden)))
    matrices = {
        name: 2 * 7 * size
        for name, size in {
            "qkv": TINY.hidden * (wide[0] + 2 * wide[1]),
            "output": TINY.hidden * wide[0],
            "ffn": 3 * TINY.hidden * TINY.ffn,
        }.items()
    }
    once = flops.forward(TINY, 7)
    attention = 2 * once.attention - once.scores // TINY.layers
    everywhere, above = own + b + matrices["output"] + matrices["ffn"], a + matrices["qkv"]
    assert backward_flops(graph) == TINY.layers * everywhere + (TINY.layers - 1) * above + attention + once.head
    kept = kept_elements(graph)
    assert (kept["layer 0 query A"], kept["layer 1 query sum"]) == (7 * 2, 7 * wide[0])


def test_the_4n_rule_is_the_limit_of_small_adapters_without_attention():
    graph = transformer(QWEN, 1, trained=lambda name: False, lora_rank=1, lora_on=("query", "ffn down"))
    products = parameters(QWEN).linear + parameters(QWEN).head
    assert forward_flops(graph) + backward_flops(graph) == pytest.approx(flops.rule_4n(products, 1), rel=0.005)


def test_adapters_go_only_where_a_matrix_is():
    for name in ("latent up", "embedding", "qurey"):
        with pytest.raises(ValueError, match=f"lora_on.*{name}"):
            transformer(QWEN, 8, lora_rank=4, lora_on=(name,))
    with pytest.raises(ValueError, match="lora_on.*experts gate"):
        transformer(model("Qwen3-30B-A3B"), 8, lora_rank=4, lora_on=("experts gate",))
    with pytest.raises(ValueError, match="lora_rank"):
        transformer(QWEN, 8, lora_on=("query",))
    with pytest.raises(ValueError, match="tokens - labels"):
        transformer(QWEN, 8, labels=9)
    with pytest.raises(ValueError, match=r"labels \(tokens\) must be a whole number of at least 1, got 0"):
        transformer(QWEN, 8, labels=0)


def kept_per_token(m):
    """Values that one layer keeps for one token when all is trained, written down by hand from the layer's drawing."""
    query, key = m.heads * m.head_dim, m.kv_heads * m.head_dim
    norms = 4 * m.hidden  # two norms: input and output of each
    attention = 2 * query + 2 * key + key + query  # query and key before and after rotation, value, output
    return norms + attention + 3 * m.ffn  # gate, up, their product


@pytest.mark.parametrize("m", [TINY, QWEN, model("Qwen3-4B")], ids=lambda m: m.name)
def test_kept_values_of_a_layer_by_hand(m):
    kept = kept_elements(transformer(m, 5))
    last = {name: count for name, count in kept.items() if not name.startswith("layer")}
    inside = sum(count for name, count in kept.items() if name.startswith("layer") and name != f"layer {m.layers - 1} ffn sum")
    # the embedding's output is the first layer's first norm input, the last sum is the final norm's
    assert inside + last.pop("embedding") == 5 * m.layers * kept_per_token(m)
    assert last == {"norm": 5 * m.hidden, "head": 5 * m.vocab}


def test_fused_attention_keeps_its_output_even_where_no_weight_needs_it():
    frozen = transformer(TINY, 5, trained=lambda name: "attention output" not in name)
    assert kept_elements(frozen)["layer 0 values"] == 5 * TINY.heads * TINY.head_dim
    assert "layer 0 scores" in kept_elements(frozen) and kept_elements(frozen)["layer 0 scores"] == 0


def test_a_router_keeps_the_outputs_of_its_experts():
    kept = kept_elements(transformer(model("Qwen3-30B-A3B"), 2))
    assert kept["layer 0 experts down"] == 2 * 8 * 2048
    assert "layer 0 ffn down" not in kept_elements(transformer(QWEN, 2))


def test_a_layer_of_experts_ends_in_one_output_for_each_token():
    graph = transformer(model("Qwen3-30B-A3B"), 3)
    sizes = {op.name: op.elements for op in graph}
    assert sizes["layer 0 experts combined"] == sizes["layer 0 attention output"] == 3 * 2048
    assert {type(size) for size in sizes.values()} == {int}


@pytest.mark.parametrize("m", [TINY, QWEN], ids=lambda m: m.name)
def test_recomputation_that_stops_early_runs_up_to_the_last_kept_output_of_each_layer(m):
    graph = transformer(m, 64)
    kept, again = kept_elements(graph), 0
    for layer in range(m.layers):
        inside = [op for op in graph if op.name.startswith(f"layer {layer} ")]
        last = max(i for i, op in enumerate(inside) if op.name in kept and op.name != f"layer {layer} ffn sum")
        again += sum(op.flops for op in inside[: last + 1])
    assert again == flops.training(m, 64, recompute="stop early").recomputed.total


# State and update


def test_state_of_a_part_that_is_trained():
    graph = transformer(TINY, 3, trained=lambda name: "ffn down" in name)
    trained = TINY.layers * TINY.hidden * TINY.ffn
    state = training_state_bytes(graph)
    assert state.total == 18 * trained + 2 * (parameters(TINY).total - trained)
    assert (state.gradients, state.first_moment) == (4 * trained, 4 * trained)
    whole = 2 * 11 * 8 + 3 * (2 * 8 + 2 * 3) + 8  # embedding and head; norms of layers, heads, end
    inside = parameters(TINY).total - trained - whole
    assert training_state_bytes(graph, frozen_bytes=Fraction(1, 2)).total == 18 * trained + Fraction(inside, 2) + 2 * whole
    assert (
        training_state_bytes(graph, frozen_bytes=Fraction(1, 2), unquantised_bytes=4).total
        == 18 * trained + Fraction(inside, 2) + 4 * whole
    )
    assert training_state_bytes(graph, frozen_bytes=4).total == 18 * trained + 4 * (inside + whole)
    assert training_state_bytes(graph, frozen_bytes=1, unquantised_bytes=1).total == 18 * trained + inside + whole


def test_state_of_everything_trained_is_the_recipe():
    assert (
        training_state_bytes(transformer(QWEN, 1)).total
        == training_memory.training_state_bytes(parameters(QWEN).total).total
        == 147_433_236_480
    )


def test_state_without_anything_trained_is_refused():
    with pytest.raises(ValueError, match="trained parameters"):
        training_state_bytes(transformer(TINY, 3, trained=lambda name: False))


# Bytes of activations


def test_activations_by_hand():
    """TINY, 5 tokens: a layer keeps what the drawing says, less its input, 2 bytes each; the final norm its input and its output."""
    graph = transformer(TINY, 5)
    layer = 2 * 5 * (kept_per_token(TINY) - TINY.hidden)
    assert kept_layer_bytes(graph) == (layer,) * 3 and activation_bytes(graph, "layers").layer_inputs == 3 * 2 * 5 * 8
    logits = 5 * 11 * (2 + 4 + 4)
    assert activation_bytes(graph) == (3 * 2 * 5 * 8, 3 * layer, 2 * 2 * 5 * 8, logits)
    for recompute in ("layers", "stop early"):
        assert activation_bytes(graph, recompute) == (3 * 2 * 5 * 8, layer, 2 * 2 * 5 * 8, logits)
    assert activation_bytes(graph, "layers", bytes_per_value=4, copies=(2,)) == (3 * 4 * 5 * 8, 2 * layer, 2 * 4 * 5 * 8, 5 * 11 * 2)


@pytest.mark.parametrize("m", TRANSFORMERS, ids=lambda m: m.name)
def test_activations_with_nothing_computed_again_are_all_that_is_kept(m):
    kept = kept_elements(transformer(m, 3))
    parts = activation_bytes(transformer(m, 3), copies=(2,))
    assert parts.total == 2 * sum(kept.values()) and parts.logits == 2 * 3 * m.vocab
    again = activation_bytes(transformer(m, 3), "layers", copies=(2,))
    assert again.layers == max(kept_layer_bytes(transformer(m, 3))) and again[0::2] == parts[0::2]


@pytest.mark.parametrize("recompute", ["nothing", "layers", "stop early", "selective"])
@pytest.mark.parametrize("m", [TINY, *TRANSFORMERS], ids=lambda m: m.name)
def test_activations_of_a_shape_are_those_of_the_walk_through_its_graph(m, recompute):
    for labels in (None, 2):
        graph = transformer(m, 5, labels=labels)
        assert training_memory.activation_bytes(m, 5, labels, recompute, 4, (2, 3)) == activation_bytes(graph, recompute, 4, (2, 3))


def test_activations_of_a_shape_by_hand():
    parts = training_memory.activation_bytes(TINY, 5)
    layer = 2 * 5 * (kept_per_token(TINY) - TINY.hidden)
    assert parts == (3 * 2 * 5 * 8, 3 * layer, 2 * 2 * 5 * 8, 5 * 11 * (2 + 4 + 4)) and parts.total == sum(parts)


@pytest.mark.parametrize(
    "layer",
    [
        Layer(GatedDelta(2, 1, 3, 4), Gated(5)),
        Layer(Attention(4, 2, 3), Plain(5)),
        Layer(Attention(4, 2, 3), None),
        Layer(None, Gated(5)),
        Layer(Attention(4, 2, 3, gate="head"), Gated(5)),
        Layer(Attention(4, 2, 3, keys_as_values=True), Gated(5)),
        Layer(Attention(4, 2, 3), Gated(5), streams=2),
        Layer(Attention(4, 2, 3), Experts(8, 2, 5, plain=True)),
        Layer(Attention(4, 2, 3), Experts(8, 2, 5, expert_hidden=6)),
        Layer(Attention(4, 2, 3), Experts(8, 2, 5, 1, shared_gate=True)),
    ],
    ids=repr,
)
def test_activations_of_layers_that_are_not_counted_are_refused_by_name(layer):
    with pytest.raises(ValueError, match="model must have attention and gated parts in each layer for its activations, got Layer.*in made"):
        training_memory.activation_bytes(Model("made", 8, 11, stack=((1, Layer(Attention(4, 2, 3), Gated(5))), (1, layer))), 5)


def test_a_compact_head_keeps_only_the_logits_of_its_labels():
    some, every = (activation_bytes(transformer(TINY, 5, labels=labels), "layers") for labels in (2, 5))
    assert some.logits == 2 * 11 * 10 and every.logits == 5 * 11 * 10
    assert every.final_norm - some.final_norm == 2 * (5 - 2) * 8  # rows gathered before the head


def test_attention_without_a_fused_kernel_stores_a_square_for_each_head():
    fused, stored = (transformer(TINY, 5, fused=fused) for fused in (True, False))
    assert forward_flops(fused) == forward_flops(stored) and backward_flops(fused) == backward_flops(stored)
    assert [b - a for a, b in zip(kept_layer_bytes(fused), kept_layer_bytes(stored))] == [2 * 4 * 5 * 5] * 3


def test_layers_that_recomputation_runs_again_keep_their_inputs_though_nothing_else_would():
    """Adapters in the first layer need no gradient of its input; its second forward pass needs the input itself."""
    graph = transformer(TINY, 5, trained=lambda name: False, lora_rank=1, lora_on=("query",))
    assert "embedding" not in kept_elements(graph)
    assert activation_bytes(graph).layer_inputs == 2 * 2 * 5 * 8 and activation_bytes(graph, "layers").layer_inputs == 3 * 2 * 5 * 8


@given(st.sampled_from(TRANSFORMERS[:4]), st.integers(1, 50))
def test_activations_grow_with_the_sequence_and_shrink_with_recomputation(m, tokens):
    shorter, longer = transformer(m, tokens), transformer(m, 2 * tokens)
    again = activation_bytes(shorter, "layers")
    assert activation_bytes(longer, "layers") == tuple(2 * part for part in again)
    assert again.total < activation_bytes(shorter).total
    assert activation_bytes(transformer(m, tokens, fused=False), "layers").total > again.total


def test_activations_of_experts_are_those_of_the_layer_that_keeps_most():
    v3 = transformer(model("DeepSeek-V3"), 2)
    each = kept_layer_bytes(v3)
    assert len(set(each)) == 2 and len(each) == 61 and activation_bytes(v3, "layers").layers == max(each) > min(each)


def test_bytes_of_activations_are_refused_by_name():
    graph = transformer(TINY, 5)
    for bad, message in (
        (lambda: activation_bytes(graph, "some"), "recompute.*'some'"),
        (lambda: activation_bytes(graph, bytes_per_value=0), "bytes_per_value.* 0"),
        (lambda: training_memory.activation_bytes(TINY, 5, 6), "labels.* 6"),
        (lambda: training_memory.activation_bytes(TINY, 0), "tokens.* 0"),
        (lambda: training_memory.activation_bytes(TINY, 5, recompute="some"), "recompute.*'some'"),
        (lambda: training_memory.activation_bytes(TINY, 5, bytes_per_value=0), "bytes_per_value.* 0"),
        (lambda: activation_bytes(graph, copies=()), "copies must hold at least one copy"),
        (lambda: logits_bytes(10, (2, 0)), "copies.* 0"),
        (lambda: logits_bytes(-1), "values.* -1"),
        (lambda: activation_bytes([Operation("x")], "layers"), "graph must hold at least one layer"),
        (lambda: kept_layer_bytes([Operation("x", weight=Weight("W", 1))]), "graph must hold at least one layer"),
        (lambda: transformer(TINY, 5, fused="no"), "fused.*'no'"),
        (lambda: training_state_bytes(graph, unquantised_bytes=0), "unquantised_bytes.* 0"),
    ):
        with pytest.raises(ValueError, match=message):
            bad()


# Update


@pytest.mark.parametrize(
    "recipe, read, written",
    [
        ("fp32 gradients", 4 + 4 + 4 + 4, 4 + 4 + 4 + 2),
        ("bf16 gradients", 2 + 4 + 4 + 4, 4 + 4 + 4 + 2),
        ("8-bit adam", 4 + 4 + 1 + 1, 4 + 1 + 1 + 2),
        ("no master", 4 + 2 + 4 + 4, 2 + 4 + 4),
    ],
)
def test_bytes_of_an_update_by_hand(recipe, read, written):
    assert update_traffic(1000, recipe) == (1000 * read, 1000 * written)
    assert update_traffic(1000, recipe).total == 1000 * (read + written)


def test_bytes_of_an_update_of_a_recipe_of_ones_own():
    mine = training_memory.TrainingBytes(weights=2, gradients=3, master_weights=5, first_moment=7, second_moment=11)
    assert update_traffic(10, mine) == (10 * (3 + 5 + 7 + 11), 10 * (2 + 5 + 7 + 11))


def test_an_update_needs_parameters():
    with pytest.raises(ValueError, match="parameters.* 0"):
        update_traffic(0)
    with pytest.raises(ValueError, match="recipe.*'fp7'"):
        update_traffic(1, "fp7")


# Batches


def test_tokens_of_an_update_by_counting():
    seen = [(sequence, token, token < 3) for micro in range(5) for sequence in range(2) for token in range(7)]
    assert update_tokens(2, 7, 5, 3) == (len(seen), sum(counted for *_, counted in seen)) == UpdateTokens(70, 30)


def test_splitting_an_update_into_more_micro_batches_leaves_its_tokens():
    assert update_tokens(16, 512, 1, 100) == update_tokens(4, 512, 4, 100) == update_tokens(1, 512, 16, 100)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((2, 7, 5, 8), "length - labels"),
        ((0, 7), "sequences"),
        ((1, 7, 0), "micro_batches"),
        ((1, 0), "length"),
        ((1, 7, 1, -1), "labels"),
        ((1.5, 7), "sequences.* 1.5"),
    ],
)
def test_impossible_batches_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        update_tokens(*arguments)


@given(st.lists(st.integers(1, 12), min_size=1, max_size=6))
def test_pairs_of_packed_documents_by_a_mask(lengths):
    owner = [document for document, length in enumerate(lengths) for _ in range(length)]
    mask = sum(owner[q] == owner[k] for q in range(len(owner)) for k in range(q + 1))
    assert document_pairs(lengths) == mask <= flops.pairs(len(owner))


def test_pairs_of_the_two_splits():
    assert document_pairs([4096, 4096]) == 16_781_312
    assert document_pairs([7168, 1024]) == 26_218_496


@given(st.integers(2, 400), st.integers(1, 399))
def test_equal_documents_have_the_fewest_pairs(total, cut):
    if cut < total:
        assert document_pairs([total // 2, total - total // 2]) <= document_pairs([cut, total - cut])


@given(st.lists(st.integers(1, 20), min_size=1, max_size=30), st.integers(20, 60))
def test_packing_keeps_every_document_and_overfills_nothing(lengths, capacity):
    packed = pack(lengths, capacity)
    assert Counter(n for sequence in packed for n in sequence) == Counter(lengths)
    assert all(sum(sequence) <= capacity for sequence in packed)
    assert sum(sum(sequence) <= capacity / 2 for sequence in packed) <= 1


def fewest(lengths, capacity):
    """Fewest sequences, by trying every place for every document."""
    best = len(lengths)

    def place(rest, fills):
        nonlocal best
        if len(fills) >= best and rest:
            return
        if not rest:
            best = min(best, len(fills))
            return
        for i, fill in enumerate(fills):
            if fill + rest[0] <= capacity:
                place(rest[1:], [*fills[:i], fill + rest[0], *fills[i + 1 :]])
        place(rest[1:], [*fills, rest[0]])

    place(lengths, [])
    return best


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 10), min_size=1, max_size=7))
def test_packing_stays_within_its_bound_of_the_fewest(lengths):
    assert 9 * len(pack(lengths, 10)) <= 11 * fewest(lengths, 10) + 6


def test_long_documents_are_placed_first():
    assert pack([3, 3, 7, 7], 10) == [[7, 3], [7, 3]]


def test_what_cannot_be_packed_is_refused():
    with pytest.raises(ValueError, match="capacity - length.*-1"):
        pack([5, 11], 10)
    for lengths in ([], [0], [2.5]):
        with pytest.raises(ValueError, match="length"):
            pack(lengths, 10)
        with pytest.raises(ValueError, match="length"):
            document_pairs(lengths)


# Input: tick by tick


def by_ticks(prepare, compute, buffers):
    """A clock of whole ticks: a reader fills free buffers in turn, the chip empties full ones in turn."""
    n, now, free, ready = len(prepare), 0, buffers, []
    reading = computing = None
    next_read, windows = 0, {}
    while len([k for k in windows if k[0] == "compute" and windows[k][1] is not None]) < n:
        for _ in range(3 * n):  # settle everything that happens at this instant
            if reading is not None and now == windows["prepare", reading][0] + prepare[reading]:
                windows["prepare", reading][1] = now
                ready.append(reading)
                reading = None
            if computing is not None and now == windows["compute", computing][0] + compute[computing]:
                windows["compute", computing][1] = now
                computing, free = None, free + 1
            if reading is None and next_read < n and free > 0:
                reading, next_read, free = next_read, next_read + 1, free - 1
                windows["prepare", reading] = [now, None]
            if computing is None and ready:
                computing = ready.pop(0)
                windows["compute", computing] = [now, None]
        now += 1
    return tuple(_Batch(tuple(windows["prepare", i]), tuple(windows["compute", i])) for i in range(n))


TICKS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=8)


@given(TICKS, st.integers(1, 4))
def test_input_timeline_tick_by_tick(times, buffers):
    prepare, compute = zip(*times)
    assert input_timeline(prepare, compute, buffers) == by_ticks(prepare, compute, buffers)


@given(st.integers(0, 9), st.integers(0, 9), st.integers(1, 20))
def test_double_buffering_takes_the_longer_stage_and_single_the_sum(prepare, compute, batches):
    ends = {b: input_timeline([prepare] * batches, [compute] * batches, b)[-1].compute.end for b in (1, 2, 3)}
    assert ends[1] == batches * (prepare + compute)
    assert ends[2] == ends[3] == prepare + compute + (batches - 1) * max(prepare, compute)


@given(TICKS, st.integers(1, 4))
def test_another_buffer_never_delays_a_batch(times, buffers):
    prepare, compute = zip(*times)
    for fewer, more in zip(input_timeline(prepare, compute, buffers), input_timeline(prepare, compute, buffers + 1)):
        assert more.compute.end <= fewer.compute.end


@pytest.mark.parametrize(
    "arguments, message",
    [
        (([], []), "prepare_seconds"),
        (([1], [1, 2]), "compute_seconds"),
        (([1], [-1]), "-1"),
        (([1], [1], 0), "buffers"),
        (([1], [1], 1.5), "buffers"),
    ],
)
def test_impossible_timelines_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        input_timeline(*arguments)


def test_an_operation_stores_and_multiplies_nothing_unless_told():
    plain = Operation("x")
    assert (plain.reads, plain.weight, plain.flops, plain.elements, plain.saves) == ((), None, 0, 0, ())


def test_every_output_has_the_elements_of_the_drawing():
    rows, m = 7, replace(TINY, layers=1)  # 8 wide, 4 heads of 3 on 2 of keys, FFN 10, vocabulary 11: no two of a kind
    graph = transformer(m, rows, labels=5, lora_rank=9, lora_on=("key", "ffn down"))
    sizes = {op.name.removeprefix("layer 0 "): op.elements for op in graph}
    wide = {
        "embedding": 8,
        "attention norm": 8,
        "query": 12,
        "query rotated": 12,
        "key": 6,
        "key A": 9,
        "key B": 6,
        "key sum": 6,
        "key rotated": 6,
        "value": 6,
        "values": 12,
        "attention output": 8,
        "attention sum": 8,
        "ffn norm": 8,
        "ffn gate": 10,
        "ffn up": 10,
        "ffn product": 10,
        "ffn down": 8,
        "ffn down A": 9,
        "ffn down B": 8,
        "ffn down sum": 8,
        "ffn sum": 8,
        "norm": 8,
    }
    assert sizes == {name: 7 * width for name, width in wide.items()} | {"scores": 0, "label rows": 5 * 8, "head": 5 * 11, "loss": 0}
    assert {op.name: op.weight.parameters for op in graph if op.name.endswith((" A", " B"))} == {
        "layer 0 key A": 8 * 9,
        "layer 0 key B": 9 * 6,
        "layer 0 ffn down A": 10 * 9,
        "layer 0 ffn down B": 9 * 8,
    }
    assert {op.name: op.flops for op in graph if op.name.endswith((" A", " B"))} == {
        "layer 0 key A": 2 * 7 * 8 * 9,
        "layer 0 key B": 2 * 7 * 9 * 6,
        "layer 0 ffn down A": 2 * 7 * 10 * 9,
        "layer 0 ffn down B": 2 * 7 * 9 * 8,
    }


@pytest.mark.parametrize("prepare, compute", [([1], [1, 2]), ([1, 2], [1])])
def test_every_batch_is_prepared_and_computed(prepare, compute):
    with pytest.raises(ValueError, match=f"as many values as prepare_seconds, {len(prepare)}, got {len(compute)}"):
        input_timeline(prepare, compute)

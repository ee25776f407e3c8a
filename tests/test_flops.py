"""FLOP counts against loops that multiply one pair of numbers at a time, worked values, and laws."""

from dataclasses import astuple, replace
from fractions import Fraction

import numpy
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.counts.flops import Flops, attention_flops_per_pair, decode_step, forward, pairs, rule_2n, rule_4n, rule_6n, training
from workloads.counts.parameter_counts import active_parameters, parameters
from workloads.facts.models import Model, model

QWEN = model("Qwen3-8B")
COUNTS = st.integers(min_value=1, max_value=4)


# An independent oracle: a decoder that multiplies in loops and counts 2 for each multiply-add.


class Meter:
    def __init__(self):
        self.flops = dict.fromkeys(("projections", "ffn", "scores", "values", "head"), 0)

    def dot(self, part, inner):
        for _ in range(inner):
            self.flops[part] += 2

    def matmul(self, part, rows, inner, columns):
        for _ in range(rows):
            for _ in range(columns):
                self.dot(part, inner)


def forward_by_loops(m, new, past, batch, rows, causal, absorbed):
    meter = Meter()
    for _ in range(batch):
        for layer in range(m.layers):
            query_width = m.heads * (m.head_dim + m.rope_dim)
            if m.query_rank:
                meter.matmul("projections", new, m.hidden, m.query_rank)
                meter.matmul("projections", new, m.query_rank, query_width)
            else:
                meter.matmul("projections", new, m.hidden, query_width)
            if m.latent:
                meter.matmul("projections", new, m.hidden, m.latent + m.rope_dim)
                for _ in range(m.heads):
                    if absorbed:  # queries move into the latent's space, results out of it
                        meter.matmul("projections", new, m.head_dim, m.latent)
                        meter.matmul("projections", new, m.latent, m.value_dim)
                    else:  # every cached latent becomes keys and values
                        meter.matmul("projections", past + new, m.latent, m.head_dim)
                        meter.matmul("projections", past + new, m.latent, m.value_dim)
            else:
                meter.matmul("projections", new, m.hidden, m.kv_heads * m.head_dim)
                meter.matmul("projections", new, m.hidden, m.kv_heads * m.value_dim)
            for _ in range(m.heads):
                for query in range(new):
                    for key in range(past + new):
                        if key <= past + query or not causal:
                            meter.dot("scores", m.latent + m.rope_dim if absorbed else m.head_dim + m.rope_dim)
                            meter.dot("values", m.latent if absorbed else m.value_dim)
            meter.matmul("projections", new, m.heads * m.value_dim, m.hidden)
            if m.experts and layer >= m.dense_layers:
                meter.matmul("ffn", new, m.hidden, m.experts)
                for _ in range(m.active_experts + m.shared_experts):
                    for inner, columns in ((m.hidden, m.expert_ffn), (m.hidden, m.expert_ffn), (m.expert_ffn, m.hidden)):
                        meter.matmul("ffn", new, inner, columns)
            else:
                for inner, columns in ((m.hidden, m.ffn), (m.hidden, m.ffn), (m.ffn, m.hidden)):
                    meter.matmul("ffn", new, inner, columns)
        meter.matmul("head", rows, m.hidden, m.vocab)
    return Flops(**meter.flops)


@st.composite
def shapes(draw):
    kv_heads, head_dim = draw(st.integers(1, 2)), draw(COUNTS)
    sizes = dict(
        layers=draw(st.integers(1, 2)),
        hidden=draw(COUNTS),
        kv_heads=kv_heads,
        heads=kv_heads * draw(st.integers(1, 2)),
        head_dim=head_dim,
        ffn=draw(COUNTS),
        vocab=draw(COUNTS),
        tied=draw(st.booleans()),
    )
    if draw(st.booleans()):
        sizes |= dict(
            kv_heads=sizes["heads"], latent=draw(COUNTS), rope_dim=draw(COUNTS), query_rank=draw(st.integers(0, 2)), value_dim=draw(COUNTS)
        )
    if draw(st.booleans()):
        experts = draw(st.integers(1, 3))
        sizes |= dict(
            experts=experts,
            active_experts=draw(st.integers(1, experts)),
            expert_ffn=draw(COUNTS),
            shared_experts=draw(st.integers(0, 1)),
            dense_layers=draw(st.integers(0, sizes["layers"])),
        )
        sizes["ffn"] *= min(1, sizes["dense_layers"])
    return Model("drawn", **sizes)


@settings(max_examples=60, deadline=None)
@given(shapes(), COUNTS, st.integers(0, 3), st.integers(1, 2), st.booleans(), st.data())
def test_forward_equals_counting_every_multiply_add(shape, new, past, batch, causal, data):
    absorbed = bool(shape.latent) and data.draw(st.booleans())
    rows = data.draw(st.integers(0, new))
    assert forward(shape, new, past, batch, rows, causal, absorbed) == forward_by_loops(shape, new, past, batch, rows, causal, absorbed)


@settings(max_examples=30, deadline=None)
@given(shapes(), st.integers(0, 4), COUNTS)
def test_decode_step_equals_counting_every_multiply_add(shape, past, batch):
    assert decode_step(shape, past, batch) == forward_by_loops(shape, 1, past, batch, 1, True, bool(shape.latent))


@settings(max_examples=30, deadline=None)
@given(COUNTS, COUNTS, COUNTS)
def test_a_backward_pass_repeats_each_product_twice(rows, inner, columns):
    meter = Meter()
    meter.matmul("head", rows, inner, columns)  # Y = X W
    once = meter.flops["head"]
    meter.matmul("head", rows, columns, inner)  # dX = dY W^T
    meter.matmul("head", inner, rows, columns)  # dW = X^T dY
    only_a_head = Model("head", inner, columns, layers=1, heads=1, kv_heads=1, head_dim=1, ffn=1)
    assert training(only_a_head, rows).forward.head == once == 2 * rows * inner * columns
    assert training(only_a_head, rows).backward.head == meter.flops["head"] - once


# Pairs


@pytest.mark.parametrize("new, past, causal", [(n, p, c) for n in range(6) for p in range(4) for c in (True, False)])
def test_pairs_equal_enumeration(new, past, causal):
    seen = [(q, k) for q in range(past, past + new) for k in range(past + new) if k <= q or not causal]
    assert pairs(new, past, causal) == len(seen)


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))
def test_pairs_of_chunks_add_up_to_the_pairs_of_the_whole(first, second, past):
    assert pairs(first, past) + pairs(second, past + first) == pairs(first + second, past)


@given(st.integers(0, 10**9), st.integers(0, 10**9))
def test_causal_pairs_never_exceed_full_ones_and_tend_to_half(new, past):
    assert pairs(new, past) <= pairs(new, past, causal=False)
    assert 2 * pairs(new) - pairs(new, causal=False) == new


def test_packed_documents_have_fewer_pairs_than_one_long_one():
    assert 2 * pairs(4096) == 16_781_312
    assert pairs(7168) + pairs(1024) == 26_218_496
    assert pairs(8192) == 33_558_528


# Worked values of Qwen3-8B: 36 layers, hidden 4096, 32 query heads of 128, vocabulary 151,936


def test_flops_per_pair():
    assert attention_flops_per_pair(QWEN) == 36 * 32 * (2 * 128 + 2 * 128) == 589_824


def test_prefill_by_component():
    once = forward(QWEN, 8192)
    assert once.projections == 2 * 8192 * 36 * (2 * 4096 * 4096 + 2 * 4096 * 1024)
    assert once.ffn == 2 * 8192 * 36 * 3 * 4096 * 12288
    assert once.scores == once.values == 589_824 // 2 * 33_558_528
    assert once.head == 2 * 8192 * 4096 * 151_936
    assert once.total == 143_789_331_054_592
    assert once.layers + once.head == once.total and once.scores + once.values == once.attention


@pytest.mark.parametrize(
    "new, past, head, tera", [(1279, 0, "all", 19.841999), (1024, 0, "last", 14.535716), (2048, 6144, "last", 37.110366)]
)
def test_forward_anchors(new, past, head, tera):
    assert round(forward(QWEN, new, past, head=head).total / 1e12, 6) == tera


def test_full_pairs_anchor():
    assert round(forward(QWEN, 8192, causal=False).total / 1e12, 6) == 163.578124


def test_decode_step_anchor_and_slope():
    assert decode_step(QWEN, past=1024).total == 15_740_764_160
    assert decode_step(QWEN, past=1025).total - decode_step(QWEN, past=1024).total == 589_824


def test_training_anchors():
    once = training(QWEN, 8192)
    assert once.total == 431_367_993_163_776
    assert 3 * once.forward.attention == 59_380_875_657_216
    assert training(QWEN, 8192, head=4096).total == 416_073_614_622_720
    assert round(training(QWEN, 8192, causal=False).total / 1e12, 6) == 490.734373


@pytest.mark.parametrize("causal, layers, early", [(True, 133.593, 103.906), (False, 153.381872, 123.695058)])
def test_recomputation_anchors(causal, layers, early):
    more = training(QWEN, 8192, causal=causal, recompute="layers").recomputed
    less = training(QWEN, 8192, causal=causal, recompute="stop early").recomputed
    assert round(more.total / 1e12, len(str(layers)) - 4) == layers
    assert round(less.total / 1e12, len(str(early)) - 4) == early
    assert more.total - less.total == 2 * 8192 * 36 * 4096 * 12288 and more.head == less.head == 0


def test_counting_recomputation_adds_to_the_total():
    none, more = (training(QWEN, 512, batch=3, recompute=r) for r in ("nothing", "layers"))
    assert none.recomputed.total == 0
    assert more.total - none.total == more.forward.layers == 3 * forward(QWEN, 512, head=0).total
    experts = training(model("Qwen3-30B-A3B"), 512, recompute="layers")  # refused is only what experts make wrong
    assert experts.recomputed.total == experts.forward.layers


def test_a_decode_step_of_mla_meets_the_latent_itself():
    v3 = model("DeepSeek-V3")
    assert attention_flops_per_pair(v3, absorbed=True) == 2 * 61 * 128 * (576 + 512)
    assert attention_flops_per_pair(v3) == 2 * 61 * 128 * (192 + 128)
    assert decode_step(v3, 4096) == forward(v3, 1, 4096, head="last", absorbed=True)
    assert decode_step(v3, 4096).total < forward(v3, 1, 4096, head="last").total / 50  # expanding 4096 latents again costs more


# Laws


@settings(deadline=None)
@given(shapes(), COUNTS, COUNTS, st.integers(0, 5))
def test_prefill_in_chunks_costs_the_same_when_nothing_is_expanded_again(shape, first, second, past):
    absorbed = bool(shape.latent)
    whole = forward(shape, first + second, past, head="all", absorbed=absorbed)
    assert forward(shape, first, past, absorbed=absorbed) + forward(shape, second, past + first, absorbed=absorbed) == whole


@settings(deadline=None)
@given(shapes(), COUNTS, st.integers(0, 5), st.integers(1, 50))
def test_forward_is_linear_in_the_batch(shape, new, past, batch):
    assert forward(shape, new, past, batch) == batch * forward(shape, new, past) == forward(shape, new, past) * batch


@settings(deadline=None)
@given(shapes(), COUNTS, st.integers(0, 5))
def test_causal_work_never_exceeds_full_work(shape, new, past):
    for causal, full in zip(astuple(forward(shape, new, past)), astuple(forward(shape, new, past, causal=False))):
        assert causal <= full


@settings(deadline=None)
@given(shapes(), st.integers(1, 6), st.integers(1, 6))
def test_prefill_then_decode_equals_one_pass_over_the_whole_text(shape, prompt, steps):
    absorbed = bool(shape.latent)
    total = forward(shape, prompt, absorbed=absorbed)
    for step in range(steps):
        total = total + decode_step(shape, prompt + step)
    assert total == forward(shape, prompt + steps, absorbed=absorbed)


@settings(deadline=None)
@given(shapes(), COUNTS)
def test_without_attention_the_itemised_count_is_2n_of_the_weights_in_products(shape, new):
    once, count = forward(shape, new), parameters(shape)
    in_products = active_parameters(shape) - count.norms - count.biases - (0 if shape.tied else count.embedding)
    assert once.total - once.attention == rule_2n(in_products, new)


def test_rules_and_the_gap_to_the_itemised_count():
    assert rule_6n(8_190_735_360, 8192) == 402_591_024_414_720
    gap = training(QWEN, 8192).total - rule_6n(8_190_735_360, 8192)
    assert gap == 59_380_875_657_216 - 6 * 8192 * (622_329_856 + 308_224)  # attention in; embedding table and norms out
    assert gap / rule_6n(8_190_735_360, 8192) == pytest.approx(0.0714794, abs=1e-6)
    assert rule_2n(8e9, 512 * 1024) == 8.388608e15 and rule_2n(3, 5) + rule_4n(3, 5) == rule_6n(3, 5) == 90


# Symbols and arrays


def test_symbols_pass_and_give_the_polynomial():
    n, p, b = sympy.symbols("n p B", positive=True, integer=True)
    assert sympy.expand(pairs(n, p) - (n * (n + 1) / 2 + n * p)) == 0
    total = forward(QWEN, n, p, b, head="last").total
    closed = b * (2 * 6_945_767_424 * n + 589_824 * (n * (n + 1) / 2 + n * p) + 2 * 622_329_856)
    assert sympy.expand(total - closed) == 0
    assert total.subs({n: 2048, p: 6144, b: 1}) == forward(QWEN, 2048, 6144, head="last").total
    assert sympy.diff(decode_step(QWEN, p).total, p) == 589_824
    assert sympy.expand(training(QWEN, n, b).total - 3 * forward(QWEN, n, 0, b).total) == 0


def test_a_symbolic_shape_gives_the_general_formula():
    layers, hidden, heads, width, ffn, vocab, n = sympy.symbols("L h H d f V n", positive=True, integer=True)
    shape = Model("symbolic", hidden, vocab, layers=layers, heads=heads, kv_heads=heads, head_dim=width, ffn=ffn)
    weights = layers * (4 * hidden * heads * width + 3 * hidden * ffn) + hidden * vocab
    expected = 2 * n * weights + 4 * layers * heads * width * n * (n + 1) / 2
    assert sympy.expand(forward(shape, n).total - expected) == 0


def test_arrays_give_what_scalars_give():
    new, past = numpy.array([1, 17, 1024]), numpy.array([0, 5, 8192])
    for causal in (True, False):
        array = forward(QWEN, new, past, batch=3, head="last", causal=causal)
        for i in range(3):
            assert tuple(part[i] if numpy.ndim(part) else part for part in astuple(array)) == astuple(
                forward(QWEN, int(new[i]), int(past[i]), 3, "last", causal)
            )
    assert list(training(QWEN, new, recompute="stop early").total) == [training(QWEN, int(n), recompute="stop early").total for n in new]


def test_whole_number_arrays_do_not_overflow():
    new = numpy.array([10**7, 10**8])
    exact = [forward(QWEN, int(n)).total for n in new]
    assert min(exact) > 2**64
    assert forward(QWEN, new).total == pytest.approx(exact, rel=1e-12)
    assert forward(QWEN, new[0]).total == exact[0]  # a NumPy scalar becomes an exact integer


def test_a_fractional_past_is_a_mean():
    half = decode_step(QWEN, Fraction(2048 + 2049, 2)).total
    assert half == Fraction(decode_step(QWEN, 2048).total + decode_step(QWEN, 2049).total, 2)


# Refusals


@pytest.mark.parametrize(
    "call, name",
    [
        (lambda: pairs(-1), "new"),
        (lambda: pairs(1.5), "new"),
        (lambda: pairs(3, past=-1), "past"),
        (lambda: pairs(3, past=float("nan")), "past"),
        (lambda: forward(QWEN, 0), "new"),
        (lambda: forward(QWEN, 8, batch=0), "batch"),
        (lambda: forward(QWEN, 8, past=-2), "past"),
        (lambda: forward(QWEN, 8, head="first"), "head"),
        (lambda: forward(QWEN, 8, head=9), "head"),
        (lambda: forward(QWEN, 8, head=-1), "head"),
        (lambda: forward(QWEN, True), "new"),
        (lambda: forward(QWEN, "8"), "new"),
        (lambda: forward(QWEN, float("inf")), "new"),
        (lambda: forward(QWEN, 8, absorbed=True), "absorbed"),
        (lambda: attention_flops_per_pair(QWEN, absorbed=True), "absorbed"),
        (lambda: forward(model("RWKV-7-2.9B"), 8, absorbed=True), "absorbed"),
        (lambda: forward("Qwen3-8B", 8), "model"),
        (lambda: decode_step(QWEN, -1), "past"),
        (lambda: training(QWEN, 8, recompute="everything"), "recompute"),
        (lambda: training(model("Qwen3-30B-A3B"), 8, recompute="stop early"), "recompute"),
        (lambda: rule_2n(0, 8), "parameters"),
        (lambda: rule_4n(8, -1), "tokens"),
        (lambda: rule_6n(float("nan"), 8), "parameters"),
        (lambda: forward(QWEN, numpy.array([4, 0])), "new"),
        (lambda: forward(QWEN, numpy.array([4.0, numpy.nan])), "new"),
    ],
)
def test_impossible_work_is_refused_by_name(call, name):
    with pytest.raises(ValueError, match=name):
        call()


def test_more_rows_of_logits_than_positions_is_no_work():
    small = replace(QWEN, layers=1)
    assert forward(small, 8, head=8) == forward(small, 8) and forward(small, 8, head=1) == forward(small, 8, head="last")

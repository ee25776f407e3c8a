"""Bytes against worked values, enumeration and laws."""

from itertools import combinations, product

import numpy
import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from workloads.counts.layout import Layout
from workloads.counts.layout_memory import serving_bytes
from workloads.counts.memory import (
    cards_that_hold,
    decode_traffic,
    kv_bytes,
    kv_bytes_per_token,
    kv_copies,
    sequences_that_fit,
    state_bytes,
    weight_bytes,
    weights_read_per_step,
)
from workloads.counts.parameter_counts import parameters
from workloads.counts.training_memory import RECIPES, TrainingBytes, training_state_bytes
from workloads.facts.formats import Formats
from workloads.facts.models import Model, model, models

QWEN = model("Qwen3-8B")
EXPERTS = Model(
    "experts", 6, 7, layers=2, heads=4, kv_heads=2, head_dim=3, ffn=0, experts=4, active_experts=2, expert_ffn=5, shared_experts=1
)


# Weights


def test_weight_bytes_of_qwen3_8b():
    assert weight_bytes(QWEN) == 2 * 8_190_735_360 == 16_381_470_720
    assert weight_bytes(QWEN, 1) * 4 == weight_bytes(QWEN, 2) * 2 == weight_bytes(QWEN, 4)


def test_a_step_reads_all_but_the_embedding_table():
    assert weights_read_per_step(QWEN) == 15_136_811_008 == weight_bytes(QWEN) - 2 * 151_936 * 4096


def test_a_shared_table_is_read_as_the_head():
    assert weights_read_per_step(model("Qwen3-4B")) == weight_bytes(model("Qwen3-4B"))


def test_weights_read_do_not_grow_with_the_batch_of_a_dense_model():
    assert weights_read_per_step(QWEN, batch=1) == weights_read_per_step(QWEN, batch=500)


@pytest.mark.parametrize("batch", [1, 2, 3])
def test_experts_read_equal_the_mean_over_all_choices(batch):
    choices = list(combinations(range(4), 2))
    touched = [len(set().union(*picks)) for picks in product(choices, repeat=batch)]
    mean = sum(touched) / len(touched)
    count = parameters(EXPERTS)
    rest = count.total - count.embedding - count.experts
    assert weights_read_per_step(EXPERTS, batch=batch) == pytest.approx(2 * (rest + count.experts * mean / 4), rel=1e-12)


@pytest.mark.parametrize("widths", [2, {"experts": 0.53125, "biases": 2, "other": 1}])
def test_an_expert_that_nobody_picks_leaves_its_biases_unread_too(widths):
    """128 experts of three matrices of 2,880 x 2,880 and as many biases as outputs in 36 layers, of which a token picks 4."""
    shape = model("gpt-oss-120b")
    matrices, biases = 36 * 128 * 3 * 2880 * 2880, 36 * 128 * 3 * 2880
    b_experts, b_biases = (widths, widths) if widths == 2 else (0.53125, 2)
    every = weights_read_per_step(shape, widths, 10**9)
    assert every == weight_bytes(shape, widths) - 201_088 * 2880 * (2 if widths == 2 else 1)
    for batch in (1, 4):
        left = (matrices * b_experts + biases * b_biases) * (124 / 128) ** batch
        assert weights_read_per_step(shape, widths, batch) == pytest.approx(every - left, rel=1e-12)
    layout = Layout(data=8, expert=8)
    held = serving_bytes(shape, layout, 1, 8, Formats(weights=widths)).weights
    experts = matrices * b_experts + biases * b_biases
    assert held == pytest.approx(weight_bytes(shape, widths) - experts * 7 / 8, rel=1e-12)
    assert layout.groups(shape)[1][0] == (matrices + biases) / 8


@given(st.integers(1, 10**4))
def test_experts_read_grow_with_the_batch_up_to_all_of_them(batch):
    count = parameters(EXPERTS)
    everything = 2 * (count.total - count.embedding)
    assert weights_read_per_step(EXPERTS, batch=batch) <= weights_read_per_step(EXPERTS, batch=batch + 1) <= everything
    assert weights_read_per_step(EXPERTS, batch=200) == pytest.approx(everything)


# KV cache and state


@pytest.mark.parametrize(
    "name, worked, printed",
    [
        ("Qwen3-8B", 36 * 2 * 8 * 128 * 2, 147_456),
        ("Llama-2-7B", 32 * 2 * 32 * 128 * 2, 524_288),
        ("Llama-3.1-8B", 32 * 2 * 8 * 128 * 2, 131_072),
        ("Llama-3.1-70B", 80 * 2 * 8 * 128 * 2, 327_680),
        ("DeepSeek-67B", 95 * 2 * 8 * 128 * 2, 389_120),
        ("DeepSeek-V2", 60 * (512 + 64) * 2, 69_120),
        ("DeepSeek-V3", 61 * (512 + 64) * 2, 70_272),
    ],
)
def test_kv_bytes_per_token(name, worked, printed):
    assert kv_bytes_per_token(model(name)) == worked == printed


def test_kv_bytes_equal_storing_each_vector():
    shape, stored = Model("tiny", 6, 7, layers=2, heads=4, kv_heads=2, head_dim=3, ffn=5, value_dim=2), 0
    for _ in range(3):  # sequences
        for _ in range(5):  # tokens
            for _ in range(shape.layers):
                for _ in range(shape.kv_heads):
                    stored += len([0.0] * 3) * 2 + len([0.0] * 2) * 2  # a key and a value, 2 bytes each
    assert kv_bytes(shape, 5, batch=3) == stored


def test_a_latent_cache_is_the_same_for_any_number_of_heads():
    few, many = (Model("mla", 8, 7, layers=2, heads=heads, kv_heads=heads, head_dim=4, ffn=5, latent=6, rope_dim=2) for heads in (2, 16))
    assert kv_bytes_per_token(few) == kv_bytes_per_token(many) == 2 * (6 + 2) * 2


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(1, 1000))
def test_kv_bytes_grow_linearly_with_tokens_and_batch(first, second, batch):
    assert kv_bytes(QWEN, first, batch) + kv_bytes(QWEN, second, batch) == batch * kv_bytes(QWEN, first + second)


def test_savings_of_a_latent_cache():
    base = kv_bytes_per_token(model("DeepSeek-67B"))
    assert 1 - kv_bytes_per_token(model("DeepSeek-V2"), 0.75) / base == pytest.approx(0.933388158, rel=1e-9)  # 6 bits
    assert 1 - kv_bytes_per_token(model("DeepSeek-V2")) / base == pytest.approx(0.822368421, rel=1e-9)
    assert 1 - kv_bytes_per_token(model("DeepSeek-V3")) / base == pytest.approx(0.819407895, rel=1e-9)


def test_constant_states():
    assert state_bytes(model("Mamba-2-2.7B")) == 64 * (80 * 64 * 128 + 4 * (5120 + 2 * 128)) * 2 == 86_638_592
    assert state_bytes(model("RWKV-7-2.9B")) == 32 * (40 * 64 * 64 * 4 + 2 * 2560 * 2) == 21_299_200
    assert state_bytes(model("RWKV-7-2.9B"), batch=7) == 7 * 21_299_200
    assert state_bytes(model("Mamba-2-2.7B")) / kv_bytes_per_token(QWEN) == pytest.approx(587.555556)
    assert state_bytes(model("RWKV-7-2.9B")) / kv_bytes_per_token(QWEN) == pytest.approx(144.444444)


# A decode step


def test_traffic_of_a_decode_step():
    moved = decode_traffic(QWEN, past=2742, batch=64)
    assert moved.weights == 15_136_811_008
    assert moved.embedding_rows == 64 * 8192
    assert moved.kv_read == 64 * 2742 * 147_456
    assert moved.kv_written == 64 * 147_456
    assert moved.total == 41_023_531_008
    assert round(64 / (moved.total / 1792e9), 2) == 2795.66


def test_traffic_takes_a_mean_past():
    apart = decode_traffic(QWEN, 100).total + decode_traffic(QWEN, 301).total - weights_read_per_step(QWEN)
    assert decode_traffic(QWEN, 200.5, batch=2).total == apart


@given(st.integers(0, 10**5), st.integers(1, 10**4))
def test_bytes_a_token_fall_with_the_batch_but_never_below_its_own_cache(past, batch):
    one, more = (decode_traffic(QWEN, past, b).total / b for b in (batch, batch + 1))
    assert more < one
    assert more > past * kv_bytes_per_token(QWEN)


# Training state


@pytest.mark.parametrize(
    "recipe, worked",
    [
        ("fp32 gradients", 2 + 4 + 4 + 4 + 4),
        ("bf16 gradients", 2 + 2 + 4 + 4 + 4),
        ("both gradients", 2 + 2 + 4 + 4 + 4 + 4),
        ("8-bit adam", 2 + 4 + 4 + 1 + 1),
        ("no master", 2 + 4 + 0 + 4 + 4),
    ],
)
def test_bytes_a_parameter_by_recipe(recipe, worked):
    assert training_state_bytes(1, recipe).total == RECIPES[recipe].total == worked


def test_each_recipe_changes_one_thing_of_the_first():
    first = vars(RECIPES["fp32 gradients"])
    for name, recipe in RECIPES.items():
        changed = {item.partition("_")[2] if "moment" in item else item for item, value in vars(recipe).items() if value != first[item]}
        assert len(changed) == (0 if name == "fp32 gradients" else 1)


def test_training_state_of_qwen3_8b():
    state = training_state_bytes(8_190_735_360)
    assert state.total == 147_433_236_480
    assert list(vars(state).values()) == [16_381_470_720] + 4 * [32_762_941_440]
    assert round(state.total / 2**30, 3) == 137.308
    assert state.total - training_state_bytes(8_190_735_360, "bf16 gradients").total == 16_381_470_720


def test_a_recipe_of_ones_own():
    assert training_state_bytes(10, TrainingBytes(1, 2, 0, 0.5, 0.5)) == TrainingBytes(10, 20, 0, 5, 5)
    with pytest.raises(ValueError, match="gradients"):
        TrainingBytes(2, -1, 4, 4, 4)


# What fits


@pytest.mark.parametrize(
    "name, weights, pooled, copies",
    [
        ("Qwen3-8B", None, 1032, 840),
        ("Llama-2-7B", None, 291, 240),
        ("Llama-3.1-8B", None, 1162, 952),
        ("Llama-3.1-70B", None, 371, 0),
        ("DeepSeek-67B", None, 316, 0),
        ("DeepSeek-V2", 472e9, 593, 0),
        ("DeepSeek-V3", 671e9, 0, 0),
    ],
)
def test_sequences_of_4096_tokens_on_eight_cards_of_80_gb(name, weights, pooled, copies):
    m = model(name)
    resident, each = weights or weight_bytes(m), kv_bytes(m, 4096)
    assert sequences_that_fit(8 * 80e9, resident, each) == pooled
    assert sequences_that_fit(80e9, resident, each, copies=8) == copies


@pytest.mark.parametrize("name, weights, pooled, copies", [("Mamba-2-2.7B", 5.4e9, 7324, 6888), ("RWKV-7-2.9B", 5.8e9, 29775, 27864)])
def test_sequences_of_constant_state(name, weights, pooled, copies):
    each = state_bytes(model(name))
    assert 2 * model(name).published_parameters == weights
    assert sequences_that_fit(640e9, weights, each) == pooled
    assert sequences_that_fit(80e9, weights, each, copies=8) == copies


@given(st.integers(1, 10**12), st.integers(0, 10**12), st.integers(1, 10**10))
def test_one_sequence_more_would_not_fit(memory, resident, each):
    n = sequences_that_fit(memory, resident, each)
    assert n == 0 or resident + n * each <= memory
    assert resident + (n + 1) * each > memory


@given(st.integers(1, 10**12), st.integers(0, 10**11), st.integers(1, 10**9), st.integers(1, 16))
def test_a_pool_holds_at_least_what_separate_copies_hold(memory, resident, each, copies):
    assert sequences_that_fit(copies * memory, resident, each) >= sequences_that_fit(memory, resident, each, copies)


# Symbols, arrays, refusals


def test_symbols_pass():
    c, b, w, s, m = sympy.symbols("c B W s M", positive=True)
    assert sympy.expand(decode_traffic(QWEN, c, b).total - (15_136_811_008 + b * (8192 + 147_456 * (c + 1)))) == 0
    assert sympy.expand(kv_bytes(QWEN, c, b) - 147_456 * b * c) == 0
    assert sequences_that_fit(m, w, s).subs({m: 100, w: 30, s: 20}) == 3
    assert training_state_bytes(w).total == 18 * w


def test_arrays_give_what_scalars_give():
    past, batch = numpy.array([0, 100, 2742]), numpy.array([1, 8, 64])
    assert list(decode_traffic(QWEN, past, batch).total) == [decode_traffic(QWEN, int(p), int(b)).total for p, b in zip(past, batch)]
    assert list(sequences_that_fit(numpy.array([10, 100, 1000]), 50, 20)) == [0, 2, 47]
    assert kv_bytes(QWEN, numpy.array([10**14])) == [147_456 * 10**14]  # beyond 64-bit integers
    assert list(weights_read_per_step(EXPERTS, batch=batch)) == [weights_read_per_step(EXPERTS, batch=int(b)) for b in batch]


@pytest.mark.parametrize(
    "call, name",
    [
        (lambda: weight_bytes(QWEN, 0), "bytes_per_parameter"),
        (lambda: weights_read_per_step(QWEN, batch=0), "batch"),
        (lambda: weights_read_per_step(QWEN, float("nan")), "bytes_per_parameter"),
        (lambda: kv_bytes_per_token(QWEN, -2), "bytes_per_value"),
        (lambda: kv_bytes(QWEN, -1), "tokens"),
        (lambda: kv_bytes(QWEN, 1, batch=-1), "batch"),
        (lambda: weight_bytes(QWEN, {"attention": 1}), "embedding"),
        (lambda: kv_bytes_per_token(QWEN, {"key": 1}), "value"),
        (lambda: decode_traffic(QWEN, -1), "past"),
        (lambda: decode_traffic(QWEN, 1, batch=0), "batch"),
        (lambda: decode_traffic(QWEN, float("inf")), "past"),
        (lambda: training_state_bytes(0), "parameters"),
        (lambda: training_state_bytes(8e9, "sgd"), "recipe"),
        (lambda: sequences_that_fit(0, 1, 1), "memory_bytes"),
        (lambda: sequences_that_fit(80e9, -1, 1), "resident_bytes"),
        (lambda: sequences_that_fit(80e9, 0, 0), "bytes_per_sequence"),
        (lambda: sequences_that_fit(80e9, 0, 1, copies=0), "copies"),
        (lambda: sequences_that_fit(80e9, 0, 1, copies=1.5), "copies"),
        (lambda: state_bytes(model("RWKV-7-2.9B"), batch=-1), "batch"),
    ],
)
def test_impossible_bytes_are_refused_by_name(call, name):
    with pytest.raises(ValueError, match=name):
        call()


def test_every_model_of_the_table_has_either_a_cache_or_a_state():
    for name, m in models().items():
        assert kv_bytes(m, 1000) + state_bytes(m) > 0, name


@pytest.mark.parametrize(
    ("name", "cards", "copies"),
    [("Qwen3-8B", 1, 1), ("Qwen3-8B", 8, 1), ("Qwen3-8B", 16, 2), ("Qwen3-30B-A3B", 8, 2), ("Llama-2-7B", 32, 1), ("DeepSeek-V3", 8, 8)],
)
def test_a_cache_is_stored_once_until_the_heads_run_out_and_whole_where_there_is_a_latent(name, cards, copies):
    assert kv_copies(model(name), cards) == copies and kv_copies(model(name), cards, expert_parallel=True) == 1


@pytest.mark.parametrize("name", ["Qwen3-8B", "Qwen3-30B-A3B", "DeepSeek-V3"])
@pytest.mark.parametrize("batch", [0, 1, 32])
def test_the_smallest_number_of_cards_holds_and_one_less_does_not(name, batch):
    """By cards: each holds its share of the weights, and of every sequence the heads that it has; at least one head, or the latent."""
    m = model(name)
    head = 8192 * 70_272 if name == "DeepSeek-V3" else 8192 * m.layers * 2 * m.head_dim * 2
    on_one = lambda g: weight_bytes(m) / g + batch * head * (1 if name == "DeepSeek-V3" else max(1, m.kv_heads / g))
    least = cards_that_hold(m, 80e9, 8192, batch)
    assert on_one(least) <= 80e9 and (least == 1 or on_one(least - 1) > 80e9)


def test_no_number_of_cards_holds_more_latents_than_one_does():
    """80 GB hold 138 latents of 8,192 tokens, 575,668,224 B each, beside nothing at all."""
    v3 = model("DeepSeek-V3")
    assert 138 * 8192 * 70_272 < 80e9 < 139 * 8192 * 70_272
    assert cards_that_hold(v3, 80e9, 8192, 139) is None and cards_that_hold(v3, 80e9, 8192, 100) is not None

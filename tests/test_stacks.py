"""Stacks of several kinds of layers: each quantity is the sum over its layers, and no size is read as one that layers do not share."""

from dataclasses import dataclass, replace

import pytest

from workloads.counts import flops, memory
from workloads.counts.parameter_counts import active_parameters, matrices, parameters
from workloads.facts.layers import Attention, Experts, Gated, LatentAttention, Layer, Plain
from workloads.facts.models import Model, model
from workloads_book.studies import backpropagation
from workloads_book.studies.transformer_graph import transformer, weights

GROUPED = Layer(Attention(heads=4, kv_heads=2, head_dim=3, qk_norm=True), Gated(ffn=5))
LATENT = Layer(LatentAttention(heads=3, head_dim=2, latent=4, rope_dim=1, query_rank=2), Experts(4, 2, 7, 1))
SINGLE = Layer(Attention(heads=2, kv_heads=1, head_dim=4, value_dim=2, qkv_bias=True), Experts(3, 1, 5))
STACK = ((2, GROUPED), (1, LATENT), (3, SINGLE))
MIXED = Model("mixed", 6, 11, STACK)
PARTS = [Model("part", 6, 11, [entry]) for entry in STACK]


def summed(quantity, outside=0):
    """A quantity over models of one kind each, what stands outside the layers once."""
    return sum(quantity(part) for part in PARTS) - 2 * outside


def test_parameters_are_the_sum_over_layers():
    outside = 2 * 6 * 11 + 6  # embedding, head, last norm
    assert parameters(MIXED).total == summed(lambda m: parameters(m).total, outside)
    assert active_parameters(MIXED) == summed(active_parameters, outside)
    assert parameters(MIXED).biases == 3 * (2 * 4 + 4 + 2) and parameters(MIXED).router == 6 * 4 + 3 * 6 * 3
    assert [w.name for w in matrices(MIXED)].count("query") == 2  # of two shapes


@pytest.mark.parametrize("absorbed", [False, True])
def test_flops_are_the_sum_over_layers(absorbed):
    found = flops.forward(MIXED, 5, 7, 2, head="last", absorbed=absorbed)
    parts = [flops.forward(m, 5, 7, 2, head="last", absorbed=absorbed and m.latent > 0) for m in PARTS]
    assert found.layers == sum(part.layers for part in parts) and found.head == parts[0].head
    assert flops.decode_step(MIXED, 9).layers == sum(flops.decode_step(m, 9).layers for m in PARTS)
    assert flops.training(MIXED, 5).total == summed(lambda m: flops.training(m, 5).total, 3 * 2 * 5 * 6 * 11)


def test_the_cache_is_the_sum_over_layers():
    by_hand = 2 * (2 * 2 * (3 + 3) + 1 * (4 + 1) + 3 * 1 * (4 + 2))
    assert memory.kv_bytes_per_token(MIXED) == summed(memory.kv_bytes_per_token) == by_hand
    moved, parts = memory.decode_traffic(MIXED, 9, 4), [memory.decode_traffic(m, 9, 4) for m in PARTS]
    assert (moved.kv_read, moved.kv_written) == (sum(m.kv_read for m in parts), sum(m.kv_written for m in parts))
    assert moved.weights == pytest.approx(sum(m.weights for m in parts) - 2 * 2 * (6 * 11 + 6), rel=1e-12)


def test_what_cards_store_is_the_sum_over_layers():
    """On 4 cards: grouped heads twice, the latent and the single head four times."""
    entry = [memory.kv_bytes_per_token(m) for m in PARTS]
    assert memory.kv_copies(MIXED, 4) == (2 * entry[0] + 4 * entry[1] + 4 * entry[2]) / sum(entry)
    assert memory.kv_copies(MIXED, 1) == 1


def test_the_graph_meets_every_layer():
    graph = transformer(MIXED, 5)
    assert backpropagation.forward_flops(graph) == flops.forward(MIXED, 5).total
    assert sum(w.parameters for w in weights(graph).values()) == parameters(MIXED).total
    assert {name.split()[1] for name in weights(graph) if name.startswith("layer ")} == set("012345")
    assert "layer 2 latent up" in weights(graph) and "layer 3 query" in weights(graph)


def test_sizes_that_layers_share_are_read_by_name_and_no_others():
    assert MIXED.layers == 6 and PARTS[1].heads == PARTS[1].kv_heads == 3
    for name in ("heads", "latent", "attention", "experts"):
        with pytest.raises(ValueError, match=f"^{name} must be the same in all layers of 'mixed'"):
            getattr(MIXED, name)
    assert (MIXED.ffn, MIXED.dense_layers) == (5, 2)  # of the layers that have them
    with pytest.raises(ValueError, match="^heads must be the same in all layers of 'mixed'"):
        replace(MIXED, head_dim=3)


def test_a_change_by_name_turns_no_layer_into_another_kind():
    two = Model("two", 6, 11, [(1, Layer(Attention(3, 3, 2), Gated(5))), (1, Layer(LatentAttention(3, 2, 4), Gated(5)))])
    with pytest.raises(ValueError, match="^(kv_heads|latent|window) must be the same in all layers of 'two'"):
        replace(two, ffn=7)


def test_dense_layers_stand_before_those_with_experts():
    dense, sparse = (3, GROUPED), (2, Layer(GROUPED.mixer, Experts(4, 2, 7)))
    first = Model("first", 6, 11, [dense, sparse])
    assert (first.dense_layers, first.layers, first.experts, first.ffn) == (3, 5, 4, 5)
    assert replace(first, dense_layers=1).stack == ((1, GROUPED), (4, sparse[1]))
    with pytest.raises(ValueError, match="^dense_layers must all stand before"):
        assert Model("last", 6, 11, [sparse, dense]).dense_layers
    assert Model("last", 6, 11, [sparse, dense]).layers == 5


@pytest.mark.parametrize("name", ["Qwen3-8B", "Qwen3-30B-A3B", "DeepSeek-V3"])
def test_a_stack_written_out_is_the_model_written_by_sizes(name):
    m = model(name)
    assert Model(m.name, m.hidden, m.vocab, list(m.stack), m.tied, m.published_parameters) == m
    assert replace(m, layers=m.layers) == m


@dataclass(frozen=True)
class Convolution:
    """A mixer that the library does not know."""

    width: int


@pytest.mark.parametrize("layer", [Layer(Convolution(4), Gated(5)), Layer(GROUPED.mixer, Convolution(4))])
def test_a_kind_that_is_not_known_is_refused_by_name(layer):
    strange = Model("strange", 6, 11, [(1, GROUPED), (1, layer)])
    for count in (parameters, memory.kv_bytes_per_token, lambda m: flops.forward(m, 3), lambda m: transformer(m, 3)):
        with pytest.raises(ValueError, match=r"must be one of Attention, .*Gated, Plain, Experts, got Convolution"):
            count(strange)


@pytest.mark.parametrize("stack", [(), [(0, GROUPED)], [(1.5, GROUPED)]])
def test_an_impossible_stack_is_refused(stack):
    with pytest.raises(ValueError, match="stack|layers"):
        Model("mine", 6, 11, stack)


def test_a_plain_feed_forward_part_is_two_matrices():
    """MPT-7B: 32 layers of width 4,096, four times as wide inside, the head tied."""
    shape = Model("MPT-7B", 4096, 50368, [(32, Layer(Attention(heads=32, kv_heads=32, head_dim=128), Plain(4 * 4096)))], tied=True)
    per_layer = 4 * 4096**2 + 2 * 4096 * 4 * 4096
    assert parameters(shape).linear == 32 * per_layer and parameters(shape).ffn == 32 * 8 * 4096**2
    assert flops.forward(shape, 10).ffn == 2 * 10 * 32 * 8 * 4096**2
    halved = flops.training(shape, 10, recompute="stop early").recomputed.ffn
    assert halved == 2 * 10 * 32 * 4 * 4096**2  # the down projection is not repeated

"""What layers send when they are split, worked by hand for one layer, and the laws that hold for all layouts."""

from dataclasses import replace

import pytest

from workloads.counts.collectives import Traffic, all_gather, all_reduce, dispatch
from workloads.counts.communication import data_traffic, forward_traffic, training_traffic
from workloads.counts.layout import SINGLE, Layout, Plan
from workloads.counts.parameter_counts import parameters
from workloads.facts.models import Model, model

DENSE = Model("dense", 10, 100, layers=1, heads=4, kv_heads=2, head_dim=3, ffn=7)
ROUTED = Model(
    "routed", 10, 100, layers=2, heads=4, kv_heads=2, head_dim=3, ffn=7, experts=4, active_experts=2, expert_ffn=5, dense_layers=1
)
LATENT = Model("latent", 10, 100, layers=1, heads=4, kv_heads=4, head_dim=3, ffn=7, latent=6, rope_dim=2)


def parts(sent):
    return {kind: traffic for kind, traffic in sent.items() if traffic.bytes}


def test_a_layer_split_in_tensors_sums_what_two_matrices_made():
    """60 tokens of width 10 in BF16: 1,200 B, summed behind attention and behind the feed-forward part, 3/4 of it sent twice."""
    sent = parts(forward_traffic(DENSE, Layout(tensor=4), 60))
    assert sent == {"tensor": 2 * all_reduce(1200, 4)} and sent["tensor"].bytes == 2 * 2 * 900


def test_a_layer_split_in_positions_gathers_keys_and_values():
    """Two KV heads of 3 for keys and values: 12 values a token; of two tensor ranks each gathers one head, of four as much."""
    assert parts(forward_traffic(DENSE, Layout(context=4), 60)) == {"context": all_gather(60 * 12 * 2, 4)}
    sent = forward_traffic(DENSE, Layout(context=4, tensor=2), 60)
    assert sent["context"] == all_gather(60 * 6 * 2, 4) == forward_traffic(DENSE, Layout(context=4, tensor=4), 60)["context"]
    assert sent["tensor"] == 2 * all_reduce(1200 / 4, 2)
    assert forward_traffic(LATENT, Layout(context=4, tensor=4), 60)["context"] == all_gather(60 * 8 * 2, 4)  # the latent, whole


def test_experts_split_by_rank_get_their_tokens_and_give_them_back():
    """One of two layers has experts: 60 tokens on each card go out and come back; attention and the dense layer stay whole."""
    assert parts(forward_traffic(ROUTED, Layout(data=4, expert=4), 60)) == {"expert": 2 * dispatch(60, 10, 4, 2, 4)}
    sent = parts(forward_traffic(ROUTED, Layout(tensor=2, data=2, expert=4), 60))
    assert sent == {"tensor": 3 * all_reduce(1200, 2), "expert": 2 * dispatch(30, 10, 4, 2, 4)}
    assert parts(forward_traffic(ROUTED, Layout(tensor=2), 60)) == {"tensor": 4 * all_reduce(1200, 2)}  # experts split as all matrices


def test_stages_pass_on_what_they_made():
    """4 stages: 3 hops of 1,200 B, over the network where the cards of all stages are more than a domain; 7 hops with two chunks."""
    assert parts(forward_traffic(DENSE, Layout(pipeline=4), 60)) == {"pipeline": Traffic(fast=3600, fast_messages=3)}
    out = forward_traffic(DENSE, Layout(pipeline=4, tensor=2), 60, domain=4, chunks=2)["pipeline"]
    assert out == Traffic(network=7 * 600, network_messages=7)
    assert forward_traffic(DENSE, Layout(pipeline=2, tensor=2), 60, domain=4)["pipeline"].network == 0


def test_groups_stand_in_domains_tensor_ranks_first():
    """Domains of 4: two tensor ranks side by side leave room for two of four context ranks."""
    sent = forward_traffic(DENSE, Layout(tensor=2, context=4), 60, domain=4)
    assert sent["tensor"].network == 0 and sent["context"] == all_gather(60 * 6 * 2, 4, 2)
    assert forward_traffic(DENSE, Layout(tensor=8), 60, domain=4)["tensor"] == 2 * all_reduce(1200, 8, 4)


def test_copies_sum_their_gradients_once_a_step():
    n = parameters(DENSE).total
    gradients, weights = 4 * n, 2 * n
    assert data_traffic(DENSE, Layout(data=8), 0) == all_reduce(gradients, 8)
    for zero, gathers in ((1, 1), (2, 1), (3, 2)):
        assert data_traffic(DENSE, Layout(data=4, context=2), zero) == all_gather(gradients, 8) + gathers * all_gather(weights, 8)
    half = data_traffic(DENSE, Layout(data=8, tensor=2), 0)
    assert half == all_reduce(gradients / 2, 8)


def test_split_experts_have_fewer_copies():
    """4 cards and 4 experts, one on each: no copy of an expert, four of all else. On 8 cards there are two."""
    experts = parameters(ROUTED).experts
    rest = parameters(ROUTED).total - experts
    assert data_traffic(ROUTED, Layout(data=4, expert=4), 0).bytes == all_reduce(4 * rest, 4).bytes
    two = data_traffic(ROUTED, Layout(tensor=2, data=4, expert=4), 0)
    assert two.bytes == all_reduce(4 * rest / 2, 4).bytes + all_reduce(4 * experts / 4, 2).bytes


def test_a_step_of_training_adds_up():
    """8 sequences on 2 copies, two at a time through 2 stages; backward as forward, keys' and values' gradients besides."""
    layout, plan = Layout(tensor=2, context=2, pipeline=2, data=2), Plan(micro_batch=2, zero=0)
    sent, once = training_traffic(DENSE, layout, 30, 8, plan), forward_traffic(DENSE, layout, 30, 2)
    assert sent == {kind: {"context": 3}.get(kind, 2) * once[kind] for kind in once} | {"data": data_traffic(DENSE, layout, 0)}
    again = training_traffic(DENSE, layout, 30, 8, replace(plan, recompute="layers"))
    assert {kind: again[kind].bytes / max(1, sent[kind].bytes) for kind in once} == {
        "tensor": 1.5,
        "context": pytest.approx(4 / 3),
        "expert": 0,
        "pipeline": 1,
    }


def test_micro_batches_change_the_messages_not_the_bytes():
    few, many = (training_traffic(DENSE, Layout(tensor=4, pipeline=2), 30, 8, Plan(micro_batch=n)) for n in (4, 1))
    assert many["tensor"].bytes == few["tensor"].bytes and many["tensor"].fast_messages == 4 * few["tensor"].fast_messages


@pytest.mark.parametrize("name", ["Llama-3.1-70B", "DeepSeek-V3", "Qwen3-30B-A3B"])
def test_one_card_sends_nothing(name):
    assert parts(training_traffic(model(name), SINGLE, 4096, 4)) == {}


@pytest.mark.parametrize("name", ["Llama-3.1-70B", "DeepSeek-V3", "Qwen3-30B-A3B"])
@pytest.mark.parametrize("domain", [None, 8])
def test_more_ways_never_send_less_over_the_network(name, domain):
    for kind, ways in (("tensor", "tensor"), ("context", "context"), ("pipeline", "pipeline")):
        sent = [forward_traffic(model(name), Layout(**{ways: n}), 8192, domain=domain)[kind] for n in (1, 2, 4, 8, 16)]
        assert [s.network for s in sent] == sorted(s.network for s in sent) and [s.bytes for s in sent][:4] == sorted(
            s.bytes for s in sent[:4]
        )


def test_ways_that_do_not_divide_the_cards_are_refused():
    with pytest.raises(ValueError, match="^cards of a stage, over which experts are split, must be a whole multiple of 4"):
        data_traffic(ROUTED, Layout(data=6, expert=4))
    with pytest.raises(ValueError, match="^experts must be a whole multiple of 3"):
        forward_traffic(ROUTED, Layout(data=3, expert=3), 60)


@pytest.mark.parametrize(
    "wrong, named",
    [
        (dict(micro_batch=0), "micro_batch"),
        (dict(schedule="zigzag"), "schedule"),
        (dict(chunks=2), "chunks"),
        (dict(zero=4), "zero"),
        (dict(recompute="some"), "recompute"),
        (dict(recipe="none"), "recipe"),
        (dict(imbalance=0.9), "imbalance"),
        (dict(layer_seconds=-1), "layer_seconds"),
        (dict(step_seconds=-1), "step_seconds"),
        (dict(fast_latency=-1), "fast_latency"),
        (dict(network_latency=-1), "network_latency"),
        (dict(overlap="half"), "overlap"),
    ],
)
def test_plans_that_are_none_are_refused_by_name(wrong, named):
    with pytest.raises(ValueError, match=f"^{named}.* must"):
        Plan(**wrong)

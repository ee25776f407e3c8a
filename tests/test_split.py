"""Times of a split model: parts that add up, one card as before, worked examples, and laws of both ends of the overlap."""

from dataclasses import astuple, replace

import pytest

import workloads as wl
from workloads.counts.communication import forward_traffic, training_traffic
from workloads.counts.layout import SINGLE, Layout, Plan
from workloads.counts.memory import kv_bytes_per_token, weight_bytes
from workloads.counts.parameter_counts import active_weights, parameters
from workloads.facts.accelerators import accelerator
from workloads.facts.models import model
from workloads.times.links import sending_seconds
from workloads.times.machine import Machine
from workloads.times.split import decode_seconds, prefill_seconds, training_seconds

H100 = accelerator("H100 SXM")
NODES = replace(H100, links=dict(H100.links) | {"network": 50e9})
LLAMA, DEEPSEEK, QWEN = model("Llama-3.1-70B"), model("DeepSeek-V3"), model("Qwen3-30B-A3B")
APART = Plan(overlap="nothing")
on = lambda count, **reached: Machine(NODES, count, **reached)


def sent_seconds(sent):
    return sum(sending_seconds(part, NODES) for part in sent.values())


# ---------------------------------------------------------------------------------------------------- one card, as before
@pytest.mark.parametrize("plan", [Plan(), APART])
@pytest.mark.parametrize("shape", [model("Llama-3.1-8B"), QWEN])
def test_one_card_takes_the_time_of_its_pass(shape, plan):
    card = on(1)
    assert decode_seconds(shape, card, SINGLE, 3000, 16, plan=plan).total == pytest.approx(card.seconds(wl.decode(shape, 3000, 16)))
    assert prefill_seconds(shape, card, SINGLE, 3000, plan=plan).total == pytest.approx(card.seconds(wl.prefill(shape, 3000)))
    step = training_seconds(shape, card, SINGLE, 4096, 4, plan)
    assert step.total == pytest.approx(card.seconds(wl.training_step(shape, 4096, 4))) and step.communication == step.bubble == 0


@pytest.mark.parametrize("ways", [Layout(tensor=8), Layout(data=8), Layout(tensor=2, data=4)])
def test_tensor_and_data_parallelism_compute_what_the_pooled_machine_does(ways):
    pooled = on(8).seconds(wl.decode(LLAMA, 3000, 16, layout=ways))
    assert decode_seconds(LLAMA, on(8), ways, 3000, 16).compute == pytest.approx(pooled)


# --------------------------------------------------------------------------------------------------------- worked by hand
def test_a_decode_step_of_70_billion_on_8_cards():
    """Weights less the table and one cache, an eighth each; 160 all-reduces of one row of 16 KiB, 14 messages each."""
    step = decode_seconds(LLAMA, on(8), Layout(tensor=8), 4096, plan=replace(APART, fast_latency=1e-6))
    read = (weight_bytes(LLAMA) - 2 * 128_256 * 8192 + 4097 * kv_bytes_per_token(LLAMA) + 2 * 8192) / 8
    assert step.compute == pytest.approx(read / 3.35e12)
    assert step.communication == pytest.approx(160 * (14e-6 + 2 * 7 / 8 * 16_384 / 450e9))
    assert step.total == step.compute + step.communication and step.fixed == step.bubble == 0


def test_experts_apart_are_read_where_they_lie():
    """DeepSeek-V3 on 32 cards, attention on each, 8 experts of 256 a card: each reads all but experts, and those picked."""
    layout, batch = Layout(data=32, expert=32), 32 * 64
    step = decode_seconds(DEEPSEEK, on(32), layout, 4096, batch, wl.Formats(weights=1, cache=1))
    count, rows = parameters(DEEPSEEK), 64 * 32
    picked = count.experts * (1 - (1 - 8 / 256) ** rows) / 32
    read = count.total - count.experts - count.embedding + picked + 64 * (4097 * kv_bytes_per_token(DEEPSEEK, 1) + 7168)
    assert step.compute == pytest.approx(max(read / 3.35e12, wl.decode(DEEPSEEK, 4096, 64).flops / 989.4e12))


def test_a_pipelined_decode_step_passes_all_stages():
    """Two stages halve what a group of sequences shares a step with, not the weights that it waits for."""
    one, two = (decode_seconds(LLAMA, on(4 * p), Layout(tensor=4, pipeline=p), 4096, 32) for p in (1, 2))
    assert two.compute == pytest.approx(decode_seconds(LLAMA, on(4), Layout(tensor=4), 4096, 16).compute)
    assert two.compute < one.compute
    lone = decode_seconds(LLAMA, on(8), Layout(tensor=4, pipeline=2), 4096, 1, plan=APART)
    assert lone.compute == decode_seconds(LLAMA, on(4), Layout(tensor=4), 4096, 1).compute


def test_a_training_step_adds_computing_sending_waiting_and_fixed_time():
    layout = Layout(tensor=8, pipeline=4, data=2)
    plan = Plan(schedule="1f1b", layer_seconds=1e-3, step_seconds=0.5, overlap="nothing")
    step = training_seconds(LLAMA, on(64, mfu=0.5), layout, 8192, 64, plan)
    compute = wl.training_step(LLAMA, 8192, 64).flops / (64 * 0.5 * 989.4e12)
    sent = training_traffic(LLAMA, layout, 8192, 64, plan, 8)
    data = sending_seconds(sent.pop("data"), NODES)
    assert step.compute == pytest.approx(compute) and step.communication == pytest.approx(sent_seconds(sent) + data)
    assert step.fixed == pytest.approx(80 / 4 * 32 * 2 * 1e-3 + 0.5)
    assert step.bubble == pytest.approx(3 / 32 * (compute + sent_seconds(sent) + step.fixed - 0.5))
    assert step.total == pytest.approx(sum(astuple(step)))


def test_a_prefill_sends_while_it_computes_or_after():
    layout, machine = Layout(tensor=8), on(8)
    hidden, apart = (prefill_seconds(LLAMA, machine, layout, 8192, plan=plan) for plan in (Plan(), APART))
    assert hidden.communication == 0 and apart.communication == pytest.approx(sent_seconds(forward_traffic(LLAMA, layout, 8192)))
    assert apart.total == pytest.approx(hidden.compute + apart.communication)
    piped = prefill_seconds(LLAMA, on(32), Layout(tensor=8, pipeline=4), 8192, 16)
    assert piped.bubble == pytest.approx(3 / 16 * piped.compute)


def test_busier_experts_take_longer():
    layout, plan = Layout(data=8, expert=8), Plan(imbalance=1.5)
    even, uneven = (training_seconds(QWEN, on(8), layout, 4096, 64, p) for p in (Plan(), plan))
    more = 0.5 * 6 * active_weights(QWEN, "experts") * 4096 * 64 / (8 * 989.4e12)
    assert uneven.compute - even.compute == pytest.approx(more)
    assert training_seconds(LLAMA, on(8), Layout(tensor=8), 4096, 8, plan) == training_seconds(LLAMA, on(8), Layout(tensor=8), 4096, 8)


# ------------------------------------------------------------------------------------------------------------------- laws
LAYOUTS = [Layout(tensor=8), Layout(tensor=4, pipeline=2), Layout(tensor=2, data=4, expert=8), Layout(data=8, expert=8), Layout(data=8)]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("shape", [LLAMA, QWEN])
def test_both_ends_of_the_overlap_bracket_the_time(shape, layout):
    for step in (
        lambda plan: training_seconds(shape, on(8), layout, 4096, 64, plan),
        lambda plan: prefill_seconds(shape, on(8), layout, 4096, 16, plan=plan),
        lambda plan: decode_seconds(shape, on(8), layout, 4096, 64, plan=plan),
    ):
        low, high = step(Plan(fast_latency=1e-6)), step(Plan(fast_latency=1e-6, overlap="nothing"))
        assert low.compute == high.compute and low.total <= high.total
        assert low.compute + low.communication == pytest.approx(max(high.compute, high.communication))
        assert high.total <= 2 * low.total + 1e-12  # neither part is longer than the longer one


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_slower_links_and_latency_never_help(layout):
    slow = Machine(replace(NODES, links={"pcie": 63e9, "network": 50e9}), 8)
    for plan in (Plan(), APART):
        at = lambda machine, plan: decode_seconds(LLAMA, machine, layout, 4096, 8, plan=plan).total
        assert at(slow, plan) >= at(on(8), plan) and at(on(8), replace(plan, fast_latency=1e-5)) >= at(on(8), plan)


def test_more_micro_batches_wait_less_and_take_more_messages():
    layout = Layout(tensor=2, pipeline=4)
    steps = [training_seconds(LLAMA, on(8), layout, 4096, 64, Plan(micro_batch=size)) for size in (8, 4, 2, 1)]
    assert [s.bubble for s in steps] == sorted((s.bubble for s in steps), reverse=True)


@pytest.mark.parametrize("call", [training_seconds, prefill_seconds, decode_seconds])
def test_a_machine_of_another_size_is_refused(call):
    with pytest.raises(ValueError, match="^layout must be of the machine's 8 accelerators, got 4"):
        call(LLAMA, on(8), Layout(tensor=4), 4096, 8)


def test_what_is_not_known_is_refused_by_name():
    with pytest.raises(ValueError, match="^link of H100 SXM must be one of .* got 'network'"):
        decode_seconds(LLAMA, Machine(replace(H100, links={"fast": 450e9, "pcie": 63e9}), 16), Layout(tensor=16), 4096)
    with pytest.raises(ValueError, match="^context must be 1 where only tensor, pipeline, data, expert can be counted"):
        decode_seconds(LLAMA, on(8), Layout(tensor=4, context=2), 4096)

"""RL steps whose sides run on layouts: against hand formulas, a step-by-step loop, the step without layouts, and laws."""

from dataclasses import replace

import numpy
import pytest
import sympy

from workloads.counts import flops
from workloads.counts.layout import Layout, Plan
from workloads.counts.memory import weight_bytes
from workloads.counts.parameter_counts import active_weights, parameters
from workloads.facts.accelerators import accelerator
from workloads.facts.formats import Formats
from workloads.facts.models import model
from workloads.learning.rl import configuration, generation, sides
from workloads.learning.rl.configuration import RLStep
from workloads.learning.rl.parts import Side
from workloads.learning.rl.phases import rl_step
from workloads.times import roofline, split
from workloads.times.machine import Machine, fits

H100, QWEN, BIG, MOE = accelerator("H100 SXM"), model("Qwen3-8B"), model("Llama-3.1-70B"), model("Qwen3-30B-A3B")
APART = Plan(overlap="nothing")


def laid(shape=QWEN, copy=1, ways=None, sampling=APART, learning=APART, **changes):
    """A step: copies by tensor parallelism, a layout of training, the usual shares."""
    ways, formats = ways or Layout(data=8), changes.pop("formats", Formats())
    a = Side(shape, Machine(H100, copy, changes.pop("arithmetic", "bf16"), mbu=0.7), Layout(tensor=copy), sampling, formats)
    b = Side(shape, Machine(H100, ways.gpus, mfu=0.35, mbu=0.7), ways, learning)
    return sides.on_layouts(a, b, **{"completion": 1000, "capacity": "ignored", **changes})


# -------------------------------------------------------------------------------------------------------- without layouts
def test_a_step_without_layouts_asks_nothing_of_splitting(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("asked")

    steps = (RLStep(), configuration.printed_page(), configuration.for_model(MOE, H100, gpus_per_copy=2, prompt_tokens=300))
    before = [rl_step(step) for step in steps]
    for name in ("training_seconds", "decode_seconds", "_forward_seconds", "_decode_bytes"):
        monkeypatch.setattr(split, name, refuse)
    for step, found in zip(steps, before):
        assert sides.side_seconds(step) == {}
        again = rl_step(step.having(updates=1, engine_seconds=0, generation=None, training=None))
        assert again == found == rl_step(step)  # to the last digit
        assert found.training.seconds == roofline.compute_seconds(found.training.flops, step.placement.gpus * step.gpu.peak, step.gpu.mfu)
    with pytest.raises(AssertionError, match="asked"):
        rl_step(laid())


def test_on_single_cards_layouts_cost_nothing():
    """One card a copy, data parallelism alone, everything hidden: only the rows of the embedding look-up are read besides."""
    free = Plan(overlap="all")
    step = laid(sampling=free, learning=free, prompt_tokens=2000, prefill_head="last")
    plain = step.having(generation=None, training=None)
    found, known = rl_step(step), rl_step(plain)
    for name in ("logprob", "training", "optimizer"):
        assert getattr(found, name).seconds == pytest.approx(getattr(known, name).seconds, rel=1e-12), name
        assert getattr(found, name).flops == getattr(known, name).flops
    assert found.prefill.seconds == pytest.approx(known.prefill.seconds * 0.35, rel=1e-12)  # its side reaches the whole peak
    assert found.decode.seconds == pytest.approx(known.decode.seconds, rel=1e-3)
    assert found.decode.seconds > known.decode.seconds
    assert (found.decode.steps, found.decode.flops) == pytest.approx((known.decode.steps, known.decode.flops), rel=1e-9)
    assert found.decode.bytes == pytest.approx(known.decode.bytes, rel=1e-3)


# ------------------------------------------------------------------------------------------------------------------- decode
@pytest.mark.parametrize(("shape", "copy"), [(QWEN, 2), (MOE, 4), (model("gpt-oss-120b"), 4)])
def test_decode_on_a_layout_is_the_sum_of_its_steps(shape, copy):
    step = laid(shape, copy, prompt_tokens=50, completion=((0.5, 100), (0.25, 301), (0.25, 800)))
    found, side, seconds = generation.decode(step, 40), step.placement.generation, 0
    for t in range(800):
        alive = 40 * sum(share for share, last in step.rollout.lengths if last > t)
        seconds += split.decode_seconds(shape, side.machine, side.layout, 50 + t, alive, plan=APART).total
    assert (found.seconds, found.steps) == pytest.approx((seconds, 800), rel=2e-5)


@pytest.mark.parametrize("completion", [1, 2, ((0.5, 0.75), (0.5, 1.5)), 33])
def test_the_first_token_meets_no_more_than_its_prompt(completion):
    step = laid(completion=completion)
    side = step.placement.generation
    first = split.decode_seconds(QWEN, side.machine, side.layout, 0, 128, plan=APART).total
    assert rl_step(step).decode.seconds == pytest.approx(step.rollout.longest * first, rel=0.05)


def test_an_engine_waits_its_time_between_all_steps():
    for step in (RLStep(completion=500), laid(completion=500)):
        assert rl_step(step.having(engine_seconds=0.004)).decode.seconds == pytest.approx(rl_step(step).decode.seconds + 500 * 0.004)
    crowded = RLStep(completion=8192)  # three waves
    assert rl_step(crowded.having(engine_seconds=1)).decode.seconds - rl_step(crowded).decode.seconds == pytest.approx(3 * 8192)


def test_a_copy_of_several_stages_passes_its_sequences_in_turn():
    """Two stages: every token of a sequence crosses both, and each card reads its half of the weights once for either half of the batch."""
    side = Side(BIG, Machine(H100, 4, mbu=0.7), Layout(tensor=2, pipeline=2), Plan(overlap="all"))
    ways = Layout(tensor=4, data=2)
    step = sides.on_layouts(side, Side(BIG, Machine(H100, 8, mfu=0.35), ways), completion=100, prompts=16, group=1, capacity="ignored")
    assert (step.placement.gpus_per_copy, step.batch) == (4, 8)
    found = rl_step(step).decode
    read = weight_bytes(BIG) - 2 * parameters(BIG).embedding
    cache = 8 * 80 * 2 * 8 * 128 * 2 / 4  # bytes a card of a cached position of all eight sequences
    by_hand = 100 * (read / 2 + cache * 50.5)
    assert found.bytes == pytest.approx(by_hand, rel=1e-3)
    assert found.seconds == pytest.approx(by_hand / (0.7 * 3.35e12), rel=1e-3)


# ----------------------------------------------------------------------------------------------------------------- training
def test_updates_divide_the_samples_and_repeat_what_copies_send():
    """8 copies of N weights: gradients in FP32 and weights in BF16, 6 B of each, 7/8 of it, over 450 GB/s in each update."""
    sent = 6 * parameters(QWEN).total * 7 / 8 / 450e9
    for updates in (1, 4):
        found = rl_step(laid(updates=updates))
        computed = found.training.flops / (8 * H100.peak("bf16") * 0.35)
        assert found.training.seconds == pytest.approx(computed + updates * sent, rel=1e-12)
        assert found.optimizer.seconds == pytest.approx(updates * 28 * parameters(QWEN).total / (8 * 3.35e12 * 0.7), rel=1e-12)


def test_without_zero_every_copy_updates_all_weights():
    each, shared = (rl_step(laid(learning=replace(APART, zero=zero))).optimizer.seconds for zero in (0, 1))
    assert each == pytest.approx(8 * shared)


def test_stages_wait_and_more_updates_wait_more():
    """4 stages, 512 samples on 2 copies: 256 micro-batches, or 64 in each of 4 updates; a step waits as long as 3 of them take."""
    hidden = Plan(overlap="all")
    for updates, micro_batches in ((1, 256), (4, 64)):
        step = laid(ways=Layout(pipeline=4, data=2), learning=hidden, prompts=512, group=1, updates=updates)
        computed = rl_step(step).training.flops / (8 * H100.peak("bf16") * 0.35)
        assert rl_step(step).training.seconds == pytest.approx(computed * (micro_batches + 3) / micro_batches, rel=1e-12)


def test_uneven_experts_keep_the_others_waiting():
    """The busiest card does 1.5 times the mean of the experts' work, forward and backward; the rest is the same."""
    ways, hidden = Layout(data=8, expert=8), Plan(overlap="all")
    even, uneven = (rl_step(laid(MOE, 2, ways, learning=replace(hidden, imbalance=i))) for i in (1, 1.5))
    more = 0.5 * 2 * active_weights(MOE, "experts") * 1024 * 1000 / (8 * H100.peak("bf16") * 0.35)
    assert uneven.training.seconds - even.training.seconds == pytest.approx(3 * more, rel=1e-9)
    assert uneven.logprob.seconds - even.logprob.seconds == pytest.approx(more, rel=1e-9)
    assert uneven.decode == even.decode
    slow = rl_step(laid(MOE, 2, ways, sampling=Plan(overlap="all", imbalance=4), prompts=4096))
    assert slow.decode.seconds > rl_step(laid(MOE, 2, ways, sampling=hidden, prompts=4096)).decode.seconds


def test_generation_in_8_bits_beside_training_in_16():
    half, whole = laid(formats=Formats("fp8", "fp8"), arithmetic="fp8"), laid()
    fast, slow = rl_step(half), rl_step(whole)
    assert fast.decode.seconds == pytest.approx(slow.decode.seconds / 2, rel=1e-3)
    assert (fast.training, fast.logprob) == (slow.training, slow.logprob)
    assert fast.training_mfu == slow.training_mfu and fast.rollout_mfu == pytest.approx(slow.rollout_mfu, rel=1e-3)
    assert fast.ridge == H100.peak("fp8") / H100.bandwidth
    assert half.resident_bytes == whole.resident_bytes / 2 and half.sequence_bytes == whole.sequence_bytes / 2


@pytest.mark.parametrize("head", ["all", "labels"])
def test_passes_over_samples_multiply_the_rows_of_logits_that_they_need(head):
    """Of 1,200 tokens 1,000 are answers: those rows, or all."""
    hidden = Plan(overlap="all")
    step = laid(learning=hidden, prompt_tokens=200, pass_head=head)
    once = flops.forward(QWEN, 1200, head=1000 if head == "labels" else "all").total
    assert rl_step(step).logprob.seconds == pytest.approx(1024 * once / (8 * H100.peak("bf16") * 0.35), rel=1e-12)
    assert rl_step(step).logprob.flops == 1024 * once
    assert rl_step(step.having(reference=False)).logprob.seconds == 0


def test_packs_pass_in_the_place_of_samples():
    """256 packs of 4,000 tokens hold 1,024 samples of 1,000: the same work of matrices, more pairs, which packs do not mask."""
    hidden = Plan(overlap="all")
    step = laid(learning=hidden, updates=2)
    packed = step.having(training=replace(step.placement.training, packs=(4000, 128)))
    pairs = lambda tokens: 3 * 589_824 * tokens * (tokens + 1) / 2
    more = 256 * pairs(4000) - 1024 * pairs(1000)
    rate = 8 * H100.peak("bf16") * 0.35
    assert rl_step(packed).training.seconds - rl_step(step).training.seconds == pytest.approx(more / rate, rel=1e-9)
    assert rl_step(packed).logprob.seconds - rl_step(step).logprob.seconds == pytest.approx(more / 3 / rate, rel=1e-9)


def test_packs_that_do_not_hold_their_samples_are_refused():
    step = laid(updates=2)
    with pytest.raises(ValueError, match="^room of packs beyond their samples"):
        rl_step(step.having(training=replace(step.placement.training, packs=(4000, 127))))
    packed = step.having(training=replace(step.placement.training, packs=(4000, 128)))
    with pytest.raises(ValueError, match="^room of packs"):
        rl_step(packed.having(completion=1100))


# ------------------------------------------------------------------------------------------------------------------- memory
def test_what_a_copy_holds_is_what_its_machine_holds():
    step = laid(BIG, 8, Layout(tensor=8), overhead=1, prompt_tokens=1000, completion=7192)
    assert rl_step(step).fit == fits(BIG, Machine(H100, 8), 8192)
    v3 = model("DeepSeek-V3")
    wide = Side(v3, Machine(H100, 64), Layout(data=64, expert=64), Plan(overlap="all"))
    step = sides.on_layouts(wide, Side(v3, Machine(H100, 64), Layout(pipeline=4, data=16, expert=16)), overhead=1, capacity="ignored")
    count = parameters(v3)
    assert step.resident_bytes == pytest.approx(2 * (count.total - count.experts) + 2 * count.experts / 64)


def test_a_side_that_does_not_fit_is_refused_by_its_first_part():
    with pytest.raises(ValueError, match=r"^weights must fit the 85\.52 GB"):
        rl_step(laid(BIG, 4, Layout(data=8), capacity="waves"))
    with pytest.raises(ValueError, match=r"^optimizer must fit"):
        rl_step(laid(BIG, 4, Layout(tensor=8), capacity="waves", updates=8))
    roomy = Layout(tensor=8, data=8)
    assert rl_step(laid(BIG, 4, roomy, learning=replace(APART, recompute="layers"), capacity="waves")).waves >= 1
    with pytest.raises(ValueError, match="memory"):
        rl_step(laid(BIG, 1, roomy, learning=replace(APART, recompute="layers"), capacity="waves"))


# --------------------------------------------------------------------------------------------------------------- must raise
@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"gpus": 16}, "^gpus, where a side has a layout,"),
        ({"gpus_per_copy": 2}, "^gpus_per_copy, where"),
        ({"peak": 1e15}, "^peak, where"),
        ({"bandwidth": 3e12}, "^bandwidth, where"),
        ({"mbu": 0.5}, "^mbu, where"),
        ({"mfu": 0.5}, "^mfu, where"),
        ({"decode_mfu": 0.5}, "^decode_mfu, where"),
        ({"prompts": numpy.array([8, 64])}, "^prompts must be a single number"),
        ({"completion": sympy.Symbol("T", positive=True)}, "^completion must be a single number"),
        ({"context": "full"}, "^context, where"),
        ({"decode_bound": "memory"}, "^decode_bound, where"),
        ({"lora": True}, "^lora, where"),
        ({"trainable_share": 0.5}, "^trainable_share, where"),
        ({"recompute": True}, "^recompute, where"),
        ({"engine_seconds": -1}, "engine_seconds"),
        ({"updates": 0}, "updates"),
        ({"generation": "TP 8"}, "type of a side"),
    ],
)
def test_what_a_layout_contradicts_or_does_not_count_is_refused_by_name(changes, name):
    with pytest.raises(ValueError, match=name):
        laid().having(**changes)


def test_a_layout_of_another_number_of_cards_is_refused():
    bad = Side(QWEN, Machine(H100, 4), Layout(data=8))
    with pytest.raises(ValueError, match=r"^layout must be of the machine's 4"):
        rl_step(sides.on_layouts(Side(QWEN, Machine(H100)), bad, capacity="ignored"))

"""Passes, layouts and machines: a small model's FLOPs and bytes worked out by hand, and the laws that adding and splitting obey."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.counts.layout import Layout
from workloads.counts.memory import kv_bytes
from workloads.counts.passes import Pass, decode, prefill, training_step
from workloads.counts.request_tokens import Request
from workloads.facts.accelerators import Accelerator, accelerator
from workloads.facts.formats import Formats
from workloads.facts.models import Model, model
from workloads.times.machine import Machine, fits
from workloads_book.studies.chains import call_chain

SIZES = dict(layers=2, heads=4, kv_heads=2, head_dim=3)
TINY = Model("tiny", 6, 7, ffn=5, **SIZES)
# A layer: query 6 x 12, key and value 6 x 6, output 12 x 6, feed-forward 3 x 6 x 5: 216 + 90 = 306 weights. Head and embedding 42 each.
# Norms 2 x 6 a layer and 6. In all 42 + 612 + 30 + 42 = 726; read in a step 684. A pair costs 4 x 2 x 4 x 3 = 96 FLOPs in all layers;
# a token leaves 2 x 2 x (3 + 3) = 24 values in the cache.
EXPERTS = Model("experts", 6, 7, experts=4, active_experts=1, expert_ffn=5, **SIZES)
LATENT = Model("latent", 6, 7, ffn=5, latent=4, rope_dim=1, **SIZES | {"kv_heads": 4})
few, tokens = st.integers(1, 9), st.integers(1, 60)


def test_decode_by_hand():
    """Three sequences behind 10 tokens, in BF16."""
    assert decode(TINY, 10, 3) == Pass(3 * (2 * 654 + 96 * 11), 2 * 684 + 3 * (2 * 6 + 11 * 48))


def test_prefill_by_hand():
    """Four tokens behind two: 4 x 5 / 2 + 4 x 2 = 18 pairs; one row of logits, or two, or four."""
    body, moved = 2 * 612 * 4 + 96 * 18, 2 * 684 + 4 * 12 + 6 * 48
    request = Request(new=4, output=9, past=2)
    assert prefill(TINY, request) == Pass(body + 84, moved)
    assert [prefill(TINY, request, head=rows).flops - body for rows in (2, "all")] == [2 * 84, 4 * 84]
    assert prefill(TINY, 4) == Pass(2 * 612 * 4 + 96 * 10 + 84, moved - 2 * 48)


def test_training_by_hand():
    """Four tokens: 10 pairs, four rows of logits; the layers alone once more where their activations were not kept."""
    layers = 2 * 612 * 4 + 96 * 10
    assert training_step(TINY, 4) == Pass(3 * (layers + 4 * 84), 3 * 2 * 726)
    assert training_step(TINY, 4, 2, Formats(weights="fp32"), "layers") == Pass(2 * (4 * layers + 12 * 84), 3 * 4 * 726)


def test_formats_change_bytes_alone():
    narrow = decode(TINY, 10, 3, Formats(weights="fp8", cache=0.75))
    assert narrow == Pass(decode(TINY, 10, 3).flops, 684 + 3 * (6 + 11 * 24 * 0.75))
    with pytest.raises(ValueError, match="weights must be one of 'fp32'.*got 'fp7'"):
        Formats(weights="fp7")
    with pytest.raises(ValueError, match="cache.* got 0"):
        Formats(cache=0)


def test_a_pass_adds_multiplies_and_has_an_intensity():
    one, other = Pass(6, 2), Pass(1, 5)
    assert one + other == other + one == Pass(7, 7) and 3 * one == one * 3 == one + one + one
    assert Pass(6, 4).intensity == 1.5
    with pytest.raises(ValueError, match="bytes of a pass"):
        assert Pass(6, 0).intensity
    for wrong in ({"flops": -1}, {"bytes": float("nan")}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Pass(**{"flops": 1, "bytes": 1} | wrong)


@given(tokens, tokens, few)
def test_a_prefill_in_two_pieces_does_the_same_work_and_moves_more(first, second, batch):
    """One more row of logits; the weights once more, and the first piece's cache read again."""
    whole, pieces = prefill(TINY, first + second, batch), prefill(TINY, first, batch) + prefill(TINY, Request(second, 1, first), batch)
    assert pieces.flops - whole.flops == batch * 84
    assert pieces.bytes - whole.bytes == 2 * 684 + kv_bytes(TINY, first, batch)


@given(tokens, st.integers(2, 20), st.integers(0, 30), few)
def test_the_steps_of_a_request_are_the_sum_of_its_calls(new, output, past, batch):
    request, together = Request(new, output, past), Pass(0, 0)
    for call in call_chain(request)[1:]:
        together += decode(TINY, call.context, batch)
    assert decode(TINY, request, batch) == together


def test_a_request_of_one_token_has_no_decode_step():
    assert decode(TINY, Request(new=1, output=1)) == Pass(0, 0)


# Layouts


@pytest.mark.parametrize("tensor, copies", [(1, 1), (2, 1), (4, 2), (8, 4)])
def test_tensor_parallelism_stores_a_head_at_least_on_each_card(tensor, copies):
    """Two key heads: from four cards on they are stored more than once, and each card reads what it stores."""
    assert Layout(tensor=tensor).kv_copies(TINY) == copies
    cards = Layout(tensor=tensor)
    assert decode(TINY, 10, 3, layout=cards) == Pass(decode(TINY, 10, 3).flops, 2 * 684 + 3 * (12 + copies * 11 * 48))
    assert prefill(TINY, 4, layout=cards).bytes == 2 * 684 + 4 * (12 + copies * 48)


def test_a_latent_is_stored_on_every_card():
    cache = 3 * 11 * 2 * 2 * (4 + 1)  # three sequences, 11 tokens, two layers, BF16
    assert Layout(tensor=8).kv_copies(LATENT) == 8
    assert decode(LATENT, 10, 3, layout=Layout(tensor=8)).bytes - decode(LATENT, 10, 3).bytes == 7 * cache


@pytest.mark.parametrize("shape", [TINY, EXPERTS, LATENT], ids=lambda m: m.name)
@given(data=few, batch=few, context=tokens)
def test_data_parallel_copies_each_read_their_own_weights(shape, data, batch, context):
    layout, request = Layout(data=data, tensor=2), Request(context, 1)
    alone = Layout(tensor=2)
    assert decode(shape, context, data * batch, layout=layout) == data * decode(shape, context, batch, layout=alone)
    assert prefill(shape, request, data * batch, layout=layout) == data * prefill(shape, request, batch, layout=alone)


def test_a_layout_counts_its_accelerators():
    assert Layout().gpus == 1 and Layout(tensor=2, pipeline=3, data=5, context=7).gpus == 210
    assert Layout(data=8, expert=8).gpus == 8  # experts lie on the same cards


@pytest.mark.parametrize("split", ["pipeline", "expert", "context"])
def test_a_split_that_is_not_counted_is_refused_by_name(split):
    layout = Layout(**{split: 2})
    for call in (lambda: decode(TINY, 10, layout=layout), lambda: prefill(TINY, 10, layout=layout)):
        with pytest.raises(ValueError, match=f"^{split} must be 1 where only tensor, data can be counted, got 2"):
            call()
    assert layout.only(split) == layout


@pytest.mark.parametrize("ways", [{"tensor": 0}, {"data": 1.5}, {"pipeline": None}, {"expert": True}, {"context": -1}])
def test_an_impossible_layout_is_refused(ways):
    with pytest.raises(ValueError, match=next(iter(ways))):
        Layout(**ways)


# Machines
TOY = Accelerator("toy", memory_bytes=1000, bandwidth=50, peaks={"bf16": 200, "fp8": 400})


def test_a_machine_adds_up_its_accelerators():
    pair = Machine(TOY, 2)
    assert (pair.peak, pair.bandwidth, pair.memory_bytes, pair.ridge) == (400, 100, 2000, 4)
    assert replace(pair, arithmetic="fp8").peak == 800


def test_time_is_the_longer_of_arithmetic_and_transfers():
    pair = Machine(TOY, 2)
    assert pair.seconds(Pass(800, 100)) == 2 and pair.regime(Pass(800, 100)) == "compute-bound"
    assert pair.seconds(Pass(100, 300)) == 3 and pair.regime(Pass(100, 300)) == "memory-bound"
    slower = pair.reaching(mfu=0.25, mbu=0.5)
    assert slower.seconds(Pass(800, 100)) == 8 and slower.seconds(Pass(100, 300)) == 6
    assert slower.reaching() == pair


@pytest.mark.parametrize(
    "change, named",
    [
        ({"count": 0}, "count"),
        ({"mfu": 0}, "mfu"),
        ({"mbu": 1.1}, "mbu"),
        ({"arithmetic": "fp4"}, "precision of toy must be one of 'bf16', 'fp8', got 'fp4'"),
        ({"dollars_per_gpu_hour": -1}, "dollars_per_gpu_hour"),
        ({"memory": "printed"}, "memory must be one of 'reported', 'label', got 'printed'"),
    ],
)
def test_an_impossible_machine_is_refused(change, named):
    with pytest.raises(ValueError, match=named):
        Machine(TOY, **change)


def test_sequences_beside_the_weights_by_hand():
    """Llama-3.1-70B in FP8 beside 8,192 tokens of 80 layers x 8 heads x 256 values in BF16 on two cards of 80 GB."""
    llama, pair, fp8 = model("Llama-3.1-70B"), Machine(accelerator("H100 SXM"), 2, memory="label"), Formats(weights="fp8")
    one = 8192 * 80 * 8 * 256 * 2
    assert fits(llama, pair, 8192, fp8) == (160_000_000_000 - 70_553_706_496) // one == 33
    assert fits(llama, pair, 8192, fp8, reserve=0.1) == (144_000_000_000 - 70_553_706_496) // one == 27
    assert fits(llama, replace(pair, count=16), 8192, fp8) == (1_280_000_000_000 - 70_553_706_496) // (2 * one) == 225
    assert fits(llama, pair, 8192, fp8, Layout(data=2)) == 2 * ((80_000_000_000 - 70_553_706_496) // one) == 6
    assert fits(llama, pair, 8192) == (160_000_000_000 - 141_107_412_992) // one == 7
    assert fits(llama, pair, 8192, layout=Layout(data=2)) == 0


def test_the_memory_that_a_driver_reports_holds_more_than_the_label():
    """81,559 MiB a card hold five sequences of 8,192 tokens beside the same weights, where 80 GB hold three."""
    llama, pair, fp8 = model("Llama-3.1-70B"), Machine(accelerator("H100 SXM"), 2), Formats(weights="fp8")
    one, card = 8192 * 80 * 8 * 256 * 2, 81_559 * 2**20
    assert pair.memory_bytes == 2 * card == 171_041_619_968 and replace(pair, memory="label").memory_bytes == 160_000_000_000
    assert fits(llama, pair, 8192, fp8, Layout(data=2)) == 2 * ((card - 70_553_706_496) // one) == 2 * 5
    assert fits(llama, replace(pair, memory="label"), 8192, fp8, Layout(data=2)) == 2 * 3
    assert fits(llama, pair, 8192, fp8, reserve=0.1) == (2 * card * 9 // 10 - 70_553_706_496) // one == 31


def test_without_a_report_the_label_counts():
    assert Machine(TOY).memory_bytes == Machine(TOY, memory="label").memory_bytes == 1000
    assert Machine(replace(TOY, reported_bytes=1070)).memory_bytes == 1070


@pytest.mark.parametrize(
    "change, named",
    [
        ({"layout": Layout(tensor=4)}, "layout must be of the machine's 2 accelerators, got 4"),
        ({"layout": Layout(pipeline=2)}, "pipeline must be 1"),
        ({"tokens": 0}, "tokens"),
        ({"reserve": 1.5}, "reserve"),
    ],
)
def test_what_does_not_say_how_much_fits_is_refused(change, named):
    with pytest.raises(ValueError, match=named):
        fits(**{"model": TINY, "machine": Machine(TOY, 2), "tokens": 8} | change)

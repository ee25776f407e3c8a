"""Decision requests: step by step against the closed form, against recorded results, and by the laws of batching."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.costs.rent import dollars_per_million
from workloads.counts import memory
from workloads.counts.passes import decode, prefill
from workloads.counts.request_tokens import Request
from workloads.facts.accelerators import accelerator
from workloads.facts.models import model
from workloads.times.machine import Machine
from workloads_book.studies.measurements import decision_request

QWEN, H100 = model("Qwen3-8B"), Machine(accelerator("H100 SXM"), mfu=0.4, mbu=0.5)


def stepped(prompt, output, batch=1):
    """Bytes of all decode steps for one request, one step after the other; sizes of Qwen3-8B written out."""
    weights, entry, row = 2 * (8_190_735_360 - 151936 * 4096), 2 * 36 * 8 * 128 * 2, 4096 * 2
    return sum(weights / batch + row + (prompt + j) * entry + entry for j in range(output - 1))


@pytest.mark.parametrize("prompt, output, batch", [(1929, 1, 1), (1929, 2, 64), (1929, 64, 64), (1, 512, 1), (700, 33, 7)])
def test_decode_bytes_against_step_by_step(prompt, output, batch):
    assert decode(QWEN, Request(prompt, output), batch).bytes / batch == pytest.approx(stepped(prompt, output, batch), rel=1e-12)


def test_recorded_times_of_the_decision_request_and_the_generated_answers():
    first = H100.seconds(prefill(QWEN, 1929, head=8))
    assert first == pytest.approx(0.070509, abs=5e-7)
    assert [round(first + H100.seconds(decode(QWEN, Request(1929, g))), 3) for g in (64, 512)] == [0.651, 4.787]
    assert [round(first + H100.seconds(decode(QWEN, Request(1929, g), 64)) / 64, 6) for g in (64, 512)] == [0.090281, 0.240958]


@given(st.integers(1, 10**5), st.integers(1, 2000), st.integers(1, 256))
def test_batching_saves_card_time_and_costs_waiting(prompt, output, batch):
    alone, together = (H100.seconds(decode(QWEN, Request(prompt, output), b)) for b in (1, batch))
    assert together / batch <= alone * (1 + 1e-12)
    assert together >= alone * (1 - 1e-12)


@given(st.integers(1, 10**5), st.integers(2, 40), st.integers(0, 10**4), st.integers(1, 8))
def test_the_decode_steps_of_a_request_are_the_sum_of_single_steps(new, output, past, batch):
    whole, steps = decode(QWEN, Request(new, output, past), batch), [decode(QWEN, past + new + j, batch) for j in range(output - 1)]
    assert whole.flops == pytest.approx(sum(step.flops for step in steps), rel=1e-12)
    assert whole.bytes == pytest.approx(sum(step.bytes for step in steps), rel=1e-12)


def test_one_token_needs_no_decode_step():
    step = decode(QWEN, Request(5, 1))
    assert step.flops == step.bytes == 0 == H100.seconds(step)


def test_no_batch_moves_less_than_its_own_cache():
    own = 63 * (memory.kv_bytes(QWEN, 1929 + 31 + 1) + 8192)
    assert decode(QWEN, Request(1929, 64), 10**9).bytes / 10**9 == pytest.approx(own, rel=1e-3)


def test_a_million_tokens_by_hand():
    rented = replace(H100, dollars_per_gpu_hour=2)
    assert dollars_per_million(rented, 36, 10**4) == pytest.approx(2.0)  # 100 x 36 s = one hour
    assert dollars_per_million(replace(rented, count=8), 36, 10**4) == pytest.approx(16.0)


@pytest.mark.parametrize(
    "call, named",
    [
        (lambda: replace(H100, mfu=1.1), "mfu"),
        (lambda: replace(H100, mbu=0), "mbu"),
        (lambda: prefill(QWEN, 4, head=5), "head"),
        (lambda: decode(QWEN, Request(5, 5), 0), "batch"),
        (lambda: decision_request("prize"), "quantity"),
        (lambda: dollars_per_million(replace(H100, dollars_per_gpu_hour=2), -1, 1), "seconds"),
        (lambda: dollars_per_million(replace(H100, dollars_per_gpu_hour=2), 1, 0), "tokens"),
        (lambda: dollars_per_million(H100, 1, 1), "dollars_per_gpu_hour"),
        (lambda: replace(H100, dollars_per_gpu_hour=-2), "dollars_per_gpu_hour"),
    ],
)
def test_bad_input_is_refused_by_name(call, named):
    with pytest.raises(ValueError, match=named):
        call()

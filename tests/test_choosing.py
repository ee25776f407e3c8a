"""Choosing a configuration: points by hand, fronts by comparison of all pairs, choices one by one."""

import tomllib
from dataclasses import replace

import pytest
from conftest import ROOT
from hypothesis import given
from hypothesis import strategies as st

import workloads as wl
from workloads.times.split import decode_seconds, prefill_seconds
from workloads_book.choosing import FORMATS, RUN, Choice, Point, cheapest, choices, curve, highest, pareto, point, pools

CARD = wl.Machine(wl.accelerator("H100 SXM"), mfu=0.5, mbu=0.7, dollars_per_gpu_hour=2.5)
QWEN, LLAMA = wl.model("Qwen3-8B"), wl.model("Llama-3.1-70B")
REQUEST = wl.Request(2048, 256)
PLAN = tomllib.loads((ROOT / "lib/workloads_book/data/plan.toml").read_text(encoding="utf-8"))


def test_a_point_by_hand():
    """Two cards, 8 sequences: a cycle is 8 prompts and 255 steps and yields 8 x 256 tokens."""
    machine, layout = replace(CARD, count=2), wl.Layout(tensor=2)
    prompt = prefill_seconds(QWEN, machine, layout, REQUEST, plan=RUN).total
    step = decode_seconds(QWEN, machine, layout, 2048 + 127, 8, plan=RUN).total
    found = point(QWEN, CARD, REQUEST, 2, "BF16", 8)
    cycle = 8 * prompt + 255 * step
    assert (found.first, found.interval, found.tokens) == pytest.approx((prompt, cycle / 255, 8 * 256 / cycle / 2))
    assert found.prompt_dollars == pytest.approx(2 * 2.5 / 3600 * prompt / 2048 * 1e6)
    assert str(found) == "TP2, BF16, batch 8"


@pytest.mark.parametrize("tensor, formats, batch", [(1, "BF16", 4), (2, "FP8", 64), (4, "BF16", 128)])
def test_prices_of_input_and_output_together_pay_the_rent(tensor, formats, batch):
    found = point(QWEN, CARD, REQUEST, tensor, formats, batch)
    a_second = found.tokens * tensor  # output tokens of the copy
    paid = a_second * (found.output_dollars + found.prompt_dollars * 2048 / 256) / 1e6
    assert paid == pytest.approx(tensor * 2.5 / 3600)


def test_what_does_not_fit_is_no_point_and_a_machine_without_price_has_none():
    assert point(LLAMA, CARD, REQUEST, 1, "BF16", 1) is None and point(LLAMA, CARD, REQUEST, 4, "BF16", 1) is not None
    free = point(QWEN, replace(CARD, dollars_per_gpu_hour=None), REQUEST, 1, "BF16", 1)
    assert free.prompt_dollars is None and free.output_dollars is None
    assert {p.formats for p in curve(QWEN, CARD, REQUEST, (1, 2))} == set(FORMATS)


speed = st.floats(0.1, 10)


@given(st.lists(st.tuples(speed, speed), max_size=12))
def test_the_front_is_what_no_other_point_beats(pairs):
    points = [Point(1, "BF16", 1, 1.0, interval, tokens, None, None) for interval, tokens in pairs]
    beaten = lambda p: any(
        q.interval <= p.interval and q.tokens >= p.tokens and (q.interval, q.tokens) != (p.interval, p.tokens) for q in points
    )
    front = pareto(points)
    assert {(p.interval, p.tokens) for p in front} == {(p.interval, p.tokens) for p in points if not beaten(p)}
    assert front == sorted(front, key=lambda p: p.interval)


def test_every_division_of_the_cards_is_tried_and_the_cheapest_that_keeps_the_plan_is_found():
    found = choices({**PLAN, "budget": 100}, {"H100 SXM": 2.5, "A100 80GB": 1.5})
    assert len(found) == 2 * (1 + 2 + 3 + 4) and [c.dollars for c in found] == sorted(c.dollars for c in found)
    kept, below = cheapest(found)
    assert not kept.missed and all(c.missed for c in found if c.dollars < kept.dollars)
    assert below.missed and below.dollars == max(c.dollars for c in found if c.dollars < kept.dollars)


def test_where_nothing_keeps_a_plan_the_dearest_is_what_misses_least():
    one, two = Choice("a", 1, ("x", "y")), Choice("b", 2, ("x",))
    assert cheapest([one, two]) == (None, two) and cheapest([]) == (None, None)
    assert cheapest([replace(one, missed=())]) == (replace(one, missed=()), None)


def test_pools_by_hand():
    """Prompts at most 0.7 of the time; the largest batch whose step keeps the interval; the cache of a prompt over 50 GB/s."""
    found = pools(QWEN, CARD, REQUEST, 40, 0.02, 50e9)
    step = lambda batch: decode_seconds(QWEN, CARD, wl.Layout(), 2048 + 127, batch, plan=RUN).total
    prompt = prefill_seconds(QWEN, CARD, wl.Layout(), REQUEST, plan=RUN).total
    assert step(found.batch) <= 0.02 < step(found.batch + 1)
    assert found.prefill - 1 < 40 * prompt / 0.7 <= found.prefill
    assert found.decode - 1 < 40 * 255 * step(found.batch) / found.batch <= found.decode
    assert found.transfer == pytest.approx(2048 * 147_456 / 50e9)
    assert pools(QWEN, CARD, REQUEST, 40, 0.001, 50e9) is None


@given(st.floats(1.001, 8.999))
def test_halving_comes_close_from_below(limit):
    found = highest(lambda rate: rate <= limit, 1, 9, steps=30)
    assert found <= limit < found + 1e-6

"""Choosing a configuration: points by hand, fronts by comparison of all pairs, choices one by one."""

import tomllib
from dataclasses import replace
from math import exp, factorial
from random import Random

import pytest
from conftest import ROOT
from hypothesis import given
from hypothesis import strategies as st

import workloads as wl
from workloads import Request
from workloads.serving.arrivals import Arrival, Window, random_arrivals
from workloads.serving.queues import fifo_waits
from workloads.times.split import decode_seconds, prefill_seconds
from workloads_book.choosing import (
    FORMATS,
    RUN,
    Choice,
    Point,
    apart,
    cheapest,
    choices,
    curve,
    goodput,
    highest,
    kept,
    pareto,
    point,
    pools,
    promised,
    replicas,
    waits_longer,
)

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


def test_a_found_token_costs_what_the_others_attend_to_it_and_much_less_than_a_new_one():
    """Half of 2,048 tokens found: the rest attends to 1,024 keys more, in every layer and head, at half of the card's peak."""
    found = point(QWEN, CARD, REQUEST, 1, "BF16", 1)
    seconds = 36 * 4 * 32 * 128 * 1024 * 1024 / (0.5 * CARD.accelerator.peaks["bf16"])
    assert found.cached_dollars == pytest.approx(2.5 / 3600 * seconds / 1024 * 1e6, rel=1e-6)
    assert found.cached_dollars < found.prompt_dollars / 10


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


@given(st.integers(1, 12), st.floats(0.01, 0.99), st.floats(0.01, 10))
def test_the_share_that_waits_is_erlangs_sum(servers, busy, service):
    """C(c, a) = (a^c/c!) c/(c - a) / (sum of a^k/k! below c + the same)."""
    offered = servers * busy
    last = offered**servers / factorial(servers) / (1 - busy)
    expected = last / (sum(offered**k / factorial(k) for k in range(servers)) + last)
    assert waits_longer(offered / service, service, servers) == pytest.approx(expected)
    later = waits_longer(offered / service, service, servers, 2 * service)
    assert later == pytest.approx(expected * exp(-2 * servers * (1 - busy)))


def test_the_share_that_waits_is_what_random_arrivals_and_services_give():
    draw, time, arrivals, services = Random(5), 0.0, [], []
    for _ in range(60_000):
        time += draw.expovariate(1.8)
        arrivals.append(time)
        services.append(draw.expovariate(1))
    waits = fifo_waits(arrivals, services, servers=3)
    for seconds in (0, 1):
        assert sum(w > seconds for w in waits) / len(waits) == pytest.approx(waits_longer(1.8, 1, 3, seconds), abs=0.02)


def test_one_queue_before_two_servers_promises_more_than_two_queues():
    assert waits_longer(0, 1, 2) == 0 and waits_longer(2, 1, 2) == 1
    one, two = promised(0.06, 1, 0.5), promised(0.06, 2, 0.5)
    assert 2 * one < two < 2 / 0.06
    assert waits_longer(one, 0.06, 1, 0.44) == pytest.approx(0.05, abs=1e-6)
    assert promised(0.06, 1, 0.05) == 0


@pytest.mark.parametrize(
    "arguments, name", [((-1, 1, 1), "rate"), ((1, 0, 1), "service"), ((1, 1, 0), "servers"), ((1, 1.5, 2, -1), "seconds")]
)
def test_a_queue_that_makes_no_sense_is_refused_by_name(arguments, name):
    with pytest.raises(ValueError, match=f"^{name} "):
        waits_longer(*arguments)


STEP, ENGINE = wl.step_time(QWEN, CARD), wl.Engine(20_000, max_num_batched_tokens=2048, max_num_seqs=256)


def at(rate, seconds=40):
    return list(random_arrivals([Window(seconds, rate, ((REQUEST, 1),))], cv=1, seed=7))


def test_each_engine_gets_every_second_request_as_if_it_were_alone():
    load = at(8)
    both = replicas(load, ENGINE, STEP, 2)
    assert both[::2] == [*wl.serve(load[::2], ENGINE, STEP).requests] and both[1::2] == [*wl.serve(load[1::2], ENGINE, STEP).requests]
    assert replicas(load, ENGINE, STEP) == [*wl.serve(load, ENGINE, STEP).requests]
    assert len(replicas(load[:2], ENGINE, STEP, 5)) == 2


def test_two_pools_by_hand():
    """A prompt alone, its cache over the link, then steps of one row: nothing else takes time."""
    (alone,) = apart([Arrival(0.0, Request(2048, 9))], ENGINE, STEP, 1, 1, transfer=0.25)
    (together,) = wl.serve([Arrival(0.0, Request(2048, 9))], ENGINE, STEP).requests
    assert alone.first == together.first
    assert alone.last == pytest.approx(together.last + 0.25)
    assert (alone.prompt, alone.output) == (2048, 9)


def test_an_answer_of_one_token_never_reaches_the_second_pool():
    (only,) = apart([Arrival(0.0, Request(2048, 1))], ENGINE, STEP, 1, 1, transfer=0.25)
    assert only.first == only.last


def test_answers_apart_never_wait_for_a_prompt():
    """Steps of the second pool hold rows alone: no token takes longer than a step of all rows there are."""
    load = at(12)
    mixed, two = replicas(load, ENGINE, STEP, 2), apart(load, ENGINE, STEP, 1, 1, transfer=0)
    longest = STEP.seconds(256, 256, 0, 0, 256 * 2304)
    assert all((r.last - r.first) / 255 <= longest for r in two)
    assert kept(two, 9, 0.014) > kept(mixed, 9, 0.014)


def test_goodput_is_the_last_rate_that_keeps_the_promise():
    play = lambda rate: replicas(at(rate), ENGINE, STEP)
    found = goodput(play, 0.5, 0.03, 16)
    assert kept(play(found), 0.5, 0.03) >= 0.95 > kept(play(found + 16 / 2**10), 0.5, 0.03)
    assert goodput(play, 0.5, 0.001, 16) == 0  # no rate makes a step so short
    assert goodput(play, 0.5, 0.03, 16, share=0.5) > found


def test_a_formula_of_prompts_alone_promises_more_than_an_engine_that_mixes_keeps():
    prompt = wl.Machine.seconds(CARD, wl.prefill(QWEN, REQUEST))
    assert promised(prompt, 1, 0.5) > goodput(lambda rate: replicas(at(rate), ENGINE, STEP), 0.5, 0.03, 16)

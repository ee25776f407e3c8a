import json
import math
import random
from dataclasses import asdict, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from serving_simpy import simulate

from workloads.counts import flops, memory
from workloads.counts.request_tokens import Request
from workloads.facts.accelerators import Accelerator, accelerator
from workloads.facts.models import model
from workloads.serving.arrivals import Arrival, random_times
from workloads.serving.engine import Engine, Run, Served
from workloads.serving.simulation import serve
from workloads.serving.step_seconds import TICKS, StepTime, step_time
from workloads.serving.traces import trace_lines
from workloads.times.machine import Machine
from workloads_book.measured_runs import (
    LONG_INPUT,
    LONG_OUTPUT,
    logged_chunks,
    measured_replay,
    replay_factors,
    replay_load,
    replay_settings,
)
from workloads_book.studies.calibration import calibrate, relative_errors
from workloads_book.studies.simulation_steps import serve_stepwise

QWEN, CARD = model("Qwen3-8B"), accelerator("RTX PRO 6000 Blackwell Workstation")
ENGINE = Engine(**replay_settings())
BOUND = step_time(QWEN, Machine(CARD))
NAMES = ("uniform", "phased")
LOADS = {name: replay_load(name) for name in NAMES}
RULES = ("blocks", "block_size", "max_num_batched_tokens", "max_num_seqs", "whole_sequence")  # that the SimPy model knows
# one FLOP/s and one B/s: a token through the layers costs 1 s, everything else nothing
ONE_A_SECOND = Machine(Accelerator("made", 1, 1, {"bf16": 1}))
COUNTING = StepTime(1, 0, 0, 0, 0, 0, ONE_A_SECOND)


def reaching(mfu=1, mbu=1, form="sum"):
    return step_time(QWEN, Machine(CARD, mfu=mfu, mbu=mbu), form)


def load_of(*requests):
    return [Arrival(time, Request(new, output)) for time, new, output in requests]


# ---- the measured replay -------------------------------------------------------------------------------------------------


def test_the_replay_loads_hold_240_of_each_type_and_the_phases_mirror_each_other():
    for load in LOADS.values():
        assert [a.time for a in load] == [i / 4 for i in range(480)]
        assert [a.request for a in load].count(LONG_INPUT) == [a.request for a in load].count(LONG_OUTPUT) == 240
    phased = [a.request for a in LOADS["phased"]]
    assert [i for i in range(240) if phased[i] == LONG_OUTPUT] == list(range(9, 240, 10))
    assert [i for i in range(240, 480) if phased[i] == LONG_INPUT] == list(range(240, 480, 10))


def fluid_bound():
    """Seconds of the replay's decode bytes at 64 rows and mean context, and of its prompts' FLOPs, at full rates."""
    steps = 240 * (255 + 2047)
    decode = steps / 64 * memory.decode_traffic(QWEN, 2742, 64).total / CARD.bandwidth
    prompts = 240 * sum(flops.forward(QWEN, r.new, head="last").total for r in (LONG_INPUT, LONG_OUTPUT))
    return decode + prompts / CARD.peak()


@pytest.mark.parametrize("form", ["sum", "max"])
@pytest.mark.parametrize("name", NAMES)
def test_at_full_rates_every_time_is_below_the_measured_one_and_the_makespan_above_the_fluid_bound(name, form):
    run, measured = serve(LOADS[name], ENGINE, replace(BOUND, form=form)), measured_replay(name)
    assert all(error < 0 for error in relative_errors(run, measured.times).values())
    assert run.makespan > fluid_bound() == pytest.approx(268.2, abs=0.1)


@pytest.mark.parametrize("form", ["sum", "max"])
@pytest.mark.parametrize("name", NAMES)
def test_preemptions_follow_from_shapes_and_blocks_without_any_fit(name, form):
    assert serve(LOADS[name], ENGINE, replace(BOUND, form=form)).preemptions == pytest.approx(measured_replay(name).preemptions, rel=0.15)


def test_one_factor_fitted_on_the_uniform_load_predicts_the_phased_one():
    fitted = calibrate(ENGINE, BOUND, [(LOADS["uniform"], measured_replay("uniform").times)], factors=1)
    assert fitted.machine.mfu == fitted.machine.mbu < 1
    for name, limit in (("uniform", 0.01), ("phased", 0.045)):
        run, measured = serve(LOADS[name], ENGINE, fitted), measured_replay(name)
        assert max(abs(e) for e in relative_errors(run, measured.times).values()) <= limit
        for i, count in enumerate(measured.outstanding, 1):
            assert abs(run.outstanding(10 * i) - count) <= 8


@pytest.mark.parametrize("name", NAMES)
def test_two_frozen_factors_meet_all_eight_measured_times(name):
    run, measured = serve(LOADS[name], ENGINE, reaching(**replay_factors())), measured_replay(name)
    assert max(abs(e) for e in relative_errors(run, measured.times).values()) <= 0.02
    assert {"uniform": 52, "phased": 21}[name] <= run.preemptions <= {"uniform": 66, "phased": 27}[name]


@pytest.mark.parametrize("name", NAMES)
def test_the_frozen_factors_lie_within_what_single_steps_of_the_log_show(name):
    mfu = replay_factors()["mfu"]
    shares = [flops.forward(QWEN, new, past, head=0).total / CARD.peak() / seconds for past, new, seconds in logged_chunks()]
    assert 0.85 * min(shares) < mfu < max(shares)


def test_without_the_whole_sequence_check_preemptions_multiply():
    eager = replace(ENGINE, whole_sequence=False)
    for name in NAMES:
        assert serve(LOADS[name], eager, reaching(**replay_factors())).preemptions > 10 * measured_replay(name).preemptions


# ---- a model of the same rules in SimPy ----------------------------------------------------------------------------------


def agree_with_simpy(load, engine, cost):
    settings_of = {k: v for k, v in asdict(engine).items() if k in RULES}
    spec = vars(cost) | {rate: getattr(cost.machine, rate) for rate in ("peak", "bandwidth", "mfu", "mbu")}
    jobs, steps = simulate([(a.time, a.request.new, a.request.output) for a in load], spec, **settings_of)
    run = serve(load, engine, cost)
    assert run.steps == steps
    assert [r.preemptions for r in run.requests] == [j.thrown_out for j in jobs]
    for r, j in zip(run.requests, jobs):
        assert (r.scheduled, r.first, r.last) == pytest.approx((j.first_scheduled, j.first_token, j.done), rel=1e-9)


@pytest.mark.parametrize("form", ["sum", "max"])
@pytest.mark.parametrize("name", NAMES)
def test_replays_equal_the_simpy_model(name, form):
    agree_with_simpy(LOADS[name], ENGINE, reaching(form=form, **replay_factors()))


@pytest.mark.parametrize("seed", range(40))
def test_random_loads_equal_the_simpy_model(seed):
    draw = random.Random(seed)
    seats = draw.choice([1, 3, 16])
    engine = Engine(
        blocks=draw.randint(40, 300),
        block_size=draw.choice([1, 7, 16]),
        max_num_batched_tokens=draw.choice([seats, 64, 500]),
        max_num_seqs=seats,
        whole_sequence=draw.random() < 0.7,
    )
    room = engine.blocks * engine.block_size
    load = []
    for time in sorted(draw.uniform(0, 3) for _ in range(30)):
        new = draw.randint(1, min(400, room - 1))
        load.append(Arrival(time, Request(new, draw.randint(1, min(300, room - new)))))
    agree_with_simpy(load, engine, reaching(draw.uniform(0.01, 1), draw.uniform(0.01, 1), draw.choice(["sum", "max"])))


# ---- event-skipping against step by step ---------------------------------------------------------------------------------


@st.composite
def situations(draw):
    seats = draw(st.integers(1, 12))
    block_size = draw(st.sampled_from([1, 2, 5, 16]))
    engine = Engine(
        blocks=draw(st.integers(3, 60)),
        block_size=block_size,
        max_num_batched_tokens=draw(st.integers(seats, 80)),
        max_num_seqs=seats,
        whole_sequence=draw(st.booleans()),
    )
    room, time, load = engine.blocks * block_size, 0.0, []
    for _ in range(draw(st.integers(1, 20))):
        time += draw(st.sampled_from([0.0, 0.0, 0.01, 0.25, 3.0]) | st.floats(0, 2, allow_subnormal=False))
        new = draw(st.integers(1, min(200, room)))
        load.append(Arrival(time, Request(new, draw(st.integers(1, max(1, min(200, room - new + 1)))))))
    costs = [draw(st.floats(0, 10) | st.just(0.25)) for _ in range(6)]
    peak, bandwidth = draw(st.sampled_from([1.0, 64.0, 1000.0])), draw(st.sampled_from([1.0, 50.0]))
    machine = Machine(Accelerator("made", 1, bandwidth, {"bf16": peak}), mfu=draw(st.floats(0.05, 1)))
    cost = StepTime(costs[0] + 1e-3, *costs[1:], machine, draw(st.sampled_from(["sum", "max"])))
    return load, engine, cost


@settings(max_examples=400, deadline=None, derandomize=True)
@given(situations())
def test_event_skipping_equals_step_by_step_to_the_last_digit(situation):
    load, engine, cost = situation
    fast, slow = serve(load, engine, cost), serve_stepwise(load, engine, cost)
    assert fast.requests == slow.requests  # every time, and every request's preemptions
    assert fast.steps == slow.steps
    assert set(fast.timeline) <= set(slow.timeline)
    assert fast.events <= slow.steps


@pytest.mark.parametrize("paid", range(6))
def test_one_cost_above_nothing_is_enough_for_a_step(paid):
    assert StepTime(*(int(place == paid) for place in range(6)), ONE_A_SECOND).spans(1, 1)(1) > 0
    with pytest.raises(ValueError, match="time of a step"):
        StepTime(0, 0, 0, 0, 0, 0, ONE_A_SECOND)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    st.integers(1, 100),
    st.integers(0, 10**6),
    st.integers(0, 200),
    st.sampled_from(["sum", "max"]),
    st.lists(st.integers(0, 1000), min_size=6, max_size=6),
)
def test_a_span_is_the_sum_of_its_steps(rows, context, steps, form, costs):
    cost = StepTime(costs[0] + 1, *costs[1:], Machine(Accelerator("made", 1, 7, {"bf16": 10})), form)
    assert cost.spans(rows, context)(steps) == sum(cost.step(rows, rows, 0, 0, context + rows * j) for j in range(steps))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(situations())
def test_every_run_keeps_the_laws_of_the_engine(situation):
    load, engine, cost = situation
    run = serve(load, engine, cost)
    for r in run.requests:
        assert r.arrival <= r.scheduled < r.first <= r.last
    firsts = [r.scheduled for r in run.requests]
    assert firsts == sorted(firsts)  # first come, first scheduled
    assert all(0 < used <= engine.blocks and 0 < rows <= engine.max_num_seqs for _, used, rows in run.timeline)
    end, used, rows = run.timeline[-1]
    # all others have given their blocks back
    held = [engine.blocks_of(r.prompt + r.output - 1) for r in run.requests if r.last == end]
    assert end == max(r.last for r in run.requests) and (used, rows) == (sum(held), len(held))
    assert all(a[0] < b[0] for a, b in zip(run.timeline, run.timeline[1:]))
    assert run.outstanding(run.timeline[-1][0]) == 0
    if not run.preemptions:
        tokens = sum(a.request.new + a.request.output - 1 for a in load)  # without preemption nothing is computed twice
        assert run.steps <= tokens


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.integers(1, 500), st.integers(0, 64), st.integers(0, 10**6), st.integers(0, 10**5), st.integers(0, 10**6))
def test_the_roofline_of_the_whole_step_is_never_above_that_of_its_operators(tokens, logits, pairs, context, decode_context):
    counts = tokens, logits, pairs, context, decode_context
    assert replace(BOUND, form="max").step(*counts) <= BOUND.step(*counts) + 10  # ticks of rounding


# ---- hand-worked ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine_of", [serve, serve_stepwise])
def test_a_prompt_is_computed_in_chunks_of_the_budget(engine_of):
    run = engine_of(load_of((1.0, 100, 3)), Engine(blocks=10, max_num_batched_tokens=64, max_num_seqs=2), COUNTING)
    only = run.requests[0]
    # steps of 64, 36 (first token), 1 and 1 tokens
    assert (only.scheduled, only.first, only.last, run.steps) == (1.0, 101.0, 103.0, 4)


@pytest.mark.parametrize("engine_of", [serve, serve_stepwise])
def test_the_last_request_is_preempted_goes_to_the_front_and_is_computed_again(engine_of):
    # pool of 6 one-token blocks; A and B: 2 in, 4 out; C: 1 in, 1 out. One second a token.
    engine = Engine(blocks=6, block_size=1, max_num_batched_tokens=8, max_num_seqs=3)
    run = engine_of(load_of((0, 2, 4), (0, 2, 4), (0, 1, 1)), engine, COUNTING)
    a, b, c = run.requests
    # step 1, to 5 s: A 2, B 2, C 1 tokens, 5 blocks; C is done, 4 left.      step 2, to 7 s: A and B take the last two blocks.
    # step 3, to 8 s: A needs a block, B is thrown out with 2 tokens returned. step 4, to 9 s: A's last token; B (4 known, 2 free) waits.
    # step 5, to 13 s: B's 4 known tokens, its third token.                    step 6, to 14 s: its fourth.
    assert (a.first, a.last, a.preemptions) == (5, 9, 0)
    assert (b.scheduled, b.first, b.last, b.preemptions) == (0, 5, 14, 1)
    assert (c.first, c.last) == (5, 5)
    assert (run.steps, run.preemptions, run.makespan) == (6, 1, 14)
    if engine_of is serve_stepwise:
        assert run.timeline == ((5, 5, 3), (7, 6, 2), (8, 4, 1), (9, 5, 1), (13, 4, 1), (14, 5, 1))


@pytest.mark.parametrize("engine_of", [serve, serve_stepwise])
def test_a_request_waits_until_its_whole_known_sequence_fits(engine_of):
    pool = dict(blocks=10, block_size=1, max_num_batched_tokens=4, max_num_seqs=2)
    load = load_of((0, 4, 4), (0, 6, 1))
    held = engine_of(load, Engine(**pool), COUNTING).requests[1]
    eager = engine_of(load, Engine(**pool, whole_sequence=False), COUNTING).requests[1]
    # Step 1, to 4 s: A's prompt takes the budget and 4 blocks. B's 6 do not fit beside A's next token: it enters when A is done, at 7 s.
    assert (held.scheduled, held.first, held.preemptions) == (7, 7 + 4 + 2, 0)
    # Eager: step 2, to 8 s: A 1, B 3 tokens. Step 3, to 9 s: A 1; B's other 3 miss two blocks, B is thrown out.
    # Step 4, to 13 s: A's last token, B 3. Step 5, to 16 s: B 3.
    assert (eager.scheduled, eager.first, eager.preemptions) == (4, 16, 1)


@pytest.mark.parametrize("engine_of", [serve, serve_stepwise])
def test_an_idle_engine_waits_for_the_next_arrival(engine_of):
    run = engine_of(load_of((0, 1, 1), (10, 1, 2)), Engine(blocks=1, max_num_batched_tokens=4, max_num_seqs=4), COUNTING)
    assert [(r.scheduled, r.last) for r in run.requests] == [(0, 1), (10, 12)]


def test_a_lone_request_takes_the_sum_of_its_rooflines():
    run = serve([Arrival(0, Request(4096, 129))], ENGINE, BOUND)
    prompt = (2 * 6_945_767_424 * 4096 + 589_824 * 4096 * 4097 // 2) / 503.8e12 + 1_244_659_712 / 1792e9
    decode = sum(15_136_811_008 + 147_456 * (4096 + j) for j in range(1, 129)) / 1792e9
    assert run.requests[0].first == pytest.approx(prompt, rel=1e-9)
    assert run.requests[0].last == pytest.approx(prompt + decode, rel=1e-9)


def test_quantiles_are_nearest_rank_over_requests():
    run = serve(load_of(*((10.0 * i, i + 1, 1) for i in range(4))), Engine(blocks=9, max_num_batched_tokens=8, max_num_seqs=4), COUNTING)
    assert run.p95_times() == {"request_p95": 4, "ttft_p95": 4, "wait_p95": 0, "makespan": 34}
    assert [run.outstanding(t) for t in (0, 0.5, 1, 31, 34)] == [1, 1, 0, 1, 0]


def test_half_the_rates_take_twice_the_time_of_a_step():
    halved = reaching(mfu=0.5, mbu=0.5)
    assert halved.seconds(600, 30, 10**5, 600, 10**5) == pytest.approx(2 * BOUND.seconds(600, 30, 10**5, 600, 10**5), rel=1e-12)


def simulated_measurement(name, truth):
    run = serve(LOADS[name], ENGINE, truth)
    return run.p95_times()


def test_a_fit_of_one_factor_recovers_the_one_behind_a_simulated_measurement():
    seen = simulated_measurement("phased", reaching(mfu=0.437, mbu=0.437))
    fitted = calibrate(ENGINE, BOUND, [(LOADS["phased"], seen)], factors=1)
    assert (fitted.machine.mfu, fitted.machine.mbu) == pytest.approx((0.437, 0.437), abs=0.002)


def test_some_of_the_times_are_enough_and_wrong_ones_are_refused():
    run = serve(load_of((0, 1, 1), (10, 1, 2)), Engine(blocks=9), COUNTING)  # lasts from 0 to 12 s
    assert relative_errors(run, {"makespan": 16}) == {"makespan": -0.25}
    for wrong in ({}, {"makespan": 0}, {"median": 1}):
        with pytest.raises(ValueError, match="measured|makespan"):
            relative_errors(run, wrong)


def test_a_fit_of_two_factors_meets_a_simulated_measurement():
    observations = [(LOADS[name], simulated_measurement(name, reaching(mfu=0.45, mbu=0.8))) for name in NAMES]
    fitted = calibrate(ENGINE, BOUND, observations)
    assert max(abs(e) for load, seen in observations for e in relative_errors(serve(load, ENGINE, fitted), seen).values()) < 0.015


# ---- growth, counted and not timed ---------------------------------------------------------------------------------------


def test_sixteen_times_the_output_costs_sixteen_times_the_steps_and_hardly_more_events():
    fitted = reaching(**replay_factors())
    runs = [serve([Arrival(i / 8, Request(1024, output)) for i in range(480)], ENGINE, fitted) for output in (256, 4096)]
    assert runs[1].steps > 12 * runs[0].steps
    assert runs[1].events < 2 * runs[0].events


def test_arrivals_behind_a_blocked_queue_end_no_span():
    by_seat = Engine(blocks=100, max_num_batched_tokens=640, max_num_seqs=1)
    by_pool = Engine(blocks=64, max_num_batched_tokens=640, max_num_seqs=8)  # a prompt of 600 tokens takes more than half of it
    for engine in (by_seat, by_pool):
        run = serve(load_of(*((float(i), 600, 401) for i in range(20))), engine, COUNTING)
        assert (run.events, run.steps, run.preemptions) == (20 * 2, 20 * 401, 0)  # a prompt and a span each


def test_events_grow_in_proportion_to_the_requests():
    events = []
    for count in (500, 5000):
        draw = random.Random(1)
        times = random_times(1, 2 * count, seed=1)[:count]
        load = [Arrival(t, Request(draw.randint(100, 2000), draw.randint(50, 500))) for t in times]
        events.append(serve(load, ENGINE, reaching(**replay_factors())).events)
    assert 8 < events[1] / events[0] < 12


# ---- bad input -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine_of", [serve, serve_stepwise])
@pytest.mark.parametrize(
    "load, message",
    [
        ([], "at least one arrival"),
        (load_of((1, 8, 8), (0.5, 8, 8)), r"in order, got 0\.5 after 1"),
        (load_of((-1, 8, 8)), r"arrival \(s\) must be at least 0, got -1"),
        (load_of((math.nan, 8, 8)), r"arrival \(s\)"),
        (load_of((math.inf, 8, 8)), r"arrival \(s\)"),
        (load_of((0, 10_000, 241)), r"new \+ output \(tokens\) must be at most the engine's max_model_len 10240, got 10241"),
        (load_of((0, 100, 62)), r"fit the pool of 10 blocks of 16, needs 11, got 161"),
        ([Arrival(0, Request(8, 8, past=8))], r"past \(tokens\) must be 0"),
    ],
)
def test_a_load_that_cannot_be_served_is_refused(engine_of, load, message):
    with pytest.raises(ValueError, match=message):
        engine_of(load, Engine(blocks=10), COUNTING)


def test_a_request_that_just_fits_is_served():
    assert serve(load_of((0, 100, 61)), Engine(blocks=10), COUNTING).requests[0].preemptions == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"blocks": 0},
        {"blocks": 2.5},
        {"block_size": 0},
        {"max_num_batched_tokens": 0},
        {"max_num_batched_tokens": 63},
        {"max_num_seqs": 0},
        {"max_model_len": 0},
        {"blocks": math.nan},
    ],
)
def test_engine_settings_out_of_range_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Engine(**({"blocks": 10} | wrong))


@pytest.mark.parametrize("wrong", [{"head_flops": math.nan}, {"kv_bytes": -1}, {"form": "min"}])
def test_step_times_out_of_range_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        replace(BOUND, **wrong)


def test_a_step_that_takes_no_time_is_refused():
    with pytest.raises(ValueError, match="time of a step"):
        StepTime(0, 0, 0, 0, 0, 0, ONE_A_SECOND)


def test_unknown_replays_and_numbers_of_factors_are_refused():
    with pytest.raises(ValueError, match="'uniform', 'phased'"):
        replay_load("poisson")
    with pytest.raises(ValueError, match="'uniform', 'phased'"):
        measured_replay("engine")
    with pytest.raises(ValueError, match="factors"):
        calibrate(ENGINE, BOUND, [], factors=3)
    with pytest.raises(ValueError, match="observations"):
        calibrate(ENGINE, BOUND, [])


# ---- export --------------------------------------------------------------------------------------------------------------


def test_a_trace_holds_the_load_in_the_form_of_mooncake():
    lines = [json.loads(line) for line in trace_lines(LOADS["phased"])]
    assert [line["timestamp"] for line in lines] == [250 * i for i in range(480)]
    assert sum(line["input_length"] for line in lines) == 240 * (8192 + 1024)
    assert all(len(line["hash_ids"]) == math.ceil(line["input_length"] / 512) for line in lines)
    ids = [i for line in lines for i in line["hash_ids"]]
    assert len(set(ids)) == len(ids)  # no prefix in common
    assert [(line["timestamp"] / 1000, line["input_length"], line["output_length"]) for line in lines] == [
        (arrival.time, arrival.request.new, arrival.request.output) for arrival in LOADS["phased"]
    ]


def test_ticks_are_fine_enough_for_the_smallest_cost():
    cost = BOUND._ticks[:7]  # what work costs; nothing is beside it here
    assert BOUND._ticks[7:] == (0, 0)
    assert min(cost) / TICKS == pytest.approx(589_824 / 503.8e12, rel=1e-9)


def test_a_request_is_in_the_system_from_its_arrival_until_before_its_last_token():
    run = Run((Served(1, 1.5, 2, 3, prompt=8, output=2, preemptions=0),), steps=2, events=2, timeline=())
    assert [run.outstanding(time) for time in (0.99, 1, 2.99, 3)] == [0, 1, 1, 0]


@pytest.mark.parametrize("name", ["uniform", "phased"])
def test_both_measured_loads_send_the_same_tokens_in_the_same_time(name):
    load = replay_load(name)
    assert [sum(getattr(a.request, part) for a in load) for part in ("new", "output")] == [240 * 9 * 1024, 240 * 9 * 256]  # 8 k + 1 k
    assert {(a.request.new, a.request.output, a.request.past) for a in load} == {(8 * 1024, 256, 0), (1024, 8 * 256, 0)}
    assert [a.time for a in load] == [i / 4 for i in range(480)]
    assert sum(a.request.new > 4096 for a in load[:240]) == {"uniform": 120, "phased": 216}[name]

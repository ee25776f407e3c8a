"""Prefix caching, closed loops, planning ahead, experts: event-skipping equals step by step, and small cases worked by hand."""

import random
from dataclasses import replace

import pytest

from workloads.counts.request_tokens import Request
from workloads.facts.accelerators import Accelerator, accelerator
from workloads.facts.models import model
from workloads.serving.arrivals import Arrival, Call
from workloads.serving.engine import Engine
from workloads.serving.simulation import serve
from workloads.serving.step_seconds import Overheads, StepTime, step_time
from workloads.times.machine import Machine
from workloads_book.studies.simulation_steps import serve_stepwise

ONE_A_SECOND = Machine(Accelerator("made", 1, 1, {"bf16": 1}))
COUNTING = StepTime(1, 0, 0, 0, 0, 0, ONE_A_SECOND)  # a token through the layers costs 1 s, everything else nothing
H100 = Machine(accelerator("H100 SXM"), mfu=0.5, mbu=0.8)
COSTS = [
    step_time(model("Qwen3-8B"), H100),
    step_time(model("Qwen3-8B"), H100, "max", beside=Overheads(step=1e-3, token=1e-5, cache_rate=5e11)),
    step_time(model("Mixtral-8x7B"), replace(H100, count=2), beside=Overheads(step=2e-3, rows=8)),
    step_time(model("DeepSeek-V3"), replace(H100, count=16), chances=[i / 2**12 for i in range(256)]),
]


def random_case(seed):
    """A load of families that share prefixes, of sessions whose calls follow each other, and an engine with little room."""
    draw = random.Random(seed)
    size, seats = draw.choice([1, 4, 16]), draw.choice([1, 3, 16])
    engine = Engine(
        blocks=draw.randint(30, 300),
        block_size=size,
        max_num_batched_tokens=draw.choice([seats, 64, 500]),
        max_num_seqs=seats,
        whole_sequence=draw.random() < 0.7,
        prefix_caching=seed % 4 != 0,
        planned_ahead=draw.random() < 0.5,
        host_seconds=draw.choice([0, 0.004]),
    )
    room, load, closed = engine.blocks * size, [], draw.random() < 0.5
    for place, time in enumerate(sorted(draw.uniform(0, 0.5 * draw.random()) for _ in range(40))):
        new = draw.randint(1, min(300, room - 1))
        request = Request(new, draw.randint(1, min(80, room - new)))
        hashes = ()
        if engine.prefix_caching and draw.random() < 0.8:  # a family, a branch of it, and at times what the output fills
            family, common, named = draw.randint(0, 3), draw.randint(0, 30), new + (request.output if draw.random() < 0.3 else 0)
            hashes = tuple((family, i) if i < common else (family, draw.randint(0, 1), i) for i in range(named // size))
        if engine.prefix_caching and not hashes and new > 1 and draw.random() < 0.3:
            past = draw.randint(1, new - 1)
            request = Request(new - past, request.output, past)
        after = draw.randrange(place) if closed and place and draw.random() < 0.6 else None
        load.append(Call(time if after is None else draw.choice([0, 0.01, 0.1]), request, hashes=hashes, after=after))
    return load, engine


@pytest.mark.parametrize("first", range(0, 400, 20))
def test_random_loads_with_prefixes_and_sessions_equal_the_reference_to_the_last_digit(first):
    for seed in range(first, first + 20):
        load, engine = random_case(seed)
        cost = COSTS[seed % len(COSTS)]
        fast, slow = serve(load, engine, cost), serve_stepwise(load, engine, cost)
        assert (fast.requests, fast.steps, fast.timeline[-1]) == (slow.requests, slow.steps, slow.timeline[-1]), seed
        assert set(fast.timeline) <= set(slow.timeline)


def alone(request, engine, **more):
    return [Call(0.0, request, **more)], engine


SMALL = Engine(blocks=20, block_size=4, max_num_batched_tokens=64, max_num_seqs=2, prefix_caching=True)


def test_the_same_prompt_again_computes_its_last_token_and_what_its_last_whole_block_leaves():
    names = tuple(range(2))  # 8 of 10 tokens are whole blocks: two are left
    run = serve([Call(0.0, Request(10, 1), hashes=names), Call(100.0, Request(10, 1), hashes=names)], SMALL, COUNTING)
    assert [r.last - r.arrival for r in run.requests] == [10, 2]
    whole = tuple(range(3))  # all 12 are: the last token is computed, and with it its block
    run = serve([Call(0.0, Request(12, 1), hashes=whole), Call(100.0, Request(12, 1), hashes=whole)], SMALL, COUNTING)
    assert [r.last - r.arrival for r in run.requests] == [12, 4]


def test_a_prefix_is_found_until_its_room_is_taken_the_least_recently_used_first():
    names = lambda family: tuple((family, i) for i in range(8))
    ask = lambda time, family: Call(time, Request(33, 1), hashes=names(family))
    run = serve([ask(0.0, "a"), ask(100.0, "b"), ask(200.0, "a"), ask(300.0, "c"), ask(400.0, "b"), ask(500.0, "c")], SMALL, COUNTING)
    assert [r.last - r.arrival for r in run.requests] == [33, 33, 1, 33, 25, 1]
    # of 20 blocks c's 9 took 3 without a name and 6 of b, its last ones first, none of a: b finds 2 blocks of 4 tokens


def test_the_next_turn_finds_what_the_last_one_returned():
    first, second = tuple(range(4)), tuple(range(6))
    run = serve([Call(0.0, Request(8, 9), hashes=first), Call(1.0, Request(21, 1), hashes=second, after=0)], SMALL, COUNTING)
    assert run.requests[1].arrival == run.requests[0].last + 1
    assert run.requests[1].last - run.requests[1].arrival == 21 - 16  # 8 + 8 of the 9 returned have their KV


def test_users_that_think_obey_the_response_time_law():
    """N = X (R + Z), over a span from one user's start to that user's end, of users that never stop."""
    users, calls, think, load = 3, 40, 5.0, []
    for call in range(calls):
        load += [Call(think if call else 0.0, Request(4, 3), after=users * (call - 1) + user if call else None) for user in range(users)]
    run = serve(load, replace(SMALL, max_num_seqs=8), COUNTING)
    cycles = [(run.requests[users * (calls - 1) + u].last + think) / calls for u in range(users)]
    response = [
        sum(run.requests[users * c + u].last - run.requests[users * c + u].arrival for c in range(calls)) / calls for u in range(users)
    ]
    assert cycles == pytest.approx([r + think for r in response])


def test_a_step_planned_ahead_lets_an_arrival_wait_one_step_more():
    engine = replace(SMALL, prefix_caching=False, max_num_batched_tokens=8)
    load = [Arrival(0.0, Request(4, 20)), Arrival(7.5, Request(1, 1))]  # steps end at 4, 5, 6, 7, 8, 9, ...
    assert serve(load, engine, COUNTING).requests[1].scheduled == 8
    assert serve(load, replace(engine, planned_ahead=True), COUNTING).requests[1].scheduled == 9
    assert serve(load[1:], replace(engine, planned_ahead=True), COUNTING).requests[0].scheduled == 7.5  # an idle engine plans at once


def test_the_host_delays_the_queue_and_not_the_steps():
    run = serve([Arrival(1.0, Request(10, 3))], replace(SMALL, prefix_caching=False, host_seconds=0.5), COUNTING)
    assert [(r.arrival, r.scheduled, r.first, r.last) for r in run.requests] == [(1.0, 1.5, 11.5, 13.5)]


def test_names_and_loops_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match="hashes must be empty without prefix caching, got 0, 2"):
        serve(*alone(Request(8, 1), replace(SMALL, prefix_caching=False), hashes=(1, 2)), COUNTING)
    with pytest.raises(ValueError, match="after must be the place of an earlier request, below 0, got 0"):
        serve(*alone(Request(8, 1), SMALL, after=0), COUNTING)


def test_experts_are_read_as_they_are_picked_and_overheads_are_added():
    cost = StepTime(0, 0, 0, 0, 0, 0, ONE_A_SECOND, expert_bytes=100, chances=(0.5, 0.25), beside=Overheads(step=3, token=2, rows=4))
    for tokens, padded in ((1, 4), (4, 4), (5, 8)):
        picked = (1 - 0.5**padded + 1 - 0.75**padded) / 2
        assert cost.seconds(tokens, 0, 0, 0, 0) == pytest.approx(3 + 2 * tokens + 100 * picked)
    slow = StepTime(1, 0, 0, 0, 0, 10, ONE_A_SECOND, beside=Overheads(cache_rate=0.5))
    assert slow.seconds(1, 0, 0, 0, 7) == 1 + 10 * 7 / 0.5


def test_without_experts_and_overheads_nothing_changes():
    plain = step_time(model("Qwen3-8B"), H100)
    assert plain._ticks[7:] == (0, 0)
    assert (plain.expert_bytes, plain.chances, plain.decode_pair_flops) == (0, (), None)


def test_mla_meets_the_latent_in_decode_and_expanded_keys_in_prompts():
    cost = step_time(model("DeepSeek-V3"), replace(H100, count=16))
    assert (cost.pair_flops, cost.decode_pair_flops) == (61 * 2 * 128 * (128 + 64 + 128), 61 * 2 * 128 * (512 + 64 + 512))

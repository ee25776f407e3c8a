from dataclasses import replace
from itertools import pairwise

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.counts import flops, memory
from workloads.counts.request_tokens import Request
from workloads.facts import accelerators, models
from workloads.facts.formats import Formats
from workloads.serving import arrivals, fluid
from workloads.times.machine import Machine
from workloads_book.studies import backlog_paths
from workloads_book.studies.backlog_paths import Piece

LONG_INPUT, LONG_OUTPUT = Request(8192, 256), Request(1024, 2048)
FIRST = arrivals.Window(60, 4, ((LONG_INPUT, 9), (LONG_OUTPUT, 1)))
SECOND = arrivals.Window(60, 4, ((LONG_INPUT, 1), (LONG_OUTPUT, 9)))
CARD, QWEN = accelerators.accelerator("RTX PRO 6000 Blackwell Workstation"), models.model("Qwen3-8B")
ONE = Machine(CARD)

whole_pieces = st.lists(st.builds(Piece, st.integers(0, 6), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=6)


def tick_by_tick(pieces, start, ticks=840):
    """Backlog integrated in small steps: a queue that is served only while it holds something. Returns times and backlogs."""
    now, backlog, times, held = 0.0, float(start), [0.0], [float(start)]
    for piece in pieces:
        for _ in range(piece.seconds * ticks):
            backlog = max(0.0, backlog + (piece.arrival_rate - piece.service_rate) / ticks)
            now += 1 / ticks
            times.append(now)
            held.append(backlog)
    return times, held


@settings(deadline=None)
@given(whole_pieces, st.integers(0, 30))
def test_path_agrees_with_tick_by_tick_integration(pieces, start):
    path = backlog_paths.backlog_path(pieces, start)
    times, held = tick_by_tick(pieces, start)
    for time, backlog in list(zip(times, held))[::97]:
        assert backlog_paths.backlog_at(path, min(time, path[-1][0])) == pytest.approx(backlog, abs=0.02)
    assert backlog_paths.largest(path)[1] == pytest.approx(max(held), abs=0.02)
    assert backlog_paths.backlog_area(path) == pytest.approx(sum(held) / 840, abs=0.5)
    assert path[-1][0] == sum(p.seconds for p in pieces)


@settings(deadline=None)
@given(whole_pieces, st.integers(0, 30))
def test_work_is_conserved_served_work_counted_on_its_own(pieces, start):
    arrived, served, left = backlog_paths.balance(pieces, start)
    assert start + arrived == pytest.approx(served + left)
    assert left == pytest.approx(backlog_paths.backlog_path(pieces, start)[-1][1])
    assert 0 <= served <= sum(p.service_rate * p.seconds for p in pieces) + 1e-9


@settings(deadline=None)
@given(whole_pieces, st.integers(0, 30))
def test_corners_are_in_order_and_the_lines_between_them_have_the_rates_slopes(pieces, start):
    path = backlog_paths.backlog_path(pieces, start)
    slopes = {p.arrival_rate - p.service_rate for p in pieces} | {0}
    for (t0, q0), (t1, q1) in pairwise(path):
        assert t1 >= t0 and q1 >= 0
        if t1 > t0:
            assert min(abs((q1 - q0) / (t1 - t0) - slope) for slope in slopes) < 1e-6


@settings(deadline=None)
@given(st.integers(0, 50), st.integers(1, 9), st.integers(1, 9))
def test_delay_agrees_with_draining_what_was_there(start, rate, later):
    pieces = [Piece(4, 7, rate)]
    for time in (0, 1, 4):
        ahead = backlog_paths.backlog_at(backlog_paths.backlog_path(pieces, start), time)
        in_piece = min(ahead, rate * (4 - time))
        assert backlog_paths.delay_at(pieces, time, later, start) == pytest.approx(in_piece / rate + (ahead - in_piece) / later)


def test_mean_delay_obeys_littles_law():
    pieces = [Piece(10, 5, 3), Piece(90, 1, 3)]
    path, (arrived, _, left) = backlog_paths.backlog_path(pieces), backlog_paths.balance(pieces)
    ticks = [(k + 0.5) / 200 for k in range(100 * 200)]
    waited = sum((5 if t < 10 else 1) / 200 * backlog_paths.delay_at(pieces, t, 3) for t in ticks)
    assert left == 0 and waited / arrived == pytest.approx(backlog_paths.backlog_area(path) / arrived, rel=1e-3)


def test_idle_capacity_is_not_saved():
    average = backlog_paths.backlog_path([Piece(120, 3, 4)])
    timed = backlog_paths.backlog_path([Piece(60, 1, 4), Piece(60, 5, 4)])
    assert backlog_paths.largest(average)[1] == 0 and backlog_paths.largest(timed) == (120, 60)
    reversed_order = backlog_paths.backlog_path([Piece(60, 5, 4), Piece(60, 1, 4)])
    assert reversed_order == [(0, 0), (60, 60), (80, 0), (120, 0)]


def test_burst_by_hand_and_doubling():
    assert fluid.burst_backlog(7, 5, 30) == 60
    assert fluid.drain_seconds(60, 5) == 12
    sympy = pytest.importorskip("sympy")
    lam, mu, tau = sympy.symbols("lambda mu tau", positive=True)
    twice = fluid.burst_backlog(lam, mu, 2 * tau) / fluid.burst_backlog(lam, mu, tau)
    assert sympy.simplify(twice) == 2
    assert fluid.drain_seconds(lam, mu, tau) == lam / (mu - tau)


def test_recurrence_equals_the_path_at_the_boundaries_of_windows():
    pieces, backlog = [Piece(3, 7, 2), Piece(3, 0, 4), Piece(3, 5, 4), Piece(3, 0, 9)], 1
    corners = dict(backlog_paths.backlog_path(pieces, 1))
    for k, p in enumerate(pieces, 1):
        backlog = fluid.next_backlog(backlog, p.arrival_rate * p.seconds, p.service_rate * p.seconds)
        assert corners[3 * k] == backlog


def test_recurrence_over_a_whole_window_hides_what_happens_inside_it():
    inside = backlog_paths.backlog_path([Piece(30, 9, 5), Piece(30, 1, 5)])
    assert fluid.next_backlog(0, 30 * 9 + 30 * 1, 60 * 5) == inside[-1][1] == 0
    assert backlog_paths.largest(inside) == (30, 120)


def test_a_queue_that_does_not_shrink_never_drains():
    with pytest.raises(ValueError, match="service_rate"):
        fluid.drain_seconds(1, 5, arrival_rate=5)
    with pytest.raises(ValueError, match="service_rate"):
        backlog_paths.backlog_path([Piece(1, 1, 0)], then=0)
    assert backlog_paths.backlog_path([Piece(1, 0, 0)], then=0) == [(0, 0), (1, 0)]


@pytest.mark.parametrize(
    "call",
    [
        lambda: Piece(-1, 1, 1),
        lambda: Piece(1, -1, 1),
        lambda: Piece(1, 1, float("inf")),
        lambda: fluid.next_backlog(-1, 1, 1),
        lambda: fluid.burst_backlog(1, 1, -1),
        lambda: backlog_paths.backlog_at([(0, 0), (1, 1)], 2),
        lambda: backlog_paths.backlog_path([], start=-1),
        lambda: fluid.decode_rate(QWEN, ONE, 0, 10),
        lambda: fluid.decode_rate(QWEN, ONE, 1, -10),
        lambda: fluid.decode_rate(QWEN, ONE, 1, 10, replicas=0),
        lambda: fluid.decode_rate(QWEN, Machine(CARD, mbu=1.1), 1, 10),
        lambda: backlog_paths.decode_pieces([FIRST, SECOND], [1]),
    ],
)
def test_impossible_input_is_refused(call):
    with pytest.raises(ValueError):
        call()


@pytest.mark.parametrize("time", [-0.5, 30.5])
def test_an_instant_outside_the_path_is_answered_with_its_ends(time):
    with pytest.raises(ValueError, match=rf"time \(s\) must lie between 0 and 30, got {time}"):
        backlog_paths.backlog_at([(0, 0), (20, 10), (30, 0)], time)


def step_bytes_by_hand(batch, context):
    """Qwen3-8B, from its published shape: weights but the embedding table, then per sequence old KV, new KV and one embedding row."""
    per_layer = 4096 * (4096 + 1024 + 1024) + 4096 * 4096 + 3 * 4096 * 12288 + 2 * 4096 + 2 * 128
    weights = 2 * (36 * per_layer + 4096 + 151936 * 4096)
    entry = 2 * 36 * 8 * 128 * 2
    return weights + batch * (context * entry + entry + 8192)


def test_worked_example_3_1():
    seconds = step_bytes_by_hand(64, 2742) / 1792e9
    rate = 2 * 64 / seconds
    assert fluid.decode_rate(QWEN, ONE, 64, 2742, replicas=2) == pytest.approx(rate, rel=1e-12)
    path = backlog_paths.backlog_path(backlog_paths.decode_pieces([FIRST, SECOND], rate), then=rate)
    assert path[:2] == [(0, 0), (60, 0)]
    assert path[2] == (120, pytest.approx((7471.2 - rate) * 60))
    assert path[3] == (pytest.approx(120 + (7471.2 - rate) * 60 / rate), 0)
    assert [round(rate / 2, 2), round(rate, 2), round(7471.2 - rate, 2), round(path[2][1]), round(path[3][0] - 120, 2)] == [
        2795.66,
        5591.33,
        1879.87,
        112792,
        20.17,
    ]  # as printed


def test_printed_rate_needs_the_written_entry_the_embedding_row_and_the_rounded_context():
    printed, moved = 2795.66, step_bytes_by_hand(64, 2742)
    near = {
        "all three": 64 / (moved / 1792e9),
        "without entry and row": 64 / ((moved - 64 * (147456 + 8192)) / 1792e9),
        "unrounded context": 64 / (step_bytes_by_hand(64, (255 * 8319 + 2047 * 2047) / 2302) / 1792e9),
    }
    assert [name for name, rate in near.items() if abs(rate - printed) <= 0.005] == ["all three"]


def test_each_windows_own_context_halves_the_backlog_and_leaves_one():
    own = [fluid.decode_rate(QWEN, ONE, 64, w.mean_step_context, replicas=2) for w in (FIRST, SECOND)]
    assert own[0] == pytest.approx(128 * 1792e9 / step_bytes_by_hand(64, (9 * 255 * 8319 + 2047 * 2047) / (9 * 255 + 2047)))
    assert own[0] > FIRST.step_rate
    backlog = backlog_paths.largest(backlog_paths.backlog_path(backlog_paths.decode_pieces([FIRST, SECOND], own)))[1]
    second_rate = 128 * 1792e9 / step_bytes_by_hand(64, (255 * 8319 + 9 * 2047 * 2047) / (255 + 9 * 2047))
    assert backlog == pytest.approx((7471.2 - second_rate) * 60)
    assert round(backlog) == 58097


def test_rate_is_bounded_by_memory_at_small_batches_and_by_arithmetic_at_huge_ones():
    assert fluid.decode_rate(QWEN, ONE, 1, 0) == pytest.approx(CARD.bandwidth / memory.decode_traffic(QWEN, 0).total)
    crowd = 100_000  # with no context to read, arithmetic is what is left
    assert fluid.decode_rate(QWEN, ONE, crowd, 0) == pytest.approx(CARD.peak("bf16") / flops.decode_step(QWEN, 0).total, rel=1e-9)


@settings(deadline=None)
@given(st.integers(1, 256), st.integers(0, 8000))
def test_more_sequences_never_slow_the_card_and_more_context_always_does(batch, past):
    roomy = Machine(replace(CARD, memory_bytes=10**12))
    rate = fluid.decode_rate(QWEN, roomy, batch, past)
    assert fluid.decode_rate(QWEN, roomy, batch + 1, past) >= rate * (1 - 1e-12)
    assert fluid.decode_rate(QWEN, roomy, batch, past + 100) < rate
    assert fluid.decode_rate(QWEN, roomy, batch, past, replicas=3) == pytest.approx(3 * rate)


def test_a_rate_is_refused_where_one_card_does_not_hold_weights_and_cache():
    """Qwen3-8B: 16,381,470,720 B and 147,456 B a token leave 539,947 tokens in 96 GB; 405B take 811,706,777,600 B, nine cards' memory."""
    assert (96 * 10**9 - 16_381_470_720) // 147_456 == 539_947 and 8 * 96 < 811.7 < 9 * 96
    assert fluid.decode_rate(QWEN, ONE, 1, 539_947) > 0
    with pytest.raises(ValueError, match=r"^batch x past .* 539,947 tokens"):
        fluid.decode_rate(QWEN, ONE, 1, 539_948)
    with pytest.raises(ValueError, match=r"^batch x past"):
        fluid.decode_rate(QWEN, ONE, numpy.array([1, 2, 600]), 1000)
    for cards in (1, 9):  # nine cards are nine copies, none of which fits
        with pytest.raises(ValueError, match=r"^model must fit .* got Llama-3.1-405B with 811,706,777,600 B .* at least 9$"):
            fluid.decode_rate(models.model("Llama-3.1-405B"), ONE, 1, 10, cards)


def test_a_machine_of_several_accelerators_shares_one_copy_and_replicas_repeat_it():
    """Llama-3.1-70B: 8 key and value heads of 128 in 80 layers, so 327,680 B a token; 2 B a weight but for the embedding table."""
    llama, four = models.model("Llama-3.1-70B"), Machine(accelerators.accelerator("H100 SXM"), 4, memory="label")
    read = memory.weight_bytes(llama) - 2 * 128256 * 8192 + 64 * (4097 * 327_680 + 2 * 8192)
    assert fluid.decode_rate(llama, four, 64, 4096) == pytest.approx(64 * 4 * 3.35e12 / read)
    assert fluid.decode_rate(llama, four, 64, 4096, replicas=2) == pytest.approx(2 * 64 * 4 * 3.35e12 / read)
    sixteen = Machine(four.accelerator, 16)  # two cards for a head: the cache is stored, and read, twice
    twice = read + 64 * 4097 * 327_680
    assert fluid.decode_rate(llama, sixteen, 64, 4096) == pytest.approx(64 * 16 * 3.35e12 / twice)
    with pytest.raises(ValueError, match=r"^model must fit the memory of one H100 SXM, 80,000,000,000 B.* at least 2$"):
        fluid.decode_rate(llama, replace(four, count=1), 64, 4096)
    with pytest.raises(ValueError, match=r"^batch x past .* of 2 H100 SXM"):
        fluid.decode_rate(llama, replace(four, count=2), 64, 4096)
    assert fluid.decode_rate(llama, Machine(four.accelerator, 2), 64, 4096, formats=Formats("fp8", "fp8")) > 0


def test_a_backlog_that_empties_with_its_piece_has_one_corner_there():
    assert backlog_paths.backlog_path([backlog_paths.Piece(60, 1, 3)], start=120) == [(0, 120), (60, 0)]
    assert backlog_paths.backlog_path([backlog_paths.Piece(60, 1, 3)], start=119) == [(0, 119), (59.5, 0), (60, 0)]
    assert backlog_paths.backlog_at([(0, 0), (60, 120), (60, 30)], 60) == 120  # a jump is seen from before it
    assert backlog_paths.largest([(0, 1), (1, 4), (2, 4), (3, 0)]) == (1, 4)


def test_equal_rates_serve_all_and_keep_the_backlog():
    assert backlog_paths.balance([backlog_paths.Piece(60, 3, 3)]) == (180, 180, 0)
    assert backlog_paths.balance([backlog_paths.Piece(60, 3, 3)], start=10) == (180, 180, 10)
    assert backlog_paths.delay_at([backlog_paths.Piece(60, 3, 3)], 30, 3, start=90) == 30  # worked off at the very end of the piece
    assert backlog_paths.delay_at([backlog_paths.Piece(60, 3, 3)], 30, 1, start=93) == 33  # 3 more at 1 a second behind it

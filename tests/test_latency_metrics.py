import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.serving import latency_metrics
from workloads_book.studies import service_levels
from workloads_book.studies.service_levels import Chunk, Events, Objectives

gaps = st.lists(st.fractions(0, 100, max_denominator=64), min_size=6, max_size=6)


def events(steps, output=5):
    times, now = [], Fraction(0)
    for step in steps:
        now += step
        times.append(now)
    return Events(*times, output=output)


@settings(deadline=None)
@given(gaps)
def test_stages_of_the_first_token_add_up_to_its_time(steps):
    e = events(steps)
    assert sum(e.ttft_stages.values()) == latency_metrics.ttft(e.arrival, e.first)
    assert all(seconds >= 0 for seconds in e.ttft_stages.values())


@settings(deadline=None)
@given(gaps, st.integers(2, 50))
def test_request_time_is_first_token_plus_the_intervals(steps, output):
    e = events(steps, output)
    pace = latency_metrics.mean_token_interval(e.first, e.last, output)
    assert latency_metrics.request_seconds(e.arrival, e.last) == latency_metrics.ttft(e.arrival, e.first) + (output - 1) * pace


@settings(deadline=None)
@given(gaps, st.fractions(0, 50))
def test_a_longer_queue_delays_the_first_token_and_leaves_the_pace_alone(steps, wait):
    short, long = events(steps), events([*steps[:1], steps[1] + wait, *steps[2:]])
    assert latency_metrics.ttft(long.arrival, long.first) == latency_metrics.ttft(short.arrival, short.first) + wait
    assert latency_metrics.mean_token_interval(long.first, long.last, 5) == latency_metrics.mean_token_interval(short.first, short.last, 5)


def test_one_token_has_no_interval():
    with pytest.raises(ValueError, match="at least 2"):
        latency_metrics.mean_token_interval(1.0, 1.0, 1)


def test_events_out_of_order_are_refused():
    with pytest.raises(ValueError, match="prepared"):
        Events(0, 2, 1, 3, 4, 5, 6)
    with pytest.raises(ValueError, match="arrival"):
        latency_metrics.ttft(2.0, 1.0)
    with pytest.raises(ValueError, match="first token"):
        latency_metrics.ttft(0.0, float("nan"))
    with pytest.raises(ValueError, match=r"^arrival \(s\) must be finite"):
        latency_metrics.ttft(float("nan"), 1.0)


def test_chunks_hide_the_pace_of_their_tokens():
    stream = [Chunk(1.0, 1), Chunk(3.0, 8), Chunk(4.0, 8)]
    assert service_levels.chunk_intervals(stream) == [2.0, 1.0]
    assert latency_metrics.mean_token_interval(1.0, 4.0, 17) == 3 / 16  # one number for two pauses


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 9)), min_size=1, max_size=12), st.data())
def test_time_of_token_agrees_with_unrolling_the_chunks(parts, data):
    now, chunks, unrolled = 0, [], []
    for gap, tokens in parts:
        now += gap
        chunks.append(Chunk(now, tokens))
        unrolled += [now] * tokens
    index = data.draw(st.integers(1, len(unrolled)))
    assert service_levels.time_of_token(chunks, index) == unrolled[index - 1]
    with pytest.raises(ValueError, match="at most"):
        service_levels.time_of_token(chunks, len(unrolled) + 1)


def test_first_visible_token_follows_the_hidden_ones():
    stream = [Chunk(0.5, 4), Chunk(1.0, 4), Chunk(1.5, 4)]
    assert service_levels.time_of_token(stream, 1) == 0.5
    assert service_levels.time_of_token(stream, 6 + 1) == 1.0
    assert service_levels.time_of_token(stream, 8 + 1) == 1.5


def test_ranks_of_the_chapter():
    assert latency_metrics.rank(4, 0.95) == 4
    assert latency_metrics.rank(480, 0.95) == 456


def test_rank_is_free_of_binary_rounding():
    assert 0.07 * 100 > 7 and latency_metrics.rank(100, 0.07) == 7
    for count in range(1, 2001):
        for hundredths in (1, 5, 7, 29, 50, 57, 95, 99, 100):
            exact = -(-hundredths * count // 100)
            assert latency_metrics.rank(count, hundredths / 100) == exact


@settings(deadline=None)
@given(st.lists(st.integers(-1000, 1000), min_size=1, max_size=60), st.integers(1, 100))
def test_nearest_rank_is_the_smallest_value_that_covers_the_share(values, percent):
    found = latency_metrics.nearest_rank(values, percent / 100)
    covers = [v for v in values if 100 * sum(w <= v for w in values) >= percent * len(values)]
    assert found == min(covers) and found in values


@settings(deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40))
def test_nearest_rank_agrees_with_numpys_inverted_cdf(values):
    numpy = pytest.importorskip("numpy")
    for q in (0.25, 0.5, 0.75, 1.0):  # shares that binary holds exactly
        assert latency_metrics.nearest_rank(values, q) == numpy.quantile(values, q, method="inverted_cdf")


def test_percentile_of_sums_is_not_the_sum_of_percentiles():
    waits, runs = [9.0, 1.0, 1.0, 1.0], [1.0, 9.0, 1.0, 1.0]
    together = [w + r for w, r in zip(waits, runs)]
    assert (
        latency_metrics.nearest_rank(together, 0.95)
        == 10
        < latency_metrics.nearest_rank(waits, 0.95) + latency_metrics.nearest_rank(runs, 0.95)
    )


@pytest.mark.parametrize("q", [0, -0.1, 1.01])
def test_shares_outside_the_unit_interval_are_refused(q):
    with pytest.raises(ValueError, match="q must"):
        latency_metrics.rank(10, q)


def test_empty_and_unreal_samples_are_refused():
    with pytest.raises(ValueError, match="at least one"):
        latency_metrics.nearest_rank([], 0.5)
    with pytest.raises(ValueError, match="value"):
        latency_metrics.nearest_rank([1.0, float("nan")], 0.5)
    with pytest.raises(ValueError, match="at least one chunk"):
        service_levels.chunk_intervals([])
    with pytest.raises(ValueError, match="tokens"):
        Chunk(0.0, 0)


def test_goodput_counts_only_what_is_in_time_and_right():
    fast, late = Events(0, 0, 0, 1, 1, 3, 5), Events(0, 4, 4, 5, 5, 7, 5)
    assert service_levels.goodput([fast, late], Objectives(), 10) == 0.2
    assert service_levels.goodput([fast, late], Objectives(ttft=2), 10) == 0.1
    assert service_levels.goodput([fast, late], Objectives(ttft=2), 10, accepted=[False, True]) == 0
    assert service_levels.goodput([fast, late], Objectives(token_interval=0.5), 10) == 0.2
    assert service_levels.goodput([fast, late], Objectives(request=3), 10) == 0.1
    with pytest.raises(ValueError, match="verdict"):
        service_levels.goodput([fast, late], Objectives(), 10, accepted=[True])
    with pytest.raises(ValueError, match="seconds"):
        service_levels.goodput([fast], Objectives(), 0)
    with pytest.raises(ValueError, match=r"token_interval \(s/token\)"):
        Objectives(token_interval=-0.1)


def test_a_single_token_is_not_failed_for_a_pace_it_does_not_have():
    assert Objectives(ttft=1, token_interval=0.0001).met_by(Events(0, 0, 0, 1, 1, 1, 1))


@settings(deadline=None)
@given(st.lists(gaps, min_size=1, max_size=8), st.integers(0, 100), st.integers(0, 100))
def test_goodput_never_rises_with_a_tighter_deadline(runs, loose, less):
    requests = [events(steps) for steps in runs]
    tight = max(0, loose - less)
    assert (
        service_levels.goodput(requests, Objectives(ttft=tight), 1)
        <= service_levels.goodput(requests, Objectives(ttft=loose), 1)
        <= len(requests)
    )


def test_one_gibibyte_for_ten_seconds():
    assert latency_metrics.state_area([(2**30, 10)]) == 10 * 2**30
    assert latency_metrics.state_area([]) == 0
    with pytest.raises(ValueError, match="bytes"):
        latency_metrics.state_area([(-1, 10)])


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 30)), max_size=8))
def test_state_area_agrees_with_counting_second_by_second(segments):
    held = [size for size, seconds in segments for _ in range(seconds)]
    assert latency_metrics.state_area(segments) == sum(held)


@settings(deadline=None)
@given(st.integers(1, 20), st.integers(0, 40))
def test_littles_law_agrees_with_counting_the_tasks_present(per_second, wait):
    spells = [(k / per_second, k / per_second + wait) for k in range(per_second * (wait + 5))]
    present = sum(start <= wait + 1 < end for start, end in spells)  # an instant at which the system is full
    assert present == latency_metrics.little_occupancy(per_second, wait)


def test_littles_law_refuses_negative_inputs():
    for wrong in ((-1, 1, 1), (1, -1, 1), (1, 1, math.inf)):
        with pytest.raises(ValueError):
            latency_metrics.little_occupancy(*wrong)


def test_formulas_take_symbols():
    sympy = pytest.importorskip("sympy")
    rate, wait, held = sympy.symbols("lambda tau M_0", positive=True)
    assert latency_metrics.little_occupancy(rate, wait, held) == rate * wait * held
    t_a, t_1 = sympy.symbols("t_a t_1")
    assert latency_metrics.ttft(t_a, t_1) == t_1 - t_a


@pytest.mark.parametrize("verdicts", [[], [True], [True, True, True]])
def test_two_requests_want_two_verdicts(verdicts):
    with pytest.raises(ValueError, match=rf"one verdict per request \(2\), got {len(verdicts)}"):
        service_levels.goodput([Events(0, 0, 0, 1, 1, 3, 5)] * 2, Objectives(), 10, accepted=verdicts)


def test_the_second_token_is_the_first_with_an_interval_and_a_deadline_may_be_met_to_the_moment():
    at = lambda last, output: Events(0, 0, 0, 1, 1, last, output)
    assert Objectives(ttft=1, token_interval=2, request=3).met_by(at(3, 2))
    for late in (Objectives(ttft=0.999), Objectives(token_interval=1.999), Objectives(request=2.999)):
        assert not late.met_by(at(3, 2))

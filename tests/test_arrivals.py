import math
from collections import Counter
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from workloads import arrivals, requests
from workloads.arrivals import Client, Window
from workloads.requests import Request

LONG_INPUT, LONG_OUTPUT = Request(8192, 256), Request(1024, 2048)
UNIFORM = Window(120, 4, ((LONG_INPUT, 1), (LONG_OUTPUT, 1)))
FIRST, SECOND = Window(60, 4, ((LONG_INPUT, 9), (LONG_OUTPUT, 1))), Window(60, 4, ((LONG_INPUT, 1), (LONG_OUTPUT, 9)))

some_request = st.builds(Request, st.integers(1, 99), st.integers(2, 99))
mixes = st.lists(st.tuples(some_request, st.integers(1, 9)), min_size=1, max_size=4).map(tuple)


def test_demand_of_the_three_windows_by_hand():
    assert [arrivals.input_rate(w) for w in (UNIFORM, FIRST, SECOND)] == [18432, 29900.8, 6963.2]
    assert [arrivals.step_rate(w) for w in (UNIFORM, FIRST, SECOND)] == [4604, 1736.8, 7471.2]


def test_both_loads_have_the_same_mean_request():
    for of in (lambda r: r.new, lambda r: r.output):
        assert arrivals.overall_mean([UNIFORM], of) == arrivals.overall_mean([FIRST, SECOND], of)
    assert arrivals.overall_mean([UNIFORM], lambda r: r.new) == 4608
    assert arrivals.overall_mean([UNIFORM], lambda r: r.output) == 1152


def test_longer_windows_weigh_more():
    short, long = Window(1, 4, ((LONG_INPUT, 1),)), Window(3, 4, ((LONG_OUTPUT, 1),))
    assert arrivals.overall_mean([short, long], lambda r: r.new) == (8192 + 3 * 1024) / 4


@settings(deadline=None)
@given(mixes, st.integers(1, 8), st.integers(1, 5))
def test_rates_agree_with_counting_an_interleaved_minute(mix, turns_per_second, seconds):
    turn = sum(weight for _, weight in mix)
    window = Window(seconds, turn * turns_per_second, mix)
    sent = arrivals.interleaved([window])
    assert len(sent) == turn * turns_per_second * seconds
    assert sum(a.request.new for a in sent) == pytest.approx(arrivals.input_rate(window) * seconds)
    steps = [c.context for a in sent for c in requests.call_chain(a.request)[1:]]
    assert len(steps) == pytest.approx(arrivals.step_rate(window) * seconds)
    assert sum(steps) / len(steps) == pytest.approx(arrivals.mean_step_context(window))


def test_mean_context_weighs_requests_by_their_steps():
    assert arrivals.mean_step_context(UNIFORM) == pytest.approx((255 * 8319 + 2047 * 2047) / 2302, rel=1e-12)
    assert arrivals.mean_step_context(SECOND) < arrivals.mean_step_context(UNIFORM) < arrivals.mean_step_context(FIRST)


def test_requests_without_decode_steps_have_no_mean_context():
    assert arrivals.mean_step_context(Window(1, 1, ((Request(9, 1), 5), (Request(8, 2), 1)))) == 8
    with pytest.raises(ValueError, match="decode steps"):
        arrivals.mean_step_context(Window(1, 1, ((Request(9, 1), 1),)))


def test_interleaving_gives_the_order_of_the_recorded_replay():
    wrote = {"uniform": lambda i: i % 2 == 1, "phased": lambda i: i % 10 == 9 if i < 240 else i % 10 != 0}     # the replay's own generator
    for name, windows in (("uniform", [UNIFORM]), ("phased", [FIRST, SECOND])):
        expected = [(i / 4, LONG_OUTPUT if wrote[name](i) else LONG_INPUT) for i in range(480)]
        assert [(a.time, a.request) for a in arrivals.interleaved(windows)] == expected


def test_uniform_gaps_are_equal_and_poisson_gaps_vary_as_their_mean():
    assert arrivals.gap_cv(arrivals.uniform_times(4, 100)) == 0
    times = arrivals.poisson_times(4, 20_000, seed=2)
    gaps = sorted(b - a for a, b in pairwise(times))
    assert len(times) / 20_000 == pytest.approx(4, rel=0.02)
    assert arrivals.gap_cv(times) == pytest.approx(1, rel=0.02)
    for share in (0.25, 0.5, 0.9):                                     # quantiles of the exponential distribution
        assert gaps[int(share * len(gaps))] == pytest.approx(-math.log(1 - share) / 4, rel=0.03)


def test_poisson_counts_have_their_mean_as_variance():
    held = arrivals.counts(arrivals.poisson_times(4, 20_000, seed=5), 20_000, 20_000)
    mean = sum(held) / len(held)
    variance = sum((n - mean) ** 2 for n in held) / len(held)
    assert variance == pytest.approx(mean, rel=0.05)


@pytest.mark.parametrize("cv", [0.5, 1, 2, 3])
def test_gamma_gaps_keep_the_rate_and_show_the_burstiness_asked_for(cv):
    times = arrivals.gamma_times(4, cv, 20_000, seed=9)
    assert len(times) / 20_000 == pytest.approx(4, rel=0.05)
    assert arrivals.gap_cv(times) == pytest.approx(cv, rel=0.05)


def test_on_off_source_is_silent_while_off_and_keeps_its_mean_rate():
    times = arrivals.on_off_times(8, on=30, off=10, seconds=400, seed=1)
    assert all(t % 40 < 30 for t in times)
    assert len(times) / 400 == pytest.approx(8 * 30 / 40, rel=0.1)
    assert arrivals.on_off_times(2, on=1, off=0, seconds=3) == arrivals.uniform_times(2, 3)
    spells = [tuple(round(t - 40 * n, 6) for t in times if 40 * n <= t < 40 * (n + 1)) for n in range(10)]
    assert len(set(spells)) == 10                                     # each spell drawn anew


def test_seeds_repeat_and_differ():
    for draw in (lambda s: arrivals.gamma_times(4, 2, 50, s), lambda s: arrivals.on_off_times(4, 5, 5, 50, s),
                 lambda s: arrivals.sampled(UNIFORM, range(50), s)):
        assert draw(1) == draw(1) != draw(2)


def test_types_are_drawn_whole():
    drawn = arrivals.sampled(SECOND, range(20_000), seed=4)
    shares = Counter(a.request for a in drawn)
    assert set(shares) == {LONG_INPUT, LONG_OUTPUT}                   # never 8192 in and 2048 out
    assert shares[LONG_OUTPUT] / 20_000 == pytest.approx(0.9, abs=0.01)


def test_types_do_not_follow_the_gaps_when_both_have_the_same_seed():
    times = arrivals.poisson_times(4, 5000, seed=8)
    drawn = arrivals.sampled(UNIFORM, times, seed=8)
    gaps = {LONG_INPUT: [], LONG_OUTPUT: []}
    for before, after in pairwise(drawn):
        gaps[after.request].append(after.time - before.time)
    means = [sum(g) / len(g) for g in gaps.values()]
    assert means[0] == pytest.approx(means[1], rel=0.06)


DOCS, ESSAYS = Client("docs", ((LONG_INPUT, 1),), (3.6, 0.4)), Client("essays", ((LONG_OUTPUT, 1),), (0.4, 3.6))


def test_stable_clients_of_moving_rates_make_the_chapters_windows():
    for made, stated in zip(arrivals.windows_of([DOCS, ESSAYS], 60), (FIRST, SECOND)):
        assert (made.rate, made.mix) == (stated.rate, stated.mix)
        assert arrivals.step_rate(made) == arrivals.step_rate(stated)


def test_windows_of_clients_weigh_each_clients_own_mix():
    both = Client("both", ((LONG_INPUT, 1), (LONG_OUTPUT, 2)), (3,))
    (made,) = arrivals.windows_of([both, Client("docs", ((LONG_INPUT, 1),), (1,))], 10)
    assert arrivals.mix_mean(made, lambda r: r == LONG_INPUT) == Fraction(1, 2)
    with pytest.raises(ValueError):
        arrivals.windows_of([both, DOCS], 10)                          # one window against two


def test_client_streams_are_independent_and_superpose():
    together = arrivals.client_arrivals([DOCS, ESSAYS], 2000, seed=3)
    alone = arrivals.client_arrivals([DOCS], 2000, seed=3)
    assert [a for a in together if a.client == "docs"] == alone
    assert [a.time for a in together] == sorted(a.time for a in together)
    assert sum(a.time < 2000 and a.client == "docs" for a in together) / 2000 == pytest.approx(3.6, rel=0.05)
    assert sum(a.time >= 2000 and a.client == "docs" for a in together) / 2000 == pytest.approx(0.4, rel=0.15)
    assert arrivals.client_arrivals([Client("gone", ((LONG_INPUT, 1),), (0,))], 60, seed=1) == []


def test_counts_lose_nothing():
    times = arrivals.poisson_times(3, 100, seed=1)
    assert sum(arrivals.counts(times, 100, 17)) == len(times)
    assert arrivals.counts([-1, 0, 99.999, 100], 100, 2) == [1, 1]


@pytest.mark.parametrize("call", [
    lambda: Window(60, -1, ((LONG_INPUT, 1),)), lambda: Window(60, 4, ()), lambda: Window(60, 4, ((LONG_INPUT, 0.5),)),
    lambda: arrivals.poisson_times(0, 10, 1), lambda: arrivals.gamma_times(4, 0, 10, 1), lambda: arrivals.on_off_times(4, 0, 1, 10),
    lambda: arrivals.replayed_times([0, 2, 1]), lambda: arrivals.replayed_times([float("nan")]), lambda: arrivals.gap_cv([1, 2]),
    lambda: Client("silent", ((LONG_INPUT, 0),), (1,)), lambda: Client("back", ((LONG_INPUT, 1),), (-1,)),
    lambda: Client("smooth", ((LONG_INPUT, 1),), (1,), cv=0), lambda: arrivals.gap_cv([1, 1, 1, 1]), lambda: arrivals.counts([1], 0, 4),
    lambda: arrivals.overall_mean([], lambda r: r.new)])
def test_impossible_loads_are_refused(call):
    with pytest.raises(ValueError):
        call()


def test_processes_begin_at_zero_unless_told_otherwise_and_shift_whole():
    for process in (lambda **at: arrivals.uniform_times(4, 8, **at), lambda **at: arrivals.poisson_times(4, 8, seed=3, **at),
                    lambda **at: arrivals.gamma_times(4, 2, 8, seed=3, **at), lambda **at: arrivals.on_off_times(4, 2, 1, 8, **at),
                    lambda **at: arrivals.on_off_times(4, 2, 1, 8, seed=3, **at)):
        assert process() == process(start=0) and all(0 <= t < 8 for t in process())
        assert process(start=100) == pytest.approx([t + 100 for t in process()], rel=1e-12)

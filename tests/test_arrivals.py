import math
from collections import Counter
from fractions import Fraction
from itertools import pairwise

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import gammainc

from workloads.counts.request_tokens import Request
from workloads.serving import arrivals
from workloads.serving.arrivals import Window
from workloads_book.studies import arrival_patterns
from workloads_book.studies.arrival_patterns import Client
from workloads_book.studies.chains import call_chain

LONG_INPUT, LONG_OUTPUT = Request(8192, 256), Request(1024, 2048)
UNIFORM = Window(120, 4, ((LONG_INPUT, 1), (LONG_OUTPUT, 1)))
FIRST, SECOND = Window(60, 4, ((LONG_INPUT, 9), (LONG_OUTPUT, 1))), Window(60, 4, ((LONG_INPUT, 1), (LONG_OUTPUT, 9)))

some_request = st.builds(Request, st.integers(1, 99), st.integers(2, 99))
mixes = st.lists(st.tuples(some_request, st.integers(1, 9)), min_size=1, max_size=4).map(tuple)


def test_demand_of_the_three_windows_by_hand():
    assert [w.input_rate for w in (UNIFORM, FIRST, SECOND)] == [18432, 29900.8, 6963.2]
    assert [w.step_rate for w in (UNIFORM, FIRST, SECOND)] == [4604, 1736.8, 7471.2]


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
    assert sum(a.request.new for a in sent) == pytest.approx(window.input_rate * seconds)
    steps = [c.context for a in sent for c in call_chain(a.request)[1:]]
    assert len(steps) == pytest.approx(window.step_rate * seconds)
    assert sum(steps) / len(steps) == pytest.approx(window.mean_step_context)


def test_mean_context_weighs_requests_by_their_steps():
    assert UNIFORM.mean_step_context == pytest.approx((255 * 8319 + 2047 * 2047) / 2302, rel=1e-12)
    assert SECOND.mean_step_context < UNIFORM.mean_step_context < FIRST.mean_step_context


def test_requests_without_decode_steps_have_no_mean_context():
    assert Window(1, 1, ((Request(9, 1), 5), (Request(8, 2), 1))).mean_step_context == 8
    with pytest.raises(ValueError, match="decode steps"):
        _ = Window(1, 1, ((Request(9, 1), 1),)).mean_step_context


def test_interleaving_gives_the_order_of_the_recorded_replay():
    wrote = {"uniform": lambda i: i % 2 == 1, "phased": lambda i: i % 10 == 9 if i < 240 else i % 10 != 0}  # the replay's own generator
    for name, windows in (("uniform", [UNIFORM]), ("phased", [FIRST, SECOND])):
        expected = [(i / 4, LONG_OUTPUT if wrote[name](i) else LONG_INPUT) for i in range(480)]
        assert [(a.time, a.request) for a in arrivals.interleaved(windows)] == expected


def test_uniform_gaps_are_equal_and_poisson_gaps_vary_as_their_mean():
    assert arrival_patterns.gap_cv(arrivals.uniform_times(4, 100)) == 0
    times = arrivals.random_times(4, 20_000, seed=2)
    gaps = sorted(b - a for a, b in pairwise(times))
    assert len(times) / 20_000 == pytest.approx(4, rel=0.02)
    assert arrival_patterns.gap_cv(times) == pytest.approx(1, rel=0.02)
    for share in (0.25, 0.5, 0.9):  # quantiles of the exponential distribution
        assert gaps[int(share * len(gaps))] == pytest.approx(-math.log(1 - share) / 4, rel=0.03)


def test_poisson_counts_have_their_mean_as_variance():
    held = arrivals.counts(arrivals.random_times(4, 20_000, seed=5), 20_000, 20_000)
    mean = sum(held) / len(held)
    variance = sum((n - mean) ** 2 for n in held) / len(held)
    assert variance == pytest.approx(mean, rel=0.05)


@pytest.mark.parametrize("cv", [0.5, 1, 2, 3])
def test_gamma_gaps_keep_the_rate_and_show_the_burstiness_asked_for(cv):
    times = arrivals.random_times(4, 20_000, seed=9, cv=cv)
    assert len(times) / 20_000 == pytest.approx(4, rel=0.05)
    assert arrival_patterns.gap_cv(times) == pytest.approx(cv, rel=0.05)


# one process through all windows, in equilibrium: the theory of renewal processes with Gamma gaps of mean 1, computed apart ----------
CVS = [0.3, 0.5, 1, 2, 4, 10]


def gap_share(t, cv):
    """Share of the gaps that end within t."""
    return gammainc(1 / cv**2, t / cv**2)


def remainder_share(t, cv):
    """Share of the moments that an arrival follows within t: the integral of 1 - gap_share from 0 to t."""
    return t * (1 - gap_share(t, cv)) + gammainc(1 / cv**2 + 1, t / cv**2)


def count_variance(t, cv):
    """Variance of the count in a stretch of t gaps of mean 1: t - t^2 + twice the integral of the renewal function."""
    grid = numpy.linspace(0, t, 801)
    renewals, n = numpy.zeros_like(grid), 1
    while (ended := gammainc(n / cv**2, grid / cv**2))[-1] > 1e-9:
        renewals, n = renewals + ended, n + 1
    return t - t**2 + 2 * numpy.trapezoid(renewals, grid)


def furthest(found, share):
    """Largest distance of the drawn values' distribution from a law, in units of 1/sqrt(their number): 1.95 in one case of a thousand."""
    law, n = share(numpy.sort(found)), len(found)
    steps = numpy.arange(n + 1) / n
    return max(numpy.max(steps[1:] - law), numpy.max(law - steps[:-1])) * n**0.5


@pytest.mark.parametrize("cv", CVS)
def test_every_window_holds_rate_times_seconds_on_average(cv):
    spans, draws = [(30, 0.1), (4, 0.25), (50, 0), (5, 1.2), (20, 0.1)], 3000
    held = [[len(times) for times in arrivals.renewal_times(spans, cv, seed)] for seed in range(draws)]
    for k, (seconds, rate) in enumerate(spans):
        error = (count_variance(rate * seconds, cv) / draws) ** 0.5 if rate else 0
        assert sum(counts[k] for counts in held) / draws == pytest.approx(rate * seconds, abs=4 * error), k
    whole = sum(rate * seconds for seconds, rate in spans)
    assert sum(map(sum, held)) / draws == pytest.approx(whole, abs=4 * (count_variance(whole, cv) / draws) ** 0.5)


@pytest.mark.parametrize("cv", [0.3, 1, 4])
def test_counts_scatter_as_renewal_theory_says(cv):
    """Variance over mean: below one gap it is nearly that of one arrival or none, over long stretches it tends to cv^2."""
    for t in (1, 60 * max(1, cv**2)):
        stretches = numpy.array(arrivals.counts(arrivals.random_times(2, 500 * t, seed=f"{cv} {t}", cv=cv), 500 * t, 1000))
        assert stretches.var() == pytest.approx(count_variance(t, cv), rel=0.2)
    assert stretches.var() / stretches.mean() == pytest.approx(cv**2, rel=0.2, abs=0.02)


@pytest.mark.parametrize("cv", CVS)
def test_gaps_across_the_ends_of_windows_follow_the_same_law(cv):
    """Windows shorter than most gaps, at rates that change: mapped back over the cumulated rate, every gap is an undisturbed one."""
    spans = [(0.5, 1), (2, 0), (0.25, 4), (1, 0.2)] * 4000
    drawn = arrivals.renewal_times(spans, cv, seed=11)
    corners = numpy.cumsum([[0, 0]] + [[seconds, seconds * rate] for seconds, rate in spans], axis=0)
    for times, before, after in zip(drawn, corners, corners[1:]):
        assert all(before[0] <= t <= after[0] for t in times)
    flat = [t for times in drawn for t in times]
    gaps = numpy.diff(numpy.interp(flat, *corners.T))
    assert flat == sorted(flat) and len(gaps) > 3000
    held = gaps[gaps > 1e-9]  # shorter ones are lost in the digits of the clock
    assert furthest(held, lambda t: (gap_share(t, cv) - gap_share(1e-9, cv)) / (1 - gap_share(1e-9, cv))) < 1.95
    assert len(held) / len(gaps) == pytest.approx(1 - gap_share(1e-9, cv), abs=0.03)


def test_changing_the_rates_moves_the_times_and_not_the_requests():
    """The n-th request comes where the cumulated rate passes the n-th of a source of rate 1."""
    spans = [(60, 2), (30, 0), (10, 5), (0, 7), (40, 0.25)]
    ends, expected = numpy.cumsum([seconds for seconds, _ in spans]), numpy.cumsum([seconds * rate for seconds, rate in spans])
    ((steady),) = arrivals.renewal_times([(expected[-1], 1)], 2, seed=6)
    found = [t for times in arrivals.renewal_times(spans, 2, seed=6) for t in times]
    assert numpy.interp(found, [0, *ends], [0, *expected]) == pytest.approx(steady) and len(found) > 100


def test_a_clock_too_coarse_for_the_gaps_loses_no_request():
    far = arrivals.random_times(4, 1000, seed=1, start=1e18, cv=2)
    assert len(far) == len(arrivals.random_times(4, 1000, seed=1, cv=2)) > 3000 and far == sorted(far) and far[0] >= 1e18


@pytest.mark.parametrize("cv", CVS)
def test_the_first_arrival_is_what_remains_of_a_gap(cv):
    long = 80 * max(1, cv**2)  # no remainder is longer, but for one in e^40
    first = [arrivals.random_times(0.5, long, seed, cv=cv)[0] / 2 for seed in range(2000, 4000)]
    assert furthest(first, lambda t: remainder_share(t, cv)) < 1.95


def test_counts_agree_with_a_source_that_began_long_ago():
    """The same stretch cut out of NumPy's gaps, long after their first arrival."""
    cv, seconds, draws, past = 3, 2.5, 4000, 500
    rng, held = numpy.random.default_rng(5), []
    for _ in range(draws):
        times = numpy.cumsum(rng.standard_gamma(1 / cv**2, 900) * cv**2) - past
        held.append(numpy.sum((times >= 0) & (times < seconds)) if times[-1] > seconds else None)
    old = numpy.array([n for n in held if n is not None], float)
    new = numpy.array([len(arrivals.random_times(1, seconds, seed, cv=cv)) for seed in range(draws)], float)
    assert len(old) > 0.99 * draws
    for of in (lambda n: n, lambda n: n == 0, lambda n: n > 5, lambda n: n**2):
        a, b = of(old), of(new)
        assert a.mean() == pytest.approx(b.mean(), abs=4 * (a.var() / len(a) + b.var() / len(b)) ** 0.5)


def test_slow_bursty_clients_send_what_their_windows_say():
    clients = [Client(f"c{i}", ((LONG_INPUT, 1),), rates=(0.05,) * 60, cv=4) for i in range(20)]
    stated = sum(w.rate * w.seconds for w in arrival_patterns.windows_of(clients, 60))
    sent = [len(arrival_patterns.client_arrivals(clients, 60, seed)) for seed in range(8)]
    assert stated == pytest.approx(3600)
    assert sum(sent) / 8 == pytest.approx(3600, abs=4 * (20 * count_variance(0.05 * 3600, 4) / 8) ** 0.5)


def test_a_poisson_source_is_poisson_from_its_first_moment():
    none = sum(not arrivals.random_times(1, 0.5, seed) for seed in range(4000))
    assert none / 4000 == pytest.approx(math.exp(-0.5), abs=4 * (math.exp(-0.5) * (1 - math.exp(-0.5)) / 4000) ** 0.5)


def test_burstiness_that_cannot_be_drawn_is_refused_and_its_edges_are_not():
    for call in (
        lambda cv: arrivals.random_times(1, 10, 1, cv=cv),
        lambda cv: Client("bursty", ((LONG_INPUT, 1),), (1,), cv),
        lambda cv: arrivals.random_arrivals([FIRST], cv, 1),
    ):
        for cv in (1e5, 1000.1, 9e-5, 1e-200, 0, float("nan")):
            with pytest.raises(ValueError, match="cv must be (finite and )?between 0.0001 and 1,000, got"):
                call(cv)
    assert len(arrivals.random_times(1, 100, 1, cv=1e-4)) in (99, 100, 101)
    assert all(0 <= t < 10 for seed in range(300) for t in arrivals.random_times(1, 10, seed, cv=1000))


@pytest.mark.parametrize(
    "call",
    [
        lambda rate, t: arrivals.random_times(rate, t, 1, cv=2),
        lambda rate, t: arrivals.uniform_times(rate, t),
        lambda rate, t: arrival_patterns.on_off_times(rate, 1, 0, t),
        lambda rate, t: arrival_patterns.on_off_times(rate, 1, 0, t, 1),
    ],
)
@pytest.mark.parametrize("rate, seconds", [(1e300, 1), (1e300, 1e300), (1.01, 1e8)])
def test_loads_without_end_are_refused(call, rate, seconds):
    with pytest.raises(ValueError, match=r"rate x seconds \(requests\) must be (finite and )?between 0 and 100,000,000, got"):
        call(rate, seconds)


def test_random_loads_take_each_request_from_the_mix_of_its_window():
    only = [Window(60, 4, ((LONG_INPUT, 1),)), Window(60, 0, ((LONG_OUTPUT, 1),)), Window(30, 2, ((LONG_OUTPUT, 1),))]
    load = arrivals.random_arrivals(iter(only), 2, seed=5, client="a")
    assert load and all(a.request == (LONG_INPUT if a.time < 60 else LONG_OUTPUT) and a.client == "a" for a in load)
    assert not any(60 <= a.time < 120 for a in load) and any(a.time >= 120 for a in load)
    assert [a.time for a in load] == [t for times in arrivals.renewal_times([(60, 4), (60, 0), (30, 2)], 2, seed=5) for t in times]
    again = arrival_patterns.client_arrivals([Client("a", ((LONG_INPUT, 1),), (4, 0, 2), 2)], 60, seed=5)
    assert again == arrivals.random_arrivals([Window(60, r, ((LONG_INPUT, 1),)) for r in (4, 0, 2)], 2, "5/a", "a")


def test_spells_shorter_than_a_gap_keep_the_rate():
    """At 2 requests/s and spells of 0.3 s every spell alone would round to one request, and of 0.2 s to none."""
    for on, off in ((0.3, 0.2), (0.2, 0.3), (0.75, 1.25), (1e-9, 3e-9)):
        times = arrival_patterns.on_off_times(2, on, off, 500)
        assert len(times) == round(2 * 500 * on / (on + off)) and times == sorted(times)
        assert all((t + 1e-7 * on) % (on + off) < on + 2e-7 * on for t in times if on > 0.1)
    assert arrival_patterns.on_off_times(2, 0.75, 1.25, 8) == pytest.approx([0, 0.5, 2.25, 4, 4.5, 6.25])  # 1.5 requests a spell
    assert arrival_patterns.on_off_times(10, 0.1, 0.9, 4) == pytest.approx([0, 1, 2, 3])
    assert arrival_patterns.on_off_times(1, 1e-17, 0, 10) == pytest.approx(range(10))
    poisson = [len(arrival_patterns.on_off_times(8, 0.1, 0.3, 100, seed)) for seed in range(50)]
    assert sum(poisson) == pytest.approx(50 * 200, abs=4 * (50 * 200) ** 0.5)


def test_on_off_source_is_silent_while_off_and_keeps_its_mean_rate():
    times = arrival_patterns.on_off_times(8, on=30, off=10, seconds=400, seed=1)
    assert all(t % 40 < 30 for t in times)
    assert len(times) / 400 == pytest.approx(8 * 30 / 40, rel=0.1)
    assert arrival_patterns.on_off_times(2, on=1, off=0, seconds=3) == arrivals.uniform_times(2, 3)
    spells = [tuple(round(t - 40 * n, 6) for t in times if 40 * n <= t < 40 * (n + 1)) for n in range(10)]
    assert len(set(spells)) == 10  # each spell drawn anew


def test_seeds_repeat_and_differ():
    for draw in (
        lambda s: arrivals.random_times(4, 50, s, cv=2),
        lambda s: arrival_patterns.on_off_times(4, 5, 5, 50, s),
        lambda s: arrivals.sampled(UNIFORM, range(50), s),
    ):
        assert draw(1) == draw(1) != draw(2)


def test_types_are_drawn_whole():
    drawn = arrivals.sampled(SECOND, range(20_000), seed=4)
    shares = Counter(a.request for a in drawn)
    assert set(shares) == {LONG_INPUT, LONG_OUTPUT}  # never 8192 in and 2048 out
    assert shares[LONG_OUTPUT] / 20_000 == pytest.approx(0.9, abs=0.01)


def test_types_do_not_follow_the_gaps_when_both_have_the_same_seed():
    times = arrivals.random_times(4, 5000, seed=8)
    drawn = arrivals.sampled(UNIFORM, times, seed=8)
    gaps = {LONG_INPUT: [], LONG_OUTPUT: []}
    for before, after in pairwise(drawn):
        gaps[after.request].append(after.time - before.time)
    means = [sum(g) / len(g) for g in gaps.values()]
    assert means[0] == pytest.approx(means[1], rel=0.06)


DOCS, ESSAYS = Client("docs", ((LONG_INPUT, 1),), (3.6, 0.4)), Client("essays", ((LONG_OUTPUT, 1),), (0.4, 3.6))


def test_stable_clients_of_moving_rates_make_the_chapters_windows():
    for made, stated in zip(arrival_patterns.windows_of([DOCS, ESSAYS], 60), (FIRST, SECOND)):
        assert (made.rate, made.mix) == (stated.rate, stated.mix)
        assert made.step_rate == stated.step_rate


def test_windows_of_clients_weigh_each_clients_own_mix():
    both = Client("both", ((LONG_INPUT, 1), (LONG_OUTPUT, 2)), (3,))
    (made,) = arrival_patterns.windows_of([both, Client("docs", ((LONG_INPUT, 1),), (1,))], 10)
    assert made.mean(lambda r: r == LONG_INPUT) == Fraction(1, 2)
    with pytest.raises(ValueError):
        arrival_patterns.windows_of([both, DOCS], 10)  # one window against two


def test_client_streams_are_independent_and_superpose():
    together = arrival_patterns.client_arrivals([DOCS, ESSAYS], 2000, seed=3)
    alone = arrival_patterns.client_arrivals([DOCS], 2000, seed=3)
    assert [a for a in together if a.client == "docs"] == alone
    assert [a.time for a in together] == sorted(a.time for a in together)
    assert sum(a.time < 2000 and a.client == "docs" for a in together) / 2000 == pytest.approx(3.6, rel=0.05)
    assert sum(a.time >= 2000 and a.client == "docs" for a in together) / 2000 == pytest.approx(0.4, rel=0.15)
    assert arrival_patterns.client_arrivals([Client("gone", ((LONG_INPUT, 1),), (0,))], 60, seed=1) == []


def test_counts_lose_nothing():
    times = arrivals.random_times(3, 100, seed=1)
    assert sum(arrivals.counts(times, 100, 17)) == len(times)
    assert arrivals.counts([-1, 0, 99.999, 100], 100, 2) == [1, 1]


@pytest.mark.parametrize(
    "call",
    [
        lambda: Window(60, -1, ((LONG_INPUT, 1),)),
        lambda: Window(60, 4, ()),
        lambda: Window(60, 4, ((LONG_INPUT, 0.5),)),
        lambda: arrivals.random_times(0, 10, 1),
        lambda: arrivals.random_times(4, 10, 1, cv=0),
        lambda: arrival_patterns.on_off_times(4, 0, 1, 10),
        lambda: arrival_patterns.gap_cv([1, 2]),
        lambda: Client("silent", ((LONG_INPUT, 0),), (1,)),
        lambda: Client("back", ((LONG_INPUT, 1),), (-1,)),
        lambda: Client("smooth", ((LONG_INPUT, 1),), (1,), cv=0),
        lambda: arrival_patterns.gap_cv([1, 1, 1, 1]),
        lambda: arrivals.counts([1], 0, 4),
        lambda: arrivals.overall_mean([], lambda r: r.new),
        lambda: arrivals.renewal_times([(1, -1)], 1, 1),
        lambda: arrivals.renewal_times([(-1, 1)], 1, 1),
        lambda: arrivals.renewal_times([(1, 1)], 1, 1, float("inf")),
        lambda: arrival_patterns.on_off_times(1e-200, 1e-200, 0, 1),
        lambda: arrival_patterns.on_off_times(1, 1e308, 1e308, 1),
    ],
)
def test_impossible_loads_are_refused(call):
    with pytest.raises(ValueError):
        call()


def test_processes_begin_at_zero_unless_told_otherwise_and_shift_whole():
    for process in (
        lambda **at: arrivals.uniform_times(4, 8, **at),
        lambda **at: arrivals.random_times(4, 8, seed=3, **at),
        lambda **at: arrivals.random_times(4, 8, 3, cv=2, **at),
        lambda **at: arrival_patterns.on_off_times(4, 2, 1, 8, **at),
        lambda **at: arrival_patterns.on_off_times(4, 2, 1, 8, seed=3, **at),
    ):
        assert process() == process(start=0) and all(0 <= t < 8 for t in process())
        assert process(start=100) == pytest.approx([t + 100 for t in process()], rel=1e-12)


def test_gaps_want_three_arrivals_and_one_gap_that_is_not_zero():
    assert arrival_patterns.gap_cv([5, 5, 7]) == 1 and arrival_patterns.gap_cv([0, 0.25, 0.5]) == 0
    for times in ([1, 2], [2, 2, 2], []):
        with pytest.raises(ValueError, match="at least 3 arrivals"):
            arrival_patterns.gap_cv(times)


def test_an_arrival_at_a_boundary_belongs_to_what_begins_there():
    assert arrivals.counts([0, 1, 2, 3, 4], 4, 4) == [1, 1, 1, 1]

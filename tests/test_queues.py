"""Formulas against an event-by-event simulation that shares no line with the library."""

import heapq
import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.serving import arrivals, queues
from workloads_book.studies import arrival_patterns


def simulated_mean_wait(rate, draw_service, count, seed, servers=1, cv=1.0):
    """Mean wait from a calendar of events: arrivals join one queue, a free server takes the head."""
    rng, now, calendar = random.Random(seed), 0.0, []
    for i in range(count):
        now += rng.gammavariate(1 / cv**2, cv**2 / rate)
        calendar.append((now, 0, i))
    line, idle, waited, cursor, departures = [], servers, 0.0, 0, []
    while cursor < count or departures:
        if departures and (cursor == count or departures[0] <= calendar[cursor][0]):
            now = heapq.heappop(departures)
            idle += 1
        else:
            now = calendar[cursor][0]
            line.append(now)
            cursor += 1
        while idle and line:
            waited += now - line.pop(0)
            idle -= 1
            heapq.heappush(departures, now + draw_service(rng))
    return waited / count


@pytest.mark.parametrize("rho", [0.3, 0.6, 0.8])
def test_pollaczek_khinchine_agrees_with_simulation(rho):
    service = 0.2
    for draw, scv in (
        (lambda r: service, 0),
        (lambda r: r.expovariate(1 / service), 1),
        (lambda r: service * (0.1 if r.random() < 0.75 else 3.7), 2.43),
    ):
        simulated = simulated_mean_wait(rho / service, draw, 150_000, seed=11)
        assert queues.mg1_wait(rho / service, service, scv) == pytest.approx(simulated, rel=0.07)


def test_two_point_service_has_the_variation_the_simulation_uses():
    mean = 0.75 * 0.1 + 0.25 * 3.7
    assert mean == pytest.approx(1) and 0.75 * 0.1**2 + 0.25 * 3.7**2 - 1 == pytest.approx(2.43)


def test_bursty_arrivals_leave_the_region_of_the_poisson_formula():
    rate, service = 4, 0.2
    simulated = simulated_mean_wait(rate, lambda r: service, 200_000, seed=3, cv=3)
    assert simulated > 5 * queues.mg1_wait(rate, service, 0)  # the M in M/D/1 is what fails
    assert queues.gg1_wait(rate, service, 9, 0) == pytest.approx(simulated, rel=0.2)


def test_kingman_knows_the_spread_of_the_gaps_but_not_their_order():
    times, seconds, service = [], 24_000, 0.2
    for k in range(seconds // 60):  # a busy minute at rho 1.16, a quiet one at 0.44: 0.8 on the whole
        times += arrivals.random_times((5.8, 2.2)[k % 2], 60, seed=k, start=60 * k)
    predicted = queues.gg1_wait(len(times) / seconds, service, arrival_patterns.gap_cv(times) ** 2, 0)
    waits = queues.fifo_waits(times, [service] * len(times))
    assert sum(waits) / len(waits) > 4 * predicted

    gaps = [b - a for a, b in itertools.pairwise(times)]
    random.Random(1).shuffle(gaps)  # the same gaps in no order
    shuffled = queues.fifo_waits(list(itertools.accumulate(gaps)), [service] * len(gaps))
    assert sum(shuffled) / len(shuffled) == pytest.approx(predicted, rel=0.15)


@pytest.mark.parametrize("servers", [1, 3])
def test_fifo_waits_agree_with_trying_every_server(servers):
    rng = random.Random(7)
    times = sorted(rng.uniform(0, 20) for _ in range(60))
    services = [rng.uniform(0, 2) for _ in times]
    free, expected = [0.0] * servers, []
    for t, s in zip(times, services):
        k = min(range(servers), key=free.__getitem__)
        expected.append(max(0.0, free[k] - t))
        free[k] = max(free[k], t) + s
    assert queues.fifo_waits(times, services, servers) == pytest.approx(expected, abs=1e-12)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=20))
def test_total_wait_of_one_server_does_not_depend_on_order_when_services_are_equal(pairs):
    times = list(itertools.accumulate(gap for gap, _ in pairs))
    waits = queues.fifo_waits(times, [3] * len(times))
    finish = [t + w + 3 for t, w in zip(times, waits)]
    assert all(b - a >= 3 for a, b in itertools.pairwise(finish))  # one at a time
    assert all(w >= 0 for w in waits)


def test_hand_worked_waits():
    assert queues.mg1_wait(4, 0.2, 0) == pytest.approx(0.4)  # rho 0.8: 0.8 / 0.4 * 0.2
    assert queues.mg1_wait(4, 0.125, 0) == 0.0625  # rho 0.5: 0.5 / 1 * 0.125


@settings(deadline=None)
@given(st.floats(0.01, 0.98), st.floats(0, 5))
def test_wait_rises_with_load_and_variation_and_vanishes_with_load(rho, scv):
    wait = queues.mg1_wait(rho, 1, scv)
    assert queues.mg1_wait(rho + 0.01, 1, scv) > wait >= queues.mg1_wait(rho, 1, 0)
    assert queues.mg1_wait(1e-9, 1, scv) < 1e-8


def test_no_steady_state_at_full_load():
    for full in (1.0, 1.2):
        with pytest.raises(ValueError, match="utilization"):
            queues.mg1_wait(full, 1, 0)
        with pytest.raises(ValueError, match="utilization"):
            queues.gg1_wait(full, 1, 4, 0)


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="mean_service"):
        queues.utilization(1, 0)
    with pytest.raises(ValueError, match="servers"):
        queues.fifo_waits([0], [1], servers=0)
    with pytest.raises(ValueError, match="in order"):
        queues.fifo_waits([1, 0], [1, 1])
    with pytest.raises(ValueError, match="as many"):
        queues.fifo_waits([0, 1], [1])
    with pytest.raises(ValueError, match="service"):
        queues.fifo_waits([0], [-1])
    with pytest.raises(ValueError, match="arrival"):
        queues.fifo_waits([0, float("nan")], [1, 1])


def test_formulas_take_symbols_and_arrays():
    sympy, numpy = pytest.importorskip("sympy"), pytest.importorskip("numpy")
    lam, s = sympy.symbols("lambda S", positive=True)
    assert sympy.simplify(queues.mg1_wait(lam, s, 0) - lam * s**2 / (2 * (1 - lam * s))) == 0
    assert sympy.limit(queues.mg1_wait(lam, 1, 0), lam, 1, "-") == sympy.oo
    waits = queues.mg1_wait(numpy.array([0.2, 0.5]), 1.0, 0)
    assert waits == pytest.approx([queues.mg1_wait(0.2, 1, 0), queues.mg1_wait(0.5, 1, 0)])
    with pytest.raises(ValueError, match="utilization"):
        queues.mg1_wait(numpy.array([0.2, 1.5]), 1.0, 0)


@pytest.mark.parametrize("services", [[1], [1, 1, 1], []])
def test_two_arrivals_want_two_services(services):
    with pytest.raises(ValueError, match="as many as services, got 2"):
        queues.fifo_waits([0, 1], services)

"""Cost of a success: worked by hand, against simulated attempts, and by the laws that any such cost obeys."""

import random
from fractions import Fraction as F

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads_book.studies.attempts import (
    Attempts,
    all_fail,
    attempts_used,
    break_even_success,
    cost_per_success,
    cost_ratio,
    handoff_cost,
    handoff_share,
    parallel_cost_per_success,
    solved_within,
    stopped_cost_per_success,
    success_ratio_needed,
)

rates = st.fractions(F(1, 50), 1, max_denominator=50)
shares = st.fractions(0, 1, max_denominator=50)
costs = st.fractions(F(1, 100), 100, max_denominator=100)
counts = st.integers(1, 12)


def test_hundred_attempts_at_fifty_and_eighty_percent_by_counting():
    assert cost_per_success(1, F(1, 2)) == F(100 * 1, 50) == Attempts(100, 50, 100 * 1).cost_per_success
    assert cost_per_success(2, F(4, 5)) == F(100 * 2, 80) == Attempts(100, 80, 100 * 2).cost_per_success


def simulate(rng, success, limit, rate_of_task=None):
    """Attempts used and whether solved, for one task tried until solved or the limit."""
    p = success if rate_of_task is None else rate_of_task(rng)
    for attempt in range(1, limit + 1):
        if rng.random() < p:
            return attempt, True
    return limit, False


def test_cost_per_success_against_simulated_repetition():
    rng, cost, success = random.Random(11), 3.0, 0.35
    runs = [simulate(rng, success, 10**6) for _ in range(40_000)]
    assert cost * sum(used for used, _ in runs) / len(runs) == pytest.approx(cost_per_success(cost, success), rel=0.02)


@pytest.mark.parametrize("success, correlation, limit", [(0.5, 0.5, 3), (0.2, 0.1, 8), (0.7, 0.3, 5)])
def test_attempts_that_resemble_each_other_against_simulated_tasks(success, correlation, limit):
    rng, spread = random.Random(5), 1 / correlation - 1
    runs = [simulate(rng, None, limit, lambda r: r.betavariate(success * spread, (1 - success) * spread)) for _ in range(40_000)]
    used, solved = sum(u for u, _ in runs) / len(runs), sum(s for _, s in runs) / len(runs)
    assert solved == pytest.approx(solved_within(success, limit, correlation), abs=0.01)
    assert used == pytest.approx(attempts_used(success, limit, correlation), rel=0.02)
    assert 2.0 * used / solved == pytest.approx(stopped_cost_per_success(2.0, success, limit, correlation), rel=0.03)


def test_the_correlation_is_that_of_two_attempts_at_one_task():
    p, rho = F(3, 10), F(1, 4)
    both_fail = all_fail(p, 2, rho)
    assert (both_fail - (1 - p) ** 2) / (p * (1 - p)) == rho


@given(rates, counts)
def test_independent_attempts_fail_as_a_power(p, k):
    assert all_fail(p, k) == (1 - p) ** k


@given(rates, counts)
def test_attempts_that_repeat_each_other_solve_no_more_than_one(p, k):
    assert solved_within(p, k, 1) == p


@given(rates, counts, costs)
def test_stopping_early_does_not_change_the_cost_of_independent_attempts(p, limit, cost):
    assert stopped_cost_per_success(cost, p, limit) == cost_per_success(cost, p)


@given(rates, counts, shares, costs)
def test_resemblance_never_makes_a_success_cheaper(p, limit, rho, cost):
    assert stopped_cost_per_success(cost, p, limit, rho) >= cost_per_success(cost, p)
    assert parallel_cost_per_success(cost, p, limit, rho) >= stopped_cost_per_success(cost, p, limit, rho)


@given(rates, st.integers(1, 11), shares)
def test_one_more_attempt_never_loses_a_task(p, k, rho):
    assert all_fail(p, k + 1, rho) <= all_fail(p, k, rho)


@given(rates, rates, costs, costs)
def test_the_new_method_is_cheaper_exactly_above_the_ratio(p1, p2, c1, c2):
    assert (p2 / p1 > success_ratio_needed(c2, c1)) == (cost_per_success(c2, p2) < cost_per_success(c1, p1))


@given(rates, costs, costs)
def test_break_even_success_makes_both_costs_equal(p1, c1, c2):
    if p1 * c2 <= c1:
        assert cost_per_success(c2, break_even_success(c2, c1, p1)) == cost_per_success(c1, p1)
    else:
        with pytest.raises(ValueError, match="repays"):
            break_even_success(c2, c1, p1)


@given(costs, costs, rates, rates)
def test_cost_ratio_is_the_ratio_of_two_costs_per_success(price, usage, p1, p2):
    old_price, old_usage = F(7), F(300)
    new = cost_per_success(old_price * price * old_usage * usage, p2)
    assert cost_ratio(price, usage, p1, p2) == new / cost_per_success(old_price * old_usage, p1)


def test_a_price_cut_to_a_tenth_at_twenty_times_the_usage_by_hand():
    assert cost_ratio(F(1, 10), 20, F(1, 2), F(4, 5)) == F(5, 4)  # 2 * 50/80


@given(costs, costs, shares)
def test_handoff_share_inverts_handoff_cost(first, llm, share):
    assert handoff_share(first, llm, handoff_cost(first, llm, share)) == share


def test_handoff_costs_of_one_and_five_percent_by_hand():
    first, llm = F(81, 10**6), F(13880, 10**6)
    assert handoff_cost(first, llm, F(1, 100)) == F(2198, 10**7)
    assert handoff_cost(first, llm, F(5, 100)) == F(775, 10**6)
    assert handoff_share(first, llm, 2 * first) == F(81, 13880)


def test_handoff_cost_against_counted_requests():
    first, llm, kinds = 3.0, 50.0, [True] * 7 + [False] * 93
    spent = sum(first + (llm if handed_on else 0) for handed_on in kinds)
    assert handoff_cost(first, llm, 0.07) == pytest.approx(spent / len(kinds))


def test_zero_successes_give_a_record_and_a_ceiling_but_no_cost():
    run = Attempts(24, 0, 147456)
    assert run.cost_per_success is None
    ceiling = run.success_ceiling(0.95)
    assert (1 - ceiling) ** 24 == pytest.approx(0.05)
    assert Attempts(240, 0, 1).success_ceiling() < ceiling
    with pytest.raises(ValueError, match="solved"):
        Attempts(24, 1, 1).success_ceiling()
    with pytest.raises(ValueError, match="confidence"):
        run.success_ceiling(1)


def test_arrays_and_symbols_pass():
    import numpy as np
    import sympy as sp

    p, c, e = sp.symbols("p c e", positive=True)
    assert cost_per_success(c, p) == c / p
    assert sp.simplify(attempts_used(p, 4) / solved_within(p, 4) - 1 / p) == 0
    assert handoff_cost(c, 2 * c, e) == c + 2 * c * e
    grid = np.array([0.25, 0.5])
    assert np.array_equal(cost_per_success(1, grid), [4, 2])
    assert np.allclose(solved_within(grid, 2, 0.5), [solved_within(0.25, 2, 0.5), solved_within(0.5, 2, 0.5)])


@pytest.mark.parametrize(
    "call, named",
    [
        (lambda: cost_per_success(1, 0), "success"),
        (lambda: cost_per_success(1, 1.5), "success"),
        (lambda: cost_per_success(-1, 0.5), "cost"),
        (lambda: Attempts(0, 0, 1), "tried"),
        (lambda: Attempts(3, 4, 1), "solved"),
        (lambda: Attempts(3, 1, -1), "spent"),
        (lambda: success_ratio_needed(1, 0), "old_cost"),
        (lambda: break_even_success(2, 1, 0), "old_success"),
        (lambda: cost_ratio(0, 1, 0.5, 0.5), "price"),
        (lambda: cost_ratio(1, float("nan"), 0.5, 0.5), "usage"),
        (lambda: all_fail(0.5, 2.5), "attempts"),
        (lambda: all_fail(0.5, 2, 1.1), "correlation"),
        (lambda: all_fail(-0.1, 2), "success"),
        (lambda: attempts_used(0.5, 0), "limit"),
        (lambda: stopped_cost_per_success(1, 0, 3), "success"),
        (lambda: parallel_cost_per_success(1, 0.5, 0), "width"),
        (lambda: parallel_cost_per_success(1, 0, 2), "success"),
        (lambda: handoff_cost(1, 1, 1.01), "share"),
        (lambda: handoff_cost(-1, 1, 0.5), "decision_cost"),
        (lambda: handoff_share(2, 1, 1), "budget"),
        (lambda: handoff_share(1, 1, 3), "share"),
        (lambda: handoff_share(1, 0, 3), "llm_cost"),
    ],
)
def test_bad_input_is_refused_by_name(call, named):
    with pytest.raises(ValueError, match=named):
        call()


def test_all_attempts_may_succeed():
    assert Attempts(3, 3, 6).cost_per_success == 2 and Attempts(1, 1, 5).cost_per_success == 5

"""Scaling laws and their fits: against numerical optima, brute force, finite differences, and data made from a known law."""

import dataclasses
import math
import random
import re

import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import approx_fprime, minimize, minimize_scalar

from workloads.learning import scaling, scaling_fit
from workloads.learning.scaling import ScalingLaw
from workloads_book.measured_runs import seed_runs
from workloads_book.studies import scaling_evidence

LAW = ScalingLaw(E=1.7, A=400.0, alpha=0.34, B=2000.0, beta=0.37)
exponents = st.floats(0.05, 0.9)
laws = st.builds(ScalingLaw, E=st.floats(0, 3), A=st.floats(1, 1e4), alpha=exponents, B=st.floats(1, 1e5), beta=exponents)
budgets = st.floats(1e15, 1e27)


def arrays(runs):
    """Parameters, tokens and losses of runs."""
    return [np.array([getattr(r, name) for r in runs], float) for name in ("parameters", "tokens", "loss")]


def synthetic(count, noise=0.0, seed=0, law=LAW):
    draw = np.random.default_rng(seed)
    n, d = np.exp(draw.uniform(np.log(5e7), np.log(2e10), count)), np.exp(draw.uniform(np.log(2e8), np.log(1e12), count))
    y = scaling.loss(law, n, d) * np.exp(noise * draw.standard_t(3, count))
    return [scaling.TrainingRun(f"s{i}", *map(float, row), "fit") for i, row in enumerate(zip(n, d, y))]


# ---- the law and its optimum


def test_loss_by_hand():
    assert scaling.loss(ScalingLaw(1, 6, 0.5, 10, 0.5), 9, 25) == pytest.approx(1 + 6 / 3 + 10 / 5)


@given(laws, budgets)
def test_optimum_is_where_a_numerical_minimiser_ends(law, flops):
    law = dataclasses.replace(law, E=0.0)  # a constant moves no minimum; without it nothing cancels
    best = minimize_scalar(
        lambda x: scaling.loss(law, math.exp(x), flops / 6 / math.exp(x)), bounds=(-150, 200), method="bounded", options={"xatol": 1e-12}
    )
    assert scaling.loss(law, scaling.optimal_parameters(law, flops), scaling.optimal_tokens(law, flops)) <= best.fun * (1 + 1e-9)


@given(laws, budgets, st.floats(0.01, 100))
def test_no_other_split_of_the_budget_has_a_lower_loss(law, flops, factor):
    n, d = scaling.optimal_parameters(law, flops), scaling.optimal_tokens(law, flops)
    assert 6 * n * d == pytest.approx(flops)
    assert scaling.loss(law, n, d) <= scaling.loss(law, n * factor, d / factor) * (1 + 1e-12)


def test_first_and_second_order_conditions_hold_for_every_law():
    E, A, alpha, B, beta, C, N = sympy.symbols("E A alpha B beta C N", positive=True)
    law = ScalingLaw(E, A, alpha, B, beta)
    along = scaling.loss(law, N, C / (6 * N))
    best = scaling.optimal_parameters(law, C)
    x = sympy.symbols("x", positive=True)  # N = best * x: the slope in x vanishes at x = 1
    slope = sympy.diff(along.subs(N, best * x), x).subs(x, 1)
    assert sympy.simplify(sympy.powsimp(sympy.expand_power_base(sympy.powdenest(slope, force=True), force=True), force=True)) == 0
    second = sympy.diff(along, N, 2).subs(B, alpha * A * N**-alpha * (6 * N / C) ** -beta / beta)  # B from the first-order condition
    assert sympy.simplify(second * N**2 / (alpha * (alpha + beta) * A * N**-alpha)) == 1


@given(laws, budgets, st.floats(1.1, 1e4))
def test_optimum_grows_with_the_allocation_exponents(law, flops, factor):
    of_n, of_d = scaling.allocation_exponents(law)
    assert of_n + of_d == pytest.approx(1)
    assert scaling.optimal_parameters(law, factor * flops) == pytest.approx(scaling.optimal_parameters(law, flops) * factor**of_n, rel=1e-9)
    assert scaling.optimal_tokens(law, factor * flops) == pytest.approx(scaling.optimal_tokens(law, flops) * factor**of_d, rel=1e-9)


@pytest.mark.parametrize("factor, growth", [(4, 2), (9, 3)])
def test_equal_exponents_split_a_budget_evenly(factor, growth):
    law = ScalingLaw(1.7, 400, 0.3, 900, 0.3)
    assert scaling.optimal_parameters(law, factor * 1e21) / scaling.optimal_parameters(law, 1e21) == pytest.approx(growth)
    assert scaling.optimal_tokens(law, factor * 1e21) / scaling.optimal_tokens(law, 1e21) == pytest.approx(growth)


@given(laws, st.floats(1e6, 1e12))
def test_matched_tokens_make_that_size_the_optimum(law, parameters):
    tokens = scaling.matched_tokens(law, parameters)
    assert scaling.optimal_parameters(law, 6 * parameters * tokens) == pytest.approx(parameters, rel=1e-6)


@given(st.floats(1e7, 1e12), st.floats(1e8, 1e14))
def test_tokens_for_loss_inverts_the_law(parameters, tokens):
    assert scaling.tokens_for_loss(LAW, parameters, scaling.loss(LAW, parameters, tokens)) == pytest.approx(tokens, rel=1e-6)


def test_loss_falls_with_parameters_and_with_tokens_towards_the_asymptote():
    values = [scaling.loss(LAW, n, d) for n, d in ((1e8, 1e9), (1e9, 1e9), (1e9, 1e10), (1e60, 1e60))]
    assert values == sorted(values, reverse=True) and values[-1] == pytest.approx(LAW.E)


def test_a_loss_that_a_size_cannot_reach_is_refused():
    with pytest.raises(ValueError, match="target_loss minus the loss of this size"):
        scaling.tokens_for_loss(LAW, 1e8, LAW.E + LAW.A * 1e8**-LAW.alpha)


def test_law_takes_arrays_and_symbols_like_numbers():
    n = np.array([1e8, 1e9])
    assert list(scaling.loss(LAW, n, 1e10)) == [scaling.loss(LAW, x, 1e10) for x in n]
    symbol = sympy.Symbol("N", positive=True)
    assert float(scaling.loss(LAW, symbol, 1e10).subs(symbol, 1e9)) == pytest.approx(scaling.loss(LAW, 1e9, 1e10))


@pytest.mark.parametrize("field, value", [("A", 0), ("alpha", -0.1), ("beta", math.nan), ("E", math.inf)])
def test_a_law_refuses_impossible_coefficients(field, value):
    with pytest.raises(ValueError, match=field):
        dataclasses.replace(LAW, **{field: value})


@pytest.mark.parametrize(
    "call",
    [
        lambda: scaling.loss(LAW, 0, 1e9),
        lambda: scaling.loss(LAW, 1e9, -1),
        lambda: scaling.optimal_parameters(LAW, 0),
        lambda: scaling.matched_tokens(LAW, math.nan),
        lambda: scaling.tokens_for_loss(LAW, 1e9, math.inf),
        lambda: scaling.score_from_loss(2, 25, 20, 2, 0.1),
    ],
)
def test_bad_input_is_refused(call):
    with pytest.raises(ValueError):
        call()


@given(st.floats(1, 4), st.floats(0.01, 1))
def test_score_lies_between_its_ends_and_falls_with_the_loss(value, step):
    low, high = (scaling.score_from_loss(x, 25, 100, 2.5, 0.3) for x in (value + step, value))
    assert 25 < low < high < 100


# ---- published data

SIZE = re.compile(r"(?P<size>\d+[mb](?:\d*?))(?P<tokens>\d+[mb]\d?)(?P=tokens)$")


def decimal(text):
    whole, unit, tenth = re.fullmatch(r"(\d+)([mb])(\d?)", text).groups()
    return (int(whole) + int(tenth or 0) / 10) * {"m": 1e6, "b": 1e9}[unit]


@pytest.mark.parametrize("run", scaling.training_runs(), ids=lambda run: run.run)
def test_run_names_say_the_tokens_of_the_table(run):
    assert decimal(SIZE.match(run.run)["tokens"]) == pytest.approx(run.tokens)


def test_declared_figures_stay_near_the_table():
    for run in scaling.training_runs("fit", "holdout"):
        assert run.parameters_from_shapes == pytest.approx(run.parameters, rel=0.003)
        assert run.tokens_declared is None or run.tokens_declared == pytest.approx(run.tokens, rel=0.014)


def test_six_fit_runs_hold_three_sizes_only():
    assert len({run.parameters for run in scaling.training_runs("fit")}) == 3


def test_a_file_of_a_reader_gives_tokens_from_flops():
    lines = ["Model Size,Training FLOP,loss", "1e9,6e19,3.0", "2e9,1.2e20,2.8"]
    runs = scaling.read_runs(lines, "Model Size", "loss", flops="Training FLOP")
    assert [(run.parameters, run.tokens, run.loss) for run in runs] == [(1e9, 1e10, 3.0), (2e9, 1e10, 2.8)]


@pytest.mark.parametrize(
    "lines, message",
    [
        ([], "header"),
        (["parameters,loss", "1,2"], "header"),
        (["parameters,tokens,loss", "1e9,none,3"], "tokens in line 2"),
        (["parameters,tokens,loss", "1e9,1e10,nan"], "loss in line 2"),
        (["parameters,tokens,loss", "1e9,1e10"], "loss in line 2"),
    ],
)
def test_a_broken_file_is_refused(lines, message):
    with pytest.raises(ValueError, match=message):
        scaling.read_runs(lines)


def test_a_larger_small_run_can_end_worse_than_a_smaller_one():
    by_seed = {run.parameters: run.loss for run in seed_runs() if run.seed == 309}
    assert by_seed[max(by_seed)] > sorted(by_seed.items())[1][1]


# ---- fits


def test_huber_by_hand():
    assert scaling_fit.huber(np.array([0.5, -0.5, 3.0, -3.0]), delta=1.0) == pytest.approx(0.125 + 0.125 + 2.5 + 2.5)
    assert scaling_fit.huber(np.array([3.0, 4.0]), delta=np.inf) == pytest.approx(12.5)


def test_grid_cells_agree_with_a_loop_over_lstsq():
    runs = scaling.training_runs("fit")
    n, d, y = arrays(runs)
    best = []
    for alpha in scaling_evidence.CHAPTER_EXPONENTS:
        for beta in scaling_evidence.CHAPTER_EXPONENTS:
            columns = np.stack([np.ones(6), (n / 1e9) ** -alpha, (d / 1e10) ** -beta], axis=1)
            found, *_ = np.linalg.lstsq(columns, y, rcond=None)
            if (found > 0).all():
                best.append((float(np.sum((columns @ found - y) ** 2)), alpha, beta, *found))
    best.sort()
    cells = scaling_evidence.grid_cells(runs)
    assert [(c.law.alpha, c.law.beta) for c in cells] == [(b[1], b[2]) for b in best]
    first, (sse, alpha, beta, e, a, b) = cells[0], best[0]
    assert (first.objective, first.law.E, first.law.A, first.law.B) == pytest.approx((sse, e, a * 1e9**alpha, b * 1e10**beta), rel=1e-9)


@pytest.mark.parametrize(
    "fit",
    [
        scaling_fit.fit,
        scaling_evidence.least_squares_fit,
        lambda runs: scaling_fit.fit(runs, np.inf),
        lambda runs: scaling_evidence.least_squares_fit(runs, "free"),
    ],
)
def test_exact_data_give_the_law_back(fit):
    assert dataclasses.astuple(fit(synthetic(40)).law) == pytest.approx(dataclasses.astuple(LAW), rel=1e-4)


def test_grid_gives_a_law_on_the_grid_back():
    law = ScalingLaw(1.5, 50.0, 0.25, 900.0, 0.3)
    assert dataclasses.astuple(scaling_evidence.grid_cells(synthetic(30, law=law))[0].law) == pytest.approx(
        dataclasses.astuple(law), rel=1e-6
    )


@pytest.mark.parametrize("log", [False, True])
def test_jacobian_agrees_with_finite_differences(log):
    runs = synthetic(7, 0.01)
    n, d, y = arrays(runs)
    data = (*scaling_fit._centred(n, d), y, log)
    theta = np.array([1.6, 0.4, 0.3, 0.2, 0.4])
    exact = scaling_fit._jacobian(theta, *data)
    for i in range(7):
        assert exact[i] == pytest.approx(approx_fprime(theta, lambda t: scaling_fit._residuals(t, *data)[i], 1e-7), rel=1e-4, abs=1e-6)


def test_newton_gradient_and_hessian_agree_with_finite_differences():
    runs = synthetic(9, 0.05)
    n, d, y = arrays(runs)
    data, counts = (*scaling_fit._centred(n, d), np.log(y)), np.array([0, 2, 1, 1, 3, 0, 1, 1, 1])
    theta = np.array([0.5, 0.2, 0.3, 0.1, 0.4])

    def terms(t):
        return scaling_evidence._newton_terms(np.asarray(t)[None], *data, counts[None], 0.2)

    cost, gradient, hessian = (part[0] for part in terms(theta))
    residual = np.log(np.exp(theta[0]) + np.exp(theta[1] - theta[2] * data[0]) + np.exp(theta[3] - theta[4] * data[1])) - data[2]
    assert cost == pytest.approx(sum(c * scaling_fit.huber(r, 0.2) for c, r in zip(counts, residual[:, None])))
    assert gradient == pytest.approx(approx_fprime(theta, lambda t: terms(t)[0][0], 1e-7), rel=1e-4, abs=1e-5)
    for j in range(5):
        assert hessian[j] == pytest.approx(approx_fprime(theta, lambda t: terms(t)[1][0, j], 1e-7), rel=1e-4, abs=1e-5)


def published_method(runs, start, delta=1e-3):
    """The published notebook's objective and optimiser from one start: numeric gradient, A, B, E as logarithms."""
    n, d, y = arrays(runs)
    log_n, log_d, log_y = np.log(n), np.log(d), np.log(y)

    def objective(t):
        terms = np.stack([t[0] - t[3] * log_n, t[1] - t[4] * log_d, np.full_like(log_n, t[2])])
        top = terms.max(axis=0)
        return scaling_fit.huber(top + np.log(np.exp(terms - top).sum(axis=0)) - log_y, delta)

    return minimize(objective, start, method="L-BFGS-B")


@pytest.mark.parametrize(
    "runs", [synthetic(60, 0.01), scaling.training_runs(), scaling.training_runs("fit")], ids=["synthetic", "all C4", "six C4"]
)
def test_huber_fit_is_no_worse_than_the_published_method_from_many_starts(runs):
    draw = random.Random(3)
    starts = [[draw.uniform(0, 25), draw.uniform(0, 25), draw.uniform(-1, 1), draw.uniform(0, 2), draw.uniform(0, 2)] for _ in range(12)]
    assert scaling_fit.fit(runs).objective <= min(published_method(runs, start).fun for start in starts) + 1e-9


@pytest.mark.parametrize("seed", range(20))
def test_huber_fit_does_not_depend_on_order_or_units(seed):
    runs, draw = synthetic(50, 0.01), random.Random(seed)
    n_unit, d_unit = 10 ** draw.uniform(-9, 3), 10 ** draw.uniform(-12, 3)
    shuffled = draw.sample(runs, len(runs))
    moved = [dataclasses.replace(run, parameters=run.parameters * n_unit, tokens=run.tokens * d_unit) for run in shuffled]
    here, there = scaling_fit.fit(runs), scaling_fit.fit(moved)
    assert there.objective == pytest.approx(here.objective, rel=1e-9)
    law, found = here.law, there.law
    assert (found.E, found.alpha, found.beta) == pytest.approx((law.E, law.alpha, law.beta), rel=1e-5)
    assert (found.A * n_unit**-found.alpha, found.B * d_unit**-found.beta) == pytest.approx((law.A, law.B), rel=1e-4)


@given(st.integers(0, 10**6))
@settings(max_examples=15, deadline=None)
def test_least_squares_is_no_worse_than_a_derivative_free_search_from_its_end(seed):
    runs = synthetic(12, 0.02, seed)
    fit = scaling_evidence.least_squares_fit(runs)
    end = dataclasses.astuple(fit.law)

    def sse(scale):
        if end[0] * scale[0] < 0:
            return math.inf
        try:
            law = ScalingLaw(*(value * s for value, s in zip(end, scale)))
        except ValueError:
            return math.inf
        return sum((scaling.loss(law, r.parameters, r.tokens) - r.loss) ** 2 for r in runs)

    assert sse([1] * 5) == pytest.approx(fit.objective, rel=1e-6)
    searched = minimize(sse, [1] * 5, method="Nelder-Mead", options={"maxiter": 2000, "xatol": 1e-10, "fatol": 1e-15})
    assert searched.fun >= fit.objective * (1 - 1e-6)


def test_profile_touches_the_free_fit_and_lies_above_it():
    runs = scaling.training_runs("fit")
    free = scaling_evidence.least_squares_fit(runs, "free")
    at_best, *others = scaling_evidence.profile(runs, [free.law.alpha, 0.02, 0.05, 0.1, 0.2])
    assert at_best.objective == pytest.approx(free.objective, rel=1e-5)
    assert all(other.objective > free.objective for other in others)
    assert at_best.law.E == pytest.approx(free.law.E, rel=1e-3)


def test_bootstrap_is_no_worse_than_one_optimiser_call_for_each_resample():
    runs = synthetic(80, 0.01)
    fit, (n, d, y) = scaling_fit.fit(runs), arrays(runs)
    counts = np.random.default_rng(5).multinomial(80, np.full(80, 1 / 80), size=8)
    for law, count in zip(scaling_evidence.bootstrap(runs, fit, 8, seed=5), counts):
        chosen = [run for run, c in zip(runs, count) for _ in range(c)]
        reached = scaling_fit.huber(np.log(scaling.loss(ScalingLaw(*map(float, law)), n, d) / y).repeat(count))
        start = [math.log(fit.law.A), math.log(fit.law.B), math.log(fit.law.E), fit.law.alpha, fit.law.beta]
        assert reached <= published_method(chosen, start).fun + 1e-9


def test_bootstrap_interval_covers_the_law_that_made_the_data():
    runs = synthetic(200, 0.005, seed=1)
    low, high = scaling_evidence.interval(scaling_evidence.bootstrap(runs, scaling_fit.fit(runs), 400))
    assert (low < dataclasses.astuple(LAW)).all() and (dataclasses.astuple(LAW) < high).all()


def test_bootstrap_repeats_for_a_seed_and_does_not_depend_on_the_batch(monkeypatch):
    runs = synthetic(40, 0.01)
    fit = scaling_fit.fit(runs)
    first = scaling_evidence.bootstrap(runs, fit, 30, seed=2)
    assert np.array_equal(first, scaling_evidence.bootstrap(runs, fit, 30, seed=2))
    monkeypatch.setattr(scaling_evidence, "BATCH", 7)
    assert first == pytest.approx(scaling_evidence.bootstrap(runs, fit, 30, seed=2), rel=1e-6)


@pytest.mark.parametrize(
    "call",
    [
        lambda: scaling_fit.fit(synthetic(4)),
        lambda: scaling_fit.fit([dataclasses.replace(r, parameters=1e9) for r in synthetic(8)]),
        lambda: scaling_fit.fit(synthetic(8), delta=0),
        lambda: scaling_evidence.least_squares_fit(synthetic(8), intercept="fixed"),
        lambda: scaling_evidence.grid_cells(synthetic(8), exponents=(0.1, -0.2)),
        lambda: scaling_evidence.grid_cells([dataclasses.replace(r, loss=10 - r.loss) for r in synthetic(8)]),
        lambda: scaling_evidence.bootstrap(synthetic(8), scaling_fit.fit(synthetic(8)), resamples=0),
        lambda: scaling_evidence.profile(scaling.training_runs("fit"), [0.0]),
        lambda: scaling.root_mean_square_error(LAW, []),
    ],
)
def test_a_fit_without_enough_to_go_on_is_refused(call):
    with pytest.raises(ValueError):
        call()

"""What training runs say about a law fitted to them: every cell of an exponent grid, plain least squares, profile, bootstrap.

The law is that of `learning.scaling_fit`, in its centred unknowns; `learning.scaling_fit.fit` is the fit to use, the rest shows how far it
can be trusted.
"""

from __future__ import annotations

from collections.abc import Sequence

from workloads.checks import formula, fraction, one_of, positive, whole
from workloads.learning.scaling import TrainingRun
from workloads.learning.scaling_fit import DELTA, Fit, _arrays, _centred, _fit, _grid, _huber_loss, _law, _projections
from workloads.numeric import Number, ceil, library
from workloads.units import Count, Share

np, optimize = library("numpy", "fit"), library("scipy.optimize", "fit")
CHAPTER_EXPONENTS = tuple(k / 100 for k in range(10, 61, 5))
BATCH = 250  # resamples solved at once


@formula
def grid_cells(runs: Sequence[TrainingRun], exponents: Sequence[Number] = CHAPTER_EXPONENTS) -> list[Fit]:
    """Least-squares fits in every cell of an exponent grid, best first.

    Equation:
        for each (alpha, beta), E, A, B minimise sum (L - E - A N^-alpha - B D^-beta)^2; cells with E, A or B <= 0 are
        left out.

    Args:
        runs: TrainingRuns.
        exponents: tried for alpha and for beta alike.

    Returns:
        List of Fit, objective in (nats/token)^2.

    Raises:
        ValueError: where no cell has positive coefficients.

    Example:
        >>> from workloads.learning.scaling import training_runs
        >>> best = grid_cells(training_runs("fit"))[0]
        >>> best.law.alpha, best.law.beta, round(best.law.E, 4), f"{best.objective:.3e}"
        (0.1, 0.45, 1.2112, '5.997e-04')
    """
    n, d, y = _arrays(runs)
    alphas, betas = _grid(exponents)
    linear, sse = _projections(*_centred(n, d), y, alphas, betas)
    kept = [i for i in np.argsort(sse) if (linear[i] > 0).all()]
    if not kept:
        raise ValueError(f"exponents must leave a cell with positive E, A and B, got none of {len(sse)}")
    return [Fit(_law((linear[i, 0], np.log(linear[i, 1]), alphas[i], np.log(linear[i, 2]), betas[i]), n, d), float(sse[i])) for i in kept]


@formula
def least_squares_fit(runs: Sequence[TrainingRun], intercept: str = "nonnegative") -> Fit:
    """Least squares on the loss, all five coefficients free.

    Equation:
        min sum (L(N, D) - L)^2.

    Args:
        runs: TrainingRuns.
        intercept: "nonnegative" (E >= 0) or "free".

    Returns:
        Fit: with the sum of squares as its objective. With a free E the runs may have no best fit: alpha then stops at
            its bound of 1e-4.

    Example:
        >>> from workloads.learning.scaling import training_runs
        >>> round(least_squares_fit(training_runs("fit")).law.beta, 3)
        0.446
    """
    one_of(intercept, "intercept", ("nonnegative", "free"))
    found = _fit(runs, False, np.inf, 0 if intercept == "nonnegative" else -np.inf)
    return Fit(found.law, 2 * found.objective)


@formula
def profile(runs: Sequence[TrainingRun], alphas: Sequence[Number]) -> list[Fit]:
    """Best least-squares fit for each given alpha, E free: how well the runs tell one alpha from another.

    Args:
        runs: TrainingRuns.
        alphas: exponents of N to try, above 0.

    Returns:
        List of Fit, objective the sum of squares. A flat objective means that alpha is not identified.

    Example:
        >>> from workloads.learning.scaling import training_runs
        >>> [round(best.objective, 4) for best in profile(training_runs("fit"), [0.1, 0.3])]
        [0.0003, 0.0038]
    """
    n, d, y = _arrays(runs)
    log_n, log_d = _centred(n, d)
    fits = []
    for alpha in np.atleast_1d(positive(np.asarray(alphas, float), "alphas")):

        def projected(beta: Number) -> tuple[Number, ...]:
            return _projections(log_n, log_d, y, np.array([alpha]), np.array([beta]))

        beta = optimize.minimize_scalar(lambda b: projected(b)[1][0], bounds=(0.02, 2), method="bounded", options={"xatol": 1e-10}).x
        (linear,), (sse,) = projected(beta)
        if (linear[1:] <= 0).any():
            raise ValueError(f"alphas must leave A and B positive, got A, B = {linear[1]:.3g}, {linear[2]:.3g} at alpha {alpha}")
        fits.append(Fit(_law((linear[0], np.log(linear[1]), alpha, np.log(linear[2]), beta), n, d), float(sse)))
    return fits


def _newton_terms(theta, log_n, log_d, log_y, counts, delta):
    """Weighted Huber objective, gradient and Hessian for a batch of parameter vectors (log E, a, alpha, b, beta)."""
    e, a, alpha, b, beta = theta.T[..., None]
    # log L from the logs of its three terms, the largest taken out first so that no exponential overflows
    logs = np.stack(np.broadcast_arrays(e, a - alpha * log_n, b - beta * log_d))
    top = logs.max(axis=0)
    shares = np.exp(logs - top)
    total = shares.sum(axis=0)
    of_e, of_n, of_d = shares / total
    residual = top + np.log(total) - log_y
    size = np.abs(residual)
    cost = np.sum(counts * _huber_loss(size, delta), axis=1)
    pull = counts * np.clip(residual, -delta, delta)
    slope = np.stack([of_e, of_n, -log_n * of_n, of_d, -log_d * of_d], axis=1)
    gradient = (slope @ pull[..., None])[..., 0]
    # log L is the log of a sum: its second derivatives are those of the terms less the outer product of the slopes
    hessian = (slope * (counts * (size <= delta) - pull)[:, None]) @ slope.transpose(0, 2, 1)
    hessian[:, 0, 0] += np.sum(pull * of_e, axis=1)
    for first, share, log_x in ((1, of_n, log_n), (3, of_d, log_d)):
        sums = (pull * share) @ np.stack([np.ones_like(log_x), -log_x, log_x**2], axis=1)
        hessian[:, first : first + 2, first : first + 2] += sums[:, [0, 1, 1, 2]].reshape(-1, 2, 2)
    return cost, gradient, hessian


def _newton(theta, log_n, log_d, log_y, counts, delta, steps):
    """Damped Newton steps on many resamples at once; a step that does not lower a resample's objective is taken back.

    Returns the parameter vectors and which of them have settled within the given number of steps.
    """
    theta, damping, live = theta.copy(), np.full(len(theta), 1e-3), np.arange(len(theta))
    cost, gradient, hessian = _newton_terms(theta, log_n, log_d, log_y, counts, delta)
    for _ in range(steps):
        # a damped Newton step: the diagonal of the Hessian raised by the damping, no coefficient moved by more than 2
        diagonal = np.abs(np.einsum("rjj->rj", hessian[live])) + 1e-9
        shifted = hessian[live] + np.einsum("rj,jk->rjk", diagonal * damping[live, None], np.eye(5))
        step = -np.linalg.solve(shifted, gradient[live, :, None])[..., 0]
        step *= np.minimum(1, 2 / np.abs(step).max(axis=1, keepdims=True))
        trial = theta[live] + step
        new = _newton_terms(trial, log_n, log_d, log_y, counts[live], delta)
        better = new[0] < cost[live]
        accepted, gain = live[better], (cost[live] - new[0])[better]
        settled = damping[live] > 1e9  # no direction lowers it any more
        settled[better] |= gain < 1e-15
        theta[accepted], cost[accepted] = trial[better], new[0][better]
        gradient[accepted], hessian[accepted] = new[1][better], new[2][better]
        damping[live] = np.where(better, np.maximum(damping[live] / 10, 1e-12), damping[live] * 10)
        live = live[~settled]
        if not len(live):
            break
    return theta, ~np.isin(np.arange(len(theta)), live)


def _resample_fits(start, log_n, log_d, log_y, counts, delta):
    """Huber fits to resamples: Newton from one start; those it leaves unsettled again by way of a smoother objective."""
    theta, settled = _newton(np.tile(start, (len(counts), 1)), log_n, log_d, log_y, counts, delta, steps=30)
    again = np.flatnonzero(~settled)
    for threshold in (10 * delta, 3 * delta, delta):
        if len(again):
            first = start if threshold == 10 * delta else theta[again]
            theta[again], _ = _newton(np.broadcast_to(first, (len(again), 5)), log_n, log_d, log_y, counts[again], threshold, steps=300)
    return theta


@formula
def bootstrap(runs: Sequence[TrainingRun], fit: Fit, resamples: Count = 1000, seed: int | str = 0, delta: Number = DELTA) -> Number:
    """Coefficients of Huber fits to runs drawn again with replacement: their spread is the sampling uncertainty.

    Args:
        runs: TrainingRuns.
        fit: the Huber fit to all of them, from which every resample starts.
        resamples: fits, each to runs drawn with replacement.
        seed: of the draws.
        delta: the threshold.

    Returns:
        Array (resamples, 5) of E, A, alpha, B, beta.

    Assumptions:
        The runs are independent draws from those one might have trained; a resample that holds two sizes says little.

    Example:
        >>> from workloads.learning.scaling import training_runs
        >>> from workloads.learning.scaling_fit import fit
        >>> runs = training_runs()
        >>> bootstrap(runs, fit(runs), resamples=20).shape
        (20, 5)
    """
    n, d, y = _arrays(runs)
    (log_n, log_d), law = _centred(n, d), fit.law
    start = [
        np.log(max(law.E, 1e-6)),
        np.log(law.A) - law.alpha * np.log(n).mean(),
        law.alpha,
        np.log(law.B) - law.beta * np.log(d).mean(),
        law.beta,
    ]
    counts = np.random.default_rng(seed).multinomial(len(y), np.full(len(y), 1 / len(y)), size=whole(resamples, "resamples", least=1))
    theta = np.concatenate(
        [
            _resample_fits(start, log_n, log_d, np.log(y), part, positive(delta, "delta"))
            for part in np.array_split(counts, ceil(resamples / BATCH))
        ]
    )
    e, a, alpha, b, beta = theta.T
    return np.stack([np.exp(e), np.exp(a + alpha * np.log(n).mean()), alpha, np.exp(b + beta * np.log(d).mean()), beta], axis=1)


@formula
def interval(samples: Count, level: Share = 0.95) -> tuple[Number, ...]:
    """Central percentile interval (low, high) of the samples along their first axis.

    Args:
        samples: values, or arrays of values, one a sample.
        level: the share of the samples inside, in (0, 1].

    Example:
        >>> [round(float(x), 6) for x in interval(list(range(101)), level=0.9)]
        [5.0, 95.0]
    """
    tail = (1 - fraction(level, "level")) / 2
    return tuple(np.quantile(samples, (tail, 1 - tail), axis=0))

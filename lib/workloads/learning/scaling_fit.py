"""Fitting L(N, D) = E + A/N^alpha + B/D^beta to training runs: exponent grid, least squares, Huber, profile, bootstrap.

For fixed exponents the law is linear in E, A and B, so a grid over (alpha, beta) with three linear unknowns (variable projection)
finds a start without any guess. The refinement is `scipy.optimize.least_squares` with the exact Jacobian. Inside, log N and
log D are centred and the unknowns are (E, a, alpha, b, beta) with A and B as e^a and e^b at the centre: otherwise a and alpha
(b and beta) are almost the same direction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from ..checks import formula, fraction, one_of, positive, whole
from ..numeric import Number, ceil, library
from ..units import Count, Share
from .scaling import ScalingLaw, TrainingRun

np, optimize = library("numpy", "fit"), library("scipy.optimize", "fit")
CHAPTER_EXPONENTS = tuple(k / 100 for k in range(10, 61, 5))
START_EXPONENTS = 0.02, 1.2, 24  # from, to, how many, each the same factor above the one before
DELTA = 1e-3  # Huber threshold on log loss, as in hoffmann2022chinchilla
STARTS = 3  # cells of the start grid that are refined
BATCH = 250  # resamples solved at once


@dataclass(frozen=True)
class Fit:
    """A fitted law and the value its objective reached."""

    law: ScalingLaw
    objective: float


def _arrays(runs):
    """Parameters, tokens and losses of runs as three arrays; enough of them for a law of five unknowns."""
    n, d, y = (np.array([getattr(r, name) for r in runs], float) for name in ("parameters", "tokens", "loss"))
    if len(n) < 5 or len(set(n)) < 2 or len(set(d)) < 2:
        found = f"{len(n)} with {len(set(n))} and {len(set(d))}"
        raise ValueError(f"runs must be at least 5, with 2 sizes and 2 token counts, got {found}")
    return n, d, y


def _centred(n, d):
    return np.log(n) - np.log(n).mean(), np.log(d) - np.log(d).mean()


def _projections(log_n, log_d, y, alphas, betas, weight=None):
    """Coefficients (cells, 3) of 1, N^-alpha and D^-beta by linear least squares in each cell, and the residual sums of
    squares.
    """
    # at given exponents the law is linear in E, A and B: one small least-squares problem a cell, all solved at once by QR
    columns = [np.ones((len(alphas), len(y))), np.exp(-np.outer(alphas, log_n)), np.exp(-np.outer(betas, log_d))]
    scale = np.ones_like(y) if weight is None else weight
    q, r = np.linalg.qr(np.stack(columns, axis=-1) * scale[:, None])
    seen = np.einsum("cik,i->ck", q, y * scale)
    linear = np.linalg.solve(r, seen[..., None])[..., 0]
    return linear, np.sum((np.einsum("cik,ck->ci", q, seen) - y * scale) ** 2, axis=1)


def _grid(exponents):
    pairs = np.array([(a, b) for a in exponents for b in exponents])
    return positive(pairs[:, 0], "exponents"), pairs[:, 1]


def _law(theta, n, d):
    e, a, alpha, b, beta = map(float, theta)
    return ScalingLaw(e, float(np.exp(a + alpha * np.log(n).mean())), alpha, float(np.exp(b + beta * np.log(d).mean())), beta)


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


def _terms(theta, log_n, log_d):
    e, a, alpha, b, beta = theta
    of_n, of_d = np.exp(a - alpha * log_n), np.exp(b - beta * log_d)
    return e + of_n + of_d, np.stack([np.ones_like(of_n), of_n, -log_n * of_n, of_d, -log_d * of_d], axis=-1)


def _residuals(theta, log_n, log_d, y, log):
    predicted = _terms(theta, log_n, log_d)[0]
    return np.log(predicted / y) if log else predicted - y


def _jacobian(theta, log_n, log_d, _, log):
    predicted, slopes = _terms(theta, log_n, log_d)
    return slopes / predicted[:, None] if log else slopes


def _huber_loss(size, delta):
    """Huber's loss of each residual, from its absolute value."""
    return np.where(size <= delta, size**2 / 2, delta * (size - delta / 2))


@formula
def huber(residuals: Number, delta: Number = DELTA) -> Number:
    """Sum of Huber's loss, along the last axis.

    Equation:
        r^2/2 within delta of zero, delta (|r| - delta/2) beyond.

    Args:
        residuals: r (array).
        delta: the threshold.

    Example:
        >>> import numpy
        >>> float(huber(numpy.array([1.0, 3.0]), delta=2.0))
        4.5
    """
    return np.sum(_huber_loss(np.abs(residuals), delta), axis=-1)


def _starts(log_n, log_d, y, log, cost):
    """The best cells of a coarse exponent grid as full parameter vectors, by the objective that will be minimised."""
    alphas, betas = _grid(np.geomspace(*START_EXPONENTS))
    linear, _ = _projections(log_n, log_d, y, alphas, betas, 1 / y if log else None)
    linear = np.where(linear > 0, linear, 1e-3 * y.min())  # the search needs logarithms of the coefficients
    thetas = np.stack([linear[:, 0], np.log(linear[:, 1]), alphas, np.log(linear[:, 2]), betas], axis=1)
    of_n = np.exp(thetas[:, 1:2] - np.outer(alphas, log_n))
    predicted = thetas[:, :1] + of_n + np.exp(thetas[:, 3:4] - np.outer(betas, log_d))
    costs = cost(np.log(predicted / y) if log else predicted - y)
    return thetas[np.argsort(costs)[:STARTS]]


def _fit(runs, log, delta, lowest):
    n, d, y = _arrays(runs)
    data = (*_centred(n, d), y, log)
    cost = partial(huber, delta=delta)
    how = {"loss": "huber", "f_scale": delta} if np.isfinite(delta) else {}
    bounds = ([lowest, -30, 1e-4, -30, 1e-4], [np.inf, 30, 5, 30, 5])
    ends = [
        optimize.least_squares(_residuals, start, _jacobian, bounds, args=data, x_scale="jac", xtol=1e-14, ftol=1e-14, gtol=1e-14, **how)
        for start in _starts(*data, cost)
    ]
    best = min(ends, key=lambda end: end.cost)
    return Fit(_law(best.x, n, d), float(cost(best.fun)))


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
def fit(runs: Sequence[TrainingRun], delta: Number = DELTA) -> Fit:
    """The scaling law fitted to runs by Chinchilla's objective: Huber's loss on the difference of log losses, E >= 0, no start
    asked of the user.

    Equation:
        min sum huber_delta(log L(N, D) - log L); an infinite delta makes it least squares on log loss.

    Args:
        runs: TrainingRuns.
        delta: the threshold.

    Returns:
        Fit.

    Source:
        hoffmann2022chinchilla, section 3.3.

    Example:
        >>> from workloads.learning.scaling import training_runs
        >>> round(fit(training_runs("fit")).law.beta, 3)
        0.446
    """
    if delta != np.inf:
        positive(delta, "delta")
    return _fit(runs, True, delta, 0)


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

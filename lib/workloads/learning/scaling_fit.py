"""Fitting L(N, D) = E + A/N^alpha + B/D^beta to training runs by Huber's loss on log losses.

For fixed exponents the law is linear in E, A and B, so a grid over (alpha, beta) with three linear unknowns (variable projection)
finds a start without any guess. The refinement is `scipy.optimize.least_squares` with the exact Jacobian. Inside, log N and
log D are centred and the unknowns are (E, a, alpha, b, beta) with A and B as e^a and e^b at the centre: otherwise a and alpha
(b and beta) are almost the same direction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from ..checks import formula, positive
from ..numeric import Number, library
from .scaling import ScalingLaw, TrainingRun

np, optimize = library("numpy", "fit"), library("scipy.optimize", "fit")
START_EXPONENTS = 0.02, 1.2, 24  # from, to, how many, each the same factor above the one before
DELTA = 1e-3  # Huber threshold on log loss, as in hoffmann2022chinchilla
STARTS = 3  # cells of the start grid that are refined


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

"""Speed of the scaling-law fit against the published replication's method, timed in the same run. No test: run as a script.

    python tests/bench_scaling.py [runs.csv]

The published method (Besiroglu et al. 2024, notebook of epoch-research/analyzing-chinchilla): 4,500 starts on a grid, each refined
by L-BFGS-B with a numeric gradient; 4,000 bootstrap resamples, each refined by BFGS from the full fit. Some of its starts and
resamples are timed and scaled up. Without a file the runs are 240 made from the refitted law; with one, columns "Model Size",
"Training FLOP" and "loss" are read and the five largest losses dropped, as the notebook does.
"""

import itertools
import math
import statistics
import sys
import time
from dataclasses import astuple

import numpy as np
from scipy.optimize import minimize

from workloads.learning import scaling, scaling_fit
from workloads_book.studies import scaling_evidence

STARTS, RESAMPLES, SEED = 150, 40, 42


def objective(theta, log_n, log_d, log_y):
    a, b, e, alpha, beta = theta
    terms = np.stack([a - alpha * log_n, b - beta * log_d, np.full_like(log_n, e)])
    top = terms.max(axis=0)
    return scaling_fit.huber(top + np.log(np.exp(terms - top).sum(axis=0)) - log_y)


def published_grid():
    exponents = np.arange(0, 2.5, 0.5)
    return list(itertools.product(range(0, 30, 5), range(0, 30, 5), np.arange(-1, 1.5, 0.5), exponents, exponents))


def made_runs():
    draw, law = np.random.default_rng(SEED), scaling.published_laws()["chinchilla-refit"]
    n, d = np.exp(draw.uniform(np.log(4e7), np.log(1.7e10), 240)), np.exp(draw.uniform(np.log(2e8), np.log(1e12), 240))
    y = scaling.loss(law, n, d) * np.exp(0.006 * draw.standard_t(3, 240))
    return [scaling.TrainingRun("made", *row, "file") for row in zip(n, d, y)]


def file_runs(path):
    with open(path, encoding="utf-8") as lines:
        return sorted(scaling.read_runs(lines, "Model Size", "loss", flops="Training FLOP"), key=lambda run: run.loss)[:-5]


def timed(work):
    start = time.perf_counter()
    return work(), time.perf_counter() - start


def benches(path=None):
    """(what, seconds of the published method, seconds here, sign, goal of their ratio, note) of the fit and of the bootstrap."""
    runs = file_runs(path) if path else made_runs()
    n, d, y = (np.array([getattr(r, name) for r in runs], float) for name in ("parameters", "tokens", "loss"))
    data = np.log(n), np.log(d), np.log(y)
    grid = published_grid()
    chosen = [grid[i] for i in np.random.default_rng(0).choice(len(grid), STARTS, replace=False)]
    best, grid_seconds = timed(lambda: min((minimize(objective, s, args=data, method="L-BFGS-B") for s in chosen), key=lambda end: end.fun))
    fit, _ = timed(lambda: scaling_fit.fit(runs))
    fit_seconds = statistics.median(timed(lambda: scaling_fit.fit(runs))[1] for _ in range(5))
    note = f"objective {fit.objective:.16f}, {'not worse' if fit.objective <= best.fun + 1e-15 else 'WORSE'} than {best.fun:.13f}"
    what = f"published grid of {len(grid):,} starts over the fit here, {len(runs)} runs"
    yield what, grid_seconds * len(grid) / STARTS, fit_seconds, ">=", 1000, note

    law = fit.law
    start = [math.log(law.A), math.log(law.B), math.log(law.E), law.alpha, law.beta]
    counts = np.random.default_rng(SEED).multinomial(len(n), np.full(len(n), 1 / len(n)), size=4000)

    def one_by_one():
        return [minimize(objective, start, args=tuple(x.repeat(c) for x in data), method="BFGS").fun for c in counts[:RESAMPLES]]

    theirs, loop_seconds = timed(one_by_one)
    samples, seconds = timed(lambda: scaling_evidence.bootstrap(runs, fit, 4000, SEED))
    ours = [
        objective((math.log(s[1]), math.log(s[3]), math.log(s[0]), s[2], s[4]), *(x.repeat(c) for x in data))
        for s, c in zip(samples, counts[:RESAMPLES])
    ]
    names, spread = ("E", "A", "alpha", "B", "beta"), samples.std(axis=0)
    errors = ", ".join(
        f"{name} {value:.5g} (standard error {error:.4g}, 95% {low:.5g} .. {high:.5g})"
        for name, value, error, low, high in zip(names, astuple(law), spread, *scaling_evidence.interval(samples))
    )
    note = f"largest excess of the objective {max(a - b for a, b in zip(ours, theirs)):.1e}; {errors}"
    yield "4,000 resamples one by one over all at once", loop_seconds * 4000 / RESAMPLES, seconds, ">=", 40, note


if __name__ == "__main__":
    for what, above, below, sign, goal, note in benches(*sys.argv[1:2]):
        print(f"{what}: {above:.1f} s over {below:.4f} s = {above / below:,.0f} (goal {sign} {goal}); {note}")

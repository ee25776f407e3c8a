"""Shares of peak and bandwidth fitted to a measured run, and how far the simulator is from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import inf, log

from workloads.checks import finite, formula, one_of, positive, some
from workloads.numeric import Number
from workloads.serving.arrivals import Arrival
from workloads.serving.engine import Engine, Run
from workloads.serving.simulation import serve
from workloads.serving.step_seconds import StepTime
from workloads.units import Seconds, Share


@formula
def relative_errors(run: Run, measured: Mapping[str, Seconds]) -> dict[str, Number]:
    """Predicted over measured minus 1, for each measured time, as a dict (dimensionless).

    Args:
        run: a `Run`.
        measured: times (s) by their names in `Run.p95_times`, all of them or some.

    Raises:
        ValueError: for an unknown name and for a measured time that is not above 0.

    Example:
        >>> from workloads.serving.engine import Served
        >>> run = Run((Served(0.0, 0.5, 1.0, 3.0, prompt=8, output=2, preemptions=0),), steps=2, events=2, timeline=())
        >>> relative_errors(run, {"request_p95": 2, "makespan": 4})
        {'request_p95': 0.5, 'makespan': -0.25}
    """
    predicted = run.p95_times()
    return {
        one_of(name, "measured", tuple(predicted)): predicted[name] / positive(seconds, name, "s") - 1
        for name, seconds in some(measured.items(), "measured", "time")
    }


@formula
def calibrate(
    engine: Engine, step_time: StepTime, observations: Sequence[tuple[Sequence[Arrival], Mapping[str, Seconds]]], factors: Number = 2
) -> StepTime:
    """Step time whose MFU and MBU fit observed times best: least squares of the logarithms.

    Args:
        engine: an `Engine`.
        step_time: the `StepTime` whose shares are replaced.
        observations: (load, measured times as in `relative_errors`) pairs.
        factors: 1: one share for both; 2: two.

    Returns:
        StepTime: Searched on grids, each finer and around the best point of the one before, down to 0.001: the schedule
            is chaotic, so neither a gradient nor a finer share means anything. Two shares trade against each other
            along a valley that four times of one load hardly close; check them against times of single steps.

    Raises:
        ValueError: without observations, or where every share predicts a time of 0.
    """
    one_of(factors, "factors", (1, 2))
    observations, known = some(observations, "observations", "load with its measurement"), {}

    def misfit(shares: Sequence[Share]) -> Number:
        if shares not in known:
            tried = _reaching(step_time, shares)
            errors = [e for load, measured in observations for e in relative_errors(serve(load, engine, tried), measured).values()]
            known[shares] = sum(log(1 + e) ** 2 if e > -1 else inf for e in errors)  # a predicted time of 0
        return known[shares]

    best = (0.5,) * factors
    # a coarse grid sees all of (0, 1]; each finer one reaches past the mesh before it, since the schedule makes the misfit ragged
    for mesh, reach in ((0.1, 5), (0.025, 3), (0.006, 3), (0.001, 3)):
        axes = [[share for i in range(-reach, reach + 1) if 0 < (share := round(b + mesh * i, 3)) <= 1] for b in best]
        best = min(product(*axes), key=misfit)
    finite(misfit(best), "least misfit (a predicted time is 0 with all shares)")
    return _reaching(step_time, best)


def _reaching(step_time, shares):
    return replace(step_time, machine=step_time.machine.reaching(shares[0], shares[-1]))

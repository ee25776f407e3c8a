"""Measure, calibrate, predict: ``python -m workloads_book.calibrate LOG.jsonl --model NAME --accelerator NAME [--cards N]``.

From a request log of an engine (arrival, tokens, first and last token) to three constants of its steps, each with an interval, and with
``--predict LOAD`` on to a load that was not run, with a warning where that leaves what was measured. All else is counted, a fact, or one of
the constants of `experiments`: what tensor parallelism adds, what attention reads at most, the way to the engine.

The fit is Gauss-Newton on the logarithms of each request's TTFT (at half weight) and token interval, a large miss counted linearly.
Intervals are from draws of runs of neighbouring requests, since those that queue together miss together, and of the last rounds: a
small change of a constant makes another schedule.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from math import exp, log
from random import Random

import numpy as np

from workloads.checks import fraction, keep, positive, some
from workloads.facts.accelerators import accelerator
from workloads.facts.formats import BF16
from workloads.serving.arrivals import Arrival
from workloads.serving.engine import Engine
from workloads.serving.latency_metrics import nearest_rank
from workloads.serving.simulation import serve
from workloads.serving.step_seconds import StepTime
from workloads.units import Count, Seconds, Share

from . import experiments
from .traces_of_others import Logged, load_of, logged

ROUNDS, SETTLED, STEP, KNEE, DRAWS, TOGETHER = 12, 4, 0.1, 0.1, 400, 10
LEAST = 20  # requests
SLACK = 1.05  # a load may leave the measured range by a twentieth without a warning


@dataclass(frozen=True)
class Steps:
    """What is fitted.

    Attributes:
        mfu: share of the peak.
        reads: share of the memory bandwidth that the cache is read with, and the weights too where attention has no
            limit of its own among the constants of `experiments` (where it has one, weights are read as they say there:
            in a step that reads all of them, their time cannot be told from a fixed one).
        layer: fixed time of a layer in a step (s).
    """

    mfu: Share
    reads: Share
    layer: Seconds

    def __post_init__(self):
        keep(self, fraction, "", "mfu", "reads")
        keep(self, positive, "s", "layer")


@dataclass(frozen=True)
class Served:
    """An engine on a machine.

    Attributes:
        model: its name.
        card: name of the accelerator.
        cards: that share the model.
        engine: an `Engine`.
    """

    model: str
    card: str
    cards: Count
    engine: Engine

    def cost(self, steps: Steps) -> StepTime:
        """Time of a step.

        Args:
            steps: the constants.
        """
        made = self._known(steps.layer)
        if (beside := made.beside).cache_rate is None:
            return replace(made, machine=replace(made.machine, mfu=steps.mfu, mbu=steps.reads))
        rate = steps.reads * made.machine.bandwidth
        return replace(made, machine=replace(made.machine, mfu=steps.mfu), beside=replace(beside, cache_rate=rate))

    def _known(self, layer):
        shape, card, known = experiments.shape(self.model), accelerator(self.card), experiments.constants()
        return experiments._cost(shape, card, self.cards, BF16, replace(known, layer=layer))

    def start(self) -> Steps:
        """The constants of other machines, from which a fit starts."""
        made = self._known(layer := experiments.constants().layer)
        rate = made.beside.cache_rate
        return Steps(made.machine.mfu, made.machine.mbu if rate is None else rate / made.machine.bandwidth, layer)


def served(model: str, card: str, cards: Count = 1, blocks: Count | None = None, seats: Count = 128, budget: Count = 2048) -> Served:
    """An engine with the settings that it was started with.

    Args:
        model: its name.
        card: name of the accelerator.
        cards: that share the model.
        blocks: of KV (left out: what nine tenths of the memory leave).
        seats: most requests that run.
        budget: tokens of a step.

    Example:
        >>> served("Qwen3-8B", "H100 SXM").engine.blocks > 20_000
        True
    """
    if blocks is None:
        row = {"kv_blocks": "", "kv_source": "", "gpu_mem_util": "", "tp": str(cards)}
        blocks = experiments._blocks(row, experiments.shape(model), accelerator(card), BF16)
    host = experiments.constants().host
    engine = Engine(blocks, 16, budget, seats, max_model_len=10**6, planned_ahead=True, host_seconds=host)
    return Served(model, card, cards, engine)


def _times(requests):
    """Logarithms from (arrival, first, last, output) of each: the mean TTFT of neighbours at half weight, since one alone depends on
    where in a step it arrives; the token interval (0 for a single token).
    """
    ttft = [first - arrival for arrival, first, _, _ in requests]
    means = [sum(near) / len(near) for i in range(0, len(ttft), TOGETHER) for near in [ttft[i : i + TOGETHER]] for _ in near]
    gaps = [log((last - first) / (output - 1)) if output > 1 else 0.0 for _, first, last, output in requests]
    return np.stack([0.5 * np.log(means), gaps], axis=-1)


def _run(load, at, values):
    return [(r.arrival, r.first, r.last, r.output) for r in serve(load, at.engine, at.cost(Steps(*values))).requests]


def _inside(values):
    return tuple(min(1.0, v) for v in values[:2]) + tuple(values[2:])


def _change(misses, slopes, rows):
    """Change of the logarithms of the constants that fits so many requests best."""
    r, j = misses[rows].ravel(), slopes[rows].reshape(-1, slopes.shape[-1])
    change = np.zeros(j.shape[1])
    for _ in range(20):
        weight = 1 / np.sqrt(1 + ((r + j @ change) / KNEE) ** 2)
        change = -np.linalg.solve((j.T * weight) @ j + 1e-6 * np.eye(len(change)), (j.T * weight) @ r)
    return np.clip(change, -0.7, 0.7)


def fitted(rows: Sequence[Logged], at: Served, seed: Count = 1) -> tuple[Steps, list[Steps]]:
    """Constants that fit a log best, and draws of them.

    Args:
        rows: of `traces_of_others.logged`.
        at: what was measured.
        seed: of the draws.

    Raises:
        ValueError: for a log of too few requests, or without the times of first and last tokens.

    Example:
        >>> fitted([], served("Qwen3-8B", "H100 SXM"))
        Traceback (most recent call last):
        ...
        ValueError: log must hold at least 20 requests, got 0
    """
    if len(rows) < LEAST:
        raise ValueError(f"log must hold at least {LEAST} requests, got {len(rows)}")
    for place, row in enumerate(rows, 1):
        if row.first is None or row.last is None or not row.arrival.time < row.first:
            raise ValueError(f"request {place} of the log must have a first token after its arrival and a last one, got {row!r}")
        if row.arrival.request.output > 1 and not row.first < row.last:
            raise ValueError(f"request {place} of the log must have its last token after its first, got {row.last!r}")
    load = [row.arrival for row in rows]
    truth = _times([(r.arrival.time, r.first, r.last, r.arrival.request.output) for r in rows])
    values: tuple = astuple(at.start())
    everyone, rounds = np.arange(len(rows)), []
    for _ in range(ROUNDS):
        here = _times(_run(load, at, values)) - truth
        # far apart and on both sides: a small change of a constant moves what meets in a step more than it moves the times
        moved = [[_inside([v * exp(s * STEP * (k == i)) for k, v in enumerate(values)]) for s in (1, -1)] for i in range(len(values))]
        wide = [log(up[i] / down[i]) for i, (up, down) in enumerate(moved)]
        ends = [[_times(_run(load, at, end)) for end in pair] for pair in moved]
        slopes = np.stack([(up - down) / w for (up, down), w in zip(ends, wide)], axis=-1)
        rounds.append((np.log(values), here, slopes))
        values = _inside(np.exp(np.log(values) + _change(here, slopes, everyone)).tolist())
    rounds = rounds[SETTLED:]  # around the best point, each with another schedule: their mean is better than any one of them
    at_best = np.mean([start + _change(here, slopes, everyone) for start, here, slopes in rounds], axis=0)
    draw, groups, draws = Random(seed), [everyone[i : i + TOGETHER] for i in range(0, len(rows), TOGETHER)], []
    for _ in range(DRAWS):
        picked, (start, here, slopes) = np.concatenate(draw.choices(groups, k=len(groups))), draw.choice(rounds)
        draws.append(Steps(*_inside(np.exp(start + _change(here, slopes, picked)).tolist())))
    return Steps(*_inside(np.exp(at_best).tolist())), draws


def summary(requests: Sequence[tuple]) -> dict[str, Seconds]:
    """Makespan, and the middle and the 95th percentile of TTFT and token interval (s).

    Args:
        requests: (arrival, first token, last token, output tokens) of each.

    Example:
        >>> summary([(0.0, 1.0, 4.0, 4)])["interval_p50"]
        1.0
    """
    some(requests, "requests", "request")
    gaps = [(last - first) / max(1, output - 1) for _, first, last, output in requests]
    first = [f - a for a, f, _, _ in requests]
    found = {"makespan": max(r[2] for r in requests) - requests[0][0]}
    for name, values in (("ttft", first), ("interval", gaps)):
        found |= {f"{name}_p{p}": nearest_rank(values, p / 100) for p in (50, 95)}
    return found


def ranges(load: Sequence[Arrival], requests: Sequence[tuple]) -> dict[str, tuple]:
    """Least and most of what a load asks of an engine: lengths, and requests that are there at once.

    Args:
        load: its arrivals.
        requests: as for `summary`.

    Example:
        >>> from workloads.counts.request_tokens import Request
        >>> ranges([Arrival(0.0, Request(9, 5))], [(0.0, 1.0, 1.5, 5)])
        {'input tokens': (9, 9), 'output tokens': (5, 5), 'requests at once': (1, 1)}
    """
    events = sorted([(a, 1) for a, _, _, _ in requests] + [(last, -1) for _, _, last, _ in requests])
    here, most = 0, 0
    for _, change in events:
        here += change
        most = max(most, here)
    lengths = {"input tokens": [a.request.past + a.request.new for a in load], "output tokens": [a.request.output for a in load]}
    return {name: (min(v), max(v)) for name, v in lengths.items()} | {"requests at once": (1, most)}


def beyond(measured: Mapping[str, tuple], asked: Mapping[str, tuple]) -> list[str]:
    """Warnings where a load leaves the measured range.

    Args:
        measured: of `ranges`.
        asked: the same of the load to predict.

    Example:
        >>> beyond({"input tokens": (10, 90)}, {"input tokens": (20, 500)})
        ['warning: input tokens from 20 to 500, measured from 10 to 90: outside, the prediction is a guess']
    """
    found = []
    for name, (low, high) in asked.items():
        least, most = measured[name]
        if low < least / SLACK or high > most * SLACK:
            found.append(f"warning: {name} from {low} to {high}, measured from {least} to {most}: outside, the prediction is a guess")
    return found


def lines(rows: Sequence[Logged], at: Served, load: Sequence[Arrival] | None = None) -> list[str]:
    """What is printed: constants with 95% intervals, the log as it was measured and as it is replayed, and a prediction.

    Args:
        rows: of the log.
        at: what was measured.
        load: to predict.

    Example:
        >>> from workloads.counts.request_tokens import Request
        >>> log = [Logged(Arrival(i, Request(100 + i, 9)), i + 0.05, i + 0.2) for i in range(20)]
        >>> lines(log, served("Qwen3-8B", "H100 SXM"))[0].split()
        ['constant', 'value', 'low', 'high']
    """
    best, draws = fitted(rows, at)
    out = ["constant\tvalue\tlow\thigh"]
    ends = [sorted(column) for column in zip(*map(astuple, draws))]
    for name, value, column in zip(vars(best), astuple(best), ends):
        out.append(f"{name}\t{value:.4g}\t{column[DRAWS // 40]:.4g}\t{column[-1 - DRAWS // 40]:.4g}")
    truth = [(r.arrival.time, r.first, r.last, r.arrival.request.output) for r in rows]
    logs = [r.arrival for r in rows]
    out += ["", "the log (s)\tmeasured\treplayed"]
    replayed = summary(_run(logs, at, astuple(best)))
    out += [f"{name}\t{value:.4g}\t{replayed[name]:.4g}" for name, value in summary(truth).items()]
    if load is not None:
        run = _run(load, at, astuple(best))
        tries = [summary(_run(load, at, astuple(steps))) for steps in draws[:40]]
        out += ["", "the load (s)\tpredicted\tlow\thigh"]
        for name, value in summary(run).items():
            values = sorted(t[name] for t in tries)
            out.append(f"{name}\t{value:.4g}\t{values[1]:.4g}\t{values[-2]:.4g}")
        out += beyond(ranges(logs, truth), ranges(load, run))
    return out


def _main(arguments):
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m workloads_book.calibrate", description="constants of an engine from its request log")
    parser.add_argument("log", help="requests with arrival, tokens, first and last token")
    parser.add_argument("--model", required=True)
    parser.add_argument("--accelerator", required=True)
    parser.add_argument("--cards", type=int, default=1)
    parser.add_argument("--blocks", type=int, help="of KV, as the engine reports them")
    parser.add_argument("--seats", type=int, default=128, help="most requests that run")
    parser.add_argument("--budget", type=int, default=2048, help="tokens of a step")
    parser.add_argument("--predict", metavar="LOAD", help="a load that was not run")
    given = parser.parse_args(arguments)
    try:
        at = served(given.model, given.accelerator, given.cards, given.blocks, given.seats, given.budget)
        found = lines(logged(given.log), at, load_of(given.predict) if given.predict else None)
    except (ValueError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write("\n".join(found) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))

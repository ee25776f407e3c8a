"""Fit of the six constants of `experiments` to measured experiments, tested on experiments that a fit has not seen.

``python tests/fit_experiments.py FILE.tsv FOLDER`` reads the measured columns too and writes into the folder the constants
with their intervals, the predictions of experiments that were left out, errors and rankings. Near-repeats of one experiment are in one
fold, so that none is tested by its twin.

The fit is Gauss-Newton on the logarithms: of the token interval, and at half weight of TTFT (its queues are chaotic), with large misses
held to a linear weight. Rows that are overloaded are no part of the fit, but of the test. A fold's own constants come from the
derivatives at the fit to all, its predictions from the simulator; so do the intervals, from draws of whole groups.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Mapping, Sequence
from dataclasses import astuple, fields
from itertools import combinations
from math import exp, log
from random import Random
from statistics import fmean, median

import numpy as np

from workloads_book.experiments import PREDICTED, Constants, constants, predicted, rows_of

MEASURED = ("ttft_mean_ms", "itl_def_mean_ms", "e2e_mean_ms")
TWINS = (("16", "22", "23", "24", "25"), ("9", "28", "29", "30", "56"))
SATURATED = 5500  # tokens/s: more than 128 seats give at steps of 23 ms
FOLDS, MOST, STEP, KNEE, DRAWS = 8, 400, 0.02, 0.05, 2000
METRICS = ("ttft", "token interval", "request time")
PEERS = "2 6 9 11 13 15 16 18 22 23 24 25 28 29 30 36 40 49 50 53 54 56 57 58 59".split()


def table(name: str) -> tuple[dict[str, list], dict[tuple, tuple]]:
    """Experiments of a file by id, their inputs alone; and what was measured, by id and stage."""
    with open(name, encoding="utf-8", newline="") as file:
        text = file.read().splitlines()
    experiments: dict[str, list] = {}
    for row in rows_of(text):
        experiments.setdefault(row["id"], []).append(row)
    measured = {(r["id"], r["stage"]): tuple(float(r[m]) for m in MEASURED) for r in csv.DictReader(text, delimiter="\t")}
    return experiments, measured


def groups(ids: Sequence[str]) -> list[list[str]]:
    """Ids in groups that belong together: near-repeats, and each other one by itself.

    Args:
        ids: of experiments.

    Example:
        >>> groups(["2", "16", "22", "9"])
        [['2'], ['16', '22'], ['9']]
    """
    found: dict[object, list] = {}
    for name in ids:
        found.setdefault(next((twins for twins in TWINS if name in twins), name), []).append(name)
    return list(found.values())


def folds(ids: Sequence[str], seed: int = 1) -> list[list[str]]:
    """The groups dealt out to FOLDS folds."""
    dealt = groups(ids)
    Random(seed).shuffle(dealt)
    return [sorted(name for group in dealt[i::FOLDS] for name in group) for i in range(FOLDS)]


def _logs(experiments, measured, ids, values):
    """Logarithms of predicted over measured: at half weight TTFT, then token interval, of the stages of each id."""
    out = {}
    for name in ids:
        found = predicted(experiments[name], Constants(*map(exp, values)), most=MOST)
        rows = [r["stage"] for r in experiments[name] if r["rate_rps"]]
        out[name] = [w * log(found[s][i] / measured[name, s][i]) for s in rows for i, w in ((0, 0.5), (1, 1.0))]
    return out


def _solved(residuals, slopes, ids):
    """Change of the logarithms of the constants that fits the ids best; a miss beyond the knee counts linearly."""
    r = np.array([x for name in ids for x in residuals[name]])
    j = np.array([row for name in ids for row in slopes[name]])
    change = np.zeros(j.shape[1])
    for _ in range(30):
        miss = r + j @ change
        weight = 1 / np.sqrt(1 + (miss / KNEE) ** 2)
        left = (j * weight[:, None]).T @ j + 1e-6 * np.eye(j.shape[1])
        change = np.linalg.solve(left, -(j * weight[:, None]).T @ r)
    return change


def derivatives(experiments: Mapping, measured: Mapping, ids: Sequence[str], start: Constants) -> tuple:
    """Residuals of the ids at some constants, and their slopes in the logarithm of each constant."""
    at = [log(value) for value in astuple(start)]
    here, moved = _logs(experiments, measured, ids, at), []
    for i in range(len(at)):
        there = _logs(experiments, measured, ids, [v + STEP * (k == i) for k, v in enumerate(at)])
        moved.append({name: [(b - a) / STEP for a, b in zip(here[name], there[name])] for name in ids})
    return here, {name: list(zip(*(m[name] for m in moved))) for name in ids}


def fitted(experiments: Mapping, measured: Mapping, ids: Sequence[str], start: Constants, rounds: int = 3) -> Constants:
    """Constants that fit the ids best, from a start."""
    for _ in range(rounds):
        start = _moved(start, _solved(*derivatives(experiments, measured, ids, start), ids))
    return start


def _moved(start, change):
    return Constants(*(value * exp(min(0.5, max(-0.5, c))) for value, c in zip(astuple(start), change)))


def errors(found: Mapping[tuple, tuple], measured: Mapping[tuple, tuple], ids: Sequence[str]) -> list[tuple]:
    """Mean and median absolute percentage error of the summary rows of some ids: TTFT, token interval, time."""
    out = []
    for i in range(3):
        misses = [100 * abs(found[name, "summary"][i] / measured[name, "summary"][i] - 1) for name in ids]
        out.append((fmean(misses), median(misses)))
    return out


def ranking(found: Mapping[tuple, tuple], measured: Mapping[tuple, tuple], ids: Sequence[str], apart: float = 0.02) -> list[tuple]:
    """Pairs of experiments that are ordered as measured, of all pairs that noise does not blur, and Kendall's tau of them."""
    out = []
    for i in range(3):
        right = pairs = 0
        for a, b in combinations(ids, 2):
            truth = log(measured[a, "summary"][i] / measured[b, "summary"][i])
            if abs(truth) > apart:
                pairs, right = pairs + 1, right + (truth * log(found[a, "summary"][i] / found[b, "summary"][i]) > 0)
        out.append((right, pairs, 2 * right / pairs - 1))
    return out


def left_out(experiments: Mapping, measured: Mapping, best: Constants, calm: Sequence[str]) -> tuple[list, list]:
    """Predictions of every experiment by constants that were fitted without its fold: rows of a table; 2,000 draws of the
    constants, from whole groups."""
    residuals, slopes = derivatives(experiments, measured, calm, best)
    change, draw, dealt, rows = _solved(residuals, slopes, calm), Random(1), groups(calm), []
    moved = lambda ids: _moved(best, _solved(residuals, slopes, ids) - change)
    draws = [astuple(moved([n for g in draw.choices(dealt, k=len(dealt)) for n in g])) for _ in range(DRAWS)]
    for number, fold in enumerate(folds(list(experiments)), 1):
        kept = moved([name for name in calm if name not in fold])
        for name in fold:
            given, out = (predicted(experiments[name], values) for values in (best, kept))
            for row in experiments[name]:
                stage = row["stage"]
                rows.append((name, stage, number, *(f"{v:.3f}" for v in out[stage][:3] + given[stage][:3]), out[stage][3]))
    return rows, draws


def _write(folder, name, header, rows):
    with open(f"{folder}/{name}.tsv", "w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter="\t", lineterminator="\n").writerows([header, *rows])


def scores(rows: Sequence[Sequence], measured: Mapping, sets: Mapping[str, Sequence[str]]) -> tuple[list, list]:
    """Errors and rankings of the rows of `left_out`, left out and given, over sets of ids."""
    missed, ranked = [], []
    for first, how in ((3, "left out"), (6, "given")):
        found = {(row[0], row[1]): tuple(map(float, row[first : first + 3])) for row in rows}
        for title, ids in sets.items():
            for metric, (mean, middle) in zip(METRICS, errors(found, measured, ids)):
                missed.append(("this simulator", f"{title}, {how}", metric, len(ids), f"{mean:.2f}", f"{middle:.2f}"))
            for metric, (right, pairs, tau) in zip(METRICS, ranking(found, measured, ids)):
                ranked.append((f"{title}, {how}", metric, right, pairs, f"{tau:.3f}"))
    return missed, ranked


def main(arguments: Sequence[str]) -> int:
    """The command."""
    (experiments, measured), folder = table(arguments[0]), arguments[1]
    asked = lambda r: float(r["rate_rps"] or 0) * float(r["output_tokens_requested"])
    calm = [name for name, rows in experiments.items() if max(map(asked, rows)) < SATURATED]  # the fit leaves others out, the test does not
    best = fitted(experiments, measured, calm, constants(), int((*arguments, 3)[2]))
    rows, draws = left_out(experiments, measured, best, calm)
    ends = [sorted(column) for column in zip(*draws)]
    kept = zip(fields(best), astuple(best), ends)
    _write(
        folder,
        "constants",
        ("constant", "value", "low", "high"),
        [(f.name, f"{v:.4g}", f"{e[50]:.4g}", f"{e[-51]:.4g}") for f, v, e in kept],
    )
    _write(folder, "experiments", ("id", "stage", "fold", *PREDICTED, *(f"given_{p}" for p in PREDICTED), "why"), rows)
    sets = {"all": list(experiments), "not overloaded": calm, "overloaded": [n for n in experiments if n not in calm]}
    sets["mixtures of experts"] = [n for n in calm if "mixtral" in (m := experiments[n][0]["model"].lower()) or "scout" in m]
    sets["of the 25 that the peers were scored on"] = [n for n in experiments if n in PEERS]
    missed, ranked = scores(rows, measured, sets)
    _write(folder, "errors", ("tool", "on", "metric", "experiments", "mean_percent", "median_percent"), missed)
    _write(folder, "ranking", ("on", "metric", "right", "pairs", "tau"), ranked)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

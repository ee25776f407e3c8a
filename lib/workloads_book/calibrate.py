"""Measure, calibrate, predict: ``python -m workloads_book.calibrate LOG.jsonl --model NAME --accelerator NAME [--cards N]``.

From a request log of an engine (arrival, tokens, first and last token) to constants of its steps, each with an interval, and with
``--predict LOAD`` on to a load that was not run, with a warning where that leaves what was measured. With ``--until SECONDS`` only the
beginning of the log is read, and what came later is predicted beside it. All else is counted, a fact, or one of the constants of
`experiments`: what tensor parallelism adds, what attention reads at most, the way to the engine.

The fit is Gauss-Newton on the logarithms of each request's TTFT (at half weight) and token interval, a large miss counted linearly.
Intervals are from draws of runs of neighbouring requests, since those that queue together miss together, of the last rounds, since a
small change of a constant makes another schedule, of the constants that stay as on other machines, within their doubt, and of anything
at all where the log does not tell: such a constant has a wide interval, not a narrow one around where the fit began.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, exp, inf, log
from random import Random
from typing import Any

import numpy as np

from workloads.checks import finite, fraction, keep, one_of, positive, some, whole
from workloads.facts.accelerators import accelerator
from workloads.facts.formats import BF16
from workloads.numeric import Number
from workloads.serving.arrivals import Arrival
from workloads.serving.engine import Engine
from workloads.serving.latency_metrics import nearest_rank
from workloads.serving.simulation import serve
from workloads.serving.step_seconds import StepTime
from workloads.units import BytesPerSecond, Count, Seconds, Share

from . import experiments
from .traces_of_others import Logged, load_of, logged

NAMES = ("mfu", "reads", "layer", "link")
ROUNDS, SETTLED, STEP, KNEE, DRAWS, TOGETHER, MOST = 12, 4, 0.1, 0.1, 400, 10, 0.7
LEAST = 20  # requests
SLOW, WIDE = 25e9, 3  # B/s: from where the fit of an unknown link starts; ends of an interval so far apart tell nothing
SHOWN = 0.25  # of a step for one token: a prompt that is shorter over the link does not show it
DOUBT = {"mfu": 0.1, "reads": 0.1, "layer": 0.25, "link": 0.25}  # how far one that is taken from other machines may be off (sd of its log)
SLACK = 1.05  # a load may leave the measured range by a twentieth without a warning


@dataclass(frozen=True)
class Steps:
    """Constants of an engine's steps.

    Attributes:
        mfu: share of the peak.
        reads: share of the memory bandwidth that the cache is read with, and the weights too where attention has no
            limit of its own among the constants of `experiments` (where it has one, weights are read as they say there:
            in a step that reads all of them, their time cannot be told from a fixed one).
        layer: fixed time of a layer in a step (s).
        link: rate at which a card sends the others what tensor parallelism asks for; None for one card (B/s).
    """

    mfu: Share
    reads: Share
    layer: Seconds
    link: BytesPerSecond | None = None

    def __post_init__(self):
        keep(self, fraction, "", "mfu", "reads")
        keep(self, positive, "s", "layer")
        keep(self, positive, "B/s", "link", unknown=True)


@dataclass(frozen=True)
class Served:
    """An engine on a machine.

    Attributes:
        model: its name.
        card: name of the accelerator.
        cards: that share the model.
        engine: an `Engine`.
        given: constants that are known better than from other machines, by name.
    """

    model: str
    card: str
    cards: Count
    engine: Engine
    given: Mapping[str, Number] = field(default_factory=dict)

    def __post_init__(self):
        for name in self.given:
            self.constant(name)

    def constant(self, name: str) -> str:
        """A name of a constant that this machine has.

        Args:
            name: of the constant.

        Raises:
            ValueError: for another name, and for the link of a single card.
        """
        if one_of(name, "constant", NAMES) == "link":
            whole(self.cards, "cards, for the rate of a link between them,", least=2)
        return name

    def cost(self, steps: Steps) -> StepTime:
        """Time of a step.

        Args:
            steps: the constants.
        """
        made = self._known(steps.layer, steps.link)
        if (beside := made.beside).cache_rate is None:
            return replace(made, machine=replace(made.machine, mfu=steps.mfu, mbu=steps.reads))
        rate = steps.reads * made.machine.bandwidth
        return replace(made, machine=replace(made.machine, mfu=steps.mfu), beside=replace(beside, cache_rate=rate))

    def _known(self, layer, link):
        shape, card, known = experiments.shape(self.model), accelerator(self.card), experiments.constants()
        return experiments._cost(shape, replace(card, links={"fast": link} if link else {}), self.cards, BF16, replace(known, layer=layer))

    def start(self) -> Steps:
        """The constants from which a fit starts: those that are given, and those of other machines."""
        links, layer = accelerator(self.card).links, experiments.constants().layer
        link = links.get("fast", links.get("pcie", 2 * SLOW) / 2)  # as in `experiments`: without a fast link over the host and back
        made = self._known(layer, link)
        rate = made.beside.cache_rate
        reads = made.machine.mbu if rate is None else rate / made.machine.bandwidth
        return replace(Steps(made.machine.mfu, reads, layer, link if self.cards > 1 else None), **self.given)

    @property
    def over_host(self) -> bool:
        """Whether cards share the model that have no fast link of their own: a way over the host is slower than any table says."""
        return self.cards > 1 and "fast" not in accelerator(self.card).links

    @property
    def unknown(self) -> tuple[str, ...]:
        """Names of the constants that a log is asked for: those that are not given. A prompt shows the arithmetic and the link as one
        sum: where the rate of the link is asked for, the share of the peak is not, nor is the fixed time.
        """
        asked = ("reads", "link") if self.over_host and "link" not in self.given else NAMES[:3]
        return tuple(name for name in asked if name not in self.given)


def served(
    model: str,
    card: str,
    cards: Count = 1,
    blocks: Count | None = None,
    seats: Count = 128,
    budget: Count = 2048,
    given: Mapping[str, Number] | None = None,
) -> Served:
    """An engine with the settings that it was started with.

    Args:
        model: its name.
        card: name of the accelerator.
        cards: that share the model.
        blocks: of KV (left out: what nine tenths of the memory leave).
        seats: most requests that run.
        budget: tokens of a step.
        given: constants that are known, by name.

    Example:
        >>> served("Qwen3-8B", "H100 SXM").engine.blocks > 20_000
        True
        >>> served("Qwen3-32B", "RTX PRO 6000 Blackwell Server", 2, given={"mfu": 0.6}).unknown
        ('reads', 'link')
    """
    if blocks is None:
        row = {"kv_blocks": "", "kv_source": "", "gpu_mem_util": "", "tp": str(cards)}
        blocks = experiments._blocks(row, experiments.shape(model), accelerator(card), BF16)
    host = experiments.constants().host
    engine = Engine(blocks, 16, budget, seats, max_model_len=10**6, planned_ahead=True, host_seconds=host)
    return Served(model, card, cards, engine, dict(given or {}))


def _times(requests, seen):
    """Logarithms from (arrival, first, last, output) of each request that is seen (whether its last token is, too): the mean TTFT of
    neighbours at half weight, since one alone depends on where in a step it arrives; the token interval (0 for a single token).
    """
    requests = [(requests[place], ended) for place, ended in seen]
    ttft = [first - arrival for (arrival, first, _, _), _ in requests]
    means = [sum(near) / len(near) for i in range(0, len(ttft), TOGETHER) for near in [ttft[i : i + TOGETHER]] for _ in near]
    gaps = [log((last - first) / (output - 1)) if ended and output > 1 else 0.0 for (_, first, last, output), ended in requests]
    return np.stack([0.5 * np.log(means), gaps], axis=-1)


def _run(load, at, steps):
    return [(r.arrival, r.first, r.last, r.output) for r in serve(load, at.engine, at.cost(steps)).requests]


def _with(steps, names, values):
    """Constants with some of them set: shares are at most 1."""
    return replace(steps, **{name: min(1.0, v) if name in NAMES[:2] else v for name, v in zip(names, map(float, values))})


def _change(misses, slopes, rows, hold=1e-6, toward=0.0):
    """Change of the logarithms of the constants that fits so many requests best; what they do not tell is held toward a value."""
    r, j = misses[rows].ravel(), slopes[rows].reshape(-1, slopes.shape[-1])
    change = np.zeros(j.shape[1])
    for _ in range(20):
        weight = 1 / np.sqrt(1 + ((r + j @ change) / KNEE) ** 2)
        change = np.linalg.solve((j.T * weight) @ j + hold * np.eye(len(change)), hold * toward - (j.T * weight) @ r)
    return np.clip(change, -MOST, MOST)


def _log(rows, until):
    """(arrival, first, last, output) of the requests that are there by a moment; which of them have a first token, and whether the last."""
    for place, row in enumerate(rows, 1):
        if row.first is None or row.last is None or not row.arrival.time < row.first:
            raise ValueError(f"request {place} of the log must have a first token after its arrival and a last one, got {row!r}")
        if row.arrival.request.output > 1 and not row.first < row.last:
            raise ValueError(f"request {place} of the log must have its last token after its first, got {row.last!r}")
    truth = [(r.arrival.time, r.first, r.last, r.arrival.request.output) for r in rows if r.arrival.time < until]
    seen = [(place, last <= until) for place, (_, first, last, _) in enumerate(truth) if first <= until]
    ended = sum(end for _, end in seen)
    if ended < LEAST:
        raise ValueError(f"log must hold at least {LEAST} requests{'' if until == inf else ' that end in time'}, got {ended}")
    return truth, seen


def _shows_link(load, at, names):
    """Refuses a log that cannot tell the rate of a link, by name."""
    if "mfu" in names:
        raise ValueError(f"constants to fit must not hold both mfu and link, whose times a prompt shows as one sum, got {', '.join(names)}")
    cost = at.cost(at.start())
    long = ceil(SHOWN * cost.seconds(1, 1, 0, 0, 1) / cost.beside.token)
    if (found := sum(a.request.new >= long for a in load)) < LEAST:
        raise ValueError(f"log must hold at least {LEAST} prompts of {long} tokens or more, which show the link, got {found}: give link")


def fitted(
    rows: Sequence[Logged], at: Served, seed: Count = 1, until: Seconds = inf, names: Sequence[str] | None = None
) -> tuple[Steps, list[Steps]]:
    """Constants that fit a log best, and draws of them.

    Args:
        rows: of `traces_of_others.logged`.
        at: what was measured.
        seed: of the draws.
        until: what is seen of the log: what came later is neither read nor played (s from the first arrival).
        names: of the constants that are fitted (left out: those that are `unknown`); the others stay where the fit starts.

    Raises:
        ValueError: for a log of too few requests, or without the times of first and last tokens, or one that cannot tell the rate of
            a link.

    Example:
        >>> fitted([], served("Qwen3-8B", "H100 SXM"))
        Traceback (most recent call last):
        ...
        ValueError: log must hold at least 20 requests, got 0
    """
    names = [at.constant(name) for name in some(at.unknown if names is None else names, "constants to fit", "name")]
    log_, seen = _log(rows, until)
    load = [row.arrival for row in rows if row.arrival.time < until]
    if "link" in names:
        _shows_link(load, at, names)
    truth, steps, everyone, rounds = _times(log_, seen), at.start(), np.arange(len(seen)), []
    kept = [name for name in NAMES[: 4 if at.over_host else 3] if name not in (*names, *at.given)]
    played, free = (lambda steps: _times(_run(load, at, steps), seen)), len(names)
    for _ in range(ROUNDS):
        values = np.array([getattr(steps, name) for name in names])
        here = played(steps) - truth
        # far apart and on both sides: a small change of a constant moves what meets in a step more than it moves the times
        moved = [[_with(steps, [name], [getattr(steps, name) * exp(s * STEP)]) for s in (1, -1)] for name in (*names, *kept)]
        wide = [log(getattr(up, name) / getattr(down, name)) for name, (up, down) in zip((*names, *kept), moved)]
        slopes = np.stack([(played(up) - played(down)) / w for (up, down), w in zip(moved, wide)], axis=-1)
        rounds.append((np.log(values), here, slopes[..., :free], slopes[..., free:]))
        steps = _with(steps, names, np.exp(np.log(values) + _change(here, slopes[..., :free], everyone)))
    rounds = rounds[SETTLED:]  # around the best point, each with another schedule: their mean is better than any one of them
    at_best = np.mean([start + _change(here, slopes, everyone) for start, here, slopes, _ in rounds], axis=0)
    hold = max(1e-6, np.mean([np.median(here**2) for _, here, _, _ in rounds]) / MOST**2)
    draw, groups, draws = Random(seed), [everyone[i : i + TOGETHER] for i in range(0, len(seen), TOGETHER)], []
    for _ in range(DRAWS):
        picked, (start, here, slopes, others) = np.concatenate(draw.choices(groups, k=len(groups))), draw.choice(rounds)
        doubt = np.array([draw.gauss(0, DOUBT[name]) for name in kept])
        drawn = _with(steps, kept, [getattr(steps, name) * exp(d) for name, d in zip(kept, doubt)])
        open_ = np.array([draw.gauss(0, MOST) for _ in names])  # anywhere, where the log does not tell
        change = _change(here + others @ doubt, slopes, picked, hold, open_)
        draws.append(_with(drawn, names, np.exp(start + change)))
    if "link" in names and not told(ends := interval([drawn.link for drawn in draws])):
        raise ValueError(f"log must tell the rate of the link (B/s), got {ends[0]:.3g} to {ends[1]:.3g}: give link")
    return _with(steps, names, np.exp(at_best)), draws


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Ends that 95% of so many draws lie between.

    Args:
        values: of the draws.

    Example:
        >>> interval(range(400))
        (10, 389)
    """
    ordered = sorted(values)
    return ordered[len(ordered) // 40], ordered[-1 - len(ordered) // 40]


def told(ends: tuple[float, float]) -> bool:
    """Whether a log tells a constant: the ends of its interval are less than a factor of three apart.

    Args:
        ends: of `interval`.

    Example:
        >>> told((0.4, 0.5)), told((0.1, 0.5))
        (True, False)
    """
    return ends[1] < WIDE * ends[0]


def summary(requests: Sequence[tuple], since: Seconds | None = None) -> dict[str, Seconds]:
    """Makespan, and the middle and the 95th percentile of TTFT and token interval (s).

    Args:
        requests: (arrival, first token, last token, output tokens) of each.
        since: when the makespan begins (left out: with the first arrival).

    Example:
        >>> summary([(0.0, 1.0, 4.0, 4)])["interval_p50"]
        1.0
    """
    some(requests, "requests", "request")
    gaps = [(last - first) / max(1, output - 1) for _, first, last, output in requests]
    first = [f - a for a, f, _, _ in requests]
    found = {"makespan": max(r[2] for r in requests) - (requests[0][0] if since is None else since)}
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


def report(
    rows: Sequence[Logged], at: Served, load: Sequence[Arrival] | None = None, until: Seconds = inf, names: Sequence[str] | None = None
) -> dict[str, Any]:
    """What is found: constants with 95% intervals, the log as it was measured and as it is replayed, a prediction, and warnings.

    Args:
        rows: of the log.
        at: what was measured.
        load: to predict.
        until: what is seen of the log (s from the first arrival); requests whose first token came later are predicted.
        names: of the constants that are fitted (left out: those that are `unknown`).

    Returns:
        Tables by title, each {row: {column: value}}, and the list "warnings"; a constant that was not fitted has no interval.

    Example:
        >>> from workloads.counts.request_tokens import Request
        >>> log = [Logged(Arrival(i, Request(100 + i, 9)), i + 0.05, i + 0.2) for i in range(20)]
        >>> found = report(log, served("Qwen3-8B", "H100 SXM"))
        >>> list(found), list(found["constant"])
        (['constant', 'the log (s)', 'warnings'], ['mfu', 'reads', 'layer'])
    """
    names = at.unknown if names is None else names
    best, draws = fitted(rows, at, until=until, names=names)
    constants: dict[str, dict] = {}
    found, doubt = {"constant": constants}, []
    for name, value in vars(best).items():
        if name in names:
            low, high = interval([getattr(steps, name) for steps in draws])
            constants[name] = {"value": value, "low": low, "high": high}
            doubt += [] if told((low, high)) else [f"warning: the log hardly tells {name}, from {low:.3g} to {high:.3g}"]
        elif value is not None:
            constants[name] = {"value": value, "low": None, "high": None}
    truth, logs = [(r.arrival.time, r.first, r.last, r.arrival.request.output) for r in rows], [r.arrival for r in rows]
    run, early = _run(logs, at, best), [place for place, (_, first, _, _) in enumerate(truth) if first <= until]
    late = sorted({*range(len(truth))} - {*early})
    of = lambda times, places: summary([times[place] for place in places], truth[0][0])
    found["the log (s)"] = _beside(("measured", "replayed"), of(truth, early), of(run, early))
    seen = ranges([logs[i] for i in early], [truth[i] for i in early])
    if late:
        found["the rest (s)"] = _beside(("measured", "predicted"), of(truth, late), of(run, late))
        doubt += beyond(seen, ranges([logs[i] for i in late], [run[i] for i in late]))
    if load is not None:
        run, tries = _run(load, at, best), [summary(_run(load, at, steps)) for steps in draws[:40]]
        low, high = ({name: sorted(t[name] for t in tries)[place] for name in tries[0]} for place in (1, -2))
        found["the load (s)"] = _beside(("predicted", "low", "high"), summary(run), low, high)
        doubt += beyond(seen, ranges(load, run))
    return found | {"warnings": doubt}


def _beside(columns, *tables):
    return {name: dict(zip(columns, (table[name] for table in tables))) for name in tables[0]}


def lines(found: Mapping[str, Any]) -> list[str]:
    """What is printed of a report: a table after the other, and the warnings.

    Args:
        found: of `report`.

    Example:
        >>> lines({"constant": {"mfu": {"value": 0.51, "low": None, "high": None}}, "warnings": []})[1].split()
        ['mfu', '0.51', 'not', 'fitted']
    """
    tables = {title: table for title, table in found.items() if title != "warnings"}
    out = []
    for title, table in tables.items():
        out += ["", "\t".join((title, *next(iter(table.values()))))]
        for name, row in table.items():
            out.append(
                "\t".join((name, *(f"{v:.4g}" for v in row.values() if v is not None), *(["not fitted"] if None in row.values() else [])))
            )
    return [*out[1:], *found["warnings"]]


def _known(pair):
    name, _, value = pair.partition("=")
    try:
        return one_of(name, "constant", NAMES), finite(float(value), name)
    except ValueError:
        raise ValueError(f"given must be NAME=NUMBER, of {', '.join(NAMES)}, got {pair!r}") from None


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
    parser.add_argument(
        "--fit", nargs="+", metavar="NAME", help=f"constants to fit, of {', '.join(NAMES)}; others stay as on other machines"
    )
    parser.add_argument(
        "--given", nargs="+", default=[], metavar="NAME=VALUE", help="constants that are known, as mfu=0.6 or link=20e9 (B/s)"
    )
    parser.add_argument("--until", type=float, default=inf, metavar="SECONDS", help="read the log so far, and predict the rest of it")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    given = parser.parse_args(arguments)
    try:
        known = dict(map(_known, given.given))
        at = served(given.model, given.accelerator, given.cards, given.blocks, given.seats, given.budget, known)
        found = report(logged(given.log), at, load_of(given.predict) if given.predict else None, given.until, given.fit)
    except (ValueError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write((json.dumps(found) if given.format == "json" else "\n".join(lines(found))) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))

"""What moves the ratio of bound over measured time: rows of one publisher that differ in one thing only, as factors.

Publishers differ in more than any table says; one publisher's rows of the same model on the same accelerator by the same engine do not. So
every comparison here stays within a publisher: it takes the least and the greatest value of what varies, and divides the ratios.
"""

import re
from collections import defaultdict
from dataclasses import dataclass
from statistics import median

from . import score

# what else must agree, by driver: what varies is not among it
SAME = ("kind", "model", "accelerator", "count", "precision", "kv_precision", "isl", "osl", "batch", "engine", "release")
LEAST_PAIRS = 3  # of a line of the table


@dataclass(frozen=True)
class Driver:
    """Something that varies between two rows.

    Attributes:
        name: of what varies.
        value: of a row and its score, a number or a tuple of numbers; None where the row does not say.
        freed: names of SAME that may differ with it.
        falling: is the first of a pair the one with the greater value?
        kinds: of work that are compared.
    """

    name: str
    value: object
    freed: tuple
    falling: bool = False
    kinds: tuple = score.KINDS


@dataclass(frozen=True)
class Pair:
    """Two settings that agree in everything but a driver, of one publisher; each the median of its rows.

    Attributes:
        publisher: of both.
        kind: of work.
        first: value of the driver.
        last: value of the driver.
        factor: ratio of the last over ratio of the first.
    """

    publisher: str
    kind: str
    first: object
    last: object
    factor: float


def release(row):
    """Version of the software that a row names, as numbers; None for none.

    Example:
        >>> release({"note": "release 26.04.01; MBS 1", "engine": "Megatron-Bridge"}), release({"note": "", "engine": "MLPerf v5.1"})
        ((26, 4, 1), (5, 1))
    """
    found = re.search(r"release ([\d.]+)", row["note"]) or re.search(r"v?(\d+\.[\d.]+)$", row["engine"])
    return tuple(map(int, found[1].split("."))) if found else None


DRIVERS = (
    Driver("chips", lambda row, _: int(row["count"]), ("count",)),
    Driver("bits of a weight", lambda row, _: score.weight_bits(row["precision"]), ("precision", "kv_precision"), True),
    Driver("software release", lambda row, _: release(row), ("release",)),
    Driver("bound of a step (s)", lambda _, scored: scored.bound, ("isl", "osl", "batch"), kinds=("decode",)),
)


def _agreeing(row, scored, driver):
    values = {
        **row,
        "accelerator": score.accelerator(row["hardware"]).name,
        "engine": re.sub(r" v?[\d.]+$", "", row["engine"]),
        "release": release(row),
    }
    # a training job's batch grows with its chips; its ratio is of a sequence
    free = {*driver.freed, *(("batch",) if scored.kind in ("train", "lora") else ())}
    return scored.publisher, scored.kind, *(values[name] for name in SAME if name not in free)


def pairs(driver, rows=None):
    """Pairs of all rows that agree in everything else, with the least and the greatest value of a driver.

    Args:
        driver: one of DRIVERS.
        rows: by default all measurements that the book holds; those above the bound are left out.

    Example:
        >>> {pair.publisher for pair in pairs(DRIVERS[1]) if pair.kind == "train"} >= {"PyTorch", "Databricks"}
        True
    """
    rows = score.table("measured") if rows is None else rows
    scores = {s.id: s for s in (score.published()[0] if rows is score.table("measured") else score.scored(rows)[0])}
    alike = defaultdict(lambda: defaultdict(list))
    for row in rows:
        s = scores.get(row["id"])
        if s and s.ratio <= 1 and s.kind in driver.kinds and (value := driver.value(row, s)) is not None:
            alike[_agreeing(row, s, driver)][value].append(s.ratio)
    for (publisher, kind, *_), found in alike.items():
        if len(found) > 1:
            first, last = sorted((min(found), max(found)), reverse=driver.falling)
            yield Pair(publisher, kind, first, last, median(found[last]) / median(found[first]))


def summaries(driver):
    """All pairs of a driver by who and what, the publishers with the most first: [(publisher, kind, pairs)], each with enough pairs.

    Args:
        driver: one of DRIVERS.

    Example:
        >>> all(len(found) >= LEAST_PAIRS for _, _, found in summaries(DRIVERS[0]))
        True
    """
    by = defaultdict(list)
    for pair in pairs(driver):
        by[pair.publisher, pair.kind].append(pair)
    enough = [(*who, found) for who, found in by.items() if len(found) >= LEAST_PAIRS]
    return sorted(enough, key=lambda line: (score.KINDS.index(line[1]), -len(line[2]), line[0]))

"""What share of a bound measured machines reach, by class of work: a small table, and a sentence for a bound.

The table comes from the scores of published measurements: `python -m workloads_book.score --bands` writes it. It needs
neither these rows nor more than the standard library, so a calculator in the browser can use it.
"""

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from workloads.units import HOUR, MINUTE, number

TABLE = Path(__file__).with_name("data") / "bands.tsv"
LONG = 8192  # tokens of a sequence above which training is a class of its own
LEAST_PUBLISHERS = 3  # of a class that has a band
WIDE = 2.5  # factor between the ends of a band above which it says no more than "unknown"


@dataclass(frozen=True)
class Band:
    """Where 80% of a class's ratios, bound over measured time, lie; each publisher counted once.

    Attributes:
        low: a tenth of the ratios lie below.
        middle: median.
        high: a tenth of the ratios lie above.
        rows: of the class, those above 1 left out.
        publishers: that printed them.
    """

    low: float
    middle: float
    high: float
    rows: int
    publishers: int

    @property
    def wide(self):
        """Do the ends lie too far apart to forecast with?"""
        return self.high > WIDE * self.low


def class_of(kind, bits=16, experts=False, chips=1, tokens=0):
    """Name of the class of a piece of work.

    Args:
        kind: "train", "lora", "decode", "prefill", "static", "offline" or "rl".
        bits: of a stored weight.
        experts: has the model routed experts?
        chips: that share the work; None for any number.
        tokens: of a sequence in training.

    Example:
        >>> class_of("decode", 4), class_of("train", chips=8, tokens=32768)
        ('decode, 4 bits or fewer, dense, one chip', 'train, 16 bits, dense, several chips, long sequences')
    """
    width = "16 bits" if bits >= 16 else "8 bits" if bits > 5.6 else "4 bits or fewer"
    shared = "any number of chips" if chips is None else "one chip" if chips == 1 else "several chips"
    parts = [kind, width, "experts" if experts else "dense", shared]
    return ", ".join(parts + ["long sequences"] * (kind == "train" and tokens > LONG))


def any_chips(name):
    """Name of the wider class that takes any number of chips.

    Example:
        >>> any_chips(class_of("decode", chips=8))
        'decode, 16 bits, dense, any number of chips'
    """
    return name.replace("one chip", "any number of chips").replace("several chips", "any number of chips")


@cache
def table():
    """Bands by class, {class: Band}, of those that have one.

    Example:
        >>> table()["train, 16 bits, dense, several chips"].wide
        False
    """
    with open(TABLE, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    read = lambda row: Band(float(row["low"]), float(row["middle"]), float(row["high"]), int(row["rows"]), int(row["publishers"]))
    return {row["class"]: read(row) for row in rows}


def lines(found):
    """Lines of the table for {class: Band}.

    Example:
        >>> list(lines({"a class": Band(0.1, 0.2, 0.4, 9, 3)}))[1].split()
        ['a', 'class', '0.1', '0.2', '0.4', '9', '3']
    """
    yield "class\tlow\tmiddle\thigh\trows\tpublishers"
    for name, b in sorted(found.items()):
        yield "\t".join((name, *(f"{end:.4g}" for end in (b.low, b.middle, b.high)), str(b.rows), str(b.publishers)))


def band(kind, bits=16, experts=False, chips=1, tokens=0, bands=None):
    """Band of a piece of work (see `class_of`), or of its class on any number of chips, or None.

    Args:
        kind: as in `class_of`.
        bits: as in `class_of`.
        experts: as in `class_of`.
        chips: as in `class_of`.
        tokens: as in `class_of`.
        bands: {class: Band}, by default those of the table.

    Example:
        >>> band("decode", chips=8).wide, band("rl", chips=8)
        (True, None)
    """
    name = class_of(kind, bits, experts, chips, tokens)
    return of(name, table() if bands is None else bands)


def of(name, bands):
    """Band of a class by name, or of that on any number of chips, or None.

    Example:
        >>> of("decode, one chip", {"decode, any number of chips": "wider"})
        'wider'
    """
    return bands.get(name, bands.get(any_chips(name)))


def _times(*seconds):
    """Texts of times in the unit of the largest; only the last says it."""
    size, unit = next(((s, u) for s, u in ((HOUR, "h"), (MINUTE, "min")) if max(seconds) >= 2 * s), (1, "s"))
    if unit == "s" and max(seconds) < 1:
        size, unit = (1e-3, "ms") if max(seconds) >= 1e-3 else (1e-6, "µs")
    texts = [number(float(f"{s / size:.2g}"), 2) for s in seconds]
    return [*texts[:-1], f"{texts[-1]} {unit}"]


def measured_range(bound_seconds, kind, bits=16, experts=False, chips=1, tokens=0):
    """Sentence: the bound, and what measured machines need for such work; "unknown" where nobody can tell.

    Args:
        bound_seconds: least time of the work by the roofline (s), positive.
        kind: as in `class_of`.
        bits: as in `class_of`.
        experts: as in `class_of`.
        chips: as in `class_of`.
        tokens: as in `class_of`.

    Example:
        >>> measured_range(0.012, "train", chips=8)
        'bound 12 ms; measured machines need 23 to 44 ms'
        >>> measured_range(0.012, "rl", chips=8)
        'bound 12 ms; unknown what machines need: fewer than 3 publishers measured such work'
    """
    (bound,) = _times(bound_seconds)
    found = band(kind, bits, experts, chips, tokens)
    if found is None:
        return f"bound {bound}; unknown what machines need: fewer than {LEAST_PUBLISHERS} publishers measured such work"
    least, most = _times(bound_seconds / found.high, bound_seconds / found.low)
    if found.wide:
        spread = f"{number(found.high / found.low, 2)} times apart"
        return f"bound {bound}; unknown what a machine needs: four in five measured ones {least} to {most}, {spread}"
    return f"bound {bound}; measured machines need {least} to {most}"


def sentence(what, bound_seconds, kind, **work):
    """What measured machines need for a piece of work that has a name: what a page or a calculator says beside a time that is a model.

    Args:
        what: the work, as the sentence begins.
        bound_seconds: as in `measured_range`.
        kind: as in `class_of`.
        **work: as in `class_of`.

    Example:
        >>> sentence("An update", 0.012, "train", chips=8)
        'An update: bound 12 ms; measured machines need 23 to 44 ms.'
        >>> sentence("The whole step", 131, "rl", chips=8).partition(": ")[2]
        'bound 2.2 min; unknown what machines need: fewer than 3 publishers measured such work.'
    """
    return f"{what}: {measured_range(bound_seconds, kind, **work)}."


def shares(kind, bits=16, experts=False, chips=1, tokens=0):
    """Text: the band of a piece of work as shares of the bound; only for work whose class has one.

    Args:
        kind: as in `class_of`.
        bits: as in `class_of`.
        experts: as in `class_of`.
        chips: as in `class_of`.
        tokens: as in `class_of`.

    Example:
        >>> shares("lora", 8, chips=8).partition(" (")[0]
        '80% lie between 25% and 41%, half below 33%'
    """
    b = band(kind, bits, experts, chips, tokens)
    return f"80% lie between {b.low:.0%} and {b.high:.0%}, half below {b.middle:.0%} ({b.rows} rows of {b.publishers} publishers)"


def _placed(share, of, work, band):
    where = "below" if share < band.low else "above" if share > band.high else "inside"
    return f"{share:.0%} of the {of} lies {where} what four in five rows of {work} reach, {band.low:.0%} to {band.high:.0%}"


def assumed(page, mfu=None, mbu=None, prefill=False):
    """Sentence: where shares of peak and bandwidth that a page takes as given lie among measured ones, in 16 bits.

    Args:
        page: that leads to all of them, as the page links it.
        mfu: share of the peak, beside training on several chips; None for none.
        mbu: share of the bandwidth, beside decode steps; None for none.
        prefill: is the first the share of a forward pass, of which too few publishers print times?

    Example:
        >>> assumed("how-far.ipynb", 0.35, 0.7).partition("): ")[2].partition(";")[0]
        '35% of the peak lies inside what four in five rows of training reach, 27% to 52%'
    """
    parts = []
    if mfu is not None:
        parts.append(_placed(mfu, "peak", "training", band("train", chips=8)))
    if mbu is not None:
        parts.append(_placed(mbu, "bandwidth", "decode steps", band("decode")))
    alone = f"; of a forward pass alone fewer than {LEAST_PUBLISHERS} publishers print times" if prefill and not band("prefill") else ""
    return f"These shares among [measured ones]({page}): {'; '.join(parts)}{alone}."

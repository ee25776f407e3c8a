"""What the scores of other publishers predict for a row; and the command that scores a file of rows.

    python -m workloads_book.score ROWS.tsv

prints for every row of such a file its kind, the bound and the ratio bound over measured, the band of other publishers' rows of its
class, what these predict, and why a row cannot be scored. Nothing is fitted, and the measured column is only divided by.

    python -m workloads_book.score --bands

prints the table of all bands, which stands in `data/bands.tsv` (see `workloads_book.bands`), and

    python -m workloads_book.score --forecast ROWS.tsv

what rows that nobody has measured yet will print, with the band of today: how `data/forecasts.tsv` is written.
"""

import sys
from collections import defaultdict
from functools import cache

from workloads.units import number

from . import bands as table_of_bands
from . import splits
from .bands import LEAST_PUBLISHERS
from .score import FORECAST, Unscored, bands, classes, forecast_line, published, quantile, read, score


@cache
def _split_factors():
    """{id: factor by which splits lengthen the bound} of the measurements that state theirs."""
    return {step.id: max(1.0, step.hidden / step.before) for step in splits.training_steps()}


def predicted(row, scored):
    """Seconds that the library predicts for a scored row: its bound over the median share that other publishers of its class reach.

    Of training both count communication and the bubble of a pipeline where a layout is stated.

    Args:
        row: as in `score`.
        scored: its Score.

    Raises:
        Unscored: for a class without a band.

    Example:
        >>> from workloads_book.score import table
        >>> row = next(row for row in table("measured") if row["id"] == "torchtitan-1")
        >>> round(predicted(row, score(row)) / score(row).measured, 2)
        0.58
    """
    band = table_of_bands.of(scored.group, bands(without=scored.publisher))
    if not band:
        raise Unscored(f"no band: fewer than {LEAST_PUBLISHERS} publishers of class {scored.group!r}")
    if scored.kind != "train":
        return scored.bound / band.middle
    factors, shares = _split_factors(), defaultdict(list)
    found = classes(published()[0])
    members = found.get(scored.group) or found[table_of_bands.any_chips(scored.group)]
    for s in members:
        if s.publisher != scored.publisher and s.ratio <= 1:
            shares[s.publisher].append(s.ratio * factors.get(s.id, 1.0))
    return scored.bound * splits.with_splits(row) / quantile(shares, 0.5)


COLUMNS = ("id", "kind", "bound", "ratio", "p10", "p50", "p90", "predicted_ratio", "why")


def lines(rows):
    """One line of COLUMNS for each row: the band is that of other publishers; "-" for what there is not, with the reason.

    Example:
        >>> from workloads_book.score import table
        >>> [line[0] for line in lines(table("measured")[:2])] == [row["id"] for row in table("measured")[:2]]
        True
    """
    for row in rows:
        try:
            s = score(row)
        except Unscored as why:
            yield (row["id"], row["kind"], "-", "-", "-", "-", "-", "-", str(why))
            continue
        band, why, shown = table_of_bands.of(s.group, bands(without=s.publisher)), "", ("-",) * 4
        try:
            share = predicted(row, s) / s.measured
            shown = tuple(map("{:.4g}".format, (band.low, band.middle, band.high, share)))
        except Unscored as none:
            why = str(none)
        if s.ratio > 1:
            why = "; ".join(filter(None, (f"above the bound by {number(s.ratio, 3)}: time, shape or format is not what the row says", why)))
        yield (s.id, s.kind, f"{s.bound:.6g}", f"{s.ratio:.4g}", *shown, why)


def main(arguments=None):
    """Score a file of rows; the exit status.

    Example:
        >>> main(["--help"])
        2
    """
    paths = sys.argv[1:] if arguments is None else arguments
    if paths == ["--bands"]:
        sys.stdout.write("\n".join(table_of_bands.lines(bands())) + "\n")
        return 0
    if len(paths) == 2 and paths[0] == "--forecast":
        for line in (FORECAST, *map(forecast_line, read(paths[1]))):
            sys.stdout.write("\t".join(line) + "\n")
        return 0
    if len(paths) != 1 or paths[0].startswith("-"):
        sys.stderr.write(__doc__.strip() + "\n")
        return 2
    for line in (COLUMNS, *lines(read(paths[0]))):
        sys.stdout.write("\t".join(line) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

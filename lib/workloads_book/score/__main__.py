"""Published measurements beside the bounds of the library, as a command.

    python -m workloads_book.score ROWS.tsv

prints for every row of such a file its kind, the bound and the ratio bound over measured, the band of other publishers' rows of its
class, what these predict, and why a row cannot be scored. Nothing is fitted, and the measured column is only divided by.

    python -m workloads_book.score --bands

prints the table of all bands, which stands in `data/bands.tsv` (see `workloads_book.bands`), and

    python -m workloads_book.score --forecast ROWS.tsv

what rows that nobody has measured yet will print, with the band of today: how `data/forecasts.tsv` is written.
"""

import sys

from .. import bands as table_of_bands
from . import FORECAST, bands, forecast_line, read
from .predictions import COLUMNS, lines


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

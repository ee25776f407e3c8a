"""Loads as others publish and log them: requests by their columns, whatever these are called.

`load_of` reads a load for the simulator, `logged` what an engine noted of each request too. The library's own `traces.read_trace` reads
traces with hash ids; a file of that form is handed on to it.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from workloads.checks import finite, nonnegative, some, whole
from workloads.counts.request_tokens import Request
from workloads.facts.tables import lines_of
from workloads.serving.arrivals import Arrival
from workloads.serving.traces import read_trace
from workloads.units import Seconds

# arrival, tokens in, tokens out; then, where an engine notes them: its queue, first and last token. The first column tells the form.
FORMS: tuple[tuple[str, ...], ...] = (
    ("arrival", "input_tokens", "output_tokens", "queued", "first_token", "last_token"),  # s, on one clock
    ("arrival_time", "input_toks", "output_toks", "queued_ts", "first_token_ts", "last_token_ts"),  # s: the client's clock, the engine's
    ("TIMESTAMP", "ContextTokens", "GeneratedTokens"),  # Azure's public traces: a date
)
BESIDE = ("request", "request_id", "scheduled", "scheduled_ts")  # known, and not needed


@dataclass(frozen=True)
class Logged:
    """A request of a log: its arrival, and when its first and last token were out (s from the first arrival); None where not noted."""

    arrival: Arrival
    first: Seconds | None = None
    last: Seconds | None = None


def logged(log: str | Path | Iterable[str]) -> list[Logged]:
    """Requests of a log in order of arrival, times in s from the first arrival.

    A line is a JSON object, or cells under a line of names, between tabs or commas. Where client and engine have clocks
    of their own, the first request is taken to be queued when it arrives.

    Args:
        log: the path of a file, or its lines.

    Raises:
        ValueError: that names the line and the column, for what is missing, unknown or out of range.

    Example:
        >>> logged(["TIMESTAMP,ContextTokens,GeneratedTokens", "2023-11-16 18:15:46.5,374,44", "2023-11-16 18:15:48,396,109"])[1]
        Logged(arrival=Arrival(time=1.5, request=Request(new=396, output=109, past=0), client=''), first=None, last=None)
    """
    rows = some(_rows(lines_of(log)), "log", "request")
    place, row = rows[0]
    form = next((form for form in FORMS if form[0] in row), None)
    if form is None:
        raise ValueError(f"line {place} must have one of {', '.join(f[0] for f in FORMS)}, got {', '.join(row) or 'nothing'}")
    taken = [(place, _taken(row, form, place)) for place, row in rows]
    start = min(values[0] for _, values in taken)
    clock = min(taken, key=lambda t: t[1][0])[1][3:4] if form[0] == "arrival_time" else [start]
    if len(clock) == 1 and clock[0] is None and any(v is not None for _, values in taken for v in values[4:]):
        raise ValueError(f"the first request must have {form[3]}: it tells the engine's clock from the client's, got none")
    found = []
    for place, (time, tokens, output, _, *ends) in taken:
        first, last = (None if end is None else end - clock[0] for end in (ends or (None, None)))
        if first is not None:
            nonnegative(first - (time - start), f"{form[4]} in line {place} less {form[0]}", "s")
        if last is not None:
            nonnegative(last - (time - start if first is None else first), f"{form[5]} in line {place} less what is before it", "s")
        found.append(Logged(Arrival(time - start, Request(tokens, output)), first, last))
    return sorted(found, key=lambda r: r.arrival.time)


def _rows(lines):
    """(number, {column: value}) of each line that holds a request."""
    names, mark, found = None, ",", []
    for place, line in enumerate(lines, 1):
        if not line.strip():
            continue
        if names is None and line.lstrip().startswith("{"):
            try:
                row = json.loads(line)
            except (json.JSONDecodeError, RecursionError):
                raise ValueError(f"line {place} must be a JSON object, got {line.strip()[:60]!r}") from None
            found.append((place, row))
            continue
        if names is None and not found:
            mark = "\t" if "\t" in line else ","
            names = next(csv.reader([line.strip()], delimiter=mark))
            continue
        cells = next(csv.reader([line.rstrip("\n")], delimiter=mark))
        if names is None or len(cells) != len(names):
            wanted = "a JSON object" if names is None else f"{len(names)} cells"
            raise ValueError(f"line {place} must be {wanted}, got {line.strip()[:60]!r}")
        found.append((place, dict(zip(names, map(_number, cells)))))
    return found


def _number(cell):
    for kind in (int, float):
        try:
            return kind(cell)
        except ValueError:
            pass
    return cell


def _taken(row, form, place) -> list[Any]:
    """Arrival (s), tokens in and out, and what an engine noted, of a line."""
    for name in form[:3]:
        if name not in row:
            raise ValueError(f"line {place} must have {name}, got {', '.join(row) or 'nothing'}")
    for name in row:
        if name not in (*form, *BESIDE):
            raise ValueError(f"columns of line {place} must be {', '.join(form)}, got {name!r}")
    time = row[form[0]]
    if form[0] == "TIMESTAMP":
        try:
            date = datetime.fromisoformat(str(time))
            time = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
        except ValueError:
            raise ValueError(f"TIMESTAMP in line {place} must be a date and a time, got {time!r}") from None
    time = finite(time, f"{form[0]} in line {place}", "s")
    lengths = [whole(row[name], f"{name} in line {place}", "tokens", least=1) for name in form[1:3]]
    noted = [None if row.get(name) is None else finite(row[name], f"{name} in line {place}", "s") for name in form[3:]]
    return [time, *lengths, *(noted or [None])]


def load_of(trace: str | Path | Iterable[str]) -> list[Arrival]:
    """The load of a file, in the library's own form or in one of `FORMS`.

    Args:
        trace: the path of a file, or its lines.

    Raises:
        ValueError: as `logged` and `traces.read_trace`.

    Example:
        >>> load_of(['{"arrival": 7.5, "input_tokens": 100, "output_tokens": 5}'])
        [Arrival(time=0.0, request=Request(new=100, output=5, past=0), client='')]
    """
    lines = lines_of(trace)
    head = next((line for line in lines if line.strip()), "")
    if head.lstrip().startswith("{") and '"timestamp"' in head:
        return read_trace(lines)
    return [row.arrival for row in logged(lines)]

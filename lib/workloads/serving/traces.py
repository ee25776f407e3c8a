"""A load as a Mooncake trace, the file of JSON lines that serving engines' own benchmarks replay: written, and read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..checks import flag, formula, nonnegative, some, whole
from ..counts.request_tokens import Request
from ..facts.tables import lines_of
from ..numeric import ceil
from .arrivals import Arrival

BLOCK = 512  # tokens behind one hash id of a Mooncake trace
LENGTHS = "timestamp", "input_length", "output_length"


def trace_lines(load: Sequence[Arrival]) -> list[str]:
    """The load as a Mooncake trace, a list of lines with one JSON object each.

    timestamp in whole milliseconds, input_length and output_length in tokens, hash_ids one for each started 512 tokens
    of input. No id is used twice: no two requests share a prefix. Read by ``vllm bench serve --dataset-name
    timed_trace``, by SGLang's ``bench_serving --dataset-name mooncake`` and by ``aiperf profile --custom-dataset-type
    mooncake_trace``.

    Args:
        load: a sequence of `arrivals.Arrival`.

    Source:
        qin2025mooncake.

    Example:
        >>> print(*trace_lines([Arrival(0.25, Request(1000, 20))]))
        {"timestamp": 250, "input_length": 1000, "output_length": 20, "hash_ids": [0, 1]}
    """
    lines, used = [], 0
    for time, request, _ in load:
        tokens = request.past + request.new
        ids = list(range(used, used + ceil(tokens / BLOCK)))
        used += len(ids)
        lines.append(json.dumps(dict(zip((*LENGTHS, "hash_ids"), (round(1000 * time), tokens, request.output, ids)))))
    return lines


@formula
def read_trace(trace: str | Path | Iterable[str], ignore_shared: bool = False) -> list[Arrival]:
    """The load of a Mooncake trace: an `arrivals.Arrival` a line, in the order of the file.

    Args:
        trace: the path of a file of JSON lines, or its lines (an open file will do).
        ignore_shared: read requests that share a prefix as if they did not: every prompt is computed whole.

    Raises:
        ValueError: that names the line and the key, for one that is missing or unknown, a value out of range, and a hash
            id that an earlier request has: a shared prefix, which this reader does not know how to keep.

    Source:
        qin2025mooncake.

    Example:
        >>> read_trace(['{"timestamp": 250, "input_length": 1000, "output_length": 20, "hash_ids": [0, 1]}'])
        [Arrival(time=0.25, request=Request(new=1000, output=20, past=0), client='')]
    """
    flag(ignore_shared, "ignore_shared")
    load, seen = [], set()
    for place, line in enumerate(lines_of(trace), 1):
        if not line.strip():
            continue
        row = _row(line, place)
        shared = seen.intersection(ids := row.get("hash_ids", []))
        if shared and not ignore_shared:
            raise ValueError(
                f"hash_ids in line {place} must be its own (a shared prefix: ignore_shared=True reads the prompt as "
                f"new), got {min(shared)!r} again"
            )
        seen.update(ids)
        time = nonnegative(row["timestamp"], f"timestamp in line {place}", "ms") / 1000
        lengths = [whole(row[name], f"{name} in line {place}", "tokens", least=1) for name in LENGTHS[1:]]
        load.append(Arrival(time, Request(*lengths)))
    return some(load, "trace", "request")


def _row(line, place):
    """The object of a line: every key that is needed, none that is unknown."""
    try:
        row = json.loads(line)
    except (json.JSONDecodeError, RecursionError):
        row = None
    if not isinstance(row, dict):
        raise ValueError(f"line {place} must be a JSON object, got {line.strip()[:60]!r}")
    for name in LENGTHS:
        if name not in row:
            raise ValueError(f"line {place} must have {name}, got {', '.join(row) or 'nothing'}")
    for name in row:
        if name not in (*LENGTHS, "hash_ids"):
            raise ValueError(f"keys of line {place} must be {', '.join(LENGTHS)}, hash_ids, got {name!r}")
    ids = row.get("hash_ids", [])
    if not isinstance(ids, list):
        raise ValueError(f"hash_ids in line {place} must be a list, got {ids!r}")
    for number in ids:
        whole(number, f"hash_ids in line {place}")
    return row

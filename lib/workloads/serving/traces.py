"""A load as a Mooncake trace, the file of JSON lines that serving engines' own benchmarks replay: written, and read."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..checks import flag, formula, nonnegative, one_of, some, whole
from ..counts.request_tokens import Request
from ..facts.tables import lines_of
from ..units import Tokens
from .arrivals import Arrival, Call

BLOCK = 512  # tokens behind one hash id of a Mooncake trace
SIZES = 8, 16, 32, 64, 128, 256, 512  # tokens of an engine's block
LENGTHS = "timestamp", "input_length", "output_length"
OWN = "past", "client", "after", "hashes"  # what a Mooncake trace has no key for: stands there only where there is something to say


def trace_lines(load: Sequence[Arrival], block_size: Tokens = 16) -> list[str]:
    """The load as a Mooncake trace, a list of lines with one JSON object each.

    timestamp in whole milliseconds (behind the end of another request where one waits for it), input_length and
    output_length in tokens, hash_ids one for each started 512 tokens of input. Two requests have the same id where the
    names of their blocks say that they share these 512 tokens whole; without names no id is used twice. Read by ``vllm
    bench serve --dataset-name timed_trace``, by SGLang's ``bench_serving --dataset-name mooncake`` and by ``aiperf
    profile --custom-dataset-type mooncake_trace``. Four keys that only `read_trace` knows stand behind these where they
    are needed: past (tokens of the input that are restored), client, after (the place of the request that is waited
    for) and hashes (the names of the blocks, numbered as they come).

    Args:
        load: a sequence of `arrivals.Arrival`.
        block_size: tokens of a block with a name.

    Source:
        qin2025mooncake.

    Example:
        >>> print(*trace_lines([Arrival(0.25, Request(1000, 20))]))
        {"timestamp": 250, "input_length": 1000, "output_length": 20, "hash_ids": [0, 1]}
    """
    lines, ids, names, each = [], {}, {}, BLOCK // int(one_of(block_size, "block_size", SIZES))
    for arrival in load:
        (time, request, client), tokens = arrival, arrival.request.past + arrival.request.new
        held = [names.setdefault(name, len(names)) for name in arrival.hashes]
        # the last name within 512 tokens stands for all before it
        last = (held[i * each - 1] if i <= min(tokens // BLOCK, len(held) // each) else object() for i in range(1, 1 - (-tokens // BLOCK)))
        row = (round(1000 * time), tokens, request.output, [ids.setdefault(key, len(ids)) for key in last])
        own = {k: v for k, v in zip(OWN, (request.past or None, client or None, arrival.after, held or None)) if v is not None}
        lines.append(json.dumps(dict(zip((*LENGTHS, "hash_ids"), row)) | own))
    return lines


@formula
def read_trace(trace: str | Path | Iterable[str], ignore_shared: bool = False, block_size: Tokens = 16) -> list[Arrival]:
    """The load of a Mooncake trace: an `arrivals.Arrival` a line, in the order of the file.

    Where two requests have a hash id in common, or the trace names blocks itself, each is an `arrivals.Call` with the
    names of the whole blocks of its prompt; so is one that waits for another. A load that shares nothing has no names
    and runs on an engine without prefix caching too.

    Args:
        trace: the path of a file of JSON lines, or its lines (an open file will do).
        ignore_shared: read requests that share a prefix as if they did not: every prompt is computed whole.
        block_size: tokens of a block of the engine that the load is for.

    Raises:
        ValueError: that names the line and the key, for one that is missing or unknown, and a value out of range.

    Source:
        qin2025mooncake.

    Example:
        >>> read_trace(['{"timestamp": 250, "input_length": 1000, "output_length": 20, "hash_ids": [0, 1]}'])
        [Arrival(time=0.25, request=Request(new=1000, output=20, past=0), client='')]
    """
    flag(ignore_shared, "ignore_shared")
    rows = [(place, _row(line, place)) for place, line in enumerate(lines_of(trace), 1) if line.strip()]
    load, known, each = [], {}, BLOCK // int(one_of(block_size, "block_size", SIZES))
    apart = ignore_shared or any("hashes" in row for _, row in rows)
    shared = not apart and max(Counter(i for _, row in rows for i in {*row.get("hash_ids", ())}).values(), default=0) > 1
    for place, row in rows:
        time = nonnegative(row["timestamp"], f"timestamp in line {place}", "ms") / 1000
        tokens, output = (whole(row[name], f"{name} in line {place}", "tokens", least=1) for name in LENGTHS[1:])
        past = whole(row.get("past", 0), f"past in line {place}", "tokens", most=tokens - 1)
        after = whole(row["after"], f"after in line {place}", most=len(load) - 1) if "after" in row else None
        request, names = (Request(tokens - past, output, past), row.get("client", "")), () if ignore_shared else row.get("hashes", ())
        if shared:
            blocks = (known.setdefault(key, [(*key, j) for j in range(each)]) for key in enumerate(row.get("hash_ids", ())))
            names = [name for block in blocks for name in block][: tokens * each // BLOCK]
        load.append(Arrival(time, *request) if after is None and not names else Call(time, *request, names, after))
    return some(load, "trace", "request")


def _row(line, place):
    """The object of a line: every key that is needed, none that is unknown."""
    try:
        row = json.loads(line)
    except (json.JSONDecodeError, RecursionError):
        row = None
    if not isinstance(row, dict):
        raise ValueError(f"line {place} must be a JSON object, got {line.strip()[:60]!r}")
    if missing := [name for name in LENGTHS if name not in row]:
        raise ValueError(f"line {place} must have {missing[0]}, got {', '.join(row) or 'nothing'}")
    if unknown := [name for name in row if name not in (*LENGTHS, "hash_ids", *OWN)]:
        raise ValueError(f"keys of line {place} must be {', '.join((*LENGTHS, 'hash_ids', *OWN))}, got {unknown[0]!r}")
    for name, kind in (("hash_ids", list), ("hashes", list), ("client", str)):
        if not isinstance(value := row.get(name, kind()), kind):
            raise ValueError(f"{name} in line {place} must be a {kind.__name__}, got {value!r}")
        for number in value if kind is list else ():
            whole(number, f"{name} in line {place}")
    return row

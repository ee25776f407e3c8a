"""A load as a trace file that serving engines' own benchmarks replay."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ..numeric import ceil
from .arrivals import Arrival

BLOCK = 512  # tokens behind one hash id of a Mooncake trace


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
        >>> from workloads.serving.arrivals import Arrival
        >>> from workloads.counts.request_tokens import Request
        >>> print(*trace_lines([Arrival(0.25, Request(1000, 20))]))
        {"timestamp": 250, "input_length": 1000, "output_length": 20, "hash_ids": [0, 1]}
    """
    lines, used = [], 0
    for time, request, _ in load:
        ids = ceil((request.past + request.new) / BLOCK)
        lines.append(
            json.dumps(
                {
                    "timestamp": round(1000 * time),
                    "input_length": request.past + request.new,
                    "output_length": request.output,
                    "hash_ids": list(range(used, used + ids)),
                }
            )
        )
        used += ids
    return lines

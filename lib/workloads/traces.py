"""A load as a trace file that serving engines' own benchmarks replay, and back."""
import json

from .arrivals import Arrival
from .requests import Request

BLOCK = 512         # tokens behind one hash id of a Mooncake trace


def trace_lines(load):
    """The load as a Mooncake trace: one JSON object a line.

    timestamp in whole milliseconds, input_length and output_length in tokens, hash_ids one for each started 512 tokens of input. No id
    is used twice: no two requests share a prefix. Read by ``vllm bench serve --dataset-name timed_trace``, by SGLang's
    ``bench_serving --dataset-name mooncake`` and by ``aiperf profile --custom-dataset-type mooncake_trace``. Source: qin2025mooncake.

    >>> print(*trace_lines([Arrival(0.25, Request(1000, 20))]))
    {"timestamp": 250, "input_length": 1000, "output_length": 20, "hash_ids": [0, 1]}
    """
    lines, used = [], 0
    for time, request, _ in load:
        ids = -(-(request.past + request.new) // BLOCK)
        lines.append(json.dumps({"timestamp": round(1000 * time), "input_length": request.past + request.new,
                                 "output_length": request.output, "hash_ids": list(range(used, used + ids))}))
        used += ids
    return lines


def read_trace(lines):
    """A load from the lines of a Mooncake trace. Prefixes that requests share are not modelled: hash_ids are passed over.

    >>> load = [Arrival(0.25, Request(1000, 20))]
    >>> read_trace(trace_lines(load)) == load
    True
    """
    rows = [json.loads(line) for line in lines if line.strip()]
    return [Arrival(row["timestamp"] / 1000, Request(row["input_length"], row["output_length"])) for row in rows]

"""How much faster a sweep is than one call at a time, in one run: python tests/bench_rlstep.py [configurations] [scalar calls]

Both give every output, with the configurations built beforehand. The scalar side is timed on a sample and scaled; medians of three,
alternating.
"""

import sys
import time
import tracemalloc
from dataclasses import fields
from statistics import median

import numpy
from test_rlstep import random_fields, row_config

from workloads.learning.rl import configuration, phases


def seconds(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def ratio(size=10**6, sample=10_000):
    """(seconds of the sweep, seconds of as many scalar calls, peak memory over input and output memory)."""
    columns = random_fields(numpy.random.default_rng(1), size)
    config, alone = configuration.RLStep(**columns), [row_config(columns, i) for i in range(sample)]
    swept, called = [], []
    for _ in range(3):
        swept.append(seconds(lambda: phases.sweep(config)))
        called.append(seconds(lambda: [phases.rl_step(c) for c in alone]) * size / sample)
    tracemalloc.start()
    result = phases.sweep(config)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    size_of = lambda obj: sum(v.nbytes for f in fields(obj) if isinstance(v := getattr(obj, f.name), numpy.ndarray))
    return median(swept), median(called), (size_of(config) + peak) / (size_of(config) + size_of(result))


def benches():
    """(what, seconds of single calls, seconds of the sweep, sign, goal of their ratio, note)."""
    swept, called, memory = ratio()
    yield "one call at a time over a sweep, 1,000,000 RL steps", called, swept, ">=", 20, f"peak memory {memory:.2f} x inputs and outputs"


if __name__ == "__main__":
    swept, called, memory = ratio(*map(int, sys.argv[1:]))
    print(f"sweep {swept:.3f} s, scalar calls {called:.1f} s, ratio {called / swept:.0f}, peak memory {memory:.2f} x inputs and outputs")
    sys.exit(0 if called >= 20 * swept and memory <= 3 else 1)

"""How much faster a sweep is than one call at a time, in one run: python tests/bench_rlstep.py [configurations] [scalar calls]

Both give every output, with the configurations built beforehand. The scalar side is timed on a sample and scaled; medians of three,
alternating.
"""

import sys
import time
import tracemalloc
from statistics import median

import numpy
from test_phases import outcome, random_fields, row_config

from workloads.learning.rl import configuration, phases


def seconds(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def ratio(size=10**6, sample=10_000):
    """(seconds of the sweep, seconds of as many scalar calls, peak memory over input and output memory)."""
    columns = random_fields(numpy.random.default_rng(1), size)
    step, alone = configuration.RLStep(**columns), [row_config(columns, i) for i in range(sample)]
    swept, called = [], []
    for _ in range(3):
        swept.append(seconds(lambda: phases.sweep(step)))
        called.append(seconds(lambda: [phases.rl_step(c) for c in alone]) * size / sample)
    tracemalloc.start()
    result = phases.sweep(step)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    size_of = lambda values: sum(v.nbytes for v in values.values() if isinstance(v, numpy.ndarray))
    given, got = size_of(step.values), size_of(outcome(result))
    return median(swept), median(called), (given + peak) / (given + got)


def benches():
    """(what, seconds of single calls, seconds of the sweep, sign, goal of their ratio, note)."""
    swept, called, memory = ratio()
    yield "one call at a time over a sweep, 1,000,000 RL steps", called, swept, ">=", 20, f"peak memory {memory:.2f} x inputs and outputs"


if __name__ == "__main__":
    swept, called, memory = ratio(*map(int, sys.argv[1:]))
    print(f"sweep {swept:.3f} s, scalar calls {called:.1f} s, ratio {called / swept:.0f}, peak memory {memory:.2f} x inputs and outputs")
    sys.exit(0 if called >= 20 * swept and memory <= 3 else 1)

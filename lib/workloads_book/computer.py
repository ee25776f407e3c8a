"""This computer beside its bound: the rates that NumPy reaches here, and the decode of a toy transformer, in 32-bit floats.

    python -m workloads_book.computer

measures one core for about a minute, in less than 1 GB, and prints the run as JSON; one such run stands in `data/computer.json`.
"""

import json
import math
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import workloads as wl
from workloads.facts.models import Model
from workloads.times import roofline

RECORD = Path(__file__).with_name("data") / "computer.json"
TOY = Model("toy", 1024, 8192, layers=6, heads=16, kv_heads=4, head_dim=64, ffn=4096)
CASES = (1, 128), (1, 8192), (16, 128), (16, 2048), (64, 128)  # sequences, tokens of each in the cache
# how many threads NumPy's products use: read when NumPy is first loaded
THREADS = "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"
FORMATS = wl.Formats(weights=4, cache=4)  # bytes


@dataclass(frozen=True)
class Run:
    """What one computer did.

    Attributes:
        peak: of a large matrix product (FLOP/s).
        bandwidth: of a matrix-vector product whose matrix no cache holds (B/s).
        steps: ((sequences, tokens of each in the cache, seconds of a decode step), ...).
        cores: that the system names.
        threads: that NumPy may use: a number, or "all".
        numpy: version.
    """

    peak: float
    bandwidth: float
    steps: tuple
    cores: int
    threads: str
    numpy: str


def predicted(peak, bandwidth, batch, context, shape=TOY):
    """Least seconds of a decode step by the roofline of the two rates.

    Args:
        peak: reached by a large matrix product (FLOP/s).
        bandwidth: reached by a matrix-vector product (B/s).
        batch: sequences.
        context: tokens of each in the cache.
        shape: a Model whose layers are all of one kind.

    Example:
        >>> round(predicted(1e11, 1e10, 1, 128), 4)
        0.04
    """
    work = wl.decode(shape, context, batch, FORMATS)
    return roofline.roofline_seconds(work.flops, work.bytes, peak, bandwidth)


def recorded():
    """The run that was recorded for the book.

    Example:
        >>> [step[:2] for step in recorded().steps] == list(CASES)
        True
    """
    return read(RECORD.read_text(encoding="utf-8"))


def read(text):
    """A run from its JSON.

    Example:
        >>> run = Run(1e11, 1e10, ((1, 128, 0.05),), 2, "1", "2")
        >>> read(json.dumps(asdict(run))) == run
        True
    """
    found = json.loads(text)
    return Run(**{**found, "steps": tuple(map(tuple, found["steps"]))})


def _best(work, least=3, most=1000, seconds=1):
    """Seconds of the fastest of several runs: what else a computer does only adds to a time."""
    best, runs, spent = math.inf, 0, 0
    while runs < least or (runs < most and spent < seconds):
        start = time.perf_counter()
        work()
        took = time.perf_counter() - start
        best, runs, spent = min(best, took), runs + 1, spent + took
    return best


def measured_peak(n=1024):
    """FLOP/s of a product of two square matrices.

    Args:
        n: rows and columns.

    Example:
        >>> measured_peak(16) > 0
        True
    """
    import numpy

    a, b = (numpy.random.default_rng(seed).standard_normal((n, n), dtype="float32") for seed in (1, 2))
    out = numpy.empty_like(a)
    return 2 * n**3 / _best(lambda: numpy.matmul(a, b, out))


def measured_bandwidth(rows=2**14, columns=2**12):
    """B/s of a matrix-vector product, which reads each number of the matrix once.

    Args:
        rows: of the matrix.
        columns: of the matrix; by default both make 268 MB, more than caches hold.

    Example:
        >>> measured_bandwidth(16, 16) > 0
        True
    """
    import numpy

    matrix, vector = numpy.ones((rows, columns), "float32"), numpy.ones(rows, "float32")
    return matrix.nbytes / _best(lambda: vector @ matrix)


def toy_weights(shape=TOY, seed=0):
    """Random weights: a list of {name: matrix} for the layers, and the head.

    Args:
        shape: a Model whose layers are all of one kind.
        seed: of the random numbers.

    Example:
        >>> layers, head = toy_weights(Model("small", 8, 32, layers=1, heads=2, kv_heads=1, head_dim=4, ffn=16))
        >>> layers[0]["down"].shape, head.shape
        ((16, 8), (8, 32))
    """
    import numpy

    draw, h = numpy.random.default_rng(seed), shape.hidden
    made = lambda rows, columns: draw.standard_normal((rows, columns), dtype="float32") * rows**-0.5
    q, kv, ffn = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim, shape.ffn
    sizes = {"q": (h, q), "k": (h, kv), "v": (h, kv), "o": (q, h), "gate": (h, ffn), "up": (h, ffn), "down": (ffn, h)}
    return [{name: made(*size) for name, size in sizes.items()} for _ in range(shape.layers)], made(h, shape.vocab)


def empty_cache(batch, context, shape=TOY):
    """Keys and values of every layer, with room for one token more than is in them; made-up numbers.

    Args:
        batch: sequences.
        context: tokens of each.
        shape: a Model whose layers are all of one kind.

    Example:
        >>> empty_cache(2, 7)[0][0].shape
        (2, 4, 8, 64)
    """
    import numpy

    size = batch, shape.kv_heads, context + 1, shape.head_dim
    return [tuple(numpy.full(size, 0.01, "float32") for _ in "kv") for _ in range(shape.layers)]


def _product(a, b):
    """Every matrix product of a step."""
    return a @ b


def _norm(x):
    return x / ((x * x).mean(-1, keepdims=True) + 1e-6) ** 0.5


def decode_step(x, weights, cache, shape=TOY):
    """Logits of the next token of each sequence; the cache takes the keys and values of this one.

    Args:
        x: embedded tokens, one row a sequence.
        weights: of `toy_weights`.
        cache: of `empty_cache`.
        shape: a Model whose layers are all of one kind.

    Example:
        >>> small = Model("small", 8, 32, layers=1, heads=2, kv_heads=1, head_dim=4, ffn=16)
        >>> import numpy
        >>> decode_step(numpy.ones((3, 8), "float32"), toy_weights(small), empty_cache(3, 5, small), small).shape
        (3, 32)
    """
    import numpy

    batch, width = len(x), shape.head_dim
    layers, head = weights
    for w, (keys, values) in zip(layers, cache):
        y = _norm(x)
        keys[:, :, -1] = _product(y, w["k"]).reshape(batch, shape.kv_heads, width)
        values[:, :, -1] = _product(y, w["v"]).reshape(batch, shape.kv_heads, width)
        q = _product(y, w["q"]).reshape(batch, shape.kv_heads, -1, width)
        scores = _product(q, keys.swapaxes(2, 3)) * width**-0.5
        scores = numpy.exp(scores - scores.max(-1, keepdims=True))
        scores /= scores.sum(-1, keepdims=True)
        x = x + _product(_product(scores, values).reshape(batch, -1), w["o"])
        y = _norm(x)
        gate = _product(y, w["gate"])
        x = x + _product(gate / (1 + numpy.exp(-gate)) * _product(y, w["up"]), w["down"])
    return _product(_norm(x), head)


def measure(cases=CASES, shape=TOY, n=1024):
    """Measure this computer: two rates, then decode steps.

    Args:
        cases: ((sequences, tokens of each in the cache), ...).
        shape: a Model whose layers are all of one kind.
        n: rows of the square matrices; that of the matrix-vector product has 16 times as many rows and 4 times as many columns.

    Example:
        >>> small = Model("small", 8, 32, layers=1, heads=2, kv_heads=1, head_dim=4, ffn=16)
        >>> measure([(1, 4)], small, n=16).steps[0][:2]
        (1, 4)
    """
    import numpy

    measured = lambda: (measured_peak(n), measured_bandwidth(16 * n, 4 * n))
    rates = [measured()]
    weights, steps = toy_weights(shape), []
    for batch, context in cases:
        cache, x = empty_cache(batch, context, shape), numpy.ones((batch, shape.hidden), "float32")
        steps.append((batch, context, _best(partial(decode_step, x, weights, cache, shape))))
    del weights
    rates.append(measured())  # once more: a rate that others slowed down is none
    peak, bandwidth = map(max, zip(*rates))
    return Run(peak, bandwidth, tuple(steps), os.cpu_count() or 1, os.environ.get(THREADS[0], "all"), numpy.__version__)


def measured_alone():
    """A run of one core in a process of its own; in a browser, which has no processes, of this one.

    NumPy decides on its threads when it is loaded, and threads that wait for each other measure what else the computer does.

    Example:
        >>> callable(measured_alone)
        True
    """
    if sys.platform == "emscripten":
        return measure()
    code = "import json; from dataclasses import asdict; from workloads_book import computer; print(json.dumps(asdict(computer.measure())))"
    path = os.pathsep.join(filter(None, sys.path))
    alone = {**os.environ, "PYTHONPATH": path, **dict.fromkeys(THREADS, "1")}
    return read(subprocess.run([sys.executable, "-c", code], env=alone, check=True, capture_output=True, text=True).stdout)


def main():
    """Measure one core in a process of its own, and print the run; the exit status.

    Example:
        >>> callable(main)
        True
    """
    sys.stdout.write(json.dumps(asdict(measured_alone()), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

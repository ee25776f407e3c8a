"""This computer beside its bound: the rates that NumPy reaches here, and the decode of a toy transformer, in 32-bit floats.

    python -m workloads_book.computer

measures one core for about a minute, in less than 1 GB, and prints the run as JSON; one such run stands in `data/computer.json`.

    python -m workloads_book.computer --accelerator

measures a GPU through CuPy or PyTorch where one of them is installed and finds one: a path that was run on no such machine yet, and

    python -m workloads_book.computer --grade HANDED_IN.json

recomputes what a student predicted from the student's own two rates.
"""

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import workloads as wl
from workloads.facts.models import Model
from workloads.times import roofline
from workloads.units import quantity

RECORD = Path(__file__).with_name("data") / "computer.json"
TOY = Model("toy", 1024, 8192, layers=6, heads=16, kv_heads=4, head_dim=64, ffn=4096)
CASES = (1, 128), (1, 8192), (16, 128), (16, 2048), (64, 128)  # sequences, tokens of each in the cache
# how many threads NumPy's products use: read when NumPy is first loaded
THREADS = "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"
FORMATS = wl.Formats(weights=4, cache=4)  # bytes
LIKELY = 0.2, 1.05  # bound over measured of a run of its own
RIGHT = 0.02  # a prediction may be off by: rates and counts as printed


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
        device: what computed: "processor", or the name of an accelerator.
    """

    peak: float
    bandwidth: float
    steps: tuple
    cores: int
    threads: str
    numpy: str
    device: str = "processor"


@dataclass(frozen=True)
class Device:
    """Something that computes with arrays as NumPy does.

    Attributes:
        name: "processor", or that of an accelerator.
        version: of its library.
        library: module with `matmul`, `exp` and `amax`.
        put: from an array of NumPy to one of the library.
        wait: until all that was asked for is computed.
    """

    name: str
    version: str
    library: Any
    put: Callable
    wait: Callable


def processor():
    """This computer through NumPy.

    Example:
        >>> processor().name
        'processor'
    """
    import numpy

    return Device("processor", numpy.__version__, numpy, numpy.asarray, lambda: None)


def accelerator():
    """A GPU through CuPy, or else through PyTorch, whichever is installed and finds one; None without.

    Example:
        >>> found = accelerator()
        >>> found is None or found.name != "processor"
        True
    """
    with suppress(Exception):  # not installed, no driver, no card: each library has errors of its own
        cupy = import_module("cupy")
        name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
        return Device(name, f"CuPy {cupy.__version__}", cupy, cupy.asarray, cupy.cuda.Device().synchronize)
    with suppress(Exception):
        torch = import_module("torch")
        name = torch.cuda.get_device_name(0)
        return Device(name, f"PyTorch {torch.__version__}", torch, lambda a: torch.from_numpy(a).cuda(), torch.cuda.synchronize)
    return None


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


def _best(work, wait, least=3, most=1000, seconds=1):
    """Seconds of the fastest of several runs: what else a computer does only adds to a time."""
    best, runs, spent = math.inf, 0, 0
    while runs < least or (runs < most and spent < seconds):
        start = time.perf_counter()
        work()
        wait()
        took = time.perf_counter() - start
        best, runs, spent = min(best, took), runs + 1, spent + took
    return best


def measured_peak(n=1024, on=None):
    """FLOP/s of a product of two square matrices.

    Args:
        n: rows and columns.
        on: a Device, by default the processor.

    Example:
        >>> measured_peak(16) > 0
        True
    """
    import numpy

    on = on or processor()
    a, b, out = (on.put(numpy.random.default_rng(seed).standard_normal((n, n), dtype="float32")) for seed in (1, 2, 3))
    return 2 * n**3 / _best(lambda: on.library.matmul(a, b, out=out), on.wait)


def measured_bandwidth(rows=2**14, columns=2**12, on=None):
    """B/s of a matrix-vector product, which reads each number of the matrix once.

    Args:
        rows: of the matrix.
        columns: of the matrix; by default both make 268 MB, more than caches hold.
        on: a Device, by default the processor.

    Example:
        >>> measured_bandwidth(16, 16) > 0
        True
    """
    import numpy

    on = on or processor()
    matrix, vector = on.put(numpy.ones((rows, columns), "float32")), on.put(numpy.ones(rows, "float32"))
    return 4 * rows * columns / _best(lambda: vector @ matrix, on.wait)


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


def decode_step(x, weights, cache, shape=TOY, library=None):
    """Logits of the next token of each sequence; the cache takes the keys and values of this one.

    Args:
        x: embedded tokens, one row a sequence.
        weights: of `toy_weights`.
        cache: of `empty_cache`.
        shape: a Model whose layers are all of one kind.
        library: that the arrays are of, by default NumPy.

    Example:
        >>> small = Model("small", 8, 32, layers=1, heads=2, kv_heads=1, head_dim=4, ffn=16)
        >>> import numpy
        >>> decode_step(numpy.ones((3, 8), "float32"), toy_weights(small), empty_cache(3, 5, small), small).shape
        (3, 32)
    """
    library = library or processor().library
    batch, width = len(x), shape.head_dim
    layers, head = weights
    for w, (keys, values) in zip(layers, cache):
        y = _norm(x)
        keys[:, :, -1] = _product(y, w["k"]).reshape(batch, shape.kv_heads, width)
        values[:, :, -1] = _product(y, w["v"]).reshape(batch, shape.kv_heads, width)
        q = _product(y, w["q"]).reshape(batch, shape.kv_heads, -1, width)
        scores = _product(q, keys.swapaxes(2, 3)) * width**-0.5
        scores = library.exp(scores - library.amax(scores, -1, keepdims=True))
        scores /= scores.sum(-1, keepdims=True)
        x = x + _product(_product(scores, values).reshape(batch, -1), w["o"])
        y = _norm(x)
        gate = _product(y, w["gate"])
        x = x + _product(gate / (1 + library.exp(-gate)) * _product(y, w["up"]), w["down"])
    return _product(_norm(x), head)


def measure(cases=CASES, shape=TOY, n=1024, on=None):
    """Measure this computer, or an accelerator in it: two rates, then decode steps.

    Args:
        cases: ((sequences, tokens of each in the cache), ...).
        shape: a Model whose layers are all of one kind.
        n: rows of the square matrices; that of the matrix-vector product has 16 times as many rows and 4 times as many columns.
        on: a Device, by default the processor.

    Example:
        >>> small = Model("small", 8, 32, layers=1, heads=2, kv_heads=1, head_dim=4, ffn=16)
        >>> measure([(1, 4)], small, n=16).steps[0][:2]
        (1, 4)
    """
    import numpy

    on = on or processor()
    square = n if on.name == "processor" else 8 * n  # a small product keeps no accelerator busy
    measured = lambda: (measured_peak(square, on), measured_bandwidth(16 * n, 4 * n, on))
    rates = [measured()]
    layers, head = toy_weights(shape)
    weights, steps = ([{name: on.put(w) for name, w in layer.items()} for layer in layers], on.put(head)), []
    del layers, head
    for batch, context in cases:
        cache = [tuple(map(on.put, pair)) for pair in empty_cache(batch, context, shape)]
        x = on.put(numpy.ones((batch, shape.hidden), "float32"))
        steps.append((batch, context, _best(partial(decode_step, x, weights, cache, shape, on.library), on.wait)))
    del weights
    rates.append(measured())  # once more: a rate that others slowed down is none
    peak, bandwidth = map(max, zip(*rates))
    return Run(peak, bandwidth, tuple(steps), os.cpu_count() or 1, os.environ.get(THREADS[0], "all"), on.version, on.name)


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


def graded(handed):
    """What a student handed in beside what follows from the student's own rates: [(sequences, tokens, seconds predicted, recomputed,
    right, bound over measured)].

    Args:
        handed: a run as a dictionary, as `read` takes it, and under "predictions" the seconds of its steps, in their order.

    Raises:
        ValueError: for a run without as many predictions as steps.

    Example:
        >>> run = asdict(recorded())
        >>> own = [predicted(run["peak"], run["bandwidth"], batch, context) for batch, context, _ in run["steps"]]
        >>> [right for *_, right, _ in graded({**run, "predictions": [own[0] / 2, *own[1:]]})]
        [False, True, True, True, True]
    """
    told = handed.get("predictions") or ()
    run = read(json.dumps({name: value for name, value in handed.items() if name not in ("predictions", "sentence")}))
    if len(told) != len(run.steps):
        raise ValueError(f"predictions must be {len(run.steps)}, one of each step in seconds, got {len(told)}")
    found = []
    for seconds, (batch, context, took) in zip(told, run.steps):
        least = predicted(run.peak, run.bandwidth, batch, context)
        found.append((batch, context, seconds, least, abs(seconds / least - 1) <= RIGHT, least / took))
    return found


def _grades(handed):
    lines = graded(handed)
    for batch, context, seconds, least, right, ratio in lines:
        verdict = "right" if right else "not what the two rates say"
        told = "" if LIKELY[0] < ratio < LIKELY[1] else "; outside what runs show: was the computer busy, or a rate measured too low?"
        yield f"{batch} x {context} tokens: {quantity(seconds, 's', 3)}, recomputed {quantity(least, 's', 3)}: {verdict}"
        yield f"    bound over measured {ratio:.2f}{told}"
    count = sum(right for *_, right, _ in lines)
    yield f"{count} of {len(lines)} predictions; a sentence on the largest gap: {handed.get('sentence') or 'none'}"


def main(arguments=None):
    """Measure one core in a process of its own, or an accelerator, and print the run; or grade one; the exit status.

    Example:
        >>> main(["--help"])
        2
    """
    given = sys.argv[1:] if arguments is None else arguments
    if len(given) == 2 and given[0] == "--grade":
        sys.stdout.write("\n".join(_grades(json.loads(Path(given[1]).read_text(encoding="utf-8")))) + "\n")
        return 0
    if given not in ([], ["--accelerator"]):
        sys.stderr.write(__doc__.strip() + "\n")
        return 2
    if given and not (found := accelerator()):
        sys.stderr.write("no accelerator: neither CuPy nor PyTorch is installed and finds one\n")
        return 1
    run = measure(on=found) if given else measured_alone()
    sys.stdout.write(json.dumps(asdict(run), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""How much faster a count in closed form is than a count by running the model: python tests/bench_counts.py

PyTorch's counter watches Qwen3-8B on the meta device (see torch_oracle.py); the library counts the same forward pass, and forward and
backward, of 8,192 tokens. Both in one process, in the environment of `make oracle`; medians of three and of 2,000 calls.
"""

import json
import subprocess
import sys
from pathlib import Path
from statistics import median
from time import perf_counter

ROOT = Path(__file__).parents[1]


def seconds(work, rounds):
    spent = []
    for _ in range(rounds):
        start = perf_counter()
        work()
        spent.append(perf_counter() - start)
    return median(spent)


def measured():
    """Median seconds (counter, library) of both counts; needs torch."""
    import torch_oracle

    from workloads.counts import flops
    from workloads.facts import models

    network, shape = torch_oracle.built("Qwen3-8B"), models.model("Qwen3-8B")
    counted = torch_oracle.counted
    forward = lambda: counted(lambda: torch_oracle.call(network, 8192))
    both = lambda: counted(lambda: torch_oracle.call(network, 8192).logits.sum().backward())
    assert forward() == flops.forward(shape, 8192, causal=False).total and both() == flops.training(shape, 8192, causal=False).total
    return [
        (seconds(forward, 3), seconds(lambda: flops.forward(shape, 8192, causal=False).total, 2000)),
        (seconds(both, 3), seconds(lambda: flops.training(shape, 8192, causal=False).total, 2000)),
    ]


def benches():
    """(what, seconds of PyTorch's counter, seconds here, sign, goal of their ratio, note); none without the environment."""
    python = ROOT / ".venv-oracle/bin/python"
    if python.exists():
        command, where = [python, __file__, "--measure"], {"PYTHONPATH": str(ROOT / "lib")}
        out = subprocess.run(command, capture_output=True, text=True, check=True, env=where)
        for what, (above, below) in zip(("forward", "forward and backward"), json.loads(out.stdout.splitlines()[-1])):
            yield f"PyTorch's counter over the closed form, {what}, Qwen3-8B", above, below, ">=", 10_000, "the counts are equal integers"


if __name__ == "__main__":
    if "--measure" in sys.argv:
        print(json.dumps(measured()))
    else:
        for what, above, below, sign, goal, _ in benches():
            print(f"{what}: {above:.3f} s over {1e6 * below:.1f} µs = {above / below:,.0f} (goal {sign} {goal:,})")

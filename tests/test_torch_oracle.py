"""Counts against PyTorch: the library's integers equal what torch's own counter saw in the models of transformers, difference 0.

The recorded table (data/torch_counts.tsv, made by `make oracle`) is compared everywhere. Where an environment with torch exists, some
models are counted anew.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch_oracle

from workloads.counts import flops
from workloads.counts.parameter_counts import parameters
from workloads.facts.models import model
from workloads.facts.tables import table

ROOT = Path(__file__).parents[1]
RECORDED = [tuple(row.values()) for row in table("torch_counts")]
RECOMPUTE = {"training": "nothing", "checkpointed": "stop early"}


def library_count(name, quantity, new, past, logits):
    """What the library says of a row, attention over the whole square."""
    if quantity == "parameters":
        return parameters(model(name)).total
    if quantity == "decode":
        return flops.decode_step(model(name), int(past)).total
    if quantity == "prefill":
        return flops.forward(model(name), int(new), head=logits, causal=False).total
    return flops.training(model(name), int(new), head=logits, causal=False, recompute=RECOMPUTE[quantity]).total


@pytest.mark.parametrize("name", torch_oracle.SHAPES)
def test_the_library_counts_what_torch_counted(name):
    found = {tuple(row[1:5]): (library_count(*row[:5]), int(row[5])) for row in RECORDED if row[0] == name}
    assert len(found) >= 10
    assert {row: ours - torchs for row, (ours, torchs) in found.items()} == dict.fromkeys(found, 0)


def test_the_recorded_shapes_differ_where_counts_go_wrong():
    shapes = [model(name) for name in torch_oracle.SHAPES]
    assert {"mha", "gqa", "mla"} <= {m.attention for m in shapes}
    assert sum(m.heads * m.head_dim != m.hidden for m in shapes if not m.latent) >= 3
    assert sum(m.experts > 0 for m in shapes) >= 3 and sum(m.tied for m in shapes) >= 1 and sum(m.qkv_bias for m in shapes) >= 1
    assert {row[0] for row in RECORDED} == set(torch_oracle.SHAPES)
    assert {int(row[2]) for row in RECORDED if row[1] == "prefill"} == set(torch_oracle.LENGTHS) and len(torch_oracle.LENGTHS) >= 3


def test_causal_counts_differ_from_torch_by_the_masked_pairs_alone():
    """The fused kernel skips the upper triangle that the counter counts: 4 heads head_dim L for each of n(n-1)/2 pairs."""
    for name, quantity, new, _, logits, count, *_ in RECORDED:
        if quantity == "prefill" and not model(name).latent:
            n, m = int(new), model(name)
            masked = n * (n - 1) // 2 * 4 * m.heads * m.head_dim * m.layers
            assert int(count) - flops.forward(m, n, head=logits).total == masked


def with_torch():
    """A Python that has torch and transformers, and None if there is none."""
    for python in (sys.executable, ROOT / ".venv-oracle/bin/python"):
        if Path(python).exists() and not subprocess.run([python, "-c", "import torch, transformers"], capture_output=True).returncode:
            return python
    return None


@pytest.mark.parametrize("name", ["Qwen3-4B", "Llama-2-7B", "Mixtral-8x7B"])
def test_torch_counts_the_same_today(name):
    python = with_torch()
    if not python:
        pytest.skip("torch is not installed (`make oracle` does it): the recorded counts were compared, none was taken anew")
    done = subprocess.run(
        [python, ROOT / "tests/torch_oracle.py", name],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "PYTHONPATH": str(ROOT / "lib")},
    )
    assert not done.returncode, done.stderr
    fresh = [tuple(line.split("\t"))[:6] for line in done.stdout.splitlines()[1:]]
    assert fresh == [row[:6] for row in RECORDED if row[0] == name]

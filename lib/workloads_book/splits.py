"""Published runs on several accelerators beside the library's splits: memory of a layout, seconds of a step, RL steps.

    python -m workloads_book.splits

prints all comparisons. Layouts, batches and results are those that the sources print; what they leave out is said where it is supplied.
"""

import re
import sys

from workloads.counts.layout import Layout, Plan
from workloads.counts.layout_memory import training_bytes
from workloads.counts.parameter_counts import parameters
from workloads.units import GIB

from . import score
from .studies.graph_memory import _entered
from .studies.transformer_graph import transformer

EAGER_LOSS = (2, 4, 4, 4)  # logits in BF16; log-softmax, its gradient and that of the loss in FP32, each whole


# ------------------------------------------------------------------------------------------------- memory
def _numbers(text):
    """{"FSDP": 8, "CP": 1, ...} of a layout as torchtitan writes it."""
    return {name: int(ways) for name, ways in re.findall(r"(FSDP|TP|PP|CP) (\d+)", text)}


def memory_run(row):
    """(model, layout, tokens, sequences of all copies, plan) of a row of ``data/measured_memory.tsv``.

    With pipelines a copy's sequences pass in as many micro-batches as stages: the trainer's default, not printed.

    Example:
        >>> model, layout, tokens, batch, plan = memory_run(score.table("measured_memory")[12])
        >>> layout.gpus, plan.micro_batch, plan.schedule
        (512, 4.0, '1f1b')
    """
    ways = _numbers(row["layout"])
    layout = Layout(ways.get("TP", 1), ways.get("PP", 1), ways["FSDP"], context=ways.get("CP", 1))
    batch, chunks = int(row["global_batch"]), 2 if "interleaved" in row["layout"] else 1
    own = batch / layout.data / (max(1, layout.pipeline))
    schedule = "interleaved" if chunks > 1 else "1f1b"
    plan = Plan(own, schedule, chunks, zero=3, recompute="layers", recipe="bf16 gradients")
    return score.model(row["model"]), layout, int(row["sequence"]), batch, plan


def memory_bound(row):
    """Least GiB that the fullest GPU of a run holds: state, inputs of layers, one layer computed again, logits.

    Example:
        >>> round(memory_bound(score.table("measured_memory")[3]), 1)  # printed: 83.9
        66.6
    """
    *shape, plan = memory_run(row)
    ends = {0, shape[1].pipeline - 1}
    return max(training_bytes(*shape, plan, stage).total for stage in ends) / GIB


def memory_estimate(row):
    """GiB that the fullest GPU of a run is expected to hold: the bound with what this trainer is known to keep besides.

    Besides the bound: an eager loss; under selective recomputation every second matrix product of a layer and its attention output
    (torchtitan's rule); weights gathered in BF16, two layers and the tables at a time, the whole stage under a pipeline, where
    gradients also wait unsharded in FP32 for the last micro-batch (PyTorch's FSDP2); inputs that tensor parallelism has gathered, of one
    layer and of the head.

    Example:
        >>> round(memory_estimate(score.table("measured_memory")[3]), 1)  # printed: 83.9
        85.8
    """
    model, layout, tokens, batch, plan = memory_run(row)
    found = []
    for stage in {0, layout.pipeline - 1}:
        held = training_bytes(model, layout, tokens, batch, plan, stage, EAGER_LOSS)
        found.append(held.total + _gathered(model, layout, stage) + _inputs(model, layout, tokens, plan, stage))
    kept = _every_second_product(model, tokens) * plan.micro_batch if row["recompute"] == "selective" else 0
    return (max(found) + kept) / GIB


def _gathered(model, layout, stage):
    """Bytes of weights and gradients that a GPU holds unsharded."""
    count, p = parameters(model), layout.pipeline
    layers = (count.total - count.embedding - count.head) / layout.tensor
    tables = (count.embedding * (stage == 0) + count.head * (stage == p - 1)) / layout.tensor
    if p == 1:
        return 2 * (tables + 2 * layers / model.layers) + 4 * layers / model.layers
    return (2 + 4) * (tables + layers / p)


def _inputs(model, layout, tokens, plan, stage):
    """Bytes of inputs whole on each tensor rank: of attention and feed-forward part, of the head."""
    if layout.tensor == 1:
        return 0
    return (2 + (stage == layout.pipeline - 1)) * 2 * plan.micro_batch * tokens / layout.context * model.hidden


def _every_second_product(model, tokens):
    """Bytes of a sequence that torchtitan's selective recomputation keeps beside the inputs of layers."""
    graph, kept, products = transformer(model, tokens), 0, 0
    inputs = set(_entered(graph))
    for op in graph:
        if not op.name.startswith("layer "):
            continue
        if op.weight and op.flops:
            products = 1 if op.name.endswith(" query") else products + 1
            kept += op.elements * (products % 2) * (op.name not in inputs)
        elif op.name.endswith(" values"):
            kept += op.elements
    return 2 * kept


def memory_rows():
    """Runs with printed peaks: [(row, bound, estimate)], GiB.

    Example:
        >>> len(memory_rows())
        18
    """
    return [(row, memory_bound(row), memory_estimate(row)) for row in score.table("measured_memory")]


def main():
    """Print all comparisons."""
    for row, bound, estimate in memory_rows():
        printed = float(row["memory_gib"])
        line = (row["table"], row["layout"], printed, round(bound, 1), round(estimate, 1), round(estimate / printed, 2))
        sys.stdout.write("\t".join(map(str, line)) + "\n")


if __name__ == "__main__":
    sys.exit(main())

"""Published runs on several accelerators beside the library's splits: memory of a layout, seconds of a step, RL steps.

    python -m workloads_book.splits

prints all comparisons. Layouts, batches and results are those that the sources print; what they leave out is said where it is supplied.
"""

import re
import sys
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from workloads.counts.collectives import all_reduce
from workloads.counts.layout import Layout, Plan
from workloads.counts.layout_memory import training_bytes
from workloads.counts.parameter_counts import parameters
from workloads.learning.rl.phases import rl_step
from workloads.times.links import sending_seconds
from workloads.times.machine import Machine
from workloads.times.split import training_seconds
from workloads.units import GIB

from . import score
from .rl_rows import DEFAULTS, Shares, rl_layouts, rl_step_of
from .studies.graph_memory import _entered
from .studies.transformer_graph import transformer

EAGER_LOSS = (2, 4, 4, 4)  # logits in BF16; log-softmax, its gradient and that of the loss in FP32, each whole


# ----------------------------------------------------------------------------------------------- collectives
def collective_rows():
    """All-reduces as measured inside a node, beside their bound without latency: [(cards, bytes, seconds, bound)].

    Example:
        >>> cards, size, seconds, bound = collective_rows()[-1]
        >>> cards, size, round(1e3 * seconds, 2), round(1e3 * bound, 2)
        (8, 536870912, 4.01, 2.09)
    """
    found = []
    for row in score.table("measured_collectives"):
        cards, size = int(row["ranks"]), int(row["bytes"])
        bound = sending_seconds(all_reduce(size, cards), score.accelerator(row["accelerator"]))
        found.append((cards, size, float(row["microseconds"]) / 1e6, bound))
    return found


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
    shape, layout, tokens, batch, plan = memory_run(row)
    return max(training_bytes(shape, layout, tokens, batch, plan, stage).total for stage in {0, layout.pipeline - 1}) / GIB


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


# --------------------------------------------------------------------------------------- seconds of training
LAYOUTS = ("megatron_bridge", "nemo_2024", "torchtitan")  # sources whose rows state how the work is split
AT_512 = {"TP": 8, "PP": 8}  # torchtitan's 405B, as its tables head the rows


class Training(NamedTuple):
    """A published step of training beside its bound before splits are counted, and with them at both ends of the overlap (s)."""

    id: str
    source: str
    experts: bool
    hardware: str
    measured: float
    before: float
    hidden: float
    apart: float

    def share(self, which):
        """What the time takes of the measured one.

        Example:
            >>> round(training_steps()[0].share("before"), 2)
            0.31
        """
        return getattr(self, which) / self.measured


def training_run(row):
    """(layout, sequences of all copies, plan) of a row of training whose source states its split; Unscored where it does not.

    What is not printed: ZeRO stage 1 where no FSDP is named; nothing computed again where that is unknown; as many micro-batches as
    stages in torchtitan.

    Example:
        >>> row = next(row for row in score.table("measured") if row["id"] == "nemo_2024-12")
        >>> layout, batch, plan = training_run(row)
        >>> layout.tensor, layout.pipeline, layout.context, layout.data, batch, plan.chunks
        (4, 4, 2, 2, 128, 5)
    """
    ways = {name: max(1, int(n)) for name, n in re.findall(r"\b(FSDP|TP|PP|CP|VP|EP)[= ](\d+)", row["parallel"])}
    titan, cards = row["id"].startswith("torchtitan"), int(row["count"])
    if titan:
        ways |= AT_512 if cards == 512 else {"TP": 8} if row["parallel"].startswith("2D") else {}
        ways |= {"VP": 2} if row["parallel"].startswith("Interleaved") else {}
    t, p, c, e = (ways.get(name, 1) for name in ("TP", "PP", "CP", "EP"))
    size = re.search(r"MBS (\d+)|local batch (\d+)", row["note"])
    if cards % (t * p * c) or not size or not row["batch"].isdigit():
        raise score.Unscored(f"split or batch of {row['id']} is not stated in full")
    micro = int(size[1]) if size[1] else int(size[2]) / p
    chunks = ways.get("VP", 1) if p > 1 else 1
    zero = 3 if titan or ways.get("FSDP", 1) > 1 else 1
    again = "layers" if row["recompute"] == "full" else "nothing"
    plan = Plan(micro, "interleaved" if chunks > 1 else "1f1b", chunks, zero, again)
    return Layout(t, p, cards // (t * p * c), e, c), int(row["batch"]), plan


def training_step(row):
    """The `Training` step of a row of training that states its split; Unscored where it does not.

    Example:
        >>> step = training_step(next(row for row in score.table("measured") if row["id"] == "nemo_2024-12"))
        >>> step.before <= step.hidden <= step.apart <= step.measured
        True
    """
    scored, (layout, batch, plan) = score.score(row), training_run(row)
    shape, format = score.model(row["model"]), score._format(row["precision"])[1]
    machine = Machine(score.accelerator(row["hardware"]), layout.gpus, format)
    ends = (replace(plan, overlap=overlap) for overlap in ("all", "nothing"))
    times = [training_seconds(shape, machine, layout, int(row["isl"]), batch, end).total for end in ends]
    source, experts = row["id"].rpartition("-")[0], parameters(shape).experts > 0
    return Training(row["id"], source, experts, machine.accelerator.name, scored.measured * batch, scored.bound * batch, *times)


@cache
def training_steps():
    """All `Training` steps whose source states the split and whose model and links are known.

    Example:
        >>> len({step.source for step in training_steps()})
        3
    """
    found = []
    for row in score.table("measured"):
        if row["kind"] == "train" and row["id"].rpartition("-")[0] in LAYOUTS:
            try:
                found.append(training_step(row))
            except score.Unscored:
                continue
    return tuple(found)


def with_splits(row):
    """How much longer the bound of a row gets by what its split sends and waits, sending hidden where it can: a factor, 1 where the row
    states no split, or one that cannot be counted.

    Args:
        row: as in `score.score`.

    Example:
        >>> rows = {row["id"]: row for row in score.table("measured")}
        >>> with_splits(rows["torchtitan-1"]), with_splits(rows["nemo_2024-12"]) > 1
        (1.0, True)
    """
    if row["kind"] != "train":
        return 1.0
    try:
        step = training_step(row)
    except ValueError:
        return 1.0
    return max(1.0, step.hidden / step.before)


def spreads():
    """How far shares of the measured time lie apart before and after splits are counted, by source, dense or experts.

    Returns:
        {(source, experts): (steps, {which: (median share, ratio of the ends of the middle 80%)})}.

    Example:
        >>> steps, shares = spreads()["torchtitan", False]
        >>> steps, {which: round(ratio, 1) for which, (_, ratio) in shares.items()}
        (10, {'before': 2.7, 'hidden': 1.6, 'apart': 1.8})
    """
    groups = {}
    for step in training_steps():
        groups.setdefault((step.source, step.experts), []).append(step)
    ends = lambda steps, which: [score.quantile({"all": [s.share(which) for s in steps]}, q) for q in (0.1, 0.5, 0.9)]
    found = {}
    for key, own in sorted(groups.items()):
        shares = {which: ends(own, which) for which in ("before", "hidden", "apart")}
        found[key] = len(own), {which: (middle, high / low) for which, (low, middle, high) in shares.items()}
    return found


# ------------------------------------------------------------------------------------------------ steps of RL
@cache
def class_shares():
    """Shares that published work outside RL reaches: of training on H100 with its splits counted one after the other, of decode.

    No row of RL enters. They were first looked at after `DEFAULTS` had missed most rows with experts: a second try and no forecast, and it
    brings no more rows in. Decode with experts is of one publisher and in 8 bits: there is no other.

    Example:
        >>> [round(share, 2) for share in (*class_shares().learning, *class_shares().generation)]
        [0.49, 0.25, 0.38, 0.08]
    """
    middle = lambda values: score.quantile({"all": values}, 0.5)
    trained = lambda experts: [s.share("apart") for s in training_steps() if s.experts == experts and s.hardware == "H100 SXM"]
    decoded = lambda *classes: [s.ratio for s in score.published()[0] if s.group in classes and s.ratio <= 1]
    dense = score.bands()["decode, 16 bits, dense, any number of chips"].middle
    return Shares((middle(trained(False)), middle(trained(True))), (dense, middle(decoded("decode, 8 bits, experts, several chips"))))


def rl_seconds(row, shares=DEFAULTS, overlap="nothing"):
    """`Breakdown` of a row of NeMo-RL: the library's step on the row's layouts (see `rl_rows.rl_step_of`).

    Example:
        >>> row = next(row for row in score.table("measured") if row["id"] == "nemo_rl-9")
        >>> round(rl_seconds(row).step_seconds), row["measured"]
        (353, '393')
    """
    return rl_step(rl_step_of(row, score.model(row["model"]), score.accelerator(row["hardware"]), shares, overlap))


def rl_rows(shares=DEFAULTS):
    """NeMo-RL's rows one by one: [(row, its `Breakdown`)].

    Example:
        >>> len(rl_rows())
        10
    """
    return [(row, rl_seconds(row, shares)) for row in score.table("measured") if row["kind"] == "rl"]


def same_split_pairs(shares=DEFAULTS):
    """What two rows that split both sides alike say without any share: [(model, seconds at least, modelled smaller side)].

    Off policy the longer side takes the step; on policy the same sides follow each other. So the smaller side of the on-policy step, with
    all that is neither generation nor learning (new weights, moving state between memories), takes at least the difference of the two.

    Example:
        >>> [(model, round(least), round(side)) for model, least, side in same_split_pairs()]
        [('DeepSeek-V3', 76, 5), ('Qwen3-32B', 178, 73)]
    """
    rows = [row for row in score.table("measured") if row["kind"] == "rl"]
    found = []
    for on, off in zip(rows[::2], rows[1::2]):
        if rl_layouts(on) == rl_layouts(off):
            side = rl_seconds(on, shares)
            smaller = min(side.rollout.seconds, side.learning.seconds)
            found.append((on["model"], float(on["measured"]) - float(off["measured"]), smaller))
    return found


def main():
    """Print all comparisons, a line each, columns parted by tabs.

    Example:
        >>> main()  # doctest: +ELLIPSIS, +NORMALIZE_WHITESPACE
        T1  FSDP 8  82.4  40.8  79.2  0.96
        ...
    """
    write = lambda *line: sys.stdout.write("\t".join(map(str, line)) + "\n")
    for row, bound, estimate in memory_rows():
        printed = float(row["memory_gib"])
        write(row["table"], row["layout"], printed, round(bound, 1), round(estimate, 1), round(estimate / printed, 2))
    for (source, experts), (steps, shares) in spreads().items():
        for which, (median, ratio) in shares.items():
            write(source, "experts" if experts else "dense", steps, which, round(median, 3), round(ratio, 2))
    for name, shares in (("defaults", DEFAULTS), ("classes", class_shares())):
        for row, found in rl_rows(shares):
            times = [round(part.seconds, 1) for part in (found.rollout, found.logprob, found.training, found.optimizer)]
            write(
                name,
                row["id"],
                row["model"],
                *times,
                round(found.step_seconds, 1),
                row["measured"],
                round(found.step_seconds / float(row["measured"]), 2),
            )


if __name__ == "__main__":
    sys.exit(main())

"""Published steps of reinforcement learning as the library's own step on the layouts that their rows print (see `score`, `splits`).

What the rows leave out is said where it is supplied, and none of it was chosen after a row was seen.
"""

import math
import re
from dataclasses import dataclass, replace

from workloads.counts.collectives import all_gather
from workloads.counts.layout import Layout, Plan
from workloads.counts.memory import weight_bytes
from workloads.counts.parameter_counts import parameters
from workloads.learning.rl.configuration import lognormal_lengths
from workloads.learning.rl.parts import Side
from workloads.learning.rl.sides import on_layouts
from workloads.times.links import sending_seconds
from workloads.times.machine import Machine

ANSWERS = 1.0  # standard deviation over mean of the lengths of answers, as on the page of assumptions
AGAIN = ("Llama-3.1-8B", "DeepSeek-V3", "Qwen3-235B-A22B")  # whose recipes checkpoint activations
UPDATE = 512  # sequences of a training batch (T-GBS), in every row


@dataclass(frozen=True)
class Shares:
    """Shares of peak and bandwidth that learning and generation reach: one of each for dense models, one for experts."""

    learning: tuple
    generation: tuple


DEFAULTS = Shares((0.35, 0.35), (0.7, 0.7))  # of `parts.Gpu`, as everywhere in the book
WHOLE = Shares((1, 1), (1, 1))  # of a bound


def rl_layouts(row):
    """(layout of a copy that generates, cards that generate, layout of training) of a row.

    Off-policy rows split their GPUs in halves, as the recipes of that release do.

    Raises:
        ValueError: for a row that states none.

    Example:
        >>> layout, cards, training = rl_layouts(
        ...     {"count": "256", "note": "1-step Off", "parallel": "gen [TP,PP] [8,1] train [TP,CP,EP,PP,VPP] [4,1,16,8,n/a]"}
        ... )
        >>> layout.gpus, cards, training.gpus
        (8, 128, 128)
    """
    found = re.search(r"gen \[TP,PP\] \[(\d+),(\d+)\].*\[([^\]]*)\]$", row["parallel"])
    if not found:
        raise ValueError(f"layout of both sides is not stated: {row['parallel']!r}")
    ways = [int(n) for n in re.findall(r"\d+", found[3])]
    t, c, e, p = (1, 1, 1, 2) if len(ways) == 6 else ways  # seven numbers under five names: one stage more, as in its recipe
    cards = int(row["count"]) // (1 if "On policy" in row["note"] else 2)
    return Layout(int(found[1]), int(found[2])), cards, Layout(t, p, cards // (t * p * c), e, c)


def rl_step_of(row, shape, card, shares=DEFAULTS, overlap="nothing", **changes):
    """`RLStep` of a row: shapes, layouts, links and shares, no latency, no time of an engine between steps.

    Answers spread log-normally around the printed mean, cut at the printed length, decoded without waves; two passes over finished
    samples, the policy's own log-probabilities and the reference's (base recipe: KL penalty 0.01); packs of the printed length (where
    stages need equal ones) or of whole sequences; new weights as an all-gather over all cards, alone.

    Args:
        row: of ``data/measured.tsv``, of a kind "rl".
        shape: its Model.
        card: its Accelerator.
        shares: that both sides reach.
        overlap: of communication with arithmetic.
        **changes: further fields of the step.

    Example:
        >>> import workloads as wl
        >>> row = {"count": "64", "note": "Off; max length 4,096", "batch": "2048", "osl": "3207", "model": "Qwen3-32B"}
        >>> row["parallel"] = "gen [TP,PP] [4,1] train [TP,CP,EP,PP,VPP] [4,1,1,4,n/a]"
        >>> round(wl.rl_step(rl_step_of(row, wl.model("Qwen3-32B"), wl.accelerator("H100 SXM"))).step_seconds)
        280
    """
    (copy, cards, layout), experts = rl_layouts(row), parameters(shape).experts > 0
    samples, mean = int(row["batch"]), int(row["osl"])
    longest = int(re.findall(r"max length ([\d,]+)", row["note"])[0].replace(",", ""))
    plan = Plan(overlap=overlap, recompute="layers" if row["model"] in AGAIN else "nothing", recipe="bf16 gradients")
    own = UPDATE // layout.data  # sequences of a copy in an update; as many packs where two do not fit one
    packs = math.ceil(own * mean / longest) if 2 * mean <= 1.1 * longest else own
    tokens = longest if layout.pipeline > 1 else int(own * mean / packs)
    generation = Side(shape, Machine(card, copy.gpus, mbu=shares.generation[experts]), copy, plan)
    training = Side(shape, Machine(card, cards, mfu=shares.learning[experts]), layout, plan, packs=(tokens, packs * layout.data))
    alone = cards < int(row["count"])
    given = dict(
        completion=lognormal_lengths(mean, ANSWERS, longest, max(2, min(64, int(samples * copy.gpus / cards)))),
        prompts=samples,
        group=1,
        updates=samples // UPDATE,
        policy_logprobs=True,
        capacity="ignored",
        rollout_gpus=cards if alone else None,
        overlap=alone,
        other_seconds=sending_seconds(all_gather(weight_bytes(shape), int(row["count"]), card.domain), card),
    )
    return on_layouts(generation, training, **{**given, **changes})


def rl_bound_of(row, shape, card):
    """`RLStep` of a row that no run can undercut on its layouts: every rate reached, sending hidden behind arithmetic where it can be.

    Answers of the mean length and nothing else, one pass over finished samples, nothing padded or computed again; moving the new weights
    counts nothing.

    Example:
        >>> import workloads as wl
        >>> row = {"count": "64", "note": "Off; max length 4,096", "batch": "2048", "osl": "3207", "model": "Qwen3-32B"}
        >>> row["parallel"] = "gen [TP,PP] [4,1] train [TP,CP,EP,PP,VPP] [4,1,1,4,n/a]"
        >>> round(wl.rl_step(rl_bound_of(row, wl.model("Qwen3-32B"), wl.accelerator("H100 SXM"))).step_seconds)
        56
    """
    step = rl_step_of(row, shape, card, WHOLE, "all", completion=int(row["osl"]), reference=False, other_seconds=0)
    side = step.placement.training
    assert side is not None
    return step.having(training=replace(side, packs=None, plan=replace(side.plan, recompute="nothing")), recompute=False)

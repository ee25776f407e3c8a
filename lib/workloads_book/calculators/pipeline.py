"""The pipeline that moves: micro-batches through stages, drawn box by box, with the share of time in which a stage waits."""

from itertools import pairwise

from workloads.counts.layout import SCHEDULES
from workloads.times.pipeline import bubble_share
from workloads.units import number, quantity
from workloads_book.studies import pipeline_schedule

from ..plot import Axis
from ..plot_schedule import schedule as drawing
from .forms import calculator, choice, count, group, num, result

CALLED = {"gpipe": "GPipe", "1f1b": "1F1B", "interleaved": "Interleaved", "zero-bubble": "Zero-bubble (ZB-H1)"}
NAMES = {told: name for name, told in CALLED.items()}
FORMULAS = {
    "gpipe": "(p − 1)/(m + p − 1)",
    "1f1b": "(p − 1)/(m + p − 1)",
    "interleaved": "(p − 1)/(v m + p − 1)",
    "zero-bubble": "(p − 1) f / (m (f + b) + (p − 1) f)",
}


@calculator(
    "pipeline",
    "A pipeline and its bubble",
    "How long does a stage wait, and what makes the gaps smaller? Drag micro-batches and stages.",
    count("micro_batches", "Micro-batches of a step (m)", 8, "", 1, 32, range(1, 33)),
    count("stages", "Stages (p)", 4, "", 1, 8, range(1, 9)),
    choice("schedule", "Schedule", tuple(CALLED[name] for name in SCHEDULES), "1F1B"),
    count("chunks", "Chunks of a stage, where interleaved (v)", 2, "", 2, 4, range(2, 5)),
    *group(
        "Times of a micro-batch in a stage",
        num("forward", "Forward (f)", 1, "s", 0.001, 10**4, (0.5, 1, 2, 3, 4)),
        num("backward", "Backward (b)", 2, "s", 0.001, 10**4, (0.5, 1, 2, 3, 4)),
    ),
    exact=False,
)
def draw_pipeline(stages, micro_batches, schedule, chunks, forward, backward):
    """The schedule of a pipelined step, the share in which a stage waits as drawn and by formula, and what a stage holds."""
    chosen = NAMES[schedule]
    sizes = lambda name: (stages, micro_batches, forward, backward, name, chunks if name == "interleaved" else 1)
    if chosen == "interleaved" and micro_batches % stages:
        near = [n for n in (micro_batches // stages * stages, (micro_batches // stages + 1) * stages) if n]
        raise ValueError(
            f"micro_batches must be a multiple of the {stages} stages where chunks are interleaved, got {micro_batches}: "
            f"{' or '.join(map(str, near))} would do"
        )
    works = {
        name: pipeline_schedule.schedule_work(*sizes(name)) for name in SCHEDULES if name != "interleaved" or not micro_batches % stages
    }
    shares = {name: pipeline_schedule.idle_share(work) for name, work in works.items()}
    held = {name: pipeline_schedule.most_held(work)[0] / (chunks if name == "interleaved" else 1) for name, work in works.items()}
    ends = {name: max(piece.end for piece in work) for name, work in works.items()}
    work, share, end = works[chosen], shares[chosen], ends[chosen]
    values = {
        "idle_share": share,
        "formula_share": bubble_share(*sizes(chosen)),
        "step_seconds": end,
        "idle_seconds": share * end,
        "held": held[chosen],
        "pieces": len(work),
    }
    text = (
        f"{schedule}: of {quantity(end, 's', 4)} each stage waits {quantity(share * end, 's', 3)}, "
        f"{quantity(share, '%', 3)}; the first one holds {number(held[chosen], 3)} micro-batch{'es' * (held[chosen] != 1)} at once."
    )
    rows = [[CALLED[n], quantity(ends[n], "s", 4), quantity(shares[n], "%", 3), number(held[n], 3)] for n in works]
    alt = (
        f"{schedule}, {stages} stage{'s' * (stages != 1)}, {micro_batches} micro-batch{'es' * (micro_batches != 1)}: a row for each stage. "
        + "; ".join(_spoken(work, s) for s in range(stages))
        + "."
    )
    picture = drawing(work, Axis("time (s)", high=end), alt, "pipeline")
    caption = (
        "A row a stage, a box a piece of work with its micro-batch; hatched, the stage waits. Equal stages, messages that take no time"
        + (f"; every micro-batch passes each stage {chunks} times." if chosen == "interleaved" else ".")
    )
    head = ["schedule", "step>", "a stage waits>", "first stage holds>"]
    return result(text, values, _verdicts(values, chosen, micro_batches, stages), [(head, rows)], [(picture, caption)])


def _spoken(work, stage):
    own = [piece for piece in work if piece.stage == stage]
    ends = own[0].start, own[-1].end
    gaps = sum(b.start > a.end for a, b in pairwise(own))
    return f"stage {stage + 1} works from {number(ends[0], 4)} to {number(ends[1], 4)} s with {gaps} gap{'s' * (gaps != 1)}"


def _verdicts(v, name, micro_batches, stages):
    same = abs(v["idle_share"] - v["formula_share"]) <= 1e-9
    told = f"{FORMULAS[name]} = {quantity(v['formula_share'], '%', 3)}"
    if same:
        yield (
            True,
            f"Counted in the drawing, a stage waits {quantity(v['idle_share'], '%', 3)} of the step; the formula says so too: {told}.",
        )
    else:
        needs = (
            f"as many micro-batches as stages, here {stages}" if micro_batches < stages else "a backward pass of at most twice the forward"
        )
        yield None, f"Counted in the drawing, a stage waits {quantity(v['idle_share'], '%', 3)}; the formula, {told}, needs {needs}."
    if stages > 1:
        enough = micro_batches >= 4 * stages
        yield (
            None,
            f"Rule of thumb: four micro-batches a stage, here {4 * stages}, keep the wait of 1F1B below a fifth"
            f"{'' if enough else f'; there are {micro_batches}'}.",
        )

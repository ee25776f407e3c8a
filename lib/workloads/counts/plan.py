"""How a split model is run: micro-batches, order of a pipeline, what is sharded and what is computed again."""

from __future__ import annotations

from dataclasses import dataclass

from ..checks import between, keep, nonnegative, one_of, positive, whole
from ..numeric import Number
from ..units import Count, Seconds
from .training_memory import RECIPES

SCHEDULES = ("gpipe", "1f1b", "interleaved", "zero-bubble")
WORDS = dict(schedule=SCHEDULES, recompute=("nothing", "selective", "layers"), recipe=tuple(RECIPES), overlap=("all", "nothing"))


@dataclass(frozen=True)
class Plan:
    """How a layout is run.

    Attributes:
        micro_batch: sequences that pass a stage together.
        schedule: of the pipeline, in SCHEDULES: "gpipe", "1f1b", "interleaved" or "zero-bubble".
        chunks: parts of the model on each stage ("interleaved" alone takes several).
        zero: stage of ZeRO, what is sharded over the copies: 0 nothing, 1 optimizer state, 2 gradients too, 3 weights
            too (FSDP).
        recompute: "nothing"; "selective", all that costs no matrix product; "layers", each layer from its input.
        recipe: of the training state, a name in RECIPES.
        imbalance: tokens of the busiest card's experts over the mean, at least 1.
        layer_seconds: fixed time of a layer in each pass of a micro-batch (s).
        step_seconds: fixed time of a step (s).
        fast_latency: of a message inside a fast domain (s).
        network_latency: of a message over the network (s).
        overlap: communication that hides behind arithmetic: "all" (a lower bound) or "nothing".

    Example:
        >>> Plan(zero=3, recompute="layers").schedule
        '1f1b'
    """

    micro_batch: Count = 1
    schedule: str = "1f1b"
    chunks: Count = 1
    zero: Count = 1
    recompute: str = "nothing"
    recipe: str = "fp32 gradients"
    imbalance: Number = 1
    layer_seconds: Seconds = 0
    step_seconds: Seconds = 0
    fast_latency: Seconds = 0
    network_latency: Seconds = 0
    overlap: str = "all"

    def __post_init__(self):
        keep(self, positive, "sequences", "micro_batch")
        keep(self, whole, "", "chunks", least=1, most=None if self.schedule == "interleaved" else 1)
        keep(self, whole, "", "zero", most=3)
        keep(self, lambda value, *name: between(value, 1, None, *name), "", "imbalance")
        keep(self, nonnegative, "s", "layer_seconds", "step_seconds", "fast_latency", "network_latency")
        for name, known in WORDS.items():
            one_of(getattr(self, name), name, known)


USUAL = Plan()

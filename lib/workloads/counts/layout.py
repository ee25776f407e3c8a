"""How the work of one model is split over accelerators."""

from __future__ import annotations

from dataclasses import dataclass

from ..checks import between, keep, multiple, nonnegative, one_of, positive, whole
from ..facts.models import Model
from ..numeric import Number
from ..units import Count, Seconds, Tokens
from .memory import kv_copies
from .parameter_counts import _expert_biases, parameters
from .training_memory import RECIPES

SCHEDULES = ("gpipe", "1f1b", "interleaved", "zero-bubble")
WORDS = dict(schedule=SCHEDULES, recompute=("nothing", "selective", "layers"), recipe=tuple(RECIPES), overlap=("all", "nothing"))


@dataclass(frozen=True)
class Layout:
    """How many ways the work is split, each at least 1: tensor, pipeline, data, expert and context parallelism.

    Attributes:
        tensor: ways that matrices and heads are split (tensor_parallel_size).
        pipeline: ways that layers are split.
        data: whole copies with sequences of their own.
        expert: ways that the routed experts are split, over the cards of tensor and data parallelism.
        context: ways that the positions of a sequence are split.

    Raises:
        ValueError: for a number that is not whole and at least 1.

    Example:
        >>> Layout(tensor=4, data=2).gpus
        8
    """

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    expert: int = 1
    context: int = 1

    def __post_init__(self):
        keep(self, whole, "", "tensor", "pipeline", "data", "expert", "context", least=1)

    @property
    def gpus(self) -> Count:
        """Accelerators in all. Experts are spread over those that tensor and data parallelism name, so they add none."""
        return self.tensor * self.pipeline * self.data * self.context

    def groups(self, model: Model) -> tuple[tuple[Number, Count, Count], tuple[Number, Count, Count]]:
        """What one card holds of the weights before any sharding over copies: of all but the routed experts, and of
        these.

        Args:
            model: a Model.

        Returns:
            Pairs of (parameters on a card, mean over stages; copies of them over the cards of a stage; ways that they are
            split in it). Where expert is 1, routed experts are split as all matrices are.

        Raises:
            ValueError: for cards of a stage that experts cannot be spread over evenly.

        Example:
            >>> from workloads.facts.models import model
            >>> shared, routed = Layout(data=64, pipeline=16, expert=64).groups(model("DeepSeek-V3"))
            >>> round(shared[0] / 1e9, 2), shared[1:], round(routed[0] / 1e9, 2), routed[1:]
            (1.07, (64, 1), 0.64, (1, 64))
        """
        count, ways = parameters(model), self.tensor if self.expert == 1 else self.expert
        cards = multiple(self.gpus // self.pipeline, ways, "cards of a stage, over which experts are split,")
        experts = count.experts + _expert_biases(model)
        shared = (count.total - experts) / (self.tensor * self.pipeline)
        return (shared, self.data * self.context, self.tensor), (experts / (ways * self.pipeline), cards // ways, ways)

    def kv_copies(self, model: Model, tokens: Tokens | None = None) -> Number:
        """How often the cards of one copy together store a sequence's cache (see `memory.kv_copies`).

        Args:
            model: a Model.
            tokens: of the sequence, where layers keep different numbers of positions.
        """
        return kv_copies(model, self.tensor, tokens=tokens)

    def only(self, *known: str) -> Layout:
        """The layout, if it splits in no other way than those named.

        Args:
            *known: names of splits, such as "tensor".

        Raises:
            ValueError: that names the other one: what is not counted must not be taken for free.

        Example:
            >>> Layout(pipeline=2).only("tensor", "data")
            Traceback (most recent call last):
            ...
            ValueError: pipeline must be 1 where only tensor, data can be counted, got 2
        """
        for name in vars(self):
            if name not in known and getattr(self, name) != 1:
                raise ValueError(f"{name} must be 1 where only {', '.join(known)} can be counted, got {getattr(self, name)!r}")
        return self


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


SINGLE, USUAL = Layout(), Plan()

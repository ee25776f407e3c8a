"""How the work of one model is split over accelerators."""

from __future__ import annotations

from dataclasses import dataclass

from ..checks import keep, multiple, whole
from ..facts.models import Model
from ..numeric import Number
from ..units import Count, Tokens
from .memory import kv_copies
from .parameter_counts import parameters


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

    @property
    def expert_ways(self) -> Count:
        """Ways that routed experts are split: `expert`, or as all matrices are where that is 1."""
        return self.tensor if self.expert == 1 else self.expert

    @property
    def expert_copies(self) -> Count:
        """Whole sets of a stage's routed experts, over the cards of tensor, data and context parallelism."""
        cards = self.tensor * self.data * self.context
        return multiple(cards, self.expert_ways, "cards of a stage, over which experts are split,") // self.expert_ways

    def card_parameters(self, model: Model) -> tuple[Number, Number]:
        """Parameters on one card before any sharding over copies: all but the routed experts, and these; mean over
        stages.

        Args:
            model: a Model.

        Example:
            >>> from workloads.facts.models import model
            >>> split = Layout(data=64, pipeline=16, expert=64).card_parameters(model("DeepSeek-V3"))
            >>> [round(part / 1e9, 2) for part in split]
            [1.07, 0.64]
        """
        count = parameters(model)
        return (count.total - count.experts) / (self.tensor * self.pipeline), count.experts / (self.expert_ways * self.pipeline)

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


SINGLE = Layout()

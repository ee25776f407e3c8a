"""How the work of one model is split over accelerators."""

from __future__ import annotations

from dataclasses import dataclass

from ..checks import keep, whole
from ..facts.models import Model
from ..numeric import Number
from ..units import Count, Tokens
from .memory import kv_copies


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

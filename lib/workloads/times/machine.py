"""A machine: accelerators that work together, and the shares of their rates that are reached."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..checks import formula, fraction, keep, nonnegative, one_of, positive, whole
from ..counts import memory
from ..counts.layout import Layout
from ..counts.passes import Pass
from ..facts.accelerators import Accelerator
from ..facts.formats import BF16, Formats
from ..facts.models import Model
from ..units import Bytes, BytesPerSecond, Count, Dollars, FlopsPerByte, FlopsPerSecond, Seconds, Share, Tokens
from . import roofline


@dataclass(frozen=True)
class Machine:
    """Accelerators of one kind that share one piece of work.

    Attributes:
        accelerator: an Accelerator.
        count: how many of them.
        arithmetic: the format whose dense peak counts.
        mfu: share of the peak that is reached, in (0, 1].
        mbu: share of the bandwidth that is reached, in (0, 1] (with both 1 times are bounds, else a model).
        dollars_per_gpu_hour: price; None where unknown ($/GPU-h).
        memory: "reported", what the driver reports, or the label where no source prints that; or "label".

    Assumptions:
        Work and bytes are spread evenly, and the accelerators talk to each other for free.

    Example:
        >>> from workloads.facts.accelerators import accelerator
        >>> Machine(accelerator("H100 SXM"), 8).peak / 1e15
        7.9152
    """

    accelerator: Accelerator
    count: Count = 1
    arithmetic: str = "bf16"
    mfu: Share = 1
    mbu: Share = 1
    dollars_per_gpu_hour: Dollars = None
    memory: str = "reported"

    def __post_init__(self):
        keep(self, whole, "", "count", least=1)
        keep(self, fraction, "", "mfu", "mbu")
        keep(self, nonnegative, "$/GPU-h", "dollars_per_gpu_hour", unknown=True)
        one_of(self.memory, "memory", ("reported", "label"))
        self.accelerator.peak(self.arithmetic)  # refuses a format that the accelerator has no peak for

    @property
    def peak(self) -> FlopsPerSecond:
        """Dense peak of all (FLOP/s)."""
        return self.count * self.accelerator.peak(self.arithmetic)

    @property
    def bandwidth(self) -> BytesPerSecond:
        """Memory bandwidth of all (B/s)."""
        return self.count * self.accelerator.bandwidth

    @property
    def memory_bytes(self) -> Bytes:
        """Memory of all (B): what the drivers report where a source prints it, else, or where asked for, the labels."""
        card = self.accelerator
        return self.count * ((card.reported_bytes if self.memory == "reported" else None) or card.memory_bytes)

    @property
    def ridge(self) -> FlopsPerByte:
        """Intensity (FLOP/B) above which arithmetic limits."""
        return roofline.ridge(self.peak, self.bandwidth)

    def seconds(self, work: Pass) -> Seconds:
        """Time of a pass (s): the longer of its arithmetic and its transfers.

        Args:
            work: a Pass.

        Example:
            >>> from workloads.counts.passes import decode
            >>> from workloads.facts import accelerators, models
            >>> card = Machine(accelerators.accelerator("RTX PRO 6000 Blackwell Workstation"))
            >>> round(1000 * card.seconds(decode(models.model("Qwen3-8B"), 2742, 64)), 2)
            22.89
        """
        return roofline.roofline_seconds(work.flops, work.bytes, self.peak, self.bandwidth, self.mfu, self.mbu)

    def regime(self, work: Pass) -> str:
        """What limits a pass: "compute-bound" or "memory-bound".

        Args:
            work: a Pass.
        """
        return roofline.regime(work.flops, work.bytes, self.peak, self.bandwidth, self.mfu, self.mbu)

    def reaching(self, mfu: Share = 1, mbu: Share = 1) -> Machine:
        """The same machine with other shares of its rates reached.

        Args:
            mfu: share of the peak.
            mbu: share of the bandwidth.
        """
        return replace(self, mfu=mfu, mbu=mbu)


@formula
def fits(
    model: Model, machine: Machine, tokens: Tokens, formats: Formats = BF16, layout: Layout | None = None, reserve: Share = 0
) -> Count:
    """Sequences that the machine holds at once beside the weights (whole; 0 where not even one fits).

    Equation:
        data x floor((share of memory - weights) / (kv_copies x cache + state of a sequence)), of one copy of the weights.

    Args:
        model: a Model.
        machine: a Machine.
        tokens: of each sequence.
        formats: a `Formats`.
        layout: a `Layout` (left out: the whole machine by tensor parallelism).
        reserve: share of the memory that engine and activations keep, in [0, 1].

    Assumptions:
        An upper bound: nothing but weights, cache and reserve needs memory.

    Raises:
        ValueError: for a layout of another number of accelerators, or of pipeline, expert or context parallelism.

    Example:
        >>> from workloads.facts import accelerators, models
        >>> fits(
        ...     models.model("Llama-3.1-70B"),
        ...     Machine(accelerators.accelerator("H100 SXM"), 2),
        ...     8192,
        ...     Formats(weights="fp8"),
        ... )
        37
    """
    layout = (layout or Layout(tensor=machine.count)).only("tensor", "data")
    if layout.gpus != machine.count:
        raise ValueError(f"layout must be of the machine's {machine.count} accelerators, got {layout.gpus}")
    pool = machine.memory_bytes / layout.data
    kept = fraction(reserve, "reserve", zero=True) * pool
    weights = memory.weight_bytes(model, formats.weight_bytes)
    cache = memory.kv_bytes(model, positive(tokens, "tokens"), 1, formats.cache_bytes)
    one = layout.kv_copies(model, tokens) * cache + memory.state_bytes(model)
    return memory.sequences_that_fit(pool, weights + kept, one, layout.data)

"""The optimizer: state it keeps and bytes it moves in an update."""

from __future__ import annotations

from typing import NamedTuple

from workloads import checks
from workloads.counts import training_memory
from workloads.counts.training_memory import TrainingBytes
from workloads.units import Bytes, Count


# Update
class _UpdateTraffic(NamedTuple):
    """Bytes that an optimizer update reads and writes (B)."""

    read: float
    written: float

    @property
    def total(self) -> Bytes:
        """Both."""
        return self.read + self.written


@checks.formula
def update_traffic(parameters: Count, recipe: str | TrainingBytes = "fp32 gradients") -> _UpdateTraffic:
    """Bytes that one Adam update moves, as `_UpdateTraffic`.

    Equation:
        read gradients, master weights and both moments; write master weights, moments and the weights of the next
        forward pass. Without master weights the weights themselves are read and written. 30 B a parameter for "fp32
        gradients".

    Args:
        parameters: that are trained.
        recipe: a name in RECIPES or a TrainingBytes with bytes a parameter. Each named recipe changes one thing of the
            first: "bf16 gradients" 16 B, "both gradients" (BF16 beside FP32) 20 B, "8-bit adam" 12 B (its block scales,
            under 0.04 B, left out), "no master" 14 B.

    Assumptions:
        A lower bound. Everything crosses once (one fused kernel); clearing the gradients and their norm are left out.

    Example:
        >>> update_traffic(1), update_traffic(1, "bf16 gradients").total
        (_UpdateTraffic(read=16, written=14), 28)
    """
    parameters = checks.positive(parameters, "parameters")
    each = training_memory.training_state_bytes(1, recipe)
    changed = each.first_moment + each.second_moment + (each.master_weights or each.weights)
    copied = each.weights if each.master_weights else 0
    return _UpdateTraffic(parameters * (each.gradients + changed), parameters * (changed + copied))

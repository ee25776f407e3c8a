"""Work and parameters of routed experts, from layers as publishers print them."""

from __future__ import annotations

from dataclasses import dataclass, fields

from workloads.checks import formula, keep, one_of, whole
from workloads.counts.flops import rule_6n
from workloads.facts.tables import table
from workloads.units import Count, FlopCount


@dataclass(frozen=True)
class ExpertLayers:
    """The expert part of a mixture-of-experts model: layers, width, inner width of an expert, experts routed, active,
    shared.
    """

    model: str
    layers: int
    hidden: int
    expert_ffn: int
    experts: int
    active_experts: int
    shared_experts: int

    def __post_init__(self):
        for size in fields(self)[1:]:
            keep(self, whole, "", size.name, least=0 if size.name == "shared_experts" else 1)
        if self.active_experts > self.experts:
            raise ValueError(f"active_experts must be at most experts ({self.experts}), got {self.active_experts!r}")

    def _in_experts(self, experts):
        """Parameters of so many experts in every layer: three projections each."""
        return 3 * self.layers * self.hidden * self.expert_ffn * experts

    @property
    def training_flops(self) -> FlopCount:
        """FLOPs of the experts' products for one training token (FLOP/token).

        Equation:
            18 n_L h f (k_routed + k_shared): the 6N rule for the three projections of the experts that a token uses.

        Assumptions:
            Attention, router, further prediction heads, optimizer and recomputation are left out.

        Example:
            >>> expert_layers("DeepSeek V4-Flash").training_flops
            45449478144
        """
        return rule_6n(self._in_experts(self.active_experts + self.shared_experts), tokens=1)

    @property
    def router_training_flops(self) -> FlopCount:
        """FLOPs of the routers' products for one training token (FLOP/token): 6 n_L h experts."""
        return rule_6n(self.layers * self.hidden * self.experts, tokens=1)

    @property
    def parameters(self) -> Count:
        """Parameters of all routed experts (count): 3 n_L h f experts."""
        return self._in_experts(self.experts)


@formula
def expert_layers(name: str) -> ExpertLayers:
    """Expert layers of "DeepSeek V4-Flash" or "DeepSeek V4-Pro".

    Args:
        name: "DeepSeek V4-Flash" or "DeepSeek V4-Pro".

    Source:
        data/expert_layers.tsv.

    Example:
        >>> expert_layers("DeepSeek V4-Flash").experts
        256
    """
    rows = {row["model"]: row for row in table("expert_layers")}
    row = rows[one_of(name, "name", tuple(rows))]
    return ExpertLayers(name, **{size.name: int(row[size.name]) for size in fields(ExpertLayers)[1:]})

"""Facts about accelerators: memory, bandwidth, dense peak rates and links, each a row of data/accelerators.tsv."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType

from ..checks import formula, keep, one_of, positive, whole
from ..units import Bytes, BytesPerSecond, Count, FlopsPerSecond
from .tables import base_value, table


@dataclass(frozen=True)
class Accelerator:
    """One accelerator.

    Attributes:
        name: as the table or its user writes it.
        memory_bytes: what it holds by its label (B).
        bandwidth: memory bandwidth (B/s).
        peaks: dense FLOP/s by precision.
        label: the memory size as it is sold.
        source: the documents behind the numbers.
        reported_bytes: memory that the driver reports; None where no source prints it (B).
        links: bytes a second that it sends, in one direction, by kind: `fast` (NVLink, Infinity Fabric, ICI), `pcie`, `network` (B/s).
        domain: how many share the fast link; None where no source prints it.

    Assumptions:
        peaks are dense. A vendor's figure "with sparsity" is twice the dense one and stands in the table only. The
        label is read in powers of ten; drivers of cards with stacked memory report up to 7% more. Links are line rates,
        of an accelerator in the maker's usual node, all its ports together.

    Raises:
        ValueError: for a number that is not finite and above 0.

    Example:
        >>> Accelerator("mine", memory_bytes=48e9, bandwidth=1e12, peaks={"bf16": 200e12}).peak("bf16")
        200000000000000.0
    """

    name: str
    memory_bytes: Bytes
    bandwidth: BytesPerSecond
    peaks: MappingProxyType[str, FlopsPerSecond] = field(hash=False)
    label: str = ""
    source: str = ""
    reported_bytes: Bytes | None = None
    links: Mapping[str, BytesPerSecond] = field(default_factory=dict, hash=False)
    domain: Count | None = None

    def __post_init__(self):
        keep(self, positive, "B", "memory_bytes")
        keep(self, positive, "B", "reported_bytes", unknown=True)
        keep(self, positive, "B/s", "bandwidth")
        keep(self, whole, "", "domain", least=1, unknown=True)
        links = {kind: positive(rate, f"links[{kind!r}]", "B/s") for kind, rate in self.links.items()}
        object.__setattr__(self, "links", MappingProxyType(links))
        peaks = {precision: positive(peak, f"peaks[{precision!r}]", "FLOP/s") for precision, peak in self.peaks.items()}
        object.__setattr__(self, "peaks", MappingProxyType(peaks))

    def peak(self, precision: str = "bf16") -> FlopsPerSecond:
        """Dense peak rate (FLOP/s) at a precision: "bf16", "fp8" and so on, where the card has it.

        Args:
            precision: "fp32", "tf32", "bf16", "fp16", "fp8", "fp4" or "int8" (operations a second).

        Example:
            >>> accelerator("H100 SXM").peak("bf16")
            989400000000000
        """
        return self.peaks[one_of(precision, f"precision of {self.name}", tuple(self.peaks))]

    def link(self, kind: str) -> BytesPerSecond:
        """Bytes a second (B/s) that one accelerator sends over a link, in one direction; what no source prints is refused.

        Args:
            kind: `"fast"` (NVLink, Infinity Fabric, ICI), `"pcie"` or `"network"`.

        Example:
            >>> accelerator("H100 SXM").link("fast")
            450000000000
        """
        return self.links[one_of(kind, f"link of {self.name}", tuple(self.links))]


@cache
def _accelerators():
    cards = {}
    for row in table("accelerators"):
        cards.setdefault(row["item"], []).append(row)
    return {name: _accelerator(name, rows) for name, rows in cards.items()}


def _accelerator(name, rows):
    only = {row["quantity"]: base_value(row) for row in rows if row["quantity"] != "peak"}
    peaks = {row["precision"]: base_value(row) for row in rows if row["quantity"] == "peak" and row["sparsity"] == "dense"}
    links = {kind: only[kind] for kind in ("fast", "pcie", "network") if kind in only}
    label = next(f"{row['value']} {row['unit']}" for row in rows if row["quantity"] == "memory")
    source = "; ".join(dict.fromkeys(row["document"] for row in rows))
    return Accelerator(name, only["memory"], only["bandwidth"], peaks, label, source, only.get("reported"), links, only.get("domain"))


def accelerators() -> dict[str, Accelerator]:
    """All accelerators of the table, by name.

    Example:
        >>> sorted(accelerators())  # doctest: +ELLIPSIS
        ['A100 40GB', 'A100 80GB', 'A100 PCIe 80GB', 'B200', ..., 'TPU v5p', 'TPU v6e', 'TPU v7']
    """
    return dict(_accelerators())


@formula
def accelerator(name: str) -> Accelerator:
    """One accelerator of the table.

    Args:
        name: as the table writes it.

    Raises:
        ValueError: for an unknown name; the message lists the known ones.

    Example:
        >>> card = accelerator("RTX PRO 6000 Blackwell Workstation")
        >>> card.memory_bytes, card.bandwidth, card.label
        (96000000000, 1792000000000, '96 GB')
    """
    return _accelerators()[one_of(name, "accelerator", tuple(_accelerators()))]

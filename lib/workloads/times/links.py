"""Links between accelerators: seconds that what a card sends takes, by latency and bytes."""

from __future__ import annotations

from ..checks import formula, nonnegative
from ..counts.collectives import Traffic
from ..facts.accelerators import Accelerator
from ..numeric import maximum
from ..units import Seconds


@formula
def sending_seconds(traffic: Traffic, accelerator: Accelerator, fast_latency: Seconds = 0, network_latency: Seconds = 0) -> Seconds:
    """Time of what a card sends (s): latency of the messages that wait for each other, and the bytes of the slower link.

    Equation:
        messages x latency + max(fast bytes / fast link, network bytes / network link).

    Args:
        traffic: a `Traffic`, of one kind: both links then work on different parts of it at once.
        accelerator: an Accelerator; one without a fast link sends over PCIe.
        fast_latency: of a message inside the domain (s).
        network_latency: of a message over the network (s).

    Returns:
        Seconds; a lower bound, with latencies of 0 in any case.

    Raises:
        ValueError: for a link that is used and that no source prints.

    Source:
        Hockney 1994 (latency and bytes).

    Example:
        >>> from workloads.counts.collectives import all_reduce
        >>> from workloads.facts.accelerators import accelerator
        >>> round(1e3 * sending_seconds(all_reduce(1e9, 8), accelerator("H100 SXM")), 3)
        3.889
    """
    near_by = "fast" if "fast" in accelerator.links else "pcie"
    near = traffic.fast / accelerator.link(near_by) if traffic.fast_messages else 0
    far = traffic.network / accelerator.link("network") if traffic.network_messages else 0
    waits = traffic.fast_messages * nonnegative(fast_latency, "fast_latency", "s")
    return waits + traffic.network_messages * nonnegative(network_latency, "network_latency", "s") + maximum(near, far)

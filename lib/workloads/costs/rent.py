"""Rent: calendar time, GPU-hours, dollars, and the price of a million tokens."""

from __future__ import annotations

from ..checks import formula, nonnegative, positive, whole
from ..times.machine import Machine
from ..units import HOUR, Count, Dollars, FlopsPerSecond, Seconds, Tokens


@formula
def calendar_seconds(device_seconds: Seconds, devices: Count) -> Seconds:
    """Calendar time of work that a number of devices share without loss (s).

    Equation:
        T = H / n.

    Args:
        device_seconds: H of the whole work.
        devices: n, at work all the time.

    Assumptions:
        H does not depend on n; more devices mean more communication, so a fixed H flatters large n.

    Raises:
        ValueError: for a number of devices that is no positive whole number.

    Example:
        >>> round(calendar_seconds(1_022_362 * 3600, 2048) / 86400, 2)
        20.8
    """
    return nonnegative(device_seconds, "device_seconds", "s") / whole(devices, "devices", least=1)


@formula
def rental_dollars(gpu_seconds: Seconds, dollars_per_gpu_hour: Dollars) -> Dollars:
    """Price of rented accelerators ($).

    Equation:
        GPU-seconds / 3600 x price.

    Args:
        gpu_seconds: paid for (GPU-s).
        dollars_per_gpu_hour: the price ($/GPU-h).

    Example:
        >>> rental_dollars(7200, 2.5)
        5.0
    """
    price = nonnegative(dollars_per_gpu_hour, "dollars_per_gpu_hour", "$/GPU-h")
    return nonnegative(gpu_seconds, "gpu_seconds", "GPU-s") / HOUR * price


@formula
def equivalent_device_seconds(device_seconds: Seconds, peak: FlopsPerSecond, reference_peak: FlopsPerSecond) -> Seconds:
    """Time that a reference device would need for the same work (s).

    Equation:
        H_ref = H x peak / reference_peak.

    Args:
        device_seconds: H, on the device at hand (s).
        peak: dense, at one precision (FLOP/s).
        reference_peak: dense, at one precision (FLOP/s).

    Assumptions:
        Equal utilisation of both devices; nothing is said about price or power.

    Example:
        >>> round(equivalent_device_seconds(1, 989.4e12, 312e12), 3)
        3.171
    """
    positive(peak, "peak", "FLOP/s")
    positive(reference_peak, "reference_peak", "FLOP/s")
    return nonnegative(device_seconds, "device_seconds", "s") * peak / reference_peak


@formula
def dollars_per_million(machine: Machine, seconds: Seconds, tokens: Tokens) -> Dollars:
    """Cost of a million tokens ($/Mtoken) when so many tokens take a rented machine so long.

    Equation:
        `rental_dollars` of count x seconds / tokens x 10^6.

    Args:
        machine: a Machine whose `dollars_per_gpu_hour` is known.
        seconds: that it is occupied (s).
        tokens: done in that time, those of all sequences together.

    Raises:
        ValueError: for a machine without a price.

    Example:
        >>> from workloads.facts.accelerators import accelerator
        >>> dollars_per_million(Machine(accelerator("H100 SXM"), 4, dollars_per_gpu_hour=2), 900, 10**6)
        2.0
    """
    if machine.dollars_per_gpu_hour is None:
        raise ValueError("dollars_per_gpu_hour ($/GPU-h) of machine must be a number, got None")
    gpu_seconds = machine.count * nonnegative(seconds, "seconds", "s")
    return rental_dollars(gpu_seconds, machine.dollars_per_gpu_hour) * 10**6 / positive(tokens, "tokens")

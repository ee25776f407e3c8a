"""Rent: calendar time, GPU-hours, dollars, and the price of a million tokens."""

from __future__ import annotations

from .. import checks
from ..checks import formula, nonnegative, positive, whole
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
        device_seconds: H.
        peak: dense, at one precision (FLOP/s).
        reference_peak: dense, at one precision (FLOP/s).

    Assumptions:
        Equal utilisation of both devices; nothing is said about price or power.

    Example:
        >>> round(equivalent_device_seconds(1, 989.4e12, 312e12), 3)
        3.171
    """
    positive(peak, "peak", "FLOP/s"), positive(reference_peak, "reference_peak", "FLOP/s")
    return nonnegative(device_seconds, "device_seconds", "s") * peak / reference_peak


@checks.formula
def dollars_per_million(gpu_seconds: Seconds, tokens: Tokens, dollars_per_gpu_hour: Dollars) -> Dollars:
    """Cost of a million tokens ($/Mtoken) when so many tokens take so many GPU-seconds at an hourly price.

    Equation:
        `rental_dollars` / tokens x 10^6.

    Args:
        gpu_seconds: in GPU-s.
        tokens: how many.
        dollars_per_gpu_hour: in $/GPU-h.

    Example:
        >>> dollars_per_million(3600, 10**6, 2)
        2.0
    """
    return rental_dollars(gpu_seconds, dollars_per_gpu_hour) * 10**6 / checks.positive(tokens, "tokens")

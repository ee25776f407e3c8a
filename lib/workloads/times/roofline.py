"""Times from counts: roofline lower bounds, utilisation, ridge point, critical batch, regime."""

from __future__ import annotations

from ..checks import flag, formula, fraction, nonnegative, positive
from ..numeric import Number, is_array, is_symbolic, maximum, minimum, where
from ..units import Bytes, BytesPerSecond, BytesPerToken, FlopCount, FlopsPerByte, FlopsPerSecond, Seconds, Share, Tokens


@formula
def compute_seconds(flops: FlopCount, peak: FlopsPerSecond, mfu: Share = 1) -> Seconds:
    """Time (s) to do the arithmetic.

    Equation:
        FLOPs / (mfu x peak).

    Args:
        flops: work (FLOP).
        peak: dense, of all chips together (FLOP/s).
        mfu: model FLOPs utilisation in (0, 1].

    Returns:
        Seconds; with mfu = 1 a lower bound, else a model.

    Example:
        >>> compute_seconds(143_789_331_054_592, 989.4e12, mfu=0.4)
        0.363324568057...
    """
    return nonnegative(flops, "flops", "FLOP") / (positive(peak, "peak", "FLOP/s") * fraction(mfu, "mfu"))


@formula
def transfer_seconds(bytes_moved: Bytes, bandwidth: BytesPerSecond, mbu: Share = 1) -> Seconds:
    """Time (s) to move the bytes.

    Equation:
        bytes / (mbu x bandwidth).

    Args:
        bytes_moved: read and written together (B).
        bandwidth: of all chips together (B/s).
        mbu: memory bandwidth utilisation in (0, 1].

    Returns:
        Seconds; with mbu = 1 a lower bound, else a model.

    Example:
        >>> transfer_seconds(41_023_531_008, 1792e9)
        0.02289259542857...
    """
    return nonnegative(bytes_moved, "bytes_moved", "B") / (positive(bandwidth, "bandwidth", "B/s") * fraction(mbu, "mbu"))


@formula
def roofline_seconds(
    flops: FlopCount, bytes_moved: Bytes, peak: FlopsPerSecond, bandwidth: BytesPerSecond, mfu: Share = 1, mbu: Share = 1
) -> Seconds:
    """Time (s) of work whose arithmetic and transfers overlap completely.

    Equation:
        max(FLOPs / (mfu peak), bytes / (mbu bandwidth)).

    Args:
        flops: work (FLOP).
        bytes_moved: read and written together (B).
        peak: dense, of all chips together (FLOP/s).
        bandwidth: of all chips together (B/s).
        mfu: model FLOPs utilisation in (0, 1].
        mbu: memory bandwidth utilisation in (0, 1].

    Returns:
        Seconds; with mfu = mbu = 1 no machine of this peak and bandwidth is faster.

    Example:
        >>> roofline_seconds(16e9, 16e9, 990e12, 3.35e12)
        0.004776119402985075
    """
    return maximum(compute_seconds(flops, peak, mfu), transfer_seconds(bytes_moved, bandwidth, mbu))


def _share(value, name, refuse_above):
    if not flag(refuse_above, "refuse_above"):
        return value
    if not is_symbolic(value):
        value = where((value > 1) & (value < 1 + 1e-9), 1.0, value)  # exactly at the roof, but for rounding
    return fraction(value, name, zero=True)


@formula
def mfu(flops: FlopCount, seconds: Seconds, peak: FlopsPerSecond, refuse_above: bool = True) -> Share:
    """Model FLOPs utilisation: the share of the peak rate that useful FLOPs reached.

    Equation:
        FLOPs / (seconds x peak).

    Args:
        flops: work (FLOP).
        seconds: measured (s).
        peak: dense, of all chips together (FLOP/s).
        refuse_above: a result above 1; False for a report to be judged.

    Raises:
        ValueError: for a result above 1: then time, count and peak do not belong together.

    Example:
        >>> mfu(380e12, 1, 989.4e12)
        0.384071154234...
    """
    rate = nonnegative(flops, "flops", "FLOP") / positive(seconds, "seconds", "s")
    return _share(rate / positive(peak, "peak", "FLOP/s"), "mfu", refuse_above)


@formula
def mbu(bytes_moved: Bytes, seconds: Seconds, bandwidth: BytesPerSecond, refuse_above: bool = True) -> Share:
    """Memory bandwidth utilisation: the share of the bandwidth that necessary bytes reached.

    Equation:
        bytes / (seconds x bandwidth).

    Args:
        bytes_moved: read and written together (B).
        seconds: measured (s).
        bandwidth: of all chips together (B/s).
        refuse_above: a result above 1; False for a report to be judged.

    Raises:
        ValueError: for a result above 1.

    Example:
        >>> mbu(16e9, 0.01, 3.35e12)
        0.4776119402985...
    """
    rate = nonnegative(bytes_moved, "bytes_moved", "B") / positive(seconds, "seconds", "s")
    return _share(rate / positive(bandwidth, "bandwidth", "B/s"), "mbu", refuse_above)


@formula
def intensity(flops: FlopCount, bytes_moved: Bytes) -> FlopsPerByte:
    """Arithmetic intensity (FLOP/B).

    Equation:
        FLOPs / bytes.

    Args:
        flops: work (FLOP).
        bytes_moved: read and written together (B).

    Example:
        >>> intensity(2 * 8e9, 2 * 8e9)
        1.0
    """
    return nonnegative(flops, "flops", "FLOP") / positive(bytes_moved, "bytes_moved", "B")


@formula
def ridge(peak: FlopsPerSecond, bandwidth: BytesPerSecond) -> FlopsPerByte:
    """Intensity (FLOP/B) above which a machine is limited by arithmetic, below which by memory.

    Equation:
        peak / bandwidth.

    Args:
        peak: dense, of all chips together (FLOP/s).
        bandwidth: of all chips together (B/s).

    Example:
        >>> ridge(990e12, 3.35e12)
        295.52238805970...
    """
    return positive(peak, "peak", "FLOP/s") / positive(bandwidth, "bandwidth", "B/s")


@formula
def attainable(intensity: FlopsPerByte, peak: FlopsPerSecond, bandwidth: BytesPerSecond) -> FlopsPerSecond:
    """Highest rate (FLOP/s) that work of an intensity can reach: the roof.

    Equation:
        min(peak, intensity x bandwidth).

    Args:
        intensity: work for each byte moved (FLOP/B).
        peak: rate of arithmetic at best (FLOP/s).
        bandwidth: rate of the memory at best (B/s).

    Example:
        >>> attainable(1, 990e12, 3.35e12)
        3350000000000.0
    """
    sloped = nonnegative(intensity, "intensity", "FLOP/B") * positive(bandwidth, "bandwidth", "B/s")
    return minimum(positive(peak, "peak", "FLOP/s"), sloped)


@formula
def regime(flops: FlopCount, bytes_moved: Bytes, peak: FlopsPerSecond, bandwidth: BytesPerSecond, mfu: Share = 1, mbu: Share = 1) -> str:
    """What limits the work: "compute-bound" if its arithmetic takes at least as long as its transfers, else
    "memory-bound".

    Unequal utilisations move the boundary.

    Args:
        flops: work (FLOP).
        bytes_moved: read and written together (B).
        peak: dense, of all chips together (FLOP/s).
        bandwidth: of all chips together (B/s).
        mfu: model FLOPs utilisation in (0, 1].
        mbu: memory bandwidth utilisation in (0, 1].

    Example:
        >>> regime(16e9, 16e9, 990e12, 3.35e12)
        'memory-bound'
    """
    longer = compute_seconds(flops, peak, mfu) >= transfer_seconds(bytes_moved, bandwidth, mbu)
    return "compute-bound" if longer else "memory-bound"


@formula
def critical_batch(
    flops_per_sequence: FlopCount, shared_bytes: Bytes, bytes_per_sequence: Bytes, peak: FlopsPerSecond, bandwidth: BytesPerSecond
) -> Number | None:
    """Sequences in a decode step at which its intensity meets the ridge: above, arithmetic limits it.

    Equation:
        B f / (W + B s) = ridge, so B = ridge W / (f - ridge s).

    Args:
        flops_per_sequence: f (FLOP).
        shared_bytes: W (B), read once a step.
        bytes_per_sequence: s (B), the KV of one sequence, 0 to leave it out.
        peak: rate of arithmetic at best (FLOP/s).
        bandwidth: rate of the memory at best (B/s).

    Returns:
        Number | None: Sequences, not rounded. None if f <= ridge s: intensity rises with B only towards f/s (2N / (KV x
            length) in the simple rule), so no batch is compute-bound, see `compute_bound_context`. An array with such
            an element is refused.

    Example:
        >>> critical_batch(2 * 8e9, 2 * 8e9, 0, 990e12, 3.35e12)
        295.52238805970...
        >>> critical_batch(2 * 8e9, 2 * 8e9, 4096 * 147456, 990e12, 3.35e12) is None
        True
    """
    point, shared_bytes = ridge(peak, bandwidth), positive(shared_bytes, "shared_bytes", "B")
    flops_per_sequence = positive(flops_per_sequence, "flops_per_sequence", "FLOP")
    spare = flops_per_sequence - point * nonnegative(bytes_per_sequence, "bytes_per_sequence", "B")
    if is_array(spare):
        positive(spare, "flops_per_sequence - ridge x bytes_per_sequence", "FLOP")
    return point * shared_bytes / spare if is_symbolic(spare) or is_array(spare) or spare > 0 else None


@formula
def compute_bound_context(
    flops_per_sequence: FlopCount, kv_bytes_per_token: BytesPerToken, peak: FlopsPerSecond, bandwidth: BytesPerSecond
) -> Tokens:
    """Context (tokens) from which on no batch makes decoding compute-bound.

    Equation:
        f / (ridge x KV/token): there the intensity of an endless batch, f / (KV x length), falls to the ridge.

    Args:
        flops_per_sequence: f (FLOP), 2N in the simple rule.
        kv_bytes_per_token: cache of one token (B/token).
        peak: dense, of all chips together (FLOP/s).
        bandwidth: of all chips together (B/s).

    Example:
        >>> compute_bound_context(2 * 8e9, 128_000, 990e12, 3.35e12)
        422.9797979797...
    """
    flops_per_sequence = positive(flops_per_sequence, "flops_per_sequence", "FLOP")
    return flops_per_sequence / (ridge(peak, bandwidth) * positive(kv_bytes_per_token, "kv_bytes_per_token", "B/token"))


@formula
def speedup(share: Share, factor: Number) -> Number:
    """Speed-up of the whole when a part of its time becomes faster (Amdahl).

    Equation:
        1 / (1 - share + share / factor).

    Args:
        share: of the time in [0, 1].
        factor: by which that part is faster, above 0.

    Returns:
        Ratio of old to new time; never above 1 / (1 - share).

    Example:
        >>> speedup(0.75, 2)
        1.6
    """
    share = fraction(share, "share", zero=True)
    return 1 / (1 - share + share / positive(factor, "factor"))

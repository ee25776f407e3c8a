"""Times from counts: roofline lower bounds, utilisation, ridge point, critical batch, regime."""
from .domain import formula, fraction, nonnegative, positive
from .generic import is_array, is_symbolic, maximum, minimum, where


@formula
def compute_seconds(flops, peak, mfu=1):
    """Time (s) to do the arithmetic.

    Equation: FLOPs / (mfu x peak).
    Parameters: flops (count); peak (FLOP/s, dense, of all chips together); mfu, model FLOPs utilisation in (0, 1].
    Returns: seconds; with mfu = 1 a lower bound, else a model.

    >>> compute_seconds(143_789_331_054_592, 989.4e12, mfu=0.4)
    0.363324568057...
    """
    return nonnegative(flops, "flops", "FLOP") / (positive(peak, "peak", "FLOP/s") * fraction(mfu, "mfu"))


@formula
def transfer_seconds(bytes_moved, bandwidth, mbu=1):
    """Time (s) to move the bytes.

    Equation: bytes / (mbu x bandwidth).
    Parameters: bytes_moved (B); bandwidth (B/s, of all chips together); mbu, memory bandwidth utilisation in (0, 1].
    Returns: seconds; with mbu = 1 a lower bound, else a model.

    >>> transfer_seconds(41_023_531_008, 1792e9)
    0.02289259542857...
    """
    return nonnegative(bytes_moved, "bytes_moved", "B") / (positive(bandwidth, "bandwidth", "B/s") * fraction(mbu, "mbu"))


@formula
def roofline_seconds(flops, bytes_moved, peak, bandwidth, mfu=1, mbu=1):
    """Time (s) of work whose arithmetic and transfers overlap completely.

    Equation: max(FLOPs / (mfu peak), bytes / (mbu bandwidth)).
    Parameters: as in `compute_seconds` and `transfer_seconds`.
    Returns: seconds; with mfu = mbu = 1 no machine of this peak and bandwidth is faster.

    >>> roofline_seconds(16e9, 16e9, 990e12, 3.35e12)
    0.004776119402985075
    """
    return maximum(compute_seconds(flops, peak, mfu), transfer_seconds(bytes_moved, bandwidth, mbu))


def _share(value, name):
    if not is_symbolic(value):
        value = where((value > 1) & (value < 1 + 1e-9), 1.0, value)     # exactly at the roof, but for rounding
    return fraction(value, name, zero=True)


@formula
def mfu(flops, seconds, peak):
    """Model FLOPs utilisation: the share of the peak rate that useful FLOPs reached.

    Equation: FLOPs / (seconds x peak).
    Raises: ValueError for a result above 1: then time, count and peak do not belong together.

    >>> mfu(380e12, 1, 989.4e12)
    0.384071154234...
    """
    return _share(nonnegative(flops, "flops", "FLOP") / (positive(seconds, "seconds", "s") * positive(peak, "peak", "FLOP/s")), "mfu")


@formula
def mbu(bytes_moved, seconds, bandwidth):
    """Memory bandwidth utilisation: the share of the bandwidth that necessary bytes reached.

    Equation: bytes / (seconds x bandwidth).
    Raises: ValueError for a result above 1.

    >>> mbu(16e9, 0.01, 3.35e12)
    0.4776119402985...
    """
    rate = nonnegative(bytes_moved, "bytes_moved", "B") / positive(seconds, "seconds", "s")
    return _share(rate / positive(bandwidth, "bandwidth", "B/s"), "mbu")


@formula
def intensity(flops, bytes_moved):
    """Arithmetic intensity (FLOP/B).

    Equation: FLOPs / bytes.

    >>> intensity(2 * 8e9, 2 * 8e9)
    1.0
    """
    return nonnegative(flops, "flops", "FLOP") / positive(bytes_moved, "bytes_moved", "B")


@formula
def ridge(peak, bandwidth):
    """Intensity (FLOP/B) above which a machine is limited by arithmetic, below which by memory.

    Equation: peak / bandwidth.

    >>> ridge(990e12, 3.35e12)
    295.52238805970...
    """
    return positive(peak, "peak", "FLOP/s") / positive(bandwidth, "bandwidth", "B/s")


@formula
def attainable(intensity, peak, bandwidth):
    """Highest rate (FLOP/s) that work of an intensity can reach: the roof.

    Equation: min(peak, intensity x bandwidth).
    Parameters: intensity (FLOP/B); peak (FLOP/s); bandwidth (B/s).

    >>> attainable(1, 990e12, 3.35e12)
    3350000000000.0
    """
    sloped = nonnegative(intensity, "intensity", "FLOP/B") * positive(bandwidth, "bandwidth", "B/s")
    return minimum(positive(peak, "peak", "FLOP/s"), sloped)


@formula
def regime(flops, bytes_moved, peak, bandwidth, mfu=1, mbu=1):
    """What limits the work: "compute-bound" if its arithmetic takes at least as long as its transfers, else "memory-bound".

    Parameters: as in `roofline_seconds`; unequal utilisations move the boundary.

    >>> regime(16e9, 16e9, 990e12, 3.35e12)
    'memory-bound'
    """
    longer = compute_seconds(flops, peak, mfu) >= transfer_seconds(bytes_moved, bandwidth, mbu)
    return "compute-bound" if longer else "memory-bound"


@formula
def critical_batch(flops_per_sequence, shared_bytes, bytes_per_sequence, peak, bandwidth):
    """Sequences in a decode step at which its intensity meets the ridge: above, arithmetic limits it.

    Equation: B f / (W + B s) = ridge, so B = ridge W / (f - ridge s).
    Parameters: flops_per_sequence f (FLOP); shared_bytes W (B), read once a step; bytes_per_sequence s (B), the KV of one
    sequence, 0 to leave it out; peak (FLOP/s); bandwidth (B/s).
    Returns: sequences, not rounded. None if f <= ridge s: intensity rises with B only towards f/s (2N / (KV x length) in
    the simple rule), so no batch is compute-bound, see `compute_bound_context`. An array with such an element is refused.

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
def compute_bound_context(flops_per_sequence, kv_bytes_per_token, peak, bandwidth):
    """Context (tokens) from which on no batch makes decoding compute-bound.

    Equation: f / (ridge x KV/token): there the intensity of an endless batch, f / (KV x length), falls to the ridge.
    Parameters: flops_per_sequence f (FLOP), 2N in the simple rule; kv_bytes_per_token (B/token); peak; bandwidth.

    >>> compute_bound_context(2 * 8e9, 128_000, 990e12, 3.35e12)
    422.9797979797...
    """
    flops_per_sequence = positive(flops_per_sequence, "flops_per_sequence", "FLOP")
    return flops_per_sequence / (ridge(peak, bandwidth) * positive(kv_bytes_per_token, "kv_bytes_per_token", "B/token"))


@formula
def speedup(share, factor):
    """Speed-up of the whole when a part of its time becomes faster (Amdahl).

    Equation: 1 / (1 - share + share / factor).
    Parameters: share of the time in [0, 1]; factor by which that part is faster, above 0.
    Returns: ratio of old to new time; never above 1 / (1 - share).

    >>> speedup(0.75, 2)
    1.6
    """
    share = fraction(share, "share", zero=True)
    return 1 / (1 - share + share / positive(factor, "factor"))

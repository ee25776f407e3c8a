"""Bringing new weights to the GPUs that sample."""

from __future__ import annotations

from typing import NamedTuple

from workloads import checks
from workloads.times import roofline
from workloads.units import Bytes, BytesPerSecond, Count, Seconds


# ----------------------------------------------------------------------------------------- new weights for the replicas
class _Sync(NamedTuple):
    """Transfer of new weights: seconds until the last replica has them, bytes that leave the learner, bytes received by
    all replicas.
    """

    seconds: Seconds
    learner_bytes: Bytes
    received_bytes: Bytes


@checks.formula
def weight_sync(
    weight_bytes: Bytes, replicas: Count, bandwidth: BytesPerSecond, scheme: str = "independent", pieces: Count = 1, latency: Seconds = 0
) -> _Sync:
    """New weights for every replica, all links alike.

    Equation:
        With M bytes, r replicas, B byte/s and a latency l for each message:

        - "independent": r (M/B + l): the learner sends r copies over its one link
        - "tree": ceil(log2(r + 1)) (M/B + l): whoever has the weights passes them on, the number of holders doubles
        - "ring": (r + c - 1) (M/(c B) + l): a chain; each replica passes a piece on while it receives the next of c
          pieces

    Args:
        weight_bytes: M, the weights of one replica (B).
        replicas: whole number >= 1.
        bandwidth: of a node's link in each direction (B/s).
        scheme: "independent", "tree" or "ring".
        pieces: c, used by "ring".
        latency: l, before each message (s).

    Returns:
        `_Sync`.

    Assumptions:
        A node sends one message and receives one at a time, both at full rate; no switch is a bottleneck. Nothing is
        faster than M/B.

    Raises:
        ValueError: out of these ranges, or for pieces with another scheme.

    Source:
        Chan et al. 2007 (broadcast: minimum spanning tree, pipelined chain).

    Example:
        >>> [weight_sync(16e9, 4, 50e9, scheme).seconds for scheme in ("independent", "tree")]
        [1.28, 0.96]
        >>> weight_sync(16e9, 4, 50e9, "ring", pieces=100)
        _Sync(seconds=0.3296, learner_bytes=16000000000.0, received_bytes=64000000000.0)
    """
    replicas, pieces = (int(checks.whole(n, name, least=1)) for n, name in ((replicas, "replicas"), (pieces, "pieces")))
    checks.one_of(scheme, "scheme", ("independent", "tree", "ring"))
    if pieces > 1 and scheme != "ring":
        raise ValueError(f"pieces must be 1 for scheme {scheme!r}, got {pieces!r}")
    message = roofline.transfer_seconds(checks.positive(weight_bytes, "weight_bytes", "B") / pieces, bandwidth)
    steps = {"independent": replicas, "tree": replicas.bit_length(), "ring": replicas + pieces - 1}[scheme]
    copies = 1 if scheme == "ring" else steps
    seconds = steps * (message + checks.nonnegative(latency, "latency", "s"))
    return _Sync(seconds, copies * weight_bytes, replicas * weight_bytes)

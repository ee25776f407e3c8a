"""One request as a chain of model calls: one prefill, then one decode step per further token.

A request restores S tokens of context whose KV exists, processes P new ones and returns G. The first returned token comes out of the
prefill; the token returned last is never fed back, so its KV is never written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..checks import flag, formula, keep, positive, some, whole
from ..units import Bytes, Count, FlopsPerByte, Tokens


@dataclass(frozen=True, slots=True)
class Request:
    """Token counts of one request: ``new`` P and ``output`` G are at least 1, ``past`` S is at least 0.

    Example:
        >>> Request(new=2048, output=4, past=6144)
        Request(new=2048, output=4, past=6144)
    """

    new: int
    output: int
    past: int = 0

    def __post_init__(self):
        keep(self, whole, "tokens", "new", "output", least=1)
        keep(self, whole, "tokens", "past")

    @property
    def decode_steps(self) -> Count:
        """Decode steps (calls): n_d = G - 1."""
        return self.output - 1

    @property
    def end_context(self) -> Tokens:
        """KV entries present when the request ends (tokens): S + P + G - 1, the last returned token is not among them."""
        return self.past + self.new + self.output - 1

    @property
    def mean_decode_context(self) -> Tokens:
        """Mean context over the decode steps (tokens).

        Equation:
            S + P + (G - 2)/2: the contexts rise by one from S + P to S + P + G - 2.

        Raises:
            ValueError: at G = 1, where there is no decode step to average over.

        Example:
            >>> Request(new=8192, output=256).mean_decode_context, Request(new=1024, output=2048).mean_decode_context
            (8319.0, 2047.0)
        """
        if self.decode_steps == 0:
            raise ValueError("output (tokens) must be at least 2 for a request to have decode steps, got 1")
        return self.past + self.new + (self.decode_steps - 1) / 2


@formula
def lockstep_weight_reads(requests: Sequence[Request], batched_prefill: bool = True) -> Count:
    """Passes over the shared weights when the requests advance together (calls).

    Equation:
        prefills + the longest chain of decode steps, max(G - 1).

    Args:
        requests: Requests.
        batched_prefill: all prompts go through in one pass, else each takes its own.

    Raises:
        ValueError: for no request.

    Example:
        >>> lockstep_weight_reads([Request(1024, 128)] * 8), lockstep_weight_reads([Request(1024, 1024)])
        (128, 1024)
    """
    requests = some(requests, "requests", "request")
    return (1 if flag(batched_prefill, "batched_prefill") else len(requests)) + max(request.decode_steps for request in requests)


@formula
def weight_intensity(rows: Count, bytes_per_parameter: Bytes = 2) -> FlopsPerByte:
    """Arithmetic intensity of a weight matrix against its own bytes (FLOP/B).

    Equation:
        2 rows / bytes_per_parameter: each weight takes part in one multiply-add per row of the input.

    Args:
        rows: BP in a prefill of B prompts, B in a decode step.
        bytes_per_parameter: b, width of a weight as it is read (B).

    Assumptions:
        Activations and KV are left out, so this is an upper limit of the intensity of the whole pass.

    Example:
        >>> weight_intensity(64)
        64.0
    """
    return 2 * whole(rows, "rows", "", 1) / positive(bytes_per_parameter, "bytes_per_parameter", "B")

"""One request as a chain of model calls: one prefill, then one decode step per further token.

A request restores S tokens of context whose KV exists, processes P new ones and returns G. The first returned token comes out of the
prefill; the token returned last is never fed back, so its KV is never written.
"""
from dataclasses import dataclass

from .domain import MANY, flag, formula, keep, positive, some, whole
from .generic import total


@dataclass(frozen=True)
class Request:
    """Token counts of one request: ``new`` P and ``output`` G are at least 1, ``past`` S is at least 0.

    >>> Request(new=2048, output=4, past=6144)
    Request(new=2048, output=4, past=6144)
    """
    new: int
    output: int
    past: int = 0

    def __post_init__(self):
        keep(self, whole, "tokens", "new", "output", least=1)
        keep(self, whole, "tokens", "past")


@dataclass(frozen=True)
class Call:
    """One forward pass of one request: its ``stage``, the ``rows`` it processes and the ``context`` present when it starts (tokens)."""
    stage: str
    rows: int
    context: int


@formula
def decode_steps(request):
    """Decode steps of a request (calls).

    Equation: n_d = G - 1.

    >>> decode_steps(Request(new=8192, output=256))
    255
    """
    return request.output - 1


@formula
def context_at(request, step):
    """Context that a decode step starts from (tokens).

    Equation: S + P + j.
    Parameters: request, a Request; step j, counted from 0.
    Raises: ValueError unless 0 <= j < G - 1.

    >>> context_at(Request(new=2048, output=4, past=6144), 2)
    8194
    """
    whole(step, "step", "index")
    if step >= decode_steps(request):
        raise ValueError(f"step (index) must be below {decode_steps(request)}, the decode steps of the request, got {step!r}")
    return request.past + request.new + step


@formula
def end_context(request):
    """KV entries present when the request ends (tokens). The last returned token is not among them.

    Equation: S + P + G - 1.

    >>> end_context(Request(new=1024, output=1024))
    2047
    """
    return request.past + request.new + request.output - 1


@formula
def mean_decode_context(request):
    """Mean context over the decode steps of a request (tokens).

    Equation: S + P + (G - 2)/2: the contexts rise by one from S + P to S + P + G - 2.
    Raises: ValueError at G = 1, where there is no decode step to average over.

    >>> mean_decode_context(Request(new=8192, output=256)), mean_decode_context(Request(new=1024, output=2048))
    (8319.0, 2047.0)
    """
    if decode_steps(request) == 0:
        raise ValueError("output (tokens) must be at least 2 for a request to have decode steps, got 1")
    return request.past + request.new + (decode_steps(request) - 1) / 2


@formula
def call_chain(request):
    """The calls of a request in the order their data dependence forces: one prefill of P rows, then G - 1 decode steps of one row.

    >>> call_chain(Request(new=2048, output=3, past=6144))[1:]
    [Call(stage='decode', rows=1, context=8192), Call(stage='decode', rows=1, context=8193)]
    """
    prefill = Call("prefill", request.new, request.past)
    return [prefill] + [Call("decode", 1, context_at(request, j)) for j in range(whole(decode_steps(request), "decode steps", most=MANY))]


@formula
def lockstep_weight_reads(requests, batched_prefill=True):
    """Passes over the shared weights when the requests advance together (calls).

    Equation: prefills + the longest chain of decode steps, max(G - 1).
    Parameters: requests; batched_prefill: all prompts go through in one pass, else each takes its own.
    Raises: ValueError for no request.

    >>> lockstep_weight_reads([Request(1024, 128)] * 8), lockstep_weight_reads([Request(1024, 1024)])
    (128, 1024)
    """
    requests = some(requests, "requests", "request")
    return (1 if flag(batched_prefill, "batched_prefill") else len(requests)) + max(map(decode_steps, requests))


@formula
def weight_intensity(rows, bytes_per_parameter=2):
    """Arithmetic intensity of a weight matrix against its own bytes (FLOP/B).

    Equation: 2 rows / bytes_per_parameter: each weight takes part in one multiply-add per row of the input.
    Parameters: rows, BP in a prefill of B prompts, B in a decode step; bytes_per_parameter (B).
    Assumptions: activations and KV are left out, so this is an upper limit of the intensity of the whole pass.

    >>> weight_intensity(64)
    64.0
    """
    return 2 * whole(rows, "rows", "", 1) / positive(bytes_per_parameter, "bytes_per_parameter", "B")


@formula
def total_decode_steps(requests):
    """Decode steps of several requests together (request steps).

    Equation: sum of G - 1 over the requests.

    >>> total_decode_steps([Request(1024, 128)] * 8)
    1016
    """
    return total(decode_steps(r) for r in requests)

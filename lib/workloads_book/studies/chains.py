"""A request as the chain of its model calls, one by one."""

from __future__ import annotations

from dataclasses import dataclass

from workloads.checks import MANY, formula, whole
from workloads.counts.request_tokens import Request


@dataclass(frozen=True)
class Call:
    """One forward pass of one request: its ``stage``, the ``rows`` it processes and the ``context`` present when it
    starts (tokens).
    """

    stage: str
    rows: int
    context: int


@formula
def call_chain(request: Request) -> list[Call]:
    """The calls of a request in the order their data dependence forces: one prefill of P rows, then G - 1 decode steps
    of one row: step j, counted from 0, starts from S + P + j.

    Args:
        request: a Request.

    Example:
        >>> call_chain(Request(new=2048, output=3, past=6144))[1:]
        [Call(stage='decode', rows=1, context=8192), Call(stage='decode', rows=1, context=8193)]
    """
    prefill = Call("prefill", request.new, request.past)
    return [prefill] + [
        Call("decode", 1, request.past + request.new + j) for j in range(whole(request.decode_steps, "decode steps", most=MANY))
    ]

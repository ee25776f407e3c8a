"""The book's letters as a model, a request and a machine, so that the formulas themselves write the algebra, and solve it.

SymPy is loaded with the first letter that is asked for; `from workloads.symbols import B, S` asks for two. All letters
are positive. What each means stands in `LETTERS`, and on the book's page of notation.

The batch from which on decode is compute-bound, first as a formula, then for an H100 without any context:

    >>> import sympy
    >>> from workloads.counts.passes import decode
    >>> from workloads.facts.models import model as named
    >>> from workloads.symbols import B, S
    >>> box, step = machine(), decode(named("Qwen3-8B"), S, B)
    >>> sympy.expand(step.bytes)
    147456*B*S + 155648*B + 15136811008
    >>> turn = sympy.solve(sympy.Eq(step.flops / box.peak, step.bytes / box.bandwidth), B)[0]
    >>> round(turn.subs({S: 0, box.peak: 989.4e12, box.bandwidth: 3.35e12}))
    296
"""

from __future__ import annotations

from functools import cache

from .counts.request_tokens import Request
from .facts.accelerators import Accelerator
from .facts.models import Model
from .numeric import library
from .times.machine import Machine

sympy = library("sympy", "symbols")
LETTERS = {  # name here: (as it is written, what it is)
    "S": ("S", "tokens restored from a cache"),
    "P": ("P", "new input tokens"),
    "G": ("G", "tokens returned"),
    "c": ("c", "context of a decode step (tokens)"),
    "B": ("B", "sequences that decode together"),
    "n_L": ("n_L", "layers"),
    "h": ("h", "width of the model"),
    "n_q": ("n_q", "query heads"),
    "n_kv": ("n_kv", "key-value heads"),
    "d_h": ("d_h", "width of a head"),
    "d_f": ("d_f", "width of a feed-forward block"),
    "V": ("V", "vocabulary"),
    "M": ("M", "memory (B)"),
    "pi": ("pi", "dense peak (FLOP/s)"),
    "beta": ("beta", "bandwidth (B/s)"),
}


@cache
def __getattr__(name):
    if name not in LETTERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return sympy.Symbol(LETTERS[name][0], positive=True)


def model() -> Model:
    """A dense model of letters: n_L layers of width h, n_q query and n_kv key heads of width d_h, feed-forward width d_f,
    vocabulary V.

    Example:
        >>> from workloads.counts.memory import kv_bytes_per_token
        >>> kv_bytes_per_token(model())
        4*d_h*n_L*n_kv
    """
    sizes = dict(layers="n_L", hidden="h", heads="n_q", kv_heads="n_kv", head_dim="d_h", ffn="d_f", vocab="V")
    return Model("letters", **{size: __getattr__(letter) for size, letter in sizes.items()})


def request() -> Request:
    """A request of letters: S tokens cached, P new, G returned.

    Example:
        >>> request().end_context
        G + P + S - 1
    """
    return Request(*map(__getattr__, "PGS"))


def machine() -> Machine:
    """One accelerator of letters: peak pi (FLOP/s), bandwidth beta (B/s), memory M (B).

    Example:
        >>> machine().ridge
        pi/beta
    """
    return Machine(Accelerator("letters", __getattr__("M"), __getattr__("beta"), {"bf16": __getattr__("pi")}))

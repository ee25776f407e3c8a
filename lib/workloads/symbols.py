"""The book's letters as a model, a request and a machine, so that the formulas themselves write the algebra.

SymPy is loaded with the first letter that is asked for. Letters: see `LETTERS`; all positive.

    >>> import sympy
    >>> from workloads.counts.passes import decode
    >>> from workloads.facts.models import model as named
    >>> from workloads.symbols import B, S
    >>> box, step = machine(), decode(named("Qwen3-8B"), S, B)
    >>> sympy.expand(step.bytes)
    147456*B*S + 155648*B + 15136811008
    >>> turn = sympy.solve(sympy.Eq(step.flops / box.peak, step.bytes / box.bandwidth), B)[0]      # decode turns compute-bound
    >>> round(turn.subs({S: 0, box.peak: 989.4e12, box.bandwidth: 3.35e12}))
    296
"""

from __future__ import annotations

from functools import cache

from .counts.request_tokens import Request
from .facts.accelerators import Accelerator
from .facts.models import Model
from .numeric import Number, library
from .times.machine import Machine
from .units import FlopsPerSecond

LETTERS = {  # name here: as it is written
    "B": "B",
    "G": "G",
    "L": "L",
    "M": "M",
    "P": "P",
    "S": "S",
    "V": "V",
    "h": "h",
    "f": "f",
    "n_q": "n_q",
    "n_kv": "n_kv",
    "d_h": "d_h",
    "peak": "pi",
    "bandwidth": "beta",
}


@cache
def __getattr__(name):
    if name not in LETTERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return library("sympy", "symbols").Symbol(LETTERS[name], positive=True)


def model() -> Model:
    """A dense model of symbols: L layers of width h, n_q query and n_kv key heads of width d_h, feed-forward width f,
    vocabulary V.

    Example:
        >>> from workloads.counts.memory import kv_bytes_per_token
        >>> kv_bytes_per_token(model())
        4*L*d_h*n_kv
    """
    sizes = dict(layers="L", hidden="h", heads="n_q", kv_heads="n_kv", head_dim="d_h", ffn="f", vocab="V")
    return Model("symbols", **{size: __getattr__(letter) for size, letter in sizes.items()})


def request() -> Number:
    """A request of symbols: S tokens cached, P new, G returned.

    Example:
        >>> request()
        Request(new=P, output=G, past=S)
    """
    return Request(*map(__getattr__, "PGS"))


def machine() -> FlopsPerSecond:
    """One accelerator of symbols: peak pi (FLOP/s), bandwidth beta (B/s), memory M (B).

    Example:
        >>> machine().ridge
        pi/beta
    """
    return Machine(Accelerator("symbols", __getattr__("M"), __getattr__("bandwidth"), {"bf16": __getattr__("peak")}))


def equation(name: str, expression: Number) -> str:
    """A formula as TeX: a name, or a symbol, and what it equals.

    Args:
        name: as the table writes it.

    Example:
        >>> print(equation("t", __getattr__("S") / 2))
        t = \\frac{S}{2}
    """
    latex = library("sympy", "symbols").latex
    return f"{name if isinstance(name, str) else latex(name)} = {latex(expression)}"

"""Arithmetic that needs a branch, for numbers, NumPy arrays and SymPy symbols alike.

``+ - * / // **`` already work on all three. What does not is a maximum, a rounding or a comparison: an array has no
truth value and a symbol has no value yet. These functions look at the *type* of their arguments and never import
NumPy or SymPy themselves: an array or a symbol can only arrive here when its library is loaded already.
"""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

Number = Any  # an int, a float or a Fraction; a NumPy array; a SymPy symbol


def _library(*values):
    """Name of the library that must handle the values: "sympy", "numpy" or "math"."""
    roots = {type(v).__module__.partition(".")[0] for v in values}
    return "sympy" if "sympy" in roots else "numpy" if "numpy" in roots else "math"


def is_symbolic(value: object) -> bool:
    """Whether the value is a SymPy expression whose number is not known yet.

    Args:
        value: a number, an array or a symbol.

    Example:
        >>> is_symbolic(3)
        False
    """
    return _library(value) == "sympy" and not getattr(value, "is_number", True)


def is_array(value: object) -> bool:
    """Whether the value is a NumPy array with at least one axis.

    Args:
        value: a number, an array or a symbol.

    Example:
        >>> is_array([1, 2])
        False
    """
    return _library(value) == "numpy" and getattr(value, "ndim", 0) > 0


def _reduce(values, sympy_name, numpy_name, plain):
    library = _library(*values)
    if library == "sympy":
        return getattr(sys.modules["sympy"], sympy_name)(*values)
    if library == "numpy":
        fold = getattr(sys.modules["numpy"], numpy_name)
        result = values[0]
        for value in values[1:]:
            result = fold(result, value)
        return result
    return plain(values)


def maximum(*values: Number) -> Number:
    """Largest of the values, element by element.

    Args:
        *values: numbers, arrays or symbols.

    Example:
        >>> maximum(2, 5, 3)
        5
    """
    return _reduce(values, "Max", "maximum", max)


def minimum(*values: Number) -> Number:
    """Smallest of the values, element by element.

    Args:
        *values: numbers, arrays or symbols.

    Example:
        >>> minimum(2, 5, 3)
        2
    """
    return _reduce(values, "Min", "minimum", min)


def ceil(value: Number) -> Number:
    """Smallest whole number not below the value.

    Args:
        value: a number, an array or a symbol.

    Example:
        >>> ceil(2.1), ceil(4)
        (3, 4)
    """
    library = _library(value)
    return getattr(sys.modules[library], "ceiling" if library == "sympy" else "ceil")(value)


def floor(value: Number) -> Number:
    """Largest whole number not above the value.

    Args:
        value: a number, an array or a symbol.

    Example:
        >>> floor(2.9), floor(4)
        (2, 4)
    """
    return sys.modules[_library(value)].floor(value)


def quotient(multiple: Number, divisor: Number) -> Number:
    """Quotient of a number that the divisor divides: whole numbers stay whole, a symbol gets no floor.

    Args:
        multiple: a multiple of the divisor.
        divisor: above 0.

    Example:
        >>> quotient(12, 4)
        3
    """
    return multiple / divisor if is_symbolic(multiple) else multiple // divisor


def where(condition: Any, if_true: Any, if_false: Any) -> Any:
    """The first alternative where the condition holds, else the second.

    Args:
        condition: true or false; an array or a relation of symbols.
        if_true: where it holds.
        if_false: where it does not.

    Example:
        >>> where(2 > 1, "yes", "no")
        'yes'
    """
    library = _library(condition, if_true, if_false)
    if library == "sympy":
        return sys.modules["sympy"].Piecewise((if_true, condition), (if_false, True))
    return sys.modules["numpy"].where(condition, if_true, if_false) if library == "numpy" else (if_true if condition else if_false)


def total(values: Iterable[Number]) -> Number:
    """Sum of the values: exact for integers, correctly rounded (`math.fsum`) for plain floats.

    Args:
        values: numbers, arrays or symbols.

    Example:
        >>> total([0.1] * 10), total([1, 2, 3])
        (1.0, 6)
    """
    values = list(values)
    if values and any(isinstance(v, float) for v in values) and all(isinstance(v, (int, float, Fraction)) for v in values):
        return math.fsum(values)
    return sum(values)


def library(name: str, extra: str) -> Number:
    """Another library, loaded when a formula needs it.

    Args:
        name: of the module, as an import statement writes it.
        extra: what `pip install "workloads[extra]"` brings it with.

    Raises:
        ModuleNotFoundError: that says how to install it.

    Example:
        >>> library("math", "none").pi > 3
        True
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as missing:
        raise ModuleNotFoundError(f"{missing.name} is needed here: pip install 'workloads[{extra}]'", name=missing.name) from missing


def deferred(name: str, extra: str) -> Number:
    """A `library` that is loaded with the first of its names that is used, so that a module can name it at its top.

    Args:
        name: of the module, as an import statement writes it.
        extra: what `pip install "workloads[extra]"` brings it with.

    Example:
        >>> deferred("math", "none").floor(2.5)
        2
    """

    class Deferred:
        def __getattr__(self, attribute):
            return getattr(library(name, extra), attribute)

    return Deferred()

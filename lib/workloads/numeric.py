"""Arithmetic that needs a branch, for numbers, NumPy arrays and SymPy symbols alike.

``+ - * / // **`` already work on all three. What does not is a maximum, a rounding or a comparison: an array has no
truth value and a symbol has no value yet. These functions look at the *type* of their arguments and never import
NumPy or SymPy themselves: an array or a symbol can only arrive here when its library is loaded already.
"""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Callable, Iterable, Sequence
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
    traced = [value for value in values if hasattr(value, "joined")]  # numbers that `explain` has sent in
    return traced[0].joined(plain.__name__, values) if traced else plain(values)


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
    if traced := [value for value in values if hasattr(value, "joined")]:  # numbers that `explain` has sent in
        return traced[0].joined("sum", values)
    if values and any(isinstance(v, float) for v in values) and all(isinstance(v, (int, float, Fraction)) for v in values):
        return math.fsum(values)
    return sum(values)


def line_sum(start: Number, stop: Number, level: Number, slope: Number) -> Number:
    """Sum of level + slope t over t = start .. stop: exact for integers.

    Args:
        start: first t.
        stop: last t; start - 1 for an empty sum.
        level: at t = 0.
        slope: from one t to the next.

    Example:
        >>> line_sum(1, 4, 10, 2), line_sum(1, 4, 10, 0.5)
        (60, 45.0)
    """
    if isinstance(start, int) and isinstance(stop, int) and isinstance(level, int) and isinstance(slope, int):
        return (stop - start + 1) * level + slope * ((stop - start + 1) * (start + stop) // 2)
    return (stop - start + 1) * (level + slope * (start + stop) / 2)


def sum_of_larger(start: Number, stop: Number, a: Sequence[Number], b: Sequence[Number]) -> Number:
    """Sum over t = start .. stop of the larger of two straight lines a and b, each (level, slope): max(a0 + a1 t, b0 +
    b1 t). Exact for integers.

    The lines cross once at most, so a lies above b in one run at one end; what it adds there goes on top of the sum of
    b.

    Args:
        start: first t, a whole number.
        stop: last t, a whole number.
        a: (level, slope) of a line.
        b: (level, slope) of the other.

    Example:
        >>> sum_of_larger(1, 4, (0, 2), (5, 0)) == max(2, 5) + max(4, 5) + max(6, 5) + max(8, 5)
        True
    """
    level, slope = a[0] - b[0], a[1] - b[1]
    exact = isinstance(level, int) and isinstance(slope, int)
    # the difference level + slope t changes its sign once at most, at the crossing; parallel lines divide by 1 instead of 0
    crossing = -level // (slope or 1) if exact else -level / where(slope == 0, 1, slope)
    # last t of the first run, or start - 1 if there is none; the crossing may lie far outside, so it is cut before it is rounded
    whole = exact and isinstance(start, int) and isinstance(stop, int)  # no library to look for: simulators call this often
    low, high, down = (min, max, int) if whole else (minimum, maximum, floor)
    turn = high(down(low(high(crossing, start - 1), stop)), start - 1)
    before, after = line_sum(start, turn, level, slope), line_sum(turn + 1, stop, level, slope)
    # the sum of a run is positive just where a lies above b in it
    return line_sum(start, stop, *b) + high(before, 0) + high(after, 0)


def bisect(rising: Callable[[float], float], low: float, high: float) -> float:
    """Where a rising function crosses 0, to the last bit.

    Args:
        rising: of one number.
        low: below the crossing.
        high: above the crossing.

    Example:
        >>> bisect(lambda x: x * x - 2, 1, 2)
        1.414213562373095
    """
    while low < (middle := float(low + high) / 2) < high:
        low, high = (low, middle) if rising(middle) > 0 else (middle, high)
    return middle


def library(name: str, extra: str) -> Any:
    """Another library, loaded with the first of its names that a formula uses, so that a module can name it at its top.

    Args:
        name: of the module, as an import statement writes it.
        extra: what `pip install "workloads[extra]"` brings it with.

    Raises:
        ModuleNotFoundError: at that use, where it is missing; the message says how to install it.

    Example:
        >>> library("math", "none").floor(2.5)
        2
    """

    class Library:
        def __getattr__(self, attribute):
            try:
                return getattr(importlib.import_module(name), attribute)
            except ModuleNotFoundError as missing:
                needed = f"{missing.name} is needed here: pip install 'workloads[{extra}]'"
                raise ModuleNotFoundError(needed, name=missing.name) from missing

    return Library()

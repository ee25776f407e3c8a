"""Argument checks: bad input is refused once, where it enters, by an error that names argument, unit and value.

Each check returns its value as a plain number, so that it can stand in an assignment; `keep` does the same for the fields of a
shape, and `formula` for a whole function, whose results it looks at too. What counts as a number, everywhere:

  int, float, Fraction; a Decimal (as the Fraction that it is); NumPy scalars and arrays without axes (as Python numbers);
  arrays, element by element, as float64: in integers of 64 bits or fewer a product of counts overflows without a word;
  symbols, which pass unchecked: their value is not known yet.

Half and single precision mean the decimal that they print, 0.07 and not 0.07000000029802322; whole ones are exact. True and False are no
numbers, alone or in arrays, and neither are texts, complex numbers and arrays of objects.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import fields, is_dataclass
from decimal import Decimal
from fractions import Fraction
from numbers import Real
from operator import is_
from typing import Any, TypeVar, cast

from .numeric import Number, is_array, is_symbolic

MANY = 10**6  # most rounds of a loop: one that counts further would not end
PLAIN = frozenset({int, float, str, bool, Fraction, type(None)})
AS_IT_IS = set()  # types of values that `plain` has found to be neither numbers nor of several parts
Function = TypeVar("Function", bound=Callable)
RECORDING: ContextVar[Any] = ContextVar("recording", default=None)  # what `explain` records calls of formulas with, while it runs


def _refuse(name, unit, value, rule):
    raise ValueError(f"{name}{f' ({unit})' if unit else ''} must be {rule}, got {value!r}")


def plain(value: Any) -> Number:
    """The value with plain numbers in the place of NumPy's and of Decimals, within lists and tuples too; an iterator as
    a list.

    What is no number stays as it is: a check will refuse it.

    Args:
        value: what was given.

    Example:
        >>> plain((Decimal("0.5"), iter([1, 2])))
        (Fraction(1, 2), [1, 2])
    """
    kind = type(value)
    if kind in PLAIN or kind in AS_IT_IS:
        return value
    if isinstance(value, (list, tuple)):
        inside = [plain(v) for v in value]
        if all(map(is_, value, inside)):
            return value
        return kind._make(inside) if hasattr(kind, "_fields") else kind(inside)
    if isinstance(value, Iterator):
        return plain(list(value))
    if isinstance(value, Decimal) and value.is_finite():
        return Fraction(value)
    if kind.__module__.partition(".")[0] == "numpy" and hasattr(value, "dtype"):
        return _widened(value)
    if kind is not Decimal:
        AS_IT_IS.add(kind)
    return value


def _widened(value):
    """A NumPy scalar, or an array without axes, as a Python number; numbers in an array as float64."""
    if value.ndim == 0:
        if value.dtype.kind == "f" and not hasattr(value, "mask"):
            short = value.dtype.itemsize < 8 and math.isfinite(value) and value % 1
            return float(str(value[()])) if short else float(value)
        return value.item() if value.dtype.kind in "iubU" and not hasattr(value, "mask") else value
    if value.dtype.kind not in "iuf":
        return value
    wide = value.astype(float, copy=False)
    if value.dtype.kind == "f" and value.dtype.itemsize < 8:
        parts = sys.modules["numpy"].floor(wide) != wide
        wide[parts] = value[parts].astype(str).astype(float)
    return wide


def _require(value, name, unit, rule, holds) -> Number:
    if type(value) in (int, float):  # the common case, without a look at the type's origin
        return value if -math.inf < value < math.inf and holds(value) else _refuse(name, unit, value, _rule(value, rule))
    if is_symbolic(value):
        return value
    value = plain(value)
    if is_array(value):
        return _require_all(value, name, unit, rule, holds)
    # Real: SymPy's numbers, such as a sum that came out as 0, are numbers too
    if not isinstance(value, Real) or isinstance(value, bool) or type(value).__module__.partition(".")[0] == "numpy":
        _refuse(name, unit, value, f"a number, {rule}")
    return value if -math.inf < cast(float, value) < math.inf and holds(value) else _refuse(name, unit, value, _rule(value, rule))


def _require_all(values, name, unit, rule, holds):
    """The array, if the rule holds in every element."""
    if values.dtype.kind != "f":
        _refuse(name, unit, values, f"an array of numbers, each {rule}")
    numpy = sys.modules["numpy"]
    finite = numpy.isfinite(values)
    good = holds(values) if numpy.all(finite) else finite
    if not numpy.all(good):
        bad = values[~good].tolist()[0]
        _refuse(name, unit, bad, f"{_rule(bad, rule)} in every element")
    return values


def _rule(value, rule):
    """The rule that a number breaks: of one that is not finite, that first."""
    return f"finite and {rule}" if not -math.inf < value < math.inf and rule != "finite" else rule


def finite(value: Number, name: str, unit: str = "") -> Number:
    """The value, if it is a finite number.

    Args:
        value: what was given.
        name: of the argument, for the message.
        unit: of the argument, for the message.

    Example:
        >>> finite(-2.5, "share")
        -2.5
    """
    return _require(value, name, unit, "finite", lambda v: v == v)


def positive(value: Number, name: str, unit: str = "") -> Number:
    """The value, if it is finite and above zero.

    Args:
        value: what was given.
        name: of the argument, for the message.
        unit: of the argument, for the message.

    Example:
        >>> positive(-2, "bandwidth", "B/s")
        Traceback (most recent call last):
        ...
        ValueError: bandwidth (B/s) must be above 0, got -2
    """
    return _require(value, name, unit, "above 0", lambda v: v > 0)


def nonnegative(value: Number, name: str, unit: str = "") -> Number:
    """The value, if it is finite and not below zero.

    Args:
        value: what was given.
        name: of the argument, for the message.
        unit: of the argument, for the message.

    Example:
        >>> nonnegative(0, "past", "tokens")
        0
    """
    return _require(value, name, unit, "at least 0", lambda v: v >= 0)


def fraction(value: Number, name: str, unit: str = "", zero: bool = False) -> Number:
    """The value, if it lies in (0, 1], or in [0, 1] with ``zero=True``.

    Args:
        value: what was given.
        name: of the argument, for the message.
        unit: of the argument, for the message.
        zero: whether 0 is allowed.

    Example:
        >>> fraction(1.2, "mfu")
        Traceback (most recent call last):
        ...
        ValueError: mfu must be above 0 and at most 1, got 1.2
    """
    if zero:
        return _require(value, name, unit, "between 0 and 1", lambda v: (v >= 0) & (v <= 1))
    return _require(value, name, unit, "above 0 and at most 1", lambda v: (v > 0) & (v <= 1))


def whole(value: Number, name: str, unit: str = "", least: Number = 0, most: Number | None = None) -> Number:
    """The value, if it is a whole number from ``least`` to ``most``: an int, also where it came as a float; an array of
    whole values.

    Args:
        value: what was given.
        name: of the argument, for the message.
        unit: of the argument, for the message.
        least: smallest value allowed.
        most: largest value allowed; None leaves that end open.

    Example:
        >>> whole(16.0, "heads")
        16
        >>> whole(2.5, "heads")
        Traceback (most recent call last):
        ...
        ValueError: heads must be a whole number of at least 0, got 2.5
    """
    rule = f"a whole number of at least {least}" if most is None else f"a whole number between {least} and {most:,}"
    high = math.inf if most is None else most
    return _counted(_require(value, name, unit, rule, lambda v: (v >= least) & (v <= high) & (v % 1 == 0)))


def multiple(value: Number, of: Number, name: str, unit: str = "") -> Number:
    """The value, if it is a whole multiple of another, above zero.

    Args:
        value: what was given.
        of: what must divide it.
        name: of the argument, for the message.
        unit: of the argument, for the message.

    Example:
        >>> multiple(641, 32, "width", "pixels")
        Traceback (most recent call last):
        ...
        ValueError: width (pixels) must be a whole multiple of 32 above 0, got 641
    """
    return _counted(_require(value, name, unit, f"a whole multiple of {of} above 0", lambda v: (v > 0) & (v % of == 0)))


def _counted(value):
    return int(value) if isinstance(value, (float, Fraction)) else value


def between(value: Number, low: Number | None, high: Number | None, name: str, unit: str = "") -> Number:
    """The value, if it is finite and lies between two others, both allowed; an end that is None is open.

    Args:
        value: what was given.
        low: smallest value allowed.
        high: largest value allowed.
        name: of the argument, for the message.
        unit: of the argument, for the message.

    Example:
        >>> between(9, 1, 8, "gpus")
        Traceback (most recent call last):
        ...
        ValueError: gpus must be between 1 and 8, got 9
    """
    low, high = (-math.inf if low is None else low), (math.inf if high is None else high)
    rule = f"at least {low:,}" if high == math.inf else f"at most {high:,}" if low == -math.inf else f"between {low:,} and {high:,}"
    return _require(value, name, unit, rule, lambda v: (v >= low) & (v <= high))


def flag(value: str | bool, name: str, unit: str = "") -> bool:
    """The value, if it is True or False.

    Args:
        value: what was given.
        name: of the argument, for the message.
        unit: of the argument, for the message.

    Example:
        >>> flag("no", "causal")
        Traceback (most recent call last):
        ...
        ValueError: causal must be True or False, got 'no'
    """
    value = plain(value)
    if not isinstance(value, bool):
        _refuse(name, unit, value, "True or False")
    return value


def some(values: Iterable[Any], name: str, kind: str = "value") -> list[Any]:
    """The values as a list, if there is at least one.

    Args:
        values: what was given.
        name: of the argument, for the message.
        kind: what one of them is called.

    Example:
        >>> some((), "load", "arrival")
        Traceback (most recent call last):
        ...
        ValueError: load must hold at least one arrival, got none
    """
    values = list(values)
    if not values:
        raise ValueError(f"{name} must hold at least one {kind}, got none")
    return values


def one_of(value: Any, name: str, allowed: Collection[Any]) -> Any:
    """The value, if it is among the allowed ones.

    Args:
        value: what was given.
        name: of the argument, for the message.
        allowed: values to choose from.

    Example:
        >>> one_of("most", "head", ("all", "last"))
        Traceback (most recent call last):
        ...
        ValueError: head must be one of 'all', 'last', got 'most'
    """
    if value not in allowed:
        _refuse(name, "", value, "one of " + (", ".join(map(repr, allowed)) or "none that is known"))
    return value


def keep(shape: Any, check: Callable[..., Any], unit: str, *names: str, of: str = "", unknown: bool = False, **limits: Any) -> None:
    """Put the checked value of each named field of a frozen dataclass in the place of what was given.

    Args:
        shape: the instance, in its ``__post_init__``.
        check: one of the checks above.
        unit: of the argument, for the message.
        *names: of its fields.
        of: what a message says behind a name.
        unknown: whether None may stand there.
        **limits: keywords of the check.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True)
        ... class Prompt:
        ...     tokens: int
        ...     def __post_init__(self):
        ...         keep(self, whole, "tokens", "tokens", least=1)
        >>> Prompt(8.0)
        Prompt(tokens=8)
    """
    for name in names:
        value = plain(getattr(shape, name))
        if is_array(value):
            _refuse(name + of, unit, value, "a single number")
        if not (unknown and value is None):
            object.__setattr__(shape, name, check(value, name + of, unit, **limits))


def formula(function: Function) -> Function:
    """A public function of the library: inside it every number is `plain`, and it returns no inf and no NaN.

    Args:
        function: of the library.

    Raises:
        ValueError: for a set where order counts, for an array where only a single number will do, and where a result
            leaves the floats.

    Example:
        >>> formula(lambda rate, seconds: rate * seconds)(1e200, 1e200)
        Traceback (most recent call last):
        ...
        ValueError: result of <lambda> must stay within the floats, got inf
    """

    def _run(values, named):
        values, named = tuple(map(plain, values)), {name: plain(value) for name, value in named.items()}
        unusual = [value for value in (*values, *named.values()) if type(value) not in PLAIN]
        try:
            if any(hasattr(value, "ndim") for value in unusual):
                with sys.modules["numpy"].errstate(all="ignore"):  # what overflows is found in the result
                    result = function(*values, **named)
            elif any(map(_loses_order, unusual)):
                raise TypeError("a set keeps no order, and nothing twice")
            else:
                result = function(*values, **named)
        except (ArithmeticError, TypeError, ValueError) as error:
            by_name = _named(error, function, [*zip(function.__code__.co_varnames, values), *named.items()])
            if by_name is None:
                raise
            raise by_name from error
        if not _within_floats(result):
            raise ValueError(f"result of {function.__name__} must stay within the floats, got {_first_beyond(result)}")
        return result

    @functools.wraps(function)
    def checked(*values: Any, **named: Any) -> Any:
        return recording.call(function, _run, values, named) if (recording := RECORDING.get()) else _run(values, named)

    return cast(Function, checked)


def _named(error, function, given):
    """An error with the names of the arguments that it comes from; None where a check has named one, or none is known."""
    if isinstance(error, (OverflowError, ZeroDivisionError)) or "math domain error" in str(error):  # of a logarithm: 0 in floats
        return ValueError(f"result of {function.__name__} must stay within the floats, got {error}")
    if " must " in str(error) and ", got " in str(error):
        return None
    for unfit, wanted in ((_holds_array, "single numbers, got an array"), (_loses_order, "lists or tuples, got a set")):
        if names := [name for name, value in given if unfit(value)]:
            return ValueError(f"{', '.join(names)} of {function.__name__} must be {wanted} ({error})")
    return None


def _loses_order(value):
    return isinstance(value, (set, frozenset)) and not all(isinstance(v, str) for v in value)


def _holds_array(value):
    return is_array(value) or (isinstance(value, (list, tuple)) and any(map(_holds_array, value)))


def _parts(value):
    """What a result holds, one level down: none of a shape that checked its fields when it was made; None for a single value."""
    if isinstance(value, dict):
        return value.values()
    if is_dataclass(kind := type(value)):
        return () if hasattr(kind, "__post_init__") else [getattr(value, field.name) for field in fields(kind)]
    return value if isinstance(value, (list, tuple, set, frozenset)) else None


def _within_floats(value):
    kind = type(value)
    if kind is float:
        return -math.inf < value < math.inf
    if kind in PLAIN:
        return True
    if (parts := _parts(value)) is not None:
        return all(map(_within_floats, parts))
    if isinstance(value, (float, complex)):
        return math.isfinite(abs(value)) and not isinstance(value, complex)
    if is_array(value) and value.dtype.kind in "fc":
        return value.dtype.kind == "f" and not (~sys.modules["numpy"].isfinite(value)).any()
    return True


def _first_beyond(value):
    """The number of a result that is no finite one."""
    parts = value.ravel().tolist() if is_array(value) else _parts(value)
    return value if parts is None else _first_beyond(next(v for v in parts if not _within_floats(v)))

"""Argument checks: bad input is refused once, where it enters, by an error that names argument, unit and value.

Each function returns its value, so that it can stand in an assignment. Symbols pass unchecked (their value is not known
yet); arrays are checked element by element. Whole-number arrays come back as float64 and NumPy scalars as Python numbers: in
64-bit integers a product of counts overflows without a word.
"""
import math
import sys

from .generic import Number, is_array, is_symbolic


def _refuse(name, unit, value, rule):
    raise ValueError(f"{name}{f' ({unit})' if unit else ''} must be {rule}, got {value!r}")


def _require(value, name, unit, rule, holds) -> Number:
    if type(value) in (int, float):             # the common case, without a look at the type's origin
        return value if -math.inf < value < math.inf and holds(value) else _refuse(name, unit, value, rule)
    if is_symbolic(value):
        return value
    if hasattr(value, "item") and not is_array(value) and type(value).__module__ == "numpy":
        value = value.item()
    if isinstance(value, (bool, str)) or value is None:
        _refuse(name, unit, value, f"a number, {rule}")
    if is_array(value):
        numpy = sys.modules["numpy"]
        if not (numpy.all(numpy.isfinite(value)) and numpy.all(holds(value))):
            bad = value[~(numpy.isfinite(value) & holds(value))].tolist()[0]
            _refuse(name, unit, bad, f"{rule} in every element")
        return value.astype(float) if value.dtype.kind in "iu" else value
    try:
        finite = math.isfinite(value)
    except TypeError:
        _refuse(name, unit, value, f"a number, {rule}")
    except OverflowError:           # an integer beyond the floats: finite
        finite = True
    if not (finite and holds(value)):
        _refuse(name, unit, value, rule)
    return value


def finite(value, name, unit=""):
    """The value, if it is a finite number.

    >>> finite(-2.5, "share")
    -2.5
    """
    return _require(value, name, unit, "finite", lambda v: v == v)


def positive(value, name, unit=""):
    """The value, if it is finite and above zero.

    >>> positive(-2, "bandwidth", "B/s")
    Traceback (most recent call last):
    ...
    ValueError: bandwidth (B/s) must be above 0, got -2
    """
    return _require(value, name, unit, "above 0", lambda v: v > 0)


def nonnegative(value, name, unit=""):
    """The value, if it is finite and not below zero.

    >>> nonnegative(0, "past", "tokens")
    0
    """
    return _require(value, name, unit, "at least 0", lambda v: v >= 0)


def fraction(value, name, unit="", zero=False):
    """The value, if it lies in (0, 1], or in [0, 1] with ``zero=True``.

    >>> fraction(1.2, "mfu")
    Traceback (most recent call last):
    ...
    ValueError: mfu must be above 0 and at most 1, got 1.2
    """
    if zero:
        return _require(value, name, unit, "between 0 and 1", lambda v: (v >= 0) & (v <= 1))
    return _require(value, name, unit, "above 0 and at most 1", lambda v: (v > 0) & (v <= 1))


def whole(value, name, unit="", least=0):
    """The value, if it is a whole number (an `int`, or a float or array of whole values) not below ``least``.

    >>> whole(2.5, "heads")
    Traceback (most recent call last):
    ...
    ValueError: heads must be a whole number of at least 0, got 2.5
    """
    return _require(value, name, unit, f"a whole number of at least {least}", lambda v: (v >= least) & (v % 1 == 0))


def multiple(value, of, name, unit=""):
    """The value, if it is a whole multiple of another, above zero.

    >>> multiple(641, 32, "width", "pixels")
    Traceback (most recent call last):
    ...
    ValueError: width (pixels) must be a whole multiple of 32 above 0, got 641
    """
    return _require(value, name, unit, f"a whole multiple of {of} above 0", lambda v: (v > 0) & (v % of == 0))


def between(value, low, high, name, unit=""):
    """The value, if it is finite and lies between two others, both allowed; an end that is None is open.

    >>> between(9, 1, 8, "gpus")
    Traceback (most recent call last):
    ...
    ValueError: gpus must be between 1 and 8, got 9
    """
    low, high = (-math.inf if low is None else low), (math.inf if high is None else high)
    rule = f"at least {low:,}" if high == math.inf else f"at most {high:,}" if low == -math.inf else f"between {low:,} and {high:,}"
    return _require(value, name, unit, rule, lambda v: (v >= low) & (v <= high))


def some(values, name, kind="value"):
    """The values as a list, if there is at least one.

    >>> some((), "load", "arrival")
    Traceback (most recent call last):
    ...
    ValueError: load must hold at least one arrival, got none
    """
    values = list(values)
    if not values:
        raise ValueError(f"{name} must hold at least one {kind}, got none")
    return values


def one_of(value, name, allowed):
    """The value, if it is among the allowed ones.

    >>> one_of("most", "head", ("all", "last"))
    Traceback (most recent call last):
    ...
    ValueError: head must be one of 'all', 'last', got 'most'
    """
    if value not in allowed:
        _refuse(name, "", value, "one of " + ", ".join(map(repr, allowed)))
    return value

"""Units and the one formatter.

Inside the library everything is bytes, seconds, FLOPs, tokens and dollars. A prefix appears only here, where a number
becomes text. GB is 10**9 bytes, GiB is 2**30 bytes; FLOP is a count, FLOP/s a rate.
"""

from __future__ import annotations

import math

from .checks import formula
from .numeric import Number

# What a number means, for signatures: plain numbers, arrays and symbols all pass
Bytes = Number  # bytes (B)
BytesPerSecond = Number  # rate of transfer (B/s)
BytesPerToken = Number  # KV cache of a token (B/token)
FlopCount = Number  # operations, all or of one pair or token (FLOP)
FlopsPerSecond = Number  # rate of arithmetic (FLOP/s)
FlopsPerByte = Number  # arithmetic intensity (FLOP/B)
Seconds = Number  # time (s)
Milliseconds = Number  # time of sound (ms)
Tokens = Number  # tokens, most often whole
PerSecond = Number  # events a second (1/s)
Watts = Number  # power (W)
Share = Number  # part of a whole, 0 to 1
Dollars = Number  # money, or money for an hour or a million ($, $/GPU-h)
Count = Number  # how many, most often whole

GB, TB = 10**9, 10**12
KIB, MIB, GIB, TIB = 2**10, 2**20, 2**30, 2**40
GIGA, TERA = 10**9, 10**12
MINUTE, HOUR, DAY = 60, 3600, 86400
_WHOLE = 1e-13  # relative: what rounding alone may add to a whole number or take from it
_PREFIXES = ((1e24, "Y"), (1e21, "Z"), (1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1, ""))
_PREFIXED = {"FLOP", "FLOP/s", "B", "B/s", "FLOP/token"}
_SMALL = ((1, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"))
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@formula
def number(value: Number | str | None, digits: Count = 4) -> str:
    """Text of a number: significant digits, thousands separators, a power of ten beyond 10**13 or below 10**-6.

    Whole numbers of up to 13 places are given in full, floats of whole value too; a float a few units in the last place
    beside one (2.0000000000000004, as another processor may compute 2) reads the same.

    Args:
        value: a number, or None.
        digits: significant digits.

    Example:
        >>> number(112792), number(2795.6643), number(0.5716), number(7.830392e15)
        ('112,792', '2,796', '0.5716', '7.830 × 10¹⁵')
    """
    if isinstance(value, str) or value is None:
        return "n/a" if value is None else value
    if not isinstance(value, int):
        value = float(value)
        if not math.isfinite(value):
            raise ValueError(f"value must be finite, got {value!r}")
    if abs(value) < 10**13 and abs(value - round(value)) <= _WHOLE * abs(value):
        return f"{round(value):,}".replace("-", "−")
    mantissa, _, exponent = f"{float(value):.{digits - 1}e}".partition("e")
    if not -6 <= int(exponent) <= 12:
        return f"{mantissa} × 10{str(int(exponent)).translate(_SUPERSCRIPT)}".replace("-", "−")
    return f"{float(f'{mantissa}e{exponent}'):,.{max(0, digits - 1 - int(exponent))}f}".replace("-", "−")


@formula
def quantity(value: Number, unit: str, digits: Count = 4) -> str:
    """Text of a value with its unit, in the prefix that suits its size.

    FLOP, FLOP/s, B, B/s take k, M, G, T, P; s takes m, µ and n below 1; "$" stands in front; "%" takes a fraction (0.75
    becomes 75%). Any other unit is put behind the number as it is.

    Args:
        value: a number, or None.
        unit: of the value, as text.
        digits: significant digits.

    Example:
        >>> quantity(16381470720, "B"), quantity(0.02289, "s"), quantity(143.789331e12, "FLOP", 6)
        ('16.38 GB', '22.89 ms', '143.789 TFLOP')
        >>> quantity(0.568, "%", 3), quantity(2, "$"), quantity(112792, "steps")
        ('56.8%', '$2', '112,792 steps')
    """
    if unit == "%":
        return number(100 * value, digits) + "%"
    if unit == "$":
        return "$" + number(value, digits)
    if unit in _PREFIXED and abs(value) >= 1000:
        size, prefix = next((s, p) for s, p in _PREFIXES if abs(value) >= s * (1 - 10.0**-digits / 2))
        return f"{number(float(value) / size, digits)} {prefix}{unit}"
    if unit == "s" and 0 < abs(value) < 1:
        size, prefix = next(((s, p) for s, p in _SMALL if abs(value) >= s * (1 - 10.0**-digits / 2)), _SMALL[-1])
        return f"{number(float(value) / size, digits)} {prefix}s"
    return f"{number(value, digits)} {unit}".strip()


@formula
def binary(value: Bytes, digits: Count = 4) -> str:
    """Text of a number of bytes in KiB, MiB, GiB or TiB.

    Args:
        value: an amount of memory (B).
        digits: significant digits.

    Example:
        >>> binary(147456), binary(8_192_000)
        ('144 KiB', '7.812 MiB')
    """
    size, prefix = next(((s, p) for s, p in ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")) if abs(value) >= s), (1, "B"))
    return f"{number(value / size, digits)} {prefix}"

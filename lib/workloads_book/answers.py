"""Check the numbers of an exercise without printing them: right, a known slip with its hint, or unit and size of what is asked.

The data (`data/answers.json`, written by `book/_site/seal.py` from the solved exercises) hold no answers in plain text. Each
value is stored as a digest of the exercise, the quantity and a rounded logarithm. That keeps an answer from being *read by
accident*, and nothing more: someone who tries all values of the known size finds it in seconds, the digests of small whole numbers
at once, and the solved exercises are part of this repository anyway. Nothing is sent anywhere; the check needs only Python.
"""

import base64
import difflib
import hashlib
import json
import math
import re
import zlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from workloads.units import number

FINE, COARSE = 1e-6, 5e-3  # relative: what the graded tests ask for; what counts as the same figure, rounded
EXACT = 10**5  # whole numbers below it are not rounded
ZERO = 1e-9  # below this, a value is zero
SCALES = (  # (units, factor, its name): a value that is off by one of these has the right digits
    ("", 1e3, "1000"),
    ("", 1e6, "a million"),
    ("", 1e9, "10⁹"),
    ("", 1e12, "10¹²"),
    (r"[KMGT]?i?B\b", 1024, "1024"),
    (r"[KMGT]?i?B\b", 2**20 / 1e6, "MiB over MB"),
    (r"[KMGT]?i?B\b", 2**30 / 1e9, "GiB over GB"),
    (r"[KMGT]?i?B\b", 8, "8, bits against bytes"),
    (r"s\b|.*(hours|days|/s\b)", 60, "60"),
    (r"s\b|.*(hours|days|/s\b)", 3600, "3600"),
    (r"s\b|.*(hours|days)", 24, "24"),
    (r"[KMGT]?i?B\b", 2**30, "2³⁰"),
    (r"\$|USD|dollar", 100, "100, cents against dollars"),
    ("fraction|%", 100, "100, percent against fraction"),
)
MARKS = {"right": "✓ right", "rounded": "✓ right, rounded"}


@dataclass(frozen=True)
class Verdict:
    """What is said about one value: its kind ("right", "rounded", "slip", "scale", "sign" or "open") and the text."""

    name: str
    kind: str
    text: str


@dataclass(frozen=True)
class Verdicts:
    """The verdicts of one call; a notebook shows them as a list."""

    all: tuple[Verdict, ...]

    def __repr__(self):
        return "\n".join(f"{v.name}: {v.text}" for v in self.all)

    def _repr_markdown_(self):
        return "\n".join(f"- `{v.name}`: {v.text}" for v in self.all)


def step(value, tolerance):
    """Position of a value on the scale whose unit is twice the relative tolerance: log|v| / (2 log(1 + tolerance)), a
    real number.

    Example:
        >>> round(step(1010, 0.005) - step(1000, 0.005), 3)
        0.998
    """
    return math.log(abs(value)) / (2 * math.log1p(tolerance))


def digest(exercise, name, value, tolerance, phase):
    """Digest of a value on the scale of `step`, shifted by ``phase``; all values within the tolerance share it."""
    if isinstance(value, str):
        token = value.strip().lower()
    else:
        token = "0" if abs(value) < ZERO else f"{'-' if value < 0 else ''}{math.floor(step(value, tolerance) - phase + 0.5)}"
    return hashlib.sha256(f"{exercise}/{name}/{tolerance}/{token}".encode()).hexdigest()[:16]


def sealed(exercise, name, value, tolerance):
    """``[phase, digest]`` of a value: the phase puts it in the middle of its step, so that the tolerance is the same on
    both sides.
    """
    phase = 0.0 if isinstance(value, str) or abs(value) < ZERO else round(step(value, tolerance) % 1, 4)
    return [phase, digest(exercise, name, value, tolerance, phase)]


def flat(name, value):
    """``{name of a single value: number or text}``; a dictionary or sequence becomes one entry for each member.

    Example:
        >>> flat("ratio", {"a": 1, "b": 2.5})
        {'ratio[a]': 1, 'ratio[b]': 2.5}
    """
    if isinstance(value, dict):
        return {k: v for key, item in value.items() for k, v in flat(f"{name}[{key}]", item).items()}
    if isinstance(value, (list, tuple)):
        return flat(name, dict(enumerate(value)))
    if isinstance(value, (str, int)):
        return {name: value}
    try:
        value = float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a number, got {value!r}") from None
    if not math.isfinite(value):
        raise ValueError(f"{name} must be finite, got {value!r}")
    return {name: value}


@cache
def exercises():
    """The stored exercises by id: {quantity: {unit, size, tolerance, fine, coarse, slips}}."""
    return json.loads((Path(__file__).parent / "data" / "answers.json").read_text(encoding="utf-8"))


def use(exercise, packed):
    """Take the digests of an exercise from a notebook with numbers of its own: JSON, compressed, in base 64; or the units alone."""
    exercises()[exercise] = json.loads(zlib.decompress(base64.b64decode(packed)))


def _known(name, names, what):
    if name not in names:
        near = difflib.get_close_matches(name, names, n=2, cutoff=0.5) or list(names)
        raise ValueError(f"no {what} {name!r}; there is {', '.join(near)}")


def _wanted(entry):
    size = entry["size"]
    if entry["unit"] == "text":
        return "expected: a text"
    of = f"expected: {entry['unit']}"
    return of if size is None else f"{of}, between {number(10.0**size)} and {number(10.0 ** (size + 1))} in size"


def verdict(exercise, name, value, entry):
    """The `Verdict` on one value of one stored entry."""

    if "fine" not in entry:
        return Verdict(name, "open", f"not checked here; expected: {entry['unit']}")

    def same(seal, v, tolerance=entry["tolerance"]):
        return digest(exercise, name, v, tolerance, seal[0]) == seal[1]

    fine, coarse = entry["fine"], entry["coarse"]
    if isinstance(value, str) != (entry["unit"] == "text"):
        return Verdict(name, "open", f"not yet; {_wanted(entry)}")
    if same(fine, value, FINE):
        return Verdict(name, "right", MARKS["right"])
    for tolerance, *seal, hint in entry["slips"]:
        if same(seal, value, tolerance):
            return Verdict(name, "slip", f"not yet: {hint}")
    if not isinstance(value, str) and same(coarse, value):
        return Verdict(name, "rounded", MARKS["rounded"])
    if not isinstance(value, str) and entry["size"] is not None:
        if same(coarse, -value):
            return Verdict(name, "sign", "not yet: the size is right, the sign is not")
        for units, factor, what in SCALES:
            if re.match(units, entry["unit"]) and (same(coarse, value * factor) or same(coarse, value / factor)):
                return Verdict(name, "scale", f"not yet: off by a factor of {what}; expected: {entry['unit']}")
    return Verdict(name, "open", f"not yet; {_wanted(entry)}")


def answer(exercise, **values):
    """Check values of an exercise: right; a known slip, with its hint; or what is expected, by unit and size.

    asked quantities by name (numbers, texts, or dictionaries of them).

    Args:
        exercise: the exercise's id.

    Returns:
        `Verdicts`.

    Raises:
        ValueError: for an unknown exercise or quantity and for values that are no finite numbers.

    Example:
        >>> answer("3-04", serial_seconds=21, parallel_seconds=0.25, serial_gib_seconds=50)
        serial_seconds: ✓ right
        parallel_seconds: not yet: off by a factor of 60; expected: s
        serial_gib_seconds: not yet; expected: GiB*s, between 10 and 100 in size
    """
    _known(exercise, exercises(), "exercise")
    known = exercises()[exercise]
    if not values:
        raise ValueError(f"values: give at least one of {', '.join(dict.fromkeys(n.partition('[')[0] for n in known))}")
    single = {k: v for name, value in values.items() for k, v in flat(name, value).items()}
    for name in single:
        _known(name, known, "quantity")
    return Verdicts(tuple(verdict(exercise, name, value, known[name]) for name, value in single.items()))


def check(exercise, **values):
    """The same as a test: every value must be right, or right and rounded.

    Args:
        exercise: the exercise's id.

    Raises:
        AssertionError: with what `answer` says of the values that are not.
        ValueError: as `answer`.

    Example:
        >>> check("3-04", serial_seconds=21)
        >>> check("3-04", serial_seconds=22)
        Traceback (most recent call last):
        AssertionError: serial_seconds: not yet; expected: s, between 10 and 100 in size
    """
    wrong = [f"{v.name}: {v.text}" for v in answer(exercise, **values).all if v.kind not in MARKS]
    if wrong:
        raise AssertionError("; ".join(wrong))

"""What an explanation says, read from its text alone: an evaluator that knows numbers with units, + − · / ^ and five functions."""

import math
import re

SCALE = {"": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18, "Z": 21, "Y": 24, "m": -3, "µ": -6, "n": -9}
UNIT = r"(?P<prefix>[kMGTPEZY]?)(?:B|FLOP)(?:/s|/B)?|(?P<small>[mµn]?)s|1/s"
DIGITS = r"\$?(?P<digits>(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?)(?: × 10(?P<power>[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+))?"
QUANTITY = re.compile(rf"{DIGITS}(?: (?:{UNIT})(?!\w))?")
NAME = re.compile(r"[^\W\d][\w.]*[₀-₉]*")
LINE = re.compile(r"(?P<indent> *)(?P<name>[^\W\d][\w.]*[₀-₉]*) = (?P<rest>.*?)(?:   \((?P<remark>.*)\))?")
RAISED = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
FUNCTIONS = {"max": max, "min": min, "floor": math.floor, "ceil": math.ceil, "mod": lambda a, b: a % b}


def quantity(text):
    """(number before the prefix, its scale) of a text such as "16.38 GB"."""
    found = QUANTITY.fullmatch(text.lstrip("−"))
    assert found, text
    power = int((found["power"] or "").translate(RAISED) or 0) + SCALE[found["prefix"] or found["small"] or ""]
    return float(found["digits"].replace(",", "")) * (-1 if text[0] == "−" else 1), 10.0**power


def read(text):
    """{name: (depth, formula, the same in numbers, value, remark)}; the first name is the result."""
    lines = {}
    for line in text.splitlines():
        found = LINE.fullmatch(line)
        assert found and found["name"] not in lines, line
        formula, numbers, value = ["", "", "", *found["rest"].split(" = ")][-3:]
        lines[found["name"]] = (len(found["indent"]) // 2, formula or numbers, numbers, value, found["remark"] or "")
    return lines


def evaluate(formula, value_of):
    """A formula's number, names by the function given."""
    code, at = [], 0
    while at < len(formula):
        if found := QUANTITY.match(formula, at):
            number, scale = quantity(found[0])
            code.append(repr(number * scale))
        elif found := NAME.match(formula, at):
            code.append(found[0] if found[0] in FUNCTIONS else repr(value_of(found[0])))
        else:
            code.append({"·": "*", "−": "-", "^": "**"}.get(formula[at], formula[at]))
        at = found.end() if found else at + 1
    return eval("".join(code), {"__builtins__": {}}, FUNCTIONS)


def value(lines, name, seen=None):
    """The number of a name, from the leaves on; those worked out in steps count as leaves."""
    seen = {} if seen is None else seen
    if name not in seen:
        _, formula, _, printed, _ = lines[name]
        number, scale = quantity(printed)
        seen[name] = evaluate(formula, lambda part: value(lines, part, seen)) if formula else number * scale
    return seen[name]


def digits_agree(computed, printed):
    """Whether a number reads as it is printed: to four digits, or whole in full."""
    number, scale = quantity(printed)
    return float(f"{computed / scale:.3e}") == number or math.isclose(computed / scale, number, rel_tol=1e-8, abs_tol=1e-12)

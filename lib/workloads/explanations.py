"""Every number explains itself: `explain` runs a formula and writes down how its result came about, down to the last input.

The formulas themselves are recorded as they run. A number that enters, by itself or as a field of a shape, is a leaf: a row of a fact
table, an input of the reader's, or a convention (what is left out takes its default). Arithmetic on it is kept beside its value, a call of
a formula is a part of its own, and names inside the library name what they stand for. What stands at a default of 0 or 1 in a shape
changes nothing and is left out.
"""

from __future__ import annotations

import dis
import inspect
import math
import operator
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from fractions import Fraction
from functools import cache, partial, partialmethod
from numbers import Real
from types import SimpleNamespace
from typing import Any, NamedTuple

from .checks import RECORDING, plain
from .facts.formats import BYTES, Formats
from .facts.tables import base_value, table
from .numeric import Number, total
from .units import quantity

# Units multiply and divide as these numbers do: a prime for each
SIZES = dict(zip(("", "B", "s", "FLOP", "$", "B/s", "FLOP/s", "FLOP/B", "1/s"), map(Fraction, "1 2 3 5 7 2/3 5/3 5/2 1/3".split())))
_ALIASES = "Bytes BytesPerToken BytesPerSecond FlopCount FlopsPerSecond FlopsPerByte Seconds PerSecond Dollars"
UNITS = dict(zip(_ALIASES.split(), "B B B/s FLOP FLOP/s FLOP/B s 1/s $".split()))
TABLES = dict(Model="models", Accelerator="accelerators")
# Fields that hold a quantity of a table under another name
FIELDS = dict(memory=["memory_bytes"], reported=["reported_bytes"], peak=["peaks"], fast=["links"], pcie=["links"], network=["links"])
FIELDS |= dict(head_dim=["head_dim", "value_dim"], layers=["stack"], dense_layers=["stack"])
# Plain numbers; most names and numbers of a line; most operations of a call that are shown one by one
NUMBERS, LONG, MANY = (int, float, Fraction), 8, 2000
BINDS, CLOSE = {"+": 1, "sum": 1, "−": 1, "·": 2, "/": 2}, 4
IDLE = {"+": 0, "−": 0, "·": 1, "/": 1, "^": 1}  # what changes nothing behind an operator
KEPT = dict(add="+", sub="−", mul="·", truediv="/", floordiv="//", mod="mod", pow="^")
BARE = dict(float=float, int=int, trunc=int, index=operator.index, bool=bool, abs=abs, repr=repr, format=format, round=round)
BARE |= {name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")}
_unit_of = cache(lambda annotation: next((UNITS[word] for word in re.findall(r"\w+", str(annotation)) if word in UNITS), ""))
_units = cache(lambda kind: {field.name: _unit_of(field.type) for field in fields(kind)})
_held = lambda shape: vars(shape) if hasattr(shape, "__dict__") else {f.name: getattr(shape, f.name) for f in fields(shape)}
_bare = lambda value: value.value if isinstance(value, _Traced) else value
JOINED = {"max": lambda *values: max(values), "min": lambda *values: min(values), "sum": lambda *values: total(values)}


# ------------------------------------------------------------------------------------------------------ numbers that remember
def _operated(self, op, apply, order, other):
    return _made(op, apply, (self, other)[::order], sys._getframe(1)) if isinstance(other, Real) else NotImplemented


@Real.register
class _Traced(SimpleNamespace):
    """In the place of a plain number, with how it came about: an operation on parts, a call, or a leaf. Compared by value."""

    vars().update({f"__{name}__": partialmethod(_operated, op, getattr(operator, name), 1) for name, op in KEPT.items()})
    vars().update({f"__r{name}__": partialmethod(_operated, op, getattr(operator, name), -1) for name, op in KEPT.items()})
    vars().update({f"__{name}__": lambda *parts, apply=apply: apply(*map(_bare, parts)) for name, apply in BARE.items()})
    # of its own: nothing that is kept for plain numbers is met
    __hash__ = lambda self: id(self)  # pyrefly: ignore[bad-assignment]
    __deepcopy__ = lambda self, memo: self
    __neg__ = lambda self: 0 - self
    __floor__ = lambda self: _made("floor", math.floor, (self,), sys._getframe(1))
    __ceil__ = lambda self: _made("ceil", math.ceil, (self,), sys._getframe(1))
    joined = lambda self, op, values: _made(op, JOINED[op], values, sys._getframe(2))


def _made(op, apply, parts, frame):
    """The result of an operation: traced while a recording is on, and not one with a plain 0 or 1 that changes nothing."""
    recording, value, first, last = RECORDING.get(), apply(*map(_bare, parts)), parts[0], parts[-1]
    if recording is None or type(value) not in NUMBERS:
        return value
    if len(parts) == 1 and (op in JOINED or type(_bare(first)) is int or first.op == "floor"):
        return first
    plain = [part for part in parts if type(part) in NUMBERS and op in IDLE]
    if plain and plain[0] == IDLE[op] and (plain[0] is last or op in "+·"):
        return first if plain[0] is last else last
    if 0 in plain and value == 0:
        return 0
    parts = tuple(recording.part(part, frame) for part in parts)
    if op == "//":
        op, parts = "floor", (recording.traced("/", parts, operator.truediv(*map(_bare, parts))),)
    return recording.traced(op, parts, value)


# ---------------------------------------------------------------------------------------------------------------- recording
@cache
def _in_a_room(module):
    """Whether a module stands in a folder of the library, or of one built on it."""
    return re.match(r"workloads\w*\.\w+\.", module) is not None


@cache
def _written(code):
    """Numbers that the text of a function holds; small whole ones stand in its instructions from Python 3.14 on."""
    small = [step.argval for step in dis.get_instructions(code) if step.opname == "LOAD_SMALL_INT"]
    return small + [v for v in code.co_consts if type(v) in NUMBERS]


class _Recording:
    """While it is on: every number once, and how deep in calls of formulas it stands (below 1: the reader's own numbers)."""

    def __init__(self):
        self.nodes, self.depth = {}, -1

    def traced(self, op: str, parts: tuple, value: Any, unit: str = "", name: str = "", note: str = "") -> _Traced:
        key = (op, name, *map(id, parts), *((type(value), value) if op in ("const", "leaf", "steps") else ()))
        if key not in self.nodes:
            units = [part.unit for part in parts] or [SIZES[""]]
            size = SIZES[unit] if unit else units[0] * units[-1] if op == "·" else units[0] / units[-1] if op == "/" else max(units)
            self.nodes[key] = _Traced(op=op, parts=parts, value=value, unit=size, name=name, note=note)
        return self.nodes[key]

    def part(self, value: Any, frame: Any) -> _Traced:
        """What stands for a part. A plain number that the formula's text does not hold has a name there."""
        if isinstance(value, _Traced):
            return value
        if (
            value in _written(frame.f_code)
            or value in [v for v in frame.f_globals.values() if type(v) in NUMBERS]
            or (type(value) is int and abs(value) <= LONG)
        ):
            return self.traced("const", (), value)
        name = next((name for name, v in frame.f_locals.items() if v is value), "number")
        return self.traced("leaf", (), value, name=name, note=f"worked out in {frame.f_code.co_name.strip('_<>')}")

    def naming(self, frame: Any, event: str, result: Any) -> None:
        """For Python to call: at a return within the library or a folder built on it, names of its text name what has none yet."""
        if event != "return" or not _in_a_room(frame.f_globals.get("__name__", "")):
            return
        own, whose = frame.f_code.co_name.strip("_"), str(getattr(frame.f_locals.get("self"), "name", ""))  # a matrix says which one it is
        own = f"{whose}.{own}".replace(" ", "_") if re.fullmatch("[a-z ]+", whose) else own
        parts = [(f"{own}.{part}", value) for part, value in _held(result).items()] if is_dataclass(result) else []
        for name, value in (*frame.f_locals.items(), *parts, (own, result)) if not re.match("<|__", frame.f_code.co_name) else ():
            if isinstance(value, _Traced) and not value.name and value.op != "const":
                value.name = name.strip("_")

    def _entered(self, note, value, path, unit, known):
        """A leaf for a number that enters, with where it comes from: the note, if nothing better is known."""
        owner = [name for name in path[:-1] if name not in ("stack", "mixer", "ffn")][-1:]
        about = known.get((path[-1], value)) or known.get(path[-1], note)
        idle = isinstance(value, _Traced) or (value in (0, 1) and about.startswith("default") and owner)
        return value if idle else self.traced("leaf", (), value, unit, ".".join((*owner, path[-1].replace("stack", "layers"))), about)

    def _returned(self, inputs, note, long, value, path, unit, known):
        """A part for a number that a call returns: from its inputs in one step where its arithmetic is lost or long."""
        name, traced = ".".join(path).replace("<lambda>", "result"), isinstance(value, _Traced)
        if (path[-1], value) in known and not traced:
            return self._entered("", value, path, unit, known)
        if traced and not long:
            return value if value.op in ("leaf", "call", "steps") else self.traced("call", (value,), value.value, unit, name, note)
        lost = long or traced or (inputs and (value not in (0, 1) or self.depth < 0) and not known)
        return self.traced("steps", inputs, _bare(value), unit, name, note) if lost else value

    def call(self, function: Callable, run: Callable, values: tuple, named: dict) -> Any:
        """A call: numbers become leaves where they enter, what it returns becomes a part of its own."""
        bound, name = inspect.signature(function).bind(*values, **named), function.__name__
        given, before, found, types = {*bound.arguments}, len(self.nodes), [], getattr(function, "__annotations__", {})
        bound.apply_defaults()
        for argument, value in bound.arguments.items():
            if type(value) not in NUMBERS or self.depth < 1 or (argument not in given and value not in (0, 1)):
                enter = partial(self._entered, "given" if argument in given else f"default of {name}")
                bound.arguments[argument] = _mapped(plain(value), enter, (argument,), _unit_of(types.get(argument)))
        self.depth += 1
        try:
            result = run(bound.args, bound.kwargs)
        except Exception:  # an error that has to be, or plain numbers will do what traced ones do not
            token = RECORDING.set(None)
            result = run(*_mapped((bound.args, bound.kwargs), lambda value, *_: _bare(value), ()))
            RECORDING.reset(token)
        self.depth -= 1
        _mapped(tuple(bound.arguments.values()), lambda value, *_: found.append(value), ())
        inputs = tuple(dict.fromkeys(value for value in found if isinstance(value, _Traced)))
        note = " ".join((inspect.getdoc(function) or "").partition("\n\n")[0].split())
        back = partial(self._returned, inputs, note, self.depth >= 0 and len(self.nodes) - before > MANY)
        return _mapped(result, back, (name,), _unit_of(types.get("return")))


def _mapped(value: Any, change, path, unit="", known=None):
    """A value with each number in it changed: by its path, its unit, and what is known of a (field, number)."""
    if isinstance(value, _Traced) or type(value) in NUMBERS:
        return change(value, path, unit, known or {})
    if isinstance(value, Mapping):
        # in a shape they are known by the field
        return {k: _mapped(v, change, path if known else (re.sub(r"\W+", "_", str(k)),), unit, known) for k, v in value.items()}
    if isinstance(value, (list, tuple)) and len(value) <= LONG**2:
        inside = [_mapped(inner, change, path, unit, known) for inner in value]
        return getattr(type(value), "_make", type(value))(inside)
    if not is_dataclass(value) or isinstance(value, type):
        return value
    made, units, known = object.__new__(type(value)), _units(type(value)), _known(value, known or {})
    for name, inner in _held(value).items():
        inner = BYTES.get(inner, inner) if isinstance(value, Formats) else inner
        object.__setattr__(made, name, _mapped(inner, change, (*path, name), units[name], known) if name in units else inner)
    return made


def _held(shape):
    """{name: value} of a shape, one with slots too."""
    return vars(shape) if hasattr(shape, "__dict__") else {name: getattr(shape, name) for name in shape.__slots__}


def _known(shape, outer):
    """{(field, number): where it comes from}: rows of a table that knows the shape, names of formats, defaults of the shape."""
    kind, found = type(shape).__name__, {**outer}
    found |= {(f.name, f.default): f"default of {kind}" for f in fields(shape) if type(f.default) in NUMBERS}
    if isinstance(shape, Formats):
        found |= {(name, BYTES.get(kept, kept)): f"{kept}: bytes of a value" for name, kept in vars(shape).items()}
    for row in table(TABLES[kind]) if kind in TABLES else ():
        if row["item"] == shape.name:
            quantity, value = row["quantity"], base_value(row) if "unit" in row else row["value"]
            source = ", ".join(row[column] for column in ("quantity", "source", "document", "place", "seen") if column in row)
            found |= {(field, value): f"{shape.name}: {source}" for field in FIELDS.get(quantity, [quantity])}
            found |= {"stack": f"{shape.name}: layers less dense_layers"} if quantity == "dense_layers" else {}
    return found


# ------------------------------------------------------------------------------------------------------------------ writing
class _Explanation(NamedTuple):
    """How a number came about: a line for it and one for each of its parts, as deep as they go.

    Attributes:
        value: the number.
        lines: of each its depth, name, formula in names, formula in numbers, value and remark, all text but the depth.

    Example:
        >>> from workloads.times.roofline import ridge
        >>> explain(ridge, 990e12, bandwidth=3.35e12).text(levels=1).partition("   ")[0]
        'ridge = peak / bandwidth = 990 TFLOP/s / 3.35 TB/s = 295.5 FLOP/B'
    """

    value: Number
    lines: tuple[tuple[int, str, str, str, str, str], ...]

    def text(self, levels: int | None = None) -> str:
        """The lines as text, parts indented below what they are parts of.

        Args:
            levels: how deep, 1 for the result alone; all of them where it is left out.
        """
        shown = [(d, " = ".join(filter(None, parts)), remark) for d, *parts, remark in self.lines if levels is None or d < levels]
        return "\n".join("  " * depth + line + (f"   ({remark})" if remark else "") for depth, line, remark in shown)

    __str__ = lambda self: self.text()


def _value(node):
    """A number as text: a leaf's in full (to nine digits), any other's to four, without a unit to six."""
    unit = next((unit for unit, size in SIZES.items() if size == node.unit), "")
    shown = quantity(node.value, unit, 9 if node.op in ("leaf", "const", "steps") else 4 if unit else 6)
    return re.sub(r"(\.\d*?)0+(?!\d)", r"\1", shown).replace(". ", " ").removesuffix(".")


class _Writer(SimpleNamespace):
    """Writes a line for a number and for each of its parts, once, under names that no two share."""

    def label(self, node: _Traced) -> str:
        count = self.labels.setdefault(node.name, {}).setdefault(node, len(self.labels[node.name]) + 1)
        return _value(node) if node.op == "const" else node.name + "".join(chr(0x2080 + int(d)) for d in str(count) if count > 1)

    def write(self, node: _Traced, depth: int = 0) -> None:
        """The line of a number, and below it those of its parts."""
        root = node.parts[0] if node.op == "call" else node
        if len(_named(root)) > LONG:
            for part in _terms(root):
                part.name = part.name or "part" * (part.op != "const")
        parts = [part for part in dict.fromkeys(_named(root)) if part.op != "const"]
        formulas = [self.formula(root, show) for show in (self.label, _value)] if root.op not in ("leaf", "steps") else ("", "")
        remark = "" if node.note in self.done and parts else node.note
        remark += f" No single formula: from {', '.join(map(self.label, parts))}." * (root.op == "steps")
        if root.op in ("max", "min"):
            ranked = sorted(root.parts, key=_bare, reverse=root.op == "max")
            decides = f"{self.label(ranked[0])} decides: " * bool(ranked[0].name) + f" {'><'[root.op == 'min']} ".join(map(_value, ranked))
            remark = f"{decides}. {remark}"
        self.done |= {node, node.note}
        self.lines.append((depth, self.label(node), *formulas, _value(node), remark.strip()))
        for part in parts:
            if part not in self.done:
                self.write(part, depth + 1)

    def formula(self, node: _Traced, show: Callable, binds: int = 0) -> str:
        """A number's formula, its parts as they are shown; in brackets where what stands around binds closer."""
        own, inner = BINDS.get(node.op, CLOSE), lambda part, binds: self.formula(part, show, binds)
        if node.op == "const" or (binds and node.name):
            text = show(node)
            own = 0 if text[0] == "−" else 2 if "×" in text else 3 if " " in text else CLOSE
        elif node.op in ("+", "sum"):
            terms = Counter(_terms(node)).items()
            text = " + ".join(f"{count} · {inner(term, 2)}" if count > 1 else inner(term, 1) for term, count in terms)
        elif node.op in BINDS:
            text = f" {node.op} ".join((inner(node.parts[0], own), inner(node.parts[1], own + (node.op in "−/"))))
            text = text.removeprefix("0 ") if node.op == "−" and node.parts[0].op == "const" else text
        elif node.op == "^":
            text = "^".join(inner(part, CLOSE) for part in node.parts)
        else:
            text = f"{node.op}({', '.join(inner(part, 1) for part in node.parts)})"
        return f"({text})" if own < binds else text


def _terms(node):
    """Terms of a sum, sums among them taken apart."""
    return [term for part in node.parts for term in (_terms(part) if part.op in ("+", "sum") and not part.name else [part])]


def _named(node):
    """What a line names or gives as a number, in order."""
    return [inner for part in node.parts for inner in ([part] if part.name or part.op == "const" else _named(part))]


def explain(function: Callable[..., Any], *values: Any, **named: Any) -> _Explanation:
    """Where a number comes from: the formula in names, the numbers put in, the value, and each part in the same way.

    Args:
        function: of the library; or one of the reader's own that calls it, such as `lambda model: decode(model, 4096).bytes`.
        *values: what it is called with.
        **named: what it is called with, by name.

    Returns:
        As text when printed. What loops or needs more than 2,000 operations is one step from its inputs.

    Raises:
        ValueError: for a function that returns no number, or one that came without any input.

    Example:
        >>> from workloads.counts.memory import kv_bytes
        >>> from workloads.facts.models import model
        >>> print(explain(kv_bytes, model("Qwen3-8B"), tokens=4096).text(levels=1))
        kv_bytes = batch · tokens · kv_bytes_per_token = 1 · 4,096 · 147.5 kB = 604 MB   (Bytes of KV cache of sequences of equal length.)
    """
    recording, before, writer = _Recording(), sys.getprofile(), _Writer(lines=[], labels={}, done=set())
    token = RECORDING.set(recording)
    sys.setprofile(recording.naming)
    try:
        result = recording.call(function, lambda values, named: function(*values, **named), values, named)
    finally:
        sys.setprofile(before)
        RECORDING.reset(token)
    if not isinstance(result, _Traced):
        raise ValueError(f"result of {function.__name__} must be one number that comes from an input, got {result!r}")
    result.name = result.name if function.__name__ == "<lambda>" else function.__name__
    writer.write(result)
    return _Explanation(result.value, tuple(writer.lines))

"""What a calculator is: inputs as data, a function that turns their values into a result, and the result as HTML.

All of them are in `workloads_book.calculators`. A result is plain JSON: "text" (a sentence or two), "values" (numbers by name),
"verdicts" ((True, False or None for good, bad or neither; text) pairs), "tables" ({"head", "rows"} of texts; a head that ends in ">" is
right-aligned), "figures" ({"svg", "caption"}), for some "steps" (HTML of a run to step through, see `frames`).
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import wraps
from html import escape

from workloads.checks import between, finite, one_of, whole
from workloads.units import number


@dataclass(frozen=True)
class Input:
    """One input of a calculator.

    Attributes:
        name: of the argument.
        kind: "number", "whole" (a number), "choice", "combo" (a choice to type), "switch", "text" or "file" (a longer text).
        low: both allowed.
        high: both allowed.
        optional: a number may be left empty (None).
        stops: values of a slider, in order.
        group: heading above it, "" for the inputs that come first.
        keep: of a file: what is kept of a text, {"text", "short" (for an address), "note"}.
    """

    name: str
    label: str
    kind: str
    default: object
    unit: str = ""
    low: float | None = None
    high: float | None = None
    choices: tuple = ()
    optional: bool = False
    stops: tuple = ()
    group: str = ""
    keep: Callable | None = None

    def read(self, value):
        """The value that a text (or a value) stands for.

        Raises:
            ValueError: for one of the wrong kind or out of range.
        """
        if self.kind == "choice":
            return one_of(value, self.name, self.choices)
        if self.kind == "combo":
            return self._typed(str(value).strip())
        if self.kind == "switch":
            return one_of({"true": True, "false": False}.get(str(value).lower()), self.name, (False, True))
        if self.kind in ("text", "file"):
            between(len(str(value)), 0, 2000 if self.kind == "text" else 200_000, self.name, "characters")
            return str(value)
        if self.optional and value in ("", None):
            return None
        value = finite(self._written(value), self.name, self.unit)
        value = int(whole(value, self.name, self.unit)) if self.kind == "whole" else value
        low, high = (value if end is None else end for end in (self.low, self.high))
        if not low <= value <= high:
            raise ValueError(f"{self.argument} must be {self.range}, got {number_text(value)}")
        return value

    def _typed(self, text):
        """The choice that a text names: its name in any case, or the only one that holds the text."""
        same = [c for c in self.choices if c.lower() == text.lower()]
        near = same or [c for c in self.choices if text and text.lower() in c.lower()]
        if len(near) == 1:
            return near[0]
        listed = ", ".join(near[:6] or self.choices[:6]) + (", …" if len(near or self.choices) > 6 else "")
        rule = "named in full" if near else "one of those listed"
        raise ValueError(f"{self.name} must be {rule}: {listed}; got {text!r}")

    @property
    def argument(self):
        """Name and unit, as errors begin."""
        return self.name + (f" ({self.unit})" if self.unit else "")

    @property
    def called(self):
        """Label, with the unit where the label does not say it."""
        told = not self.unit or re.search(rf"(?<!\w){re.escape(self.unit)}(?!\w)", self.label)
        return self.label if told else f"{self.label} ({self.unit})"

    @property
    def range(self):
        """The values allowed, as people write them: "between 0.1 and 10"."""
        if self.high is None:
            return f"at least {number_text(self.low)}"
        return f"between {number_text(self.low)} and {number_text(self.high)}"

    def _written(self, value):
        """The number that a text writes; a number as it is."""
        if isinstance(value, str) and (found := number_of(value)) is not None:
            return found
        if isinstance(value, str):
            raise ValueError(f"{self.argument} must be a number, such as 4096, 4,096, 8k for 8,000 or 1e6, got {value!r}")
        return value


def text_of(value):
    """A value as text that `Input.read` and Python read back: nothing for None, short floats.

    Example:
        >>> text_of(2e10), text_of(1.0), text_of(True), text_of(None)
        ('2e+10', '1', 'true', '')
    """
    if value is None or isinstance(value, bool):
        return {None: "", True: "true", False: "false"}[value]
    short = f"{value:g}" if isinstance(value, float) else str(value)
    return short if not isinstance(value, float) or float(short) == value else repr(value)


LARGE = {"k": 3, "K": 3, "M": 6, "G": 9, "T": 12}
_GROUPED = re.compile(r"([+-]?)(\d{1,3}(?:,\d{3})+|\d+)(\.\d*)?([kKMGT]?)")


def number_of(text):
    """The number that a text writes, None for any other text. Commas may part thousands; k, M, G and T stand for 10^3
    to 10^12.

    Example:
        >>> [number_of(text) for text in ("4,096", "8k", "1.5k", "2M", "1e6", "0.25", "4,09", "8 tokens")]
        [4096, 8000, 1500.0, 2000000, 1000000.0, 0.25, None, None]
    """
    if match := _GROUPED.fullmatch(text := text.strip()):
        sign, digits, rest, letter = match.groups()
        digits = sign + digits.replace(",", "")
        text = f"{digits}{rest}e{LARGE.get(letter, 0)}" if rest else digits + "0" * LARGE.get(letter, 0)
    for kind in (int, float):
        try:
            return kind(text) if math.isfinite(float(text)) else float(text)
        except ValueError:
            pass
    return None


def number_text(value):
    """A number as people write it: separators, whole millions and billions by name, powers of ten for what is very
    large or small.

    Example:
        >>> [number_text(v) for v in (1048576, 1e9, 25_000_000, 0.001, 0.25, 1e-9, 1e30)]
        ['1,048,576', '1 billion', '25 million', '0.001', '0.25', '10⁻⁹', '10³⁰']
    """
    size = abs(value)
    for least, name in ((10**12, "trillion"), (10**9, "billion"), (10**6, "million")):
        if least <= size < 1000 * least and value % (least // 1000) == 0:
            return f"{value / least:g} {name}".replace("-", "−")
    if not size or 1e-6 <= size < 1e13:
        return f"{Decimal(repr(value)):,f}".removesuffix(".0").replace("-", "−")
    mantissa, _, power = number(float(value)).partition(" × ")
    return power if mantissa == "1.000" else f"{mantissa.rstrip('0').rstrip('.')} × {power}"


def _other_form(text):
    """Is a number written with separators or a letter?"""
    return bool(re.search(r"[,kKMGT]", text))


@dataclass(frozen=True)
class Calculator:
    """A calculator: name; title; question, one line that says what it answers; inputs; function; presets, {label: {name
    of input: value}}; exact: whether its values come from + - x / and square roots alone; more: figures and tables that take
    longer, (figures, tables) of the same inputs, shown below the result.
    """

    name: str
    title: str
    question: str
    inputs: tuple
    function: Callable
    presets: dict = field(default_factory=dict)
    exact: bool = True
    more: Callable | None = None

    def read(self, given):
        """All inputs: those given, as texts or values, and the defaults of the others.

        Raises:
            ValueError: for a name that is no input.
        """
        names = tuple(i.name for i in self.inputs)
        for name in given:
            one_of(name, f"input of {self.name}", names)
        return {i.name: i.read(given[i.name]) if i.name in given else i.default for i in self.inputs}

    def __call__(self, **given):
        """The result for these inputs."""
        return self.function(**self.read(given))

    def labelled(self, message):
        """An error in the words of the form: a name of an input with which it begins, and names that are no words,
        become labels.
        """
        for i in sorted(self.inputs, key=lambda i: -len(i.name)):
            start = re.match(rf"{i.name}(?!\w)(?: \({re.escape(i.unit)}\))?" if i.unit else rf"{i.name}(?!\w)", message)
            if start:
                return self._inside(i.called + message[start.end() :])
        return self._inside(message)

    def _inside(self, message):
        for i in self.inputs:
            message = re.sub(rf"(?<!\w){i.name}(?!\w)", f"“{i.label}”", message) if "_" in i.name else message
        return message

    def taken(self, given):
        """What was read where a number is written in another way than Python's: {name of input: text of the number}."""
        read = self.read(given)
        known = {i.name for i in self.inputs if i.kind in ("number", "whole")}
        return {n: text_of(read[n]) for n, text in given.items() if n in known and isinstance(text, str) and _other_form(text)}

    def field_of(self, message):
        """Name of the input that an error speaks of: the one it begins with, or else the first it mentions; None if
        there is none.
        """
        found = [(m.start(), i.name) for i in self.inputs if (m := re.search(rf"(?<!\w){i.name}(?!\w)", message))]
        return min(found)[1] if found else None

    def code(self, given):
        """A Python program that gives the same result, as text."""
        lines = [
            f"    {i.name}={text_of(value) if type(value) is float else repr(value)},{f'  # {i.unit}' if i.unit else ''}"
            for i, value in zip(self.inputs, self.read(given).values())
        ]
        call = "\n".join([f"result = calculators.{self.function.__name__}(", *lines, ")"])
        return f'from workloads_book import calculators\n\n{call}\nprint(result["text"])\n'

    def answer(self, given):
        """What a page shows for these inputs: {"html", "text", "values", "code", "taken"}, or {"error", "field"} where
        they are refused.
        """
        try:
            result = self(**given)
        except ValueError as error:
            return {"error": self.labelled(str(error)), "field": self.field_of(str(error))}
        shown = {"html": html(result), "text": result["text"], "values": result["values"], "more": self.more is not None}
        return {**shown, "code": self.code(given), "taken": self.taken(given), "kept": self.kept(given), "named": self.named(given)}

    def named(self, given):
        """Choices that were typed in part, in full: {name of input: choice}."""
        read = self.read(given)
        return {i.name: read[i.name] for i in self.inputs if i.kind == "combo" and given.get(i.name, read[i.name]) != read[i.name]}

    def kept(self, given):
        """What is kept of files: {name of input: see `Input.keep`}."""
        read = self.read(given)
        return {i.name: i.keep(read[i.name]) for i in self.inputs if i.keep and read[i.name].strip()}

    def rest(self, given):
        """HTML of what takes longer; nothing where there is no such thing, or the inputs are refused."""
        more = self.more
        figures, tables = (possible(lambda: more(**self.read(given))) if more else None) or ((), ())
        return html(result("", {}, figures=figures, tables=tables))


def result(text, values, verdicts=(), tables=(), figures=()):
    """A result, as described at the top. Tables: (head, rows) pairs; figures: (svg, caption) pairs."""
    return {
        "text": text,
        "values": values,
        "verdicts": [list(v) for v in verdicts],
        "tables": [{"head": list(head), "rows": [list(map(str, row)) for row in rows]} for head, rows in tables],
        "figures": [{"svg": svg, "caption": caption} for svg, caption in figures],
    }


def html(result):
    """Verdicts, figures and tables of a result as HTML; the text stands by itself.

    Example:
        >>> html(result("Yes.", {}, verdicts=[(False, "a > b")]))
        '<ul class="wl-verdicts"><li class="wl-bad">a &gt; b</li></ul>'
    """
    marks = {True: "wl-good", False: "wl-bad", None: "wl-plain"}
    verdicts = "".join(f'<li class="{marks[good]}">{escape(text)}</li>' for good, text in result["verdicts"])
    parts = [result.get("steps", "")] + ([f'<ul class="wl-verdicts">{verdicts}</ul>'] if verdicts else [])
    parts += [f'<figure class="wl-figure">{f["svg"]}<figcaption>{escape(f["caption"])}</figcaption></figure>' for f in result["figures"]]
    return "".join(parts + [table_html(t["head"], t["rows"]) for t in result["tables"]])


def table_html(head, rows):
    """A table as HTML; a head that ends in ">" is right-aligned."""
    sides = [' class="text-right"' if h.endswith(">") else "" for h in head]
    line = lambda tag, cells: "<tr>" + "".join(f"<{tag}{side}>{escape(c)}</{tag}>" for side, c in zip(sides, cells)) + "</tr>"
    body = "".join(line("td", row).replace("<td", '<th scope="row"', 1).replace("</td>", "</th>", 1) for row in rows)
    top = line("th", [h.removesuffix(">") for h in head]).replace("<th", '<th scope="col"')
    return f'<div class="wl-scroll" tabindex="0"><table class="table"><thead>{top}</thead><tbody>{body}</tbody></table></div>'


def _cells(result):
    """Cells of the tables of a result: pairs of what they say and their text."""
    for table in result["tables"]:
        heads = [head.removesuffix(">") for head in table["head"]]
        for row in table["rows"]:
            yield from ((f"{row[0]}: {head}", text) for head, text in zip(heads[1:], row[1:]))


def _short(value):
    text = number_text(value) if type(value) in (int, float) else text_of(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


CALCULATORS = {}


def compared(name, first, second):
    """What a page shows for two sets of inputs, A and B: {"html"} of their sentences, and of what differs in inputs and tables; or
    {"error"}.

    Args:
        name: of the calculator.
        first: {name of input: text or value}.
        second: the same.
    """
    calculator, both = CALCULATORS[name], (first, second)
    try:
        read, results = [calculator.read(given) for given in both], [calculator(**given) for given in both]
    except ValueError as error:
        return {"error": calculator.labelled(str(error))}
    inputs = [[i.called, *(_short(one[i.name]) for one in read)] for i in calculator.inputs if read[0][i.name] != read[1][i.name]]
    rows = [dict(_cells(result)) for result in results]
    differ = [[what, *(row.get(what, "") for row in rows)] for what in {**rows[0], **rows[1]} if rows[0].get(what) != rows[1].get(what)]
    tables = [(["input", "A>", "B>"], inputs), (["result", "A>", "B>"], differ)]
    sentences = [(None, f"{letter}: {r['text']}") for letter, r in zip("AB", results)]
    return {"html": html(result("", {}, sentences, tables if inputs else ()))}


def calculator(name, title, question, *inputs, presets=None, exact=True, more=None):
    """Decorator: the function becomes a `Calculator` of CALCULATORS; called itself, it reads its arguments and knows
    their defaults.
    """

    def register(function):
        CALCULATORS[name] = made = Calculator(name, title, question, inputs, function, presets or {}, exact, more)
        return wraps(function)(lambda **given: made(**given))

    return register


def group(heading, *inputs):
    """The inputs under one heading."""
    return tuple(replace(i, group=heading) for i in inputs)


def num(name, label, default, unit="", low=0, high=None, stops=(), kind="number", **more):
    """A number as an input."""
    return Input(name, label, kind, default, unit, low, high, stops=tuple(stops), **more)


def count(name, label, default, unit="", low=1, high=None, stops=(), **more):
    """A whole number as an input."""
    return num(name, label, default, unit, low, high, stops, "whole", **more)


def choice(name, label, choices, default=None):
    """A choice as an input, the first one by default."""
    return Input(name, label, "choice", choices[0] if default is None else default, choices=tuple(choices))


def combo(name, label, choices, default=None):
    """A long list of choices as an input to type into."""
    return replace(choice(name, label, choices, default), kind="combo")


def switch(name, label, default):
    """A switch as an input."""
    return Input(name, label, "switch", default)


def doublings(low, high):
    """low, 2 low, 4 low, ... up to high: stops of a slider."""
    return [low * 2**k for k in range((high // low).bit_length())]


def possible(compute):
    """The value, or None where the library refuses it."""
    try:
        return compute()
    except ValueError:
        return None

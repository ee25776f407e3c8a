"""Whether two outputs of a cell say the same: drawings and recorded values by their meaning, all other text as it stands.

The last digits of a computed float belong to a machine: another processor, C library or NumPy may round them the other way. What a
reader sees does not move by that. Two drawings are the same when they have the same elements, attributes and texts and no coordinate
or length differs by more than 0.05 px; two records (JSON that a cell stores) when they differ by nothing but floats, and those by no
more than one part in 10**9. Sentences, tables and results are text, and text is compared letter by letter.

As a plugin of pytest (`-p meaning`, in .pytest.ini) it lets nbval compare that way; `notebooks.py` keeps a stored output where a new
one says the same.
"""

import math
import re
import xml.etree.ElementTree as ET
from dataclasses import dataclass

SVG = "image/svg+xml"
PIXEL = 0.75  # a drawing's unit is a point
NEAR, EQUAL = 0.05 * PIXEL, 1e-9
LENGTHS = {"d", "points", "x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "rx", "ry", "dx", "dy", "width", "height"}
NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?", re.IGNORECASE)
PLACE = re.compile(r"(translate\(|rotate\([^\s)]+ )([^)]*)")  # rotate(angle x y)
DIGEST = re.compile(r"\b[a-z][0-9a-f]{10}\b")  # names that Matplotlib makes from coordinates


@dataclass
class Element:
    """An element or comment of a drawing, at its depth, with the text in it and behind it."""

    tag: str
    attributes: dict
    text: str
    tail: str
    depth: int

    def __str__(self):
        return self.tag.rpartition("}")[2]


def elements(drawing):
    """All elements and comments of a drawing, in order."""
    root = ET.fromstring(drawing, ET.XMLParser(target=ET.TreeBuilder(insert_comments=True)))
    found = []

    def walk(element, depth):
        tag = "comment" if element.tag is ET.Comment else element.tag
        found.append(Element(tag, dict(element.attrib), (element.text or "").strip(), (element.tail or "").strip(), depth))
        for child in element:
            walk(child, depth + 1)

    walk(root, 0)
    return found


def near(one, other):
    """Whether two lists of coordinates or lengths are the same: equal but for numbers within 0.05 px."""
    numbers = [[float(n) for n in NUMBER.findall(text)] for text in (one, other)]
    return NUMBER.sub("#", one) == NUMBER.sub("#", other) and all(abs(a - b) <= NEAR for a, b in zip(*numbers, strict=True))


def parts(transform):
    """A transform in two: what is exact (kinds, angles, scales), and the coordinates in it.

    >>> parts("translate(87.5 231.6) rotate(-90 1 2) scale(0.1)")
    ('translate() rotate(-90 ) scale(0.1)', '87.5 231.6; 1 2')
    """
    return PLACE.sub(r"\1", transform), "; ".join(place for _, place in PLACE.findall(transform))


def same_attribute(name, one, other, names):
    """Whether an attribute says the same in two drawings; names made from coordinates must pair up one to one."""
    if name in LENGTHS:
        return near(one, other)
    if name == "transform":
        exact, places = zip(parts(one), parts(other))
        return exact[0] == exact[1] and near(*places)
    pairs = list(zip(DIGEST.findall(one), DIGEST.findall(other)))
    return DIGEST.sub("#", one) == DIGEST.sub("#", other) and all(
        names.setdefault((0, a), b) == b and names.setdefault((1, b), a) == a for a, b in pairs
    )


def difference(one, other):
    """The first thing in which two SVG texts draw something else, in words; "" where they draw the same.

    >>> line = '<svg><path d="M 0 {} L 9 0"/><text x="1">{}</text></svg>'
    >>> difference(line.format(117.9, "calls"), line.format(118.1, "calls"))
    'd of path: M 0 117.9 L 9 0 / M 0 118.1 L 9 0'
    >>> difference(line.format(118, "calls"), line.format(118, "prefills"))
    'text: calls / prefills'
    """
    try:
        first, second = elements(one), elements(other)
    except ET.ParseError as error:
        return f"no drawing: {error}"
    names = {}
    for a, b in zip(first, second):
        if (a.tag, a.depth, a.attributes.keys()) != (b.tag, b.depth, b.attributes.keys()):
            return f"elements: {a} {[*a.attributes]} / {b} {[*b.attributes]}"
        if (a.text, a.tail) != (b.text, b.tail):
            return f"{a}: {a.text}{a.tail} / {b.text}{b.tail}"
        for name, value in a.attributes.items():
            if not same_attribute(name, value, b.attributes[name], names):
                return f"{name} of {a}: {value} / {b.attributes[name]}"
    return "" if len(first) == len(second) else f"elements: {len(first)} / {len(second)}"


def same_drawing(one, other):
    """Whether two SVG texts draw the same: elements, names of attributes and texts equal, coordinates and lengths within 0.05 px.

    >>> line = '<svg><path d="M 0 {} L 9 0"/><text x="1">calls</text></svg>'
    >>> same_drawing(line.format(117.972081), line.format(117.972082)), same_drawing(line.format(117.9), line.format(118.1))
    (True, False)
    """
    return one == other or not difference(one, other)


def same_record(one, other):
    """Whether two JSON values are the same: equal but for floats that differ by no more than one part in 10**9.

    >>> same_record({"computed": 0.000213755875537}, {"computed": 0.000213755875538}), same_record([1000000001], [1000000000])
    (True, False)
    """
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same_record(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_record, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=EQUAL, abs_tol=0)
    return type(one) is type(other) and one == other


def same(kind, one, other):
    """Whether two outputs of one MIME type say the same."""
    if kind == SVG:
        return same_drawing(one, other)
    return same_record(one, other) if kind.endswith("json") else one == other


def settled(outputs, stored):
    """The outputs of a cell, with the stored one in the place of each that says the same.

    >>> settled([{"data": {"application/json": [0.1 + 0.2]}}], [{"data": {"application/json": [0.3]}}])
    [{'data': {'application/json': [0.3]}}]
    """
    kept, waiting = [], {}
    for output in stored:
        for kind, value in output.get("data", {}).items():
            waiting.setdefault(kind, []).append(value)
    for output in outputs:
        data = dict(output.get("data", {}))
        for kind, value in data.items():
            before = waiting[kind].pop(0) if waiting.get(kind) else None
            if before is not None and same(kind, value, before):
                data[kind] = before
        kept.append(type(output)({**output, "data": data}) if data else output)
    return kept


def compared(cell, test, ref, *skip):
    """nbval's comparison of a cell's outputs, once what says the same as the stored output is the stored output."""
    now = settled(test, ref)
    held = cell.by_letter(now, ref, *skip)
    if not held:
        drawn, before = ([o["data"][SVG] for o in outputs if SVG in o.get("data", {})] for outputs in (now, ref))
        cell.comparison_traceback += [f"In the drawing: {difference(b, d)}" for d, b in zip(drawn, before) if d != b]
    return held


def pytest_configure(config):
    """As a plugin of pytest."""
    if config.getoption("nbval", False) or config.getoption("nbval_lax", False):
        from nbval.plugin import IPyNbCell

        if not hasattr(IPyNbCell, "by_letter"):
            IPyNbCell.by_letter = IPyNbCell.compare_outputs
            setattr(IPyNbCell, "compare_outputs", compared)  # noqa: B010 (another signature than nbval's)

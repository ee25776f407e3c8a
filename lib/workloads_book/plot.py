"""Plots as SVG text, written by the standard library alone, so that a browser's Python draws what the build draws.

Text and axes take the colour of the page around them (`currentColor`), gaps between bars that of its paper. Every series has a second
cue beside its colour: dashes or a marker on a line, a pattern in a bar.
"""

import math
from html import escape
from itertools import pairwise
from typing import NamedTuple

from workloads.checks import finite, one_of, positive
from workloads.units import number

COLOURS = BLUE, ORANGE, GREEN, PINK, GOLD, GREY = "#0b6fb8", "#c8590a", "#0a8f6b", "#b5578f", "#a07800", "#6b7785"
WIDTH = 460  # of the drawing; a page scales it
_CHARACTER = 8.0  # mean width of one at the size of the text
_DASHES = ("", "7 4", "2 3", "10 3 2 3", "4 2", "1 4")
_HATCHES = ("", "M0 8L8 0", "M0 0L8 8", "M4 0V8", "M0 4H8", "M0 4H8M4 0V8")


def tag(name, *children, text=None, **attributes):
    """One SVG element as text: with a text, or with children that are elements; numbers are rounded to a tenth, "_" in
    a name becomes "-".

    Example:
        >>> tag("text", text="a < b", x=1.26, text_anchor="end")
        '<text x="1.3" text-anchor="end">a &lt; b</text>'
    """
    rounded = {k.rstrip("_").replace("_", "-"): f"{v:.1f}".removesuffix(".0") if isinstance(v, float) else v for k, v in attributes.items()}
    opened = f"<{name}" + "".join(f' {k}="{escape(str(v))}"' for k, v in rounded.items())
    return f"{opened}>{''.join(children) if text is None else escape(text)}</{name}>" if children or text is not None else f"{opened}/>"


class Axis(NamedTuple):
    """An axis: label with its unit; logarithmic or not; ends, where they are not to follow from the data."""

    label: str
    log: bool = False
    low: float | None = None
    high: float | None = None


class Line(NamedTuple):
    """A series of points (x, y): its name (empty: not in the legend), drawn as a "line", "steps" or "points", texts
    beside the points.
    """

    name: str
    points: list
    form: str = "line"
    labels: tuple = ()


def ticks(low, high, log=False):
    """Round values between two ends: about five, or the powers of ten (with 2 and 5 between them where there are few).

    Example:
        >>> ticks(0, 47), ticks(3, 2000, log=True)
        ([0, 10, 20, 30, 40], [10, 100, 1000])
    """
    positive(high - low, "high - low")
    if not log:
        step = 10 ** math.floor(math.log10((high - low) / 4))
        step = next(step * m for m in (1, 2, 2.5, 5, 10) if (high - low) / (step * m) <= 5)
        return [round(k * step, 12) for k in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]
    first = math.ceil(math.log10(positive(low, "low")) - 1e-9)
    last = math.floor(math.log10(high) + 1e-9)
    powers = [10**k if k >= 0 else 10.0**k for k in range(first, last + 1)]
    if len(powers) > 2:
        return powers[:: math.ceil(len(powers) / 6)]
    return [v for k in range(first - 1, last + 1) for m in (1, 2, 5) if low <= (v := m * 10.0**k) <= high]


def _tick(value):
    return f"{value:,.6g}".replace("-", "−") if 1e-4 <= abs(value) < 1e6 or value == 0 else number(value, 2)


class _Scale:
    """Maps the values of an axis to positions between two pixels."""

    def __init__(self, axis, values, start, end):
        values = [finite(v, axis.label) for v in values if not axis.log or v > 0]
        low = min(values, default=0) if axis.low is None else axis.low
        high = max(values, default=1) if axis.high is None else axis.high
        if axis.low is None and not axis.log:
            low = min(low, 0)
        if not low < high:
            low, high = (low / 2, low * 2) if axis.log else (low, low + 1)
        self.low, self.high, self.log, self.start, self.end = low, high, axis.log, start, end
        self.ticks = [(self(v), _tick(v)) for v in ticks(low, high, axis.log)]

    def __call__(self, value):
        if self.log:
            share = (math.log10(value) - math.log10(self.low)) / (math.log10(self.high) - math.log10(self.low)) if value > 0 else -1.0
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + min(max(share, -1.0), 2.0) * (self.end - self.start)


def _svg(parts, height, alt):
    return tag("svg", *parts, viewBox=f"0 0 {WIDTH} {math.ceil(height)}", role="img", aria_label=alt)


def _legend(names, swatch, left):
    """Elements of a legend in as many lines as it takes, and its height."""
    x, y, parts = float(left), 12.0, []
    for k, name in enumerate(names):
        wide = 26 + _CHARACTER * len(name)
        if x > left and x + wide > WIDTH:
            x, y = float(left), y + 19
        parts += [swatch(k, x, y), tag("text", text=name, x=x + 22, y=y + 5)]
        x += wide + 12
    return parts, y + 14 if names else 4.0


def _marker(k, x, y):
    """A dot, square, triangle or diamond in the colour of series k."""
    shapes = (
        tag("circle", cx=x, cy=y, r=5),
        tag("rect", x=x - 4.5, y=y - 4.5, width=9, height=9),
        tag("path", d=f"M{x - 5.5:.1f} {y + 4.5:.1f}h11l-5.5 -10z"),
        tag("path", d=f"M{x:.1f} {y - 6:.1f}l6 6l-6 6l-6 -6z"),
    )
    return tag("g", shapes[k % 4], fill=COLOURS[k % 6])


def lines(series, x, y, alt, name="plot", height=270):
    """Lines and points over two axes, as SVG text.

    Args:
        series: up to six `Line`s.
        x: `Axis`es.
        y: `Axis`es.
        alt: what a reader who cannot it must know.
        name: unique on a page. Values beyond the ends of an axis are cut off.

    Raises:
        ValueError: for a value that is not finite.
    """
    series = [line._replace(points=[(a, b) for a, b in line.points if (a > 0 or not x.log) and (b > 0 or not y.log)]) for line in series]
    top = _legend([s.name for s in series if s.name], lambda k, *at: "", 8)[1] + 22
    down = _Scale(y, [p[1] for s in series for p in s.points], top + height, top)
    left = max(34.0, 12 + _CHARACTER * max(len(text) for _, text in down.ticks))
    across = _Scale(x, [p[0] for s in series for p in s.points], left, WIDTH - 14.0)
    parts = [tag("text", text=y.label, x=4, y=top - 9)]
    parts += [
        tag("path", d=f"M{left:.1f} {at:.1f}H{WIDTH - 14}", class_="wl-grid")
        + tag("text", text=text, x=left - 6, y=at + 5, text_anchor="end")
        for at, text in down.ticks
    ]
    parts += [
        tag("path", d=f"M{at:.1f} {top:.1f}V{top + height:.1f}", class_="wl-grid")
        + tag("text", text=text, x=min(at, WIDTH - _CHARACTER * len(text) / 2), y=top + height + 18, text_anchor="middle")
        for at, text in across.ticks
    ]
    parts += [
        tag("path", d=f"M{left:.1f} {top:.1f}V{top + height:.1f}H{WIDTH - 14}", class_="wl-axis"),
        tag("text", text=x.label, x=(left + WIDTH - 14) / 2, y=top + height + 38, text_anchor="middle"),
        tag("clipPath", tag("rect", x=left, y=top - 6, width=WIDTH - 14 - left, height=height + 12), id=f"{name}-inside"),
    ]
    drawn = [[(across(a), down(b)) for a, b in line.points] for line in series]
    curves = [_curve(k, at, one_of(line.form, "form", ("line", "steps", "points"))) for k, (line, at) in enumerate(zip(series, drawn))]
    taken, notes = [place for places in drawn for place in _along(places)], []
    for line, places in zip(series, drawn):
        notes += [_note(text, *place, (left, top, top + height), taken) for text, place in zip(line.labels, places) if text]
    parts += [tag("g", *curves, clip_path=f"url(#{name}-inside)"), *notes]
    parts += _legend([s.name for s in series if s.name], lambda k, a, b: _swatch(series, k, a, b), 8)[0]
    return _svg(parts, top + height + 46, alt)


def _curve(k, places, form):
    if form == "points":
        return "".join(_marker(k, a, b) for a, b in places)
    pen = [f"{'M' if i == 0 else 'L'}{a:.1f} {b:.1f}" for i, (a, b) in enumerate(places)]
    if form == "steps":
        pen[1:] = [f"H{a:.1f}V{b:.1f}" for a, b in places[1:]]
    dashes = {"stroke_dasharray": _DASHES[k % 6]} if _DASHES[k % 6] else {}
    return tag("path", d="".join(pen), fill="none", stroke=COLOURS[k % 6], stroke_width=2.5, **dashes)


def _swatch(series, k, x, y):
    place = [i for i, s in enumerate(series) if s.name][k]
    return _marker(place, x + 9, y) if series[place].form == "points" else _curve(place, [(x, y), (x + 18, y)], "line")


def _along(places, gap=4.0):
    """Points a few pixels apart along the straight pieces between places."""
    found = list(places)
    for (a, b), (c, d) in pairwise(places):
        count = int(math.hypot(c - a, d - b) / gap)
        found += [(a + (c - a) * k / count, b + (d - b) * k / count) for k in range(1, count)]
    return found


def _note(text, x, y, area, taken):
    """A text at that side of a point where it covers the least of what is drawn; the room it takes is added to `taken`."""
    wide, (left, top, bottom) = _CHARACTER * len(text), area
    spots = [(x + side * 9, y + up, side) for up in (-7, 19) for side in (1, -1)] + [(x, y - 12, 0), (x, y + 24, 0)]

    def room(spot):
        start = spot[0] - wide * (1 - spot[2]) / 2
        return start, start + wide

    def cost(spot):
        start, end = room(spot)
        outside = start < left or end > WIDTH or not top + 6 < spot[1] < bottom - 3
        return 1000 * outside + sum(start - 2 < a < end + 2 and spot[1] - 14 < b < spot[1] + 5 for a, b in taken)

    spot = min(spots, key=cost)
    taken += _along([(place, spot[1] - 5) for place in room(spot)])
    return tag("text", text=text, x=spot[0], y=spot[1], text_anchor=("middle", "start", "end")[spot[2]])


class Bar(NamedTuple):
    """A piece of a bar: the series it belongs to (by number), where it starts, how long it is."""

    series: int
    start: float
    length: float


def stacked(lengths):
    """Bars of the lengths given, one after another; series in their order.

    Example:
        >>> stacked([3, 4])
        [Bar(series=0, start=0, length=3), Bar(series=1, start=3, length=4)]
    """
    return [Bar(k, sum(lengths[:k]), length) for k, length in enumerate(lengths)]


def bars(rows, names, x, alt, name="plot", mark=None):
    """Horizontal bars in pieces, one row under another, as SVG text: stacked sums, or a schedule.

    Args:
        rows: pairs of a label and its `Bar`s.
        names: of the series, for the legend.
        x: the `Axis` of lengths (from 0).
        alt: what a reader who cannot it must know.
        name: unique on a page. Values beyond the ends of an axis are cut off.
        mark: a value with its text (value, text) to draw as an upright line.

    Raises:
        ValueError: for a length that is not finite.
    """
    used = sorted({bar.series for _, found in rows for bar in found if bar.length > 0})
    parts = [
        tag("pattern", tag("path", d=hatch, class_="wl-hatch"), id=f"{name}-{k}", width=8, height=8, patternUnits="userSpaceOnUse")
        for k, hatch in enumerate(_HATCHES)
        if hatch and k in [u % 6 for u in used]
    ]
    piece = lambda k, **box: tag("rect", **box, fill=COLOURS[k % 6]) + (tag("rect", **box, fill=f"url(#{name}-{k % 6})") if k % 6 else "")
    legend, top = _legend([names[k] for k in used], lambda i, a, b: piece(used[i], x=a, y=b - 7, width=16.0, height=14.0), 8)
    ends = [bar.start + bar.length for _, found in rows for bar in found] + ([mark[0]] if mark else [])
    across, row = _Scale(x._replace(low=0), ends, 10.0, WIDTH - 14.0), 44
    bottom = top + row * len(rows) + (18 if mark else 0)
    parts += [
        tag("path", d=f"M{at:.1f} {top:.1f}V{bottom:.1f}", class_="wl-grid")
        + tag("text", text=text, x=min(at, WIDTH - _CHARACTER * len(text) / 2), y=bottom + 18, text_anchor="middle")
        for at, text in across.ticks
    ]
    for i, (label, found) in enumerate(rows):
        at = top + row * i
        parts.append(tag("text", text=label, x=14, y=at + 15))
        for bar in found:
            if bar.length > 0:
                start, end = across(bar.start), across(bar.start + bar.length)
                parts.append(piece(bar.series, x=start, y=at + 20, width=max(end - start - 1.0, 0.5), height=18.0))
    if mark:
        at, side = across(mark[0]), 1 if across(mark[0]) < WIDTH / 2 else -1
        parts.append(
            tag("path", d=f"M{at:.1f} {top:.1f}V{bottom:.1f}", class_="wl-mark")
            + tag("text", text=mark[1], x=at + 6 * side, y=bottom - 4, text_anchor="start" if side > 0 else "end")
        )
    parts += [
        tag("path", d=f"M10 {top:.1f}V{bottom:.1f}H{WIDTH - 14}", class_="wl-axis"),
        *legend,
        tag("text", text=x.label, x=(WIDTH - 4) / 2, y=bottom + 38, text_anchor="middle"),
    ]
    return _svg(parts, bottom + 46, alt)

"""Figures: one style, deterministic SVG, alt text and caption. Matplotlib is imported only when a figure is drawn.

Four kinds serve nearly every page: `bars`, `curves`, `gantt` and `roofline`. Each has a twin ``draw_...(ax, ...)`` that draws on given
axes, for several `panels` in one figure. What is drawn once stands in `workloads_book.drawings`, by way of the decorator `figure`.
"""

from functools import partial
from pathlib import Path

from .plot import BLUE, COLOURS, GOLD, GREEN, GREY, ORANGE, PINK  # noqa: F401 (pages take them from here)

STYLE = Path(__file__).parent / "book.mplstyle"
INK, PAPER = "#1f2933", "#ffffff"  # and "#9aa5b1" for the grid, in the style
SIZE = (4.8, 3.2)  # inches: on a phone of 360 pixels its text is still 10 pixels high
HATCHES = ("", "//", "..", "\\\\", "--", "xx")
DASHES = ("-", "--", ":", "-.", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 3)))
MARKERS = ("o", "s", "^", "D", "v", "P")
_counted = {}


def counted(what):
    """The label of the next figure or table that this kernel shows: "Figure 1", "Figure 2", ..."""
    _counted[what] = _counted.get(what, 0) + 1
    return f"{what} {_counted[what]}"


def svg(draw, alt, size=SIZE, axes=(1, 1), **subplots):
    """SVG text of a figure drawn by ``draw(ax)`` (or ``draw(ax1, ax2, ...)``), with ``alt`` as its title element.

    Args:
        size: in inches.
        axes: as (rows, columns); further keywords go to Matplotlib's `Figure.subplots`.
    """
    import io

    import matplotlib.style
    from matplotlib.figure import Figure

    with matplotlib.rc_context():
        matplotlib.style.use(STYLE)
        fig = Figure(figsize=size)
        draw(*fig.subplots(*axes, squeeze=False, **subplots).flat)
        out = io.StringIO()
        fig.savefig(out, format="svg", metadata={"Date": None, "Creator": None, "Title": alt})
    return out.getvalue()


def figure(*, alt, caption, size=SIZE, axes=(1, 1), **subplots):
    """Decorator that draws at once: the function below it takes the axes, the figure appears under the cell.

    Args:
        alt: text (what a reader who cannot see it must know) and caption, both required.
        size: in inches.
        axes: as (rows, columns); further keywords go to Matplotlib's `Figure.subplots`. Where Matplotlib is not
            installed the caption appears with a line that says so.
    """
    if not (alt.strip() and caption.strip()):
        raise ValueError("alt and caption must say something")

    def now(draw):
        from IPython.display import Markdown, display

        label = counted("Figure")
        try:
            image = svg(draw, alt, size, axes, **subplots)
        except ModuleNotFoundError as missing:
            if missing.name not in ("matplotlib", "numpy"):
                raise
            display(Markdown(f"*{label}.* {caption} (Not drawn: {str(missing).rstrip('.')}.)"))
            return
        display({"image/svg+xml": image, "text/plain": f"<figure: {alt}>"}, raw=True)
        display(Markdown(f"*{label}.* {caption}"))

    return now


def panels(draws, *, alt, caption, size=None, sharex=False):
    """Several drawings, one below the other: a list of functions of the axes."""
    figure(alt=alt, caption=caption, size=size or (SIZE[0], 2.4 * len(draws) + 0.4), axes=(len(draws), 1), sharex=sharex)(
        lambda *axes: [draw(ax) for draw, ax in zip(draws, axes)]
    )


def bars(data, *, alt, caption, size=None, **options):
    """Show horizontal bars; see `draw_bars`."""
    parts = _parts(data)
    height = 0.95 + 0.34 * len(data) + 0.24 * (len(parts) > 1) * -(-len(parts) // 2)
    figure(alt=alt, caption=caption, size=size or (SIZE[0], max(height, 1.6)))(partial(draw_bars, data=data, **options))


def curves(lines, *, alt, caption, size=SIZE, **options):
    """Show lines; see `draw_curves`."""
    figure(alt=alt, caption=caption, size=size)(partial(draw_curves, lines=lines, **options))


def gantt(lanes, *, alt, caption, size=None, **options):
    """Show stages over time; see `draw_gantt`."""
    figure(alt=alt, caption=caption, size=size or (SIZE[0], 1.3 + 0.42 * len(lanes)))(partial(draw_gantt, lanes=lanes, **options))


def roofline(machines, points, *, alt, caption, size=SIZE, **options):
    """Show work on the roofs of machines; see `draw_roofline`."""
    figure(alt=alt, caption=caption, size=size)(partial(draw_roofline, machines=machines, points=points, **options))


def _parts(data):
    """Names of the parts of stacked bars in their first order; one unnamed part where the bars are plain numbers."""
    return list(dict.fromkeys(part for value in data.values() for part in (value if isinstance(value, dict) else {"": value})))


def _legend(ax, columns=2):
    """A legend above the drawing, where it covers nothing."""
    handles, names = ax.get_legend_handles_labels()
    if handles:
        ax.legend(
            handles, names, loc="lower left", bbox_to_anchor=(0, 1), ncols=min(columns, len(names)), borderaxespad=0.2, handlelength=1.8
        )


def _round_ticks(axis):
    """Ticks of a logarithmic axis that do not run into each other: 1, 2 and 5 of a decade where there are few decades."""
    from math import log10

    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    from workloads.units import number

    low, high = axis.get_view_interval()
    if 0 < low < high and log10(high / low) < 2.5 and high < 1e7:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5) if log10(high / low) < 1.7 else (1, 3)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: number(value, 2)))
    axis.set_minor_formatter(NullFormatter())


def _plain_ticks(*axes):
    """Numbers with their thousands apart on linear axes: 5,000 and 0.2."""
    for axis in axes:
        if axis.get_scale() == "linear":
            axis.set_major_formatter("{x:,.10g}")


def draw_bars(ax, data, *, x="", log=False, values=None, mark=None, xlim=None):
    """Horizontal bars, the first on top.

    Args:
        data: {label: number}, or {label: {part: number}} for stacked bars with a legend.
        x: label of the axis with its unit.
        log: a logarithmic axis (plain bars only).
        values: texts at the ends of the bars in their order; by default the totals with three digits; False for none.
        mark: {text: x} of vertical lines of reference.
        xlim: both ends of the axis; by default what the bars and their texts need.
    """
    from workloads.units import number

    parts, labels = _parts(data), list(data)
    rows = [value if isinstance(value, dict) else {"": value} for value in data.values()]
    left = [0.0] * len(rows)
    for i, part in enumerate(parts):
        long = [float(row.get(part, 0)) for row in rows]
        style = dict(color=COLOURS[i % 6], hatch=HATCHES[i % 6] if len(parts) > 1 else "", edgecolor=PAPER, linewidth=0)
        ax.barh(range(len(rows)), long, 0.66, left=left, label=part or None, log=log, **style)
        left = [a + b for a, b in zip(left, long)]
    if values is not False:
        for y, (end, text) in enumerate(zip(left, values or [number(total, 3) for total in left])):
            ax.annotate(text, (end, y), (4, 0), textcoords="offset points", va="center", fontsize=10)
        longest = max(len(str(text)) for text in values or [number(total, 3) for total in left])
        low, high = ax.get_xlim()
        room = 1 + 0.03 * longest
        ax.set_xlim(low, high * (high / low) ** (room - 1) if log else high * room)
    for text, at in (mark or {}).items():
        ax.axvline(at, color=INK, linestyle="--", linewidth=1)
        ax.annotate(text, (at, -0.55), (3, 2), textcoords="offset points", fontsize=10, va="bottom")
    ax.set_yticks(range(len(rows)), labels)
    ax.set_ylim(len(rows) - 0.45, -0.55 - 0.45 * bool(mark))
    ax.grid(axis="y", visible=False)
    ax.set_xlabel(x)
    if xlim:
        ax.set_xlim(*xlim)
    if log:
        _round_ticks(ax.xaxis)
    _plain_ticks(ax.xaxis)
    _legend(ax)


def draw_curves(
    ax,
    lines,
    *,
    x,
    y,
    log="",
    points=None,
    marks=None,
    vlines=None,
    hlines=None,
    xlim=None,
    ylim=None,
    fill=None,
    ticks=None,
    steps=False,
    legend=True,
):
    """Lines, each with a dash pattern of its own.

    Args:
        lines: {name: (xs, ys)}.
        x: label of the axis with its unit, as y.
        log: the logarithmic axes: "x", "y", "xy" or none.
        points: {name: (xs, ys)} drawn as markers alone, such as measurements.
        marks: {text: (x, y)} of dots with a text beside them.
        vlines: {text: x} of vertical lines, hlines {text: y} of horizontal ones.
        fill: {name: (xs, low, high)} of bands.
        ticks: {place: label} of the x axis.
        steps: whether a line keeps its value until the next point.
        legend: whether the names stand above the drawing; without, write them by `marks`.
    """
    if set(log) - set("xy"):
        raise ValueError(f"log must be made of x and y, got {log!r}")
    for i, (name, (xs, low, high)) in enumerate((fill or {}).items()):
        ax.fill_between(xs, low, high, color=COLOURS[i % 6], alpha=0.22, linewidth=0, label=name or None)
    for i, (name, (xs, ys)) in enumerate(lines.items()):
        ax.plot(xs, ys, color=COLOURS[i % 6], linestyle=DASHES[i % 6], label=name or None, drawstyle="steps-post" if steps else "default")
    for i, (name, (xs, ys)) in enumerate((points or {}).items(), len(lines)):
        ax.plot(xs, ys, linestyle="none", marker=MARKERS[i % 6], markersize=5, color=COLOURS[i % 6], label=name or None)
    if "x" in log:
        ax.set_xscale("log")
    if "y" in log:
        ax.set_yscale("log")
    ax.set(xlabel=x, ylabel=y)
    if xlim:
        ax.set_xlim(*xlim)
    if ylim:
        ax.set_ylim(*ylim)
    for axis in [ax.xaxis] * ("x" in log) + [ax.yaxis] * ("y" in log):
        _round_ticks(axis)
    _plain_ticks(ax.xaxis, ax.yaxis)
    for text, at in (vlines or {}).items():
        ax.axvline(at, color=INK, linestyle=":", linewidth=1.2)
        ax.annotate(text, (at, 0.98), (3, 0), xycoords=("data", "axes fraction"), textcoords="offset points", va="top", fontsize=10)
    for text, at in (hlines or {}).items():
        ax.axhline(at, color=INK, linestyle=":", linewidth=1.2)
        ax.annotate(text, (0.99, at), (0, 3), xycoords=("axes fraction", "data"), textcoords="offset points", ha="right", fontsize=10)
    for text, (at, height) in (marks or {}).items():
        ax.plot([at], [height], marker="o", markersize=6, color=INK, linestyle="none")
        ax.annotate(text, (at, height), (6, 5), textcoords="offset points", fontsize=10)
    if ticks:
        ax.set_xticks(list(ticks), list(ticks.values()))
        ax.minorticks_off()
    if legend:
        _legend(ax)


def draw_gantt(ax, lanes, *, x="ms", kinds=None, vlines=None):
    """Stages as bars over time, one lane a resource, the first on top; bars of one kind share colour and pattern.

    Args:
        lanes: {lane: [(start, end, label, kind), ...]}; a label that does not fit into its bar is better left empty.
        x: label of the axis: the unit of time.
        kinds: their order in the legend; by default as they come.
        vlines: {text: time} of moments that matter.
    """
    kinds = list(kinds or dict.fromkeys(kind for stages in lanes.values() for *_, kind in stages))
    named = set()
    for lane, stages in enumerate(lanes.values()):
        for start, end, label, kind in stages:
            i = kinds.index(kind)
            style = dict(color=COLOURS[i % 6], hatch=HATCHES[i % 6], edgecolor=PAPER, linewidth=0.8)
            ax.barh(lane, end - start, 0.62, left=start, label=None if kind in named else kind, **style)
            named.add(kind)
            if label:
                box = dict(boxstyle="square,pad=0.12", facecolor=PAPER, edgecolor="none")
                ax.text((start + end) / 2, lane, label, ha="center", va="center", fontsize=10, bbox=box)
    for text, at in (vlines or {}).items():
        ax.axvline(at, color=INK, linestyle="--", linewidth=1)
        ax.annotate(text, (at, -0.6), (3, 1), textcoords="offset points", fontsize=10)
    ax.set_yticks(range(len(lanes)), list(lanes))
    ax.set_ylim(len(lanes) - 0.5, -0.6 - 0.4 * bool(vlines))
    ax.grid(axis="y", visible=False)
    ax.set_xlabel(x)
    _plain_ticks(ax.xaxis)
    _legend(ax)


def draw_roofline(ax, machines, points, *, xlim=None, ylim=None):
    """Roofs of machines and work on them, both axes logarithmic.

    Args:
        machines: {name: (peak in FLOP/s, bandwidth in B/s)}; work without a time of its own stands on the first roof.
        points: {name: pass}, where a pass is a `workloads.Pass`, (FLOPs, bytes), or (FLOPs, bytes, seconds) if it was measured.
        xlim: both ends of the intensity (FLOP/B), ylim of the rate (FLOP/s).
    """
    work = {name: (p.flops, p.bytes) if hasattr(p, "flops") else tuple(p) for name, p in points.items()}
    intensities = {name: p[0] / p[1] for name, p in work.items()}
    ridges = [peak / bandwidth for peak, bandwidth in machines.values()]
    low, high = xlim or (min([*intensities.values(), *ridges]) / 4, max([*intensities.values(), *ridges]) * 6)
    for i, ((name, (peak, bandwidth)), ridge) in enumerate(zip(machines.items(), ridges)):
        xs = [low, min(max(ridge, low), high), high]
        ax.plot(xs, [min(peak, bandwidth * at) for at in xs], color=COLOURS[i % 6], linestyle=DASHES[i % 6], label=name)
    first_peak, first_bandwidth = next(iter(machines.values()))
    for i, (name, p) in enumerate(work.items()):
        at = intensities[name]
        rate = p[0] / p[2] if len(p) == 3 else min(first_peak, first_bandwidth * at)
        ax.plot([at], [rate], marker=MARKERS[i % 6], markersize=7, color=INK, linestyle="none")
        side = (-7, 4, "right") if at > first_peak / first_bandwidth else (7, -12, "left")
        ax.annotate(name, (at, rate), side[:2], textcoords="offset points", fontsize=10, ha=side[2])
    ax.set(xscale="log", yscale="log", xlabel="arithmetic intensity (FLOP/B)", ylabel="FLOP/s", xlim=(low, high))
    if ylim:
        ax.set_ylim(*ylim)
    _legend(ax)

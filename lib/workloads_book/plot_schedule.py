"""The schedule of a pipeline as SVG text: a row a stage, a box a piece of work, gaps hatched."""

from itertools import pairwise

from .plot import _CHARACTER, WIDTH, Axis, _legend, _Scale, _svg, tag

_KINDS = {"F": ("forward", "#0b62a4"), "B": ("backward", "#b34d05"), "W": ("gradients of weights", "#087a5b")}
ROW = 30


def schedule(work, axis, alt, name="schedule"):
    """Pieces of work over time, micro-batches numbered from 1 where there is room.

    Args:
        work: `studies.pipeline_schedule.Work`s, those of a stage in order.
        axis: of time, whose values are the pieces' own.
        alt: what a reader who cannot see it must know.
        name: unique on a page.
    """
    stages = max(piece.stage for piece in work) + 1
    kinds = [kind for kind in _KINDS if any(piece.kind == kind for piece in work)]
    colours = [_KINDS[kind][1] for kind in kinds]
    swatch = lambda k, x, y: tag("rect", x=x, y=y - 7, width=16.0, height=14.0, fill=colours[k] if k < len(kinds) else f"url(#{name}-idle)")
    legend, top = _legend([*(_KINDS[kind][0] for kind in kinds), "waits"], swatch, 8)
    left, bottom = 26.0, top + ROW * stages
    across = _Scale(axis._replace(low=0), [piece.end for piece in work], left, WIDTH - 8.0)
    hatch = tag("path", d="M0 8L8 0", stroke="currentColor", stroke_width=1, stroke_opacity=0.45)
    parts = [tag("pattern", hatch, id=f"{name}-idle", width=8, height=8, patternUnits="userSpaceOnUse"), *legend]
    parts.append(
        tag("rect", x=left, y=top, width=across(max(piece.end for piece in work)) - left, height=bottom - top, fill=f"url(#{name}-idle)")
    )
    middle = lambda s: top + ROW * s + ROW / 2 + 5
    parts += [tag("text", text=str(s + 1), x=left - 8, y=middle(s), text_anchor="end") for s in range(stages)]
    for kind in kinds:
        boxes = [(across(w.start), across(w.end), w) for w in work if w.kind == kind and w.end > w.start]
        path = "".join(f"M{a:.1f} {top + ROW * w.stage + 2:.1f}H{max(b - 0.8, a + 0.3):.1f}v{ROW - 4}H{a:.1f}z" for a, b, w in boxes)
        parts.append(tag("path", d=path, fill=_KINDS[kind][1]))
        parts += [
            tag("text", text=str(w.micro_batch + 1), x=(a + b) / 2, y=middle(w.stage), text_anchor="middle", style="fill:#fff")
            for a, b, w in boxes
            if b - a > _CHARACTER * len(str(w.micro_batch + 1)) + 3
        ]
    parts.append(tag("path", d="".join(f"M{left} {top + ROW * s:.1f}H{WIDTH - 8}" for s in range(stages + 1)), class_="wl-grid"))
    wide = [(at, text) for at, text in across.ticks]
    parts += [
        tag("text", text=text, x=min(at, WIDTH - _CHARACTER * len(text) / 2), y=bottom + 18, text_anchor="middle")
        for (before, _), (at, text) in pairwise([(-1e9, ""), *wide])
        if at - before > 30
    ]
    parts.append(tag("text", text=axis.label, x=(WIDTH - 4) / 2, y=bottom + 38, text_anchor="middle"))
    return _svg(parts, bottom + 46, alt)


__all__ = ["Axis", "schedule"]

"""A run to step through: one state at a time, with a line that says what happened, and all of them as a table.

Every state is written here, by Python; the page's script only puts one in the place of another. Without it the first one stands there,
and the table tells the rest.
"""

import json
from html import escape

from .forms import table_html


def letters(places):
    """Names of requests by their places, as a list in words.

    Example:
        >>> letters([0]), letters([0, 2]), letters([0, 1, 2])
        ('A', 'A and C', 'A, B and C')
    """
    names = [chr(ord("A") + place) for place in places]
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def chip(place, note="", new=False):
    """A request, or a block of its: a letter and a colour; with a mark where it is new."""
    text = f"<b>{letters([place])}</b>" if place is not None else ""
    own = f"wl-chip wl-chip-{place % 6}" if place is not None else "wl-chip wl-none"
    return f'<i class="{own}{" wl-new" * new}">{text}{f" {escape(note)}" if note else ""}</i>'


def lane(label, chips, kind=""):
    """Chips beside one another under a label."""
    return f'<div class="wl-lane {kind}"><span>{escape(label)}</span><div>{"".join(chips) or chip(None)}</div></div>'


def frame(lanes, head, rows):
    """One state: what is drawn, hidden from readers of screens, and the same as a table."""
    return f'<div class="wl-lanes" aria-hidden="true">{"".join(lanes)}</div>{table_html(head, rows)}'


def stepper(frames, head, rows, summary):
    """States to step through: frames, (text, HTML) pairs; the table of all of them with what it is called."""
    data = json.dumps([list(pair) for pair in frames], ensure_ascii=False).translate({ord(c): f"\\u{ord(c):04x}" for c in "<>&"})
    keys = (("first", "First"), ("-1", "Back"), ("1", "Next step"), ("play", "Play"))
    buttons = "".join(f'<button type="button" data-step="{step}">{label}</button>' for step, label in keys)
    slider = f'<input type="range" min="1" max="{len(frames)}" value="1" aria-label="Step" aria-valuetext="step 1 of {len(frames)}"/>'
    told, drawn = frames[0]
    return (
        f'<div class="wl-steps" role="group" aria-label="{escape(summary)}"><div class="wl-step-keys">{buttons}{slider}</div>'
        f'<p class="wl-step-says" aria-live="polite">{escape(told)}</p><div class="wl-step-frame">{drawn}</div>'
        f'<script type="application/json">{data}</script>'
        f'<details class="wl-group"><summary>{escape(summary)}</summary>{table_html(head, rows)}</details></div>'
    )

"""An explanation (`workloads.explain`) beyond its text: as HTML, folded by level, and as formulas of a page.

The standard library is enough, so that calculators show it in the reader's browser.
"""

import re
from html import escape
from typing import Any

_PIECE = re.compile(
    r"(?P<call>max|min|floor|ceil|mod)(?=\()|(?P<name>[^\W\d][\w.]*?)(?P<low>[₀-₉]*)(?![\w.₀-₉])"
    r"|(?P<number>\d+(?:,\d{3})*(?:\.\d+)?)(?: × 10(?P<power>[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+))?"
    r"(?: (?P<unit>[kMGTPEZY]?(?:B|FLOP)(?:/s|/B)?|[mµn]?s|1/s)(?!\w))?"
    r"|(?P<sign>[·−$])"
)
_PLAIN = str.maketrans("₀₁₂₃₄₅₆₇₈₉⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789-0123456789")
_SIGNS = {"·": r"\cdot", "−": "-", "$": r"\$"}


def html(explanation: Any, opened: int = 1) -> str:
    """The lines as nested lists: each line with parts below it can be unfolded.

    Args:
        explanation: of a number.
        opened: levels that are unfolded from the start.

    Example:
        >>> from workloads import explain
        >>> html(explain(lambda price, tasks: price * tasks, 2.0, 3))[:60]
        '<ul class="wl-how"><li><details open><summary><code>result ='
    """
    return f'<ul class="wl-how">{"".join(_items(list(explanation.lines), opened))}</ul>'


def _items(lines, opened):
    """List items of lines that begin at one depth, with those below each."""
    while lines:
        depth, *parts, remark = lines.pop(0)
        inside = []
        while lines and lines[0][0] > depth:
            inside.append(lines.pop(0))
        line = f"<code>{escape(' = '.join(filter(None, parts)))}</code>" + (f" <small>{escape(remark)}</small>" if remark else "")
        if inside:
            below = "".join(_items(inside, opened))
            line = f"<details{' open' * (depth < opened)}><summary>{line}</summary><ul>{below}</ul></details>"
        yield f"<li>{line}</li>"


def latex(text: str) -> str:
    """A formula of an explanation in LaTeX: names upright, units behind their numbers.

    Example:
        >>> print(latex("bytes_moved₂ / (3.35 TB/s · 0.7)"))
        \\text{bytes moved}_{2} / (3.35\\,\\text{TB/s} \\cdot 0.7)
    """
    raised = re.sub(r"\^(\([^()]*\)|[^\s()·/+−^]+)", lambda found: f"^{{{found[1]}}}", text)
    return _PIECE.sub(_latex_piece, raised)


def _latex_piece(found):
    if found["call"]:
        return rf"\operatorname{{{found['call']}}}" if found["call"] in ("floor", "ceil", "mod") else rf"\{found['call']}"
    if found["name"]:
        low = f"_{{{found['low'].translate(_PLAIN)}}}" if found["low"] else ""
        return rf"\text{{{found['name'].replace('_', ' ')}}}{low}"
    if found["number"]:
        power = rf" \cdot 10^{{{found['power'].translate(_PLAIN)}}}" if found["power"] else ""
        unit = rf"\,\text{{{found['unit']}}}" if found["unit"] else ""
        return found["number"].replace(",", "{,}") + power + unit
    return _SIGNS[found["sign"]]


def maths(explanation: Any, levels: int = 2) -> str:
    """The first levels as Markdown with displayed formulas.

    Args:
        explanation: of a number.
        levels: how deep.

    Example:
        >>> from workloads import explain
        >>> print(maths(explain(lambda price, tasks: price * tasks, 2.0, 3), levels=1))
        $$\\text{result} = \\text{price} \\cdot \\text{tasks} = 2 \\cdot 3 = 6$$
    """
    shown = [(" = ".join(map(latex, filter(None, parts))), remark) for depth, *parts, remark in explanation.lines if depth < levels]
    return "\n\n".join(f"$${line}$$" + (f"\n\n{remark}" if remark else "") for line, remark in shown)

"""The symbols of the book: one table (``notation.tsv``), the maths of the pages that it must cover, and the directive that shows it.

A row says for which groups of pages a symbol has its meaning; on which of their pages it is used is read from the pages themselves.
"""

import ast
import csv
import re
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import content
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.util.docutils import SphinxDirective

from .wayfinding import contents

ROOT = Path(__file__).parents[4]
TABLE = ROOT / "book/reference/notation.tsv"
GROUPS = {
    "ground": "The ground",
    "flop": "FLOP Accounting",
    "3.1": "3.0 and 3.1",
    "3.2": "3.2",
    "3.3": "3.3",
    "3.4": "3.4",
    "3.5": "3.5",
    "3.6": "3.6",
}
RESTATE = ("book/workloads/3-7-fallacies", "book/workloads/3-9-summary")  # formulas of all chapters, each with the letters of its own
GREEK = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau upsilon phi chi psi omega ell "
    "Gamma Theta Lambda Xi Pi Sigma Phi Psi Omega"
).split()
LETTERS = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") | set(GREEK)
INDEX = re.compile(r"(?:[ijkdt]|\d)*(?:[+-]1)?")
SUBSCRIPT = re.compile(r"_\s*(?:\\(?:text|mathrm)\s*\{([^{}]*)\}|\{((?:[^{}]|\{[^{}]*\})*)\}|(\\[A-Za-z]+|[A-Za-z0-9]))")
SYMBOL = re.compile(
    r"(\\Delta(?:\{\})?\s*)?(\\(?:bar|mathcal)\s*\{?)?"
    r"(\\(?:" + "|".join(GREEK) + r")(?![A-Za-z])|[A-Za-z])\}?(?:⟨([^⟩]*)⟩)?"
)


@dataclass(frozen=True)
class Row:
    """A symbol with its meaning in some groups of pages."""

    groups: tuple
    symbol: str  # TeX
    names: tuple  # Python: module.function(parameter), module.function, module.Class.field; or a name in the code of a page
    unit: str
    meaning: str

    @property
    def key(self):
        return next(iter(symbols(self.symbol)))


@cache
def rows():
    with TABLE.open(encoding="utf8", newline="") as file:
        return tuple(
            Row(tuple(r["groups"].split()), r["symbol"], tuple(r["names"].split()), r["unit"], r["meaning"])
            for r in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        )


# ------------------------------------------------------------------------------------------------------- which symbols a formula has
def _plain(text):
    return re.sub(r"\\(?:text|mathrm|,|;|!)|[{}\s\\]", "", text)


def symbols(tex):
    """Names of the symbols in TeX: letter or Greek name, with its subscript, a bar or a Delta in front: {"n_kv", "bar M", "lambda_w"}."""
    found = set()

    def subscript(match):
        """A mark where it belongs to a letter; below a sum or a brace it is a formula of its own."""
        before = re.search(r"(?:\\[A-Za-z]+|[A-Za-z])\}?$", match.string[: match.start()])
        if before and before[0].strip("\\}") in LETTERS:
            return f"⟨{_plain(match[1] or match[2] or match[3])}⟩"
        found.update(symbols(match[2] or match[3] or ""))
        return " "

    tex = SUBSCRIPT.sub(subscript, tex)
    tex = re.sub(r"\\(?:text|mathrm|mathsf|operatorname|begin|end|htmlClass)\s*(?:\{[^{}]*\}|[A-Za-z])(?:⟨[^⟩]*⟩)?", " ", tex)
    tex = re.sub(r"\\(?!(?:" + "|".join([*GREEK, "Delta", "bar", "mathcal"]) + r")(?![A-Za-z]))(?:[A-Za-z]+|.)", " ", tex)
    for delta, accent, letter, below in SYMBOL.findall(tex):
        name = letter.lstrip("\\") + (f"_{below}" if below else "")
        found.add(("Delta " if delta else "") + ("bar " if "bar" in accent else "cal " if accent else "") + name)
    return found


def _sympy(name):
    """The symbols of a SymPy name; none for a word that is spelled out."""
    if "\\" in name:
        return symbols(name)
    name = name.partition("^")[0]
    base = name.partition("_")[0]
    return {name} if len(base) == 1 or base in GREEK else set()


def _maths(text):
    for match in re.finditer(r"\$\$(.+?)\$\$|(?<![\\$\w])\$([^$\n]+?)(?<![\\ ])\$(?!\d)", text, re.DOTALL):
        yield match[1] or match[2]


def _strings(tree):
    """Texts of the code, f-strings with their values left out."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(v.value if isinstance(v, ast.Constant) else " 0 " for v in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@cache
def used(page):
    """Symbols in the maths of a page: its text, the texts of its code, its SymPy symbols."""
    found = set()
    for cell in content.page(ROOT / f"{page}.ipynb").cells:
        if cell.kind == "markdown":
            found |= {s for tex in _maths(cell.source) for s in symbols(tex)}
        elif cell.kind == "code":
            tree = content.parsed(cell.source)
            found |= {
                s for text in _strings(tree) if "$" in text for tex in _maths(text) for s in symbols(tex) if "\\" in tex or len(tex) < 20
            }
            for call in ast.walk(tree):
                if isinstance(call, ast.Call) and getattr(call.func, "attr", "") in ("symbols", "Symbol") and call.args:
                    found |= {
                        s
                        for text in _strings(call.args[0])
                        for name in (text.split() if call.func.attr == "symbols" else [text])
                        for s in _sympy(name)
                    }
    return frozenset(found)


# ------------------------------------------------------------------------------------------------------------- which page uses a row
def _group(page):
    if page.startswith("book/flop-accounting/"):
        return "flop"
    number = re.match(r"book/workloads/3-(\d)", page)
    return {"0": "3.1"}.get(number[1], f"3.{number[1]}") if number else "ground"


@cache
def pages():
    """Chapter notebooks in the order of the book, with their group."""
    files = [name for name, *_ in contents(ROOT) if name.startswith("book/")]
    return {f: _group(f) for f in files if (ROOT / f"{f}.ipynb").is_file() and f not in RESTATE and "/reference/" not in f}


def listed(name, group):
    """The row of a symbol in a group: its own; else the letter's with another running index; else the bare letter's, an index."""
    known = {row.key: row for row in rows() if group in row.groups}
    base, _, subscript = name.partition("_")
    plain = base.removeprefix("bar ")
    others = [f"{base}_{i}" for i in "ijkd"] + [base, plain] if subscript and INDEX.fullmatch(subscript) else [plain] * (not subscript)
    return next((known[n] for n in [name, *others] if n in known), None)


@cache
def places():
    """Pages of each row."""
    found = defaultdict(list)
    for page, group in pages().items():
        for row in {listed(name, group) for name in used(page)} - {None}:
            found[row].append(page)
    return found


# --------------------------------------------------------------------------------------------------------------------------- the tables
def _order(row):
    name = row.key.removeprefix("bar ").removeprefix("Delta ")
    base = name.partition("_")[0]
    return base in GREEK, base.lower(), base.islower(), name, row.meaning


def _code(name):
    """`flops.forward(new)` as the parameter and its function, each as code."""
    function, _, parameter = name.removesuffix(")").partition("(")
    if not parameter and function.count(".") == 2:
        function, _, parameter = function.rpartition(".")
    return f"`{parameter}` of `{function}`" if parameter else f"`{function}`"


def _link(page):
    stem = page.rpartition("/")[2]
    number = re.match(r"3-(\d)(?:-(\d))?", stem)
    shown = ".".join(filter(None, ("3", number[1], number[2]))) if number else stem.replace("-", " ")
    return f"[{shown}](/{page}.ipynb)"


def _within(row, first, last):
    greek, letter = _order(row)[:2]
    return greek == (first == "Greek") and (greek or first <= letter[0].upper() <= last)


def table(letters):
    """Symbols of a range of letters, such as "A-F", or of "Greek" ones, in the order of the alphabet."""
    first, _, last = letters.partition("-")
    lines = ["| symbol | meaning | unit | Python | used in |", "|:---|:---|:---|:---|:---|"]
    for row in sorted((r for r in rows() if _within(r, first, last)), key=_order):
        cells = f"${row.symbol}$", row.meaning, row.unit, ", ".join(map(_code, row.names)), ", ".join(map(_link, places()[row]))
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def several():
    """Letters that mean one thing in one group of pages and another in another."""
    meanings = defaultdict(list)
    for row in sorted(rows(), key=_order):
        meanings[row.key].append(row)
    lines = ["| symbol | one meaning a part |", "|:---|:---|"]
    for those in meanings.values():
        if len(those) > 1:
            parts = defaultdict(list)
            for row in those:
                parts[row.meaning.replace("; ", ", ")] += row.groups
            by_part = sorted((sorted(map(list(GROUPS).index, found)), meaning) for meaning, found in parts.items())  # as the book goes
            told = "; ".join(f"*{', '.join(list(GROUPS.values())[g] for g in found)}*: {meaning}" for found, meaning in by_part)
            lines.append(f"| ${those[0].symbol}$ | {told} |")
    return lines


class Notation(SphinxDirective):
    """``{notation} A-F`` shows the symbols of these letters, ``{notation} several`` the letters with more than one meaning."""

    required_arguments = 1

    def run(self):
        for path in [TABLE, *(ROOT / f"{page}.ipynb" for page in pages())]:
            self.env.note_dependency(str(path))
        lines = several() if self.arguments == ["several"] else table(self.arguments[0])
        box = nodes.container(classes=["wl-notation", f"wl-notation-{len(lines[0].split('|')) - 2}"])
        self.state.nested_parse(StringList(lines, source=str(TABLE)), self.content_offset, box)
        return [box]


def setup(app):
    app.add_directive("notation", Notation)

"""Find results typed into prose: `prose.py [PAGE ...]` lists them for the given notebooks and Markdown pages, or for all.

A page computes what follows from other numbers and places it in its sentences. So a number with a unit that stands in a
Markdown cell, or in the fixed part of a sentence, caption or alternative text in its code, must be one of

- a printed figure, or an input, of the ledger rows of the page's sections,
- a value of the fact tables (hardware, models, published measurements),
- an input in the page's own code (test cells do not count),
- part of the front block, the page's first Markdown cell (of a Markdown page: what stands before its first section, or the title),
- listed in the page's metadata, `workloads.literals`: {"95%": "confidence level, chosen"}, each with its reason.

A Markdown page gives its metadata in its front matter. Records of what once stood in the book, right or wrong, are left out.
Code spans, link targets, citations and bare powers (10^9, 2^30) are passed over; numbers within mathematics are not.
"""

import ast
import math
import re
import sys
from pathlib import Path
from typing import NamedTuple

import content
from notebooks import ROOT, every_notebook

from workloads.facts.tables import table
from workloads_book import ledger

RECORDS = ("book/reference/errata.md", "book/reference/changelog.md")
FACTS = ("accelerators", "models", "measurements")
SUPERSCRIPT = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
PREFIX = {
    "": 1,
    "k": 1e3,
    "K": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "P": 1e15,
    "E": 1e18,
    "Z": 1e21,
    "Y": 1e24,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
}
SECONDS = {"ns": 1e-9, "µs": 1e-6, "us": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "h": 3600}
WORDS = {
    "second": 1,
    "minute": 60,
    "hour": 3600,
    "day": 86400,
    "week": 604800,
    "byte": 1,
    "bit": 1,
    "token": 1,
    "step": 1,
    "request": 1,
    "sequence": 1,
    "parameter": 1,
    "nat": 1,
    "dollar": 1,
    "cent": 0.01,
    "GPU": 1,
    "card": 1,
    "call": 1,
    "task": 1,
    "sample": 1,
    "pair": 1,
    "layer": 1,
    "head": 1,
    "FLOP": 1,
    "USD": 1,
    "time": 1,
    "fold": 1,
    "GPU-hour": 3600,
    "GPU-second": 1,
    "GPU-day": 86400,
}
SUFFIX = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
SCALED = {"thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12}

NUMBER = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?(?:e[+-]?\d+)?"
UNIT = "|".join(
    [
        r"%",
        r"(?<=\d)[×x](?!\w)",
        r"(?P<scaled>" + "|".join(SCALED) + r")\b",
        r"(?P<word>" + "|".join(sorted(map(re.escape, WORDS), key=len, reverse=True)) + r")s?\b(?!-)",
        r"(?P<flop>[kKMGTPEZY]?)FLOPs?\b",
        r"(?P<bytes>(?:[kKMGTP]|[KMGT]i))B\b",
        r"(?P<hertz>[kMG]?)Hz\b",
        r"(?P<seconds>" + "|".join(SECONDS) + r")\b(?!\w)",
        r"B(?=/|\s+per\b)",
        r"(?P<suffix>[KMBT])\b",
    ]
)
LITERAL = re.compile(
    rf"(?P<dollar>\$)?(?<![\w.\-/^])(?P<number>{NUMBER})"
    r"(?:\s*×\s*10(?:\^|(?=[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]))(?P<power>[-\d⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+))?"
    rf"(?:[\s-]?(?P<unit>{UNIT}))?"
)
ANY_NUMBER = re.compile(rf"(?<![\w.])({NUMBER})")


class Literal(NamedTuple):
    """A number with a unit as it stands in a text: the text, the bare number, the number in base units, its place."""

    text: str
    number: float
    value: float
    start: int


def plain(markdown):
    """The text that a reader sees as text: no code, link targets, citations or tags; mathematics as characters."""
    text = re.sub(r"^(```|~~~).*?^\1", " ", markdown, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"\{[\w:-]+\}`[^`]*`|`[^`\n]*`", " ", text)
    text = re.sub(r"\]\([^)]*\)|</?[A-Za-z][^>\n]*>|https?://\S+", " ", text)
    text = text.replace("\\$", "\0")
    text = re.sub(r"\$\$(.*?)\$\$", r"\1", text, flags=re.DOTALL)
    text = re.sub(r"\$([^$\n]+)\$", r"\1", text).replace("\0", "$")
    text = re.sub(r"\\(?:mathrm|text|textrm|operatorname)\s*\{([^}]*)\}", r"\1", text)
    text = re.sub(r"\{,\}", ",", text)
    text = re.sub(r"\\(?:times|cdot)(?![a-z])", "×", text)
    text = re.sub(r"\\[,;:! ]|\\q?quad(?![a-z])|~", " ", text).replace("\\%", "%").replace("\u00a0", " ").replace("\u202f", " ")
    return re.sub(r"\^\{(-?\d+)\}", r"^\1", text)


def _scale(match):
    """What one of the match's unit is worth in base units (bytes, seconds, FLOPs, 1)."""
    found = match.groupdict()
    if found["unit"] == "%":
        return 0.01
    for name, factors in (
        ("scaled", SCALED),
        ("word", WORDS),
        ("flop", PREFIX),
        ("bytes", PREFIX),
        ("hertz", PREFIX),
        ("seconds", SECONDS),
        ("suffix", SUFFIX),
    ):
        if found[name] is not None:
            return factors[found[name]]
    return 1


def literals(markdown):
    """Numbers with a unit, and whole numbers with a thousands separator, in a Markdown text."""
    text = plain(markdown)
    for match in LITERAL.finditer(text):
        bare = match["unit"] is None and not match["dollar"] and not match["power"]
        if bare and "," not in match["number"]:
            continue
        number = float(match["number"].replace(",", "")) * 10.0 ** int((match["power"] or "0").translate(SUPERSCRIPT))
        yield Literal(" ".join(match[0].split()), number, number * _scale(match), match.start())


def sentence(text, start):
    """The sentence of a text around a place, on one line."""
    ends = [m.end() for m in re.finditer(r"[.!?:]\s+(?=[A-Z*\[(])|\n\s*\n|\n(?=[-*|#])", text)]
    first = max((e for e in ends if e <= start), default=0)
    last = min((e for e in ends if e > start), default=len(text))
    return " ".join(text[first:last].split())


def numbers(text):
    """All numbers of a text: as they stand, and in base units where a unit follows."""
    return {float(m[1].replace(",", "")) for m in ANY_NUMBER.finditer(plain(text))} | {
        x for found in literals(text) for x in (found.number, found.value)
    }


def of_row(row):
    """Numbers that a page may print because the row prints them or takes them as input."""
    found = set() if row.printed is None else numbers(row.printed)
    if row.printed is not None and isinstance(row.value, (int, float)):
        found.add(float(row.value))
    if isinstance(row.inputs, dict):
        return found | {float(x) for x in row.inputs.values()}
    return found | numbers(row.inputs) | (numbers(row.formula) if row.formula else set())


def of_facts():
    """Values of the fact tables, as printed there and in base units."""
    return {x for name in FACTS for row in table(name) for x in numbers(f"{row['value']} {row.get('unit', '')}")}


def of_code(page):
    """Numbers in the page's code, test cells left out."""
    found = set()
    for cell in page.cells:
        if cell.kind == "code" and not cell.metadata.get("nbgrader", {}).get("grade"):
            for node in ast.walk(content.parsed(cell.source)):
                if isinstance(node, ast.Constant) and type(node.value) in (int, float):
                    found.add(float(node.value))
    return found


def fixed(node):
    """The fixed part of a string expression; what the page computes is left as a gap."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return fixed(node.left) + fixed(node.right)
    if isinstance(node, ast.JoinedStr):
        return "".join(map(fixed, node.values))
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else "…"


def shown(source):
    """Texts that a code cell shows as prose: arguments of `say`, captions and alternative texts."""
    for node in ast.walk(content.parsed(source)):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            yield from map(fixed, node.args if name == "say" else [])
            yield from (fixed(k.value) for k in node.keywords if k.arg in ("caption", "alt"))


def prose(page):
    """All prose of a page behind its front block: pairs of the cell's index and the text."""
    front = next((i for i, cell in enumerate(page.cells) if cell.kind == "markdown"), None)
    for i, cell in enumerate(page.cells):
        if cell.kind == "markdown" and i != front:
            yield i, cell.source
        elif cell.kind == "code":
            yield from ((i, text) for text in shown(cell.source))


def allowed(page):
    """Numbers that the page's prose may hold."""
    sections = page.metadata.get("sections", ())
    document = page.metadata.get("document")
    rows = [row for row in ledger.rows().values() if row.section in sections and row.document == document]
    return of_facts().union(of_code(page), *map(of_row, rows))


def problems(page, name):
    """What is typed where it should be computed: one text each."""
    listed = page.metadata.get("literals", {})
    for literal, reason in listed.items():
        if not isinstance(reason, str) or not reason.strip() or len(reason) > 120:
            yield f"{name}: the listed literal {literal!r} needs a short reason"
    fine, unused = sorted(allowed(page)), set(listed)
    for i, text in prose(page):
        for found in literals(text):
            unused.discard(found.text)
            if found.text in listed or any(math.isclose(x, y, rel_tol=1e-9) for x in (found.number, found.value) for y in fine):
                continue
            yield (
                f"{name}, cell {i}: {found.text!r} is typed and neither printed in the page's sections nor an input. "
                f"Compute it, or list it with a reason. In: {sentence(plain(text), found.start)!r}"
            )
    for literal in sorted(unused):
        yield f"{name}: the listed literal {literal!r} stands nowhere in its text"


def every_page():
    """Chapters, exercises and Markdown pages, without the records."""
    written = (p for p in ROOT.glob("book/**/*.md") if "node_modules" not in p.parts)
    return every_notebook() + sorted(p for p in written if p.relative_to(ROOT).as_posix() not in RECORDS)


def main():
    paths = [Path(p).resolve() for p in sys.argv[1:]] or every_page()
    found = [text for p in paths for text in problems(content.page(p), p.relative_to(ROOT).as_posix())]
    print("\n".join(found) if found else "No result is typed into prose.")
    return len(found) > 0


if __name__ == "__main__":
    sys.exit(main())

"""The house style in numbers: `make style` prints measures of pages and library beside other projects', and writes _build/measures.json.

Each measure has a range that the project keeps (None: only told). ANCHORS holds what was counted in the public repositories of other
projects, good examples and others. Reference pages, which only set tables, are left out; so are docstrings of functions that show things
and compute nothing. Below the table stand the longest cells and bodies, and the formulas without an example.
"""

import ast
import json
import re
import sys
from functools import cache
from statistics import median, quantiles

import nbformat
import prose
from notebooks import INSTALL, ROOT, every_notebook

LIBRARY = ROOT / "lib/workloads"
SITE = ROOT / "_build/html"
OUT = ROOT / "_build/measures.json"
SHOWING = {
    "answers",
    "calculators",
    "domain",
    "figures",
    "forms",
    "generic",
    "ledger",
    "page",
    "plot",
    "tables",
    "units",
}  # modules without formulas
QUIET = {"hide-input", "hide-cell", "remove-input", "remove-cell"}  # cells whose code a reader does not meet at once

# {measure: what others have}
ANCHORS = {
    "cells a notebook, median": "30 to 45 (QuantEcon, pytudes, ThinkBayes2)",
    "lines a visible code cell, median": "3 (ThinkBayes2); 3 to 5 (the others)",
    "lines a visible code cell, longest": "about 100 (QuantEcon)",
    "words of prose a line of visible code": "8 and more",
    "minutes a page, median": "10 to 20",
    "figures with alternative text": "5 of 189 (QuantEcon)",
    "results typed into prose": "249 (QuantEcon)",
    "exercises with a folded solution": "120 of 121 (QuantEcon)",
    "notebooks that assert or check": "74 of 114 (pytudes)",
    "lines of a function's body, median": "6 (fluids)",
    "lines of a public function's docstring, median": "43 (fluids)",
}


# ---------------------------------------------------------------------------------------------------------------------------- pages
@cache
def pages():
    """{path: notebook} of chapters and exercises, without the cell that installs the library."""
    found = {p.relative_to(ROOT).as_posix(): nbformat.read(p, as_version=4) for p in every_notebook() if "reference" not in p.parts}
    for nb in found.values():
        nb.cells = [c for c in nb.cells if INSTALL not in c.metadata.get("tags", [])]
    return found


def lines(source):
    return [line for line in source.splitlines() if line.strip()]


def code(nb):
    return [c for c in nb.cells if c.cell_type == "code"]


def visible(nb):
    """Code cells that a reader meets: no folded figure, no sentence, no solution, no test of an exercise."""
    return [c for c in code(nb) if not QUIET & set(c.metadata.get("tags", [])) and not c.metadata.get("nbgrader")]


def figures(nb):
    """Calls of `figure` in a page: the names of their arguments that hold some text."""
    for cell in code(nb):
        for node in ast.walk(prose.parsed(cell.source)):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "figure":
                yield {k.arg for k in node.keywords if prose.fixed(k.value).strip()}


def words(nb):
    """Words of prose in a page, those in its code's sentences and captions included."""
    texts = [c.source for c in nb.cells if c.cell_type == "markdown"] + [t for c in code(nb) for t in prose.shown(c.source)]
    return sum(len(re.findall(r"[A-Za-z][\w'-]*", prose.plain(text))) for text in texts)


def checked(nb):
    return any(re.search(r"^\s*(assert |check|check_table\()|\bcheck(_table)?\(", c.source, re.MULTILINE) for c in code(nb))


# -------------------------------------------------------------------------------------------------------------------------- library
@cache
def functions():
    """{module.function: its tree} of the library, methods included."""
    found = {}
    for path in sorted(LIBRARY.glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in tree.body:
            inner = node.body if isinstance(node, ast.ClassDef) else [node]
            prefix = f"{path.stem}.{node.name}." if isinstance(node, ast.ClassDef) else f"{path.stem}."
            found |= {prefix + f.name: f for f in inner if isinstance(f, ast.FunctionDef)}
    return found


def body(function):
    """Lines of a function behind its docstring."""
    first = function.body[1:] if ast.get_docstring(function) else function.body
    return first[-1].end_lineno - first[0].lineno + 1 if first else 0


def public():
    """Functions that others call: no leading underscore anywhere, no methods."""
    return {name: f for name, f in functions().items() if "._" not in name and name.count(".") == 1}


def formulas():
    """Public functions whose subject is the book's."""
    return {name: f for name, f in public().items() if name.partition(".")[0].partition("_")[0] not in SHOWING}


UNIT = re.compile(
    r"\((B|s|ms|\$|1/s|bytes/|FLOP/s|tokens/s)|"
    r"\b([Bb]ytes?|FLOPs?|[Ss]econds|[Tt]okens?|[Dd]ollars|USD|[Pp]arameters|nats|[Pp]asses|[Pp]airs|[Ss]teps|[Cc]alls"
    r"|[Tt]asks|[Rr]equests|[Ss]equences|samples|[Rr]ounds|work|updates|GPU-\w+|attempts|frames|fractions?|[Ss]hares?|[Rr]atio|over|factors?"
    r"|[Pp]robability|[Cc]hance|dimensionless|[Nn]umber|count|unit (of|as))\b"
)


def parts(docstring):
    """The parts that a docstring has: its first paragraph names a unit (or a number without one); an equation, an example, and so on."""
    told = re.sub(r"^>>>.*(\n.+)*", "", docstring, flags=re.MULTILINE)
    found = {
        "a unit": bool(UNIT.search(told.partition("\n\n")[0])),
        "an equation": bool(re.search(r"\S (=|<=|>=|~) \S|: [^.]*\S[*/^+]\S|: [^.]* [*/+] ", told)),
        "an example": ">>>" in docstring,
        "what it refuses": bool(re.search(r"\b[Rr]aises\b|\b[Rr]efuse[sd]?\b", told)),
        "a source": bool(re.search(r"\bSources?:", told)),
    }
    return {name for name, there in found.items() if there}


# ------------------------------------------------------------------------------------------------------------------------- measures
def share(found, of):
    return {"value": round(found / of, 3) if of else 1.0, "of": of}


def tests():
    """Test functions by what they do; a function may do several things, and one with parameters counts once."""
    found = [
        ast.unparse(node)
        for path in (ROOT / "tests").glob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]
    return {
        "all": len(found),
        "that must raise": sum("pytest.raises" in text for text in found),
        "of a property, over drawn inputs": sum("@given(" in text for text in found),
    }


def measures():
    """{measure: {value, low, high}}; value is a number, and low and high the range that the project keeps, None where there is none."""
    nbs, every, outer = pages(), functions(), public()
    shown = [len(lines(c.source)) for nb in nbs.values() for c in visible(nb)]
    all_figures = [f for nb in nbs.values() for f in figures(nb)]
    bodies, texts = [body(f) for f in every.values()], {n: ast.get_docstring(f) or "" for n, f in outer.items()}
    exercises = [nb for name, nb in nbs.items() if name.startswith("exercises/")]
    folded = [nb for nb in exercises if any("hide-cell" in c.metadata.get("tags", []) for c in nb.cells)]
    typed = sum(len(list(prose.problems(nb, name))) for name, nb in nbs.items())
    found = {
        "cells a notebook, median": (median(len(nb.cells) for nb in nbs.values()), 20, 45),
        "lines a visible code cell, median": (median(shown), 3, 6),
        "lines a visible code cell, 90 % have at most": (quantiles(shown, n=10)[-1], None, 15),
        "lines a visible code cell, longest": (max(shown), None, 30),
        "words of prose a line of visible code": (round(sum(map(words, nbs.values())) / sum(shown), 1), 8, None),
        "minutes a page, median": (median(nb.metadata["workloads"]["minutes"] for nb in nbs.values()), 10, 20),
        "figures with alternative text": (share(sum("alt" in f for f in all_figures), len(all_figures)), 1, 1),
        "figures with a caption": (share(sum("caption" in f for f in all_figures), len(all_figures)), 1, 1),
        "results typed into prose": (typed, 0, 0),
        "numbers typed into prose with a listed reason": (
            sum(len(nb.metadata["workloads"].get("literals", {})) for nb in nbs.values()),
            None,
            40,
        ),
        "exercises with a folded solution": (share(len(folded), len(exercises)), 1, 1),
        "notebooks that assert or check": (share(sum(map(checked, nbs.values())), len(nbs)), 0.9, None),
        "lines of a function's body, median": (median(bodies), 1, 7),
        "lines of a function's body, 90 % have at most": (quantiles(bodies, n=10)[-1], None, 15),
        "lines of a function's body, longest": (max(bodies), None, 60),
        "lines of a public function's docstring, median": (median(len(t.splitlines()) for t in texts.values()), 3, 43),
        "public functions with a docstring": (share(sum(map(bool, texts.values())), len(texts)), 1, 1),
    }
    have = [parts(ast.get_docstring(f) or "") for f in formulas().values()]
    aims = {"a unit": 0.75, "an equation": 0.5, "an example": 0.95, "what it refuses": None, "a source": None}
    found |= {
        f"formulas whose docstring has {part}": (share(sum(part in h for h in have), len(have)), low, None) for part, low in aims.items()
    }
    found |= {f"tests, {kind}": (count, None, None) for kind, count in tests().items()}
    if SITE.is_dir():
        weight = sum(p.stat().st_size for p in SITE.rglob("*") if p.is_file() and p.relative_to(SITE).parts[0] != "lite")
        found["MB of the site, without live notebooks"] = (round(weight / 1e6, 1), None, None)
    return {
        name: (value if isinstance(value, dict) else {"value": value}) | {"low": low, "high": high}
        for name, (value, low, high) in found.items()
    }


def outside(found):
    """Measures that leave their range."""
    return [
        n
        for n, m in found.items()
        if (m["low"] is not None and m["value"] < m["low"]) or (m["high"] is not None and m["value"] > m["high"])
    ]


def longest(count=10):
    """{what: the worst of it} for the report."""
    cells = [(len(lines(c.source)), f"{name}: {lines(c.source)[0][:60]}") for name, nb in pages().items() for c in visible(nb)]
    bodies = [(body(f), name) for name, f in functions().items()]
    bare = sorted(n for n, f in formulas().items() if "an example" not in parts(ast.get_docstring(f) or ""))
    return {
        "visible code cells": sorted(cells, reverse=True)[:count],
        "bodies": sorted(bodies, reverse=True)[:count],
        "formulas without an example": bare,
    }


def written(value, of=None):
    return f"{value:.0%} of {of}" if of else f"{value:g}"


def aim(low, high):
    if low is None and high is None:
        return ""
    if low == high:
        return f"{low:g}"
    return f"{low:g} to {high:g}" if None not in (low, high) else f"at least {low:g}" if high is None else f"at most {high:g}"


def main():
    found, worst = measures(), longest()
    rows = [(n, written(m["value"], m.get("of")), aim(m["low"], m["high"]), ANCHORS.get(n, "")) for n, m in found.items()]
    widths = [max(map(len, column)) for column in zip(("measure", "here", "kept", "elsewhere"), *rows, strict=True)]
    for row in (("measure", "here", "kept", "elsewhere"), *rows):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    for what, items in worst.items():
        print(f"\n{what}" + (", the longest" if items and isinstance(items[0], tuple) else f": {len(items)}"))
        print("\n".join(f"  {i[0]:4}  {i[1]}" if isinstance(i, tuple) else f"  {i}" for i in items))
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps({"measures": found, "longest": worst, "elsewhere": ANCHORS}, indent=1) + "\n", encoding="utf-8")
    for name in (left := outside(found)):
        print(f"\nOutside its range: {name}", file=sys.stderr)
    return len(left) > 0


if __name__ == "__main__":
    sys.exit(main())

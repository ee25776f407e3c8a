"""How large the library may grow and how long a page may be: each measure beside its limit, over is red. make limits

Code lines are those with code on them: docstrings, comments and blank lines do not count, data are no code. Minutes of a page are
computed from what a reader sees of it: 200 words a minute, 0.15 a line of code, half a minute a figure or table.
"""

import ast
import io
import re
import subprocess
import sys
import tokenize

import rooms

import workloads

ROOT = rooms.LIBRARY.parents[1]
sys.path.insert(0, str(ROOT / "book/_site"))
import content

LIMITS = {
    "code lines": 4500,
    "code lines of a module": 250,
    "public names": 320,
    "names at the front door": 30,
    "folders": 7,
    "fields of a class": 12,
    "parameters of a function": 7,
    "functions with more than 15 branches": 0,
    "public signatures without types": 0,
    "libraries of others": 0,
    "pages beyond the documents": 4,
    "minutes beyond the documents": 60,
    "minutes of a page": 15,
    "code lines before the first figure of a page": 30,
    "lines that draw, in a cell of a page": 8,
    "words about the sources, not about the subject": 0,
}
CLOSING = "book/flop-accounting/assumptions.ipynb"  # the page that compares with its source
SOURCES = re.compile(r"the document|the chapter|as printed|not printed", re.IGNORECASE)
SILENT = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


def code_lines(source):
    """Lines that hold code."""
    said, held = set(), set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node, clean=False) is not None:
            said |= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in SILENT:
            held |= set(range(token.start[0], token.end[0] + 1))
    return len(held - said)


def signature(function):
    """Parameters of a function but the first one of a method."""
    return [a for a in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs) if a.arg not in ("self", "cls")]


def branched():
    """Functions with more than 15 branches, as ruff counts them."""
    options = ["--isolated", "--select", "C901", "--config", "lint.mccabe.max-complexity=15", "--output-format", "concise"]
    done = subprocess.run([sys.executable, "-m", "ruff", "check", "--quiet", *options, rooms.LIBRARY], capture_output=True, text=True)
    return [line for line in done.stdout.splitlines() if "C901" in line]


def others(tree):
    """Libraries that a module imports, neither Python's nor this one."""
    found = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    found |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and not node.level and node.module}
    return {name.partition(".")[0] for name in found} - set(sys.stdlib_module_names) - {"workloads"}


def chapters():
    """The notebooks of the book that are no reference."""
    found = sorted((ROOT / "book").rglob("*.ipynb"))
    kept = [path for path in found if not {"reference", ".ipynb_checkpoints", "node_modules"} & set(path.parts)]
    return {path.relative_to(ROOT).as_posix(): content.page(path) for path in kept}


def drawing(cell):
    """Lines of a cell that draw on axes by hand: functions under ``@figure``."""
    functions = [f for f in ast.walk(content.parsed(cell.source)) if isinstance(f, ast.FunctionDef)]
    drawn = [f for f in functions if any("figure" in ast.unparse(d) for d in f.decorator_list)]
    return sum(f.end_lineno - f.lineno + 1 for f in drawn)


def read(page):
    """What a reader sees of a page: minutes, lines of code before the first figure, longest drawing, words about the sources."""
    code = [cell for cell in page.cells if cell.kind == "code"]
    first = next((i for i, cell in enumerate(code) if cell.shown("image/svg+xml")), len(code))
    before = sum(len(content.visible(cell)) for cell in code[: first + 1])
    return content.reading(page.cells), before, max(map(drawing, code), default=0), len(SOURCES.findall(page.markdown + page.said))


def measured():
    """{measure: (value, where it is largest or what it is)}."""
    sources = {path.relative_to(rooms.LIBRARY).as_posix(): path.read_text("utf-8") for path in sorted(rooms.LIBRARY.rglob("*.py"))}
    trees = {name: ast.parse(source) for name, source in sources.items()}
    lines = {name: code_lines(source) for name, source in sources.items()}
    nodes = [node for tree in trees.values() for node in ast.walk(tree)]
    classes = {n.name: sum(isinstance(part, ast.AnnAssign) for part in n.body) for n in nodes if isinstance(n, ast.ClassDef)}
    functions = [n for n in nodes if isinstance(n, ast.FunctionDef) and not n.name.startswith("_")]
    untyped = [f.name for f in functions if f.returns is None or not all(a.annotation for a in signature(f))]
    tops = [n for tree in trees.values() for n in tree.body if isinstance(n, (ast.FunctionDef, ast.ClassDef))]
    most = lambda counts: (max(counts.values()), max(counts, key=counts.get))
    listed = lambda found: (len(found), ", ".join(sorted(found)[:5]))
    pages = {name: read(page) for name, page in chapters().items()}
    voices = {name: page[3] for name, page in pages.items() if name != CLOSING}
    beyond = [page[0] for name, page in pages.items() if name.startswith("book/beyond/")]
    *PAGES, WORDS = list(LIMITS)[-4:]
    return {
        "code lines": (sum(lines.values()), ""),
        "code lines of a module": most(lines),
        "public names": (sum(not n.name.startswith("_") for n in tops), ""),
        "names at the front door": (len(workloads.__all__), ""),
        "folders": listed({name.partition("/")[0] for name in sources if "/" in name}),
        "fields of a class": most(classes),
        "parameters of a function": most({f.name: len(signature(f)) for f in functions}),
        "functions with more than 15 branches": listed(branched()),
        "public signatures without types": listed(untyped),
        "libraries of others": listed(set().union(*map(others, trees.values()))),
        "pages beyond the documents": (len(beyond), ""),
        "minutes beyond the documents": (sum(beyond), ""),
        **{measure: most({name: page[i] for name, page in pages.items()}) for i, measure in enumerate(PAGES)},
        WORDS: (sum(voices.values()), ", ".join(f"{name} {n}" for name, n in voices.items() if n)),
    }


def main():
    """Print every measure; whether one is over its limit."""
    found = measured()
    for measure, (value, where) in found.items():
        over, at = "OVER " if value > LIMITS[measure] else "", f" ({where})" if where else ""
        print(f"{over}{measure}: {round(value, 1):,} of at most {LIMITS[measure]:,}{at}")
    return any(value > LIMITS[measure] for measure, (value, _) in found.items())


if __name__ == "__main__":
    sys.exit(main())

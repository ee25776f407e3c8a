"""What the site offers to download opens, needs no other file, and runs in an empty folder: notebooks and starters."""

import ast
import json
import re
import subprocess
import sys

import nbformat
import pytest
from conftest import ROOT, SITE

sys.path.insert(0, str(ROOT / "book/_site"))
import assignment
import content
import notebooks

OFFERED = {p.relative_to(ROOT).as_posix(): p for p in notebooks.every_notebook()}
STARTERS = assignment.exercises()
# pages that between them use every package, every kind of output, and tables that come with the library
RUN = ["book/model-shapes", "book/benchmarks", "book/workloads/3-2-2", "book/workloads/3-6-2", "exercises/c-01/c-01", "exercises/3-07/3-07"]
ALLOWED = {"workloads", "workloads_book", "numpy", "scipy", "sympy"}
ALLOWED |= {
    "bisect",
    "collections",
    "copy",
    "dataclasses",
    "fractions",
    "functools",
    "itertools",
    "json",
    "math",
    "operator",
    "random",
    "statistics",
    "textwrap",
    "time",
}
FILES = {
    "open",
    "exec",
    "eval",
    "input",
    "__import__",
    "Path",
    "read_text",
    "read_bytes",
    "write_text",
    "loadtxt",
    "genfromtxt",
    "savefig",
    "urlopen",
}
READS = {"book/benchmarks.ipynb": ["pathlib", "Path", "read_text"]}  # a record that comes with the library
every = pytest.mark.parametrize("name", OFFERED)


def code(nb):
    return [
        assignment.source(c) for c in nb["cells"] if c["cell_type"] == "code" and notebooks.INSTALL not in c["metadata"].get("tags", [])
    ]


def needs(source):
    """What a cell needs beside the library and the packages of the list: other modules, files, commands of the shell."""
    yield from re.findall(r"^\s*[%!].*", source, re.MULTILINE)
    for node in ast.walk(content.parsed(source)):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.partition(".")[0] not in ALLOWED)
        elif isinstance(node, ast.ImportFrom) and (node.level or node.module.partition(".")[0] not in ALLOWED):
            yield node.module or "."
        elif isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            yield from {called} & FILES


@every
def test_a_notebook_needs_nothing_but_the_library_and_its_packages(name):
    nb = assignment.read(OFFERED[name])
    nbformat.validate(nb)
    assert sorted(found for source in code(nb) for found in needs(source)) == sorted(READS.get(name, []))


@pytest.mark.parametrize(
    "source, found",
    [
        ("import pandas", ["pandas"]),
        ("from . import helper", ["."]),
        ("import math, os.path", ["os.path"]),
        ("x = open('../data.csv')", ["open"]),
        ("numpy.loadtxt('a.txt')", ["loadtxt"]),
        ("%matplotlib inline\n!ls", ["%matplotlib inline", "!ls"]),
        ("import numpy as np\nfrom workloads_book.page import say", []),
    ],
)
def test_what_else_a_cell_needs_is_found(source, found):
    assert list(needs(source)) == found


@pytest.mark.parametrize("name", RUN)
def test_a_notebook_runs_in_an_empty_folder_and_shows_what_the_page_shows(name, tmp_path, monkeypatch):
    monkeypatch.delenv("PYTHONPATH", raising=False)
    stored = nbformat.read(OFFERED[f"{name}.ipynb"], as_version=4)
    fresh = notebooks.run(nbformat.from_dict(json.loads(json.dumps(stored))), tmp_path)
    assert notebooks.normalise(fresh).cells == stored.cells
    assert list(tmp_path.iterdir()) == []


FIRST_ERROR = """
import io, json, sys
from contextlib import redirect_stdout
for line in sys.stdin:
    name, cells = json.loads(line)
    names, found = {"__name__": name}, None
    for i, source in enumerate(cells):
        try:
            with redirect_stdout(io.StringIO()):
                exec(compile(source, name, "exec"), names)
        except BaseException as error:
            found = [i, type(error).__name__, str(error)]
            break
    print(json.dumps([name, found]), flush=True)
"""


@pytest.mark.skipif(not (SITE / "starters").is_dir(), reason="the site is not built: run `make book`")
def test_every_starter_opens_and_runs_up_to_its_first_hole(tmp_path):
    """Read from the site, run cell by cell in an empty folder: what stops it is the line that asks for an answer."""
    offered = {p.stem: assignment.read(p) for p in sorted((SITE / "starters").glob("*.ipynb"))}
    assert set(offered) == set(STARTERS)
    for nb in offered.values():
        nbformat.validate(nb)
    lines = "\n".join(json.dumps([name, code(nb)]) for name, nb in offered.items())
    run = subprocess.run([sys.executable, "-I", "-c", FIRST_ERROR], input=lines, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    ends = dict(map(json.loads, run.stdout.splitlines()))
    holes = {name: next(i for i, source in enumerate(code(nb)) if "YOUR CODE HERE" in source) for name, nb in offered.items()}
    assert ends == {name: [hole, "NotImplementedError", ""] for name, hole in holes.items()}, run.stderr
    assert list(tmp_path.iterdir()) == []

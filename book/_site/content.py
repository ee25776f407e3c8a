"""A page of the book as every tool sees it: read once, its text complete.

What a page builds on, what one can do after it, its exercises and the page that comes next stand once, in its metadata: under `workloads`
in a notebook, in the front matter of a Markdown page. `completed` puts them into the text, with the minutes that the page takes; the site,
the downloads, the live notebooks and the starters of exercises all get the text from there. Notebooks need nothing but Python.
"""

import ast
import json
import re
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import library

ROOT = Path(__file__).resolve().parents[2]
CHECKS = "application/vnd.workloads.checks+json"
WORDS = ("goals", "goal", "builds", "exercises", "next")  # of the metadata: what `completed` puts into the text
HIDDEN = {"hide-input", "remove-input", "hide-cell", "remove-cell"}
HEAD = re.compile(r"# .+(?:\n+\*\*.+(?:\n.+)*?\*\*(?=\n|$))?")  # the title, and a paragraph in bold
SOURCES = re.compile(r"^\*\*Sources:\*\*.*(?:\n.+)*", re.MULTILINE)
FRONT = re.compile(r"(?:---\n(.*?)\n---\n)?(.*)", re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]+)\.(?:ipynb|md)\)")


# ------------------------------------------------------------------------------------------------------------------------ cells and links
def source(cell):
    return cell["source"] if isinstance(cell["source"], str) else "".join(cell["source"])


def python(code):
    """The code of cells as Python alone: a command of the notebook, such as the `%pip` that installs the library, becomes `pass`."""
    return re.sub(r"^([ \t]*)[%!].*$", r"\1pass", code, flags=re.MULTILINE)


def parsed(code):
    """Syntax tree of a code cell; magics are left out."""
    return ast.parse(python(code))


def links(text, path, root=ROOT):
    """Names of the pages that a text links to, in a file at this path."""
    found = [target for target in LINK.findall(text) if ":" not in target]
    return [(path.parent / target).resolve().relative_to(root.resolve()).as_posix() for target in found]


class Cell(NamedTuple):
    """A cell: markdown, code or raw."""

    kind: str
    source: str
    metadata: dict
    outputs: list

    @property
    def tags(self):
        return set(self.metadata.get("tags", ()))

    def shown(self, kind="text/markdown"):
        """What its outputs hold of one MIME type."""
        found = (output["data"][kind] for output in self.outputs if kind in output.get("data", {}))
        return ["".join(data) if kind.startswith("text") else data for data in found]


def visible(cell):
    """The lines of code that a reader sees of a cell."""
    return [line for line in cell.source.splitlines() if line.strip()] if cell.kind == "code" and not cell.tags & HIDDEN else []


def _cells(nb):
    return tuple(Cell(c["cell_type"], source(c), c.get("metadata", {}), c.get("outputs", [])) for c in nb["cells"])


# ------------------------------------------------------------------------------------------------- what the metadata says, in the text
def reading(cells):
    """Minutes that a page takes: 200 words a minute, 0.15 for a visible line of code, 0.5 for a figure or a table."""
    words = lines = things = 0
    for cell in cells:
        if cell.kind == "markdown":
            words += len(cell.source.split())
            things += cell.source.count("\n|:")
        elif cell.kind == "code":
            lines += len(visible(cell))
            things += len(cell.shown("image/svg+xml"))
            for text in cell.shown():
                things += "|:--" in text or "|---" in text
                words += 0 if "|" in text else len(text.split())
    return words / 200 + 0.15 * lines + 0.5 * things


def minutes(cells):
    """The same as a page says it: whole, and at least one."""
    return max(1, round(reading(cells)))


def opening(words, length):
    """Goals, minutes and what the page builds on, as they stand below its title; `length` in minutes."""
    line = f"{length} minute{'s' * (length > 1)}." + (f" Builds on {words['builds']}." if "builds" in words else "")
    if "goal" in words:
        return f"*{line} Goal: {words['goal']}.*"
    return "After this page you can:\n\n" + ",\n".join(f"- {goal}" for goal in words["goals"]) + f".\n\n*{line}*"


def _put(nb, words, length):
    """The notebook with its opening and its closing lines, which stand around its sources, or at its end."""
    cells = [dict(cell) for cell in nb["cells"]]
    if "goals" in words or "goal" in words:
        text = source(cells[0])
        head = HEAD.match(text)
        if not head:
            raise ValueError(f"a page must begin with its title, got {text[:60]!r}")
        cells[0]["source"] = "\n\n".join(filter(None, (head[0], opening(words, length), text[head.end() :].strip())))
    before, after = ([f"**{name.title()}:** {words[name]}"] if name in words else [] for name in ("exercises", "next"))
    sources = next((cell for cell in cells if cell["cell_type"] == "markdown" and SOURCES.search(source(cell))), None)
    if sources:
        sources["source"] = SOURCES.sub(lambda m: "\n\n".join([*before, m[0], *after]), source(sources))
    elif before or after:
        cells.append({"cell_type": "markdown", "id": "closing", "metadata": {}, "source": "\n\n".join(before + after)})
    rest = {key: value for key, value in nb["metadata"]["workloads"].items() if key not in words}
    return {**nb, "cells": cells, "metadata": {**nb["metadata"], "workloads": rest}}


def completed(nb):
    """The notebook with what its metadata says in its text, and no longer in the metadata; one without such words as it is.

    An exercise, which has one goal, names its minutes; those of other pages are counted.
    """
    page = nb["metadata"].get("workloads", {})
    words = {key: page[key] for key in WORDS if key in page}
    if not words:
        return nb
    return _put(nb, words, page["minutes"] if "goal" in words else minutes(_cells(_put(nb, words, 0))))


def notebook(text):
    """A Markdown page as a notebook: its front block and the rest; of one without sections the title, a paragraph, the rest."""
    import yaml

    front, text = FRONT.match(text).groups()
    sections = re.split(r"(?m)^(?=## )", text.strip(), maxsplit=1)
    parts = sections if len(sections) > 1 else text.strip().split("\n\n", 2)
    return {
        "cells": [{"cell_type": "markdown", "metadata": {}, "source": part.strip()} for part in parts],
        "metadata": {"workloads": (yaml.safe_load(front or "") or {}).get("workloads", {})},
    }


def completed_text(text, suffix):
    """The text of a file, a notebook or a Markdown page by its suffix, with what its metadata says."""
    nb = json.loads(text) if suffix == ".ipynb" else notebook(text)
    made = completed(nb)
    if made is nb:
        return text
    if suffix == ".ipynb":
        return json.dumps(made, ensure_ascii=False, indent=1)
    front = FRONT.match(text)[1]
    return f"---\n{front}\n---\n" + "\n\n".join(map(source, made["cells"])) + "\n"


# -------------------------------------------------------------------------------------------------------------------------------- a page
class Page:
    """A page, made of a notebook as it is stored (`notebook` for Markdown) and the path of its file."""

    def __init__(self, nb, path=None, root=ROOT):
        self.path, self.root = path, root
        self.metadata = nb["metadata"].get("workloads", {})
        self.cells = _cells(completed(nb))

    @cached_property
    def front(self):
        """Its first Markdown cell, or what a Markdown page says before its first section."""
        return next((cell.source for cell in self.cells if cell.kind == "markdown"), "")

    @cached_property
    def markdown(self):
        return "\n\n".join(cell.source for cell in self.cells if cell.kind == "markdown")

    @cached_property
    def code(self):
        return "\n".join(cell.source for cell in self.cells if cell.kind == "code")

    @cached_property
    def said(self):
        """What its cells display as Markdown: computed sentences, tables, captions."""
        return "\n".join(text for cell in self.cells for text in cell.shown())

    @cached_property
    def records(self):
        """Checks and shown rows of the ledger, in the order of the page."""
        return [record for cell in self.cells for found in cell.shown(CHECKS) for record in found]

    @cached_property
    def names_used(self):
        """Full names of the book's two packages that its code uses."""
        return library.names_used(parsed(self.code))

    @cached_property
    def title(self):
        return re.search(r"^# (.*)", self.front, re.MULTILINE)[1]

    @property
    def minutes(self):
        """Minutes that it takes, as it says them; None for a page that one only looks things up in."""
        if "goal" in self.metadata:
            return self.metadata["minutes"]
        return minutes(self.cells) if "goals" in self.metadata else None

    def leads(self, key):
        """Names of the pages that a text of its metadata links to."""
        return links(self.metadata.get(key, ""), self.path, self.root)

    @property
    def links(self):
        """Names of all pages that its text links to."""
        return links(self.markdown, self.path, self.root)


READ = {}  # (file, root): its time and size when it was read, and the page


def page(path, root=ROOT):
    """The page of a file; read again only when the file has changed."""
    state = path.stat().st_mtime_ns, path.stat().st_size
    if READ.get((path, root), (None,))[0] != state:
        text = path.read_text(encoding="utf-8")
        READ[path, root] = state, Page(json.loads(text) if path.suffix == ".ipynb" else notebook(text), path, root)
    return READ[path, root][1]

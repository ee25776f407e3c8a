"""The site of a class: starters where the book has solved exercises; `class_site.py` builds it into _build/class/_build/html.

The pages show the outputs that the notebooks store; nothing runs. At the end the built site is searched for the solutions.
"""

import argparse
import html
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from functools import cache
from pathlib import Path

import assignment
import packing

from workloads.facts.accelerators import accelerators
from workloads.facts.models import models

ROOT = assignment.ROOT
KEPT = ("_config.yml", "_toc.yml", "CITATION.cff", "book", "lib")
LEFT_OUT = shutil.ignore_patterns("node_modules", "__pycache__", ".ipynb_checkpoints", "*.egg-info", "answers.toml")
OTHERS = re.compile(r"(?!workloads).*-none-any\.whl|python_stdlib\.zip")  # archives of packages that know nothing of this book
SHINGLE = 8  # words in a row that count as a copy
NAMES = sorted((re.escape(name.lower()) for name in (*models(), *accelerators())), key=len, reverse=True)
# one word: a name of the tables (in code and in prose the same ones stand side by side), a number, an id, "4,096", "3.35"
WORD = re.compile("|".join([*NAMES, r"[a-z0-9_]+(?:[-.,'’][a-z0-9_]+)*"]))


def page(nb):
    """An exercise as a page of the class: its starter, with the tables of given figures that the book shows."""
    made = assignment.starter(nb)
    for cell, stored in zip(made["cells"], nb["cells"]):
        if assignment.source(cell).startswith("given("):
            cell["outputs"] = stored["outputs"]
        if "hide-cell" in cell["metadata"].get("tags", []):
            cell["metadata"]["tags"] = [t for t in cell["metadata"]["tags"] if t != "hide-cell"]
    return made


def copied(root, target):
    """The tree of the class's book: everything but the solved exercises and what the ledger says of them."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for name in KEPT:
        source = root / name
        shutil.copytree(source, target / name, ignore=LEFT_OUT) if source.is_dir() else shutil.copy(source, target / name)
    ledger = target / "lib" / packing.LEDGER
    ledger.write_text(packing.without_solutions(ledger.read_text(encoding="utf-8"), root), encoding="utf-8")
    modules = root / "book/_site/node_modules"
    if modules.is_dir():
        (target / "book/_site/node_modules").symlink_to(modules.resolve())
    for name, path in assignment.exercises(root).items():
        assignment.write(page(assignment.read(path)), target / f"exercises/{name}/{name}.ipynb")
    if (root / "_build/lite").is_dir():  # live notebooks hold chapters and starters
        (target / "_build").mkdir()
        (target / "_build/lite").symlink_to((root / "_build/lite").resolve())
    config = target / "_config.yml"
    text, changed = re.subn(r"execute_notebooks: \w+", 'execute_notebooks: "off"', config.read_text(encoding="utf-8"))
    if not changed:
        raise ValueError("_config.yml: no line execute_notebooks")
    config.write_text(text, encoding="utf-8")
    return target


def words(text):
    return [word.replace(" ", "-") for word in WORD.findall(text.lower())]


def telling(run):
    """Whether words in a row say something: four different ones, two of them with letters; rows of figures stand in many tables."""
    return len(set(run)) >= 4 and sum(bool(re.search("[a-z]{2}", word)) for word in run) >= 2


def shingles(text):
    found = words(text)
    runs = (found[i : i + SHINGLE] for i in range(len(found) - SHINGLE + 1))
    return {" ".join(run) for run in runs if telling(run)}


def hidden(nb):
    """Texts that a starter lacks: solution regions, hidden tests, reference answers."""
    for cell, made in zip(nb["cells"], assignment.starter(nb)["cells"]):
        text, left = assignment.source(cell), set(assignment.source(made).split("\n"))
        if text != assignment.source(made):
            yield "\n".join(line for line in text.split("\n") if line not in left and not line.startswith(("###", "from ", "import ", "<")))


def texts(site):
    """(name, text) of all files of a built site, and of what its archives hold."""
    for path in sorted(p for p in site.rglob("*") if p.is_file()):
        if OTHERS.fullmatch(path.name):
            continue
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as packed:
                yield from ((f"{path.name}: {name}", packed.read(name).decode("utf-8", "replace")) for name in packed.namelist())
        else:
            yield path.relative_to(site).as_posix(), path.read_bytes().decode("utf-8", "replace")


def plain(name, text):
    if name.endswith(".html"):
        return html.unescape(re.sub(r"<[^>]*>", " ", re.sub(r"</?span[^>]*>", "", text)))
    if name.endswith(".ipynb"):
        nb = json.loads(text)
        return "\n".join([assignment.source(c) for c in nb["cells"]] + [json.dumps(c.get("outputs", "")) for c in nb["cells"]])
    return text.replace("\\n", "\n")


@cache
def secrets(root=ROOT):
    """Runs of words of the solutions that stand in no chapter, no starter and not in the library with its hints."""
    solved = [assignment.read(path) for path in assignment.exercises(root).values()]
    public = [plain(p.name, p.read_text(encoding="utf-8")) for p in (root / "book").rglob("*.ipynb") if "node_modules" not in p.parts]
    public += [data.decode() for package in packing.PROJECTS for data in packing.files(package).values()]
    public += ["\n".join(map(assignment.source, page(nb)["cells"])) for nb in solved]
    return set().union(*(shingles(text) for nb in solved for text in hidden(nb))) - set().union(*map(shingles, public))


@cache
def _first_words():
    return {text.partition(" ")[0] for text in secrets()}


def copies(text):
    """The solution texts that stand in a text."""
    found = words(text)
    runs = (" ".join(found[i : i + SHINGLE]) for i, word in enumerate(found) if word in _first_words())
    return sorted({run for run in runs if run in secrets()})


@cache
def hidden_rows(root=ROOT):
    """Formulas of the ledger's rows that only solutions compute, and their ids as a ledger writes them."""
    text = (root / "lib" / packing.LEDGER).read_text(encoding="utf-8")
    kept = json.loads(packing.without_solutions(text, root))
    known, shown = {row["id"] for row in kept}, {row["formula"] for row in kept}
    rows = [row for row in json.loads(text) if row["id"] not in known]
    formulas = {row["formula"] for row in rows if row["formula"]} - shown
    return {f'"id": "{row["id"]}"' for row in rows} | {f'"formula": {json.dumps(formula)}' for formula in formulas}


def leaks(site):
    """{file: texts of solutions and rows of the ledger found in it} for the files of a built site."""
    found = ((name, text, copies(plain(name, text))) for name, text in texts(site))
    return {name: those for name, text, runs in found if (those := runs + sorted(row for row in hidden_rows() if row in text))}


def run(command, target):
    """A program on the copied tree, which sees the class's ledger; what it says where it fails."""
    environment = os.environ | {"PYTHONPATH": str(target / "lib")}
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, cwd=target, env=environment)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)


def build(target):
    """Run Sphinx on the copied tree; the folder of the site."""
    run([Path(sys.executable).with_name("jupyter-book"), "build", target, "-W", "-n", "--keep-going", "--quiet"], target)
    return target / "_build/html"


def exercises_alone(target):
    """The pages of the exercises alone, in a fraction of the time: a class's other pages are those of the book; their folder."""
    run([sys.executable, target / "book/_site/page.py", *sorted(target.glob("exercises/*/*.ipynb"))], target)
    return target / "_build/page/html"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", type=Path, default=ROOT / "_build/class")
    a = parser.parse_args()
    site = build(copied(ROOT, a.target.resolve()))
    if found := leaks(site):
        sys.exit("the site of the class holds solutions: " + "; ".join(f"{name}: {texts[0]!r}" for name, texts in found.items()))
    print(f"The site of the class: {site / 'book/index.html'}")


if __name__ == "__main__":
    main()

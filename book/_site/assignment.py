"""Make what students get: `assignment.py 3-02 3-04 --course FOLDER --name NAME` writes FOLDER/source/NAME and FOLDER/release/NAME.

With `--variant` the numbers of the exercises are others (see `variants.py`): with any word the same ones for the whole class, with a file
of names, one a line, others for each, in FOLDER/handed-out/NAME/<person>. It needs the packages of the book.

A starter is the solved notebook minus its holes: solution regions become stubs, hidden tests and outputs go. The result equals
that of nbgrader's generate_assignment, checksums included, and needs nothing but Python. Beside the starters lie the wheels of the book's
two packages, without what only solutions compute. `source` is for the one who grades.
"""

import argparse
import base64
import copy
import hashlib
import json
import re
import sys
import zlib
from pathlib import Path

import packing
from content import completed, source

ROOT = Path(__file__).resolve().parents[2]
CODE_STUB = "# YOUR CODE HERE\nraise NotImplementedError()"
TEXT_STUB = "YOUR ANSWER HERE"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
README = """# {name}

Exercises: {exercises}. Each notebook names the pages of the book it builds on.

The notebooks need Python 3.11 or newer, Jupyter, NumPy, SymPy, Matplotlib, and the book's packages that lie beside them: `pip install
*.whl` in this folder. Write your code where it says `YOUR CODE HERE` and your text where it says
`YOUR ANSWER HERE`; leave the other cells as they are. `answer(...)` tells you whether a number is right, or what may have gone wrong.
Before you hand in: restart the kernel, run all cells, save. Hand in the notebooks under the names they have.
"""


def exercises(root=ROOT):
    """{id: path of the solved notebook} of all exercises."""
    return {p.stem: p for p in sorted(root.glob("exercises/*/*.ipynb")) if p.stem == p.parent.name}


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def write(nb, path):
    """Store a notebook in the form that nbformat writes."""
    nb = copy.deepcopy(nb)
    for cell in nb["cells"]:
        cell["source"] = cell["source"].splitlines(keepends=True) if isinstance(cell["source"], str) else cell["source"]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(nb, indent=1, sort_keys=True, ensure_ascii=False, separators=(",", ": ")) + "\n", encoding="utf-8")


def role(cell, name):
    return bool(cell["metadata"].get("nbgrader", {}).get(name))


def locked(cell):
    """Whether a grader puts the cell's own text back: tests, and other cells marked so, but no solutions."""
    return not role(cell, "solution") and (role(cell, "grade") or role(cell, "locked"))


def without(text, begin, end, stub=()):
    """The text with each region between two markers replaced by the lines of a stub, and the number of regions."""
    lines, inside, found = [], False, 0
    for line in text.split("\n"):
        if begin in line:
            if inside:
                raise ValueError(f"{begin} stands within {begin}: {text[:80]!r}")
            inside, found = True, found + 1
            lines += [re.match(r"\s*", line)[0] + s for s in stub]
        elif end in line:
            inside = False
        elif not inside:
            lines.append(line)
    if inside:
        raise ValueError(f"{begin} has no {end}: {text[:80]!r}")
    return "\n".join(lines), found


def checksum(cell):
    """nbgrader's checksum of a cell: its text, type, roles, id and points."""
    parts = [
        source(cell),
        cell["cell_type"],
        str(role(cell, "grade")),
        str(role(cell, "solution")),
        str(locked(cell)),
        cell["metadata"]["nbgrader"]["grade_id"],
    ]
    if role(cell, "grade"):
        parts.append(str(float(cell["metadata"]["nbgrader"]["points"])))
    return hashlib.md5("".join(parts).encode(), usedforsecurity=False).hexdigest()


def starter_cell(cell):
    """A cell as the student gets it."""
    cell = copy.deepcopy(cell)
    code = cell["cell_type"] == "code"
    text, solutions = without(source(cell), "BEGIN SOLUTION", "END SOLUTION", (CODE_STUB if code else TEXT_STUB).split("\n"))
    if solutions and not role(cell, "solution"):
        raise ValueError(f"a solution stands in a cell that is not marked as one: {text[:80]!r}")
    if role(cell, "solution") and not solutions:
        text = CODE_STUB if code else TEXT_STUB
    text, tests = without(text, "BEGIN HIDDEN TESTS", "END HIDDEN TESTS")
    if tests and not role(cell, "grade"):
        raise ValueError(f"hidden tests stand in a cell that is not graded: {text[:80]!r}")
    cell["source"] = text
    if code:
        cell["outputs"], cell["execution_count"] = [], None
    if role(cell, "solution") or locked(cell):
        cell["metadata"]["deletable"] = False
        if locked(cell):
            cell["metadata"]["editable"] = False
        cell["metadata"]["nbgrader"] |= {"checksum": checksum(cell), "cell_type": cell["cell_type"]}
    return cell


def starter(nb):
    """The starter of a solved notebook; a starter stays as it is."""
    if any("checksum" in cell["metadata"].get("nbgrader", {}) for cell in nb["cells"]):
        return nb
    return {**copy.deepcopy(nb), "cells": [starter_cell(cell) for cell in nb["cells"]]}


def handed_out(path):
    """The starter of an exercise with all its text, as it leaves the book."""
    return starter(completed(read(path)))


def without_digests(nb, path):
    """The notebook of a variant, with units alone if the teacher wants no hints: whoever tries all values would find the digests out."""
    for cell in nb["cells"] if (path.parents[1] / "no-hints").exists() else ():
        if cell.get("id") == "variant":
            text = source(cell)
            packed = re.search(r"'([\w+/=]{20,})'", text)[1]
            entries = json.loads(zlib.decompress(base64.b64decode(packed)))
            units = json.dumps({name: {"unit": entry["unit"]} for name, entry in entries.items()})
            cell["source"] = text.replace(packed, base64.b64encode(zlib.compress(units.encode(), 9)).decode())
    return nb


def chosen(names, root=ROOT):
    """{id: path} of the named exercises; an unknown one is an error that lists them all."""
    known = exercises(root)
    if not names:
        raise ValueError(f"exercises: name at least one of {', '.join(known)}")
    if unknown := [n for n in names if n not in known]:
        raise ValueError(f"exercises: {', '.join(unknown)} unknown; there are {', '.join(known)}")
    return {n: known[n] for n in dict.fromkeys(names)}


def variants_of(course, name):
    """{identity: person} of the variants of an assignment, "" for a whole class; empty where its numbers are the printed ones."""
    table = course / "variants" / name / "people.json"
    return read(table) if table.exists() else {}


def assign(names, course, name="assignment", root=ROOT):
    """Write the solved notebooks into course/source/name and the starters into course/release/name; the latter's path.

    Where a class has numbers of its own, the notebooks are those of its variant.
    """
    if not NAME.fullmatch(name):
        raise ValueError(f"name must be letters, digits, '-', '_' and '.', got {name!r}")
    paths, release, made = chosen(names, root), course / "release" / name, variants_of(course, name)
    if "" in made.values():
        own = course / "variants" / name / next(iter(made))
        if unknown := [e for e in paths if not (own / f"{e}.ipynb").exists()]:
            raise ValueError(f"{name} was handed out with numbers of its own, without {', '.join(unknown)}; choose another name")
        paths = {e: own / f"{e}.ipynb" for e in paths}
    for folder in (course / "source" / name, release):
        for old in folder.glob("*.ipynb"):
            old.unlink()
    for exercise, path in paths.items():
        write(without_digests(completed(read(path)), path), course / "source" / name / f"{exercise}.ipynb")
        write(without_digests(handed_out(path), path), release / f"{exercise}.ipynb")
    beside(release, name, paths)
    return release


def beside(folder, name, exercises):
    """Wheels and a page that says what to do, in a folder to hand out."""
    for old in folder.glob("*.whl"):
        old.unlink()
    for wheel, data in packing.wheels().items():
        (folder / wheel).write_bytes(data)
    (folder / "README.md").write_text(README.format(name=name, exercises=", ".join(exercises)), encoding="utf-8")


def assign_variants(names, course, name, variant, hints=True):
    """The same with other numbers: by a word for a class, or by a file of names for each person; the path to hand out.

    Without hints `answer` says nothing but the unit.
    """
    import platforms
    import variants

    roster = Path(variant).expanduser()
    lines = platforms.rows(roster)[0] if roster.is_file() else []
    people = list(dict.fromkeys(line[0].strip() for line in lines if line and line[0].strip()))
    if odd := [p for p in people if "/" in p or p.startswith(".")]:
        raise ValueError(f"{roster.name}: {odd[0]!r} can't name a folder")
    variants.make(names, course, name, people, variant)
    quiet = course / "variants" / name / "no-hints"
    quiet.unlink(missing_ok=True) if hints else quiet.touch()
    if not people:
        return assign(names, course, name)
    folder = course / "handed-out" / name
    for identity, person in variants_of(course, name).items():
        for path in sorted((course / "variants" / name / identity).glob("*.ipynb")):
            write(without_digests(handed_out(path), path), folder / person / path.name)
    beside(folder, name, names)
    return folder


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("exercises", nargs="*")
    parser.add_argument("--course", type=Path, default=ROOT / "_grading")
    parser.add_argument("--name", default="assignment")
    parser.add_argument("--variant", default="", help="numbers of its own: a word for the class, or a file with a name a line")
    parser.add_argument("--no-hints", action="store_true", help="with --variant: `answer` says nothing but the unit")
    a = parser.parse_args()
    course = a.course.expanduser()
    try:
        if a.no_hints and not a.variant:
            raise ValueError("HINTS=no goes with VARIANT=: the digests of the printed numbers are in the library")
        release = (
            assign(a.exercises, course, a.name)
            if not a.variant
            else assign_variants(a.exercises, course, a.name, a.variant, not a.no_hints)
        )
    except ValueError as error:
        sys.exit(f"assignment: {error}")
    print(f"To hand out: {release}")


if __name__ == "__main__":
    main()

"""What students handed in, as browsers and learning platforms leave it, becomes notebooks that can be graded.

A student is a folder, a zip file or, in Canvas's download, all files that begin alike; `students` finds them and gives them names that
nbgrader can hold. `matched` finds each exercise's notebook by what it holds, or else by its name. `restored` puts back what was locked.
"""

import difflib
import hashlib
import json
import os
import re
import shutil
import unicodedata
import zipfile
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import assignment

LARGEST = 8 * 2**20  # bytes of a notebook that is looked at, and of all files beside it that it may read
MOST = 500  # files of a student, and cells of a notebook, that are looked at
# as Canvas packs them: the name in small letters (or anon), LATE, the person's id, the file's id, the file's name
CANVAS = re.compile(r"(?P<who>\w+?)(?:_LATE)?_(?P<user>\d+|(?<=anon_)[a-z0-9]+|(?<=anon_LATE_)[a-z0-9]+)_\d+_(?P<file>.+)", re.IGNORECASE)
MOODLE = re.compile(r"(?P<who>.+)_(?P<user>\d+)_assignsubmission_(?:file|onlinetext)_?")
COPY = re.compile(r"(?i)^copy of |( copy)?[ _-]*\(\d+\)$|[ _-]+copy[ _-]*\d*$|[-_ ]\d{1,2}$")
PASSED = {"__MACOSX", ".ipynb_checkpoints"}


@dataclass
class Student:
    """One who handed in: the id in the gradebook, the name as it came, the folders, and the id of a learning platform."""

    id: str
    name: str
    places: list
    canvas: str = ""
    moodle: str = ""


@dataclass
class Report:
    """What was noticed about one notebook before and while it ran; points and reasons of its tests."""

    refused: str = ""
    missing: list = field(default_factory=list)  # graded cells that were removed
    notes: list = field(default_factory=list)
    judged: dict = field(default_factory=dict)  # {test: [points, reason]}


# ------------------------------------------------------------------------------------------------------------------------ students
def _short(name):
    return hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:6]


def plain(name):
    """A name of letters, digits and . _ - @ for the gradebook; a name made of them stays as it is.

    Example:
        >>> plain("O'Name, Ann"), plain("student-a")
        ('O-Name-Ann', 'student-a')
    """
    made = re.sub(r"[^\w.@-]+", "-", unicodedata.normalize("NFC", name.encode("utf-8", "replace").decode())).strip("-.")
    return made if re.match(r"\w", made) else f"student-{_short(name)}"


def _who(name):
    """(id, name of the person, id on Moodle) by the name of a folder or a zip."""
    found = MOODLE.fullmatch(unicodedata.normalize("NFC", name))
    return (plain(f"{found['who']}_{found['user']}"), found["who"], found["user"]) if found else (plain(name), name, "")


def unpacked(archive, into, times=1):
    """Write the plain files of a zip below a folder; a name that leads elsewhere, too many or too large files are left out.

    With `times` as many and as large files as that many people may hand in.
    """
    with zipfile.ZipFile(archive) as packed:
        left = 8 * LARGEST * times
        for member in packed.infolist()[: MOST * times]:
            path = PurePosixPath(member.filename)
            if member.is_dir() or path.is_absolute() or {"..", *PASSED} & set(path.parts) or "\0" in member.filename:
                continue
            if (left := left - member.file_size) < 0:
                raise ValueError(f"{archive.name}: its files are larger than {8 * LARGEST * times:,} bytes")
            target = into.joinpath(*path.parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(packed.read(member))


def unpacked_download(path, into):
    """The folder of submissions: the one given, or what a platform's zip of the whole class holds."""
    if not path.is_file() or not zipfile.is_zipfile(path):
        return path
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    unpacked(path, into, times=1000)
    return into


def students(folder, into):
    """({id: Student}, names that belong to nobody) of a folder of submissions; what is packed is unpacked below ``into``."""
    if not folder.is_dir():
        raise ValueError(f"submissions must be a folder with one folder a student, or a platform's zip, got {folder}")
    shutil.rmtree(into, ignore_errors=True)
    found, passed = {}, []

    def student(key, identity, name, **platform):
        return found.setdefault(key, Student(identity, name, [], **platform))

    for path in sorted(folder.iterdir()):
        if path.is_symlink() or path.name.startswith((".", "~$")) or path.name in PASSED:
            continue
        canvas = CANVAS.fullmatch(path.name) if path.is_file() else None
        packed = path.is_file() and path.suffix.lower() == ".zip" and zipfile.is_zipfile(path)
        if path.is_dir():
            identity, name, moodle = _who(path.name)
            student(path.name, identity, name, moodle=moodle).places.append(path)
        elif canvas:
            key = f"{canvas['who']}_{canvas['user']}"
            one = student(key, plain(key), canvas["who"], canvas=canvas["user"])
            place = into / one.id
            place.mkdir(parents=True, exist_ok=True)
            if packed:
                _unpack(path, place)
            else:
                shutil.copyfile(path, place / canvas["file"])
            one.places = [place]
        elif packed:
            identity, name, moodle = _who(path.stem)
            one = student(path.stem, identity, name, moodle=moodle)
            _unpack(path, into / one.id)
            one.places.append(into / one.id)
        else:
            passed.append(path.name)
    for one in found.values():
        inner = [p for place in one.places for p in sorted(place.glob("*.zip")) if p.is_file() and not p.is_symlink()]
        for number, path in enumerate(inner):
            _unpack(path, into / f"{one.id}-zip" / str(number))
        if inner:
            one.places.append(into / f"{one.id}-zip")
    if not found:
        raise ValueError(f"submissions: {folder} holds no folder, zip file or Canvas file of a student")
    ids = [one.id for one in found.values()]
    for key, one in found.items():
        if ids.count(one.id) > 1:  # two names that differ only in signs which the gradebook can't hold
            one.id = f"{one.id}-{_short(key)}"
    return {one.id: one for one in found.values()}, passed


def _unpack(path, into):
    try:
        unpacked(path, into)
    except (ValueError, OSError, RuntimeError, NotImplementedError, zipfile.BadZipFile) as error:  # one bad zip stops nobody
        into.mkdir(parents=True, exist_ok=True)
        (into / "unreadable.txt").write_text(f"{path.name}: {error}", encoding="utf-8", errors="replace")


# ----------------------------------------------------------------------------------------------------------------------- notebooks
def files(places):
    """Paths of the files below the folders, nearest first; links to folders are not followed."""
    found = []
    for top in places:
        for place, folders, names in os.walk(top, followlinks=False):
            folders[:] = sorted(f for f in folders if f not in PASSED)
            found += [(len(Path(place).relative_to(top).parts), Path(place, n)) for n in sorted(names) if not n.startswith(".")]
            if len(found) > MOST:
                break
    return [path for _, path in sorted(found[:MOST], key=lambda pair: pair[0])]


def notebook(path):
    """(notebook, why not)."""
    if path.is_symlink() or not path.is_file():
        return None, "not a file of its own"
    if path.stat().st_size > LARGEST:
        return None, f"larger than {LARGEST:,} bytes"
    try:
        nb = json.loads(path.read_bytes())
        if nb["nbformat"] != 4 or not all(isinstance(assignment.source(c), str) and isinstance(c["metadata"], dict) for c in nb["cells"]):
            raise ValueError("cells")
    except (ValueError, KeyError, TypeError, RecursionError, OSError):
        return None, "not a notebook (nbformat 4)"
    return nb, ""


def _id(cell):
    grading = cell["metadata"].get("nbgrader")
    name = grading.get("grade_id") if isinstance(grading, dict) else None
    return name if isinstance(name, str) else None


def _title(nb):
    return next((line.strip() for c in nb["cells"][:3] for line in assignment.source(c).splitlines() if line.startswith("# ")), "")


def _stem(name):
    """A file's name without ending, case and what a second download appends.

    Example:
        >>> _stem("3-02 (1).ipynb"), _stem("3-04-1.ipynb"), _stem("Copy of F-05.ipynb")
        ('3-02', '3-04', 'f-05')
    """
    stem = unicodedata.normalize("NFC", name).strip().removesuffix(".ipynb").strip()
    canvas = CANVAS.fullmatch(stem)
    stem = canvas["file"] if canvas else stem
    once = COPY.sub("", stem, count=1)
    return next((s for s in (stem, once, COPY.sub("", once, count=1)) if re.fullmatch(r"[A-Za-z]+-\d+|\d+-\d+", s)), stem).lower()


def belongs(path, nb, starters):
    """The exercise that a notebook answers: most of its graded cells, its title, or the file's name say so; None if nothing does."""
    if nb:
        own = {_id(c) for c in nb["cells"]}
        counts = {e: len(own & {_id(c) for c in s["cells"]} - {None}) for e, s in starters.items()}
        best = [e for e, n in counts.items() if n and n == max(counts.values())]
        if len(best) == 1:
            return best[0]
        if titled := [e for e, s in starters.items() if _title(s) and _title(nb) == _title(s)]:
            return titled[0]
    return next((e for e in starters if _stem(path.name) in (e.lower(), e.lower().replace("-0", "-"))), None)


def matched(places, starters):
    """{exercise: (path, notebook, why not, notes)}; exercise None holds the names of notebooks that answer none."""
    found, strangers = {}, []
    for path in files(places):
        if path.suffix.lower() != ".ipynb":
            continue
        nb, why = notebook(path)
        exercise = belongs(path, nb, starters)
        if exercise is None:
            strangers.append(path.name)
        else:
            found.setdefault(exercise, []).append((path, nb, why))
    chosen = {}
    for exercise, those in found.items():
        those.sort(key=lambda t: (t[1] is None, t[0].name != f"{exercise}.ipynb"))  # stable: the nearest to the top stays first
        (path, nb, why), others = those[0], those[1:]
        names = [f"{p.parent.name}/{p.name}" for p, other, _ in others if other != nb]
        notes = [f"{path.parent.name}/{path.name} was graded, not {', '.join(names)}"] if names else []
        if path.name != f"{exercise}.ipynb":
            notes.insert(0, f"handed in as {path.name}")
        chosen[exercise] = path, nb, why, notes
    return chosen, strangers


def beside(path):
    """{name: bytes} of the plain files in a notebook's folder, which it may read when it runs; together at most so large as a notebook."""
    found, left = {}, LARGEST
    for other in sorted(path.parent.iterdir())[:MOST]:
        if other.suffix.lower() in (".ipynb", ".zip") or other.name.startswith(".") or other.is_symlink() or not other.is_file():
            continue
        if (left := left - other.stat().st_size) < 0:
            break
        found[other.name] = other.read_bytes()
    return found


# ------------------------------------------------------------------------------------------------------------------------- restored
def harmless(text):
    """Markdown in which no markup and no command of a formula can act: nbgrader's form grader shows it in the teacher's session."""
    text = re.sub(r"<(?=[A-Za-z/!?])", "&lt;", text)
    return re.sub(r"\\(?=(href|require|style|cssId|class|html\w*|unicode|def|let|newcommand)\b)", r"\\ ", text)


def _words(cell):
    return " ".join(assignment.source(cell).split())


def by_text(cells, starter, names):
    """{index: cell of the starter} where cells have lost their ids: tests by their text, answers by the cells around them."""
    wanted = starter["cells"]
    free = {i for i in range(len(cells)) if names[i] is None}
    lost = {i for i, c in enumerate(wanted) if (n := _id(c)) and n not in names}
    if not lost or not free or len(cells) > MOST:
        return {}
    # an id that is left, or the same text, ties a cell to its original; what lies between two such ties belongs together
    ours = [n or _words(c) for n, c in zip(names, cells)]
    theirs = [n if (n := _id(c)) in names else _words(c) for c in wanted]
    blocks = difflib.SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes()
    found = {}
    for what, a, b, c, d in blocks:
        if what == "equal":
            found |= {i: wanted[j] for i, j in zip(range(a, b), range(c, d)) if i in free and j in lost}
        elif what == "replace":
            for kind in ("code", "markdown"):
                here = [i for i in range(a, b) if i in free and cells[i].get("cell_type") == kind]
                there = [j for j in range(c, d) if wanted[j]["cell_type"] == kind]
                if len(here) == len(there):
                    found |= {i: wanted[j] for i, j in zip(here, there) if j in lost and not assignment.locked(wanted[j])}
                elif here and len(there) == 1 and there[0] in lost and not assignment.locked(wanted[there[0]]):
                    found[max(here, key=lambda i: len(ours[i]))] = wanted[there[0]]
    return found


def restored(nb, starter):
    """(notebook, report): the student's cells in their order; type, roles and locked text of graded cells as they were handed out."""
    known = {_id(c): c for c in starter["cells"] if _id(c)}
    handed_out = {c["source"].strip() for c in starter["cells"]}
    report, cells, names = Report(), [], []
    kept = [c for c in nb["cells"] if c.get("cell_type") in ("code", "markdown", "raw") or _id(c) in known]
    for cell in kept:
        names.append(_id(cell) if _id(cell) in known and _id(cell) not in names else None)
    tied = by_text(kept, starter, names)
    for i, cell in enumerate(kept):
        original = known[names[i]] if names[i] else tied.get(i)
        kind, text = cell.get("cell_type"), assignment.source(cell).encode("utf-8", "replace").decode()
        if original:
            if assignment.locked(original) and (text.strip() != original["source"].strip() or kind != original["cell_type"]):
                report.notes.append(f"{_id(original)}: the text of the test was changed; put back")
                text = original["source"]
            kind = original["cell_type"]
        if kind != "code" and text.strip() not in handed_out:
            text = harmless(text)
        new = {"cell_type": kind, "id": f"cell-{i}", "metadata": dict(original["metadata"]) if original else {}, "source": text}
        cells.append(new | {"outputs": [], "execution_count": None} if kind == "code" else new)
    there = {_id(c) for c in cells}
    if tied:
        report.notes.append(f"{len(tied)} graded cells had lost their names and were found by their text or place")
    report.missing = [n for n, c in known.items() if assignment.role(c, "grade") and n not in there]
    report.notes += [f"{n}: the cell was removed; no points" for n in report.missing]
    return {
        "cells": cells,
        "metadata": {k: starter["metadata"][k] for k in ("kernelspec", "language_info") if k in starter["metadata"]},
        "nbformat": 4,
        "nbformat_minor": 5,
    }, report

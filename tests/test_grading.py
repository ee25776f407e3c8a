"""Grading end to end with nbgrader: marks, reasons, feedback; hostile submissions; what the sandbox keeps in."""

import copy
import csv
import hashlib
import re
import shutil
import subprocess
import sys

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "book/_site"))
import assignment
import grade
import sandbox

PYTHON = ROOT / ".venv-grading/bin/python"
EXERCISE, FIRST = "3-04", "3-04-tools"
SOURCE = assignment.read(assignment.exercises()[EXERCISE])
STARTER = assignment.starter(SOURCE)
NAMES = {c["metadata"]["nbgrader"]["grade_id"]: c for c in SOURCE["cells"] if "nbgrader" in c["metadata"]}
TESTS = [n for n, c in NAMES.items() if assignment.locked(c)]
POINTS = {n: c["metadata"]["nbgrader"]["points"] for n, c in NAMES.items() if assignment.role(c, "grade")}
TEXT = "One state waits for $t_a + t_b$ <script>alert(1)</script> at once."
needs_nbgrader = pytest.mark.skipif(not PYTHON.exists(), reason="nbgrader is not installed: `make test` or `make grade` does it")
boxed = pytest.mark.skipif(not sandbox.boxes(), reason="bubblewrap is missing or may not work here (Debian: apt-get install bubblewrap)")


def solved(only=None, **own):
    """The starter with the cells of the solution filled in (all, or those named), some of them by other code."""
    nb = copy.deepcopy(STARTER)
    for cell in nb["cells"]:
        name = cell["metadata"].get("nbgrader", {}).get("grade_id")
        if name in own:
            cell["source"] = own[name]
        elif name in NAMES and assignment.role(cell, "solution") and (only is None or name in only):
            cell["source"] = assignment.source(NAMES[name]) if cell["cell_type"] == "code" else TEXT
    return nb


def attack(text):
    """A submission whose first answer is an attack; the rest is as handed out."""
    return solved((), **{FIRST: text})


def tree(folder, *without):
    """{path: digest} of the files below a folder."""
    return {
        p.relative_to(folder): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in folder.rglob("*")
        if p.is_file() and not set(p.parts) & set(without)
    }


def run(*arguments):
    return subprocess.run(
        [PYTHON, ROOT / "book/_site/grade.py", *map(str, arguments)], capture_output=True, text=True, cwd=ROOT, timeout=600
    )


def table(path):
    with path.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def marks(course):
    return {line["student"]: line for line in table(course / "marks.csv")}


def comments(course, student):
    return {line["question"]: line["comment"] for line in table(course / "questions.csv") if line["student"] == student}


WRITER = """
from pathlib import Path
for place in ({course!r} + "/gradebook.db", {folder!r} + "/correct/3-04.ipynb", {folder!r} + "/new.txt"):
    Path(place).write_text("mine")
"""


def hand_in(folder, course):
    """One folder a student."""

    def put(student, nb, name=EXERCISE):
        assignment.write(nb, folder / student / f"{name}.ipynb")

    put("correct", solved())
    put("half", solved({FIRST}))
    put("empty", STARTER)
    put("loop", attack("while True: pass"))
    put("flood", attack("while True: print('x' * 10_000)"))
    put("writer", attack(WRITER.format(course=str(course), folder=str(folder))))
    put("exit", attack("import os\nos._exit(0)"))
    without_tests = solved()
    without_tests["cells"] = [c for c in without_tests["cells"] if not assignment.role(c, "grade")]
    put("deleted", without_tests)
    easy = solved(())
    for cell in easy["cells"]:
        if assignment.locked(cell):
            cell["source"], cell["metadata"]["nbgrader"]["points"] = "pass", 100
    put("edited", easy)
    (folder / "broken").mkdir()
    (folder / "broken" / f"{EXERCISE}.ipynb").write_text("not a notebook")
    (folder / "absent").mkdir()


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """(course, submissions, what the command said) of a run with the best isolation that this machine has."""
    if not PYTHON.exists():
        pytest.skip("nbgrader is not installed: `make test` or `make grade` does it")
    place = tmp_path_factory.mktemp("class")
    course, folder = place / "course", place / "submissions"
    hand_in(folder, course)
    before = tree(folder)
    result = run(folder, "--course", course, "--name", "week", "--seconds", "12")
    assert result.returncode == 0, result.stdout + result.stderr
    assert tree(folder) == before, "what was handed in stays as it was"
    return course, folder, result.stdout


def test_a_correct_submission_gets_all_points_of_the_tests(graded):
    line = marks(graded[0])["correct"]
    assert float(line["total"]) == sum(POINTS[n] for n in TESTS) and float(line["max"]) == sum(POINTS.values())
    assert float(line["to_mark"]) == sum(p for n, p in POINTS.items() if n not in TESTS) and not line["remarks"]


def test_a_half_correct_submission_gets_the_points_of_its_half(graded):
    line = marks(graded[0])["half"]
    assert float(line["total"]) == POINTS[f"{FIRST}-test"] > 0 and float(line["to_mark"]) == 0
    said = comments(graded[0], "half")
    assert (
        said[f"{FIRST}-test"] == ""
        and said["3-04-faster-test"].startswith("not answered; then NameError")
        and said["3-04-why"] == "No response."
    )


@pytest.mark.parametrize("student", ["empty", "absent", "broken", "loop", "flood", "exit", "deleted", "edited"])
def test_nothing_answered_or_an_attack_gets_zero_with_a_reason(graded, student):
    line = marks(graded[0])[student]
    assert float(line["total"]) == 0 and float(line["max"]) == sum(POINTS.values())
    reason = {
        "empty": "not answered",
        "absent": "not handed in",
        "broken": "not a notebook",
        "loop": "time of 12 s",
        "flood": "bytes of output",
        "exit": "kernel died",
        "deleted": "removed",
        "edited": "not answered",
    }[student]
    said = comments(graded[0], student)
    assert set(said) == set(POINTS) and all(said[n] for n in TESTS) and reason in said[f"{FIRST}-test"]
    if student != "empty":
        assert line["remarks"], "the teacher reads in one line what happened"


def test_writing_elsewhere_fails_or_is_undone(graded):
    """In a box nothing else is there to write to; without one the change is undone. Either way: no points, a reason, nothing harmed."""
    course, folder, _ = graded
    line, said = marks(course)["writer"], comments(course, "writer")[f"{FIRST}-test"]
    assert float(line["total"]) == 0 and re.search("No such file|Read-only|Permission|changed files outside", said)
    assert float(marks(course)["correct"]["total"]) > 0 and not (folder / "new.txt").exists()


@needs_nbgrader
def test_without_a_box_a_change_is_reported_and_undone(tmp_path):
    course, folder = tmp_path / "course", tmp_path / "submissions"
    assignment.write(solved(), folder / "correct" / f"{EXERCISE}.ipynb")
    assignment.write(
        solved(None, **{FIRST: WRITER.format(course=str(course), folder=str(folder))}), folder / "writer" / f"{EXERCISE}.ipynb"
    )
    before = tree(folder)
    result = run(folder, "--course", course, "--isolation", "limits", "--seconds", "20")
    assert result.returncode == 0, result.stdout + result.stderr
    assert tree(folder) == before, "the other's submission is what it was"
    line = marks(course)["writer"]
    assert float(line["total"]) == 0 and all(
        word in line["remarks"] for word in ("changed: gradebook.db", "changed: 3-04.ipynb", "new: new.txt", "undone, no points")
    )
    assert float(marks(course)["correct"]["total"]) == sum(POINTS[n] for n in TESTS), "graded before it, and still in the gradebook"
    assert [p.read_text() for p in sorted((course / "set-aside").iterdir()) if p.is_file()] == ["mine"] * 3, (
        "what it wrote is kept for the teacher"
    )


def test_marks_by_hand_are_read_from_the_table(graded, tmp_path):
    """Filled in, collected: the correct submission has all points. Points beyond the most possible are refused."""
    course = tmp_path / "course"
    shutil.copytree(graded[0], course)
    lines = table(course / "questions.csv")
    for points, code in (("99", 1), ("much", 1), ("", 0)):
        for line in lines:
            if line["student"] == "correct" and line["how"] == "by hand":
                line["points"], line["comment"] = points or line["max"], "=well said"
        with (course / "questions.csv").open("w", encoding="utf-8", newline="") as file:
            out = csv.DictWriter(file, grade.COLUMNS)
            out.writeheader()
            out.writerows(lines)
        result = run("--collect", "--course", course, "--name", "week")
        assert result.returncode == code, result.stderr
    line = marks(course)["correct"]
    assert float(line["total"]) == float(line["max"]) and float(line["to_mark"]) == 0
    assert comments(course, "correct")["3-04-why"] == "'=well said", "no spreadsheet takes a comment for a formula"
    page = (course / "feedback/correct.html").read_text(encoding="utf-8")
    assert "=well said" in page and f"{line['max']} of {line['max']} points" in page
    assert marks(course)["loop"] == marks(graded[0])["loop"], "nothing else has changed"


def test_each_student_gets_one_page_that_loads_and_runs_nothing(graded):
    course = graded[0]
    pages = {p.stem: p.read_text(encoding="utf-8") for p in (course / "feedback").glob("*.html")}
    assert set(pages) == set(marks(course))
    for student, page in pages.items():
        assert "default-src 'none'" in page and not re.search(
            r"<script|<iframe|<link|@import|url\(|(?:src|href)=\"(?!#|data:image/)", page
        ), student
        assert all(f'id="{n}"' in page for n in POINTS) and page.count("<h1") == 1
    assert "<math" in pages["correct"] and "&lt;script&gt;alert(1)" in pages["correct"], "formulas are set, markup of students is not"
    assert "time of 12 s" in pages["loop"] and "removed" in pages["deleted"]
    assert max(map(len, pages.values())) < 200_000


def test_the_gradebook_is_nbgraders(graded):
    code = (
        "import sys; from nbgrader.api import Gradebook\n"
        "with Gradebook('sqlite:///' + sys.argv[1]) as b:\n print([(s.student.id, s.score) for s in b.assignment_submissions('week')])"
    )
    environment = {"PATH": f"{PYTHON.parent}:/usr/bin:/bin"}
    said = subprocess.run(
        [PYTHON, "-W", "ignore", "-c", code, graded[0] / "gradebook.db"], env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert dict(eval(said)) == {s: float(line["total"]) for s, line in marks(graded[0]).items()}


@needs_nbgrader
@pytest.mark.parametrize(("folders", "said"), [((), "holds no folder"), (("a[b]",), "rename the folder"), (("a+b",), "rename the folder")])
def test_a_folder_that_cannot_be_graded_is_refused(tmp_path, folders, said):
    for name in folders:
        (tmp_path / "s" / name).mkdir(parents=True)
    (tmp_path / "s").mkdir(exist_ok=True)
    result = run(tmp_path / "s", "--course", tmp_path / "course", "--exercises", EXERCISE)
    assert result.returncode == 1 and said in result.stderr and "Traceback" not in result.stderr


# Before the run


def test_cells_are_put_back_and_strangers_lose_their_roles():
    nb = solved()
    test = next(c for c in nb["cells"] if assignment.locked(c))
    twice, stranger = copy.deepcopy(test), copy.deepcopy(test)
    stranger["metadata"]["nbgrader"]["grade_id"] = "mine"
    test["source"], test["cell_type"] = "pass", "markdown"
    nb["cells"] += [twice, stranger]
    made, report = grade.restored(nb, STARTER)
    back = {c["metadata"]["nbgrader"]["grade_id"]: c for c in made["cells"] if "nbgrader" in c["metadata"]}
    assert set(back) == set(NAMES) and not report.missing and len(report.notes) == 1 and "changed; put back" in report.notes[0]
    original = next(c for c in STARTER["cells"] if assignment.locked(c))
    name = original["metadata"]["nbgrader"]["grade_id"]
    assert (
        back[name]["source"] == original["source"] and back[name]["cell_type"] == "code" and back[name]["metadata"] == original["metadata"]
    )
    assert all(not c.get("outputs") for c in made["cells"])


def test_only_plain_notebooks_of_a_student_are_read(tmp_path):
    nb = tmp_path / "a/3-04.ipynb"
    assignment.write(STARTER, nb)
    (tmp_path / "a/3-02.ipynb").symlink_to(nb)
    assignment.write(STARTER, tmp_path / "a/copy/3-01.ipynb")
    assignment.write(STARTER, tmp_path / "a/3-01.ipynb")
    (tmp_path / "a/c-01.ipynb").write_text('{"nbformat": 4, "cells": [{"source": 3, "metadata": {}}]}')
    (tmp_path / "a/f-01.ipynb").write_text("[" * 100_000)
    (tmp_path / "a/m-01.ipynb").write_bytes(b" " * (grade.LARGEST + 1))
    assignment.write(STARTER, tmp_path / "a/.ipynb_checkpoints/f-02.ipynb")
    found = grade.handed_in(tmp_path / "a")
    why = {name: grade.submitted(found.get(name, []))[1] for name in ("3-04", "3-02", "3-01", "c-01", "f-01", "m-01", "f-02")}
    assert (
        why.pop("3-04") == ""
        and all(why.values())
        and "2 times" in why["3-01"]
        and "larger" in why["m-01"]
        and why["f-02"] == "not handed in"
    )


def test_the_notes_of_the_exchange_go_along_if_they_are_in_order(tmp_path):
    for student, stamp in (("in-order", "2026-11-29 18:33:21.644691 UTC"), ("odd", "; rm -rf /")):
        assignment.write(STARTER, tmp_path / f"in/{student}/week/{EXERCISE}.ipynb")
        (tmp_path / f"in/{student}/week/timestamp.txt").write_text(stamp)
    grade.prepared(tmp_path / "course", "week", [EXERCISE], tmp_path / "in", {})
    assert [p.parts[-3] for p in (tmp_path / "course").rglob("timestamp.txt")] == ["in-order"]
    assert len(list((tmp_path / "course/checked").rglob("*.ipynb"))) == 2


def test_watched_folders_are_put_back(tmp_path):
    place, aside = tmp_path / "place", tmp_path / "place/aside"
    (place / "kept/empty").mkdir(parents=True)
    for name in ("changed", "removed", "kept/same"):
        (place / name).write_text(name)
    (place / "link").symlink_to("changed")
    before = tree(place)
    with sandbox.watched([place], aside) as changes:
        (place / "changed").write_text("other")
        (place / "removed").unlink()
        (place / "kept/empty").rmdir()
        (place / "link").unlink()
        (place / "link").mkdir()
        (place / "new").write_text("new")
    assert tree(place, "aside") == before and (place / "link").is_symlink() and (place / "kept/empty").is_dir()
    assert sorted(changes) == ["changed: changed", "changed: link", "new: new", "removed: empty", "removed: removed"]
    assert {p.read_text() for p in aside.iterdir() if p.is_file()} == {"other", "new"}
    with sandbox.watched([place], aside) as changes:
        pass
    assert changes == []


# The sandbox itself

PROBES = {
    "here": "import os; print(sorted(os.listdir('.')))",
    "big file": "open('big', 'wb').write(bytes(20 * 2**20))",
    "memory": "bytearray(2**40)",
    "orphan": "import subprocess; print(subprocess.Popen(['sleep', '600'], start_new_session=True).pid)",
    "others": f"open({str(ROOT / 'README.md')!r}).read(20)",
    "write": f"open({str(ROOT / 'hello')!r}, 'w')",
    "net": "import socket; socket.create_connection(('127.0.0.1', {port}), timeout=2)",
    "library": "from workloads.counts import flops; print(flops.pairs(8))",
}


def probe(isolation, names):
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        sources = [PROBES[n].replace("{port}", str(server.getsockname()[1])) for n in names]
        run = sandbox.execute(sources, sandbox.Limits(seconds=30), isolation)
    assert run.stopped is None
    return {n: o[-1].get("ename") or o[-1].get("text", "").strip() for n, o in zip(names, run.outputs) if o}


def alive(process):
    try:
        return "sleep" in (ROOT / f"/proc/{process}/comm").read_text()
    except OSError:
        return False


def test_limits_hold_without_a_box():
    said = probe("limits", ["big file", "memory", "orphan", "library"])
    assert said["big file"] == "OSError" and said["memory"] == "MemoryError" and said["library"] == "36"
    assert not alive(said["orphan"]), "a process that was left behind is ended"


@boxed
def test_a_box_shows_the_libraries_and_nothing_else():
    said = probe("bwrap", list(PROBES))
    assert said["others"] == "FileNotFoundError" and said["write"] in ("OSError", "FileNotFoundError") and not (ROOT / "hello").exists()
    assert said["net"] in ("ConnectionRefusedError", "OSError") and said["big file"] == "OSError" and said["memory"] == "MemoryError"
    assert said["library"] == "36" and "submissions" not in said["here"]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b'{"outputs": [], "stopped": null}',
        b'{"outputs": [[{"output_type": "error"}]], "stopped": null}',
        b"[" * 10**6,
        b'{"outputs": [[{"output_type": "stream", "name": "stdout", "text": 5}]], "stopped": null}',
        b'{"outputs": [[]], "stopped": [7, "x"]}',
    ],
)
def test_a_forged_or_missing_result_counts_as_failure(data):
    run = sandbox._result(data, 1, sandbox.Limits())
    assert run.stopped and run.outputs[0][0]["output_type"] == "error"


def test_an_unknown_isolation_is_refused():
    with pytest.raises(ValueError, match="isolation"):
        sandbox.execute(["1"], isolation="none")

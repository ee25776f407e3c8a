"""Grading end to end with nbgrader: marks, reasons, feedback; hostile submissions; what the sandbox keeps in."""

import copy
import csv
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from conftest import ROOT, SWEEP

sys.path.insert(0, str(ROOT / "book/_site"))
import assignment
import grade
import handed_in
import sandbox
import seal

PYTHON = ROOT / ".venv-grading/bin/python"
EXERCISE, FIRST = "3-04", "3-04-tools"
SOURCE = assignment.read(assignment.exercises()[EXERCISE])
STARTER = assignment.starter(SOURCE)
NAMES = {c["metadata"]["nbgrader"]["grade_id"]: c for c in SOURCE["cells"] if "nbgrader" in c["metadata"]}
TESTS = [n for n, c in NAMES.items() if assignment.locked(c)]
POINTS = {n: c["metadata"]["nbgrader"]["points"] for n, c in NAMES.items() if assignment.role(c, "grade")}
TEXT = "One state waits for $t_a + t_b$ <script>alert(1)</script> <img src=x onerror=alert(1)> at once."
UNBOXED = "ran under limits only, in no box"
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
    """The command, with the best isolation that this machine has unless one is asked for."""
    if not {"--isolation", "--collect"} & set(arguments) and not sandbox.boxes():
        arguments = *arguments, "--isolation", "limits"
    return subprocess.run(
        [PYTHON, ROOT / "book/_site/grade.py", *map(str, arguments)], capture_output=True, text=True, cwd=ROOT, timeout=600
    )


def table(path):
    with path.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))


def marks(course):
    return {line["student"]: line for line in table(course / "results/week/marks.csv")}


def comments(course, student):
    return {line["question"]: line["comment"] for line in table(course / "results/week/questions.csv") if line["student"] == student}


WRITER = """
from pathlib import Path
for place in ({course!r} + "/gradebook.db", {folder!r} + "/correct/3-04.ipynb", {folder!r} + "/new.txt"):
    Path(place).write_text("mine")
"""


def honest(folder, put):
    """What people hand in who did everything right, or made one slip, as browsers, platforms and editors leave it."""
    put("browser", solved(), f"{EXERCISE} (1)")
    stripped = solved()
    for cell in stripped["cells"]:
        cell["metadata"] = {}
        cell.pop("id", None)
    put("stripped", stripped)
    put("O'Name, Ümlaut_123456_assignsubmission_file_", solved())
    put("older/old", solved(()))
    put("older", solved())
    assignment.write(solved(), folder / "canvas_4711_99_3-04-1.ipynb")
    with zipfile.ZipFile(folder / "zipped.zip", "w") as packed:
        packed.writestr("work/3-04.ipynb", json.dumps(solved()))
        packed.writestr("../evil.txt", "out of the folder")
    put("data", solved(None, **{"3-04-swap": assignment.source(NAMES["3-04-swap"]) + "\nassert open('data.csv').read() == '1,2'"}))
    (folder / "data/data.csv").write_text("1,2")
    (folder / "surrogate").mkdir()
    (folder / f"surrogate/{EXERCISE}.ipynb").write_text(json.dumps(solved()).replace("One state waits", "\\ud800 One state waits"))
    put("rounded", solved(None, **{"3-04-faster": ROUNDED}))
    put("one-wrong", solved(None, **{FIRST: assignment.source(NAMES[FIRST]) + "\nserial_gib_seconds = 22"}))
    put("forged", attack("get_ipython().input_transformers_post.append(lambda lines: ['1000\\n'])"))
    put("own-tests", attack(OWN_TESTS))
    put("elsewhere", elsewhere(solved()))
    (folder / "pipe").mkdir()
    os.mkfifo(folder / f"pipe/{EXERCISE}.ipynb")


# what a test calls, replaced, and an error that nobody shows; the values are wrong
OWN_TESTS = """
import math
check_table = abs = lambda *a, **k: 0
math.isclose = lambda *a, **k: True
get_ipython().showtraceback = lambda *a, **k: None
serial_seconds, parallel_seconds, serial_gib_seconds, parallel_gib_seconds = 3, 2, 3, 2
"""


def elsewhere(nb):
    """The same as another service leaves it: its kernel, a failed import, a cell twice, the whole notebook pasted behind itself."""
    nb["metadata"]["kernelspec"] = {"name": "julia-1.10", "display_name": "Julia", "language": "julia"}
    nb["metadata"]["colab"] = {"provenance": []}
    install = {
        "cell_type": "code",
        "metadata": {"id": "x"},
        "outputs": [],
        "execution_count": 7,
        "source": "from google.colab import drive",
    }
    nb["cells"] = [install, *nb["cells"], copy.deepcopy(nb["cells"][3]), *copy.deepcopy(nb["cells"])]
    return nb


ROUNDED = """
model_saved_seconds, model_total_seconds = 27.3, 49.2
tools_saved_seconds, tools_total_seconds = 0.039, 76.5
matching_tools_seconds = 54.6
"""


def hand_in(folder, course):
    """One folder a student."""

    def put(student, nb, name=EXERCISE):
        assignment.write(nb, folder / student / f"{name}.ipynb")

    put("correct", solved())
    honest(folder, put)
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


@pytest.fixture(scope="module", params=["best", "limits"] if SWEEP and sandbox.boxes() else ["best"])
def graded(tmp_path_factory, request):
    """(course, submissions, what the command said) of a run with the best isolation that is here; with SWEEP without a box, too."""
    if not PYTHON.exists():
        pytest.skip("nbgrader is not installed: `make test` or `make grade` does it")
    place = tmp_path_factory.mktemp("class")
    course, folder = place / "course", place / "submissions"
    hand_in(folder, course)
    before = tree(folder)
    how = ["--isolation", "limits"] if request.param == "limits" else []
    result = run(folder, "--course", course, "--name", "week", "--seconds", "12", *how)
    assert result.returncode == 0, result.stdout + result.stderr
    assert tree(folder) == before, "what was handed in stays as it was"
    return course, folder, result.stdout


def test_a_correct_submission_gets_all_points_of_the_tests(graded):
    line = marks(graded[0])["correct"]
    assert float(line["total"]) == sum(POINTS[n] for n in TESTS) and float(line["max"]) == sum(POINTS.values())
    assert float(line["to_mark"]) == sum(p for n, p in POINTS.items() if n not in TESTS) and line["remarks"] in (
        "",
        f"{EXERCISE}: {UNBOXED}",
    )


def test_a_half_correct_submission_gets_the_points_of_its_half(graded):
    line = marks(graded[0])["half"]
    assert float(line["total"]) == POINTS[f"{FIRST}-test"] > 0 and float(line["to_mark"]) == 0
    said = comments(graded[0], "half")
    assert said[f"{FIRST}-test"] == "" and said["3-04-faster-test"].startswith("not answered") and said["3-04-why"] == "No response."


@pytest.mark.parametrize(
    ("student", "remark"),
    [
        ("browser", "handed in as"),
        ("stripped", "found by their text"),
        ("O-Name-Ümlaut_123456", ""),
        ("older", "was graded, not old/"),
        ("canvas_4711", ""),
        ("zipped", ""),
        ("data", ""),
        ("surrogate", ""),
        ("rounded", ""),
        ("elsewhere", ""),
    ],
)
def test_who_did_everything_right_gets_all_points_whatever_happened_to_the_file(graded, student, remark):
    line = marks(graded[0])[student]
    assert float(line["total"]) == sum(POINTS[n] for n in TESTS) and remark in line["remarks"]


def test_what_the_form_grader_shows_holds_no_markup_of_a_student(graded):
    """It shows the notebooks in the session of the one who marks, where a script could start a kernel."""
    nb = assignment.read(graded[0] / f"autograded/correct/week/{EXERCISE}.ipynb")
    texts = [assignment.source(c) for c in nb["cells"] if c["metadata"].get("nbgrader", {}).get("grade_id") == "3-04-area"]
    assert len(texts) == 1 and "onerror" in texts[0] and "<script" not in texts[0] and "<img" not in texts[0]


def test_points_are_given_for_each_value_and_what_comes_after_a_wrong_one(graded):
    """Three of four values right: three of four points, and the reason is what `answer` says of the fourth."""
    said = comments(graded[0], "one-wrong")
    assert float(marks(graded[0])["one-wrong"]["total"]) == sum(POINTS[n] for n in TESTS) - 1
    assert said[f"{FIRST}-test"].startswith("serial_gib_seconds: expected: GiB*s") and not said["3-04-faster-test"]


@pytest.mark.parametrize("student", ["forged", "own-tests"])
def test_tests_that_pass_without_a_right_value_give_nothing(graded, student):
    line = marks(graded[0])[student]
    assert float(line["total"]) == 0 and "read this notebook: it has" in line["remarks"] and "get_ipython" in line["remarks"]
    if student == "forged":
        assert comments(graded[0], student)[f"{FIRST}-test"] == grade.FORGED


def test_platforms_get_their_own_tables(graded):
    results, total = graded[0] / "results/week", marks(graded[0])["zipped"]["total"]
    assert [(r["ID"], r["week"]) for r in table(results / "canvas.csv")] == [("", f"{sum(POINTS.values()):g}"), ("4711", total)]
    moodle = table(results / "moodle.csv")
    assert [(r["Identifier"], r["Full name"], r["Grade"]) for r in moodle] == [("Participant 123456", "O'Name, Ümlaut", total)]


@pytest.mark.parametrize("student", ["pipe", "empty", "absent", "broken", "loop", "flood", "exit", "deleted", "edited"])
def test_nothing_answered_or_an_attack_gets_zero_with_a_reason(graded, student):
    line = marks(graded[0])[student]
    assert float(line["total"]) == 0 and float(line["max"]) == sum(POINTS.values())
    reason = {
        "empty": "not answered",
        "absent": "not handed in",
        "pipe": "not a file of its own",
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
    result = run(folder, "--course", course, "--name", "week", "--isolation", "limits", "--seconds", "20")
    assert result.returncode == 0, result.stdout + result.stderr
    assert tree(folder) == before, "the other's submission is what it was"
    line = marks(course)["writer"]
    assert float(line["total"]) == 0 and all(
        word in line["remarks"] for word in ("changed: gradebook.db", "changed: 3-04.ipynb", "new: new.txt", "undone, no points")
    ), line["remarks"]
    assert float(marks(course)["correct"]["total"]) == sum(POINTS[n] for n in TESTS), "graded before it, and still in the gradebook"
    assert [p.read_text() for p in sorted((course / "set-aside").iterdir()) if p.is_file()] == ["mine"] * 3, (
        "what it wrote is kept for the teacher"
    )


def test_marks_by_hand_are_read_from_the_table(graded, tmp_path):
    """Filled in, collected: the correct submission has all points. Points beyond the most possible are refused."""
    course = tmp_path / "course"
    shutil.copytree(graded[0], course)
    lines = table(course / "results/week/questions.csv")
    for points, code in (("99", 1), ("much", 1), ("", 0)):
        for line in lines:
            if line["student"] == "correct" and line["how"] == "by hand":
                line["points"], line["comment"] = points or line["max"], "=well said"
        with (course / "results/week/questions.csv").open("w", encoding="utf-8", newline="") as file:
            out = csv.DictWriter(file, grade.COLUMNS)
            out.writeheader()
            out.writerows(lines)
        result = run("--collect", "--course", course, "--name", "week")
        assert result.returncode == code, result.stderr
    line = marks(course)["correct"]
    assert float(line["total"]) == float(line["max"]) and float(line["to_mark"]) == 0
    assert comments(course, "correct")["3-04-why"] == "'=well said", "no spreadsheet takes a comment for a formula"
    page = (course / "results/week/feedback/correct.html").read_text(encoding="utf-8")
    assert "=well said" in page and f"{line['max']} of {line['max']} points" in page
    assert marks(course)["loop"] == marks(graded[0])["loop"], "nothing else has changed"


def test_each_student_gets_one_page_that_loads_and_runs_nothing(graded):
    course = graded[0]
    pages = {p.stem: p.read_text(encoding="utf-8") for p in (course / "results/week/feedback").glob("*.html")}
    assert set(pages) == set(marks(course))
    for student, page in pages.items():
        assert "default-src 'none'" in page and not re.search(
            r"<script|<iframe|<link|@import|url\(|(?:src|href)=\"(?!#|data:image/)", page
        ), student
        assert all(f'id="{n}"' in page for n in POINTS) and page.count("<h1") == 1
    assert "<math" in pages["correct"] and "&lt;script&gt;alert(1)" in pages["correct"], "formulas are set, markup of students is not"
    assert "time of 12 s" in pages["loop"] and "removed" in pages["deleted"]
    assert max(map(len, pages.values())) < 200_000


@needs_nbgrader
def test_each_is_judged_by_numbers_of_their_own(tmp_path):
    """Their own solution gets all points, another's values none, another's notebook a remark, numbers that nobody was given zero."""
    course, folder, roster = tmp_path / "course", tmp_path / "in", tmp_path / "names.txt"
    roster.write_text("ann\nben\ncid\n")
    (course / "variants").mkdir(parents=True)
    (course / "variants/key").write_text("7" * 64)  # one key, so that chance gives no two people the same number
    assignment.assign_variants(["3-03"], course, "week", str(roster), hints=False)
    identity = {person: i for i, person in assignment.variants_of(course, "week").items()}

    solution = {p: assignment.read(course / f"variants/week/{identity[p]}/3-03.ipynb") for p in identity}
    right = {q: seal.run(solution["ann"])[q] for q in seal.table(assignment.exercises()["3-03"])[0]}
    typed_in = "\n".join(f"{quantity} = {value!r}" for quantity, value in right.items())

    def hand_in(student, person, answer=None, mark=None):
        nb = assignment.read(course / f"handed-out/week/{person}/3-03.ipynb")
        code = {c["id"]: assignment.source(c) for c in solution[person]["cells"]}
        for cell in nb["cells"]:
            if cell["cell_type"] == "code" and assignment.role(cell, "solution"):
                cell["source"] = answer or code[cell["id"]]
            cell["source"] = assignment.source(cell).replace(identity[person], mark or identity[person])
        assignment.write(nb, folder / f"{student}/3-03.ipynb")

    hand_in("ann", "ann")
    hand_in("ben", "ann")
    hand_in("cid", "cid", typed_in)
    hand_in("dan", "ann", mark="0" * 10)
    result = run(folder, "--course", course, "--name", "week", "--seconds", "30")
    assert result.returncode == 0, result.stdout + result.stderr
    got = {s: (float(line["total"]), line["remarks"]) for s, line in marks(course).items()}
    assert got["ann"][0] == got["ben"][0] == 9 and "numbers of ann" in got["ben"][1] and got["ann"][1] in ("", f"3-03: {UNBOXED}")
    assert got["cid"][0] == 0 and got["dan"][0] == 0 and "none that were handed out" in got["dan"][1]


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
def test_a_folder_without_a_student_is_refused(tmp_path):
    (tmp_path / "s").mkdir()
    result = run(tmp_path / "s", "--course", tmp_path / "course", "--exercises", EXERCISE)
    assert result.returncode == 1 and "holds no folder" in result.stderr and "Traceback" not in result.stderr


def typed(course, name, change):
    """Edit questions.csv as a spreadsheet would: `change` gets each line."""
    path = course / f"results/{name}/questions.csv"
    lines = table(path)
    for line in lines:
        change(line)
    with path.open("w", encoding="utf-8", newline="") as file:
        out = csv.DictWriter(file, grade.COLUMNS)
        out.writeheader()
        out.writerows(lines)


def test_what_was_typed_survives_other_assignments_and_waits_again_for_a_new_answer(graded, tmp_path):
    """Marks of one week stay when another is graded and when nothing changed; on a changed answer the old mark is a comment."""
    course, folder = tmp_path / "course", tmp_path / "in"
    shutil.copytree(graded[0], course)
    shutil.copytree(graded[1] / "correct", folder / "correct")

    def mark(line):
        if line["student"] == "correct" and line["how"] == "by hand":
            line["points"], line["comment"] = line["max"].replace("1", "0,5"), "typed"
        if line["student"] == "half" and line["question"] == "3-04-faster-test":
            line["points"], line["comment"] = "2", "the method is right"

    how = ["--isolation", "limits"] if UNBOXED in marks(course)["correct"]["remarks"] else []  # as before: another box runs anew
    typed(course, "week", mark)
    for name in ("other", "week"):
        result = run(folder, "--course", course, "--name", name, "--seconds", "12", "--exercises", EXERCISE, *how)
        assert result.returncode == 0, result.stdout + result.stderr
    assert float(marks(course)["correct"]["total"]) == sum(POINTS[n] for n in TESTS) + 0.5 + 2 + 0.5
    assert float(marks(course)["half"]["total"]) == POINTS[f"{FIRST}-test"] + 2, "points of a test may be changed by hand"
    assert comments(course, "half")["3-04-faster-test"] == "the method is right"
    ran = "results/week/runs/correct/3-04.json"
    assert (course / ran).stat().st_mtime_ns == (graded[0] / ran).stat().st_mtime_ns, "what has not changed does not run again"
    assert "typed" in (course / "results/week/typed/questions-0001.csv").read_text(), "a copy of what was typed is kept"
    nb = assignment.read(folder / "correct/3-04.ipynb")
    next(c for c in nb["cells"] if c["metadata"].get("nbgrader", {}).get("grade_id") == "3-04-why")["source"] = "Something else."
    assignment.write(nb, folder / "correct/3-04.ipynb")
    assert run(folder, "--course", course, "--name", "week", "--seconds", "12", "--exercises", EXERCISE, *how).returncode == 0
    line, said = marks(course)["correct"], comments(course, "correct")
    assert float(line["to_mark"]) == 2 and said["3-04-why"] == "an earlier answer got 2 of 2: typed" and said["3-04-area"] == "typed"

    def astray(line):
        line["exercise"] = line["exercise"].replace(EXERCISE, "3-02")

    typed(course, "week", astray)
    before = (course / "results/week/questions.csv").read_bytes()
    result = run("--collect", "--course", course, "--name", "week")
    assert result.returncode == 1 and "no such question" in result.stderr
    assert (course / "results/week/questions.csv").read_bytes() == before, "nothing is written over marks that found no place"


@pytest.mark.parametrize(
    ("text", "encoding"), [("é;{e};{q};by hand;1,5;2;gut ü\n", "cp1252"), ("é,{e},{q},by hand,1.5,2,gut ü\n", "utf-8-sig")]
)
def test_tables_are_read_as_spreadsheets_save_them(tmp_path, text, encoding):
    path = tmp_path / "questions.csv"
    sign = ";" if ";" in text else ","
    path.write_bytes((sign.join(grade.COLUMNS) + "\n" + text.format(e=EXERCISE, q="3-04-why")).encode(encoding))
    assert grade.typed(path, []) == {("é", EXERCISE, "3-04-why"): (1.5, "gut ü", True)}
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="columns"):
        grade.typed(path, [])


@needs_nbgrader
def test_without_a_box_nothing_runs_unless_asked(tmp_path):
    assignment.write(solved(), tmp_path / f"in/a/{EXERCISE}.ipynb")
    environment = {"PATH": str(tmp_path)}
    command = [PYTHON, ROOT / "book/_site/grade.py", tmp_path / "in", "--course", tmp_path / "course"]
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert result.returncode == 1 and "bubblewrap is not installed" in result.stderr and "ISOLATION=limits" in result.stderr
    assert not (tmp_path / "course/gradebook.db").exists()


# Before the run


def test_cells_are_put_back_and_strangers_lose_their_roles():
    nb = solved()
    test = next(c for c in nb["cells"] if assignment.locked(c))
    twice, stranger = copy.deepcopy(test), copy.deepcopy(test)
    stranger["metadata"]["nbgrader"]["grade_id"] = "mine"
    test["source"], test["cell_type"] = "pass", "markdown"
    nb["cells"] += [twice, stranger]
    made, report = handed_in.restored(nb, STARTER)
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
    (tmp_path / "a/m-01.ipynb").write_bytes(b" " * (handed_in.LARGEST + 1))
    assignment.write(STARTER, tmp_path / "a/.ipynb_checkpoints/f-02.ipynb")
    starters = {e: assignment.starter(assignment.read(p)) for e, p in assignment.exercises().items()}
    found, strangers = handed_in.matched([tmp_path / "a"], starters)
    why = {name: found[name][2] for name in found}
    assert why.pop("3-04") == "" and why.pop("3-02") == "not a file of its own" and "larger" in why.pop("m-01")
    assert set(why) == {"c-01", "f-01"} and all("not a notebook" in w for w in why.values())
    assert "3-01" not in found and strangers == [], "what a notebook holds counts more than its name"


@pytest.mark.parametrize("name", ["3-02 (1).ipynb", "3-02-1.ipynb", "Copy of 3-02.ipynb", "ann_1_2_3-02-1.ipynb", "3-02 - Copy.ipynb"])
def test_names_that_browsers_and_platforms_make_are_known(tmp_path, name):
    assert handed_in.belongs(tmp_path / name, None, dict.fromkeys(("3-02", "f-05"))) == "3-02"
    assert handed_in.belongs(tmp_path / name.replace("3-02", "F-05"), None, dict.fromkeys(("3-02", "f-05"))) == "f-05"


def test_names_of_people_become_names_of_the_gradebook(tmp_path):
    names = ["a+x@b.org", "Ümlaut, Name", "U\u0308ni", "-rf", "a b", "a-b", "plain.name"]
    for name in names:
        (tmp_path / "in" / name).mkdir(parents=True)
    found, _ = handed_in.students(tmp_path / "in", tmp_path / "unpacked")
    assert sorted(s.name for s in found.values()) == sorted(names) and {"Ümlaut-Name", "Üni", "plain.name", "rf"} <= set(found)
    assert all(re.fullmatch(r"\w[\w.@-]*", student) for student in found) and len(found) == len(names)


def test_what_acts_in_a_browser_is_taken_from_texts():
    """nbgrader's form grader shows answers in the session of the one who marks."""
    for text in (
        "<img src=x onerror=alert(1)>",
        "a</p><script>x</script>",
        r"$\href{javascript:alert(1)}{x}$",
        "<!-- x",
        r"$\style{a}{b}$",
    ):
        made = handed_in.harmless(text)
        assert not re.search(r"<[A-Za-z/!?]|\\(href|style)", made), made
    assert handed_in.harmless(r"$a < b$, 3 <4, $\left(x\right)$") == r"$a < b$, 3 <4, $\left(x\right)$"
    hostile = {"text/html": "<script>", "application/javascript": "x", "image/svg+xml": "<svg onload='x'></svg>", "text/plain": "7"}
    made = grade.shown([{"output_type": "execute_result", "data": hostile, "metadata": {}, "execution_count": 1}])[0]
    assert set(made["data"]) == {"text/plain", "text/html"} and made["output_type"] == "display_data"
    assert re.fullmatch(r'<img alt="figure" src="data:image/svg\+xml;base64,[\w+/=]+">', made["data"]["text/html"])


@needs_nbgrader
def test_a_formula_is_mathml_or_stays_text():
    code = "import sys, json, feedback\nprint(json.dumps([feedback.markdown(t) for t in json.load(sys.stdin)]))"
    hostile = [
        r'$\text{<meta/http-equiv="refresh"/content="1;url=x">}$',
        r"$\text{</math></p></section><div/style=x>}$",
        "$\\text{<form>}$",
    ]
    fine = [r"$\frac{a}{b} < \sqrt{x_1} \times 10^{9}$", r"$$\sum_{i=1}^n \mathrm{KV}_i \left(1 - \tfrac{1}{s}\right)$$"]
    made = subprocess.run(
        [PYTHON, "-c", code],
        input=json.dumps(hostile + fine),
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(ROOT / "book/_site")},
    )
    texts = json.loads(made.stdout)
    assert not any(re.search(r"<(meta|div|form|/section)", t) for t in texts[:3]) and all("<math" in t for t in texts[3:])


def test_a_students_own_earlier_values_count_later():
    """One part wrong, what follows from it right: only that part loses points."""
    import judge

    right = judge.carried(assignment.read(assignment.exercises()["3-02"]), {})
    first, *later = right
    values = copy.deepcopy(right)
    values[first] = {q: v * 1.1 for q, v in right[first].items()}
    own = judge.carried(assignment.read(assignment.exercises()["3-02"]), values)
    values |= {test: own[test] for test in later}
    said = judge.judged("3-02", values)
    assert not any(ok for ok, _ in said[first]["values"].values())
    assert all(ok for test in later for ok, _ in said[test]["values"].values())
    assert any(own[test] != right[test] for test in later), "they do build on it"


def test_the_notes_of_the_exchange_go_along_if_they_are_in_order(tmp_path):
    for student, stamp in (("in-order", "2026-11-29 18:33:21.644691 UTC"), ("odd", "; rm -rf /")):
        assignment.write(STARTER, tmp_path / f"in/{student}/week/{EXERCISE}.ipynb")
        (tmp_path / f"in/{student}/week/timestamp.txt").write_text(stamp)
    students, _ = handed_in.students(tmp_path / "in", tmp_path / "unpacked")
    grade.prepared(tmp_path / "course", "week", [EXERCISE], students, {})
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
        (place / ".~lock.questions.csv#").write_text("an editor's")
        (place / ".DS_Store").write_text("a desktop's")
    assert changes == [], "that accuses nobody"


def test_what_was_done_to_library_or_environment_is_seen(tmp_path):
    """Without a box a submission could change what those after it are judged by; times set back hide nothing."""
    for name in ("page.py", "kept.py", "__pycache__/page.pyc"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("one")
    before = sandbox.stamps([tmp_path])
    assert sandbox.touched(before, sandbox.stamps([tmp_path])) == []
    time = (tmp_path / "page.py").stat()
    for name in ("page.py", "__pycache__/page.pyc"):
        (tmp_path / name).write_text("two")
        os.utime(tmp_path / name, ns=(time.st_atime_ns, time.st_mtime_ns))
    (tmp_path / "new.pth").write_text("import x")
    (tmp_path / "__pycache__/kept.pyc").write_text("written by any import")
    assert [Path(p).name for p in sandbox.touched(before, sandbox.stamps([tmp_path]))] == ["page.pyc", "new.pth", "page.py"]


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
    assert said["others"] == "FileNotFoundError" and not (ROOT / "hello").exists()
    assert said["net"] in ("ConnectionRefusedError", "OSError") and said["big file"] == "OSError" and said["memory"] == "MemoryError"
    assert said["library"] == "36" and "submissions" not in said["here"]


@boxed
def test_a_box_tells_nothing_of_its_maker(monkeypatch):
    """Neither the environment of the one who grades nor the way out of the results; and a copy in the temporary folder has a box, too."""
    monkeypatch.setenv("CANARY_KEY", "canary-value")
    look = """import os
for process in filter(str.isdigit, os.listdir('/proc')):
    try:
        print(open(f'/proc/{process}/environ').read())
    except OSError:
        pass"""
    forge = """import os
for n in range(64):
    if os.path.lexists(f'/proc/{os.getppid()}/fd/{n}'):
        os.open(f'/proc/{os.getppid()}/fd/{n}', os.O_WRONLY)"""
    run = sandbox.execute(["print(open('/proc/1/environ').read())", look, forge], isolation="bwrap")
    assert "PATH" in run.outputs[0][0]["text"] and "canary" not in json.dumps(run.outputs)
    assert not run.outputs[2] or run.outputs[2][0]["ename"] == "PermissionError"
    command = sandbox._boxed(sandbox.Limits())
    assert command.index("--tmpfs") < command.index("--ro-bind-try")


def test_processes_that_together_take_too_much_are_ended():
    """Each stays below the limit; together, with files in memory, they do not. What came before counts; shared memory counts once."""
    hungry = """
import os, time
for _ in range(14):
    if os.fork() == 0:
        held = b"x" * 70 * 2**20
        file = os.memfd_create("more")
        os.write(file, held)
        time.sleep(60)
        os._exit(0)
time.sleep(60)
"""
    modest = """
import os, time
held = b"x" * 220 * 2**20
children = [os.fork() or (time.sleep(0.5), os._exit(0)) for _ in range(3)]
print([os.waitpid(child, 0)[1] for child in children])
del held
"""
    run = sandbox.execute([modest, hungry, "print(3)"], sandbox.Limits(seconds=40, memory=2**30))
    assert run.outputs[0][-1]["text"] == "[0, 0, 0]\n"
    assert run.stopped and run.stopped[0] == 1 and "in all processes together" in run.stopped[1]
    assert run.outputs[2][-1]["ename"] == "NotRun"


@boxed
def test_a_box_opens_no_further_ones():
    """Namespaces of its own would show a program more of the system's kernel."""
    code = "import ctypes; print(ctypes.CDLL(None, use_errno=True).unshare(0x10000000))"
    assert sandbox.execute([code], isolation="bwrap").outputs[0][0]["text"].strip() == ("-1" if sandbox._no_nesting() else "0")


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

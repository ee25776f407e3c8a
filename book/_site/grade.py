"""Grade what students handed in, headless and offline: `grade.py FOLDER` (one folder a student in it) writes marks and feedback.

nbgrader keeps the gradebook and decides the points; the cells run under `sandbox.py`. In the course folder (default _grading):

    marks.csv        a line a student: points by exercise, total, what is still to be marked by hand, remarks
    questions.csv    a line a question; points and comments of questions marked by hand are filled in here, and read at the next run
    feedback/        one self-contained page a student
    gradebook.db, source/, release/, checked/, autograded/    nbgrader's own; its other tools work on them
    set-aside/       what a submission wrote into this folder or among the submissions, if it got that far

`--collect` runs nothing: it reads questions.csv and the gradebook and writes marks and pages anew.
"""

import argparse
import csv
import json
import logging
import os
import re
import sys
import warnings
from dataclasses import dataclass, field
from pathlib import Path

import assignment
import sandbox

ROOT = assignment.ROOT
STUDENT = re.compile(r"\w[\w.@-]*")
NOTES = {
    "timestamp.txt": r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)? \w+\s*",
    "submission_secret.txt": r"[\w+/=-]+\s*",
}  # of nbgrader's exchange
LARGEST = 8 * 2**20  # bytes of a notebook that is looked at
HAND, TEST, NOTHING = "by hand", "test", "no answer"
COLUMNS = ("student", "exercise", "question", "how", "points", "max", "comment")


@dataclass
class Report:
    """What was noticed about one notebook before and while it ran."""

    refused: str = ""
    missing: list = field(default_factory=list)  # graded cells that were removed
    notes: list = field(default_factory=list)


@dataclass
class Question:
    """One graded cell of one student; points are None while it waits for a mark by hand."""

    student: str
    exercise: str
    question: str
    how: str
    points: float | None
    max: float
    comment: str


# Before the run: what was handed in becomes a notebook that can be graded


def submissions(folder):
    """{student: folder}, one for each folder; a name that nbgrader can't hold is an error."""
    if not folder.is_dir():
        raise ValueError(f"submissions must be a folder with one folder a student, got {folder}")
    found = {p.name: p for p in sorted(folder.iterdir()) if p.is_dir() and not p.is_symlink() and not p.name.startswith(".")}
    if not found:
        raise ValueError(f"submissions: {folder} holds no folder of a student")
    for name in found:
        if not STUDENT.fullmatch(name):
            raise ValueError(f"submissions: rename the folder {name!r}; letters, digits and . _ - @ are possible")
    return found


def handed_in(folder):
    """{file name without ending: paths} of the notebooks below a folder; links are not followed."""
    found = {}
    for place, folders, files in os.walk(folder, followlinks=False):
        folders[:] = sorted(f for f in folders if f != ".ipynb_checkpoints")
        for name in sorted(files):
            if name.endswith(".ipynb"):
                found.setdefault(name.removesuffix(".ipynb"), []).append(Path(place, name))
    return found


def submitted(paths):
    """(notebook, why not): the one notebook among the paths, if it is one."""
    if not paths:
        return None, "not handed in"
    if len(paths) > 1:
        return None, f"handed in {len(paths)} times: " + ", ".join(p.parent.name for p in paths)
    path = paths[0]
    if path.is_symlink() or not path.is_file():
        return None, "not a file of its own"
    if path.stat().st_size > LARGEST:
        return None, f"larger than {LARGEST:,} bytes"
    try:
        nb = json.loads(path.read_bytes())
        if nb["nbformat"] != 4 or not all(isinstance(assignment.source(c), str) and isinstance(c["metadata"], dict) for c in nb["cells"]):
            raise ValueError("cells")
    except (ValueError, KeyError, TypeError, RecursionError):
        return None, "not a notebook (nbformat 4)"
    return nb, ""


def restored(nb, starter):
    """(notebook, report): the student's cells in their order; type, roles and locked text of graded cells as they were handed out."""
    known = {c["metadata"]["nbgrader"]["grade_id"]: c for c in starter["cells"] if "nbgrader" in c["metadata"]}
    report, cells, seen = Report(), [], set()
    for cell in nb["cells"]:
        kind = cell.get("cell_type")
        grading = cell["metadata"].get("nbgrader")
        name = grading.get("grade_id") if isinstance(grading, dict) else None
        original = known.get(name) if isinstance(name, str) and name not in seen else None
        text = assignment.source(cell)
        if original:
            seen.add(name)
            if assignment.locked(original) and (text.strip() != original["source"].strip() or kind != original["cell_type"]):
                report.notes.append(f"{name}: the text of the test was changed; put back")
                text = original["source"]
            kind = original["cell_type"]
        elif kind not in ("code", "markdown", "raw"):
            continue
        new = {"cell_type": kind, "id": f"cell-{len(cells)}", "metadata": dict(original["metadata"]) if original else {}, "source": text}
        cells.append(new | {"outputs": [], "execution_count": None} if kind == "code" else new)
    report.missing = [n for n, c in known.items() if assignment.role(c, "grade") and n not in seen]
    report.notes += [f"{n}: the cell was removed; no points" for n in report.missing]
    return {
        "cells": cells,
        "metadata": {k: starter["metadata"][k] for k in ("kernelspec", "language_info") if k in starter["metadata"]},
        "nbformat": 4,
        "nbformat_minor": 5,
    }, report


# The run: nbgrader, with cells executed in the sandbox


def execution(limits, isolation, watch, aside, reports):
    """A preprocessor for nbgrader that runs the cells in the sandbox and looks after the watched folders."""
    from nbformat import from_dict
    from nbgrader.preprocessors import NbGraderPreprocessor

    class SandboxExecute(NbGraderPreprocessor):
        def preprocess(self, nb, resources):
            key = resources["nbgrader"]["student"], resources["nbgrader"]["notebook"]
            cells = [c for c in nb.cells if c.cell_type == "code"]
            with sandbox.watched(watch, aside) as changes:
                run = sandbox.execute([c.source for c in cells], limits, isolation)
            report = reports.setdefault(key, Report())
            if changes:
                reason = "it changed files outside its folder: " + ", ".join(changes[:5])
                report.notes.append(f"{reason}; undone, no points")
                run = sandbox.Run([[sandbox.error("Stopped", reason)] for _ in cells], (0, reason))
            elif run.stopped:
                report.notes.append(f"stopped in code cell {run.stopped[0] + 1}: {run.stopped[1]}")
            for count, (cell, outputs) in enumerate(zip(cells, run.outputs), 1):
                cell.outputs, cell.execution_count = [from_dict(o) for o in outputs], count
            return nb, resources

    return SandboxExecute


def configuration(course, execute):
    """nbgrader's settings: the course folder, checked submissions, the sandbox instead of a bare kernel."""
    from nbgrader.converters import Autograde
    from nbgrader.preprocessors import Execute
    from traitlets.config import Config

    c = Config()
    c.CourseDirectory.root = str(course)
    c.CourseDirectory.submitted_directory = "checked"
    c.CourseDirectory.db_url = f"sqlite:///{course / 'gradebook.db'}"
    c.Autograde.autograde_preprocessors = [execute if p is Execute else p for p in Autograde(coursedir=None).autograde_preprocessors]
    c.ClearSolutions.code_stub = {"python": assignment.CODE_STUB}
    c.NbGraderAPI.log_level = logging.CRITICAL
    return c


def _done(result, what):
    if not result["success"]:
        raise RuntimeError(f"nbgrader failed at {what}:\n{result.get('error') or ''}\n{result.get('log') or ''}")


def prepared(course, name, exercises, folder, reports):
    """Write course/checked/<student>/name for all students; reports on each notebook."""
    starters = {e: assignment.starter(assignment.read(p)) for e, p in assignment.chosen(exercises).items()}
    for student, place in submissions(folder).items():
        found = handed_in(place / name if (place / name).is_dir() else place)
        target = course / "checked" / student / name
        for old in (*target.glob("*.ipynb"), *(target / n for n in NOTES)):
            old.unlink(missing_ok=True)
        for exercise, starter in starters.items():
            nb, why = submitted(found.get(exercise, []))
            if nb is None:
                reports[student, exercise] = Report(refused=why)
                continue
            nb, reports[student, exercise] = restored(nb, starter)
            assignment.write(nb, target / f"{exercise}.ipynb")
        for note, pattern in NOTES.items():
            path = place / name / note
            small = target.is_dir() and path.is_file() and not path.is_symlink() and path.stat().st_size < 1000
            if small and re.fullmatch(pattern, text := path.read_text(encoding="utf-8", errors="replace")):
                (target / note).write_text(text, encoding="utf-8")


def graded(course, name, exercises, folder, limits, isolation):
    """Run and grade all submissions of an assignment; {(student, exercise): report}."""
    from nbgrader.api import Gradebook
    from nbgrader.apps import NbGraderAPI

    reports = {}
    config = configuration(course, execution(limits, isolation, [course, folder], course / "set-aside", reports))
    assignment.assign(exercises, course, name)
    api = NbGraderAPI(config=config)
    _done(api.generate_assignment(name), "generate_assignment (were the exercises changed after grading began? then choose another name)")
    prepared(course, name, exercises, folder, reports)
    for student in submissions(folder):
        if any((course / "checked" / student / name).glob("*.ipynb")):
            _done(api.autograde(name, student), f"the submission of {student}")
        with Gradebook(config.CourseDirectory.db_url) as book:
            book.update_or_create_student(student)
            submission = book.update_or_create_submission(name, student)
            for notebook in submission.notebooks:
                report = reports[student, notebook.name]
                for grade in notebook.grades:
                    if report.refused or grade.name in report.missing:
                        grade.auto_score, grade.manual_score, grade.needs_manual_grade = 0, None, False
            book.db.commit()
        print(f"graded {student}", flush=True)
    return reports


# After the run: marks by hand, tables, pages


def by_hand(path):
    """{(student, exercise, question): (points, comment)} that a questions.csv gives for questions marked by hand."""
    if not path.exists():
        return {}
    found = {}
    with path.open(encoding="utf-8-sig", newline="") as lines:
        for line in csv.DictReader(lines):
            if line["how"] == HAND and line["points"].strip():
                where = f"{path.name}: {line['student']}, {line['question']}"
                try:
                    points, most = float(line["points"]), float(line["max"])
                except ValueError:
                    raise ValueError(f"{where}: points must be a number, got {line['points']!r}") from None
                if not 0 <= points <= most:
                    raise ValueError(f"{where}: points must lie between 0 and {most:g}, got {points:g}")
                found[line["student"].removeprefix("'"), line["exercise"], line["question"]] = points, line["comment"].removeprefix("'")
    return found


def mark(course, name, marks):
    """Enter marks by hand into the gradebook."""
    from nbgrader.api import Gradebook, MissingEntry

    with Gradebook(f"sqlite:///{course / 'gradebook.db'}") as book:
        for (student, exercise, question), (points, comment) in marks.items():
            try:
                grade = book.find_grade(question, exercise, name, student)
            except MissingEntry:
                continue  # of another assignment
            grade.manual_score, grade.needs_manual_grade = points, False
            book.find_comment(question, exercise, name, student).manual_comment = comment or None
        book.db.commit()


def failure(cell):
    """Why a cell failed, in one line."""
    for output in cell.get("outputs", []):
        if output["output_type"] == "error":
            text = " ".join(output["evalue"].split())
            return f"{output['ename']}: {text}"[:300] if text else output["ename"]
        if output["output_type"] == "stream" and output["name"] == "stderr":
            return "it wrote warnings"
    return ""


def failures(nb):
    """{question: why its test failed}, with the failure of a cell since the test before, which is often the cause."""
    found, earlier = {}, ""
    for cell in nb["cells"]:
        why = failure(cell) if cell["cell_type"] == "code" else ""
        if assignment.role(cell, "grade") and not assignment.role(cell, "solution"):
            found[cell["metadata"]["nbgrader"].get("grade_id")] = why and (
                f"{earlier}; then {why}" if earlier and not why.startswith("NotRun") else why
            )
            earlier = ""
        elif why and not earlier:
            earlier = "not answered" if why == "NotImplementedError" else why
    return found


def questions(course, name, reports):
    """All questions of all students, from the gradebook, the run notebooks and the reports."""
    from nbgrader.api import Gradebook

    found = []
    with Gradebook(f"sqlite:///{course / 'gradebook.db'}") as book:
        for submission in sorted(book.assignment_submissions(name), key=lambda s: s.student.id):
            student = submission.student.id
            for notebook in sorted(submission.notebooks, key=lambda n: n.name):
                report = reports.get((student, notebook.name), Report())
                ran = course / "autograded" / student / name / f"{notebook.name}.ipynb"
                failed = failures(assignment.read(ran)) if ran.exists() and not report.refused else {}
                order = [
                    c["metadata"]["nbgrader"]["grade_id"]
                    for c in assignment.read(assignment.exercises()[notebook.name])["cells"]
                    if assignment.role(c, "grade")
                ]
                for grade in sorted(notebook.grades, key=lambda g: order.index(g.name)):
                    hand = any(s.name == grade.name for s in notebook.notebook.solution_cells)
                    comments = [c.comment for c in notebook.comments if c.name == grade.name and c.comment]
                    waits = hand and grade.manual_score is None and grade.auto_score is None
                    how = TEST if not hand else HAND if waits or grade.manual_score is not None else NOTHING
                    why = report.refused or ("the cell was removed" if grade.name in report.missing else failed.get(grade.name, ""))
                    comment = comments[0] if comments and not report.refused else why
                    found.append(
                        Question(
                            student, notebook.name, grade.name, how, None if waits else float(grade.score), float(grade.max_score), comment
                        )
                    )
    return found


def _cell(text):
    """A text that no spreadsheet takes for a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def write_tables(course, found, reports):
    with (course / "questions.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(COLUMNS)
        for q in found:
            table.writerow(
                [
                    _cell(q.student),
                    q.exercise,
                    q.question,
                    q.how,
                    "" if q.points is None else f"{q.points:g}",
                    f"{q.max:g}",
                    _cell(q.comment),
                ]
            )
    exercises = list(dict.fromkeys(q.exercise for q in found))
    with (course / "marks.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(["student", "total", "max", "to_mark", *exercises, "remarks"])
        for student in dict.fromkeys(q.student for q in found):
            own = [q for q in found if q.student == student]
            sums = {e: sum(q.points or 0 for q in own if q.exercise == e) for e in exercises}
            waits = sum(q.max for q in own if q.points is None)
            remarks = [f"{e}: {n}" for e in exercises if (r := reports.get((student, e))) for n in ([r.refused] if r.refused else r.notes)]
            table.writerow(
                [
                    _cell(student),
                    f"{sum(sums.values()):g}",
                    f"{sum(q.max for q in own):g}",
                    f"{waits:g}",
                    *(f"{s:g}" for s in sums.values()),
                    _cell("; ".join(remarks)),
                ]
            )


def kept_reports(path):
    """Reports of the last run, by student and exercise."""
    return (
        {
            (r["student"], r["exercise"]): Report(r["refused"], r["missing"], r["notes"])
            for r in json.loads(path.read_text(encoding="utf-8"))
        }
        if path.exists()
        else {}
    )


def keep_reports(path, reports):
    rows = [{"student": s, "exercise": e, **vars(r)} for (s, e), r in sorted(reports.items())]
    path.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def finish(course, name, reports):
    """Enter the marks by hand, then write the tables and the pages."""
    import feedback

    mark(course, name, by_hand(course / "questions.csv"))
    found = questions(course, name, reports)
    write_tables(course, found, reports)
    pages = course / "feedback"
    pages.mkdir(exist_ok=True)
    for student in dict.fromkeys(q.student for q in found):
        own = [q for q in found if q.student == student]
        notebooks = {}
        for exercise in dict.fromkeys(q.exercise for q in own):
            path = course / "autograded" / student / name / f"{exercise}.ipynb"
            report = reports.get((student, exercise), Report())
            notebooks[exercise] = (
                (assignment.read(path) if path.exists() and not report.refused else None),
                [report.refused] * bool(report.refused) + report.notes,
            )
        (pages / f"{student}.html").write_text(feedback.page(student, name, own, notebooks), encoding="utf-8")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("submissions", type=Path, nargs="?")
    parser.add_argument("--exercises", nargs="*", default=[], help="default: those that somebody handed in")
    parser.add_argument("--course", type=Path, default=ROOT / "_grading")
    parser.add_argument("--name", default="assignment")
    parser.add_argument("--collect", action="store_true")
    parser.add_argument("--seconds", type=float, default=sandbox.Limits.seconds)
    parser.add_argument("--memory", type=int, default=sandbox.Limits.memory, help="bytes")
    parser.add_argument("--isolation", choices=("auto", "bwrap", "limits"), default="auto")
    a = parser.parse_args()
    course = a.course.expanduser().resolve()
    course.mkdir(parents=True, exist_ok=True)
    warnings.filterwarnings("ignore", message="Object of type")  # nbgrader's use of SQLAlchemy
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # nbgrader calls alembic
    try:
        if a.collect:
            reports = kept_reports(course / "reports.json")
        else:
            if a.submissions is None:
                raise ValueError("submissions: name the folder that holds one folder a student")
            folder = a.submissions.expanduser().resolve()
            submissions(folder)
            names = a.exercises or sorted(
                {e for place in submissions(folder).values() for e in handed_in(place)} & set(assignment.exercises())
            )
            if a.isolation == "auto" and not sandbox.boxes():
                print("bubblewrap is missing or may not work here: the code of the submissions runs under limits only", file=sys.stderr)
            reports = graded(course, a.name, names, folder, sandbox.Limits(seconds=a.seconds, memory=a.memory), a.isolation)
            keep_reports(course / "reports.json", reports)
        found = finish(course, a.name, reports)
    except (ValueError, RuntimeError) as error:
        sys.exit(f"grade: {error}")
    waits = sum(q.points is None for q in found)
    print(
        f"Marks: {course / 'marks.csv'}; feedback: {course / 'feedback'}"
        + (f"; {waits} answers wait for a mark in {course / 'questions.csv'}" if waits else "")
    )


if __name__ == "__main__":
    main()

"""Grade what students handed in, headless and offline: `grade.py FOLDER` (one folder a student in it) writes marks and feedback.

nbgrader keeps the gradebook and decides the points; the cells run under `sandbox.py`; `judge.py` looks at the numbers one by one. In the
course folder (default _grading), below results/<assignment>:

    marks.csv        a line a student: points by exercise, total, what is still to be marked by hand, remarks
    questions.csv    a line a question; points and comments typed in here are read at the next run, which keeps a copy in typed/
    canvas.csv, moodle.csv    the totals as these platforms import them (see `platforms.py`), if what was handed in came from there
    feedback/        one self-contained page a student
    marking.html     answers in words by question, with the reference answer and its points
    runs/            what each notebook gave when it ran; one that has not changed does not run again

and beside it

    gradebook.db, source/, release/, checked/, autograded/    nbgrader's own; its other tools work on them
    set-aside/       what a submission wrote into this folder or among the submissions, if it got that far

`--collect` runs nothing: it reads questions.csv and the gradebook and writes marks and pages anew.
"""

import argparse
import base64
import csv
import hashlib
import io
import json
import logging
import os
import re
import shutil
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path

import assignment
import handed_in
import platforms
import sandbox
from handed_in import Report

ROOT = assignment.ROOT
NOTES = {
    "timestamp.txt": r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)? \w+\s*",
    "submission_secret.txt": r"[\w+/=-]+\s*",
}  # of nbgrader's exchange
HAND, TEST, NOTHING = "by hand", "test", "no answer"
COLUMNS = ("student", "exercise", "question", "how", "points", "max", "comment")
ODD = re.compile(
    r"get_ipython|/proc\b|os\.kill|ctypes|settrace|showtraceback|input_transformer|builtins|ledger|answers\.(?:json|use|check)|__import__"
    r"|\b(?:check_table|answer|isclose|print|abs|all|round)\s*=(?!=)|\bdef (?:check_table|answer|isclose)\b"
)
FORGED = "the test passed, but none of its values is right"
PROBE = """
import json
def plain(v):
    if isinstance(v, dict):
        return {str(k): plain(x) for k, x in v.items()}
    if isinstance(v, (list, tuple)):
        return [plain(x) for x in v]
    return v if v is None or isinstance(v, (str, bool, int)) else float(v)
found = {}
for name in wanted:
    try:
        found[name] = json.loads(json.dumps(plain(own[name]), allow_nan=False))
    except Exception:
        pass
print(json.dumps(found))
"""  # tells the values that a test is about; runs before it in the student's kernel


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


@dataclass
class Ran:
    """What a notebook gave: outputs by the ids of its cells, what stopped it, values before each test, what `judge` says of them."""

    key: str
    outputs: dict
    notes: list
    stopped: list | None
    judged: dict


# ------------------------------------------------------------------------------------------------ before the run: what can be graded
def prepared(course, name, exercises, students, reports):
    """Write course/checked/<student>/name for all students; reports on each notebook.

    {(student, exercise): (cells, files beside it, path of the solved notebook)}.
    """
    paths = assignment.chosen(exercises)
    solved = {e: assignment.read(p) for e, p in paths.items()}
    starters = {e: assignment.starter(nb) for e, nb in solved.items()}
    jobs, variants = {}, Variants(course / "variants" / name, assignment.variants_of(course, name), {})
    for student in students.values():
        places = [p / name if (p / name).is_dir() else p for p in student.places]
        target = course / "checked" / student.id / name
        for old in (*target.glob("*.ipynb"), *(target / n for n in NOTES)):
            old.unlink(missing_ok=True)
        found, strangers = handed_in.matched(places, starters)
        lying = "; not known: " + ", ".join(strangers[:5]) if strangers else ""
        for exercise, starter in starters.items():
            path, nb, why, notes = found.get(exercise, (None, None, "not handed in" + lying, []))
            report = reports[student.id, exercise] = Report(refused=why)
            if nb is None:
                continue
            original, answered, remark = paths[exercise], solved[exercise], ""
            if variants.people:
                original, remark = variants.of(nb, student, exercise)
                if original is None:
                    report.refused = remark
                    continue
                answered = assignment.read(original)
                starter = assignment.without_digests(assignment.handed_out(original), original)
            nb, report = restored_or_refused(nb, starter)
            report.notes[:0] = notes + [remark] * bool(remark)
            reports[student.id, exercise] = report
            if nb:
                assignment.write(nb, target / f"{exercise}.ipynb")
                jobs[student.id, exercise] = with_tests(nb, answered), handed_in.beside(path), original
                report.notes += odd(nb, starter)
        for note, pattern in NOTES.items():
            for path in (p / note for p in places if target.is_dir()):
                small = path.is_file() and not path.is_symlink() and path.stat().st_size < 1000
                if small and re.fullmatch(pattern, text := path.read_text(encoding="utf-8", errors="replace")):
                    (target / note).write_text(text, encoding="utf-8")
    return jobs


@dataclass
class Variants:
    """Numbers of one's own in an assignment: the folder of the solved notebooks, {identity: person}, and whose variants came already."""

    folder: Path
    people: dict
    came: dict

    def of(self, nb, student, exercise):
        """(path of the solved notebook, remark) of a submission by the mark in it, or by the student's name; (None, why not)."""
        found = re.search(r"# variant ([0-9a-f]{10}):", "\n".join(map(assignment.source, nb["cells"])))
        own = next((i for i, person in self.people.items() if person in ("", student.id, student.name)), None)
        identity = found[1] if found else own
        path = self.folder / str(identity) / f"{exercise}.ipynb"
        if identity not in self.people or not path.exists():
            return None, "its numbers are none that were handed out"
        person = self.people[identity]
        other = self.came.setdefault((identity, exercise), student.id)
        if person and own not in (None, identity):
            return path, f"it has the numbers of {person}"
        if person and other != student.id:
            return path, f"it has the same numbers as the notebook of {other}"
        return path, ""


def restored_or_refused(nb, starter):
    """The notebook put in order, or None and why it can't be: one odd file stops nobody else's marks."""
    try:
        return handed_in.restored(nb, starter)
    except Exception as error:  # whatever a hostile file does
        return None, Report(refused=f"can't be read: {type(error).__name__}")


def with_tests(nb, solved):
    """The code cells of a checked notebook with the tests whole: (id, text, name of the test or "")."""
    digests = next((assignment.source(c) + "\n" for c in solved["cells"] if c.get("id") == "variant"), "")
    whole = {c["metadata"]["nbgrader"]["grade_id"]: digests + assignment.source(c) for c in solved["cells"] if "nbgrader" in c["metadata"]}
    cells = []
    for cell in (c for c in nb["cells"] if c["cell_type"] == "code"):
        test = cell["metadata"]["nbgrader"]["grade_id"] if assignment.locked(cell) else ""
        cells.append((cell["id"], whole[test] if test else cell["source"], test if assignment.role(cell, "grade") else ""))
    return cells


def odd(nb, starter):
    """Remarks on code that a solution rarely needs and a forger does."""
    own = {c["source"].strip() for c in starter["cells"]}
    cells = [c for c in nb["cells"] if c["cell_type"] == "code" and c["source"].strip() not in own]
    words = sorted({m[0].strip() for c in cells for m in ODD.finditer(c["source"])})
    return [f"read this notebook: it has {', '.join(words)}"] if words else []


# ----------------------------------------------------------------------------------------------------------------------- the run
def code_digest():
    """Digest of the library and the tools that decide what a run gives."""
    paths = sorted(p for p in (ROOT / "lib").rglob("*") if p.suffix in (".py", ".json", ".toml")) + [
        ROOT / "book/_site" / f"{n}.py" for n in ("sandbox", "judge", "seal", "grade", "handed_in")
    ]
    return hashlib.sha256(b"".join(hashlib.sha256(p.read_bytes()).digest() for p in paths)).hexdigest()


def asked(exercises):
    """{exercise: {test: quantities}} that are looked at one by one."""
    return json.loads(_book(ROOT / "book/_site/judge.py", "--asked", *exercises))


def _book(*arguments, text=""):
    """What a command of the book's own environment writes."""
    path = os.pathsep.join(map(str, (ROOT / "lib", ROOT / "book/_site")))
    run = subprocess.run([sandbox.PYTHON, *arguments], input=text, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path})
    if run.returncode:
        raise RuntimeError(run.stderr.strip().splitlines()[-1] if run.stderr.strip() else f"exit {run.returncode}")
    return run.stdout


def judged(exercise, values, path):
    """What `judge.py` says of the values of a notebook; nothing if it fails (then the tests alone decide)."""
    order = {"exercise": exercise, "values": values, "path": str(path)}
    try:
        return json.loads(_book(ROOT / "book/_site/judge.py", text=json.dumps(order)))
    except (RuntimeError, ValueError):
        return {}


def ran(cells, files, quantities, exercise, original, key, limits, isolation):
    """Run the cells of one notebook, with a look at the values before each test."""
    sources, places, looks = [], [], []
    for identity, text, test in cells:
        if quantities.get(test):
            looks.append((len(sources), test))
            sources.append(f"exec({PROBE!r}, {{'own': globals(), 'wanted': {quantities[test]!r}}})")
        places.append((len(sources), identity))
        sources.append(text)
    run = sandbox.execute(sources, limits, isolation, files)
    values = {}
    for at, test in looks:
        text = "".join(o["text"] for o in run.outputs[at] if o["output_type"] == "stream" and o["name"] == "stdout")
        try:
            values[test] = dict(json.loads(text))
        except (ValueError, TypeError, RecursionError):
            values[test] = {}
    where = [at for at, _ in places]
    stopped = [sum(at < run.stopped[0] for at in where) + 1, run.stopped[1]] if run.stopped else None
    return Ran(key, {identity: run.outputs[at] for at, identity in places}, [], stopped, judged(exercise, values, original))


def all_ran(jobs, results, limits, isolation, watch, aside):
    """Yield (student and exercise, Ran) for all jobs: from the last time where nothing has changed; in boxes, two at a time."""
    quantities, digest = asked(sorted({e for _, e in jobs})) if jobs else {}, code_digest()
    boxed = isolation != "limits"
    todo, known = {}, []
    for (student, exercise), (cells, files, original) in jobs.items():
        parts = [digest, cells, {n: hashlib.sha256(d).hexdigest() for n, d in files.items()}, vars(limits), quantities[exercise], boxed]
        key = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
        path = results / "runs" / student / f"{exercise}.json"
        old = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        if old.get("key") == key:
            known.append(((student, exercise), Ran(**old)))
        else:
            todo[student, exercise] = (
                path,
                (cells, files, quantities[exercise], exercise, original, key, limits, "bwrap" if boxed else "limits"),
            )
    yield from known

    def kept(which, made):
        path = todo[which][0]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(made)), encoding="utf-8")
        return which, made

    if boxed:
        with ThreadPoolExecutor(2) as pool:
            going = {pool.submit(ran, *job): which for which, (_, job) in todo.items()}
            for done in as_completed(going):
                yield kept(going[done], done.result())
        return
    own = [ROOT / "lib", sandbox.PYTHON.parents[1].resolve(), ROOT / "book/_site"]
    for which, (_, job) in todo.items():
        before = sandbox.stamps(own)
        with sandbox.watched(watch, aside) as changes:
            made = ran(*job)
        if harmed := sandbox.touched(before, sandbox.stamps(own)):
            raise RuntimeError(
                f"{which[0]}, {which[1]}: it (or somebody meanwhile) changed {harmed[0]}; marks given so far stand. "
                "Set both up anew, look at that notebook, then grade again"
            )
        if harmed := [c for c in changes if not c.startswith("new: ")]:
            reason = "it changed files outside its folder: " + ", ".join(changes[:5])
            made = Ran("", {i: [sandbox.error("Stopped", reason)] for i in made.outputs}, [f"{reason}; undone, no points"], None, {})
        elif changes:
            made.notes.append(f"while it ran, files appeared outside its folder: {', '.join(changes[:5])}; set aside")
        made.notes.append("ran under limits only, in no box")
        yield kept(which, made) if not harmed else (which, made)


def shown(outputs):
    """Outputs as nbgrader's form grader may show them: no markup or formula acts, a picture is data, no result counts as points."""
    made = []
    for output in outputs:
        output = dict(output)
        if "data" in output:
            data = {k: v for k, v in output["data"].items() if k in ("text/plain", "image/png")}
            if "text/markdown" in output["data"]:
                data["text/markdown"] = handed_in.harmless(output["data"]["text/markdown"])
            if "image/svg+xml" in output["data"]:
                title = re.search(r"<title[^>]*>([^<]*)</title>", output["data"]["image/svg+xml"])
                alt = re.sub(r'["<>&]', " ", title[1]) if title else "figure"
                packed = base64.b64encode(output["data"]["image/svg+xml"].encode("utf-8", "replace")).decode()
                data["text/html"] = f'<img alt="{alt}" src="data:image/svg+xml;base64,{packed}">'
            if "image/png" in data:
                data["image/png"] = re.sub(r"[^A-Za-z0-9+/=]", "", data["image/png"])
            output |= {"output_type": "display_data", "data": data, "metadata": {}}
            output.pop("execution_count", None)
        made.append(json.loads(json.dumps(output).encode("utf-8", "replace")))
    return made


def execution(runs):
    """A preprocessor for nbgrader that puts in what the cells gave in the sandbox."""
    from nbformat import from_dict
    from nbgrader.preprocessors import NbGraderPreprocessor

    gone = [sandbox.error("NotRun", "the cell was removed")]

    class SandboxExecute(NbGraderPreprocessor):
        def preprocess(self, nb, resources):
            run = runs[resources["nbgrader"]["student"], resources["nbgrader"]["notebook"]]
            for count, cell in enumerate((c for c in nb.cells if c.cell_type == "code"), 1):
                cell.outputs, cell.execution_count = [from_dict(o) for o in shown(run.outputs.get(cell.get("id"), gone))], count
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


def _digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _done(result, what):
    if not result["success"]:
        raise RuntimeError(f"nbgrader failed at {what}:\n{result.get('error') or ''}\n{result.get('log') or ''}")


def graded(course, name, exercises, folder, limits, isolation):
    """Run and grade all submissions of an assignment, and write the tables, whatever happens."""
    from nbgrader.api import Gradebook
    from nbgrader.apps import NbGraderAPI

    results = course / "results" / name
    take_in(course, name)
    students, passed = handed_in.students(folder, results / "unpacked")
    keep_tables(folder, passed, results)
    if passed:
        print(f"belongs to nobody: {', '.join(passed[:10])}", file=sys.stderr)
    reports, runs, state = {}, {}, State.read(results)
    state.students = {s.id: {"name": s.name, "canvas": s.canvas, "moodle": s.moodle} for s in students.values()}
    config = configuration(course, execution(runs))
    assignment.assign(exercises, course, name)
    api = NbGraderAPI(config=config)
    _done(api.generate_assignment(name), "generate_assignment (were the exercises changed after grading began? then choose another name)")
    jobs = prepared(course, name, exercises, students, reports)
    left = {s: {e for t, e in jobs if t == s} for s in students}
    start, count = time.monotonic(), 0

    def grade(student):
        nonlocal count
        for exercise in exercises:
            report, run = reports[student, exercise], runs.get((student, exercise))
            if run:
                report.notes += ["stopped in code cell {}: {}".format(*why) for why in [run.stopped] if why] + run.notes
        checked = {e: course / "checked" / student / name / f"{e}.ipynb" for e in exercises}
        keys = {e: runs[student, e].key + _digest(checked[e]) if (student, e) in runs else reports[student, e].refused for e in exercises}
        autograded = course / "autograded" / student / name
        same = state.done.get(student) == keys and all((autograded / f"{e}.ipynb").exists() for e in exercises if (student, e) in runs)
        if not same:
            state.done.pop(student, None)
            with Gradebook(config.CourseDirectory.db_url) as book:
                book.update_or_create_student(student)
                submission = book.update_or_create_submission(name, student)
                stands = wait_again(course, name, submission, {e: (student, e) in runs for e in exercises})
                book.db.commit()
            if any(s == student for s, _ in runs):
                try:
                    _done(api.autograde(name, student), f"the submission of {student}")
                except Exception as error:  # one submission that nbgrader can't hold stops nobody else
                    for exercise in exercises:
                        if (student, exercise) in runs:
                            reports[student, exercise].refused = f"could not be graded: {str(error).strip().splitlines()[-1][:200]}"
            with Gradebook(config.CourseDirectory.db_url) as book:
                enter(book.find_submission(name, student), reports, runs, course / "autograded" / student / name, stands)
                book.db.commit()
            state.done[student] = keys
        else:
            with Gradebook(config.CourseDirectory.db_url) as book:
                enter(book.find_submission(name, student), reports, runs, autograded, None)
        count += 1
        rest = (time.monotonic() - start) / count * (len(students) - count)
        print(f"graded {student} ({count} of {len(students)}{f'; about {rest / 60:.1f} min left' if rest > 1 else ''})", flush=True)

    try:
        for student in [s for s, those in left.items() if not those]:
            grade(student)
        for (student, exercise), run in all_ran(jobs, results, limits, isolation, [course, folder], course / "set-aside"):
            runs[student, exercise] = run
            left[student].discard(exercise)
            if not left[student]:
                grade(student)
    finally:
        state.reports |= reports
        state.write(results)
    return finish(course, name)


def keep_tables(folder, passed, results):
    """Copy a platform's own tables among the submissions, to be filled in; their names leave the list of what belongs to nobody."""
    for name in [n for n in passed if n.lower().endswith(".csv") and (folder / n).stat().st_size <= handed_in.LARGEST]:
        if platform := platforms.kind(folder / name):
            (results / "platform").mkdir(parents=True, exist_ok=True)
            shutil.copyfile(folder / name, results / "platform" / f"{platform}.csv")
            passed.remove(name)


def texts_of(path):
    """{name: text} of the graded cells of a notebook."""
    nb = assignment.read(path) if path.exists() else {"cells": []}
    return {c["metadata"]["nbgrader"]["grade_id"]: assignment.source(c) for c in nb["cells"] if "nbgrader" in c["metadata"]}


def wait_again(course, name, submission, there):
    """Take back marks by hand on answers that changed, with the old mark as a comment; those that stand, as (exercise, question)."""
    stands = set()
    for notebook in submission.notebooks:
        old, new = (texts_of(course / f / submission.student.id / name / f"{notebook.name}.ipynb") for f in ("autograded", "checked"))
        tests = {g.name for g in notebook.grades} - {s.name for s in notebook.notebook.solution_cells}
        code = {n: t for n, t in old.items() if n not in tests}
        for grade in (g for g in notebook.grades if g.manual_score is not None):
            test = grade.name in tests
            changed = code != {n: t for n, t in new.items() if n not in tests} if test else old.get(grade.name) != new.get(grade.name)
            if there.get(notebook.name) and not changed:
                stands.add((notebook.name, grade.name))
                continue
            comment = next((c for c in notebook.comments if c.name == grade.name), None)
            if comment is not None:
                said = f": {comment.manual_comment}" if comment.manual_comment else ""
                comment.manual_comment = f"an earlier answer got {grade.manual_score:g} of {grade.max_score:g}{said}"
            grade.manual_score, grade.needs_manual_grade = None, True
    return stands


def enter(submission, reports, runs, autograded, stands):
    """Points of tests by their values; zero for what is missing. With no ``stands`` only the reports are filled in."""
    for notebook in submission.notebooks:
        report, run = reports.get((submission.student.id, notebook.name)), runs.get((submission.student.id, notebook.name))
        if report is None:
            continue
        path = autograded / f"{notebook.name}.ipynb"
        failed = failures(assignment.read(path)) if run and path.exists() and not report.refused else {}
        for grade in notebook.grades:
            zero = report.refused or grade.name in report.missing or not run
            if not zero and grade.name in failed:
                said = run.judged.get(grade.name, {"values": {}, "others": 0})
                report.judged[grade.name] = list(points(said, failed[grade.name], grade.max_score))
                if not failed[grade.name] and any(not ok for ok, _ in said["values"].values()):
                    report.notes.append(f"{grade.name}: the test passed, but not all of its values are right; read this notebook")
            if stands is None:
                continue
            if zero:
                grade.auto_score, grade.manual_score, grade.needs_manual_grade = 0, None, False
            elif grade.name in report.judged:
                grade.auto_score = report.judged[grade.name][0]
            if (notebook.name, grade.name) in stands:
                grade.needs_manual_grade = False


def points(said, why, most):
    """(points, reason) of a test: all if it passes, else for each value that is right its share."""
    values, others = said["values"], said["others"]
    shares = {}
    for name, (ok, _) in values.items():  # a table of values is one quantity
        shares.setdefault(name.partition("[")[0], []).append(ok)
    right = sum(sum(s) / len(s) for s in shares.values())
    if not why and shares and not right:
        return 0, FORGED
    if not why or not shares:
        return (0 if why else most), why
    if right == len(shares) and not others:
        return most, ""  # rounded, or right by the student's own earlier values
    wrong = [f"{name}: {text}" for name, (ok, text) in values.items() if not ok]
    reason = why if not wrong or (len(wrong) == len(values) and all(t == "no answer" for _, t in values.values())) else "; ".join(wrong)
    return round(most * right / (len(shares) + others), 2), reason[:600]


# ---------------------------------------------------------------------------------------------------------------- marks by hand
@dataclass
class State:
    """What is kept between runs: reports, the table as it was written, the students' names, what was graded."""

    reports: dict
    written: list
    students: dict
    done: dict

    @classmethod
    def read(cls, results):
        path = results / "state.json"
        data = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        reports = {(r.pop("student"), r.pop("exercise")): Report(**r) for r in data.get("reports", [])}
        return cls(reports, data.get("written", []), data.get("students", {}), data.get("done", {}))

    def write(self, results):
        rows = [{"student": s, "exercise": e, **vars(r)} for (s, e), r in sorted(self.reports.items())]
        results.mkdir(parents=True, exist_ok=True)
        text = json.dumps({**vars(self), "reports": rows}, indent=1, ensure_ascii=False)
        (results / "state.new").write_text(text + "\n", encoding="utf-8", errors="replace")
        (results / "state.new").replace(results / "state.json")


def lines_of(path):
    """[(line number, row)] of a table as a spreadsheet saves it: commas or semicolons, UTF-8 or Windows' letters."""
    text = platforms.decoded(path.read_bytes())
    table = csv.DictReader(io.StringIO(text, newline=""), delimiter=platforms.separator(text))
    if missing := set(COLUMNS) - set(table.fieldnames or ()):
        raise ValueError(f"{path.name}: the columns {', '.join(sorted(missing))} are missing; its first line must be {','.join(COLUMNS)}")
    return [(table.line_num, {k: (row[k] or "").strip() for k in COLUMNS}) for row in table]


def _key(row):
    return row["student"].removeprefix("'"), row["exercise"], row["question"]


def typed(path, written):
    """{(student, exercise, question): (points or None, comment)} of the rows that differ from the table as it was written."""
    if not path.exists():
        return {}
    old, found = {_key(r): r for r in written}, {}
    for number, row in lines_of(path):
        where = f"{path.name}, line {number}: {row['student']}, {row['question']}"
        before = old.get(_key(row), {"points": "", "comment": "", "how": HAND})
        text = row["points"].replace(",", ".")
        try:
            value = float(text) if text else None
            most = float(row["max"].replace(",", "."))
        except ValueError:
            raise ValueError(f"{where}: points must be a number, got {row['points']!r}") from None
        if value is not None and not 0 <= value <= most:
            raise ValueError(f"{where}: points must lie between 0 and {most:g}, got {value:g}")
        if value != (float(before["points"]) if before["points"] else None) or row["comment"] != before["comment"].strip():
            found[_key(row)] = (None if value is None else value), row["comment"].removeprefix("'"), row["points"] != before["points"]
    return found


def take_in(course, name):
    """Enter what was typed into questions.csv into the gradebook: all of it or, with an error, nothing. A copy of the table is kept."""
    from nbgrader.api import Gradebook, MissingEntry

    results = course / "results" / name
    path, state = results / "questions.csv", State.read(results)
    marks = typed(path, state.written)
    if not marks:
        return
    kept = results / "typed"
    kept.mkdir(parents=True, exist_ok=True)
    shutil.copy2(path, kept / f"questions-{len(list(kept.iterdir())) + 1:04}.csv")
    with Gradebook(f"sqlite:///{course / 'gradebook.db'}") as book:
        for (student, exercise, question), (value, comment, new) in marks.items():
            try:
                grade = book.find_grade(question, exercise, name, student)
            except MissingEntry:
                where = f"questions.csv: {student}, {question}"
                raise ValueError(f"{where}: no such question in {name}; nothing was written, the table is as it was") from None
            if new:
                grade.manual_score, grade.needs_manual_grade = value, value is None and grade.auto_score is None
            try:
                book.find_comment(question, exercise, name, student).manual_comment = comment or None
            except MissingEntry:  # nbgrader keeps no comments on tests
                state.reports.setdefault((student, exercise), Report()).judged[question] = [value or 0, comment]
        book.db.commit()
    state.write(results)
    finish(course, name)


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

    found, orders = [], {}
    with Gradebook(f"sqlite:///{course / 'gradebook.db'}") as book:
        for submission in sorted(book.assignment_submissions(name), key=lambda s: s.student.id):
            student = submission.student.id
            for notebook in sorted(submission.notebooks, key=lambda n: n.name):
                report = reports.get((student, notebook.name), Report())
                if notebook.name not in orders:
                    cells = assignment.read(assignment.exercises()[notebook.name])["cells"]
                    orders[notebook.name] = [c["metadata"]["nbgrader"]["grade_id"] for c in cells if assignment.role(c, "grade")]
                order = orders[notebook.name]
                for grade in sorted(notebook.grades, key=lambda g: order.index(g.name)):
                    hand = any(s.name == grade.name for s in notebook.notebook.solution_cells)
                    manual = grade.manual_score is not None
                    comments = [c.comment for c in notebook.comments if c.name == grade.name and c.comment]
                    waits = hand and not manual and (grade.auto_score is None or grade.needs_manual_grade)
                    how = HAND if waits or manual else NOTHING if hand else TEST
                    why = report.judged.get(grade.name, (0, ""))[1]
                    why = report.refused or ("the cell was removed" if grade.name in report.missing else why)
                    comment = "; ".join(filter(None, [why if not hand or not comments or report.refused else "", *comments[:1]]))
                    value = None if waits else float(grade.score)
                    found.append(Question(student, notebook.name, grade.name, how, value, float(grade.max_score), comment))
    return found


# ------------------------------------------------------------------------------------------------------------- tables and pages
def _cell(text):
    """A text that no spreadsheet takes for a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def _table(path, head, rows):
    path.write_bytes(platforms.written([head, *rows]))


def write_tables(results, name, found, state):
    """The tables of an assignment; `state` learns what stands in questions.csv."""
    rows = []
    for q in found:
        value = "" if q.points is None else f"{q.points:g}"
        rows.append([_cell(q.student), q.exercise, q.question, q.how, value, f"{q.max:g}", _cell(" ".join(q.comment.split()))])
    _table(results / "questions.csv", COLUMNS, rows)
    state.written = [dict(zip(COLUMNS, row)) for row in rows]
    exercises = list(dict.fromkeys(q.exercise for q in found))
    marks, totals = [], {"canvas": {}, "moodle": {}}
    for student in dict.fromkeys(q.student for q in found):
        own = [q for q in found if q.student == student]
        sums = {e: sum(q.points or 0 for q in own if q.exercise == e) for e in exercises}
        total, most, waits = sum(sums.values()), sum(q.max for q in own), sum(q.max for q in own if q.points is None)
        seen = {e: r for e in exercises if (r := state.reports.get((student, e)))}
        remarks = _cell("; ".join(f"{e}: {n}" for e, r in seen.items() for n in ([r.refused] if r.refused else r.notes)))
        who = state.students.get(student, {"name": student, "canvas": "", "moodle": ""})
        sums = [f"{s:g}" for s in sums.values()]
        marks.append([_cell(student), f"{total:g}", f"{most:g}", f"{waits:g}", *sums, remarks, _cell(who["name"])])
        for platform, those in totals.items():
            if who[platform]:
                those[who[platform]] = _cell(who["name"]), total, most, remarks
    _table(results / "marks.csv", ["student", "total", "max", "to_mark", *exercises, "remarks", "name"], marks)
    for platform, those in totals.items():
        own = results / "platform" / f"{platform}.csv"
        if those:
            data, notes = getattr(platforms, platform)(name, those, own if own.exists() else None)
            (results / f"{platform}.csv").write_bytes(data)
            print(*notes, sep="\n", end="\n" * bool(notes), file=sys.stderr)


def finish(course, name):
    """Write the tables and the pages from the gradebook and the state."""
    import feedback

    results = course / "results" / name
    state = State.read(results)
    found = questions(course, name, state.reports)
    write_tables(results, name, found, state)
    state.write(results)
    pages = results / "feedback"
    pages.mkdir(exist_ok=True)
    answers = {}
    for student in dict.fromkeys(q.student for q in found):
        own = [q for q in found if q.student == student]
        notebooks = {}
        for exercise in dict.fromkeys(q.exercise for q in own):
            path = course / "autograded" / student / name / f"{exercise}.ipynb"
            report = state.reports.get((student, exercise), Report())
            nb = assignment.read(path) if path.exists() and not report.refused else None
            notebooks[exercise] = nb, [report.refused] * bool(report.refused) + report.notes
            texts = {c["metadata"].get("nbgrader", {}).get("grade_id"): assignment.source(c) for c in nb["cells"]} if nb else {}
            for q in own:
                if q.exercise == exercise and q.how == HAND and q.question in texts:
                    answers.setdefault((exercise, q.question), []).append((q, texts[q.question]))
        (pages / f"{student}.html").write_bytes(feedback.page(student, name, own, notebooks).encode("utf-8", "replace"))
    (results / "marking.html").write_bytes(feedback.marking(name, answers).encode("utf-8", "replace"))
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
    parser.add_argument("--isolation", choices=("bwrap", "limits"), default="bwrap", help="limits: in no box")
    a = parser.parse_args()
    course = a.course.expanduser().resolve()
    course.mkdir(parents=True, exist_ok=True)
    warnings.filterwarnings("ignore", message="Object of type")  # nbgrader's use of SQLAlchemy
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # nbgrader calls alembic
    results = course / "results" / a.name
    try:
        if not assignment.NAME.fullmatch(a.name):
            raise ValueError(f"name must be letters, digits, '-', '_' and '.', got {a.name!r}")
        if a.collect:
            take_in(course, a.name)
            found = finish(course, a.name)
        else:
            if a.submissions is None:
                raise ValueError("submissions: name the folder that holds one folder a student")
            if a.isolation == "bwrap" and (why := sandbox.unboxed()):
                raise ValueError(f"{why}. Code that nobody has read does not run outside a box unless you say so: ISOLATION=limits")
            folder = handed_in.unpacked_download(a.submissions.expanduser().resolve(), results / "download")
            names = a.exercises or in_use(folder, results)
            found = graded(course, a.name, names, folder, sandbox.Limits(seconds=a.seconds, memory=a.memory), a.isolation)
    except (ValueError, RuntimeError) as error:
        sys.exit(f"grade: {error}")
    waits = sum(q.points is None for q in found)
    print(
        f"Marks: {results / 'marks.csv'}; feedback: {results / 'feedback'}"
        + (f"; {waits} answers wait for a mark in {results / 'questions.csv'}" if waits else "")
    )


def in_use(folder, results):
    """Exercises that somebody handed in."""
    starters = {e: assignment.starter(assignment.read(p)) for e, p in assignment.exercises().items()}
    students, _ = handed_in.students(folder, results / "unpacked")
    return sorted({e for s in students.values() for e in handed_in.matched(s.places, starters)[0]})


if __name__ == "__main__":
    main()

"""Starters: the source minus its holes, as nbgrader makes them; on the site; and a class's site without solutions."""

import json
import os
import re
import subprocess
import sys

import pytest
from conftest import ROOT, SITE, SWEEP

sys.path.insert(0, str(ROOT / "book/_site"))
import assignment
import class_site
import packing
import seal

from workloads_book import answers

GRADING = ROOT / ".venv-grading/bin"
EXERCISES = assignment.exercises()
every = pytest.mark.parametrize("exercise", EXERCISES)
needs_nbgrader = pytest.mark.skipif(
    not (GRADING / "nbgrader").exists(), reason="nbgrader is not installed: `make test` or `make grade` does it"
)
REGION = r"(?ms)^([ \t]*)### BEGIN {0}\n.*?^[ \t]*### END {0}[^\n]*"


def region(name):
    return REGION.replace("{0}", name)


def code(text, **grading):
    roles = {"grade": False, "solution": False, "locked": False, "grade_id": "x", "points": 1} | grading
    return {"cell_type": "code", "source": text, "metadata": {"nbgrader": roles} if grading else {}, "outputs": [{}], "execution_count": 3}


@every
def test_a_starter_is_the_source_minus_its_holes(exercise):
    """Cell by cell: solution regions are stubs, hidden tests and outputs are gone, and nothing else differs."""
    source = assignment.read(EXERCISES[exercise])
    starter = assignment.starter(source)
    assert {k: v for k, v in starter.items() if k != "cells"} == {k: v for k, v in source.items() if k != "cells"}
    assert len(starter["cells"]) == len(source["cells"])
    holes = 0
    for made, cell in zip(starter["cells"], source["cells"]):
        text = assignment.source(cell)
        if "<details>" in text and assignment.role(cell, "solution"):
            expected = "YOUR ANSWER HERE"
        else:
            expected = re.sub(region("SOLUTION"), r"\1# YOUR CODE HERE\n\1raise NotImplementedError()", text)
            expected = re.sub(region("HIDDEN TESTS") + r"\n?", "", expected)
        holes += expected != text
        assert assignment.source(made).rstrip("\n") == expected.rstrip("\n")
        grading = {k: v for k, v in made["metadata"].get("nbgrader", {}).items() if k not in ("checksum", "cell_type")}
        assert grading == cell["metadata"].get("nbgrader", {}) and made["metadata"].get("tags") == cell["metadata"].get("tags")
        assert made["cell_type"] == cell["cell_type"] and made.get("id") == cell.get("id")
        assert not made.get("outputs") and made.get("execution_count") is None
    assert holes >= 3


@every
def test_a_starter_tells_its_student_what_to_do(exercise):
    """Text to write, code to write, `answer` at hand; a test that students see asserts something and cannot be edited."""
    cells = assignment.starter(assignment.read(EXERCISES[exercise]))["cells"]
    texts = "\n".join(map(assignment.source, cells))
    assert "YOUR CODE HERE" in texts and "YOUR ANSWER HERE" in texts and "from workloads_book import answer" in texts
    for cell in cells:
        if assignment.locked(cell):
            assert re.search(r"^ *assert ", assignment.source(cell), re.MULTILINE), "a test shows what it looks at"
            assert cell["metadata"]["editable"] is False and cell["metadata"]["deletable"] is False


@every
def test_answers_with_their_arithmetic_stay_with_the_solution(exercise):
    """The folded "Answer" paragraphs stand inside solution regions: neither starters nor the class's pages have them, in text or output."""
    solved = assignment.read(EXERCISES[exercise])
    answers = [line for c in solved["cells"] for line in assignment.source(c).splitlines() if "**Answer" in line]
    assert answers
    for made in (assignment.starter(solved), class_site.page(solved)):
        text = json.dumps(made, ensure_ascii=False)
        assert "**Answer" not in text and "BEGIN SOLUTION" not in text and "HIDDEN TESTS" not in text
    outputs = [o for c in class_site.page(solved)["cells"] if not assignment.source(c).startswith("given(") for o in c.get("outputs", ())]
    assert outputs == []


def test_wheels_for_students_hold_no_value_of_a_solution():
    """Of the ledger, no row that only a solution computes; in the text of the library, no value of five digits or more of such a row."""
    text = (ROOT / "lib" / packing.LEDGER).read_text(encoding="utf-8")
    kept = json.loads(packing.files("workloads_book")[packing.LEDGER])
    known = {row["id"] for row in kept}
    hidden = [row for row in json.loads(text) if row["id"] not in known]
    assert len(hidden) > 50 and all(row["id"].startswith("ex3") for row in hidden)
    values = {f"{row['value']:.12g}" for row in hidden if isinstance(row["value"], (int, float))}
    values = {v for v in values if len(v.replace(".", "").strip("0-")) >= 5} - {
        f"{row['value']:.12g}" for row in kept if isinstance(row["value"], (int, float))
    }
    values -= {str(2**n) for n in range(10, 64)}  # sizes of blocks and buffers
    assert values
    for package in packing.PROJECTS:
        for name, data in packing.files(package).items():
            if name.endswith(".py"):
                numbers = set(re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.]*\d)", data.decode().replace("_", "").replace(",", "")))
                assert not numbers & values, (name, numbers & values)


def digits(value):
    """A number as it may stand in a text, if it has five digits or more and is no size of a block or buffer; else nothing."""
    text = f"{value:.12g}" if isinstance(value, (int, float)) else ""
    return text if len(text.partition("e")[0].replace(".", "").strip("0-")) >= 5 and value not in {2**n for n in range(10, 64)} else ""


def test_wheels_hold_no_value_of_an_exercise_whose_numbers_stand_fast():
    """Nor of those that no variant changes; what a chapter tells anyway is asked with numbers of their own."""
    values = set()
    for path in (p for p in EXERCISES.values() if not p.with_name("variants.toml").exists()):
        names = seal.solved(path)
        values |= {digits(v) for q in seal.table(path)[0] for v in answers.flat(q, names[q]).values()} - {""}
    assert len(values) > 40
    for package in packing.PROJECTS:
        for name, data in packing.files(package).items():
            if name.endswith((".py", ".json", ".tsv", ".toml")):
                plain = data.decode().replace("_", "").replace(",", "")
                assert not values & set(re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.]*\d)", plain)), name


@needs_nbgrader
def test_nbgrader_makes_the_same_starters(tmp_path):
    """Byte for byte, checksums included."""
    release = assignment.assign(list(EXERCISES), tmp_path, "all")
    ours = {p.name: p.read_bytes() for p in release.glob("*.ipynb")}
    environment = os.environ | {"PATH": f"{GRADING}{os.pathsep}{os.environ['PATH']}"}
    run = subprocess.run(
        [GRADING / "nbgrader", "generate_assignment", "all", "--create", "--force", "--log-level=ERROR"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    assert {p.name: p.read_bytes() for p in release.glob("*.ipynb")} == ours and len(ours) == len(EXERCISES)


@pytest.mark.parametrize(
    ("text", "roles"),
    [
        ("### BEGIN SOLUTION\nx = 1", {"solution": True}),
        ("### BEGIN SOLUTION\n### BEGIN SOLUTION\n### END SOLUTION", {"solution": True}),
        ("### BEGIN SOLUTION\nx = 1\n### END SOLUTION", {}),
        ("### BEGIN HIDDEN TESTS\nassert x\n### END HIDDEN TESTS", {"locked": True}),
    ],
)
def test_a_hole_in_the_wrong_place_is_refused(text, roles):
    with pytest.raises(ValueError, match="SOLUTION|solution|hidden"):
        assignment.starter_cell(code(text, **roles))


def test_a_starter_of_a_starter_is_itself():
    starter = assignment.starter(assignment.read(next(iter(EXERCISES.values()))))
    assert assignment.starter(starter) == starter


def assign(*arguments):
    """The command with Python alone: no site-packages, no environment."""
    return subprocess.run(
        [sys.executable, "-E", "-S", ROOT / "book/_site/assignment.py", *map(str, arguments)], capture_output=True, text=True, cwd=ROOT
    )


def test_the_folder_to_hand_out_holds_starters_and_nothing_else(tmp_path):
    run = assign("3-02", "3-04", "--course", tmp_path, "--name", "week-1")
    assert run.returncode == 0, run.stderr
    release = tmp_path / "release/week-1"
    names = ["3-02.ipynb", "3-04.ipynb", "README.md", *packing.wheels()]
    assert str(release) in run.stdout and sorted(p.name for p in release.iterdir()) == names
    text = "".join(p.read_text(encoding="utf-8") for p in release.iterdir() if p.suffix != ".whl")
    assert "BEGIN SOLUTION" not in text and "HIDDEN TESTS" not in text and "Show the answer" not in text and "week-1" in text
    assert assign("3-01", "--course", tmp_path, "--name", "week-1").returncode == 0
    assert sorted(p.name for p in release.iterdir()) == ["3-01.ipynb", "README.md", *packing.wheels()], "a second call replaces the first"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["3-2"], "3-2 unknown; there are 3-01"), ([], "name at least one"), (["3-01", "--name", "../up"], "name must be")],
)
def test_a_wrong_assignment_is_refused_in_one_line(tmp_path, arguments, said):
    run = assign(*arguments, "--course", tmp_path)
    assert run.returncode == 1 and said in run.stderr and len(run.stderr.splitlines()) == 1 and not list(tmp_path.iterdir())


@pytest.mark.parametrize("page", ["for-teachers", "for-readers"])
def test_commands_on_the_pages_exist(page):
    """Targets and variables of make, tools and folders that the page names."""
    text, makefile = (ROOT / f"book/{page}.md").read_text(encoding="utf-8"), (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"(?<!`)\bmake (?:-C \S+ )?([a-z][a-z-]+)(?=\s+[A-Z]+=|\s*$|`)", text, re.MULTILINE)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    for variable in set(re.findall(r"\b([A-Z]{5,})=", text)):
        assert f"$({variable})" in makefile, variable
    for tool in set(re.findall(r"book/_site/\w+\.py|lib/[\w/.]+\.json|requirements\.txt|constraints\.txt", text)):
        assert (ROOT / tool).exists(), tool


# The sites


@pytest.mark.skipif(not SITE.is_dir(), reason="the site is not built: run `make book`")
@every
def test_the_site_offers_the_starter_and_folds_the_solution(exercise):
    page = SITE / f"exercises/{exercise}/{exercise}.html"
    offered = SITE / f"starters/{exercise}.ipynb"
    assert json.loads(offered.read_text(encoding="utf-8"))["cells"] == [
        {**c, "source": assignment.source(c).splitlines(keepends=True)} for c in assignment.handed_out(EXERCISES[exercise])["cells"]
    ]
    text = page.read_text(encoding="utf-8")
    assert f'href="../../starters/{exercise}.ipynb"' in text
    cells = assignment.read(EXERCISES[exercise])["cells"]
    tests = sum(assignment.locked(c) for c in cells)
    assert text.count("Show the test") == tests > 0, "a test that holds the right values is folded"
    assert text.count("<details") >= tests + sum("hide-cell" in c["metadata"].get("tags", []) for c in cells)


def planted(folder, name, text):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return class_site.leaks(folder)


def test_a_solution_would_be_found_wherever_it_stands(tmp_path):
    """In highlighted code, in a notebook, in a script, in an archive; as code, as text, as hidden test. A starter holds none."""
    source = assignment.read(EXERCISES["3-02"])
    solution, answer = (
        next(c for c in source["cells"] if c["cell_type"] == kind and assignment.role(c, "solution")) for kind in ("code", "markdown")
    )
    test = next(c for c in source["cells"] if "ex3-2-two-drain" in assignment.source(c))
    coloured = "".join(f"<span>{word}</span>" for word in re.split(r"(\W)", assignment.source(solution)))
    assert planted(tmp_path / "a", "page.html", f"<pre>{coloured}</pre>")
    assert planted(tmp_path / "b", "page.html", f"<p>{assignment.source(answer)}</p>")
    assert planted(tmp_path / "c", "solved.ipynb", json.dumps(source))
    assert planted(tmp_path / "d", "search.js", json.dumps(assignment.source(test)))
    assert not planted(tmp_path / "e", "starter.ipynb", json.dumps(assignment.starter(source)))
    assert not planted(tmp_path / "f", "page.html", "<p>Some other page</p>")
    import zipfile

    (tmp_path / "g").mkdir()
    with zipfile.ZipFile(tmp_path / "g/workloads-1-py3-none-any.whl", "w") as packed:
        packed.writestr("solved.ipynb", json.dumps(source))
    assert class_site.leaks(tmp_path / "g")


@every
def test_each_solution_would_be_found(exercise):
    """Of every cell that a starter lacks something of the search finds what it hides, but for single lines of a few names."""
    for text in class_site.hidden(assignment.read(EXERCISES[exercise])):
        assert class_site.copies(text) or (len(class_site.words(text)) < class_site.SHINGLE and "Answer" not in text), text


def test_figures_and_names_that_many_pages_show_accuse_nobody():
    """Rows of figures are in many tables, and the same model and card stand side by side in code and in prose."""
    assert class_site.words("model('Qwen3-8B') on an RTX PRO 6000 Blackwell Workstation: 18.43, 4,096") == [
        "model",
        "qwen3-8b",
        "on",
        "an",
        "rtx-pro-6000-blackwell-workstation",
        "18.43",
        "4,096",
    ]
    assert class_site.shingles("0 1 2 1 0 1 0 1 2 3") == class_site.shingles("18.43 4,096 2,048 6 1 2 3 4") == set()
    assert len(class_site.shingles("the wait of the last one is as long as ten")) == 4


@pytest.mark.skipif(not SITE.is_dir(), reason="the site is not built: run `make book`")
def test_the_site_of_a_class_holds_no_solution(tmp_path):
    """Its exercises as Sphinx makes them, from stored outputs, and the chapters, which are those of the book; the solved site holds plenty.

    With SWEEP in the environment (`make sweep`), as in `make class-site`, all its pages are built and searched.
    """
    target = class_site.copied(ROOT, tmp_path / "class")
    site = class_site.build(target) if SWEEP else class_site.exercises_alone(target)
    assert class_site.leaks(site) == {}
    solved = set(class_site.leaks(SITE))
    assert solved >= {f"exercises/{e}/{e}.html" for e in EXERCISES}
    assert {name for name in solved if not re.match(r"(_sources/)?exercises/|_static/search-index\.js$|searchindex\.js$", name)} == set()
    for exercise in EXERCISES:
        text = (site / f"exercises/{exercise}/{exercise}.html").read_text(encoding="utf-8")
        assert "YOUR ANSWER HERE" in text and "NotImplementedError" in text and f"starters/{exercise}.ipynb" in text
        assert (site / f"_sources/exercises/{exercise}/{exercise}.ipynb").exists(), "the page's download is the starter"

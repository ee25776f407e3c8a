"""Stored notebooks: complete runs in order, in the normal form, in the agreed shape.

nbval compares a cell's outputs only when the cell was run, so a notebook that was never run would pass it.
"""

import ast
import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import content
import nbformat
import prose
import pytest

ROOT = Path(__file__).parents[1]
SPEC = importlib.util.spec_from_file_location("notebooks", ROOT / "book/_site/notebooks.py")
notebooks = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(notebooks)

CHAPTERS = sorted(p for p in ROOT.glob("book/**/*.ipynb") if "node_modules" not in p.parts)
EXERCISES = sorted(ROOT.glob("exercises/*/*.ipynb"))


def every(paths):
    return pytest.mark.parametrize("path", paths, ids=lambda p: p.relative_to(ROOT).as_posix())


def read(path):
    return nbformat.read(path, as_version=4)


def problems(nb):
    """What keeps a notebook from being a clean, complete run."""
    code = [c for c in nb.cells if c.cell_type == "code"]
    if [c.execution_count for c in code] != list(range(1, len(code) + 1)):
        yield "execution counts are not 1..n"
    for c in code:
        if any(o.output_type == "error" or o.get("name") == "stderr" for o in c.outputs):
            yield f"error or stderr in: {c.source[:60]}"
        if c.source.rstrip().endswith(";"):
            yield f"trailing semicolon in: {c.source[:60]}"
        shows = re.search(r"(?<![.\w])(say|table|check|check_table|given)\(|@figure\(", c.source)
        if shows and not c.outputs and not re.search(r"^\s*def ", c.source, re.MULTILINE):
            yield f"no stored output in: {c.source[:60]}"


@every(CHAPTERS + EXERCISES)
def test_a_stored_notebook_is_a_complete_run(path):
    assert not list(problems(read(path)))


@every(CHAPTERS + EXERCISES)
def test_a_stored_notebook_is_in_the_normal_form(path):
    assert notebooks.is_normal(path)


def test_code_of_every_page_is_formatted():
    assert notebooks.tidy(CHAPTERS + EXERCISES, "--diff")


def test_a_notebook_out_of_form_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(notebooks, "ROOT", tmp_path)
    kept, odd = tmp_path / "kept.ipynb", tmp_path / "odd.ipynb"
    nbformat.write(notebooks.normalise(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("x = 1")])), kept)
    odd.write_text(kept.read_text(encoding="utf-8").replace("x = 1", "x=1"), encoding="utf-8")
    assert not notebooks.check([kept]) and notebooks.check([odd]) == 1
    assert "odd.ipynb" in capsys.readouterr().err


@every(CHAPTERS + EXERCISES)
def test_a_page_names_its_sections_and_minutes(path):
    page = content.page(path)
    assert page.metadata["document"] in ("ground", "flop-accounting", "workloads", "beyond")
    assert isinstance(page.metadata["sections"], list) and 1 <= page.minutes <= 60
    assert ("minutes" in page.metadata) == (path in EXERCISES), "minutes are counted; an exercise names its own"


@every(CHAPTERS + EXERCISES)
def test_a_cell_without_visible_input_only_shows(path):
    for cell in read(path).cells:
        if "remove-input" in cell.metadata.get("tags", []):
            assert re.match(r"(say|given|table|guess|check_table|show_explanation)\(", cell.source), cell.source


FORMULA = re.compile(r"(?<![\\$])\$(?!\$)((?:\\.|[^$\\\n])+)\$")


def prose_in_formulas(text):
    """Formulas that begin with a number or a slash and hold words: most likely two amounts of money and what stands between them."""
    return [
        f for f in FORMULA.findall(text) if re.match(r"[\d/]", f) and re.search(r" [a-z]{2,}\b", re.sub(r"\\[a-z]+(\{[^}]*\})?", "", f))
    ]


@every(CHAPTERS + EXERCISES)
def test_no_amounts_of_money_are_read_as_a_formula(path):
    texts = [
        c.source if c.cell_type == "markdown" else "\n".join(o.get("data", {}).get("text/markdown", "") for o in c.outputs)
        for c in read(path).cells
    ]
    assert [f for text in texts for f in prose_in_formulas(text)] == []


def test_two_amounts_of_money_in_a_line_are_found_and_formulas_are_not():
    assert prose_in_formulas("from $2.10 an hour to $3") == ["2.10 an hour to "]
    assert prose_in_formulas(r"$2mkn$, \$2 an hour, $20 \text{ if it holds}$ and $$1 + x$$") == []


@every(CHAPTERS + EXERCISES)
def test_pages_do_not_name_a_place_on_a_machine(path):
    assert not re.search(r"/work/|/tmp/|/home/|/Users/", path.read_text(encoding="utf-8"))


@every(EXERCISES)
def test_an_exercise_can_be_released_and_graded(path):
    assert path.stem == path.parent.name
    cells = [c for c in read(path).cells if "nbgrader" in c.metadata]
    ids = [c.metadata.nbgrader.grade_id for c in cells]
    assert len(ids) == len(set(ids)) and all(i.startswith(path.stem) for i in ids)
    solutions = [c for c in cells if c.metadata.nbgrader.solution]
    tests = [c for c in cells if c.metadata.nbgrader.grade and not c.metadata.nbgrader.solution]
    assert solutions and tests
    for c in solutions:
        if c.cell_type == "code":
            assert c.source.count("### BEGIN SOLUTION") == c.source.count("### END SOLUTION") == 1 and "hide-cell" in c.metadata.tags
        else:
            assert c.metadata.nbgrader.grade and "<details>" in c.source
    for c in tests:
        assert c.metadata.nbgrader.locked and c.metadata.nbgrader.points > 0 and "### BEGIN HIDDEN TESTS" in c.source


def test_the_tools_read_a_page_that_installs_the_library():
    """With a repository named, as for publishing, every notebook begins with a command of the notebook inside an `except`."""
    nb = notebooks.place_install(read(CHAPTERS[0]), ["git+https://example.org/book"])
    code = [c.source for c in nb.cells if c.cell_type == "code"]
    assert "    %pip install" in code[0]
    assert ast.unparse(content.parsed(code[0])) == "try:\n    import workloads_book\nexcept ModuleNotFoundError:\n    pass"
    assert prose.of_code(content.Page(nb)) >= prose.of_code(content.page(CHAPTERS[0])) and content.parsed("\n".join(code))


def test_a_notebook_that_was_never_run_is_refused():
    nb = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1 + 1")])
    assert "execution counts are not 1..n" in list(problems(nb))


def test_a_run_out_of_order_is_refused():
    cells = [nbformat.v4.new_code_cell("1", execution_count=2), nbformat.v4.new_code_cell("2", execution_count=1)]
    assert "execution counts are not 1..n" in list(problems(nbformat.v4.new_notebook(cells=cells)))


def nbval(folder, nb):
    path = folder / "planted.ipynb"
    nbformat.write(nb, path)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--nbval", "--nbval-current-env", str(path)],
        capture_output=True,
        text=True,
        cwd=folder,
    )


def test_a_wrong_stored_output_fails_the_run(tmp_path):
    """The true notebook passes nbval; with one digit of one stored output changed it fails."""
    nb = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("from workloads.counts import flops\nflops.pairs(8192)")])
    right = notebooks.normalise(notebooks.run(nb, tmp_path))
    assert nbval(tmp_path, right).returncode == 0
    wrong = nbformat.from_dict(json.loads(json.dumps(right).replace("33558528", "33558529")))
    assert wrong != right
    assert nbval(tmp_path, wrong).returncode == 1


def test_running_a_notebook_again_leaves_it_as_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr(notebooks, "ROOT", tmp_path)
    cells = [nbformat.v4.new_markdown_cell("# Title"), nbformat.v4.new_code_cell("from workloads_book.page import say\nsay('text')")]
    path = tmp_path / "a.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    assert notebooks.refresh(path).startswith("stored")
    stored = path.read_text()
    assert notebooks.refresh(path).startswith("same") and path.read_text() == stored

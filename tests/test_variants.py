"""Exercises with numbers of their own: text, tests and expected values agree, and one variant's answers are not another's."""

import ast
import contextlib
import copy
import io
import json
import math
import random
import re
import sys
from functools import cache

import pytest
from conftest import ROOT, SWEEP

sys.path.insert(0, str(ROOT / "book/_site"))
import assignment
import judge
import seal
import variants

from workloads_book import answers

PATHS = {e: p for e, p in assignment.exercises().items() if p.with_name("variants.toml").exists()}
every = pytest.mark.parametrize("exercise", PATHS)
SEEDS = range(20 if SWEEP else 2)
WANTED = {f"3-{n:02}" for n in range(1, 11)} | {f"f-0{n}" for n in range(1, 8)} | {"c-01", "m-01"}


@pytest.fixture(autouse=True)
def fresh():
    """Digests that a variant's notebook takes in hold for that notebook alone."""
    answers.exercises.cache_clear()
    yield
    answers.exercises.cache_clear()


@pytest.fixture(scope="module")
def made():
    """{exercise: [solved notebook of each seed]}, as far as somebody asks."""
    kept = {}

    def of(exercise):
        if exercise not in kept:
            kept[exercise] = [variants.solved(PATHS[exercise], f"{seed:010x}", f"{exercise}/{seed}") for seed in SEEDS]
        return kept[exercise]

    return of


def code(nb):
    return [assignment.source(c) for c in nb["cells"] if c["cell_type"] == "code"]


def ran(nb, tests=True):
    """All names after all cells, tests of values among them or not."""
    names = {"__name__": "__main__"}
    with contextlib.redirect_stdout(io.StringIO()):
        for cell in nb["cells"]:
            test = assignment.role(cell, "grade") and not assignment.role(cell, "solution")
            if cell["cell_type"] == "code" and (tests or not test):
                exec(compile(assignment.source(cell), "cell", "exec"), names)
    return names


def values(exercise, names):
    """{name: value} of all single values that the exercise asks for."""
    quantities, _ = seal.table(PATHS[exercise])
    return {k: v for q in quantities for k, v in answers.flat(q, names[q]).items()}


@cache
def in_the_book(exercise):
    """{name: value} of what the printed exercise asks for."""
    return values(exercise, ran(assignment.read(PATHS[exercise]), tests=False))


OWN_NUMBERS = {"3-08-sympy-test", "f-06-saving-test"}  # exponents to try the symbols with; heads that stand in the text alone


@every
def test_hidden_tests_hold_no_printed_number(exercise):
    """Neither a given number that varies nor a value that is asked for stands in them, but for rows of the ledger, by their names."""
    known = {v for v in variants.printed(variants.declared(PATHS[exercise])).values() if not isinstance(v, str)}
    known |= {v for v in in_the_book(exercise).values() if not isinstance(v, str)}
    for name, cell in graded_code(assignment.read(PATHS[exercise])).items():
        hidden = ast.parse(assignment.source(cell).partition("### BEGIN HIDDEN TESTS")[2])
        found = {n.value for n in ast.walk(hidden) if isinstance(n, ast.Constant) and isinstance(n.value, (int, float))}
        found = {n for n in found if len(f"{n:.12g}".replace(".", "").strip("0")) >= 2}  # 2, 30 or 1e9 stand for other things
        near = {n for n in found for v in known if math.isclose(n, v, rel_tol=1e-4)}
        assert not near or name in OWN_NUMBERS, (name, near)


def graded_code(nb):
    """{name: cell} of the cells that test code."""
    found = (c for c in nb["cells"] if c["cell_type"] == "code" and assignment.role(c, "grade") and not assignment.role(c, "solution"))
    return {c["metadata"]["nbgrader"]["grade_id"]: c for c in found}


def test_the_exercises_of_the_source_documents_and_those_beside_them_vary():
    assert set(PATHS) >= WANTED


@every
def test_the_printed_numbers_give_the_printed_exercise(exercise):
    """With the numbers of the book each place that is one text for all variants stands there already: nothing changes but wording."""
    table = variants.declared(PATHS[exercise])
    words = {place[0]: place[1].format(**variants.printed(table)) for place in table["places"] if isinstance(place, list)}
    cells, _ = variants.filled(PATHS[exercise], table, variants.printed(table))
    for new, old in zip(cells, assignment.read(PATHS[exercise])["cells"], strict=True):
        text = assignment.source(old)
        for before, after in words.items():
            text = text.replace(before, after)
        assert assignment.source(new) == text
    assert all(eval(rule, seal.Names(variants.printed(table))) for rule in table.get("must", []))


@every
def test_a_variant_runs_passes_its_own_tests_and_gives_other_values(exercise, made):
    """Hidden tests compute what they expect from the given numbers and compare with the digests; values are finite and its own."""
    printed, seen = in_the_book(exercise), []
    for nb in made(exercise):
        own = values(exercise, ran(nb))
        assert own.keys() == printed.keys() and all(isinstance(v, str) or math.isfinite(v) for v in own.values())
        seen.append(own)
    for one, other in zip([printed, *seen], seen):
        differ = [k for k in one if not isinstance(one[k], str) and not math.isclose(one[k], other[k], rel_tol=1e-4)]
        assert differ


@every
def test_each_number_that_varies_changes_an_answer(exercise):
    path, table = PATHS[exercise], variants.declared(PATHS[exercise])
    book = variants.printed(table)
    other = variants.drawn(table, "one at a time")
    right = variants.filled(path, table, book)[0]
    before = values(exercise, seal.run({"cells": right}))
    still = set(table["numbers"])
    for name in table["numbers"]:
        one = variants.completed_by(table, {k: book[k] for k in table["numbers"]} | {name: other[name]})
        after = values(exercise, seal.run({"cells": variants.filled(path, table, one)[0]}))
        still -= {name} if after != before else set()
    assert not still


def forms(value):
    """A number as problems write it."""
    made = {f"{value:g}", f"{value:,}", str(value)} | ({f"{value:.2f}", f"{value:,.2f}"} if isinstance(value, float) else set())
    return made | ({f"{100 * value:g}%"} if isinstance(value, float) and abs(value) < 1 else set())


def shown(value, text):
    return any(re.search(rf"(?<![\w.,]){re.escape(form)}(?![\d]|[.,]\d)", text) for form in forms(value))


def numbers(nb):
    """{name: number} of the cells that give numbers, single ones and those in tuples and dictionaries."""
    names, found = {"__name__": "__main__"}, {}
    for cell in nb["cells"]:
        text = assignment.source(cell)
        if cell["cell_type"] == "code" and "nbgrader" not in cell["metadata"] and not text.startswith("answer("):
            with contextlib.redirect_stdout(io.StringIO()):
                exec(text, names)
    for name, value in names.items():
        if isinstance(value, (int, float, tuple, dict)) and not isinstance(value, bool) and not name.startswith("_"):
            with contextlib.suppress(ValueError):
                found |= {k: v for k, v in answers.flat(name, value).items() if not isinstance(v, str)}
    return found


@every
def test_the_text_shows_the_numbers_that_the_code_has(exercise, made):
    """A given number that the printed text names is named by the variant's text as well, and the old one stands in no code any more."""
    book = assignment.read(PATHS[exercise])
    text = lambda nb: "\n".join(assignment.source(c) for c in assignment.starter(nb)["cells"] if c["cell_type"] == "markdown")
    before = numbers(book)
    for nb in made(exercise):
        changed = {k: v for k, v in numbers(nb).items() if k in before and v != before[k]}
        assert changed
        for name, value in changed.items():
            if shown(before[name], text(book)):
                assert shown(value, text(nb)), name
        assert variants.NOTE in text(nb) and text(nb) != text(book)


@every
def test_a_starter_of_a_variant_holds_no_answer_and_no_row_of_the_ledger(exercise, made):
    for nb in made(exercise)[:1]:
        starter = assignment.starter(nb)
        text = json.dumps(starter, ensure_ascii=False)
        assert not any(mark in text for mark in ("BEGIN SOLUTION", "HIDDEN TESTS", "check_table(", "Show the answer"))
        assert not any(c.get("outputs") for c in nb["cells"])
        assert sum("answers.use(" in t for t in code(starter)) == 1


def told(exercise, nb, given):
    """Kinds of the verdicts on values, by the digests of a variant's notebook."""
    for text in code(nb):
        if "answers.use(" in text:
            exec(text, {})
    return {k: v.kind for k, value in given.items() for v in answers.answer(exercise, **{k: value}).all} if given else {}


@every
def test_digests_of_a_variant_know_its_own_values_and_refuse_anothers(exercise, made):
    first, second = made(exercise)[:2]
    quantities, _ = seal.table(PATHS[exercise])
    own, other = ({q: names[q] for q in quantities} for names in (ran(first, tests=False), ran(second, tests=False)))
    flat = lambda those: {k: v for q, value in those.items() for k, v in answers.flat(q, value).items()}
    kinds = lambda given: {v.name: v.kind for v in (told(exercise, first, {}), answers.answer(exercise, **given))[1].all}
    assert set(kinds(own).values()) == {"right"}
    differ = {k for k, v in flat(own).items() if not isinstance(v, str) and not math.isclose(v, flat(other)[k], rel_tol=0.02, abs_tol=1e-9)}
    said = kinds(other)
    assert differ and all(said[k] not in answers.MARKS for k in differ)
    told(exercise, first, {})
    with pytest.raises(AssertionError):
        answers.check(exercise, **other)


def test_values_are_judged_by_the_variants_own_solution(made, tmp_path):
    """With errors carried forward, as with the printed numbers; the printed exercise's values are wrong."""
    nb = made("3-02")[0]
    path = tmp_path / "3-02.ipynb"
    assignment.write(nb, path)
    right = judge.carried(nb, {})
    said = judge.judged("3-02", right, path)
    assert all(ok for test in said.values() for ok, _ in test["values"].values())
    printed = judge.judged("3-02", judge.carried(assignment.read(PATHS["3-02"]), {}), path)
    assert not any(ok for ok, _ in printed["3-02-rates-test"]["values"].values())
    wrong = copy.deepcopy(right)
    first, *later = right
    wrong[first] = {q: v * 1.1 for q, v in right[first].items()}
    wrong |= {test: judge.carried(nb, wrong)[test] for test in later}
    said = judge.judged("3-02", wrong, path)
    assert not any(ok for ok, _ in said[first]["values"].values())
    assert all(ok for test in later for ok, _ in said[test]["values"].values())


# ------------------------------------------------------------------------------------------------------------------------ of a course
def test_a_variant_hangs_on_the_key_of_the_course_alone(tmp_path):
    """The same key, word and name: the same numbers, again and with people who come later. Another key: others. Students get no key."""
    for course in ("a", "b"):
        variants.make(["3-03"], tmp_path / course, "week", [], "autumn")
    one, other = (next((tmp_path / c / "variants/week").glob("*/3-03.ipynb")).read_bytes() for c in "ab")
    assert one != other
    release = assignment.assign_variants(["3-03"], tmp_path / "a", "week", "autumn")
    assert next((tmp_path / "a/variants/week").glob("*/3-03.ipynb")).read_bytes() == one
    key = (tmp_path / "a/variants/key").read_text()
    assert len(key) == 64 and not any(key.encode() in p.read_bytes() for p in release.iterdir())
    assert (release / "3-03.ipynb").read_text() != assignment.read(PATHS["3-03"])
    with pytest.raises(ValueError, match="other numbers"):
        assignment.assign_variants(["3-03"], tmp_path / "a", "week", "winter")
    roster, kept = tmp_path / "names.txt", {}
    for names, letters in (("Ann,x\nO'Näme\n", "utf-8"), ("New\nAnn\nO'Näme\n", "cp1252")):
        roster.write_text(names, encoding=letters)
        folder = assignment.assign_variants(["3-03"], tmp_path / "a", "each", str(roster))
        texts = {p.parent.name: p.read_text(encoding="utf-8") for p in folder.glob("*/3-03.ipynb")}
        assert set(texts) == {line.partition(",")[0] for line in names.split()} and len(set(texts.values())) == len(texts)
        assert texts.items() >= kept.items()
        kept = texts
    assert not any(key.encode() in p.read_bytes() for p in folder.rglob("*") if p.is_file())


def test_without_hints_a_notebook_holds_units_and_no_digest(tmp_path):
    """Whoever tries all values learns nothing; the teacher's copy knows them; and a test passes and fails as before."""
    release = assignment.assign_variants(["3-03"], tmp_path, "exam", "winter", hints=False)
    handed, kept = (assignment.read(next(tmp_path.glob(f"{place}/3-03.ipynb"))) for place in ("release/exam", "variants/exam/*"))
    right = {q: seal.run(kept)[q] for q in seal.table(PATHS["3-03"])[0]}
    assert {v.text.partition(";")[0] for v in kinds_of("3-03", handed, right)} == {"not checked here"}
    assert {v.kind for v in kinds_of("3-03", kept, right)} == {"right"}
    told("3-03", assignment.read(tmp_path / "source/exam/3-03.ipynb"), {})  # from which nbgrader makes the release anew
    assert all(set(entry) == {"unit"} for entry in answers.exercises()["3-03"].values())
    assert assignment.assign(["3-03"], tmp_path, "exam") == release and assignment.read(release / "3-03.ipynb") == handed
    with pytest.raises(AssertionError, match="not checked"):
        answers.check("3-03", **right)


def kinds_of(exercise, nb, given):
    told(exercise, nb, {})
    return answers.answer(exercise, **given).all


def test_without_a_variant_students_get_what_they_got(tmp_path):
    release = assignment.assign(["3-02", "f-05"], tmp_path, "plain")
    for exercise in ("3-02", "f-05"):
        assignment.write(assignment.handed_out(PATHS[exercise]), tmp_path / "own.ipynb")
        assert (release / f"{exercise}.ipynb").read_bytes() == (tmp_path / "own.ipynb").read_bytes()
    assert not (tmp_path / "variants").exists()


@pytest.mark.parametrize(("change", "said"), [("places", "not in the exercise"), ("must", "no numbers found")])
def test_a_declaration_that_fits_no_exercise_is_refused(change, said):
    table = copy.deepcopy(variants.declared(PATHS["3-03"]))
    table[change].append("a place {old} that is nowhere" if change == "places" else "old > 1")
    with pytest.raises(ValueError, match=said):
        variants.filled(PATHS["3-03"], table, variants.drawn(table, "x"))


def test_an_exercise_whose_numbers_stand_fast_is_refused_by_name(tmp_path):
    with pytest.raises(ValueError, match="e-31 can't vary"):
        variants.make(["3-03", "e-31"], tmp_path, "week", [], "x")


def test_numbers_are_drawn_from_all_that_may_be():
    """None is the printed one, all others come, and what must hold does."""
    table = variants.declared(PATHS["3-05"])
    drawn = [variants.drawn(table, str(random.Random(n).random())) for n in range(300)]
    for name, choices in table["numbers"].items():
        book = variants.printed(table)[name]
        possible = set(variants._choices(choices) if isinstance(choices, dict) else choices[1:]) - {book}
        assert {d[name] for d in drawn} == possible
    assert all(41 <= d["late"] - d["travel"] <= 59 for d in drawn)

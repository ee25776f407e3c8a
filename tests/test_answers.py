"""`answer`: right values, slips and hints; the stored data; exercises whose tests lean on nothing but starter and asked quantities."""

import contextlib
import doctest
import io
import json
import math
import sys

import pytest
from conftest import ROOT

from workloads_book import answers
from workloads_book.answers import answer

sys.path.insert(0, str(ROOT / "book/_site"))
import assignment
import seal

EXERCISES = assignment.exercises()
every = pytest.mark.parametrize("exercise", EXERCISES)


def kinds(verdicts):
    return {v.name: v.kind for v in verdicts.all}


@pytest.fixture
def stored(monkeypatch):
    """An exercise of known values, sealed as the tool does it."""
    names = {
        "time": 300.0,
        "gain": -2.0,
        "nothing": 0,
        "bytes": 4 * 2**30,
        "calls": 1023,
        "share": 0.25,
        "best": "Smaller",
        "by_model": {"a": 5.0, "b": 70.0},
    }
    quantities = {
        "time": {"unit": "s", "slips": [{"value": "time / 2", "hint": "that is one way"}, {"value": "time * 1.001", "hint": "so close"}]},
        "gain": {"unit": "ratio"},
        "nothing": {"unit": "steps", "slips": [{"value": "7", "hint": "seven"}]},
        "bytes": {"unit": "B"},
        "calls": {"unit": "calls"},
        "share": {"unit": "fraction"},
        "best": {"unit": "text", "slips": [{"value": "'equal'", "hint": "not quite"}]},
        "by_model": {"unit": "tokens", "slips": [{"value": "{'a': 6.0}", "hint": "six"}]},
    }
    data = json.loads(json.dumps({"x": seal.sealed("x", quantities, names)}))
    monkeypatch.setattr(answers, "exercises", lambda: data)
    return names


def test_the_right_values_are_right(stored):
    assert set(kinds(answer("x", **stored)).values()) == {"right"}
    assert kinds(answer("x", best=" smaller ")) == {"best": "right"}


def test_the_tolerance_is_the_same_on_both_sides(stored):
    """Within a millionth right, within half a per cent a rounded figure, beyond that neither."""
    for off, kind in (
        (1 + 0.9e-6, "right"),
        (1 - 0.9e-6, "right"),
        (1 + 2e-6, "rounded"),
        (1.0049, "rounded"),
        (1 / 1.0049, "rounded"),
        (1.0051, "open"),
        (1 / 1.0051, "open"),
    ):
        assert kinds(answer("x", time=300 * off)) == {"time": kind}, off


def test_a_count_is_not_rounded(stored):
    assert kinds(answer("x", calls=1024)) == {"calls": "open"}
    assert kinds(answer("x", calls=1023.0)) == {"calls": "right"}


def test_a_slip_gets_its_hint(stored):
    assert answer("x", time=150.3).all[0].text == "not yet: that is one way"
    assert answer("x", time=300.3).all[0].text == "not yet: so close"
    assert answer("x", by_model={"a": 6.0, "b": 70}).all[0].text == "not yet: six"
    assert kinds(answer("x", best="equal", nothing=7)) == {"best": "slip", "nothing": "slip"}


def test_another_value_gets_unit_and_size_and_not_the_answer(stored):
    verdict = answer("x", time=111).all[0]
    assert verdict.kind == "open" and verdict.text == "not yet; expected: s, between 100 and 1,000 in size"
    assert answer("x", nothing=3).all[0].text == "not yet; expected: steps", "the size of zero would tell it"
    assert answer("x", best=3).all[0].text == "not yet; expected: a text" and answer("x", time="3").all[0].kind == "open"


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ({"time": -300}, "sign"),
        ({"time": 0.3}, "scale"),
        ({"time": 5}, "scale"),
        ({"bytes": 4}, "scale"),  # in GiB
        ({"bytes": 5}, "open"),
        ({"bytes": 4 * 1.073741824e9 / 1.073741824}, "scale"),
        ({"bytes": 2**29}, "scale"),
        ({"share": 25}, "scale"),
        ({"calls": 8 * 1023}, "open"),
        ({"gain": 2}, "sign"),
        ({"time": 0}, "open"),
    ],
)
def test_a_wrong_unit_is_told_from_a_wrong_value(stored, values, kind):
    assert set(kinds(answer("x", **values)).values()) == {kind}


@pytest.mark.parametrize(
    "values", [{"time": math.nan}, {"time": math.inf}, {"time": None}, {"time": [1, "x", None]}, {"tim": 3}, {"by_model": {"c": 1}}, {}]
)
def test_what_is_no_answer_is_refused(stored, values):
    with pytest.raises(ValueError, match="time|by_model|values"):
        answer("x", **values)


def test_an_unknown_exercise_is_refused_with_near_ones():
    with pytest.raises(ValueError, match="3-02"):
        answer("3-2", backlog_steps=1)


@pytest.mark.parametrize("slip", ["time", "time * (1 + 1e-6)", "'text'"])
def test_a_slip_that_is_the_answer_is_refused(slip):
    with pytest.raises(ValueError, match="no other value"):
        seal.sealed("x", {"time": {"unit": "s", "slips": [{"value": slip, "hint": ""}]}}, {"time": 300.0})


def test_a_table_with_an_unknown_key_is_refused():
    with pytest.raises(ValueError, match="slip"):
        seal.sealed("x", {"time": {"unit": "s", "slip": []}}, {"time": 300.0})


def test_verdicts_read_as_a_list_in_a_notebook_and_as_lines_elsewhere(stored):
    verdicts = answer("x", time=300.0, calls=1)
    assert verdicts._repr_markdown_().splitlines()[0] == "- `time`: ✓ right" and repr(verdicts).splitlines()[0] == "time: ✓ right"


@pytest.fixture(scope="module")
def solved():
    found = {}

    def run(exercise):
        if exercise not in found:
            found[exercise] = seal.solved(EXERCISES[exercise])
        return found[exercise]

    return run


@every
def test_stored_answers_are_those_of_the_solved_notebook(exercise, solved):
    """The data file is what the exercise gives today; each answer is right, and each slip gets its own hint."""
    quantities, _ = seal.table(EXERCISES[exercise])
    entries = json.loads(json.dumps(seal.sealed(exercise, quantities, solved(exercise)))) if quantities else {}
    assert answers.exercises().get(exercise, {}) == entries, "run book/_site/seal.py"
    for quantity, wanted in quantities.items():
        values = answers.flat(quantity, solved(exercise)[quantity])
        assert {v.kind for v in answer(exercise, **{quantity: solved(exercise)[quantity]}).all} == {"right"}
        hints = [s["hint"] for s in wanted.get("slips", [])]
        assert len(hints) == len(set(hints)), "one hint for each slip"
        for slip in wanted.get("slips", []):
            for name, value in answers.flat(quantity, eval(slip["value"], seal.Names(solved(exercise)))).items():
                assert answers.verdict(exercise, name, value, entries[name]).text == f"not yet: {slip['hint']}", slip
        for name, value in values.items():
            if not isinstance(value, str) and entries[name]["size"] is not None:
                assert 10.0 ** entries[name]["size"] <= abs(value) * (1 + 1e-12) < 10.0 ** (entries[name]["size"] + 1)


@every
def test_stored_answers_do_not_hold_the_answer(exercise, solved):
    """Neither as a number in the data nor in a hint."""
    text = json.dumps(answers.exercises().get(exercise, {}))
    for quantity in seal.table(EXERCISES[exercise])[0]:
        for value in answers.flat(quantity, solved(exercise)[quantity]).values():
            if not isinstance(value, str) and abs(value) >= 1000:
                assert f"{value:.6g}" not in text and f"{value:,.0f}" not in text


def graded(nb):
    return [c for c in nb["cells"] if assignment.role(c, "grade") and not assignment.role(c, "solution")]


@every
def test_each_test_cell_leans_on_the_starter_and_the_asked_quantities_alone(exercise, solved):
    """A student gets the hidden tests without the solution's own helpers and imports, and may fail an earlier test."""
    path = EXERCISES[exercise]
    quantities, opened = seal.table(path)
    for hidden in (True, False):
        public, private = {"__name__": "__main__"}, {"__name__": "__main__"}
        with contextlib.redirect_stdout(io.StringIO()):
            for cell in assignment.read(path)["cells"]:
                text = assignment.source(cell)
                if cell["cell_type"] != "code" or text.startswith("answer("):
                    continue
                if assignment.role(cell, "solution"):
                    before = dict(private)
                    exec(text, private)
                    public |= {k: private[k] for k in (*quantities, *opened) if k in private and private[k] is not before.get(k, private)}
                elif assignment.role(cell, "grade"):
                    exec(text if hidden else assignment.without(text, "BEGIN HIDDEN TESTS", "END HIDDEN TESTS")[0], dict(public))
                else:
                    exec(text, public)
                    private |= {k: v for k, v in public.items() if k != "__builtins__"}


@every
def test_every_quantity_that_a_test_reads_can_be_checked(exercise, solved):
    """What the solutions define and the tests read is asked for, so `answer` knows it; and the starter calls `answer` for it."""
    nb, (quantities, _) = assignment.read(EXERCISES[exercise]), seal.table(EXERCISES[exercise])
    named = set()
    for cell in nb["cells"]:
        if cell["cell_type"] == "code" and assignment.source(cell).startswith("answer("):
            given, values = eval(assignment.source(cell), solved(exercise) | {"answer": lambda given, **values: (given, values)})
            assert given == exercise
            named |= set(values)
    assert named == set(quantities)
    assert graded(nb)


def test_the_examples_of_the_page_for_readers_are_true():
    result = doctest.testfile(str(ROOT / "book/for-readers.md"), module_relative=False)
    assert result.attempted >= 4 and result.failed == 0


@pytest.mark.parametrize(
    ("unit", "size", "wrong", "said"),
    [
        ("GiB", 3.3, 3.3 * 2**30, "2³⁰"),
        ("$", 12.5, 1250.0, "cents"),
        ("steps/s", 7.7, 7.7 * 60, "factor of 60"),
        ("fraction", 0.3, 30.0, "percent"),
    ],
)
def test_slips_of_units_are_named(unit, size, wrong, said):
    """Bytes for GiB, cents for dollars, per minute for per second, percent for a fraction."""
    coarse = answers.sealed("x", "y", size, answers.COARSE)
    fine = answers.sealed("x", "y", size, answers.FINE)
    entry = {"unit": unit, "size": math.floor(math.log10(size)), "tolerance": answers.COARSE, "fine": fine, "coarse": coarse, "slips": []}
    made = answers.verdict("x", "y", wrong, entry)
    assert made.kind == "scale" and said in made.text and answers.verdict("x", "y", size, entry).kind == "right"

"""Pages and library keep the house style's ranges, and the measures measure what they say."""

import sys

import nbformat
import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "book/_site"))
import measures

FOUND = measures.measures()


@pytest.mark.parametrize("name", [n for n, m in FOUND.items() if m["low"] is not None or m["high"] is not None])
def test_the_style_is_kept(name):
    assert measures.outside({name: FOUND[name]}) == [], measures.longest()


def test_what_is_measured_beside_others_is_measured_here():
    assert set(measures.ANCHORS) <= set(FOUND)


def test_a_value_beyond_either_end_is_outside():
    found = {n: {"value": v, "low": 3, "high": 6} for n, v in {"a": 2, "b": 3, "c": 6, "d": 7}.items()} | {
        "e": {"value": 0, "low": None, "high": 0}
    }
    assert measures.outside(found) == ["a", "d"]


def cell(source, **metadata):
    return nbformat.v4.new_code_cell(source, metadata=metadata)


def test_folded_cells_sentences_and_what_grades_are_not_visible_code():
    shown = cell("a = 1\n\nb = 2")
    hidden = [cell("@figure()", tags=["hide-input"]), cell("say('')", tags=["remove-input"]), cell("x = 1", nbgrader={"solution": True})]
    nb = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("text"), shown, *hidden])
    assert measures.visible(nb) == [shown] and len(measures.lines(shown.source)) == 2


def test_a_figure_counts_as_described_when_its_texts_say_something():
    nb = nbformat.v4.new_notebook(
        cells=[cell('@figure(alt=f"A line to {x}", caption=" ")\ndef _(ax): ...'), cell("figure(caption='Line.')")]
    )
    assert list(measures.figures(nb)) == [{"alt"}, {"caption"}]


def test_words_of_prose_are_those_that_a_reader_sees():
    nb = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_markdown_cell("Three plain words, `code` and $x$."), cell("say(f'Two words {x}')\ny = 'no prose'")]
    )
    assert measures.words(nb) == len("Three plain words and x Two words".split())


def test_a_body_is_measured_without_its_docstring():
    tree = measures.ast.parse('def f(x):\n    """Text.\n\n    More.\n    """\n    y = x\n\n    return y\n')
    assert measures.body(tree.body[0]) == 3
    assert measures.body(measures.ast.parse("def f(x):\n    return x").body[0]) == 1


@pytest.mark.parametrize(
    "docstring, parts",
    [
        ("Time of a step (s): t = W / B. Raises ValueError at 0.\n\n>>> f(1)\n2.0\n\nSource: somebody.", 5),
        ("Something.", 0),
        ("Something.\n\n>>> f(x=2) == bytes\nTrue", 1),
        ("Bytes of a thing.", 1),
        ("The model's name, a text.", 0),
    ],
)
def test_parts_of_a_docstring_are_found(docstring, parts):
    assert len(measures.parts(docstring)) == parts

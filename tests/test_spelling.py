"""The prose is spelled right, in one form: British, with the words of the field in tests/words.txt."""

import sys

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "book/_site"))
import spelling


@pytest.fixture(scope="module")
def texts():
    return {p.relative_to(ROOT).as_posix(): spelling.of_file(p) for p in spelling.every_file()}


def test_every_word_is_in_a_dictionary_or_listed(texts):
    assert list(spelling.problems(texts, set(spelling.listed()))) == []


def test_the_list_of_words_is_short_sorted_and_holds_what_the_dictionaries_lack(texts):
    listed = spelling.listed()
    assert listed == sorted(set(listed), key=str.lower) and len(listed) <= 600
    lacking = {line.split()[1].lower() for line in spelling.problems(texts)}
    assert {word for word in listed if word.lower() not in lacking} == set()


def found(text, names=(), known=()):
    return [line.removeprefix("page: ") for line in spelling.problems({"page": (text, set(names))}, set(known))]


@pytest.mark.parametrize(
    "text, problem",
    [
        ("The cashe holds keys.", "cashe -> cache"),
        ("It is recieved late.", "recieved -> received"),
        ("Teh first step.", "Teh -> the"),
        ("Its utilization is low.", "utilization -> utilisation"),
        ("The color of a line.", "color -> colour"),
        ("| head | lenght |\n|:--|--:|", "lenght -> length"),
        ("**Mispelt** and *Kingman's*.", "Kingman"),
    ],
)
def test_a_slip_is_found(text, problem):
    assert problem in found(text)


def test_one_word_has_one_spelling():
    assert found("A digitised text is digitized again.") == ["digitized -> digitised"]


@pytest.mark.parametrize(
    "text",
    [
        "A colour that a neighbour favours; the centre is normalised.",
        "`recieve()`, {cite}`recieve`, [page](recieve.ipynb), $recieve + \\lenght$, https://recieve.org, recieve.md",
        "```\nrecieve\n```\nA fence.",
        "It's the reader's own, don't worry.",
        "FP8, kv_bytes, H100, GQA, rlstep.actor",
    ],
)
def test_words_in_order_and_what_is_no_prose_pass(text):
    assert found(text, known=["rlstep"]) == []


def test_of_code_docstrings_comments_and_sentences_are_read_but_no_names():
    code = 'def f(frm):\n    """A cashe; frm is known."""\n    x = {"recieve": 1}  # lenght\n    raise ValueError("must be teh first")\n'
    assert found(*spelling.of_code(code)) == ["cashe -> cache", "lenght -> length", "teh -> the"]
    assert found(*spelling.of_code(code, messages=False)) == ["cashe -> cache", "lenght -> length"]


def test_a_listed_word_passes_in_any_case_but_a_name_only_as_it_is_written():
    assert found("Softmax and softmax", known=["softmax"]) == []
    assert found("Kingman and kingman", known=["Kingman"]) == ["kingman"]

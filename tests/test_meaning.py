"""Outputs compared by their meaning: what a reader cannot see may differ, all else may not; in nbval and where notebooks are stored."""

import json
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "book/_site"))
import meaning

DRAWING = """<?xml version="1.0"?>
<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="432pt" viewBox="0 0 432 252">
 <defs><clipPath id="p0a12f2d393"><rect x="40.9" y="6.8" width="388.1" height="208.4"/></clipPath></defs>
 <g id="axes_1" clip-path="url(#p0a12f2d393)"><path d="M 117.972081 215.2 L 428.9 6.8 z" style="stroke-width: 1.5; stroke: #1f77b4"/></g>
 <!-- 10 -->
 <g transform="translate(87.5 231.6) rotate(-90) scale(0.1 -0.1)"><text x="1" transform="rotate(-30 5 7)">calls</text></g>
</svg>"""


def changed(old, new):
    assert DRAWING.count(old) >= 1
    return DRAWING.replace(old, new)


@pytest.mark.parametrize(
    "old,new",
    [
        ("117.972081", "117.972082"),  # the last digit, as another processor draws it
        ("117.972081", "118"),  # 0.037 px
        ("p0a12f2d393", "pa09c72f2ec"),  # a name made from coordinates, wherever it stands
        ("translate(87.5", "translate(87.500001"),
        ("-30 5 7", "-30 5.000001 7"),
        ('width="388.1"', 'width="388.09"'),
        ("\n ", "\n"),  # space between elements
    ],
)
def test_a_drawing_that_looks_the_same_is_the_same(old, new):
    assert meaning.same_drawing(DRAWING, changed(old, new)) and meaning.same_drawing(changed(old, new), DRAWING)


@pytest.mark.parametrize(
    "old,new,said",
    [
        ("calls", "prefills", "text: calls / prefills"),
        ("117.972081", "118.122081", "d of path"),  # 0.2 px
        ("428.9 6.8 z", "428.9 6.8", "d of path"),
        ("L 428.9 6.8 z", "L 428.9 6.8 L 1 1 z", "d of path"),
        ('x="1"', 'y="1"', "elements"),
        ("<text x=", "<title x=", "not well-formed|mismatched"),
        ("<!-- 10 -->", "", "comment"),
        ("<!-- 10 -->", "<!-- 100 -->", "comment: 10 / 100"),
        ("<!-- 10 -->", "<!-- 10 --><g/>", "elements"),
        ("#1f77b4", "#1f77b5", "style of path"),
        ("stroke-width: 1.5", "stroke-width: 1.51", "style of path"),
        ("scale(0.1", "scale(0.11", "transform of g"),
        ("rotate(-90)", "rotate(-90.01)", "transform of g"),
        ("rotate(-30 5", "rotate(-30.01 5", "transform of text"),
        ("rotate(-30 5", "rotate(-30 5.1", "transform of text"),
        ("translate(87.5", "translate(87.7", "transform of g"),
        ("url(#p0a12f2d393)", "url(#pa09c72f2ec)", "clip-path of g"),
        ("axes_1", "axes_2", "id of g"),
        ('viewBox="0 0 432', 'viewBox="0 0 432.01', "viewBox of svg"),
    ],
)
def test_a_drawing_that_shows_something_else_is_another(old, new, said):
    assert not meaning.same_drawing(DRAWING, changed(old, new)) and not meaning.same_drawing(changed(old, new), DRAWING)
    assert any(part in meaning.difference(DRAWING, changed(old, new)) for part in said.split("|"))


def test_an_element_too_many_at_the_end_is_seen():
    assert not meaning.same_drawing("<svg><g/></svg>", "<svg><g/><g/></svg>")
    assert not meaning.same_drawing("<svg><g><g/></g></svg>", "<svg><g/><g/></svg>")


def test_two_names_are_not_one():
    one = '<svg><use href="#m0a12f2d393"/><use href="#m1a12f2d393"/></svg>'
    assert not meaning.same_drawing(one, one.replace("m1a", "m0a")) and not meaning.same_drawing(one.replace("m1a", "m0a"), one)


RECORD = [{"id": "row", "computed": 0.000213755875537, "verdict": "reproduces", "kind": "check"}, {"computed": 1600}]


@pytest.mark.parametrize(
    "old,new,same",
    [
        ("0.000213755875537", "0.000213755875538", True),
        ("0.000213755875537", "0.000213755876", False),  # 2 parts in 10**9
        ("0.000213755875537", "-0.000213755875537", False),
        ("0.000213755875537", "0.0", False),
        ("0.000213755875537", "null", False),
        ("1600", "1601", False),
        ("1600", "1600.0", False),
        ("1600", "true", False),
        ("reproduces", "reproduced", False),
        ('"kind": "check"', '"sort": "check"', False),
        (', {"computed": 1600}', "", False),
    ],
)
def test_records_differ_by_no_more_than_a_part_in_a_thousand_million(old, new, same):
    text = json.dumps(RECORD)
    assert old in text and meaning.same_record(RECORD, json.loads(text.replace(old, new))) is same


def test_text_is_compared_letter_by_letter():
    assert not meaning.same("text/plain", "117.972081", "117.972082") and not meaning.same("text/markdown", "2 ms", "2.0 ms")
    assert not meaning.same("text/markdown", DRAWING, changed("117.972081", "117.972082"))


def test_the_stored_output_stays_where_the_new_one_says_the_same():
    def shown(x, text="calls"):
        return nbformat.v4.new_output("display_data", {meaning.SVG: f'<svg><path d="M {x}"/></svg>', "text/plain": text})

    stored = [nbformat.v4.new_output("stream", text="1"), shown(1.000001), shown(2.000001), shown(3.5)]
    new = [shown(1.000002), shown(2.2, "other"), shown(3.500001), shown(4)]
    kept = meaning.settled(new, stored)
    assert kept == [shown(1.000001), shown(2.2, "other"), shown(3.5), shown(4)]
    assert new[0] == shown(1.000002) and stored[1] == shown(1.000001)  # neither was written in


# --- in nbval, as `make test` calls it ------------------------------------------------------------------------------------

CELL = """
from IPython.display import display
display({"image/svg+xml": '<svg><path d="M 117.972081 1"/><text>calls</text></svg>', "text/plain": "a figure",
         "application/vnd.workloads.checks+json": [{"computed": 0.000213755875537}]}, raw=True)
print(2 / 3)"""


CHANGES = [
    ("117.972081", "118.122081"),
    (">calls<", ">prefills<"),
    ("<text>calls</text>", ""),
    ("a figure", "a drawing"),
    ("0.6666666666666666", "0.6666666666666667"),
    ("875537", "876"),
]


def test_nbval_passes_what_another_processor_draws_and_fails_what_says_something_else(tmp_path):
    """One cell again and again, under the settings of the project: with its own outputs stored, with the same and with others."""
    text = json.dumps(
        [
            {
                "output_type": "display_data",
                "metadata": {},
                "data": {
                    "image/svg+xml": '<svg><path d="M 117.972081 1"/><text>calls</text></svg>',
                    "text/plain": "a figure",
                    "application/vnd.workloads.checks+json": [{"computed": 0.000213755875537}],
                },
            },
            {"output_type": "stream", "name": "stdout", "text": "0.6666666666666666\n"},
        ]
    )
    stored = [text, text.replace("117.972081", "117.972082").replace("875537", "875538"), *(text.replace(*change) for change in CHANGES)]
    assert len(set(stored)) == 2 + len(CHANGES)
    cells = [
        nbformat.v4.new_code_cell(CELL, execution_count=i, outputs=[nbformat.from_dict(o) for o in json.loads(outputs)])
        for i, outputs in enumerate(stored, 1)
    ]
    path = tmp_path / "planted.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    command = [sys.executable, "-m", "pytest", "-q", "--color=no", "-c", str(ROOT / ".pytest.ini"), f"--rootdir={tmp_path}"]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", "--nbval", "--nbval-current-env", str(path)], capture_output=True, text=True, cwd=tmp_path
    )
    failed = [line.split("::")[1].split(" - ")[0] for line in done.stdout.splitlines() if line.startswith("FAILED")]
    assert failed == [f"Cell {i}" for i in range(2, 2 + len(CHANGES))], done.stdout
    report = done.stdout.partition("short test summary")[0]  # which says everything again where CI is set
    assert report.count("In the drawing: ") == 3 and "text: prefills / calls" in report

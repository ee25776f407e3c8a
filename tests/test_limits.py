"""The library stays small: tests/limits.py says what counts."""

import functools

import content
import limits
import pytest


@pytest.mark.parametrize("measure", limits.LIMITS)
def test_the_library_stays_within_its_limits(measure):
    value, where = found()[measure]
    assert value <= limits.LIMITS[measure], where


found = functools.cache(limits.measured)


def test_code_lines_are_lines_with_code():
    source = '"""Text\n\nof a module."""\n\n# a remark\nx = (1,\n     2)      # two lines\n\n\ndef f():\n    """Text."""\n    return x\n'
    assert limits.code_lines(source) == 4  # x, its second line, def, return


def test_what_a_reader_sees_of_a_page_is_measured():
    """Words of Markdown and of sentences, code that is not folded, figures and tables; a drawing by hand is as long as its function."""
    code = "x = 1\n\n@figure(alt='a', caption='c')\ndef _(ax):\n    ax.plot([1])\n    ax.grid()\n"

    def cell(source, *outputs, tags=()):
        return {"cell_type": "code", "source": source, "metadata": {"tags": list(tags)}, "outputs": [{"data": data} for data in outputs]}

    cells = [
        {"cell_type": "markdown", "source": "word " * 400 + "as printed\n\n| a |\n|:--|\n", "metadata": {}},
        cell("y = 2\n\nz = 3"),
        cell(code, {"image/svg+xml": "<svg/>"}, {"text/markdown": "one two"}),
        cell(code, {"text/markdown": "| a |\n|:--|"}, tags=["hide-input"]),
    ]
    minutes, before, longest, voice = limits.read(content.Page({"cells": cells, "metadata": {}}))
    words, lines, things = 400 + 2 + 4 + 2, 2 + 5, 1 + 1 + 1
    assert minutes == pytest.approx(words / 200 + 0.15 * lines + 0.5 * things)
    assert (before, longest, voice) == (7, 3, 1)

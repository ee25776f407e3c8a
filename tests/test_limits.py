"""The library stays small: tests/limits.py says what counts."""

import limits
import pytest


@pytest.mark.parametrize("measure", limits.LIMITS)
def test_the_library_stays_within_its_limits(measure):
    value, where = FOUND[measure]
    assert value <= limits.LIMITS[measure], where


FOUND = limits.measured()


def test_code_lines_are_lines_with_code():
    source = '"""Text\n\nof a module."""\n\n# a remark\nx = (1,\n     2)      # two lines\n\n\ndef f():\n    """Text."""\n    return x\n'
    assert limits.code_lines(source) == 4  # x, its second line, def, return

"""Support modules: arithmetic on any kind of number, argument checks, the formatter."""

import math
from fractions import Fraction

import numpy as np
import pytest
import sympy
from hypothesis import example, given, settings
from hypothesis import strategies as st

from workloads import checks, numeric, units

NUMBERS = st.floats(-1e12, 1e12)
X = sympy.Symbol("x", real=True)


@pytest.mark.parametrize("name, plain", [("maximum", max), ("minimum", min)])
@given(a=NUMBERS, b=NUMBERS)
def test_extremes_agree_between_numbers_arrays_and_symbols(name, plain, a, b):
    function = getattr(numeric, name)
    assert function(a, b) == plain(a, b)
    assert function(np.array([a, b]), b).tolist() == [plain(a, b), b]
    assert math.isclose(float(function(X, b).subs(X, a)), plain(a, b), rel_tol=1e-12)


@pytest.mark.parametrize("name, plain", [("ceil", math.ceil), ("floor", math.floor)])
@given(a=st.floats(-1e6, 1e6))
def test_rounding_agrees_between_numbers_arrays_and_symbols(name, plain, a):
    function = getattr(numeric, name)
    assert function(a) == plain(a)
    assert function(np.array([a]))[0] == plain(a)
    assert int(function(X).subs(X, Fraction(a))) == plain(a)


@given(st.integers(-(10**20), 10**20), st.integers(1, 10**6))
def test_a_quotient_of_a_multiple_is_exact_for_numbers_arrays_and_symbols(times, divisor):
    assert numeric.quotient(times * divisor, divisor) == times and type(numeric.quotient(times * divisor, divisor)) is int
    assert numeric.quotient(np.array([6.0, 9.0]), 3).tolist() == [2, 3]
    assert numeric.quotient(X, divisor) == X / divisor


def test_where_chooses_for_numbers_arrays_and_symbols():
    assert numeric.where(1 < 2, "a", "b") == "a"
    assert numeric.where(np.array([True, False]), 1, 2).tolist() == [1, 2]
    assert numeric.where(X > 0, 1, 2).subs(X, -1) == 2


def test_total_does_not_depend_on_the_order():
    values = [1e16, 1.0, -1e16, 1e-3] * 50
    assert numeric.total(values) == numeric.total(sorted(values)) == math.fsum(values)


def test_total_keeps_integers_exact_and_takes_symbols():
    assert numeric.total([2**70, 1]) == 2**70 + 1
    assert numeric.total([X, 1]) == X + 1


@example(1, 3, 1.0, 0.0, 2.0, 5e-324)
@settings(max_examples=300, deadline=None)
@given(st.integers(1, 20), st.integers(0, 40), *[st.floats(-50, 50)] * 4)
def test_sum_of_larger_equals_a_loop(start, extra, a0, a1, b0, b1):
    by_hand = math.fsum(max(a0 + a1 * t, b0 + b1 * t) for t in range(start, start + extra + 1))
    assert numeric.sum_of_larger(start, start + extra, (a0, a1), (b0, b1)) == pytest.approx(by_hand, rel=1e-9, abs=1e-6)


@given(st.integers(-20, 20), st.integers(-1, 40), *[st.integers(-(10**25), 10**25)] * 2, *[st.integers(-(10**23), 10**23)] * 2)
def test_sums_of_lines_are_exact_in_integers(start, extra, a0, b0, a1, b1):
    steps = range(start, start + extra + 1)
    assert numeric.line_sum(start, start + extra, a0, a1) == sum(a0 + a1 * t for t in steps)
    assert numeric.sum_of_larger(start, start + extra, (a0, a1), (b0, b1)) == sum(max(a0 + a1 * t, b0 + b1 * t) for t in steps)


def test_the_positive_part_of_a_line_against_adding_it_up():
    for first in range(-7, 8):
        for slope in range(-4, 5):
            for steps in range(9):
                by_hand = sum(max(0, first + slope * j) for j in range(steps))
                assert numeric.sum_of_larger(0, steps - 1, (first, slope), (0, 0)) == by_hand


def test_bisection_ends_beside_the_root():
    for square in (2, 3, 10):
        root = numeric.bisect(lambda x: x * x - square, 1, 8)
        assert root == pytest.approx(math.sqrt(square), rel=1e-15)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, -1, 0, "3", None, True, [1]])
def test_positive_refuses_everything_else_by_name_unit_and_value(bad):
    with pytest.raises(ValueError, match=r"speed \(B/s\)"):
        checks.positive(bad, "speed", "B/s")


@pytest.mark.parametrize(
    "check, bad",
    [
        (checks.nonnegative, -1e-9),
        (checks.fraction, 1.0000001),
        (checks.fraction, 0),
        (checks.whole, 2.5),
        (checks.whole, -1),
        (checks.finite, math.nan),
    ],
)
def test_each_check_refuses_the_first_value_outside(check, bad):
    with pytest.raises(ValueError, match="share"):
        check(bad, "share")
    with pytest.raises(ValueError, match="share.*every element"):
        check(np.array([0.5 if check is checks.fraction else 1, bad]), "share")


@pytest.mark.parametrize("bad", [0, -32, 33, 32.5, math.nan, math.inf, "32", None, True])
def test_a_multiple_is_whole_and_above_zero(bad):
    with pytest.raises(ValueError, match=r"width \(pixels\)"):
        checks.multiple(bad, 32, "width", "pixels")
    with pytest.raises(ValueError, match="width.*got 33"):
        checks.multiple(np.array([32, 33]), 32, "width")
    assert checks.multiple(64, 32, "width") == 64 and checks.multiple(X, 32, "width") is X


@pytest.mark.parametrize(
    "low, high, inside, outside, rule",
    [
        (1, 8, (1, 4.5, 8), (0.99, 9), "between 1 and 8"),
        (None, 8, (-1e9, 8), (8.01,), "at most 8"),
        (1, None, (1, 1e9), (0.99,), "at least 1"),
    ],
)
def test_an_end_that_is_none_is_open(low, high, inside, outside, rule):
    assert all(checks.between(value, low, high, "gpus") == value for value in inside)
    for value in outside:
        with pytest.raises(ValueError, match=f"gpus must be {rule}, got {value}"):
            checks.between(value, low, high, "gpus")


@pytest.mark.parametrize("bad", [-1, -1e-9, 1.0000001, 2])
def test_a_share_that_may_be_zero_is_still_no_other_value(bad):
    with pytest.raises(ValueError, match=f"share must be between 0 and 1, got {bad}"):
        checks.fraction(bad, "share", zero=True)


def test_a_matrix_is_no_number():
    with pytest.raises(ValueError, match="speed must be a number"):
        checks.positive(sympy.Matrix([[X]]), "speed")


def test_some_asks_for_one_value_at_least():
    assert checks.some((x for x in (0, 1)), "load") == [0, 1]
    with pytest.raises(ValueError, match="load must hold at least one arrival, got none"):
        checks.some(iter(()), "load", "arrival")


def test_checks_pass_what_is_inside_unchanged():
    values = np.array([1.0, 2.0, 3.0])
    assert checks.positive(values, "x") is values
    assert checks.positive(X, "x") is X
    assert checks.positive(10**400, "x") == 10**400 and checks.positive(Fraction(10**400), "x") == 10**400
    assert [checks.fraction(x, "x", zero=True) for x in (0, 0.5, 1)] == [0, 0.5, 1] and checks.fraction(0.5, "x") == 0.5
    assert checks.whole(3.0, "x") == 3.0


@pytest.mark.parametrize(
    "value, digits, text",
    [
        (0, 4, "0"),
        (21.0, 4, "21"),
        (2741.77, 5, "2,741.8"),
        (0.000081, 2, "0.000081"),
        (0.0000015, 2, "0.0000015"),
        (9.9999, 3, "10.0"),
        (-0.5, 2, "−0.50"),
        (1e13, 3, "1.00 × 10¹³"),
        (7.830392e15, 4, "7.830 × 10¹⁵"),
        (1.5e-9, 2, "1.5 × 10⁻⁹"),
        (8190735360, 4, "8,190,735,360"),
        (2.0000000000000004, 4, "2"),
        (1.9999999999999998, 4, "2"),
        (-30.000000000000004, 3, "−30"),
        (56376.00000000001, 6, "56,376"),
        (2.0000000000004, 4, "2.000"),
        (1e-13, 2, "1.0 × 10⁻¹³"),
        (5e-324, 2, "4.9 × 10⁻³²⁴"),
        (9.9996e-7, 4, "0.000001000"),
        (None, 4, "n/a"),
        ("fits", 4, "fits"),
    ],
)
def test_number(value, digits, text):
    assert units.number(value, digits) == text


@pytest.mark.parametrize(
    "value, unit, text",
    [
        (147456, "B", "147.5 kB"),
        (999.99e9, "B", "1.000 TB"),
        (999.92e9, "B", "999.9 GB"),
        (41.02e9, "B", "41.02 GB"),
        (0.0228926, "s", "22.89 ms"),
        (0.9999999, "s", "1.000 s"),
        (145, "s", "145 s"),
        (0.7499, "%", "74.99%"),
        (0.013880, "$", "$0.01388"),
        (5591.33, "steps/s", "5,591 steps/s"),
        (989.4e12, "FLOP/s", "989.4 TFLOP/s"),
    ],
)
def test_quantity(value, unit, text):
    assert units.quantity(value, unit) == text


@given(value=st.floats(1e-5, 1e12), digits=st.integers(3, 8))
def test_a_formatted_number_reads_back_within_its_digits(value, digits):
    back = float(units.number(value, digits).replace(",", ""))
    assert math.isclose(back, value, rel_tol=0.5000001 * 10.0 ** (1 - digits))


def test_whole_numbers_from_numpy_come_back_where_products_cannot_overflow():
    huge = checks.positive(np.array([2**40, 2**41]), "x")
    assert (huge * huge).tolist() == [2.0**80, 2.0**82]
    assert type(checks.positive(np.int64(2**40), "x")) is int


def test_seconds_take_the_prefix_that_suits_their_rounded_size():
    assert [units.quantity(x, "s") for x in (2e-9, 3e-12, -4e-9)] == ["2 ns", "0.003000 ns", "−4 ns"]
    assert [units.quantity(x, "s", 3) for x in (9.9955e-4, 9.994e-4)] == ["1.00 ms", "999 µs"]


def test_number_refuses_what_is_not_finite():
    for bad in (math.nan, math.inf):
        with pytest.raises(ValueError, match="finite"):
            units.number(bad)


def test_constants_against_their_definitions():
    assert [units.GB, units.TB] == [1_000_000_000, 1_000_000_000_000]
    assert [units.KIB, units.MIB, units.GIB, units.TIB] == [1 << 10 * (i + 1) for i in range(4)]
    assert [units.GIGA, units.TERA] == [1_000_000_000, 1_000_000_000_000]
    assert units.HOUR == 60 * units.MINUTE == 3600 and units.DAY == 24 * units.HOUR


def test_only_seconds_take_small_prefixes():
    shown = [units.quantity(value, unit) for value, unit in ((0.5, "s"), (0.5, "tokens"), (0.5, "B"), (2, "s"), (0, "s"), (-0.5, "s"))]
    assert shown == ["500 ms", "0.5000 tokens", "0.5000 B", "2 s", "0 s", "−500 ms"]


def test_prefixes_turn_at_a_thousand_and_at_one():
    assert [units.quantity(value, "B") for value in (999, 1000, -1000)] == ["999 B", "1 kB", "−1 kB"]
    assert [units.quantity(value, "s") for value in (1, 0.999)] == ["1 s", "999 ms"]
    assert [units.binary(value) for value in (1023, 1024, -1024)] == ["1,023 B", "1 KiB", "−1 KiB"]
    assert [units.number(value) for value in (10**13 - 1, 1e12 + 0.5)] == ["9,999,999,999,999", "1,000,000,000,000"]
    assert [units.number(value, 3) for value in (10**13, 1.234e-6, 9.99e-7)] == ["1.00 × 10¹³", "0.00000123", "9.99 × 10⁻⁷"]


def test_half_a_last_digit_below_the_next_prefix_is_that_prefix():
    assert units.quantity(1e12 * (1 - 10.0**-4 / 2), "B") == "1.000 TB" and units.quantity(999.94e9, "B") == "999.9 GB"
    assert units.quantity(1e-3 * (1 - 10.0**-4 / 2), "s") == "1.000 ms" and units.quantity(999.94e-6, "s") == "999.9 µs"

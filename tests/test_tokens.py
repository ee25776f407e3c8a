"""Prices of tokens: bills added up by hand, lifetimes of a cache played through, energy as physics has it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads_book.studies.tokens import TokenPrices, energy_dollars_per_million, kilowatt_hours, rewrites_that_pay

PRICES = TokenPrices(input=3, output=15, cached=0.3, written=3.75)
money = st.floats(0.01, 100)
tokens = st.integers(0, 10**7)


def test_a_bill_by_hand():
    """$3 + $15 + $0.30 + $3.75 of a million each; nothing costs nothing."""
    assert PRICES.dollars(10**6, 10**6, 10**6, 10**6) == pytest.approx(22.05)
    assert PRICES.dollars(cached=2 * 10**6) == pytest.approx(0.6) and PRICES.dollars(written=4 * 10**5) == pytest.approx(1.5)
    assert PRICES.dollars() == 0


@given(st.tuples(tokens, tokens, tokens, tokens), st.tuples(tokens, tokens, tokens, tokens))
def test_the_bill_of_two_requests_is_the_sum_of_theirs(one, other):
    both = PRICES.dollars(*(a + b for a, b in zip(one, other)))
    assert both == pytest.approx(PRICES.dollars(*one) + PRICES.dollars(*other))


@given(money, st.floats(1.01, 10), money, st.integers(1, 40))
def test_the_longer_lifetime_pays_just_beyond_the_rewrites_that_pay(cached, times, more, requests):
    short, long = cached * times, cached * times + more
    often, once = requests * short, long + (requests - 1) * cached
    even = rewrites_that_pay(short, long, cached)
    if abs(requests - even) > 1e-6:
        assert (often > once) == (requests > even)


def test_a_kilowatt_for_an_hour_is_a_kilowatt_hour():
    assert kilowatt_hours(1000, 3600) == 1 and kilowatt_hours(0, 3600) == 0
    assert kilowatt_hours(1, 1) * 3.6e6 == pytest.approx(1)  # a joule


@given(st.floats(1, 1e5), st.floats(0.1, 1e6), money)
def test_energy_of_a_million_tokens_is_that_of_their_time(watts, rate, price):
    assert energy_dollars_per_million(watts, rate, price) == pytest.approx(kilowatt_hours(watts, 1e6 / rate) * price)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: TokenPrices(-1, 1, 1, 1), r"input \(\$/Mtoken\)"),
        (lambda: TokenPrices(1, 1, 1, None), r"written \(\$/Mtoken\)"),
        (lambda: PRICES.dollars(cached=-1), r"cached \(tokens\)"),
        (lambda: rewrites_that_pay(1, 2, 1), r"short - cached \(\$\) must be above 0"),
        (lambda: rewrites_that_pay(1, 0.1, 0.5), r"long - cached"),
        (lambda: kilowatt_hours(-1, 1), r"watts \(W\)"),
        (lambda: kilowatt_hours(1, float("nan")), r"seconds \(s\)"),
        (lambda: energy_dollars_per_million(1, 0, 1), r"tokens_per_second \(1/s\)"),
        (lambda: energy_dollars_per_million(1, 1, -1), r"dollars_per_kwh"),
    ],
)
def test_bad_input_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()

"""Drivers: pairs of one publisher that differ in one thing, by hand and on rows made up for it."""

from statistics import median

import pytest

from workloads_book import drivers, score

CHIPS, BITS, RELEASE, STEP = drivers.DRIVERS
ROWS = {row["id"]: row for row in score.table("measured")}


def made(row_id, **values):
    return {**ROWS["torchtitan-1"], "id": row_id, **values}


def test_a_pair_by_hand():
    """The same job on 8 and on 128 GPUs, half the tokens a GPU: half the ratio."""
    (pair,) = drivers.pairs(CHIPS, [made("few"), made("many", count="128", measured="2881")])
    assert (pair.publisher, pair.kind, pair.first, pair.last) == ("PyTorch", "train", 8, 128) and pair.factor == pytest.approx(0.5)


def test_formats_fall_from_the_wider_to_the_narrower():
    """The peak doubles with 8 bits: a third more tokens a second are two thirds of the ratio."""
    (pair,) = drivers.pairs(BITS, [made("wide"), made("narrow", precision="fp8", measured=str(5762 * 4 / 3))])
    assert (pair.first, pair.last) == (16, 8) and pair.factor == pytest.approx(2 / 3, rel=1e-3)


def test_releases_follow_their_numbers():
    rows = [made(text, note=f"release {text}; MBS 1", measured=m) for text, m in (("26.10", "6000"), ("26.2", "3000"), ("26.9.1", "1"))]
    (pair,) = drivers.pairs(RELEASE, rows)
    assert (pair.first, pair.last) == ((26, 2), (26, 10)) and pair.factor == pytest.approx(2)
    assert drivers.release({"note": "micro 8", "engine": "composer"}) is None


@pytest.mark.parametrize("other", ["publisher", "model", "hardware", "engine", "precision", "isl"])
def test_no_pair_differs_in_anything_else(other):
    value = {"publisher": "X", "model": "Llama-3-8B", "hardware": "A100 80GB", "engine": "X", "precision": "fp8", "isl": "4096"}[other]
    assert not list(drivers.pairs(CHIPS, [made("few"), made("many", count="128", **{other: value})]))


def test_rows_above_the_bound_make_no_pair():
    assert not list(drivers.pairs(CHIPS, [made("few"), made("many", count="128", measured="57620")]))


def test_settings_of_several_rows_count_by_their_median():
    rows = [made("few"), *(made(f"many {m}", count="128", measured=m) for m in ("5762", "2881", "1000"))]
    (pair,) = drivers.pairs(CHIPS, rows)
    assert pair.factor == pytest.approx(0.5)


def test_only_decode_steps_are_compared_by_their_bound():
    found = list(drivers.pairs(STEP))
    assert found and {pair.kind for pair in found} == {"decode"} and all(0 < pair.first < pair.last < 1 for pair in found)


def middle(driver, publisher, kind):
    return next(median(p.factor for p in found) for who, what, found in drivers.summaries(driver) if (who, what) == (publisher, kind))


def test_what_the_page_says_of_drivers_holds():
    """Training keeps its ratio on more chips where its batch grows with them; a decode step of one batch does not; half the bits do not
    bring twice the speed; releases move less than either."""
    for publisher in ("Databricks", "PyTorch"):
        assert 0.95 < middle(CHIPS, publisher, "train") <= 1 and 0.5 < middle(BITS, publisher, "train") < 0.7
    assert middle(CHIPS, "NVIDIA", "lora") < 0.8
    assert middle(CHIPS, "Splitwise", "decode") < 0.35 > middle(CHIPS, "MLC", "decode")
    ages = [median(p.factor for p in found) for _, _, found in drivers.summaries(RELEASE)]
    assert all(1 <= age < 1.25 for age in ages) and len(ages) >= 6
    assert middle(STEP, "Splitwise", "decode") < 0.75

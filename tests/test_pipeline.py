"""Bubbles of pipelines against schedules that are run: each stage works off its list, each piece waits for what it needs."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.counts.layout_memory import in_flight
from workloads.times.pipeline import bubble_seconds, bubble_share
from workloads_book.studies.pipeline_schedule import idle_share, most_held, schedule_work


def end(*step):
    """End of all work."""
    return max(piece.end for piece in schedule_work(*step))


sizes = dict(p=st.integers(1, 6), m=st.integers(1, 12), f=st.integers(0, 5), b=st.integers(0, 9))
FEW = settings(max_examples=60, deadline=None, derandomize=True)


@FEW
@given(**sizes)
def test_gpipe_and_1f1b_take_the_time_that_they_take(p, m, f, b):
    for schedule in ("gpipe", "1f1b"):
        assert m * (f + b) + bubble_seconds(p, m, f, b, schedule) == end(p, m, f, b, schedule)


@FEW
@given(p=st.integers(2, 5), groups=st.integers(1, 3), v=st.integers(1, 4), f=st.integers(1, 4), b=st.integers(1, 6))
def test_interleaved_stages_wait_a_chunk_less(p, groups, v, f, b):
    m = p * groups
    step = p, m, v * f, v * b, "interleaved", v  # f and b of one chunk
    assert m * v * (f + b) + bubble_seconds(*step) == pytest.approx(end(*step))


@FEW
@given(p=st.integers(1, 6), more=st.integers(0, 9), unit=st.integers(1, 3))
def test_weight_gradients_put_off_fill_two_thirds_of_the_gap(p, more, unit):
    """Forward and both halves of the backward pass alike; nothing more is held than in 1F1B."""
    m = p + more
    bubble = bubble_seconds(p, m, unit, 2 * unit, "zero-bubble")
    assert 3 * m * unit + bubble == end(p, m, unit, 2 * unit, "zero-bubble")
    assert bubble == pytest.approx(bubble_seconds(p, m, unit, 2 * unit) / 3)
    assert max(most_held(schedule_work(p, m, schedule="zero-bubble"))) <= p


@FEW
@given(p=st.integers(1, 6), m=st.integers(1, 12), f=st.integers(1, 5), b=st.integers(1, 9), name=st.sampled_from(["gpipe", "1f1b"]))
def test_a_drawn_pipeline_waits_as_its_formula_says(p, m, f, b, name):
    assert idle_share(schedule_work(p, m, f, b, name)) == pytest.approx(bubble_share(p, m, f, b, name), abs=1e-12)


@FEW
@given(p=st.integers(2, 5), groups=st.integers(1, 3), v=st.integers(2, 4), f=st.integers(1, 4), b=st.integers(1, 6))
def test_a_drawn_interleaved_pipeline_waits_and_holds_as_its_formulas_say(p, groups, v, f, b):
    work = schedule_work(p, p * groups, f, b, "interleaved", v)
    assert idle_share(work) == pytest.approx(bubble_share(p, p * groups, f, b, "interleaved", v), abs=1e-12)
    most = most_held(schedule_work(p, p * groups, 1, 1, "interleaved", v))
    assert [n / v for n in most] == [pytest.approx(in_flight(p, p * groups, "interleaved", v, s)) for s in range(p)]


@FEW
@given(p=st.integers(1, 6), m=st.integers(1, 12), f=st.integers(1, 5), b=st.integers(1, 9))
def test_a_drawn_zero_bubble_waits_as_its_formula_says_from_p_micro_batches_on_and_longer_below(p, m, f, b):
    drawn, told = idle_share(schedule_work(p, m, f, b, "zero-bubble")), bubble_share(p, m, f, b, "zero-bubble")
    assert drawn == pytest.approx(told, abs=1e-12) if m >= p and b <= 2 * f else drawn >= told - 1e-12


@FEW
@given(p=st.integers(1, 6), m=st.integers(1, 12), name=st.sampled_from(["gpipe", "1f1b", "zero-bubble"]))
def test_stages_hold_as_many_micro_batches_as_the_library_counts(p, m, name):
    assert list(most_held(schedule_work(p, m, schedule=name))) == [in_flight(p, m, name, stage=s) for s in range(p)]


@FEW
@given(p=st.integers(1, 4), m=st.integers(1, 8), name=st.sampled_from(["gpipe", "1f1b", "interleaved", "zero-bubble"]))
def test_pieces_of_a_stage_do_not_overlap_and_a_micro_batch_passes_the_stages_in_order(p, m, name):
    v = 2 if name == "interleaved" and p > 1 and not m % p else 1
    work = schedule_work(p, m, 1, 2, name, v)
    assert len(work) == p * m * v * (3 if name == "zero-bubble" else 2)
    for s in range(p):
        own = [piece for piece in work if piece.stage == s]
        assert all(a.end <= b.start + 1e-12 for a, b in pairwise(own))
    at = {(w.kind, w.micro_batch, w.chunk * p + w.stage): w for w in work}
    for i in range(m):
        for k in range(1, p * v):
            assert at["F", i, k].start >= at["F", i, k - 1].end and at["B", i, k - 1].start >= at["B", i, k].end
        assert at["B", i, p * v - 1].start >= at["F", i, p * v - 1].end


def test_32_micro_batches_through_8_stages():
    """Case N09: 78 steps for both schedules, 17.9%; 71 steps are claimed, less than the last stage's own 64 and 7 before and after."""
    for schedule in ("gpipe", "1f1b"):
        assert end(8, 32, 1, 1, schedule) == 78 == 64 + bubble_seconds(8, 32, 1, 1, schedule)
        assert bubble_share(8, 32, 1, 1, schedule) == pytest.approx(0.17949, abs=1e-5) == 7 / 39


def test_what_interleaving_gains_with_8_micro_batches():
    """Case N09: 1.304 for two chunks; 128 against 100 tokens/s were measured."""
    plain, twice = (8 * 3 + bubble_seconds(8, 8, 1, 2, schedule, chunks) for schedule, chunks in (("1f1b", 1), ("interleaved", 2)))
    assert plain / twice == pytest.approx(1.304, abs=5e-4)


def test_16_stages_and_18_micro_batches_wait_nearly_half_of_the_time():
    assert bubble_share(16, 18) == 15 / 33


@FEW
@given(m=st.integers(1, 50), f=st.integers(1, 5), b=st.integers(1, 9))
def test_one_stage_never_waits_and_more_micro_batches_wait_less(m, f, b):
    assert bubble_seconds(1, m, f, b) == bubble_share(1, m, f, b) == 0
    assert bubble_share(4, m + 1, f, b) < bubble_share(4, m, f, b) < bubble_share(5, m, f, b)


@pytest.mark.parametrize(
    "wrong, named",
    [
        (dict(stages=0), "stages"),
        (dict(micro_batches=0), "micro_batches"),
        (dict(forward=-1), "forward"),
        (dict(backward=-1), "backward"),
        (dict(schedule="dualpipe"), "schedule"),
        (dict(chunks=2), "chunks"),
        (dict(schedule="interleaved", chunks=2, micro_batches=5), "micro_batches, where stages are interleaved,"),
    ],
)
def test_pipelines_that_are_none_are_refused_by_name(wrong, named):
    with pytest.raises(ValueError, match=f"^{named}.* must"):
        bubble_seconds(**dict(stages=4, micro_batches=8, forward=1, backward=2) | wrong)

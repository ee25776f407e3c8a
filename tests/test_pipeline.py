"""Bubbles of pipelines against schedules that are run: each stage works off its list, each piece waits for what it needs."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.times.pipeline import bubble_seconds, bubble_share


def run(orders, seconds, last):
    """End of all work, where stage s does orders[s] = [(kind, micro-batch, chunk), ...] in that order.

    A forward needs the one before it in the model, a backward the one behind it, a weight gradient its own backward.
    """
    stages, done, at, clock = len(orders), {}, [0] * len(orders), [0] * len(orders)
    behind = lambda s, c: (s + 1, c) if s + 1 < stages else (0, c + 1)
    before = lambda s, c: (s - 1, c) if s else (stages - 1, c - 1)
    while any(at[s] < len(orders[s]) for s in range(stages)):
        moved = False
        for s in range(stages):
            while at[s] < len(orders[s]):
                kind, m, c = orders[s][at[s]]
                if kind == "F":
                    needed = [("F", m, *before(s, c))] if (s, c) != (0, 0) else []
                elif kind == "B":
                    needed = [("F", m, s, c)] + ([("B", m, *behind(s, c))] if (s, c) != last else [])
                else:
                    needed = [("B", m, s, c)]
                if not all(n in done for n in needed):
                    break
                clock[s] = max([clock[s], *(done[n] for n in needed)]) + seconds[kind]
                done[kind, m, s, c] = clock[s]
                at[s], moved = at[s] + 1, True
        assert moved, "a schedule that waits for itself"
    return max(clock)


def gpipe(p, m):
    return [[("F", i, 0) for i in range(m)] + [("B", i, 0) for i in reversed(range(m))] for _ in range(p)]


def one_forward_one_backward(p, m):
    orders = []
    for s in range(p):
        ahead = min(m, p - 1 - s)
        order = [("F", i, 0) for i in range(ahead)]
        for i in range(m - ahead):
            order += [("F", ahead + i, 0), ("B", i, 0)]
        orders.append(order + [("B", i, 0) for i in range(m - ahead, m)])
    return orders


def interleaved(p, m, v):
    """Megatron's order: groups of p micro-batches pass chunk after chunk."""
    turn = lambda k, back: ((k // (p * v)) * p + k % p, (v - 1 - k // p % v) if back else k // p % v)
    orders = []
    for s in range(p):
        ahead = min(m * v, 2 * (p - 1 - s) + (v - 1) * p)
        order = [("F", *turn(k, False)) for k in range(ahead)]
        for k in range(m * v - ahead):
            order += [("F", *turn(ahead + k, False)), ("B", *turn(k, True))]
        orders.append(order + [("B", *turn(k, True)) for k in range(m * v - ahead, m * v)])
    return orders


def weights_put_off(p, m):
    """Stage s puts its weight gradients off by s micro-batches, and holds p of them at most (ZB-H1)."""
    orders = []
    for s in range(p):
        order = [("F", i, 0) for i in range(min(m, p - s))]
        for i in range(m):
            order.append(("B", i, 0))
            order += [("W", i - s, 0)] * (i >= s) + [("F", p - s + i, 0)] * (p - s + i < m)
        orders.append(order + [("W", i, 0) for i in range(max(0, m - s), m)])
    return orders


def most_held(order, freed):
    """Micro-batches that a stage holds at most, each from its forward to the piece that frees it."""
    held = [sum((kind == "F") - (kind == freed) for kind, *_ in order[: n + 1]) for n in range(len(order))]
    return max(held)


sizes = dict(p=st.integers(1, 6), m=st.integers(1, 12), f=st.integers(0, 5), b=st.integers(0, 9))
FEW = settings(max_examples=60, deadline=None, derandomize=True)


@FEW
@given(**sizes)
def test_gpipe_and_1f1b_take_the_time_that_they_take(p, m, f, b):
    busy = m * (f + b)
    for schedule, orders in (("gpipe", gpipe(p, m)), ("1f1b", one_forward_one_backward(p, m))):
        assert busy + bubble_seconds(p, m, f, b, schedule) == run(orders, {"F": f, "B": b}, (p - 1, 0))


@FEW
@given(p=st.integers(2, 5), groups=st.integers(1, 3), v=st.integers(1, 4), f=st.integers(1, 4), b=st.integers(1, 6))
def test_interleaved_stages_wait_a_chunk_less(p, groups, v, f, b):
    m = p * groups
    taken = run(interleaved(p, m, v), {"F": f, "B": b}, (p - 1, v - 1))  # f and b of one chunk
    assert m * v * (f + b) + bubble_seconds(p, m, v * f, v * b, "interleaved", v) == pytest.approx(taken)


@FEW
@given(p=st.integers(1, 6), more=st.integers(0, 9), unit=st.integers(1, 3))
def test_weight_gradients_put_off_fill_two_thirds_of_the_gap(p, more, unit):
    """Forward and both halves of the backward pass alike; nothing more is held than in 1F1B."""
    m, orders = p + more, weights_put_off(p, p + more)
    bubble = bubble_seconds(p, m, unit, 2 * unit, "zero-bubble")
    assert 3 * m * unit + bubble == run(orders, dict.fromkeys("FBW", unit), (p - 1, 0))
    assert bubble == pytest.approx(bubble_seconds(p, m, unit, 2 * unit) / 3)
    assert max(most_held(order, "W") for order in orders) <= p


def test_32_micro_batches_through_8_stages():
    """Case N09: 78 steps for both schedules, 17.9%; 71 steps are claimed, less than the last stage's own 64 and 7 before and after."""
    for schedule, orders in (("gpipe", gpipe(8, 32)), ("1f1b", one_forward_one_backward(8, 32))):
        assert run(orders, {"F": 1, "B": 1}, (7, 0)) == 78 == 64 + bubble_seconds(8, 32, 1, 1, schedule)
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

"""Dependency graphs: against every path of random graphs, against a clock that runs the stages, and by hand."""

import random
from fractions import Fraction as F

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.times import roofline
from workloads.times.taskgraph import (
    Interval,
    Stage,
    chain,
    critical_path,
    earliest,
    executor_bounds,
    faster,
    kept_seconds,
    ordered,
    slack,
    span,
    work,
)

SERIAL = chain(Stage("plan", 2), Stage("a", 6), Stage("b", 10), Stage("answer", 3))
PARALLEL = (Stage("plan", 2), Stage("a", 6, ("plan",)), Stage("b", 10, ("plan",)), Stage("answer", 3, ("a", "b")))


@st.composite
def tasks(draw, largest=8):
    """Random acyclic tasks with whole seconds (zero included), names in no helpful order."""
    size = draw(st.integers(1, largest))
    names = draw(st.permutations([f"s{i}" for i in range(size)]))
    stages = [
        Stage(name, draw(st.integers(0, 9)), tuple(before for before in names[:i] if draw(st.booleans()))) for i, name in enumerate(names)
    ]
    return tuple(draw(st.permutations(stages)))


def paths(stages):
    """Every path from a stage without dependencies to any stage, by plain recursion."""
    named = {s.name: s for s in stages}

    def ending_at(name):
        return [[*path, name] for before in named[name].after for path in ending_at(before)] or [[name]]

    return [path for name in named for path in ending_at(name)]


def length(stages, path):
    return sum(s.seconds for name in path for s in stages if s.name == name)


def run(stages, executors, rng):
    """Finish time when a clock starts ready stages on free executors in random order, never idling."""
    left, running, done, now = {s.name: s for s in stages}, [], set(), 0
    while left or running:
        ready = [s for s in left.values() if set(s.after) <= done]
        rng.shuffle(ready)
        for stage in ready[: executors - len(running)]:
            running.append((now + stage.seconds, left.pop(stage.name).name))
        now = min(end for end, _ in running)
        done |= {name for end, name in running if end == now}
        running = [(end, name) for end, name in running if end > now]
    return now


@given(tasks())
def test_span_is_the_longest_of_all_paths(stages):
    assert span(stages) == max(length(stages, path) for path in paths(stages))


@given(tasks())
def test_the_critical_path_is_a_path_as_long_as_the_span(stages):
    path = critical_path(stages)
    assert list(path) in paths(stages)
    assert length(stages, path) == span(stages)
    assert all(slack(stages)[name] == 0 for name in path)


@given(tasks())
def test_slack_is_the_span_less_the_longest_path_through_a_stage(stages):
    for name, spare in slack(stages).items():
        through = [path for path in paths(stages) if name in path]
        assert spare == span(stages) - max(length(stages, path) for path in through)


@given(tasks(), st.integers(0, 5))
def test_a_stage_that_uses_its_slack_delays_nothing_and_more_delays_all(stages, extra):
    for stage in stages:
        spare = slack(stages)[stage.name]
        slower = tuple(Stage(s.name, s.seconds + (spare + extra if s is stage else 0), s.after) for s in stages)
        assert span(slower) == span(stages) + extra


@given(tasks())
def test_enough_executors_reach_the_span_and_one_needs_the_work(stages):
    rng = random.Random(3)
    assert run(stages, len(stages), rng) == span(stages)
    assert run(stages, 1, rng) == work(stages)


@given(tasks(), st.integers(1, 4), st.integers(0, 10**6))
def test_every_greedy_run_lies_within_the_executor_bounds(stages, executors, seed):
    least, most = executor_bounds(stages, executors)
    assert least <= run(stages, executors, random.Random(seed)) <= most + 1e-9


@given(tasks())
def test_latest_windows_keep_every_dependency_and_the_span(stages):
    spare, early = slack(stages), earliest(stages)
    late = {name: (early[name].start + spare[name], early[name].end + spare[name]) for name in spare}
    for stage in stages:
        assert late[stage.name][1] <= span(stages) and spare[stage.name] >= 0
        assert all(late[name][1] <= late[stage.name][0] for name in stage.after)


@given(tasks(), st.data())
def test_kept_seconds_counts_the_ticks_with_a_named_stage_running(stages, data):
    names = data.draw(st.lists(st.sampled_from([s.name for s in stages]), unique=True))
    windows = earliest(stages)
    ticks = [t for t in range(work(stages)) if any(windows[n].start <= t < windows[n].end for n in names)]
    assert kept_seconds(stages, *names) == len(ticks)


def test_two_tools_one_after_the_other_and_side_by_side_by_hand():
    assert (span(SERIAL), span(PARALLEL)) == (21, 15)
    assert work(SERIAL) == work(PARALLEL) == 21
    assert earliest(PARALLEL)["answer"] == Interval(12, 15)
    assert slack(PARALLEL) == {"plan": 0, "a": 4, "b": 0, "answer": 0}
    assert (kept_seconds(SERIAL, "a", "b"), kept_seconds(PARALLEL, "a", "b")) == (16, 10)


@given(st.lists(st.integers(1, 20), min_size=1, max_size=6), st.integers(1, 9), st.data())
def test_amdahl_is_what_a_chain_with_one_faster_stage_gives(seconds, factor, data):
    stages = chain(*(Stage(str(i), F(s)) for i, s in enumerate(seconds)))
    name = data.draw(st.sampled_from([s.name for s in stages]))
    share = F(seconds[int(name)], sum(seconds))
    assert span(stages) / span(faster(stages, factor, name)) == roofline.speedup(share, factor)


def test_speeding_up_a_stage_with_slack_saves_nothing():
    assert span(faster(PARALLEL, 100, "a")) == span(PARALLEL)
    assert span(faster(PARALLEL, 2, "b")) == 2 + 6 + 3  # the other tool decides now


@pytest.mark.parametrize(
    "call, named",
    [
        (lambda: Stage("a", -1), "stage 'a'"),
        (lambda: Stage("a", float("nan")), "seconds"),
        (lambda: Stage("a", 1, "b"), "tuple"),
        (lambda: ordered([]), "one or more"),
        (lambda: ordered([Stage("a", 1), Stage("a", 2)]), "once"),
        (lambda: span([Stage("a", 1, ("missing",))]), "missing"),
        (lambda: span([Stage("a", 1, ("b",)), Stage("b", 1, ("a",))]), "cycle"),
        (lambda: work([Stage("a", 1, ("a",))]), "cycle"),
        (lambda: slack([]), "one or more"),
        (lambda: executor_bounds(PARALLEL, 0), "executors"),
        (lambda: faster(PARALLEL, 0, "a"), "factor"),
        (lambda: faster(PARALLEL, 2, "missing"), "missing"),
        (lambda: kept_seconds(PARALLEL, "missing"), "missing"),
    ],
)
def test_bad_tasks_are_refused(call, named):
    with pytest.raises(ValueError, match=named):
        call()


def test_a_cycle_is_named():
    with pytest.raises(ValueError, match="a -> b -> a|b -> a -> b"):
        ordered([Stage("a", 1, ("b",)), Stage("b", 1, ("a",)), Stage("c", 1)])


def test_executor_bounds_by_hand_where_nothing_divides():
    loose = tuple(Stage(name, 5) for name in "abc")
    assert executor_bounds(loose, 2) == (7.5, 10)  # 15/2 above the span 5; 5 + 10/2
    assert executor_bounds(loose, 4) == (5, 7.5)  # 15/4 below it; 5 + 10/4
    assert executor_bounds(loose, 1) == (15, 15)

"""Sweeps: the same answers on threads, processes and a cluster, and nothing lost when a worker dies."""

import os
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import pytest
from sweep_items import ends_its_process, picky, square

from workloads_book.sweeps import sweep


class Here(Executor):
    """Runs each item when it is handed in."""

    def submit(self, function, /, *values):
        done = Future()
        done.set_result(function(*values))
        return done


def processes():
    return ProcessPoolExecutor(2, mp_context=get_context("spawn"))


EXECUTORS = {"here": Here, "threads": lambda: ThreadPoolExecutor(3), "processes": processes}
each = pytest.mark.parametrize("name", EXECUTORS)


@each
def test_every_item_has_its_value_in_its_place(name):
    seen = []
    with EXECUTORS[name]() as executor:
        found = sweep(square, range(9), executor, lambda done, of: seen.append((done, of)))
    assert [(o.item, o.value, o.error) for o in found] == [(x, x * x, None) for x in range(9)]
    assert seen == [(n, 9) for n in range(1, 10)]


@each
def test_what_an_item_raises_is_reported_with_it_and_stops_no_other(name):
    with EXECUTORS[name]() as executor:
        found = sweep(picky, range(6), executor)
    assert [o.value for o in found] == [0, 1, 4, None, 16, 25]
    assert found[3].item == 3 and isinstance(found[3].error, ValueError) and "got 3" in str(found[3].error)


def test_items_of_a_worker_that_dies_are_tried_here_once():
    with processes() as executor:
        found = sweep(ends_its_process, [(os.getpid(), x) for x in range(6)], executor)
    assert [o.value for o in found] == [0, 1, 4, 9, 16, 25]


def test_or_they_are_reported_with_what_ended_the_worker():
    with processes() as executor:
        found = sweep(ends_its_process, [(0, x) for x in range(6)], executor, again=False)
    assert len(found) == 6 and found[3].item == (0, 3) and found[3].value is None and isinstance(found[3].error, Exception)
    assert all((o.value == o.item[1] ** 2) != (o.error is not None) for o in found)


def test_a_local_cluster_of_dask_answers_as_threads_do_and_loses_nothing():
    distributed, config = pytest.importorskip("distributed"), pytest.importorskip("dask").config
    silent = {"distributed.scheduler.allowed-failures": 0, "distributed.logging": {"distributed": "critical"}}
    with (
        config.set(silent),
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        executor = client.get_executor()
        for function in (square, picky):
            here, there = sweep(function, range(6), Here()), sweep(function, range(6), executor)
            assert [(o.item, o.value, repr(o.error)) for o in there] == [(o.item, o.value, repr(o.error)) for o in here]
        assert [o.value for o in sweep(ends_its_process, [(os.getpid(), x) for x in range(6)], executor)] == [0, 1, 4, 9, 16, 25]
        (lost,) = sweep(ends_its_process, [(0, 3)], executor, again=False)
        assert lost.item == (0, 3) and lost.value is None and type(lost.error).__name__ == "KilledWorker"


def test_an_executor_that_is_closed_or_gives_up_loses_nothing():
    closed = ThreadPoolExecutor(1)
    closed.shutdown()
    assert [o.value for o in sweep(square, [2, 3], closed)] == [4, 9]

    class GivesUp(Executor):
        def submit(self, function, /, *values):
            future = Future()
            future.cancel()
            future.set_running_or_notify_cancel()
            return future

    assert [o.value for o in sweep(square, [2, 3], GivesUp())] == [4, 9]
    assert [str(o.error) for o in sweep(square, [2], GivesUp(), again=False)] == ["the executor gave it up"]


def test_without_items_nothing_happens():
    assert sweep(square, []) == []

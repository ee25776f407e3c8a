"""One function over many configurations, on whatever runs them: threads, processes, or a cluster that offers Python's own executors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Executor, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from typing import Any


@dataclass(frozen=True)
class Outcome:
    """What became of an item: its value, or why there is none.

    Attributes:
        item: as it was given.
        value: of the function; None where it failed.
        error: what the function raised, or what ended its worker; None where it went well.
    """

    item: Any
    value: Any = None
    error: Exception | None = None


def attempt(function: Callable[[Any], Any], item: Any) -> Outcome:
    """The function of one item, and what it raises as part of the answer: so what a worker raises itself is known to be its end.

    Args:
        function: of one item.
        item: its argument.

    Example:
        >>> attempt(lambda x: 1 / x, 4).value, attempt(lambda x: 1 / x, 0).error
        (0.25, ZeroDivisionError('division by zero'))
    """
    try:
        return Outcome(item, function(item))
    except Exception as error:
        return Outcome(item, error=error)


def sweep(
    function: Callable[[Any], Any],
    items: Iterable[Any],
    executor: Executor | None = None,
    progress: Callable[[int, int], None] = lambda done, of: None,
    again: bool = True,
) -> list[Outcome]:
    """The function of each item, in their order: every item has an outcome, whatever happens to its worker.

    Args:
        function: of one item; processes and clusters want one that can be sent, from a module.
        items: configurations.
        executor: any `concurrent.futures` executor, such as a pool of processes or what Dask's `Client.get_executor` gives; threads
            where left out. It stays open.
        progress: is told how many are done, and of how many, after each.
        again: whether an item whose worker died is tried once more, here; else it is reported with what ended its worker. Say False
            where an item may itself end a process.

    Example:
        >>> [outcome.value for outcome in sweep(abs, [-3, 2])]
        [3, 2]
    """
    if executor is None:
        with ThreadPoolExecutor() as threads:
            return sweep(function, items, threads, progress, again)
    items, found, one = list(items), {}, partial(attempt, function)

    def keep(place, outcome):
        found[place] = outcome
        progress(len(found), len(items))

    sent, lost = {}, {}
    for place, item in enumerate(items):
        try:
            sent[executor.submit(one, item)] = place
        except RuntimeError as error:  # a pool that broke, or was closed, takes no more
            lost[place] = error
    for future in as_completed(sent):
        if future.cancelled() or (error := future.exception()) is not None:
            lost[sent[future]] = error if not future.cancelled() else RuntimeError("the executor gave it up")
        else:
            keep(sent[future], future.result())
    for place, error in sorted(lost.items()):
        keep(place, one(items[place]) if again else Outcome(items[place], error=error))
    return [found[place] for place in range(len(items))]

"""Blocks of KV as the event-skipping simulator keeps them: counted, or held by what they contain, with what requests wait for."""

from __future__ import annotations

from collections import OrderedDict, deque
from heapq import heappop, heappush
from itertools import takewhile
from typing import Any

from ..numeric import Number
from ..units import Count


class _Pool:
    """Free blocks, counted: nothing is found again."""

    def __init__(self, engine: Any):
        self.free, self.blocks_of, self.size = engine.blocks, engine.blocks_of, engine.block_size

    def found(self, row: Any) -> tuple[Count, Count]:  # noqa: ARG002
        """Blocks that hold the beginning of a request's tokens, and how many of them no request uses."""
        return 0, 0

    def take(self, count: Count) -> None:
        """Use so many free blocks."""
        self.free -= count

    def enter(self, row: Any, found: Count) -> None:
        """A request begins to use the blocks that were found."""

    def fill(self, row: Any, tokens: Number) -> None:
        """The first blocks of a prompt, up to so many tokens, get their content in this step."""

    def give(self, row: Any) -> None:
        """A request leaves its blocks."""
        self.free += self.blocks_of(row.computed)

    end = give  # with names: what it returned can be found too


class _CachingPool(_Pool):
    """Free blocks in the order of their last use, the oldest first: those with a name can be found until they are taken.

    ``row.blocks`` holds the names of a row's first blocks, None for one whose content another block has already; blocks
    behind them have no name yet. Neighbours without a name are one entry of the queue.
    """

    def __init__(self, engine: Any):
        super().__init__(engine)
        self.users, self.queue = {}, OrderedDict({object(): engine.blocks})

    def found(self, row: Any) -> tuple[Count, Count]:
        held = list(takewhile(self.users.__contains__, row.hashes[: (row.known - 1) // self.size]))
        return len(held), sum(not self.users[name] for name in held)

    def take(self, count: Count) -> None:
        self.free -= count
        while count > 0:
            key, blocks = self.queue.popitem(last=False)
            self.users.pop(key, None)
            if blocks > count:
                self.queue[key] = blocks - count
                self.queue.move_to_end(key, last=False)
            count -= blocks

    def enter(self, row: Any, found: Count) -> None:
        row.blocks = list(row.hashes[:found])
        for name in row.blocks:
            if not self.users[name]:
                del self.queue[name]
                self.free -= 1
            self.users[name] += 1

    def fill(self, row: Any, tokens: Number) -> None:
        self._name(row, min(tokens, row.prompt) // self.size)

    def _name(self, row, blocks):
        for name in row.hashes[len(row.blocks) : blocks]:
            row.blocks.append(None if name in self.users else name)
            self.users.setdefault(name, 1)

    def give(self, row: Any) -> None:
        for name in (None,) * (self.blocks_of(row.computed) - len(row.blocks)) + (*reversed(row.blocks),):
            if name is not None:
                self.users[name] -= 1
            if name is None or not self.users[name]:
                self.queue[object() if name is None else name] = 1
                self.free += 1
        row.blocks = []

    def end(self, row: Any) -> None:
        self._name(row, row.computed // self.size)
        self.give(row)


class _Coming:
    """Requests that have not arrived: those with a time, and those that wait for the end of another."""

    def __init__(self, rows: list):
        self.timed, self.due, self.after, self.count = deque(r for r in rows if r.after is None), [], {}, 0
        for row in rows:
            if row.after is not None:
                self.after.setdefault(row.after, []).append(row)

    def first(self) -> Any:
        """The next request to arrive; None where no time is known."""
        if not self.due:
            return self.timed[0] if self.timed else None
        return self.timed[0] if self.timed and self.timed[0] < self.due[0] else self.due[0]

    def pop(self) -> Any:
        """The next request, which arrives."""
        row = self.first()
        heappop(self.due) if self.due and row is self.due[0] else self.timed.popleft()
        row.index, self.count = self.count, self.count + 1
        return row

    def ended(self, row: Any, now: Number) -> None:
        """What waited for the end of a request arrives its time later."""
        for follower in self.after.pop(row.place, ()):
            follower.arrival += now
            heappush(self.due, follower)

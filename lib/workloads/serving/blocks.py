"""What the event-skipping simulator keeps: blocks of KV, counted or held by what they contain; requests to come; what rows meet."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import accumulate, takewhile
from typing import Any

from ..numeric import Number
from ..units import Count
from .engine import _Row


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

    def __init__(self, load: Sequence, engine: Any):
        self.load, self.engine, self.due, self.after, self.count = load, engine, [], {}, 0
        self.timed = (place for place, arrival in enumerate(load) if arrival.after is None)
        self.next = self._made(next(self.timed, None))
        for place, arrival in enumerate(load):
            if arrival.after is not None:
                self.after.setdefault(arrival.after, []).append(place)

    def _made(self, place) -> Any:
        return None if place is None else _Row(place, self.load[place], self.engine)

    def first(self) -> Any:
        """The next request to arrive; None where no time is known."""
        if not self.due:
            return self.next
        return self.next if self.next and self.next < self.due[0] else self.due[0]

    def pop(self) -> Any:
        """The next request, which arrives."""
        row = self.first()
        if row is self.next:
            self.next = self._made(next(self.timed, None))
        else:
            heappop(self.due)
        row.index, self.count = self.count, self.count + 1
        return row

    def ended(self, row: Any, now: Number) -> None:
        """What waited for the end of a request arrives its time later."""
        for place in self.after.pop(row.place, ()):
            follower = self._made(place)
            follower.arrival += now
            heappush(self.due, follower)


class _Met:
    """What decoding rows meet in the layers of one kind, or hold in blocks of the cache: each an entry more in every so many
    steps, up to a most; with ``again`` it then begins anew.
    """

    def __init__(self, every: Count = 1, most: Count = 0, again: bool = False, weight: Count = 1, phases: list | None = None):
        self.every, self.most, self.again, self.weight = every, most, again, weight
        self.phases = [0] * every if phases is None else phases  # rows that gain an entry, by the step modulo ``every``
        self.total, self.growing, self.due = 0, 0, {}  # entries of all rows; rows that grow; how many are full at a step

    def change(self, positions: Number, step: Count, sign: int) -> None:
        """A row of so many positions comes (1) or goes (-1)."""
        left = 0
        if self.most:
            positions = (positions - 1) % self.most + 1 if self.again else min(positions, self.most * self.every)
            left = self.most * self.every + self.again - positions
        self.total += sign * (positions // self.every)
        if left or not self.most:
            self.phases[(step - positions) % self.every] += sign * self.weight
            self.growing += sign * self.weight
        if left:
            self._full(step + left, sign)

    def _full(self, step, by):
        if count := self.due.pop(step, 0) + by:
            self.due[step] = count

    def levels(self, step: Count) -> tuple[list[Count], Count]:
        """Entries in each step of a cycle, and how many more after it."""
        gains = (self.phases[(step + i) % self.every] for i in range(1, self.every))
        return list(accumulate(gains, initial=self.total)), self.growing

    def advance(self, step: Count, steps: Count) -> None:
        """So many steps on."""
        cycles, rest = divmod(steps, self.every)
        self.total += cycles * self.growing + sum(self.phases[(step + i) % self.every] for i in range(1, rest + 1))

    def turn(self, step: Count) -> None:
        """Rows that are full at this step."""
        count = self.due.pop(step, 0)
        if count and self.again:
            self.total -= count * self.most
            self._full(step + self.most, count)
        elif count:
            self.phases[step % self.every] -= count * self.weight
            self.growing -= count * self.weight

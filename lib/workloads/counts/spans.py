"""What a query meets and a cache keeps: all positions before it, a window, a block, those that an indexer picks, or entries of several."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ..numeric import Number, floor, minimum, quotient
from ..units import Count, Tokens


class Span(NamedTuple):
    """Positions that a query meets in one way, in all layers of one kind.

    Attributes:
        pair: multiply-adds of all heads for the score of a query-key pair, and for its value.
        cached: {what: values that a position, or an entry of several, leaves in the cache}.
        absorbed: `pair` where queries meet the cached latent itself; None where there is no latent.
        heads: into how many parts what is cached can be split.
        sees: entries that a query meets at most (0: all).
        keeps: positions that the cache holds at most (0: all).
        every: positions that make one entry.
        chunk: `sees` counts from the beginning of the query's own block of positions.

    Example:
        >>> window = Span((64, 64), {"key": 64, "value": 64}, sees=3, keeps=3)
        >>> window.seen(4), window.kept(100), window.read(100)
        (9, 3, 2)
    """

    pair: tuple[Number, Number]
    cached: Mapping[str, Count]
    absorbed: tuple[Number, Number] | None = None
    heads: Count = 1
    sees: Count = 0
    keeps: Count = 0
    every: Count = 1
    chunk: bool = False

    def __hash__(self):
        return hash((self.pair, *self[2:]))  # a mapping has no hash

    @property
    def even(self) -> bool:
        """Whether every position is met by all queries behind it and adds the same to the cache."""
        return (self.sees, self.keeps, self.every) == (0, 0, 1)

    def seen(self, new: Tokens, past: Tokens = 0) -> Count:
        """Query-key pairs (count) of new tokens behind a past, each query meeting its own position too.

        Equation:
            sum over the queries at positions i = past + 1 ... past + new of min(floor(i / every), sees).

        Args:
            new: queries.
            past: positions before them.
        """
        return self._up_to(past + new) - self._up_to(past)

    def _up_to(self, n):
        if self.chunk:
            blocks = floor(n / self.sees)
            rest = n - blocks * self.sees
            return blocks * quotient(self.sees * (self.sees + 1), 2) + quotient(rest * (rest + 1), 2)
        within = minimum(n, self.every * (self.sees + 1) - 1) if self.sees else n
        if self.every == 1:
            return quotient(within * (within + 1), 2) + (n - within) * self.sees
        entries = floor(within / self.every)
        rest = within - entries * self.every
        return self.every * quotient(entries * (entries - 1), 2) + entries * (rest + 1) + (n - within) * self.sees

    def kept(self, tokens: Tokens, in_flight: Count = 1) -> Count:
        """Entries in the cache of a sequence (count).

        Args:
            tokens: of the sequence.
            in_flight: tokens that one call computes: the first of them still sees its whole window.
        """
        held = minimum(tokens, self.keeps - 1 + in_flight) if self.keeps else tokens
        return held if self.every == 1 else floor(held / self.every)

    def read(self, past: Tokens, steps: Count = 1) -> Count:
        """Cached entries that decode steps read (count), the first behind a past; a query does not read its own.

        Args:
            past: positions in the cache before the first step.
            steps: one after the other.
        """
        if self.even:
            return steps * past + quotient(steps * (steps - 1), 2)
        return self.seen(steps, past) - steps * (self.every == 1)

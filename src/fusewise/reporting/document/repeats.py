"""Repeats: runs of equal subgraphs in a row of boxes, the one that saves most first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import numpy as np

__all__ = ["Folded", "Repetition", "Wiring", "crossings", "repeats"]

LEAST_SAVED = 6
"""Nodes that folding a run must take out of sight: two activations in a row are no repeat."""

MOST_LOOKED_AT = 8
"""How often each node of a level may be looked at, on average, before what is still there is left unfolded."""

Run = tuple[int, int, int, int]
"""Nodes saved, as a negative number, a period, and a span of boxes each of which is equal to the one a period before it."""


@dataclass(frozen=True, slots=True)
class Folded:
    """Nodes next to each other in the order of the drawing, and their scope's title; `boxes` inside, none for a unit.

    `unit` is the number of the group or node that a box without boxes is.
    """

    title: str
    nodes: tuple[int, ...]
    boxes: tuple[Folded, ...] = ()
    unit: int = -1


@dataclass(frozen=True, slots=True)
class Repetition:
    """`times` runs of `period` boxes each, from the box at `first`, that compute the same."""

    first: int
    period: int
    times: int

    @property
    def end(self) -> int:
        return self.first + self.period * self.times


class Wiring:
    """Who feeds whom, and what every node is: equal numbers mean equal operators, attributes, types and constants' types."""

    def __init__(self, kinds: Sequence[int], feeds: Sequence[Sequence[int]]) -> None:
        """`feeds` has for every operand of a node the node that writes it, or -1, for operands from outside."""
        self.kinds, self.feeds = kinds, feeds
        self._known: dict[tuple[object, ...], int] = {}

    def signature(self, nodes: Sequence[int]) -> int:
        """Equal for nodes that compute the same from what comes from outside."""
        if len(nodes) == 1:
            return self._number((self.kinds[nodes[0]],))
        place = {node: position for position, node in enumerate(nodes)}
        return self._number(
            tuple((self.kinds[node], *(place.get(feed, -1) for feed in self.feeds[node])) for node in nodes)
        )

    def _number(self, what: tuple[object, ...]) -> int:
        return self._known.setdefault(what, len(self._known))

    def alike(self, copies: Iterable[Sequence[int]]) -> int:
        """How many of the copies, from the first on, read in the same way, from themselves and from those before."""
        place: dict[int, tuple[int, int]] = {}
        carried: dict[tuple[int, int], tuple[int, int] | None] = {}
        count = 0
        for copy, nodes in enumerate(copies):
            place |= {node: (copy, position) for position, node in enumerate(nodes)}
            for position, node in enumerate(nodes):
                for operand, feed in enumerate(self.feeds[node]):
                    source = place.get(feed)
                    reads = None if source is None else (copy - source[0], source[1])
                    before = carried.setdefault((position, operand), reads)
                    if before is None and reads is not None and reads[0] == copy:
                        carried[position, operand] = reads  # the first copy that there is one before to read from
                    elif before != reads:
                        return copy
            count = copy + 1
        return count


def crossings(boxes: Sequence[Folded], wiring: Wiring) -> np.ndarray:
    """For every place between boxes, and both ends, the nodes before it that boxes behind it read."""
    owner = {node: position for position, box in enumerate(boxes) for node in box.nodes}
    last: dict[int, int] = {}
    for position, box in enumerate(boxes):
        for node in box.nodes:
            for feed in wiring.feeds[node]:
                if feed in owner:
                    last[feed] = position
    change = np.zeros(len(boxes) + 2, np.int64)
    for feed, position in last.items():
        change[owner[feed] + 1] += 1
        change[position + 1] -= 1
    return np.cumsum(change)[: len(boxes) + 1]


def repeats(boxes: Sequence[Folded], wiring: Wiring) -> list[Repetition]:
    """Disjoint repeats among boxes, ascending. Those that take most nodes out of sight come first; the shorter period of two."""
    sizes = np.concatenate([[0], np.cumsum([len(box.nodes) for box in boxes])])
    width = crossings(boxes, wiring)
    runs = list(_runs(np.array([wiring.signature(box.nodes) for box in boxes], np.int64), sizes))
    heapify(runs)
    taken = np.zeros(len(boxes), bool)
    found: list[Repetition] = []
    patience = MOST_LOOKED_AT * int(sizes[-1])
    while runs and patience > 0:
        _, period, begin, end = heappop(runs)
        if taken[begin:end].any():
            free = _spans(~taken[begin:end])
            _offer(runs, ((begin + first, begin + last) for first, last in free), period, sizes)
            continue
        first = begin + int(np.argmin(width[begin : begin + (end - begin) % period + 1]))
        times = wiring.alike(_copies(boxes, first, period, (end - first) // period))
        patience -= int(sizes[first + period * min(times + 1, (end - first) // period)] - sizes[first])
        if _saved(sizes, first, period, times) < LEAST_SAVED:
            _offer(runs, [(first + period, end)], period, sizes)
            continue
        found.append(Repetition(first, period, times))
        taken[first : first + period * times] = True
        _offer(runs, [(begin, first), (first + period * times, end)], period, sizes)
    return sorted(found, key=lambda repeat: repeat.first)


def _copies(boxes: Sequence[Folded], first: int, period: int, times: int) -> Iterator[list[int]]:
    """The nodes of each run of boxes."""
    for begin in range(first, first + period * times, period):
        yield [node for box in boxes[begin : begin + period] for node in box.nodes]


def _saved(sizes: np.ndarray, first: int, period: int, times: int) -> int:
    """Nodes of all runs but the first."""
    return int(sizes[first + period * times] - sizes[first + period]) if times > 1 else 0


def _runs(signs: np.ndarray, sizes: np.ndarray) -> Iterator[Run]:
    """Every longest stretch of boxes in which each is equal to the one a period before it."""
    for period in range(1, len(signs) // 2 + 1):
        equal = signs[period:] == signs[:-period]
        if np.count_nonzero(equal) >= period:
            found: list[Run] = []
            _offer(found, ((begin, end + period) for begin, end in _spans(equal, period)), period, sizes)
            yield from found


def _offer(runs: list[Run], spans: Iterable[tuple[int, int]], period: int, sizes: np.ndarray) -> None:
    """Adds the spans that are worth folding to a heap of runs."""
    for begin, end in spans:
        times = (end - begin) // period
        saved = _saved(sizes, begin, period, times)
        if saved >= LEAST_SAVED:
            heappush(runs, (-saved, period, begin, end))


def _spans(true: np.ndarray, least: int = 1) -> list[tuple[int, int]]:
    """Where an array is true at `least` so many times in a row, as (first, behind the last)."""
    changes = np.flatnonzero(true[1:] != true[:-1]) + 1
    edges = np.concatenate([[0] if true[0] else [], changes, [len(true)] if true[-1] else []]).astype(np.int64)
    begins, ends = edges[::2], edges[1::2]
    long = ends - begins >= least
    return list(zip(begins[long].tolist(), ends[long].tolist(), strict=True))

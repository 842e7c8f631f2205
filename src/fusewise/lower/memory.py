"""Plans the arena: buffers that are never alive at the same time share memory.

Two plans of Pisarchyk and Lee ("Efficient memory management for deep neural net inference"), both with the largest buffer first.
By *places* every buffer shares the memory of larger ones that are never alive with it, of all those the ones used last before it,
whose lines are near. It lies in their middle: workers split a buffer's elements in equal runs, so one half of a place is always
written by the same workers, and no cache line has to come from another core only to be overwritten. By *gaps* each takes the lowest
gap among those alive with it, which is smaller; that is taken where places would need half as much again.

Where sizes are not known, only who shares a place is decided (`plan_places`), from sizes at a hint; how large places are and where
they begin follows when sizes are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate

import numpy as np

from fusewise.records import record

__all__ = ["ALIGNMENT", "Lifetime", "plan_arena", "plan_places"]

ALIGNMENT = 64

MOST_SPACE = 1.5
"""How much larger an arena may be for its halves to stay with their workers."""


@record(frozen=True, slots=True)
class Lifetime:
    """A buffer of `nbytes` written first in step `first` and read last in step `last` (inclusive)."""

    nbytes: int
    first: int
    last: int

    @property
    def size(self) -> int:
        """Bytes in whole cache lines."""
        return -(-max(1, self.nbytes) // ALIGNMENT) * ALIGNMENT

    def meets(self, other: Lifetime) -> bool:
        """Are both alive in some step?"""
        return self.first <= other.last and other.first <= self.last


def plan_arena(
    lifetimes: Sequence[Lifetime], overwrites: Iterable[tuple[int, int]] = ()
) -> tuple[tuple[int, ...], int]:
    """A byte offset for each buffer and the size of the whole arena; offsets are multiples of `ALIGNMENT`.

    `overwrites` are pairs of buffers of one size, in the order of steps: the second, which nobody else overwrites, is written first
    in the step that reads the first one last, and takes its place.
    """
    owner, joined = _joined(lifetimes, overwrites)
    offsets, total = _plan(list(joined.values()))
    where = dict(zip(joined, offsets, strict=True))
    return tuple(where[whose] for whose in owner), total


def plan_places(lifetimes: Sequence[Lifetime], overwrites: Iterable[tuple[int, int]] = ()) -> tuple[int, ...]:
    """The place of each buffer, counted from 0: buffers of one place are never alive together. Sizes are those to plan for, and
    `overwrites` as in `plan_arena`: those share a place."""
    owner, joined = _joined(lifetimes, overwrites)
    where = dict(zip(joined, _places(list(joined.values()))[0], strict=True))
    return tuple(where[whose] for whose in owner)


def _joined(
    lifetimes: Sequence[Lifetime], overwrites: Iterable[tuple[int, int]]
) -> tuple[list[int], dict[int, Lifetime]]:
    """Of each buffer the first of those whose memory it takes over, and by that the time for which all of them are alive."""
    owner, joined = list(range(len(lifetimes))), list(lifetimes)
    for old, new in overwrites:
        before, after = joined[owner[old]], lifetimes[new]
        assert before.nbytes == after.nbytes and before.last == after.first and owner[new] == new
        owner[new] = owner[old]
        joined[owner[old]] = Lifetime(before.nbytes, before.first, after.last)
    return owner, {k: joined[k] for k, whose in enumerate(owner) if whose == k}


def _plan(lifetimes: Sequence[Lifetime]) -> tuple[tuple[int, ...], int]:
    by_places, by_gaps = _by_places(lifetimes), _by_gaps(lifetimes)
    return by_places if by_places[1] <= MOST_SPACE * by_gaps[1] else by_gaps


def _by_size(lifetimes: Sequence[Lifetime]) -> list[int]:
    """The numbers of all buffers, the largest first."""
    return sorted(range(len(lifetimes)), key=lambda k: (-lifetimes[k].nbytes, lifetimes[k].first, k))


def _by_places(lifetimes: Sequence[Lifetime]) -> tuple[tuple[int, ...], int]:
    place, sizes = _places(lifetimes)
    starts = [0, *accumulate(sizes)]
    offsets = (
        starts[where] + (sizes[where] - one.size) // 2 // ALIGNMENT * ALIGNMENT
        for where, one in zip(place, lifetimes, strict=True)
    )
    return tuple(offsets), starts[-1]


def _places(lifetimes: Sequence[Lifetime]) -> tuple[list[int], list[int]]:
    """The place of each buffer, and how large places are: as the first tenant, the largest."""
    count, sizes = len(lifetimes), list[int]()
    first, last, place = (np.zeros(count, np.int64) for _ in range(3))  # of the tenants so far
    found = [0] * count
    steps = max((one.last for one in lifetimes), default=0) + 1
    for tenants, k in enumerate(_by_size(lifetimes)):
        wanted = lifetimes[k]
        before = slice(tenants)
        taken = np.zeros(len(sizes) + 1, bool)
        taken[place[before][(first[before] <= wanted.last) & (wanted.first <= last[before])]] = True
        since = np.where(taken[place[before]], steps, (wanted.first - last[before]) % steps)
        if since.size and since.min() < steps:
            found[k] = int(place[before][since == since.min()].min())
        else:
            found[k] = len(sizes)
            sizes.append(wanted.size)
        first[tenants], last[tenants], place[tenants] = wanted.first, wanted.last, found[k]
    return found, sizes


def _by_gaps(lifetimes: Sequence[Lifetime]) -> tuple[tuple[int, ...], int]:
    count, total = len(lifetimes), 0
    offsets = [0] * count
    placed = np.zeros(
        (4, count), np.int64
    )  # where each begins and ends, its first and its last step, by where it begins
    for number, k in enumerate(_by_size(lifetimes)):
        wanted = lifetimes[k]
        low, high, first, last = placed[:, :number]
        alive = (first <= wanted.last) & (wanted.first <= last)
        ends = np.maximum.accumulate(np.concatenate(([0], high[alive])))
        gaps = np.flatnonzero(low[alive] - ends[:-1] >= wanted.size)
        start = int(ends[gaps[0] if gaps.size else -1])
        offsets[k] = start
        total = max(total, start + wanted.size)
        at = int(np.searchsorted(low, start, side="right"))
        placed[:, at + 1 : number + 1] = placed[:, at:number].copy()
        placed[:, at] = start, start + wanted.size, wanted.first, wanted.last
    return tuple(offsets), total

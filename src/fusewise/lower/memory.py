"""Plans the arena: buffers that are never alive at the same time share memory.

Two plans of Pisarchyk and Lee ("Efficient memory management for deep neural net inference"), both with the largest buffer first.
By *places* every buffer shares the memory of larger ones that are never alive with it, of all those the ones used last before it,
whose lines are near. It lies in their middle: workers split a buffer's elements in equal runs, so one half of a place is always
written by the same workers, and no cache line has to come from another core only to be overwritten. By *gaps* each takes the lowest
gap among those alive with it, which is smaller; that is taken where places would need half as much again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fusewise.records import record

__all__ = ["ALIGNMENT", "Lifetime", "plan_arena"]

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
    owner, joined = list(range(len(lifetimes))), list(lifetimes)
    for old, new in overwrites:
        before, after = joined[owner[old]], lifetimes[new]
        assert before.nbytes == after.nbytes and before.last == after.first and owner[new] == new
        owner[new] = owner[old]
        joined[owner[old]] = Lifetime(before.nbytes, before.first, after.last)
    own = [k for k, whose in enumerate(owner) if whose == k]
    offsets, total = _plan([joined[k] for k in own])
    where = dict(zip(own, offsets, strict=True))
    return tuple(where[whose] for whose in owner), total


def _plan(lifetimes: Sequence[Lifetime]) -> tuple[tuple[int, ...], int]:
    by_places, by_gaps = _by_places(lifetimes), _by_gaps(lifetimes)
    return by_places if by_places[1] <= MOST_SPACE * by_gaps[1] else by_gaps


def _by_size(lifetimes: Sequence[Lifetime]) -> list[int]:
    """The numbers of all buffers, the largest first."""
    return sorted(range(len(lifetimes)), key=lambda k: (-lifetimes[k].nbytes, lifetimes[k].first, k))


def _by_places(lifetimes: Sequence[Lifetime]) -> tuple[tuple[int, ...], int]:
    places: list[tuple[int, list[Lifetime]]] = []  # start, who has it in turn, the largest first
    offsets = [0] * len(lifetimes)
    total = 0
    steps = max((one.last for one in lifetimes), default=0) + 1
    for k in _by_size(lifetimes):
        wanted = lifetimes[k]
        free = (place for place in places if not any(wanted.meets(tenant) for tenant in place[1]))
        found = min(free, key=lambda place: min((wanted.first - t.last) % steps for t in place[1]), default=None)
        if found is None:
            found = (total, [])
            places.append(found)
            total += wanted.size
        start, tenants = found
        tenants.append(wanted)
        offsets[k] = start + (tenants[0].size - wanted.size) // 2 // ALIGNMENT * ALIGNMENT
    return tuple(offsets), total


def _by_gaps(lifetimes: Sequence[Lifetime]) -> tuple[tuple[int, ...], int]:
    offsets = [0] * len(lifetimes)
    placed: list[tuple[int, int, Lifetime]] = []  # (start, end, lifetime), sorted by start
    total = 0
    for k in _by_size(lifetimes):
        wanted = lifetimes[k]
        start = 0
        for low, high, other in placed:
            if not wanted.meets(other):
                continue
            if low - start >= wanted.size:
                break
            start = max(start, high)
        offsets[k] = start
        total = max(total, start + wanted.size)
        placed.append((start, start + wanted.size, wanted))
        placed.sort(key=lambda entry: entry[0])
    return tuple(offsets), total

"""Plans the arena: buffers that are never alive at the same time share memory.

Greedy by size (as in Pisarchyk and Lee, "Efficient memory management for deep neural net inference"): the largest
buffer is placed first, each at the lowest gap among those alive with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["ALIGNMENT", "Lifetime", "plan_arena"]

ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A buffer of `nbytes` written first in step `first` and read last in step `last` (inclusive)."""

    nbytes: int
    first: int
    last: int


def plan_arena(lifetimes: Sequence[Lifetime]) -> tuple[tuple[int, ...], int]:
    """A byte offset for each buffer and the size of the whole arena; offsets are multiples of `ALIGNMENT`."""
    offsets = [0] * len(lifetimes)
    placed: list[tuple[int, int, Lifetime]] = []  # (start, end, lifetime), sorted by start
    total = 0
    for k in sorted(range(len(lifetimes)), key=lambda k: (-lifetimes[k].nbytes, lifetimes[k].first, k)):
        wanted = lifetimes[k]
        size = -(-max(1, wanted.nbytes) // ALIGNMENT) * ALIGNMENT
        start = 0
        for low, high, other in placed:
            if other.first > wanted.last or other.last < wanted.first:
                continue
            if low - start >= size:
                break
            start = max(start, high)
        offsets[k] = start
        total = max(total, start + size)
        placed.append((start, start + size, wanted))
        placed.sort(key=lambda entry: entry[0])
    return tuple(offsets), total

"""Arrays between pages that nobody may touch: code that reads or writes outside them ends the process where it does.

An array lies flush against the page behind it, or against the one before it. What is left of its own pages holds a pattern, in
which a write is found out afterwards; a read goes unnoticed there, so that both sides have their turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from fusewise.runtime.guarded import guarded_pages

__all__ = ["Guarded", "guarded", "within"]

PATTERN = 0xA5


@dataclass(frozen=True)
class Guarded:
    """`array`, and the rest of the pages that it lies in, `before` and `behind` it."""

    array: np.ndarray
    before: np.ndarray
    behind: np.ndarray

    @property
    def address(self) -> int:
        return self.before.ctypes.data + self.before.nbytes

    def check(self, name: str) -> None:
        """Raise `AssertionError` where something was written outside."""
        for side, slack in (("before", self.before[::-1]), ("behind", self.behind)):
            written = np.flatnonzero(slack != PATTERN)
            assert not written.size, (
                f"{written.size} bytes are written {side} {name}, the first {written[0] + 1} outside"
            )


def guarded(source: np.ndarray, flush: str, alignment: int = 1) -> Guarded:
    """A copy of an array, flush against the page `behind` or `before` it; its address is a multiple of its elements' size and of
    `alignment`, for which a few bytes may be left behind."""
    assert source.flags.c_contiguous, "what lies in memory is not the array in its order"
    nbytes, multiple = source.nbytes, max(alignment, source.itemsize & -source.itemsize)
    room = guarded_pages(max(nbytes, 1))
    room[:] = PATTERN
    first = 0 if flush == "before" else (room.nbytes - nbytes) // multiple * multiple
    own = room[first : first + nbytes]
    own[:] = source.reshape(-1).view(np.uint8)
    return Guarded(own.view(source.dtype).reshape(source.shape), room[:first], room[first + nbytes :])


@contextmanager
def within(arrays: Mapping[str, np.ndarray], flush: str, writes: Iterable[str]) -> Iterator[Mapping[str, Guarded]]:
    """Guarded copies of arrays, by name. At the end those that the body `writes` are copied back; raises `AssertionError` where
    anything else has changed."""
    found = {name: guarded(array, flush) for name, array in arrays.items()}
    yield found
    for name, one in found.items():
        one.check(name)
        if name in writes:
            arrays[name][...] = one.array
        else:
            assert one.array.tobytes() == arrays[name].tobytes(), f"{name} is only read, and has changed"

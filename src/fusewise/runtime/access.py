"""What checked code may touch, as it reads that, and what it touched beside it.

`codegen.llvm.checked` says what is in a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from fusewise.codegen.llvm.checked import FAULT, HEADER, RANGE_WORDS
from fusewise.errors import AccessOutside
from fusewise.records import record
from fusewise.runtime.arena import address_of
from fusewise.runtime.guarded import guarded_block

__all__ = ["AccessTable", "Range", "table_of"]

_SINK_BYTES = 1 << 14
"""Memory for accesses that went wrong: more than any vector, behind any masked part of one."""


@record(frozen=True, slots=True)
class Range:
    """Addresses from `begin` up to `end` that an argument stands for; `name` is for people."""

    name: str
    begin: int
    end: int
    writes: bool


class AccessTable:
    """The table of one call: a range for each of its pointers."""

    def __init__(self, ranges: Sequence[Range]) -> None:
        self._ranges = ranges
        self._words = np.zeros(HEADER + RANGE_WORDS * len(ranges), np.int64)
        self._words[HEADER - 2 : HEADER] = address_of(_sink()), len(ranges)
        for each, words in zip(ranges, self._words[HEADER:].reshape(-1, RANGE_WORDS), strict=True):
            words[:] = each.begin, each.end, each.writes

    @property
    def address(self) -> int:
        """Where code finds it."""
        return address_of(self._words)

    def require(self, who: str) -> None:
        """Raise `AccessOutside` for what `who` touched first of what may not be, and forget it."""
        if not self._words[0]:
            return
        found = dict(zip(FAULT, self._words.tolist(), strict=False))
        self._words[: len(FAULT)] = 0
        address, number = found["address"], found["argument"]
        if number < 0:
            apart = [max(each.begin - address, address - each.end, 0) for each in self._ranges]
            number = apart.index(min(apart))
        each = self._ranges[number]
        much = f"{max(0, each.end - each.begin)}{' and is not to be written' if found['writes'] > each.writes else ''}"
        raise AccessOutside(
            f"{who}: {'writes' if found['writes'] else 'reads'} {found['nbytes']} bytes at byte {address - each.begin} of its "
            f"operand {each.name}, which has {much}: a fault of this program; please report it"
        )


def table_of(arrays: Sequence[tuple[str, np.ndarray, bool]]) -> AccessTable:
    """A range for each array: its name, itself, and whether it is written."""
    ranges = []
    for name, array, writes in arrays:
        ends = np.lib.array_utils.byte_bounds(array) if array.size else (address_of(array),) * 2
        ranges.append(Range(name, *ends, writes))
    return AccessTable(ranges)


@cache
def _sink() -> np.ndarray:
    return guarded_block(_SINK_BYTES)

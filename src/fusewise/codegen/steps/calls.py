"""Steps whose kernel is called several times, one time after the other, so that workers meet in between."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from fusewise.lower.program import HostStep, NativeStep

__all__ = ["CALL_BYTES", "call_numbers", "called"]

CALL_BYTES = 8
"""Of the number of a call, an int64."""


def call_numbers(nbytes: int) -> np.ndarray:
    """The numbers of so many bytes of calls."""
    return np.arange(nbytes // CALL_BYTES, dtype=np.int64)


def called(steps: Iterable[NativeStep | HostStep], numbers: Mapping[int, int]) -> Iterator[NativeStep | HostStep]:
    """Every step once for each call of its kernel. `numbers` has the buffers of numbers of calls, and how many bytes they are: a
    step that is given one is called so often, each time with the next number."""
    for step in steps:
        places = step.arguments if isinstance(step, NativeStep) else ()
        buffer = next((place.buffer for place in places if place.buffer in numbers), None)
        if buffer is None or isinstance(step, HostStep):
            yield step
            continue
        for offset in range(0, numbers[buffer], CALL_BYTES):
            moved = (replace(place, offset=offset) if place.buffer == buffer else place for place in places)
            yield replace(step, arguments=tuple(moved))

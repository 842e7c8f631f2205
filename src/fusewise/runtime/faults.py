"""What kernels found wrong with their data, as an error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from fusewise.errors import InvalidData
from fusewise.lower.program import DataPosition, NativeStep, Program, StepVersions

__all__ = ["Faults", "faults_of"]


class Faults:
    """The words that kernels write when a position from data is out of bounds: for each site whether, and which. `number_of` says
    what the sizes are that positions are bounded by."""

    def __init__(
        self, words: np.ndarray, sites: tuple[tuple[int, DataPosition], ...], number_of: Callable[[int], int] = int
    ) -> None:
        self._number_of = number_of
        self._words = words
        self._bytes = words.data
        self._clean = bytes(words.nbytes)
        self._sites = sites

    def at(self, number_of: Callable[[int], int]) -> Faults:
        """The same for other sizes."""
        return Faults(self._words, self._sites, number_of)

    def check(self) -> None:
        """Raise `InvalidData` for the first site that found something, and forget what was found."""
        if self._bytes.tobytes() == self._clean:
            return
        found = self._words.copy()
        self._words.fill(0)
        for at, site in self._sites:
            if found[at]:
                low, high = self._number_of(site.low), self._number_of(site.high)
                raise InvalidData(replace(site, low=low, high=high).found(int(found[at + 1])))


def faults_of(program: Program, memory: Sequence[np.ndarray | None]) -> Faults | None:
    """Those of a program, whose memory is given by buffer; None where no kernel takes positions from data."""
    number = next((number for number, buffer in enumerate(program.buffers) if buffer.kind == "fault"), None)
    block = None if number is None else memory[number]
    if block is None:
        return None
    sites: list[tuple[int, DataPosition]] = []
    for step in program.steps:
        versions = [one for _, one in step.versions] if isinstance(step, StepVersions) else [step]
        for one in versions:
            if isinstance(one, NativeStep) and one.sites:
                (start,) = (place.offset // 8 for place in one.arguments if place.buffer == number)
                sites.extend((start + 2 * k, site) for k, site in enumerate(one.sites))
    return Faults(block.view(np.int64), tuple(sites))

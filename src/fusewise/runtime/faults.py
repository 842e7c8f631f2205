"""What kernels found wrong with their data, as an error."""

from __future__ import annotations

import numpy as np

from fusewise.errors import InvalidData
from fusewise.lower.program import DataPosition, NativeStep, Program

__all__ = ["Faults", "faults_of"]


class Faults:
    """The words that kernels write when a position from data is out of bounds: for each site whether, and which."""

    def __init__(self, words: np.ndarray, sites: tuple[tuple[int, DataPosition], ...]) -> None:
        self._words = words
        self._bytes = words.data
        self._clean = bytes(words.nbytes)
        self._sites = sites

    def check(self) -> None:
        """Raise `InvalidData` for the first site that found something, and forget what was found."""
        if self._bytes.tobytes() == self._clean:
            return
        found = self._words.copy()
        self._words.fill(0)
        for at, site in self._sites:
            if found[at]:
                raise InvalidData(site.found(int(found[at + 1])))


def faults_of(program: Program, memory: tuple[np.ndarray | None, ...]) -> Faults | None:
    """Those of a program, whose memory is given by buffer; None where no kernel takes positions from data."""
    number = next((number for number, buffer in enumerate(program.buffers) if buffer.kind == "fault"), None)
    block = None if number is None else memory[number]
    if block is None:
        return None
    sites: list[tuple[int, DataPosition]] = []
    for step in program.steps:
        if isinstance(step, NativeStep) and step.sites:
            (start,) = (place.offset // 8 for place in step.arguments if place.buffer == number)
            sites.extend((start + 2 * k, site) for k, site in enumerate(step.sites))
    return Faults(block.view(np.int64), tuple(sites))

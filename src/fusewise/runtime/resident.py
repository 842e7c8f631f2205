"""Memory that is made resident before a program needs it, by a thread that only touches it.

The first write to a page may take much longer than what is written: on a virtual machine whose host finds memory as it is
touched, packing 99 MB of weights took 0.15 s, and 0.035 s into memory that was there. While a model is planned a core is idle.
"""

from __future__ import annotations

import mmap
import threading
from collections.abc import Collection
from contextlib import suppress
from types import TracebackType

import numpy as np

from fusewise.codegen.target import whole_lines
from fusewise.runtime.arena import aligned_block
from fusewise.runtime.host import MEMORY_SHARE, memory_limit
from fusewise.runtime.pages import advise, private_pages

__all__ = ["Resident"]

_LEAST_BYTES = 4 * 1024 * 1024
"""Less is not worth a thread."""

_AT_ONCE = 16 * 1024 * 1024
"""Bytes touched between two looks whether to go on."""


class Resident:
    """Memory for a program, none at first. Used as a context manager: its thread ends with it, and what nobody took goes back.

    `weights`: constants that are there already, of another program that this one shares them with; then it makes none resident.
    """

    def __init__(self, weights: Collection[np.ndarray] = ()) -> None:
        self.weights = weights
        self._pages: mmap.mmap | None = None
        self._block = np.empty(0, np.uint8)
        self._taken = 0
        self._wanted = True
        self._thread: threading.Thread | None = None

    def start(self, nbytes: int) -> None:
        """Begin to make so many bytes resident, once; nothing where they are few, or more than a model may have."""
        if self.weights or self._thread is not None or not _LEAST_BYTES <= nbytes <= MEMORY_SHARE * memory_limit():
            return
        with suppress(OSError, ValueError, RuntimeError):  # then memory is found as it is written
            self._pages = private_pages(nbytes)
            self._block = np.frombuffer(self._pages, np.uint8)
            self._thread = threading.Thread(target=self._touch, name="fusewise-resident", daemon=True)
            self._thread.start()

    @property
    def left(self) -> int:
        """Bytes that can still be taken."""
        return max(0, self._block.nbytes - self._taken)

    def take(self, nbytes: int) -> np.ndarray:
        """uint8[nbytes] on a 64-byte boundary: of what is left, or new memory where that is too little.

        Touching ends with the first call; what was not touched is found as it is written.
        """
        self._end()
        if nbytes > self.left:
            return aligned_block(nbytes)
        start = self._taken
        self._taken += whole_lines(nbytes)
        return self._block[start : start + nbytes]

    def __enter__(self) -> Resident:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()
        if self._pages is not None:
            advise(self._pages, "MADV_DONTNEED", -(-self._taken // mmap.PAGESIZE) * mmap.PAGESIZE)

    def _end(self) -> None:
        self._wanted = False
        if self._thread is not None and self._thread.is_alive():
            self._thread.join()

    def _touch(self) -> None:
        for at in range(0, self._block.nbytes, _AT_ONCE):
            if not self._wanted:
                return
            self._block[at : at + _AT_ONCE : mmap.PAGESIZE] = 0  # without Python's lock

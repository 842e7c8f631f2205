"""A stranger's file, read piece by piece when something of it is needed, and refused once it has changed.

Nothing is mapped: whoever reads a mapping of a file that was cut short meanwhile is killed by the system (SIGBUS), and one
that was rewritten gives weights of two models.
"""

from __future__ import annotations

import os
import weakref
from typing import overload

import numpy as np

from fusewise.errors import InvalidModel, ResourceLimit
from fusewise.records import record

__all__ = ["Stored", "StoredBytes"]

_WINDOW_BYTES = 64 * 1024
_MOST_AT_ONCE = 1 << 30
_ALIGNMENT_BYTES = 64


class Stored:
    """An open file as a sequence of bytes; single ones are read through a window. It is closed with its last user."""

    def __init__(self, descriptor: int, name: str) -> None:
        self._descriptor, self._name = descriptor, name
        weakref.finalize(self, os.close, descriptor)
        self._stamp = self._state()
        self._window, self._begin = b"", 0

    def __len__(self) -> int:
        return self._stamp[0]

    @overload
    def __getitem__(self, at: int) -> int: ...
    @overload
    def __getitem__(self, at: slice) -> bytes: ...
    def __getitem__(self, at: int | slice) -> int | bytes:
        if isinstance(at, slice):
            begin, end, _ = at.indices(len(self))
            return self.read(begin, max(0, end - begin)).tobytes()
        if not 0 <= at - self._begin < len(self._window):
            self._begin = at
            self._window = self.read(at, min(_WINDOW_BYTES, len(self) - at)).tobytes()
        return self._window[at - self._begin]

    def read(self, offset: int, length: int) -> np.ndarray:
        """uint8[length], aligned to 64 bytes, in memory of its own.

        Raises `InvalidModel` when the file was changed since it was opened, `ResourceLimit` when memory is full.
        """
        try:
            room = np.empty(length + _ALIGNMENT_BYTES, np.uint8)
        except MemoryError:
            raise ResourceLimit(f"there is no memory for {length:,} bytes of {self._name}") from None
        skip = -room.ctypes.data % _ALIGNMENT_BYTES
        found = room[skip : skip + length]
        done = 0
        while done < length:
            try:
                count = os.preadv(self._descriptor, [found[done : done + _MOST_AT_ONCE].data], offset + done)
            except OSError as error:
                raise InvalidModel(f"{self._name} cannot be read: {error.strerror}") from None
            if not count:
                break
            done += count
        if done < length or self._state() != self._stamp:
            raise InvalidModel(f"{self._name} was changed while its model was in use; load the model again")
        return found

    def _state(self) -> tuple[int, int]:
        """Size in bytes and when it was last written to, in nanoseconds."""
        status = os.fstat(self._descriptor)
        return status.st_size, status.st_mtime_ns


@record(frozen=True, slots=True)
class StoredBytes:
    """Bytes of a file, not read yet."""

    file: Stored
    offset: int
    length: int

    def read(self) -> memoryview:
        """The bytes; raises what `Stored.read` does."""
        return self.file.read(self.offset, self.length).data

    def part(self, offset: int, length: int) -> StoredBytes:
        """Some of them, which lie within."""
        return StoredBytes(self.file, self.offset + offset, length)

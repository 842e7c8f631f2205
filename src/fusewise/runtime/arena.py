"""Memory for tensors: aligned blocks, and the tensors that lie in them."""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from fusewise.ir.types import TensorType
from fusewise.lower.program import Place
from fusewise.records import record

__all__ = [
    "ALIGNMENT_BYTES",
    "LEAST_KEPT_BYTES",
    "OutputBlocks",
    "Outputs",
    "RunMemory",
    "SizedOutputs",
    "address_of",
    "aligned_block",
    "counts_are_exact",
    "maker_of",
    "settled",
]

ALIGNMENT_BYTES = 64
"""A cache line, and the widest vector."""

LEAST_KEPT_BYTES = 8 * 1024 * 1024
"""From here on the C library may return to the system what is freed, of several such arrays at once, and what it gives out next is
zeroed page by page. A step of decoding that gives back keys and values of 17 MB each took 25 ms so, and 9 with them kept."""

_addressof, _from_buffer = ctypes.addressof, ctypes.c_char.from_buffer
"""Looked up once: every run asks where each array lies."""


class Outputs:
    """Arrays of one shape and dtype for a caller to keep. A large one is given out again once nobody has it any more.

    Two are remembered: who writes `y = model.run(...)` in a loop still has the last one while the next is computed.
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self._shape, self._dtype = shape, dtype
        self._made: list[np.ndarray] = []

    def array(self) -> np.ndarray:
        """An array that nobody else has; contents undefined."""
        for known in self._made:
            # three references: the list, `known` and the call's argument; every view of the array would be one more
            if sys.getrefcount(known) == 3:
                return known.view()
        made = np.empty(self._shape, self._dtype)
        if made.nbytes < LEAST_KEPT_BYTES or not counts_are_exact():
            return made
        self._made = [*self._made[-1:], made]
        return made.view()


def maker_of(shape: tuple[int, ...], dtype: np.dtype) -> Callable[[], np.ndarray]:
    """Makes arrays as `Outputs` does; where all are small, by one call of NumPy's."""
    nbytes = math.prod(shape) * dtype.itemsize
    return partial(np.empty, shape, dtype) if nbytes < LEAST_KEPT_BYTES else Outputs(shape, dtype).array


class OutputBlocks:
    """Arrays of one dtype and any shape for a caller to keep, as `Outputs` are: of large ones the memory is given out again, to
    arrays that it is large enough for."""

    def __init__(self, dtype: np.dtype) -> None:
        self._dtype = dtype
        self._made: list[np.ndarray] = []

    def array(self, shape: tuple[int, ...]) -> np.ndarray:
        """An array that nobody else has; contents undefined."""
        nbytes = math.prod(shape) * self._dtype.itemsize
        if nbytes < LEAST_KEPT_BYTES or not counts_are_exact():
            return np.empty(shape, self._dtype)
        for known in self._made:
            if known.nbytes >= nbytes and sys.getrefcount(known) == 3:  # as in `Outputs`
                return known[:nbytes].view(self._dtype).reshape(shape)
        made = np.empty(nbytes, np.uint8)
        self._made = [*self._made[-1:], made]
        return made.view(self._dtype).reshape(shape)


class SizedOutputs:
    """Those of one `shape`, which is said before, and may become another."""

    __slots__ = ("_blocks", "shape")

    def __init__(self, blocks: OutputBlocks) -> None:
        self._blocks = blocks
        self.shape: tuple[int, ...] = ()

    def array(self) -> np.ndarray:
        """An array that nobody else has; contents undefined."""
        return self._blocks.array(self.shape)


@record(frozen=True, slots=True)
class RunMemory:
    """The program's memory during one run: `own` blocks by buffer, and for the rest the `caller`'s arrays."""

    own: tuple[np.ndarray | None, ...]
    caller: Mapping[int, np.ndarray]

    def view(self, place: Place, kind: TensorType) -> np.ndarray:
        """The tensor of type `kind` that lies at a place."""
        block = self.own[place.buffer]
        flat = self.caller[place.buffer].reshape(-1).view(np.uint8) if block is None else block
        if place.strides is None:
            return flat[place.offset : place.offset + kind.nbytes].view(kind.dtype.numpy).reshape(kind.dims)
        strides = [stride * kind.dtype.itemsize for stride in place.strides]
        return np.ndarray(kind.dims, kind.dtype.numpy, flat.data, place.offset, strides)


def counts_are_exact() -> bool:
    """Does the interpreter tell how many refer to an object? Not an interpreter whose threads run side by side."""
    return bool(getattr(sys, "_is_gil_enabled", lambda: True)())


def aligned_block(nbytes: int) -> np.ndarray:
    """uint8[nbytes] (at least one byte long) that starts on a 64-byte boundary; contents undefined."""
    raw = np.empty(max(nbytes, 1) + ALIGNMENT_BYTES, np.uint8)
    skip = -address_of(raw) % ALIGNMENT_BYTES
    return raw[skip : skip + max(nbytes, 1)]


def settled(array: np.ndarray) -> np.ndarray:
    """The bytes of `array` in C order as a flat uint8 array, aligned: its own memory when it lies so already, else a copy."""
    array = np.asarray(array)  # a scalar is no array, but may be all that an operation gave
    if array.flags.c_contiguous and array.nbytes > 0 and address_of(array) % ALIGNMENT_BYTES == 0:
        return array.reshape(-1).view(np.uint8)
    block = aligned_block(array.nbytes)
    if array.nbytes:
        block.view(array.dtype).reshape(array.shape)[...] = array
    return block


def address_of(array: np.ndarray) -> int:
    """Where the first element lies."""
    try:  # runs no code of NumPy's that is in Python, which would have left the caches since the last run
        return _addressof(_from_buffer(array))  # type: ignore[arg-type]  # arrays are buffers
    except (TypeError, ValueError, BufferError):  # read only, empty, strided, or of a type that buffers do not know
        # not `__array_interface__`: each reading interns its keys anew, and Python's table of interned strings grows with that
        address: int = array.ctypes.data
        return address

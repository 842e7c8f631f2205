"""Memory that a nest reads and writes when it is run on arrays, with every access looked at."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fusewise.codegen.nest.opcodes import bits_of, from_bits, numpy_type
from fusewise.codegen.nest.spelling import element_bytes
from fusewise.codegen.nest.tree import Value

__all__ = ["Address", "Memory", "OutOfBounds", "read", "write"]


class OutOfBounds(AssertionError):
    """An access outside its memory."""


class Memory(NamedTuple):
    """Bytes with a name."""

    name: str
    data: np.ndarray


class Address(NamedTuple):
    """A place in a memory, in bytes."""

    memory: Memory
    offset: int

    def bytes(self, count: int) -> np.ndarray:
        """So many bytes from here on."""
        if self.offset < 0 or self.offset + count > self.memory.data.size:
            where = f"bytes {self.offset} to {self.offset + count} of {self.memory.data.size}"
            raise OutOfBounds(f"{where} of {self.memory.name!r} are asked for")
        return self.memory.data[self.offset : self.offset + count]

    def after(self, count: int) -> Address:
        """The place so many bytes on."""
        return Address(self.memory, self.offset + count)


def read(pointer: Address, kind: Value) -> Any:
    """A value of a type from memory."""
    element, lanes = kind.element, kind.lanes
    data = pointer.bytes(lanes * element_bytes(element))
    if element == "ptr":
        raise OutOfBounds(f"an address is read from {pointer.memory.name!r}")
    if element.startswith("i") and element != "i1" and not kind.type.startswith("<"):
        return from_bits(data.tobytes(), kind)
    found = np.frombuffer(data.tobytes(), np.uint8 if element == "i1" else numpy_type(element))
    if kind.type.startswith("<"):
        return found.astype(bool) if element == "i1" else found.copy()
    return bool(found[0]) if element == "i1" else found[0]


def write(pointer: Address, value: Any, kind: Value) -> None:
    if isinstance(value, int):
        data = np.frombuffer(bits_of(value, kind.element), np.uint8)
    else:
        data = np.asarray(value, numpy_type(kind.element)).reshape(-1).view(np.uint8)
    pointer.bytes(data.nbytes)[:] = data

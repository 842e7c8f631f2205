"""Numbers and types as LLVM spells them."""

from __future__ import annotations

import math
import struct
from functools import cache

from fusewise.codegen.nest.tree import Value

__all__ = ["bare", "element_bytes", "literal", "overload", "size_name"]


def literal(value: int | float | bool, element: str) -> str:
    """A number as LLVM spells it; floats as exact hexadecimal bits."""
    if element == "i1":
        return "true" if value else "false"
    if element.startswith("i"):
        bits = int(element[1:])
        wrapped = int(value) & ((1 << bits) - 1)
        return str(wrapped - (1 << bits) if wrapped >> (bits - 1) else wrapped)
    if element in ("float", "bfloat"):
        try:
            value = struct.unpack("f", struct.pack("f", value))[0]
        except OverflowError:
            value = math.copysign(math.inf, value)
    if element == "half":
        try:
            return f"0xH{struct.unpack('<H', struct.pack('<e', value))[0]:04X}"
        except OverflowError:
            return "0xH7C00" if value > 0 else "0xHFC00"
    if element == "bfloat":
        bits32 = struct.unpack("<I", struct.pack("<f", value))[0]
        rounded = bits32 if value != value else bits32 + 0x7FFF + ((bits32 >> 16) & 1)
        return f"0xR{(rounded >> 16) & 0xFFFF:04X}"
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def bare(argument: str) -> str:
    """The type of an argument without its attributes."""
    return argument[: argument.index(">") + 1] if argument.startswith("<") else argument.split()[0]


def overload(kind: str) -> str:
    """A type as the names of intrinsics have it: v4f32."""
    value = Value("", kind)
    short = {"float": "f32", "double": "f64", "half": "f16", "bfloat": "bf16"}.get(value.element, value.element)
    return f"v{value.lanes}{short}" if kind.startswith("<") else short


@cache
def element_bytes(kind: str) -> int:
    """Bytes in memory of an element of a type."""
    element = kind.split(" x ", 1)[1][:-1] if kind.startswith("<") else kind
    if element.startswith("i"):
        return max(1, int(element[1:]) // 8)
    return {"float": 4, "double": 8, "half": 2, "bfloat": 2, "ptr": 8}[element]


def size_name(number: int) -> str:
    """The value that a kernel is given as one of its sizes, by number."""
    return f"%size{number}"

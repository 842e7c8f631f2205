"""How element types live in LLVM registers and in memory.

bool is i1 in a register and one byte in memory. float16 and bfloat16 travel as i16 bit patterns and are computed as float:
that way no conversion ever becomes a library call, whatever the machine has. Floats of a byte or less are i8 bit patterns, which
expressions take apart (`ops.narrow`).
"""

from __future__ import annotations

from fusewise.ir.dtypes import BOOL, DType

__all__ = ["computed", "is_representable", "memory_type", "register_type"]

_REGISTER = {"float32": "float", "float64": "double", "float16": "i16", "bfloat16": "i16", "bool": "i1"}


def is_representable(dtype: DType) -> bool:
    """Can generated code compute on `dtype`, or move it and read its bits?"""
    return dtype.name in _REGISTER or dtype.is_integer or (dtype.is_float and dtype.bits <= 8)


def register_type(dtype: DType) -> str:
    """The LLVM type of one element in a register."""
    return _REGISTER.get(dtype.name) or f"i{max(8, dtype.bits)}"


def memory_type(dtype: DType) -> str:
    """The LLVM type of one element in memory."""
    return "i8" if dtype == BOOL else register_type(dtype)


def computed(dtype: DType) -> str:
    """The LLVM type that arithmetic on `dtype` is done in: float for floats that travel as bits, the narrow ones and pairs."""
    kind = register_type(dtype)
    return "float" if dtype.is_float and kind.startswith("i") else kind

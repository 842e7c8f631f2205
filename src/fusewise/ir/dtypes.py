"""Element types: the ONNX ones, each with its NumPy twin.

Rows are data; `DTYPES` is the one table. Names are the NumPy names, so that text forms read naturally.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

__all__ = [
    "BFLOAT16",
    "BOOL",
    "DTYPES",
    "FLOAT16",
    "FLOAT32",
    "FLOAT64",
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "STRING",
    "UINT8",
    "DType",
    "dtype_named",
    "dtype_of",
    "dtype_of_onnx",
]


@dataclass(frozen=True, slots=True)
class DType:
    """One element type.

    `onnx` is the number ONNX's `TensorProto.DataType` gives it, `bits` its width in a packed tensor, and `kind` one of
    `float int uint bool complex string`.
    """

    name: str
    onnx: int
    bits: int
    kind: str

    @property
    def numpy(self) -> np.dtype[np.generic]:
        """The NumPy dtype; the narrow float and integer types come from `ml_dtypes`."""
        return _numpy_dtype(self.name)

    @property
    def itemsize(self) -> int:
        """Bytes an element takes in memory here (narrow types are unpacked, one byte each)."""
        return max(1, self.bits // 8)

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        return self.kind in ("int", "uint")

    def __repr__(self) -> str:
        return self.name


DTYPES: tuple[DType, ...] = (
    DType("float32", 1, 32, "float"),
    DType("uint8", 2, 8, "uint"),
    DType("int8", 3, 8, "int"),
    DType("uint16", 4, 16, "uint"),
    DType("int16", 5, 16, "int"),
    DType("int32", 6, 32, "int"),
    DType("int64", 7, 64, "int"),
    DType("string", 8, 64, "string"),
    DType("bool", 9, 8, "bool"),
    DType("float16", 10, 16, "float"),
    DType("float64", 11, 64, "float"),
    DType("uint32", 12, 32, "uint"),
    DType("uint64", 13, 64, "uint"),
    DType("complex64", 14, 64, "complex"),
    DType("complex128", 15, 128, "complex"),
    DType("bfloat16", 16, 16, "float"),
    DType("float8_e4m3fn", 17, 8, "float"),
    DType("float8_e4m3fnuz", 18, 8, "float"),
    DType("float8_e5m2", 19, 8, "float"),
    DType("float8_e5m2fnuz", 20, 8, "float"),
    DType("uint4", 21, 4, "uint"),
    DType("int4", 22, 4, "int"),
    DType("float4_e2m1fn", 23, 4, "float"),
    DType("float8_e8m0fnu", 24, 8, "float"),
    DType("uint2", 25, 2, "uint"),
    DType("int2", 26, 2, "int"),
)

_BY_NAME = {row.name: row for row in DTYPES}
_BY_ONNX = {row.onnx: row for row in DTYPES}

FLOAT32 = _BY_NAME["float32"]
FLOAT64 = _BY_NAME["float64"]
FLOAT16 = _BY_NAME["float16"]
BFLOAT16 = _BY_NAME["bfloat16"]
INT64 = _BY_NAME["int64"]
INT32 = _BY_NAME["int32"]
INT16 = _BY_NAME["int16"]
INT8 = _BY_NAME["int8"]
UINT8 = _BY_NAME["uint8"]
BOOL = _BY_NAME["bool"]
STRING = _BY_NAME["string"]


@cache
def _numpy_dtype(name: str) -> np.dtype[np.generic]:
    if name == "string":
        return np.dtype(object)
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        narrow: np.dtype[np.generic] = np.dtype(getattr(ml_dtypes, name))
        return narrow


def dtype_named(name: str) -> DType:
    """The row called `name`; `KeyError` when there is none."""
    return _BY_NAME[name]


def dtype_of_onnx(code: int) -> DType:
    """The row for an ONNX `TensorProto.DataType`; `KeyError` when there is none."""
    return _BY_ONNX[code]


def dtype_of(array: np.ndarray | np.dtype[np.generic]) -> DType:
    """The row for a NumPy array or dtype; strings of every kind are `string`."""
    return _row_of(array.dtype if isinstance(array, np.ndarray) else array)


@cache
def _row_of(dtype: np.dtype[np.generic]) -> DType:
    return STRING if dtype.kind in "OSU" else _BY_NAME[dtype.name]

"""Values that sessions take and give beside plain arrays: tensors with their place, sequences and maps, and DLPack in and out."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fusewise.ir.dtypes import DType, dtype_of, dtype_of_onnx
from fusewise.ir.types import TensorType
from fusewise.onnxruntime.errors import InvalidArgument, RefusedUse
from fusewise.runtime.feeds import type_name

__all__ = ["OrtDevice", "OrtValue", "array_at", "require_cpu", "type_of"]

_ELSEWHERE = ("cuda", "cann", "dml", "webgpu", "gpu", "npu")
"""Devices that ONNX Runtime knows by name."""

_DLPACK_CPU = (1, 0)
_DLPACK_VERSION = (1, 0)
"""The first in which a capsule says that memory may not be written to."""


def require_cpu(device_type: str) -> None:
    """`RefusedUse` for a device of another kind, `InvalidArgument` for one that nobody knows."""
    if not isinstance(device_type, str) or device_type.lower() not in ("cpu", *_ELSEWHERE):
        raise InvalidArgument.of(f"there is no device {device_type!r}; use 'cpu'")
    if device_type.lower() != "cpu":
        raise RefusedUse(f"memory of the device {device_type!r} cannot be had here: use 'cpu'")


class OrtDevice:
    """A place for tensors: the memory of the CPU."""

    def __init__(self, device_type: str = "cpu", device_id: int = 0) -> None:
        require_cpu(device_type)
        self._number = device_id

    @classmethod
    def make(cls, device_type: str, device_id: int = 0, vendor_id: int = -1) -> OrtDevice:
        """The device of that name and number."""
        return cls(device_type, device_id)

    def device_type(self) -> str:
        """Always `cpu`."""
        return "cpu"

    def device_id(self) -> int:
        """The number it was asked for by."""
        return self._number


class OrtValue:
    """A tensor in memory that its maker may keep, a sequence or a map; methods are those of `onnxruntime.OrtValue`.

    `contents`: an array, a list, a mapping or None. `kind`: what the value is, such as `tensor(float)`; None for what an array says
    of itself.
    """

    __slots__ = ("_contents", "_kind", "_owner")

    def __init__(self, contents: Any, kind: str | None = None, owner: object = None) -> None:
        self._contents = contents
        self._kind = kind
        self._owner = owner

    @classmethod
    def ortvalue_from_numpy(
        cls, numpy_obj: np.ndarray, /, device_type: str = "cpu", device_id: int = 0, vendor_id: int = -1
    ) -> OrtValue:
        """A tensor in the memory of an array; one that is not C-contiguous is copied. `RefusedUse` for texts and no arrays."""
        require_cpu(device_type)
        if not isinstance(numpy_obj, np.ndarray) or _row(numpy_obj.dtype) is None:
            raise RefusedUse(f"a tensor is made from an array of numbers, not from {_told(numpy_obj)}")
        return cls(np.asarray(numpy_obj, order="C"))

    @classmethod
    def ortvalue_from_numpy_with_onnx_type(cls, data: np.ndarray, /, onnx_element_type: int) -> OrtValue:
        """A tensor in the memory of an array, whose bytes are elements of another type that is as wide."""
        row = _row_numbered(onnx_element_type)
        if data.dtype.itemsize != row.itemsize:
            raise RefusedUse(
                f"elements of {data.dtype.itemsize} bytes cannot be of the type {row.name}, of {row.itemsize}"
            )
        return cls(np.asarray(data, order="C").view(row.numpy))

    @classmethod
    def ortvalue_from_shape_and_type(
        cls, shape: Sequence[int], element_type: Any, device_type: str = "cpu", device_id: int = 0, vendor_id: int = -1
    ) -> OrtValue:
        """A tensor in new memory, whose contents are undefined. `element_type`: as NumPy has it, or ONNX's number."""
        require_cpu(device_type)
        if isinstance(element_type, int):
            row: DType | None = _row_numbered(element_type)
        else:
            row = _row(np.dtype(element_type))
        if row is None or row.kind == "string":
            raise RefusedUse(f"a tensor of {element_type} cannot be made so: give it as an array when the model is run")
        if any(dim < 0 for dim in shape):
            raise RefusedUse(f"a tensor cannot have the shape {list(shape)}: dimensions are 0 or more")
        return cls(np.empty(tuple(shape), row.numpy))

    @classmethod
    def from_dlpack(cls, data: Any, /) -> OrtValue:
        """A tensor in the memory of what exports it by DLPack, an object or a capsule."""
        capsule = _exported(data) if hasattr(data, "__dlpack__") else data
        says = not _is_capsule(capsule, b"dltensor")  # whether the memory may be written to
        exporter: Any = _Capsule(capsule)
        array = np.from_dlpack(exporter)
        return cls(array if says else _writable(array), owner=data)

    @property
    def contents(self) -> Any:
        """What the value holds: an array, a list, a mapping or None."""
        return self._contents

    def numpy(self) -> np.ndarray:
        """The tensor as an array in the same memory. `RefusedUse` for anything else."""
        return self._array("an array")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        array = self._array("an array")
        return np.array(array, dtype=dtype, copy=copy) if copy is not None else np.asarray(array, dtype=dtype)

    def __dlpack__(self, **asked: Any) -> Any:
        """A capsule for `from_dlpack` of other libraries, which share the memory."""
        return self._array("a DLPack capsule").__dlpack__(**asked)

    def __dlpack_device__(self) -> tuple[int, int]:
        """The CPU, as DLPack numbers it."""
        return _DLPACK_CPU

    def shape(self) -> list[int]:
        """The extents of the tensor."""
        return list(self._array("a shape").shape)

    def data_type(self) -> str:
        """What the value is: `tensor(float)`, `seq(tensor(int64))`."""
        return type_of(self._contents) if self._kind is None else self._kind

    def element_type(self) -> int:
        """The number that ONNX gives the type of elements."""
        return dtype_of(self._array("a type of elements")).onnx

    def tensor_size_in_bytes(self) -> int:
        """Bytes that the tensor takes."""
        return self._array("a number of bytes").nbytes

    def data_ptr(self) -> int:
        """The address of the first element."""
        return int(self._array("an address").ctypes.data)

    def device_name(self) -> str:
        """Always `cpu`."""
        return "cpu"

    def is_tensor(self) -> bool:
        """Does it hold a tensor?"""
        return isinstance(self._contents, np.ndarray)

    def is_sparse_tensor(self) -> bool:
        """Never."""
        return False

    def is_tensor_sequence(self) -> bool:
        """Does it hold a sequence of tensors?"""
        return self.data_type().startswith("seq(tensor")

    def has_value(self) -> bool:
        """Does an optional value hold anything?"""
        return self._contents is not None

    def update_inplace(self, data: np.ndarray | OrtValue) -> None:
        """Copy the contents of an array that is as large into the tensor's memory; elements are of one type with it, or as wide."""
        mine, other = self._array("memory"), data.numpy() if isinstance(data, OrtValue) else data
        if not isinstance(other, np.ndarray):
            raise TypeError(f"the new contents of a tensor are an array or an OrtValue, not {_told(other)}")
        if other.shape != mine.shape or other.dtype.itemsize != mine.dtype.itemsize:
            raise RefusedUse(f"{_told(other)} cannot take the place of {_told(mine)}: give one that is as large")
        if not mine.flags.writeable:
            raise RefusedUse("the memory of the tensor may not be written to: its array is read-only")
        mine[...] = other.view(mine.dtype) if other.flags.c_contiguous else np.ascontiguousarray(other).view(mine.dtype)

    def _array(self, what: str) -> np.ndarray:
        if not isinstance(self._contents, np.ndarray):
            raise RefusedUse(f"only a tensor has {what}; this value is {self.data_type()}")
        return self._contents


def _exported(data: Any) -> object:
    """The capsule of what exports one, which says whether its memory may be written to where the exporter can say so."""
    if tuple(data.__dlpack_device__()) != _DLPACK_CPU:
        raise RefusedUse("the tensor lies on another device than the CPU: bring it there first")
    try:
        return data.__dlpack__(max_version=_DLPACK_VERSION)
    except TypeError:  # it knows of no versions
        return data.__dlpack__()


def _is_capsule(value: object, name: bytes) -> bool:
    """Is it a capsule of that name?"""
    is_valid = ctypes.pythonapi.PyCapsule_IsValid
    return bool(is_valid(ctypes.py_object(value), name))


class _Capsule:
    """A bare DLPack capsule as an object that has one."""

    def __init__(self, capsule: object) -> None:
        self._capsule = capsule

    def __dlpack__(self, **asked: Any) -> object:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return _DLPACK_CPU


def _writable(array: np.ndarray) -> np.ndarray:
    """The same memory, writable: capsules of before DLPack 1.0 do not say whether it is, and NumPy may take that for a no."""
    if array.flags.writeable or not array.flags.c_contiguous:
        return array
    return array_at(array.ctypes.data, array.dtype, array.shape, array)


def array_at(address: int, dtype: np.dtype[Any], shape: tuple[int, ...], owner: object) -> np.ndarray:
    """The array that lies at an address, in memory that the `owner` keeps, which it keeps in turn."""
    memory = (ctypes.c_byte * (math.prod(shape) * dtype.itemsize)).from_address(address)
    memory._owner = owner  # type: ignore[attr-defined]  # instances of ctypes take attributes
    return np.ndarray(shape, dtype, memoryview(memory).cast("B"))


def type_of(value: Any) -> str:
    """The name of the type of a value."""
    if isinstance(value, np.ndarray):
        return type_name(TensorType(dtype_of(value), None))
    if isinstance(value, Mapping):
        key, element = next(iter(value.items()), (0, 0.0))
        return f"map({'string' if isinstance(key, str) else 'int64'},tensor({'string' if isinstance(element, str) else 'float'}))"
    if isinstance(value, list | tuple):
        return f"seq({type_of(value[0]) if value else 'tensor(float)'})"
    return "optional()"


def _row(dtype: np.dtype[Any]) -> DType | None:
    """The row of a type of numbers; None for texts and others."""
    try:
        row = dtype_of(dtype)
    except KeyError:
        return None
    return None if row.kind == "string" else row


def _row_numbered(number: int) -> DType:
    try:
        return dtype_of_onnx(number)
    except KeyError:
        raise RefusedUse(f"ONNX has no type of elements with the number {number}") from None


def _told(value: object) -> str:
    if not isinstance(value, np.ndarray):
        return f"a value of the type {type(value).__name__}"
    return f"an array of {value.dtype.name} with the shape {list(value.shape)}"

"""Arrays on a device handed over without a copy, by the protocol that PyTorch, CuPy, JAX and NumPy share.

The structures are DLPack's, version 0.8 (https://dmlc.github.io/dlpack/latest/c_api.html), which every one of them takes.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import numpy as np

from fusewise.errors import UsageError
from fusewise.ir.dtypes import DType, dtype_named

__all__ = ["DeviceArray", "Foreign", "taken"]


class _Type(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("dtype", _Type),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    pass


_Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
_Managed._fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter))

_CODES = MappingProxyType({"int": 0, "uint": 1, "float": 2, "bfloat16": 4, "bool": 6})
"""Codes of DLPack's element types."""
_NEW = b"dltensor"
"""The name of a capsule that nobody took yet."""

_api = ctypes.pythonapi
_Destructor = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_capsule_new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, _Destructor)(
    ("PyCapsule_New", _api)
)
_capsule_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_IsValid", _api))
_capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", _api))
_raw_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", _api))
_raw_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_GetPointer", _api))
_hold = ctypes.PYFUNCTYPE(None, ctypes.py_object)(("Py_IncRef", _api))
_let_go = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(("Py_DecRef", _api))


class _Holder:
    """What has to live as long as somebody has an array."""

    def __init__(self, managed: _Managed, *rest: object) -> None:
        self.managed, self.rest = managed, rest


def _delete(managed: Any) -> None:
    """For the consumer: nobody has the array any more."""
    _let_go(managed.contents.context)


def _drop(capsule: int) -> None:
    """For a capsule that nobody took."""
    if _raw_valid(capsule, _NEW):
        _delete(ctypes.cast(_raw_pointer(capsule, _NEW), ctypes.POINTER(_Managed)))


_DELETE, _DROP = _Deleter(_delete), _Destructor(_drop)


class DeviceArray:
    """A tensor in C order on a device: `shape`, `dtype`, `address`. What it lies in is kept by `owner`; `read` gives a copy
    as a NumPy array.

    `torch.from_dlpack`, `cupy.from_dlpack` and the like read it where it lies, as long as nobody writes there.
    """

    def __init__(
        self,
        address: int,
        shape: tuple[int, ...],
        dtype: DType,
        place: tuple[int, int],
        *,
        owner: object = None,
        read: Callable[[], np.ndarray],
    ) -> None:
        self.address, self.shape, self.dtype = address, shape, dtype
        self._place, self._owner, self._read = place, owner, read

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return math.prod(self.shape) * self.dtype.itemsize

    def numpy(self) -> np.ndarray:
        """A copy in the host's memory."""
        return self._read()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._place

    def __dlpack__(self, *, stream: Any = None, **wishes: Any) -> Any:
        """A capsule for the consumer. What is here was computed before, so that no `stream` has to wait."""
        if getattr(self._owner, "is_closed", False):
            raise BufferError("the model that computed this was closed, and its memory given back")
        dims = (ctypes.c_int64 * len(self.shape))(*self.shape)
        kind = _Type(_CODES.get(self.dtype.name, _CODES.get(self.dtype.kind, _UNKNOWN)), self.dtype.bits, 1)
        if kind.code == _UNKNOWN or self.dtype.bits < 8:  # a byte
            raise BufferError(f"DLPack has no elements of {self.dtype.name}")
        tensor = _Tensor(self.address, *self._place, len(self.shape), kind, dims, None, 0)
        managed = _Managed(tensor, None, _DELETE)
        holder = _Holder(managed, dims, self._owner)
        managed.context = id(holder)
        _hold(holder)
        return _capsule_new(ctypes.addressof(managed), _NEW, _DROP)

    def __repr__(self) -> str:
        return f"DeviceArray({self.dtype.name}, {self.shape}, device {self._place})"


_UNKNOWN = 255


class Foreign:
    """Somebody else's array as DLPack shows it, held for as long as this object lives: `address`, `shape`, `dtype` (by name,
    empty where it is none of ours), and whether it lies in C order."""

    def __init__(self, capsule: Any, where: str) -> None:
        if not _capsule_valid(capsule, _NEW):
            raise UsageError(f"{where}: what its __dlpack__ gave is no array that nobody has taken yet")
        self._capsule = capsule  # which nobody else takes, so that its own destructor lets go of the array
        tensor = ctypes.cast(_capsule_pointer(capsule, _NEW), ctypes.POINTER(_Managed)).contents.tensor
        self.address = (tensor.data or 0) + tensor.byte_offset
        self.shape = tuple(tensor.shape[axis] for axis in range(tensor.ndim))
        self.dtype = _name(tensor.dtype)
        self.place = (tensor.device_type, tensor.device_id)
        steps = [tensor.strides[axis] for axis in range(tensor.ndim)] if tensor.strides else None
        self.is_plain = steps is None or _in_c_order(self.shape, steps)


def taken(value: Any, where: str, stream: int | None) -> Foreign:
    """The array that `value` hands over, once what is given to the `stream` from now on comes after what its maker still
    computes. `where` says whose it is."""
    try:
        capsule = value.__dlpack__() if stream is None else value.__dlpack__(stream=stream)
    except Exception as error:
        raise UsageError(f"{where}: its __dlpack__ refuses to hand it over ({' '.join(str(error).split())})") from error
    return Foreign(capsule, where)


def _name(kind: _Type) -> str:
    if kind.lanes != 1:
        return ""
    if kind.code == _CODES["bool"]:
        return "bool"
    if kind.code == _CODES["bfloat16"]:
        return "bfloat16" if kind.bits == dtype_named("bfloat16").bits else ""
    name = next((name for name, code in _CODES.items() if code == kind.code), "")
    return f"{name}{kind.bits}" if name else ""


def _in_c_order(shape: tuple[int, ...], steps: list[int]) -> bool:
    expected = 1
    for extent, step in zip(reversed(shape), reversed(steps), strict=True):
        if extent > 1 and step != expected:
            return math.prod(shape) == 0
        expected *= extent
    return True

"""Tensors of a stranger's model as constants: the one way from a `TensorProto` of a file to an array.

What was left in a file is read when it is first needed. Of bytes in memory, types that NumPy or ml_dtypes can read in place are
views; packed and typed data are converted, sparse tensors made dense.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import onnx
from google.protobuf.message import Message

from fusewise.errors import InvalidModel, ResourceLimit
from fusewise.frontend.bits import unpacked
from fusewise.frontend.external import ExternalData
from fusewise.frontend.limits import ModelLimits
from fusewise.frontend.stored import StoredBytes
from fusewise.ir.dtypes import STRING, DType, dtype_of_onnx
from fusewise.ir.graph import Constant, LazyConstant
from fusewise.ir.types import TensorType
from fusewise.ops.proto import tensor_from_proto
from fusewise.records import record

__all__ = ["Weights", "tensors_of"]

_WITHOUT_TENSORS = frozenset(
    {"OperatorSetIdProto", "StringStringEntryProto", "TensorAnnotation", "TypeProto", "ValueInfoProto"}
)
"""Messages that there are many of and that hold none."""


@record(frozen=True, slots=True)
class Weights:
    """Makes constants of the tensors of one model, whose external data are `external`."""

    external: ExternalData
    limits: ModelLimits

    def constant(
        self, tensor: onnx.TensorProto, raw: memoryview | StoredBytes | None = None, where: str = ""
    ) -> Constant:
        """The contents of `tensor`; `raw` are its bytes when they were cut out of the message, `where` names it if it has no
        name.

        Raises `InvalidModel` naming the tensor when dtype, shape and data do not fit each other.
        """
        name = tensor.name or where
        dtype = _dtype(tensor, name)
        shape = tuple(tensor.dims)
        if any(dim < 0 for dim in shape):
            raise InvalidModel(f"tensor {name!r} has a negative dimension in {list(shape)[:64]}")
        self.limits.check_shape(f"tensor {name!r}", shape, dtype.itemsize)
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            raw = self.external.stretch(tensor, name)
        elif raw is None and tensor.HasField("raw_data"):
            raw = memoryview(tensor.raw_data)
        if raw is not None:
            return _of_bytes(name, dtype, shape, raw)
        try:
            return Constant(tensor_from_proto(tensor))
        except (ValueError, TypeError, OverflowError) as error:
            raise InvalidModel(f"tensor {name!r}: its data do not fill its shape {list(shape)}") from error

    def dense(self, sparse: onnx.SparseTensorProto, where: str = "") -> Constant:
        """A sparse tensor with its zeros written out. Indices are flat positions, or one row of coordinates per value."""
        name = sparse.values.name or where
        shape = tuple(sparse.dims)
        values = self.constant(sparse.values, where=name).array
        indices = self.constant(sparse.indices, where=f"{name}'s indices").array
        if any(dim < 0 for dim in shape) or values.ndim != 1 or indices.dtype != np.int64:
            raise InvalidModel(f"sparse tensor {name!r} is malformed")
        self.limits.check_shape(f"sparse tensor {name!r}", shape, values.itemsize)
        if math.prod(shape) * values.itemsize > self.limits.dense_bytes:
            raise ResourceLimit(
                f"sparse tensor {name!r} would take more than {self.limits.dense_bytes:,} bytes when made dense"
            )
        flat = _flat_indices(name, values, indices, shape)
        dense = np.full(math.prod(shape), "" if values.dtype == object else 0, dtype=values.dtype)
        dense[flat] = values
        return Constant(dense.reshape(shape))


def tensors_of(message: Message) -> Iterator[onnx.TensorProto]:
    """Every tensor anywhere in a message: in graphs, bodies, attributes, functions, sparse tensors, training information."""
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.name in _WITHOUT_TENSORS:
            continue
        for one in value if isinstance(value, Sequence) else (value,):
            if isinstance(one, onnx.TensorProto):
                yield one
            else:
                yield from tensors_of(one)


def _dtype(tensor: onnx.TensorProto, name: str) -> DType:
    try:
        return dtype_of_onnx(tensor.data_type)
    except KeyError:
        raise InvalidModel(f"tensor {name!r} has the unknown element type {tensor.data_type}") from None


def _of_bytes(name: str, dtype: DType, shape: tuple[int, ...], raw: memoryview | StoredBytes) -> Constant:
    if dtype == STRING:
        raise InvalidModel(f"tensor {name!r} holds strings as raw bytes, which ONNX does not allow")
    expected = -(-math.prod(shape) * dtype.bits // 8)
    found = raw.length if isinstance(raw, StoredBytes) else len(raw)
    if found != expected:
        raise InvalidModel(f"tensor {name!r} of type {dtype}{list(shape)} needs {expected:,} bytes but has {found:,}")
    if isinstance(raw, StoredBytes):
        kind, rows = TensorType(dtype, shape), _rows(dtype, shape, raw)
        return LazyConstant(kind, lambda: _array(dtype, shape, raw.read()), None, again=True, make_rows=rows)
    return Constant(_array(dtype, shape, raw))


def _rows(dtype: DType, shape: tuple[int, ...], raw: StoredBytes) -> Callable[[int, int], np.ndarray] | None:
    """What reads some rows, where each is whole bytes."""
    bits = math.prod(shape[1:]) * dtype.bits
    if not shape or bits % 8:
        return None

    def made(first: int, last: int) -> np.ndarray:
        part = raw.part(first * bits // 8, (last - first) * bits // 8)
        return _array(dtype, (last - first, *shape[1:]), part.read())

    return made


def _array(dtype: DType, shape: tuple[int, ...], raw: memoryview) -> np.ndarray:
    if dtype.bits < 8 and dtype.is_integer:
        return unpacked(np.frombuffer(raw, np.uint8), dtype.bits)[: math.prod(shape)].reshape(shape).view(dtype.numpy)
    if dtype.bits < 8:
        packed = onnx.TensorProto(data_type=dtype.onnx, dims=shape, raw_data=bytes(raw))
        return tensor_from_proto(packed)
    if dtype.kind == "bool":
        flags: np.ndarray = np.frombuffer(raw, np.uint8) != 0
        return flags.reshape(shape)
    return np.frombuffer(raw, dtype.numpy).reshape(shape)


def _flat_indices(name: str, values: np.ndarray, indices: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Where each value goes, counted in elements of the dense tensor."""
    if indices.ndim == 2 and indices.shape == (len(values), len(shape)):
        inside = bool(np.all((indices >= 0) & (indices < np.array(shape, dtype=np.int64))))
        flat = np.ravel_multi_index(tuple(indices.T), shape) if inside and len(shape) else np.zeros(len(values), int)
    else:
        inside = indices.shape == values.shape and bool(np.all((indices >= 0) & (indices < math.prod(shape))))
        flat = indices
    if not inside:
        raise InvalidModel(f"sparse tensor {name!r} has an index outside its shape {list(shape)[:64]}")
    return flat

"""Tensors of a model file as NumPy arrays that view the file.

Takes a `TensorProto` (and where its bytes are, when they were left in the file), gives a read-only array. Types that
NumPy or ml_dtypes can read in place are views; packed and typed data are converted, sparse tensors made dense.
"""

from __future__ import annotations

import math

import numpy as np
import onnx

from fusewise.errors import InvalidModel, ResourceLimit
from fusewise.frontend.external import ExternalData
from fusewise.frontend.limits import Limits
from fusewise.ir.dtypes import STRING, DType, dtype_of_onnx
from fusewise.ops.proto import tensor_from_proto

__all__ = ["dense_array", "tensor_array"]


def tensor_array(
    tensor: onnx.TensorProto, external: ExternalData, limits: Limits, raw: memoryview | None = None
) -> np.ndarray:
    """The contents of `tensor`; `raw` are its bytes when they were cut out of the message.

    Raises `InvalidModel` naming the tensor when dtype, shape and data do not fit each other.
    """
    name = tensor.name
    dtype = _dtype(tensor)
    shape = tuple(tensor.dims)
    if any(dim < 0 for dim in shape):
        raise InvalidModel(f"tensor {name!r} has a negative dimension in {list(shape)[:64]}")
    limits.check_shape(f"tensor {name!r}", shape, dtype.itemsize)
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        raw = external.view(tensor)
    elif raw is None and tensor.HasField("raw_data"):
        raw = memoryview(tensor.raw_data)
    if raw is not None:
        return _from_bytes(name, dtype, shape, raw)
    try:
        return tensor_from_proto(tensor)
    except (ValueError, TypeError, OverflowError) as error:
        raise InvalidModel(f"tensor {name!r}: its data do not fill its shape {list(shape)}") from error


def _dtype(tensor: onnx.TensorProto) -> DType:
    try:
        return dtype_of_onnx(tensor.data_type)
    except KeyError:
        raise InvalidModel(f"tensor {tensor.name!r} has the unknown element type {tensor.data_type}") from None


def _from_bytes(name: str, dtype: DType, shape: tuple[int, ...], raw: memoryview) -> np.ndarray:
    if dtype == STRING:
        raise InvalidModel(f"tensor {name!r} holds strings as raw bytes, which ONNX does not allow")
    elements = math.prod(shape)
    expected = -(-elements * dtype.bits // 8)
    if len(raw) != expected:
        raise InvalidModel(
            f"tensor {name!r} of type {dtype}{list(shape)} needs {expected:,} bytes but has {len(raw):,}"
        )
    if dtype.bits < 8:
        packed = onnx.TensorProto(name=name, data_type=dtype.onnx, dims=shape, raw_data=bytes(raw))
        unpacked: np.ndarray = onnx.numpy_helper.to_array(packed)
        return unpacked
    if dtype.kind == "bool":
        flags: np.ndarray = np.frombuffer(raw, np.uint8) != 0
        return flags.reshape(shape)
    return np.frombuffer(raw, dtype.numpy).reshape(shape)


def dense_array(sparse: onnx.SparseTensorProto, external: ExternalData, limits: Limits) -> np.ndarray:
    """A sparse tensor with its zeros written out. Indices are flat positions, or one row of coordinates per value."""
    name = sparse.values.name
    shape = tuple(sparse.dims)
    values = tensor_array(sparse.values, external, limits)
    indices = tensor_array(sparse.indices, external, limits)
    if any(dim < 0 for dim in shape) or values.ndim != 1 or indices.dtype != np.int64:
        raise InvalidModel(f"sparse tensor {name!r} is malformed")
    limits.check_shape(f"sparse tensor {name!r}", shape, values.itemsize)
    if math.prod(shape) * values.itemsize > limits.dense_bytes:
        raise ResourceLimit(f"sparse tensor {name!r} would take more than {limits.dense_bytes:,} bytes when made dense")
    if indices.ndim == 2 and indices.shape == (len(values), len(shape)):
        bounds = np.array(shape, dtype=np.int64)
        inside = bool(np.all((indices >= 0) & (indices < bounds)))
        flat = np.ravel_multi_index(tuple(indices.T), shape) if inside and len(shape) else np.zeros(len(values), int)
    else:
        inside = indices.shape == values.shape and bool(np.all((indices >= 0) & (indices < math.prod(shape))))
        flat = indices
    if not inside:
        raise InvalidModel(f"sparse tensor {name!r} has an index outside its shape {list(shape)[:64]}")
    fill = "" if values.dtype == object else 0
    dense = np.full(math.prod(shape), fill, dtype=values.dtype)
    dense[flat] = values
    return dense.reshape(shape)

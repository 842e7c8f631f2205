"""Arithmetic on small known values: the Shape, Gather, Concat, ... chains that compute the targets of Reshape and Expand.

A known value is a small NumPy array. One that is known in terms of symbols, or in part, is an object array of numbers, sizes
(before a graph is bound: names of symbols) and None; operators that only move elements pass it on, arithmetic is done on sizes
(`size_arithmetic`), and what it cannot tell is None.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fusewise.frontend.size_arithmetic import is_known_size, on_sizes
from fusewise.ir.dtypes import INT64, dtype_of_onnx
from fusewise.ir.graph import Constant, Node
from fusewise.ir.types import TensorType, ValueType
from fusewise.ops.slices import sliced

__all__ = ["VALUE_LIMIT", "is_complete", "is_followed", "is_of_sizes", "known_outputs"]

VALUE_LIMIT = 2048  # elements; shape arithmetic is smaller, and larger values are data

Arrays = tuple[np.ndarray | None, ...]


def is_complete(value: np.ndarray | None) -> bool:
    """Is every element of the value known?"""
    return value is not None and value.dtype != object


def is_of_sizes(value: np.ndarray | None) -> bool:
    """Is every element an integer, or known in terms of symbols?"""
    return value is not None and value.dtype == object and all(map(is_known_size, value.reshape(-1).tolist()))


def is_followed(node: Node) -> bool:
    """Is the operator one whose results are computed here where its operands are known?"""
    return not node.domain and (node.op in _MOVES or node.op in _ARITHMETIC)


def known_outputs(node: Node, types: tuple[ValueType | None, ...], values: Arrays) -> tuple[np.ndarray | None, ...]:
    """The known or partly known value of each output of `node`, from the types and known values of its inputs."""
    nothing: tuple[np.ndarray | None, ...] = (None,) * len(node.outputs)
    if node.domain or not node.inputs:
        return nothing
    if node.op in ("Shape", "Size"):
        return (_shape(node, types[0]),)
    if any(name and value is None for name, value in zip(node.inputs, values, strict=True)):
        return nothing
    if sum(value.size for value in values if value is not None) > VALUE_LIMIT:
        return nothing
    function = _function(node, types, values)
    if function is None:
        return nothing
    try:
        with np.errstate(all="ignore"):
            found = function(node, *values)
    except (ValueError, IndexError, TypeError, KeyError, ZeroDivisionError, OverflowError, MemoryError):
        return nothing  # the values do not fit; the type rule or the run says so in better words
    outputs = found if isinstance(found, tuple) else (found,)
    if len(outputs) != len(node.outputs):
        return nothing
    return tuple(_normal(out) for out in outputs)


def _function(node: Node, types: tuple[ValueType | None, ...], values: Arrays) -> Callable[..., Any] | None:
    partly = [value is not None and value.dtype == object for value in values]
    if not any(partly):
        return _MOVES.get(node.op, _ARITHMETIC.get(node.op))
    if node.op in _MOVES and node.op != "Cast" and (node.op == "Concat" or not any(partly[1:])):
        return _MOVES[node.op]
    if node.op in _OF_SIZES and is_of_sizes(values[0]) and not any(partly[1:]):
        return _ARITHMETIC[node.op]
    first = types[-1] if node.op == "Where" else types[0]
    return _partial_arithmetic(node, not isinstance(first, TensorType) or not first.dtype.is_float)


def _normal(value: Any) -> np.ndarray | None:
    """An array small enough to keep; one whose elements are all numbers after all becomes int64."""
    if value is None:
        return None
    array = np.asarray(value)
    if array.size > VALUE_LIMIT:
        return None
    if array.dtype == object:
        kinds = set(map(type, array.reshape(-1).tolist()))
        if kinds <= {bool, int}:
            return array.astype(bool if kinds == {bool} else np.int64)
    return array


def _shape(node: Node, kind: ValueType | None) -> np.ndarray | None:
    if not isinstance(kind, TensorType) or kind.shape is None:
        return None
    if node.op == "Size":
        return _array([kind.size]).reshape(()) if kind.is_static else None
    dims = kind.shape[node.attribute("start", 0) : node.attribute("end", len(kind.shape))]
    return _array(dims)


def _array(items: Sequence[Any]) -> np.ndarray:
    """A row of integers, of objects where some are none."""
    if all(isinstance(item, int) for item in items):
        return np.array(items, dtype=np.int64)
    value = np.empty(len(items), dtype=object)
    value[:] = items
    return value


def _axes(axes: np.ndarray | None) -> tuple[int, ...] | None:
    return None if axes is None else tuple(int(axis) for axis in np.atleast_1d(axes).tolist())


def _gather(node: Node, data: np.ndarray, indices: np.ndarray) -> np.ndarray:
    axis = node.attribute("axis", 0) % max(data.ndim, 1)
    taken = data.take(indices.reshape(-1), axis)  # one index at a time would turn an object array into its element
    return taken.reshape(data.shape[:axis] + indices.shape + data.shape[axis + 1 :])


def _squeeze(node: Node, data: np.ndarray, axes: np.ndarray | None = None) -> np.ndarray:
    return data.squeeze(_axes(axes))


def _unsqueeze(node: Node, data: np.ndarray, axes: np.ndarray) -> np.ndarray:
    return np.expand_dims(data, _axes(axes) or ())


def _reshape(node: Node, data: np.ndarray, shape: np.ndarray) -> np.ndarray:
    zero = node.attribute("allowzero", 0)
    dims = [data.shape[i] if dim == 0 and not zero else dim for i, dim in enumerate(shape.tolist())]
    return data.reshape(dims)


def _split(node: Node, data: np.ndarray, split: np.ndarray | None = None) -> tuple[np.ndarray, ...]:
    axis = node.attribute("axis", 0)
    if split is None:
        size = -(-data.shape[axis] // len(node.outputs))
        bounds = [size * k for k in range(1, len(node.outputs))]
    else:
        bounds = np.cumsum(split)[:-1].tolist()
    return tuple(np.split(data, bounds, axis=axis))


def _expand(node: Node, data: np.ndarray, shape: np.ndarray) -> np.ndarray | None:
    target = np.broadcast_shapes(data.shape, tuple(shape.tolist()))
    return np.broadcast_to(data, target) if math.prod(target) <= VALUE_LIMIT else None


def _cast(node: Node, data: np.ndarray) -> np.ndarray:
    target = dtype_of_onnx(node.attribute("to"))
    if not (target.is_integer or target.is_float or target.kind == "bool") or target.bits < (
        16 if target.is_float else 8
    ):
        raise TypeError("not a number that arithmetic is done on")
    return data.astype(target.numpy)


def _constant_of_shape(node: Node, shape: np.ndarray) -> np.ndarray | None:
    fill = node.attribute("value")
    array = fill.array if isinstance(fill, Constant) else np.zeros(1, dtype=np.float32)
    dims = shape.tolist()
    return np.full(dims, array.reshape(-1)[0]) if math.prod(dims) <= VALUE_LIMIT else None


def _range(node: Node, start: np.ndarray, limit: np.ndarray, delta: np.ndarray) -> np.ndarray | None:
    first, last, step = start.item(), limit.item(), delta.item()
    if (last - first) / step > VALUE_LIMIT:
        return None
    return np.arange(first, last, step, dtype=start.dtype)


def _tile(node: Node, data: np.ndarray, repeats: np.ndarray) -> np.ndarray | None:
    times = repeats.tolist()
    return np.tile(data, times) if data.size * math.prod(times) <= VALUE_LIMIT else None


def _divide(node: Node, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind not in "iu":
        return np.asarray(a / b)
    if np.any(b == 0):
        raise ZeroDivisionError
    quotient = a // b  # ONNX truncates, NumPy floors
    return np.asarray(quotient + ((a % b != 0) & ((a < 0) != (b < 0))), dtype=a.dtype)


def _mod(node: Node, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if np.any(b == 0):
        raise ZeroDivisionError
    return np.asarray(np.fmod(a, b) if node.attribute("fmod", 0) else np.mod(a, b))


def _reduction(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(node: Node, data: np.ndarray, axes: np.ndarray | None = None) -> np.ndarray:
        if (axes is None or not axes.size) and node.attribute("noop_with_empty_axes", 0):
            return data
        chosen = _axes(axes) or None
        return np.asarray(function(data, axis=chosen, keepdims=bool(node.attribute("keepdims", 1)))).astype(data.dtype)

    return run


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """A NumPy function whose result has the operands' dtype (or bool)."""

    def run(node: Node, *operands: np.ndarray) -> np.ndarray:
        result = np.asarray(function(*operands))
        return result if result.dtype == bool else result.astype(operands[0].dtype)

    return run


def _pairwise(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(node: Node, *operands: np.ndarray) -> np.ndarray:
        result = operands[0]
        for operand in operands[1:]:
            result = function(result, operand)
        return result

    return run


def _where(node: Node, condition: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.where(condition, a, b)


def _partial_arithmetic(node: Node, is_whole: bool) -> Callable[..., Any] | None:
    """The operator element by element; an element that needs an unknown one is None."""
    function: Callable[..., Any] = _ARITHMETIC.get(node.op, _cast)
    if node.op not in _ELEMENTWISE:
        return None
    if node.op == "Cast":
        target = dtype_of_onnx(node.attribute("to"))
        if target.name not in ("int64", "int32") and (not target.is_float or target.bits < 32):
            return None

    def element(*operands: Any) -> Any:
        if node.op == "Mul" and 1 in operands:  # keeps the symbol
            return operands[0] if operands[1] == 1 else operands[1]
        if node.op in ("Add", "Sub") and operands[1] == 0:
            return operands[0]
        if node.op != "Where" and any(isinstance(operand, str) for operand in operands):
            return operands[0] if node.op == "Cast" and target == INT64 else None
        if any(not isinstance(operand, int | float) for operand in operands):
            return on_sizes(node.op, operands, is_whole)
        return function(node, *(np.array(operand) for operand in operands)).item()

    def run(node: Node, *operands: np.ndarray) -> np.ndarray:
        shape = np.broadcast_shapes(*(operand.shape for operand in operands))
        rows = [np.broadcast_to(operand, shape).reshape(-1).tolist() for operand in operands]
        value = np.empty(len(rows[0]), dtype=object)
        value[:] = [element(*items) for items in zip(*rows, strict=True)]
        return value.reshape(shape)

    return run


_MOVES: dict[str, Callable[..., Any]] = {
    "Identity": lambda node, x: x,
    "Cast": _cast,
    "CastLike": lambda node, x, like: None if object in (x.dtype, like.dtype) else x.astype(like.dtype),
    "Gather": _gather,
    "Concat": lambda node, *xs: np.concatenate(xs, axis=node.attribute("axis")),
    "Slice": lambda node, x, *bounds: sliced(x, *bounds),
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Reshape": _reshape,
    "Flatten": lambda node, x: x.reshape(1, -1) if node.attribute("axis", 1) == 0 else None,
    "Transpose": lambda node, x: x.transpose(node.attribute("perm")),
    "Split": _split,
    "Expand": _expand,
}

_ARITHMETIC: dict[str, Callable[..., Any]] = {
    "Add": _plain(np.add),
    "Sub": _plain(np.subtract),
    "Mul": _plain(np.multiply),
    "Div": _divide,
    "Mod": _mod,
    "Neg": _plain(np.negative),
    "Abs": _plain(np.abs),
    "Floor": _plain(np.floor),
    "Ceil": _plain(np.ceil),
    "Sqrt": _plain(np.sqrt),
    "Max": _pairwise(np.maximum),
    "Min": _pairwise(np.minimum),
    "Equal": _plain(np.equal),
    "Less": _plain(np.less),
    "LessOrEqual": _plain(np.less_equal),
    "Greater": _plain(np.greater),
    "GreaterOrEqual": _plain(np.greater_equal),
    "And": _plain(np.logical_and),
    "Or": _plain(np.logical_or),
    "Not": _plain(np.logical_not),
    "Where": _where,
    "ReduceProd": _reduction(np.prod),
    "ReduceSum": _reduction(np.sum),
    "ReduceMax": _reduction(np.max),
    "ReduceMin": _reduction(np.min),
    "ConstantOfShape": _constant_of_shape,
    "Range": _range,
    "NonZero": lambda node, x: np.array(np.nonzero(x), dtype=np.int64) if x.ndim else None,
    "Tile": _tile,
    "CumSum": lambda node, x, axis: None if node.attributes else np.cumsum(x, int(axis)).astype(x.dtype),
}

_ELEMENTWISE = frozenset(
    (
        "Abs Add And Cast Ceil Div Equal Floor Greater GreaterOrEqual Less LessOrEqual Max Min Mod Mul Neg Not Or Sub Where"
    ).split()
)

_OF_SIZES = frozenset({"CumSum", "ReduceProd", "ReduceSum", "Tile"})
"""What NumPy does with sizes as with numbers."""

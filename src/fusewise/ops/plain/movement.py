"""Moving elements and making them: shapes, slices, joins, fillings, ranges."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fusewise.ir.dtypes import dtype_of_onnx
from fusewise.ir.graph import Constant, Node
from fusewise.ops.plain.row import Other, Plain, PlainFunction, axes_of, of_any
from fusewise.ops.slices import sliced

__all__ = ["MOVEMENT"]


def _unsqueeze(node: Node) -> PlainFunction:
    return lambda data, axes=None: np.expand_dims(data, axes_of(node, axes) or ())


def _squeeze(node: Node) -> PlainFunction:
    return lambda data, axes=None: np.squeeze(data, axes_of(node, axes))


def _pad(node: Node) -> PlainFunction:
    mode = node.attribute("mode", "constant")

    def run(data: Any, pads: Any, value: Any = None, axes: Any = None) -> Any:
        low = pads.min(initial=0)
        if axes is not None or pads.size != 2 * data.ndim or low < 0 or mode not in ("constant", "edge"):
            raise Other
        around = pads.reshape(2, -1).T
        if mode == "edge":
            return np.pad(data, around, mode="edge")
        return np.pad(data, around, constant_values=0 if value is None else value.reshape(-1)[0])

    return run


def _concat(node: Node) -> PlainFunction:
    axis = node.attribute("axis")
    return lambda *parts: np.concatenate(parts, axis=axis)


def _reshape(node: Node) -> PlainFunction:
    zeros_count = bool(node.attribute("allowzero", 0))

    def run(data: Any, shape: Any) -> Any:
        wanted = shape.reshape(-1).tolist()
        if not zeros_count:
            wanted = [extent or data.shape[axis] for axis, extent in enumerate(wanted)]
        return data.reshape(wanted)

    return run


def _flatten(node: Node) -> PlainFunction:
    def run(data: Any) -> Any:
        axis = node.attribute("axis", 1)
        axis += data.ndim * (axis < 0)
        return data.reshape(math.prod(data.shape[:axis]), math.prod(data.shape[axis:]))

    return run


def _transpose(node: Node) -> PlainFunction:
    order = node.attribute("perm")
    return lambda data: np.ascontiguousarray(data.transpose(order))


def _expand(node: Node) -> PlainFunction:
    def run(data: Any, shape: Any) -> Any:
        return np.ascontiguousarray(
            np.broadcast_to(data, np.broadcast_shapes(data.shape, tuple(shape.reshape(-1).tolist())))
        )

    return run


def _tile(node: Node) -> PlainFunction:
    def run(data: Any, repeats: Any) -> Any:
        if repeats.size != data.ndim:
            raise Other
        return np.tile(data, tuple(repeats.tolist()))

    return run


def _shape(node: Node) -> PlainFunction:
    start, end = node.attribute("start", 0), node.attribute("end")
    return lambda data: np.array(data.shape[start:end], np.int64)


def _filled(node: Node) -> PlainFunction:
    fill = node.attribute("value")
    value = fill.array.reshape(-1)[0] if isinstance(fill, Constant) else np.float32(0)
    dtype = fill.array.dtype if isinstance(fill, Constant) else np.dtype(np.float32)

    def run(shape: Any) -> Any:
        return np.full(tuple(shape.reshape(-1).tolist()), value, dtype)

    return run


def _split(node: Node) -> PlainFunction:
    axis, count = node.attribute("axis", 0), len(node.outputs)
    stated = node.attribute("split")

    def run(data: Any, sizes: Any = None) -> Any:
        extent = data.shape[axis]
        lengths = list(stated) if stated is not None else None if sizes is None else sizes.reshape(-1).tolist()
        if lengths is None:
            size = -(-extent // count)
            lengths = [min(size, max(0, extent - size * k)) for k in range(count)]
        if len(lengths) != count or sum(lengths) != extent or min(lengths, default=0) < 0:
            raise Other
        return tuple(np.split(data, np.cumsum(lengths)[:-1].tolist(), axis))

    return run


def _range(node: Node) -> PlainFunction:
    def run(start: Any, limit: Any, delta: Any) -> Any:
        first, last, step = (one.reshape(-1)[0] for one in (start, limit, delta))
        count = max(0, math.ceil((float(last) - float(first)) / float(step)))
        if start.dtype.kind in "iu":
            return (int(first) + np.arange(count, dtype=np.int64) * int(step)).astype(start.dtype)
        if start.dtype == np.float16:
            raise Other
        return first + np.arange(count).astype(start.dtype) * step

    return run


def _trilu(node: Node) -> PlainFunction:
    keep = np.triu if node.attribute("upper", 1) else np.tril
    return lambda data, k=None: keep(data, 0 if k is None else int(k.reshape(-1)[0]))


def _eye(node: Node) -> PlainFunction:
    wanted = node.attribute("dtype")

    def run(data: Any) -> Any:
        dtype = data.dtype if wanted is None else dtype_of_onnx(wanted).numpy
        rows, columns = data.shape
        return np.eye(rows, columns, node.attribute("k", 0), dtype=dtype)

    return run


def _blocks(node: Node) -> tuple[int, bool]:
    return node.attribute("blocksize"), node.attribute("mode", "DCR") == "DCR"


def _depth_to_space(node: Node) -> PlainFunction:
    size, depth_first = _blocks(node)

    def run(data: Any) -> Any:
        n, c, h, w = data.shape
        inner = c // size**2
        if depth_first:
            parts = data.reshape(n, size, size, inner, h, w).transpose(0, 3, 4, 1, 5, 2)
        else:
            parts = data.reshape(n, inner, size, size, h, w).transpose(0, 1, 4, 2, 5, 3)
        return parts.reshape(n, inner, h * size, w * size)

    return run


MOVEMENT: tuple[Plain, ...] = (
    of_any("Concat", 4, _concat),
    of_any("ConstantOfShape", 9, _filled),
    Plain("DepthToSpace", 11, _depth_to_space),
    of_any("Expand", 8, _expand),
    Plain("EyeLike", 9, _eye),
    of_any("Flatten", 1, _flatten),
    Plain("Pad", 11, _pad),
    Plain("Range", 11, _range),
    of_any("Reshape", 5, _reshape),
    of_any("Shape", 1, _shape),
    of_any("Size", 1, lambda node: lambda data: np.array(data.size, np.int64)),
    of_any("Slice", 10, lambda node: sliced),
    of_any("Split", 2, _split),
    of_any("Squeeze", 1, _squeeze),
    of_any("Tile", 6, _tile),
    of_any("Transpose", 1, _transpose),
    Plain("Trilu", 14, _trilu),
    of_any("Unsqueeze", 1, _unsqueeze),
)

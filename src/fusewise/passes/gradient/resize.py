"""The gradient of Resize: along each axis it is a matrix, known by what becomes of unit vectors, and `d` meets it transposed."""

from __future__ import annotations

import numpy as np

from fusewise.ir.graph import Node, attributes_of
from fusewise.ops.evaluate import evaluate
from fusewise.ops.spec import Call
from fusewise.passes.gradient.row import Gradient, Reverse, row
from fusewise.passes.notation import Notation, TensorValue

__all__ = ["RESIZE"]

_OPSET = 19


def _resize(g: Notation, at: Reverse) -> list[TensorValue | None] | None:
    x, part = at.operand(), at.first
    for axis, (before, after) in enumerate(zip(x.dims, part.dims, strict=True)):
        matrix = _matrix(at.call, axis, before, after)
        if matrix is None:
            return None
        if matrix.shape[0] == matrix.shape[1] and np.array_equal(matrix, np.eye(before)):
            continue
        order = [*(k for k in range(x.rank) if k != axis), axis]
        rows = g.MatMul(g.permute(part, order), g.constant(matrix.T.astype(x.dtype.numpy)))
        part = g.permute(rows, [order.index(k) for k in range(x.rank)])
    return [part, *[None] * (len(at.x) - 1)]


def _matrix(call: Call, axis: int, before: int, after: int) -> np.ndarray | None:
    """[before, after]: row k is the unit vector k, resized along the axis."""
    axes = [a % call.input(0).rank for a in call.attribute("axes") or range(call.input(0).rank)]
    if axis not in axes:
        return np.eye(before)
    if call.attribute("coordinate_transformation_mode") == "tf_crop_and_resize":
        return None
    stated = {name: value for name, value in call.node.attributes if name not in ("axes", "keep_aspect_ratio_policy")}
    feeds: dict[str, np.ndarray] = {"x": np.eye(before)}
    if call.has(2) and call.input(2).size:
        if not call.is_known(2):
            return None
        feeds["scales"] = np.array([1, call.known(2)[axes.index(axis)]], np.float32)
        inputs: tuple[str, ...] = ("x", "", "scales")
    else:
        feeds["sizes"] = np.array([before, after], np.int64)
        inputs = ("x", "", "", "sizes")
    node = Node("Resize", inputs, ("y",), attributes_of(**stated))
    (found,) = evaluate(node, feeds, _OPSET)
    return np.asarray(found)


RESIZE: tuple[Gradient, ...] = (row("Resize", _resize),)

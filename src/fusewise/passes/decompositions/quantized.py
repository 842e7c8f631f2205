"""Quantised operators as sums of integers, and what scales, shifts and rounds them, in the order of their definitions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fusewise.ir.dtypes import FLOAT32
from fusewise.ops.spec import Call
from fusewise.passes.decompositions.row import Decomposition, row
from fusewise.passes.notation import Notation, TensorValue

__all__ = ["QUANTIZED"]

SHARED = 1 << 14
"""Elements from which extremes are found of rows or maps first: fewer are for one worker anyway."""


def _dynamic(g: Notation, call: Call, x: TensorValue) -> tuple[TensorValue, ...] | None:
    if not x.size:
        return None
    low, high = (_extreme(g, op, x) for op in ("Min", "Max"))
    extent = high - low
    scale = g.Where(g.Equal(extent, 0.0), 1.0, extent) / 255.0
    zero = g.cast(g.Round(g.Max(g.Min(-low / scale, 255.0), 0.0)), call.output(0).dtype)
    return g.QuantizeLinear(x, scale, zero), scale, zero


def _extreme(g: Notation, op: str, x: TensorValue) -> TensorValue:
    """The least or largest of all elements and zero, a scalar; of many of each row or map first, which workers share out."""
    if x.rank > 1 and x.size > SHARED:
        x = g.several(f"Reduce{op}", 1, x, list(range(min(2, x.rank - 1), x.rank)), keepdims=1)[0]
    if x.rank:
        x = g.several(f"Reduce{op}", 1, x, list(range(x.rank)), keepdims=0)[0]
    return g.several(op, 1, x, 0.0)[0]


def _factor(g: Notation, x: TensorValue, w: TensorValue, y: TensorValue) -> TensorValue:
    """x * w / y, in float32."""
    known = [g.edit.array(value.name) for value in (x, w, y)]
    if any(array is None for array in known):
        return x * w / y
    first, second, third = (np.asarray(array) for array in known)
    return g.constant(np.asarray(first * second / third, np.float32))


def _requantized(
    g: Notation, total: TensorValue, factor: TensorValue, zero: TensorValue | None, axis: int
) -> TensorValue:
    """total * factor, rounded and shifted by a zero point that is one number, or one for each index of an axis."""
    scale = np.ones(() if zero is None else zero.dims, np.float32)
    return g.QuantizeLinear(g.cast(total, FLOAT32) * factor, g.constant(scale), zero, axis=axis)


def _scalar(g: Notation, x: TensorValue) -> TensorValue:
    return g.reshape(x, ())


def _along(g: Notation, x: TensorValue, dims: Sequence[int]) -> TensorValue:
    """A number as it is, a vector along the axis of `dims` that is -1, and other tensors as they are."""
    if x.size == 1:
        return _scalar(g, x)
    return g.reshape(x, [x.size if d < 0 else d for d in dims]) if x.rank == 1 else x


def _conv(g: Notation, call: Call, *operands: TensorValue | None) -> TensorValue | None:
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias = (*operands, None)[:9]
    assert x is not None and w is not None and x_scale is not None and w_scale is not None and y_scale is not None
    total = g.ConvInteger(x, w, x_zero, w_zero, **dict(call.node.attributes))
    channels = [-1, *[1] * (x.rank - 2)]
    if bias is not None:
        total = total + _along(g, bias, channels)
    factor = _factor(g, _scalar(g, x_scale), _along(g, w_scale, channels), _scalar(g, y_scale))
    return _requantized(g, total, factor, None if y_zero is None else _scalar(g, y_zero), 1)


def _product(g: Notation, call: Call, *operands: TensorValue) -> TensorValue | None:
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = operands
    if any(scale.dtype != FLOAT32 for scale in (a_scale, b_scale, y_scale)) or min(a.rank, b.rank) < 2:
        return None
    if y_zero.size > 1 and y_zero.rank > 1:
        return None
    total = g.MatMulInteger(a, b, a_zero, b_zero)
    factor = _factor(g, _along(g, a_scale, (-1, 1)), _along(g, b_scale, (-1,)), _along(g, y_scale, (-1,)))
    return _requantized(g, total, factor, _along(g, y_zero, (-1,)), -1)


QUANTIZED: tuple[Decomposition, ...] = (
    row("DynamicQuantizeLinear", _dynamic),
    row("QLinearConv", _conv),
    row("QLinearMatMul", _product),
)

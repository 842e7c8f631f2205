"""Products of 8-bit integers as the kernels take them: convolutions by constant weights without a zero point.

Weights lose their zero point once, when a model is compiled: bytes where the differences are, else 16-bit numbers, which only
our own definition and kernels know (ONNX has no such operands).
"""

from __future__ import annotations

import numpy as np

from fusewise.ir.dtypes import INT8, INT32, UINT8
from fusewise.ir.types import TensorType
from fusewise.ops.spec import Call
from fusewise.passes.decompositions.row import Decomposition, row
from fusewise.passes.notation import Notation, TensorValue

__all__ = ["INTEGERS"]

LEAST_ELEMENTS = 1 << 12
"""Weights of a product from which it is worth being a convolution; not measured."""


def _centred(call: Call, weight: int, zero: int, axis: int) -> np.ndarray | None:
    """Constant weights less their zero point, which is one number or one for each index of `axis`; None for others."""
    if not call.is_known(weight) or (call.has(zero) and not call.is_known(zero)):
        return None
    array = call.known(weight)
    if call.has(zero):
        taken = call.known(zero)
        if taken.size > 1 and taken.shape != (array.shape[axis],):
            return None
        along = [-1 if d == axis % array.ndim else 1 for d in range(array.ndim)] if taken.size > 1 else [1] * array.ndim
        array = array.astype(np.int16) - taken.astype(np.int16).reshape(along)
    narrow = array.astype(np.int8)
    return narrow if np.array_equal(narrow, array) else array.astype(np.int16)


def _convolution(
    g: Notation, call: Call, x: TensorValue, w: TensorValue, *zeros: TensorValue | None
) -> TensorValue | None:
    x_zero, w_zero = (*zeros, None, None)[:2]
    if w_zero is None and w.dtype != UINT8:
        return None
    weights = _centred(call, 1, 3, 0)
    if weights is None:
        return None
    return g.typed("ConvInteger", call.output(), x, weights, x_zero, **dict(call.node.attributes))


def _product(g: Notation, call: Call, a: TensorValue, b: TensorValue, *zeros: TensorValue | None) -> TensorValue | None:
    """Rows of the product are the pixels of an image, one behind the other."""
    a_zero, _ = (*zeros, None, None)[:2]
    if b.rank != 2 or a.rank < 2 or 0 in (*a.dims, *b.dims) or b.size < LEAST_ELEMENTS or a.dtype not in (INT8, UINT8):
        return None
    weights = _centred(call, 1, 3, 1)
    if weights is None or (a_zero is not None and a_zero.size > 1):
        return None
    if a_zero is not None:
        a_zero = g.reshape(a_zero, ())
    rows, (depth, columns) = a.size // a.dims[-1], b.dims
    pixels = g.permute(g.reshape(a, [1, rows, depth]), (0, 2, 1))
    kind = TensorType(INT32, (1, columns, rows))
    image = g.typed("ConvInteger", kind, pixels, np.ascontiguousarray(weights.T)[..., None], a_zero)
    return g.reshape(g.permute(image, (0, 2, 1)), [*a.dims[:-1], columns])


INTEGERS: tuple[Decomposition, ...] = (row("ConvInteger", _convolution), row("MatMulInteger", _product))

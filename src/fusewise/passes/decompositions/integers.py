"""Products and convolutions of 8-bit integers as the kernels take them: by constants without a zero point.

Weights lose their zero point once, when a model is compiled: bytes where the differences are, else 16-bit numbers, which only
our own definition and kernels know (ONNX has no such operands).
"""

from __future__ import annotations

import numpy as np

from fusewise.ops.spec import Call
from fusewise.passes.decompositions.row import Decomposition, row
from fusewise.passes.notation import Notation, TensorValue

__all__ = ["INTEGERS"]


def _centred(call: Call, along: tuple[int, ...]) -> np.ndarray | None:
    """Constant weights, operand 1, less their zero point, operand 3, which is one number or fits them, its one axis as `along` has
    it; None for others, and where there is nothing to take away."""
    if not call.is_known(1) or (call.has(3) and not call.is_known(3)):
        return None
    array = call.known(1)
    if array.ndim < 2 or (not call.has(3) and array.dtype != np.uint8):
        return None
    if call.has(3):
        zero = call.known(3)
        zero = zero.reshape(()) if zero.size == 1 else zero.reshape(along) if zero.ndim == 1 else zero
        array = array.astype(np.int16) - zero.astype(np.int16)
    narrow = array.astype(np.int8)
    return narrow if np.array_equal(narrow, array) else array.astype(np.int16)


def _convolution(
    g: Notation, call: Call, x: TensorValue, w: TensorValue, *zeros: TensorValue | None
) -> TensorValue | None:
    weights = _centred(call, (-1, *(1,) * (w.rank - 1)))
    if weights is None:
        return None
    return g.typed("ConvInteger", call.output(), x, weights, (*zeros, None)[0], **dict(call.node.attributes))


def _product(g: Notation, call: Call, a: TensorValue, b: TensorValue, *zeros: TensorValue | None) -> TensorValue | None:
    weights = _centred(call, (-1,))
    return None if weights is None else g.typed("MatMulInteger", call.output(), a, weights, (*zeros, None)[0])


INTEGERS: tuple[Decomposition, ...] = (row("ConvInteger", _convolution), row("MatMulInteger", _product))

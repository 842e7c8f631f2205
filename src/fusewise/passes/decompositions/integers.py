"""Products and convolutions of 8-bit integers as the kernels take them: by constants without a zero point.

Weights lose their zero point once, when a model is compiled: bytes where the differences are, else 16-bit numbers, which only
our own definition and kernels know (ONNX has no such operands).
"""

from __future__ import annotations

import numpy as np

from fusewise.ir.dtypes import INT8, INT16, UINT8
from fusewise.ir.graph import LazyConstant
from fusewise.ir.types import TensorType
from fusewise.ops.spec import Call
from fusewise.passes.decompositions.row import Decomposition, row
from fusewise.passes.notation import Notation, TensorValue

__all__ = ["INTEGERS"]


def _centred(g: Notation, call: Call, w: TensorValue, along: tuple[int, ...]) -> TensorValue | None:
    """Constant weights, operand 1, less their zero point, operand 3, which is one number or fits them, its one axis as `along` has
    it, made when they are packed; None for others, and where there is nothing to take away."""
    source = g.edit.constants.get(w.name)
    if source is None or w.rank < 2 or not w.size or (call.has(3) and not call.is_known(3)):
        return None
    if not call.has(3) and source.dtype != UINT8:
        return None
    zero = np.asarray(call.known(3) if call.has(3) else 0, source.dtype.numpy)
    zero = zero.reshape(()) if zero.size == 1 else zero.reshape(along) if zero.ndim == 1 else zero
    if source.dtype == INT8 and not zero.any():
        return w
    zero = zero.reshape(*[1] * (w.rank - zero.ndim), *zero.shape)
    is_narrow = _fits_bytes(source.read_once(), zero)

    def made() -> np.ndarray:
        array = source.read_once()
        return (
            (array - zero).view(np.int8) if is_narrow else np.subtract(array, zero, dtype=np.int16)
        )  # in 8 bits modulo 256

    kind = TensorType(INT8 if is_narrow else INT16, w.dims)
    recipe = (id(source), "less", zero.shape, zero.tobytes())
    return g.value(g.edit.later(LazyConstant(kind, made, recipe, again=True), f"{w.name}_centred"))


def _fits_bytes(array: np.ndarray, zero: np.ndarray) -> bool:
    """Are all differences signed bytes?"""
    axes = tuple(axis for axis, extent in enumerate(zero.shape) if extent == 1)
    least, most = (extreme(array, axis=axes, keepdims=True) for extreme in (np.min, np.max))
    differences = [np.subtract(x, zero, dtype=np.int16) for x in (least, most)]
    return bool(differences[0].min() >= -128 and differences[1].max() <= 127)


def _convolution(
    g: Notation, call: Call, x: TensorValue, w: TensorValue, *zeros: TensorValue | None
) -> TensorValue | None:
    weights = _centred(g, call, w, (-1, *(1,) * (w.rank - 1)))
    if weights is None:
        return None
    return g.typed("ConvInteger", call.output(), x, weights, (*zeros, None)[0], **dict(call.node.attributes))


def _product(g: Notation, call: Call, a: TensorValue, b: TensorValue, *zeros: TensorValue | None) -> TensorValue | None:
    weights = _centred(g, call, b, (-1,))
    return None if weights is None else g.typed("MatMulInteger", call.output(), a, weights, (*zeros, None)[0])


INTEGERS: tuple[Decomposition, ...] = (row("ConvInteger", _convolution), row("MatMulInteger", _product))

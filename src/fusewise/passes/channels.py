"""What happens to every channel of a convolution or product alike, moved into its weights and bias.

An output channel is a row of the weights, so y * slope + shift per channel is the same operator with other weights. Products
are formed in float64 and rounded once to the weights' type, when somebody first reads them.
"""

from __future__ import annotations

import numpy as np

from fusewise.ir.dtypes import FLOAT32, FLOAT64
from fusewise.ir.graph import LazyConstant, Node
from fusewise.passes.edit import Edit, rebuilt
from fusewise.records import record

__all__ = ["Affine", "channel_axis", "per_channel", "scaled"]


@record(frozen=True)
class Affine:
    """y = x * slope + shift; float64 [channels], or [1] for all channels alike; a slope of None is 1, a shift of None 0."""

    slope: np.ndarray | None = None
    shift: np.ndarray | None = None


def channel_axis(op: str, rank: int) -> int:
    """The axis of the result along which output channels lie, counted from the end."""
    return 1 - rank if op in ("Conv", "ConvTranspose") else -1


def per_channel(array: np.ndarray | None, axis: int, channels: int) -> np.ndarray | None:
    """A constant operand as float64 [channels] or [1]; None when it varies along another axis than `axis` (negative)."""
    if array is None or not np.issubdtype(array.dtype, np.floating):
        return None
    if array.size == 1:
        return array.reshape(1).astype(np.float64)
    if array.ndim < -axis or array.shape[axis] != channels or array.size != channels:
        return None
    return array.reshape(-1).astype(np.float64)


def scaled(edit: Edit, node: Node, affine: Affine) -> Node | None:
    """The Conv, ConvTranspose, Gemm or 2-D MatMul `node` with slope and shift in its weights; None when they are not known.

    A MatMul takes a shift only by becoming a Gemm, so its result must then be a matrix.
    """
    weights, bias = edit.constants.get(node.inputs[1]), edit.operand(node, 2)
    if weights is None or weights.dtype not in (FLOAT32, FLOAT64) or (node.op == "MatMul" and weights.type.rank != 2):
        return None
    if bias is None and len(node.inputs) > 2 and node.inputs[2]:
        return None
    kind, new, slope = weights.type, node.inputs[1], affine.slope
    if slope is not None:
        recipe = (id(weights), slope.tobytes(), node.op, node.attribute("group", 1), node.attribute("transB", 0))
        later = LazyConstant(kind, lambda: _scaled_weights(node, weights.read_once(), slope), recipe)
        new = edit.later(later, f"{node.inputs[1]}_folded")
    offset = _offset(node, bias, affine)
    operands = [node.inputs[0], new]
    if offset is not None:
        if node.op in ("Conv", "ConvTranspose"):
            offset = np.broadcast_to(offset, (_channels(node, kind.dims),))
        operands.append(edit.constant(np.ascontiguousarray(offset, dtype=kind.dtype.numpy), f"{node.label}_bias"))
    if node.op == "MatMul" and offset is not None:
        data = edit.static(node.inputs[0])
        return rebuilt(node, "Gemm", operands) if data is not None and data.rank == 2 else None
    if node.op == "Gemm" and offset is not None:
        return node.with_inputs(operands).with_attributes(beta=None)
    return node.with_inputs(operands)


def _channels(node: Node, shape: tuple[int, ...]) -> int:
    if node.op == "ConvTranspose":
        return shape[1] * int(node.attribute("group", 1))
    if node.op == "Gemm" and not node.attribute("transB", 0):
        return shape[1]
    return shape[1 if node.op == "MatMul" else 0]


def _scaled_weights(node: Node, weights: np.ndarray, slope: np.ndarray) -> np.ndarray:
    if (
        slope.size > 1 and node.op == "ConvTranspose"
    ):  # [in, out / group, ...], groups lie one after another along the inputs
        group = node.attribute("group", 1)
        grouped = weights.reshape(group, -1, *weights.shape[1:])
        along = slope.reshape(group, 1, weights.shape[1], *(1,) * (weights.ndim - 2))
        return _rounded_product(grouped, along).reshape(weights.shape)
    if slope.size > 1 and (node.op == "Conv" or (node.op == "Gemm" and node.attribute("transB", 0))):
        slope = slope.reshape(-1, *(1,) * (weights.ndim - 1))
    return _rounded_product(weights, slope)


def _rounded_product(weights: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """The product in float64, rounded once; NumPy converts block by block, so no float64 copy is made."""
    result = np.empty_like(weights)
    np.multiply(weights, slope, out=result, dtype=np.float64, casting="same_kind")
    return result


def _offset(node: Node, bias: np.ndarray | None, affine: Affine) -> np.ndarray | None:
    """The new bias in float64; None when there is none."""
    offset = None if bias is None else np.asarray(bias, dtype=np.float64) * node.attribute("beta", 1.0)
    if offset is not None and affine.slope is not None:
        offset = offset * affine.slope
    if affine.shift is None:
        return offset
    return affine.shift if offset is None else offset + affine.shift

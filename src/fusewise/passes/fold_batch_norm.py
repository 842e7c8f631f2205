"""Fold batch normalisation with known statistics into weights. Numeric class reassociating.

At inference y = (x - mean) / sqrt(variance + epsilon) * scale + bias is y = x * slope + shift per channel. Slopes and
shifts are computed in float64, weights rounded once. A producer's sum over its window commutes with the slope:
(sum w x + b) * slope + shift = sum (w * slope) x + (b * slope + shift).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fusewise.ir.graph import Graph, Node
from fusewise.passes.channels import Affine, scaled
from fusewise.passes.edit import Change, Edit, LocalRule, rebuilt, sweep
from fusewise.trace import Trace

__all__ = ["INTO_CONSUMER", "fold_batch_norm", "lower_batch_norm"]


def fold_batch_norm(graph: Graph, trace: Trace) -> Graph:
    """Batch normalisation goes into the weights of the Conv, ConvTranspose, Gemm or MatMul before it, or the Conv after it.

    y = BatchNormalization(Conv(x, w), scale, bias, mean, variance)   ->   y = Conv(x, w', b')

    Refused: someone else reads the producer's result; statistics or weights are not constant; a padded Conv after a batch
    normalisation with a shift, where the padding would have to be the shift's opposite.
    """
    return sweep(
        graph, trace, (LocalRule("batch-norm-into-producer", ("BatchNormalization",), _into_producer), INTO_CONSUMER)
    )


def lower_batch_norm(graph: Graph, trace: Trace) -> Graph:
    """Batch normalisation that nothing took becomes one product and one sum.

    y = BatchNormalization(x, scale, bias, mean, variance)   ->   y = Add(Mul(x, slope), shift)
    """
    return sweep(graph, trace, (LocalRule("batch-norm-to-affine", ("BatchNormalization",), _to_affine),))


def _affine(edit: Edit, node: Node) -> tuple[np.ndarray, np.ndarray] | None:
    """Slope and shift per channel, float64 [channels], when the node is not training and its statistics are known."""
    arrays = [edit.operand(node, i) for i in range(1, 5)]
    if node.attribute("training_mode", 0) or not all(edit.is_unused(value) for value in node.outputs[1:]):
        return None
    if any(array is None or not np.issubdtype(array.dtype, np.floating) for array in arrays):
        return None
    scale, bias, mean, variance = (np.asarray(array, dtype=np.float64) for array in arrays)
    with np.errstate(all="ignore"):
        slope = scale / np.sqrt(variance + node.attribute("epsilon", 1e-5))
        shift = bias - mean * slope
    if not (np.all(np.isfinite(slope)) and np.all(np.isfinite(shift))):
        return None
    return slope, shift


def _into_producer(edit: Edit, node: Node) -> Change | None:
    affine = _affine(edit, node)
    before = edit.sole(node.inputs[0], "Conv", "ConvTranspose", "Gemm", "MatMul")
    kind = edit.static(node.inputs[0])
    if affine is None or before is None or kind is None:
        return None
    if before.op in ("Gemm", "MatMul") and kind.rank != 2:
        return None  # the channel axis is then not that of the columns
    merged = scaled(edit, before, Affine(*affine))
    if merged is None:
        return None
    return Change((before, node), "statistics are constant", (replace(merged, outputs=node.outputs[:1]),))


def _to_affine(edit: Edit, node: Node) -> Change | None:
    affine, kind = _affine(edit, node), edit.static(node.outputs[0])
    if affine is None or kind is None or not kind.dtype.is_float or kind.rank < 2:
        return None
    shape = (-1,) + (1,) * (kind.rank - 2)
    slope = edit.constant(affine[0].astype(kind.dtype.numpy).reshape(shape), f"{node.label}_slope")
    shift = edit.constant(affine[1].astype(kind.dtype.numpy).reshape(shape), f"{node.label}_shift")
    product = edit.value(f"{node.label}_scaled", kind)
    multiply = Node("Mul", (node.inputs[0], slope), (product,), name=f"{node.label}_mul" if node.name else "")
    return Change((node,), "statistics are constant", (multiply, rebuilt(node, "Add", (product, shift))))


def _into_consumer(edit: Edit, node: Node) -> Change | None:
    """Conv(BatchNormalization(x)): input channels are scaled; the shift becomes a bias, if no padding meets it."""
    before = edit.sole(node.inputs[0], "BatchNormalization")
    affine = None if before is None else _affine(edit, before)
    if before is None or affine is None:
        return None
    weights, bias = edit.operand(node, 1), edit.operand(node, 2)
    if weights is None or weights.dtype not in (np.float32, np.float64):
        return None
    if len(node.inputs) > 2 and node.inputs[2] and bias is None:
        return None
    padded = any(node.attribute("pads", ())) or node.attribute("auto_pad", "NOTSET") not in ("NOTSET", "VALID")
    if padded and np.any(affine[1] != 0):
        return None
    group = node.attribute("group", 1)
    per_group = weights.reshape(group, -1, *weights.shape[1:])
    slope = affine[0].reshape(group, 1, weights.shape[1], *(1,) * (weights.ndim - 2))
    shift = affine[1].reshape(group, 1, weights.shape[1], *(1,) * (weights.ndim - 2))
    new = (per_group * slope).astype(weights.dtype).reshape(weights.shape)
    offset = (per_group * shift).sum(axis=tuple(range(2, per_group.ndim))).reshape(-1)
    if bias is not None:
        offset = offset + bias
    names = (
        edit.constant(new, f"{node.inputs[1]}_folded"),
        edit.constant(offset.astype(weights.dtype), f"{node.label}_bias"),
    )
    merged = node.with_inputs((before.inputs[0], *names))
    return Change((before, node), "statistics are constant", (merged,))


INTO_CONSUMER = LocalRule("batch-norm-into-consumer", ("Conv",), _into_consumer)
"""Batch normalisation into the convolution behind it."""

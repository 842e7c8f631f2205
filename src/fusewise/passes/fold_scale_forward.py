"""Take a constant factor per channel into the weights behind it. Numeric class reassociating.

A product with weights sums over its input channels, so a factor of each may stand in the weights as well. Through a Relu a factor
passes only if it is positive.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fusewise.ir.graph import Graph, Node
from fusewise.passes.channels import per_channel
from fusewise.passes.edit import Change, Edit, looking_for, sweep
from fusewise.passes.fold_batch_norm import INTO_CONSUMER
from fusewise.rewrite.match import Occurrence
from fusewise.trace import Trace

__all__ = ["fold_scale_forward"]


def fold_scale_forward(graph: Graph, trace: Trace) -> Graph:
    """A factor of every input channel goes into the weights of the Conv, Gemm or MatMul behind it, and so does a batch norm.

    y = Conv(Mul(x, s), w)         ->   y = Conv(x, s * w)
    y = Conv(Relu(Mul(x, s)), w)   ->   y = Conv(Relu(x), s * w)     for s > 0

    Refused: someone else reads the scaled tensor, or the factor varies along another axis, or is not finite.
    """
    return sweep(graph, trace, (_RULE, INTO_CONSUMER))


def _scaled(g: Any, data: Any, factor: Any, weights: Any) -> Any:
    scale = data * factor
    return g.one_of(("Conv", "Gemm", "MatMul"), g.Relu(scale, like="relu") | scale, weights, ..., like="product")


def _absorb(edit: Edit, node: Node, found: Occurrence) -> Change | None:
    weights, data, relu = edit.operand(node, 1), found.value("data"), found.like.get("relu")
    if weights is None or weights.dtype not in (np.float32, np.float64) or node.attribute("transA", 0):
        return None
    kind, scaled = edit.static(data), edit.covered(found, node)[0].outputs[0]
    if kind is None or data in edit.constants or kind.rank < 2 or not edit.same_type(data, scaled):
        return None
    if node.op != "Conv" and weights.ndim != 2:
        return None
    axis = 1 - kind.rank if node.op == "Conv" else -1
    slope = per_channel(edit.array(found.value("factor")), axis, kind.dims[axis])
    if slope is None or not np.all(np.isfinite(slope)) or (relu is not None and not np.all(slope > 0)):
        return None
    folded = edit.constant(_times(node, weights, slope), f"{node.inputs[1]}_folded")
    if relu is None:
        return Change(edit.covered(found, node), "one factor per channel", (_reading(node, data, folded),))
    bent = edit.value(f"{relu.outputs[0]}_unscaled", edit.types[relu.outputs[0]])
    again = Node("Relu", (data,), (bent,), name=relu.name)
    nodes = (again, _reading(node, bent, folded))
    return Change(edit.covered(found, node), "one positive factor per channel", nodes)


def _reading(node: Node, data: str, weights: str) -> Node:
    return node.with_inputs((data, weights, *node.inputs[2:]))


def _times(node: Node, weights: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """The weights with every input channel's factor in them, rounded once."""
    if node.op != "Conv":
        return np.asarray(weights * (slope if node.attribute("transB", 0) else slope.reshape(-1, 1))).astype(
            weights.dtype
        )
    group = node.attribute("group", 1)
    per_group = weights.reshape(group, -1, *weights.shape[1:])
    if slope.size > 1:
        slope = slope.reshape(group, 1, weights.shape[1], *(1,) * (weights.ndim - 2))
    return np.asarray(per_group * slope).astype(weights.dtype).reshape(weights.shape)


_RULE = looking_for("ForwardFoldScaleAxis", _scaled, _absorb)

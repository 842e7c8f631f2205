"""Take a constant factor per channel into the weights before it. Numeric class reassociating."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fusewise.ir.graph import Graph, Node
from fusewise.passes.channels import Affine, channel_axis, per_channel, scaled
from fusewise.passes.edit import Change, Edit, looking_for, sweep
from fusewise.rewrite.match import Occurrence
from fusewise.trace import Trace

__all__ = ["absorb_scale"]

_PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")


def absorb_scale(graph: Graph, trace: Trace) -> Graph:
    """A constant factor or divisor of every channel goes into the weights, and into a bias on the way.

    y = Mul(Conv(x, w, b), s)             ->   y = Conv(x, w * s, b * s)
    y = Div(Add(MatMul(x, w), b), s)      ->   y = Add(MatMul(x, w / s), b / s)

    Refused: someone else reads the product, or the factor varies along another axis, or is not finite.
    """
    return sweep(graph, trace, _RULES)


def _product(g: Any, factor: Any) -> Any:
    product = g.one_of(_PRODUCTS, ..., like="product")
    return product * factor | product / factor


def _sum(g: Any, bias: Any, factor: Any) -> Any:
    """A MatMul with the bias added behind it."""
    total = g.MatMul(..., like="product") + bias
    return total * factor | total / factor


def _slope(edit: Edit, node: Node, before: Node, factor: str) -> np.ndarray | None:
    """The factor of each output channel of `before`, float64 [channels] or [1]."""
    kind = edit.static(before.outputs[0])
    if kind is None or kind.rank < 2:
        return None
    axis = channel_axis(before.op, kind.rank)
    slope = per_channel(edit.array(factor), axis, kind.dims[axis])
    if slope is None:
        return None
    with np.errstate(all="ignore"):
        slope = 1 / slope if node.op == "Div" else slope
    return slope if np.all(np.isfinite(slope)) else None


def _into_product(edit: Edit, node: Node, found: Occurrence) -> Change | None:
    before = found.like["product"]
    if not edit.same_type(before.outputs[0], node.outputs[0]):
        return None
    slope = _slope(edit, node, before, found.value("factor"))
    merged = None if slope is None else scaled(edit, before, Affine(slope=slope))
    if merged is None:
        return None
    return Change((before, node), "one factor per channel", (replace(merged, outputs=node.outputs),))


def _through_sum(edit: Edit, node: Node, found: Occurrence) -> Change | None:
    """Both the product and the bias are scaled."""
    before, total, _ = covered = edit.covered(found, node)
    bias, same = edit.array(found.value("bias")), (before.outputs[0], total.outputs[0])
    if bias is None or not all(edit.same_type(value, node.outputs[0]) for value in same):
        return None
    slope = _slope(edit, node, before, found.value("factor"))
    merged = None if slope is None else scaled(edit, before, Affine(slope=slope))
    if merged is None or slope is None or bias.dtype not in (np.float32, np.float64):
        return None
    product = edit.value(f"{before.outputs[0]}_scaled", edit.types[before.outputs[0]])
    shifted = edit.constant((bias * slope).astype(bias.dtype), f"{found.value('bias')}_folded")
    nodes = (replace(merged, outputs=(product,)), replace(total, inputs=(product, shifted), outputs=node.outputs))
    return Change(covered, "one factor per channel", nodes)


_RULES = (looking_for("absorb_scale", _product, _into_product), looking_for("absorb_scale", _sum, _through_sum))

"""Take a constant factor per channel into the weights before it. Numeric class reassociating."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fusewise.ir.graph import Graph, Node
from fusewise.passes.channels import Affine, channel_axis, per_channel, scaled
from fusewise.passes.edit import Change, Edit, LocalRule, sweep
from fusewise.trace import Trace

__all__ = ["absorb_scale"]

_PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")


def absorb_scale(graph: Graph, trace: Trace) -> Graph:
    """A constant factor or divisor of every channel goes into the weights, and into a bias on the way.

    y = Mul(Conv(x, w, b), s)             ->   y = Conv(x, w * s, b * s)
    y = Div(Add(MatMul(x, w), b), s)      ->   y = Add(MatMul(x, w / s), b / s)

    Refused: someone else reads the product, or the factor varies along another axis, or is not finite.
    """
    return sweep(graph, trace, (LocalRule("absorb_scale", ("Mul", "Div"), _absorb),))


def _absorb(edit: Edit, node: Node) -> Change | None:
    for i in (0, 1) if node.op == "Mul" else (0,):
        value = node.inputs[i]
        if edit.same_type(value, node.outputs[0]):
            change = _into_product(edit, node, value, node.inputs[1 - i]) or _through_sum(
                edit, node, value, node.inputs[1 - i]
            )
            if change is not None:
                return change
    return None


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


def _into_product(edit: Edit, node: Node, value: str, factor: str) -> Change | None:
    before = edit.sole(value, *_PRODUCTS)
    slope = None if before is None else _slope(edit, node, before, factor)
    merged = None if before is None or slope is None else scaled(edit, before, Affine(slope=slope))
    if before is None or merged is None:
        return None
    return Change((before, node), "one factor per channel", (replace(merged, outputs=node.outputs),))


def _through_sum(edit: Edit, node: Node, value: str, factor: str) -> Change | None:
    """A MatMul with the bias added behind it: both are scaled."""
    total = edit.sole(value, "Add")
    for i in (0, 1) if total is not None else ():
        assert total is not None
        before, bias = edit.sole(total.inputs[i], "MatMul"), edit.operand(total, 1 - i)
        if before is None or bias is None or not edit.same_type(total.inputs[i], node.outputs[0]):
            continue
        slope = _slope(edit, node, before, factor)
        merged = None if slope is None else scaled(edit, before, Affine(slope=slope))
        if merged is None or slope is None or bias.dtype not in (np.float32, np.float64):
            continue
        product = edit.value(f"{before.outputs[0]}_scaled", edit.types[before.outputs[0]])
        shifted = edit.constant((bias * slope).astype(bias.dtype), f"{total.inputs[1 - i]}_folded")
        nodes = (replace(merged, outputs=(product,)), replace(total, inputs=(product, shifted), outputs=node.outputs))
        return Change((before, total, node), "one factor per channel", nodes)
    return None

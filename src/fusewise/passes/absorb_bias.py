"""Take a constant sum per channel into the operator before it. Numeric class reassociating: the sum is formed elsewhere."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fusewise.ir.graph import Graph, Node
from fusewise.passes.channels import Affine, channel_axis, per_channel, scaled
from fusewise.passes.edit import Change, Edit, LocalRule, sweep
from fusewise.trace import Trace

__all__ = ["absorb_bias"]


def absorb_bias(graph: Graph, trace: Trace) -> Graph:
    """A constant added to every channel becomes the bias of the product before it.

    y = Add(Conv(x, w), c)      ->   y = Conv(x, w, c)
    y = Add(MatMul(x, w), c)    ->   y = Gemm(x, w, c)     (matrices only; there is no bias in more dimensions)

    Refused: someone else reads the product, or the constant varies along another axis than the channels.
    """
    return sweep(graph, trace, (LocalRule("absorb_bias", ("Add", "Sub"), _absorb),))


def _absorb(edit: Edit, node: Node) -> Change | None:
    for i in (0, 1) if node.op == "Add" else (0,):
        before = edit.sole(node.inputs[i], "Conv", "ConvTranspose", "Gemm", "MatMul")
        kind = edit.static(node.inputs[i])
        if before is None or kind is None or not edit.same_type(node.inputs[i], node.outputs[0]):
            continue
        if kind.rank != 2 and before.op == "MatMul":
            continue
        axis = channel_axis(before.op, kind.rank)
        shift = per_channel(edit.operand(node, 1 - i), axis, kind.dims[axis])
        if shift is None:
            continue
        if before.op in ("Gemm", "MatMul"):
            shift = np.broadcast_to(shift, (kind.dims[axis],))
        merged = scaled(edit, before, Affine(shift=shift if node.op == "Add" else -shift))
        if merged is not None:
            return Change((before, node), "one constant per channel", (replace(merged, outputs=node.outputs),))
    return None

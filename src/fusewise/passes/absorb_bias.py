"""Take a constant sum per channel into the operator before it. Numeric class reassociating: the sum is formed elsewhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fusewise.ir.graph import Graph, Node
from fusewise.passes.channels import Affine, channel_axis, per_channel, scaled
from fusewise.passes.edit import Change, Edit, looking_for, sweep
from fusewise.rewrite.match import Occurrence
from fusewise.trace import Trace

__all__ = ["absorb_bias"]


def absorb_bias(graph: Graph, trace: Trace) -> Graph:
    """A constant added to every channel becomes the bias of the product before it.

    y = Add(Conv(x, w), c)      ->   y = Conv(x, w, c)
    y = Add(MatMul(x, w), c)    ->   y = Gemm(x, w, c)     (matrices only; there is no bias in more dimensions)

    Refused: someone else reads the product, or the constant varies along another axis than the channels.
    """
    return sweep(graph, trace, (_RULE,))


def _shifted(g: Any, constant: Any) -> Any:
    product = g.one_of(("Conv", "ConvTranspose", "Gemm", "MatMul"), ..., like="product")
    return product + constant | product - constant


def _absorb(edit: Edit, node: Node, found: Occurrence) -> Change | None:
    before = found.like["product"]
    kind = edit.static(before.outputs[0])
    if kind is None or not edit.same_type(before.outputs[0], node.outputs[0]):
        return None
    if kind.rank != 2 and before.op == "MatMul":
        return None
    axis = channel_axis(before.op, kind.rank)
    shift = per_channel(edit.array(found.value("constant")), axis, kind.dims[axis])
    if shift is None:
        return None
    if before.op in ("Gemm", "MatMul"):
        shift = np.broadcast_to(shift, (kind.dims[axis],))
    merged = scaled(edit, before, Affine(shift=shift if node.op == "Add" else -shift))
    if merged is None:
        return None
    return Change((before, node), "one constant per channel", (replace(merged, outputs=node.outputs),))


_RULE = looking_for("absorb_bias", _shifted, _absorb)

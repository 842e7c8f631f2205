"""Take explicit padding into the convolution or pooling behind it. Numeric class exact: the same numbers meet the same window."""

from __future__ import annotations

from typing import Any

import numpy as np

from fusewise.ir.graph import Graph, Node
from fusewise.passes.edit import Change, Edit, LocalRule, looking_for, sweep
from fusewise.rewrite.match import Occurrence
from fusewise.trace import Trace

__all__ = ["absorb_padding"]


def absorb_padding(graph: Graph, trace: Trace) -> Graph:
    """Zeros around an image become the padding of the Conv that reads it, or of a pooling to which they make no difference.

    y = Conv(Pad(x, [0,0,1,1,0,0,1,1]), w)   ->   y = Conv(x, w) {pads=[1,1,1,1]}
    y = MaxPool(Pad(Relu(x), [...]))         ->   y = MaxPool(Relu(x)) {pads=[...]}
    y = AveragePool(Pad(x, [...]))           ->   y = AveragePool(x) {count_include_pad=1, pads=[...]}

    Refused: someone else reads the padded image; it is padded by another value, in batch or channels, or cropped; the reader
    chooses its own padding (`auto_pad`). A maximum ignores padding, so the image padded for it has no negative numbers, or is
    padded with the lowest; and some of the image must be in every window.
    """
    return sweep(graph, trace, _RULES)


def _padded(g: Any) -> Any:
    return g.Conv(g.Pad(..., like="pad"), ..., like="conv")


def _absorb(edit: Edit, node: Node, found: Occurrence) -> Change | None:
    pad = found.like["pad"]
    kind = edit.static(pad.inputs[0])
    if kind is None:
        return None
    if node.attribute("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return None
    amounts = _amounts(edit, pad, kind.rank)
    if amounts is None or np.any(amounts < 0) or np.any(amounts[:, :2]) or _value(edit, pad) != 0:
        return None
    own = np.array(node.attribute("pads", (0,) * (2 * (kind.rank - 2)))).reshape(2, -1)
    merged = node.with_inputs((pad.inputs[0], *node.inputs[1:]))
    total = [int(n) for n in (own + amounts[:, 2:]).reshape(-1)]
    return Change((pad, node), "pads with zeros", (merged.with_attributes(pads=total, auto_pad=None),))


def _amounts(edit: Edit, pad: Node, rank: int) -> np.ndarray | None:
    """Elements added at the beginning and end of each axis, int64 [2, rank]; None when not known, or not of one value."""
    pads = edit.operand(pad, 1)
    if pads is None or pad.attribute("mode", "constant") != "constant":
        return None
    chosen = np.arange(rank)
    if len(pad.inputs) > 3 and pad.inputs[3]:
        axes = edit.operand(pad, 3)
        if axes is None:
            return None
        chosen = np.where(axes < 0, axes + rank, axes)
    amounts = np.zeros((2, rank), dtype=np.int64)
    amounts[:, chosen] = pads.reshape(2, -1)
    return amounts


def _value(edit: Edit, pad: Node) -> float | None:
    """The number that is put around; None when it is not known."""
    return edit.scalar(pad.inputs[2]) if len(pad.inputs) > 2 and pad.inputs[2] else 0.0


_POOLS = ("MaxPool", "AveragePool")
_NEVER_NEGATIVE = ("Relu", "Sigmoid", "HardSigmoid", "Abs", "Softmax", "Exp")


def _into_pool(edit: Edit, node: Node) -> Change | None:
    pad = edit.sole(node.inputs[0], "Pad")
    kind = None if pad is None else edit.static(pad.inputs[0])
    if pad is None or kind is None or not edit.is_unused(node.outputs[-1] if len(node.outputs) > 1 else ""):
        return None
    window = node.attribute("kernel_shape")
    if node.attribute("auto_pad", "NOTSET") not in ("NOTSET", "VALID") or node.attribute("ceil_mode", 0):
        return None
    if any(step != 1 for step in node.attribute("dilations", ())) or len(window) != kind.rank - 2:
        return None
    amounts = _amounts(edit, pad, kind.rank)
    if amounts is None or np.any(amounts < 0) or np.any(amounts[:, :2]) or not _ignored(edit, node, pad):
        return None
    own = np.array(node.attribute("pads", (0,) * (2 * len(window)))).reshape(2, -1)
    total = own + amounts[:, 2:]
    if np.any(total >= np.array(window)):
        return None
    counted = {"count_include_pad": 1} if node.op == "AveragePool" else {}
    merged = node.with_inputs((pad.inputs[0], *node.inputs[1:]))
    pads = [int(n) for n in total.reshape(-1)]
    return Change((pad, node), "padding of the pooling", (merged.with_attributes(pads=pads, auto_pad=None, **counted),))


def _ignored(edit: Edit, node: Node, pad: Node) -> bool:
    """Would the pooling's own padding mean what the explicit one does?"""
    value = _value(edit, pad)
    if node.op == "AveragePool":
        return value == 0 and (bool(node.attribute("count_include_pad", 0)) or not any(node.attribute("pads", ())))
    lowest = value is not None and value <= float(np.finfo(np.float32).min)
    before = edit.made_by(pad.inputs[0], *_NEVER_NEGATIVE, "Clip")
    bounded = before is not None and (before.op != "Clip" or _low(edit, before) >= 0)
    return lowest or (value == 0 and bounded)


def _low(edit: Edit, clip: Node) -> float:
    """The lower bound of a Clip, minus infinity when it has none or it is not known."""
    low = edit.scalar(clip.inputs[1]) if len(clip.inputs) > 1 and clip.inputs[1] else None
    return float("-inf") if low is None else low


_RULES = (
    looking_for("absorb_padding", _padded, _absorb),
    LocalRule("padding-into-pool", _POOLS, _into_pool),
)

"""Take explicit padding into the convolution behind it. Numeric class exact: the same zeros meet the same weights."""

from __future__ import annotations

import numpy as np

from fusewise.ir.graph import Graph, Node
from fusewise.passes.edit import Change, Edit, LocalRule, sweep
from fusewise.trace import Trace

__all__ = ["absorb_padding"]


def absorb_padding(graph: Graph, trace: Trace) -> Graph:
    """Zeros around an image become the padding of the Conv that reads it.

    y = Conv(Pad(x, [0,0,1,1,0,0,1,1]), w)   ->   y = Conv(x, w) {pads=[1,1,1,1]}

    Refused: someone else reads the padded image; it is padded by another value, in batch or channels, or cropped; the Conv
    chooses its own padding (`auto_pad`).
    """
    return sweep(graph, trace, (LocalRule("absorb_padding", ("Conv",), _absorb),))


def _absorb(edit: Edit, node: Node) -> Change | None:
    pad = edit.sole(node.inputs[0], "Pad")
    kind = None if pad is None else edit.static(pad.inputs[0])
    if pad is None or kind is None or node.inputs.count(node.inputs[0]) != 1:
        return None
    if node.attribute("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return None
    amounts = _amounts(edit, pad, kind.rank)
    if amounts is None or np.any(amounts < 0) or np.any(amounts[:, :2]):
        return None
    own = np.array(node.attribute("pads", (0,) * (2 * (kind.rank - 2)))).reshape(2, -1)
    merged = node.with_inputs((pad.inputs[0], *node.inputs[1:]))
    total = [int(n) for n in (own + amounts[:, 2:]).reshape(-1)]
    return Change((pad, node), "pads with zeros", (merged.with_attributes(pads=total, auto_pad=None),))


def _amounts(edit: Edit, pad: Node, rank: int) -> np.ndarray | None:
    """Zeros added at the beginning and end of each axis, int64 [2, rank]; None when not known or not zeros."""
    pads = edit.operand(pad, 1)
    if pads is None or pad.attribute("mode", "constant") != "constant":
        return None
    if len(pad.inputs) > 2 and pad.inputs[2] and edit.scalar(pad.inputs[2]) != 0:
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

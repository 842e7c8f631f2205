"""Remove the sum with a positive zero, which only turns -0.0 into 0.0: numeric class reassociating."""

from __future__ import annotations

import numpy as np

from fusewise.ir.graph import Graph, Node
from fusewise.passes.edit import Change, Edit, LocalRule, sweep
from fusewise.trace import Trace

__all__ = ["RULES", "drop_zeros"]


def drop_zeros(graph: Graph, trace: Trace) -> Graph:
    """A float sum or difference with zeros goes.

    b = Add(x, 0.0)   ->   b = x
    """
    return sweep(graph, trace, RULES)


def _zero(edit: Edit, node: Node) -> Change | None:
    for i in (1, 0) if node.op == "Add" else (1,):
        array, other = edit.array(node.inputs[i]), node.inputs[1 - i]
        if array is None or array.size == 0 or array.dtype == object or np.any(array != 0):
            continue
        if edit.same_type(other, node.outputs[0]):
            return Change((node,), "adds zeros", same={node.outputs[0]: other})
    return None


RULES: tuple[LocalRule, ...] = (LocalRule("drop-zero-term", ("Add", "Sub"), _zero),)

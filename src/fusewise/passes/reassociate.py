"""Put two constants in a row together. Numeric class reassociating."""

from __future__ import annotations

import numpy as np

from fusewise.ir.graph import Graph, Node
from fusewise.passes.edit import Change, Edit, LocalRule, sweep
from fusewise.trace import Trace

__all__ = ["reassociate"]


def reassociate(graph: Graph, trace: Trace) -> Graph:
    """Sums with two constants, and products with two, take one.

    b = Add(Add(x, 2.0), 3.0)   ->   b = Add(x, 5.0)

    Refused: someone else reads the first result, or the constants together are larger than each alone.
    """
    return sweep(graph, trace, (LocalRule("reassociate", ("Add", "Mul"), _merge),))


def _merge(edit: Edit, node: Node) -> Change | None:
    for value, outer in (node.inputs, node.inputs[::-1]):
        before, last = edit.sole(value, node.op), edit.array(outer)
        if before is None or last is None:
            continue
        for x, inner in (before.inputs, before.inputs[::-1]):
            first = edit.array(inner)
            if first is None or x in edit.constants or first.dtype != last.dtype or first.dtype.kind != "f":
                continue
            wide = np.float64 if first.dtype != np.float64 else np.longdouble
            function = np.add if node.op == "Add" else np.multiply
            both = function(first, last, dtype=wide)
            if both.size > max(first.size, last.size) or not np.all(np.isfinite(both)):
                continue
            known = edit.constant(np.asarray(both).astype(first.dtype), f"{inner}_merged")
            return Change((before, node), "two constants", (node.with_inputs((x, known)),))
    return None

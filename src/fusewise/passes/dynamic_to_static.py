"""Make computed sizes numbers: what is worked out from known shapes becomes constant. Numeric class exact."""

from __future__ import annotations

from fusewise.ir.graph import Graph, Node
from fusewise.passes.edit import Change, Edit, LocalRule, sweep
from fusewise.passes.fold_constants import fold_node
from fusewise.trace import Trace

__all__ = ["dynamic_to_static"]

_READS_SHAPE = ("Shape", "Size")


def dynamic_to_static(graph: Graph, trace: Trace) -> Graph:
    """Shape and Size of known shapes, and what is computed from them alone, become constants; then shapes follow from them.

    s = Shape(x); n = Gather(s, 0); y = Reshape(x, Concat(n, [-1]))   ->   y = Reshape(x, [8, -1])

    Constants that do not come from a shape are left to constant folding.
    """
    sizes: set[str] = set()

    def find(edit: Edit, node: Node) -> Change | None:
        if node.op not in _READS_SHAPE and sizes.isdisjoint(node.inputs):
            return None
        change = fold_node(edit, node)
        if change is not None:
            sizes.update(change.known)
        return change

    return sweep(graph, trace, (LocalRule("DynamicToStatic", (), find),))

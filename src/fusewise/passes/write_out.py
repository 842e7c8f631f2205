"""Write operators that have no kernel of their own, or slower ones, as those that have. Numeric class reassociating."""

from __future__ import annotations

from fusewise.ir.graph import Graph
from fusewise.passes.canonical_ops import LOWEST_OPSET, rule_of
from fusewise.passes.decompositions.table import NATIVE
from fusewise.passes.edit import sweep
from fusewise.trace import Trace

__all__ = ["write_out"]


def write_out(graph: Graph, trace: Trace) -> Graph:
    """Every operator with a row in `decompositions.table.NATIVE` as the row writes it.

    y = DFT(x)   ->   a few products with constant matrices          y = MatMulInteger(a, w, z, v)   ->   MatMulInteger(a, w - v, z)

    What the operators compute is not rounded otherwise than their definitions may be, so that this is done under `exact`, too.
    Refused: forms of an operator that its row does not cover.
    """
    return sweep(graph, trace, _RULES) if graph.opset >= LOWEST_OPSET else graph


_RULES = tuple(rule_of("write-out", row) for row in NATIVE)

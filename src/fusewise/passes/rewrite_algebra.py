"""Fewer operations by the laws of arithmetic, order and logic: DNNFusion's mathematical-property rewriting.

The rules stand in `rewrite.rules.table`, how they are chosen in `rewrite.engine`. There are two passes because a pass has one
numeric class: one with the applications that keep every bit, one with those that may round differently too.
"""

from __future__ import annotations

from fusewise.ir.graph import Graph
from fusewise.rewrite.engine import rewrite
from fusewise.rewrite.rules.table import ALGEBRA
from fusewise.trace import Trace

__all__ = ["rewrite_algebra", "rewrite_exactly"]


def rewrite_exactly(graph: Graph, trace: Trace) -> Graph:
    """Rules that change no bit: those on integers, booleans, maxima and signs.

    Max(Relu(x), Relu(y))   ->   Relu(Max(x, y))
    """
    return rewrite(graph, ALGEBRA, trace, worst="exact")


def rewrite_algebra(graph: Graph, trace: Trace) -> Graph:
    """Rules that may change a rounding, and the exact ones.

    a * b + a * c   ->   a * (b + c)
    """
    return rewrite(graph, ALGEBRA, trace, worst="reassociating")

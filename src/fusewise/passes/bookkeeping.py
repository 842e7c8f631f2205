"""Where nodes come from: what a pass keeps that computes nothing."""

from __future__ import annotations

from dataclasses import replace

from fusewise.ir.graph import Graph
from fusewise.trace import Trace

__all__ = ["annotate_spans"]


def annotate_spans(graph: Graph, trace: Trace) -> Graph:
    """Every node knows which node of the user's model it comes from; those made before anyone kept count name themselves."""
    if all(node.origin for node in graph.nodes) or not trace.allows("rewrite", "AnnotateSpans", (), "origins"):
        return graph
    return graph.replace(
        nodes=tuple(node if node.origin else replace(node, origin=(node.label,)) for node in graph.nodes)
    )

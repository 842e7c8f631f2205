"""Passes of other compilers that have nothing to do on this graph, with the reason. They run, so that published lists run."""

from __future__ import annotations

from dataclasses import replace

from fusewise.ir.graph import Graph
from fusewise.trace import Trace

__all__ = ["annotate_spans", "unchanged"]


def annotate_spans(graph: Graph, trace: Trace) -> Graph:
    """Every node knows which node of the user's model it comes from; those made before anyone kept count name themselves."""
    if all(node.origin for node in graph.nodes) or not trace.allows("rewrite", "AnnotateSpans", (), "origins"):
        return graph
    return graph.replace(
        nodes=tuple(node if node.origin else replace(node, origin=(node.label,)) for node in graph.nodes)
    )


def unchanged(graph: Graph, trace: Trace) -> Graph:
    """The graph as it is."""
    return graph

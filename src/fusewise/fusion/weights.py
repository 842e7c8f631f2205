"""Products with what dequantises their weights: one group whatever the planner, since a product of its own would read a matrix of
floats that is made in every run.
"""

from __future__ import annotations

from fusewise.fusion.verdicts import Reason, Verdict
from fusewise.ir.graph import Graph
from fusewise.passes.packed_weights import dequantised_weights
from fusewise.trace import Trace

__all__ = ["weight_groups"]


def weight_groups(graph: Graph, trace: Trace) -> list[tuple[int, ...]]:
    """Of every product that dequantises weights, its node and those before it that do so for nobody else, ascending; each is gated
    by `trace`."""
    found = []
    for n, node in enumerate(graph.nodes):
        chain = dequantised_weights(graph, node)
        if not chain or not all(graph.is_inner(one.outputs[0]) for one in chain):
            continue
        members = (*(graph.producer[one.outputs[0]] for one in chain), n)
        labels = tuple(graph.nodes[m].label for m in members)[:8]
        if trace.allows("fuse", Verdict.FUSE.value, labels, Reason.WEIGHTS.value):
            found.append(members)
    return found

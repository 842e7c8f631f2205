"""Remove functions of a model that nothing calls. Numeric class exact.

Functions that are called stand, expanded, where they are called; of the others a graph knows the names (`frontend.functions`).
"""

from __future__ import annotations

import json

from fusewise.frontend.functions import UNUSED, without_unused
from fusewise.ir.graph import Graph
from fusewise.passes.hints import hint
from fusewise.trace import Trace

__all__ = ["remove_unused_functions", "unused_functions"]


def unused_functions(graph: Graph) -> tuple[str, ...]:
    """The functions of the graph's file that nothing calls, as `domain.name`."""
    return tuple(json.loads(hint(graph, UNUSED) or "[]"))


def remove_unused_functions(graph: Graph, trace: Trace) -> Graph:
    """Functions that nothing calls go. Nothing to do where the file had none."""
    found = unused_functions(graph)
    if not found or not trace.allows("function", "RemoveUnusedFunctions", found, "nothing calls it"):
        return graph
    return graph.replace(metadata=without_unused(graph.metadata))

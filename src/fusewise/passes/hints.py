"""What the graph asks of the compiler behind the passes: how nodes are fused, whether layouts are chosen.

Fusion and layout are decided when a graph is planned and lowered, not by rewriting it. So the passes that stand for them write
a wish into the graph's metadata, where a pass before or behind can see it and where it can be taken back.
"""

from __future__ import annotations

from fusewise.ir.graph import Graph
from fusewise.ops.spec import ANCHOR_FAMILIES
from fusewise.ops.table import spec_of
from fusewise.trace import Trace

__all__ = ["FUSION", "LAYOUT", "alter_op_layout", "defuse_ops", "fuse_ops", "hint", "with_hint"]

FUSION, LAYOUT = "fusewise.fusion", "fusewise.layout"
"""Keys of the metadata: the fusion planner asked for, and `packed` where operators may choose their layout."""


def hint(graph: Graph, key: str) -> str:
    """The wish under `key`; empty when there is none."""
    return dict(graph.metadata).get(key, "")


def with_hint(graph: Graph, key: str, wish: str) -> Graph:
    """The graph with another wish, none where it is empty; the same graph when it has that wish already."""
    if hint(graph, key) == wish:
        return graph
    others = tuple(pair for pair in graph.metadata if pair[0] != key)
    return graph.replace(metadata=(*others, (key, wish)) if wish else others)


def fuse_ops(graph: Graph, trace: Trace) -> Graph:
    """Operators are to be fused by fixed patterns; passes behind this one do not reach into the blocks.

    Nothing to do where no operator reads what another made.
    """
    edges = any(value in graph.producer for node in graph.nodes for value in node.reads)
    return _asked(graph, trace, FUSION, "patterns", "FuseOps") if edges else graph


def defuse_ops(graph: Graph, trace: Trace) -> Graph:
    """Fused blocks are taken apart again."""
    return _asked(graph, trace, FUSION, "", "DefuseOps")


def alter_op_layout(graph: Graph, trace: Trace) -> Graph:
    """Heavy operators may have the layout they like, with weights packed for it, and their neighbours follow.

    Nothing to do where there is no heavy operator.
    """
    specs = (spec_of(node.op, node.domain) for node in graph.nodes)
    heavy = any(spec is not None and spec.family in ANCHOR_FAMILIES for spec in specs)
    return _asked(graph, trace, LAYOUT, "packed", "AlterOpLayout") if heavy else graph


def _asked(graph: Graph, trace: Trace, key: str, wish: str, name: str) -> Graph:
    result = with_hint(graph, key, wish)
    return (
        result if result is graph or trace.allows("rewrite", name, (), f"{key} is {wish or 'not asked for'}") else graph
    )

"""A fusion plan as plain data: its groups, what they save, and why a node is or is not fused with each neighbour."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from fusewise.errors import UsageError
from fusewise.fusion.ecg import ExtendedGraph
from fusewise.fusion.plan import Edge, Plan
from fusewise.ir.graph import Graph
from fusewise.words import nearest

__all__ = [
    "described_edges",
    "described_groups",
    "fusion_figures",
    "intermediate_bytes",
    "no_node",
    "node_named",
    "why",
]


def fusion_figures(before: Graph, plan: Plan) -> dict[str, Any]:
    """Operators of the model as it was `before` clean-up and groups of the plan, as factors, and the bytes between them.

    `fusion_rate` is operators before by groups, the product of `cleanup_factor` and `fusion_factor`.
    """
    graph, groups = plan.partition.graph, plan.partition.groups
    ecg = ExtendedGraph(graph)
    written = [v for group in groups for v in group.outputs(graph) if v not in graph.output_set]
    return {
        "group_count": len(groups),
        "cleanup_factor": len(before.nodes) / max(1, len(graph.nodes)),
        "fusion_factor": len(graph.nodes) / max(1, len(groups)),
        "fusion_rate": len(before.nodes) / max(1, len(groups)),
        "intermediate_bytes_before": intermediate_bytes(before),
        "intermediate_bytes_after": sum(ecg.nbytes(v) for v in written),
    }


def intermediate_bytes(graph: Graph) -> int:
    """Bytes of all results that are not outputs of the graph; those of unknown shape count nothing."""
    ecg = ExtendedGraph(graph)
    return sum(ecg.nbytes(v) for node in graph.nodes for v in node.writes if v not in graph.output_set)


def described_groups(plan: Plan) -> list[dict[str, Any]]:
    """Every group: mapping type, anchor, members, bytes that are never written, and why it went no further."""
    graph, owner = plan.partition.graph, plan.partition.group_of
    ecg = ExtendedGraph(graph)
    stops: dict[int, Counter[str]] = {position: Counter() for position in range(len(plan.partition.groups))}
    for edge in plan.edges:
        if not edge.fused:
            for end in {owner[edge.producer], owner[edge.consumer]}:
                stops[end][edge.reason.value] += 1
    found = []
    for position, group in enumerate(plan.partition.groups):
        members = group.members(graph)
        anchors = [graph.nodes[n] for n in group.nodes if ecg.is_anchor(n)]
        outputs = set(group.outputs(graph))
        found.append(
            {
                "group": position,
                "type": plan.types[position].name.lower(),
                "anchor": anchors[0].label if anchors else None,
                "members": [{"node": node.label, "op": node.op} for node in members],
                "bytes_saved": sum(ecg.nbytes(v) for node in members for v in node.writes if v not in outputs),
                "stopped_by": [reason for reason, _ in stops[position].most_common()],
            }
        )
    return found


def described_edges(plan: Plan) -> list[dict[str, Any]]:
    """The verdict on every edge."""
    return [_described(plan.partition.graph, edge) for edge in plan.edges]


def _described(graph: Graph, edge: Edge) -> dict[str, Any]:
    return {
        "producer": graph.nodes[edge.producer].label,
        "consumer": graph.nodes[edge.consumer].label,
        "value": edge.value,
        "fused": edge.fused,
        "verdict": edge.verdict.value,
        "reason": edge.reason.value,
    }


def node_named(graph: Graph, name: str, wanted: str = "node") -> int:
    """The node called `name`, in this graph or in the model that it comes from. `UsageError` when nothing `wanted` is."""
    found = [n for n, node in enumerate(graph.nodes) if node.label == name]
    found = found or [n for n, node in enumerate(graph.nodes) if name in node.origin]
    if not found:
        known = [node.label for node in graph.nodes] + [origin for node in graph.nodes for origin in node.origin]
        raise no_node(name, known, wanted)
    return found[0]


def no_node(name: str, known: Iterable[str], wanted: str = "node") -> UsageError:
    """The error about a name that no node has: it tells the nearest ones."""
    return UsageError(
        f"no {wanted} is called {name!r}; {nearest(name, known, '`inspect --groups` lists them', most=3)}"
    )


def why(plan: Plan, name: str) -> dict[str, Any]:
    """Whether and why each neighbour of a node is fused with it.

    `name` is that of a node of the compiled graph, or of the model it comes from. `UsageError` when there is none.
    """
    graph, owner = plan.partition.graph, plan.partition.group_of
    n = node_named(graph, name)
    ecg = ExtendedGraph(graph)
    edges = [
        {
            "neighbour": graph.nodes[edge.producer if edge.consumer == n else edge.consumer].label,
            "side": "before" if edge.consumer == n else "after",
            **_described(graph, edge),
        }
        for edge in plan.edges
        if n in (edge.producer, edge.consumer)
    ]
    node = graph.nodes[n]
    return {
        "node": node.label,
        "op": node.op,
        "type": ecg.mapping(n).name.lower(),
        "group": owner[n],
        "members": [m.label for m in plan.partition.groups[owner[n]].members(graph)],
        "edges": edges,
    }

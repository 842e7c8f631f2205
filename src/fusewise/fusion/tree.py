"""The data-flow tree of a group: its part of the extended computational graph with every edge turned round.

    Relu                 the root is a result of the group
      Add                below an operator stand those whose results it reads
        MatMul
          x              leaves are what is read from outside
          w
        b

Walking it from the leaves up, operators are fused two at a time, and the table of mapping types gives the type of the two
together (W. Niu et al., DNNFusion, section 4.4). A part that several operators read stands in the tree once.
"""

from __future__ import annotations

from typing import Any

from fusewise.errors import UsageError
from fusewise.fusion.describe import node_named
from fusewise.fusion.ecg import ExtendedGraph
from fusewise.fusion.plan import Plan
from fusewise.fusion.verdicts import combine
from fusewise.ir.graph import Graph
from fusewise.ops.spec import Mapping

__all__ = ["data_flow_tree", "group_named"]


def group_named(plan: Plan, name: str | int) -> int:
    """The position of the group that is called so: its number, or the name of a node in it. `UsageError` when there is none."""
    text, last = str(name), len(plan.partition.groups) - 1
    if text.removeprefix("-").isdecimal():
        if len(text) <= len(str(last)) and int(text) in range(last + 1):
            return int(text)
        there = f"groups are 0 to {last}" if last >= 0 else "the graph has no operators, so there are no groups"
        raise UsageError(f"there is no group {text}; {there}")
    return plan.partition.group_of[node_named(plan.partition.graph, text, "group or node")]


def data_flow_tree(plan: Plan, position: int) -> dict[str, Any]:
    """The tree of a group as plain data: under `roots` its results, and under `values` every value, operands before readers.

    A value has its `kind` (`operator`, `input`, `constant`) and type. That of an operator has the mapping type of the operator, the
    type `together` with all below it in the group, and its `operands`, each with the mapping type `along` that edge.
    """
    graph, group = plan.partition.graph, plan.partition.groups[position]
    ecg = ExtendedGraph(graph)
    together: dict[str, Mapping] = {}
    values = [_leaf(graph, value) for value in group.inputs(graph)]
    for n in group.nodes:
        node, own = ecg.node(n), ecg.mapping(n)
        for value in dict.fromkeys(node.reads):
            if value in together:
                own = max(own, combine(together[value], ecg.edge(value, n))[0])
        for value in node.writes:
            together[value] = own
            values.append(
                {
                    "value": value,
                    "kind": "operator",
                    "type": str(graph.types.get(value, "unknown")),
                    "node": node.label,
                    "op": node.op,
                    "mapping": _text(ecg.mapping(n)),
                    "together": _text(own),
                    "operands": [{"value": read, "along": _text(ecg.edge(read, n))} for read in node.reads],
                }
            )
    return {
        "group": position,
        "type": _text(plan.types[position]),
        "roots": list(group.outputs(graph)),
        "values": values,
    }


def _leaf(graph: Graph, value: str) -> dict[str, Any]:
    kind = "constant" if value in graph.constants else "input"
    return {"value": value, "kind": kind, "type": str(graph.types.get(value, "unknown"))}


def _text(mapping: Mapping) -> str:
    return mapping.name.lower()

"""Puts the nodes of a model in an order in which every value is written before it is read, or says why there is none."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from heapq import heapify, heappop, heappush
from typing import Protocol

import onnx

from fusewise.errors import InvalidModel

__all__ = ["free_values", "node_label", "sorted_nodes"]


def node_label(node: onnx.NodeProto) -> str:
    """How messages name a node: its own name, or its first output."""
    return node.name or next((name for name in node.output if name), node.op_type)


def free_values(graph: onnx.GraphProto) -> tuple[str, ...]:
    """The names `graph`, with the bodies nested in it, reads from outside; each once, in order of first use."""
    inside = {value.name for value in graph.input}
    inside.update(tensor.name for tensor in graph.initializer)
    inside.update(tensor.values.name for tensor in graph.sparse_initializer)
    inside.update(name for node in graph.node for name in node.output)
    read = [name for node in graph.node for name in node_reads(node)]
    read += [value.name for value in graph.output]
    return tuple(dict.fromkeys(name for name in read if name and name not in inside))


def node_reads(node: onnx.NodeProto) -> list[str]:
    """Every value a node reads, through its bodies too."""
    read = [name for name in node.input if name]
    for attribute in node.attribute:
        for body in (
            (attribute.g, *attribute.graphs) if attribute.type == onnx.AttributeProto.GRAPH else attribute.graphs
        ):
            read += free_values(body)
    return read


class OuterScope(Protocol):
    """The graph around a body."""

    def type_of(self, name: str) -> object | None:
        """The type of a value; None when there is no such value."""


def sorted_nodes(
    nodes: Sequence[onnx.NodeProto], known: Collection[str], where: str, outer: OuterScope | None = None
) -> list[onnx.NodeProto]:
    """`nodes` in topological order; already sorted ones keep theirs.

    `known` are the values that no node writes, `outer` the graph around a body, whose values it may read.

    Raises `InvalidModel` for a value written twice, a value nobody writes, and a cycle.
    """
    writer: dict[str, int] = {}
    for i, node in enumerate(nodes):
        for name in node.output:
            if not name:
                continue
            if name in writer or name in known:
                raise InvalidModel(
                    f"{where}: the value {name!r}, written by node {node_label(node)!r}, already exists; "
                    "every value must have one source"
                )
            writer[name] = i
    needs: list[set[int]] = []
    for node in nodes:
        reads = node_reads(node)
        for name in reads:
            if name not in writer and name not in known and (outer is None or outer.type_of(name) is None):
                raise InvalidModel(
                    f"{where}: node {node_label(node)!r} ({node.op_type}) reads {name!r}, which is not defined anywhere"
                )
        needs.append({writer[name] for name in reads if name in writer})
    if all(max(need, default=-1) < i for i, need in enumerate(needs)):
        return list(nodes)
    return [nodes[i] for i in _kahn(nodes, needs, where)]


def _kahn(nodes: Sequence[onnx.NodeProto], needs: list[set[int]], where: str) -> list[int]:
    """Indexes in topological order, the earliest ready node first."""
    waiting = [len(need) for need in needs]
    users: list[list[int]] = [[] for _ in nodes]
    for i, need in enumerate(needs):
        for j in need:
            users[j].append(i)
    ready = [i for i, count in enumerate(waiting) if count == 0]
    heapify(ready)
    order: list[int] = []
    while ready:
        i = heappop(ready)
        order.append(i)
        for j in users[i]:
            waiting[j] -= 1
            if waiting[j] == 0:
                heappush(ready, j)
    if len(order) < len(nodes):
        stuck = [node_label(nodes[i]) for i, count in enumerate(waiting) if count][:5]
        raise InvalidModel(f"{where}: nodes form a cycle, among them {', '.join(map(repr, stuck))}")
    return order

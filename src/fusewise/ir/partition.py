"""Partition: disjoint, convex groups that cover the graph. The one hand-off from planning to code generation.

Both the fusion planner and the accelerator planner produce it; lowering consumes it.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from functools import cached_property

from fusewise.cards import Card, carded
from fusewise.ir.graph import Graph, Node
from fusewise.ir.walk import is_convex, predecessors

__all__ = ["Group", "Partition", "singletons"]


@dataclass(frozen=True)
class Group:
    """Nodes that run as one, as ascending indexes into `graph.nodes`."""

    nodes: tuple[int, ...]

    def members(self, graph: Graph) -> tuple[Node, ...]:
        """The nodes, in topological order."""
        return tuple(graph.nodes[i] for i in self.nodes)

    def inputs(self, graph: Graph) -> tuple[str, ...]:
        """Values read from outside, constants included, in order of first use."""
        inside = {v for node in self.members(graph) for v in node.writes}
        return tuple(dict.fromkeys(v for node in self.members(graph) for v in node.reads if v not in inside))

    def outputs(self, graph: Graph) -> tuple[str, ...]:
        """Values that some node outside, or the user, reads."""
        inside = set(self.nodes)
        return tuple(
            v
            for node in self.members(graph)
            for v in node.writes
            if v in graph.output_set or any(user not in inside for user in graph.users[v])
        )


def _card(found: Partition) -> Card:
    largest = max((len(group.nodes) for group in found.groups), default=0)
    title = f"Partition: {len(found.graph.nodes):,} nodes in {len(found.groups):,} groups, the largest of {largest:,}"
    return Card(title, (("of", repr(found.graph).partition("\n")[0]),))


@dataclass(frozen=True)
@carded(_card)
class Partition:
    """All groups of one graph, each with a topological position: group k reads only from groups before it.

    The constructor checks that groups are disjoint, cover every node, are convex, and that their quotient is acyclic in
    the given order; `ValueError` says what is wrong.
    """

    graph: Graph
    groups: tuple[Group, ...]

    def __post_init__(self) -> None:
        owner = self.group_of
        if sum(len(group.nodes) for group in self.groups) != len(owner):
            raise ValueError("a node is in two groups")
        if len(owner) != len(self.graph.nodes):
            missing = sorted(set(range(len(self.graph.nodes))) - set(owner))[:3]
            raise ValueError(f"nodes {[self.graph.nodes[i].label for i in missing]} are in no group")
        for position, group in enumerate(self.groups):
            for node in group.nodes:
                for before in predecessors(self.graph, node):
                    if owner[before] > position:
                        raise ValueError(
                            f"group {position} reads {self.graph.nodes[before].label!r} of group {owner[before]},"
                            " which runs later"
                        )

    @cached_property
    def group_of(self) -> dict[int, int]:
        """Node index to the position of its group."""
        return {node: position for position, group in enumerate(self.groups) for node in group.nodes}

    @staticmethod
    def ordered(graph: Graph, groups: list[Group]) -> Partition:
        """Groups in any order, sorted so that producers come first; `ValueError` when they form a cycle."""
        owner = {node: k for k, group in enumerate(groups) for node in group.nodes}
        waiting = [0] * len(groups)
        after: list[set[int]] = [set() for _ in groups]
        for k, group in enumerate(groups):
            for before in {owner[p] for n in group.nodes for p in predecessors(graph, n)} - {k}:
                after[before].add(k)
                waiting[k] += 1
        ready = [(groups[k].nodes[0], k) for k in range(len(groups)) if not waiting[k]]
        heapq.heapify(ready)
        order: list[Group] = []
        while ready:
            _, k = heapq.heappop(ready)
            order.append(groups[k])
            for later in sorted(after[k]):
                waiting[later] -= 1
                if not waiting[later]:
                    heapq.heappush(ready, (groups[later].nodes[0], later))
        if len(order) != len(groups):
            stuck = next(k for k in range(len(groups)) if waiting[k])
            convex = is_convex(graph, groups[stuck].nodes)
            raise ValueError(f"groups form a cycle{'' if convex else f': group {stuck} is not convex'}")
        return Partition(graph, tuple(order))


def singletons(graph: Graph) -> Partition:
    """Every node its own group: no fusion."""
    return Partition(graph, tuple(Group((i,)) for i in range(len(graph.nodes))))

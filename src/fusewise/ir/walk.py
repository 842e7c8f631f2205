"""Walks over a graph: ancestors, descendants, convexity. Node sets are sets of indexes into `graph.nodes`."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fusewise.ir.graph import Graph

__all__ = ["ancestors", "descendants", "is_convex", "predecessors", "successors"]


def predecessors(graph: Graph, node: int) -> tuple[int, ...]:
    """Nodes that produce what `node` reads, ascending."""
    found = {graph.producer[v] for v in graph.nodes[node].reads if v in graph.producer}
    return tuple(sorted(found))


def successors(graph: Graph, node: int) -> tuple[int, ...]:
    """Nodes that read what `node` produces, ascending."""
    found = {user for v in graph.nodes[node].writes for user in graph.users[v]}
    return tuple(sorted(found))


def ancestors(graph: Graph, nodes: Iterable[int]) -> set[int]:
    """Every node from which some node of `nodes` can be reached, `nodes` themselves not included unless reachable."""
    return _reached(predecessors, graph, nodes)


def descendants(graph: Graph, nodes: Iterable[int]) -> set[int]:
    """Every node that can be reached from some node of `nodes`."""
    return _reached(successors, graph, nodes)


def _reached(step: Callable[[Graph, int], Iterable[int]], graph: Graph, nodes: Iterable[int]) -> set[int]:
    found: set[int] = set()
    stack = list(nodes)
    while stack:
        for node in step(graph, stack.pop()):
            if node not in found:
                found.add(node)
                stack.append(node)
    return found


def is_convex(graph: Graph, nodes: Iterable[int]) -> bool:
    """Does every path between two nodes of the set stay inside it?

    Nodes are in topological order, so only the index range that the set spans needs to be looked at.
    """
    group = set(nodes)
    if not group:
        return True
    last = max(group)
    outside: set[int] = set()  # reachable from the group through a node outside it
    for node in range(min(group), last + 1):
        before = predecessors(graph, node)
        if node in group:
            if any(p in outside for p in before):
                return False
        elif any(p in group or p in outside for p in before):
            outside.add(node)
    return True

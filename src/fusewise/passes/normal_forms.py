"""A-normal form and graph normal form: what they ask of a program, and that a graph here has both.

In A-normal form every intermediate result is bound to a name, once, before it is read, and operands are names. In graph normal
form nothing binds: a result is its operator applied to the results that it reads, and one that is read twice is one node. A list of
nodes in static single assignment, in topological order, is the first when it is read as a list and the second when it is read by
its edges. So these passes change nothing. They say so of the graph at hand, and `ir.forms` writes it down in either form.
"""

from __future__ import annotations

from fusewise.ir.graph import Graph
from fusewise.trace import Trace

__all__ = ["a_normal_form", "graph_normal_form"]


def a_normal_form(graph: Graph, trace: Trace) -> Graph:
    """The graph itself: each node binds its results to names of their own, before anybody reads them."""
    bound = sum(len(node.writes) for node in graph.nodes)
    about = f"A-normal form already: {len(graph.nodes)} nodes bind {bound} names, each once and before it is read"
    trace.add("form", "ToANormalForm", reason=about)
    return graph


def graph_normal_form(graph: Graph, trace: Trace) -> Graph:
    """The graph itself: no node but those that results are made by, and each is there once however many read it."""
    shared = sum(len(graph.users[value]) > 1 for node in graph.nodes for value in node.writes)
    about = f"graph normal form already: nodes are joined by the values they read, {shared} of which are shared and not repeated"
    trace.add("form", "ToGraphNormalForm", reason=about)
    return graph

"""Check a graph against its own rules. Takes a graph, gives nothing, or raises `BrokenGraph` that names the node."""

from __future__ import annotations

from collections.abc import Iterator

from fusewise.errors import BrokenGraph
from fusewise.ir.graph import Attribute, Graph, Node, Subgraph

__all__ = ["verify"]


def verify(graph: Graph) -> None:
    """Raise `BrokenGraph` unless every value is written once, before it is read, and has a type that fits.

    Also checked: inputs, outputs and constants exist once each, a constant's declared type is that of its array, and a
    node captures as many values as its bodies ask for. One pass over the nodes.
    """
    defined = _beginnings(graph)
    for node in graph.nodes:
        for value in node.reads:
            if value not in defined:
                raise BrokenGraph(f"node {node.label!r} ({node.op}) reads {value!r}, {_why_undefined(graph, value)}")
        _check_captures(node)
        for value in node.writes:
            if value in defined:
                raise BrokenGraph(f"node {node.label!r} ({node.op}) writes {value!r}, which is defined before it")
            if value not in graph.types:
                raise BrokenGraph(f"node {node.label!r} ({node.op}) writes {value!r}, which has no type")
            defined.add(value)
    for value in graph.outputs:
        if value not in defined:
            raise BrokenGraph(f"the output {value!r} of graph {graph.name!r} is not defined")


def _beginnings(graph: Graph) -> set[str]:
    """Values there are before the first node runs."""
    defined: set[str] = set()
    for value in graph.inputs:
        if value in defined:
            raise BrokenGraph(f"the input {value!r} of graph {graph.name!r} is listed twice")
        if value not in graph.types:
            raise BrokenGraph(f"the input {value!r} of graph {graph.name!r} has no type")
        defined.add(value)
    for value, constant in graph.constants.items():
        if value in defined:
            raise BrokenGraph(f"the constant {value!r} of graph {graph.name!r} is an input as well")
        if value not in graph.types:
            raise BrokenGraph(f"the constant {value!r} of graph {graph.name!r} has no type")
        if graph.types[value] != constant.type:
            raise BrokenGraph(
                f"the constant {value!r} of graph {graph.name!r} is {constant.type}, but is declared {graph.types[value]}"
            )
        defined.add(value)
    return defined


def _why_undefined(graph: Graph, value: str) -> str:
    position = graph.producer.get(value)
    if position is None:
        return "which nothing defines"
    return f"which node {graph.nodes[position].label!r} writes later"


def _check_captures(node: Node) -> None:
    wanted = tuple(name for _, value in node.attributes for body in _bodies(value) for name in body.captures)
    # several bodies either list what they capture one after another, or share one list
    if len(node.captured) not in (len(wanted), len(dict.fromkeys(wanted))):
        raise BrokenGraph(
            f"node {node.label!r} ({node.op}) captures {len(node.captured)} values, but its bodies ask for {len(wanted)}"
        )


def _bodies(value: Attribute) -> Iterator[Subgraph]:
    if isinstance(value, Subgraph):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _bodies(item)

"""What one substitution did to a graph: the nodes that went and came, and those next to them, as small data that travels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from fusewise.ir.graph import Constant, Graph, Node, Subgraph
from fusewise.records import record

__all__ = ["GraphChange", "change_between"]


@record(frozen=True, slots=True)
class GraphChange:
    """`removed` and `added` nodes, each in the order of its graph; `before` and `after` are the nodes next to them in either.

    `types` has every value that these nodes read or write and that is no constant, `constants` the types of those that are.
    Attributes that are tensors or bodies are left out.
    """

    removed: tuple[Node, ...]
    added: tuple[Node, ...]
    before: tuple[Node, ...]
    after: tuple[Node, ...]
    types: Mapping[str, str]
    constants: Mapping[str, str]


def change_between(before: Graph, after: Graph) -> GraphChange:
    """What tells two graphs apart, of which one was made from the other and shares the nodes that stayed."""
    old, new = _own(before, after), _own(after, before)
    beside_old, beside_new = _beside(before, old), _beside(after, new)
    types, constants = dict[str, str](), dict[str, str]()
    for graph, nodes in ((before, (*old, *beside_old)), (after, (*new, *beside_new))):
        for name in dict.fromkeys(name for i in nodes for name in (*graph.nodes[i].reads, *graph.nodes[i].writes)):
            (constants if name in graph.constants else types)[name] = str(graph.types.get(name, ""))
    return GraphChange(
        _light(before, old), _light(after, new), _light(before, beside_old), _light(after, beside_new), types, constants
    )


def _own(graph: Graph, other: Graph) -> list[int]:
    """The nodes that the other graph does not have."""
    known = {id(node) for node in other.nodes}
    return [i for i, node in enumerate(graph.nodes) if id(node) not in known]


def _beside(graph: Graph, nodes: Iterable[int]) -> list[int]:
    """Who makes what these nodes read, and reads what they make."""
    inside = set(nodes)
    found = set[int]()
    for i in inside:
        found.update(graph.producer[name] for name in graph.nodes[i].reads if name in graph.producer)
        found.update(user for name in graph.nodes[i].writes for user in graph.users.get(name, ()))
    return sorted(found - inside)


def _light(graph: Graph, nodes: Iterable[int]) -> tuple[Node, ...]:
    """These nodes without what is large in their attributes."""
    return tuple(
        replace(node, attributes=tuple(one for one in node.attributes if not isinstance(one[1], Constant | Subgraph)))
        for node in (graph.nodes[i] for i in nodes)
    )

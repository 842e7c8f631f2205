"""Fast keys for the graphs of one search: which of them are the same up to the names of what rules put there.

`ir.key` is for keys that outlive a process; this one hashes the same structure in a hundredth of the time, because constants
that come from the graph the search began with are known by their names.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping

from fusewise.ir.graph import Constant, Graph, Node
from fusewise.rewrite.search.promise import recipe_of
from fusewise.rewrite.substitute import Draft

__all__ = ["edited_names", "names_key", "search_key"]

_MASK = (1 << 64) - 1


def search_key(graph: Graph, known: MutableMapping[str, tuple[Constant, int]]) -> tuple[int, int]:
    """Equal for graphs of one search that compute the same in the same way, whatever inner values are called.

    `known` remembers constants for the next key: almost all of them are in every graph of a search.
    """
    values: dict[str, int] = {"": 0}
    values.update((name, hash(("input", name))) for name in graph.inputs)
    for name, constant in graph.constants.items():
        found = known.get(name)
        if found is None or found[0] is not constant:
            found = known[name] = constant, hash(recipe_of(name, constant))
        values[name] = found[1]
    total = 0
    for node in graph.nodes:
        made = hash((node.op, node.domain, node.attributes, tuple(values[x] for x in (*node.inputs, *node.captured))))
        total += made
        values.update((name, hash((made, k))) for k, name in enumerate(node.outputs) if name)
    return total & _MASK, hash(tuple(values[x] for x in graph.outputs))


def names_key(graph: Graph) -> int:
    """Equal for graphs with the same nodes between the same names: two drafts carried out in either order."""
    return sum(map(_named, graph.nodes)) & _MASK


def edited_names(graph: Graph, key: int, draft: Draft, makers: Mapping[str, int]) -> int | None:
    """`names_key` after a deferred draft, from that before; None when it renames what others read."""
    if draft.same:
        return None
    gone = {makers[x] for x in draft.removed}
    return (key - sum(_named(graph.nodes[i]) for i in gone) + sum(map(_named, draft.nodes))) & _MASK


def _named(node: Node) -> int:
    return hash((node.op, node.inputs, node.outputs, node.attributes))

"""Sets of nodes as bits of one integer: bit v is node v. Nodes are numbered in topological order.

Union, intersection and difference are `|`, `&` and `& ~`; the empty set is 0. Comparing and hashing a set costs next to nothing,
which is what searches over thousands of groups need.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

__all__ = ["bits_of", "component", "components", "count", "is_connected", "lowest", "mask_of", "union_over"]


def bits_of(mask: int) -> Iterator[int]:
    """The members, ascending: a topological order."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def mask_of(nodes: Iterable[int]) -> int:
    """The set with these members."""
    mask = 0
    for node in nodes:
        mask |= 1 << node
    return mask


def count(mask: int) -> int:
    """Number of members."""
    return mask.bit_count()


def lowest(mask: int) -> int:
    """The first member in topological order; the set must not be empty."""
    return (mask & -mask).bit_length() - 1


def union_over(table: Sequence[int], mask: int) -> int:
    """The union of `table[v]` over the members v, for example of their predecessors."""
    found = 0
    while mask:
        low = mask & -mask
        found |= table[low.bit_length() - 1]
        mask ^= low
    return found


def component(neighbours: Sequence[int], mask: int, node: int) -> int:
    """The members of `mask` that hang together with `node`; `neighbours[v]` are the nodes that share an edge with v."""
    found = edge = 1 << node
    while edge:
        edge = union_over(neighbours, edge) & mask & ~found
        found |= edge
    return found


def components(neighbours: Sequence[int], mask: int) -> tuple[int, ...]:
    """The connected parts of `mask`, by their first member."""
    parts = []
    while mask:
        part = component(neighbours, mask, lowest(mask))
        parts.append(part)
        mask ^= part
    return tuple(parts)


def is_connected(neighbours: Sequence[int], mask: int) -> bool:
    """Does the set hang together? The empty set does not."""
    return mask != 0 and component(neighbours, mask, lowest(mask)) == mask

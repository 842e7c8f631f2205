"""What the work of each group amounts to, for a roofline: arithmetic, and bytes that must move.

Bytes are those a group cannot do without: every element that it reads of what lies outside, once, and every result that others
read. A kernel that reads something twice, or caches that keep something, make the bytes that really move more or fewer.
"""

from __future__ import annotations

from collections.abc import Sequence

from fusewise.ir.deciding import hint, hinted_bytes
from fusewise.ir.graph import Graph, Node
from fusewise.ir.partition import Group
from fusewise.lower.program import Account
from fusewise.ops.definition import call_of, flops_of, mappings_of
from fusewise.ops.spec import Mapping
from fusewise.ops.table import spec_of

__all__ = ["accounts"]


def accounts(graph: Graph, groups: Sequence[Group]) -> tuple[Account, ...]:
    """An account of every group, at the hints where sizes are in terms of symbols; what has no known size counts nothing."""
    return tuple(_account(graph, group) for group in groups)


def _account(graph: Graph, group: Group) -> Account:
    members = group.members(graph)
    read: dict[str, int] = {}
    for node in members:
        for value, nbytes in _reads(graph, node).items():
            read[value] = max(nbytes, read.get(value, 0))
    moved = sum(read.get(value, 0) for value in group.inputs(graph)) + sum(
        _nbytes(graph, value) for value in group.outputs(graph)
    )
    names = dict.fromkeys(name for node in members for name in node.origin or (node.label,))
    operators, flops = "+".join(node.op for node in members), sum(_flops(graph, n) for n in members)
    return Account(operators, tuple(names), flops, moved, group.nodes)


def _flops(graph: Graph, node: Node) -> int:
    spec = spec_of(node.op, node.domain)
    return 0 if spec is None else hint(flops_of(spec, call_of(graph, node)))


def _reads(graph: Graph, node: Node) -> dict[str, int]:
    """Bytes that a node needs of each operand: of one whose elements it picks, no more than it makes."""
    spec = spec_of(node.op, node.domain)
    found = {value: _nbytes(graph, value) for value in node.reads}
    if spec is None:
        return found
    made = sum(_nbytes(graph, value) for value in node.writes)
    for value, kind in zip(node.inputs, mappings_of(spec, call_of(graph, node)), strict=True):
        if value and kind < Mapping.MANY_TO_MANY:
            found[value] = min(found[value], made)
    return found


def _nbytes(graph: Graph, value: str) -> int:
    return hinted_bytes(graph.types.get(value))

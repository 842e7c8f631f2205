"""Where in one index space the values of a group are computed: index maps followed forwards and backwards.

Every kernel runs over one index space, that of the group's hub: the anchor's result, or an output. An operator that moves
elements one to one (elementwise ones along an operand as large as the output, Reshape and its like, Transpose) maps the hub's
index (i0, i1, ...) to that of the next value, and back. So

    h = MatMul(x, w); r = Reshape(h, (2, 5, 4)); t = Transpose(r, (1, 0, 2)); y = Add(t, b)

stores y[i0 % 5, i0 // 5, i1] = h[i0, i1] + b[...] straight from the product's registers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fusewise.ir.graph import Graph, Node
from fusewise.lower.index import Simplifier
from fusewise.ops.bijection import RESHAPES, bijective_operands
from fusewise.ops.expr import Expr, Index, const, index
from fusewise.ops.indexing import reshaped

__all__ = ["hub_index", "places", "strides_at"]


def hub_index(rank: int) -> Index:
    """(i0, i1, ...)."""
    return tuple(index(f"i{d}") for d in range(rank))


def places(graph: Graph, nodes: Sequence[Node], hub: str, *, backwards: bool = True) -> dict[str, Index]:
    """The index of every value of `nodes` that corresponds one to one to `hub`, in the hub's index.

    `nodes` in topological order. Without `backwards` only values computed from the hub are found.
    """
    shape = graph.tensor(hub).dims
    simplifier = Simplifier({f"i{d}": extent for d, extent in enumerate(shape)})
    found = {hub: hub_index(len(shape))}
    if len(nodes) == 1:
        return found
    edges = {node.outputs[0]: [node.inputs[k] for k in bijective_operands(graph, node)] for node in nodes}
    makers = {node.outputs[0]: node for node in nodes}
    onwards, settled = True, 0
    while settled < 2:  # sweeps in turn from either end that found nothing more
        before = len(found)
        for output, operands in edges.items() if onwards else reversed(edges.items()):
            node = makers[output]
            known = next((v for v in operands if v in found), None)
            if output not in found and known is not None:
                found[output] = _forward(graph, node, known, found[known], simplifier)
            if not backwards or output not in found:
                continue
            for value in operands:
                if value in edges and value not in found:
                    found[value] = _back(graph, node, value, found[output], simplifier)
        onwards, settled = not onwards, 0 if len(found) > before else settled + 1
    return found


def _forward(graph: Graph, node: Node, value: str, at: Index, simplifier: Simplifier) -> Index:
    """The output index where the element `at` of operand `value` goes."""
    before, after = graph.tensor(value).dims, graph.tensor(node.outputs[0]).dims
    if node.op == "Transpose":
        return tuple(at[axis] for axis in node.attribute("perm", tuple(reversed(range(len(before))))))
    if node.op in RESHAPES:
        return _reshaped(at, before, after, simplifier)
    return _aligned(at, before, after)


def _back(graph: Graph, node: Node, value: str, at: Index, simplifier: Simplifier) -> Index:
    """The index into operand `value` from which the output element `at` comes."""
    before, after = graph.tensor(value).dims, graph.tensor(node.outputs[0]).dims
    if node.op == "Transpose":
        permutation = node.attribute("perm", tuple(reversed(range(len(before)))))
        return tuple(at[permutation.index(axis)] for axis in range(len(before)))
    if node.op in RESHAPES:
        return _reshaped(at, after, before, simplifier)
    return _aligned(at, after, before)


def _reshaped(at: Index, before: Sequence[int], after: Sequence[int], simplifier: Simplifier) -> Index:
    return tuple(simplifier.simplify(e) for e in reshaped(at, before, after))


def _aligned(at: Index, before: Sequence[int], after: Sequence[int]) -> Index:
    """The same element where leading unit dimensions were added or dropped."""
    missing = len(after) - len(before)
    return (const(0),) * missing + at[max(0, -missing) :]


def strides_at(at: Index, strides: Sequence[int], ranges: Mapping[str, int]) -> tuple[dict[str, int], int] | None:
    """The strides per loop variable, and the offset, of an access at `at`; None when it does not move evenly."""
    position: Expr = const(0)
    for subscript, stride in zip(at, strides, strict=True):
        position = position + subscript * stride
    form = Simplifier(ranges).linear(position)
    steps = {atom.value: step for atom, step in form.terms if atom.op == "index"}
    return (steps, form.constant) if len(steps) == len(form.terms) else None

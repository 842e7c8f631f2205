"""Keys and values that several heads share, repeated for each as exporters write it, are read by Attention as they are.

    Attention(q, Reshape(Expand(Unsqueeze(k))), Reshape(Expand(Unsqueeze(v))))   ->   Attention(q, k, v)

The operator has fewer heads of keys than of queries (Ainslie et al., "GQA", EMNLP 2023), and nothing of the past is copied. Numbers
that keys or queries are multiplied by on the way go into its scale.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fusewise.ir.deciding import known_equal, known_one
from fusewise.ir.graph import Node
from fusewise.ir.types import TensorType
from fusewise.passes.edit import Change, Edit, LocalRule
from fusewise.records import record

__all__ = ["SHARE_HEADS"]

_MOVES = ("Expand", "Reshape", "Transpose", "Unsqueeze")

_REPEAT = "repeat"
"""The factor that an Expand adds."""

_Axes = tuple[tuple[str, ...], ...]
"""Of each axis the factors that it is made of, the slowest first; those of one element are left out."""


@record(frozen=True)
class _Source:
    """What a value is: another one times a factor, moved, and the nodes that do so, the first of them first."""

    value: str
    factor: float = 1.0
    nodes: tuple[Node, ...] = ()


def _share(edit: Edit, node: Node) -> Change | None:
    query, key, value = node.inputs[:3]
    kinds = [edit.static(one) for one in (query, key, value)]
    if any(kind is None or kind.rank != 4 for kind in kinds) or any(node.inputs[4:]):
        return None
    queries, keys, values = _multiplied(edit, query), _shared(edit, key), _shared(edit, value)
    if keys is None or values is None or values.factor != 1.0 or _heads(edit, keys) != _heads(edit, values):
        keys, values = _multiplied(edit, key), _Source(value)
    found = node.with_inputs((queries.value, keys.value, values.value, *node.inputs[3:]))
    factor = queries.factor * keys.factor
    scale = node.attribute("scale")
    if found == node or (scale is None and factor != 1.0):
        return None
    covered = (*queries.nodes, *keys.nodes, *values.nodes, node)
    new = found if scale is None else found.with_attributes(scale=float(scale) * factor)
    return Change(covered, "heads that share keys", (new,))


def _multiplied(edit: Edit, value: str) -> _Source:
    """A value as another one times a number, if it is that."""
    node = edit.made_by(value, "Mul")
    if node is not None:
        for scaled, factor in (node.inputs, node.inputs[::-1]):
            number = edit.scalar(factor)
            if number is not None and edit.same_type(scaled, value):
                return _Source(scaled, number, (node,))
    return _Source(value)


def _shared(edit: Edit, value: str) -> _Source | None:
    """The deepest value of four axes that this one is with heads repeated, moved in no other way; None where there is none."""
    best, at = None, _Source(value)
    while True:
        kind = edit.static(at.value)
        if at.nodes and kind is not None and kind.rank == 4:
            moved = _moved(edit, kind, at.nodes)
            best = at if moved is not None and moved == _wanted(kind, moved) else best
        product, node = _multiplied(edit, at.value), edit.made_by(at.value, *_MOVES)
        if product.nodes:
            at = _Source(product.value, at.factor * product.factor, (*product.nodes, *at.nodes))
        elif node is not None and node.inputs[0] not in edit.constants:
            at = _Source(node.inputs[0], at.factor, (node, *at.nodes))
        else:
            return best


def _wanted(kind: TensorType, moved: _Axes) -> _Axes:
    """The axes of a value whose heads are repeated, each as often as it is in `moved`."""
    axes = [list(axis) for axis in _axes(kind)]
    axes[1] += [_REPEAT] if any(_REPEAT in axis for axis in moved) else []
    return tuple(map(tuple, axes))


def _axes(kind: TensorType) -> _Axes:
    return tuple(() if known_one(dim) else (str(d),) for d, dim in enumerate(kind.dims))


def _moved(edit: Edit, kind: TensorType, nodes: Sequence[Node]) -> _Axes | None:
    """What the axes are made of after all nodes; None where an axis falls apart, or more than one is repeated."""
    axes: _Axes | None = _axes(kind)
    sizes: dict[str, int] = {str(d): dim for d, dim in enumerate(kind.dims)}
    for node in nodes:
        after = edit.static(node.outputs[0])
        if after is None or axes is None:
            return None
        if node.op == "Transpose":
            axes = tuple(axes[d] for d in node.attribute("perm", tuple(range(len(axes)))[::-1]))
        elif node.op in ("Reshape", "Unsqueeze"):
            axes = _regrouped(axes, sizes, after.dims)
        elif node.op == "Expand":
            axes = _repeated(axes, sizes, after.dims)
    return axes


def _regrouped(axes: _Axes, sizes: Mapping[str, int], dims: Sequence[int]) -> _Axes | None:
    """The same factors in the same order, dealt out to axes of these sizes."""
    waiting = [factor for axis in axes for factor in axis]
    found: list[tuple[str, ...]] = []
    for dim in dims:
        taken, size = [], 1
        while not known_equal(size, dim) and waiting:
            taken.append(waiting.pop(0))
            size = size * sizes[taken[-1]]
        if not known_equal(size, dim):
            return None
        found.append(tuple(taken))
    return None if waiting else tuple(found)


def _repeated(axes: _Axes, sizes: dict[str, int], dims: Sequence[int]) -> _Axes | None:
    """An axis of one element that becomes one of several has a new factor."""
    if len(dims) < len(axes):
        return None
    before = [(), *axes] if len(dims) > len(axes) else list(axes)
    if len(before) != len(dims):
        return None
    for d, (axis, dim) in enumerate(zip(before, dims, strict=True)):
        size = 1
        for factor in axis:
            size = size * sizes[factor]
        if known_equal(size, dim):
            continue
        if axis or _REPEAT in sizes:
            return None
        before[d], sizes[_REPEAT] = (_REPEAT,), dim
    return tuple(before)


def _heads(edit: Edit, source: _Source) -> int:
    kind = edit.static(source.value)
    assert kind is not None
    return kind.dims[1]


SHARE_HEADS = LocalRule("share-heads", ("Attention",), _share)

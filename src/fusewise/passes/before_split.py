"""What is done alike to every part of a Split is done once, before it. Numeric class exact.

Products of one tensor that became one (`combine_parallel`) have their biases and activations behind the Split, a kernel for each
part. Before it they are the product's own, and the parts are strides over its result.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from itertools import count

from fusewise.ir.graph import Constant, Graph, Node
from fusewise.ir.types import TensorType, ValueType
from fusewise.ops.table import spec_of
from fusewise.passes.later import joined
from fusewise.records import record
from fusewise.trace import Trace

__all__ = ["before_split"]


def before_split(graph: Graph, trace: Trace) -> Graph:
    """Moves operators that work element by element, with constants at most, from all parts of a Split to what is split.

    a, b = Split(x); c = Add(a, v); d = Add(b, w)   ->   y = Add(x, concat(v, w)); c, d = Split(y)

    Refused: a part that others read, too, or that is an output; operators or attributes that differ.
    """
    refused: set[tuple[str, ...]] = set()
    while found := _first(graph, refused):
        nodes = [graph.nodes[n] for n in (found.split, *found.readers)]
        if trace.allows("rewrite", "before-split", tuple(one.label for one in nodes), "all parts are treated alike"):
            graph = _moved(graph, found)
        else:
            refused.add(nodes[0].outputs)
    return graph


def _first(graph: Graph, refused: Container[tuple[str, ...]]) -> _PartReaders | None:
    splits = (n for n, node in enumerate(graph.nodes) if node.op == "Split" and node.outputs not in refused)
    return next(filter(None, (_alike(graph, n) for n in splits)), None)


@record(frozen=True)
class _PartReaders:
    """The node that splits; those that read a part each, in its order, at which operand; and what they have `beside` it, by the
    number of that operand: one constant for all, or one for each part, which are joined along an axis."""

    split: int
    readers: tuple[int, ...]
    operand: int
    beside: Mapping[int, tuple[tuple[str, ...], int | None]]


def _alike(graph: Graph, split: int) -> _PartReaders | None:
    node = graph.nodes[split]
    kind = graph.types.get(node.inputs[0]) if node.inputs else None
    if node.domain or not isinstance(kind, TensorType) or not kind.is_fixed:
        return None
    if len(node.writes) != len(node.outputs) or len(node.outputs) < 2:
        return None
    users = [graph.users[value] for value in node.outputs]
    if any(len(user) != 1 for user in users) or not graph.output_set.isdisjoint(node.outputs):
        return None
    readers = tuple(user[0] for user in users)
    nodes = [graph.nodes[n] for n in readers]
    if len(set(readers)) < len(readers) or len({_kind_of(one) for one in nodes}) > 1:
        return None
    spec = spec_of(nodes[0].op, nodes[0].domain)
    if spec is None or spec.scalar is None or len(nodes[0].outputs) != 1:
        return None
    operand = nodes[0].inputs.index(node.outputs[0])
    if any(one.inputs.count(value) != 1 for one, value in zip(nodes, node.outputs, strict=True)):
        return None
    if any(one.inputs[operand] != value for one, value in zip(nodes, node.outputs, strict=True)):
        return None
    axis = int(node.attribute("axis", 0)) % kind.rank - kind.rank
    beside = _constants(graph, nodes, operand, axis)
    return None if beside is None else _PartReaders(split, readers, operand, beside)


def _kind_of(node: Node) -> tuple[object, ...]:
    return node.op, node.domain, repr(node.attributes), tuple(bool(value) for value in node.inputs)


def _constants(
    graph: Graph, nodes: Sequence[Node], operand: int, axis: int
) -> dict[int, tuple[tuple[str, ...], int | None]] | None:
    """What readers of parts along `axis`, from behind, have beside these; None where that is not constant or does not fit."""
    found: dict[int, tuple[tuple[str, ...], int | None]] = {}
    for k in range(len(nodes[0].inputs)):
        values = tuple(node.inputs[k] for node in nodes)
        if k == operand or not values[0]:
            continue
        if any(value not in graph.constants for value in values):
            return None
        kinds = [graph.tensor(value) for value in values]
        parts = [graph.tensor(node.inputs[operand]) for node in nodes]
        if any(not _fits(kind, part) for kind, part in zip(kinds, parts, strict=True)):
            return None
        if all(_is_along(kind, part, axis) for kind, part in zip(kinds, parts, strict=True)):
            if len({(kind.dtype, (*kind.dims[:axis], 0, *kind.dims[axis:][1:])) for kind in kinds}) > 1:
                return None
            found[k] = values, kinds[0].rank + axis
        elif len(set(values)) == 1 or _equal([graph.constants[value] for value in values]):
            if any(kind.rank >= -axis and kind.dims[axis] != 1 for kind in kinds):
                return None
            found[k] = values[:1], None
        else:
            return None
    return found


def _fits(kind: TensorType, part: TensorType) -> bool:
    """Is the constant spread over the part, and not the part over the constant?"""
    pairs = zip(reversed(kind.dims), reversed(part.dims), strict=False)
    return kind.rank <= part.rank and all(mine in (1, its) for mine, its in pairs)


def _is_along(kind: TensorType, part: TensorType, axis: int) -> bool:
    return kind.rank >= -axis and kind.dims[axis] == part.dims[axis]


def _equal(constants: Sequence[Constant]) -> bool:
    """Are they one element, or none, and the same?"""
    first = constants[0]
    if any(one.type != first.type or first.type.size > 1 for one in constants):
        return False
    return all(one.array.tobytes() == first.array.tobytes() for one in constants)


def _moved(graph: Graph, found: _PartReaders) -> Graph:
    split, readers = graph.nodes[found.split], [graph.nodes[n] for n in found.readers]
    types, constants = dict[str, ValueType](graph.types), dict(graph.constants)
    source = graph.tensor(split.inputs[0])
    whole = _unused(types, f"{split.inputs[0]}_{readers[0].op.lower()}")
    types[whole] = TensorType(graph.tensor(readers[0].outputs[0]).dtype, source.shape)
    inputs = list(readers[0].inputs)
    inputs[found.operand] = split.inputs[0]
    for k, (values, axis) in found.beside.items():
        inputs[k] = values[0]
        if axis is not None:
            inputs[k] = _unused(types, f"{values[0]}_joined")
            data = joined([graph.constants[value] for value in values], axis)
            types[inputs[k]], constants[inputs[k]] = data.type, data
    origin = tuple(dict.fromkeys(name for reader in readers for name in reader.origin))
    first = replace(
        readers[0], inputs=tuple(inputs), outputs=(whole,), name=f"{readers[0].label}_of_all", origin=origin
    )
    parts = tuple(reader.outputs[0] for reader in readers)
    instead: dict[int, tuple[Node, ...]] = {}
    instead[found.split] = first, replace(split, inputs=(whole, *split.inputs[1:]), outputs=parts)
    instead.update((n, ()) for n in found.readers)
    nodes = tuple(new for n, node in enumerate(graph.nodes) for new in instead.get(n, (node,)))
    return graph.replace(nodes=nodes, types=types, constants=constants).pruned()


def _unused(types: Mapping[str, ValueType], stem: str) -> str:
    return next(name for k in count() if (name := f"{stem}_{k}" if k else stem) not in types)

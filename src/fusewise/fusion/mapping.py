"""The mapping type of operators and of the edges between them, read off the operator rows and the shapes.

Types are per edge: an elementwise operator is One-to-One along an operand as large as its result and One-to-Many only along
one that is broadcast, so a bias or a mask does not make it more complex than the data that flows through it.

Where a size depends on data the shapes say nothing, and the type is that of the operator in general.
"""

from __future__ import annotations

from collections.abc import Mapping as Types
from types import MappingProxyType

from fusewise.ir.graph import Graph, Node
from fusewise.ir.types import TensorType
from fusewise.ops.definition import call_of, definition, is_opaque, mapping_of, mappings_of
from fusewise.ops.expr import Expr, index, walk
from fusewise.ops.indexing import is_static
from fusewise.ops.spec import WHOLE_FAMILIES, Call, Mapping, NotDefined, OpSpec
from fusewise.ops.table import spec_of

__all__ = ["edge_mappings", "nest_depth", "node_mapping"]


SIZELESS: Types[str, Mapping] = MappingProxyType(
    dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze"), Mapping.REORGANIZE)
    | dict.fromkeys(("Transpose",), Mapping.SHUFFLE)
    | dict.fromkeys(("Concat", "Pad", "Slice", "Split"), Mapping.ONE_TO_ONE)
    | dict.fromkeys(("Expand", "Gather", "GatherElements", "GatherND", "Tile"), Mapping.ONE_TO_MANY)
)
"""Movement whatever its sizes; other operators without a known size are Opaque unless their row has a scalar body."""


def node_mapping(graph: Graph, node: Node) -> Mapping:
    """The operator's type over all its data operands; Opaque for what cannot be part of a group.

    An elementwise operator counts as One-to-One when one of its operands is as large as the result: only what enters through
    a broadcast operand is multiplied, and that shows on the edge.
    """
    spec = spec_of(node.op, node.domain)
    if spec is None:
        return Mapping.OPAQUE
    call = call_of(graph, node)
    found = mapping_of(spec, call)
    if found == Mapping.OPAQUE:
        return _sizeless(spec, call)
    if found == Mapping.ONE_TO_MANY and spec.scalar is not None:
        kinds = zip(mappings_of(spec, call), call.inputs, strict=True)
        return Mapping.ONE_TO_ONE if any(k == Mapping.ONE_TO_ONE and i is not None for k, i in kinds) else found
    return found


def edge_mappings(graph: Graph, node: Node) -> dict[str, Mapping]:
    """The type along each value the node reads; the most complex where it reads one several times."""
    spec = spec_of(node.op, node.domain)
    found = dict.fromkeys(node.reads, Mapping.OPAQUE)
    if spec is None or node.captured:
        return found
    call = call_of(graph, node)
    sizeless = _sizeless(spec, call)
    if sizeless != Mapping.OPAQUE:
        return dict.fromkeys(found, sizeless)
    kinds = mappings_of(spec, call)
    along: dict[str, Mapping] = {}
    for operand, kind in zip(node.inputs, kinds, strict=True):
        along[operand] = max(kind, along.get(operand, kind))
    return {value: along[value] for value in found}


def _sizeless(spec: OpSpec, call: Call) -> Mapping:
    """The type of an operator on tensors of which one has no known size; Opaque for all others.

    Elementwise operators on several operands may broadcast any of them.
    """
    kinds = [kind for kind in (*call.inputs, *call.outputs) if kind is not None]
    if is_opaque(spec) or is_static(call) or not all(isinstance(kind, TensorType) for kind in kinds):
        return Mapping.OPAQUE
    if spec.scalar is None:
        return SIZELESS.get(call.node.op, Mapping.OPAQUE)
    data = [k for k, kind in enumerate(call.inputs) if kind is not None and call.constant(k) is None]
    return Mapping.ONE_TO_ONE if len(data) == 1 else Mapping.ONE_TO_MANY


def nest_depth(graph: Graph, node: Node) -> int | None:
    """Levels of the deepest element expression where every result is a static tensor whose elements the operator's row defines;
    None for any other operator."""
    spec = spec_of(node.op, node.domain)
    if (
        spec is None
        or is_opaque(spec)
        or spec.family in WHOLE_FAMILIES
        or (spec.scalar is None and spec.define is None)
    ):
        return None
    call, deepest = call_of(graph, node), 0
    for k, value in enumerate(node.outputs):
        if not value:
            continue
        kind = graph.types.get(value)
        if not isinstance(kind, TensorType) or not kind.is_static:
            return None
        try:
            body = definition(spec, call, k, tuple(index(f"i{d}") for d in range(kind.rank)))
        except NotDefined:
            return None
        deepest = max(deepest, _depth(body))
    return deepest


def _depth(body: Expr) -> int:
    """Levels of arithmetic. A choice counts as three, since who follows it down needs as much, and the division of an index as
    six: where reshapes divide what others have divided, it is more work to find an element than to read it."""
    levels: dict[Expr, int] = {}
    for part in walk(body):
        levels[part] = _LEVELS.get(part.op, 1) + max((levels[a] for a in part.args), default=0)
    return levels[body]


_LEVELS: Types[str, int] = MappingProxyType(
    {"load": 0, "index": 0, "const": 0, "select": 3, "floordiv": 6, "floormod": 6}
)

"""A graph at the lowest opset that holds its operators, so that as many runtimes as possible load what is exported.

From opset 21 on, most operators came back in a new version only to take further element types; runtimes lag behind in
registering those (ONNX Runtime has no RoiAlign of opset 22). A graph that has no such types may say the lower opset.
"""

from __future__ import annotations

from functools import lru_cache

import onnx

from fusewise.frontend.bodies import bodies_of, graph_of_body
from fusewise.ir.graph import Graph, Node
from fusewise.ir.types import MapType, OptionalType, SequenceType, TensorType, ValueType

__all__ = ["LOWEST_OPSET", "at_lowest_opset"]

LOWEST_OPSET = 21
"""Below it new versions changed more than element types."""

_CLASSIC = frozenset(
    "tensor(float16) tensor(float) tensor(double) tensor(bool) tensor(string)"
    " tensor(int8) tensor(int16) tensor(int32) tensor(int64) tensor(uint8) tensor(uint16) tensor(uint32) tensor(uint64)".split()
)


def at_lowest_opset(graph: Graph) -> Graph:
    """The same graph at the lowest opset, not below `LOWEST_OPSET`, at which all its operators are what they are here."""
    opset = graph.opset
    if all(_tensor_text(kind) in _CLASSIC for kind in graph.types.values()):
        while opset > LOWEST_OPSET and _holds(graph, opset - 1):
            opset -= 1
    return graph if opset == graph.opset else graph.replace(opset=opset)


def _type_text(kind: ValueType) -> str:
    """The type as ONNX's schemas write it: `tensor(float)`, `seq(tensor(float))`."""
    if isinstance(kind, SequenceType):
        return f"seq({_type_text(kind.element)})"
    if isinstance(kind, OptionalType):
        return f"optional({_type_text(kind.element)})"
    if isinstance(kind, MapType):
        return f"map({kind.key.name}, {_type_text(kind.element)})"
    return _tensor_text(kind)


def _tensor_text(kind: ValueType) -> str:
    """The type of a tensor, or of those that a sequence is made of."""
    while not isinstance(kind, TensorType):
        kind = kind.element
    return f"tensor({onnx.TensorProto.DataType.Name(kind.dtype.onnx).lower()})"


def _holds(graph: Graph, opset: int) -> bool:
    """Has every operator, those of bodies too, the same meaning at this opset?"""
    for node in graph.nodes:
        if node.domain or not onnx.defs.has(node.op):
            continue  # a runtime's own
        if not _is_alike(node.op, graph.opset, opset) or not _takes(graph, node, opset):
            return False
        for _, body, _ in bodies_of(node):
            if not _holds(graph_of_body(body, graph.opset, graph.opsets), opset):
                return False
    return True


@lru_cache(maxsize=1024)
def _is_alike(op: str, newer: int, older: int) -> bool:
    """Do the two versions differ in element types at most?"""
    if not onnx.defs.has(op, max_inclusive_version=older):
        return False
    first, second = (onnx.defs.get_schema(op, version) for version in (newer, older))
    return first.since_version == second.since_version or _form(first) == _form(second)


def _form(schema: onnx.defs.OpSchema) -> object:
    attributes = {
        name: (attribute.type, attribute.required, attribute.default_value.SerializeToString())
        for name, attribute in schema.attributes.items()
    }
    operands = [[(formal.name, formal.option) for formal in formals] for formals in (schema.inputs, schema.outputs)]
    return attributes, operands


def _takes(graph: Graph, node: Node, opset: int) -> bool:
    """Does the operator of this opset take operands of these types?"""
    schema = onnx.defs.get_schema(node.op, opset)
    allowed = {entry.type_param_str: set(entry.allowed_type_strs) for entry in schema.type_constraints}
    for k, value in enumerate(node.inputs):
        if value not in graph.types or not schema.inputs:
            continue
        formal = schema.inputs[min(k, len(schema.inputs) - 1)]
        if _type_text(graph.types[value]) not in allowed.get(formal.type_str, {formal.type_str}):
            return False
    return True

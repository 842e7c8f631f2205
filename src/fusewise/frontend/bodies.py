"""Bodies of If, Loop and Scan: between ONNX bytes and a `Graph`, and renaming inside them.

A body sees the values of the graphs around it. Its free names are the `captures` of its `Subgraph`; the node that carries
it lists the outer value of each in `captured`, for all its bodies in the order of the attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

import onnx

from fusewise.errors import InvalidModel
from fusewise.frontend.order import free_values
from fusewise.ir.graph import Attribute, Constant, Graph, Node, Subgraph
from fusewise.ir.types import ValueType
from fusewise.ops.proto import attribute_from_proto, constant_from_proto, type_from_proto

__all__ = [
    "bodies_of",
    "defined_names",
    "goes_on",
    "graph_of_body",
    "node_with_bodies",
    "rename_body",
    "rename_node",
    "subgraph_of",
]


def subgraph_of(body: onnx.GraphProto) -> Subgraph:
    """A body as an attribute value."""
    return Subgraph(body.SerializeToString(deterministic=True), free_values(body))


def node_with_bodies(
    proto: onnx.NodeProto,
    bodies: Mapping[str, Subgraph],
    origin: tuple[str, ...],
    tensor: Callable[[onnx.TensorProto], Constant] = constant_from_proto,
) -> Node:
    """A `NodeProto` as a node; `bodies` are its graph attributes, already converted, `tensor` converts those of tensors."""
    attributes: dict[str, Attribute] = {
        a.name: bodies[a.name] if a.name in bodies else attribute_from_proto(a, tensor=tensor) for a in proto.attribute
    }
    ordered = tuple((name, attributes[name]) for name in sorted(attributes))
    return Node(
        op=proto.op_type,
        inputs=_without_trailing_gaps(tuple(proto.input)),
        outputs=tuple(proto.output),
        attributes=ordered,
        domain="" if proto.domain == "ai.onnx" else proto.domain,
        name=proto.name,
        origin=origin,
        captured=tuple(name for _, value in ordered if isinstance(value, Subgraph) for name in value.captures),
    )


def _without_trailing_gaps(inputs: tuple[str, ...]) -> tuple[str, ...]:
    while inputs and not inputs[-1]:
        inputs = inputs[:-1]
    return inputs


def bodies_of(node: Node) -> tuple[tuple[str, Subgraph, tuple[str, ...]], ...]:
    """The name of each graph attribute, the body, and the outer values it reads."""
    found = []
    start = 0
    for name, value in node.attributes:
        if isinstance(value, Subgraph):
            found.append((name, value, node.captured[start : start + len(value.captures)]))
            start += len(value.captures)
    return tuple(found)


@lru_cache(maxsize=256)
def graph_of_body(subgraph: Subgraph, opset: int, opsets: tuple[tuple[str, int], ...]) -> Graph:
    """The body as a graph. Types are those it declares: inputs, outputs and constants; captured values have none."""
    proto = onnx.GraphProto.FromString(subgraph.body)
    types: dict[str, ValueType] = {}
    for value in (*proto.input, *proto.output, *proto.value_info):
        kind = type_from_proto(value.type)
        if kind is not None:
            types[value.name] = kind
    constants = {tensor.name: constant_from_proto(tensor) for tensor in proto.initializer}
    types |= {name: constant.type for name, constant in constants.items()}
    nodes = []
    for node in proto.node:
        bodies = {a.name: subgraph_of(a.g) for a in node.attribute if a.type == onnx.AttributeProto.GRAPH}
        nodes.append(node_with_bodies(node, bodies, (node.name,) if node.name else ()))
    return Graph(
        inputs=tuple(value.name for value in proto.input),
        outputs=tuple(value.name for value in proto.output),
        nodes=tuple(nodes),
        types=types,
        constants=constants,
        name=proto.name,
        opset=opset,
        opsets=opsets,
    )


def goes_on(body: Graph) -> bool:
    """Does the body of a Loop hand its condition on as it is, or say yes, so that only the count can end it?"""
    name = body.outputs[0]
    maker = body.producer_of(name)
    while maker is not None and maker.op in ("Identity", "Cast"):
        name = maker.inputs[0]
        maker = body.producer_of(name)
    known = maker.attribute("value") if maker is not None and maker.op == "Constant" else body.constants.get(name)
    if isinstance(known, Constant):
        return known.type.size == 1 and bool(known.array.reshape(-1)[0])
    return maker is None and name == body.inputs[1]


def rename_body(body: onnx.GraphProto, names: Mapping[str, str]) -> None:
    """Rename values in `body`, in place: those it reads from outside and those it defines, nested bodies included."""
    for value in (*body.input, *body.output, *body.value_info):
        value.name = names.get(value.name, value.name)
    for tensor in body.initializer:
        tensor.name = names.get(tensor.name, tensor.name)
    for sparse in body.sparse_initializer:
        sparse.values.name = names.get(sparse.values.name, sparse.values.name)
    for node in body.node:
        rename_node(node, names)


def rename_node(node: onnx.NodeProto, names: Mapping[str, str]) -> None:
    """Rename the values a node reads and writes, in place, in its bodies too."""
    for field in (node.input, node.output):
        for i, name in enumerate(field):
            if name in names:
                field[i] = names[name]
    for attribute in node.attribute:
        if attribute.graphs:
            raise InvalidModel(f"node {node.name or node.op_type!r} has a list of graphs, which no operator takes")
        if attribute.type == onnx.AttributeProto.GRAPH:
            rename_body(attribute.g, names)


def defined_names(body: onnx.GraphProto) -> set[str]:
    """The names a body gives to values of its own, those of nested bodies included."""
    found = {value.name for value in body.input} | {tensor.name for tensor in body.initializer}
    for node in body.node:
        found.update(name for name in node.output if name)
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                found |= defined_names(attribute.g)
    return found

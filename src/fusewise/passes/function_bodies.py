"""An operator of ONNX's that is a function of others, as the nodes of that function: what its schema says it means.

The function of one call is imported like a model with that call in it, folded as far as shapes and small constants go, and put in
place of the node.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import onnx

from fusewise.errors import FusewiseError
from fusewise.frontend.onnx_import import load
from fusewise.ir.graph import Graph, Node, Subgraph
from fusewise.ir.types import TensorType
from fusewise.ops.infer import DATA_LIMIT
from fusewise.ops.proto import node_to_proto, tensor_to_proto, type_to_proto
from fusewise.passes.edit import Change, Edit
from fusewise.passes.fold_constants import fold_constants
from fusewise.trace import Trace

__all__ = ["body_in_place"]

_DOMAIN = "fusewise.body"


def body_in_place(edit: Edit, node: Node) -> Change | None:
    """A node as the nodes of its function; None for an operator that is none, or one whose sizes are not known."""
    if node.captured or any(edit.static(value) is None for value in (*node.reads, *node.writes)):
        return None
    function = _function(edit, node)
    if function is None:
        return None
    try:
        body = load(_model(edit, node, function))
    except FusewiseError:
        return None
    body = fold_constants(body, Trace())
    if body.opset > edit.opset or any(not _is_static(body, value) for inner in body.nodes for value in inner.writes):
        return None
    return _spliced(edit, node, body)


def _is_static(graph: Graph, value: str) -> bool:
    kind = graph.types.get(value)
    return isinstance(kind, TensorType) and kind.is_static


def _function(edit: Edit, node: Node) -> onnx.FunctionProto | None:
    """The function that a node means, for operands of its types; its operators are those of the graph's opset."""
    version = dict(edit.opsets).get(node.domain, 1) if node.domain else edit.opset
    try:
        schema = onnx.defs.get_schema(node.op, version, node.domain)
    except onnx.defs.SchemaError:
        return None
    if schema.has_function:  # type: ignore[attr-defined]  # missing in onnx's stubs
        function = onnx.FunctionProto()
        function.CopyFrom(schema.function_body)
    elif schema.has_context_dependent_function:  # type: ignore[attr-defined]
        kinds = [
            type_to_proto(edit.types[value]).SerializeToString() if value else onnx.TypeProto().SerializeToString()
            for value in node.inputs
        ]
        proto = node_to_proto(node)
        function = onnx.FunctionProto.FromString(
            schema.get_context_dependent_function(proto.SerializeToString(), kinds)  # type: ignore[attr-defined]
        )
    else:
        return None
    function.name, function.domain = node.op, _DOMAIN
    stated = {entry.domain: entry.version for entry in function.opset_import}
    del function.opset_import[:]
    since = stated.get("", edit.opset)
    function.opset_import.append(onnx.helper.make_opsetid("", min(max(since, _LEAST), edit.opset)))
    return function


_LEAST = 13
"""The first opset of the operators that functions are written with, where a function does not say."""


def _model(edit: Edit, node: Node, function: onnx.FunctionProto) -> onnx.ModelProto:
    """One call of the function; operands and results are called by their positions, and small known ones are in the model."""
    names = tuple(f"i{k}" if value else "" for k, value in enumerate(node.inputs))
    results = tuple(f"o{k}" if value else "" for k, value in enumerate(node.outputs))
    kept = tuple((key, value) for key, value in node.attributes if not isinstance(value, Subgraph))
    call = node_to_proto(Node(node.op, names, results, kept, _DOMAIN, node.label))
    graph = onnx.GraphProto(name="body", node=[call])
    for name, value in zip(names, node.inputs, strict=True):
        constant = edit.constants.get(value) if value else None
        if constant is not None and constant.type.size <= DATA_LIMIT:
            graph.initializer.append(tensor_to_proto(constant.array, name))
        elif value:
            graph.input.append(onnx.ValueInfoProto(name=name, type=type_to_proto(edit.types[value])))
    for name, value in zip(results, node.outputs, strict=True):
        if value:
            graph.output.append(onnx.ValueInfoProto(name=name, type=type_to_proto(edit.types[value])))
    model = onnx.ModelProto(graph=graph, ir_version=10, functions=[function])
    model.opset_import.append(onnx.helper.make_opsetid("", function.opset_import[0].version))
    model.opset_import.append(onnx.helper.make_opsetid(_DOMAIN, 1))
    return model


def _spliced(edit: Edit, node: Node, body: Graph) -> Change:
    """The nodes of the body, over the node's values."""
    names = {f"i{k}": value for k, value in enumerate(node.inputs) if value}
    made = {value for inner in body.nodes for value in inner.writes}
    names |= {f"o{k}": value for k, value in enumerate(node.outputs) if value and f"o{k}" in made}
    for name, constant in body.constants.items():
        if name not in names:
            names[name] = edit.fresh(f"{node.label}/{name}")
            edit.constants[names[name]] = constant
            edit.types[names[name]] = constant.type
    for value in made:
        if value not in names:
            names[value] = edit.value(f"{node.label}/{value}", body.types[value])
    nodes = tuple(_renamed(inner, names, f"{node.label}/{inner.label}") for inner in body.nodes)
    given = {f"o{k}": value for k, value in enumerate(node.outputs) if value and f"o{k}" not in made}
    known = {value: body.constants[name] for name, value in given.items() if name in body.constants}
    return Change((node,), "written as its function", nodes, known=known)


def _renamed(node: Node, names: Mapping[str, str], label: str) -> Node:
    return replace(
        node,
        inputs=tuple(names.get(value, value) for value in node.inputs),
        outputs=tuple(names.get(value, value) for value in node.outputs),
        captured=tuple(names.get(value, value) for value in node.captured),
        name=label,
    )

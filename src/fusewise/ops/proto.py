"""Nodes, types and constants as ONNX protobuf messages, and back: the one place that knows both sides."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import onnx

from fusewise.errors import InvalidModel
from fusewise.ir.dtypes import STRING, dtype_of, dtype_of_onnx
from fusewise.ir.graph import Attribute, Constant, Node, Subgraph
from fusewise.ir.types import MapType, OptionalType, SequenceType, TensorType, ValueType

__all__ = [
    "attribute_from_proto",
    "attribute_to_proto",
    "constant_from_proto",
    "node_from_proto",
    "node_to_proto",
    "tensor_from_proto",
    "tensor_to_proto",
    "type_from_proto",
    "type_to_proto",
]


def tensor_to_proto(array: np.ndarray, name: str = "") -> onnx.TensorProto:
    """An array as a `TensorProto`; strings may be any NumPy string or object array."""
    if dtype_of(array) == STRING:
        flat = [s if isinstance(s, bytes) else str(s).encode() for s in array.reshape(-1).tolist()]
        return onnx.TensorProto(name=name, data_type=STRING.onnx, dims=array.shape, string_data=flat)
    return onnx.numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)


def tensor_from_proto(proto: onnx.TensorProto) -> np.ndarray:
    """A `TensorProto` held in memory as an array; strings become an object array of `str`.

    `InvalidModel` for one whose data lie in a file: only `frontend.external` opens what a model names.
    """
    if proto.data_location == onnx.TensorProto.EXTERNAL or proto.external_data:
        raise InvalidModel(f"tensor {proto.name!r} lies in a file, where only data in the model itself are read")
    if proto.data_type == STRING.onnx:
        flat = np.array([s.decode("utf-8", "replace") for s in proto.string_data], dtype=object)
        return flat.reshape(tuple(proto.dims))
    return onnx.numpy_helper.to_array(proto)


def constant_from_proto(proto: onnx.TensorProto) -> Constant:
    """A `TensorProto` held in memory as a constant; raises what `tensor_from_proto` does."""
    return Constant(tensor_from_proto(proto))


def type_to_proto(kind: ValueType) -> onnx.TypeProto:
    """A type as a `TypeProto`; unknown dimensions stay empty."""
    proto = onnx.TypeProto()
    if isinstance(kind, SequenceType):
        proto.sequence_type.elem_type.CopyFrom(type_to_proto(kind.element))
    elif isinstance(kind, OptionalType):
        proto.optional_type.elem_type.CopyFrom(type_to_proto(kind.element))
    elif isinstance(kind, MapType):
        proto.map_type.key_type = kind.key.onnx
        proto.map_type.value_type.CopyFrom(type_to_proto(kind.element))
    else:
        proto.tensor_type.elem_type = kind.dtype.onnx
        if kind.shape is not None:
            proto.tensor_type.shape.SetInParent()
            for dim in kind.shape:
                entry = proto.tensor_type.shape.dim.add()
                if isinstance(dim, int):
                    entry.dim_value = dim
                elif dim is not None:
                    entry.dim_param = str(dim)
    return proto


def type_from_proto(proto: onnx.TypeProto) -> ValueType | None:
    """A `TypeProto` as a type, or None when it says nothing or is of a kind we do not model (sparse tensors)."""
    which = proto.WhichOneof("value")
    if which == "tensor_type":
        tensor = proto.tensor_type
        if not tensor.elem_type:
            return None
        if not tensor.HasField("shape"):
            return TensorType(dtype_of_onnx(tensor.elem_type), None)
        dims = tuple(d.dim_value if d.HasField("dim_value") else (d.dim_param or None) for d in tensor.shape.dim)
        return TensorType(dtype_of_onnx(tensor.elem_type), dims)
    if which == "sequence_type":
        inner = type_from_proto(proto.sequence_type.elem_type)
        return None if inner is None else SequenceType(inner)
    if which == "optional_type":
        inner = type_from_proto(proto.optional_type.elem_type)
        return None if inner is None else OptionalType(inner)
    if which == "map_type" and proto.map_type.key_type:
        inner = type_from_proto(proto.map_type.value_type)
        return None if inner is None else MapType(dtype_of_onnx(proto.map_type.key_type), inner)
    return None


def attribute_to_proto(name: str, value: Attribute) -> onnx.AttributeProto:
    """One attribute. Numbers in a tuple must be all integers or all floats."""
    if isinstance(value, Constant):
        return onnx.helper.make_attribute(name, tensor_to_proto(value.array, name))
    if isinstance(value, Subgraph):
        return onnx.helper.make_attribute(name, onnx.GraphProto.FromString(value.body))
    if isinstance(value, onnx.TypeProto):
        return onnx.helper.make_attribute(name, value)
    if isinstance(value, tuple):
        if value and isinstance(value[0], Constant):
            return onnx.helper.make_attribute(name, [tensor_to_proto(v.array) for v in value])
        return onnx.helper.make_attribute(name, list(value))
    return onnx.helper.make_attribute(name, value)


def attribute_from_proto(
    proto: onnx.AttributeProto,
    captures: tuple[str, ...] = (),
    tensor: Callable[[onnx.TensorProto], Constant] = constant_from_proto,
) -> Attribute:
    """One attribute; a graph becomes a `Subgraph` that reads `captures` from outside, and `tensor` converts tensors."""
    kind = onnx.AttributeProto
    if proto.type == kind.GRAPH:
        return Subgraph(proto.g.SerializeToString(deterministic=True), captures)
    if proto.type == kind.TENSOR:
        return tensor(proto.t)
    if proto.type == kind.TENSORS:
        return tuple(tensor(t) for t in proto.tensors)
    if proto.type == kind.TYPE_PROTO:
        return bytes(proto.tp.SerializeToString(deterministic=True))
    if proto.type == kind.STRING:
        return _text(proto.s)
    if proto.type == kind.STRINGS:
        return tuple(_text(s) for s in proto.strings)
    value: Any = onnx.helper.get_attribute_value(proto)
    plain: Attribute = tuple(value) if isinstance(value, list) else value
    return plain


def _text(data: bytes) -> str | bytes:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def node_to_proto(node: Node) -> onnx.NodeProto:
    """A node as a `NodeProto`. Captured values keep the names they have inside the body."""
    proto = onnx.NodeProto(op_type=node.op, domain=node.domain, name=node.name, input=node.inputs, output=node.outputs)
    for name, value in node.attributes:
        if name == "type" and isinstance(value, bytes) and node.op == "Optional":
            proto.attribute.append(onnx.helper.make_attribute(name, onnx.TypeProto.FromString(value)))
        elif isinstance(value, tuple) and not value:
            proto.attribute.append(
                onnx.helper.make_attribute(name, [], attr_type=_kind_of_list(node.op, node.domain, name))
            )
        else:
            proto.attribute.append(attribute_to_proto(name, value))
    return proto


@cache
def _kind_of_list(op: str, domain: str, name: str) -> int:
    """The type of an attribute that is an empty list, which does not tell."""
    schemas = (
        schema for schema in onnx.defs.get_all_schemas_with_history() if (schema.name, schema.domain) == (op, domain)
    )
    kinds = {int(schema.attributes[name].type.value) for schema in schemas if name in schema.attributes}  # type: ignore[attr-defined]  # missing in onnx's stubs
    return max(kinds, default=int(onnx.AttributeProto.INTS))


def node_from_proto(proto: onnx.NodeProto) -> Node:
    """A `NodeProto` without subgraphs as a node whose origin is its own name."""
    return Node(
        op=proto.op_type,
        inputs=tuple(proto.input),
        outputs=tuple(proto.output),
        attributes=tuple(sorted((a.name, attribute_from_proto(a)) for a in proto.attribute)),
        domain="" if proto.domain == "ai.onnx" else proto.domain,
        name=proto.name,
        origin=(proto.name or next((o for o in proto.output if o), proto.op_type),),
    )

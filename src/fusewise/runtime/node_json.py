"""What only host steps need of a program as JSON: nodes and arrays of strings, as ONNX messages in base64."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import onnx

from fusewise.ir.graph import Node, Subgraph
from fusewise.ops.proto import attribute_from_proto, node_to_proto, tensor_from_proto, tensor_to_proto

__all__ = ["array_from_text", "array_to_text", "node_from_json", "node_to_json"]

Json = dict[str, Any]


def node_to_json(node: Node) -> Json:
    """The node, and which names of outside its bodies read."""
    return {
        "node": _text(node_to_proto(node).SerializeToString()),
        "origin": list(node.origin),
        "captured": list(node.captured),
        "captures": {name: list(value.captures) for name, value in node.attributes if isinstance(value, Subgraph)},
    }


def node_from_json(found: Json) -> Node:
    """The node. `KeyError`, `TypeError` or `ValueError` when `found` is not one."""
    proto = onnx.NodeProto.FromString(base64.b64decode(found["node"]))
    captures = found["captures"]
    attributes = sorted((a.name, attribute_from_proto(a, tuple(captures.get(a.name, ())))) for a in proto.attribute)
    return Node(
        proto.op_type,
        tuple(proto.input),
        tuple(proto.output),
        tuple(attributes),
        proto.domain,
        proto.name,
        tuple(found["origin"]),
        tuple(found["captured"]),
    )


def array_to_text(array: np.ndarray) -> str:
    """An array of any type, strings included."""
    return _text(tensor_to_proto(array).SerializeToString())


def array_from_text(text: str) -> np.ndarray:
    """What `array_to_text` was given."""
    return tensor_from_proto(onnx.TensorProto.FromString(base64.b64decode(text)))


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")

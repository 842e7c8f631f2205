"""What only host steps need of a program as JSON: nodes, and arrays of any type.

An integer, a float and a text stand for themselves, everything else for an object with one key that says what it is. ONNX, whose
import takes longer than all else of opening a model, has no part in it.
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from fusewise.ir.dtypes import STRING, dtype_named, dtype_of
from fusewise.ir.graph import Attribute, Constant, Node, Subgraph

__all__ = ["array_from_json", "array_to_json", "node_from_json", "node_to_json"]

Json = dict[str, Any]


def node_to_json(node: Node) -> Json:
    """The node; values of its attributes that mean nothing without ONNX stay bytes."""
    return {
        "op": node.op,
        "inputs": list(node.inputs),
        "outputs": list(node.outputs),
        "attributes": {name: _value(value) for name, value in node.attributes},
        "domain": node.domain,
        "name": node.name,
        "origin": list(node.origin),
        "captured": list(node.captured),
    }


def node_from_json(found: Json) -> Node:
    """The node. `KeyError`, `TypeError` or `ValueError` when `found` is not one."""
    return Node(
        found["op"],
        tuple(found["inputs"]),
        tuple(found["outputs"]),
        tuple((name, _value_from(value)) for name, value in sorted(found["attributes"].items())),
        found["domain"],
        found["name"],
        tuple(found["origin"]),
        tuple(found["captured"]),
    )


def array_to_json(array: np.ndarray) -> Json:
    """An array of any type, strings included."""
    kind = dtype_of(array)
    if kind == STRING:
        data: Any = [one.decode("utf-8", "replace") if isinstance(one, bytes) else str(one) for one in array.flat]
    else:
        data = _text(np.ascontiguousarray(array).tobytes())
    return {"dtype": kind.name, "shape": list(array.shape), "data": data}


def array_from_json(found: Json) -> np.ndarray:
    """What `array_to_json` was given; strings are an object array of `str`. Errors as `node_from_json`."""
    kind = dtype_named(found["dtype"])
    if kind == STRING:
        flat = np.empty(len(found["data"]), object)
        flat[:] = found["data"]
    else:
        flat = np.frombuffer(base64.b64decode(found["data"]), kind.numpy)
    return flat.reshape(tuple(found["shape"]))


def _value(value: Attribute) -> Any:
    if isinstance(value, tuple):
        return {"list": [_value(one) for one in value]}
    if isinstance(value, Constant):
        return {"array": array_to_json(value.array)}
    if isinstance(value, Subgraph):
        return {"body": _text(value.body), "captures": list(value.captures)}
    return {"bytes": _text(value)} if isinstance(value, bytes) else value


def _value_from(found: Any) -> Attribute:
    if not isinstance(found, dict):
        plain: Attribute = found
        return plain
    if "list" in found:
        return tuple(_value_from(one) for one in found["list"])
    if "array" in found:
        return Constant(array_from_json(found["array"]))
    if "body" in found:
        return Subgraph(base64.b64decode(found["body"]), tuple(found["captures"]))
    return base64.b64decode(found["bytes"])


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")

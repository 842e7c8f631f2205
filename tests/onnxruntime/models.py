"""Small models for sessions, as bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ValueInfo = onnx.ValueInfoProto


def port(name: str, *dims: Any, kind: int = TensorProto.FLOAT) -> ValueInfo:
    return helper.make_tensor_value_info(name, kind, list(dims))


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[ValueInfo],
    outputs: Sequence[ValueInfo],
    constants: dict[str, np.ndarray] | None = None,
    opset: int = 17,
) -> onnx.ModelProto:
    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in (constants or {}).items()]
    graph = helper.make_graph(nodes, "small", inputs, outputs, tensors, doc_string="a graph")
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    made.producer_name, made.domain, made.model_version, made.doc_string = "tests", "org.example", 7, "a model"
    helper.set_model_props(made, {"labels": "cat,dog,fish", "stride": "32"})
    return made


def random(shape: Sequence[int], seed: int = 0) -> np.ndarray:
    wide = max(1, int(np.prod(shape[1:])))
    return (np.random.default_rng(seed).standard_normal(shape) / wide**0.5).astype(np.float32)


def scaled(**changes: Any) -> onnx.ModelProto:
    """x: float[batch, 3]; y is three weights times x, z is max(y, 0)."""
    nodes = [helper.make_node("Mul", ["x", "w"], ["y"]), helper.make_node("Relu", ["y"], ["z"])]
    found = model(
        nodes,
        [port("x", "batch", 3)],
        [port("y", "batch", 3), port("z", "batch", 3)],
        {"w": np.array([1, 2, 3], np.float32)},
    )
    for name, value in changes.items():
        setattr(found.graph.input[0].type.tensor_type.shape.dim[0], name, value)
    return found


def one(
    op: str, inputs: Sequence[ValueInfo], outputs: Sequence[ValueInfo], opset: int = 17, **attributes: Any
) -> bytes:
    """A node that reads the inputs and writes the outputs."""
    names = [[value.name for value in values] for values in (inputs, outputs)]
    domain = attributes.pop("domain", "")
    node = helper.make_node(op, names[0], names[1], domain=domain, **attributes)
    data: bytes = model([node], inputs, outputs, opset=opset).SerializeToString()
    return data


def overridable() -> bytes:
    """y is x times w, an input with an initializer."""
    found = scaled()
    found.graph.input.append(port("w", 3))
    data: bytes = found.SerializeToString()
    return data


def classifier() -> bytes:
    """image: float[batch, 3, 32, 32]; probabilities of ten classes."""
    nodes = [
        helper.make_node("Conv", ["image", "w"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "d", "b"], ["g"]),
        helper.make_node("Softmax", ["g"], ["probabilities"]),
    ]
    constants = {"w": random((8, 3, 3, 3)) * 5, "d": random((8, 10), 1) * 9, "b": random((10,), 2)}
    found = model(nodes, [port("image", "batch", 3, 32, 32)], [port("probabilities", "batch", 10)], constants)
    data: bytes = found.SerializeToString()
    return data


def answers() -> bytes:
    """input_ids and attention_mask: int64[batch, length]; where an answer begins and ends, as scores."""
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["e"]),
        helper.make_node("MatMul", ["e", "q"], ["queries"]),
        helper.make_node("Transpose", ["e"], ["t"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["queries", "t"], ["s"]),
        helper.make_node("Cast", ["attention_mask"], ["m"], to=TensorProto.FLOAT),
        helper.make_node("Sub", ["m", "one"], ["low"]),
        helper.make_node("Mul", ["low", "never"], ["masked"]),
        helper.make_node("Unsqueeze", ["masked", "axis"], ["wide"]),
        helper.make_node("Add", ["s", "wide"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["a"]),
        helper.make_node("MatMul", ["a", "e"], ["h"]),
        helper.make_node("MatMul", ["h", "w"], ["both"]),
        helper.make_node("Split", ["both"], ["first", "last"], axis=2),
        helper.make_node("Squeeze", ["first", "ends"], ["start_logits"]),
        helper.make_node("Squeeze", ["last", "ends"], ["end_logits"]),
    ]
    constants = {
        "table": random((64, 16)) * 4,
        "q": random((16, 16), 1),
        "w": random((16, 2), 2),
        "one": np.float32(1),
        "never": np.float32(1e4),
        "axis": np.array([1]),
        "ends": np.array([2]),
    }
    inputs = [port(name, "batch", "length", kind=TensorProto.INT64) for name in ("input_ids", "attention_mask")]
    outputs = [port(name, "batch", "length") for name in ("start_logits", "end_logits")]
    data: bytes = model(nodes, inputs, outputs, constants).SerializeToString()
    return data


def detector() -> bytes:
    """images: float[1, 3, 64, 64]; output0: four numbers of a box and scores of three classes for each of 64 places."""
    nodes = [
        helper.make_node("Conv", ["images", "w"], ["c"], strides=[8, 8]),
        helper.make_node("Reshape", ["c", "flat"], ["r"]),
        helper.make_node("Split", ["r", "parts"], ["boxes", "scores"], axis=1),
        helper.make_node("Sigmoid", ["scores"], ["s"]),
        helper.make_node("Mul", ["boxes", "size"], ["b"]),
        helper.make_node("Concat", ["b", "s"], ["output0"], axis=1),
    ]
    constants = {
        "w": random((7, 3, 8, 8)) * 3,
        "flat": np.array([1, 7, 64]),
        "parts": np.array([4, 3]),
        "size": np.float32(20),
    }
    found = model(nodes, [port("images", 1, 3, 64, 64)], [port("output0", 1, 7, 64)], constants)
    data: bytes = found.SerializeToString()
    return data

"""What no output needs goes: nodes, constants, optional outputs."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from fusewise import api
from fusewise.frontend.onnx_import import load
from fusewise.passes.drop_dead import drop_dead
from fusewise.trace import Trace


def test_dead_nodes_and_what_only_they_read(rewrites: Any) -> None:
    rewrites(
        drop_dead,
        """
        input x: float32[2,3]
        constant c: float32[2,3] = #c
        a = Relu(x)
        b = Mul(a, c)
        d = Exp(b)
        y = Abs(a)
        return y
        """,
        "a = Relu(x)\ny = Abs(a)\nreturn y",
    )


def test_optional_outputs_nobody_reads(rewrites: Any) -> None:
    rewrites(
        drop_dead,
        """
        input x: float32[2,9]
        constant s: float32[9] = #s
        y, m, d = LayerNormalization(x, s)
        z, k, e = LayerNormalization(x, s)
        p, q = Split(y) {axis=1, num_outputs=2}
        return p, e
        """,
        """
        constant s = #
        y = LayerNormalization(x, s)
        z, _, e = LayerNormalization(x, s)
        p, q = Split(y) {axis=1, num_outputs=2}
        return p, e
        """,
        exact=False,  # the reference evaluator is asked about the second
    )


def test_nothing_to_do(refuses: Any, parse: Any) -> None:
    refuses(drop_dead, "input x: float32[2]\ny = Relu(x)\nreturn y")


def test_an_unread_constant_goes_without_an_event(parse: Any) -> None:
    graph = parse("input x: float32[2]\nconstant c: float32[2] = #c\ny = Relu(x)\nreturn y")
    trace = Trace()
    assert not drop_dead(graph, trace).constants
    assert not trace.events


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).uniform(0.5, 2, shape).astype(np.float32)


HEADS, PAST = (1, 2, 3, 4), (1, 2, 2, 4)
RECURRENT = {"hidden_size": 2, "direction": "bidirectional"}
ONE_HALF, TRAINING = np.array(0.5, np.float32), np.array(True)

MANY: dict[str, tuple[str, list[Any], int, dict[str, Any], int]] = {
    "Attention": ("Attention", [floats(*HEADS)] * 3, 4, {}, 23),
    "Attention with a past": ("Attention", [*[floats(*HEADS)] * 3, None, *[floats(*PAST)] * 2], 4, {}, 24),
    "LayerNormalization": ("LayerNormalization", [floats(2, 3), floats(3)], 3, {}, 17),
    "SoftmaxCrossEntropyLoss": ("SoftmaxCrossEntropyLoss", [floats(2, 3), np.array([0, 2])], 2, {}, 13),
    "LSTM": ("LSTM", [floats(3, 1, 2), floats(2, 8, 2), floats(2, 8, 2)], 3, RECURRENT, 14),
    "GRU": ("GRU", [floats(3, 1, 2), floats(2, 6, 2), floats(2, 6, 2)], 2, RECURRENT, 14),
    "RNN": ("RNN", [floats(3, 1, 2), floats(2, 2, 2), floats(2, 2, 2)], 2, RECURRENT, 14),
    "MaxPool": ("MaxPool", [floats(1, 1, 4, 4)], 2, {"kernel_shape": [2, 2]}, 12),
    "Unique": ("Unique", [np.array([2, 1, 1, 3], np.float32)], 4, {}, 11),
    "Dropout": ("Dropout", [floats(2, 3)], 2, {}, 13),
    "Dropout in training": ("Dropout", [floats(2, 3), ONE_HALF, TRAINING], 2, {"seed": 3}, 13),
    "BatchNormalization": (
        *("BatchNormalization", [floats(2, 3, 2), *[floats(3)] * 4], 3),
        *({"training_mode": 1}, 15),
    ),
    "TopK": ("TopK", [floats(2, 5), np.array([2])], 2, {}, 11),
    "DynamicQuantizeLinear": ("DynamicQuantizeLinear", [floats(2, 5)], 3, {}, 11),
    "Split": ("Split", [floats(4, 5)], 2, {"num_outputs": 2}, 18),
    "StringSplit": ("StringSplit", [np.array(["a b", "c"], object)], 2, {}, 20),
}
"""Operators with several outputs: operands, how many outputs, attributes, opset."""


def test_every_operator_with_optional_outputs_is_tried() -> None:
    optional = onnx.defs.OpSchema.FormalParameterOption.Optional
    several = {
        schema.name
        for schema in onnx.defs.get_all_schemas()
        if not schema.domain and any(formal.option == optional for formal in schema.outputs)
    }
    assert several <= {row[0] for row in MANY.values()}


@pytest.mark.parametrize("name", MANY)
def test_outputs_that_an_operator_needs_stay(name: str) -> None:
    """Whatever outputs are read, ONNX Runtime gives the same answers for the optimised graph."""
    op, operands, count, attributes, opset = MANY[name]
    feeds = {f"x{k}": value for k, value in enumerate(operands) if value is not None}
    given = [
        helper.make_tensor_value_info(x, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for x, v in feeds.items()
    ]
    reads = [f"x{k}" if f"x{k}" in feeds else "" for k in range(len(operands))]
    node = helper.make_node(op, reads, [f"y{k}" for k in range(count)], **attributes)
    for chosen in product((False, True), repeat=count):
        made = [onnx.ValueInfoProto(name=f"y{k}") for k in range(count) if chosen[k]]
        if not made:
            continue
        graph = helper.make_graph([node], "g", given, made)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
        better = api.to_onnx(api.optimize(load(model)))
        for a, b in zip(runtimes_answers(better, feeds), runtimes_answers(model, feeds), strict=True):
            np.testing.assert_array_equal(a, b) if a.dtype == object else np.testing.assert_allclose(a, b, rtol=1e-6)


def runtimes_answers(model: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any]:
    import onnxruntime

    inferred = onnx.shape_inference.infer_shapes(model)
    session = onnxruntime.InferenceSession(inferred.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, {x.name: feeds[x.name].copy() for x in session.get_inputs()}))  # it writes to them

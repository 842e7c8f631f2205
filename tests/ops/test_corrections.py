"""Loop and Optional on the host agree with ONNX Runtime where ONNX's own evaluator does not."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import fusewise

FLOAT, INT, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def loop(element: list[int], trips: bool = True, condition: bool = True) -> onnx.ModelProto:
    """Doubles x each time round and scans it: x of shape `element`, at most n times, while the sum stays below 100."""
    body = helper.make_graph(
        [
            helper.make_node("Add", ["v", "v"], ["w"]),
            helper.make_node("Identity", ["w"], ["seen"]),
            helper.make_node("ReduceSum", ["w"], ["total"], keepdims=0),
            helper.make_node("Less", ["total", "hundred"], ["on"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", INT, []),
            helper.make_tensor_value_info("c", BOOL, []),
            helper.make_tensor_value_info("v", FLOAT, element),
        ],
        [
            helper.make_tensor_value_info("on", BOOL, []),
            helper.make_tensor_value_info("w", FLOAT, element),
            helper.make_tensor_value_info("seen", FLOAT, element),
        ],
        [helper.make_tensor("hundred", FLOAT, [], [100.0])],
    )
    node = helper.make_node("Loop", ["n" if trips else "", "go" if condition else "", "x"], ["y", "scan"], body=body)
    inputs = [helper.make_tensor_value_info("x", FLOAT, element)]
    inputs += [helper.make_tensor_value_info("n", INT, [])] if trips else []
    inputs += [helper.make_tensor_value_info("go", BOOL, [])] if condition else []
    outputs = [
        helper.make_tensor_value_info("y", FLOAT, element),
        helper.make_tensor_value_info("scan", FLOAT, [None, *element]),
    ]
    graph = helper.make_graph([node], "g", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("element", [[], [3], [2, 3], [1, 2, 2]])
@pytest.mark.parametrize("trips, condition", [(3, True), (0, True), (3, False), (50, True), (None, True), (4, None)])
def test_loops_scan_as_onnx_runtime_does(element, trips, condition):
    import onnxruntime

    model = loop(element, trips is not None, condition is not None)
    feeds = {"x": np.arange(1, 1 + int(np.prod(element)), dtype=np.float32).reshape(element)}
    feeds |= {} if trips is None else {"n": np.array(trips, np.int64)}
    feeds |= {} if condition is None else {"go": np.array(condition)}
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = session.run(None, feeds)
    found = fusewise.compile(model, cache=False).run(None, feeds)
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        np.testing.assert_array_equal(a, b)


def test_an_optional_is_its_element():
    sequence = helper.make_sequence_type_proto(helper.make_tensor_type_proto(FLOAT, [2]))
    kind = helper.make_optional_type_proto(sequence)
    graph = helper.make_graph(
        [helper.make_node("SequenceConstruct", ["x", "x"], ["s"]), helper.make_node("Optional", ["s"], ["o"])],
        "g",
        [helper.make_tensor_value_info("x", FLOAT, [2])],
        [helper.make_value_info("o", kind)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    x = np.array([1, 2], np.float32)
    (found,) = fusewise.compile(model, cache=False).run(None, {"x": x})
    assert [array.tolist() for array in found] == [[1, 2], [1, 2]]

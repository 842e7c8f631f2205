"""Nodes run on their own: plain ones, functions that depend on types, and bodies that capture outer values."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from fusewise.errors import UnsupportedModel
from fusewise.ir.graph import Constant, Node, Subgraph, attributes_of
from fusewise.ops.evaluate import evaluate, evaluator

OPSET = 23


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def test_absent_operands_and_unasked_outputs() -> None:
    node = Node("Clip", ("x", "", "high"), ("y",))
    (y,) = evaluate(node, {"x": f32(-1, 2), "high": np.array(1, np.float32)}, OPSET)
    np.testing.assert_array_equal(y, f32(-1, 1))
    top = Node("TopK", ("x", "k"), ("", "indices"))
    values, indices = evaluate(top, {"x": f32(3, 1, 2), "k": np.array([2])}, OPSET)
    assert values is None
    np.testing.assert_array_equal(indices, [0, 2])


def test_the_same_value_twice() -> None:
    (y,) = evaluate(Node("Add", ("x", "x"), ("y",)), {"x": f32(1, 2)}, OPSET)
    np.testing.assert_array_equal(y, f32(2, 4))


def test_an_evaluator_serves_many_shapes() -> None:
    run = evaluator(Node("GroupNormalization", ("x", "s", "b"), ("y",), attributes_of(num_groups=1)), OPSET)
    for channels in (2, 4):
        x = np.random.default_rng(channels).normal(size=(1, channels, 3)).astype(np.float32)
        (y,) = run(x, np.ones(channels, np.float32), np.zeros(channels, np.float32))
        np.testing.assert_allclose(y, (x - x.mean()) / np.sqrt(x.var() + 1e-5), rtol=1e-5, atol=1e-6)


def body(name: str, node: onnx.NodeProto, inputs: list[onnx.ValueInfoProto], outputs: list[str]) -> bytes:
    results = [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outputs]
    return helper.make_graph([node], name, inputs, results).SerializeToString()


def test_if_with_captured_values() -> None:
    then = Subgraph(body("then", helper.make_node("Add", ["a", "b"], ["t"]), [], ["t"]), ("a", "b"))
    other = Subgraph(body("else", helper.make_node("Neg", ["a"], ["e"]), [], ["e"]), ("a",))
    # attributes are in order of name: else_branch captures first
    node = Node(
        "If",
        ("c",),
        ("y",),
        attributes_of(then_branch=then, else_branch=other),
        captured=("outer_a", "outer_a", "outer_b"),
    )
    feeds = {"outer_a": f32(1), "outer_b": f32(5)}
    assert evaluate(node, feeds | {"c": np.array(True)}, OPSET)[0] == f32(6)
    assert evaluate(node, feeds | {"c": np.array(False)}, OPSET)[0] == f32(-1)


def test_bodies_that_share_a_list_of_captures() -> None:
    then = Subgraph(body("then", helper.make_node("Sub", ["a", "b"], ["t"]), [], ["t"]), ("a", "b"))
    other = Subgraph(body("else", helper.make_node("Sub", ["b", "a"], ["e"]), [], ["e"]), ("a", "b"))
    node = Node("If", ("c",), ("y",), attributes_of(then_branch=then, else_branch=other), captured=("p", "q"))
    feeds = {"p": f32(1), "q": f32(5)}
    assert evaluate(node, feeds | {"c": np.array(True)}, OPSET)[0] == f32(-4)
    assert evaluate(node, feeds | {"c": np.array(False)}, OPSET)[0] == f32(4)


def test_sequences_are_lists() -> None:
    (found,) = evaluate(Node("SequenceConstruct", ("a", "b"), ("s",)), {"a": f32(1), "b": f32(2)}, OPSET)
    assert isinstance(found, list)
    (second,) = evaluate(Node("SequenceAt", ("s", "i"), ("y",)), {"s": found, "i": np.array(1)}, OPSET)
    np.testing.assert_array_equal(second, f32(2))


def test_tensors_without_dimensions_stay_arrays() -> None:
    (y,) = evaluate(Node("Not", ("x",), ("y",)), {"x": np.array(True)}, OPSET)
    assert isinstance(y, np.ndarray)
    assert y.shape == ()


def test_constants_in_attributes() -> None:
    node = Node("ConstantOfShape", ("s",), ("y",), attributes_of(value=Constant(np.array([3], np.int32))))
    (y,) = evaluate(node, {"s": np.array([2])}, OPSET)
    np.testing.assert_array_equal(y, np.array([3, 3], np.int32))


@pytest.mark.parametrize("domain", ["", "com.example"])
def test_an_unknown_operator_is_refused_by_name(domain: str) -> None:
    with pytest.raises(UnsupportedModel, match="NoSuchOperator"):
        evaluator(Node("NoSuchOperator", ("x",), ("y",), domain=domain), OPSET)

"""Nodes that contradict themselves: in old forms, in control flow, outside the function they belong to; each is one sentence."""

from __future__ import annotations

from typing import Any

import onnx
import pytest
from onnx import helper

from fusewise.errors import InvalidModel
from fusewise.frontend.onnx_import import load
from fusewise.ir.types import TensorType

FLOAT = onnx.TensorProto.FLOAT


def value(name: str, shape: list[int] | None, kind: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def model(opset: int, node: onnx.NodeProto, *shapes: list[int]) -> onnx.ModelProto:
    """A model of one node with operands a, b, ... of the given shapes."""
    ports = [value(name, shape) for name, shape in zip("abcdef", shapes, strict=False)]
    graph = helper.make_graph([node], "g", ports, [value(name, None) for name in node.output])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def node(op: str, inputs: str, outputs: str = "y", **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, list(inputs), list(outputs), name="here", **attributes)


@pytest.mark.parametrize(
    "opset, made, shapes, words",
    [
        (11, node("Softmax", "a", axis=2), [[2, 3]], "axis 2"),
        (13, node("Split", "a", "xyz"), [[4]], "3 equal parts"),
        (18, node("GroupNormalization", "abc", num_groups=0), [[1, 4, 2], [2], [2]], "0 groups"),
        (18, node("GroupNormalization", "abc", num_groups=3), [[1, 4, 2], [3], [3]], "3 groups"),
        (6, node("Add", "ab", broadcast=1, axis=7), [[2, 3], [3]], "axis 7"),
    ],
)
def test_old_forms_are_checked_before_they_are_rewritten(opset, made, shapes, words) -> None:
    with pytest.raises(InvalidModel, match=f"'here'.*{words}"):
        load(model(opset, made, *shapes))


def body(inputs: list[str], outputs: list[str]) -> onnx.GraphProto:
    nodes = [helper.make_node("Identity", [inputs[0] if inputs else "a"], [name]) for name in outputs]
    ends = [[value(name, [3]) for name in names] for names in (inputs, outputs)]
    return helper.make_graph(nodes, "body", *ends)


@pytest.mark.parametrize(
    "made, words",
    [
        (
            node("Scan", "aa", "yz", body=body(["s", "x"], ["t", "u"]), num_scan_inputs=1, scan_output_axes=[0, 0]),
            "scan_output_axes",
        ),
        (node("Scan", "aa", "yz", body=body(["s", "x"], ["t", "u"]), num_scan_inputs=3), "num_scan_inputs"),
        (node("Scan", "aa", "yz", body=body(["s", "x"], ["t", "u"]), num_scan_inputs=1, scan_input_axes=[5]), "axis 5"),
        (node("Scan", "ab", "yz", body=body(["x", "v"], ["t", "u"]), num_scan_inputs=2), "slices"),
    ],
)
def test_scans_are_checked(made, words) -> None:
    with pytest.raises(InvalidModel, match=f"'here'.*{words}"):
        load(model(21, made, [2, 3], [4, 3]))


def test_a_branch_has_no_inputs() -> None:
    made = helper.make_node(
        "If", ["c"], ["y"], name="here", then_branch=body(["x"], ["t"]), else_branch=body([], ["t"])
    )
    graph = helper.make_graph([made], "g", [value("c", [], onnx.TensorProto.BOOL), value("a", [3])], [value("y", None)])
    with pytest.raises(InvalidModel, match="'here'.*inputs"):
        load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=8))


def test_an_attribute_of_a_function_is_none_outside() -> None:
    made = node("Softmax", "a", axis=1)
    made.attribute[0].ref_attr_name = "other"
    with pytest.raises(InvalidModel, match="'here'.*'axis'"):
        load(model(21, made, [2, 3]))


def test_an_empty_list_of_floats_stays_one() -> None:
    made = node("RNN", "abc", "y", hidden_size=4)
    made.attribute.append(helper.make_attribute("activation_alpha", [], attr_type=onnx.AttributeProto.FLOATS))
    graph = load(model(21, made, [5, 2, 3], [1, 4, 3], [1, 4, 4]))
    kind = graph.types["y"]
    assert isinstance(kind, TensorType)
    assert kind.shape == (5, 1, 2, 4)


@pytest.mark.parametrize("asked", [[1, 2], [9, 20]])
def test_a_transposed_convolution_is_as_large_as_it_is_asked_to_be(asked: list[int]) -> None:
    kind = load(model(21, node("ConvTranspose", "ab", output_shape=asked), [1, 2, 4, 4], [2, 3, 3, 3])).types["y"]
    assert isinstance(kind, TensorType)
    assert kind.shape == (1, 3, *asked)

"""Lone batch normalisations fold into convolutions beside them, and nothing else changes."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import fusewise
from fusewise import api
from fusewise.accel.network import prepare
from fusewise.planning import Planning


class Block:
    """RepVGG blocks before they are re-parametrised, on an image of `channels`."""

    def __init__(self, channels: int) -> None:
        self.rng, self.channels = np.random.default_rng(channels), channels
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def add(self, op: str, *inputs: str, **attributes: object) -> str:
        name = f"{op}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return name

    def constant(self, *shape: int) -> str:
        self.constants.append(
            numpy_helper.from_array(self.rng.uniform(0.5, 1.5, shape).astype(np.float32), f"k{len(self.constants)}")
        )
        return self.constants[-1].name

    def conv(self, x: str, taps: int, group: int = 1, stride: int = 1, pads: int | None = None) -> str:
        weights = self.constant(self.channels, self.channels // group, taps, taps)
        around = [taps // 2 if pads is None else pads] * 4
        return self.add("Conv", x, weights, group=group, strides=[stride] * 2, pads=around)

    def norm(self, x: str) -> str:
        return self.add("BatchNormalization", x, *(self.constant(self.channels) for _ in range(4)))

    def model(self, result: str, size: int = 9) -> onnx.ModelProto:
        image = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, self.channels, size, size])
        out = helper.make_tensor_value_info(result, TensorProto.FLOAT, None)
        graph = helper.make_graph(self.nodes, "block", [image], [out], self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def answers(model: onnx.ModelProto, size: int = 9) -> np.ndarray:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    channels = session.get_inputs()[0].shape[1]
    image = np.random.default_rng(1).standard_normal((1, channels, size, size)).astype(np.float32)
    found: np.ndarray = session.run(None, {"x": image})[0]
    return found


def planned(model: onnx.ModelProto) -> Planning:
    """The plan of a model; it computes what the model does."""
    found = fusewise.plan(model, buffer="64KiB")
    expected = answers(model)
    assert np.abs(answers(found.to_onnx()) - expected).max() < 2e-5 * np.abs(expected).max()
    return found


def operators(model: onnx.ModelProto) -> list[str]:
    return [node.op for node in prepare(api.load(model)).nodes]


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from((1, 3, 5)),
    st.sampled_from((1, 2, 8)),
    st.permutations(("conv", "other", "norm", "skip")),
    st.booleans(),
)
def test_any_order_of_the_sum_folds(taps: int, group: int, order: list[str], nested: bool) -> None:
    block = Block(8)
    terms = {
        "conv": lambda: block.norm(block.conv("x", taps, group)),
        "other": lambda: block.norm(block.conv("x", 1)),
        "norm": lambda: block.norm("x"),
        "skip": lambda: block.add("Relu", "x"),
    }
    parts = [terms[name]() for name in order]
    if nested:
        total = block.add("Add", block.add("Add", parts[0], parts[1]), block.add("Add", parts[2], parts[3]))
    else:
        total = parts[0]
        for part in parts[1:]:
            total = block.add("Add", part, total)
    model = block.model(block.add("Relu", total))
    found = planned(model)
    assert sorted(operators(model)) == sorted(["Conv", "Conv", "Relu", "Add", "Add", "Relu"])
    assert not any("batch normalisation" in note for note in found.result.notes)


@pytest.mark.parametrize("beside", ["another input", "two readers", "even taps"])
def test_the_shift_folds_where_the_slope_may_not(beside: str) -> None:
    """Where no convolution of the same input is there for the sum alone, the product stays; the shift needs less."""
    block = Block(4)
    source = block.add("Relu", "x") if beside == "another input" else "x"
    conv = block.conv(source, 2, pads=0) if beside == "even taps" else block.conv(source, 3)
    if beside == "even taps":
        conv = block.add("Pad", conv, _pads(block))
    total = block.add("Add", conv, block.norm("x"))
    if beside == "two readers":
        total = block.add("Mul", total, conv)
    model = block.model(total)
    found = planned(model)
    assert "Mul" in operators(model)
    assert any("batch normalisation of BatchNormalization" in note for note in found.result.notes)
    assert operators(model).count("Add") == (1 if beside == "another input" else 2)


def _pads(block: Block) -> str:
    block.constants.append(numpy_helper.from_array(np.array([0, 0, 0, 0, 0, 0, 1, 1], np.int64), "pads"))
    return "pads"


def test_a_network_without_lone_norms_is_left_alone() -> None:
    block = Block(4)
    total = block.add("Add", block.norm(block.conv("x", 3)), "x")
    assert operators(block.model(total)) == ["Conv", "Add"]

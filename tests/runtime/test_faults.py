"""Indices that come from data: what is out of bounds is an error that names node, operand and index, and no address."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

import fusewise
from fusewise.errors import InvalidData, InvalidModel
from fusewise.ir.dtypes import dtype_named

KINDS = {np.float32: TensorProto.FLOAT, np.int64: TensorProto.INT64, np.int32: TensorProto.INT32}


def compiled(op, operands, result, opset=21, constants=(), **attributes):
    """One node, named `node`, of operands given as arrays; those in `constants` are part of the model."""
    names = [f"x{k}" for k in range(len(operands))]
    node = helper.make_node(op, names, ["y"], name="node", **attributes)
    kinds = {name: KINDS[array.dtype.type] for name, array in zip(names, operands, strict=True)}
    inputs = [
        helper.make_tensor_value_info(name, kinds[name], array.shape)
        for name, array in zip(names, operands, strict=True)
        if name not in constants
    ]
    initializers = [
        helper.make_tensor(name, kinds[name], array.shape, array.reshape(-1).tolist())
        for name, array in zip(names, operands, strict=True)
        if name in constants
    ]
    outputs = [helper.make_tensor_value_info("y", kinds[names[0]], result)]
    graph = helper.make_graph([node], "graph", inputs, outputs, initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    return fusewise.compile(model, cache=False, threads=1)


def feeds(*operands):
    return {f"x{k}": array for k, array in enumerate(operands)}


def f32(*shape):
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


CASES = {
    "Gather": (f32(5, 3), (4, 3), 4, (-5, 4), {}),
    "Gather along the last axis": (f32(3, 5), (3, 4), 4, (-5, 4), {"axis": 1}),
    "GatherElements": (f32(5, 3), (4, 3), (4, 3), (-5, 4), {}),
    "GatherND": (f32(5, 3), (4, 3), (4, 1), (-5, 4), {}),
    "ReverseSequence": (f32(5, 4), (5, 4), 4, (0, 5), {}),
}


@pytest.mark.parametrize("case", CASES)
def test_an_index_out_of_bounds_is_an_error_with_its_name_and_the_model_stays_good(case):
    data, result, shape, (low, high), attributes = CASES[case]
    good = np.full(shape, high, np.int64)
    model = compiled(case.split()[0], (data, good), result, **attributes)
    assert model.summary["host_steps"] == 0
    right = model.run(None, feeds(data, good))[0]
    for wrong in (low - 1, high + 1, 2**31, 2**62, -(2**63)):
        bad = good.copy()
        bad[-1:] = wrong
        with pytest.raises(InvalidData, match=rf"'node' .*{wrong} in its operand 'x1'.*{low} to {high}"):
            model.run(None, feeds(data, bad))
        np.testing.assert_array_equal(model.run(None, feeds(data, good))[0], right)


@cache
def table():
    return compiled("Gather", (f32(7, 2), np.arange(40)), (40, 2))


@settings(max_examples=30, deadline=None)
@given(st.integers(-(2**63), 2**63 - 1) | st.integers(-9, 9), st.integers(0, 39))
def test_any_index_is_right_or_refused(index, place):
    data, indices = f32(7, 2), np.arange(40) % 7
    indices[place] = index
    model = table()
    if -7 <= index < 7:
        np.testing.assert_array_equal(model.run(None, feeds(data, indices))[0], data[indices])
    else:
        with pytest.raises(InvalidData, match=str(index)):
            model.run(None, feeds(data, indices))


def test_indices_into_nothing():
    data, indices = f32(0, 3), np.zeros(4, np.int64)
    model = compiled("Gather", (data, indices), (4, 3))
    with pytest.raises(InvalidData, match="nothing to choose from"):
        model.run(None, feeds(data, indices))


def test_an_index_out_of_bounds_that_is_known_is_a_fault_of_the_model():
    data, index = f32(5, 3), np.array(7, np.int64)
    with pytest.raises(InvalidModel, match=r"'node' \(Gather\) finds 7.*'x1'"):
        compiled("Gather", (data, index), (3,), constants=("x1",))


def test_lanes_that_a_condition_leaves_out_report_nothing():
    nodes = [
        helper.make_node("Gather", ["x", "i"], ["g"], name="look up"),
        helper.make_node("Where", ["m", "g", "z"], ["y"]),
    ]
    n = 37
    infos = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [5]),
        helper.make_tensor_value_info("i", TensorProto.INT64, [n]),
        helper.make_tensor_value_info("m", TensorProto.BOOL, [n]),
        helper.make_tensor_value_info("z", TensorProto.FLOAT, [1]),
    ]
    graph = helper.make_graph(nodes, "graph", infos, [helper.make_tensor_value_info("y", TensorProto.FLOAT, [n])])
    model = fusewise.compile(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=9), cache=False, threads=1
    )
    given = {"x": f32(5), "i": np.arange(n) % 5, "m": np.arange(n) % 3 > 0, "z": np.zeros(1, np.float32)}
    np.testing.assert_array_equal(model.run(None, given)[0], np.where(given["m"], given["x"][given["i"]], 0))
    bad = {**given, "i": np.where(np.arange(n) == 36, 9, given["i"])}
    assert not bad["m"][36]
    found = model.run(None, bad)[0]
    np.testing.assert_array_equal(found, np.where(bad["m"], bad["x"][bad["i"] % 5], 0))
    with pytest.raises(InvalidData, match="look up"):
        model.run(None, {**given, "i": np.where(np.arange(n) == 35, 9, given["i"])})


HOST = {
    "ScatterND": ((f32(5, 3), np.array([[1], [5]]), f32(2, 3)), "5"),
    "ScatterElements": ((f32(5, 3), np.array([[1, 2, -6]]), f32(1, 3)), "-6"),
    "NegativeLogLikelihoodLoss": ((f32(4, 3), np.array([0, 1, 2, 3])), "3"),
}


@pytest.mark.parametrize("op", HOST)
def test_host_steps_refuse_the_same(op):
    operands, wrong = HOST[op]
    model = compiled(op, operands, () if "Loss" in op else operands[0].shape)
    with pytest.raises(InvalidData, match=rf"'node'.*{wrong} in its operand 'x1'"):
        model.run(None, feeds(*operands))


def test_what_lies_above_four_bits_is_no_part_of_an_index():
    """The range of a narrow type is taken for granted, so nothing but its bits may be read."""
    nodes = [
        helper.make_node("Cast", ["i"], ["j"], to=TensorProto.INT64),
        helper.make_node("Gather", ["x", "j"], ["y"]),
    ]
    index = helper.make_tensor_value_info("i", TensorProto.UINT4, [256])
    data = helper.make_tensor_value_info("x", TensorProto.FLOAT, [16])
    graph = helper.make_graph(nodes, "graph", [index, data], [helper.make_tensor_value_info("y", 1, [256])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    given = np.arange(256, dtype=np.uint8)
    found = fusewise.compile(model, cache=False).run(None, {"i": given.view(dtype_named("uint4").numpy), "x": f32(16)})
    np.testing.assert_array_equal(found[0], given & 15)

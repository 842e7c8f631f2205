"""Numbers that change their type: rounding to a limited integer, and to bfloat16."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import fusewise
from fusewise.ir.dtypes import BFLOAT16


def quantising(zero: np.ndarray, again: bool, count: int) -> onnx.ModelProto:
    """x -> QuantizeLinear with a scale of 1, and `again` -> DequantizeLinear -> Mul by 1.5."""
    nodes = [helper.make_node("QuantizeLinear", ["x", "one", "zero"], ["q"])]
    if again:
        nodes += [
            helper.make_node("DequantizeLinear", ["q", "one", "zero"], ["d"]),
            helper.make_node("Mul", ["d", "factor"], ["y"]),
        ]
    kind = TensorProto.FLOAT if again else helper.np_dtype_to_tensor_dtype(zero.dtype)
    graph = helper.make_graph(
        nodes,
        "quantising",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (count,))],
        [helper.make_tensor_value_info("y" if again else "q", kind, None)],
        [
            numpy_helper.from_array(np.array(1, np.float32), "one"),
            numpy_helper.from_array(zero, "zero"),
            numpy_helper.from_array(np.array(1.5, np.float32), "factor"),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize("again", [False, True], ids=["once", "and back"])
@pytest.mark.parametrize("zero", [0, 113, -128, 30000], ids=str)
def test_rounded_to_the_nearest_even_number_that_there_is(zero: int, again: bool) -> None:
    kind = np.uint8 if 0 <= zero < 256 else np.int8 if zero < 0 else np.int16
    low, high = np.iinfo(kind).min, np.iinfo(kind).max
    halves = np.concatenate([np.arange(-300, 300) + 0.5, [low - zero - 0.5, high - zero + 0.5, high - zero - 0.5]])
    near = np.concatenate([np.nextafter(halves, side, dtype=np.float32) for side in (-np.inf, np.inf)])
    far = [0, -0.0, 1e9, -1e9, 3e9, -3e9, 3e38, -3e38, np.inf, -np.inf, np.nan]
    x = np.concatenate([halves, near, far]).astype(np.float32)
    with np.errstate(invalid="ignore"):
        limited = np.clip(np.rint(x).astype(np.float64) + zero, low, high)
    expected = np.where(np.isnan(x), low, limited)
    (found,) = fusewise.compile(quantising(np.array(zero, kind), again, len(x))).run(None, {"x": x})
    np.testing.assert_array_equal(found, (expected - zero) * 1.5 if again else expected)


def rounding(nodes: list[onnx.NodeProto], x: np.ndarray) -> np.ndarray:
    """What nodes make of float32 `x`, as bfloat16 `y`."""
    graph = helper.make_graph(
        nodes,
        "rounding",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.BFLOAT16, x.shape)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    (found,) = fusewise.compile(model).run(None, {"x": x})
    return np.asarray(found)


def of_all_sizes() -> np.ndarray:
    """float32 of every exponent, on both sides of what lies between two of bfloat16; infinities and NaN."""
    ends = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF, 0x18000, 0x7FFFFF], np.uint32)
    every = (np.arange(512, dtype=np.uint32)[:, None] << 23 | ends).reshape(-1)
    return every.view(np.float32)


def test_a_cast_to_bfloat16_keeps_subnormal_numbers() -> None:
    x = of_all_sizes()
    found = rounding([helper.make_node("Cast", ["x"], ["y"], to=TensorProto.BFLOAT16)], x)
    with np.errstate(invalid="ignore"):
        expected = x.astype(BFLOAT16.numpy)
    same = found.view(np.uint16) == expected.view(np.uint16)
    assert np.all(same | (np.isnan(expected.astype(np.float32)) & np.isnan(found.astype(np.float32))))


def test_computed_numbers_are_rounded_to_the_nearest_bfloat16() -> None:
    nodes = [
        helper.make_node("Neg", ["x"], ["n"]),
        helper.make_node("Cast", ["n"], ["y"], to=TensorProto.BFLOAT16),
    ]
    x = of_all_sizes()
    with np.errstate(invalid="ignore"):
        found, expected = rounding(nodes, x), (-x).astype(BFLOAT16.numpy)
    same = found.view(np.uint16) == expected.view(np.uint16)
    is_flushed = (np.abs(x) < np.finfo(np.float32).smallest_normal) & (found == 0)
    assert np.all(same | is_flushed | (np.isnan(x) & np.isnan(found.astype(np.float32))))

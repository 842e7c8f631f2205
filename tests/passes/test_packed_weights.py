"""Quantised weights stay as they are stored where products alone read them, and are folded where others do."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import fusewise
from fusewise.ir.graph import Graph
from fusewise.passes.packed_weights import packed_weights
from fusewise.trace import Trace

N, K, BLOCK = 264, 512, 32
RNG = np.random.default_rng(11)


def model(
    *nodes: onnx.NodeProto, axis: int = 1, block: int = BLOCK, shape: tuple[int, int] = (N, K), rows: int = 3
) -> onnx.ModelProto:
    """`d` are dequantised weights of four bits, with scales for blocks of an axis, or for each place of it without a block."""
    scales = [shape[axis]] if not block else [-(-n // block) if k == axis else n for k, n in enumerate(shape)]
    constants = [
        helper.make_tensor("w", TensorProto.INT4, shape, RNG.integers(-8, 8, shape).reshape(-1)),
        numpy_helper.from_array(RNG.uniform(0.01, 0.1, scales).astype(np.float32), "s"),
    ]
    given = {"axis": axis, **({"block_size": block} if block else {})}
    dequantized = helper.make_node("DequantizeLinear", ["w", "s"], ["d"], **given)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (rows, K))
    results = [onnx.ValueInfoProto(name=name) for name in nodes[-1].output]
    graph = helper.make_graph([dequantized, *nodes], "g", [x], results, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def kernels(of: onnx.ModelProto, **settings: object) -> tuple[list[str], np.ndarray]:
    """The kernels of products, and the answer."""
    trace, x = Trace(), np.random.default_rng(2).standard_normal((3, K)).astype(np.float32)
    found = fusewise.compile(of, trace=trace, cache=False, **settings).run(None, {"x": x})[0]
    return [event.what for event in trace.events if event.kind == "kernel"], found


TURNED = helper.make_node("Transpose", ["d"], ["t"], perm=[1, 0])
PRODUCT = helper.make_node("MatMul", ["x", "t"], ["y"])


@pytest.mark.parametrize("block", [0, BLOCK])
def test_products_take_them_as_they_are_stored(block: int) -> None:
    turned = model(TURNED, PRODUCT, axis=1 if block else 0, block=block)
    gemm = model(helper.make_node("Gemm", ["x", "d"], ["y"], transB=1), axis=1 if block else 0, block=block)
    plain = helper.make_node("MatMul", ["x", "d"], ["y"])
    for one in (turned, gemm, model(plain, axis=0 if block else 1, block=block, shape=(K, N))):
        graph = fusewise.load(one)
        assert isinstance(graph, Graph) and packed_weights(graph) == {"d"}
        names, found = kernels(one)
        assert names == ["quantised-product"]
        other = kernels(one, disable=("fold_constants", "quantised-product"))[1]
        np.testing.assert_allclose(found, other, rtol=1e-4, atol=1e-4)


def test_what_others_read_is_folded() -> None:
    shared = model(TURNED, PRODUCT, helper.make_node("ReduceSum", ["d"], ["sum"]))
    assert not packed_weights(fusewise.load(shared))
    along = model(TURNED, PRODUCT, axis=1, block=0)
    assert not packed_weights(fusewise.load(along))
    assert "quantised-product" not in kernels(along)[0]


def test_they_stay_packed_in_a_shorter_precision() -> None:
    one = model(TURNED, PRODUCT)
    names, found = kernels(one, precision="bfloat16")
    assert "quantised-product" in names
    wanted = kernels(one)[1]
    assert np.abs(found - wanted).max() <= 1e-2 * np.abs(wanted).max()


@pytest.mark.parametrize("turned", [False, True])
def test_weights_that_several_products_read_stay_as_they_are_for_each(turned: bool) -> None:
    again = helper.make_node("Relu", ["x"], ["r"]), helper.make_node("MatMul", ["r", "t" if turned else "e"], ["z"])
    between = [] if turned else [helper.make_node("Transpose", ["d"], ["e"], perm=[1, 0])]
    shared = model(TURNED, PRODUCT, *between, *again, helper.make_node("Add", ["y", "z"], ["sum"]))
    names, found = kernels(shared)
    assert [name for name in names if name != "any-nest"] == ["quantised-product"] * 2
    other = kernels(shared, disable=("fold_constants", "quantised-product"))[1]
    np.testing.assert_allclose(found, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("fusion", ["none", "patterns", "published"])
def test_no_planner_makes_floats_of_them_in_every_run(fusion: str) -> None:
    again = helper.make_node("Relu", ["y"], ["r"]), helper.make_node("Mul", ["r", "r"], ["z"])
    one = model(TURNED, PRODUCT, *again)
    names, found = kernels(one, fusion=fusion)
    assert names[0] == "quantised-product" and len(names) == {"none": 3, "patterns": 1, "published": 1}[fusion]
    np.testing.assert_allclose(found, kernels(one)[1], rtol=1e-6, atol=1e-6)

"""Weights of one scale run by the kernel that dequantises them in registers, however their product turns them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import fusewise

RNG = np.random.default_rng(3)


@pytest.mark.parametrize("shape", [(), (1,)])
@pytest.mark.parametrize("product", ["MatMul", "Transpose", "Gemm"])
@pytest.mark.parametrize("zero", [None, 9])
def test_one_scale(shape: tuple[int, ...], product: str, zero: int | None) -> None:
    w = RNG.integers(0, 256, (128, 256) if product == "MatMul" else (256, 128)).astype(np.uint8)
    numbers = {"s": np.full(shape, 0.03, np.float32)} | ({} if zero is None else {"z": np.full(shape, zero, np.uint8)})
    nodes = [helper.make_node("DequantizeLinear", ["w", *numbers], ["d"])]
    if product == "Gemm":
        nodes.append(helper.make_node("Gemm", ["x", "d"], ["y"], transB=1))
    else:
        nodes += [helper.make_node("Transpose", ["d"], ["t"])] if product == "Transpose" else []
        nodes.append(helper.make_node("MatMul", ["x", nodes[-1].output[0]], ["y"]))
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [64, 128])],
        [onnx.ValueInfoProto(name="y")],
        [numpy_helper.from_array(array, name) for name, array in {"w": w, **numbers}.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    compiled = fusewise.compile(model, cache=False)
    x = RNG.standard_normal((64, 128)).astype(np.float32)
    exact = (w.astype(np.float64) - (zero or 0)) * np.float32(0.03)
    (found,) = compiled.run(["y"], {"x": x})
    np.testing.assert_allclose(found, x @ (exact if product == "MatMul" else exact.T), rtol=1e-4, atol=1e-3)
    kernels = {event.what for event in compiled.trace if event.kind == "kernel" and event.applied}
    assert kernels == {"quantised-product"}

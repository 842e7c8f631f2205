"""How much memory it takes to compile weights that stay packed, beside the file they are in."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tests.frontend.domains.one_node import Case

import fusewise
from fusewise.ir.graph import LazyConstant

RNG = np.random.default_rng(3)
N, K, BLOCK = 4096, 4096, 64
MOST = 2.1
"""Times the file."""


def qdq(kind: int, bits: int) -> onnx.ModelProto:
    stored = RNG.integers(0, 256, N * K * bits // 8, dtype=np.uint8)
    scales = RNG.uniform(0.01, 0.1, (K // BLOCK, N)).astype(np.float32)
    constants = [
        helper.make_tensor("w", kind, (K, N), stored.tobytes(), raw=True),
        helper.make_tensor("s", TensorProto.FLOAT, scales.shape, scales.tobytes(), raw=True),
    ]
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["d"], axis=0, block_size=BLOCK),
        helper.make_node("MatMul", ["x0", "d"], ["y"]),
    ]
    ports = [helper.make_tensor_value_info(name, 1, [1, n]) for name, n in (("x0", K), ("y", N))]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def microsoft(op: str) -> onnx.ModelProto:
    x = np.zeros((1, K), np.float32)
    if op == "MatMulFpQ4":
        blob = RNG.integers(0, 256, (N, K // 32, 20), dtype=np.uint8)
        blob[..., 3] = 60  # scales that are neither infinite nor no numbers
        return Case(op, (x, blob.reshape(-1), np.array([K, N])), {"blk_quant_type": 0}, constant=(1, 2)).model()
    given, scales = {"N": N, "K": K, "block_size": BLOCK}, RNG.uniform(0.01, 0.1, (N, K // BLOCK)).astype(np.float32)
    if op == "MatMulBnb4":
        packed, scales, given = (
            RNG.integers(0, 256, N * K // 2, dtype=np.uint8),
            scales.reshape(-1),
            {**given, "quant_type": 1},
        )
    else:
        packed, given = RNG.integers(0, 256, (N, K // BLOCK, BLOCK // 2), dtype=np.uint8), {**given, "bits": 4}
    return Case(op, (x, packed, scales), given, constant=(1, 2)).model()


MODELS = {
    "int4": lambda: qdq(TensorProto.INT4, 4),
    "int8": lambda: qdq(TensorProto.INT8, 8),
    **{op: lambda op=op: microsoft(op) for op in ("MatMulNBits", "MatMulBnb4", "MatMulFpQ4")},
}


@pytest.mark.parametrize("name", MODELS)
def test_a_file_is_packed_some_rows_at_a_time(name: str, tmp_path: Path) -> None:
    onnx.save(MODELS[name](), tmp_path / "model.onnx")
    size = (tmp_path / "model.onnx").stat().st_size
    graph = fusewise.load(tmp_path / "model.onnx")
    for constant in graph.constants.values():
        if isinstance(constant, LazyConstant) and constant.type.rank:
            apart = constant.rows(1, 3)  # before the whole is there
            np.testing.assert_array_equal(apart.view(np.uint8), constant.array[1:3].view(np.uint8))
            constant.forget()
    del graph, constant, apart
    fusewise.compile(tmp_path / "model.onnx", cache=False)  # what is loaded once
    tracemalloc.start()
    try:
        model = fusewise.compile(tmp_path / "model.onnx", cache=False)
        after, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= MOST * size and after <= 1.15 * model.summary["constant_bytes"] + (1 << 20)

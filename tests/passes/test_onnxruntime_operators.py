"""Graphs written for ONNX Runtime: it computes the same by its own operators, and they are read again as what they were."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import fusewise
from fusewise.benchmarking.accuracy import relative_error
from fusewise.errors import UsageError

RNG = np.random.default_rng(0)
node = helper.make_node


def model(nodes: list[onnx.NodeProto], outputs: tuple[str, ...] = ("y",), **constants: Any) -> onnx.ModelProto:
    """Nodes that read x [batch, sequence, 16] and constants: arrays, or shapes to fill."""
    arrays = {
        name: RNG.standard_normal(value).astype(np.float32) if isinstance(value, tuple) else np.float32(value)
        for name, value in constants.items()
    }
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", "sequence", 16])
    ends = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in outputs]
    stored = [numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items()]
    graph = helper.make_graph(nodes, "g", [x], ends, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)


CASES = {
    "Gelu": model([node("Gelu", ["x"], ["y"])]),
    "FastGelu": model([node("Gelu", ["x"], ["y"], approximate="tanh")]),
    "BiasGelu": model([node("Add", ["b", "x"], ["s"]), node("Gelu", ["s"], ["y"])], b=(16,)),
    "QuickGelu": model(
        [node("Mul", ["x", "k"], ["a"]), node("Sigmoid", ["a"], ["s"]), node("Mul", ["s", "x"], ["y"])], k=1.702
    ),
    "SkipLayerNormalization": model(
        [
            *(node("MatMul", ["x", "w"], ["m"]), node("Add", ["m", "x"], ["s"])),
            node("LayerNormalization", ["s", "g", "h"], ["y"], epsilon=1e-3),
        ],
        w=(16, 16),
        g=(16,),
        h=(16,),
    ),
    "SkipSimplifiedLayerNormalization": model(
        [
            *(node("MatMul", ["x", "w"], ["m"]), node("Add", ["m", "x"], ["s"])),
            *(node("RMSNormalization", ["s", "g"], ["n"]), node("MatMul", ["n", "v"], ["p"])),
            node("Add", ["s", "p"], ["y"]),
        ],
        w=(16, 16),
        v=(16, 16),
        g=(16,),
    ),
    "SimplifiedLayerNormalization": model([node("RMSNormalization", ["x", "g"], ["y"])], g=(16,)),
    "FusedMatMul": model(
        [
            *(node("Transpose", ["x"], ["t"], perm=[0, 2, 1]), node("MatMul", ["x", "t"], ["m"])),
            node("Mul", ["k", "m"], ["y"]),
        ],
        k=0.25,
    ),
}


def answers(made: onnx.ModelProto, x: np.ndarray) -> list[np.ndarray]:
    import onnxruntime

    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    found: list[np.ndarray] = session.run(None, {"x": x})
    return found


@pytest.mark.parametrize("op", CASES)
def test_both_directions(op: str) -> None:
    graph = fusewise.optimize(CASES[op])
    written = fusewise.to_onnx(graph, target="onnxruntime")
    own = [one.op_type for one in written.graph.node if one.domain or one.op_type == "SimplifiedLayerNormalization"]
    assert own == [op]
    x = RNG.standard_normal((2, 5, 16)).astype(np.float32)
    wanted = answers(CASES[op], x)
    for found, expected in zip(answers(written, x), wanted, strict=True):
        assert relative_error(found, expected) < 1e-5
    again = fusewise.optimize(written)
    assert sorted(one.op for one in again.nodes) == sorted(one.op for one in graph.nodes)
    assert not any(one.domain for one in again.nodes)


def test_what_others_read_stays() -> None:
    made = model(
        [
            *(
                node("Add", ["x", "b"], ["s"]),
                node("Gelu", ["s"], ["y"]),
                node("Transpose", ["x"], ["t"], perm=[0, 2, 1]),
            ),
            node("MatMul", ["x", "t"], ["m"]),
        ],
        ("y", "s", "t", "m"),
        b=(16,),
    )
    written = fusewise.to_onnx(fusewise.optimize(made), target="onnxruntime")
    assert [one.op_type for one in written.graph.node if one.domain] == ["Gelu"]


def test_only_where_it_is_asked_for() -> None:
    assert not any(one.domain for one in fusewise.to_onnx(fusewise.optimize(CASES["BiasGelu"])).graph.node)
    with pytest.raises(UsageError, match="no target 'tensorrt'"):
        fusewise.to_onnx(fusewise.optimize(CASES["Gelu"]), target="tensorrt")

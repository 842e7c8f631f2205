"""Files as ONNX Runtime's quantiser writes them, and as its optimiser leaves them: all of them run natively, and agree."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnxruntime import GraphOptimizationLevel, InferenceSession, SessionOptions
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static

import fusewise

RNG = np.random.default_rng(5)
Nodes = list[tuple[str, list[str], str, dict[str, Any]]]


def model(nodes: Nodes, weights: dict[str, np.ndarray], shape: tuple[int, ...]) -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node(op, inputs, [output], name=output, **given) for op, inputs, output, given in nodes],
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return onnx.shape_inference.infer_shapes(made, strict_mode=True, data_prop=True)


def normal(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) / np.sqrt(max(1, np.prod(shape[1:])))).astype(np.float32)


def convolutions() -> onnx.ModelProto:
    """Two branches that are added and multiplied, pooling, Concat, a fully connected layer."""
    nodes: Nodes = [
        ("Conv", ["x", "w0", "b0"], "c0", {"pads": [1, 1, 1, 1]}),
        ("Relu", ["c0"], "r0", {}),
        ("Conv", ["r0", "w1", "b1"], "c1", {"pads": [1, 1, 1, 1], "group": 16}),
        ("LeakyRelu", ["c1"], "l1", {"alpha": 0.2}),
        ("Add", ["l1", "r0"], "a1", {}),
        ("Sigmoid", ["a1"], "s1", {}),
        ("Mul", ["s1", "r0"], "m1", {}),
        ("Concat", ["m1", "l1"], "k1", {"axis": 1}),
        ("AveragePool", ["k1"], "p1", {"kernel_shape": [2, 2], "strides": [2, 2]}),
        ("GlobalAveragePool", ["p1"], "g1", {}),
        ("Flatten", ["g1"], "f1", {}),
        ("Gemm", ["f1", "w2", "b2"], "y", {"transB": 1}),
    ]
    weights = {"w0": normal(16, 3, 3, 3), "b0": normal(16), "w1": normal(16, 1, 3, 3), "b1": normal(16)}
    return model(nodes, {**weights, "w2": normal(10, 32), "b2": normal(10)}, (1, 3, 12, 12))


def attention() -> onnx.ModelProto:
    """A head of attention between projections, a residual, and LayerNormalization."""
    nodes: Nodes = [
        *(("MatMul", ["x", f"w{k}"], k, {}) for k in "qkv"),
        ("Transpose", ["k"], "kt", {"perm": [0, 2, 1]}),
        ("MatMul", ["q", "kt"], "s", {}),
        ("Mul", ["s", "f"], "sf", {}),
        ("Softmax", ["sf"], "p", {"axis": -1}),
        ("MatMul", ["p", "v"], "o", {}),
        ("MatMul", ["o", "wo"], "ow", {}),
        ("Add", ["ow", "bo"], "ob", {}),
        ("Add", ["ob", "x"], "r", {}),
        ("LayerNormalization", ["r", "g", "bg"], "y", {"axis": -1}),
    ]
    weights = {f"w{k}": normal(32, 32) * 3 for k in "qkvo"}
    return model(
        nodes, {**weights, "f": np.array(0.2, np.float32), **{k: normal(32) for k in ("bo", "g", "bg")}}, (2, 12, 32)
    )


class Samples(CalibrationDataReader):  # type: ignore[misc]
    """Random inputs that ranges are taken from."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._left: Iterator[np.ndarray] = iter(np.random.default_rng(1).standard_normal((3, *shape)))

    def get_next(self) -> dict[str, np.ndarray] | None:
        found = next(self._left, None)
        return None if found is None else {"x": found.astype(np.float32)}


def answer(path: Path, x: np.ndarray, level: GraphOptimizationLevel, kept: Path | None = None) -> np.ndarray:
    options = SessionOptions()
    options.graph_optimization_level, options.log_severity_level, options.intra_op_num_threads = level, 4, 1
    if kept is not None:
        options.optimized_model_filepath = str(kept)
    return np.asarray(InferenceSession(str(path), options, ["CPUExecutionProvider"]).run(["y"], {"x": x})[0])


def check(path: Path, x: np.ndarray, tolerance: float) -> None:
    """The file as it is and as ONNX Runtime's extended optimisation leaves it, natively: within a tolerance, by the largest number
    of the answer, or as far from ONNX Runtime as its own levels are from each other."""
    better = path.with_name("better.onnx")
    wanted = [
        answer(path, x, GraphOptimizationLevel.ORT_DISABLE_ALL),
        answer(path, x, GraphOptimizationLevel.ORT_ENABLE_EXTENDED, better),
    ]
    between = float(np.abs(wanted[0] - wanted[1]).max())
    for file, expected in zip((path, better), wanted, strict=True):
        (found,) = fusewise.compile(file, strict=True, cache=False).run(["y"], {"x": x})
        assert np.abs(found - expected).max() <= max(tolerance * np.abs(expected).max(), 1.01 * between)


KINDS = {"u": QuantType.QUInt8, "s": QuantType.QInt8}


@pytest.mark.parametrize("build", [convolutions, attention])
@pytest.mark.parametrize("layout, kinds, columns", [("QOperator", "us", 1), ("QDQ", "uu", 0), ("QDQ", "ss", 1)])
def test_ranges_that_are_known(tmp_path: Path, build: Any, layout: str, kinds: str, columns: int) -> None:
    made, path = build(), tmp_path / "quantised.onnx"
    shape = tuple(dim.dim_value for dim in made.graph.input[0].type.tensor_type.shape.dim)
    quantize_static(
        made,
        path,
        Samples(shape),
        quant_format=QuantFormat[layout],
        activation_type=KINDS[kinds[0]],
        weight_type=KINDS[kinds[1]],
        per_channel=bool(columns),
        extra_options={"ActivationSymmetric": kinds == "ss"},
    )
    check(path, np.random.default_rng(2).standard_normal(shape).astype(np.float32), 2e-2)


@pytest.mark.parametrize("kind, columns", [("u", 0), ("s", 1)])
@pytest.mark.parametrize("build", [convolutions, attention])
def test_ranges_that_data_decides(tmp_path: Path, build: Any, kind: str, columns: int) -> None:
    made, path = build(), tmp_path / "quantised.onnx"
    shape = tuple(dim.dim_value for dim in made.graph.input[0].type.tensor_type.shape.dim)
    quantize_dynamic(made, path, weight_type=KINDS[kind], per_channel=bool(columns))
    check(path, np.random.default_rng(2).standard_normal(shape).astype(np.float32), 2e-2)


def test_products_stay_products_of_integers(tmp_path: Path) -> None:
    """Of a quantised transformer nothing multiplies floats, whatever its format."""
    path = tmp_path / "quantised.onnx"
    for layout in (QuantFormat.QOperator, QuantFormat.QDQ):
        quantize_static(attention(), path, Samples((2, 12, 32)), quant_format=layout)
        trace = fusewise.compile(path, cache=False).trace
        kernels = {event.what for event in trace if event.kind == "kernel" and event.applied}
        assert kernels & {"byte-product", "integer-product"} and not kernels & {"product", "quantised-product"}, kernels

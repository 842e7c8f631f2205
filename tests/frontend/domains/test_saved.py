"""Files that ONNX Runtime saves after its own optimisation: basic, extended, and in the layout of one processor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from tests.frontend.domains.one_node import expected, model_of

import fusewise
from fusewise.benchmarking.accuracy import relative_error
from fusewise.errors import UnsupportedModel
from fusewise.frontend.onnx_import import load

RNG = np.random.default_rng(0)


def weights(**shapes: tuple[int, ...]) -> list[onnx.TensorProto]:
    return [numpy_helper.from_array(RNG.standard_normal(s).astype(np.float32) / 3, name) for name, s in shapes.items()]


def model(nodes: list[onnx.NodeProto], shape: list[Any], **constants: tuple[int, ...]) -> onnx.ModelProto:
    x, y = (helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s) for n, s in (("x", shape), ("y", None)))
    return model_of(helper.make_graph(nodes, "g", [x], [y], weights(**constants)))


def convolutions() -> onnx.ModelProto:
    """A residual block, then a product with an activation."""
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w1", "b1"], ["c1"], pads=[1, 1, 1, 1]),
        node("Relu", ["c1"], ["r1"]),
        node("Conv", ["r1", "w2", "b2"], ["c2"], pads=[1, 1, 1, 1]),
        node("Add", ["c2", "x"], ["s"]),
        node("LeakyRelu", ["s"], ["l"], alpha=0.1),
        node("GlobalAveragePool", ["l"], ["p"]),
        node("Flatten", ["p"], ["f"]),
        node("Gemm", ["f", "w3", "b3"], ["m"], transB=1),
        node("Relu", ["m"], ["y"]),
    ]
    shapes = {"w1": (16, 16, 3, 3), "b1": (16,), "w2": (16, 16, 3, 3), "b2": (16,), "w3": (5, 16), "b3": (5,)}
    return model(nodes, ["batch", 16, 12, 12], **shapes)


def layer() -> onnx.ModelProto:
    """What a transformer does after attention: a sum, a normalisation, and a product with a bias and an exact Gelu."""
    node = helper.make_node
    nodes = [
        node("MatMul", ["x", "w"], ["m"]),
        node("Add", ["m", "b"], ["mb"]),
        node("Add", ["mb", "x"], ["s"]),
        node("LayerNormalization", ["s", "g", "h"], ["n"], axis=-1),
        node("MatMul", ["n", "v"], ["k"]),
        node("Add", ["k", "c"], ["kc"]),
        node("Div", ["kc", "root"], ["d"]),
        node("Erf", ["d"], ["e"]),
        node("Add", ["e", "one"], ["e1"]),
        node("Mul", ["kc", "e1"], ["q"]),
        node("Mul", ["q", "half"], ["y"]),
    ]
    made = model(nodes, ["batch", "sequence", 16], w=(16, 16), b=(16,), g=(16,), h=(16,), v=(16, 32), c=(32,))
    numbers = {"root": np.sqrt(2), "one": 1, "half": 0.5}
    made.graph.initializer.extend(numpy_helper.from_array(np.float32(v), name) for name, v in numbers.items())
    return made


def saved(made: onnx.ModelProto, level: str, path: Path) -> onnx.ModelProto:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_ENABLE_{level}")
    options.optimized_model_filepath = str(path)
    options.log_severity_level = 4
    onnxruntime.InferenceSession(made.SerializeToString(), options, ["CPUExecutionProvider"])
    return onnx.load(path)


@pytest.mark.parametrize("level", ["BASIC", "EXTENDED"])
@pytest.mark.parametrize(
    "made, shape, fused",
    [
        (convolutions, (2, 16, 12, 12), {"FusedConv", "FusedGemm"}),
        (layer, (2, 5, 16), {"SkipLayerNormalization", "BiasGelu"}),
    ],
)
def test_saved_models(made: Any, shape: tuple[int, ...], fused: set[str], level: str, tmp_path: Path) -> None:
    plain = made()
    found = saved(plain, level, tmp_path / "saved.onnx")
    operators = {node.op_type for node in found.graph.node if node.domain == "com.microsoft"}
    assert operators == (fused if level == "EXTENDED" else set())
    feeds = {"x": RNG.standard_normal(shape).astype(np.float32)}
    (answer,) = fusewise.compile(found, cache=False, strict=True).run(["y"], feeds)
    assert relative_error(answer, expected(plain, feeds)[0]) < 1e-5


def test_the_layout_of_one_processor_is_refused(tmp_path: Path) -> None:
    found = saved(convolutions(), "ALL", tmp_path / "saved.onnx")
    with pytest.raises(UnsupportedModel, match=r"com\.microsoft\.nchwc\.Conv .*save it with ORT_ENABLE_EXTENDED"):
        load(found)

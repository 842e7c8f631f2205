"""Files of years ago, one family after another: compiled without host steps, they give ONNX Runtime's answers.

Three kinds: what PyTorch's older exporter still writes at opsets 7 to 12; whole architectures of the zoo written down by
hand in the old way; and one small network that has every operator whose attributes became operands.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.frontend.exports import export
from tests.old_style import written_at

from fusewise import api
from fusewise.passes.drop_dead import drop_dead
from fusewise.passes.fold_constants import fold_constants
from fusewise.passes.pipeline import run
from fusewise.zoo.catalogue import MODELS, build
from fusewise.zoo.scaled import scaled

onnxruntime = pytest.importorskip("onnxruntime")

TOLERANCE = 1e-5
"""Largest difference over largest magnitude, float32 (both sides reassociate)."""

EXPORTED = (
    *(("resnet", opset) for opset in (7, 8, 9, 10, 11)),
    *(("mobilenet_v2", opset) for opset in (7, 10)),
    *(("efficientnet", opset) for opset in (7, 9)),
    *((name, opset) for name in ("vit", "bert", "gpt2", "convnext") for opset in (9, 11)),
    ("distilbert", 10),
    ("segformer", 11),
)
"""Architecture of the `transformers` package, and an opset the exporter can write it at."""

BY_HAND = (
    ("resnet18", 7),
    ("mobilenet_v2", 7),
    ("mobilenet_v3_small", 10),
    ("efficientnet_b0", 8),
    ("unet", 7),
    ("yolo", 8),
    ("convnext_tiny", 9),
    ("vit_b_16", 9),
    ("tinybert", 9),
    ("distilbert", 11),
    ("gpt", 10),
    ("deeplabv3_mobilenet_v3_large", 11),
)
"""Architecture of the zoo, or a small one of a kind that is large there, and the oldest opset that has all its operators, or one
with a form of its own."""


def compare(what: str, model: onnx.ModelProto | Path, feeds: dict[str, np.ndarray]) -> None:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3  # weights among the inputs are what such files have
    data = model if isinstance(model, Path) else model.SerializeToString()
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    feeds = {port.name: feeds[port.name] for port in session.get_inputs() if port.name in feeds}
    expected = session.run(None, feeds)
    del session
    compiled = api.compile(model, cache=False, strict=True)
    assert compiled.summary["host_steps"] == 0
    assert [port.name for port in compiled.get_inputs()] == list(feeds)
    for port, found, wanted in zip(compiled.get_outputs(), compiled.run(None, feeds), expected, strict=True):
        error = np.abs(found.astype(np.float64) - wanted).max() / np.abs(wanted).max()
        print(f"{what} {port.name}: relative error {error:.1e}")
        assert found.shape == wanted.shape and found.dtype == wanted.dtype
        assert wanted.std() > 1e-3 * np.abs(wanted).max()  # there is something to compare
        assert error <= TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize("name, opset", EXPORTED)
def test_what_the_older_exporter_writes(name: str, opset: int, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    path = tmp_path / "model.onnx"
    feeds = export(name, False, path, opset=opset)
    assert onnx.load(path).opset_import[0].version == opset
    compare(f"{name} at opset {opset}", path, feeds)


@pytest.mark.slow
@pytest.mark.parametrize("name, opset", BY_HAND)
def test_whole_architectures_written_the_old_way(name: str, opset: int) -> None:
    # sizes that are computed at run time could not be written as the attributes they were
    is_small = name not in {row.name for row in MODELS}
    graph = (scaled if is_small else build)(name, decomposed=True)
    graph = run(graph, (fold_constants, drop_dead))
    rng = np.random.default_rng(0)
    feeds = {
        value: rng.standard_normal(graph.tensor(value).dims, dtype=np.float32)
        if graph.tensor(value).dtype.is_float
        else rng.integers(0, 2 if "mask" in value or "type" in value else 90, graph.tensor(value).dims)
        for value in graph.inputs
    }
    compare(f"{name} at opset {opset}", written_at(graph, opset), feeds)


def upsampling(opset: int, mode: str, source: str, target: str) -> tuple[onnx.NodeProto, dict[str, np.ndarray]]:
    """Twice the height and width, in the words of `opset`."""
    scales = np.array([1, 1, 2, 2], np.float32)
    if opset < 9:
        return helper.make_node("Upsample", [source], [target], mode=mode, scales=scales.tolist()), {}
    op = "Upsample" if opset == 9 else "Resize"
    return helper.make_node(op, [source, "scales"], [target], mode=mode), {"scales": scales}


def little_segmenter(opset: int, mode: str) -> onnx.ModelProto:
    """A pad, a convolution block, a step down and up, a skip, a pooled gate and a softmax over channels and pixels."""
    rng = np.random.default_rng(1)

    def normal(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)

    weights = {
        "w1": normal(8, 3, 3, 3),
        "scale": rng.uniform(0.5, 1.5, 8).astype(np.float32),
        "shift": normal(8, 1).ravel(),
        "mean": 0.1 * normal(8, 1).ravel(),
        "variance": rng.uniform(0.5, 1.5, 8).astype(np.float32),
        "w2": normal(16, 8, 3, 3),
        "slope": np.full((16, 1, 1), 0.2, np.float32),
        "w3": normal(4, 24, 1, 1),
        "gates": normal(24, 24),
        "no_bias": np.zeros(24, np.float32),
    }
    up, more = upsampling(opset, mode, "low", "large")
    weights |= more
    spatial = {"spatial": 1} if opset < 9 else {}
    cut: dict[str, list[int]] = {"starts": [0, 0], "ends": [-1, -1], "axes": [2, 3]}
    if opset < 10:
        crop = helper.make_node("Slice", ["large"], ["cropped"], **cut)
    else:
        weights |= {name: np.array(value, np.int64) for name, value in cut.items()}
        crop = helper.make_node("Slice", ["large", *cut], ["cropped"])
    nodes = [
        helper.make_node("Pad", ["x"], ["padded"], mode="reflect", pads=[0, 0, 1, 1, 0, 0, 0, 0]),
        helper.make_node("Conv", ["padded", "w1"], ["c1"], kernel_shape=[3, 3]),
        helper.make_node("BatchNormalization", ["c1", "scale", "shift", "mean", "variance"], ["n1"], **spatial),
        helper.make_node("Clip", ["n1"], ["skip"], min=0.0, max=6.0),
        helper.make_node("Pad", ["skip"], ["even"], pads=[0, 0, 0, 0, 0, 0, 1, 1], value=0.5),
        helper.make_node("MaxPool", ["even"], ["half"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["half", "w2"], ["c2"], kernel_shape=[3, 3], auto_pad="SAME_UPPER"),
        helper.make_node("PRelu", ["c2", "slope"], ["kept"]),
        helper.make_node("Dropout", ["kept"], ["low", "unused"], ratio=0.5),
        up,
        crop,
        helper.make_node("Concat", ["skip", "cropped"], ["both"], axis=1),
        helper.make_node("ReduceMean", ["both"], ["pooled"], axes=[2, 3], keepdims=1),
        helper.make_node("Squeeze", ["pooled"], ["vector"], axes=[2, 3]),
        helper.make_node("Gemm", ["vector", "gates", "no_bias"], ["mixed"], transB=1),
        helper.make_node("HardSigmoid", ["mixed"], ["gate"], alpha=0.25, beta=0.5),
        helper.make_node("Unsqueeze", ["gate"], ["spread"], axes=[2, 3]),
        helper.make_node("Mul", ["both", "spread"], ["gated"]),
        helper.make_node("Conv", ["gated", "w3"], ["classes"]),
        helper.make_node("Softmax", ["classes"], ["share"]),
        helper.make_node("Split", ["classes"], ["first", "rest"], axis=1, split=[1, 3]),
        helper.make_node("LogSoftmax", ["rest"], ["log_share"], axis=2),
        helper.make_node("ReduceSum", ["first"], ["total"], axes=[3], keepdims=0),
    ]
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(
        nodes,
        "segmenter",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 16, 20]),
            *(helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in tensors),
        ],
        [
            helper.make_tensor_value_info("share", TensorProto.FLOAT, [2, 4, 15, 19]),
            helper.make_tensor_value_info("log_share", TensorProto.FLOAT, [2, 3, 15, 19]),
            helper.make_tensor_value_info("total", TensorProto.FLOAT, [2, 1, 15]),
        ],
        tensors,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=3)
    onnx.checker.check_model(model, full_check=True)
    return model


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("opset", [7, 8, 9, 10])
def test_a_network_with_every_operator_that_was_different(opset: int, mode: str) -> None:
    x = np.random.default_rng(2).standard_normal((2, 3, 16, 20), dtype=np.float32)
    compare(f"segmenter at opset {opset}, {mode}", little_segmenter(opset, mode), {"x": x})

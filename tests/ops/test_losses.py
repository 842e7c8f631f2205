"""Losses of classifiers, natively, against NumPy in float64; classes that there are not are an error while running."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

import fusewise
from fusewise.errors import InvalidData
from fusewise.ops.corrected_losses import negative_log_likelihood


def model(op: str, feeds: dict[str, np.ndarray], outputs: int, **attributes: object) -> onnx.ModelProto:
    ports = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feeds.items()
    ]
    writes = [f"y{k}" for k in range(outputs)]
    kind = ports[0].type.tensor_type.elem_type
    results = [helper.make_tensor_value_info(name, kind, None) for name in writes]
    graph = helper.make_graph([helper.make_node(op, list(feeds), writes, **attributes)], "loss", ports, results)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize(
    "op, outputs", [("NegativeLogLikelihoodLoss", 1), ("SoftmaxCrossEntropyLoss", 1), ("SoftmaxCrossEntropyLoss", 2)]
)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_every_reduction_weight_and_rank(op: str, outputs: int, data: st.DataObject) -> None:
    draw = data.draw
    samples, classes, *more = (
        draw(st.integers(1, 4)),
        draw(st.integers(1, 6)),
        *draw(st.lists(st.integers(1, 4), max_size=3)),
    )
    dtype, most = draw(st.sampled_from(((np.float32, 1e-6), (np.float64, 1e-13), (np.float16, 2e-3))))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    ignored = draw(st.sampled_from((None, -100, 0, classes)))
    targets = rng.integers(0, classes, (samples, *more)).astype(draw(st.sampled_from((np.int32, np.int64))))
    if ignored is not None:
        targets[rng.uniform(size=targets.shape) < 0.3] = ignored
        targets.reshape(-1)[0] = classes - 1 if ignored != classes - 1 else targets.reshape(-1)[0]
    feeds = {"scores": rng.standard_normal((samples, classes, *more)).astype(dtype), "targets": targets}
    if draw(st.booleans()):
        feeds["weights"] = rng.uniform(0.5, 2, classes).astype(dtype)
    reduction = draw(st.sampled_from(("none", "sum", "mean")))
    attributes = {"reduction": reduction} | ({} if ignored is None else {"ignore_index": ignored})
    found = fusewise.compile(model(op, feeds, outputs, **attributes), threads=1, strict=True).run(None, feeds)
    wide = {name: array.astype(np.float64) if array.dtype.kind == "f" else array for name, array in feeds.items()}
    scores = wide["scores"]
    if op == "SoftmaxCrossEntropyLoss":
        scores = scores - np.log(np.exp(scores).sum(1, keepdims=True))
    with np.errstate(all="ignore"):
        loss = negative_log_likelihood(scores, targets, wide.get("weights"), ignored, reduction)
        terms = np.abs(negative_log_likelihood(scores, targets, wide.get("weights"), ignored, "none"))
        weight = negative_log_likelihood(np.full_like(scores, -1.0), targets, wide.get("weights"), ignored, "sum")
        # a sum of terms that cancel is as exact as they are large, not as it is
        summed = np.nan_to_num(terms.sum() / (weight if reduction == "mean" else 1.0))
    for y, expected, least in zip(found, (loss, scores), (0.0 if reduction == "none" else summed, 0.0), strict=False):
        assert y.dtype == dtype and y.shape == expected.shape
        scale = max(1.0, float(least), float(np.abs(np.nan_to_num(expected)).max(initial=0)))
        np.testing.assert_allclose(y, expected, rtol=0, atol=most * scale)


@pytest.mark.parametrize("target", [-1, 3])
@pytest.mark.parametrize("op", ["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"])
def test_a_class_that_there_is_not(op: str, target: int) -> None:
    feeds = {"scores": np.zeros((2, 3), np.float32), "targets": np.array([0, target])}
    with pytest.raises(InvalidData, match=f"finds {target} in its operand .targets., where only 0 to 2 are allowed"):
        fusewise.compile(model(op, feeds, 1), threads=1).run(None, feeds)

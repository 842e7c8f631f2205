"""RoiAlign and NonMaxSuppression, as host steps run them, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx.helper import (
    make_graph,
    make_model,
    make_node,
    make_opsetid,
    make_tensor_value_info,
    np_dtype_to_tensor_dtype,
)

from fusewise.ir.graph import Node, attributes_of
from fusewise.ops import rois
from fusewise.ops.evaluate import evaluate

onnxruntime = pytest.importorskip("onnxruntime")
OPSET = 21


def both(op: str, feeds: dict[str, np.ndarray], **attributes: Any) -> tuple[np.ndarray, np.ndarray]:
    """The one output of an operator: ours, ONNX Runtime's."""
    node = make_node(op, list(feeds), ["y"], **attributes)
    inputs = [make_tensor_value_info(k, np_dtype_to_tensor_dtype(v.dtype), v.shape) for k, v in feeds.items()]
    kind = onnx.TensorProto.INT64 if op == "NonMaxSuppression" else onnx.TensorProto.FLOAT
    graph = make_graph([node], "one", inputs, [make_tensor_value_info("y", kind, None)])
    model = make_model(graph, opset_imports=[make_opsetid("", OPSET)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    ours = evaluate(Node(op, tuple(feeds), ("y",), attributes_of(**attributes)), feeds, OPSET)[0]
    return ours, session.run(None, feeds)[0]


def some_boxes(rng: np.random.Generator, count: int, side: float) -> np.ndarray:
    begin = rng.uniform(-0.2 * side, side, (count, 2))
    return np.concatenate((begin, begin + rng.uniform(0, side / 2, (count, 2))), axis=1).astype(np.float32)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(0, 6),
    ratio=st.integers(0, 3),
    size=st.tuples(st.integers(1, 7), st.integers(1, 7)),
    scale=st.sampled_from((1.0, 0.5, 0.25)),
    mode=st.sampled_from(("half_pixel", "output_half_pixel")),
    pooling=st.sampled_from(("avg", "max")),
)
def test_roi_align(
    seed: int, count: int, ratio: int, size: tuple[int, int], scale: float, mode: str, pooling: str
) -> None:
    rng = np.random.default_rng(seed)
    feeds = {
        "x": rng.standard_normal((2, 3, 9, 12), dtype=np.float32),
        "boxes": some_boxes(rng, count, 12 / scale),
        "images": rng.integers(0, 2, count),
    }
    attributes = {
        "output_height": size[0],
        "output_width": size[1],
        "sampling_ratio": ratio,
        "spatial_scale": scale,
        "coordinate_transformation_mode": mode,
        "mode": pooling,
    }
    ours, theirs = both("RoiAlign", feeds, **attributes)
    assert ours.dtype == np.float32
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)


def test_a_box_without_extent_reads_one_place() -> None:
    feeds = {
        "x": np.arange(30, dtype=np.float32).reshape(1, 1, 5, 6),
        "boxes": np.array([[2, 2, 2, 2], [0, 0, 0, 0], [50, 50, 60, 60]], np.float32),
        "images": np.zeros(3, np.int64),
    }
    attributes = {"output_height": 2, "output_width": 2, "sampling_ratio": 2}
    ours, theirs = both("RoiAlign", feeds, coordinate_transformation_mode="output_half_pixel", **attributes)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6)
    assert not ours[2].any()


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(0, 40),
    most=st.sampled_from((0, 1, 5, 2**63 - 1)),
    overlap=st.sampled_from((0.0, 0.3, 0.5, 1.0)),
    least=st.none() | st.sampled_from((0.0, 0.4)),
    centred=st.booleans(),
)
def test_non_max_suppression(
    seed: int, count: int, most: int, overlap: float, least: float | None, centred: bool
) -> None:
    rng = np.random.default_rng(seed)
    feeds = {
        "boxes": np.stack([some_boxes(rng, count, 20.0) for _ in range(2)]),
        # few different scores, so that equal ones occur
        "scores": (rng.integers(0, 12, (2, 3, count)) / 12).astype(np.float32),
        "most": np.array([most]),
        "overlap": np.array([overlap], np.float32),
    }
    if least is not None:
        feeds["least"] = np.array([least], np.float32)
    ours, theirs = both("NonMaxSuppression", feeds, center_point_box=int(centred))
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("side", [3.0, 300.0], ids=["many overlap", "few overlap"])
@pytest.mark.parametrize("most", [1, 7])
def test_the_best_boxes_are_looked_at_first(side: float, most: int) -> None:
    """With boxes that nearly all overlap the best ones are not enough, and all the others are looked at."""
    rng = np.random.default_rng(most)
    feeds = {
        "boxes": some_boxes(rng, 400, side)[None],
        "scores": (rng.integers(0, 40, (1, 2, 400)) / 40).astype(np.float32),
        "most": np.array([most]),
        "overlap": np.array([0.05], np.float32),
    }
    ours, theirs = both("NonMaxSuppression", feeds, center_point_box=0)
    np.testing.assert_array_equal(ours, theirs)


@given(st.lists(st.floats(width=32) | st.sampled_from((0.0, -0.0, 1.0, -1.0)), max_size=40))
def test_the_order_of_floats_is_stable(values: list[float]) -> None:
    array = np.array(values, np.float32)
    np.testing.assert_array_equal(rois._ascending(array), np.argsort(array, kind="stable"))

"""RoiAlign natively, where shapes are known: ONNX Runtime's answers, whatever the boxes are."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import helper

import fusewise
from fusewise.errors import InvalidData

RELAXED = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def model(feeds: dict[str, np.ndarray], **attributes: Any) -> onnx.ModelProto:
    ports = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feeds.items()
    ]
    kind = ports[0].type.tensor_type.elem_type
    node = helper.make_node("RoiAlign", list(feeds), ["y"], **attributes)
    graph = helper.make_graph([node], "one", ports, [helper.make_tensor_value_info("y", kind, None)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=8)


def some(seed: int, images: int, channels: int, boxes: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    begin = rng.uniform(-8, 24, (boxes, 2))
    corners = np.concatenate((begin, begin + rng.uniform(-2, 16, (boxes, 2))), axis=1).astype(np.float32)
    x = rng.standard_normal((images, channels, 9, 12), dtype=np.float32)
    return {"x": x, "boxes": corners, "images": rng.integers(0, images, boxes)}


def by_onnx_runtime(made: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, feeds)[0])


@RELAXED
@given(
    seed=st.integers(0, 999),
    images=st.integers(1, 2),
    channels=st.sampled_from([1, 3, 16, 21]),
    mode=st.sampled_from(["avg", "max"]),
    half=st.booleans(),
    ratio=st.integers(1, 3),
    size=st.tuples(st.integers(1, 7), st.integers(1, 7)),
)
def test_boxes_as_onnx_runtime(
    seed: int, images: int, channels: int, mode: str, half: bool, ratio: int, size: tuple[int, int]
) -> None:
    feeds = some(seed, images, channels, 5)
    made = model(
        feeds,
        mode=mode,
        sampling_ratio=ratio,
        output_height=size[0],
        output_width=size[1],
        spatial_scale=0.5,
        coordinate_transformation_mode="half_pixel" if half else "output_half_pixel",
    )
    compiled = fusewise.compile(made, threads=1, sanitize=True)
    assert compiled.summary["host_steps"] == 0
    np.testing.assert_allclose(compiled.run(None, feeds)[0], by_onnx_runtime(made, feeds), atol=2e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_boxes_far_away_and_none_at_all(dtype: str) -> None:
    feeds = some(3, 1, 4, 6)
    feeds["boxes"][:] = [
        [np.nan, 0, 4, 4],
        [0, 0, np.inf, 4],
        [-np.inf, -np.inf, np.inf, np.inf],
        [1e30, 1e30, 2e30, 2e30],
        [-3e38, 0, 3e38, 4],
        [4, 4, 0, 0],
    ]
    feeds = {name: array.astype(dtype) if array.dtype == np.float32 else array for name, array in feeds.items()}
    made = model(feeds, sampling_ratio=2, output_height=2, output_width=2)
    compiled = fusewise.compile(made, threads=1, sanitize=True)
    found = compiled.run(None, feeds)[0]
    assert compiled.summary["host_steps"] == 0
    assert np.isfinite(found).all()
    np.testing.assert_array_equal(found[[0, 3]][0, :, :, 0], 0)


@pytest.mark.parametrize("channels", [4, 32])
@pytest.mark.parametrize("wrong", [-1, 2])
def test_an_image_that_is_not_there(channels: int, wrong: int) -> None:
    """Found in a box that reads nothing, too."""
    feeds = some(0, 2, channels, 3)
    made = model(feeds, sampling_ratio=2, output_height=2, output_width=2)
    compiled = fusewise.compile(made, threads=1)
    feeds["images"][1], feeds["boxes"][1] = wrong, [900, 900, 901, 901]
    with pytest.raises(InvalidData, match=rf"RoiAlign\) finds {wrong} in its operand 'images', where only 0 to 1"):
        compiled.run(None, feeds)

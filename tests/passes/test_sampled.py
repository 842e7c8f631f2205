"""Deformable convolutions and affine grids as products: ONNX Runtime's answers, and one sum written out for what it has not."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import helper

import fusewise
from fusewise.ops.grids import affine_grid, deform_conv

RELAXED = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

Feeds = dict[str, np.ndarray]


def model(feeds: Feeds, weight: np.ndarray, bias: np.ndarray | None, attributes: dict[str, Any]) -> onnx.ModelProto:
    kind = helper.np_dtype_to_tensor_dtype(weight.dtype)
    ports = [helper.make_tensor_value_info(name, kind, array.shape) for name, array in feeds.items()]
    given = ["x", "w", "offset", "b" if bias is not None else "", "mask" if "mask" in feeds else ""]
    while not given[-1]:
        given.pop()
    constants = [onnx.numpy_helper.from_array(weight, "w")]
    constants += [] if bias is None else [onnx.numpy_helper.from_array(bias, "b")]
    node = helper.make_node("DeformConv", given, ["y"], **attributes)
    graph = helper.make_graph([node], "one", ports, [helper.make_tensor_value_info("y", kind, None)], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


def ours(made: onnx.ModelProto, feeds: Feeds, **options: Any) -> np.ndarray:
    compiled = fusewise.compile(made, threads=1, **options)
    assert compiled.summary["host_steps"] == 0
    return np.asarray(compiled.run(None, feeds)[0])


def written_out(feeds: Feeds, weight: np.ndarray, attributes: dict[str, Any]) -> np.ndarray:
    """One group, no bias: every element by itself."""
    image, offset, mask = feeds["x"], feeds["offset"].astype(float), feeds.get("mask")
    kernel, out = weight.shape[2:], offset.shape[2:]
    rank, found = len(kernel), np.zeros((len(image), len(weight), *out))
    taps = list(np.ndindex(*kernel))
    for n, place in itertools.product(range(len(image)), np.ndindex(*out)):
        for t, tap in enumerate(taps):
            base = np.array(place) * attributes["strides"] + np.array(tap) * attributes["dilations"]
            at = base - attributes["pads"][:rank] + offset[(n, slice(t * rank, (t + 1) * rank), *place)]
            if not (np.isfinite(at).all() and (np.abs(at) < 1e6).all()):
                continue
            low = np.floor(at).astype(int)
            for corner in itertools.product((0, 1), repeat=rank):
                where = low + corner
                if ((where < 0) | (where >= image.shape[2:])).any():
                    continue
                share = math.prod(1 - abs(a - w) for a, w in zip(at, where, strict=True))
                share *= 1.0 if mask is None else mask[(n, t, *place)]
                found[(n, slice(None), *place)] += (
                    weight[(slice(None), slice(None), *tap)] @ image[(n, slice(None), *where)] * share
                )
    return found


@st.composite
def cases(draw: st.DrawFn, ranks: list[int]) -> tuple[Feeds, np.ndarray, np.ndarray | None, dict[str, Any]]:
    rank = draw(st.sampled_from(ranks))
    groups, moved = (draw(st.sampled_from([1, 2])) for _ in range(2))
    extents = [draw(st.integers(3, 7)) for _ in range(rank)]
    kernel = [draw(st.integers(1, 3)) for _ in range(rank)]
    strides, dilations = ([draw(st.integers(1, 2)) for _ in range(rank)] for _ in range(2))
    pads = [draw(st.integers(2, 3)) for _ in range(2 * rank)]
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    out = [(e + pads[k] + pads[rank + k] - spans[k]) // strides[k] + 1 for k, e in enumerate(extents)]
    rng, n, taps = np.random.default_rng(draw(st.integers(0, 999))), draw(st.integers(1, 2)), math.prod(kernel)
    feeds = {
        "x": rng.standard_normal((n, 4, *extents), dtype=np.float32),
        "offset": (rng.standard_normal((n, moved * taps * rank, *out)) * draw(st.sampled_from([0, 1.5, 40]))).astype(
            np.float32
        ),
    }
    if draw(st.booleans()):
        feeds["mask"] = rng.random((n, moved * taps, *out), dtype=np.float32)
    weight = rng.standard_normal((6, 4 // groups, *kernel), dtype=np.float32)
    bias = rng.standard_normal(6, dtype=np.float32) if draw(st.booleans()) else None
    attributes = {
        "strides": strides,
        "dilations": dilations,
        "pads": pads,
        "group": groups,
        "offset_group": moved,
        "kernel_shape": kernel,
    }
    return feeds, weight, bias, attributes


@RELAXED
@given(case=cases([2]))
def test_images_as_onnx_runtime(case: tuple[Feeds, np.ndarray, np.ndarray | None, dict[str, Any]]) -> None:
    feeds, weight, bias, attributes = case
    made = model(feeds, weight, bias, attributes)
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = session.run(None, feeds)[0]
    scale = max(np.abs(expected).max(), 1)
    np.testing.assert_allclose(ours(made, feeds), expected, atol=2e-5 * scale)
    host = deform_conv(
        feeds["x"], weight, feeds["offset"], bias, feeds.get("mask"), lambda name, default: attributes[name]
    )
    np.testing.assert_allclose(host, expected, atol=2e-5 * scale)


@RELAXED
@given(case=cases([1, 2, 3]), seed=st.integers(0, 999))
def test_offsets_far_outside_and_none_at_all(
    case: tuple[Feeds, np.ndarray, np.ndarray | None, dict[str, Any]], seed: int
) -> None:
    """In any number of axes; every load and store is looked at."""
    feeds, weight, bias, attributes = case
    rng = np.random.default_rng(seed)
    odd = np.array([np.nan, np.inf, -np.inf, 3e38, -3e38, 1e10, -7], np.float32)
    shape = feeds["offset"].shape
    feeds = {**feeds, "offset": np.where(rng.random(shape) < 0.1, rng.choice(odd, shape), feeds["offset"])}
    found = ours(model(feeds, weight, bias, attributes), feeds, sanitize=True)
    expected = deform_conv(
        feeds["x"], weight, feeds["offset"], bias, feeds.get("mask"), lambda name, default: attributes[name]
    )
    np.testing.assert_allclose(found, expected, atol=2e-5 * max(np.abs(expected).max(), 1))
    if attributes["group"] == attributes["offset_group"] == 1 and bias is None:
        alone = written_out(feeds, weight, attributes)
        np.testing.assert_allclose(found, alone, atol=2e-5 * max(np.abs(alone).max(), 1))


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_other_floats(dtype: str) -> None:
    rng = np.random.default_rng(0)
    feeds = {
        "x": rng.standard_normal((1, 2, 5, 5)).astype(dtype),
        "offset": rng.standard_normal((1, 8, 4, 4)).astype(dtype),
    }
    weight = rng.standard_normal((3, 2, 2, 2)).astype(dtype)
    expected = written_out(
        {name: array.astype(float) for name, array in feeds.items()},
        weight.astype(float),
        {"strides": [1, 1], "dilations": [1, 1], "pads": [0] * 4},
    )
    found = ours(model(feeds, weight, None, {}), feeds)
    assert found.dtype == dtype
    np.testing.assert_allclose(found.astype(float), expected, atol=2e-2 if dtype == "float16" else 1e-12)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize("extents", [(5, 7), (1, 4), (2, 3, 4)])
def test_affine_grids(dtype: str, corners: int, extents: tuple[int, ...]) -> None:
    rank, size = len(extents), np.array([2, 3, *extents])
    theta = np.random.default_rng(0).standard_normal((2, rank, rank + 1)).astype(dtype)
    port = helper.make_tensor_value_info("theta", helper.np_dtype_to_tensor_dtype(theta.dtype), theta.shape)
    node = helper.make_node("AffineGrid", ["theta", "size"], ["y"], align_corners=corners)
    made = helper.make_tensor_value_info("y", port.type.tensor_type.elem_type, None)
    graph = helper.make_graph([node], "one", [port], [made], [onnx.numpy_helper.from_array(size, "size")])
    found = ours(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), {"theta": theta})
    assert found.dtype == dtype
    tolerance = {"float16": 2e-3, "float32": 1e-6, "float64": 1e-14}[dtype]
    expected = affine_grid(theta.astype(np.float64), size.tolist(), bool(corners))
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=tolerance, atol=tolerance)

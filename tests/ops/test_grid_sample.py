"""GridSample and AffineGrid by definition: what `ops.grids` says of any image and any grid, far positions and none included."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

import fusewise
from fusewise.ops.grid_sample import GRIDS
from fusewise.ops.grids import affine_grid, grid_sample
from fusewise.ops.interpret import interpret
from fusewise.ops.sampling import call_of_sample
from fusewise.ops.spec import OpSpec, Sample

ROWS = {row.name: row for row in GRIDS}
ODD = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 3e9, 1, -1, 0, 1e-20, 1.0000001, -7, 7], np.float32)


def defined(spec: OpSpec, arrays: tuple[np.ndarray, ...], attributes: dict[str, Any]) -> np.ndarray:
    call, _ = call_of_sample(spec, Sample(arrays, attributes), np.random.default_rng(0))
    found: np.ndarray = interpret(spec, call, arrays, 0)
    return found


@settings(max_examples=60, deadline=None)
@given(
    extents=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    mode=st.sampled_from(["linear", "nearest", "cubic"]),
    padding=st.sampled_from(["zeros", "border", "reflection"]),
    corners=st.integers(0, 1),
    dtypes=st.tuples(*[st.sampled_from(["float16", "float32", "float64"])] * 2),
    seed=st.integers(0, 2**32 - 1),
)
def test_grid_sample(
    extents: list[int], mode: str, padding: str, corners: int, dtypes: tuple[str, str], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    image = rng.standard_normal((2, 3, *extents)).astype(dtypes[0])
    shape = (2, *(3,) * len(extents), len(extents))
    with np.errstate(over="ignore"):
        grid = np.where(rng.random(shape) < 0.3, rng.choice(ODD, shape), rng.uniform(-2, 2, shape)).astype(dtypes[1])
    attributes = {"mode": mode, "padding_mode": padding, "align_corners": corners}
    found = defined(ROWS["GridSample"], (image, grid), attributes)
    expected = grid_sample(image, grid, mode, padding, bool(corners))
    tolerance = 2e-3 if "float16" in dtypes else 1e-5
    np.testing.assert_allclose(found.astype(float), expected.astype(float), rtol=tolerance, atol=tolerance)


@settings(max_examples=20, deadline=None)
@given(
    extents=st.lists(st.integers(1, 5), min_size=2, max_size=3),
    corners=st.integers(0, 1),
    seed=st.integers(0, 2**32 - 1),
)
def test_affine_grid(extents: list[int], corners: int, seed: int) -> None:
    theta = np.random.default_rng(seed).standard_normal((2, len(extents), len(extents) + 1)).astype(np.float32)
    size = np.array([2, 3, *extents])
    found = defined(ROWS["AffineGrid"], (theta, size), {"align_corners": corners})
    np.testing.assert_allclose(found, affine_grid(theta, size.tolist(), bool(corners)), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("extents", [(4, 5), (2, 3, 4)])
def test_every_load_of_native_code_is_inside(dtype: str, extents: tuple[int, ...]) -> None:
    """All modes and paddings in one model, with positions near, far and none at all."""
    rng, rank = np.random.default_rng(0), len(extents)
    image, shape = rng.standard_normal((2, 17, *extents)).astype(dtype), (2, *(6,) * rank, rank)
    grid = np.where(rng.random(shape) < 0.3, rng.choice(ODD, shape), rng.uniform(-2, 2, shape)).astype(dtype)
    modes = ("linear", "nearest", "cubic") if rank == 2 else ("linear", "nearest")
    options = [(*pair, k % 2) for k, pair in enumerate(itertools.product(modes, ("zeros", "border", "reflection")))]
    kind = helper.np_dtype_to_tensor_dtype(image.dtype)
    ports = [helper.make_tensor_value_info(name, kind, array.shape) for name, array in (("x", image), ("g", grid))]
    nodes = [
        helper.make_node("GridSample", ["x", "g"], [f"y{k}"], mode=mode, padding_mode=padding, align_corners=corners)
        for k, (mode, padding, corners) in enumerate(options)
    ]
    outputs = [helper.make_tensor_value_info(f"y{k}", kind, None) for k in range(len(options))]
    graph = helper.make_graph(nodes, "all", ports, outputs)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    compiled = fusewise.compile(made, threads=1, sanitize=True, strict=True, cache=False)
    tolerance = 1e-5 if dtype == "float32" else 1e-12
    for found, option in zip(compiled.run(None, {"x": image, "g": grid}), options, strict=True):
        expected = grid_sample(image, grid, option[0], option[1], bool(option[2]))
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance, err_msg=str(option))

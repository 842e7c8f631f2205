"""GridSample and AffineGrid by definition: what `ops.grids` says of any image and any grid, far positions and none included."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

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

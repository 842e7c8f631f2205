"""Reads at positions from data, by vectors of channels: what `ops.grids` says, in every layout, with every option."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.codegen.families.test_operators import last, operand, stored
from tests.codegen.ways import refusal, way

from fusewise.codegen.families.sampled.kernel import SAMPLED
from fusewise.codegen.target import TARGETS
from fusewise.ir.dtypes import dtype_named
from fusewise.ir.graph import attributes_of
from fusewise.ir.types import TensorType
from fusewise.lower.task import ACC, Anchor, RefusalReason, Store, Task
from fusewise.ops.expr import binary, index, load
from fusewise.ops.grids import grid_sample

RELAXED = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

Shape = tuple[int, ...]
Case = tuple[Shape, Shape, dict[str, Any]]

MODES = {1: ("nearest", "linear", "cubic"), 2: ("nearest", "linear", "cubic"), 3: ("nearest", "linear")}


def sampled(case: Case, orders: tuple[bool, bool], fused: bool, dtype: str = "float32") -> Task:
    """GridSample with image and result channels last or not; when `fused`, of twice the image, at half the grid, not below zero."""
    image, grid, attributes = case
    kinds = tuple(TensorType(dtype_named(dtype), shape) for shape in (image, grid))
    out = TensorType(kinds[0].dtype, (*image[:2], *grid[1:-1]))
    order = [
        last(kind.rank) if side else tuple(range(kind.rank)) for kind, side in zip((kinds[0], out), orders, strict=True)
    ]
    operands = (
        operand("in0", kinds[0], order[0]),
        operand("in1", kinds[1], tuple(range(kinds[1].rank))),
        operand("out0", out, order[1]),
    )
    reads = [
        load(f"in{k}", kind.dtype, tuple(index(f"p{d}") for d in range(kind.rank))) for k, kind in enumerate(kinds)
    ]
    at = tuple(index(f"i{d}") for d in range(out.rank))
    value = load(ACC, out.dtype, at)
    if fused:
        reads = [reads[0] + reads[0], reads[1] * 0.5]
        value = binary("max", value, 0)
    anchor = Anchor("GridSample", "sampled", attributes_of(**attributes), kinds, tuple(reads), out)
    return Task(out.dims, operands, (Store("out0", at, value),), anchor)


def right(image: np.ndarray, grid: np.ndarray, attributes: Mapping[str, Any]) -> np.ndarray:
    return grid_sample(image, grid, attributes["mode"], attributes["padding_mode"], bool(attributes["align_corners"]))


def run(run_kernel: Any, case: Case, orders: tuple[bool, bool], fused: bool, workers: int, grid: np.ndarray) -> None:
    image, _, attributes = case
    x = np.random.default_rng(1).standard_normal(image, dtype=np.float32)
    expected = right(2 * x if fused else x, grid * np.float32(0.5) if fused else grid, attributes)
    expected = np.maximum(expected, 0) if fused else expected
    arrays = {
        "in0": stored(x, last(x.ndim) if orders[0] else tuple(range(x.ndim))),
        "in1": grid.reshape(-1).copy(),
        "out0": np.full(expected.size, np.nan, np.float32),
    }
    run_kernel(SAMPLED, sampled(case, orders, fused), arrays, workers)
    order = last(expected.ndim) if orders[1] else tuple(range(expected.ndim))
    np.testing.assert_allclose(arrays["out0"], stored(expected, order), rtol=1e-5, atol=1e-5)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Image, grid, attributes: as many positions as let a copy of the image pay."""
    rank = draw(st.integers(1, 3))
    image = tuple(draw(st.integers(1, 6)) for _ in range(rank))
    out = (*(draw(st.integers(1, 4)) for _ in range(rank - 1)), draw(st.sampled_from([4, 9, 33, 70])))
    samples, channels = draw(st.integers(1, 2)), draw(st.sampled_from([1, 3, 16, 21, 70]))
    attributes = {
        "mode": draw(st.sampled_from(MODES[rank])),
        "padding_mode": draw(st.sampled_from(["zeros", "border", "reflection"])),
        "align_corners": draw(st.integers(0, 1)),
    }
    while 8 * int(np.prod(out)) < int(np.prod(image)):
        out = (*out[:-1], out[-1] * 2)
    return (samples, channels, *image), (samples, *out, rank), attributes


@RELAXED
@given(
    case=cases(),
    orders=st.tuples(st.booleans(), st.booleans()),
    fused=st.booleans(),
    workers=st.integers(1, 3),
    seed=st.integers(0, 1000),
)
def test_positions_near_and_far(
    run_kernel: Any, case: Case, orders: tuple[bool, bool], fused: bool, workers: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    grid = rng.uniform(-1.3, 1.3, case[1]).astype(np.float32)
    hostile = rng.choice(np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 3e9, -1, 1, 0, 5], np.float32), case[1])
    run(run_kernel, case, orders, fused, workers, np.where(rng.random(case[1]) < 0.2, hostile, grid))


def test_what_has_no_share_is_not_read(run_kernel: Any) -> None:
    """An infinite element beside the positions, and outside of the image, does no harm."""
    attributes = {"mode": "linear", "padding_mode": "zeros", "align_corners": 1}
    x = np.full((1, 2, 3, 3), np.inf, np.float32)
    x[..., 1, 1] = 2
    grid = np.array([[0, 0], [-2, -2], [-3, 9], [np.nan, 0]], np.float32).reshape(1, 2, 2, 2)
    for orders in ((False, False), (True, True)):
        case: Case = (x.shape, grid.shape, attributes)
        arrays = {"in0": stored(x, last(4) if orders[0] else (0, 1, 2, 3)), "in1": grid.reshape(-1).copy()}
        arrays["out0"] = np.full(8, np.nan, np.float32)
        run_kernel(SAMPLED, sampled(case, orders, False), arrays, 1)
        expected = right(x, grid, attributes)
        np.testing.assert_array_equal(arrays["out0"], stored(expected, last(4) if orders[1] else (0, 1, 2, 3)))
        np.testing.assert_array_equal(expected[0, 0], [[2, 0], [0, 0]])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_floats(run_kernel: Any, dtype: str) -> None:
    kind = dtype_named(dtype).numpy
    rng = np.random.default_rng(3)
    attributes = {"mode": "linear", "padding_mode": "border", "align_corners": 0}
    case: Case = ((2, 5, 4, 6), (2, 7, 3, 2), attributes)
    x, grid = rng.standard_normal(case[0]).astype(kind), rng.uniform(-1.2, 1.2, case[1]).astype(kind)
    expected = right(x.astype(np.float32), grid.astype(np.float32), attributes)
    arrays = {"in0": x.reshape(-1), "in1": grid.reshape(-1), "out0": np.zeros(expected.size, kind)}
    run_kernel(SAMPLED, sampled(case, (False, False), False, dtype), arrays, 2)
    found = arrays["out0"].astype(np.float32).reshape(expected.shape)
    np.testing.assert_allclose(found, expected, atol=2e-3 if dtype == "float16" else 2e-2)


def test_few_positions_of_a_large_image(run_kernel: Any) -> None:
    """Which is not copied: elements are read one by one, but where it is computed on the way in."""
    target = next(machine for machine in TARGETS if machine.name == "avx512")
    attributes = {"mode": "linear", "padding_mode": "zeros", "align_corners": 0}
    few: Case = ((2, 19, 30, 31), (2, 3, 5, 2), attributes)
    grid = np.random.default_rng(5).uniform(-1.2, 1.2, few[1]).astype(np.float32)
    for orders in ((False, False), (False, True), (True, True)):
        run(run_kernel, few, orders, False, 2, grid)
    assert isinstance(refusal(SAMPLED, sampled(few, (False, False), True), target), RefusalReason)


def test_doubles_are_for_another_kernel() -> None:
    target = next(machine for machine in TARGETS if machine.name == "avx512")
    attributes = {"mode": "linear", "padding_mode": "zeros", "align_corners": 0}
    case: Case = ((1, 8, 4, 4), (1, 4, 4, 2), attributes)
    assert isinstance(refusal(SAMPLED, sampled(case, (True, True), False, "float64"), target), RefusalReason)


def test_a_very_large_image_is_not_copied() -> None:
    target = next(machine for machine in TARGETS if machine.name == "avx512")
    attributes = {"mode": "linear", "padding_mode": "zeros", "align_corners": 0}
    case: Case = ((1, 16, 1024, 1024), (1, 1024, 1024, 2), attributes)
    task = sampled(case, (False, False), False)
    assert refusal(SAMPLED, task, target) is None
    (scratch,) = (argument for argument in way(SAMPLED, task, target).arguments if argument.name == "scratch")
    assert scratch.nbytes < 1 << 20

"""Running sums on the simulated device, in every direction, against ONNX's reference."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from tests.runtime.gpu.kernels import needs_triton

from fusewise.benchmarking.node_by_node import answers_by_nodes
from fusewise.codegen.gpu import scans
from fusewise.codegen.gpu.device import device_named
from fusewise.codegen.gpu.program import GpuStep
from fusewise.ir.dtypes import FLOAT16, FLOAT32, INT64, DType
from fusewise.lower.program import HostStep
from fusewise.making import GpuMaking, gpu_planned
from fusewise.ops.build import GraphBuilder
from fusewise.runtime.gpu.executable import GpuExecutable
from fusewise.runtime.gpu.fake import FakeDriver

pytestmark = needs_triton

SM_90 = device_named("sm_90")


@pytest.fixture(scope="module")
def device() -> Iterator[FakeDriver]:
    driver = FakeDriver("sm_90", 1 << 24)
    yield driver
    driver.close()


@pytest.mark.parametrize("dtype", [FLOAT32, INT64, FLOAT16], ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("shape, axis", [((3, 37), -1), ((5, 2, 3), 0)])
def test_running_sums(device: FakeDriver, dtype: DType, shape: tuple[int, ...], axis: int) -> None:
    check(device, dtype, shape, axis, 4)


def check(device: FakeDriver, dtype: DType, shape: tuple[int, ...], axis: int, launches: int) -> None:
    b = GraphBuilder("sums")
    x = b.input("x", shape, dtype)
    made = []
    for exclusive in (0, 1):
        for reverse in (0, 1):
            along = b.constant(np.array(axis, np.int64))
            made.append(b.op("CumSum", x, along, exclusive=exclusive, reverse=reverse))
    graph = b.finish(*made)
    feeds = {"x": np.random.default_rng(0).integers(-9, 9, shape).astype(dtype.numpy)}
    program = gpu_planned(graph, GpuMaking(SM_90)).program
    assert [type(step) for step in program.steps] == [GpuStep] * launches
    with GpuExecutable(program, device) as model:
        found = model.run(None, feeds)
    for ours, theirs in zip(found, answers_by_nodes(graph, feeds), strict=True):
        np.testing.assert_array_equal(ours, theirs)  # whole numbers, which no order of adding rounds


def test_what_is_infinite_does_not_reach_elements_before_it(device: FakeDriver) -> None:
    b = GraphBuilder("sums")
    graph = b.finish(b.op("CumSum", b.input("x", (4,)), b.constant(np.array(0, np.int64))))
    with GpuExecutable(gpu_planned(graph, GpuMaking(SM_90)).program, device) as model:
        (found,) = model.run(None, {"x": np.array([1, np.inf, -np.inf, 2], np.float32)})
    np.testing.assert_array_equal(found, np.array([1, np.inf, np.nan, np.nan], np.float32))


@pytest.mark.parametrize("dtype, shape, axis", [(FLOAT32, (2, 61), 1), (INT64, (33, 3), 0)])
def test_long_rows_by_chunks(
    device: FakeDriver, dtype: DType, shape: tuple[int, ...], axis: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scans, "_AT_ONCE", 0)
    check(device, dtype, shape, axis, 8)


def test_very_long_rows_and_axes_from_data_are_the_hosts() -> None:
    b = GraphBuilder("sums")
    x = b.input("x", (1 << 22,))
    graph = b.finish(b.op("CumSum", x, b.constant(np.array(0, np.int64))))
    (step,) = gpu_planned(graph, GpuMaking(SM_90)).program.steps
    assert isinstance(step, HostStep)
    assert step.reasons == ("no kernel for a GPU (scan: CumSum of 4194304 elements in rows of 4194304)",)
    b = GraphBuilder("sums")
    graph = b.finish(b.op("CumSum", b.input("x", (4, 4)), b.input("axis", (), INT64)))
    (step,) = gpu_planned(graph, GpuMaking(SM_90)).program.steps
    assert isinstance(step, HostStep) and "an axis that is not known" in step.reasons[0]

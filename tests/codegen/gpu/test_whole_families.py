"""Nodes that are one task each, between others, on the simulated device: nothing is left to the host, and answers are the CPU's."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from tests.codegen.gpu.test_forests import grown
from tests.codegen.gpu.test_linear_attention import model_of
from tests.runtime.gpu.kernels import needs_triton

import fusewise
from fusewise.benchmarking.node_by_node import answers_by_nodes
from fusewise.codegen.gpu.device import device_named
from fusewise.codegen.gpu.program import GpuProgram, GpuStep
from fusewise.ir.graph import Graph
from fusewise.making import GpuMaking, gpu_planned
from fusewise.runtime.gpu.executable import GpuExecutable
from fusewise.runtime.gpu.fake import FakeDriver

SM_90 = device_named("sm_90")


@pytest.fixture(scope="module")
def device() -> Iterator[FakeDriver]:
    driver = FakeDriver("sm_90", 1 << 24)
    yield driver
    driver.close()


def checked(device: FakeDriver, graph: Graph, **options: object) -> GpuProgram:
    """Run a graph twice, with launches in two orders, and hold its answers against the reference's."""
    rng = np.random.default_rng(0)
    feeds = {name: rng.standard_normal(graph.tensor(name).dims, dtype=np.float32) / 2 for name in graph.inputs}
    program = gpu_planned(graph, GpuMaking(SM_90, **options)).program
    assert all(isinstance(step, GpuStep) for step in program.steps)
    with GpuExecutable(program, device) as model:
        first, second = (model.run(None, feeds) for _ in range(2))
    for found, again, right in zip(first, second, answers_by_nodes(graph, feeds), strict=True):
        np.testing.assert_array_equal(found, again)
        np.testing.assert_allclose(found, right, rtol=0, atol=2e-5 * max(1, np.abs(right).max(initial=0)))
    return program


@needs_triton
def test_a_forest(device: FakeDriver) -> None:
    """Its tables are constants, which the other launches have none of."""
    program = checked(device, fusewise.load(grown(5, 7, 4, 3).model()))
    assert [one.kind for one in program.buffers].count("constant") == 3


@needs_triton
def test_linear_attention(device: FakeDriver) -> None:
    assert checked(device, fusewise.load(model_of("gated_delta", 4, 4, 2, 6, 10))).launches == 1

"""Nodes that are one task each, between others, on the simulated device: nothing is left to the host, and answers are the CPU's."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest
from benchmarks.gpu.checked import faults_of
from onnx import TensorProto
from tests.codegen.gpu.interpreting import expected, launch
from tests.codegen.gpu.lying import task_of
from tests.codegen.gpu.test_forests import grown
from tests.codegen.gpu.test_linear_attention import model_of
from tests.codegen.gpu.test_recurrences import task_for
from tests.runtime.gpu.kernels import needs_triton

import fusewise
from fusewise.benchmarking.node_by_node import answers_by_nodes
from fusewise.codegen.gpu import choose, forests, linear_attention, recurrences
from fusewise.codegen.gpu.device import device_named
from fusewise.codegen.gpu.program import GpuProgram, GpuStep
from fusewise.errors import InvalidData
from fusewise.ir.dtypes import INT32
from fusewise.ir.graph import Graph
from fusewise.lower.task import Task
from fusewise.making import GpuMaking, gpu_planned
from fusewise.ops.build import GraphBuilder
from fusewise.runtime.gpu.compile import TritonCompiler
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


def layers(hidden: int, lengths: bool = False) -> Graph:
    """A bidirectional LSTM behind a product, and a GRU on what it gives, the last state of which is classified."""
    rng, b = np.random.default_rng(0), GraphBuilder("layers")

    def weight(*shape: int) -> str:
        return b.constant(rng.standard_normal(shape, dtype=np.float32) / 4)

    x = b.op("MatMul", b.input("x", (4, 2, 5)), weight(5, 6))
    ends = b.input("lengths", (2,), INT32) if lengths else ""
    weights = [weight(2, 4 * hidden, 6), weight(2, 4 * hidden, hidden), weight(2, 8 * hidden)]
    y, _, last = b.op("LSTM", x, *weights, ends, outputs=3, hidden_size=hidden, direction="bidirectional")
    y = b.op("Reshape", b.op("Transpose", y, perm=[0, 2, 1, 3]), b.constant([4, 2, 2 * hidden]))
    gates = weight(1, 3 * hidden, 2 * hidden), weight(1, 3 * hidden, hidden)
    _, state = b.op("GRU", y, *gates, outputs=2, hidden_size=hidden)
    return b.finish(b.op("Softmax", b.op("MatMul", state, weight(hidden, 3))), last)


@needs_triton
@pytest.mark.parametrize("exact", [False, True])
def test_recurrences_in_a_loop(device: FakeDriver, exact: bool) -> None:
    """Nothing but the loops themselves waits for them."""
    program = checked(device, layers(7), exact=exact)
    assert (
        sum("_loop" in program.kernels[step.kernel].symbol for step in program.steps if isinstance(step, GpuStep)) == 2
    )


@needs_triton
def test_recurrences_by_steps(device: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step waits for the one before; of a GRU, the candidate for its gates."""
    monkeypatch.setattr(recurrences, "by_steps", lambda s, device: True)
    program = checked(device, layers(7))
    names = [program.kernels[step.kernel].symbol for step in program.steps if isinstance(step, GpuStep)]
    assert sum("_step" in name for name in names) == 4 + 2 * 4
    steps = [number for number, name in enumerate(names) if "_step" in name]
    assert set(pairwise(steps)) - set(program.edges) <= {(steps[3], steps[4])}


@needs_triton
@pytest.mark.parametrize("stepped", [False, True])
def test_a_length_out_of_bounds_is_told_with_its_node(
    device: FakeDriver, monkeypatch: pytest.MonkeyPatch, stepped: bool
) -> None:
    monkeypatch.setattr(recurrences, "by_steps", lambda s, device: stepped)
    graph = layers(3, lengths=True)
    x = np.ones((4, 2, 5), np.float32)
    with GpuExecutable(gpu_planned(graph, GpuMaking(SM_90)).program, device) as model:
        model.run(None, {"x": x, "lengths": np.array([4, 0], np.int32)})
        with pytest.raises(InvalidData, match="LSTM.*finds 5 "):
            model.run(None, {"x": x, "lengths": np.array([4, 5], np.int32)})


def test_recurrences_are_written_out_for_products_of_16_bits_alone() -> None:
    graph = layers(8)
    for precision, is_one in (("float32", True), ("tf32", True), ("bfloat16", False)):
        planned = gpu_planned(graph, GpuMaking(SM_90, precision)).graph
        assert ("LSTM" in {node.op for node in planned.nodes}) == is_one


# --- kernels alone --------------------------------------------------------------------------------------------------------


@needs_triton
def test_offsets_of_64_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """As operands of more than 2^31 elements have them. Numbers of lanes, which are from 0 on, are still of 32."""
    for module in (forests, linear_attention, recurrences):
        monkeypatch.setattr(module, "is_int32", lambda low, high: low == 0)
    forest, linear = task_of(grown(3, 5, 3, 2).model()), task_of(model_of("gated_delta", 3, 2, 1, 4, 5))
    rng = np.random.default_rng(0)
    for task in (forest, linear, task_for("GRU", 3, 2, 4)):
        (_, kernel), *_ = choose.candidates(task, SM_90, "float32")
        given = {o.name: rng.standard_normal(o.shape, dtype=np.float32) for o in task.operands if o.name[:3] != "out"}
        assert "tl.int64" in "".join(one.source for one in (kernel, *kernel.then))
        found, _ = launch(kernel, task, given)
        for name, right in expected(task, given).items():
            np.testing.assert_allclose(found[name], right, rtol=0, atol=1e-5 * max(1, np.abs(right).max()))


def tasks() -> dict[str, list[Task]]:
    """Of sizes that models have, by the architecture that they are tried for."""
    gated = model_of("gated_delta", 512, 16, 8, 128, 128, TensorProto.BFLOAT16)
    wide = task_for("LSTM", 8, 32, 1024, direction="bidirectional")
    return {
        "sm_80": [task_for("GRU", 128, 1, 64), wide, task_of(grown(1000, 100, 8).model())],
        "sm_90": [task_for("LSTM", 2000, 4, 512), task_of(grown(64, 100, 6, 10).model()), task_of(gated)],
    }


@needs_triton
@pytest.mark.slow
def test_kernels_compile_without_spills() -> None:
    with TritonCompiler() as compiler:
        for name, each in tasks().items():
            device = device_named(name)
            whole = [choose.candidates(task, device, "float32")[0][1] for task in each]
            kernels = list(dict.fromkeys(one for kernel in whole for one in (kernel, *kernel.then)))
            for kernel, cubin in zip(kernels, compiler.compile(kernels, device), strict=True):
                assert not list(faults_of(kernel, cubin, device)), kernel.way

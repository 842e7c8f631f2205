"""Tuning on a GPU whose clock says what a test wants: what is faster is used and kept, what is broken is not run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.runtime.gpu.kernels import needs_triton
from tests.runtime.gpu.sharing import share

import fusewise
from fusewise import gpu_tuning
from fusewise.codegen.gpu.device import device_named
from fusewise.codegen.gpu.kernel import GpuKernel, task_of
from fusewise.errors import FusewiseError
from fusewise.gpu_tuning import GpuTuning, gpu_kept, gpu_tuned
from fusewise.ir.graph import Graph
from fusewise.making import CompilationChoice, GpuMaking, gpu_planned
from fusewise.ops.build import GraphBuilder
from fusewise.runtime.gpu.compile import TritonCompiler
from fusewise.runtime.gpu.driver import Cubin, Driver, Launch, NoDriver
from fusewise.runtime.gpu.fake import FakeDriver
from fusewise.runtime.measure import machine_name
from fusewise.runtime.profile import ProfileDatabase

pytestmark = needs_triton

MAKING = GpuMaking(device_named("sm_90"))


def network() -> Graph:
    b, rng = GraphBuilder("net"), np.random.default_rng(0)
    h = b.op("MatMul", b.input("x", (40, 24)), b.constant(rng.standard_normal((24, 40), dtype=np.float32)))
    return b.finish(b.op("Softmax", h, axis=-1))


class Compiler(TritonCompiler):
    """Compiles nothing. Kernels whose `way` has `broken` in it are refused, those with `spilled` need a thread's memory."""

    def __init__(self, broken: str = "none", spilled: str = "none") -> None:
        super().__init__()
        self.broken, self.spilled, self.asked = broken, spilled, list[GpuKernel]()

    def compile(self, kernels: Sequence[GpuKernel], *rest: Any, **how: Any) -> list[Cubin]:
        self.asked += kernels
        if any(self.broken in kernel.way for kernel in kernels):
            raise FusewiseError("Triton does not compile it")
        plain = Cubin("", "sm_90a", b"", 10, 0, 0, 0, 128, 2, 2)
        return [replace(plain, symbol=k.symbol, stack_bytes=8 * (self.spilled in k.way)) for k in kernels]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch takes what the device says, without being run again."""

    def chain(driver: Any, launches: Sequence[Launch]) -> float:
        return sum(driver.takes(one.function.kernel) for one in launches)

    monkeypatch.setattr(gpu_tuning, "chain_time", chain)
    monkeypatch.setattr(
        gpu_tuning, "replay_times", lambda model, count: [chain(model.driver, [*model.launches.values()])]
    )


@pytest.fixture(scope="module")
def opened() -> Iterator[FakeDriver]:
    driver = FakeDriver(nbytes=1 << 22)
    yield driver
    driver.close()


@pytest.fixture
def device(opened: FakeDriver) -> Iterator[FakeDriver]:
    opened.takes = lambda kernel: 1.0
    yield opened
    assert opened.allocations == 0


def tuned(folder: Path, driver: Driver, compiler: TritonCompiler, seconds: float = 60.0) -> CompilationChoice:
    database = ProfileDatabase(folder, machine_name())
    return gpu_tuned(network(), MAKING, GpuTuning(driver, compiler, database, None, seconds))


def ways_of_product() -> list[str]:
    """What the candidates of the product say they do."""
    program = gpu_planned(network(), MAKING).program
    digest = task_of(program.kernels[0])
    found = []
    for number in range(6):
        made = gpu_planned(network(), MAKING, choice=CompilationChoice(None, {digest: number})).program
        found += [kernel.way for kernel in made.kernels if task_of(kernel) == digest][:1]
    return found


def test_the_faster_kernel_is_chosen_and_kept(tmp_path: Path, device: FakeDriver) -> None:
    ways = ways_of_product()
    assert len(set(ways)) > 2
    device.takes = lambda kernel: 2.0 if kernel.way == ways[2] else 9.0
    found = tuned(tmp_path, device, Compiler())
    (number,) = set(found.ways.values())
    made = gpu_planned(network(), MAKING, choice=found).program
    assert number == 2 and made.kernels[0].way == ways[2]
    assert (found.default_ms, found.tuned_ms) == (0.018, 0.011)
    assert gpu_kept(tmp_path, network(), MAKING, device.name) == found
    assert gpu_kept(tmp_path, network(), MAKING, f"{device.name} (GPU 1)") == found, "another of the same product"
    assert gpu_kept(tmp_path, network(), MAKING, "another GPU") is None
    compiler = Compiler()
    assert tuned(tmp_path, device, compiler).ways == found.ways
    assert len(compiler.asked) == 4  # two programs to race: nothing is measured again


@pytest.mark.slow
def test_a_way_of_many_launches_is_measured_as_all_of_them(tmp_path: Path, device: FakeDriver) -> None:
    """A step of a recurrence is fast, and all of them are not: they do not spoil the product's faster kernel."""
    b, rng = GraphBuilder("net"), np.random.default_rng(0)
    weights = (b.constant(rng.standard_normal((1, 16, n), dtype=np.float32)) for n in (24, 4))
    steps, _, _ = b.op("LSTM", b.input("x", (8, 1, 24)), *weights, outputs=3, hidden_size=4)
    h = b.op("MatMul", b.input("y", (40, 24)), b.constant(rng.standard_normal((24, 40), dtype=np.float32)))
    graph = b.finish(steps, h)
    kernels = gpu_planned(graph, MAKING).program.kernels
    (loop,) = (one for one in kernels if one.symbol.endswith("_loop"))
    usual = next(one for one in kernels if "recurrence" not in one.symbol and "inputs" not in one.symbol)
    device.takes = lambda kernel: 9.0 if kernel.source in (usual.source, loop.source) else 2.0
    database = ProfileDatabase(tmp_path, machine_name())
    found = gpu_tuned(graph, MAKING, GpuTuning(device, Compiler(), database, None, 60.0))
    assert set(found.ways) == {task_of(usual)}
    assert found.tuned_ms is not None


def test_nothing_is_chosen_where_nothing_is_faster(tmp_path: Path, device: FakeDriver) -> None:
    found = tuned(tmp_path, device, Compiler())
    assert found.is_default and found.tuned_ms is None
    kept = gpu_kept(tmp_path, network(), MAKING, device.name)
    assert kept is not None and kept.is_default


@pytest.mark.parametrize("fault", ["broken", "spilled"])
def test_what_cannot_be_good_is_not_run(tmp_path: Path, device: FakeDriver, fault: str) -> None:
    ways = ways_of_product()
    device.takes = lambda kernel: 2.0 if kernel.way == ways[1] else 9.0
    assert tuned(tmp_path, device, Compiler(**{fault: ways[1]})).is_default


def test_other_answers_are_not_chosen(tmp_path: Path, device: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    ways = ways_of_product()
    device.takes = lambda kernel: 2.0 if kernel.way == ways[1] else 9.0
    monkeypatch.setattr(gpu_tuning, "relative_error", lambda found, wanted: 1.0)
    assert tuned(tmp_path, device, Compiler()).is_default


def test_without_time_nothing_is_measured(tmp_path: Path, device: FakeDriver) -> None:
    compiler = Compiler()
    assert tuned(tmp_path, device, compiler, 0.0).is_default
    assert len(compiler.asked) == 2


def test_a_model_that_is_compiled_with_tune(
    tmp_path: Path, device: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was chosen holds for later compilations for the GPU that is here, and for none that was not asked for its name."""
    opened = share(monkeypatch, device)
    monkeypatch.setattr(TritonCompiler, "compile", Compiler().compile)
    ways = ways_of_product()
    device.takes = lambda kernel: 2.0 if kernel.way == ways[1] else 9.0
    found = []
    for text, seconds in (("cuda", 30.0), ("cuda", 0.0), ("cuda:1", 0.0), ("cuda:sm_90", 0.0)):
        with fusewise.compile(network(), device=text, tune=seconds, cache=tmp_path) as model:
            found.append((model.runs.program.kernels[0].way, model.summary["tuning"]))
    assert [way for way, _ in found] == [ways[1], ways[1], ways[1], ways[0]]
    assert found[0][1] == {"kept": "tuned", "default_ms": 0.018, "tuned_ms": 0.011, "tasks": 1}
    assert [told for _, told in found[1:]] == [None] * 3
    assert all(one.is_closed for one in opened)
    share(monkeypatch, None)
    with pytest.raises(NoDriver):
        fusewise.compile(network(), device="cuda:sm_90", tune=3.0, cache=tmp_path)

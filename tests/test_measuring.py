"""The six published metrics: their names, and what stands where a machine tells nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.nvml_stand_in import Library
from tests.runtime.gpu.kernels import needs_triton

from fusewise.benchmarking.power import NOT_HERE, Told, gpu_told_of
from fusewise.benchmarking.timing import TimingBudget
from fusewise.ir.graph import Graph
from fusewise.measuring import METRICS, Figures, figures_of, metric_cells
from fusewise.ops.build import GraphBuilder
from fusewise.select.pipeline import DEFAULT
from fusewise.select.sequence import run_pipeline

FOUND = Figures(1.0, 250.0, 4.0, 5.0, 6.0, 8, 3_000_000, 12_000_000, 90.0, Told(), None, Told())


def graph() -> Graph:
    b = GraphBuilder()
    x = b.input("x", (4, 8))
    return b.finish(b.op("MatMul", x, b.constant([[0.5] * 3] * 8)))


def test_the_names_are_the_published_ones() -> None:
    names = ["Throughput", "Latency", "Compile Time", "Power", "Memory used", "Temperature"]
    assert [metric.name for metric in METRICS] == names


@pytest.mark.parametrize(
    "power, temperature, cells",
    [
        (Told(), Told(), (NOT_HERE, NOT_HERE)),
        (Told(65.25), Told(48.0), ("65.2", "48")),
        (Told(None, 31.0), Told(None, 40.4), ("GPU 31.0", "GPU 40")),
        (Told(65.25, 31.0), Told(48.0, 40.4), ("65.2, GPU 31.0", "48, GPU 40")),
    ],
)
def test_cells(power: Told, temperature: Told, cells: tuple[str, str]) -> None:
    plain = replace(FOUND, power_w=power, temperature_c=temperature).plain
    assert metric_cells(plain) == ("2000.0", "4.00", "251", cells[0], "12.0", cells[1])


def test_nothing_measured_is_not_the_same_as_nothing_told() -> None:
    assert set(metric_cells({})) == {"-"}


def test_a_machine_that_tells_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    from fusewise.benchmarking import power

    class Counter:
        joules = 0.0

        def read(self) -> float:
            self.joules += 10
            return self.joules

    def asked(work: Any) -> Any:
        return power.energies(work, [power.Meter(power.PROCESSOR, Counter().read, True)]), Told(50.0)

    monkeypatch.setattr("fusewise.measuring.told_of", asked)
    monkeypatch.setattr("fusewise.measuring._ENERGY_SECONDS", 0.01)
    budget = TimingBudget(runs=2, seconds=0.001, limit_seconds=1.0, warmup=1)
    found = figures_of(run_pipeline(DEFAULT, graph()), threads=1, budget=budget)
    assert found.power_w.processor is not None
    assert 0 < found.power_w.processor <= 10 / 0.01
    assert found.energy_mj is not None
    assert found.costs["energy"] == found.energy_mj > 0
    assert found.temperature_c == Told(50.0)
    assert found.memory_bytes >= found.arena_bytes + 8 * 3 * 4


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A simulated GPU whose launches take 250 microseconds, and tells NVML what a stand-in says."""
    from fusewise.runtime.gpu import drivers
    from fusewise.runtime.gpu.fake import FakeDriver

    driver = FakeDriver("sm_90", 1 << 24, takes=lambda kernel: 250.0)
    monkeypatch.setattr(drivers, "opened", lambda choice: driver)
    library = Library("nvmlDeviceGetTotalEnergyConsumption", count=1)
    monkeypatch.setattr("fusewise.measuring.gpu_told_of", lambda work, bus: gpu_told_of(work, bus, library))
    monkeypatch.setattr("fusewise.measuring._ENERGY_SECONDS", 0.01)
    return driver


@needs_triton
def test_a_gpu_is_measured_by_its_own_clock(simulated: Any) -> None:
    budget = TimingBudget(runs=3, seconds=0.0, limit_seconds=1.0, warmup=1)
    found = figures_of(run_pipeline(DEFAULT, graph()), budget=budget, device="cuda")
    assert found.p50_ms == found.p90_ms == pytest.approx(0.25), "one launch"
    assert found.throughput == pytest.approx(4 * 1000 / 0.25)
    assert found.compile_ms > 0 and found.peak_rss_mb is None
    assert found.memory_bytes >= (4 * 8 + 8 * 3 + 4 * 3) * 4
    plain = found.plain
    assert (plain["gpu_power_w"], plain["gpu_temperature_c"]) == (pytest.approx(30.0), 40.0)
    assert (plain["gpu_utilisation"], plain["gpu_memory_taken_mb"]) == (pytest.approx(0.8), 0.001)
    assert plain["power_w"] == NOT_HERE
    assert found.costs["energy"] == found.energy_mj
    assert metric_cells(plain)[3:] == ("GPU 30.0", metric_cells(plain)[4], "GPU 40")
    assert simulated.allocations == 0

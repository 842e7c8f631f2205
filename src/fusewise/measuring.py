"""Compile what a pipeline left, run it, and say what that takes, by the six metrics of Verma et al. (CF 2022): Throughput, Latency,
Compile Time, Power, Memory used and Temperature."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from fusewise import making
from fusewise.benchmarking.inputs import random_feeds
from fusewise.benchmarking.meters import forget_peak, peak_rss_mb
from fusewise.benchmarking.power import GPU, NOT_HERE, PROCESSOR, Energy, GpuTold, Told, gpu_told_of, told_of
from fusewise.benchmarking.timing import Timing, TimingBudget, race
from fusewise.codegen.legalize import for_native
from fusewise.ir.types import TensorType
from fusewise.lower.program import Program
from fusewise.making import Making
from fusewise.runtime.executable import Executable, build
from fusewise.runtime.host import worker_count
from fusewise.select.sequence import Outcome
from fusewise.trace import Trace

if TYPE_CHECKING:
    from fusewise.runtime.gpu.driver import Driver
    from fusewise.runtime.gpu.executable import GpuExecutable

__all__ = [
    "METRICS",
    "Figures",
    "FiguresDict",
    "PublishedMetric",
    "executable_of",
    "figures_of",
    "held_bytes",
    "metric_cells",
    "program_of",
    "telling",
]

_ENERGY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class PublishedMetric:
    """A metric by its published name: its unit, the keys of its figures in `Figures.plain`, and how they are written.

    A second figure is that of the GPUs.
    """

    name: str
    unit: str
    keys: tuple[str, ...]
    form: str

    def cell(self, plain: Mapping[str, Any]) -> str:
        """The figures as text, without the unit."""
        told = [plain[key] for key in self.keys]
        texts = [
            _text(form, value)
            for form, value in zip((self.form, f"GPU {self.form}"), told, strict=False)
            if not isinstance(value, str)
        ]
        return ", ".join(texts) or NOT_HERE


def _text(form: str, value: float) -> str:
    """A figure in its form; with two digits more where these would say little of it."""
    return f"{value:.4f}" if form == _SHORT and 0 < value < 0.1 else form.format(value)


_SHORT = "{:.2f}"

METRICS: tuple[PublishedMetric, ...] = (
    PublishedMetric("Throughput", "per s", ("throughput_per_s",), "{:.1f}"),
    PublishedMetric("Latency", "ms", ("latency_p50_ms",), _SHORT),
    PublishedMetric("Compile Time", "ms", ("compile_time_ms",), "{:.0f}"),
    PublishedMetric("Power", "W", ("power_w", "gpu_power_w"), "{:.1f}"),
    PublishedMetric("Memory used", "MB", ("memory_used_mb",), "{:.1f}"),
    PublishedMetric("Temperature", "degrees C", ("temperature_c", "gpu_temperature_c"), "{:.0f}"),
)
"""The six, in the published order."""


def metric_cells(plain: Mapping[str, Any]) -> tuple[str, ...]:
    """A cell for each metric; dashes where nothing was measured."""
    return tuple(metric.cell(plain) if plain else "-" for metric in METRICS)


@dataclass(frozen=True)
class Figures:
    """What one compiled graph costs on this machine.

    `items` are the first extent of the inputs: a batch. `memory_bytes` is what the program holds while it runs, its packed weights
    and intermediate results (`held_bytes`); `peak_rss_mb` the highest resident memory of this process while it was compiled and
    run, all else that the process holds included, None where the system cannot tell. Power, energy per run and temperature are
    None where the machine does not tell.

    On a GPU times are its clock's, of runs on what lies there already; `memory_bytes` is what the program holds there, and
    `gpu` what the device tells while runs follow each other.
    """

    pass_ms: float
    compile_ms: float
    p50_ms: float
    p90_ms: float
    p99_ms: float
    items: int
    arena_bytes: int
    memory_bytes: int
    peak_rss_mb: float | None
    power_w: Told
    energy_mj: float | None
    temperature_c: Told
    gpu: GpuTold | None = None

    @property
    def throughput(self) -> float:
        """Items per second, one batch after another."""
        return self.items * 1000 / self.p50_ms if self.p50_ms else float("inf")

    @property
    def plain(self) -> dict[str, Any]:
        """The figures as plain JSON values, with words where the machine tells nothing."""

        def told(figure: float | None) -> float | str:
            return NOT_HERE if figure is None else figure

        return {
            "throughput_per_s": self.throughput,
            "latency_p50_ms": self.p50_ms,
            "latency_p90_ms": self.p90_ms,
            "latency_p99_ms": self.p99_ms,
            "pass_ms": self.pass_ms,
            "compile_ms": self.compile_ms,
            "compile_time_ms": self.pass_ms + self.compile_ms,
            "arena_bytes": self.arena_bytes,
            "memory_used_mb": self.memory_bytes / 1e6,
            "peak_rss_mb": told(self.peak_rss_mb),
            "power_w": told(self.power_w.processor),
            "gpu_power_w": told(self.power_w.gpu),
            "energy_mj": told(self.energy_mj),
            "temperature_c": told(self.temperature_c.processor),
            "gpu_temperature_c": told(self.temperature_c.gpu),
            **({} if self.gpu is None else self._of_gpu(told)),
        }

    def _of_gpu(self, told: Callable[[float | None], float | str]) -> dict[str, float | str]:
        assert self.gpu is not None
        taken = self.gpu.memory_bytes
        return {
            "gpu_utilisation": told(self.gpu.utilisation),
            "gpu_memory_taken_mb": told(None if taken is None else taken / 1e6),
        }

    @property
    def costs(self) -> Mapping[str, float]:
        """The figures that an objective may name, by its names."""
        found = {
            "latency": self.p50_ms,
            "throughput": 1000 / self.throughput,
            "memory": self.memory_bytes / 1e6,
            "compile-time": self.pass_ms + self.compile_ms,
        }
        return found if self.energy_mj is None else found | {"energy": self.energy_mj}


class FiguresDict(TypedDict, total=False):
    """How `figures_of` measures, by keyword."""

    threads: int | None
    seed: int
    budget: TimingBudget | None
    cache: Path | None
    device: str


def program_of(
    outcome: Outcome,
    *,
    threads: int | None = None,
    exact: bool = False,
    strict: bool = False,
    trace: Trace | None = None,
) -> Program:
    """The program of what a pipeline left, fused and laid out as it asks."""
    decisions = Trace() if trace is None else trace
    decisions.disabled |= frozenset(outcome.disables)
    graph = for_native(outcome.graph, "float32", decisions, exact=exact)
    return making.program_of(graph, Making(worker_count(threads), outcome.fusion, exact, strict), decisions)


def executable_of(outcome: Outcome, *, threads: int | None = None, cache: Path | None = None) -> Executable:
    """Native code for what a pipeline left."""
    return build(program_of(outcome, threads=threads), threads=threads, cache=cache)


def figures_of(
    outcome: Outcome,
    *,
    threads: int | None = None,
    seed: int = 0,
    budget: TimingBudget | None = None,
    cache: Path | None = None,
    device: str = "cpu",
) -> Figures:
    """Compile an outcome, run it on random inputs, and measure. Kernels are compiled anew unless `cache` keeps them.

    On a GPU as `device` names it (`cuda`, which has to be there) raises the errors of `runtime.gpu.driver`.
    """
    if device != "cpu":
        return _figures_on_gpu(outcome, device, seed, TimingBudget() if budget is None else budget, cache)
    feeds = random_feeds(outcome.graph, seed)
    known = forget_peak()
    begin = time.perf_counter()
    program = program_of(outcome, threads=threads)
    model = build(program, threads=threads, cache=cache)
    compile_ms = (time.perf_counter() - begin) * 1e3

    def run() -> object:
        return model.run(None, feeds)

    (timing,) = race([run], TimingBudget() if budget is None else budget)
    runs, used, hot = telling(run)
    return _Runs(
        compile_ms,
        timing,
        program.arena_bytes,
        held_bytes(model),
        Told(*(used[one].watts if one in used else None for one in (PROCESSOR, GPU))),
        hot,
        used.get(PROCESSOR),
        runs,
        peak_rss_mb() if known else None,
    ).figures(outcome)


@dataclass(frozen=True)
class _Runs:
    """What was measured of a compiled outcome on any device: `energy` while it ran so many `runs`; the rest as in `Figures`."""

    compile_ms: float
    timing: Timing
    arena_bytes: int
    memory_bytes: int
    power: Told
    temperature: Told
    energy: Energy | None
    runs: int
    peak_rss_mb: float | None = None
    gpu: GpuTold | None = None

    def figures(self, outcome: Outcome) -> Figures:
        """What that comes to, for one run."""
        return Figures(
            pass_ms=outcome.total_ms,
            compile_ms=self.compile_ms,
            p50_ms=self.timing.p50_ms,
            p90_ms=self.timing.p90_ms,
            p99_ms=self.timing.percentile(99),
            items=_items(outcome),
            arena_bytes=self.arena_bytes,
            memory_bytes=self.memory_bytes,
            peak_rss_mb=self.peak_rss_mb,
            power_w=self.power,
            energy_mj=None if self.energy is None else self.energy.joules * 1e3 / self.runs,
            temperature_c=self.temperature,
            gpu=self.gpu,
        )


def held_bytes(model: Executable) -> int:
    """What a model holds while it runs: packed weights, the arena, and what host steps leave."""
    figures = model.figures
    return figures.constant_bytes + figures.arena_bytes + figures.host_bytes


def telling(run: Callable[[], object]) -> tuple[int, dict[str, Energy], Told]:
    """How often `run` was called for a second, what energy each device used meanwhile, and how hot it is right after.

    Where nothing tells energy it is not called.
    """
    counts: list[int] = []
    used, hot = told_of(lambda: counts.append(_repeat(run, _ENERGY_SECONDS)))
    return sum(counts), used, hot


def _repeat(run: Callable[[], object], seconds: float) -> int:
    """Run for so long, at least once; how often."""
    end, count = time.perf_counter() + seconds, 0
    while not count or time.perf_counter() < end:
        run()
        count += 1
    return count


def _items(outcome: Outcome) -> int:
    kinds = [outcome.graph.types[name] for name in outcome.graph.inputs]
    firsts = [kind.dims[0] for kind in kinds if isinstance(kind, TensorType) and kind.is_static and kind.dims]
    return firsts[0] if firsts else 1


# --- on a GPU -------------------------------------------------------------------------------------------------------------


def _figures_on_gpu(outcome: Outcome, device: str, seed: int, budget: TimingBudget, cache: Path | None) -> Figures:
    from fusewise.codegen.gpu.device import device_choice
    from fusewise.runtime.gpu import drivers
    from fusewise.runtime.gpu.executable import GpuExecutable

    driver = drivers.opened(device_choice(device))
    try:
        feeds = random_feeds(outcome.graph, seed)
        begin = time.perf_counter()
        with GpuExecutable(*_compiled_for(driver, outcome, cache)) as model:
            compile_ms = (time.perf_counter() - begin) * 1e3
            model.run(None, feeds)
            timing, counts = _replayed(model, budget), list[int]()
            told = gpu_told_of(lambda: counts.append(_repeat(lambda: _waited(model), _ENERGY_SECONDS)), driver.bus)
            held = model.figures.constant_bytes + model.figures.arena_bytes
        return _Runs(
            compile_ms,
            timing,
            model.figures.arena_bytes,
            held,
            Told(None, None if told.energy is None else told.energy.watts),
            Told(None, told.celsius),
            told.energy,
            sum(counts),
            gpu=told,
        ).figures(outcome)
    finally:
        driver.close()


def _compiled_for(driver: Driver, outcome: Outcome, cache: Path | None) -> tuple[Any, Driver, Any]:
    """A program for a device, the device, and the program's cubins."""
    from fusewise.runtime.cache import KernelCache
    from fusewise.runtime.gpu import drivers
    from fusewise.runtime.gpu.compile import TritonCompiler

    row = drivers.row_of(driver)
    how = making.GpuMaking(row, fusion=outcome.fusion, passes=False, disable=tuple(outcome.disables))
    program = making.gpu_planned(outcome.graph, how).program
    with TritonCompiler(max(1, min(worker_count(None), len(program.kernels)))) as compiler:
        cubins = compiler.compile(program.kernels, row, store=None if cache is None else KernelCache(cache))
    return program, driver, cubins


def _replayed(model: GpuExecutable, budget: TimingBudget) -> Timing:
    """Runs in a row on what lies on the device, by its clock, for as long as the budget says."""
    from fusewise.runtime.gpu.timing import replay_times

    replay_times(model, max(1, budget.warmup))
    found: list[float] = []
    begin = time.perf_counter()
    while len(found) < budget.runs or time.perf_counter() - begin < budget.seconds:
        found += replay_times(model, min(10, budget.runs))
        if time.perf_counter() - begin > budget.limit_seconds:
            break
    return Timing(tuple(us / 1e3 for us in found))


def _waited(model: GpuExecutable) -> None:
    """One run to its end."""
    model.replay()
    model.driver.synchronise()

"""From a graph that was read to a model for a GPU: planned, its kernels compiled by Triton, ready to be loaded there.

No GPU is needed, but where its architecture is left open (`cuda`). What has been compiled before comes from the cache, without
Triton.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fusewise.codegen.gpu.device import Device, DeviceChoice, device_choice, device_named
from fusewise.compiled import Model, opened
from fusewise.compiling import StageClock, frozen, key_of, tell_of_idle
from fusewise.decisions import require_known
from fusewise.errors import UsageError
from fusewise.options import Options
from fusewise.runtime.folder import cache_folder, first_only
from fusewise.runtime.gpu import drivers
from fusewise.runtime.gpu.driver import Cubin, NoDevice, NoDriver, WrongArchitecture
from fusewise.runtime.gpu.memory import device_sizes
from fusewise.runtime.gpu.runner import GpuContents, GpuRunner, packed
from fusewise.trace import Trace
from fusewise.version import VERSION

if TYPE_CHECKING:
    from fusewise.codegen.gpu.program import GpuProgram
    from fusewise.ir.graph import Graph
    from fusewise.making import CompilationChoice, GpuMaking, GpuPlanned

__all__ = ["GpuSource", "gpu_model"]

_ROOM = 1 << 24
"""Bytes of a simulated device beside those that a program needs."""


@dataclass(frozen=True)
class GpuSource:
    """A model: as the user gave it, `bound` its graph with every dimension a number, `written` as it was read."""

    given: Any
    bound: Callable[[], Graph]
    written: Callable[[], Graph]


def gpu_model(
    source: GpuSource, chosen: Options, trace: Trace | None, clock: StageClock, *, interpret: bool = False
) -> Model:
    """The model for `chosen.device`. That for the GPU that is here (`cuda`) is loaded there at once, any other by its first run.

    To `interpret` it where no GPU runs it, which is slow, kernels are not compiled, and run in Triton's interpreter. Raises
    what `making.gpu_planned`, `TritonCompiler.compile` and `runtime.gpu.drivers.opened` raise.
    """
    begin = time.perf_counter()
    choice = device_choice(chosen.device)
    with ExitStack() as held:
        row, name = _architecture(choice, held)
        choice = replace(choice, architecture=row.name)
        simulated = interpret and not _is_here(choice)
        if simulated:
            rounds = " and does not round to TF32" if chosen.precision == "tf32" else ""
            chosen.warn(f"there is no {row.name} here: kernels run in Triton's interpreter, which is slow{rounds}")
        made = _made(
            source, replace(chosen, device=choice.text), trace, _How(choice, row, clock, begin, simulated, name)
        )
        runner = made.runs
        runner.limit_memory(chosen.memory_limit)
        if isinstance(runner, GpuRunner) and not device_choice(chosen.device).architecture:
            runner.load()
        return made


@dataclass(frozen=True)
class _How:
    """For which GPU, whose row that is, who is told of progress since when, whether kernels are interpreted, and what the GPU calls
    itself, where it was asked."""

    choice: DeviceChoice
    row: Device
    clock: StageClock
    begin: float
    simulated: bool
    name: str = ""


def _architecture(choice: DeviceChoice, held: ExitStack) -> tuple[Device, str]:
    """That of the choice, or of the GPU that is here with its name. Its driver stays open as long as it is `held`: to open it again
    then takes no time."""
    if choice.architecture:
        return device_named(choice.architecture), ""
    try:
        driver = drivers.opened(choice)
    except (NoDriver, NoDevice) as error:
        raise type(error)(f"{error}; to compile without a GPU name an architecture, such as cuda:sm_90") from error
    held.callback(driver.close)
    return drivers.row_of(driver), driver.name


def _is_here(choice: DeviceChoice) -> bool:
    try:
        drivers.opened(choice).close()
    except (NoDriver, NoDevice, WrongArchitecture):
        return False
    return True


def _made(source: GpuSource, chosen: Options, trace: Trace | None, how: _How) -> Model:
    """The model from the cache, or compiled now. `chosen.device` names the architecture."""
    from fusewise.runtime.model_cache import ModelCache, describes

    warn, folder = first_only(chosen.warn), cache_folder(chosen.cache)
    decisions = Trace(disabled=frozenset(chosen.disable)) if trace is None else trace
    is_kept = folder is not None and trace is None and not how.simulated
    key = key_of(source.given, chosen) if is_kept else None
    store = None if folder is None or key is None else ModelCache(folder, warn)
    if store is not None and key is not None:
        device = DeviceChoice(is_gpu=True, number=how.choice.number).text
        kept = None if chosen.tune else store.fetch(key.text, VERSION, chosen.threads, device)
        if kept is not None:
            return opened(kept, lambda: _graph(_planned(source.bound(), chosen, decisions, how), decisions), how.begin)
    bound = source.bound()
    choice = None if folder is None or how.simulated else _choice(bound, chosen, folder, how)
    found = _planned(bound, chosen, decisions, how, choice)
    tell_of_idle(chosen, decisions, warn)
    cubins = None if how.simulated else _cubins(found.program, chosen, folder, how)
    how.clock("packing", 0.0)
    runner = GpuRunner(GpuContents(packed(found.program), cubins), _opener(found.program, how))
    summary = _summary(source, chosen, found, runner, how) | {
        "tuning": choice.described if chosen.tune and choice else None
    }
    model = Model(runner, lambda: _graph(found, decisions), summary)
    if store is not None and key is not None and describes(key):
        store.store(key.text, runner, model.notes, VERSION)
    return model


def _graph(found: GpuPlanned, trace: Trace) -> tuple[Graph, Trace]:
    return found.graph, trace


def _choice(bound: Graph, chosen: Options, folder: Path, how: _How) -> CompilationChoice | None:
    """What is measured now to be fastest on the GPU, or was before. Only where it was opened for this is it known which it is."""
    from fusewise.gpu_tuning import GpuTuning, gpu_kept, gpu_tuned

    making = _making(chosen, how)
    if not chosen.tune:
        return gpu_kept(folder, bound, making, how.name) if how.name else None
    from fusewise.runtime.cache import KernelCache
    from fusewise.runtime.gpu.compile import TritonCompiler
    from fusewise.runtime.host import worker_count
    from fusewise.runtime.measure import machine_name
    from fusewise.runtime.profile import ProfileDatabase

    driver = drivers.opened(how.choice)
    try:
        with TritonCompiler(worker_count(chosen.threads)) as compiler:
            database = ProfileDatabase(folder, machine_name(), chosen.warn)
            store = KernelCache(folder, first_only(chosen.warn))
            return gpu_tuned(bound, making, GpuTuning(driver, compiler, database, store, chosen.tune, how.clock))
    finally:
        driver.close()


def _planned(
    bound: Graph, chosen: Options, trace: Trace, how: _How, choice: CompilationChoice | None = None
) -> GpuPlanned:
    from fusewise.choices import gpu_costs
    from fusewise.making import gpu_planned

    how.clock("planning", 0.0)
    making, folder = _making(chosen, how), cache_folder(chosen.cache)
    is_measured = (
        how.name and folder is not None and choice is None
    )  # a choice is one among kernels of estimated groups
    costs = gpu_costs(folder, making, how.name) if is_measured and folder is not None else None
    return gpu_planned(bound, making, trace, choice, costs)


def _making(chosen: Options, how: _How) -> GpuMaking:
    from fusewise.making import GpuMaking

    if isinstance(chosen.passes, str):
        raise UsageError(f"passes by name are for models that run on a CPU, not on {chosen.device}; leave them out")
    if chosen.disable and isinstance(chosen.passes, bool):
        require_known(chosen.disable)
    return GpuMaking(
        how.row,
        chosen.precision,
        chosen.fusion,
        chosen.exact,
        chosen.strict,
        chosen.passes,
        tuple(chosen.disable),
    )


def _cubins(program: GpuProgram, chosen: Options, folder: Path | None, how: _How) -> tuple[Cubin, ...]:
    """The program's kernels compiled, by as many processes as there are threads."""
    from fusewise.runtime.cache import KernelCache
    from fusewise.runtime.gpu.compile import TritonCompiler
    from fusewise.runtime.host import worker_count

    how.clock("compiling", 0.0)
    processes = max(1, min(worker_count(chosen.threads), len(program.kernels)))
    with TritonCompiler(processes) as compiler:
        cubins = compiler.compile(
            program.kernels,
            how.row,
            contracted=not chosen.exact,
            store=None if folder is None else KernelCache(folder, first_only(chosen.warn)),
            progress=lambda done, total: how.clock("compiling", done / total),
        )
    return tuple(cubins)


def _opener(program: GpuProgram, how: _How) -> Callable[[], Any]:
    """Opens the GPU that a program is for, or a simulated one."""
    if how.simulated:
        nbytes = sum(device_sizes(program)) + _ROOM
        return lambda: drivers.simulated(how.row.name, nbytes)
    return lambda: drivers.opened(how.choice)


def _summary(source: GpuSource, chosen: Options, found: GpuPlanned, runner: GpuRunner, how: _How) -> dict[str, Any]:
    """The figures of a model, as plain JSON."""
    from fusewise.hosting import described

    return {
        **asdict(runner.figures),
        "device": runner.device,
        "precision": found.program.precision,
        "groups": found.program.groups,
        "workers": runner.workers,
        "ran_on": f"a simulated {how.row.name}: Triton's interpreter, no GPU" if how.simulated else runner.device,
        "host": described(found.graph, found.program),
        "slow_host": None,
        "symbols": [],
        "frozen": frozen(source.written, found.bound, chosen),
        "stages": how.clock.stages,  # before the whole, of which they are parts
        "compile_ms": (time.perf_counter() - how.begin) * 1e3,
    }

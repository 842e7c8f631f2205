"""From a graph that was read to a model for a GPU: planned, its kernels compiled by Triton, ready to be loaded there.

No GPU is needed, but where its architecture is left open (`cuda`). What has been compiled before comes from the cache, without
Triton.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from fusewise.codegen.gpu.device import Device, DeviceChoice, device_choice
from fusewise.compiled import Model, opened
from fusewise.compiling import StageClock, frozen, gpu_making, key_of, planned_for_gpu, tell_of_idle
from fusewise.errors import UsageError
from fusewise.frontend.given import sizes_to_plan_for
from fusewise.ir.at_sizes import at_sizes
from fusewise.ir.deciding import hint
from fusewise.ir.size import size_of
from fusewise.ir.types import TensorType
from fusewise.lower.program import Port, Program
from fusewise.options import Options
from fusewise.runtime.folder import cache_folder, first_only
from fusewise.runtime.gpu import drivers
from fusewise.runtime.gpu.driver import Cubin, NoDevice, NoDriver, WrongArchitecture
from fusewise.runtime.gpu.memory import device_sizes
from fusewise.runtime.gpu.runner import GpuContents, GpuRunner, packed
from fusewise.runtime.gpu.sized import MOST, Make, SizedPrograms
from fusewise.trace import Trace
from fusewise.version import VERSION
from fusewise.words import sizes_text

if TYPE_CHECKING:
    from fusewise.codegen.gpu.kernel import GpuKernel
    from fusewise.codegen.gpu.program import GpuProgram
    from fusewise.ir.graph import Constant, Graph
    from fusewise.making import CompilationChoice, GpuPlanned
    from fusewise.reporting.report import Report
    from fusewise.runtime.artefact import Artefact

__all__ = ["GpuSource", "gpu_model", "gpu_profiled"]

_ROOM = 1 << 24
"""Bytes of a simulated device beside those that a program needs."""

_LARGE = 1 << 35
"""Bytes of a simulated device for programs that are not known yet: the system gives them as they are used."""


@dataclass(frozen=True)
class GpuSource:
    """A model: as the user gave it, `bound` its graph with every dimension a number or free, `written` as it was read."""

    given: Any
    bound: Callable[[], Graph]
    written: Callable[[], Graph]


Look = Callable[["GpuPlanned", Trace], None]


def gpu_model(
    source: GpuSource,
    chosen: Options,
    trace: Trace | None,
    clock: StageClock,
    look: Look | None = None,
    *,
    interpret: bool = False,
) -> Model:
    """The model for `chosen.device`. That for the GPU that is here (`cuda`) is loaded there at once, any other by its first run.

    To `interpret` it where no GPU runs it, which is slow, kernels are not compiled, and run in Triton's interpreter. `look` is
    shown what was planned, with the decisions, before kernels are compiled; not of a model from the cache, for which a `trace`
    never looks. Raises what `making.gpu_planned`, `TritonCompiler.compile` and `runtime.gpu.drivers.opened` raise.
    """
    begin = time.perf_counter()
    choice = device_choice(chosen.device)
    with ExitStack() as held:
        row, name = drivers.row_for(choice, "compile", held)
        choice = replace(choice, architecture=row.name)
        simulated = interpret and not _is_here(choice)
        if simulated:
            rounds = " and does not round to TF32" if chosen.precision == "tf32" else ""
            chosen.warn(f"there is no {row.name} here: kernels run in Triton's interpreter, which is slow{rounds}")
        named = replace(chosen, device=choice.text)
        how = _How(choice, row, clock, begin, simulated, name)
        made = _made(source, named, trace, how, look)
        runner = made.runs
        runner.limit_memory(chosen.memory_limit)
        if isinstance(runner, GpuRunner | SizedPrograms) and not device_choice(chosen.device).architecture:
            runner.load()

    model = weakref.ref(
        made
    )  # which else would hold itself, and the device's memory until Python looks for such circles

    def report_again(times: bool, seed: int) -> Report:
        from fusewise.reporting.report import reported_as

        return reported_as(cast("Model", model()), _planned_again(source, named, how), chosen, seed if times else None)

    made.report_again = report_again
    return made


def gpu_profiled(compiled: Callable[[], Model], device: str, seed: int, runs: int) -> dict[str, Any]:
    """Where the time of a model goes on the GPU that is here, as `benchmarking.gpu_roofline` has it, on random inputs from `seed`.

    What is missing for that is told before it is `compiled`.
    """
    from fusewise.benchmarking.gpu_roofline import gpu_profile

    drivers.opened(device).close()
    with compiled() as model:
        runner = cast("GpuRunner", model.runs)
        return gpu_profile(runner.load_usual(), runner.usual.cubins or (), model.random_inputs(seed), runs)


def _planned_again(source: GpuSource, chosen: Options, how: _How) -> tuple[GpuPlanned, Trace]:
    """What the model was planned as, of choices that were measured before; with free dimensions, for the sizes to plan for."""
    bound, kept = _usual(source.bound()), replace(chosen, tune=0.0)
    choice = _choice(bound, kept, how)
    trace = Trace(disabled=frozenset(chosen.disable))
    return planned_for_gpu(bound, kept, trace, how.row, how.name, choice), trace


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


def _is_here(choice: DeviceChoice) -> bool:
    try:
        drivers.opened(choice).close()
    except (NoDriver, NoDevice, WrongArchitecture):
        return False
    return True


def _made(source: GpuSource, chosen: Options, trace: Trace | None, how: _How, look: Look | None) -> Model:
    """The model from the cache, or compiled now. `chosen.device` names the architecture."""
    from fusewise.runtime.model_cache import ModelCache, describes, unchanged

    warn, folder = first_only(chosen.warn), cache_folder(chosen.cache)
    decisions = Trace(disabled=frozenset(chosen.disable)) if trace is None else trace
    is_kept = folder is not None and trace is None and not how.simulated
    key = key_of(source.given, chosen) if is_kept else None
    store = None if folder is None or key is None else ModelCache(folder, warn)
    if store is not None and key is not None:
        device = DeviceChoice(is_gpu=True, number=how.choice.number).text
        kept = None if chosen.tune else store.fetch(key.text, VERSION, chosen.threads, device)
        if kept is not None:
            return _kept(kept, lambda: unchanged(key, source.given, source.bound()), chosen, decisions, how)
    bound = source.bound()
    if bound.symbols:
        model = _made_for_sizes(source, bound, chosen, decisions, how, look)
    else:
        choice = _choice(bound, chosen, how)
        found = _planned(bound, chosen, decisions, how, choice)
        if look is not None:
            look(found, decisions)
        (contents,) = _contents([found], chosen, how)
        runner = GpuRunner(contents, _opener(found.program, how))
        summary = _summary(source, chosen, found, runner, how) | {
            "tuning": choice.described if chosen.tune and choice else None
        }
        model = Model(runner, lambda: _graph(found, decisions), summary)
    tell_of_idle(chosen, decisions, warn)
    if store is not None and key is not None and describes(key):
        store.store(key.text, model.runs, model.notes, VERSION)
    return model


def _kept(kept: Artefact, bound: Callable[[], Graph], chosen: Options, trace: Trace, how: _How) -> Model:
    """The model of an artefact from the cache. Its graph is read again only when somebody asks for it, or other sizes come."""
    read = cache(bound)

    def planned() -> tuple[Graph, Trace]:
        return _graph(_planned(_usual(read()), chosen, trace, how), trace)

    if isinstance(kept.executable, SizedPrograms):
        kept.executable.most = chosen.specialize or MOST
        kept.executable.make = _maker(read, chosen, trace, how)
    return opened(kept, planned, how.begin)


# --- free dimensions ------------------------------------------------------------------------------------------------------


def _made_for_sizes(
    source: GpuSource, bound: Graph, chosen: Options, trace: Trace, how: _How, look: Look | None
) -> Model:
    """The model with a program for each of the sizes to plan for, which makes others when their sizes come. `trace` takes the
    decisions about the first."""
    sizes = sizes_to_plan_for(bound, source.written(), chosen.symbols)
    traces = [trace, *(_anew(trace) for _ in sizes[1:])]
    founds = []
    for values, decisions in zip(sizes, traces, strict=True):
        graph = _at(bound, values)
        founds.append(_planned(graph, chosen, decisions, how, _choice(graph, chosen, how)))
    if look is not None:
        look(founds[0], trace)
    contents = _contents(founds, chosen, how, {})
    bound.forget()  # what was looked at is read again where it is needed
    programs = SizedPrograms(
        Program(
            *(_ports(bound, bound.inputs), _ports(bound, bound.outputs), (), (), (), 0, 0),
            symbols=bound.symbols,
            checks=bound.checks,
        ),
        dict(zip((tuple(one.values()) for one in sizes), contents, strict=True)),
        _opener(None, how),
        chosen.specialize or MOST,
        _maker(lambda: bound, chosen, trace, how),
    )
    summary = _summary(source, chosen, founds[0], programs, how) | {
        "symbols": [symbol.name for symbol in bound.symbols],
        "frozen": frozen(source.written, bound, chosen),
        "tuning": None,
    }
    return Model(programs, lambda: _graph(founds[0], trace), summary)


def _maker(bound: Callable[[], Graph], chosen: Options, trace: Trace, how: _How) -> Make:
    """What makes programs for other sizes of the graph, by the same options; nobody is told how far it is."""
    quiet = replace(how, clock=StageClock())

    def make(sizes: Mapping[str, int], known: dict[str, Constant]) -> GpuContents:
        graph = _at(bound(), sizes)
        found = _planned(graph, chosen, _anew(trace), quiet, _choice(graph, chosen, quiet))
        (contents,) = _contents([found], chosen, quiet, known)
        graph.forget()  # what was looked at is read again where it is needed
        return contents

    return make


def _anew(trace: Trace) -> Trace:
    """A trace that allows what another does."""
    return Trace(disabled=trace.disabled, limit=trace.limit)


def _ports(graph: Graph, names: Sequence[str]) -> tuple[Port, ...]:
    return tuple(Port(name, graph.types[name], -1) for name in names)


def _usual(graph: Graph) -> Graph:
    """The graph at the sizes to plan for."""
    sizes = {symbol.name: hint(size_of(symbol)) for symbol in graph.symbols}
    return _at(graph, sizes) if sizes else graph


def _at(graph: Graph, sizes: Mapping[str, int]) -> Graph:
    """The graph at these sizes; `UsageError` where a value would have less than no elements, or a size be divided by 0."""
    told = sizes_text(sizes)
    try:
        found = at_sizes(graph, sizes)
    except ZeroDivisionError as error:
        raise UsageError(f"the model divides a size by 0 for {told}: use larger input shapes") from error
    for name, kind in found.types.items():
        if isinstance(kind, TensorType) and any(isinstance(dim, int) and dim < 0 for dim in kind.shape or ()):
            raise UsageError(f"{name!r} would have less than no elements for {told}: use larger input shapes")
    return found


def _graph(found: GpuPlanned, trace: Trace) -> tuple[Graph, Trace]:
    return found.graph, trace


def _choice(bound: Graph, chosen: Options, how: _How) -> CompilationChoice | None:
    """What is measured now to be fastest on the GPU, or was before. Only where it was opened for this is it known which it is."""
    folder = cache_folder(chosen.cache)
    if folder is None or how.simulated:
        return None
    from fusewise.gpu_tuning import GpuTuning, gpu_kept, gpu_tuned

    making = gpu_making(chosen, how.row)
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
    how.clock("planning", 0.0)
    return planned_for_gpu(bound, chosen, trace, how.row, how.name, choice)


def _contents(
    founds: Sequence[GpuPlanned], chosen: Options, how: _How, known: dict[str, Constant] | None = None
) -> list[GpuContents]:
    """What was planned with its kernels compiled, by as many processes as there are threads, and its constants packed; those
    that are `known` are not kept twice."""
    kernels = [kernel for found in founds for kernel in found.program.kernels]
    cubins = None if how.simulated else iter(_cubins(kernels, chosen, how))
    how.clock("packing", 0.0)
    contents = []
    for found in founds:
        own = None if cubins is None else tuple(islice(cubins, len(found.program.kernels)))
        contents.append(GpuContents(packed(found.program, known), own))
    return contents


def _cubins(kernels: Sequence[GpuKernel], chosen: Options, how: _How) -> list[Cubin]:
    from fusewise.runtime.cache import KernelCache
    from fusewise.runtime.gpu.compile import TritonCompiler
    from fusewise.runtime.host import worker_count

    how.clock("compiling", 0.0)
    if not kernels:  # of nothing but empty values
        return []
    folder = cache_folder(chosen.cache)
    with TritonCompiler(max(1, min(worker_count(chosen.threads), len(kernels)))) as compiler:
        return compiler.compile(
            kernels,
            how.row,
            contracted=not chosen.exact,
            store=None if folder is None else KernelCache(folder, first_only(chosen.warn)),
            progress=lambda done, total: how.clock("compiling", done / total),
        )


def _opener(program: GpuProgram | None, how: _How) -> Callable[[], Any]:
    """Opens the GPU that a program is for, or a simulated one; of programs for any sizes there is none."""
    if how.simulated:
        nbytes = _LARGE if program is None else sum(device_sizes(program)) + _ROOM
        return lambda: drivers.simulated(how.row.name, nbytes)
    return lambda: drivers.opened(how.choice)


def _summary(
    source: GpuSource, chosen: Options, found: GpuPlanned, runner: GpuRunner | SizedPrograms, how: _How
) -> dict[str, Any]:
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

"""From a graph that was read to a program, as the options say."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fusewise.compiled import SUFFIX
from fusewise.decisions import names_of_decisions, require_known
from fusewise.errors import UsageError
from fusewise.options import Options, settings_of
from fusewise.runtime.folder import cache_folder
from fusewise.sources import ZOO
from fusewise.trace import Trace

if TYPE_CHECKING:
    from fusewise.codegen.gpu.device import Device
    from fusewise.fusion.cost import CostSource
    from fusewise.ir.graph import Graph
    from fusewise.making import CompilationChoice, GpuMaking, GpuPlanned, Making, Planned
    from fusewise.runtime.model_cache import Key

__all__ = [
    "Progress",
    "StageClock",
    "frozen",
    "gpu_making",
    "key_of",
    "not_for_all_sizes",
    "planned",
    "planned_for_gpu",
    "sized_anyway",
    "tell_of_cliff",
    "tell_of_idle",
]

Progress = Callable[[str, float], None]
"""Told what is being done and the finished share of it, 0 to 1."""


class StageClock:
    """A `Progress` that keeps what each stage takes, until the next begins, and passes on what it is told to another."""

    def __init__(self, progress: Progress | None = None) -> None:
        self._progress = progress
        self._begun: list[tuple[str, float]] = []

    def __call__(self, what: str, share: float) -> None:
        stage = what.partition(": ")[0]  # what is behind a colon is a detail
        if not self._begun or self._begun[-1][0] != stage:
            self._begun.append((stage, time.perf_counter()))
        if self._progress is not None:
            self._progress(what, share)

    @property
    def stages(self) -> list[dict[str, Any]]:
        """A row for each stage up to now, in the order in which they first began: its `name`, and `ms` that it took in all."""
        ends = [*(begin for _, begin in self._begun[1:]), time.perf_counter()]
        taken: dict[str, float] = {}
        for (stage, begin), end in zip(self._begun, ends, strict=False):
            taken[stage] = taken.get(stage, 0.0) + (end - begin) * 1e3
        return [{"name": stage, "ms": ms} for stage, ms in taken.items()]


def planned(
    bound: Graph, options: Options, trace: Trace, warn: Callable[[str], None], progress: Progress | None = None
) -> Planned:
    """From the graph that was read to the program: passes, what is known of the result or measured now, groups, code."""
    from fusewise.making import Planned, generated, grouped

    if options.on_gpu:
        raise UsageError(f"this is about code for a CPU, and the model is for {options.device}: leave the device out")
    if options.disable and isinstance(options.passes, bool | str):
        require_known(options.disable)
    tell = progress or (lambda what, share: None)
    tell("rewriting", 0.0)
    clean, graph, making = _legal(bound, options, trace, warn, tell)
    choice, costs = _known(graph, making, options, warn, progress)
    tell("fusing", 0.0)
    groups = grouped(graph, making, trace, choice, costs)
    tell("generating code", 0.0)
    program = generated(groups, making, trace, choice)
    tell_of_idle(options, trace, warn)
    return Planned(bound, clean, graph, groups, program, choice)


def gpu_making(options: Options, row: Device) -> GpuMaking:
    """How a graph becomes a program for a GPU of that `row`. `UsageError` for what is for CPUs alone, and unknown names."""
    from fusewise.making import GpuMaking

    if isinstance(options.passes, str):
        raise UsageError(f"passes by name are for models that run on a CPU, not on {options.device}; leave them out")
    if options.disable and isinstance(options.passes, bool):
        require_known(options.disable)
    how = (options.precision, options.fusion, options.exact, options.strict, options.passes, tuple(options.disable))
    return GpuMaking(row, *how)


def planned_for_gpu(
    bound: Graph,
    options: Options,
    trace: Trace,
    row: Device,
    name: str = "",
    choice: CompilationChoice | None = None,
) -> GpuPlanned:
    """As `planned`, for a GPU of that `row`. What was measured on one that calls itself `name` has a say, but not beside a
    `choice`, which is one among kernels of estimated groups."""
    from fusewise.choices import gpu_costs
    from fusewise.making import gpu_planned

    making, folder = gpu_making(options, row), cache_folder(options.cache)
    costs = gpu_costs(folder, making, name) if name and folder is not None and choice is None else None
    return gpu_planned(bound, making, trace, choice, costs)


def tell_of_idle(options: Options, trace: Trace, warn: Callable[[str], None]) -> None:
    """Warn of names to disable that nothing was decided by: those of one node, and of what passes of the user's own might be
    called."""
    if not options.disable or trace.limit is not None:
        return
    known = names_of_decisions()
    names = [name for name in trace.idle(options.disable) if "@" in name or name not in known]
    if names:
        warn(f"nothing in this model is decided by {' or '.join(names)}, so disabling it changes nothing")


def _legal(
    bound: Graph, options: Options, trace: Trace, warn: Callable[[str], None], tell: Progress
) -> tuple[Graph, Graph, Making]:
    """The graph after the passes that are asked for, and after those for native code, and how it is to become a program."""
    from fusewise.codegen.legalize import for_native, passes_for
    from fusewise.making import Making
    from fusewise.passes.pipeline import run
    from fusewise.runtime.host import host_target, worker_count

    fusion, disable = options.fusion, tuple(options.disable)
    if isinstance(options.passes, str):
        from fusewise.outcomes import asked

        clean, fusion, disable = asked(options.passes, bound, trace, options.exact, disable, warn)
    else:
        clean = run(bound, passes_for(host_target(), options.passes), trace, exact=options.exact)
    tell("legalizing", 0.0)
    graph = for_native(clean, options.precision, trace, exact=options.exact, target=host_target())
    workers = worker_count(options.threads)
    return clean, graph, Making(workers, fusion, options.exact, options.strict, disable, options.sanitize)


def _known(
    graph: Graph, making: Making, options: Options, warn: Callable[[str], None], progress: Progress | None
) -> tuple[CompilationChoice | None, CostSource | None]:
    """What this machine knows of a graph, after measuring if that is wanted; nothing without a cache folder."""
    folder = cache_folder(options.cache)
    if folder is None:
        return None, None
    if options.tune:
        from fusewise.tuning import tuned_here

        return tuned_here(folder, graph, making, options.tune, warn, progress), None
    from fusewise.choices import known

    return known(folder, graph, making, warn)


def frozen(source: Callable[[], Graph], bound: Graph, options: Options) -> dict[str, Any]:
    """What the compiled model has for good that the model leaves open, as plain data.

    `sizes` of free dimensions by name, `values` of inputs that were given, and `defaults`: inputs that the model has a value for.
    `source` reads the model as it was written; it is asked only where something was given, or every dimension must have a size.
    """
    from fusewise.frontend.functions import defaults_of
    from fusewise.ir.types import TensorType

    sizes: dict[str, int] = {}
    if options.shapes or options.symbols or options.values or options.is_sized:
        written = source()
        for name in bound.inputs:
            before, after = written.types.get(name), bound.types[name]
            if isinstance(before, TensorType) and isinstance(after, TensorType) and before.shape and after.shape:
                for axis, (dim, size) in enumerate(zip(before.shape, after.shape, strict=False)):
                    if not isinstance(dim, int) and isinstance(size, int):
                        sizes[str(dim) if dim else f"{name} axis {axis}"] = size
    return {"sizes": sizes, "values": list(options.values), "defaults": list(defaults_of(bound.metadata))}


def tell_of_cliff(summary: Mapping[str, Any], options: Options) -> None:
    """Warn of a host step that takes most of a run."""
    if summary["slow_host"]:
        options.warn(summary["slow_host"])


def key_of(model: Any, options: Options) -> Key | None:
    """What the compiled model depends on; None for a model that is neither a file nor one of the zoo by name, has passes of its
    own, or registered operators."""
    from fusewise.ops.registered import REGISTERED
    from fusewise.runtime.model_cache import model_key

    if not isinstance(model, str | Path) or Path(model).suffix == SUFFIX or not isinstance(options.passes, bool):
        return None
    is_named = str(model).startswith(ZOO)
    if REGISTERED.domains and not is_named:
        from fusewise.frontend.onnx_import import may_name

        if may_name(Path(model), REGISTERED.domains):
            return None
    return model_key(str(model), is_named, settings_of(options) | _made_by(options), options.threads)


def _made_by(options: Options) -> dict[str, str]:
    """What makes machine code of kernels for a GPU, by its version."""
    if not options.on_gpu:
        return {}
    from importlib import metadata

    try:
        return {"triton": metadata.version("triton")}
    except metadata.PackageNotFoundError:
        return {"triton": "none"}


def not_for_all_sizes() -> tuple[type[Exception], ...]:
    """What is raised where a model cannot be compiled for free dimensions; a size where only a number will do is a `TypeError`."""
    from fusewise.errors import UnsupportedModel
    from fusewise.ops.spec import NotDefined

    return UnsupportedModel, NotDefined, TypeError


def sized_anyway(bound: Callable[[], Graph], options: Options, error: Exception) -> Graph:
    """The graph without free dimensions, for which it could not be compiled; `UnsupportedModel` where they have no size."""
    from fusewise.errors import UnsupportedModel, UsageError

    told = " ".join(str(error).split()) or type(error).__name__
    try:
        found = bound()
    except UsageError as missing:
        raise UnsupportedModel(f"the model cannot be compiled for all sizes ({told}): {missing}") from error
    options.warn(f"the model cannot be compiled for all sizes, only for those given and batches of 1: {told}")
    return found

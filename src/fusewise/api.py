"""What a user does, each verb in a few lines: load, optimize, compile, run, inspect, bench, verify.

A model is given as a path, `zoo:NAME`, bytes, a `ModelProto` or a `Graph`. Everything heavy is imported by the verb that
needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from fusewise.compiled import Model, open_compiled
from fusewise.compiling import Progress, StageClock
from fusewise.errors import within_memory
from fusewise.options import Options, options_from
from fusewise.runtime.folder import cache_folder
from fusewise.sources import ZOO, graph_for, load, made_here, name_of, read
from fusewise.trace import Trace

if TYPE_CHECKING:
    import onnx

    from fusewise.benchmarking.verification import Verification
    from fusewise.comparing import Comparison, ComparisonDict
    from fusewise.explaining import ExplanationDict
    from fusewise.frontend.given import Given
    from fusewise.inspecting import GpuInspectionDict
    from fusewise.ir.graph import Graph
    from fusewise.optimizing import SearchDict
    from fusewise.options import OptionsDict
    from fusewise.passes.pipeline import Pass
    from fusewise.planning import PlanDict, Planning, PlanOptions
    from fusewise.reporting.report import Report
    from fusewise.sources import Source
    from fusewise.verifying import VerificationDict

__all__ = [
    "ZOO",
    "Model",
    "Options",
    "Progress",
    "bench",
    "cache_folder",
    "compile",
    "explain",
    "from_torch",
    "inspect",
    "load",
    "open_compiled",
    "optimize",
    "plan",
    "profile",
    "read",
    "report",
    "save",
    "to_onnx",
    "verify",
]


@within_memory("the model is read")
def from_torch(module: Any, args: Sequence[Any], **options: Any) -> Graph:
    """The graph of a PyTorch module, through `torch.export` and the ONNX exporter. `args` are example inputs."""
    from fusewise.frontend import torch_import

    return torch_import.from_torch(module, args, **options)


@within_memory("the graph is made better")
def optimize(
    model: Source,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    symbols: Mapping[str, Given] | None = None,
    values: Mapping[str, Any] | None = None,
    passes: bool | Sequence[Pass] = True,
    trace: Trace | None = None,
    **settings: Unpack[SearchDict],
) -> Graph:
    """A better graph for any runtime: the same answers from fewer and cheaper nodes; under `exact` to the last bit.

    More `settings`, such as `search`, are those of `optimizing.optimized`, which looks for substitutions too and keeps a record.
    """
    exact = bool(settings.get("exact"))
    if settings.keys() - {"exact"}:
        from fusewise.optimizing import optimized

        graph = load(model, shapes=shapes, symbols=symbols, values=values, free="search" not in settings)
        return optimized(graph, passes=passes, trace=trace, **(settings | {"exact": exact})).graph
    from fusewise.codegen.legalize import passes_for
    from fusewise.passes.pipeline import PORTABLE, run

    chosen = passes_for(None, PORTABLE if passes is True else passes)
    return run(load(model, shapes=shapes, symbols=symbols, values=values, free=True), chosen, trace, exact=exact)


@within_memory("the model is written")
def to_onnx(graph: Graph, *, target: str = "onnx") -> onnx.ModelProto:
    """A graph as an ONNX model in memory, at the lowest opset that holds it; node names and provenance kept.

    For the `target` `onnxruntime` alone, with operators of its own where they say more.
    """
    from fusewise.frontend import onnx_export
    from fusewise.partitioning import in_functions
    from fusewise.passes.onnxruntime_operators import written_for

    lowest = written_for(graph, target)
    return in_functions(lowest)(onnx_export.to_model(lowest))


@within_memory("the model is written")
def save(graph: Graph, path: str | Path, *, target: str = "onnx") -> None:
    """Write a graph as an ONNX file as `to_onnx` has it, whole or not at all; large weights go to a file beside it."""
    from fusewise.frontend import onnx_export
    from fusewise.partitioning import in_functions
    from fusewise.passes.onnxruntime_operators import written_for

    lowest = written_for(graph, target)
    onnx_export.save(lowest, Path(path), finished=in_functions(lowest))


@within_memory("the model is compiled")
def compile(  # noqa: A001 - the verb of the trade; reached as fusewise.compile
    model: Source | Any,
    options: Options | Sequence[Any] | None = None,
    *,
    example_inputs: Sequence[Any] | None = None,
    trace: Trace | None = None,
    progress: Progress | None = None,
    **settings: Unpack[OptionsDict],
) -> Model:
    """Native code for a model. `settings` are the fields of `Options`, given one by one. A PyTorch module needs `example_inputs`,
    which may stand in the place of `options`; see `from_torch` for more.

    Raises what `load` raises, `UnsupportedModel` under `strict`, and `ResourceLimit` when the model would not fit.
    """
    if options is not None and not isinstance(options, Options):
        options, example_inputs = None, options
    source = model if example_inputs is None else from_torch(model, example_inputs)
    return _compiled(source, options_from(options, settings), trace, progress)


def _compiled(
    model: Source,
    chosen: Options,
    trace: Trace | None = None,
    progress: Progress | None = None,
    look: Callable[[Any, Trace], None] | None = None,
    interpret: bool = False,
) -> Model:
    """What `compile` gives. `look`: see `cpu_model`; `interpret`: see `gpu_model`."""
    if not chosen.on_gpu:
        from fusewise.on_cpu import cpu_model

        return cpu_model(model, chosen, trace, progress, look=look)
    from fusewise.on_gpu import GpuSource, gpu_model

    clock = StageClock(progress)
    clock("loading", 0.0)
    source = GpuSource(model, partial(graph_for, model, chosen), partial(read, model))
    return gpu_model(source, chosen, trace, clock, look, interpret=interpret)


@within_memory("the model is looked at")
def inspect(
    model: Source,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    symbols: Mapping[str, int] | None = None,
    values: Mapping[str, Any] | None = None,
    device: str = "cpu",
    **wanted: Unpack[GpuInspectionDict],
) -> dict[str, Any]:
    """What a model is: size, cost, operators, mapping types, and what of it would run natively on this machine.

    `fusion` is the planner. With `groups` the fusion plan is added: every group under `groups`, the verdict on every edge under
    `verdicts`. `why` names a node whose neighbours' verdicts are wanted, `tree` a group, by its number or a node in it, whose
    data-flow tree and code are. Raises what `load` raises, and `UsageError` for an unknown node or group.

    For a GPU as `device` there are `steps` and `totals`; further keywords are for one alone (`inspecting.GpuInspection`).
    """
    from fusewise.inspecting import inspected_on, require_keywords

    require_keywords(wanted, device)
    return inspected_on(load(model, shapes=shapes, symbols=symbols, values=values, free=True), device, wanted)


@within_memory("a plan is made")
def plan(
    model: Source,
    options: PlanOptions | None = None,
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
    symbols: Mapping[str, int] | None = None,
    progress: Progress | None = None,
    **settings: Unpack[PlanDict],
) -> Planning:
    """A layer-fusion plan for an accelerator with a small buffer. `settings` are fields of `PlanOptions`, given one by one.

    Raises what `load` raises, `NoFeasiblePlan` when nothing can be planned, and `UsageError` for unknown names.
    """
    from fusewise.planning import plan_graph, plan_options, require_sizes

    chosen = plan_options(options, settings)
    source = made_here(model)
    graph = read(source)
    require_sizes(graph, shapes or {}, symbols or {})
    bound = load(graph, shapes=shapes, symbols=symbols)
    return plan_graph(bound, name_of(model, graph), chosen, shapes=shapes, symbols=symbols, progress=progress)


@within_memory("a decision is explained")
def explain(
    subject: Source,
    group: int | None = None,
    *,
    node: str | None = None,
    options: Options | None = None,
    trace: Trace | None = None,
    **settings: Unpack[ExplanationDict],
) -> dict[str, Any]:
    """What was decided about a `node` of a model, in order, with reasons; or why a `group` of a plan (.json) ends where it does.

    Of a model `settings` are the fields of `Options`, given one by one, and `trace` takes all decisions; no machine code is made.
    Of a plan: what the group keeps in the buffer, and where to cut it and a `neighbour`, by an `explainer` at a `share` of the
    edges, with a `seed`. Raises what `load` raises, and `UsageError` for unknown names and numbers.
    """
    from fusewise.explaining import is_plan, node_explained, plan_explained, require_node

    if is_plan(subject):
        return plan_explained(Path(str(subject)), (group, node), settings, load)
    require_node(subject, group, node)
    chosen, written = options_from(options, settings), read(subject)
    return node_explained(written, graph_for(written, chosen), chosen, str(node), trace)


@within_memory("the model is verified")
def verify(
    model: Source,
    options: Options | None = None,
    *,
    trace: Trace | None = None,
    **settings: Unpack[VerificationDict],
) -> Verification:
    """Compare the compiled model with ONNX Runtime, or ONNX's reference evaluator, on inputs from `seed`.

    `inputs`: `random`, or `hostile`, which adds sets of zeros, denormals, the ends of integers, infinities and NaN, and sets of
    empty and odd sizes where dimensions are free. When answers differ the decision to blame is searched for (not without
    `bisect`), by building the model again with fewer decisions allowed, and where there is no single one, the first node that
    differs. `settings` are those of `VerificationDict`, and the fields of `Options`, given one by one.
    """
    from fusewise.frontend.given import given_symbols
    from fusewise.verifying import VerificationSettings, verified

    own, rest = VerificationSettings.taken_from(settings)
    chosen = options_from(options, rest)
    same = {name: getattr(chosen, name) for name in ("shapes", "values", "precision", "device")}
    wanted = replace(own, symbols=given_symbols(chosen.symbols), free=not chosen.is_sized, **same)

    def build(graph: Graph, trace: Trace) -> Model:
        trace.disabled |= frozenset(chosen.disable)
        return _compiled(graph, replace(chosen, shapes={}, symbols={}, values={}), trace, interpret=True)

    source = made_here(model)
    return verified(source, read(source), build, wanted, trace)


@within_memory("the model is timed")
def bench(
    model: Source,
    options: Options | None = None,
    *,
    progress: Progress = lambda what, share: None,
    **settings: Unpack[ComparisonDict],
) -> Comparison:
    """Compare with other runtimes: same threads, same inputs, runs taken in turn; see `benchmarking.contest` for the result.

    `settings` are the fields of `ComparisonSettings`, such as `against`, and of `Options`, given one by one.
    """
    from fusewise.benchmarking.peers import peers_named
    from fusewise.comparing import ComparisonSettings, compared
    from fusewise.frontend.given import sized_at

    wanted, rest = ComparisonSettings.taken_from(settings)
    chosen = options_from(options, rest)
    peers_named(wanted.named(chosen.device), chosen.device)  # so that a name that there is not is told at once
    progress("loading", 0.0)
    source = made_here(model)
    graph = graph_for(source, chosen) if wanted.sizes else sized_at(graph_for(source, chosen), {})
    if chosen.tune:
        compile(graph, chosen, progress=progress)
    return compared(graph if chosen.values else source, graph, name_of(model, graph), chosen, wanted, progress)


@within_memory("the model is timed")
def profile(
    model: Source, options: Options | None = None, *, seed: int = 0, runs: int = 20, **settings: Unpack[OptionsDict]
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Where the compiled model's time goes, group by group, and its fastest run as trace events; see `benchmarking.roofline`.

    On a GPU, which has to be there, launches are timed one by one by its clock, so that there are no events (`gpu_roofline`).
    """
    chosen = options_from(options, settings)
    if chosen.on_gpu:
        from fusewise.on_gpu import gpu_profiled

        return gpu_profiled(partial(compile, model, chosen), chosen.device, seed, runs), []
    from fusewise.benchmarking import roofline
    from fusewise.benchmarking.limits import ceilings

    compiled, folder = compile(model, options, **settings), cache_folder(options_from(options, settings).cache)
    feeds, limits = compiled.random_inputs(seed), partial(ceilings, compiled.executable.workers, folder)
    if compiled.summary["symbols"]:  # looked at for the sizes to plan for
        shapes = {name: array.shape for name, array in feeds.items()}
        compiled = compile(model, options, **settings | {"shapes": shapes, "symbols": {}})
    return roofline.profile(compiled.executable, feeds, limits, runs)


@within_memory("the model is reported on")
def report(
    model: Source,
    options: Options | None = None,
    *,
    times: bool = True,
    seed: int = 0,
    progress: Progress | None = None,
    **settings: Unpack[OptionsDict],
) -> Report:
    """What is done with a model when it is compiled, which happens here, and with `times` what runs on inputs from `seed` take.

    Raises what `compile` raises.
    """
    from fusewise.reporting.report import reported

    source, chosen = made_here(model), options_from(options, settings)
    written, compiled = read(source), partial(_compiled, chosen=chosen, progress=progress)
    timing = seed if times else None
    return reported(name_of(model, written), written, chosen, compiled, timing=timing, progress=progress)

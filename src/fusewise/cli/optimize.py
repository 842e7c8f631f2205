"""`fusewise optimize`: a better graph for any runtime, as an ONNX file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fusewise.cli.options import (
    Cache,
    Disable,
    Exact,
    Exported,
    Json,
    ModelName,
    Shapes,
    Symbols,
    Threads,
    Values,
    model_of,
    shapes_of,
    symbols_of,
    threads_of,
    values_of,
)
from fusewise.errors import UsageError

if TYPE_CHECKING:
    from fusewise.benchmarking.ranking import DuelResult
    from fusewise.optimizing import Optimization

__all__ = ["optimize"]

Output = Annotated[Path | None, typer.Option("--output", "-o", help="Write the graph: an .onnx file.")]
SearchName = Annotated[
    str,
    typer.Option(
        "--search",
        help="none (passes only), greedy, relaxed (goes up to come down), backtracking (the same, each improvement taken at"
        " once) or saturate (egglog).",
    ),
]
Alpha = Annotated[
    float,
    typer.Option(
        "--alpha",
        help="Follow graphs that cost less than so many times the best (relaxed), or the one before (backtracking).",
    ),
]
Graphs = Annotated[int, typer.Option("--budget", help="Graphs to expand at most.")]
Seconds = Annotated[float | None, typer.Option("--seconds", help="Time to search at most.")]
CostName = Annotated[
    str,
    typer.Option(
        "--cost",
        help="What to minimise: a sum such as 'time + 0.1*memory' of time (ms, estimated), flops (GFLOP), memory (MB),"
        " kernels, measured (ms in Fusewise, here) and onnxruntime (ms in ONNX Runtime, here).",
    ),
]
MachineName = Annotated[
    str,
    typer.Option(
        "--machine",
        help="Whose time is estimated: cpu, gpu, gpu-copies, where Concat copies, cudnn or cudnn-h100, where Add is a kernel.",
    ),
]
FasterIn = Annotated[
    str,
    typer.Option(
        "--faster-in",
        help="Keep the model as it is unless the graph found is faster beyond doubt, timed as a whole in fusewise, onnxruntime"
        " or openvino; none trusts the cost. auto: where the cost is measured, and for times estimated for a cpu"
        " ONNX Runtime, if it is installed.",
    ),
]
Pieces = Annotated[
    int | None,
    typer.Option(
        "--pieces",
        help="Search in pieces of so many nodes, 0 never (default: 40 above 60 nodes if SciPy is there, and up to 1,000 nodes"
        " as a whole after that).",
    ),
]
Passes = Annotated[bool, typer.Option("--passes/--no-passes", help="Clean the graph up before the search.")]
PipelineName = Annotated[
    str | None,
    typer.Option(
        "--pipeline",
        metavar="NAME|FILE|PASS,PASS",
        help="Run these passes instead of the clean-up: a published list, a pipeline file, or passes by name.",
    ),
]
Workers = Annotated[
    int, typer.Option("--workers", help="Processes that search pieces side by side; the result is the same.")
]
RuleFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--rules", metavar="FILE", help="More substitutions, in TASO's format (graph_subst.pb). May be repeated."
    ),
]
TargetName = Annotated[
    str,
    typer.Option(
        "--target", help="Who reads the file: onnx (any runtime), or onnxruntime alone, with operators of its own."
    ),
]
Plot = Annotated[Path | None, typer.Option("--plot", metavar="FILE.svg", help="Draw the cost after each substitution.")]


def optimize(
    model: ModelName,
    output: Output = None,
    search: SearchName = "none",
    alpha: Alpha = 1.05,
    budget: Graphs = 300,
    seconds: Seconds = None,
    cost: CostName = "time",
    machine: MachineName = "cpu",
    faster_in: FasterIn = "auto",
    pieces: Pieces = None,
    workers: Workers = 1,
    rules: RuleFiles = None,
    passes: Passes = True,
    pipeline: PipelineName = None,
    exact: Exact = False,
    disable: Disable = None,
    exported: Exported = False,
    shape: Shapes = None,
    symbol: Symbols = None,
    value: Values = None,
    threads: Threads = None,
    cache: Cache = True,
    target: TargetName = "onnx",
    plot: Plot = None,
    json: Json = False,
) -> None:
    """Write a better graph of MODEL for any runtime: the same answers from fewer and cheaper operators."""
    from fusewise import api
    from fusewise.cli.pipelines import Before
    from fusewise.cli.show import print_json, progress
    from fusewise.decisions import require_known
    from fusewise.optimizing import optimized
    from fusewise.passes.onnxruntime_operators import check_target
    from fusewise.trace import Trace

    check_target(target)
    model = model_of(model, exported)
    for path, ending in ((output, ".onnx"), (plot, ".svg")):
        if path is not None and path.suffix != ending:
            raise UsageError(f"{path.name!r} should end in {ending}")
    require_known(disable or (), others=_names_in(rules or ()) if disable else ())
    with progress() as report:
        trace = Trace(disabled=frozenset(disable or ()))
        stays_free = search == "none" and pipeline is None  # a search and a pipeline weigh by sizes
        loaded = api.load(
            model, shapes=shapes_of(shape), symbols=symbols_of(symbol), values=values_of(value), free=stays_free
        )
        before = Before.run(pipeline, loaded, trace, exact)
        found = optimized(
            before.graph,
            passes=passes and pipeline is None,
            trace=trace,
            progress=report,
            search=search,
            alpha=alpha,
            budget=budget,
            seconds=seconds,
            cost=cost,
            machine=machine,
            faster_in=faster_in,
            pieces=pieces,
            workers=workers,
            rules=tuple(rules or ()),
            threads=threads_of(threads),
            exact=exact,
            folder=api.cache_folder(cache),
        )
        if output is not None:
            api.save(found.graph, output, target=target)
    if plot is not None:
        _draw(found, model, plot)
    if json:
        named = {"model": model, "output": None if output is None else str(output)}
        print_json({**named, **found.summary, **before.summary(found.graph)})
    else:
        before.show(found.graph)
        _show(found, model, output)


def _names_in(files: Sequence[Path]) -> list[str]:
    """The names of the rules in files."""
    from fusewise.rewrite.taso.rules import imported_rules

    return [rule.name for path in files for rule in imported_rules(path, verify=False).rules]


def _draw(found: Optimization, model: str, path: Path) -> None:
    from fusewise.files import write_text
    from fusewise.report.search_path import search_path

    costs = [found.cost_before, *(step.cost_after for step in found.steps)]
    names = [step.rule for step in found.steps]
    write_text(path, search_path(costs, names, title=f"{model}: {found.cost}", unit=found.unit))


def _show(found: Optimization, model: str, output: Path | None) -> None:
    from fusewise.cli.show import facts, table

    summary = found.summary
    if found.steps:
        rows = [
            (
                f"{step.serial}",
                step.rule,
                step.where[0] if step.where else "",
                f"{step.cost_before:.4g}",
                f"{step.cost_after:.4g}",
            )
            for step in found.steps
        ]
        table(("", "substitution", "at", "before", "after"), rows, words=(1, 2))
    facts(
        [
            ("model", model),
            *([] if output is None else [("file", f"{output} ({output.stat().st_size / 1e6:.1f} MB)")]),
            ("nodes", str(summary["nodes"])),
            (
                f"cost ({found.cost})",
                f"{found.cost_before:.4g} to {found.cost_after:.4g} {found.unit}, {summary['speedup']:.3f} times less",
            ),
            *([("search", _ended(found))] if found.search != "none" else []),
            *([] if found.timed is None else [("as a whole", _timed(found.timed))]),
            *(("note", note) for note in found.notes),
            *((f"refused {name}", reason) for name, reason in found.refused),
        ]
    )


def _ended(found: Optimization) -> str:
    how = {"graphs": "budget spent", "seconds": "time is up", "interrupted": "interrupted"}.get(found.ended, "finished")
    return f"{found.search}, {found.explored} graphs, {found.duplicates} met again, {found.seconds:.1f} s, {how}"


def _timed(verdict: DuelResult) -> str:
    from fusewise.benchmarking.ranking import CONFIDENCE

    return (
        f"{verdict.speedup:.3f} times as fast as the input in {verdict.runtime}, at least {verdict.at_least:.3f} with"
        f" {CONFIDENCE:.0%} confidence ({verdict.rounds} rounds)"
    )

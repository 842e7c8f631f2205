"""`fusewise optimize`: a better graph for any runtime, as an ONNX file."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fusewise.cli.completion import one_of
from fusewise.cli.decisions import DecisionsFile, check_decisions_file, traced
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
    check_folder,
    model_of,
    shapes_of,
    source_of,
    symbols_of,
    threads_of,
    values_of,
)
from fusewise.cli.reports import ReportFile, check_report, write_report
from fusewise.errors import AnswersDiffer, UsageError
from fusewise.trace import Trace

if TYPE_CHECKING:
    from fusewise.benchmarking.ranking import DuelResult
    from fusewise.checking import AnswerCheck
    from fusewise.cli.show import Progress
    from fusewise.ir.graph import Graph
    from fusewise.optimizing import Optimization

__all__ = ["optimize"]

Output = Annotated[Path | None, typer.Option("--output", "-o", help="Write the graph: an .onnx file.")]
SearchName = Annotated[
    str,
    typer.Option(
        "--search",
        autocompletion=one_of("fusewise.optimizing", "SEARCHES"),
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
Force = Annotated[bool, typer.Option("--force", help="Write over MODEL itself.")]
Check = Annotated[
    bool,
    typer.Option(
        "--check/--no-check",
        help="Compare answers before anything is written, in ONNX Runtime where it is installed, else in ONNX's evaluator.",
    ),
]
Plot = Annotated[
    Path | None,
    typer.Option("--plot", metavar="FILE.svg", help="Draw the cost after each substitution (extra report)."),
]


_SETTINGS = ("search", "alpha", "budget", "seconds", "cost", "machine", "faster_in", "pieces", "workers", "exact")
"""Words of the command line that are settings of a search as they stand."""


def optimize(
    context: typer.Context,
    model: ModelName,
    output: Output = None,
    force: Force = False,
    check: Check = True,
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
    decisions: DecisionsFile = None,
    report: ReportFile = None,
    json: Json = False,
) -> None:
    """Write a better graph of MODEL for any runtime: the same answers from fewer and cheaper operators."""
    from fusewise import api
    from fusewise.cli.pipelines import Before
    from fusewise.cli.show import print_json, progress
    from fusewise.decisions import require_known
    from fusewise.optimizing import optimized

    model = model_of(model, exported)
    check_report(report)
    _check_words(model, (output, plot, decisions), target, force)
    require_known(disable or (), others=_names_in(rules or ()) if disable else ())
    stays_free = search == "none" and pipeline is None  # a search and a pipeline weigh by sizes
    with progress() as tell, traced(decisions, disable or ()) as asked:
        trace = Trace(disabled=frozenset(disable or ())) if asked is None else asked
        tell("loading", 0.0)
        given: dict[str, Any] = {"shapes": shapes_of(shape), "symbols": symbols_of(symbol), "values": values_of(value)}
        loaded = api.load(source_of(model), **given, free=stays_free)
        before = Before.run(pipeline, loaded, trace, exact)
        tell("rewriting", 0.0)
        found = optimized(
            before.graph,
            passes=passes and pipeline is None,
            trace=trace,
            progress=tell,
            rules=tuple(rules or ()),
            threads=threads_of(threads),
            folder=api.cache_folder(cache),
            **{name: context.params[name] for name in _SETTINGS},
        )
        against = (None if any(given.values()) else model, loaded) if check else None
        checked = None if output is None else _written(found.graph, output, target, against, tell)
    if plot is not None:
        _draw(found, loaded, alpha, model, plot)
    counts = {"before": _operators(loaded), "after": _operators(found.graph)}
    if json:
        told = {"operators": counts, "check": None if checked is None else checked.summary}
        print_json({**_named(model, output), **found.summary, **told, **before.summary(found.graph)})
    else:
        before.show(found.graph)
        _show(found, model)
        _show_written(counts, output, checked, _other_target(found.graph) if target == "onnx" else [])
    if report is not None:
        _report(context, report, (loaded, found, trace), None if checked is None else checked.sentence)


def _report(context: typer.Context, path: Path, made: tuple[Graph, Optimization, Trace], answers: str | None) -> None:
    """The report of what was made: the model as it was loaded, what came of it, the decisions."""
    from fusewise.reporting.document.verbs import optimize_document

    words = context.params
    model = model_of(words["model"], words["exported"])
    how = {"alpha": words["alpha"], "budget": words["budget"], "answers": answers}
    document = optimize_document(model, *made, threads=threads_of(words["threads"]), **how)
    write_report(context, path, model, "optimize", document)


def _named(model: str, output: Path | None) -> dict[str, str | None]:
    return {"model": model, "output": None if output is None else str(output)}


def _check_words(model: str, files: tuple[Path | None, Path | None, Path | None], target: str, force: bool) -> None:
    """`UsageError` for what can be known to be wrong of the files to write (graph, plot, decisions) before any work is done."""
    from fusewise.passes.onnxruntime_operators import check_target

    output, plot, decisions = files
    check_target(target)
    check_decisions_file(decisions)
    check_folder(*files)
    for path, ending in ((output, ".onnx"), (plot, ".svg")):
        if path is not None and path.suffix != ending:
            raise UsageError(f"{path.name!r} should end in {ending}")
    if plot is not None:
        from fusewise.reporting.charts.standalone import drawer

        drawer()  # tells of a package that is missing before the work is done
    if output is not None and not force and output.exists() and Path(model).exists() and output.samefile(model):
        raise UsageError(f"{output} is the model itself; write to another file, or overwrite it with --force")


def _written(
    graph: Graph, output: Path, target: str, against: tuple[str | None, Graph] | None, report: Progress
) -> AnswerCheck | None:
    """Write the graph, after comparing its answers with those of a model (a file, or None for the graph beside it). None where
    there is nothing to compare with; `AnswersDiffer` where answers differ, and nothing is written then."""
    from fusewise import api

    checked = None
    if against is not None:
        from fusewise.checking import answers_checked

        model, loaded = against
        is_file = model is not None and Path(model).is_file()
        report("checking answers", 0.0)
        checked = answers_checked(
            model if is_file else loaded, loaded, graph, lambda path: api.save(graph, path, target=target)
        )
        if not checked.agrees:
            raise AnswersDiffer(
                f"nothing was written: the answers {checked.sentence} (--no-check writes it all the same)"
            )
    report("writing", 0.0)
    api.save(graph, output, target=target)
    return checked


def _operators(graph: Graph) -> dict[str, int]:
    """How often each operator stands in a graph."""
    names = (f"{node.domain}.{node.op}" if node.domain else node.op for node in graph.nodes)
    return dict(Counter(names).most_common())


def _show_written(
    counts: Mapping[str, Mapping[str, int]],
    output: Path | None,
    checked: AnswerCheck | None,
    notes: list[tuple[str, str]],
) -> None:
    """The operators before and after, what was written, and whether its answers are those of the model."""
    from fusewise.cli.show import facts, table
    from fusewise.words import size_text

    before, after = counts["before"], counts["after"]
    rows = [(name, str(before.get(name, 0)), str(after.get(name, 0))) for name in {**before, **after}]
    total = ("all", str(sum(before.values())), str(sum(after.values())))
    sys.stdout.write("\n")
    table(("operator", "before", "after"), [*rows, total])
    if output is None:
        facts([("file", "none: -o FILE.onnx writes the graph")])
        return
    beside = output.with_name(f"{output.name}.data")
    weights = f", weights in {beside.name} ({size_text(beside.stat().st_size)})" if _is_beside(output, beside) else ""
    answers = "not checked (--no-check)" if checked is None else checked.sentence
    size = size_text(output.stat().st_size)
    facts([("file", f"{output} ({size}, {sum(after.values())} nodes{weights})"), ("answers", answers), *notes])


def _other_target(graph: Graph) -> list[tuple[str, str]]:
    """That ONNX Runtime would read packed weights as they are stored, if the file were for it alone."""
    from fusewise.passes.onnxruntime_operators import with_onnxruntime_operators
    from fusewise.passes.onnxruntime_weights import PRODUCTS

    names = Counter(node.op for node in with_onnxruntime_operators(graph).nodes if node.domain and node.op in PRODUCTS)
    which = " and ".join(f"{name} ({count})" for name, count in names.items())
    text = f"ONNX Runtime's own {which} would save time or memory there; --target onnxruntime writes such operators"
    return [("note", text)] if names else []


def _is_beside(output: Path, beside: Path) -> bool:
    """Was a file of weights written with the graph? One that is much older belongs to another."""
    return beside.exists() and abs(beside.stat().st_mtime - output.stat().st_mtime) < _SAME_TIME


_SAME_TIME = 60.0  # seconds


def _names_in(files: Sequence[Path]) -> list[str]:
    """The names of the rules in files."""
    from fusewise.rewrite.taso.rules import imported_rules

    return [rule.name for path in files for rule in imported_rules(path, verify=False).rules]


def _draw(found: Optimization, loaded: Graph, alpha: float, model: str, path: Path) -> None:
    """The chart that the page of a report has, as a file."""
    from fusewise.files import write_text
    from fusewise.reporting.charts import svg
    from fusewise.reporting.charts.of_verbs import search_charts
    from fusewise.reporting.document.searches import search_part

    (chart,) = search_charts(search_part(found, loaded, alpha=alpha))
    write_text(path, svg({**chart, "title": f"{model}: {found.cost} after each substitution"}))


def _show(found: Optimization, model: str) -> None:
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
        table(("", "substitution", "at", "before", "after"), rows, words=(1, 2), ranks=(1, 0, 4, 3, 2))
    facts(
        [
            ("model", model),
            ("nodes", str(summary["nodes"])),
            (f"cost ({found.cost})", _costs(found, summary["speedup"])),
            *([("search", _ended(found))] if found.search != "none" else []),
            *([("found", _nothing(found))] if found.search != "none" and not found.steps else []),
            *([] if found.timed is None else [("as a whole", _timed(found.timed))]),
            *(("note", note) for note in found.notes),
            *((f"refused {name}", reason) for name, reason in found.refused),
        ]
    )


def _nothing(found: Optimization) -> str:
    """That a search has found nothing: at all, or nothing that is worth its place."""
    if found.timed is None or found.timed.wins:
        return "no substitution that makes the model cheaper"
    return "no graph that is faster as a whole"


def _costs(found: Optimization, speedup: float) -> str:
    before, after = f"{found.cost_before:.4g}", f"{found.cost_after:.4g}"
    if before == after:
        return f"{after} {found.unit}, as before"
    return f"{before} to {after} {found.unit}, {speedup:.3f} times less"


def _ended(found: Optimization) -> str:
    how = {"graphs": "budget spent", "seconds": "time is up", "interrupted": "interrupted"}.get(found.ended, "finished")
    return f"{found.search}, {found.explored} graphs, {found.duplicates} met again, {found.seconds:.1f} s, {how}"


def _timed(verdict: DuelResult) -> str:
    from fusewise.benchmarking.ranking import CONFIDENCE

    return (
        f"{verdict.speedup:.3f} times as fast as the input in {verdict.runtime}, at least {verdict.at_least:.3f} with"
        f" {CONFIDENCE:.0%} confidence ({verdict.rounds} rounds)"
    )

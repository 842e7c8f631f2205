"""`fusewise passes`: which passes matter for a model, in which order, measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fusewise.cli.completion import model_names
from fusewise.cli.options import (
    Cache,
    Device,
    Exact,
    Exported,
    Json,
    Seed,
    Shapes,
    Symbols,
    Threads,
    check_folder,
    model_of,
    numbers_of,
    shapes_of,
    source_of,
    threads_of,
)
from fusewise.cli.reports import ReportFile, check_report, write_report
from fusewise.errors import UsageError
from fusewise.words import no_such

if TYPE_CHECKING:
    from fusewise.ir.graph import Graph
    from fusewise.selecting import Selection

__all__ = ["passes"]

Model = Annotated[
    str | None,
    typer.Argument(metavar="MODEL", help="A path to an .onnx file, or zoo:NAME[@STYLE].", autocompletion=model_names),
]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="Write the pipeline: a .toml file for compile --passes.")
]
ExperimentName = Annotated[
    str | None,
    typer.Option("--experiment", metavar="paper|levels", help="Compare the published lists, or optimisation levels."),
]
ObjectiveName = Annotated[
    str,
    typer.Option(
        "--objective",
        help="What an order is chosen by: latency, throughput, memory, compile-time, energy, estimate, or a weighted sum such"
        " as 'latency + 0.1*memory'.",
    ),
]
SearchSeconds = Annotated[
    float | None, typer.Option("--search", metavar="SECONDS", min=0.0, help="Search for a better order so long.")
]
State = Annotated[
    Path | None, typer.Option("--state", metavar="FILE", help="Keep what the search tried, and go on from it.")
]
FamilyName = Annotated[str | None, typer.Option("--family", help="Take the model for one of this family.")]
Approximate = Annotated[
    bool, typer.Option("--approximate", help="Allow passes that change answers by more than roundings.")
]
Inside = Annotated[bool, typer.Option("--look-inside", help="Let passes behind FuseOps rewrite inside fused blocks.")]
Measure = Annotated[bool, typer.Option("--measure/--no-measure", help="Compile and time what the passes leave.")]
Batches = Annotated[
    str | None, typer.Option("--batches", metavar="1,2,4", help="Batches to look for the highest throughput among.")
]
List = Annotated[bool, typer.Option("--list", help="List all passes and named pipelines.")]


def passes(
    context: typer.Context,
    model: Model = None,
    output: Output = None,
    experiment: ExperimentName = None,
    objective: ObjectiveName = "latency",
    search: SearchSeconds = None,
    state: State = None,
    family: FamilyName = None,
    approximate: Approximate = False,
    look_inside: Inside = False,
    measure: Measure = True,
    batches: Batches = None,
    exported: Exported = False,
    shape: Shapes = None,
    symbol: Symbols = None,
    threads: Threads = None,
    exact: Exact = False,
    seed: Seed = 0,
    cache: Cache = True,
    device: Device = "cpu",
    listed: List = False,
    report: ReportFile = None,
    json: Json = False,
) -> None:
    """Say of which family MODEL is, which passes have anything to do there, and what their order is worth."""
    from fusewise import api, selecting
    from fusewise.cli.show import print_json, progress

    if listed:
        _list(json)
        return
    if model is None:
        raise UsageError("give a model, or --list for all passes")
    model = model_of(model, exported)
    _check(output, experiment, objective)
    _check_device(device, search, measure)
    check_folder(output, state)
    check_report(report)
    graph = api.load(source_of(model), shapes=shapes_of(shape), symbols=numbers_of(symbol))
    how: dict[str, Any] = {"threads": threads_of(threads), "seed": seed, "device": device}
    with progress() as tell:
        if experiment is not None:
            given = {"look_inside": look_inside, "progress": tell, **({} if measure else {"budget": None})}
            rows = _compare(graph, model, (experiment, approximate), json, {**how, **given})
            if report is not None:
                _report_experiment(context, (experiment, rows), graph, model, report)
            return
        found = selecting.selection(graph, family=family, exact=exact)
        if search is not None:
            allowed: dict[str, Any] = {"exact": exact, "approximate": approximate, "state": state}
            here = {"threads": how["threads"], "seed": seed}
            wanted = selecting.OrderSearch(objective, search, cache=api.cache_folder(cache), **allowed, **here)
            found = selecting.with_search(found, graph, wanted, progress=tell)
        if measure:
            tell("measuring", 1.0)
            found = selecting.with_figures(found, **how)
        if batches is not None:
            tell("measuring batches", 1.0)
            told = selecting.best_batch(lambda n: _at_batch(model, n), _numbers(batches), **how)
            found = replace(found, batches=told)
    if output is not None:
        _save(output, found, model)
    summary = {"model": model, **found.summary, "output": None if output is None else str(output)}
    print_json(summary) if json else _show(found, graph, summary)
    if report is not None:
        from fusewise.reporting.document.verbs import passes_document

        document = passes_document(model, graph, found, threads=how["threads"])
        write_report(context, report, model, "passes", _measured_on(device, document))


def _measured_on(device: str, document: dict[str, Any]) -> dict[str, Any]:
    """The document, with the GPU that its figures are of where that is what they were measured on."""
    if device == "cpu":
        return document
    from fusewise.codegen.gpu.device import device_choice
    from fusewise.reporting.document.gpu import device_part
    from fusewise.runtime.gpu import drivers

    row, _ = drivers.row_for(device_choice(device), "measure")
    return {**document, "device": device_part(row)}


def _report_experiment(
    context: typer.Context, found: tuple[str, Sequence[Mapping[str, Any]]], graph: Graph, model: str, path: Path
) -> None:
    """The report of an experiment, by its name and rows."""
    from fusewise.reporting.document.passes import experiment_part
    from fusewise.reporting.document.verbs import graph_document

    document = graph_document(model, graph, "passes", threads_of(context.params["threads"]))
    whole = {**document, "passes": experiment_part(*found)}
    write_report(context, path, model, "passes", _measured_on(context.params["device"], whole))


def _check(output: Path | None, experiment: str | None, objective: str) -> None:
    """`UsageError` for what can be known to be wrong before any work is done."""
    from fusewise.select.objective import objective_named
    from fusewise.select.pipeline import EXPERIMENTS

    if output is not None and output.suffix != ".toml":
        raise UsageError(f"the name of a pipeline file must end in .toml, not {output.name!r}")
    if experiment is not None and experiment not in EXPERIMENTS:
        raise no_such("experiment", experiment, EXPERIMENTS)
    objective_named(objective)


def _check_device(device: str, search: float | None, measure: bool) -> None:
    """`UsageError` for a device that nothing is measured on, or that is not here: a GPU's architecture is not enough."""
    if device == "cpu":
        return
    words = {"--search": search is not None, "--no-measure": not measure}
    for word in (word for word, given in words.items() if given):
        raise UsageError(
            f"--device {device} is what passes are measured on, and {word} does not go together with it; leave one out"
        )
    from fusewise.runtime.gpu import drivers

    drivers.opened(device).close()


def _compare(
    graph: Graph, model: str, which: tuple[str, bool], json: bool, how: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Run the lists of an experiment, with approximations where allowed, and show a row for each."""
    from fusewise import selecting
    from fusewise.cli.show import print_json
    from fusewise.select.pipeline import EXPERIMENTS

    experiment, approximate = which
    lists = [replace(one, approximate=approximate or one.approximate) for one in EXPERIMENTS[experiment]]
    rows = selecting.experiment(graph, lists, **how)
    print_json({"model": model, "experiment": experiment, "rows": rows}) if json else _show_rows(model, rows)
    return rows


def _numbers(text: str) -> list[int]:
    """`1,2,4` as numbers."""
    parts = text.split(",")
    if not all(part.isdecimal() and int(part) for part in parts):
        raise UsageError(f"--batches {text!r} is not of the form 1,2,4")
    return [int(part) for part in parts]


def _at_batch(model: str, batch: int) -> Graph:
    """A zoo model built for a batch, or a file whose inputs begin with a symbol."""
    from fusewise import api

    if model.startswith(api.ZOO):
        from fusewise.zoo.catalogue import build

        return api.load(build(model.removeprefix(api.ZOO), batch=batch))
    graph = api.read(model)
    shapes = [getattr(graph.types[name], "shape", None) for name in graph.inputs]
    symbols = {shape[0] for shape in shapes if shape and isinstance(shape[0], str)}
    if not symbols:
        raise UsageError(
            f"the inputs of {model} do not begin with a symbolic dimension, so it has one batch; leave out --batches"
        )
    return api.load(model, symbols=dict.fromkeys(symbols, batch))


def _save(output: Path, found: Selection, model: str) -> None:
    from fusewise.select.pipeline_file import write_pipeline

    about: dict[str, str | int | float] = {"model": model, "family": found.classification.family}
    for key in ("objective", "unit", "cost_default", "cost_best", "chosen", "speedup", "difference"):
        if key in found.search:
            about[key] = found.search[key]
    write_pipeline(output, found.pipeline, about)


def _list(json: bool) -> None:
    from fusewise.cli.show import print_json, table
    from fusewise.passes.published import step_named, step_names
    from fusewise.select.pipeline import LEVELS, PAPER

    steps = [step_named(name) for name in step_names()]
    if json:
        keys = ("name", "summary", "numeric_class", "level", "idle", "asked", "adds_outputs", "version")
        print_json(
            {
                "passes": [{key: getattr(step, key) for key in keys} for step in steps],
                "pipelines": [{"name": p.name, "about": p.about, "passes": p.passes} for p in (*PAPER, *LEVELS)],
            }
        )
        return
    table(
        ("pass", "answers", "what it does"),
        [(step.name, step.numeric_class, f"nothing: {step.idle}" if step.idle else step.summary) for step in steps],
        words=(0, 1, 2),
        ranks=(0, 2, 1),
    )
    table(
        ("pipeline", "passes", "about"),
        [(p.name, str(len(p.passes)), p.about) for p in (*PAPER, *LEVELS)],
        words=(0, 2),
        ranks=(0, 2, 1),
    )


def _show(found: Selection, graph: Graph, summary: Mapping[str, Any]) -> None:
    from fusewise.cli.show import facts, table

    kind, agreed = found.classification, found.agreement
    rows = [(run.name, f"{run.ms:.1f}", "" if run.changed else run.why or "unchanged") for run in found.outcome.runs]
    if rows:
        table(("pass", "ms", ""), rows, words=(0, 2), ranks=(0, 2, 1))
    nearest = ", ".join(f"{name} {score:.2f}" for name, score in kind.nearest)
    facts(
        [
            ("model", summary["model"]),
            ("family", f"{kind.family} (confidence {kind.confidence:.2f}; nearest: {nearest})"),
            ("relevant", _wrapped(found.relevant)),
            ("order", _wrapped(found.pipeline.passes) or "nothing to do"),
            ("fusion", found.outcome.fusion),
            ("nodes", f"{len(graph.nodes)} to {len(found.outcome.graph.nodes)}"),
            ("pass time", f"{found.outcome.total_ms:.1f} ms; finding what matters took {found.finding_ms:.0f} ms"),
            *([] if agreed is None else [("hand table", _agreed(summary["agreement"]))]),
            *_measured(summary["metrics"]),
            *_searched(summary["search"]),
            *([] if summary["output"] is None else [("file", summary["output"])]),
        ]
    )


def _wrapped(names: Sequence[str]) -> str:
    """Names, a few to a line."""
    return ",\n".join(", ".join(names[k : k + 6]) for k in range(0, len(names), 6))


def _agreed(agreed: Mapping[str, Any]) -> str:
    return (
        f"{agreed['set']}: {len(agreed['both'])} of its passes have work here, {len(agreed['listed_only'])} have none"
        f" ({len(agreed['idle'])} never), {len(agreed['found_only'])} more than it lists have"
    )


def _measured(metrics: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The six published metrics, and the best batch where one was looked for."""
    from fusewise.benchmarking.power import NOT_HERE
    from fusewise.measuring import METRICS

    batches = []
    if "best_batch" in metrics:
        batches = [("best batch", f"{metrics['best_batch']}: {metrics['best_throughput_per_s']:.1f} per second")]
    if "throughput_per_s" not in metrics:
        return batches

    more = {
        "Latency": f" (90 %: {metrics['latency_p90_ms']:.2f}, 99 %: {metrics['latency_p99_ms']:.2f})",
        "Power": "" if isinstance(metrics["energy_mj"], str) else f", {metrics['energy_mj']:.1f} mJ a run",
        "Memory used": f", of which the arena {metrics['arena_bytes'] / 1e6:.1f}",
    }
    named = [(metric, metric.cell(metrics)) for metric in METRICS]
    rows = [
        (metric.name, cell if cell == NOT_HERE else f"{cell} {metric.unit}{more.get(metric.name, '')}")
        for metric, cell in named
    ]
    return [*rows, *_of_gpu(metrics), *batches]


def _of_gpu(metrics: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What a GPU tells beside the published metrics, where the model ran on one."""
    if "gpu_utilisation" not in metrics:
        return []
    share, taken = metrics["gpu_utilisation"], metrics["gpu_memory_taken_mb"]
    return [
        ("Utilisation", share if isinstance(share, str) else f"{share:.0%} of the GPU's time"),
        ("Memory taken", taken if isinstance(taken, str) else f"{taken:.1f} MB of the GPU, by everybody"),
    ]


def _searched(search: Mapping[str, Any]) -> list[tuple[str, str]]:
    if not search:
        return []
    tried = f"{search['tried']} different graphs; {search['duplicates']} other orders led to one of them"
    costs = f"{search['objective']} {search['cost_default']:.4g} to {search['cost_best']:.4g} {search['unit']}"
    found = [("search", f"{tried}; {costs}"), ("chosen", _verdict(search))]
    if "difference" in search:
        apart = f"{search['difference']:.2%} of their largest value, on one random input"
        found.append(("answers", f"differ from the default's by at most {apart}"))
    return found


def _verdict(search: Mapping[str, Any]) -> str:
    """Which order was chosen, and what that rests on."""
    chosen, ratio, rounds = search["chosen"], f"{search['speedup']:.3f} times", search.get("rounds")
    if rounds is None:
        return chosen if chosen == "default" else f"{chosen}, {ratio} better than the default"
    if chosen == "default":
        return f"default; the best other order has {ratio} its speed, after {rounds} rounds in turn"
    return f"{chosen}, {ratio} the speed of the default, at least {search['at_least']:.3f} by {rounds} rounds in turn"


def _show_rows(model: str, rows: Sequence[Mapping[str, Any]]) -> None:
    from fusewise.cli.show import facts, sentence, table
    from fusewise.measuring import METRICS, metric_cells

    def cells(row: Mapping[str, Any]) -> tuple[str, ...]:
        names = len({run["pass"] for run in row["pass_ms"]})
        held = str(sum(row["held"].values())) if row["held"] else ""
        return (
            row["pipeline"],
            str(row["nodes"]),
            row["fusion"],
            *metric_cells(row["metrics"]),
            f"{len(row['unchanged'])} of {names}",
            held,
            row["same_as"],
        )

    headings = (
        *("pipeline", "nodes", "fusion", *(f"{metric.name}\n{metric.unit}" for metric in METRICS)),
        *("unchanged", "held", "same as"),
    )
    table(headings, [cells(row) for row in rows], title=model, words=(0, 2, 11))
    sentence("ms for all passes, and for each; those in brackets changed nothing")
    facts([(f"  {row['pipeline']}", f"{row['total_pass_ms']:.1f}: {_times(row['pass_ms'])}") for row in rows])
    parted = [(row["pipeline"], row["regions"]) for row in rows if row["regions"]]
    regions = [(f"  {name}", ", ".join(f"{count} {kind}" for kind, count in found.items())) for name, found in parted]
    facts([("regions for back ends", ""), *regions] if regions else [])


def _times(runs: Sequence[Mapping[str, Any]]) -> str:
    """Each pass with the time of all its runs, in brackets when none changed anything."""
    spent: dict[str, float] = {}
    changed: set[str] = set()
    for run in runs:
        spent[run["pass"]] = spent.get(run["pass"], 0.0) + run["ms"]
        changed.update([run["pass"]] if run["changed"] else ())
    parts = [f"{name} {ms:.1f}" if name in changed else f"({name} {ms:.1f})" for name, ms in spent.items()]
    return ", ".join(parts) or "-"

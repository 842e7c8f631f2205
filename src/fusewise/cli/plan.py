"""`fusewise plan`: which operators an accelerator should run as one group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fusewise.cli.completion import model_names
from fusewise.cli.options import (
    Exported,
    Json,
    Seed,
    Shapes,
    Symbols,
    check_folder,
    model_of,
    numbers_of,
    shapes_of,
    source_of,
)
from fusewise.cli.reports import ReportFile, check_report, write_report
from fusewise.cli.sweep import run_file
from fusewise.errors import UsageError
from fusewise.words import MIB, size_text

if TYPE_CHECKING:
    from fusewise.planning import Planning

__all__ = ["Share", "plan"]

HardwareName = Annotated[
    str, typer.Option("--hardware", help="A preset (edge-128k ... edge-2m), or a .toml file of your own.")
]
Buffer = Annotated[
    str | None, typer.Option("--buffer", metavar="256KiB", help="On-chip buffer, in place of the preset's.")
]
SchemeName = Annotated[str, typer.Option("--scheme", help="How groups run: lbdf or brr.")]
SchemeOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="OPTION=VALUE", help="An option of the scheme, such as granularity=row."),
]
SearchName = Annotated[str, typer.Option("--search", help="exact, random, local or nsga2.")]
ObjectiveName = Annotated[str, typer.Option("--objective", help="What to minimise: dram, energy or latency.")]
ExplainerName = Annotated[
    str | None,
    typer.Option("--explainer", help="What finds where to split a group that does not fit (default: chance)."),
]
Share = Annotated[float, typer.Option("--share", min=0.0, max=1.0, help="Edges of a group that an explainer may name.")]
Asking = Annotated[
    str,
    typer.Option("--asking", help="Ask the explainer anew about every part that does not fit, or once for each group."),
]
Edits = Annotated[
    int | None,
    typer.Option(
        "--edits", min=1, help="Edits of a plan at a time, in local search (published: 1; default: one or a few)."
    ),
]
Plans = Annotated[int | None, typer.Option("--plans", min=1, help="Plans to evaluate at most.")]
Seconds = Annotated[float | None, typer.Option("--seconds", min=0.0, help="Time to search at most.")]
Outputs = Annotated[
    list[Path] | None,
    typer.Option("--output", "-o", help="Write the plan: .json, .onnx (groups as functions) or .html."),
]

Model = Annotated[
    str | None,
    typer.Argument(metavar="MODEL", help="A path to an .onnx file, or zoo:NAME.", autocompletion=model_names),
]
SweepFile = Annotated[
    Path | None,
    typer.Option("--sweep", help="Make all plans a TOML file asks for; -o names a .jsonl file to append to."),
]
Workers = Annotated[int, typer.Option("--workers", min=1, help="Processes of a sweep.")]
ExecutorName = Annotated[str, typer.Option("--executor", help="processes, dask, or dask://HOST:PORT.")]

ENDINGS = (".json", ".onnx", ".html")


def plan(
    context: typer.Context,
    model: Model = None,
    hardware: HardwareName = "edge-256k",
    buffer: Buffer = None,
    scheme: SchemeName = "lbdf",
    options: SchemeOption = None,
    search: SearchName = "exact",
    objective: ObjectiveName = "dram",
    explainer: ExplainerName = None,
    share: Share = 0.3,
    asking: Asking = "anew",
    edits: Edits = None,
    plans: Plans = None,
    seconds: Seconds = None,
    seed: Seed = 0,
    output: Outputs = None,
    exported: Exported = False,
    shape: Shapes = None,
    symbol: Symbols = None,
    sweep: SweepFile = None,
    workers: Workers = 1,
    executor: ExecutorName = "processes",
    report: ReportFile = None,
    json: Json = False,
) -> None:
    """Plan how an accelerator with a small on-chip buffer should run MODEL: groups of operators that keep their data inside."""
    from fusewise import api
    from fusewise.cli.show import print_json, progress
    from fusewise.planning import PlanOptions

    if sweep is not None:
        if report is not None:
            raise UsageError("a report is of one plan: leave out --report, or --sweep")
        if exported:
            raise UsageError("a sweep names its models itself: write zoo:NAME@exported there and leave out --exported")
        run_file(sweep, model, output or (), workers, executor, json)
        return
    if model is None:
        raise UsageError("name the MODEL to plan, or give --sweep FILE")
    model = model_of(model, exported)
    check_folder(*(output or ()))
    for path in output or ():
        if path.suffix not in ENDINGS:
            raise UsageError(f"a plan is written as {', '.join(ENDINGS)}, not as {path.name!r}")
    pages = [path for path in output or () if path.suffix == ".html"]
    for page in (report, *pages):
        check_report(page)
    chosen = PlanOptions(
        hardware=hardware,
        buffer=buffer,
        scheme=scheme,
        scheme_options=_settings(options),
        search=search,
        objective=objective,
        explainer=explainer,
        share=share,
        asking=asking,
        edits=edits,
        plans=plans,
        seconds=seconds,
        seed=seed,
    )
    given: dict[str, Any] = {"shapes": shapes_of(shape), "symbols": numbers_of(symbol)}
    with progress() as tell:
        found = api.plan(source_of(model), chosen, **given, progress=tell)
    for path in output or ():
        if path not in pages:
            found.save(path)
    if json:
        print_json({"model": model, **found.summary})
    else:
        _show(found, model)
    pages += [] if report is None else [report]
    if pages:
        from fusewise.reporting.document.verbs import plan_document

        document = plan_document(model, api.load(source_of(model), **given), found)
        for path in pages:
            write_report(context, path, model, "plan", document)


def _settings(texts: Iterable[str] | None) -> dict[str, object]:
    """`granularity=row` as {"granularity": "row"}; numbers and true or false as what they are."""
    found: dict[str, object] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--set {text!r} is not of the form OPTION=VALUE")
        words: dict[str, object] = {"true": True, "false": False}
        found[name] = words.get(value, int(value) if value.isdecimal() else value)
    return found


def _show(found: Planning, model: str) -> None:
    from fusewise.cli.show import facts, table

    figures, operators = found.summary, found.plan.network.operators
    rows = []
    for number, group in enumerate(found.plan.groups):
        first, last = operators[group.operators[0]].name, operators[group.operators[-1]].name
        named = first if first == last else f"{first} ... {last}"
        rows.append(
            (
                f"{number}  {named}",
                str(len(group.operators)),
                size_text(group.buffer_bytes),
                f"{group.buffer_bytes / found.plan.capacity:.0%}",
                size_text(group.dram_bytes),
            )
        )
    table(("group", "operators", "buffer", "used", "DRAM"), rows, ranks=(0, 4, 1, 3, 2))
    facts(
        [
            ("model", model),
            (
                "accelerator",
                f"{found.plan.hardware.name}, buffer {size_text(found.plan.capacity)}, {found.setting.scheme}",
            ),
            ("DRAM traffic", f"{figures['dram_bytes'] / MIB:.3f} MiB in {figures['groups']} groups"),
            ("  with what was left out", f"{figures['dram_bytes_full'] / MIB:.3f} MiB"),
            ("largest buffer need", size_text(figures["max_buffer_bytes"])),
            ("estimates", f"{figures['latency_ms']:.3f} ms, {figures['energy_mj']:.3f} mJ"),
            (
                "search",
                f"{found.setting.search}, {_plans(figures['plans_evaluated'])}, {figures['search_s']:.2f} s, {_quality(figures)}",
            ),
            *([] if figures["rectify_rate"] is None else [("groups repaired", _repaired(figures))]),
            ("left out", str(figures["excluded"])),
            *(("  ", f"{operators[one.operator].name}: {one.reason}") for one in found.plan.excluded[:8]),
            *(
                [("  ", f"and {figures['excluded'] - 8} more (see --json or -o plan.html)")]
                if figures["excluded"] > 8
                else []
            ),
            *(("note", note) for note in found.result.notes),
        ]
    )


def _plans(number: int) -> str:
    return f"{number:,} plan{'' if number == 1 else 's'}"


def _quality(figures: Mapping[str, Any]) -> str:
    ended = ", interrupted" if figures["interrupted"] else ""
    if figures["optimal"]:
        return f"proven optimal{ended}"
    if figures["gap"] is None:
        return f"no bound known (--search exact gives one){ended}"
    return f"within {figures['gap']:.2%} of the optimum{ended}"


def _repaired(figures: Mapping[str, Any]) -> str:
    return (
        f"{figures['rectified']} of {figures['invalid']} by explanations alone ({figures['rectify_rate']:.1%}),"
        f" {figures['rectified_once']} by the first one ({figures['rectify_rate_once']:.1%})"
    )

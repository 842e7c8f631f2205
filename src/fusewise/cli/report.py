"""`fusewise report`: what was done with a model, as a page or as data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fusewise.cli.completion import model_names, one_of
from fusewise.cli.options import (
    Cache,
    Device,
    Disable,
    Exact,
    Exported,
    Fusion,
    Precision,
    Seed,
    Shapes,
    Strict,
    Symbols,
    Threads,
    Values,
    check_folder,
    is_given,
    model_of,
    options_of,
    source_of,
)
from fusewise.cli.reports import command_of, save_report
from fusewise.errors import UsageError

if TYPE_CHECKING:
    from fusewise.reporting.report import Report

__all__ = ["report"]

Subject = Annotated[
    str,
    typer.Argument(
        metavar="MODEL|REPORT",
        help="A model, as other verbs take it, or a report that was written as .json.",
        autocompletion=model_names,
    ),
]
Other = Annotated[
    str | None,
    typer.Argument(metavar="[REPORT]", help="Another report in .json: the two are compared.", show_default=False),
]
Force = Annotated[bool, typer.Option("--force", help="Compare reports of two models, too.")]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        help="The file to write: .html (a page), .json (the data), .model-explorer.json, .node-data.json, .perfetto.json or .dot.",
    ),
]
FormatName = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="FORMAT",
        autocompletion=one_of("fusewise.reporting.formats.table", "FORMATS"),
        help="What to write whatever the file is called: html, json, model-explorer, node-data, perfetto or dot.",
    ),
]
Times = Annotated[bool, typer.Option("--times/--no-times", help="Time some runs on random inputs.")]


def report(
    context: typer.Context,
    subject: Subject,
    other: Other = None,
    output: Output = None,
    format: FormatName = None,  # noqa: A002 - as users say it
    times: Times = True,
    seed: Seed = 0,
    exported: Exported = False,
    shape: Shapes = None,
    symbol: Symbols = None,
    value: Values = None,
    threads: Threads = None,
    exact: Exact = False,
    strict: Strict = False,
    disable: Disable = None,
    fusion: Fusion = "dnnfusion",
    precision: Precision = "float32",
    device: Device = "cpu",
    cache: Cache = True,
    force: Force = False,
) -> None:
    """Compile MODEL and write down what was done with it: graphs, groups, decisions, kernels, memory, times.

    For a GPU that is not here there are estimates in place of times; no GPU is needed where an architecture is named: cuda:sm_90.

    A report that was written as .json is written in another format. Two of them are compared: what differs is shown, and written.
    """
    from fusewise.reporting.formats.table import format_of
    from fusewise.reporting.page.page import require_pages

    if output is not None:
        chosen = format_of(output, format)  # so that a name that there is not is told at once
        check_folder(output)
        if chosen.name == "html":
            require_pages()
    elif other is None:
        raise UsageError("say which file to write the report to: -o report.html")
    if other is not None:
        found = _compared(subject, other, context)
    elif force:
        raise UsageError("--force compares two reports: name both, or leave it out")
    else:
        found = _read(subject, context) if subject.endswith(".json") else _made(subject, context)
    if output is not None:
        save_report(found, output, format)


def _compared(first: str, second: str, context: typer.Context) -> Report:
    from fusewise.cli.comparison import compared_files
    from fusewise.reporting.report import Report

    _refuse_options(f"{first} and {second} are reports that were made before", context)
    made = Report(compared_files((first, second), force=context.params["force"]))
    made.document["made"]["command"] = command_of(context)
    return made


def _read(path: str, context: typer.Context) -> Report:
    """A report from its file; `UsageError` for options that say how to make one."""
    from fusewise.reporting.report import opened_report

    _refuse_options(f"{path} is a report that was made before", context)
    return opened_report(path)


def _refuse_options(why: str, context: typer.Context) -> None:
    kept = ("subject", "other", "output", "format", "force")
    given = [name for name in context.params if name not in kept and is_given(context, name)]
    if given:
        raise UsageError(f"{why}; leave out --{given[0].replace('_', '-')}")


def _made(subject: str, context: typer.Context) -> Report:
    from fusewise import api
    from fusewise.cli.show import progress

    words = context.params
    model, options = model_of(subject, words["exported"]), options_of(context)
    with progress() as tell:
        made = api.report(source_of(model), options, times=words["times"], seed=words["seed"], progress=tell)
    made.document["made"]["command"] = command_of(context)
    made.document["title"] = model
    return made

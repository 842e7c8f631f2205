"""`--report` of verbs: what they did as a page or as data, in a file that appears whole, when all else is done."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fusewise.cli.options import check_folder
from fusewise.cli.streams import note
from fusewise.errors import UsageError

if TYPE_CHECKING:
    from fusewise.reporting.report import Report

__all__ = ["ReportFile", "check_report", "command_of", "given_words", "save_report", "write_report"]

ReportFile = Annotated[
    Path | None,
    typer.Option("--report", metavar="FILE", help="Write what was done, too: a page (.html) or its data (.json)."),
]

_NOT_OPTIONS = ("model", "output", "json", "report", "decisions", "plot")
"""Words of a command line that say which model it is about and where things go."""


def check_report(path: Path | None) -> None:
    """`UsageError` for a file that no report can be written to, and where what pages are made with is missing: before the work."""
    if path is None:
        return
    check_folder(path)
    if path.suffix not in (".html", ".json"):
        raise UsageError(f"the name of a report must end in .html or .json, not {path.name!r}")
    if path.suffix == ".html":
        from fusewise.reporting.page.page import require_pages

        require_pages()


def command_of(context: typer.Context) -> str:
    """The command line as it was typed."""
    return shlex.join(("fusewise", *(context.find_root().obj or ())))


def given_words(context: typer.Context) -> dict[str, Any]:
    """The options that stand on the command line, as plain data."""
    found = {}
    for name, value in context.params.items():
        source = context.get_parameter_source(name)
        if name not in _NOT_OPTIONS and source is not None and source.name == "COMMANDLINE":
            found[name] = value if isinstance(value, int | float | str) else _told(value)
    return found


def _told(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def write_report(context: typer.Context, path: Path, name: str, verb: str, document: dict[str, Any]) -> None:
    """Write the document of a `verb` about the model called `name`, and say so."""
    from fusewise.reporting.report import Report

    whole = {**document, "title": name, "verb": verb}
    whole["made"] = {**document["made"], "command": command_of(context)}
    whole["model"] = {**document["model"], "name": name}
    whole["options"] = document["options"] or given_words(context)
    save_report(Report(whole), path)


def save_report(report: Report, path: Path, format: str | None = None) -> None:  # noqa: A002 - as users say it
    """Write a report in the `format` of that name, or the one that the file's name ends as; say so, and why it has no charts."""
    from fusewise.cli.show import with_size
    from fusewise.reporting.charts import missing_charts
    from fusewise.reporting.formats.table import format_of

    report.save(path, format)
    note(f"wrote {with_size(path)}")
    why = missing_charts(report.document) if format_of(path, format).name in ("html", "json") else ""
    if why:
        note(f"there are no charts in it: {why}")

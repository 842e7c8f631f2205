"""A report as its user holds it: its document, and the files that it can be written as."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

from fusewise.cards import Card, carded
from fusewise.compiled import Model
from fusewise.compiling import Progress, planned
from fusewise.errors import FusewiseError, InvalidModel, UsageError
from fusewise.files import write_text
from fusewise.ir.graph import Graph
from fusewise.making import GpuPlanned, Planned
from fusewise.options import Options
from fusewise.reporting.charts import with_charts
from fusewise.reporting.document.collect import report_document
from fusewise.reporting.document.read import read_document
from fusewise.reporting.document.subject import ReportSubject
from fusewise.reporting.formats.table import format_of, written_as
from fusewise.runtime.folder import cache_folder
from fusewise.trace import Trace

__all__ = ["Report", "Timing", "opened_report", "report_on", "reported", "reported_again", "reported_as"]

Compile = Callable[..., Model]
"""Compiles a graph with a `trace`, and shows `look` what was planned, with the decisions, before machine code is made."""

Timing = int | None
"""The seed of the random inputs that runs are timed on; None where none are."""


def _card(report: Report) -> Card:
    document = report.document
    graphs = document.get("graphs") or {}
    counts = [f"{len(graphs[name]['nodes']):,} {name}" for name in ("written", "clean", "native") if name in graphs]
    groups, kernels = (len(document.get(part) or ()) for part in ("groups", "kernels"))
    host = sum(step["kind"] == "host" for step in document.get("steps") or ())
    rows = [
        ("nodes", ", ".join(counts) or "none"),
        ("program", f"{groups:,} groups, {kernels:,} kernels, {host:,} steps on the host"),
        ("decisions", f"{len(document.get('decisions') or ()):,}"),
        ("a run", _of_run(document)),
    ]
    return Card(f"Report on {document['title']} (`save` writes it as .html or .json)", tuple(rows))


def _of_run(document: Mapping[str, Any]) -> str:
    times, estimates = document.get("times"), document.get("estimates")
    if times:
        return f"{times['ms']:,.3f} ms, median of {times['runs']} runs"
    return f"not measured; estimated at {estimates['ms']:,.3f} ms" if estimates else "not measured"


@carded(_card)
class Report:
    """What a compilation did with a model. `document` is plain JSON data (docs/report.md); `title` is what it is called; `path` is
    the file that it was read from, if it was."""

    def __init__(self, document: dict[str, Any], path: Path | None = None) -> None:
        self.document = document
        self.path = path

    @property
    def title(self) -> str:
        return str(self.document["title"])

    def html(self) -> str:
        """The page: one file that fetches nothing. `UsageError` where what pages are made with is not installed."""
        from fusewise.reporting.page.page import html

        return html(with_charts(self.document))

    def save(self, path: str | Path, format: str | None = None) -> None:  # noqa: A002 - as the command line has it
        """Write the report, whole or not at all, in the `format` of that name, or the one that the name of the file ends as.

        `UsageError` for a name that ends as no format does, and for a place where nothing may be written; `InvalidModel` where
        the report was read from a file that somebody took parts from.
        """
        target = Path(path)
        chosen = format_of(target, format)
        try:
            text = written_as(self.document, chosen)
        except (KeyError, TypeError, IndexError, AttributeError, ValueError) as error:
            if self.path is None:
                raise
            raise InvalidModel(
                f"{self.path} is not a whole report: a part is missing or of another kind ({error}); make it again"
            ) from error
        write_text(target, text)

    def _repr_html_(self) -> str:
        """The page in a frame of its own, in a notebook, of which it has nothing; the card where pages cannot be made."""
        try:
            page = self.html()
        except UsageError:
            return _card(self).html
        return (
            f'<iframe srcdoc="{escape(page)}" sandbox="allow-scripts allow-downloads" '
            f'style="width:100%;height:720px;border:0" title="{escape(self.title)}"></iframe>'
        )


def opened_report(path: str | Path) -> Report:
    """The report that was written as .json. Raises what `read_document` raises."""
    return Report(read_document(Path(path)), Path(path))


def reported(
    name: str, written: Graph, options: Options, compiled: Compile, *, timing: Timing = None, **about: Any
) -> Report:
    """The report of a model that is compiled for it. `about` is as in `report_on`."""
    seen: list[tuple[Planned | GpuPlanned, Trace]] = []
    trace = Trace(disabled=frozenset(options.disable))
    model = compiled(written, trace=trace, look=lambda made, decisions: seen.append((made, decisions)))
    made, decisions = seen[-1]
    return report_on(ReportSubject(name, written, made, decisions, model, options), timing=timing, **about)


def reported_again(model: Model, bound: Graph, options: Options, timing: Timing) -> Report:
    """The report of a model that was compiled before, of the graph that was `bound`: it is planned once more."""
    chosen, trace = replace(options, tune=0.0), Trace(disabled=frozenset(options.disable))
    return reported_as(model, (planned(bound, chosen, trace, lambda sentence: None), trace), chosen, timing)


def reported_as(model: Model, found: tuple[Planned | GpuPlanned, Trace], options: Options, timing: Timing) -> Report:
    """The report of a model that was compiled before, of what was planned again, with its decisions."""
    made, trace = found
    return report_on(ReportSubject(made.bound.name, made.bound, made, trace, model, options), timing=timing)


def report_on(
    subject: ReportSubject,
    *,
    timing: Timing = None,
    progress: Progress | None = None,
    verb: str = "report",
    command: str | None = None,
) -> Report:
    """The report of a compilation that was run, asked for by a `verb` as `command`, with times where they are wanted.

    Where the model cannot be run on random inputs the report has none, and `warn` of the options is told why.
    """
    tell = progress or (lambda what, share: None)
    times = None if timing is None else _timed(subject, timing, tell)
    tell("describing", 0.0)
    return Report(report_document(subject, verb=verb, command=command, times=times))


def _timed(subject: ReportSubject, seed: int, tell: Progress) -> dict[str, Any] | None:
    from fusewise.reporting.document.gpu import gpu_times_of
    from fusewise.reporting.document.times import times_of

    tell("timing runs", 0.0)
    try:
        if subject.options.on_gpu:
            return gpu_times_of(subject.model, seed=seed)
        return times_of(subject.model, seed=seed, folder=cache_folder(subject.options.cache))
    except FusewiseError as error:
        instead = ", but estimates" if subject.options.on_gpu else ""
        subject.options.warn(f"the report has no times{instead}: {error}")
        return None

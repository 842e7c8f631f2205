"""A report as its user holds it: its document, and the files it can be written as."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fusewise.compiled import Model
from fusewise.errors import UsageError
from fusewise.files import write_text
from fusewise.ir.graph import Graph
from fusewise.making import Planned
from fusewise.options import Options
from fusewise.reporting.document.collect import report_document
from fusewise.reporting.document.subject import ReportSubject
from fusewise.trace import Trace

__all__ = ["Report", "reported"]


class Report:
    """What a compilation did with a model. `document` is plain JSON data (docs/report.md)."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document

    def save(self, path: str | Path) -> None:
        """Write the report, whole or not at all. `UsageError` for a name that ends as no format does, and for a place where nothing
        may be written."""
        target = Path(path)
        if target.suffix != ".json":
            raise UsageError(f"a report is written as .json, not as {target.name!r}")
        write_text(target, json.dumps(self.document, separators=(",", ":")) + "\n")


Compile = Callable[[Graph, Trace, Callable[[Planned, Trace], None]], Model]
"""Compiles a graph, and shows what was planned, with the decisions, before machine code is made."""


def reported(name: str, written: Graph, options: Options, compiled: Compile) -> Report:
    """The report of a model that is compiled for it."""
    seen: list[tuple[Planned, Trace]] = []
    trace = Trace(disabled=frozenset(options.disable))
    model = compiled(written, trace, lambda planned, decisions: seen.append((planned, decisions)))
    planned, decisions = seen[-1]
    return Report(report_document(ReportSubject(name, written, planned, decisions, model, options)))

"""The whole document of a compilation."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from fusewise.benchmarking.describe import description
from fusewise.frontend.given import sized_at
from fusewise.ir.deciding import hint
from fusewise.ir.graph import Graph
from fusewise.ir.size import size_of
from fusewise.reporting.document.decisions import decision_parts
from fusewise.reporting.document.graphs import graph_part, names_of, with_types
from fusewise.reporting.document.groups import group_parts, owners, runs_of, verdict_parts
from fusewise.reporting.document.kernels import kernel_parts, step_parts
from fusewise.reporting.document.subject import ReportSubject
from fusewise.version import VERSION

__all__ = ["SCHEMA", "SCHEMA_VERSION", "report_document"]

SCHEMA, SCHEMA_VERSION = "fusewise-report", 1


def report_document(
    subject: ReportSubject, *, verb: str = "report", command: str | None = None, times: dict[str, Any] | None = None
) -> dict[str, Any]:
    """The document of a compilation that was asked for by a `verb`, with the `times` of its runs where they were taken."""
    planned = subject.planned
    program, graph = planned.program, planned.graph
    names, written = names_of(subject.written), with_types(subject.written, planned.bound)
    verdicts = verdict_parts(planned.plan, owners(program))
    groups = group_parts(planned.plan, program, verdicts)
    return {
        "schema": SCHEMA,
        "version": SCHEMA_VERSION,
        "title": subject.name,
        "verb": verb,
        "made": {
            "fusewise": VERSION,
            "at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "command": command,
        },
        "model": _model(subject.name, planned.bound),
        "stages": _stages(),
        "graphs": {
            "written": graph_part(written, names),
            "clean": graph_part(planned.clean, names),
            "native": graph_part(graph, names, runs_of(program), groups),
        },
        "groups": groups,
        "verdicts": verdicts,
        "kernels": kernel_parts(program, subject.model.executable.contents),
        "steps": step_parts(program),
        "decisions": decision_parts(subject.trace),
        "times": times,
    }


def _model(name: str, bound: Graph) -> dict[str, Any]:
    """What the model is; of free dimensions the sizes to plan for are its `symbols`."""
    return {
        "name": name,
        **description(sized_at(bound, {})),
        "inputs": {value: str(bound.types[value]) for value in bound.inputs},
        "outputs": {value: str(bound.types[value]) for value in bound.outputs},
        "symbols": {symbol.name: hint(size_of(symbol)) for symbol in bound.symbols},
    }


def _stages() -> list[dict[str, Any]]:
    rows = (
        ("written", "As written", "written", "The model as its file has it."),
        ("clean", "After clean-up", "clean", "What the passes leave: the same answers from fewer and cheaper nodes."),
        ("native", "For this machine", "native", "Operators written with those that have fast kernels here."),
        ("groups", "Groups", "native", "Nodes that are computed in one go."),
        ("program", "Program", "native", "Steps in the order in which they run, over planned memory."),
    )
    return [{"id": name, "title": title, "graph": graph, "ms": None, "what": what} for name, title, graph, what in rows]

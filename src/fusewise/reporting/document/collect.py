"""The whole document of a compilation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from fusewise.benchmarking.machine import this_machine
from fusewise.reporting.document.about import model_part, options_part
from fusewise.reporting.document.decisions import decision_parts
from fusewise.reporting.document.graphs import graph_part, names_of, with_types
from fusewise.reporting.document.groups import group_parts, owners, runs_of, verdict_parts
from fusewise.reporting.document.kernels import kernel_parts, step_parts
from fusewise.reporting.document.memory import memory_part
from fusewise.reporting.document.schema import SCHEMA, SCHEMA_VERSION
from fusewise.reporting.document.subject import ReportSubject
from fusewise.reporting.document.taking_back import EdgeOptions
from fusewise.reporting.document.times import compile_stages_of
from fusewise.version import VERSION

__all__ = ["report_document"]


def report_document(
    subject: ReportSubject, *, verb: str = "report", command: str | None = None, times: dict[str, Any] | None = None
) -> dict[str, Any]:
    """The document of a compilation that was asked for by a `verb`, with the `times` of its runs where they were taken."""
    planned = subject.planned
    program, graph = planned.program, planned.graph
    names, written = names_of(subject.written), with_types(subject.written, planned.bound)
    edges = EdgeOptions.of_plan(planned.plan, subject.trace, subject.options.fusion)
    verdicts = verdict_parts(planned.plan, owners(program), edges)
    executable, summary = subject.model.executable, subject.model.summary
    compiling = compile_stages_of(summary)
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
        "model": model_part(subject.name, planned.bound),
        "machine": this_machine(executable.workers),
        "options": options_part(subject.options),
        "stages": _stages(compiling["stages"]),
        "graphs": {
            "written": graph_part(written, names),
            "clean": graph_part(planned.clean, names),
            "native": graph_part(graph, names, runs_of(program, summary["host"]), groups),
        },
        "groups": groups,
        "verdicts": verdicts,
        "kernels": kernel_parts(program, executable.contents),
        "steps": step_parts(program),
        "decisions": decision_parts(subject.trace),
        "compile": compiling | {"cached_kernels": summary["cached"]},
        "memory": memory_part(program, summary),
        "times": times,
    }


_STAGES = (
    ("written", "As written", "written", ("loading",), "The model as its file has it."),
    (
        "clean",
        "After clean-up",
        "clean",
        ("rewriting",),
        "What passes leave: the same answers from fewer and cheaper nodes.",
    ),
    (
        "native",
        "For this machine",
        "native",
        ("legalizing",),
        "Operators written with those that have fast kernels here.",
    ),
    ("groups", "Groups", "native", ("fusing",), "Nodes that are computed in one go."),
    (
        "program",
        "Program",
        "native",
        ("generating code", "compiling", "linking", "packing"),
        "Steps in the order in which they run, as machine code, over planned memory.",
    ),
)
"""Of each stage its id, title and graph, the stages of a compilation that make it, and what it is."""


def _stages(taken: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    ms = {stage["name"]: stage["ms"] for stage in taken}
    return [
        {
            "id": name,
            "title": title,
            "graph": graph,
            "ms": sum(ms[part] for part in parts if part in ms) if not ms.keys().isdisjoint(parts) else None,
            "what": what,
        }
        for name, title, graph, parts, what in _STAGES
    ]

"""The whole document of a compilation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from fusewise.benchmarking.machine import this_machine
from fusewise.codegen.gpu.device import device_named
from fusewise.codegen.gpu.program import GpuProgram
from fusewise.fusion.plan import plan
from fusewise.lower.program import Program
from fusewise.making import gpu_planner
from fusewise.reporting.document.about import model_part, options_part
from fusewise.reporting.document.decisions import decision_parts
from fusewise.reporting.document.gpu import (
    device_part,
    estimates_part,
    figures_of_kernels,
    gpu_kernel_parts,
    gpu_memory_part,
    gpu_step_parts,
)
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
    planned, summary = subject.planned, subject.model.summary
    program = planned.program
    names, written = names_of(subject.written), with_types(subject.written, planned.bound)
    again = gpu_planner(device_named(program.device)) if isinstance(program, GpuProgram) else plan
    edges = EdgeOptions.of_plan(planned.plan, subject.trace, subject.options.fusion, again)
    verdicts = verdict_parts(planned.plan, owners(program), edges)
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
        "machine": this_machine(subject.model.runs.workers),
        "options": options_part(subject.options),
        "stages": _stages(compiling["stages"], _GPU_STAGES if isinstance(program, GpuProgram) else _STAGES),
        "graphs": {
            "written": graph_part(written, names),
            "clean": graph_part(planned.clean, names),
            "native": graph_part(planned.graph, names, runs_of(program, summary["host"]), groups),
        },
        "groups": groups,
        "verdicts": verdicts,
        "decisions": decision_parts(subject.trace),
        "times": times,
        **(_gpu_parts(subject, program) if isinstance(program, GpuProgram) else _native_parts(subject, program)),
        "compile": compiling | ({"cached_kernels": summary["cached"]} if "cached" in summary else {}),
    }


def _native_parts(subject: ReportSubject, program: Program) -> dict[str, Any]:
    model = subject.model
    return {
        "kernels": kernel_parts(program, model.executable.contents),
        "steps": step_parts(program),
        "memory": memory_part(program, model.summary),
    }


def _gpu_parts(subject: ReportSubject, program: GpuProgram) -> dict[str, Any]:
    device, compiled = device_named(program.device), figures_of_kernels(subject.model)
    return {
        "kernels": gpu_kernel_parts(program, device, compiled),
        "steps": gpu_step_parts(program, device, compiled),
        "memory": gpu_memory_part(program, subject.model.summary),
        "device": device_part(device),
        "estimates": estimates_part(program, device, compiled),
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


_GPU_STAGES = (
    _STAGES[0],
    (*_STAGES[1][:3], (), _STAGES[1][4]),
    ("native", "For the GPU", "native", (), "Operators written with those that have kernels there."),
    ("groups", "Groups", "native", ("planning",), "Nodes that are computed in one go, with all that goes before."),
    (
        "program",
        "Program",
        "native",
        ("compiling", "packing"),
        "Launches of kernels that Triton compiled, and who waits for whom, over planned memory.",
    ),
)


def _stages(
    taken: Iterable[Mapping[str, Any]], rows: Sequence[tuple[str, str, str, tuple[str, ...], str]]
) -> list[dict[str, Any]]:
    ms = {stage["name"]: stage["ms"] for stage in taken}
    return [
        {
            "id": name,
            "title": title,
            "graph": graph,
            "ms": sum(ms[part] for part in parts if part in ms) if not ms.keys().isdisjoint(parts) else None,
            "what": what,
        }
        for name, title, graph, parts, what in rows
    ]

"""Groups and verdicts as parts of the document: what is computed in one go, and for every edge why it is, or is not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fusewise.codegen.gpu.listing import kernel_way
from fusewise.codegen.gpu.program import GpuProgram, GpuStep
from fusewise.fusion.ecg import ExtendedGraph
from fusewise.fusion.plan import Edge, Plan
from fusewise.ir.graph import Graph
from fusewise.lower.program import HostStep, NativeStep, Program, StepVersions
from fusewise.reporting.document.taking_back import EdgeOptions

__all__ = ["APART", "group_parts", "owners", "runs_of", "verdict_parts"]

APART = "planned as one, but one of them is a kernel of its own or runs on the host"
"""The reason of an edge within a group of the plan that was taken apart when code was made of it."""

_NAMED = 4
"""Operators of a group that its title names."""


def owners(program: Program | GpuProgram) -> dict[int, int]:
    """The group of each node of the compiled graph, by number."""
    return {node: number for number, account in enumerate(program.accounts) for node in account.members}


def runs_of(program: Program | GpuProgram, host: Iterable[Mapping[str, Any]]) -> dict[int, dict[str, Any]]:
    """Of each node of the compiled graph its `group`, what it `runs` as (a `kernel`, the `host`, or only a `view`), and `how`.

    `host` has the nodes on the host as `hosting.described` tells of them.
    """
    steps, ways = _steps(program), {row["node"]: row["way"] for row in host}
    found: dict[int, dict[str, Any]] = {}
    for number, account in enumerate(program.accounts):
        own = [program.steps[step] for step in steps.get(number, ())]
        native = [step for step in own if not isinstance(step, HostStep)]
        for node in account.members:
            found[node] = {"group": number, "runs": "view", "how": "nothing is computed: its result is a view"}
            if native:
                found[node] |= {
                    "runs": "kernel",
                    "how": "; ".join(dict.fromkeys(_way(program, step) for step in native)),
                }
        for step in own:
            if isinstance(step, HostStep):
                for position, one, reason in zip(account.members, step.nodes, step.reasons, strict=True):
                    found[position] |= {"runs": "host", "how": f"{reason} ({ways[one.label]})"}
    return found


def _way(program: Program | GpuProgram, step: NativeStep | StepVersions | GpuStep) -> str:
    if isinstance(step, GpuStep):
        assert isinstance(program, GpuProgram)
        return kernel_way(program, step)
    return step.first.way if isinstance(step, StepVersions) else step.way


def _steps(program: Program | GpuProgram) -> Mapping[int, Sequence[int]]:
    """The steps of each group."""
    found: dict[int, list[int]] = {}
    for number, step in enumerate(program.steps):
        found.setdefault(step.group, []).append(number)
    return found


def group_parts(
    plan: Plan, program: Program | GpuProgram, verdicts: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Every group that code was made of, with what it saves and why it went no further (`stopped_by`, most often first)."""
    graph, steps, group_of = plan.partition.graph, _steps(program), owners(program)
    ecg, planned = ExtendedGraph(graph), plan.partition.group_of
    stops: dict[int, Counter[str]] = {}
    for verdict in verdicts:
        if not verdict["fused"]:
            for end in {group_of[verdict["from"]], group_of[verdict["to"]]}:
                stops.setdefault(end, Counter())[verdict["reason"]] += 1
    found = []
    for number, account in enumerate(program.accounts):
        members = account.members
        anchors = [n for n in members if ecg.is_anchor(n)]
        whole = plan.partition.groups[planned[members[0]]].nodes == members
        kind = plan.types[planned[members[0]]] if whole else max(map(ecg.mapping, members))
        found.append(
            {
                "id": number,
                "title": _title(graph, members),
                "nodes": list(members),
                "mapping": kind.name.lower(),
                "anchor": anchors[0] if anchors else None,
                "bytes_saved": _saved(ecg, frozenset(members)),
                "flops": account.flops,
                "bytes": account.nbytes,
                "stopped_by": [reason for reason, _ in stops.get(number, Counter()).most_common()],
                "steps": list(steps.get(number, ())),
            }
        )
    return found


def _title(graph: Graph, members: Sequence[int]) -> str:
    operators = [graph.nodes[n].op for n in members]
    if len(operators) <= _NAMED + 1:
        return "+".join(operators)
    return f"{'+'.join(operators[:_NAMED])}+{len(operators) - _NAMED} more"


def _saved(ecg: ExtendedGraph, members: frozenset[int]) -> int:
    """Bytes of results that nobody outside reads, so that they are not written."""
    made = (value for n in members for value in ecg.node(n).writes)
    return sum(ecg.nbytes(value) for value in made if ecg.is_removable(value, members))


def verdict_parts(plan: Plan, group_of: Mapping[int, int], options: EdgeOptions) -> list[dict[str, Any]]:
    """The verdict on every edge: whether it lies within a group, why, and what it saves, or would if the two were one.

    `saved_bytes` of the value need not be written where nobody else reads it; `saved_ms` is what the planner's costs came to,
    where they were asked.
    """
    ecg = ExtendedGraph(plan.partition.graph)
    return [_verdict(ecg, edge, group_of, options) for edge in plan.edges]


def _verdict(ecg: ExtendedGraph, edge: Edge, group_of: Mapping[int, int], options: EdgeOptions) -> dict[str, Any]:
    fused = group_of[edge.producer] == group_of[edge.consumer]
    readers = ecg.graph.users[edge.value]
    alone = edge.value not in ecg.graph.output_set and all(group_of[n] == group_of[edge.consumer] for n in readers)
    saved = None if edge.before is None or edge.after is None else (edge.before - edge.after) / 1e6
    rule, option = (None, None) if edge.fused and not fused else options.of(edge.producer, edge.consumer, fused)
    return {
        "value": edge.value,
        "from": edge.producer,
        "to": edge.consumer,
        "fused": fused,
        "verdict": edge.verdict.value,
        "reason": APART if edge.fused and not fused else edge.reason.value,
        "saved_bytes": ecg.nbytes(edge.value) if alone else 0,
        "saved_ms": saved,
        "rule": rule,
        "option": option,
    }

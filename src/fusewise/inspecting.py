"""What a model is, how it is fused, and what of it runs natively here: `fusewise inspect` as plain data."""

from __future__ import annotations

from typing import Any, TypedDict

from fusewise.benchmarking.describe import description
from fusewise.codegen.assemble import generate
from fusewise.codegen.legalize import for_native, passes_for
from fusewise.frontend.given import sized_at
from fusewise.fusion import describe
from fusewise.fusion.plan import Plan, plan
from fusewise.fusion.tree import data_flow_tree, group_named
from fusewise.hosting import described
from fusewise.ir.deciding import hint
from fusewise.ir.graph import Graph
from fusewise.ir.size import size_of
from fusewise.lower.program import NativeStep, Program
from fusewise.lower.task import Task
from fusewise.lower.work import HostWork, TaskWork, lower_partition
from fusewise.ops.expr import assignments
from fusewise.passes.pipeline import DEFINED, run
from fusewise.runtime.host import host_target
from fusewise.trace import Trace

__all__ = ["InspectionDict", "inspected"]


class InspectionDict(TypedDict, total=False):
    """What `inspected` takes by keyword."""

    fusion: str
    groups: bool
    why: str | None
    tree: str | int | None


def inspected(
    graph: Graph,
    *,
    fusion: str = "dnnfusion",
    groups: bool = False,
    why: str | None = None,
    tree: str | int | None = None,
) -> dict[str, Any]:
    """The data of `api.inspect`; of a graph with free dimensions for the sizes to plan for, which are its `symbols`."""
    free, graph, trace = graph, sized_at(graph, {}), Trace()
    clean = run(run(graph, passes_for(host_target()), trace), DEFINED, trace)
    fused = plan(clean, trace, fusion)
    told: dict[str, Any] = {} if why is None else {"why": describe.why(fused, why)}
    program = generate(fused.partition, host_target(), trace)
    if tree is not None:
        told["tree"] = described_tree(fused, tree, program)
    host = described(clean, program)
    native = for_native(clean, "float32", trace, target=host_target())
    compiled = fused if native is clean else plan(native, trace, fusion)
    if groups:
        told |= {"groups": describe.described_groups(fused), "verdicts": describe.described_edges(fused)}
    return {
        **description(graph),
        "inputs": {name: str(free.types[name]) for name in free.inputs},
        "outputs": {name: str(free.types[name]) for name in free.outputs},
        "symbols": {symbol.name: hint(size_of(symbol)) for symbol in free.symbols},
        "nodes_compiled": len(clean.nodes),
        "native_nodes": len(clean.nodes) - len(host),
        "host_nodes": len(host),
        "host": host,
        **describe.fusion_figures(graph, fused),
        "nodes_for_machine": len(native.nodes),
        "groups_for_machine": len(compiled.partition.groups),
        **told,
    }


def described_tree(fused: Plan, name: str | int, program: Program) -> dict[str, Any]:
    """The data-flow tree of the group called `name`, and under `code` the tasks that are generated from it, and how the program
    runs them."""
    position = group_named(fused, name)
    nodes = set(fused.partition.groups[position].nodes)
    lowered = lower_partition(fused.partition, Trace())
    work = [
        one
        for one in lowered.work
        if one.group < len(lowered.groups) and nodes.issuperset(lowered.groups[one.group].nodes)
    ]
    return {**data_flow_tree(fused, position), "code": [_described(one, program) for one in work]}


def _described(work: TaskWork | HostWork, program: Program) -> dict[str, Any]:
    """One piece of work: what a task computes, over which operands, or why nodes run on the host."""
    if isinstance(work, HostWork):
        rows = zip(work.nodes, work.reasons, strict=True)
        return {"host": [{"node": node.label, "op": node.op, "reason": reason} for node, reason in rows]}
    task, step = work.bound.task, _step_of(work, program)
    return {
        "label": work.label,
        "way": "" if step is None else step.way,
        "nest": "" if step is None else program.kernels[step.kernel].texts()[0],
        "extents": list(task.extents),
        "anchor": None if task.anchor is None else task.anchor.op,
        "operands": [
            {
                "name": operand.name,
                "value": work.bound.values[operand.name],
                "type": f"{operand.dtype.name}[{','.join(map(str, operand.shape))}]",
                "strides": list(operand.strides),
            }
            for operand in task.operands
        ],
        "elements": [{"element": name, "is": text} for name, text in _elements(task)],
    }


def _step_of(work: TaskWork, program: Program) -> NativeStep | None:
    """The first step that runs a task; none where it has no elements."""
    steps = (step for step in program.steps if isinstance(step, NativeStep))
    return next((step for step in steps if (step.label, step.group) == (work.label, work.group)), None)


def _elements(task: Task) -> list[tuple[str, str]]:
    """What the anchor reads, each operand at (p0, p1, ...), and what is stored, as assignments."""
    read = () if task.anchor is None else task.anchor.prologue
    roots = {f"operand {k} of {task.anchor.op}": e for k, e in enumerate(read) if e is not None and task.anchor}
    roots |= {f"{store.operand}[{', '.join(map(repr, store.index))}]": store.value for store in task.stores}
    return assignments(roots)

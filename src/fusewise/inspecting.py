"""What a model is, how it is fused, and what of it runs natively here or as kernels of a GPU: `fusewise inspect` as plain data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict, cast

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
from fusewise.lower.program import HostStep, NativeStep, Program
from fusewise.lower.task import Task
from fusewise.lower.work import HostWork, TaskWork, lower_partition
from fusewise.ops.expr import assignments
from fusewise.passes.pipeline import DEFINED, run
from fusewise.runtime.host import host_target
from fusewise.trace import Trace
from fusewise.words import no_such

if TYPE_CHECKING:
    from fusewise.codegen.gpu.device import Device
    from fusewise.making import GpuPlanned

__all__ = [
    "GpuInspection",
    "GpuInspectionDict",
    "InspectionDict",
    "inspected",
    "inspected_for_gpu",
    "inspected_on",
    "require_keywords",
]

Progress = Callable[[str, float], None]
"""Told what is being done and the finished share of it, 0 to 1."""


class InspectionDict(TypedDict, total=False):
    """What `inspected` takes by keyword."""

    fusion: str
    groups: bool
    why: str | None
    tree: str | int | None


class GpuInspectionDict(InspectionDict, total=False):
    """`GpuInspection`, given one by one."""

    precision: str
    exact: bool
    refused: bool
    ptx: bool
    progress: Progress | None


@dataclass(frozen=True)
class GpuInspection:
    """What is wanted of a model for a GPU, in `precision`, in IEEE's where `exact`.

    Kernels are compiled, for their figures, unless `groups`, `why` or `tree` is wanted. With `refused` each step says why other
    families of kernels did not accept its group, with `ptx` the code of a `tree` has each kernel's PTX.
    """

    fusion: str = "dnnfusion"
    groups: bool = False
    why: str | None = None
    tree: str | int | None = None
    precision: str = "float32"
    exact: bool = False
    refused: bool = False
    ptx: bool = False
    progress: Progress | None = None


def require_keywords(wanted: Mapping[str, Any], device: str) -> None:
    """`UsageError` for what is no keyword of `inspected`, or of `GpuInspection` where the device is a GPU."""
    known = (InspectionDict if device == "cpu" else GpuInspectionDict).__annotations__
    if unknown := [name for name in wanted if name not in known]:
        raise no_such("keyword of inspect", unknown[0], known)


def inspected_on(graph: Graph, device: str, wanted: GpuInspectionDict) -> dict[str, Any]:
    """`inspected`, or `inspected_for_gpu` where the device is a GPU."""
    if device != "cpu":
        return inspected_for_gpu(graph, device, GpuInspection(**wanted))
    return inspected(graph, **cast("InspectionDict", wanted))


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
    step = _step_of(work, program)
    way, nest = ("", "") if step is None else (step.way, program.kernels[step.kernel].texts()[0])
    return _described_task(work) | {"way": way, "nest": nest}


def _described_task(work: TaskWork) -> dict[str, Any]:
    task = work.bound.task
    return {
        "label": work.label,
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


# --- for a GPU ------------------------------------------------------------------------------------------------------------


def inspected_for_gpu(graph: Graph, device: str, how: GpuInspection) -> dict[str, Any]:
    """The data of `api.inspect` for a GPU as users name it, which has to be there where no architecture is named.

    Raises what `making.gpu_planned` raises, the errors of `runtime.gpu.driver`, and `NoTriton`.
    """
    from fusewise.codegen.gpu.device import device_choice
    from fusewise.making import GpuMaking, gpu_planned
    from fusewise.runtime.gpu import drivers

    free, graph, trace = graph, sized_at(graph, {}), Trace()
    row, _ = drivers.row_for(device_choice(device), "look at kernels")
    found = gpu_planned(graph, GpuMaking(row, how.precision, how.fusion, how.exact), trace)
    program, plan_figures = found.program, describe.fusion_figures(graph, found.plan)
    host = [
        one
        for step in program.steps
        if isinstance(step, HostStep)
        for one in zip(step.nodes, step.reasons, strict=True)
    ]
    told: dict[str, Any] = {
        **description(graph),
        "inputs": {name: str(free.types[name]) for name in free.inputs},
        "outputs": {name: str(free.types[name]) for name in free.outputs},
        "symbols": {symbol.name: hint(size_of(symbol)) for symbol in free.symbols},
        "device": {"architecture": row.name, "product": row.product, "sms": row.sms, "launch_us": row.launch_us},
        "precision": program.precision,
        "nodes_compiled": len(found.graph.nodes),
        "host_nodes": len(host),
        "host": [{"node": node.label, "op": node.op, "reason": reason} for node, reason in host],
        **plan_figures,
    }
    if how.why is not None:
        told["why"] = describe.why(found.plan, how.why)
    if how.groups:
        told |= {"groups": describe.described_groups(found.plan), "verdicts": describe.described_edges(found.plan)}
    if how.tree is not None:
        told["tree"] = _gpu_tree(found, how.tree, row, how.ptx)
    if not how.groups and how.tree is None and how.why is None:
        told |= _gpu_steps(found, row, trace if how.refused else None, how.progress)
    return told


def _gpu_steps(found: GpuPlanned, row: Device, trace: Trace | None, progress: Progress | None) -> dict[str, Any]:
    """A row for each step, its kernel compiled, and what all of them amount to."""
    from fusewise.codegen.gpu.listing import described_steps, program_totals
    from fusewise.runtime.cache import KernelCache
    from fusewise.runtime.folder import cache_folder
    from fusewise.runtime.gpu.compile import TritonCompiler
    from fusewise.runtime.host import worker_count

    program, folder = found.program, cache_folder(True)
    tell = progress or (lambda what, share: None)
    with TritonCompiler(max(1, min(worker_count(None), len(program.kernels)))) as compiler:
        cubins = compiler.compile(
            program.kernels,
            row,
            contracted=program.precision != "exact",
            store=None if folder is None else KernelCache(folder),
            progress=lambda done, total: tell("compiling", done / total),
        )
    rows = described_steps(program, row, cubins, None if trace is None else _refusals(found, trace))
    return {"steps": rows, "totals": program_totals(program, rows)}


def _refusals(found: GpuPlanned, trace: Trace) -> Mapping[int, list[str]]:
    """By group why families of kernels did not accept it, as the trace has it."""
    labels = [node.label for node in found.graph.nodes]
    group_of = {
        labels[number]: group for group, account in enumerate(found.program.accounts) for number in account.members
    }
    told: dict[int, list[str]] = {}
    for event in trace.events:
        group = next((group_of[name] for name in event.where if name in group_of), None)
        if event.kind == "kernel" and group is not None:
            reason = event.reason.removeprefix("after ") if event.applied else f"{event.what}: {event.reason}"
            told.setdefault(group, []).extend([] if reason == "first candidate" else reason.split("; "))
    return {group: list(dict.fromkeys(reasons)) for group, reasons in told.items()}


def _gpu_tree(found: GpuPlanned, name: str | int, row: Device, ptx: bool) -> dict[str, Any]:
    """As `described_tree`; `nest` is a kernel's text for Triton."""
    from fusewise.codegen.gpu.program import GpuStep
    from fusewise.runtime.gpu.compile import TritonCompiler

    position, program = group_named(found.plan, name), found.program
    exact = program.precision == "exact"
    nodes = set(found.plan.partition.groups[position].nodes)
    inside = {k for k, account in enumerate(program.accounts) if account.members and nodes.issuperset(account.members)}
    lowered = lower_partition(found.plan.partition, Trace(), exact=exact)
    works = (one for one in lowered.work if isinstance(one, TaskWork) and one.group < len(lowered.groups))
    tasks = {one.label: one for one in works if nodes.issuperset(lowered.groups[one.group].nodes)}
    code: list[dict[str, Any]] = []
    with TritonCompiler() as compiler:
        for step in program.steps:
            if step.group not in inside:
                continue
            if not isinstance(step, GpuStep):
                rows = zip(step.nodes, step.reasons, strict=True)
                code.append({"host": [{"node": node.label, "op": node.op, "reason": why} for node, why in rows]})
                continue
            kernel = program.kernels[step.kernel]
            task = tasks.get(step.label)
            told: dict[str, Any] = {"label": step.label, "extents": [], "anchor": None, "operands": [], "elements": []}
            told |= {} if task is None else _described_task(task)
            told |= {"way": f"{kernel.symbol}, {kernel.way}", "nest": kernel.source}
            if ptx:
                told["ptx"] = compiler.assembly(kernel, row, contracted=not exact)
            code.append(told)
    return {**data_flow_tree(found.plan, position), "code": code}

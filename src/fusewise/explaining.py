"""What was decided about one node of a model, in order, with reasons; and why a group of a plan ends where it does."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fusewise.codegen.gpu.listing import kernel_way
from fusewise.codegen.gpu.program import GpuProgram, GpuStep
from fusewise.compiling import planned, planned_for_gpu
from fusewise.errors import UsageError
from fusewise.frontend.given import sizes_to_plan_for
from fusewise.fusion.describe import no_node
from fusewise.ir.at_sizes import at_sizes
from fusewise.ir.graph import Graph, Node
from fusewise.lower.program import HostStep, NativeStep, Program, StepVersions
from fusewise.making import GpuPlanned
from fusewise.options import Options, OptionsDict
from fusewise.trace import Event, Trace
from fusewise.words import no_such

__all__ = ["ExplanationDict", "is_plan", "node_explained", "plan_explained", "require_node"]


class ExplanationDict(OptionsDict, total=False):
    """Of a model the fields of `Options`, of a plan which neighbour, and how it is cut (`planning.CutSettings`)."""

    neighbour: int | None
    explainer: str | None
    share: float | None
    seed: int | None


def is_plan(subject: object) -> bool:
    """Whether something is the name of a plan file: a model's ends otherwise."""
    return isinstance(subject, str | Path) and str(subject).endswith(".json")


def require_node(subject: object, group: int | None, node: str | None) -> None:
    """`UsageError` where of a model no node is named, or a group is."""
    if node is None or group is not None:
        what = subject if isinstance(subject, str | Path) else "this"
        raise UsageError(f"{what} is a model: say which node to explain (a plan is a file that ends in .json)")


def plan_explained(
    path: Path, which: tuple[int | None, str | None], settings: Mapping[str, Any], load: Callable[..., Graph]
) -> dict[str, Any]:
    """Why a group of the plan at `path` ends where it does; `which` is the group, and the node that was named, if one was.

    `settings` are those of `ExplanationDict` for plans, `load` reads the plan's model again. Raises what that raises, and
    `UsageError` for unknown names and numbers.
    """
    from fusewise.accel.plan_file import read_plan
    from fusewise.planning import CutSettings, explain_saved

    group, node = which
    if group is None or node is not None:
        raise UsageError(f"{path} is a plan: say which group to explain")
    usual = {"neighbour": None, "explainer": "smallest", "share": 0.3, "seed": 0}
    for name in settings:
        if name not in usual:
            raise no_such("keyword of explain for a plan", name, usual)
    given = usual | {name: value for name, value in settings.items() if value is not None}
    found = read_plan(path)
    graph = load(found.setting.model, shapes=found.setting.shapes, symbols=found.setting.symbols)
    cuts = CutSettings(given["explainer"], given["share"], given["seed"])
    return explain_saved(found, graph, str(path), (group, given["neighbour"]), cuts)


def node_explained(
    written: Graph, bound: Graph, options: Options, name: str, trace: Trace | None = None
) -> dict[str, Any]:
    """The decisions about the node called `name` in the graph as it was written, or as it is compiled, and what runs it.

    `name` may be that of one of its results. `bound` is the graph to compile, `trace` takes all decisions. Decisions about nodes
    that it became part of count, too. `UsageError` where nothing is called so.
    """
    trace = Trace(disabled=frozenset(options.disable)) if trace is None else trace
    made = (
        _planned_on_gpu(written, bound, options, trace)
        if options.on_gpu
        else planned(bound, options, trace, options.warn)
    )
    graph, program = made.graph, made.program
    node = _named((*written.nodes, *bound.nodes, *graph.nodes), name)
    parts = [part for part in graph.nodes if node.label in (part.label, *part.origin)]
    names = {node.label, *(part.label for part in parts)}
    return {
        "node": node.label,
        "op": node.op,
        "decisions": [_told(event, node.label, names) for event in trace if names.intersection(event.where)],
        "became": [{"node": part.label, "op": part.op, **_run_by(part, program)} for part in parts],
    }


def _planned_on_gpu(written: Graph, bound: Graph, options: Options, trace: Trace) -> GpuPlanned:
    """For the GPU that the options name, by its architecture or here, at the first of the sizes to plan for; kernels are not
    compiled."""
    from fusewise.codegen.gpu.device import device_choice
    from fusewise.runtime.gpu import drivers

    row, name = drivers.row_for(device_choice(options.device), "explain a node")
    sized = at_sizes(bound, sizes_to_plan_for(bound, written, options.symbols)[0]) if bound.symbols else bound
    return planned_for_gpu(sized, options, trace, row, name)


def _named(nodes: Iterable[Node], name: str) -> Node:
    found = list(nodes)
    for node in found:
        if name == node.label:
            return node
    for node in found:
        if name in node.writes:
            return node
    raise no_node(name, (node.label for node in found))


def _told(event: Event, name: str, names: Collection[str]) -> dict[str, Any]:
    """A decision as plain data; `about` is the first of the other `names`, of nodes that the one asked about became part of."""
    about = "" if name in event.where else next(one for one in event.where if one in names)
    return {**asdict(event), "where": list(event.where), "about": about}


def _run_by(part: Node, program: Program | GpuProgram) -> dict[str, Any]:
    """What runs a node of the compiled graph: a kernel, with its group, or the host, with why; neither where it is only a view."""
    for step in program.steps:
        if isinstance(step, HostStep):
            for node, reason in zip(step.nodes, step.reasons, strict=True):
                if node.label == part.label:
                    return {"runs": "host", "how": reason}
            continue
        covers = program.accounts[step.group].nodes if 0 <= step.group < len(program.accounts) else ()
        if part.label in covers or not set(covers).isdisjoint(part.origin):
            way = _way(program, step)
            if isinstance(step, GpuStep):  # other launches of the group may do more of it than the first
                same = [one for one in program.steps if isinstance(one, GpuStep) and one.group == step.group]
                way = "; ".join(dict.fromkeys(_way(program, one) for one in same))
            return {"runs": "kernel", "how": f"{way}, with {step.label}" if "+" in step.label else way}
    return {"runs": "", "how": "nothing is computed: its result is a view of what is there"}


def _way(program: Program | GpuProgram, step: NativeStep | StepVersions | GpuStep) -> str:
    if isinstance(step, GpuStep):
        assert isinstance(program, GpuProgram)
        return kernel_way(program, step)
    return step.first.way if isinstance(step, StepVersions) else step.way

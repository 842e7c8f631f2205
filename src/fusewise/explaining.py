"""What was decided about one node of a model, in order, with reasons."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from fusewise.compiling import planned
from fusewise.fusion.describe import no_node
from fusewise.ir.graph import Graph, Node
from fusewise.lower.program import HostStep, Program, StepVersions
from fusewise.options import Options
from fusewise.trace import Event, Trace

__all__ = ["node_explained"]


def node_explained(written: Graph, bound: Graph, options: Options, name: str, trace: Trace) -> dict[str, Any]:
    """The decisions about the node called `name` in the graph as it was written, or as it is compiled, and what runs it.

    `name` may be that of one of its results. `bound` is the graph to compile, `trace` takes all decisions. Decisions about nodes
    that it became part of count, too. `UsageError` where nothing is called so.
    """
    made = planned(bound, options, trace, options.warn)
    graph, program = made.graph, made.program
    node = _named((*written.nodes, *bound.nodes, *graph.nodes), name)
    parts = [part for part in graph.nodes if node.label in (part.label, *part.origin)]
    names = {node.label, *(part.label for part in parts)}
    return {
        "node": node.label,
        "op": node.op,
        "decisions": [_told(event, node.label) for event in trace if names.intersection(event.where)],
        "became": [{"node": part.label, "op": part.op, **_run_by(part, program)} for part in parts],
    }


def _named(nodes: Iterable[Node], name: str) -> Node:
    found = list(nodes)
    for node in found:
        if name == node.label:
            return node
    for node in found:
        if name in node.writes:
            return node
    raise no_node(name, (node.label for node in found))


def _told(event: Event, name: str) -> dict[str, Any]:
    """A decision as plain data; `about` names another node that the one asked about became part of."""
    about = "" if name in event.where else event.where[0]
    return {**asdict(event), "where": list(event.where), "about": about}


def _run_by(part: Node, program: Program) -> dict[str, Any]:
    """What runs a node of the compiled graph: a kernel, with its group, or the host, with why; neither where it is only a view."""
    for step in program.steps:
        if isinstance(step, HostStep):
            for node, reason in zip(step.nodes, step.reasons, strict=True):
                if node.label == part.label:
                    return {"runs": "host", "how": reason}
            continue
        covers = program.accounts[step.group].nodes if 0 <= step.group < len(program.accounts) else ()
        if part.label in covers or not set(covers).isdisjoint(part.origin):
            first = step.first if isinstance(step, StepVersions) else step
            return {"runs": "kernel", "how": f"{first.way}, with {first.label}" if "+" in first.label else first.way}
    return {"runs": "", "how": "nothing is computed: its result is a view of what is there"}

"""What on the command line changes a decision: a row for each kind, and for edges the planners that decide otherwise.

An option is named only where it is known to change the decision: a gate that asked the trace is refused by name, and a planner was
asked for its plan of this graph.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping

from fusewise.codegen.candidates import KERNELS, PLAIN_KERNELS
from fusewise.codegen.gpu.choose import FAMILIES as GPU_FAMILIES
from fusewise.decisions import names_of_decisions
from fusewise.fusion.plan import PLANNERS, Plan, plan
from fusewise.ir.graph import Graph
from fusewise.lower.whole import FAMILIES
from fusewise.records import record
from fusewise.trace import Event, Trace

__all__ = ["DecisionOptions", "EdgeOptions", "disabling", "gated", "gates_of_edges"]

_LAST_KERNELS = frozenset(
    {
        PLAIN_KERNELS[-1].name,
        *(KERNELS[name][-1].name for name in FAMILIES if name in KERNELS),
        GPU_FAMILIES[-1].name,
    }
)
"""What runs where everything else was refused: it cannot be."""


def disabling(name: str, where: str = "") -> str:
    """The words that refuse a decision, at one place or wherever it is."""
    return f"--disable {shlex.quote(f'{name}@{where}' if where else name)}"


def gated(trace: Trace) -> list[bool]:
    """Which of the events asked before they acted: each of those counts, the others have the number of the next that does."""
    serials = [event.serial for event in trace.events]
    return [serial < after for serial, after in zip(serials, [*serials[1:], trace.gates], strict=True)]


@record(frozen=True)
class DecisionOptions:
    """Options that take decisions back. `known` are the names that can be refused."""

    known: frozenset[str]

    @classmethod
    def here(cls) -> DecisionOptions:
        return cls(frozenset(names_of_decisions()))

    def of(self, event: Event, is_gated: bool) -> str | None:
        """What refuses a decision that was carried out; None where nothing does, or nothing was done."""
        row = _ROWS.get(event.kind)
        if row is None or not event.applied or event.what not in self.known:
            return None
        return row(event, is_gated)


def _pass(event: Event, is_gated: bool) -> str | None:
    return disabling(event.what)


def _at_a_place(event: Event, is_gated: bool) -> str | None:
    return disabling(event.what, event.where[0]) if is_gated and event.where else None


def _kernel(event: Event, is_gated: bool) -> str | None:
    return None if event.what in _LAST_KERNELS else _at_a_place(event, is_gated)


def _fusion(event: Event, is_gated: bool) -> str | None:
    """At the reader: its producer may be fused with others."""
    return disabling(event.what, event.where[min(1, len(event.where) - 1)]) if is_gated and event.where else None


_ROWS: Mapping[str, Callable[[Event, bool], str | None]] = {
    "pass": _pass,
    "rewrite": _at_a_place,
    "kernel": _kernel,
    "fuse": _fusion,
}
"""By the kind of an event. Others are not asked for."""


PlanAgain = Callable[[Graph, Trace, str], Plan]
"""The plan of a graph by the planner of a name."""


@record(frozen=True)
class EdgeOptions:
    """Options that change the verdict on an edge: of a fused one the gate that joined its ends (`gates`), else a planner
    (`planners`) whose plan has both in one group."""

    gates: Mapping[tuple[int, int], Event]
    planners: Mapping[str, Plan]

    @classmethod
    def of_plan(cls, made: Plan, trace: Trace, fusion: str, again: PlanAgain = plan) -> EdgeOptions:
        """For a plan that the planner called `fusion` made, with its trace. The other planners are asked for theirs, by `again`."""
        graph, disabled = made.partition.graph, trace.disabled
        others = [name for name in PLANNERS if name not in (fusion, "none")]
        planned = {name: again(graph, Trace(disabled=disabled), name) for name in others}
        return cls(gates_of_edges(graph, trace, [(edge.producer, edge.consumer) for edge in made.edges]), planned)

    def of(self, producer: int, consumer: int, fused: bool) -> tuple[str | None, str | None]:
        """The name of the decision, if one joined the edge, and the option."""
        if fused:
            event = self.gates.get((producer, consumer))
            return (None, None) if event is None else (event.what, _fusion(event, is_gated=True))
        for name, other in self.planners.items():
            if other.partition.group_of[producer] == other.partition.group_of[consumer]:
                return None, f"--fusion {name}"
        return None, None


def gates_of_edges(graph: Graph, trace: Trace, edges: Iterable[tuple[int, int]]) -> dict[tuple[int, int], Event]:
    """The decision that joined the two ends of each edge, of edges that are fused: blocks are merged as the events tell."""
    numbers = _numbers(graph)
    across: dict[int, list[tuple[int, int]]] = {}
    for edge in edges:
        for end in edge:
            across.setdefault(end, []).append(edge)
    owner = list(range(len(graph.nodes)))
    members: dict[int, list[int]] = {n: [n] for n in owner}
    found: dict[tuple[int, int], Event] = {}
    for event, is_gate in zip(trace.events, gated(trace), strict=True):
        if not is_gate or event.kind != "fuse" or not event.applied:
            continue
        nodes = [numbers[name] for name in event.where if name in numbers]
        for node in nodes[1:]:
            _join(owner, members, nodes[0], node)
        for node in members[owner[nodes[0]]] if nodes else ():  # limits keep blocks small
            for edge in across.get(node, ()):
                if owner[edge[0]] == owner[edge[1]] and edge not in found:
                    found[edge] = event
    return found


def _numbers(graph: Graph) -> dict[str, int]:
    """Nodes by name, of names that only one has."""
    found: dict[str, int] = {}
    twice: set[str] = set()
    for number, node in enumerate(graph.nodes):
        twice.update({node.label} & found.keys())
        found[node.label] = number
    return {name: number for name, number in found.items() if name not in twice}


def _join(owner: list[int], members: dict[int, list[int]], first: int, second: int) -> None:
    """Make the blocks of two nodes one."""
    into, other = owner[first], owner[second]
    if into == other:
        return
    if len(members[into]) < len(members[other]):
        into, other = other, into
    moved = members.pop(other)
    members[into] += moved
    for node in moved:
        owner[node] = into

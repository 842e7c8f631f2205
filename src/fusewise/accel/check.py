"""The independent check of a plan: works on the graph with plain sets, shares no code with searches and their bits.

Takes a plan and the prepared graph; gives every rule that is broken, by name. The figures are computed anew from the graph.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from fusewise.accel.network import Network, network_of
from fusewise.accel.plan import LayerFusionPlan
from fusewise.errors import BrokenPlan
from fusewise.ir.graph import Graph

__all__ = ["RULES", "Violation", "check", "violations"]

RULES = ("cover", "connected", "acyclic", "capacity", "excluded", "figures")
"""`cover`: every node in one group or excluded, once. `connected`: each group hangs together. `acyclic`: groups and excluded nodes
can be put in an order, and the plan's is one. `capacity`: each group needs less than the buffer. `excluded`: only nodes that do
not fit alone. `figures`: buffer and DRAM bytes are those of the scheme."""


class Violation(NamedTuple):
    """One broken rule: its name and what is wrong."""

    rule: str
    text: str


def check(plan: LayerFusionPlan, graph: Graph) -> None:
    """`BrokenPlan` with the first violations when the plan breaks a rule on its prepared graph."""
    found = violations(plan, graph)
    if found:
        raise BrokenPlan("; ".join(f"{v.rule}: {v.text}" for v in found[:3]))


def violations(plan: LayerFusionPlan, graph: Graph) -> tuple[Violation, ...]:
    """Every rule that the plan breaks on its prepared graph; empty for a valid plan."""
    parts = [set(group.operators) for group in plan.groups] + [{one.operator} for one in plan.excluded]
    found = _cover(graph, plan, parts)
    if found:
        return tuple(found)
    found += [
        Violation("connected", f"group {k} with {_names(graph, part)} falls apart")
        for k, part in enumerate(parts)
        if not _hangs_together(graph, part)
    ]
    found += _acyclic(graph, parts, len(plan.groups))
    return tuple(found + _sizes(plan, network_of(graph, bilinear_ahead=plan.network.bilinear_ahead)))


def _cover(graph: Graph, plan: LayerFusionPlan, parts: list[set[int]]) -> list[Violation]:
    found: list[Violation] = []
    times = dict.fromkeys(range(len(graph.nodes)), 0)
    for group in plan.groups:
        if not group.operators:
            found.append(Violation("cover", "a group is empty"))
    for part in parts:
        for node in part:
            if node not in times:
                found.append(Violation("cover", f"there is no node {node}"))
            else:
                times[node] += 1
    for node, often in times.items():
        if often != 1:
            where = "in no group" if often == 0 else f"in {often} groups"
            found.append(Violation("cover", f"{graph.nodes[node].label!r} is {where}"))
    return found


def _around(graph: Graph, node: int) -> set[int]:
    """Nodes that read what `node` writes or write what it reads."""
    one = graph.nodes[node]
    found = {graph.producer[value] for value in one.reads if value in graph.producer}
    return found | {user for value in one.writes for user in graph.users[value]}


def _hangs_together(graph: Graph, part: set[int]) -> bool:
    start = min(part)
    seen, waiting = {start}, [start]
    while waiting:
        for other in (_around(graph, waiting.pop()) & part) - seen:
            seen.add(other)
            waiting.append(other)
    return seen == part


def _acyclic(graph: Graph, parts: list[set[int]], groups: int) -> list[Violation]:
    """Count edges between parts and remove parts without any, as Kahn does; what stays is a cycle."""
    owner = {node: k for k, part in enumerate(parts) for node in part}
    edges = {
        (owner[graph.producer[value]], owner[node])
        for node, one in enumerate(graph.nodes)
        for value in one.reads
        if value in graph.producer and owner[graph.producer[value]] != owner[node]
    }
    found = [
        Violation("acyclic", f"group {b} reads from group {a}, which comes later")
        for a, b in sorted(edges)
        if b < a < groups
    ]
    entering = {k: sum(b == k for _, b in edges) for k in range(len(parts))}
    ready = deque(k for k, number in entering.items() if not number)
    done = 0
    while ready:
        k = ready.popleft()
        done += 1
        for a, b in edges:
            if a == k:
                entering[b] -= 1
                if not entering[b]:
                    ready.append(b)
    if done != len(parts):
        stuck = next(k for k, number in entering.items() if number)
        found.append(Violation("acyclic", f"group {stuck} with {_names(graph, parts[stuck])} waits for itself"))
    return found


def _sizes(plan: LayerFusionPlan, network: Network) -> list[Violation]:
    found: list[Violation] = []
    capacity, scheme = plan.hardware.buffer_bytes, plan.scheme
    barred = sum(2**one.operator for one in plan.excluded)
    for k, group in enumerate(plan.groups):
        mask = sum(2**node for node in group.operators)
        need = scheme.buffer_bytes(network, mask)
        moved = scheme.dram_bytes(network, mask, capacity, barred)
        reason = scheme.refusal(network, mask)
        if reason is not None:
            found.append(Violation("capacity", f"group {k} cannot run at any size: {reason}"))
        elif need >= capacity and not (len(group.operators) == 1 and scheme.singles_always_fit):
            found.append(Violation("capacity", f"group {k} needs {need} bytes, the buffer has {capacity}"))
        if (need, moved) != (group.buffer_bytes, group.dram_bytes):
            claim = f"{group.buffer_bytes} and {group.dram_bytes}"
            found.append(Violation("figures", f"group {k} has buffer and DRAM bytes {need} and {moved}, not {claim}"))
    for one in plan.excluded:
        if scheme.fuseable(network, one.operator, capacity):
            found.append(Violation("excluded", f"{network.operators[one.operator].name!r} would fit"))
    return found


def _names(graph: Graph, part: set[int]) -> str:
    names = [graph.nodes[node].label for node in sorted(part)]
    return ", ".join(map(repr, names[:3])) + (f" and {len(names) - 3} more" if len(names) > 3 else "")

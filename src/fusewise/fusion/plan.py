"""The fusion plan of a graph: which operators form a group, and for every edge the verdict and the reason.

Takes a graph and a trace that may refuse each fusion; gives a `Partition`. Four planners stand beside each other: DNNFusion
(mapping types, grown from seeds), the same in the order in which its paper grows them, the fixed patterns that compilers commonly
use, and no fusion. What dequantises weights joins their product in all of them.

Niu et al., DNNFusion: Accelerating Deep Neural Networks Execution with Advanced Operator Fusion, PLDI 2021.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from fusewise.cards import Card, carded, counted
from fusewise.fusion.cost import CostSource
from fusewise.fusion.ecg import ExtendedGraph
from fusewise.fusion.grow import FusionBlocks, Judgement, grow, grow_as_published
from fusewise.fusion.legal import LIMITS, FusionLimits
from fusewise.fusion.patterns import pattern_groups
from fusewise.fusion.verdicts import Reason, Verdict
from fusewise.fusion.weights import weight_groups
from fusewise.ir.graph import Graph
from fusewise.ir.partition import Group, Partition
from fusewise.ops.spec import Mapping as MappingType
from fusewise.records import record
from fusewise.trace import INTRA_BLOCK, Trace
from fusewise.words import no_such

__all__ = ["PLANNERS", "Edge", "Plan", "check_planner", "given", "measured", "partition", "plan"]


@record(frozen=True, slots=True)
class Edge:
    """One value between two operators (indexes into the nodes): fused or not, and why. `before` and `after` are the costs of what
    it joins, apart and as one, in nanoseconds, where these decided."""

    value: str
    producer: int
    consumer: int
    fused: bool
    verdict: Verdict
    reason: Reason
    before: float | None = None
    after: float | None = None


def _card(plan: Plan) -> Card:
    groups, edges = plan.partition.groups, plan.edges
    open_edges = Counter(edge.reason.value for edge in edges if not edge.fused)
    largest = max((len(group.nodes) for group in groups), default=0)
    nodes = len(plan.partition.graph.nodes)
    return Card(
        f"Fusion plan: {nodes:,} nodes in {len(groups):,} groups, the largest of {largest:,}",
        (
            ("groups", counted(Counter(kind.name.lower().replace("_", "-") for kind in plan.types))),
            ("edges", f"{sum(edge.fused for edge in edges):,} of {len(edges):,} fused"),
            ("open", counted(open_edges, 3)),
        ),
    )


@record(frozen=True)
@carded(_card)
class Plan:
    """A partition, the mapping type of each of its groups, and the verdict on every edge of the graph."""

    partition: Partition
    types: tuple[MappingType, ...]
    edges: tuple[Edge, ...]


Planner = Callable[[ExtendedGraph, Trace, CostSource, FusionLimits], Plan]


def plan(
    graph: Graph,
    trace: Trace,
    how: str = "dnnfusion",
    *,
    costs: CostSource | None = None,
    limits: FusionLimits = LIMITS,
) -> Plan:
    """The fusion plan by the planner called `how`, a key of `PLANNERS`.

    Every fusion is gated by `trace` and every edge that stays open leaves an event. `costs` decide where the table of types
    says to ask; the default is the analytic estimate. `UsageError` when there is no such planner.
    """
    check_planner(how)
    found = PLANNERS[how](ExtendedGraph(graph), trace, CostSource() if costs is None else costs, limits)
    for edge in found.edges:
        if not edge.fused:
            where = graph.nodes[edge.producer].label, graph.nodes[edge.consumer].label
            trace.add("fuse", edge.verdict.value, where, edge.reason.value, applied=False)
    return found


def check_planner(name: str) -> None:
    """Raises `UsageError` for a planner that there is not."""
    if name not in PLANNERS:
        raise no_such("fusion planner", name, PLANNERS)


def partition(
    graph: Graph,
    trace: Trace,
    how: str = "dnnfusion",
    *,
    costs: CostSource | None = None,
    limits: FusionLimits = LIMITS,
) -> Partition:
    """The groups alone; see `plan`."""
    return plan(graph, trace, how, costs=costs, limits=limits).partition


def given(graph: Graph, groups: Iterable[Sequence[int]], trace: Trace) -> Partition:
    """The partition of earlier planning (ascending node indexes); a group that `trace` refuses falls apart into its nodes.

    `ValueError` when it is not one of this graph.
    """
    kept: list[Group] = []
    for nodes in groups:
        if nodes and nodes[-1] >= len(graph.nodes):
            raise ValueError(f"the graph has no node {nodes[-1]}")
        labels = tuple(graph.nodes[n].label for n in nodes)[:8]
        if len(nodes) == 1 or trace.allows("fuse", Verdict.ASK.value, labels, Reason.MEASURED.value):
            kept.append(Group(tuple(nodes)))
        else:
            kept.extend(Group((n,)) for n in nodes)
    return Partition.ordered(graph, kept)


def measured(found: Partition) -> Plan:
    """The plan of groups that were measured to be the fastest."""
    return _described(ExtendedGraph(found.graph), found, Reason.MEASURED, Reason.MEASURED)


def _by_mapping_types(
    ecg: ExtendedGraph, trace: Trace, costs: CostSource, limits: FusionLimits, growing: Callable[[FusionBlocks], None]
) -> Plan:
    blocks = FusionBlocks(ecg, trace, costs, limits, by_index=INTRA_BLOCK not in trace.disabled)
    growing(blocks)
    known: dict[tuple[int, int], Judgement] = {}

    def judged(first: int, second: int) -> Judgement:
        if (first, second) not in known:
            known[first, second] = blocks.judge(first, second)
        return known[first, second]

    edges = []
    for value, producer, consumer in _edges(ecg.graph):
        first, second = blocks.owner[producer], blocks.owner[consumer]
        verdict = blocks.joined.get((producer, consumer)) if first == second else judged(first, second)
        assert verdict is not None
        reason = Reason.UNREACHED if first != second and verdict.fits else verdict.reason
        fused, prices = first == second, (verdict.before, verdict.after)
        edges.append(Edge(value, producer, consumer, fused, verdict.verdict, reason, *prices))
    found = Partition.ordered(ecg.graph, [Group(members) for members in blocks.members.values()])
    types = tuple(blocks.type(blocks.owner[group.nodes[0]]) for group in found.groups)
    return Plan(found, types, tuple(edges))


def _by_patterns(ecg: ExtendedGraph, trace: Trace, costs: CostSource, limits: FusionLimits) -> Plan:
    groups = pattern_groups(ecg, trace)
    return _described(ecg, Partition.ordered(ecg.graph, groups), Reason.PATTERN, Reason.NO_PATTERN)


def _not_at_all(ecg: ExtendedGraph, trace: Trace, costs: CostSource, limits: FusionLimits) -> Plan:
    joined = weight_groups(ecg.graph, trace)
    inside = {n for group in joined for n in group}
    groups = [*joined, *((n,) for n in range(len(ecg.graph.nodes)) if n not in inside)]
    return _described(ecg, Partition.ordered(ecg.graph, list(map(Group, groups))), Reason.WEIGHTS, Reason.NO_FUSION)


PLANNERS: Mapping[str, Planner] = MappingProxyType(
    {
        "dnnfusion": partial(_by_mapping_types, growing=grow),
        "published": partial(_by_mapping_types, growing=grow_as_published),
        "patterns": _by_patterns,
        "none": _not_at_all,
    }
)


def _described(ecg: ExtendedGraph, found: Partition, inside: Reason, between: Reason) -> Plan:
    owner = found.group_of
    edges = []
    for value, producer, consumer in _edges(found.graph):
        fused = owner[producer] == owner[consumer]
        verdict, reason = (Verdict.FUSE, inside) if fused else (Verdict.BREAK, between)
        edges.append(Edge(value, producer, consumer, fused, verdict, reason))
    types = tuple(max(ecg.mapping(n) for n in group.nodes) for group in found.groups)
    return Plan(found, types, tuple(edges))


def _edges(graph: Graph) -> list[tuple[str, int, int]]:
    return [
        (value, graph.producer[value], n)
        for n, node in enumerate(graph.nodes)
        for value in dict.fromkeys(node.reads)
        if value in graph.producer
    ]

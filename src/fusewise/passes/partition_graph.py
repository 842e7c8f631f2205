"""Regions for different back ends: the wish in the metadata, and how nodes that go to one back end are put together.

Which back end takes a node is for whoever knows them to say (`fusewise.partitioning`); passes know no machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fusewise.ir.graph import Graph
from fusewise.ir.partition import Group, Partition
from fusewise.ir.walk import predecessors
from fusewise.passes.hints import hint, with_hint
from fusewise.trace import Trace

__all__ = ["BACK_ENDS", "REGIONS", "partition_graph", "regions_asked", "regions_by"]

REGIONS = "fusewise.regions"
"""The key of the metadata: back ends by name in order of preference, joined by blanks."""

BACK_ENDS = ("accelerator", "native", "host")
"""`accelerator`: a chip with a small buffer, one region for each group of its plan. `native`: code compiled for this machine.
`host`: the evaluator that runs everything else."""


def partition_graph(graph: Graph, trace: Trace) -> Graph:
    """The graph is to be parted into regions for back ends: every node goes to the first that takes it.

    Nothing to do where there is no node, or the graph says already who it is for.
    """
    if not graph.nodes or hint(graph, REGIONS):
        return graph
    about = f"{REGIONS} is {' '.join(BACK_ENDS)}"
    return (
        with_hint(graph, REGIONS, " ".join(BACK_ENDS))
        if trace.allows("partition", "PartitionGraph", (), about)
        else graph
    )


def regions_asked(graph: Graph) -> tuple[str, ...]:
    """The back ends the graph is to be parted for; none where it is one."""
    return tuple(name for name in hint(graph, REGIONS).split() if name in BACK_ENDS)


def regions_by(
    graph: Graph, back_ends: Sequence[str], apart: Iterable[Sequence[int]] = ()
) -> tuple[Partition, tuple[str, ...]]:
    """The partition of `graph` whose regions are as few as can be seen from the inputs, and the back end of each.

    `back_ends` names one for every node. Nodes `apart` are regions already, which have an order with all other nodes. Of the others
    those are one region that go to one back end and have equally many changes of region on the longest way to them: what such a
    region reads comes from itself or from regions with fewer, so there is no cycle.
    """
    fixed = [tuple(sorted(nodes)) for nodes in apart]
    unit_of = {node: k for k, nodes in enumerate(fixed) for node in nodes}
    units = [*fixed, *((node,) for node in range(len(graph.nodes)) if node not in unit_of)]
    ordered = Partition.ordered(graph, [Group(unit) for unit in units])
    region: dict[int, tuple[int, object]] = {}
    members: dict[tuple[int, object], list[int]] = {}
    for group in ordered.groups:
        first = group.nodes[0]
        kind: object = unit_of[first] if first in unit_of else back_ends[first]
        before = {region[p] for n in group.nodes for p in predecessors(graph, n) if p not in group.nodes}
        depth = max((level + (other != kind) for level, other in before), default=0)
        for node in group.nodes:
            region[node] = depth, kind
        members.setdefault((depth, kind), []).extend(group.nodes)
    partition = Partition.ordered(graph, [Group(tuple(sorted(nodes))) for nodes in members.values()])
    return partition, tuple(back_ends[group.nodes[0]] for group in partition.groups)

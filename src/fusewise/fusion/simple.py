"""A simple partitioner: chains of elementwise operators, and one heavy operator with the elementwise operators after
it.

A group grows from its first node along the readers of what is still open, as long as they are elementwise and keep the
shape; it is cut back to the last point where a single value was open. So `x * sigmoid(x)` after a convolution joins it
whole, and a value that somebody else reads ends the group.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from fusewise.ir.graph import Graph, Node
from fusewise.ir.partition import Group, Partition
from fusewise.ir.types import TensorType
from fusewise.ops.definition import is_opaque
from fusewise.ops.spec import ANCHOR_FAMILIES, OpSpec
from fusewise.ops.table import spec_of
from fusewise.trace import Trace

__all__ = ["partition"]

LONGEST = 32


def partition(graph: Graph, trace: Trace) -> Partition:
    """Group the nodes of `graph`; every fusion is gated by `trace` and leaves an event."""
    return _Grower(graph, trace).run()


@dataclass
class _Grower:
    graph: Graph
    trace: Trace
    taken: set[int] = field(default_factory=set)

    def run(self) -> Partition:
        groups = []
        for start in range(len(self.graph.nodes)):
            if start not in self.taken:
                members = self._grow(start)
                self.taken.update(members)
                groups.append(Group(tuple(sorted(members))))
        return Partition.ordered(self.graph, groups)

    def _grow(self, start: int) -> list[int]:
        node = self.graph.nodes[start]
        spec = spec_of(node.op, node.domain)
        if spec is None or len(node.writes) != 1 or not self._is_static(node):
            return [start]
        if not (spec.family in ANCHOR_FAMILIES or spec.family == "reduce" or self._is_elementwise(spec)):
            return [start]
        shape = self.graph.tensor(node.writes[0]).dims
        region, best = [start], [start]
        reduced = spec.family in ANCHOR_FAMILIES or spec.family == "reduce"
        while len(region) < LONGEST:
            candidate = self._next(region)
            if candidate is None:
                break
            follower = self.graph.nodes[candidate]
            kind = spec_of(follower.op, follower.domain)
            if candidate in self.taken or kind is None or not self._fits(follower, kind, shape, reduced):
                break
            region.append(candidate)
            if kind.family == "reduce":
                if len(self._open(region)) != 1:
                    break
                reduced, shape = True, self.graph.tensor(follower.writes[0]).dims
            if len(self._open(region)) == 1:
                if not self._allowed(best, region):
                    break
                best = list(region)
        return best

    def _allowed(self, before: list[int], after: list[int]) -> bool:
        added = tuple(self.graph.nodes[i].label for i in after if i not in before)
        anchor = self.graph.nodes[after[0]].label
        return self.trace.allows("fuse", "chain", (anchor, *added), "one-to-one after its producer")

    def _open(self, region: list[int]) -> list[str]:
        """Values made in the region that someone outside still reads."""
        inside = set(region)
        return [
            v
            for i in region
            for v in self.graph.nodes[i].writes
            if v in self.graph.output_set or any(user not in inside for user in self.graph.users[v])
        ]

    def _next(self, region: list[int]) -> int | None:
        """The first outside reader of an open value; None when an open value is an output of the graph."""
        inside = set(region)
        readers: list[int] = []
        for value in self._open(region):
            if value in self.graph.output_set:
                return None
            readers.extend(user for user in self.graph.users[value] if user not in inside)
        return min(readers, default=None)

    def _fits(self, node: Node, spec: OpSpec, shape: tuple[int, ...], reduced: bool) -> bool:
        if len(node.writes) != 1 or not self._is_static(node):
            return False
        if spec.family == "reduce":
            return not reduced
        return self._is_elementwise(spec) and self.graph.tensor(node.writes[0]).dims == shape

    def _is_elementwise(self, spec: OpSpec) -> bool:
        return spec.scalar is not None and not is_opaque(spec)

    def _is_static(self, node: Node) -> bool:
        kinds = [self.graph.types.get(v) for v in node.reads + node.writes]
        return all(isinstance(kind, TensorType) and kind.is_static for kind in kinds)

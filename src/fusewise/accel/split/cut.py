"""From an edge inside a group to a legal split of the group: the cheapest one that separates the edge's two ends.

Takes a connected, convex group and an edge (producer, consumer); gives two connected halves, the first closed under predecessors
within the group, so that it can run before the second. Of all such splits it is the one whose crossing tensors are smallest:
a minimum cut, where a tensor costs what it adds to the DRAM traffic (a write and a read, or the read alone if it is written
anyway) once, however many consumers lie across. The published method has rules for skip edges, nested skips and gates; the
minimum cut covers them all.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from fusewise.accel.bits import bits_of, component, mask_of, union_over
from fusewise.accel.explain.explainer import Edge
from fusewise.accel.network import Network

__all__ = ["Cutter", "GroupSplit", "crossing", "crossing_price"]


class GroupSplit(NamedTuple):
    """Two halves of a group, as bits: the first reads nothing from the second."""

    before: int
    after: int


class Cutter:
    """All edges of one group share its flow network.

    Vertices are the members, then the tensors inside the group. Flow goes from a member to its tensor (as much as the tensor
    costs), from there to its consumers and from a consumer back to the producer (no limit: a consumer on the first side pulls
    its producer after it). Arc 2k+1 is the reverse of arc 2k.
    """

    __slots__ = ("_arcs", "_limits", "_members", "_targets", "group", "network")

    def __init__(self, network: Network, group: int) -> None:
        self.network, self.group = network, group
        self._members = list(bits_of(group))
        self._arcs: list[list[int]] = []
        self._targets: list[int] = []
        self._limits: list[int] = []

    def cut(self, edge: Edge) -> GroupSplit:
        """The cheapest split with the producer in the first half and the consumer in the second, both halves connected."""
        network, group = self.network, self.group
        before = self._least(edge[0]) or self._reached(edge)
        before = component(network.neighbours, before, edge[0])
        after = component(network.neighbours, group & ~before, edge[1])
        return GroupSplit(group & ~after, after)

    def cuts(self, edges: Iterable[Edge]) -> dict[GroupSplit, Edge]:
        """The different splits that edges give, each with the first edge that gives it."""
        found: dict[GroupSplit, Edge] = {}
        for edge in edges:
            found.setdefault(self.cut(edge), edge)
        return found

    def _least(self, node: int) -> int:
        """The node and all it needs, where nothing but its one result leaves them: no cut is cheaper. Else 0."""
        network, group = self.network, self.group
        above = network.ancestors[node] & group
        least = above | 1 << node
        leaves = union_over(network.successors, above) & group & ~least
        return 0 if leaves or len(network.operators[node].writes) > 1 else least

    def _reached(self, edge: Edge) -> int:
        """The first side of the minimum cut: what the producer still reaches when no more flow gets through."""
        if not self._arcs:
            self._lay_out()
        source, sink = self._members.index(edge[0]), self._members.index(edge[1])
        left = self._limits.copy()
        while (reached := self._augmented(left, source, sink)) is None:
            pass
        return mask_of(self._members[vertex] for vertex in reached if vertex < len(self._members))

    def _lay_out(self) -> None:
        """Vertices and arcs, when the first edge asks for them."""
        network, group = self.network, self.group
        place = {node: k for k, node in enumerate(self._members)}
        self._arcs += [[] for _ in self._members]
        for node in self._members:
            for number in network.operators[node].writes:
                readers = network.tensors[number].consumers & group
                if not readers:
                    continue
                vertex = len(self._arcs)
                self._arcs.append([])
                self._connect(place[node], vertex, crossing_price(network, group, number))
                for reader in bits_of(readers):
                    self._connect(vertex, place[reader], _NO_LIMIT)
                    self._connect(place[reader], place[node], _NO_LIMIT)

    def _connect(self, start: int, end: int, limit: int) -> None:
        for vertex, target, free in ((start, end, limit), (end, start, 0)):
            self._arcs[vertex].append(len(self._targets))
            self._targets.append(target)
            self._limits.append(free)

    def _augmented(self, left: list[int], source: int, sink: int) -> Iterable[int] | None:
        """Send flow along a shortest path with room left, and update what is `left`; or the vertices within reach when there
        is no such path."""
        arcs, targets = self._arcs, self._targets
        came: dict[int, int] = {source: -1}
        waiting = [source]
        for vertex in waiting:
            for arc in arcs[vertex]:
                target = targets[arc]
                if left[arc] and target not in came:
                    came[target] = arc
                    if target == sink:
                        _send(left, targets, came, sink)
                        return None
                    waiting.append(target)
        return came


def crossing(network: Network, group: int, before: int) -> int:
    """What the split of the group into `before` and the rest adds to the traffic by tensors between the halves, in elements.

    Tensors from outside that both halves read are not in it.
    """
    found = 0
    for node in bits_of(before):
        for number in network.operators[node].writes:
            if network.tensors[number].consumers & group & ~before:
                found += crossing_price(network, group, number)
    return found


_NO_LIMIT = 1 << 100


def crossing_price(network: Network, group: int, number: int) -> int:
    """Elements that a tensor of the group adds to the traffic when it lies across: a write and a read, or the read alone."""
    tensor = network.tensors[number]
    return tensor.elements if tensor.is_output or tensor.consumers & ~group else 2 * tensor.elements


def _send(left: list[int], targets: list[int], came: dict[int, int], sink: int) -> None:
    path = []
    vertex = sink
    while (arc := came[vertex]) >= 0:
        path.append(arc)
        vertex = targets[arc ^ 1]
    amount = min(left[arc] for arc in path)
    for arc in path:
        left[arc] -= amount
        left[arc ^ 1] += amount

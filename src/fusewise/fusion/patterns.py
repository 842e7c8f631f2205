"""Fusion by fixed patterns, as compilers commonly do it: the baseline to compare with (TVM's FuseOps; the paper's OurB+).

Operators have a kind, in rising weight: elementwise, broadcast, injective, reduction, heavy (products and windows, which take
elementwise operators behind them), opaque. Each operator is fused into its immediate post-dominator, with everything on the
paths there, when the kinds on those paths and at their end allow it:

    heavy       -> elementwise end      with at most broadcast on the paths
    <= broadcast -> reduction or lighter with at most injective on the paths
    injective   -> injective or lighter  with at most injective on the paths          (in a second phase)

What dequantises weights belongs to their product before that.
"""

from __future__ import annotations

from dataclasses import field
from enum import IntEnum

from fusewise.fusion.ecg import ExtendedGraph
from fusewise.fusion.legal import LIMITS, depth
from fusewise.fusion.weights import weight_groups
from fusewise.ir.partition import Group
from fusewise.ir.walk import successors
from fusewise.ops.spec import Mapping
from fusewise.records import record
from fusewise.trace import Trace

__all__ = ["Kind", "pattern_groups"]

MOST_NODES = 128

_ALONE = frozenset("softmax log_softmax layer_norm group_norm instance_norm rms_norm lp_norm".split())


class Kind(IntEnum):
    """How heavy an operator is to the patterns."""

    ELEMENTWISE = 0
    BROADCAST = 1
    INJECTIVE = 2
    REDUCTION = 3
    HEAVY = 4
    OPAQUE = 5


def kind_of(ecg: ExtendedGraph, n: int) -> Kind:
    """The kind of an operator."""
    spec, node = ecg.spec(n), ecg.node(n)
    if spec is None or ecg.mapping(n) == Mapping.OPAQUE or not ecg.is_native(n) or spec.family in _ALONE:
        return Kind.OPAQUE
    if ecg.is_anchor(n):
        return Kind.HEAVY
    if spec.scalar is not None and len(node.writes) == 1:
        operands = [v for v in node.reads if v not in ecg.graph.constants and ecg.size(v) != 1]
        return Kind.ELEMENTWISE if all(v in ecg.bijective(n) for v in operands) else Kind.BROADCAST
    if spec.family == "reduce":
        return Kind.REDUCTION
    return Kind.OPAQUE if ecg.mapping(n) == Mapping.MANY_TO_MANY else Kind.INJECTIVE


@record
class _Fuser:
    ecg: ExtendedGraph
    trace: Trace
    kinds: list[Kind] = field(init=False)
    after: list[tuple[int, ...]] = field(init=False)
    dominator: list[int | None] = field(init=False)
    parent: list[int] = field(init=False)
    members: list[list[int]] = field(init=False)
    heaviest: list[Kind] = field(init=False)

    def __post_init__(self) -> None:
        count = len(self.ecg.graph.nodes)
        self.kinds = [kind_of(self.ecg, n) for n in range(count)]
        self.after = [successors(self.ecg.graph, n) for n in range(count)]
        self.parent, self.members = list(range(count)), [[n] for n in range(count)]
        self.heaviest = list(self.kinds)
        self.dominator = _post_dominators(self.ecg, self.after)

    def run(self) -> list[Group]:
        for *before, product in weight_groups(self.ecg.graph, self.trace):
            for n in before:
                self._unite(n, product)
        for phase in (0, 1):
            for n in range(len(self.kinds)):
                self._consider(n, phase)
        groups: dict[int, list[int]] = {}
        for n in range(len(self.kinds)):
            groups.setdefault(self._root(n), []).append(n)
        return [Group(tuple(members)) for members in groups.values()]

    def _consider(self, n: int, phase: int) -> None:
        """Fuse one operator, or rather its group so far, into its post-dominator if a pattern says so."""
        end, kind = self.dominator[n], self.heaviest[self._root(n)]
        if end is None or self._root(n) == self._root(end):
            return
        path = self._between(n, end)
        on_path = max((self.kinds[m] for m in path), default=Kind.ELEMENTWISE)
        if kind is Kind.HEAVY and phase == 0:
            fits = self.kinds[end] <= Kind.BROADCAST and on_path <= Kind.BROADCAST and self._same_shape(n, end)
        elif kind <= Kind.BROADCAST and phase == 0:
            fits = self.kinds[end] <= Kind.REDUCTION and on_path <= Kind.INJECTIVE
        elif kind is Kind.INJECTIVE and phase == 1:
            fits = self.kinds[end] <= Kind.INJECTIVE and on_path <= Kind.INJECTIVE
        else:
            return
        roots = {self._root(m) for m in (n, end, *path)}
        heavy = sum(self.heaviest[r] >= Kind.REDUCTION for r in roots)
        if not fits or heavy > 1 or sum(len(self.members[r]) for r in roots) > MOST_NODES:
            return
        if depth(self.ecg, sorted(m for r in roots for m in self.members[r])) > LIMITS.depth:
            return
        labels = tuple(self.ecg.node(m).label for m in (n, *path, end))[:8]
        if self.trace.allows("fuse", "pattern", labels, "a fixed pattern"):
            for m in path:
                self._unite(m, end)
            self._unite(n, end)

    def _same_shape(self, n: int, end: int) -> bool:
        types = self.ecg.graph.types
        return types[self.ecg.node(n).outputs[0]] == types[self.ecg.node(end).outputs[0]]

    def _between(self, n: int, end: int) -> list[int]:
        """Operators strictly between one and its post-dominator."""
        found: set[int] = set()
        stack = [m for m in self.after[n] if m != end]
        while stack:
            m = stack.pop()
            if m not in found:
                found.add(m)
                stack.extend(s for s in self.after[m] if s != end)
        return sorted(found)

    def _root(self, n: int) -> int:
        while self.parent[n] != n:
            self.parent[n] = self.parent[self.parent[n]]
            n = self.parent[n]
        return n

    def _unite(self, n: int, end: int) -> None:
        child, root = self._root(n), self._root(end)
        if child != root:
            self.parent[child] = root
            self.members[root] += self.members[child]
            self.heaviest[root] = max(self.heaviest[root], self.heaviest[child])


def _post_dominators(ecg: ExtendedGraph, after: list[tuple[int, ...]]) -> list[int | None]:
    """The first operator through which every path from each one to the outputs leads; None when there is none."""
    graph = ecg.graph
    depth = [0] * len(graph.nodes)
    found: list[int | None] = [None] * len(graph.nodes)

    def meet(a: int | None, b: int | None) -> int | None:
        while a != b:
            if a is None or b is None:
                return None
            if depth[a] >= depth[b]:
                a = found[a]
            else:
                b = found[b]
        return a

    for n in reversed(range(len(graph.nodes))):
        leaves = any(v in graph.output_set for v in graph.nodes[n].writes)
        meeting: int | None = None
        if after[n] and not leaves:
            meeting = after[n][0]
            for other in after[n][1:]:
                meeting = meet(meeting, other)
        found[n] = meeting
        depth[n] = 0 if meeting is None else depth[meeting] + 1
    return found


def pattern_groups(ecg: ExtendedGraph, trace: Trace) -> list[Group]:
    """The groups that fixed patterns give; every fusion is gated by `trace`."""
    return _Fuser(ecg, trace).run()

"""How the need and the traffic of a group grow, operator by operator: row tiles (BRR).

The tiles of a group are scaled to its coarsest result, so a new operator can make those before it hold fewer rows. The growth
below counts the rows for one row of every result, which is never more and only grows. The traffic counts the weights once: at
least that many bytes move, however many tiles there are.
"""

from __future__ import annotations

from fusewise.accel.bits import bits_of
from fusewise.accel.network import Operator
from fusewise.accel.problem import Problem
from fusewise.accel.schemes.brr import BRR
from fusewise.accel.search.exact_traffic import TrafficGrowth

__all__ = ["TileGrowth"]


class TileGrowth:
    """A group that grows by consumers; the members mean what those of `exact_lines.LineGrowth` do."""

    __slots__ = (
        "_depth",
        "_high",
        "_largest",
        "_network",
        "_phases",
        "_scheme",
        "_starts",
        "_traffic",
        "_undo",
        "group",
    )

    exact_traffic = False
    spanning = False

    def __init__(self, problem: Problem, scheme: BRR) -> None:
        self._network, self._scheme = problem.network, scheme
        self._traffic = TrafficGrowth(problem, network_io=scheme.network_io, excluded_traffic=scheme.excluded_traffic)
        nodes = len(problem.network)
        self._high, self._depth, self._starts = [0] * nodes, [0] * nodes, [False] * nodes
        self._phases, self._largest = (0, 0), 0
        self._undo: list[tuple[tuple[int, int], int, list[tuple[int, int]]]] = []
        self.group = 0

    @property
    def need(self) -> int:
        """Elements held while a row passes, for the better phase, and the largest filter: never more than the scheme's."""
        return min(self._phases) + self._largest

    @property
    def traffic(self) -> int:
        """Elements moved through DRAM when weights move once."""
        return self._traffic.moved

    def push(self, node: int) -> None:
        """Add an operator."""
        network, group = self._network, self.group
        operator, before = network.operators[node], network.predecessors[node] & group
        deepest = max((self._depth[v] for v in bits_of(before)), default=-1)
        self._depth[node] = deepest + 1 if operator.form.kind == "conv" else max(deepest, 0)
        self._starts[node] = not before
        changed: list[tuple[int, int]] = []
        self._undo.append((self._phases, self._largest, changed))
        self._largest = max(self._largest, operator.form.filter_weights)
        self._high[node] = 0
        self._raise(node, 1, changed)
        waiting = 1 << node
        while waiting:
            low = waiting.bit_length() - 1
            waiting ^= 1 << low
            reader, rows = network.operators[low], self._high[low]
            for v in bits_of(network.predecessors[low] & group):
                needed = _reach(reader, rows, network.tensors[network.operators[v].writes[0]].height)
                if needed > self._high[v]:
                    self._raise(v, needed, changed)
                    waiting |= 1 << v
        self._traffic.push(node, group)
        self.group = group | 1 << node

    def pop(self, node: int) -> None:
        """Take the operator pushed last away again."""
        self._phases, self._largest, changed = self._undo.pop()
        for v, rows in reversed(changed):
            self._high[v] = rows
        self._traffic.pop()
        self.group ^= 1 << node

    def _raise(self, node: int, rows: int, changed: list[tuple[int, int]]) -> None:
        """Hold more rows of an operator's result."""
        old = self._high[node]
        changed.append((node, old))
        self._high[node] = rows
        even, odd = self._phases
        new, was = self._held(node, rows), self._held(node, old) if old else (0, 0)
        self._phases = even + new[0] - was[0], odd + new[1] - was[1]

    def _held(self, node: int, rows: int) -> tuple[int, int]:
        """Elements that the operator holds when convolutions at even depth are full, and when those at odd depth are."""
        network = self._network
        operator = network.operators[node]
        out = network.tensors[operator.writes[0]]
        full = partial = 0
        if operator.form.kind == "conv":
            full = out.channels * rows * out.width
            partial = min(out.channels, self._scheme.partial_channels) * rows * out.width
        elif self._starts[node]:
            full = out.channels * rows * out.width
        if self._starts[node]:
            for read in operator.reads:
                source = network.tensors[read.tensor]
                partial += source.channels * _reach(operator, rows, source.height) * source.width
        return (full, partial) if self._depth[node] % 2 == 0 else (partial, full)


def _reach(operator: Operator, rows: int, height: int) -> int:
    """Input rows, of `height`, that `rows` rows of the result need; see `schemes.brr`."""
    if operator.form.kind in ("global_pool", "flatten"):
        return height
    window = operator.form.rows
    across, each = window.stride
    return min(height, -(-(rows - 1) * across // each) + window.size)

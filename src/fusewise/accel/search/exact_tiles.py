"""How the need and the traffic of a group grow, operator by operator: row tiles (BRR).

The tiles of a group are scaled to its coarsest result, so a new operator can make those before it hold fewer rows. The growth
below counts the rows for one row of every result, which is never more and only grows. The traffic is exact where a group has one
result; with several, weights are counted once: at least that much moves, however many tiles there are.
"""

from __future__ import annotations

from fusewise.accel.bits import bits_of
from fusewise.accel.network import Network
from fusewise.accel.problem import Problem
from fusewise.accel.schemes.brr import BRR, RESHAPES, rows_read
from fusewise.accel.schemes.scheme import UNBOUNDED, bytes_for
from fusewise.accel.search.exact_traffic import TrafficGrowth

__all__ = ["TileGrowth", "refuses"]

Rows = tuple[int, int]
Phases = tuple[Rows, Rows]


class TileGrowth:
    """A group that grows by consumers; the members mean what those of `exact_lines.LineGrowth` do."""

    __slots__ = (
        "_capacity",
        "_depth",
        "_ends",
        "_filters",
        "_high",
        "_largest",
        "_loose",
        "_network",
        "_never",
        "_phases",
        "_refused",
        "_scheme",
        "_starts",
        "_traffic",
        "_undo",
        "_weights",
        "group",
    )

    exact_traffic = False
    spanning = False

    def __init__(self, problem: Problem, scheme: BRR) -> None:
        self._network, self._scheme, self._capacity = problem.network, scheme, problem.capacity
        self._traffic = TrafficGrowth(problem, network_io=scheme.network_io, excluded_traffic=scheme.excluded_traffic)
        nodes = len(problem.network)
        # rows of each result for tiles of one row and of two; elements held in both phases for both
        self._high: list[Rows] = [(0, 0)] * nodes
        self._depth, self._starts = [0] * nodes, [False] * nodes
        self._phases: Phases = ((0, 0), (0, 0))
        self._filters = tuple(op.form.filter_weights for op in problem.network.operators)
        self._largest = self._weights = self._ends = 0
        self._undo: list[tuple[Phases, int, int, int, bool, bool, list[tuple[int, Rows]]]] = []
        self._loose = self._refused = False
        self._never = UNBOUNDED * 8 // scheme.bits
        self.group = 0

    @property
    def need(self) -> int:
        """Elements held while a row passes, for the better phase, and the largest filter: never more than the scheme's."""
        if self._refused:
            return self._never
        even, odd = self._phases
        return min(even[0], odd[0]) + self._largest

    @property
    def traffic(self) -> int:
        """Elements moved through DRAM: as `BRR.tilings` has it for several operators with one result, else weights once."""
        moved, ends, weights, bits = self._traffic.moved, self._ends, self._weights, self._scheme.bits
        if self._loose or ends & (ends - 1) or not self.group & (self.group - 1):
            return moved
        network, tiles = self._network, 0
        height = network.tensors[network.operators[ends.bit_length() - 1].writes[0]].height
        for held, twice in self._phases:
            free = self._capacity - bytes_for(held + self._largest, bits)
            if free <= 0:
                continue
            if bytes_for(held + weights, bits) <= self._capacity:
                return moved
            more = bytes_for(twice - held, bits)
            rows = min(height, free // more + 1) if more else height
            needed = -(-height // rows)
            tiles = min(tiles, needed) if tiles else needed
        return moved + (tiles - 1) * weights if tiles else self._never

    @property
    def least(self) -> int:
        """What operators that are split into groups in any way move at least, as if together, with weights once."""
        return self._traffic.moved

    @property
    def excess(self) -> int:
        """Elements that this group, and any grown from it, moves more than once, as far as known: none."""
        return 0

    def push(self, node: int) -> None:
        """Add an operator."""
        network, group = self._network, self.group
        operator, before = network.operators[node], network.predecessors[node] & group
        deepest = max((self._depth[v] for v in bits_of(before)), default=-1)
        changed: list[tuple[int, Rows]] = []
        self._undo.append((self._phases, self._largest, self._weights, self._ends, self._loose, self._refused, changed))
        self._depth[node] = deepest + 1 if operator.form.kind == "conv" else max(deepest, 0)
        self._starts[node] = not before
        self._largest = max(self._largest, self._filters[node])
        self._weights += operator.form.weights
        self._refused = self._refused or refuses(network, group, node, before)
        ended = self._ends & before
        self._ends = self._ends & ~before | 1 << node
        self._high[node] = 0, 0
        self._raise(node, (1, min(2, network.tensors[operator.writes[0]].height)), changed)
        waiting = 1 << node
        while waiting:
            low = waiting.bit_length() - 1
            waiting ^= 1 << low
            reader, (one, two) = network.operators[low], self._high[low]
            for v in bits_of(network.predecessors[low] & group):
                height, old = network.tensors[network.operators[v].writes[0]].height, self._high[v]
                reach = rows_read(reader, one, height), rows_read(reader, two, height)
                rows = max(old[0], reach[0]), max(old[1], reach[1])
                if 1 << v & ended and reach[1] < old[1]:
                    self._loose = True  # as an end it held more rows, and so do those before it still
                if rows != old:
                    self._raise(v, rows, changed)
                    waiting |= 1 << v
        self._traffic.push(node, group)
        self.group = group | 1 << node

    def pop(self, node: int) -> None:
        """Take the operator pushed last away again."""
        self._phases, self._largest, self._weights, self._ends, self._loose, self._refused, changed = self._undo.pop()
        for v, rows in reversed(changed):
            self._high[v] = rows
        self._traffic.pop()
        self.group ^= 1 << node

    def _raise(self, node: int, rows: Rows, changed: list[tuple[int, Rows]]) -> None:
        """Hold other numbers of rows of an operator's result."""
        old = self._high[node]
        changed.append((node, old))
        self._high[node] = rows
        (even, even_twice), (odd, odd_twice) = self._phases
        if rows[0] != old[0]:
            new, was = self._held(node, rows[0]), self._held(node, old[0])
            even, odd = even + new[0] - was[0], odd + new[1] - was[1]
        if rows[1] != old[1]:
            new, was = self._held(node, rows[1]), self._held(node, old[1])
            even_twice, odd_twice = even_twice + new[0] - was[0], odd_twice + new[1] - was[1]
        self._phases = (even, even_twice), (odd, odd_twice)

    def _held(self, node: int, rows: int) -> tuple[int, int]:
        """Elements that the operator holds when convolutions at even depth are full, and when those at odd depth are."""
        if not rows:
            return 0, 0
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
                partial += source.channels * rows_read(operator, rows, source.height) * source.width
        return (full, partial) if self._depth[node] % 2 == 0 else (partial, full)


def refuses(network: Network, group: int, node: int, before: int) -> bool:
    """Does an operator, which reads those in `before`, make the scheme refuse the group for good? See `BRR.refusal`; scales are
    left to the scheme."""
    operators = network.operators
    kind, first = operators[node].form.kind, operators[(group & -group).bit_length() - 1].form.kind if group else ""
    pools = any(operators[v].form.kind == "global_pool" for v in bits_of(before))
    return (
        (group != 0 and not before and kind in ("pool", "global_pool"))
        or (group & (group - 1) == 0 and first in ("pool", "global_pool"))
        or (pools and operators[node].op not in RESHAPES)
    )

"""How the need and the traffic of a group grow, operator by operator: row tiles as running them takes (BRR, executed).

Both are bounds from below that only grow: of every convolution's result one row, of all channels in the phases in which it is
full and of half a block else; everything moved once.
"""

from __future__ import annotations

from fusewise.accel.bits import bits_of
from fusewise.accel.problem import Problem
from fusewise.accel.schemes.brr import BRR
from fusewise.accel.search.exact_traffic import TrafficGrowth

__all__ = ["PassGrowth"]


class PassGrowth:
    """A group that grows by consumers; the members mean what those of `exact_lines.LineGrowth` do."""

    __slots__ = ("_depth", "_network", "_phases", "_scheme", "_traffic", "_undo", "group")

    exact_traffic = False
    spanning = False

    def __init__(self, problem: Problem, scheme: BRR) -> None:
        self._network, self._scheme = problem.network, scheme
        self._traffic = TrafficGrowth(problem, network_io=scheme.network_io, excluded_traffic=scheme.excluded_traffic)
        self._depth = [0] * len(problem.network)
        self._phases = (0, 0)
        self._undo: list[tuple[int, int]] = []
        self.group = 0

    @property
    def need(self) -> int:
        """Elements held, at least, in the better phase."""
        return min(self._phases)

    @property
    def traffic(self) -> int:
        """Elements moved through DRAM, at least."""
        return self._traffic.moved

    @property
    def least(self) -> int:
        """What operators that are split into groups in any way move at least."""
        return self._traffic.moved

    def push(self, node: int) -> None:
        """Add an operator."""
        network, group = self._network, self.group
        operator = network.operators[node]
        deepest = max((self._depth[v] for v in bits_of(network.predecessors[node] & group)), default=-1)
        self._undo.append(self._phases)
        self._depth[node] = deepest
        if operator.form.kind == "conv":
            self._depth[node] = deepest + 1
            out = network.tensors[operator.writes[0]]
            full, part = out.channels * out.width, -(-min(out.channels, self._scheme.partial_channels) // 2) * out.width
            first, second = (full, part) if self._depth[node] % 2 == 0 else (part, full)
            self._phases = self._phases[0] + first, self._phases[1] + second
        self._traffic.push(node, group)
        self.group = group | 1 << node

    def pop(self, node: int) -> None:
        """Take the operator pushed last away again."""
        self._phases = self._undo.pop()
        self._traffic.pop()
        self.group ^= 1 << node

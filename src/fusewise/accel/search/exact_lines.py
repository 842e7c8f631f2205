"""How the need and the traffic of a group grow, operator by operator: line buffers (LBDF).

The buffer need of a group is not quite monotone: a new operator can delay a source and so shorten what waits for it. The growth
below bounds it from below by what can only grow: weights, accumulators, and of each tensor the pixels between its producer and a
consumer along the slowest path within the group, as if nothing else had to wait. So when the bound is too large, every larger
group is too large as well. The traffic is exact.
"""

from __future__ import annotations

from fusewise.accel.bits import bits_of
from fusewise.accel.network import Network, Operator, Read
from fusewise.accel.problem import Problem
from fusewise.accel.schemes.lbdf import LBDF
from fusewise.accel.search.exact_traffic import TrafficGrowth

__all__ = ["LineGrowth", "own_of"]


class LineGrowth:
    """A group that grows by consumers: `push` an operator whose producers are all in the group or run before it, `pop` the
    last one. `need` and `traffic` are in elements."""

    __slots__ = ("_live", "_network", "_own", "_scheme", "_traffic", "_undo", "_window", "group", "need")

    exact_traffic = True
    spanning = True

    def __init__(self, problem: Problem, scheme: LBDF) -> None:
        network = self._network = problem.network
        self._scheme = scheme
        self._traffic = TrafficGrowth(problem, network_io=scheme.network_io, excluded_traffic=scheme.excluded_traffic)
        self._own = own_of(network)
        self._window = tuple(
            tuple((read.tensor, self._held(read, read.lag_rows, read.lag_columns)) for read in op.reads)
            for op in network.operators
        )
        self._live = [0] * len(network.tensors)
        self._undo: list[tuple[int, list[tuple[int, int]]]] = []
        self.group = self.need = 0

    @property
    def traffic(self) -> int:
        """Elements moved through DRAM, weights included."""
        return self._traffic.moved

    @property
    def least(self) -> int:
        """What operators that are split into groups in any way move at least: as much as together."""
        return self._traffic.moved

    @property
    def excess(self) -> int:
        """Elements that this group, and any grown from it, moves more than once, as far as known: none."""
        return 0

    def push(self, node: int) -> None:
        """Add an operator."""
        operator = self._network.operators[node]
        windows = self._window[node]
        if len(windows) > 1:
            windows = self._waiting(operator)
        live, changed, before = self._live, [], self.need
        need = before + self._own[node]
        for tensor, held in windows:
            old = live[tensor]
            if held > old:
                need += held - old
                live[tensor] = held
                changed.append((tensor, old))
        self.need = need
        self._undo.append((before, changed))
        self._traffic.push(node, self.group)
        self.group |= 1 << node

    def pop(self, node: int) -> None:
        """Take the operator pushed last away again."""
        self.need, changed = self._undo.pop()
        for tensor, old in changed:
            self._live[tensor] = old
        self._traffic.pop()
        self.group ^= 1 << node

    def _waiting(self, operator: Operator) -> tuple[tuple[int, int], ...]:
        """What is held of each tensor that a join reads: the slowest path within the group says how long it waits."""
        network, group = self._network, self.group
        operators, tensors = network.operators, network.tensors
        farthest = {read.tensor: (read.lag_rows, read.lag_columns) for read in operator.reads}
        behind: dict[int, tuple[int, int]] = {}
        first = min(_first(tensors[read.tensor].consumers & group) for read in operator.reads)
        for read in operator.reads:
            _slower(behind, tensors[read.tensor].producer, read.lag_rows, read.lag_columns)
        for node in sorted(bits_of(group >> first << first), reverse=True):
            if node not in behind:
                continue
            rows, columns = behind[node]
            for read in operators[node].reads:
                down, right = rows + read.lag_rows, columns + read.lag_columns
                if read.tensor in farthest:
                    known = farthest[read.tensor]
                    farthest[read.tensor] = max(known[0], down), max(known[1], right)
                _slower(behind, tensors[read.tensor].producer, down, right)
        return tuple((read.tensor, self._held(read, *farthest[read.tensor])) for read in operator.reads)

    def _held(self, read: Read, rows: int, columns: int) -> int:
        """Elements held of a tensor when its consumer trails it by so many units."""
        network = self._network
        return network.tensors[read.tensor].channels * self._scheme.waiting_pixels(network, read, rows, columns)


def own_of(network: Network) -> tuple[int, ...]:
    """Elements that each operator holds whatever it reads: weights, and what a global pool sums up in."""
    return tuple(
        op.form.weights + (network.tensors[op.writes[0]].channels if op.form.kind == "global_pool" else 0)
        for op in network.operators
    )


def _first(mask: int) -> int:
    return (mask & -mask).bit_length() - 1 if mask else 1 << 30


def _slower(behind: dict[int, tuple[int, int]], node: int, rows: int, columns: int) -> None:
    known = behind.get(node, (rows, columns))
    behind[node] = max(known[0], rows), max(known[1], columns)

"""How the need and the traffic of a group grow, operator by operator: row tiles as running them takes (BRR, executed).

Both are bounds from below, and the need only grows. Regions are counted as `exact_tiles` counts rows, for one row of every
result, but for convolutions alone: all channels in the phases in which one is full; half a block of them in the others, and then
what it reads from DRAM must be whole; all again where two convolutions read the result, one after the other. A tensor for which
no tile's window lies within the map is counted with fewer rows. The traffic has weights once for each tile, with at least as
many tiles as the regions leave room for.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from fusewise.accel.bits import bits_of
from fusewise.accel.network import Network
from fusewise.accel.problem import Problem
from fusewise.accel.schemes.brr import BRR, rows_read
from fusewise.accel.schemes.scheme import bytes_for
from fusewise.accel.search.exact_tiles import TileGrowth

__all__ = ["PassGrowth"]


Pair = tuple[int, int]
"""Elements when convolutions at even depth are full, and when those at odd depth are."""


class PassGrowth(TileGrowth):
    """A group that grows by consumers; the members mean what those of `exact_lines.LineGrowth` do."""

    __slots__ = ("_before", "_by", "_demands", "_first", "_readers", "_steps", "_thin", "_whole", "_wide")

    def __init__(self, problem: Problem, scheme: BRR) -> None:
        super().__init__(problem, scheme)
        operators = problem.network.operators
        self._filters = tuple(
            op.form.filter_weights // op.form.filter_channels * min(op.form.filter_channels, scheme.partial_channels)
            for op in operators
        )
        steps = self._steps = steps_of(problem.network)
        # rows of a result by which it moves on from one tile to the next, at most: of windows wider than the map less these, no
        # tile may see all
        most = max(steps.each, default=1)
        self._by = tuple(-(-most // step) if steps.even else 1 << 30 for step in steps.each)
        self._first: list[int] = [0] * len(
            operators
        )  # the reads of an operator by which a tensor comes from DRAM first
        # elements held of one row of every result, and for each further row of a result of step `common`
        self._thin, self._wide = (0, 0), (0, 0)
        self._demands = demands_of(problem.network)
        self._readers = [0] * len(operators)  # the convolutions in the group that read an operator's result
        self._whole = 0  # convolutions whose result is held whole in either phase
        self._before: list[tuple[Pair, Pair, int]] = []

    @property
    def traffic(self) -> int:
        """Elements moved through DRAM, at least."""
        moved, group, steps = self._traffic.moved, self.group, self._steps
        if not steps.even or group & steps.short or not group & (group - 1):
            return moved
        coarsest = max(bits_of(group), key=steps.each.__getitem__)
        height = self._network.tensors[self._network.operators[coarsest].writes[0]].height
        room, tiles = self._capacity * 8 // self._scheme.bits, 0
        for (held, _), thin, wide in zip(self._phases, self._thin, self._wide, strict=True):
            if bytes_for(held + self._largest, self._scheme.bits) >= self._capacity:
                continue
            if held + self._weights <= room:
                return moved
            more = (room - self._largest - thin) * steps.common // (wide * steps.each[coarsest]) if wide else height
            needed = -(-height // min(height, 1 + max(0, more)))
            tiles = min(tiles, needed) if tiles else needed
        return moved + (tiles - 1) * self._weights if tiles else self._never

    def push(self, node: int) -> None:
        """Add an operator."""
        network, group = self._network, self.group
        operator = network.operators[node]
        self._first[node] = sum(
            1 << i for i, read in enumerate(operator.reads) if not network.tensors[read.tensor].consumers & group
        )
        self._before.append((self._thin, self._wide, self._whole))
        super().push(node)
        self._thicken(node, (0, 0), (0, 0))
        if operator.form.kind != "conv":
            return
        ancestors = network.ancestors[node]
        for v in bits_of(self._demands[node] & group):
            if self._readers[v] & ancestors and not self._whole >> v & 1:
                self._keep(v)
            self._readers[v] |= 1 << node

    def pop(self, node: int) -> None:
        """Take the operator pushed last away again."""
        super().pop(node)
        self._thin, self._wide, self._whole = self._before.pop()
        for v in bits_of(self._demands[node] & self.group):
            self._readers[v] &= ~(1 << node)

    def _keep(self, node: int) -> None:
        """Hold a result whole in either phase: two convolutions read it, one of which needs the other's."""
        (even, even_twice), (odd, odd_twice) = self._phases
        one, two = self._high[node]
        was, was_twice, thin, wide = self._held(node, one), self._held(node, two), *self._rows(node)
        self._whole |= 1 << node
        now, now_twice = self._held(node, one), self._held(node, two)
        self._phases = (
            (even + now[0] - was[0], even_twice + now_twice[0] - was_twice[0]),
            (odd + now[1] - was[1], odd_twice + now_twice[1] - was_twice[1]),
        )
        self._thicken(node, thin, wide)

    def _rows(self, node: int) -> tuple[Pair, Pair]:
        """What is held of one row, and for each further row of a result of step `common`."""
        operator, share = self._network.operators[node], self._steps.common // self._steps.each[node]
        sources = len(operator.reads)
        wide = self._regions(node, share, (share * operator.form.rows.stride[0],) * sources)
        return self._regions(node, 1, (1,) * sources), wide

    def _thicken(self, node: int, thin: Pair, wide: Pair) -> None:
        """Count what is held of an operator's rows instead of what was."""
        one, more = self._rows(node)
        self._thin = self._thin[0] + one[0] - thin[0], self._thin[1] + one[1] - thin[1]
        self._wide = self._wide[0] + more[0] - wide[0], self._wide[1] + more[1] - wide[1]

    def _held(self, node: int, rows: int) -> Pair:
        if not rows:
            return 0, 0
        operator, tensors = self._network.operators[node], self._network.tensors
        by = self._by[node]
        rows = min(rows, max(1, tensors[operator.writes[0]].height - by + 1))
        by *= operator.form.rows.stride[0]
        heights = (tensors[read.tensor].height for read in operator.reads)
        sources = tuple(min(rows_read(operator, rows, height), max(1, height - by + 1)) for height in heights)
        return self._regions(node, rows, sources)

    def _regions(self, node: int, rows: int, sources: tuple[int, ...]) -> Pair:
        """Elements that a convolution holds of so many rows of its result and of what it reads from DRAM."""
        operator, tensors = self._network.operators[node], self._network.tensors
        if operator.form.kind != "conv":
            return 0, 0
        out = tensors[operator.writes[0]]
        full = out.channels * rows * out.width
        if self._whole >> node & 1:
            return full, full
        partial = -(-min(out.channels, self._scheme.partial_channels) // 2) * rows * out.width
        if self._starts[node]:
            for i, read in enumerate(operator.reads):
                if self._first[node] >> i & 1:
                    source = tensors[read.tensor]
                    partial += source.channels * sources[i] * source.width
            partial = min(full, partial)
        return (full, partial) if self._depth[node] % 2 == 0 else (partial, full)


def demands_of(network: Network) -> tuple[int, ...]:
    """Per operator, the convolutions whose results it reads, straight or by way of operators without weights, as bits."""
    found: list[int] = []
    through: list[int] = []
    for v, operator in enumerate(network.operators):
        demanded = 0
        for u in bits_of(network.predecessors[v]):
            demanded |= through[u]
        found.append(demanded)
        if operator.form.kind == "conv":
            through.append(1 << v)
        else:
            through.append(0 if operator.form.weights else demanded)
    return tuple(found)


class Steps(NamedTuple):
    """By how much results are coarser than the network's inputs: one row of operator v's for `each[v]` rows of theirs.

    `common` is a multiple of all. `even` says that all paths agree, so that rows of one result are whole numbers of rows of
    every other before it; then, in a tile of n rows, r = (n - 1) * step + 1 rows of a result before are held at least. `short`:
    operators whose result has one row only; they have no step of their own (1).
    """

    each: tuple[int, ...]
    common: int
    even: bool
    short: int


def steps_of(network: Network) -> Steps:
    """The steps of all results."""
    tensors = network.tensors
    each: list[int] = []
    even, short = True, 0
    for v, operator in enumerate(network.operators):
        if any(tensors[t].height == 1 for t in operator.writes):
            short |= 1 << v
            each.append(1)
            continue
        over, under = operator.form.rows.stride
        found = set()
        for read in operator.reads:
            source = tensors[read.tensor]
            if source.height > 1:
                found.add(over * (each[source.producer] if source.producer >= 0 else 1))
                height = tensors[operator.writes[0]].height
                even &= (height - 1) * over < source.height and operator.form.rows.begin < operator.form.rows.size
        even &= under == 1 and len(found) <= 1 and not operator.form.rows.ranges
        each.append(max(found, default=1))
    return Steps(tuple(each), math.lcm(*each), even, short)

"""What row tiles hold and read, exactly as running them does: which maps stay whole, which flow, which rows come twice.

Takes a group, a phase and tile heights; gives a `Layout` and the rows of every map that each tile needs. The rules, all of which
`accel.simulate.brr` runs on data:

- Convolutions and operators with weights have a region of their own; everything else is computed on the way.
- A region is *whole* (all channels of the tile's rows) or a *block* (a few channels at a time). A full convolution is whole: it
  adds up what flows in. A partial one is a block, and what it reads must be whole.
- Work goes in passes: in each, channels flow once. What flows but is needed in two passes, or at two places of the channels,
  must be whole after all; an input from DRAM that is not whole is read once for each pass.
- An operator with weights within channels takes over the region of what it alone reads.
- A whole input from DRAM keeps the rows that the next tile reads again; one that flows is read again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from fusewise.accel.bits import bits_of
from fusewise.accel.network import Network, Operator
from fusewise.accel.windows import PIXEL

__all__ = ["Demand", "Layout", "Spread", "layout_of", "leaving", "rows_of"]

Spread = tuple[np.ndarray, np.ndarray]
"""First and last row of a map that each tile needs: int64[tiles] each."""

Demand = tuple[int, int, bool]
"""A tensor that is read, the channel of the result at which its first channel stands, and whether all of it is needed."""


@dataclass(frozen=True)
class Layout:
    """Where everything is while a group runs in tiles.

    `whole`: tensors held with all channels; `blocks`: those of which a few channels are at a time; `at`: the pass in which a
    whole result is made and a leaving one is sent off; `loads`: how many times an input is read; `shares`: results that
    take the region of another tensor; `places`: at which channels of the results what flows is needed.
    """

    whole: frozenset[int]
    blocks: frozenset[int]
    at: Mapping[int, int]
    loads: Mapping[int, int]
    shares: Mapping[int, int]
    places: Mapping[int, tuple[int, ...]]

    @cached_property
    def regions(self) -> tuple[tuple[int, bool], ...]:
        """Tensors with a region of their own, and whether all channels are held."""
        found = [(t, True) for t in sorted(self.whole)] + [(t, False) for t in sorted(self.blocks)]
        return tuple((t, whole) for t, whole in found if t not in self.shares)

    def at_once(self, t: int, channels: int, most: int) -> int:
        """Of what flows, the channels that are there at a time: at `most`, less where no joint block has as many of them."""
        found = 0
        for place in self.places[t]:
            head = -place % most
            found = max(found, min(channels, head), min(channels - head, most))
        return found


def leaving(network: Network, group: int) -> tuple[int, ...]:
    """Tensors made in the group that are needed outside."""
    made = [t for v in bits_of(group) for t in network.operators[v].writes]
    return tuple(t for t in made if network.tensors[t].is_output or network.tensors[t].consumers & ~group)


def layout_of(network: Network, group: int, full_first: bool) -> Layout:
    """The layout for one phase: are the first convolutions full, or partial?"""
    draft = _Draft(network, group)
    draft.whole = {operator.writes[0] for v, operator in draft.stored if draft.is_full(v, operator, full_first)}
    while more := draft.crowded():
        draft.whole |= more
    return draft.layout()


class _Draft:
    """A layout in the making: `whole` grows until nothing that flows is needed twice."""

    def __init__(self, network: Network, group: int) -> None:
        self.network, self.group = network, group
        members = [(v, network.operators[v]) for v in bits_of(group)]
        self.stored = [(v, op) for v, op in members if op.form.weights or op.form.kind == "conv"]
        self.kept = {op.writes[0] for _, op in self.stored}
        self.sources: dict[int, tuple[Demand, ...]] = {}
        for v, op in members:
            for read in op.reads:
                before = network.tensors[read.tensor].producer
                if before < 0 or not group >> before & 1:
                    self.sources[read.tensor] = ((read.tensor, 0, False),)
            if v not in dict(self.stored):
                for t in op.writes:
                    self.sources[t] = self._through(op, t)
            else:
                self.sources[op.writes[0]] = ((op.writes[0], 0, False),)
        self.outside = {t for t, found in self.sources.items() if found[0][0] == t} - self.kept
        self.leaving = leaving(network, group)
        self.whole: set[int] = set()
        self.depth: dict[int, int] = {}
        for v, op in members:
            deepest = max((self.depth[u] for u in bits_of(network.predecessors[v] & group)), default=-1)
            self.depth[v] = deepest + (op.form.kind == "conv")

    def is_full(self, v: int, operator: Operator, full_first: bool) -> bool:
        return operator.form.kind == "conv" and (self.depth[v] % 2 == 0) == full_first

    def _through(self, op: Operator, result: int) -> tuple[Demand, ...]:
        """What a result that is computed on the way comes from."""
        tensors, start = self.network.tensors, 0
        found: list[Demand] = []
        if op.op == "Split":
            start = -sum(tensors[t].channels for t in op.writes[: op.writes.index(result)])
        for read in op.reads:
            everything = _mixes(op) or (
                op.op not in ("Concat", "Split") and tensors[read.tensor].channels != tensors[result].channels
            )
            found += [(t, at + start, rest or everything) for t, at, rest in self.sources[read.tensor]]
            if op.op == "Concat":
                start += tensors[read.tensor].channels
        return tuple(dict.fromkeys(found))

    def demands(self, op: Operator) -> list[Demand]:
        """What an operator with a region reads."""
        return [
            (t, at, rest or (_mixes(op) and op.form.kind != "conv"))
            for read in op.reads
            for t, at, rest in self.sources[read.tensor]
        ]

    def crowded(self) -> set[int]:
        """What flows, but is needed more than once or all at once."""
        wanted = self._wanted()[0]
        flows = (self.kept | self.outside) - self.whole
        late = {t for t in flows if None in wanted[t] or (t in self.kept and len(wanted[t]) > 1)}
        return late

    def _wanted(self) -> tuple[dict[int, set[tuple[int, int] | None]], dict[int, int]]:
        """For each tensor with a region, the (pass, place) at which it is needed, None when all at once; and the passes."""
        ready = dict.fromkeys(self.outside, 0)
        wanted: dict[int, set[tuple[int, int] | None]] = {t: set() for t in self.kept | self.outside}
        for _, op in self.stored:
            result, reads = op.writes[0], self.demands(op)
            ready[result] = max(ready[t] for t, _, _ in reads) + (result in self.whole)
            for t, at, rest in reads:
                if result in self.whole:
                    wanted[t].add(None if rest else (ready[result], at))
                elif op.form.kind == "conv":
                    wanted[t].add(None)
        sent: dict[int, int] = {}
        for result in self.leaving:
            if result in self.whole:
                continue
            ways = self.sources[result]
            known = [key[0] for t, _, _ in ways if t not in self.whole for key in wanted[t] if key]
            sent[result] = max([1 + max(ready[t] for t, _, _ in ways), *known])
            for t, at, rest in ways:
                wanted[t].add(None if rest else (sent[result], at))
        for _, op in reversed(self.stored):
            result = op.writes[0]
            if result not in self.whole and op.form.kind != "conv":
                for t, at, rest in self.demands(op):
                    wanted[t] |= {None if rest or key is None else (key[0], key[1] + at) for key in wanted[result]}
        return wanted, {t: ready[t] for t in self.kept & self.whole} | sent

    def layout(self) -> Layout:
        wanted, at = self._wanted()
        blocks = (self.kept | self.outside) - self.whole
        loads = {t: 1 if t in self.whole else len(wanted[t]) for t in self.outside}
        places = {t: tuple(key[1] for key in wanted[t] if key) for t in blocks}
        return Layout(frozenset(self.whole), frozenset(blocks), at, loads, self._shares(), places)

    def _shares(self) -> dict[int, int]:
        """Operators with weights within channels work in the region of what they alone read."""
        readers: dict[int, int] = {}
        for _, op in self.stored:
            for t in {t for t, _, _ in self.demands(op)}:
                readers[t] = readers.get(t, 0) + 1
        for result in self.leaving:
            for t in {t for t, _, _ in self.sources[result]} | {result}:
                readers[t] = readers.get(t, 0) + 1
        found: dict[int, int] = {}
        for _, op in self.stored:
            result, reads = op.writes[0], self.demands(op)
            if op.form.kind == "conv" or len(reads) != 1:
                continue
            (t, at, rest) = reads[0]
            alike = self.network.tensors[t].channels == self.network.tensors[result].channels
            grows = self.network.tensors[t].pixels < self.network.tensors[result].pixels
            same = alike and not (at or rest or grows) and (t in self.whole) == (result in self.whole)
            if t in self.kept and readers[t] == 1 and same:
                found[result] = t
        return found


def _mixes(op: Operator) -> bool:
    """Does one channel of the result depend on all channels of the operands (or on their order)?"""
    return op.form.kind == "flatten" or op.op in _ACROSS


_ACROSS = ("Softmax", "LogSoftmax", "LayerNormalization", "RMSNormalization")


def rows_of(
    network: Network, group: int, ends: Sequence[tuple[int, Fraction | int]], height: int, rows: int
) -> dict[int, Spread]:
    """The rows of every tensor of the group that each tile needs.

    `ends`: tensors of which every row is wanted, and how many of them a tile has for each of its `rows` rows; `height` rows in
    all.
    """
    tensors, starts = network.tensors, np.arange(0, height, rows)
    needed: dict[int, Spread] = {}
    for t, scale in ends:
        top = tensors[t].height
        up, down = (scale.numerator, scale.denominator)
        stops = np.append(starts[1:] * up // down, top) - 1
        needed[t] = np.minimum(starts * up // down, top - 1), np.minimum(np.maximum(stops, 0), top - 1)
    for v in reversed(list(bits_of(group))):
        operator = network.operators[v]
        made = [needed[t] for t in operator.writes if t in needed]
        if not made:
            continue
        result = made[0] if len(made) == 1 else _hull(made)
        alike = operator.form.rows == PIXEL
        for read in operator.reads:
            top = tensors[read.tensor].height
            if alike and top == tensors[operator.writes[0]].height:
                spread = result
            elif read.whole:
                spread = np.zeros_like(starts), np.full_like(starts, top - 1)
            else:
                low, high = operator.form.rows.read(*result)
                spread = np.minimum(np.maximum(low, 0), top - 1), np.minimum(np.maximum(high, 0), top - 1)
            known = needed.get(read.tensor)
            needed[read.tensor] = spread if known is None or known is spread else _hull([known, spread])
    return needed


def _hull(spreads: Sequence[Spread]) -> Spread:
    first, last = spreads[0]
    for low, high in spreads[1:]:
        first, last = np.minimum(first, low), np.maximum(last, high)
    return first, last

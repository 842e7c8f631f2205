"""What row tiles hold and read, exactly as running them does: which maps stay whole, which flow, which rows come twice.

Takes a group, a phase and tile heights; gives a `TileLayout` and the rows of every map that each tile needs. The rules, all of
which `accel.simulate.brr` runs on data:

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
from typing import NamedTuple

import numpy as np

from fusewise.accel.bits import bits_of
from fusewise.accel.network import Network, Operator
from fusewise.accel.windows import PIXEL

__all__ = ["Demand", "Spread", "TileLayout", "aligned", "layout_of", "layouts_of", "leaving", "mixes", "rows_of"]

Spread = tuple[np.ndarray, np.ndarray]
"""First and last row of a map that each tile needs: int64[tiles] each."""

Demand = tuple[int, int, bool]
"""A tensor that is read, the channel of the result at which its first channel stands, and whether all of it is needed."""


Key = tuple[int, int]
"""The pass in which something is needed, and the channel of the result at which it stands then."""


@dataclass(frozen=True)
class TileLayout:
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


class _Stored(NamedTuple):
    """An operator with a region: its result, whether it is a convolution with an even number of them before it, what it reads."""

    result: int
    is_conv: bool
    is_even: bool
    reads: tuple[Demand, ...]


def leaving(network: Network, group: int) -> tuple[int, ...]:
    """Tensors made in the group that are needed outside."""
    made = [t for v in bits_of(group) for t in network.operators[v].writes]
    return tuple(t for t in made if network.tensors[t].is_output or network.tensors[t].consumers & ~group)


def layout_of(network: Network, group: int, full_first: bool) -> TileLayout:
    """The layout for one phase: are the first convolutions full, or partial?"""
    return _Draft(network, group).layout(full_first)


def layouts_of(network: Network, group: int) -> tuple[TileLayout, TileLayout]:
    """The layouts for both phases: with the first convolutions full, and partial."""
    draft = _Draft(network, group)
    return draft.layout(True), draft.layout(False)


class _Draft:
    """A group whose layouts are asked for: `whole` grows until nothing that flows is needed twice."""

    def __init__(self, network: Network, group: int) -> None:
        self.network, self.group = network, group
        self.sources: dict[int, tuple[Demand, ...]] = {}
        self.outside: set[int] = set()
        self.stored: list[_Stored] = []
        depths: dict[int, int] = {}
        for v in bits_of(group):
            op = network.operators[v]
            for read in op.reads:
                before = network.tensors[read.tensor].producer
                if before < 0 or not group >> before & 1:
                    self.outside.add(read.tensor)
                    self.sources[read.tensor] = ((read.tensor, 0, False),)
            is_conv = op.form.kind == "conv"
            depths[v] = max((depths[u] for u in bits_of(network.predecessors[v] & group)), default=-1) + is_conv
            if is_conv or op.form.weights:
                self.stored.append(_Stored(op.writes[0], is_conv, depths[v] % 2 == 0, self._demands(op, is_conv)))
                self.sources[op.writes[0]] = ((op.writes[0], 0, False),)
            else:
                for t in op.writes:
                    self.sources[t] = self._through(op, t)
        self.kept = {at.result for at in self.stored}
        self.leaving = leaving(network, group)
        self.whole: set[int] = set()

    def layout(self, full_first: bool) -> TileLayout:
        self.whole = {at.result for at in self.stored if at.is_conv and at.is_even == full_first}
        wanted, passes = self._wanted()
        while more := self._crowded(wanted):
            self.whole |= more
            wanted, passes = self._wanted()
        blocks = (self.kept | self.outside) - self.whole
        loads = {t: 1 if t in self.whole else len(wanted[t]) for t in self.outside}
        places = {t: tuple(key[1] for key in wanted[t] if key) for t in blocks}
        return TileLayout(frozenset(self.whole), frozenset(blocks), passes, loads, self._shares(), places)

    def _through(self, op: Operator, result: int) -> tuple[Demand, ...]:
        """What a result that is computed on the way comes from."""
        tensors, start = self.network.tensors, 0
        found: list[Demand] = []
        if op.op == "Split":
            start = -sum(tensors[t].channels for t in op.writes[: op.writes.index(result)])
        for read in op.reads:
            everything = mixes(op) or not aligned(self.network, op, read.tensor, result)
            found += [(t, at + start, rest or everything) for t, at, rest in self.sources[read.tensor]]
            if op.op == "Concat":
                start += tensors[read.tensor].channels
        return tuple(dict.fromkeys(found))

    def _demands(self, op: Operator, is_conv: bool) -> tuple[Demand, ...]:
        """What an operator with a region reads."""
        everything = mixes(op) and not is_conv
        return tuple((t, at, rest or everything) for read in op.reads for t, at, rest in self.sources[read.tensor])

    def _crowded(self, wanted: Mapping[int, set[Key | None]]) -> set[int]:
        """What flows, but is needed more than once or all at once."""
        flows = (self.kept | self.outside) - self.whole
        return {t for t in flows if None in wanted[t] or (t in self.kept and len(wanted[t]) > 1)}

    def _wanted(self) -> tuple[dict[int, set[Key | None]], dict[int, int]]:
        """For each tensor with a region, where it is needed, None when all at once; and the passes."""
        ready = dict.fromkeys(self.outside, 0)
        wanted: dict[int, set[Key | None]] = {t: set() for t in self.kept | self.outside}
        for at in self.stored:
            result, whole = at.result, at.result in self.whole
            number = ready[result] = max([ready[t] for t, _, _ in at.reads]) + whole
            if whole:
                for t, place, rest in at.reads:
                    wanted[t].add(None if rest else (number, place))
            elif at.is_conv:
                for t, _, _ in at.reads:
                    wanted[t].add(None)
        sent: dict[int, int] = {}
        for result in self.leaving:
            if result in self.whole:
                continue
            ways = self.sources[result]
            known = [key[0] for t, _, _ in ways if t not in self.whole for key in wanted[t] if key]
            sent[result] = max([1 + max(ready[t] for t, _, _ in ways), *known])
            for t, place, rest in ways:
                wanted[t].add(None if rest else (sent[result], place))
        for at in reversed(self.stored):
            if at.result not in self.whole and not at.is_conv:
                for t, place, rest in at.reads:
                    wanted[t] |= {
                        None if rest or key is None else (key[0], key[1] + place) for key in wanted[at.result]
                    }
        return wanted, {t: ready[t] for t in self.kept & self.whole} | sent

    def _shares(self) -> dict[int, int]:
        """Operators with weights within channels work in the region of what they alone read."""
        readers: dict[int, int] = {}
        for at in self.stored:
            for t in {t for t, _, _ in at.reads}:
                readers[t] = readers.get(t, 0) + 1
        for result in self.leaving:
            for t in {t for t, _, _ in self.sources[result]} | {result}:
                readers[t] = readers.get(t, 0) + 1
        found: dict[int, int] = {}
        for at in self.stored:
            if at.is_conv or len(at.reads) != 1:
                continue
            t, place, rest = at.reads[0]
            source, made = self.network.tensors[t], self.network.tensors[at.result]
            same = source.channels == made.channels and not (place or rest or source.pixels < made.pixels)
            if t in self.kept and readers[t] == 1 and same and (t in self.whole) == (at.result in self.whole):
                found[at.result] = t
        return found


def aligned(network: Network, op: Operator, tensor: int, result: int) -> bool:
    """Does each channel of a result come from one channel of this tensor, for an operator that does not mix them?"""
    tensors = network.tensors
    return op.op in ("Concat", "Split") or tensors[tensor].channels == tensors[result].channels


def mixes(op: Operator) -> bool:
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

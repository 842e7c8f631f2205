"""Buffer requirement reduction (BRR): tiles of whole rows pass through a group, and every other convolution is never held whole.

A tile of h rows of the last map is computed at a time, from as many rows of the maps before as its windows reach. Convolutions
alternate between FULL, where all output channels of the tile are held, and PARTIAL, where only a few are, which the next, FULL one
at once adds to its sums; depthwise convolutions and pooling work in place. Weights do not stay: they stream in once for each
tile, so fewer, higher tiles mean less traffic.

The model follows Cai et al., "Optimus" (as its public code has it), with the filter in flight charged to the buffer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from fusewise.accel.bits import bits_of
from fusewise.accel.network import Network, Operator, Tensor
from fusewise.accel.schemes.scheme import UNBOUNDED, bytes_for, traffic, weights_of

__all__ = ["BRR", "Tiling"]

Scale = int | Fraction


class Tiling(NamedTuple):
    """How a group runs: `full_first` is the phase of its first convolutions, `rows` how many rows of the coarsest result a
    tile has, `tiles` how many there are, `weights_once` whether all weights stay in the buffer.

    `buffer_bytes` is the need of one-row tiles, the least with which the group runs; `dram_bytes` what the tiles move.
    """

    full_first: bool
    rows: int
    tiles: int
    weights_once: bool
    buffer_bytes: int
    dram_bytes: int


@dataclass(frozen=True, slots=True)
class BRR:
    """Options: `partial_channels`, how many output channels a PARTIAL convolution holds (k0); `bits` of an element; whether
    the network's own inputs and outputs (`network_io`) and tensors exchanged with excluded operators only (`excluded_traffic`)
    count as DRAM traffic."""

    partial_channels: int = 8
    bits: int = 16
    network_io: bool = True
    excluded_traffic: bool = True

    name = "brr"
    singles_always_fit = True

    def refusal(self, network: Network, group: int) -> str | None:
        """Groups of several operators may not start with a pool, use a global pool's result, or mix resolutions."""
        operators = network.operators
        for node in bits_of(group):
            if operators[node].form.kind == "opaque":
                return operators[node].form.reason
        if not group & (group - 1):
            return None
        for node in bits_of(group):
            kind = operators[node].form.kind
            if kind in ("pool", "global_pool") and not network.predecessors[node] & group:
                return f"it starts with the pool {operators[node].name}"
            if kind == "global_pool":
                after = network.successors[node] & group
                if any(operators[later].op not in _RESHAPES for later in bits_of(after)):
                    return f"it needs the whole map before {operators[node].name} answers"
        return None if _scales(network, group) is not None else "its branches shrink the image by different factors"

    def buffer_bytes(self, network: Network, group: int) -> int:
        """F_beta = rows held for one-row tiles + one filter of the largest operator, in bytes, for the better phase."""
        if self.refusal(network, group) is not None:
            return UNBOUNDED
        frame = _frame(network, group)
        return min(self._need(frame, full) for full in (True, False))

    def dram_bytes(self, network: Network, group: int, capacity: int, excluded: int = 0) -> int:
        """F_D = tensors read and written + weights once for each tile, in bytes; `UNBOUNDED` when no phase fits."""
        if self.refusal(network, group) is not None:
            return UNBOUNDED
        tilings = self.tilings(network, group, capacity, excluded)
        return min((tiling.dram_bytes for tiling in tilings), default=UNBOUNDED)

    def fuseable(self, network: Network, node: int, capacity: int) -> bool:
        """Every operator with a streaming form is: alone it can be tiled as far as it takes."""
        return self.refusal(network, 1 << node) is None

    def tilings(self, network: Network, group: int, capacity: int, excluded: int = 0) -> list[Tiling]:
        """The ways in which a group that is not refused runs in a buffer of `capacity` bytes: one for each phase that fits.

        A single operator may instead hold a part of its filters and read its input again for each part.
        """
        read, written = traffic(
            network, group, excluded, network_io=self.network_io, excluded_traffic=self.excluded_traffic
        )
        frame, weights, single = _frame(network, group), weights_of(network, group), not group & (group - 1)
        found = []
        for full in (True, False):
            need = self._need(frame, full)
            if need >= capacity and not single:
                continue
            held = self.held(frame, 1, full)
            resident = bytes_for(held + weights, self.bits) <= capacity
            rows = frame.height if resident else self._tile_rows(frame, full, need, capacity)
            tiles = -(-frame.height // rows)
            moved, free = read + written + tiles * weights, capacity - bytes_for(held, self.bits)
            if single and weights and free > 0:
                parts = -(-bytes_for(weights, self.bits) // free)
                moved = min(moved, parts * read + written + weights)
            found.append(Tiling(full, rows, tiles, resident, need, bytes_for(moved, self.bits)))
        return found

    def held(self, frame: Frame, rows: int, full_first: bool) -> int:
        """Elements held while a tile of `rows` rows of the coarsest result passes."""
        total, heights = 0, frame.tile_heights(rows)
        for node, operator, out, depth, starts in frame.members:
            high, full = heights[node], (depth % 2 == 0) == full_first
            if operator.form.kind == "conv":
                total += (out.channels if full else min(out.channels, self.partial_channels)) * high * out.width
            elif starts and full:
                total += out.channels * high * out.width
            if starts and not full:
                for read in operator.reads:
                    source = frame.network.tensors[read.tensor]
                    total += source.channels * _reach(operator, high, source.height) * source.width
        return total

    def _need(self, frame: Frame, full_first: bool) -> int:
        largest = max(member.operator.form.filter_weights for member in frame.members)
        return bytes_for(self.held(frame, 1, full_first) + largest, self.bits)

    def _tile_rows(self, frame: Frame, full_first: bool, need: int, capacity: int) -> int:
        """The highest tile beside which one filter still has room, at least one row."""
        more = bytes_for(self.held(frame, 2, full_first) - self.held(frame, 1, full_first), self.bits)
        if need >= capacity:
            return 1
        return min(frame.height, (capacity - need) // more + 1 if more else frame.height)


class Member(NamedTuple):
    """One operator of a group: how many convolutions lie before it (`depth`), and whether it reads external tensors only."""

    node: int
    operator: Operator
    out: Tensor
    depth: int
    starts: bool


class Frame(NamedTuple):
    """A group laid out for tiling. `sinks` are the operators without consumers in the group, each with how many rows it makes for
    one row of the coarsest of them, whose height is `height`."""

    network: Network
    group: int
    members: tuple[Member, ...]
    sinks: tuple[tuple[int, Scale], ...]
    height: int

    def tile_heights(self, rows: int) -> dict[int, int]:
        """Rows of each operator's result that a tile of `rows` rows of the coarsest result needs."""
        heights = {node: math.ceil(scale * rows) for node, scale in self.sinks}
        for node, _, out, _, _ in reversed(self.members):
            after = self.network.successors[node] & self.group
            if after:
                operators = self.network.operators
                heights[node] = max(_reach(operators[v], heights[v], out.height) for v in bits_of(after))
            else:
                heights[node] = min(heights[node], out.height)
        return heights


def _frame(network: Network, group: int) -> Frame:
    steps = _scales(network, group)
    assert steps is not None
    depths: dict[int, int] = {}
    members, ends = [], []
    for node in bits_of(group):
        operator = network.operators[node]
        before = network.predecessors[node] & group
        depth = max((depths[v] for v in bits_of(before)), default=0)
        depths[node] = depth + 1 if before and operator.form.kind == "conv" else depth
        members.append(Member(node, operator, network.tensors[operator.writes[0]], depths[node], not before))
        if not network.successors[node] & group:
            ends.append(node)
    coarsest = max(steps[node] for node in ends)
    sinks = tuple((node, _over(coarsest, steps[node])) for node in ends)
    height = max(math.ceil(_over(network.tensors[network.operators[v].writes[0]].height, scale)) for v, scale in sinks)
    return Frame(network, group, tuple(members), sinks, height)


def _scales(network: Network, group: int) -> dict[int, Scale] | None:
    """By how much each operator's result is smaller than the first one's, as the product of strides; None when two paths
    disagree. Parts of a group that do not hang together are not compared."""
    found: dict[int, Scale] = {}
    for first in bits_of(group):
        if first in found:
            continue
        found[first] = 1
        stack = [first]
        while stack:
            node = stack.pop()
            here = found[node]
            before = _over(here, _stride(network, node))
            around = [(v, before) for v in bits_of(network.predecessors[node] & group)]
            around += [(v, here * _stride(network, v)) for v in bits_of(network.successors[node] & group)]
            for other, scale in around:
                if other not in found:
                    found[other] = scale
                    stack.append(other)
                elif found[other] != scale:
                    return None
    return found


def _stride(network: Network, node: int) -> Scale:
    """Input rows by which one row of the result moves the window; all of them where the whole map makes one pixel."""
    operator = network.operators[node]
    if operator.form.kind in ("global_pool", "flatten"):
        return network.tensors[operator.reads[0].tensor].height
    return _over(*operator.form.rows.stride)


def _over(a: Scale, b: Scale) -> Scale:
    """a / b, exactly; an integer where it is one, because integers are quicker."""
    if b == 1:
        return a
    ratio = Fraction(a) / b
    return ratio.numerator if ratio.denominator == 1 else ratio


def _reach(operator: Operator, rows: int, height: int) -> int:
    """Input rows, of `height`, that `rows` rows of the result need."""
    if operator.form.kind in ("global_pool", "flatten"):
        return height
    window = operator.form.rows
    across, each = window.stride
    return min(height, -(-(rows - 1) * across // each) + window.size)


_RESHAPES = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")

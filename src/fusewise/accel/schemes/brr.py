"""Buffer requirement reduction (BRR): tiles of whole rows pass through a group, and every other convolution is never held whole.

A tile of h rows of the last map is computed at a time, from as many rows of the maps before as its windows reach. Convolutions
alternate between FULL, where all output channels of the tile are held, and PARTIAL, where only a few are, which the next, FULL one
at once adds to its sums; depthwise convolutions and pooling work in place. Weights do not stay: they stream in once for each
tile, so fewer, higher tiles mean less traffic.

The model follows Cai et al., "Optimus" (as its public code has it), with the filter in flight charged to the buffer, and counts
besides what running it takes, exactly as `accel.simulate` runs it: rows that two tiles read come from DRAM twice, an input that
flows needs some room, and a partial result that a later join needs must be held. `accounting="published"` leaves these out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Literal, NamedTuple

from fusewise.accel.bits import bits_of
from fusewise.accel.network import Network, Operator, Tensor
from fusewise.accel.schemes.brr_run import GroupPhase, need_as_run, ways_as_run
from fusewise.accel.schemes.scheme import UNBOUNDED, bytes_for, traffic, weights_of
from fusewise.accel.schemes.tiles import Spread, layouts_of, leaving, rows_of

__all__ = ["BRR", "RESHAPES", "BrrTiling", "rows_read"]

Scale = int | Fraction


class BrrTiling(NamedTuple):
    """How a group runs: `full_first` is the phase of its first convolutions, `rows` how many rows of the coarsest result a
    tile has, `tiles` how many there are, `weights_once` whether all weights stay in the buffer.

    `buffer_bytes` is the need of one-row tiles, the least with which the group runs; `dram_bytes` what the tiles move. `parts`:
    into how many parts the filters of a single operator are split, each of which sees the whole input.
    """

    full_first: bool
    rows: int
    tiles: int
    weights_once: bool
    buffer_bytes: int
    dram_bytes: int
    parts: int = 1


@dataclass(frozen=True, slots=True)
class BRR:
    """Options: `partial_channels`, how many output channels a PARTIAL convolution holds (k0); `bits` of an element; whether
    the network's own inputs and outputs (`network_io`) and tensors exchanged with excluded operators only (`excluded_traffic`)
    count as DRAM traffic; `accounting`, whether need and traffic are what the published model says, or what running it takes."""

    partial_channels: int = 8
    bits: int = 16
    network_io: bool = True
    excluded_traffic: bool = True
    accounting: Literal["published", "executed"] = "executed"

    name = "brr"
    singles_always_fit = True

    def refusal(self, network: Network, group: int) -> str | None:
        """Groups of several operators may not start with a pool, use a global pool's result, or mix resolutions."""
        frame = frame_of(network, group)
        return frame if isinstance(frame, str) else None

    def buffer_bytes(self, network: Network, group: int) -> int:
        """F_beta = rows held for one-row tiles + one filter of the largest operator, in bytes, for the better phase."""
        frame = frame_of(network, group)
        if isinstance(frame, str):
            return UNBOUNDED
        if self.accounting == "executed":
            spread = cache(frame.spread)
            return min(need_as_run(network, group, self, layout, spread) for layout in layouts_of(network, group))
        heights = frame.tile_heights(1)
        held = min(self._held(frame, heights, full) for full in (True, False))
        return bytes_for(held + frame.largest_filter, self.bits)

    def dram_bytes(self, network: Network, group: int, capacity: int, excluded: int = 0) -> int:
        """F_D = tensors read and written + weights once for each tile, in bytes; `UNBOUNDED` when no phase fits."""
        tilings = self.tilings(network, group, capacity, excluded)
        return min((tiling.dram_bytes for tiling in tilings), default=UNBOUNDED)

    def fuseable(self, network: Network, node: int, capacity: int) -> bool:
        """Every operator with a streaming form is: alone it can be tiled as far as it takes."""
        return self.refusal(network, 1 << node) is None

    def tilings(self, network: Network, group: int, capacity: int, excluded: int = 0) -> list[BrrTiling]:
        """The ways in which a group runs in a buffer of `capacity` bytes: one for each phase that fits.

        A single operator always runs; it may instead hold a part of its filters and read its input again for each part.
        """
        frame = frame_of(network, group)
        if isinstance(frame, str):
            return []
        if self.accounting == "executed":
            spread = cache(frame.spread)
            layouts = zip((True, False), layouts_of(network, group), strict=True)
            phases = [GroupPhase(full, layout, spread, frame.height) for full, layout in layouts]
            return [
                BrrTiling(phase.full_first, *found)
                for phase in phases
                for found in ways_as_run(network, group, self, phase, capacity, excluded)
            ]
        read, written = traffic(
            network, group, excluded, network_io=self.network_io, excluded_traffic=self.excluded_traffic
        )
        weights, single, bits = weights_of(network, group), not group & (group - 1), self.bits
        one, two = frame.tile_heights(1), frame.tile_heights(2)
        found = []
        for full in (True, False):
            held = self._held(frame, one, full)
            need = bytes_for(held + frame.largest_filter, bits)
            if need >= capacity and not single:
                continue
            resident = bytes_for(held + weights, bits) <= capacity
            if resident:
                rows = frame.height
            else:
                rows = frame.most_rows(capacity - need, bytes_for(self._held(frame, two, full) - held, bits))
            tiles = -(-frame.height // rows)
            moved, free = read + written + tiles * weights, capacity - bytes_for(held, bits)
            if single and weights and free > 0:
                parts = -(-bytes_for(weights, bits) // free)
                moved = min(moved, parts * read + written + weights)
            found.append(BrrTiling(full, rows, tiles, resident, need, bytes_for(moved, bits)))
        return found

    def _held(self, frame: Frame, heights: dict[int, int], full_first: bool) -> int:
        """Elements held while a tile passes that needs so many rows of each operator's result."""
        total = 0
        for node, operator, out, depth, starts in frame.members:
            high, full = heights[node], (depth % 2 == 0) == full_first
            if operator.form.kind == "conv":
                total += (out.channels if full else min(out.channels, self.partial_channels)) * high * out.width
            elif starts and full:
                total += out.channels * high * out.width
            if starts and not full:
                for read in operator.reads:
                    source = frame.network.tensors[read.tensor]
                    total += source.channels * rows_read(operator, high, source.height) * source.width
        return total


class GroupMember(NamedTuple):
    """One operator of a group: how many convolutions lie before it (`depth`), and whether it reads external tensors only."""

    node: int
    operator: Operator
    out: Tensor
    depth: int
    starts: bool


class Frame(NamedTuple):
    """A group laid out for tiling.

    `sinks` are the operators without consumers in the group, each with how many rows it makes for one row of the coarsest of
    them, whose height is `height`; `largest_filter` is in elements. `ends` are the tensors of which every row is wanted, with how
    many of them a tile has for one row of the coarsest.
    """

    network: Network
    group: int
    members: tuple[GroupMember, ...]
    sinks: tuple[tuple[int, Scale], ...]
    height: int
    largest_filter: int
    ends: tuple[tuple[int, Scale], ...]

    def spread(self, rows: int) -> dict[int, Spread]:
        """The rows of every tensor that each tile of so many rows needs."""
        return rows_of(self.network, self.group, self.ends, self.height, rows)

    def tile_heights(self, rows: int) -> dict[int, int]:
        """Rows of each operator's result that a tile of `rows` rows of the coarsest result needs."""
        operators, successors = self.network.operators, self.network.successors
        heights = {node: math.ceil(scale * rows) for node, scale in self.sinks}
        for node, _, out, _, _ in reversed(self.members):
            after = successors[node] & self.group
            if after:
                heights[node] = max(rows_read(operators[v], heights[v], out.height) for v in bits_of(after))
            else:
                heights[node] = min(heights[node], out.height)
        return heights

    def most_rows(self, free: int, more: int) -> int:
        """The highest tile when `free` bytes are left beside one-row tiles and each row takes `more`; at least one row."""
        if free <= 0:
            return 1
        return min(self.height, free // more + 1) if more else self.height


def frame_of(network: Network, group: int) -> Frame | str:
    """The layout of a group, or why it cannot run."""
    depths: dict[int, int] = {}
    members, lasts, largest, several = [], [], 0, group & (group - 1) != 0
    for node in bits_of(group):
        operator = network.operators[node]
        form, before, after = operator.form, network.predecessors[node] & group, network.successors[node] & group
        if form.kind == "opaque":
            return form.reason
        if several and form.kind in ("pool", "global_pool"):
            if not before:
                return f"it starts with the pool {operator.name!r}"
            if form.kind == "global_pool" and any(network.operators[v].op not in RESHAPES for v in bits_of(after)):
                return f"it needs the whole map before {operator.name!r} answers"
        depth = max((depths[v] for v in bits_of(before)), default=-1)
        depths[node] = depth + 1 if form.kind == "conv" else max(depth, 0)
        members.append(GroupMember(node, operator, network.tensors[operator.writes[0]], depths[node], not before))
        largest = max(largest, form.filter_weights)
        if not after:
            lasts.append(node)
    steps = _scales(network, group)
    if steps is None:
        return "its branches shrink the image by different factors"
    coarsest = max(steps[node] for node in lasts)
    sinks = tuple((node, _over(coarsest, steps[node])) for node in lasts)
    height = max(math.ceil(_over(network.tensors[network.operators[v].writes[0]].height, scale)) for v, scale in sinks)
    ends = tuple((t, _over(coarsest, steps[network.tensors[t].producer])) for t in leaving(network, group))
    return Frame(network, group, tuple(members), sinks, height, largest, ends)


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


def rows_read(operator: Operator, rows: int, height: int) -> int:
    """Input rows, of `height`, that `rows` rows of the result need."""
    if operator.form.kind in ("global_pool", "flatten"):
        return height
    window = operator.form.rows
    across, each = window.stride
    return min(height, -(-(rows - 1) * across // each) + window.size)


RESHAPES = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")
"""Operators that may read a global pool's result in its group: they move nothing."""

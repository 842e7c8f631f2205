"""What a convolution as a product is to the loops: what is read where, which tiles suit it, how rows are dealt out.

Output pixels are the rows of the product, output channels its columns, and it is reduced over taps and channels. Output pixels are
flattened, so small maps fill tiles across row ends. Where no tap leaves the input, the tile reads it in place (a 1x1 convolution is
then a matrix product); otherwise padded rows are copied into a strip first (`convolution.strip`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from itertools import product as pairs

from fusewise.codegen.cost import step_cycles
from fusewise.codegen.families.convolution.shape import Convolution
from fusewise.codegen.families.convolution.strip import BlockCopy, strip_of
from fusewise.codegen.families.product.dealing import TileBlocks
from fusewise.codegen.families.product.plan import (
    Product,
    ProductSchedule,
    RowAxis,
    is_long,
    plan_product,
    prefetched,
    tiles_for,
)
from fusewise.codegen.families.product.tiles import widths
from fusewise.codegen.kernel import Prefetch, Sharing
from fusewise.codegen.llvm.accumulate import CHAIN
from fusewise.codegen.llvm.stores import joined_axis
from fusewise.codegen.nest.instruction import FMA_LATENCY, FUSED
from fusewise.codegen.nest.tile import Tile
from fusewise.codegen.target import LINE_BYTES, InstructionSet, Target
from fusewise.ir.deciding import known_below
from fusewise.ir.dtypes import FLOAT32
from fusewise.lower.task import Task
from fusewise.records import record

__all__ = [
    "Direct",
    "DirectSchedule",
    "Directs",
    "direct_schedules",
    "direct_sharing",
    "directs_of",
    "favourite",
    "readers",
    "scheduled",
    "within_cache",
]


@record(frozen=True)
class Direct:
    """A convolution as a product. `strip` is None when the input is read in place.

    `clipped` reads in place too, and skips the taps of the outermost of three axes that lie outside. `by_tap` reads in place
    tap after tap, with zeros for the rows of a tile whose tap lies outside.

    `side_by_side` groups are computed in one vector, each lane reading the
    channels of its own group. The product's groups are the convolution's, over again for each phase. `free`: sizes are not known,
    also where schedules are made for some.
    """

    shape: Convolution
    product: Product
    strip: BlockCopy | None
    side_by_side: int
    clipped: bool = False
    by_tap: bool = False
    free: bool = False

    @property
    def turn_pitch(self) -> int:
        """Elements from the first input channel of a turn to that of the next, where the tile reads it."""
        channels = self.shape.inputs * self.side_by_side
        if self.strip is None:
            return channels * self.shape.data.strides[1]
        together = self.strip.together
        return channels if together > channels else channels // together * self.strip.plane_pitch

    @property
    def turns(self) -> int:
        """Product groups of one phase."""
        return self.shape.groups // self.side_by_side


Directs = tuple[Direct, ...]
"""The product that a convolution is, group by group; and, where they fill a vector, that of several groups side by side."""


@record(frozen=True)
class DirectSchedule:
    """The schedule of the product. `side_by_side` says which of the products it is, with `sliding` its tile slides along the row
    (`convolution.taps`)."""

    product: ProductSchedule
    side_by_side: int = 1
    sliding: bool = False

    @property
    def rows(self) -> int:
        """Of a block."""
        return self.product.per_block * self.product.tile.rows

    def with_prefetch(self, prefetch: Prefetch) -> DirectSchedule:
        return replace(self, product=replace(self.product, prefetch=prefetch))


def directs_of(shape: Convolution, task: Task, instructions: InstructionSet, phases: int = 1) -> Directs:
    """The products that a convolution is."""
    widest = max(1, instructions.vector_bits // _bits(shape))
    choices = dict.fromkeys((1, _side_by_side(shape, widest)))
    return tuple(_direct(shape, task, phases, together) for together in choices)


def scheduled(directs: Directs, schedule: DirectSchedule) -> Direct:
    """The one that a schedule is for."""
    return next(d for d in directs if d.side_by_side == schedule.side_by_side)


def favourite(directs: Directs, target: Target) -> Direct:
    """The one that is faster: groups are side by side unless one of them keeps as many multipliers busy."""
    shape, size = directs[0].shape, _bits(directs[0].shape)
    widest = max(1, target.vector_bits // size)
    is_full = target.multiplies(shape.outputs * size) * shape.outputs >= target.multiplies(widest * size) * widest
    return directs[0] if is_full else directs[-1]


def _bits(shape: Convolution) -> int:
    """Of an accumulator."""
    return shape.instruction.sum.bits


def _direct(shape: Convolution, task: Task, phases: int, together: int) -> Direct:
    outside = [k for k, axis in enumerate(shape.spatial) if not axis.is_inside]
    clipped = shape.computed is None and outside == [0] and len(shape.spatial) == 3
    by_tap = bool(outside) and not clipped and shape.is_sparse
    in_place = shape.computed is None and (not outside or clipped or by_tap)
    strip = None if in_place else strip_of(shape, together if _is_by_groups(shape, together) else None)
    outer = [("i0", shape.batch), *((name, 1) for name in shape.fixed)]
    if strip is None:
        axes = [
            RowAxis(name, axis.out, axis.stride * stride)
            for name, axis, stride in zip(shape.out_axes, shape.spatial, shape.data.strides[2:], strict=True)
        ]
        if clipped:
            outer.append((axes[0].name, axes[0].extent))
            axes = axes[1:]
        elif not known_below(shape.batch, 2) and not by_tap:
            outer, axes = [], [RowAxis("i0", shape.batch, shape.data.strides[0]), *axes]
    else:
        axes = list(strip.axes())
        if strip.slice_name is not None:
            outer.append((strip.slice_name, strip.slices.out))
    product = Product(
        outer=tuple(outer),
        rows=tuple(axes),
        column="i1",
        columns=shape.outputs * together,
        depth=shape.taps * shape.inputs,
        groups=phases * (shape.groups // together),
        joined=joined_axis(task, [(axis.name, axis.extent) for axis in axes]) if phases == 1 else None,
        dtype=shape.dtype,
        instruction=shape.instruction,
    )
    return Direct(shape, product, strip, together, clipped, by_tap, shape.is_free)


def _is_by_groups(shape: Convolution, together: int) -> bool:
    """Do pixels lie group by group in the strip? Not where that is many small copies, or large ones that do as well in one."""
    together_bytes = together * shape.inputs * shape.dtype.itemsize
    is_small = LINE_BYTES <= together_bytes <= 4 * LINE_BYTES
    return is_small and together < shape.groups and shape.computed is None and not shape.planar


def _side_by_side(shape: Convolution, lanes: int) -> int:
    """How many narrow groups share a vector: their outputs fill it exactly, and so do their inputs, side by side."""
    if shape.groups == 1 or shape.planar or shape.inputs != shape.outputs or shape.outputs >= lanes:
        return 1
    if shape.instruction.rows > 1:  # each row has a scalar for all lanes
        return 1
    together = lanes // shape.outputs
    return together if lanes % shape.outputs == 0 and shape.groups % together == 0 else 1


def direct_schedules(directs: Directs, task: Task, target: Target, most: int | None = 6) -> Iterable[DirectSchedule]:
    """Schedules worth trying, so many at most, the analytic favourite first."""
    d, target = favourite(directs, target), directs[0].shape.instruction.room(target)
    size, bits = d.shape.dtype.itemsize, _bits(d.shape)
    lanes = (
        widths(target, d.shape.outputs, d.shape.instruction)
        if d.side_by_side == 1
        else (max(1, target.vector_bits // bits),)
    )
    right_bytes = d.product.groups * d.product.depth * d.product.columns * max(4, size)
    if d.strip is None:
        # taps read the same inputs again, a stride apart
        row_bytes = d.shape.channels * size * math.prod(min(axis.stride, axis.kernel) for axis in d.shape.spatial)
    else:
        row_bytes = d.strip.channels * size * d.strip.slices.kernel * d.strip.rows.stride * d.strip.columns.stride
    reserved = d.shape.inputs if d.side_by_side > 1 else 0
    tiles = tiles_for(d.product, target, lanes, reserved)[:most]
    slides = _sliding_tile(d, tiles[0], target)
    for tile in tiles if slides is None else [slides, *tiles][:most]:
        schedule = plan_product(d.product, target, tile, row_bytes, right_bytes)
        if d.strip is not None:
            schedule = within_cache(d.strip, schedule, target)
        if tile is not slides:
            schedule = replace(schedule, chunk=_chunk(d, schedule, target))
        yield DirectSchedule(prefetched(schedule, d.product, task, target), d.side_by_side, tile is slides)


def _sliding_tile(d: Direct, plain: Tile, target: Target) -> Tile | None:
    """The tile to slide with, see `convolution.taps`, where that takes fewer cycles than `plain` by the count of what a step
    takes."""
    strip, product = d.strip, d.product
    if strip is None or strip.planar or strip.slices.kernel > 1 or strip.columns.kernel == 1 or d.free:
        return None
    if not strip.slices.is_inside:  # a slice of padding has no taps
        return None
    if product.instruction != FUSED or product.dtype != FLOAT32 or product.depth > CHAIN or strip.columns.stride > 1:
        return None
    lanes, out, kernel = plain.lanes, strip.columns.out, strip.columns.kernel

    def cycles(tile: Tile, taps: int, reads: int) -> float:
        """Of a tap and a channel of all tiles, where a step does `taps` of them."""
        adds, loads = taps * tile.rows * tile.vectors, reads + taps * tile.vectors
        shuffles = reads if d.side_by_side > 1 else 0
        step = step_cycles(target, adds + shuffles, loads, lanes * 32, taps * FMA_LATENCY, is_filled=True)
        panels = -(-product.columns // tile.width)
        return step * panels * -(-product.height // tile.rows) / taps

    found = [
        Tile(rows, vectors, lanes)
        for rows in range(2, target.registers)
        for vectors in range(1, -(-product.columns // lanes) + 1)
        if out % rows == 0 and (rows + kernel) * vectors + 2 <= target.registers
    ]
    best = min(found, key=lambda tile: cycles(tile, kernel, len(readers(strip, tile.rows))), default=None)
    if best is None or cycles(best, kernel, len(readers(strip, best.rows))) >= cycles(plain, 1, plain.rows):
        return None
    return best


def readers(strip: BlockCopy, rows: int) -> dict[int, list[tuple[int, int]]]:
    """Inputs along a row, from the first of a tile on, and which (row of the tile, tap) read each."""
    axis, found = strip.columns, dict[int, list[tuple[int, int]]]()
    for row, tap in pairs(range(rows), range(axis.kernel)):
        found.setdefault(row * axis.stride + tap * axis.dilation, []).append((row, tap))
    return dict(sorted(found.items()))


def _chunk(d: Direct, schedule: ProductSchedule, target: Target) -> int:
    """Steps of a chunk of the reduction, a row of taps, where all tiles share panels that are too long for the caches; else 0."""
    strip, shape, tile = d.strip, d.shape, schedule.tile
    if strip is None or shape.planar or shape.dtype != FLOAT32 or (shape.batch, d.product.groups) != (1, 1) or d.free:
        return 0
    tiles = -(-d.product.height // tile.rows)
    if (
        tiles < target.figures.sharing.least_tiles
        or schedule.per_block < tiles
        or not is_long(d.product.depth * tile.width * 4, target)
    ):
        return 0
    return d.product.depth // strip.rows.kernel if len(shape.spatial) == 2 < strip.rows.kernel else 0


def direct_sharing(directs: Directs, schedule: DirectSchedule) -> Sharing | None:
    """How rows are dealt out where the input is read in place, as `deal` and `deal_tiles` do it."""
    d = scheduled(directs, schedule)
    shape, product, tile = d.shape, d.product, schedule.product.tile
    if d.free or d.strip is not None or d.clipped or d.by_tap or len(shape.spatial) != 2 or shape.batch > 1:
        return None
    tiles = -(-product.height // tile.rows)
    cut = TileBlocks(tiles, schedule.product.per_block)
    if schedule.product.by_columns or cut.blocks == 1 or product.repeats > 1 or product.groups > 1:
        return None
    panels, (down, along) = -(-product.columns // tile.width), shape.spatial

    def block(number: int, shares: int) -> tuple[int, bool]:
        """The block in which a share begins, and does it begin with it?"""
        at = number * tiles * panels // shares
        which = ((at // panels + 1) * cut.blocks - 1) // tiles
        return which, at == cut.first(which) * panels

    def done(number: int, shares: int) -> int:
        return cut.first(block(number, shares)[0]) * tile.rows // along.out if number < shares else down.out

    def begun(number: int, shares: int) -> int:
        which, whole = block(number, shares)
        return min(down.out, -(-cut.first(which if whole else which + 1) * tile.rows // along.out))

    def reads(number: int, shares: int) -> tuple[int, int]:
        return 0, down.extent

    return Sharing(product.written, done, begun, reads)


def within_cache(strip: BlockCopy, schedule: ProductSchedule, target: Target) -> ProductSchedule:
    """Fewer tiles to a block when the strip, with the rows it spans at its ends, would not fit the cache it should."""
    rows, tiles = schedule.tile.rows, schedule.per_block
    room = target.l3_bytes // 8 if schedule.by_columns else target.l2_bytes * 5 // 8
    while tiles > 1 and strip.elements(tiles * rows) * strip.dtype.itemsize > room:
        shorter = tiles * 7 // 8
        if strip.height(shorter * rows) < 2 * strip.rows.reach and strip.rows.reach > strip.rows.stride:
            break
        tiles = shorter
    return replace(schedule, per_block=tiles)

"""Convolutions as products of output pixels and output channels, reduced over taps and channels.

Takes the geometry of a convolution (`conv_shape`); gives the product, its parameters, arguments and loops. Output pixels are
flattened, so small maps fill tiles across row ends. Where no tap leaves the input, the tile reads it in place (a 1x1
convolution is then a matrix product); otherwise padded rows are copied into a strip first (`conv_strip`).

A transposed convolution is the same with several `phases`: sets of output channels over the same input.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fusewise.codegen.kernel import Argument, Params, working_memory
from fusewise.codegen.llvm.conv_shape import Convolution
from fusewise.codegen.llvm.conv_strip import Strip, emit_strip, existing_taps, joined_levels, strip_of
from fusewise.codegen.llvm.conv_taps import sliding, sliding_tile, tap_by_tap
from fusewise.codegen.llvm.elements import Elements
from fusewise.codegen.llvm.emit import Function, Int, Value
from fusewise.codegen.llvm.gemm_entry import initial, operand_arguments, scratch_of
from fusewise.codegen.llvm.gemm_finish import Finish, is_heavy, joined_axis
from fusewise.codegen.llvm.gemm_plan import LEAST_SHARING, Axis, Product, is_long, plan_product, tile_of, tiles_for
from fusewise.codegen.llvm.gemm_product import Left, Parts, Taps, emit_product
from fusewise.codegen.llvm.gemm_share import Blocks
from fusewise.codegen.llvm.gemm_tile import Level, Panel, Tile, lanes_for, widths
from fusewise.codegen.llvm.pairs import BFLOAT_PAIR
from fusewise.codegen.llvm.registers import computed
from fusewise.codegen.packing import Axes, packed, panels, panels_of
from fusewise.codegen.strips import Sharing
from fusewise.codegen.target import LINE_BYTES, Target, whole_lines
from fusewise.ir.dtypes import FLOAT32, FLOAT64
from fusewise.lower.task import Task

__all__ = [
    "Direct",
    "Fill",
    "Line",
    "direct_arguments",
    "direct_of",
    "direct_sharing",
    "direct_space",
    "emit_direct",
    "matrices",
    "matrix_axes",
    "padded_rows",
    "within_cache",
]


Fill = Callable[[Int], Callable[[Value, Int, Int], None]]
"""`fill(batch)(target, slice, row)` writes one row of the strip."""

Line = Callable[[Mapping[str, Int], Value, int], None]
"""`line(indices, target, width)` writes the pixels of a row."""


@dataclass(frozen=True)
class Direct:
    """A convolution as a product. `strip` is None when the input is read in place.

    `clipped` reads in place too, and skips the taps of the outermost of three axes that lie outside. `by_tap` reads in place
    tap after tap, with zeros for the rows of a tile whose tap lies outside.

    `lanes` are the widths of vectors worth trying. `side_by_side` groups are computed in one vector, each lane reading the
    channels of its own group. The product's groups are the convolution's, over again for each phase.
    """

    shape: Convolution
    product: Product
    strip: Strip | None
    lanes: tuple[int, ...]
    side_by_side: int
    clipped: bool = False
    by_tap: bool = False

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


def direct_of(shape: Convolution, task: Task, target: Target, phases: int = 1) -> Direct:
    """The product that a convolution is."""
    outside = [k for k, axis in enumerate(shape.spatial) if not axis.is_inside]
    clipped = shape.computed is None and outside == [0] and len(shape.spatial) == 3
    by_tap = bool(outside) and not clipped and shape.is_sparse
    size = 64 if shape.dtype == FLOAT64 else 32
    widest = max(1, target.vector_bits // size)
    lanes = widths(target, shape.outputs, size)
    is_full = target.multiplies(shape.outputs * size) * shape.outputs >= target.multiplies(widest * size) * widest
    together = 1 if is_full else _side_by_side(shape, widest)
    in_place = shape.computed is None and (not outside or clipped or by_tap)
    strip = None if in_place else strip_of(shape, together if _is_by_groups(shape, together) else None)
    outer = [("i0", shape.batch), *((name, 1) for name in shape.fixed)]
    if strip is None:
        axes = [
            Axis(name, axis.out, axis.stride * stride)
            for name, axis, stride in zip(shape.out_axes, shape.spatial, shape.data.strides[2:], strict=True)
        ]
        if clipped:
            outer.append((axes[0].name, axes[0].extent))
            axes = axes[1:]
        elif shape.batch > 1 and not by_tap:
            outer, axes = [], [Axis("i0", shape.batch, shape.data.strides[0]), *axes]
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
    )
    return Direct(shape, product, strip, lanes if together == 1 else (widest,), together, clipped, by_tap)


def _is_by_groups(shape: Convolution, together: int) -> bool:
    """Do pixels lie group by group in the strip? Not where that is many small copies, or large ones that do as well in one."""
    together_bytes = together * shape.inputs * shape.dtype.itemsize
    is_small = LINE_BYTES <= together_bytes <= 4 * LINE_BYTES
    return is_small and together < shape.groups and shape.computed is None and not shape.planar


def _side_by_side(shape: Convolution, lanes: int) -> int:
    """How many narrow groups share a vector: their outputs fill it exactly, and so do their inputs, side by side."""
    if shape.groups == 1 or shape.planar or shape.inputs != shape.outputs or shape.outputs >= lanes:
        return 1
    together = lanes // shape.outputs
    return together if lanes % shape.outputs == 0 and shape.groups % together == 0 else 1


def direct_space(d: Direct, target: Target) -> Iterable[Params]:
    """Parameters worth trying, the analytic favourite first."""
    size = d.shape.dtype.itemsize
    right_bytes = d.product.groups * d.product.depth * d.product.columns * max(4, size)
    if d.strip is None:
        # taps read the same inputs again, a stride apart
        row_bytes = d.shape.channels * size * math.prod(min(axis.stride, axis.kernel) for axis in d.shape.spatial)
    else:
        row_bytes = d.strip.channels * size * d.strip.slices.kernel * d.strip.rows.stride * d.strip.columns.stride
    reserved = d.shape.inputs if d.side_by_side > 1 else 0
    tiles = tiles_for(d.product, target, d.lanes, reserved)[:6]
    slides = sliding_tile(d.shape, d.strip, d.side_by_side, d.product, tiles[0], target)
    for tile in tiles if slides is None else [slides, *tiles[:5]]:
        params = plan_product(d.product, target, tile, row_bytes, right_bytes)
        if d.strip is not None:
            params = within_cache(d.strip, params, target)
        if tile is slides:
            yield {**params, "sliding": True}
            continue
        yield {**params, "chunk": chunk} if (chunk := _chunk(d, tile, params, target)) else params


def _chunk(d: Direct, tile: Tile, params: Params, target: Target) -> int:
    """Steps of a chunk of the reduction, a row of taps, where all tiles share panels that are too long for the caches; else 0."""
    strip, shape = d.strip, d.shape
    if strip is None or shape.planar or shape.dtype != FLOAT32 or (shape.batch, d.product.groups) != (1, 1):
        return 0
    tiles = -(-d.product.height // tile.rows)
    if tiles < LEAST_SHARING or int(params["tiles"]) < tiles or not is_long(d.product.depth * tile.width * 4, target):
        return 0
    return d.product.depth // strip.rows.kernel if len(shape.spatial) == 2 < strip.rows.kernel else 0


def direct_sharing(d: Direct, params: Params) -> Sharing | None:
    """How rows are dealt out where the input is read in place, as `deal` and `deal_tiles` do it."""
    shape, product, tile = d.shape, d.product, tile_of(params, computed(d.shape.dtype))
    if d.strip is not None or d.clipped or d.by_tap or len(shape.spatial) != 2 or shape.batch > 1:
        return None
    tiles = -(-product.height // tile.rows)
    cut = Blocks(tiles, int(params["tiles"]))
    if params["split"] != "blocks" or cut.blocks == 1 or product.repeats > 1 or product.groups > 1:
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


def within_cache(strip: Strip, params: Params, target: Target) -> Params:
    """Fewer tiles to a block when the strip, with the rows it spans at its ends, would not fit the cache it should."""
    rows, tiles = int(params["rows"]), int(params["tiles"])
    room = target.l3_bytes // 8 if params["split"] == "columns" else target.l2_bytes * 5 // 8
    while tiles > 1 and strip.elements(tiles * rows) * strip.dtype.itemsize > room:
        shorter = tiles * 7 // 8
        if strip.height(shorter * rows) < 2 * strip.rows.reach and strip.rows.reach > strip.rows.stride:
            break
        tiles = shorter
    return {**params, "tiles": tiles}


def direct_arguments(
    d: Direct,
    task: Task,
    params: Params,
    arrange: Callable[[np.ndarray], np.ndarray],
    recipe: str,
    axes: tuple[Axes, Axes, tuple[int, int]] | None = None,
) -> tuple[Argument, ...]:
    """Operands, packed weights and scratch; `arrange` gives the weights as [product group, depth, columns].

    `axes` are those of the weights in that order, where they have strides.
    """
    tile = tile_of(params, computed(d.shape.dtype))
    element = np.float64 if tile.element == "double" else np.float32

    def pack(weight: np.ndarray) -> np.ndarray:
        wide = weight if d.shape.dtype == BFLOAT_PAIR else weight.astype(element, copy=False)
        return panels(arrange(wide), tile.lanes, tile.vectors)

    order = "planar" if d.shape.planar else "channels last"
    name = (
        f"{recipe} panels {tile.vectors}x{tile.lanes} {tile.element} groups {d.shape.groups}/{d.side_by_side} {order}"
    )
    data = None if axes is None else panels_of(d.shape.weight, *axes, tile.lanes, tile.vectors)
    extra = [Argument(d.shape.weight.operand.name, packed(d.shape.weight, name, pack, data))]
    if d.strip is not None:
        kept = d.product.kept(tile) * 4 if "chunk" in params else 0
        extra.append(working_memory(_strip_bytes(d, d.strip, params) + kept))
    if "later" in params:
        extra.append(Argument("later"))
    return operand_arguments(task, extra)


def _strip_bytes(d: Direct, strip: Strip, params: Params) -> int:
    """What the rows of a block take."""
    return whole_lines(strip.elements(int(params["tiles"]) * int(params["rows"])) * d.shape.dtype.itemsize)


def matrices(weight: np.ndarray, shape: Convolution, together: int) -> np.ndarray:
    """Weights [outputs, inputs, taps...] as [product group, depth, columns], the depth in the order the tile reduces it.

    With groups side by side, the columns of `together` groups stand next to each other; at each step every group is at the
    same channel of its own.
    """
    rank = len(shape.spatial)
    turns = shape.groups // together
    grouped = weight.reshape(turns, together, shape.outputs, shape.inputs, *weight.shape[2:])
    taps = list(range(4, 4 + rank))
    depth = [*taps[:-1], 3, taps[-1]] if shape.planar else [*taps, 3]
    ordered = grouped.transpose(0, *depth, 1, 2)
    return ordered.reshape(turns, shape.taps * shape.inputs, together * shape.outputs)


def matrix_axes(shape: Convolution, together: int) -> tuple[Axes, Axes, tuple[int, int]]:
    """The axes of what `matrices` gives, (extent, stride) in the constant: product groups, depth, columns."""
    first, inputs, *taps = shape.weight.strides
    columns = together * shape.outputs
    along = [(axis.kernel, stride) for axis, stride in zip(shape.spatial, taps, strict=True)]
    channels = (shape.inputs, inputs)
    depth = (*along[:-1], channels, along[-1]) if shape.planar else (*along, channels)
    return ((shape.groups // together, columns * first),), depth, (columns, first)


def emit_direct(
    f: Function,
    d: Direct,
    task: Task,
    target: Target,
    params: Params,
    arguments: Sequence[Argument],
    pointers: Mapping[str, Value],
    worker: Value,
    workers: Value,
    finish: Finish,
    fill: Fill | None = None,
    pad: Value | None = None,
    adapt: Callable[[Parts], Parts] = lambda parts: parts,
) -> None:
    """The loops of a direct convolution; `fill` writes the rows of the strip, by default what the input or its element says.

    Bytes of the strip outside the input are `pad`, by default 0. `adapt` may replace what the loops do, such as the reduction.
    """
    shape, product, strip = d.shape, d.product, d.strip
    tile = tile_of(params, computed(shape.dtype))
    in_group = -(-product.columns // tile.width)
    stored = BFLOAT_PAIR if shape.dtype == BFLOAT_PAIR else None
    weights = pointers[shape.weight.operand.name]
    if fill is None and strip is not None and shape.computed is not None:
        fill = _computed_rows(f, shape, strip, Elements(f, task, target, pointers))
    scratch = None if strip is None else scratch_of(f, pointers, arguments, worker)

    def left(outer: Sequence[Int], first: Int, last: Int) -> Left:
        if strip is None or scratch is None:
            base = f.add(shape.data.offset, f.mul(outer[0] if outer else 0, shape.data.strides[0]))
            low: Int = 0
            high: Int | None = None
            if d.clipped:
                slices, stride = shape.spatial[0], shape.data.strides[2]
                low, high = existing_taps(f, slices, outer[1])
                base = f.add(base, f.mul(f.sub(f.mul(outer[1], slices.stride), slices.before), stride))
            return Left(pointers[shape.data.operand.name], base, _levels_in_place(d, low, high))
        return _strip_block(f, d, strip, tile, params, pointers, fill, outer, first, last, scratch, pad)

    def right(outer: Sequence[Int], group: Int, panel: Int, columns: Sequence[Int]) -> Panel:
        number = f.add(f.mul(group, in_group), panel)
        first = f.at(weights, f.mul(number, product.depth * tile.width), tile.element)
        columns_at = tuple(f.at(first, v * tile.lanes, tile.element) for v in range(tile.vectors))
        return Panel(columns_at, tile.width, stored, f.at(first, product.depth * tile.width, tile.element))

    def start(outer: Sequence[Int], columns: Sequence[Int]) -> list[Value]:
        count = min(tile.lanes, product.columns)
        return initial(f, target, pointers, shape.bias, columns, tile.lanes, count, tile.element)

    def group_at(group: Int) -> tuple[Int, Int]:
        turn = 0 if d.turns == 1 else f.urem(group, d.turns) if d.turns < product.groups else group
        return f.mul(turn, d.turn_pitch), f.mul(turn, product.columns)

    kept = None
    if strip is not None and scratch is not None and "chunk" in params:
        kept = f.at(scratch, _strip_bytes(d, strip, params), "i8")
    parts = Parts(
        left,
        right,
        start,
        finish,
        rolled_finish=is_heavy(task),
        group_at=group_at,
        taps=_taps(f, d, target, params),
        together=d.side_by_side,
        kept=kept,
        later=pointers.get("later"),
    )
    emit_product(f, target, product, params, worker, workers, adapt(parts))


def _taps(f: Function, d: Direct, target: Target, params: Params) -> Taps | None:
    """What replaces the nest of loops over a tile's taps and channels, if anything."""
    if "sliding" in params:
        assert d.strip is not None
        return sliding(f, d.shape, d.strip, d.side_by_side, d.product, target)
    return tap_by_tap(f, d.shape, d.side_by_side, target) if d.by_tap else None


def _levels_in_place(d: Direct, low: Int, high: Int | None) -> tuple[Level, ...]:
    """The reduction when taps and channels are read where the input lies."""
    strides = d.shape.data.strides
    taps = [
        Level(axis.kernel, axis.dilation * stride) for axis, stride in zip(d.shape.spatial, strides[2:], strict=True)
    ]
    taps[0] = Level(taps[0].extent, taps[0].stride, low, high)
    channel = Level(d.shape.inputs, strides[1])
    order = [*taps[:-1], channel, *taps[-1:]] if d.shape.planar else [*taps, channel]
    return _kept_inner(joined_levels(order), channel, d.side_by_side)


def _kept_inner(levels: tuple[Level, ...], channel: Level, together: int) -> tuple[Level, ...]:
    """With groups side by side the channels of a group stay a level of their own, the innermost."""
    if together == 1 or levels[-1].extent == channel.extent:
        return levels
    if channel.extent == 1:
        return (*levels, channel)
    assert levels[-1].extent % channel.extent == 0
    return (*levels[:-1], Level(levels[-1].extent // channel.extent, channel.extent * channel.stride), channel)


def _strip_block(
    f: Function,
    d: Direct,
    strip: Strip,
    tile: Tile,
    params: Params,
    pointers: Mapping[str, Value],
    fill: Fill | None,
    outer: Sequence[Int],
    first: Int,
    last: Int,
    scratch: Value,
    pad: Value | None,
) -> Left:
    """Copy the rows of a block and say where its outputs find them."""
    shape = d.shape
    slice_pitch = strip.height(int(params["tiles"]) * tile.rows) * strip.row_pitch
    slice_at: Int = outer[1] if len(outer) > 1 else 0
    width = strip.columns.out
    top, bottom = f.udiv(first, width), f.udiv(last, width)
    base = f.add(shape.data.offset, f.mul(outer[0], shape.data.strides[0]))
    row = None if fill is None else fill(outer[0])
    source = scratch if row is not None else pointers[shape.data.operand.name]
    low, high = emit_strip(f, strip, source, base, scratch, slice_pitch, slice_at, top, bottom, row, pad)
    whole = strip.slices.kernel == 1 and strip.slices.is_inside
    levels = strip.levels(shape.inputs, slice_pitch, 0 if whole else low, None if whole else high)
    channel = Level(shape.inputs, strip.channel_pitch)
    offset = f.mul(top, -strip.rows.stride * strip.row_pitch)
    return Left(scratch, offset, _kept_inner(levels, channel, d.side_by_side))


def _computed_rows(f: Function, shape: Convolution, strip: Strip, elements: Elements) -> Fill:
    """Writes padded rows of the strip by evaluating what was fused in front of the convolution."""
    element = shape.computed
    assert element is not None
    lanes = lanes_for(elements.target, shape.channels)
    lanes = lanes if shape.channels >= lanes else 1

    along = f"p{len(shape.spatial) + 1}"

    def line(indices: Mapping[str, Int], at: Value, width: int) -> None:
        def pixel(w: Value, _: Sequence[Value]) -> None:
            def channels(c: Value, _: Sequence[Value]) -> None:
                channel = c if shape.channels % lanes == 0 else f.minimum(c, shape.channels - lanes)
                value = elements.at({along: w, **indices, "p1": channel}, "p1", lanes).value(element)
                f.store(value, f.at(at, f.add(f.mul(w, shape.channels), channel)))

            f.loop(0, shape.channels, lanes, channels, rolled=True)

        f.loop(0, width, 1, pixel, rolled=True)

    return padded_rows(f, shape, strip, line)


def padded_rows(f: Function, shape: Convolution, strip: Strip, line: Line, pad: Value | None = None) -> Fill:
    """Writes rows of the strip with their padding; `line(indices, at, width)` writes all channels of `width` input pixels.

    The pixels run along the last of p0, p2, ..., which is missing from the indices where it is the width. Padding is bytes of 0
    or `pad`.
    """
    left = min(strip.columns.before, strip.columns.covered)
    width = max(0, min(strip.columns.extent, strip.columns.covered - left))
    right = strip.columns.covered - left - width
    names = [f"p{k + 2}" for k in range(len(shape.spatial))]

    def fill(batch: Int) -> Callable[[Value, Int, Int], None]:
        def row(at: Value, depth: Int, height: Int) -> None:
            inner = f.at(at, left * shape.channels)
            if left:
                f.clear(at, left * shape.channels * 4, byte=pad)
            if right:
                f.clear(f.at(inner, width * shape.channels), right * shape.channels * 4, byte=pad)
            # a signal lies along the rows of the strip, see `strip_of`
            known = [height] if strip.row_names[1] is None else [depth, height][3 - len(names) :]
            line({"p0": batch, **dict(zip(names, known, strict=False))}, inner, width)

        return row

    return fill

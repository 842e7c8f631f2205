"""Convolutions with constant weights: a register tile of output pixels by output channels, reduced over taps and channels.

Takes a task whose anchor is Conv, of any rank, stride, dilation, padding and number of groups; gives LLVM IR. Output pixels are
flattened, so small maps fill tiles across row ends. Where no tap leaves the input, the tile reads it in place (a 1x1
convolution is then a matrix product); otherwise padded rows are copied into a strip first (`conv_strip`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from fusewise.codegen.kernel import Argument, Kernel, Params
from fusewise.codegen.llvm.conv_shape import Convolution, convolution_of
from fusewise.codegen.llvm.conv_strip import Strip, emit_strip, joined_levels, strip_of
from fusewise.codegen.llvm.emit import Function, Int, Value
from fusewise.codegen.llvm.gemm_entry import enter, initial, operand_arguments, scratch_of
from fusewise.codegen.llvm.gemm_finish import finisher, is_heavy, joins
from fusewise.codegen.llvm.gemm_product import Axis, Left, Product, emit_product, plan_product, tile_of, tiles_for
from fusewise.codegen.llvm.gemm_tile import Level, Panel, Tile, lanes_for
from fusewise.codegen.llvm.registers import computed
from fusewise.codegen.packing import packed, panels
from fusewise.codegen.target import Target
from fusewise.ir.dtypes import FLOAT64
from fusewise.lower.task import Reason, Task

__all__ = ["DIRECT"]


@dataclass(frozen=True)
class Direct:
    """A convolution as a product. `strip` is None when the input is read in place.

    `side_by_side` groups are computed in one vector, each lane reading the channels of its own group.
    """

    shape: Convolution
    product: Product
    strip: Strip | None
    lanes: int
    side_by_side: int

    @property
    def planar(self) -> bool:
        strides = self.shape.data.strides
        return strides[1] != 1 and self.shape.channels > 1

    @property
    def group_channels(self) -> int:
        """Input channels from one product group to the next."""
        return self.shape.inputs * self.side_by_side


def understand(task: Task, target: Target) -> Direct | Reason:
    """The task as a direct convolution, or why it is none."""
    shape = convolution_of(task)
    if isinstance(shape, Reason):
        return shape
    in_place = all(axis.is_inside for axis in shape.spatial)
    strip = None if in_place else strip_of(shape)
    size = 64 if shape.dtype == FLOAT64 else 32
    widest = max(1, target.vector_bits // size)
    together = _side_by_side(shape, widest)
    lanes = widest if together > 1 else lanes_for(target, shape.outputs, size)
    outer = [("i0", shape.batch)]
    if strip is None:
        axes = [
            Axis(name, axis.out, axis.stride * stride)
            for name, axis, stride in zip(shape.out_axes, shape.spatial, shape.data.strides[2:], strict=True)
        ]
        if shape.batch > 1:
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
        groups=shape.groups // together,
        joined=_joined(task, axes),
        dtype=shape.dtype,
    )
    return Direct(shape, product, strip, lanes, together)


def _side_by_side(shape: Convolution, lanes: int) -> int:
    """How many narrow groups share a vector: their outputs fill it exactly, and so do their inputs, side by side."""
    planar = shape.data.strides[1] != 1
    if shape.groups == 1 or planar or shape.inputs != shape.outputs or shape.outputs >= lanes:
        return 1
    together = lanes // shape.outputs
    return together if lanes % shape.outputs == 0 and shape.groups % together == 0 else 1


def _joined(task: Task, axes: Sequence[Axis]) -> bool:
    extent = axes[-1].extent
    for axis in reversed(axes[:-1]):
        if axis.extent > 1 and not joins(task, axis.name, axes[-1].name, extent):
            return False
        extent *= axis.extent
    return True


def _accepts(task: Task, target: Target) -> Reason | None:
    found = understand(task, target)
    return found if isinstance(found, Reason) else None


def _understood(task: Task, target: Target) -> Direct:
    found = understand(task, target)
    assert not isinstance(found, Reason), found
    return found


def _space(task: Task, target: Target) -> Iterable[Params]:
    d = _understood(task, target)
    size = d.shape.dtype.itemsize
    right_bytes = d.product.groups * d.product.depth * d.product.columns * max(4, size)
    if d.strip is None:
        row_bytes = d.product.depth * d.product.groups * size
    else:
        row_bytes = d.strip.channels * size * d.strip.slices.kernel * d.strip.rows.stride * d.strip.columns.stride
    reserved = d.shape.inputs if d.side_by_side > 1 else 0
    for tile in tiles_for(d.product, target, d.lanes, reserved)[:6]:
        params = plan_product(d.product, target, d.lanes, tile, row_bytes, right_bytes)
        yield params if d.strip is None else _within_cache(d.strip, params, target)


def _within_cache(strip: Strip, params: Params, target: Target) -> Params:
    """Fewer tiles to a block when the strip, with the rows it spans at its ends, would not fit half the second level."""
    rows, tiles = int(params["rows"]), int(params["tiles"])
    while tiles > 1 and strip.elements(tiles * rows) * strip.dtype.itemsize > target.l2_bytes * 5 // 8:
        shorter = tiles * 7 // 8
        if strip.height(shorter * rows) < 2 * strip.rows.reach and strip.rows.reach > strip.rows.stride:
            break
        tiles = shorter
    return {**params, "tiles": tiles}


def _arguments(task: Task, target: Target, params: Params) -> tuple[Argument, ...]:
    d = _understood(task, target)
    tile = tile_of(params, computed(d.shape.dtype))
    element = np.float64 if tile.element == "double" else np.float32
    shape, planar, together = d.shape, d.planar, d.side_by_side

    def arrange(weight: np.ndarray) -> np.ndarray:
        return panels(matrices(weight.astype(element, copy=False), shape, planar, together), tile.lanes, tile.vectors)

    recipe = (
        f"convolution panels {tile.vectors}x{tile.lanes} {tile.element} groups {shape.groups} by {together}"
        f" {'planar' if planar else 'channels last'}"
    )
    extra = [Argument(shape.weight.operand.name, packed(shape.weight, recipe, arrange))]
    if d.strip is not None:
        nbytes = d.strip.elements(int(params["tiles"]) * tile.rows) * shape.dtype.itemsize
        extra.append(Argument("scratch", nbytes=-(-nbytes // 64) * 64, per_worker=True))
    return operand_arguments(task, extra)


def matrices(weight: np.ndarray, shape: Convolution, planar: bool, together: int) -> np.ndarray:
    """Weights [outputs, inputs, taps...] as [product group, depth, columns], the depth in the order the tile reduces it.

    With groups side by side, the columns of `together` groups stand next to each other; at each step every group is at the
    same channel of its own.
    """
    rank = len(shape.spatial)
    grouped = weight.reshape(shape.groups // together, together, shape.outputs, shape.inputs, *weight.shape[2:])
    taps = list(range(4, 4 + rank))
    depth = [*taps[:-1], 3, taps[-1]] if planar else [*taps, 3]
    ordered = grouped.transpose(0, *depth, 1, 2)
    return ordered.reshape(shape.groups // together, shape.taps * shape.inputs, together * shape.outputs)


def _build(task: Task, target: Target, params: Params, symbol: str) -> str:
    d = _understood(task, target)
    shape, product, strip = d.shape, d.product, d.strip
    arguments = _arguments(task, target, params)
    module, f, pointers, worker, workers = enter(symbol, arguments)
    tile = tile_of(params, computed(shape.dtype))
    count = min(tile.lanes, product.columns)
    in_group = -(-product.columns // tile.width)
    weights = pointers[shape.weight.operand.name]
    data = pointers[shape.data.operand.name]
    if strip is None:
        in_place = _levels_in_place(d)

    def left(outer: Sequence[Int], first: Int, last: Int, unit: Int) -> Left:
        base = f.add(shape.data.offset, f.mul(outer[0] if outer else 0, shape.data.strides[0]))
        if strip is None:
            return Left(data, base, in_place)
        return _strip_block(f, d, strip, tile, params, data, base, outer, first, last, scratch_of(f, pointers, arguments, worker))

    def right(outer: Sequence[Int], group: Int, panel: Int, columns: Sequence[Int]) -> Panel:
        number = f.add(f.mul(group, in_group), panel)
        first = f.at(weights, f.mul(number, product.depth * tile.width), tile.element)
        return Panel(tuple(f.at(first, v * tile.lanes, tile.element) for v in range(tile.vectors)), tile.width)

    def start(outer: Sequence[Int], columns: Sequence[Int]) -> list[Value]:
        return initial(f, target, pointers, shape.bias, columns, tile.lanes, count, tile.element)

    channel_pitch = shape.data.strides[1] if strip is None else strip.channel_pitch
    emit_product(
        f,
        target,
        product,
        params,
        worker,
        workers,
        left=left,
        right=right,
        start=start,
        finish=finisher(f, task, target, pointers),
        rolled_finish=is_heavy(task),
        group_stride=d.group_channels * channel_pitch,
        together=d.side_by_side,
    )
    f.give_back()
    return module.text()


def _levels_in_place(d: Direct) -> tuple[Level, ...]:
    """The reduction when taps and channels are read where the input lies."""
    strides = d.shape.data.strides
    taps = [
        Level(axis.kernel, axis.dilation * stride) for axis, stride in zip(d.shape.spatial, strides[2:], strict=True)
    ]
    channel = Level(d.shape.inputs, strides[1])
    order = [*taps[:-1], channel, *taps[-1:]] if d.planar else [*taps, channel]
    return kept_inner(joined_levels(order), channel, d.side_by_side)


def kept_inner(levels: tuple[Level, ...], channel: Level, together: int) -> tuple[Level, ...]:
    """With groups side by side the channels of a group stay a level of their own, the innermost."""
    if together == 1 or levels[-1].extent == channel.extent:
        return levels
    assert levels[-1].extent % channel.extent == 0
    return (*levels[:-1], Level(levels[-1].extent // channel.extent, channel.extent * channel.stride), channel)


def _strip_block(
    f: Function,
    d: Direct,
    strip: Strip,
    tile: Tile,
    params: Params,
    data: Value,
    base: Int,
    outer: Sequence[Int],
    first: Int,
    last: Int,
    scratch: Value,
) -> Left:
    """Copy the rows of a block and say where its outputs find them."""
    slice_pitch = strip.height(int(params["tiles"]) * tile.rows) * strip.row_pitch
    slice_at: Int = outer[1] if len(outer) > 1 else 0
    width = strip.columns.out
    top, bottom = f.udiv(first, width), f.udiv(last, width)
    low, high = emit_strip(f, strip, data, base, scratch, slice_pitch, slice_at, top, bottom)
    whole = strip.slices.kernel == 1 and strip.slices.is_inside
    levels = strip.levels(d.shape.inputs, slice_pitch, 0 if whole else low, None if whole else high)
    channel = Level(d.shape.inputs, strip.channel_pitch)
    offset = f.mul(top, -strip.rows.stride * strip.row_pitch)
    return Left(scratch, offset, kept_inner(levels, channel, d.side_by_side))


DIRECT = Kernel("direct-convolution", _accepts, _space, _arguments, _build)


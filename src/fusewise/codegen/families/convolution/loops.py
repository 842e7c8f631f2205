"""The arguments and loops of a convolution as a product of output pixels and output channels (`convolution.plan`).

A transposed convolution is the same with several `phases`: sets of output channels over the same input.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from fusewise.codegen.families.convolution.computed import Fill, computed_rows
from fusewise.codegen.families.convolution.plan import Direct, DirectSchedule
from fusewise.codegen.families.convolution.shape import Convolution
from fusewise.codegen.families.convolution.strip import BlockCopy, CopiedRows, emit_strip, existing_taps, joined_levels
from fusewise.codegen.families.convolution.taps import sliding, tap_by_tap
from fusewise.codegen.families.product.loops import Parts, Taps, emit_product
from fusewise.codegen.families.product.places import Left, flat_index
from fusewise.codegen.kernel import Argument, working_memory
from fusewise.codegen.llvm.entry import OpenFunction, initial, operand_arguments
from fusewise.codegen.llvm.stores import Finish, fetcher, is_heavy
from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.tile import Panel, ReductionLoop, Tile
from fusewise.codegen.nest.tree import Int, Value
from fusewise.codegen.packing import MatrixAxes, packed, panels, panels_of
from fusewise.codegen.target import FIRST_LEVEL, InstructionSet, whole_lines
from fusewise.lower.program import Packing
from fusewise.lower.task import Task
from fusewise.records import record

__all__ = [
    "Adapt",
    "RowFill",
    "direct_arguments",
    "emit_direct",
    "levels_in_place",
    "matrices",
    "matrix_axes",
    "weight_packing",
]


def weight_packing(
    d: Direct,
    tile: Tile,
    arrange: Callable[[np.ndarray], np.ndarray],
    recipe: str,
    axes: MatrixAxes | None = None,
    multiple: int = 1,
) -> Packing:
    """Weights in panels; `arrange` gives them as [product group, depth, columns].

    `axes` are those of the weights in that order, where they have strides. Panels are a `multiple` of so many.
    """
    element = np.float64 if tile.element == "double" else np.float32

    def pack(weight: np.ndarray) -> np.ndarray:
        kind = d.shape.instruction.right.numpy if d.shape.instruction.terms > 1 else element
        wide = weight.astype(kind, copy=False)
        return panels(arrange(wide), tile.lanes, tile.vectors, multiple)

    order = "planar" if d.shape.planar else "channels last"
    panel = f"{multiple}x{tile.vectors}x{tile.lanes} {tile.element}"
    name = f"{recipe} panels {panel} groups {d.shape.groups}/{d.side_by_side} {order}"
    data = None if axes is None else panels_of(d.shape.weight, axes, tile.lanes, tile.vectors, multiple=multiple)
    return packed(d.shape.weight, name, pack, data)


def direct_arguments(d: Direct, task: Task, schedule: DirectSchedule, packing: Packing) -> tuple[Argument, ...]:
    """Operands, packed weights and scratch."""
    tile, extra = schedule.product.tile, [Argument(d.shape.weight.operand.name, packing)]
    if d.strip is not None:
        kept = d.product.kept(tile) * 4 if schedule.product.chunk else 0
        extra.append(working_memory(_strip_bytes(d, d.strip, schedule) + kept))
    if schedule.product.prefetch is not None:
        extra.append(Argument("later"))
    return operand_arguments(task, extra)


def _strip_bytes(d: Direct, strip: BlockCopy, schedule: DirectSchedule) -> int:
    """What the rows of a block take."""
    return whole_lines(strip.elements(schedule.rows) * d.shape.dtype.itemsize)


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


def matrix_axes(shape: Convolution, together: int) -> MatrixAxes:
    """The axes of what `matrices` gives, (extent, stride) in the constant: product groups, depth, columns."""
    first, inputs, *taps = shape.weight.strides
    columns = together * shape.outputs
    along = [(axis.kernel, stride) for axis, stride in zip(shape.spatial, taps, strict=True)]
    channels = (shape.inputs, inputs)
    depth = (*along[:-1], channels, along[-1]) if shape.planar else (*along, channels)
    return ((shape.groups // together, columns * first),), depth, (columns, first)


@record(frozen=True)
class RowFill:
    """What is in the strip: `row` writes its rows, by default what the input or its element says; bytes of it outside the input are
    `pad`, by default 0."""

    row: Fill | None = None
    pad: Value | None = None


_AS_IS = RowFill()

Adapt = Callable[[Parts], Parts]
"""`adapt(parts)` may replace what the loops do, such as the reduction."""


def emit_direct(
    o: OpenFunction,
    d: Direct,
    schedule: DirectSchedule,
    finish: Finish,
    fill: RowFill = _AS_IS,
    adapt: Adapt = lambda parts: parts,
) -> None:
    """The loops of a direct convolution."""
    f, task, instructions, pointers = o.f, o.task, o.instructions, o.pointers
    shape, product, strip = d.shape, d.product, d.strip
    tile = schedule.product.tile
    in_group = -(-product.columns // tile.width)
    element = tile.instruction.panel_element
    weights = pointers[shape.weight.operand.name]
    if fill.row is None and strip is not None and shape.computed is not None:
        fill = replace(fill, row=computed_rows(shape, strip, o.elements, fill.pad))
    scratch, tag = (None, None) if strip is None else (o.scratch(), o.tag())

    def left(outer: Sequence[Int], first: Int, last: Int) -> Left:
        if strip is None or scratch is None or tag is None:
            base = f.add(shape.data.offset, f.mul(outer[0] if outer else 0, shape.data.strides[0]))
            low: Int = 0
            high: Int | None = None
            if d.clipped:
                slices, stride = shape.spatial[0], shape.data.strides[2]
                low, high = existing_taps(f, slices, outer[1])
                base = f.add(base, f.mul(f.sub(f.mul(outer[1], slices.stride), slices.before), stride))
            return Left(pointers[shape.data.operand.name], base, levels_in_place(d, low, high))
        own = _KeptStrip(strip, strip.height(schedule.rows) * strip.row_pitch, scratch, tag, fill)
        return _strip_block(o, d, own, outer, first, last)

    def right(outer: Sequence[Int], group: Int, panel: Int, columns: Sequence[Int]) -> Panel:
        number = f.add(f.mul(group, in_group), panel)
        first = f.at(weights, f.mul(number, product.depth * tile.width), element)
        columns_at = tuple(f.at(first, v * tile.lanes, element) for v in range(tile.vectors))
        following = f.at(first, product.depth * tile.width, element)
        return Panel(columns_at, tile.width, tile.instruction.stored, following)

    def start(outer: Sequence[Int], columns: Sequence[Int]) -> list[Value]:
        count = min(tile.lanes, product.columns)
        return initial(o, shape.bias, columns, tile.kind, count)

    def group_at(group: Int) -> tuple[Int, Int]:
        turn = 0 if d.turns == 1 else f.urem(group, d.turns) if d.turns < product.groups else group
        return f.mul(turn, d.turn_pitch), f.mul(turn, product.columns)

    kept = None
    if strip is not None and scratch is not None and schedule.product.chunk:
        kept = f.at(scratch, _strip_bytes(d, strip, schedule), "i8")
    parts = Parts(
        left,
        right,
        start,
        finish,
        rolled_finish=is_heavy(task),
        reading=fetcher(o.elements, FIRST_LEVEL, schedule.product.far),
        group_at=group_at,
        taps=_taps(f, d, instructions, schedule.sliding),
        together=d.side_by_side,
        kept=kept,
        later=pointers.get("later"),
    )
    emit_product(f, instructions, product, schedule.product, o.share, adapt(parts))


def _taps(f: Function, d: Direct, instructions: InstructionSet, slides: bool) -> Taps | None:
    """What replaces the nest of loops over a tile's taps and channels, if anything."""
    if slides:
        return sliding(f, d, instructions)
    return tap_by_tap(f, d, instructions) if d.by_tap else None


def levels_in_place(d: Direct, low: Int, high: Int | None) -> tuple[ReductionLoop, ...]:
    """The reduction when taps and channels are read where the input lies."""
    strides = d.shape.data.strides
    taps = [
        ReductionLoop(axis.kernel, axis.dilation * stride)
        for axis, stride in zip(d.shape.spatial, strides[2:], strict=True)
    ]
    taps[0] = ReductionLoop(taps[0].extent, taps[0].stride, low, high)
    channel = ReductionLoop(d.shape.inputs, strides[1])
    order = [*taps[:-1], channel, *taps[-1:]] if d.shape.planar else [*taps, channel]
    return _kept_inner(joined_levels(order), channel, d.side_by_side)


def _kept_inner(levels: tuple[ReductionLoop, ...], channel: ReductionLoop, together: int) -> tuple[ReductionLoop, ...]:
    """With groups side by side the channels of a group stay a level of their own, the innermost."""
    if together == 1 or levels[-1].extent == channel.extent:
        return levels
    if channel.extent == 1:
        return (*levels, channel)
    assert levels[-1].extent % channel.extent == 0
    return (*levels[:-1], ReductionLoop(levels[-1].extent // channel.extent, channel.extent * channel.stride), channel)


@record(frozen=True)
class _KeptStrip:
    """The strip of a worker, whose tap slices lie `slice_pitch` apart; `tag` says which rows it holds (`Function.stage`)."""

    strip: BlockCopy
    slice_pitch: int
    scratch: Value
    tag: Value
    fill: RowFill


def _strip_block(o: OpenFunction, d: Direct, kept: _KeptStrip, outer: Sequence[Int], first: Int, last: Int) -> Left:
    """Copy the rows of a block, unless they are there, and say where its outputs find them."""
    f, shape, strip, scratch, slice_pitch = o.f, d.shape, kept.strip, kept.scratch, kept.slice_pitch
    slice_at: Int = outer[1] if len(outer) > 1 else 0
    width = strip.columns.out
    top, bottom = f.udiv(first, width), f.udiv(last, width)
    base = f.add(shape.data.offset, f.mul(outer[0], shape.data.strides[0]))

    def copy() -> None:
        row = None if kept.fill.row is None else kept.fill.row(outer[0])
        source = scratch if row is not None else o.pointers[shape.data.operand.name]
        copied = CopiedRows(source, base, scratch, slice_pitch, row, kept.fill.pad)
        emit_strip(f, strip, copied, slice_at, top, bottom)

    before = flat_index(f, outer, [extent for _, extent in d.product.outer])
    f.stage(kept.tag, f.add(f.mul(before, d.product.height), first), copy)
    low, high = existing_taps(f, strip.slices, slice_at)
    whole = strip.slices.kernel == 1 and strip.slices.is_inside
    levels = strip.levels(shape.inputs, slice_pitch, 0 if whole else low, None if whole else high)
    channel = ReductionLoop(shape.inputs, strip.channel_pitch)
    offset = f.mul(top, -strip.rows.stride * strip.row_pitch)
    return Left(scratch, offset, _kept_inner(levels, channel, d.side_by_side))

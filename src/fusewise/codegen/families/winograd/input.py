"""The transformed inputs of Winograd's convolution: B^T d B of every tile, for all taps of the slice axis and all channels.

The two sides of a transform are loops, and the channels between them are taken in blocks that stay in the first cache level,
so whether an input exists is asked once for a block, and tiles at the border run the same code as all others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fusewise.codegen.families.winograd.plan import WinogradPlan
from fusewise.codegen.families.winograd.tiles import Short, for_scheme, unless_missing
from fusewise.codegen.families.winograd.transform import Arithmetic, WinogradScheme
from fusewise.codegen.llvm.registers import widen
from fusewise.codegen.nest.tails import each_part
from fusewise.codegen.nest.tree import Int, Value, vector
from fusewise.codegen.nest.types import memory_type
from fusewise.codegen.target import SECOND_LEVEL
from fusewise.ir.dtypes import DType
from fusewise.records import record

__all__ = ["BLOCK", "Transform", "emit_input_tile"]

BLOCK = 64
"""Channels that are transformed at once."""


@record(frozen=True)
class Transform:
    """The transform of tiles under one plan. `between` is scratch memory, `BLOCK` elements for each position; `source` is the data
    operand, `zeros` memory with a zero for every channel, or for every element of an input row where planes are staged, which
    stands for the inputs outside."""

    a: Arithmetic
    plan: WinogradPlan
    between: Value
    source: Value
    zeros: Value

    def emit(
        self,
        count: int,
        dtype: DType,
        lines: Callable[[Value], list[Value]],
        target: Value,
        there: Callable[[Int], Int],
        short: Short = (None, None),
    ) -> None:
        """Transform `count` channels of a tile, at most `BLOCK`.

        `lines(j)` is where the channels of column j lie, in each row of the tile. Position e of channel c goes to element
        e * the plan's `input_pitch` + `there(c)` of `target`. A short tile has no positions at the last finite point.
        """
        f, form, lanes, pitch = self.a.f, self.plan.form, self.plan.tile.lanes, self.plan.input_pitch
        wide, kind, stored = form.columns.span, vector("float", lanes), memory_type(dtype)

        def column(j: Value, _: Sequence[Value]) -> None:
            places, begin = lines(j), f.at(self.between, f.mul(j, BLOCK))

            def along(scheme: WinogradScheme, positions: list[int]) -> None:
                def each(c: Int) -> None:
                    given = [f.load(vector(stored, lanes), f.at(at, c, stored)) for at in places[: scheme.span]]
                    values = scheme.inputs(self.a, [widen(f, self.a.instructions, value, dtype) for value in given])
                    for i, value in zip(positions, values, strict=True):
                        f.store(value, f.at(f.at(begin, c), i * wide * BLOCK))
                    if self.plan.schedule.fetches_inputs:
                        # before anything is written there: the places of row j, as there are about as many rows as columns
                        place = f.at(target, f.add(f.mul(j, wide * pitch), there(c)))
                        for position in range(wide):
                            f.prefetch(f.at(place, position * pitch), SECOND_LEVEL)

                each_part(f, count, lanes, each)

            for_scheme(f, form.rows, short[0], along)

        def row(i: Value, _: Sequence[Value]) -> None:
            here, begin = f.at(self.between, f.mul(i, wide * BLOCK)), f.at(target, f.mul(i, wide * pitch))

            def along(scheme: WinogradScheme, positions: list[int]) -> None:
                def each(c: Int) -> None:
                    start, end = f.at(here, c), f.at(begin, there(c))
                    given = [f.load(kind, f.at(start, j * BLOCK)) for j in range(scheme.span)]
                    for j, value in zip(positions, scheme.inputs(self.a, given), strict=True):
                        f.store(value, f.at(end, j * pitch))

                each_part(f, count, lanes, each)

            unless_missing(f, form.rows, short[0], i, lambda: for_scheme(f, form.columns, short[1], along))

        columns: Int = wide if short[1] is None else f.select(short[1], f.i64(wide - 1), f.i64(wide))
        f.loop(0, columns, 1, column, rolled=True)
        f.loop(0, form.rows.span, 1, row, rolled=True)


def emit_input_tile(transform: Transform, tile: Int, target: Value, place: Callable[[Int], Int]) -> None:
    """Transform one tile; its number counts over batch, slices, rows and columns.

    Channel c goes to element `place(c)` of each position of `target`, c counting as in `Planes.channels`.
    """
    f, planes = transform.a.f, transform.plan.planes
    shape, slices = planes.shape, planes.slices
    grid = transform.plan.grid
    n, depth, *at, short = grid.locate(f, tile)
    top, left = (
        f.sub(f.mul(tiling.first(f, k), tiling.axis.stride), tiling.axis.before)
        for k, tiling in zip(at, (grid.rows, grid.columns), strict=True)
    )
    offset = f.add(shape.data.offset, f.mul(n, shape.data.strides[0]))

    def one(phase: Int, tap: Int) -> None:
        at = f.sub(f.add(f.mul(depth, slices.stride), f.mul(tap, slices.dilation)), slices.before)
        number = f.add(f.mul(phase, slices.kernel), tap)
        exists = None if slices.is_inside else f.compare("icmp ult", f.add(at, 0), slices.extent)
        start, first = f.add(offset, f.mul(at, planes.strides[0])), f.mul(number, shape.inputs)
        corner = f.add(top, f.udiv(phase, planes.columns.stride)), f.add(left, f.urem(phase, planes.columns.stride))
        _emit_plane(transform, (*corner, start), exists, target, lambda c: place(f.add(first, c)), short)

    def all_taps(phase: Int) -> None:
        f.loop(0, slices.kernel, 1, lambda tap, _: one(phase, tap), rolled=True)

    if planes.phases == 1:
        all_taps(0)
    else:
        f.loop(0, planes.phases, 1, lambda phase, _: all_taps(phase), rolled=True)


def _emit_plane(
    transform: Transform,
    place: tuple[Int, Int, Int],
    exists: Value | None,
    target: Value,
    there: Callable[[Int], Int],
    short: Short,
) -> None:
    """The channels of one slice, if it `exists`; `place` is the tile's first row and column, and where the slice begins."""
    f, planes = transform.a.f, transform.plan.planes
    inputs, dtype = planes.shape.inputs, planes.shape.dtype
    stored = memory_type(dtype)
    top, left, offset = place
    _, row_stride, column_stride = planes.strides
    heights = [f.add(top, k * planes.rows.step) for k in range(transform.plan.form.rows.span)]
    rows = [f.compare("icmp ult", f.add(height, 0), planes.rows.extent) for height in heights]
    if exists is not None:
        rows = [f.binary("and", row, exists) for row in rows]
    starts = [f.add(offset, f.mul(height, row_stride)) for height in heights]

    def block(first: Int, count: int) -> None:
        def lines(j: Value) -> list[Value]:
            column = f.add(left, f.mul(j, planes.columns.step))
            inside = f.compare("icmp ult", f.add(column, 0), planes.columns.extent)
            skip = f.mul(column, column_stride)
            places = [f.at(transform.source, f.add(start, skip), stored) for start in starts]
            return [
                f.at(f.select(f.binary("and", row, inside), place, transform.zeros), first, stored)
                for row, place in zip(rows, places, strict=True)
            ]

        transform.emit(count, dtype, lines, target, lambda c: there(f.add(first, c)), short)

    if inputs <= BLOCK:
        block(0, inputs)
        return

    def some(first: Value, _: Sequence[Value]) -> None:
        # the last block is moved back to end at the last channel
        block(f.minimum(first, inputs - BLOCK), BLOCK)

    f.loop(0, inputs, BLOCK, some, rolled=True)

"""The transformed inputs of Winograd's convolution: B^T d B of every tile, for all taps of the slice axis and all channels.

The two sides of a transform are loops, and the channels between them are taken in blocks that stay in the first cache level,
so whether an input exists is asked once for a block, and tiles at the border run the same code as all others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fusewise.codegen.llvm.emit import Int, Value, vector
from fusewise.codegen.llvm.gemm_product import unravel
from fusewise.codegen.llvm.registers import memory_type, widen
from fusewise.codegen.llvm.winograd_plan import Planes, tile_counts
from fusewise.codegen.llvm.winograd_transform import Arithmetic, Form

__all__ = ["BLOCK", "emit_input_tile"]

BLOCK = 64
"""Channels that are transformed at once."""


def emit_input_tile(
    a: Arithmetic,
    form: Form,
    planes: Planes,
    source: Value,
    zeros: Value,
    tile: Int,
    lanes: int,
    between: Value,
    target: Value,
    pitch: int,
    place: Callable[[Int], Int],
) -> None:
    """Transform one tile; its number counts over batch, slices, rows and columns.

    `source` is the data operand, `zeros` memory with a zero for every channel, which stands for the inputs outside. Position
    e of channel c goes to element e * `pitch` + `place(c)` of `target`, c counting the channels of each slice tap after those of
    the one before. `between` has `BLOCK` elements for each position.
    """
    f, shape = a.f, planes.shape
    n, depth, *at = unravel(f, tile, tile_counts(planes, form))
    top, left = (
        f.sub(f.mul(k, scheme.tile), axis.before)
        for k, scheme, axis in zip(at, form, (planes.rows, planes.columns), strict=True)
    )
    offset = f.add(shape.data.offset, f.mul(n, shape.data.strides[0]))
    slices = planes.slices

    def one(tap: Int) -> None:
        at = f.sub(f.add(f.mul(depth, slices.stride), f.mul(tap, slices.dilation)), slices.before)
        inside = None if slices.is_inside else f.compare("icmp ult", f.add(at, 0), slices.extent)
        start = f.add(offset, f.mul(at, planes.strides[0]))

        def there(channel: Int) -> Int:
            return place(f.add(f.mul(tap, shape.inputs), channel))

        _emit_plane(a, form, planes, source, zeros, (top, left, start), inside, lanes, between, target, pitch, there)

    if slices.kernel == 1:
        one(0)
    else:
        f.loop(0, slices.kernel, 1, lambda tap, _: one(tap), rolled=True)


def _emit_plane(
    a: Arithmetic,
    form: Form,
    planes: Planes,
    source: Value,
    zeros: Value,
    place: tuple[Int, Int, Int],
    exists: Value | None,
    lanes: int,
    between: Value,
    target: Value,
    pitch: int,
    there: Callable[[Int], Int],
) -> None:
    """The channels of one slice, if it `exists`; `place` is the tile's first row and column, and where the slice begins."""
    f, high, wide, inputs = a.f, form.rows.span, form.columns.span, planes.shape.inputs
    kind, dtype = vector("float", lanes), planes.shape.dtype
    stored = memory_type(dtype)
    top, left, offset = place
    _, row_stride, column_stride = planes.strides

    def present(first: Int, k: Int, extent: int) -> Value:
        return f.compare("icmp ult", f.add(first, k), extent)

    rows = [present(top, k, planes.rows.extent) for k in range(high)]
    if exists is not None:
        rows = [f.binary("and", row, exists) for row in rows]
    starts = [f.add(offset, f.mul(f.add(top, k), row_stride)) for k in range(high)]

    def channels(count: int, each: Callable[[Int], None]) -> None:
        """The vectors of a block; the last is moved back to end at the last channel."""
        f.loop(0, count, lanes, lambda c, _: each(f.minimum(c, count - lanes) if count % lanes else c), rolled=True)

    def block(first: Int, count: int) -> None:
        def column(j: Value, _: Sequence[Value]) -> None:
            inside = present(left, j, planes.columns.extent)
            skip = f.mul(f.add(left, j), column_stride)
            places = [f.at(source, f.add(start, skip), stored) for start in starts]
            lines = [
                f.at(f.select(f.binary("and", row, inside), place, zeros), first, stored)
                for row, place in zip(rows, places, strict=True)
            ]
            there = f.at(between, f.mul(j, BLOCK))

            def each(c: Int) -> None:
                given = [f.load(vector(stored, lanes), f.at(line, c, stored)) for line in lines]
                values = form.rows.inputs(a, [widen(f, a.target, value, dtype) for value in given])
                for i, value in enumerate(values):
                    f.store(value, f.at(f.at(there, c), i * wide * BLOCK))

            channels(count, each)

        def row(i: Value, _: Sequence[Value]) -> None:
            here = f.at(between, f.mul(i, wide * BLOCK))
            begin = f.at(target, f.mul(i, wide * pitch))

            def each(c: Int) -> None:
                start, end = f.at(here, c), f.at(begin, there(f.add(first, c)))
                values = form.columns.inputs(a, [f.load(kind, f.at(start, j * BLOCK)) for j in range(wide)])
                for j, value in enumerate(values):
                    f.store(value, f.at(end, j * pitch))

            channels(count, each)

        f.loop(0, wide, 1, column, rolled=True)
        f.loop(0, high, 1, row, rolled=True)

    if inputs <= BLOCK:
        block(0, inputs)
        return

    def some(first: Value, _: Sequence[Value]) -> None:
        # the last block is moved back to end at the last channel
        block(f.minimum(first, inputs - BLOCK), BLOCK)

    f.loop(0, inputs, BLOCK, some, rolled=True)

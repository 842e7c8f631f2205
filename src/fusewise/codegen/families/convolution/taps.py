"""Reductions of a convolution's tile over its taps that are more than a nest of loops over addresses.

Tap by tap: where most taps lie outside, those are skipped. Sliding: where a tile lies within one row of outputs, neighbours read
the same inputs under different taps. An input is then loaded, or shuffled into place, once for all taps of a row, while their
weights stay in registers:

    for row of taps:  for channel:  for input along the row:  for (output, tap) that read it:  multiply and add

That takes less than half the loads of a tile of one or two vectors of columns, which are as many as its multiply-adds, and a
shuffle for several multiply-adds where groups lie side by side in a vector.
"""

from __future__ import annotations

from collections.abc import Sequence

from fusewise.codegen.families.convolution.plan import Direct, readers
from fusewise.codegen.families.product.loops import Taps
from fusewise.codegen.families.product.places import Left, unravel
from fusewise.codegen.llvm.accumulate import fetch
from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.instruction import multiply_add
from fusewise.codegen.nest.tile import Ahead, Panel, Reduction, ReductionLoop, Tile, accumulate
from fusewise.codegen.nest.tree import Int, Value, vector
from fusewise.codegen.nest.types import memory_type
from fusewise.codegen.target import InstructionSet

__all__ = ["sliding", "tap_by_tap"]


def sliding(f: Function, d: Direct, instructions: InstructionSet) -> Taps:
    """The reduction of a tile that lies within one row of outputs; of groups side by side, lanes read the channels of their own."""
    assert d.strip is not None
    strip, together, inputs = d.strip, d.side_by_side, d.shape.inputs
    taps = strip.columns.kernel

    def reduce(
        tile: Tile, row: Int, left: Left, panel: Panel, sums: Sequence[Value], ahead: Sequence[Ahead]
    ) -> Sequence[Value]:
        down, along = d.product.rows
        start = f.add(f.mul(f.udiv(row, along.extent), down.stride), f.mul(f.urem(row, along.extent), along.stride))
        first = f.at(left.pointer, f.add(left.offset, start))

        def channel(height: Int, c: Int, carried: Sequence[Value]) -> Sequence[Value]:
            before = f.mul(height, taps * inputs)
            fetch(f, ahead, f.add(before, f.mul(c, taps)), taps)
            step = f.add(before, c)
            weights = [
                [
                    f.load(tile.kind, f.at(column, f.mul(f.add(step, tap * inputs), panel.pitch)))
                    for column in panel.columns
                ]
                for tap in range(taps)
            ]
            line = f.at(first, f.mul(height, strip.rows.dilation * strip.row_pitch))
            if together > 1:  # else LLVM keeps the inputs for the next channel, more of them than there are registers
                line = f.hidden(line)
            found = list(carried)
            for place, which in readers(strip, tile.rows).items():
                x = element(f.at(line, place * strip.pixel_pitch), c)
                for r, tap in which:
                    for v in range(tile.vectors):
                        k = r * tile.vectors + v
                        found[k] = multiply_add(f, instructions, x, weights[tap][v], found[k])
            return found

        def element(pixel: Value, c: Int) -> Value:
            if together == 1:
                return f.splat(f.load("float", f.at(pixel, c)), tile.lanes)
            assert isinstance(c, int)
            every = f.load(vector("float", tile.lanes), pixel)
            own = [lane // inputs * inputs + c for lane in range(tile.lanes)]
            return f.shuffle(every, f.unset(every.type), own)

        def height(h: Value, carried: Sequence[Value]) -> Sequence[Value]:
            if together == 1:
                return f.loop(0, inputs, 1, lambda c, given: channel(h, c, given), tuple(carried), rolled=True)
            for c in range(inputs):
                carried = channel(h, c, carried)
            return carried

        return f.loop(0, strip.rows.kernel, 1, height, tuple(sums), rolled=True)

    return reduce


def tap_by_tap(f: Function, d: Direct, instructions: InstructionSet) -> Taps:
    """The reduction of a tile as a loop over taps; each gives every row its input pixel, or zeros where there is none.

    Taps that no row of the tile has are skipped, which under strong dilation are most of them.
    """
    shape, together = d.shape, d.side_by_side
    stored = memory_type(shape.dtype)
    zeros = f.module.table(f"{f.name}_zeros", "i8", bytes(shape.inputs * together * shape.dtype.itemsize))
    channel = ReductionLoop(shape.inputs, shape.data.strides[1])
    extents = [axis.kernel for axis in shape.spatial]

    def taps(
        tile: Tile, row: Int, left: Left, panel: Panel, sums: Sequence[Value], _: Sequence[Ahead]
    ) -> Sequence[Value]:
        places = [unravel(f, f.add(row, r), [axis.out for axis in shape.spatial]) for r in range(tile.rows)]

        def one(tap: Value, carried: Sequence[Value]) -> Sequence[Value]:
            rows: list[Value] = []
            present: list[Value] = []
            at = unravel(f, tap, extents)
            for place in places:
                offset: Int = left.offset
                inside: Value | None = None
                for o, k, axis, stride in zip(place, at, shape.spatial, shape.data.strides[2:], strict=True):
                    here = f.sub(f.add(f.mul(o, axis.stride), f.mul(k, axis.dilation)), axis.before)
                    test = f.compare("icmp ult", here, axis.extent)
                    inside = test if inside is None else f.binary("and", inside, test)
                    offset = f.add(offset, f.mul(here, stride))
                assert inside is not None
                present.append(inside)
                address = f.at(left.pointer, offset, stored, inside=False)
                rows.append(f.select(inside, address, zeros))
            some = present[0]
            for test in present[1:]:
                some = f.binary("or", some, test)
            skip = f.mul(f.mul(tap, shape.inputs), panel.pitch)
            columns = tuple(f.at(column, skip, tile.instruction.panel_element) for column in panel.columns)
            here_panel = Panel(columns, panel.pitch, panel.dtype)
            reduction = Reduction(tuple(rows), here_panel, (channel,), shape.dtype, together)
            return f.when(
                some,
                lambda: accumulate(f, tile, reduction, carried),
                lambda: carried,
            )

        return f.loop(0, shape.taps, 1, one, tuple(sums), rolled=True)

    return taps

"""The products of Winograd's convolution with filters half transformed: along the columns in memory, along the rows in registers.

A strip of few tiles uses a filter in memory for little more than it takes to write its 36 values beyond the first cache level and
to read them back. Of a row of positions these values come from three lines, the filter's columns transformed as far as this row
needs, which are a third as long:

    transform the filters' columns, a block of channels       [row of positions][channel][tap of the row][output channel]
    for row of positions:
      for half of its positions, few tiles:
        for channel:  transform the line for these positions, add filter * input

Two vectors of output channels, three positions and four tiles are 24 sums, for which a channel takes 12 loads of inputs and 6 of
lines. The first row and the last one are taps as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from fusewise.codegen.families.winograd.few import keep_products
from fusewise.codegen.families.winograd.plan import ChannelBlock, WinogradPlan
from fusewise.codegen.families.winograd.transform import Arithmetic
from fusewise.codegen.nest.instruction import multiply_add
from fusewise.codegen.nest.tree import Int, Value
from fusewise.codegen.target import LINE_BYTES, SECOND_LEVEL
from fusewise.records import record

__all__ = ["FETCHED_AHEAD", "emit_line_products"]

LINE = LINE_BYTES // 4
"""float32 elements of a cache line."""

FETCHED_AHEAD = 8
"""Input channels ahead of the one whose filters are transformed that taps are fetched."""


@record(frozen=True)
class _Lines:
    """A block of input channels: where its taps, its transformed inputs, its lines and the panel's products lie; and the strip's
    tiles."""

    a: Arithmetic
    plan: WinogradPlan
    block: ChannelBlock
    taps: Value
    inputs: Value
    lines: Value
    products: Value
    tiles: tuple[Int, Int]

    @property
    def taps_each(self) -> tuple[int, int]:
        return self.plan.planes.taps_of(self.block.phase)

    @property
    def size(self) -> int:
        """Elements of a channel's taps."""
        return math.prod(self.taps_each) * self.plan.tile.width

    @property
    def line(self) -> int:
        """Elements of a channel's line."""
        return self.taps_each[1] * self.plan.tile.width


def emit_line_products(
    a: Arithmetic,
    plan: WinogradPlan,
    scratch: tuple[Value, Value, Value],
    taps: Value,
    tiles: tuple[Int, Int],
    block: ChannelBlock,
) -> None:
    """Add a block of input channels to the products of one panel, or begin these with channel 0.

    `scratch` is where transformed inputs, lines and the panel's products lie, `taps` where the taps of these channels do, those of
    the next channels behind them: as many are fetched meanwhile. `tiles` are the first of the strip, and how many.
    """
    f, (inputs, lines, products) = a.f, scratch
    inputs = f.at(inputs, f.mul(block.start, plan.block_step))
    b = _Lines(a, plan, block, taps, inputs, lines, products, tiles)
    _emit_lines(b)
    f.loop(0, plan.kept(block.phase)[0], 1, lambda row, _: _emit_row(b, row, *_line_of(b, row)), rolled=True)


def _emit_lines(b: _Lines) -> None:
    """Transform the columns of all filters; taps are asked for a few channels ahead."""
    f, plan, width, lanes = b.a.f, b.plan, b.plan.tile.width, b.plan.tile.lanes
    high, wide = b.taps_each

    def channel(k: Value, _: Sequence[Value]) -> None:
        taps, there = f.at(b.taps, f.mul(k, b.size)), f.at(b.lines, f.mul(k, b.line))
        for place in range(0, b.size, LINE):
            f.prefetch(f.at(taps, FETCHED_AHEAD * b.size + place))

        def vector(v: Value, _: Sequence[Value]) -> None:
            skip = f.mul(v, lanes)
            given, made = f.at(taps, skip), f.at(there, skip)
            for j in range(wide):
                column = [f.load(plan.tile.kind, f.at(given, (i * wide + j) * width)) for i in range(high)]
                values = plan.form.rows.filters(b.a, column)
                for number, row in enumerate(plan.line_rows(b.block.phase)):
                    f.store(values[row], f.at(made, number * plan.line_pitch + j * width))

        f.loop(0, plan.tile.vectors, 1, vector, rolled=True)

    if plan.line_rows(b.block.phase):
        f.loop(0, b.block.extent, 1, channel, rolled=True)


def _line_of(b: _Lines, row: Value) -> tuple[Value, Int]:
    """Where a row's lines begin, and elements from one channel's to the next."""
    f, scheme, made = b.a.f, b.plan.form.rows, b.plan.line_rows(b.block.phase)
    lines, pitch = f.at(b.lines, f.mul(f.sub(row, made.start), b.plan.line_pitch)), f.i64(b.line)
    for place in range(b.plan.kept(b.block.phase)[0]):
        tap = scheme.tap_at(place, b.taps_each[0])
        if tap is not None:
            this = f.compare("icmp eq", row, place)
            lines = f.select(this, f.at(b.taps, tap * b.line), lines)
            pitch = f.select(this, f.i64(b.size), pitch)
    return lines, pitch


def _emit_row(b: _Lines, row: Value, lines: Value, pitch: Int) -> None:
    """One row of positions, all tiles of the strip that have it."""
    f = b.a.f
    low, high = _run(b, row, False)
    begin, end = _run(b, row, True)
    fetching = True
    for positions, which in b.plan.line_parts(b.block.phase):
        if which is None:
            _emit_tiles(b, row, (low, high), positions, lines, pitch, fetching)
        elif which:
            _emit_tiles(b, row, (begin, end), positions, lines, pitch, fetching)
        else:

            def side(k: Value, _: Sequence[Value], positions: list[int] = positions) -> None:
                after = f.compare("icmp ne", k, 0)
                run = f.select(after, f.i64(end), f.i64(low)), f.select(after, f.i64(high), f.i64(begin))
                _emit_tiles(b, row, run, positions, lines, pitch, False)

            f.loop(0, 2, 1, side, rolled=True)
        fetching = False


def _run(b: _Lines, row: Value, column: bool) -> tuple[Int, Int]:
    """The strip's tiles that have values in a row, and at the last finite point of columns if asked for that `column`."""
    f, grid, (first, count) = b.a.f, b.plan.grid, b.tiles
    every, with_row = grid.with_values(False, column), grid.with_values(True, column)
    last = f.compare("icmp eq", row, b.plan.form.rows.last_finite)
    low, high = (
        f.select(last, f.i64(y), f.i64(x)) for x, y in ((every.start, with_row.start), (every.stop, with_row.stop))
    )
    begin, end = (f.minimum(f.maximum(f.sub(bound, first), 0), count) for bound in (low, high))
    return begin, end


def _emit_tiles(
    b: _Lines, row: Value, run: tuple[Int, Int], positions: Sequence[int], lines: Value, pitch: Int, fetching: bool
) -> None:
    """The products of a run of tiles at some positions of a row, a register tile at a time."""
    f, plan, tile = b.a.f, b.plan, b.plan.tile
    first = f.mul(row, plan.form.columns.span)
    inputs = f.at(b.inputs, f.mul(first, plan.input_pitch))
    products = f.at(b.products, f.mul(first, plan.product_pitch))
    fetch = _fetching(b, row) if fetching else None

    def some(t: Value, _: Sequence[Value]) -> None:
        given, there = f.at(inputs, f.mul(t, plan.row_pitch)), f.at(products, f.mul(t, plan.group_width))
        ahead = fetch(t) if fetch is not None else None

        def channel(k: Value, sums: Sequence[Value]) -> list[Value]:
            line, here, result = f.at(lines, f.mul(k, pitch)), f.at(given, k), list(sums)
            values = [_values(b, f.at(line, v * tile.lanes)) for v in range(tile.vectors)]
            if ahead is not None:
                for number in range(ahead[1]):
                    # the next block's; lines and inputs fill the first level
                    f.prefetch(f.at(ahead[0], f.mul(f.add(f.mul(k, ahead[1]), number), LINE)), SECOND_LEVEL)
            number = 0
            for position in positions:
                for r in range(tile.rows):
                    at = f.at(here, position * plan.input_pitch + r * plan.row_pitch)
                    factor = f.splat(f.load("float", at), tile.lanes)
                    for v in range(tile.vectors):
                        result[number] = multiply_add(f, b.a.instructions, factor, values[v][position], result[number])
                        number += 1
            return result

        zeros = [f.constant(0.0, tile.kind)] * (len(positions) * tile.rows * tile.vectors)
        sums = f.loop(0, b.block.extent, 1, channel, zeros, rolled=True)
        places = [
            f.at(there, position * plan.product_pitch + r * plan.group_width + v * tile.lanes)
            for position in positions
            for r in range(tile.rows)
            for v in range(tile.vectors)
        ]
        keep_products(f, plan, places, sums, b.block)

    f.loop(*run, tile.rows, some, rolled=True)


def _values(b: _Lines, line: Value) -> dict[int, Value]:
    """One vector of the filter's values in a row, by position."""
    f, tile = b.a.f, b.plan.tile
    given = [f.load(tile.kind, f.at(line, j * tile.width)) for j in range(b.taps_each[1])]
    return dict(b.plan.form.columns.filter_values(b.a, given))


def _fetching(b: _Lines, row: Value) -> Callable[[Value], tuple[Value, int]]:
    """For a register tile of a row, where its share of the next block's taps lies, and how many cache lines it is for a channel."""
    f, plan = b.a.f, b.plan
    lines = -(-b.size // LINE)
    by_row = -(-lines // plan.kept(b.block.phase)[0])
    tiles = min(by_row, plan.schedule.per_strip)
    each = -(-by_row // tiles)

    def share(t: Value) -> tuple[Value, int]:
        number = f.add(f.mul(row, tiles), f.minimum(f.udiv(t, plan.tile.rows), tiles - 1))
        return f.at(b.taps, f.add(b.block.extent * b.size, f.mul(number, each * b.block.extent * LINE))), each

    return share

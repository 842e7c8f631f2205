"""The products of Winograd's convolution with filters that stay in registers, for a few tiles at a time.

On maps of 7 x 7 and 8 x 8 all tiles fit one register tile; filters are used once for every time they are transformed, and writing
them to memory and reading them back takes longer than the products. Where a core has time beside its multiply-adds, the same
pays with more tiles: filters are transformed again for every few. Here they never leave the registers. One row of
positions is reduced over a block of channels at a time, its sums in registers:

    for row of positions:
      for channel:
        transform the filter's columns as far as this row needs, then along the row
        for position of the row, tile:  add filter * input

Each value of a filter is used as soon as it is there, so that it and its neighbours fit beside the sums.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from fusewise.codegen.families.winograd.plan import ChannelBlock, WinogradPlan
from fusewise.codegen.families.winograd.transform import Arithmetic
from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.instruction import multiply_add
from fusewise.codegen.nest.tree import Int, Value
from fusewise.codegen.target import SECOND_LEVEL

__all__ = ["emit_few_products", "keep_products"]


def emit_few_products(
    a: Arithmetic,
    plan: WinogradPlan,
    inputs: Value,
    products: Value,
    taps: Callable[[Int], Value],
    tile: Int,
    block: ChannelBlock,
) -> None:
    """Add a block of input channels to the products of one panel and of the register tile that begins with `tile`, or begin these
    with channel 0.

    `inputs` and `products` are its transformed inputs and the panel's products in scratch memory, laid out as the plan says;
    `taps(channel)` is where the panel's taps of a channel lie, those of the next channel behind them. As many channels after these
    are fetched meanwhile.
    """
    f, source, left = a.f, taps(block.start), a.f.at(inputs, a.f.mul(block.start, plan.block_step))
    (high, wide), (rows, columns) = plan.kept(block.phase), plan.form
    long_rows, long_columns = _is_long(f, plan, tile)
    always = [row for row in range(high) if long_rows is None or row != rows.last_finite]

    def vector(v: Value, _: Sequence[Value]) -> None:
        skip = f.mul(v, plan.tile.lanes)

        def reduce(row: int, positions: Sequence[int]) -> None:
            first, taken = row * columns.span, _taken(plan, row, positions)
            here, there = f.at(left, first * plan.input_pitch), f.at(products, f.add(first * plan.product_pitch, skip))
            fetching = (always.index(row), len(always)) if row in always else (0, 0)
            sums = _row(a, plan, block, row, (here, f.at(source, skip)), taken, fetching)
            places = [f.at(there, position * plan.product_pitch + t * plan.group_width) for position, t in taken]
            keep_products(f, plan, places, sums, block)

        def whole(row: int) -> None:
            few = [position for position in range(wide) if position != columns.last_finite]
            if long_columns is None or len(few) == wide:
                reduce(row, range(wide))
            else:
                f.when(long_columns, lambda: reduce(row, range(wide)), lambda: reduce(row, few))

        for row in range(high):
            if long_rows is None or row in always:
                whole(row)
            else:
                f.when(long_rows, partial(whole, row))

    f.loop(0, plan.tile.vectors, 1, vector, rolled=True)


def _is_long(f: Function, plan: WinogradPlan, tile: Int) -> tuple[Value | None, Value | None]:
    """Whether any tile of the register tile that begins with `tile` has a value at the last finite point of rows, and of columns;
    None where all have, or there is but one."""
    regions = plan.grid.regions
    if len(regions) <= 1 or (not plan.planes.free and plan.steps <= 1):
        return None, None

    def along(axis: int) -> Value | None:
        long = [region for region in regions if not region.short[axis]]
        if len(long) == len(regions):
            return None
        found = f.compare("icmp slt", 0, 0)
        for region in long:
            is_in = f.binary(
                "and",
                f.compare("icmp slt", tile, region.end),
                f.compare("icmp sgt", f.add(tile, plan.tile.rows), region.begin),
            )
            found = f.binary("or", found, is_in)
        return found

    return along(0), along(1) if plan.skips_columns else None


def _taken(plan: WinogradPlan, row: int, positions: Sequence[int]) -> list[tuple[int, int]]:
    """Of these positions of a row, each with the tiles that have a value there; with all of them where there are more."""
    rows, columns = plan.form
    if len(plan.grid.regions) <= 1 or plan.planes.free or plan.steps > 1:
        return [(position, t) for position in positions for t in range(plan.tile.rows)]
    having = {
        place: plan.grid.with_values(row == rows.last_finite, place == columns.last_finite) for place in positions
    }
    return [(position, t) for position, tiles in having.items() for t in range(*tiles)]


def _row(
    a: Arithmetic,
    plan: WinogradPlan,
    block: ChannelBlock,
    row: int,
    operands: tuple[Value, Value],
    taken: Sequence[tuple[int, int]],
    fetching: tuple[int, int],
) -> tuple[Value, ...]:
    """One vector of the products of a row of positions and the tiles `taken` of each, over a block: `operands` are where its inputs
    and its taps lie.

    Of the next block it fetches one share of so many, if `fetching` names any.
    """
    f, tile, (rows, columns), (inputs, taps) = a.f, plan.tile, plan.form, operands
    high, across = plan.planes.taps_of(block.phase)
    size, (share, shares) = high * across * tile.width, fetching

    def channel(k: Value, sums: Sequence[Value]) -> list[Value]:
        k = f.hidden(k)
        filters, given, result = f.at(taps, f.mul(k, size)), f.at(inputs, k), list(sums)
        lines = [
            rows.filters(a, [f.load(tile.kind, f.at(filters, (i * across + j) * tile.width)) for i in range(high)])
            for j in range(across)
        ]
        for tap in range(share, high * across, shares) if shares else ():
            # the next block's; this block's and its inputs fill the first level
            f.prefetch(f.at(filters, block.extent * size + tap * tile.width), SECOND_LEVEL)
        for position, value in columns.filter_values(a, [line[row] for line in lines]):
            for number, t in ((number, t) for number, (place, t) in enumerate(taken) if place == position):
                at = f.at(given, position * plan.input_pitch + t * plan.row_pitch)
                factor = f.splat(f.load("float", at), tile.lanes)
                result[number] = multiply_add(f, a.instructions, factor, value, result[number])
        return result

    return f.loop(0, block.extent, 1, channel, [f.constant(0.0, tile.kind)] * len(taken), rolled=True)


def keep_products(
    f: Function, plan: WinogradPlan, places: Sequence[Value], sums: Sequence[Value], block: ChannelBlock
) -> None:
    """Store the sums of the first block of channels of the first phase, add those of the others."""
    kind = plan.tile.kind

    def store() -> None:
        for place, value in zip(places, sums, strict=True):
            f.store(value, place)

    def add() -> None:
        for place, value in zip(places, sums, strict=True):
            f.store(f.fadd(f.load(kind, place), value), place)

    if plan.depth == plan.planes.channels:
        store()
    elif block.phase:
        add()
    else:
        f.when(f.compare("icmp eq", block.start, 0), store, add)

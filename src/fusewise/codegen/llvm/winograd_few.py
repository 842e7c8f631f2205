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

from fusewise.codegen.llvm.emit import Function, Int, Value
from fusewise.codegen.llvm.gemm_tile import multiply_add
from fusewise.codegen.llvm.winograd_plan import Plan
from fusewise.codegen.llvm.winograd_transform import Arithmetic

__all__ = ["emit_few_products", "keep_products"]

SECOND_LEVEL = 2
"""Where the next block's filters are fetched to: this block's and its inputs fill the first level."""


def emit_few_products(
    a: Arithmetic,
    plan: Plan,
    inputs: Value,
    products: Value,
    taps: Callable[[Int], Value],
    start: Int,
    extent: int,
    phase: int = 0,
) -> None:
    """Add `extent` input channels from `start` on to the products of one panel, or begin these with channel 0.

    They belong to one `phase`. `inputs` and `products` are the transformed inputs and the panel's products in scratch memory, laid
    out as the plan says; `taps(channel)` is where the panel's taps of a channel lie, those of the next channel behind them. As many
    channels after these are fetched meanwhile.
    """
    f, tile = a.f, plan.tile
    source, left = taps(start), f.at(inputs, f.mul(start, plan.block_step))
    high, wide = plan.kept(phase)

    def vector(v: Value, _: Sequence[Value]) -> None:
        skip = f.mul(v, tile.lanes)
        for row in range(high):
            first = row * plan.form.columns.span
            here, there = f.at(left, first * plan.input_pitch), f.at(products, f.add(first * plan.product_pitch, skip))
            taken = _taken(plan, row, wide)
            sums = _row(a, plan, row, phase, here, f.at(source, skip), extent, taken)
            places = [f.at(there, position * plan.product_pitch + t * plan.group_width) for position, t in taken]
            keep_products(f, plan, places, sums, start)

    f.loop(0, tile.vectors, 1, vector, rolled=True)


def _taken(plan: Plan, row: int, wide: int) -> list[tuple[int, int]]:
    """Positions of a row, of the first `wide`, and for each the tiles that have a value there."""
    rows, columns = plan.form
    if len(plan.grid.regions) <= 1:
        return [(position, t) for position in range(wide) for t in range(plan.tile.rows)]
    tiles = [plan.grid.with_values(row == rows.last_finite, place == columns.last_finite) for place in range(wide)]
    return [(position, t) for position, having in enumerate(tiles) for t in having]


def _row(
    a: Arithmetic,
    plan: Plan,
    row: int,
    phase: int,
    inputs: Value,
    taps: Value,
    extent: int,
    taken: Sequence[tuple[int, int]],
) -> tuple[Value, ...]:
    """One vector of the products of a row of positions and the tiles `taken` of each, over `extent` channels of a phase."""
    f, tile, (rows, columns) = a.f, plan.tile, plan.form
    high, across = plan.planes.taps_of(phase)
    size = high * across * tile.width

    def channel(k: Value, sums: Sequence[Value]) -> list[Value]:
        filters, given, result = f.at(taps, f.mul(k, size)), f.at(inputs, k), list(sums)
        lines = [
            rows.filters(a, [f.load(tile.kind, f.at(filters, (i * across + j) * tile.width)) for i in range(high)])
            for j in range(across)
        ]
        for tap in range(row, high * across, rows.span):  # each row fetches its share of the next block
            f.prefetch(f.at(filters, extent * size + tap * tile.width), SECOND_LEVEL)
        for position, value in columns.filter_values(a, [line[row] for line in lines]):
            for number, t in ((number, t) for number, (place, t) in enumerate(taken) if place == position):
                at = f.at(given, position * plan.input_pitch + t * plan.row_pitch)
                factor = f.splat(f.load("float", at), tile.lanes)
                result[number] = multiply_add(f, a.target, factor, value, result[number])
        return result

    return f.loop(0, extent, 1, channel, [f.constant(0.0, tile.kind)] * len(taken), rolled=True)


def keep_products(f: Function, plan: Plan, places: Sequence[Value], sums: Sequence[Value], start: Int) -> None:
    """Store the sums of the first block of channels, add those of the others."""
    kind = plan.tile.kind

    def store() -> None:
        for place, value in zip(places, sums, strict=True):
            f.store(value, place)

    def add() -> None:
        for place, value in zip(places, sums, strict=True):
            f.store(f.fadd(f.load(kind, place), value), place)

    if plan.depth == plan.planes.channels:
        store()
    else:
        f.when(f.compare("icmp eq", start, 0), store, add)

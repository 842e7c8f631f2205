"""Keys and values of a head as panels, where how many keys there are is known only while running.

Nothing is moved back: what lies beyond the last key in its panel are copies of that key, whose scores then take no part, and values
are followed by rows of zeros up to a whole number of steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fusewise.codegen.families.product.places import column_at
from fusewise.codegen.families.product.plan import Product
from fusewise.codegen.llvm.square import transposed
from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.tails import fitted
from fusewise.codegen.nest.tile import Tile
from fusewise.codegen.nest.tree import Int, Value

__all__ = ["pack_keys", "pack_values"]


def pack_keys(
    f: Function, tile: Tile, keys: int, size: int, source: Value, strides: tuple[int, int], to: Value
) -> None:
    """The keys at `source`, [size, keys] with these strides, as [panel][size][vector][lane]."""
    along, across = strides
    in_squares = along == 1 and 1 < tile.lanes <= size

    def panel(p: Value, _: Sequence[Value]) -> None:
        for v in range(tile.vectors):
            column = f.add(f.mul(p, tile.width), v * tile.lanes)
            start = f.at(to, f.add(f.mul(p, size * tile.width), v * tile.lanes))
            rows = [f.at(source, f.mul(f.minimum(f.add(column, lane), keys - 1), across)) for lane in range(tile.lanes)]
            if in_squares:
                _squares(f, tile, size, rows, start)
            else:
                _one_by_one(f, tile, size, rows, along, start)

    f.loop(0, -(-keys // tile.width), 1, panel, rolled=True)


def _squares(f: Function, tile: Tile, size: int, rows: Sequence[Value], to: Value) -> None:
    def square(k: Value, _: Sequence[Value]) -> None:
        at = fitted(f, k, tile.lanes, size)
        for number, row in enumerate(transposed(f, [f.load(tile.kind, f.at(row, at)) for row in rows])):
            f.store(row, f.at(to, f.mul(f.add(at, number), tile.width)))

    f.loop(0, size, tile.lanes, square, rolled=True)


def _one_by_one(f: Function, tile: Tile, size: int, rows: Sequence[Value], along: int, to: Value) -> None:
    def step(k: Value, _: Sequence[Value]) -> None:
        for lane, row in enumerate(rows):
            f.store(f.load("float", f.at(row, f.mul(k, along))), f.at(to, f.add(f.mul(k, tile.width), lane)))

    f.loop(0, size, 1, step, rolled=True)


def pack_values(
    f: Function, tile: Tile, product: Product, keys: int, source: Value, strides: tuple[int, int], to: Value
) -> None:
    """The values at `source`, [keys, width] with these strides, as [panel][key][vector][lane], with zeros for the steps of the
    product beyond the keys."""
    along, across = strides
    count = min(tile.lanes, product.columns)

    def panel(p: Value, _: Sequence[Value]) -> None:
        for v in range(tile.vectors):
            column = column_at(product, tile, p, v, f)
            here = f.at(source, f.mul(column, across))
            start = f.at(to, f.add(f.mul(p, product.depth * tile.width), v * tile.lanes))
            f.loop(0, keys, 1, _value(f, tile, here, (along, across), start, count), rolled=True)

            def nothing(k: Value, _: Sequence[Value], start: Value = start) -> None:
                f.store(f.constant(0.0, tile.kind), f.at(start, f.mul(k, tile.width)))

            f.loop(keys, product.depth, 1, nothing, rolled=True)

    f.loop(0, -(-product.columns // tile.width), 1, panel, rolled=True)


def _value(
    f: Function, tile: Tile, source: Value, strides: tuple[int, int], to: Value, count: int
) -> Callable[[Value, Sequence[Value]], None]:
    """Copies a vector of columns of one value, of which so many are there."""
    along, across = strides

    def copy(k: Value, _: Sequence[Value]) -> None:
        here, there = f.at(source, f.mul(k, along)), f.at(to, f.mul(k, tile.width))
        if across == 1 and count == tile.lanes:
            f.store(f.load(tile.kind, here), there)
            return
        for lane in range(tile.lanes):
            one: Int = lane
            value = f.load("float", f.at(here, f.mul(one, across))) if lane < count else f.constant(0.0, "float")
            f.store(value, f.at(there, lane))

    return copy

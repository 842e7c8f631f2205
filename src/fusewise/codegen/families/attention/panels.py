"""Keys and values of a head as panels, where how many keys there are is known only while running.

Nothing is moved back: what lies beyond the last key in its panel are copies of that key, whose scores then take no part, and values
are followed by rows of zeros up to a whole number of steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fusewise.codegen.families.product.places import column_at
from fusewise.codegen.families.product.plan import Product
from fusewise.codegen.llvm.registers import widen
from fusewise.codegen.llvm.square import transposed
from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.tails import fitted
from fusewise.codegen.nest.tile import Tile
from fusewise.codegen.nest.tree import Int, Value, vector
from fusewise.codegen.nest.types import memory_type
from fusewise.codegen.target import InstructionSet
from fusewise.ir.dtypes import DType
from fusewise.records import record

__all__ = ["StoredNumbers", "pack_keys", "pack_values"]


@record(frozen=True)
class StoredNumbers:
    """Reads what keys and values are stored as, as float32."""

    f: Function
    instructions: InstructionSet
    dtype: DType

    def at(self, pointer: Value, offset: Int) -> Value:
        return self.f.at(pointer, offset, memory_type(self.dtype))

    def load(self, pointer: Value, lanes: int = 1) -> Value:
        raw = self.f.load(vector(memory_type(self.dtype), lanes), pointer)
        return widen(self.f, self.instructions, raw, self.dtype)


def pack_keys(
    given: StoredNumbers, tile: Tile, extents: tuple[int, int], source: Value, strides: tuple[int, int], to: Value
) -> None:
    """The keys at `source`, so many and of such a size, [size, keys] with these strides, as [panel][size][vector][lane]."""
    f, (keys, size), (along, across) = given.f, extents, strides
    in_squares = along == 1 and 1 < tile.lanes <= size

    def panel(p: Value, _: Sequence[Value]) -> None:
        for v in range(tile.vectors):
            column = f.add(f.mul(p, tile.width), v * tile.lanes)
            start = f.at(to, f.add(f.mul(p, size * tile.width), v * tile.lanes))
            numbers = [f.minimum(f.add(column, lane), keys - 1) for lane in range(tile.lanes)]
            rows = [given.at(source, f.mul(number, across)) for number in numbers]
            if in_squares:
                _squares(given, tile, size, rows, start)
            else:
                _one_by_one(given, tile, size, rows, along, start)

    f.loop(0, -(-keys // tile.width), 1, panel, rolled=True)


def _squares(given: StoredNumbers, tile: Tile, size: int, rows: Sequence[Value], to: Value) -> None:
    f = given.f

    def square(k: Value, _: Sequence[Value]) -> None:
        at = fitted(f, k, tile.lanes, size)
        for number, row in enumerate(transposed(f, [given.load(given.at(row, at), tile.lanes) for row in rows])):
            f.store(row, f.at(to, f.mul(f.add(at, number), tile.width)))

    f.loop(0, size, tile.lanes, square, rolled=True)


def _one_by_one(given: StoredNumbers, tile: Tile, size: int, rows: Sequence[Value], along: int, to: Value) -> None:
    f = given.f

    def step(k: Value, _: Sequence[Value]) -> None:
        for lane, row in enumerate(rows):
            number = given.load(given.at(row, f.mul(k, along)))
            f.store(number, f.at(to, f.add(f.mul(k, tile.width), lane)))

    f.loop(0, size, 1, step, rolled=True)


def pack_values(
    given: StoredNumbers, tile: Tile, product: Product, keys: int, source: Value, strides: tuple[int, int], to: Value
) -> None:
    """The values at `source`, [keys, width] with these strides, as [panel][key][vector][lane], with zeros for the steps of the
    product beyond the keys."""
    f, (along, across) = given.f, strides
    count = min(tile.lanes, product.columns)

    def panel(p: Value, _: Sequence[Value]) -> None:
        for v in range(tile.vectors):
            column = column_at(product, tile, p, v, f)
            here = given.at(source, f.mul(column, across))
            start = f.at(to, f.add(f.mul(p, product.depth * tile.width), v * tile.lanes))
            f.loop(0, keys, 1, _value(given, tile, here, (along, across), start, count), rolled=True)

            def nothing(k: Value, _: Sequence[Value], start: Value = start) -> None:
                f.store(f.constant(0.0, tile.kind), f.at(start, f.mul(k, tile.width)))

            f.loop(keys, product.depth, 1, nothing, rolled=True)

    f.loop(0, -(-product.columns // tile.width), 1, panel, rolled=True)


def _value(
    given: StoredNumbers, tile: Tile, source: Value, strides: tuple[int, int], to: Value, count: int
) -> Callable[[Value, Sequence[Value]], None]:
    """Copies a vector of columns of one value, of which so many are there."""
    f, (along, across) = given.f, strides

    def copy(k: Value, _: Sequence[Value]) -> None:
        here, there = given.at(source, f.mul(k, along)), f.at(to, f.mul(k, tile.width))
        if across == 1 and count == tile.lanes:
            f.store(given.load(here, tile.lanes), there)
            return
        for lane in range(tile.lanes):
            one: Int = lane
            is_there = lane < count
            value = given.load(given.at(here, f.mul(one, across))) if is_there else f.constant(0.0, "float")
            f.store(value, f.at(there, lane))

    return copy

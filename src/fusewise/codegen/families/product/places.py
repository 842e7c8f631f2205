"""Where the rows and columns of a product lie: its axes flattened, and what that is in memory."""

from __future__ import annotations

from collections.abc import Sequence

from fusewise.codegen.families.product.plan import Product, RowAxis, merged
from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.tile import ReductionLoop, Tile
from fusewise.codegen.nest.tree import Int, Value
from fusewise.codegen.nest.types import memory_type
from fusewise.ir.deciding import hint, known_below, known_zero
from fusewise.ir.size import greatest
from fusewise.records import record

__all__ = ["Left", "column_at", "flat_index", "row_address", "row_pointers", "unravel"]


@record(frozen=True)
class Left:
    """The left operand of a block: row with flat index 0 begins `offset` elements after `pointer`."""

    pointer: Value
    offset: Int
    levels: tuple[ReductionLoop, ...]


def column_at(product: Product, tile: Tile, panel: Int, slot: int, f: Function, multiple: int = 1) -> Int:
    """The first column, within its group, of vector `slot` of panel number `panel` of the group's, a `multiple` of so many: what
    `packing.column_starts` says of it."""
    first, columns = f.mul(panel, tile.width), product.columns
    panels = -(-columns // (tile.width * multiple)) * multiple
    if known_zero(columns % tile.width) and known_below(columns, panels * tile.width):
        return f.add(f.minimum(first, columns - tile.width), slot * tile.lanes)
    last = greatest(0, columns - tile.lanes)
    here, farthest = f.add(first, slot * tile.lanes), (panels - 1) * tile.width + slot * tile.lanes
    return here if known_below(farthest, last + 1) else f.minimum(here, last)


def unravel(f: Function, flat: Int, extents: Sequence[int]) -> list[Int]:
    """The indices of a row-major position."""
    found: list[Int] = []
    for extent in reversed(extents[1:]):
        found.append(f.urem(flat, extent))
        flat = f.udiv(flat, extent)
    return [flat, *reversed(found)] if extents else []


def flat_index(f: Function, indices: Sequence[Int], extents: Sequence[int]) -> Int:
    """The row-major position of indices, the other way of `unravel`."""
    total: Int = 0
    for index, extent in zip(indices, extents, strict=True):
        total = f.add(f.mul(total, extent), index)
    return total


def row_pointers(f: Function, product: Product, tile: Tile, left: Left, row: Int) -> list[Value]:
    """Where each row of a tile begins in the left operand."""
    axes, stored = merged(product.rows), memory_type(product.dtype)
    if len(axes) == 1:
        first = f.at(left.pointer, f.add(left.offset, f.mul(row, axes[0].stride)), stored)
        return [f.at(first, r * axes[0].stride, stored) for r in range(tile.rows)]
    inner = axes[-1]
    if known_zero(inner.extent % tile.rows) and known_zero(product.height % tile.rows):
        first = f.at(left.pointer, f.add(left.offset, row_address(f, axes, row)), stored)
        return [f.at(first, r * inner.stride, stored) for r in range(tile.rows)]
    if len(axes) == 2 and hint(inner.extent) >= tile.rows and inner.extent >= tile.rows:
        # the tile crosses from one run to the next at most once
        outside, inside = unravel(f, row, [axis.extent for axis in axes])
        base = f.add(left.offset, f.add(f.mul(outside, axes[0].stride), f.mul(inside, inner.stride)))
        first = f.at(left.pointer, base, stored)
        jump = f.i64(axes[0].stride - inner.extent * inner.stride)
        found = [first]
        for r in range(1, tile.rows):
            beyond = f.select(f.compare("icmp sge", inside, inner.extent - r), jump, f.i64(0))
            found.append(f.at(first, f.add(beyond, r * inner.stride), stored))
        return found
    return [
        f.at(left.pointer, f.add(left.offset, row_address(f, axes, f.add(row, r))), stored) for r in range(tile.rows)
    ]


def row_address(f: Function, axes: Sequence[RowAxis], flat: Int) -> Int:
    """Where row number `flat` begins, counted in elements from the first."""
    total: Int = 0
    for axis, index in zip(axes, unravel(f, flat, [axis.extent for axis in axes]), strict=True):
        total = f.add(total, f.mul(index, axis.stride))
    return total

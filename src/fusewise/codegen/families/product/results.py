"""The results of a tile of a product, row by row: where they lie, which are kept, and the stores of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from fusewise.codegen.families.product.places import unravel
from fusewise.codegen.families.product.plan import Product
from fusewise.codegen.llvm.stores import Fetch, Finish
from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.tile import Tile
from fusewise.codegen.nest.tree import Int, Value
from fusewise.ir.deciding import known_zero
from fusewise.records import record

__all__ = ["ResultPlace", "fetch_row", "finish_row", "is_result"]


@record(frozen=True)
class ResultPlace:
    """Where the results of a panel lie: outer index, number of the group, and the first column of every vector."""

    outer: Sequence[Int]
    group: Int
    columns: Sequence[Int]


def is_result(f: Function, product: Product, row: Int) -> Value:
    """Is a row one that is kept?"""
    each = zip(product.rows, unravel(f, row, [axis.extent for axis in product.rows]), strict=True)
    kept = [f.compare("icmp ult", f.i64(at), axis.results) for axis, at in each if axis.results is not None]
    return reduce(lambda a, b: f.binary("and", a, b), kept)


def finish_row(
    f: Function, product: Product, tile: Tile, results: ResultPlace, row: Int, values: Sequence[Value], finish: Finish
) -> None:
    """Run the stores for one row of a tile.

    The vectors of a row go together where they are neighbours: what takes many steps, such as an exponential, then has
    several to overlap.
    """
    together, at = _together(product, tile), _indices(f, product, results, row)
    for v in range(0, tile.vectors, together):
        joined = f.joined(values[v : v + together])
        where = {**at, product.column: results.columns[v]}
        finish(where, product.column, joined, min(joined.lanes, product.columns))


def fetch_row(f: Function, product: Product, tile: Tile, results: ResultPlace, row: Int, fetch: Fetch) -> None:
    """Fetch what the stores of one row of a tile will read and write."""
    together, at = _together(product, tile), _indices(f, product, results, row)
    for v in range(0, tile.vectors, together):
        lanes = min(together * tile.lanes, product.columns)
        fetch({**at, product.column: results.columns[v]}, product.column, lanes)


def _together(product: Product, tile: Tile) -> int:
    """Vectors of a row that are finished at once: they lie side by side in every panel, see `column_at`."""
    return tile.vectors & -tile.vectors if known_zero(product.columns % tile.width) else 1


def _indices(f: Function, product: Product, results: ResultPlace, row: Int) -> dict[str, Int]:
    """Where a row lies, along all axes but the columns."""
    at = product.outer_at(results.outer)
    at["group"] = results.group
    if product.joined is not None:
        at.update({axis.name: 0 for axis in product.rows})
        at[product.joined] = row
    else:
        each = unravel(f, row, [axis.extent for axis in product.rows])
        at.update({axis.name: index for axis, index in zip(product.rows, each, strict=True)})
    return at

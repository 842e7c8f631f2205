"""Which tiles the outputs of Winograd's convolutions are cut into.

Tiles of one size seldom fit: four of 4 outputs cover 16 where a map has 14. So the last tiles of an axis are one output shorter,
as many as it takes: 4 + 4 + 3 + 3. They have a value less, that of the last finite point (`WinogradScheme.shorter`), and share
all other values of the filters with the long ones: a map of 14 x 14 takes 484 products for 576, one of 7 x 7 121 for 144, one
of 13 x 13 441 for 576.

Tiles are numbered by regions, so that those with a value at a position are always one run of numbers:

                  long columns   short columns
    long rows          2               1
    short rows         3               4
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

from fusewise.codegen.families.convolution.shape import Spatial
from fusewise.codegen.families.product.places import unravel
from fusewise.codegen.families.winograd.transform import WinogradScheme
from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.tree import Int, Value
from fusewise.ir.deciding import known_below, known_zero
from fusewise.records import record

__all__ = ["AxisTiling", "Grid", "Short", "TilePlace", "TileRegion", "TileRun", "for_scheme", "unless_missing"]

Short = tuple[Value | None, Value | None]
"""Whether the rows of a tile are short, and its columns; None where those of no tile are."""


@record(frozen=True)
class AxisTiling:
    """Tiles of `size` outputs along an axis; of one less at its end, where that fits and it is `trimmed`.

    Outputs whose distance is a multiple of the dilation make up a lattice, which reads a lattice of the inputs as an axis without
    dilation does. Tile number k is in lattice k modulo their number; lattices end one output apart, so that some of their last
    tiles lack outputs.
    """

    axis: Spatial
    size: int
    trimmed: bool = False

    @property
    def lattices(self) -> int:
        """Lattices that have outputs."""
        return 1 if self.axis.dilation == 1 else max(1, min(self.axis.dilation, self.axis.out))

    @property
    def each(self) -> int:
        """Tiles of a lattice."""
        return -(-self.axis.out // (self.axis.dilation * self.size))

    @property
    def count(self) -> int:
        return self.lattices * self.each

    @property
    def short(self) -> int:
        """Tiles that are one output shorter: the last ones. If all had to be, a scheme of that length is the one to take. Where
        sizes are not known that is a condition, and there may be none of them."""
        if not self.trimmed or self.lattices > 1:
            return 0
        missing = self.count * self.size - self.axis.out
        return missing if missing < self.count else 0

    def first(self, f: Function, number: Int) -> Int:
        """The first output of a tile; the next one is a dilation further."""
        if not known_zero(self.short):
            return f.sub(f.mul(number, self.size), f.maximum(f.sub(number, self.count - self.short), 0))
        if self.lattices == 1:
            return f.mul(number, self.size)
        step = self.size * self.axis.dilation
        return f.add(f.urem(number, self.lattices), f.mul(f.udiv(number, self.lattices), step))

    def lacks(self, place: int) -> bool:
        """Is there a tile without its output number `place` that is not a short one?"""
        return known_zero(self.short) and not known_below(
            (self.each - 1) * self.size + place, self.axis.out // self.lattices
        )


class TileRegion(NamedTuple):
    """Tiles of one kind, `begin` to `end` in their order: which axes are short, the first row and column, and how many of each."""

    short: tuple[bool, bool]
    first: tuple[int, int]
    counts: tuple[int, int]
    begin: int
    end: int


class TileRun(NamedTuple):
    """Tiles from and up to these numbers."""

    start: int
    stop: int

    @property
    def length(self) -> int:
        return self.stop - self.start


class TilePlace(NamedTuple):
    """Where a tile is: batch, slice, row and column of the grid; and whether rows and columns are short, None where none are."""

    batch: Int
    slice_at: Int
    row: Int
    column: Int
    short: Short


@record(frozen=True)
class Grid:
    """All tiles of a convolution."""

    batch: int
    slices: int
    rows: AxisTiling
    columns: AxisTiling

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """Tiles along batch, slices, rows and columns."""
        return self.batch, self.slices, self.rows.count, self.columns.count

    @property
    def tiles(self) -> int:
        return math.prod(self.counts)

    @cached_property
    def regions(self) -> tuple[TileRegion, ...]:
        """In the order of their numbers, those that have tiles."""
        found: list[TileRegion] = []
        sides = [(t.count - t.short, t.short) for t in (self.rows, self.columns)]
        for short in ((False, True), (False, False), (True, False), (True, True)):
            (long_rows, _), (long_columns, _) = sides
            first = (long_rows if short[0] else 0, long_columns if short[1] else 0)
            counts = (sides[0][short[0]], sides[1][short[1]])
            begin = found[-1].end if found else 0
            if not known_zero(math.prod(counts)):
                found.append(
                    TileRegion(short, first, counts, begin, begin + self.batch * self.slices * math.prod(counts))
                )
        return tuple(found)

    def with_values(self, row: bool, column: bool) -> TileRun:
        """The tiles that have a value at the last finite point of rows, if asked for that `row`, and of columns likewise."""
        found = [r for r in self.regions if not (row and r.short[0]) and not (column and r.short[1])]
        return TileRun(found[0].begin, found[-1].end) if found else TileRun(0, 0)

    def is_long(self, begin: int, end: int) -> tuple[bool, bool]:
        """Do any of these tiles have a value at the last finite point of rows, any at that of columns?"""
        some = [r.short for r in self.regions if r.begin < end and begin < r.end]
        rows, columns = (any(not short[axis] for short in some) for axis in range(2))
        return rows, columns

    def locate(self, f: Function, number: Int) -> TilePlace:
        """Where the tile of this number is."""
        regions = self.regions
        if len(regions) <= 1:
            batch, slice_at, row, column = unravel(f, number, self.counts)
            return TilePlace(batch, slice_at, row, column, (None, None))
        later = [f.compare("icmp sge", number, region.begin) for region in regions[1:]]

        def chosen(values: Sequence[int]) -> Int:
            if len(set(values)) == 1:
                return values[0]
            found = f.i64(values[0])
            for condition, value in zip(later, values[1:], strict=True):
                found = f.select(condition, f.i64(value), found)
            return found

        within = f.sub(number, chosen([region.begin for region in regions]))
        rows, columns = (chosen([region.counts[k] for region in regions]) for k in range(2))
        along, above = f.urem(within, columns), f.udiv(within, columns)
        down, above = f.urem(above, rows), f.udiv(above, rows)
        batch, slice_at = unravel(f, above, (self.batch, self.slices))
        first = (chosen([region.first[k] for region in regions]) for k in range(2))
        row, column = (f.add(at, start) for at, start in zip((down, along), first, strict=True))
        short = (self._is_short(f, 0, chosen), self._is_short(f, 1, chosen))
        return TilePlace(batch, slice_at, row, column, short)

    def _is_short(self, f: Function, axis: int, chosen: Callable[[Sequence[int]], Int]) -> Value | None:
        kinds = [region.short[axis] for region in self.regions]
        if not any(kinds):
            return None
        return f.compare("icmp ne", chosen([int(kind) for kind in kinds]), 0)


def for_scheme(
    f: Function, scheme: WinogradScheme, short: Value | None, body: Callable[[WinogradScheme, list[int]], None]
) -> None:
    """Run `body` with the scheme of a tile and the places of its values, those of the long tiles' scheme."""
    every, shorter = list(range(scheme.span)), scheme.shorter
    if short is None or shorter is None:
        body(scheme, every)
        return
    f.when(short, lambda: body(shorter, [*every[:-2], every[-1]]), lambda: body(scheme, every))


def unless_missing(
    f: Function, scheme: WinogradScheme, short: Value | None, place: Int, body: Callable[[], None]
) -> None:
    """Run `body` if the tile has a value at this place."""
    if short is None:
        body()
        return
    f.when(f.binary("and", short, f.compare("icmp eq", place, scheme.last_finite)), lambda: None, body)

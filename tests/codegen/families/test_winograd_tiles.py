"""Tiles of one size and shorter ones: they cover the outputs once, and those with a value are one run of numbers."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from fusewise.codegen.families.convolution.shape import Spatial
from fusewise.codegen.families.winograd.tiles import AxisTiling, Grid
from fusewise.codegen.nest.build import Module


def tiling(out: int, size: int, dilation: int = 1, trimmed: bool = True) -> AxisTiling:
    return AxisTiling(Spatial(out + 2 * dilation, out, 3, 1, dilation, 0), size, trimmed)


@given(out=st.integers(1, 70), size=st.integers(2, 6))
def test_tiles_cover_every_output_once(out: int, size: int) -> None:
    cut, f = tiling(out, size), Module().function("f", ())
    covered: list[int] = []
    for number in range(cut.count):
        first = cut.first(f, number)
        assert isinstance(first, int)
        length = size - (number >= cut.count - cut.short)
        covered += range(first, min(first + length, out) if cut.lacks(size - 1) else first + length)
    assert covered == list(range(out))


def test_as_many_are_short_as_it_takes() -> None:
    assert [tiling(out, 4).short for out in (16, 14, 13, 9, 7, 4, 3)] == [0, 2, 3, 0, 1, 0, 0]
    assert tiling(14, 4, trimmed=False).short == tiling(14, 4, dilation=2).short == 0
    assert tiling(14, 4, trimmed=False).lacks(3) and not tiling(14, 4).lacks(3)


extents = st.integers(1, 20)


@given(batch=st.integers(1, 3), slices=st.integers(1, 3), rows=extents, columns=extents)
def test_tiles_with_a_value_are_one_run(batch: int, slices: int, rows: int, columns: int) -> None:
    grid = Grid(batch, slices, tiling(rows, 4), tiling(columns, 4))
    kinds = [region.short for region in grid.regions for _ in range(region.begin, region.end)]
    assert len(kinds) == grid.tiles
    for row, column in product((False, True), repeat=2):
        having = [k for k, short in enumerate(kinds) if not (row and short[0]) and not (column and short[1])]
        assert having == list(range(*grid.with_values(row, column)))
    for begin, end in product(range(0, grid.tiles, 3), (1, 4, 50)):
        some = kinds[begin : begin + end]
        assert grid.is_long(begin, begin + end) == (not all(a for a, _ in some), not all(b for _, b in some))

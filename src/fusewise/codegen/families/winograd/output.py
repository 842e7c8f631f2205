"""The outputs of Winograd's convolution: A^T M A of every tile's products, and what is stored of them."""

from __future__ import annotations

from collections.abc import Sequence

from fusewise.codegen.families.winograd.plan import WinogradPlan
from fusewise.codegen.families.winograd.tiles import TilePlace, for_scheme, unless_missing
from fusewise.codegen.families.winograd.transform import Arithmetic, WinogradScheme
from fusewise.codegen.llvm.entry import Writer, initial
from fusewise.codegen.llvm.stores import Fetch, Finish
from fusewise.codegen.nest.tree import Int, Value
from fusewise.records import record

__all__ = ["OUTPUT_LEVEL", "OutputStrip", "emit_outputs"]

AHEAD, OUTPUT_LEVEL = 4, 2
"""How many tiles before they are written outputs are fetched, and where to: two tiles and the first level do as well."""


@record(frozen=True)
class OutputStrip(Writer):
    """The code of one strip being written. Outputs are fetched before they are written if there is a `fetch`; `tag` says
    whose inputs lie there."""

    plan: WinogradPlan
    inputs: Value
    filters: Value
    products: Value
    stage: Value
    zeros: Value
    between: Value
    finish: Finish
    heavy: bool
    fetch: Fetch | None
    tag: Value

    @property
    def arithmetic(self) -> Arithmetic:
        return Arithmetic(self.f, self.instructions)


def emit_outputs(s: OutputStrip, first: Int, count: Int, low: Int, high: Int) -> None:
    """Transform the products of the strip's tiles, `count` from `first` on, and panels low..high back, add the bias and run the
    stores."""
    f, plan, tile = s.f, s.plan, s.plan.tile
    vectors = f.mul(f.sub(high, low), tile.vectors)
    kept = f.alloca(tile.kind, plan.form.columns.tile) if s.heavy else None

    def located(number: Int) -> tuple[TilePlace, tuple[Int, Int]]:
        place = plan.grid.locate(f, number)
        return place, (plan.grid.rows.first(f, place.row), plan.grid.columns.first(f, place.column))

    def one(t: Value, _: Sequence[Value]) -> None:
        place, corner = located(f.add(first, t))
        coming, begin = (
            located(f.minimum(f.add(first, f.add(t, AHEAD)), plan.tiles - 1)) if s.fetch else (place, corner)
        )
        start = f.at(s.products, f.mul(t, plan.group_width))

        def channels(v: Value, _: Sequence[Value]) -> None:
            column = f.add(f.mul(low, tile.width), f.mul(v, tile.lanes))
            column = f.minimum(column, plan.planes.shape.outputs - tile.lanes)
            bias = plan.planes.shape.bias
            given = None
            if bias is not None:
                given = initial(s.o, bias, [column], tile.kind, tile.lanes)[0]
            if s.fetch is not None:
                _Tile(s, coming, begin, column, None, start, None).fetch(s.fetch)
            _Tile(s, place, corner, column, given, f.at(start, f.mul(v, tile.lanes)), kept).emit()

        f.loop(0, vectors, 1, channels, rolled=True)

    f.loop(0, count, 1, one, rolled=True)


@record(frozen=True)
class _Tile:
    """A vector of channels of one tile, from `column` on: its first row and column of outputs, its `bias`, where its `products`
    begin, memory for a row of it."""

    s: OutputStrip
    place: TilePlace
    corner: tuple[Int, Int]
    column: Int
    bias: Value | None
    products: Value
    kept: Value | None

    def emit(self) -> None:
        """The columns of positions, and then the rows of the tile."""
        f, (rows, columns) = self.s.f, self.s.plan.form
        if rows.span == columns.span == 1:
            self._row(0, [self._product(0, 0)])
            return
        short_rows, short_columns = self.place.short

        def column(j: Value, _: Sequence[Value]) -> None:
            unless_missing(
                f, columns, short_columns, j, lambda: for_scheme(f, rows, short_rows, lambda *a: self._down(j, *a))
            )

        def row(i: Value, _: Sequence[Value]) -> None:
            for_scheme(f, columns, short_columns, lambda *a: self._along(i, *a))
            if self.kept is not None:
                self._later(i)

        high: Int = rows.tile if short_rows is None else f.select(short_rows, f.i64(rows.tile - 1), f.i64(rows.tile))
        f.loop(0, columns.span, 1, column, rolled=True)
        f.loop(0, high, 1, row, rolled=True)

    def _product(self, i: int, j: Int) -> Value:
        f, plan = self.s.f, self.s.plan
        step = f.mul(f.add(j, i * plan.form.columns.span), plan.product_pitch)
        return f.load(plan.tile.kind, f.at(self.products, step))

    def _down(self, j: Int, scheme: WinogradScheme, positions: Sequence[int]) -> None:
        f, kind, across = self.s.f, self.s.plan.tile.kind, self.s.plan.form.columns.span
        there = f.at(self.s.between, j, kind)
        for i, value in enumerate(scheme.outputs(self.s.arithmetic, [self._product(i, j) for i in positions])):
            f.store(value, f.at(there, i * across, kind))

    def _along(self, i: Int, scheme: WinogradScheme, positions: Sequence[int]) -> None:
        f, kind, across = self.s.f, self.s.plan.tile.kind, self.s.plan.form.columns.span
        start = f.at(self.s.between, f.mul(i, across), kind)
        self._row(i, scheme.outputs(self.s.arithmetic, [f.load(kind, f.at(start, j, kind)) for j in positions]))

    def _row(self, i: Int, values: Sequence[Value]) -> None:
        f = self.s.f
        for j, value in enumerate(values if self.bias is None else [f.fadd(value, self.bias) for value in values]):
            if self.kept is None:
                self._pixel(i, j, j, value)
            else:
                f.store(value, f.at(self.kept, j, self.s.plan.tile.kind))

    def _later(self, i: Int) -> None:
        """The pixels of a row that was kept, whose stores are long: their code is there once."""
        f, kind, scheme, short = self.s.f, self.s.plan.tile.kind, self.s.plan.form.columns, self.place.short[1]
        kept = self.kept
        assert kept is not None

        def one(j: Value, _: Sequence[Value]) -> None:
            self._pixel(i, j, scheme.tile - 1, f.load(kind, f.at(kept, j, kind)))

        wide: Int = scheme.tile if short is None else f.select(short, f.i64(scheme.tile - 1), f.i64(scheme.tile))
        f.loop(0, wide, 1, one, rolled=True)

    def _pixel(self, i: Int, j: Int, most: int, value: Value) -> None:
        """Run the stores of one output pixel if it exists; at an edge, the last ones of a tile may not. `most` is the largest j."""
        f, plan, grid = self.s.f, self.s.plan, self.s.plan.grid
        tilings = (grid.rows, grid.columns)
        row, line = (f.add(a, f.mul(k, t.axis.dilation)) for a, k, t in zip(self.corner, (i, j), tilings, strict=True))
        indices = self._indices(row, line)
        tests = [
            f.compare("icmp slt", where, tiling.axis.out)
            for where, tiling, k in zip((row, line), tilings, (plan.form.rows.tile - 1, most), strict=True)
            if tiling.lacks(k)
        ]

        def store() -> None:
            self.s.finish(indices, "i1", value, value.lanes)

        if not tests:
            store()
            return
        f.when(tests[0] if len(tests) == 1 else f.binary("and", tests[0], tests[1]), store)

    def fetch(self, fetch: Fetch) -> None:
        """Fetch where the tile's outputs will be written; what lies beyond an edge is fetched for nothing."""
        f, plan, lanes = self.s.f, self.s.plan, self.s.plan.tile.lanes
        rows, columns = plan.grid.rows.axis, plan.grid.columns.axis

        def row(i: Value, _: Sequence[Value]) -> None:
            down = f.add(self.corner[0], f.mul(i, rows.dilation))
            for j in range(plan.form.columns.tile):
                fetch(self._indices(down, f.add(self.corner[1], j * columns.dilation)), "i1", lanes)

        f.loop(0, plan.form.rows.tile, 1, row, rolled=True)

    def _indices(self, row: Int, line: Int) -> dict[str, Int]:
        """Output indices of a pixel."""
        names, at = self.s.plan.planes.names, (self.place.slice_at, row, line)
        return {"i0": self.place.batch, "i1": self.column, **dict(zip(names, at[-len(names) :], strict=True))}

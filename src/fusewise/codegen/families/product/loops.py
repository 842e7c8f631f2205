"""Blocks, panels and tiles: the loops around the register tile that all product-like kernels share.

The rows of the product are a space of axes (for a convolution: output rows and columns), flattened and cut into tiles of equal
height; the last tile is moved back to end at the last row, so there is one tile shape and no remainder code. Tiles are grouped
into blocks whose left operand stays in the second cache level while the panels of columns go by:

    for block:  prepare the left operand (a convolution copies its padded input rows)
      for panel:  for tile:  reduce in registers, run the stores

A reduction whose panels are too long for the caches is done in chunks, with the sums of all tiles in memory in between.

Work is dealt out as tiles in that order, or of every block as (panel, tile) pairs, so that with equal shares no worker waits longer
than one tile takes. A panel is fetched from memory while the one before it is worked on (`product.prefetch`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from fusewise.codegen.families.product.dealing import TileBlocks, ceiling, deal, deal_tiles
from fusewise.codegen.families.product.places import Left, column_at, row_pointers, unravel
from fusewise.codegen.families.product.plan import Product, ProductSchedule, merged
from fusewise.codegen.families.product.prefetch import StepPrefetch, later_of, next_panel
from fusewise.codegen.families.product.results import ResultPlace, fetch_row, finish_row, is_result
from fusewise.codegen.llvm.share import Share
from fusewise.codegen.llvm.stores import Fetch, Finish
from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.tile import (
    Ahead,
    Panel,
    Reduction,
    ReductionLoop,
    Tile,
    accumulate,
    accumulate_tiles,
    with_tiles,
)
from fusewise.codegen.nest.tree import Int, Value
from fusewise.codegen.nest.types import memory_type
from fusewise.codegen.target import SECOND_LEVEL, InstructionSet
from fusewise.ir.deciding import known_equal, known_one, known_zero
from fusewise.ir.dtypes import FLOAT32
from fusewise.ir.size import SizeNeeded
from fusewise.records import record

__all__ = [
    "Otherwise",
    "Parts",
    "Taps",
    "emit_product",
]


Taps = Callable[[Tile, Int, Left, Panel, Sequence[Value], Sequence[Ahead]], Sequence[Value]]


@record(frozen=True)
class Otherwise:
    """What is done instead of a matrix unit's products of operands that these are not good for. A reduction is then not in chunks.

    - `odd(left, outer)`: not 0 where there are such rows in a block, and where the right operand is such, both int32.
    - `add(tile, sums, start, rows, panel, right)` makes the sums of a tile, which lie in memory, of `start` and the products of
      such rows, or of all where `right` is not 0. Rows and columns are a pointer and a pitch in lanes.
    """

    odd: Callable[[Left, Sequence[Int]], tuple[Value, Value]]
    add: Callable[[Tile, Value, Sequence[Value], tuple[Value, Int], tuple[Value, int], Value], None]


@record(frozen=True)
class Parts:
    """What a kernel gives to the loops.

    - `left(outer, first, last)` prepares the rows first..last (flat) of an outer index and says where they are.
    - `right(outer, group, panel, columns)` points to the columns of a panel; `columns` are within the group.
    - `start(outer, columns)` gives the initial value per vector; `columns` count over all groups.
    - `finish` runs the stores; it finds the number of the group among its indices, under the name `group`. With
      `rolled_finish` it is emitted once, in a loop over the rows of a tile.
    - `group_at(group)` is the offset of a group in the left operand and its first column; by default 0 and its turn.
    - `taps` replaces the reduction: given tile, flat row, the left operand, the panel, the initial sums and what to fetch.
    - `together` groups share a vector, see `accumulate`.
    - `reading` fetches what the stores read, when the reduction of their tile begins, if it is not done in chunks.
    - `kept` is memory for `Product.kept` elements, needed where the reduction is done in chunks.
    - `later` is memory that a later step reads, see `Kernel.cycles`.
    - `otherwise`: where a matrix unit's products will not do for every operand.
    - `of_row(left, row, results)` is added to what the sums of a row begin with, if they lie in memory.
    """

    left: Callable[[Sequence[Int], Int, Int], Left]
    right: Callable[[Sequence[Int], Int, Int, Sequence[Int]], Panel]
    start: Callable[[Sequence[Int], Sequence[Int]], Sequence[Value]]
    finish: Finish
    rolled_finish: bool = False
    reading: Fetch | None = None
    group_at: Callable[[Int], tuple[Int, Int]] | None = None
    taps: Taps | None = None
    together: int = 1
    kept: Value | None = None
    later: Value | None = None
    otherwise: Otherwise | None = None
    of_row: Callable[[Left, Int, ResultPlace], Sequence[Value]] | None = None


@record(frozen=True)
class _Emission:
    """One product being written: everything the loops share."""

    f: Function
    instructions: InstructionSet
    product: Product
    parts: Parts
    schedule: ProductSchedule
    scratch: Value | None
    later: StepPrefetch | None = None
    whole: Left | None = None

    @property
    def tile(self) -> Tile:
        return self.schedule.tile

    @property
    def per_block(self) -> int:
        """Tiles of a block."""
        return self.schedule.per_block

    @property
    def chunk(self) -> int:
        """Steps of the reduction that are done at once."""
        return self.schedule.chunk or self.product.depth

    @property
    def chunks(self) -> int:
        """Pieces that the reduction is done in; of one without steps, one."""
        return 1 if not self.schedule.chunk or known_zero(self.product.depth) else self.product.depth // self.chunk

    @property
    def tiles(self) -> int:
        return -(-self.product.height // self.tile.rows)

    @property
    def cut(self) -> TileBlocks:
        return TileBlocks(self.tiles, self.per_block)

    @property
    def in_group(self) -> int:
        """Panels of one group."""
        return -(-self.product.columns // self.tile.width)

    def begin(self, block: Int) -> Int:
        """The first tile of a block."""
        return self.cut.begin(self.f, block)

    def first_row(self, number: Int) -> Int:
        """The first row of a tile; the last tile is moved back to end at the last row."""
        first = self.f.mul(number, self.tile.rows)
        height = self.product.height
        return first if known_zero(height % self.tile.rows) else self.f.minimum(first, height - self.tile.rows)


def emit_product(
    f: Function, instructions: InstructionSet, product: Product, schedule: ProductSchedule, share: Share, parts: Parts
) -> None:
    """Emit the loops."""
    if any(map(known_zero, (product.height, product.repeats, product.columns))):
        return
    if schedule.tile.rows > 1 and product.height < schedule.tile.rows:  # the last tile ends at the last row
        raise SizeNeeded(f"a tile of {schedule.tile.rows} rows is none for {product.height}")
    if schedule.chunk and product.depth % schedule.chunk:
        raise SizeNeeded(f"chunks of {schedule.chunk} steps do not make {product.depth}")
    tile, by_columns = schedule.tile, schedule.by_columns
    in_memory = parts.rolled_finish or tile.instruction.matrix is not None
    scratch = f.alloca(tile.element, tile.rows * tile.width) if in_memory else None
    e = _Emission(f, instructions, product, parts, schedule, scratch)
    units, panels = product.repeats * e.cut.blocks, product.groups * e.in_group
    if parts.later is not None and schedule.prefetch is not None:
        e = replace(e, later=later_of(f, share, parts.later, schedule.prefetch, units * panels * e.per_block))

    def chunk(number: Int) -> None:
        # every worker has the same pairs in each chunk, so that nobody waits for another's sums
        if by_columns or e.per_block == 1 or known_one(e.cut.blocks):
            deal(f, share, units, panels, by_columns, lambda *which: _block(e, number, *which), e.per_block)
        else:
            deal_tiles(f, share, product.repeats, e.cut, panels, lambda *which: _block(e, number, *which))

    if e.chunks == 1:
        with_tiles(f, tile.instruction, lambda: chunk(0))
        return
    if known_one(units):  # rows are prepared once, not for every chunk
        e = replace(e, whole=parts.left([0] * len(product.outer), 0, product.height - 1))

    def every() -> None:
        f.loop(0, e.chunks, 1, lambda number, _: chunk(number), rolled=True)

    with_tiles(f, tile.instruction, every)


def _block(e: _Emission, chunk: Int, unit: Int, pair_low: Int, pair_high: Int) -> None:
    """Some (panel, tile) pairs of one block of rows, panel by panel."""
    f = e.f
    outer = unravel(f, f.udiv(unit, e.cut.blocks), [extent for _, extent in e.product.outer])
    number = f.urem(unit, e.cut.blocks)
    low, end = e.begin(number), e.begin(f.add(number, 1))
    last = f.add(e.first_row(f.sub(end, 1)), e.tile.rows - 1)
    left = _chunk_of(e, e.whole or e.parts.left(outer, e.first_row(low), last), chunk)
    block = _BlockOf(left, outer, chunk, unit, low)

    def panel(p: Value, _: Sequence[Value]) -> None:
        before = f.mul(p, e.per_block)
        first = f.add(low, f.maximum(f.sub(pair_low, before), 0))
        high = f.add(low, f.minimum(f.sub(pair_high, before), e.per_block))
        if not known_zero(e.tiles % e.per_block):
            high = f.minimum(high, end)
        _panel(e, block, first, high, p)

    f.loop(f.udiv(pair_low, e.per_block), ceiling(f, pair_high, e.per_block), 1, panel, rolled=True)


def _chunk_of(e: _Emission, left: Left, chunk: Int) -> Left:
    """The steps of a chunk of the reduction: a part of its outermost loop."""
    if e.chunks == 1:
        return left
    outermost, *inner = left.levels
    steps = outermost.extent // e.chunks
    offset = e.f.add(left.offset, e.f.mul(chunk, steps * outermost.stride))
    return Left(left.pointer, offset, (ReductionLoop(steps, outermost.stride), *inner))


@record(frozen=True)
class _BlockOf:
    """The block that begins at tile `begin`, as one unit of work: its rows at the steps of a chunk, and its outer index."""

    left: Left
    outer: Sequence[Int]
    chunk: Int
    unit: Int
    begin: Int


def _panel(e: _Emission, block: _BlockOf, low: Int, high: Int, p: Int) -> None:
    """The tiles low..high of a block against one panel."""
    f, parts, product, tile = e.f, e.parts, e.product, e.tile
    where, outer, chunk = block.left, block.outer, block.chunk
    group, q = (0, p) if product.groups == 1 else (f.udiv(p, e.in_group), f.urem(p, e.in_group))
    inside = [column_at(product, tile, q, v, f) for v in range(tile.vectors)]
    offset, first = (0, f.mul(group, product.columns)) if parts.group_at is None else parts.group_at(group)
    columns = [f.add(first, c) for c in inside]
    results = ResultPlace(outer, group, columns)
    strip = _chunk_of_panel(e, parts.right(outer, group, q, inside), chunk)
    initial = parts.start(outer, columns)
    origin = Left(where.pointer, f.add(where.offset, offset), where.levels)
    odd = None if parts.otherwise is None else parts.otherwise.odd(origin, outer)

    def one(t: Value, _: Sequence[Value]) -> None:
        row = e.first_row(t)
        sums: Sequence[Value] = [initial[v] for _ in range(tile.rows) for v in range(tile.vectors)]
        ahead = [*_ahead(e, strip.following, block.unit, p, f.sub(t, block.begin)), *_next_rows(e, origin, row)]
        if parts.reading is not None and e.chunks == 1 and not product.has_gaps:
            for r in range(tile.rows):
                fetch_row(f, product, tile, results, f.add(row, r), parts.reading)
        if tile.instruction.matrix is not None:
            which = chunk, f.add(f.mul(p, e.tiles), t)
            from_zero = e.chunks == 1 and all(value == f.constant(0, tile.kind) for value in initial)
            if parts.of_row is not None:
                from_zero, sums = False, _with_rows(e, parts.of_row, origin, row, results, initial)
            add = _tile_adder(e, row, origin, strip, from_zero, None if odd is None else (initial, *odd))
            _in_memory(e, results, row, [] if from_zero else sums, which, add)
            return
        if parts.taps is not None:
            sums = parts.taps(tile, row, origin, strip, sums, ahead)
        else:
            rows = row_pointers(f, product, tile, origin, row)
            begun = sums if e.chunks == 1 else [f.constant(0.0, tile.kind)] * len(sums)
            reduction = Reduction(tuple(rows), strip, origin.levels, product.dtype, parts.together, tuple(ahead))
            found = accumulate(f, tile, reduction, begun)
            sums = found if e.chunks == 1 else _with_kept(e, chunk, f.add(f.mul(p, e.tiles), t), sums, found)

        def finish() -> None:
            _finish_tile(e, results, row, sums)

        if e.chunks == 1:
            finish()
        else:
            f.when(f.compare("icmp eq", f.add(chunk, 0), e.chunks - 1), finish)

    f.loop(low, high, 1, one, rolled=True)


def _with_rows(
    e: _Emission,
    of_row: Callable[[Left, Int, ResultPlace], Sequence[Value]],
    left: Left,
    row: Int,
    results: ResultPlace,
    initial: Sequence[Value],
) -> list[Value]:
    """What the sums of a tile of integers begin with, where that is not the same for all rows."""
    rows = (of_row(left, e.f.add(row, r), results) for r in range(e.tile.rows))
    return [e.f.binary("add", a, b) for own in rows for a, b in zip(initial, own, strict=True)]


def _in_memory(
    e: _Emission,
    results: ResultPlace,
    row: Int,
    start: Sequence[Value],
    which: tuple[Int, Int],
    add: Callable[[Value], None],
) -> None:
    """A tile by a matrix unit: sums begin and end in memory, which between the chunks of a reduction is what is kept of the tile.
    `which` has the chunk and the number of the tile; `add` adds to the sums."""
    f, tile, (chunk, number) = e.f, e.tile, which
    sums = e.scratch
    if e.chunks > 1:
        assert e.parts.kept is not None
        sums = f.at(e.parts.kept, f.mul(number, tile.rows * tile.width), tile.element)
    assert sums is not None

    def begin() -> None:
        for k, value in enumerate(start):
            f.store(value, f.at(sums, k * tile.lanes, tile.element))

    if e.chunks == 1:
        begin()
    else:
        f.when(f.compare("icmp eq", f.add(chunk, 0), 0), begin)
    add(sums)
    if e.chunks == 1:
        _finish_rows(e, results, row, sums)
    else:
        last = f.compare("icmp eq", f.add(chunk, 0), e.chunks - 1)
        f.when(last, lambda: _finish_rows(e, results, row, sums))


def _tile_adder(
    e: _Emission,
    row: Int,
    left: Left,
    panel: Panel,
    from_zero: bool,
    odd: tuple[Sequence[Value], Value, Value] | None,
) -> Callable[[Value], None]:
    """What adds to the sums of a tile, which lie in memory unless they begin `from_zero`: its instruction, and where operands are
    `odd` what is done otherwise, from what sums begin with on."""
    f, tile, product, otherwise = e.f, e.tile, e.product, e.parts.otherwise
    (axis,) = merged(product.rows)
    first = f.at(left.pointer, f.add(left.offset, f.mul(row, axis.stride)), memory_type(product.dtype))
    rows, columns = (first, axis.stride), (panel.columns[0], panel.pitch)

    def by_unit(sums: Value) -> None:
        accumulate_tiles(f, tile, sums, rows, columns, left.levels, from_zero)

    if odd is None or otherwise is None:
        return by_unit
    start, some, right = odd

    def add(sums: Value) -> None:
        f.when(f.compare("icmp eq", right, f.constant(0, "i32")), lambda: by_unit(sums))
        either = f.compare("icmp ne", f.binary("or", some, right), f.constant(0, "i32"))
        f.when(either, lambda: otherwise.add(tile, sums, start, rows, columns, right), rarely=True)

    return add


def _chunk_of_panel(e: _Emission, panel: Panel, chunk: Int) -> Panel:
    """The columns of a panel at the steps of a chunk."""
    if e.chunks == 1:
        return panel
    f = e.f
    stored = e.tile.element if panel.dtype is None else memory_type(panel.dtype)
    skip = f.mul(chunk, e.chunk * panel.pitch)
    following = None if panel.following is None else f.at(panel.following, skip, stored)
    return Panel(tuple(f.at(c, skip, stored) for c in panel.columns), panel.pitch, panel.dtype, following)


def _with_kept(e: _Emission, chunk: Int, number: Int, start: Sequence[Value], found: Sequence[Value]) -> list[Value]:
    """A tile's sums up to this chunk, which are kept for the next; the first adds to `start`."""
    f, tile = e.f, e.tile
    assert e.parts.kept is not None
    first = f.at(e.parts.kept, f.mul(number, tile.rows * tile.width), tile.element)
    places = [f.at(first, k * tile.lanes, tile.element) for k in range(len(found))]
    before = f.when(
        f.compare("icmp eq", f.add(chunk, 0), 0), lambda: start, lambda: [f.load(tile.kind, at) for at in places]
    )
    sums = [f.fadd(a, b) for a, b in zip(before, found, strict=True)]
    for value, place in zip(sums, places, strict=True):
        f.store(value, place)
    return sums


def _ahead(e: _Emission, following: Value | None, unit: Int, p: Int, turn: Int) -> list[Ahead]:
    """What is fetched meanwhile by tile number `turn` of a unit and a panel: of the next panel, and for a later step."""
    f, found = e.f, []
    if following is not None and e.schedule.panel_level:
        found.append(next_panel(f, e.tile, e.chunk, e.per_block, following, turn, e.schedule.panel_level))
    if e.later is not None and e.chunks == 1:
        units, panels = e.product.repeats * e.cut.blocks, e.product.groups * e.in_group
        pair = f.add(f.mul(p, units), unit) if e.schedule.by_columns else f.add(f.mul(unit, panels), p)
        found.append(e.later.ahead(f, f.add(f.mul(pair, e.per_block), turn), e.chunk))
    return found


def _next_rows(e: _Emission, left: Left, row: Int) -> list[Ahead]:
    """The rows after those of a tile, where they lie side by side in a large operand: the first panel would wait for them."""
    f, product, axes, size = e.f, e.product, merged(e.product.rows), FLOAT32.itemsize
    is_plain = e.parts.taps is None and e.chunks == 1 and product.groups == 1 and len(left.levels) == 1
    is_dense = len(axes) == 1 and known_equal(axes[0].stride, product.depth) and product.dtype == FLOAT32
    if not (is_plain and is_dense and e.schedule.next_rows):
        return []
    start = f.at(left.pointer, f.add(left.offset, f.mul(f.add(row, e.tile.rows), product.depth)))
    return [Ahead(start, e.tile.rows * size, SECOND_LEVEL)]


def _finish_tile(e: _Emission, results: ResultPlace, row: Int, sums: Sequence[Value]) -> None:
    """Run the stores for every row of a tile, in a loop over rows when there is scratch memory for it."""
    f, tile, scratch = e.f, e.tile, e.scratch
    if scratch is None:
        for r in range(tile.rows):
            values = sums[r * tile.vectors : (r + 1) * tile.vectors]
            finish_row(f, e.product, tile, results, f.add(row, r), values, e.parts.finish)
        return
    for k, value in enumerate(sums):
        f.store(value, f.at(scratch, k * tile.lanes, tile.element))
    _finish_rows(e, results, row, scratch)


def _finish_rows(e: _Emission, results: ResultPlace, row: Int, sums: Value) -> None:
    """The same for sums that lie in memory."""
    f, tile = e.f, e.tile

    def later(r: Value, _: Sequence[Value]) -> None:
        at = [f.at(sums, f.add(f.mul(r, tile.width), v * tile.lanes), tile.element) for v in range(tile.vectors)]
        values = [f.load(tile.kind, place) for place in at]
        number = f.add(row, r)

        def finish() -> None:
            finish_row(f, e.product, tile, results, number, values, e.parts.finish)

        if e.product.has_gaps:
            f.when(is_result(f, e.product, number), finish)
        else:
            finish()

    f.loop(0, tile.rows, 1, later, rolled=True)

"""Products by Strassen's algorithm: seven products of half the size in every direction in place of eight.

    [A11 A12]   [B11 B12]      M1 = (A11 + A22)(B11 + B22)    M5 = (A11 + A12) B22
    [A21 A22] x [B21 B22]      M2 = (A21 + A22) B11           M6 = (A21 - A11)(B11 + B12)
                               M3 = A11 (B12 - B22)           M7 = (A12 - A22)(B21 + B22)
                               M4 = A22 (B21 - B11)

    C11 = M1 + M4 - M5 + M7,  C12 = M3 + M5,  C21 = M2 + M4,  C22 = M1 - M2 + M3 + M6

The halves of the rows are every other one, so that a block of rows has both; those of columns and depth are the first and the
second. For a block each worker writes the seven left factors, row by row. For every panel of columns it then takes one right
factor after the other: the first tile of the block makes it on the way, in instructions that multiplications leave free, the
others find it made. At last the seven products are added up and the stores run. The weights lie as other products have them.

V. Strassen, Gaussian elimination is not optimal, Numerische Mathematik 13, 1969.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fusewise.codegen.kernel import Params
from fusewise.codegen.llvm.emit import Function, Int, Value
from fusewise.codegen.llvm.gemm_fetch import next_panel
from fusewise.codegen.llvm.gemm_finish import Finish
from fusewise.codegen.llvm.gemm_plan import tile_of
from fusewise.codegen.llvm.gemm_product import column_at, finish_row
from fusewise.codegen.llvm.gemm_share import Blocks, ceiling, deal, deal_tiles
from fusewise.codegen.llvm.gemm_tile import Level, Panel, Sign, Sum, Tile, accumulate
from fusewise.codegen.llvm.strassen_plan import FACTORS, Halves, panels_of
from fusewise.codegen.target import LINE_BYTES, Target

__all__ = ["Ends", "emit_strassen", "strassen_bytes"]

LEFT = ((1, 0, 0, 1), (0, 0, 1, 1), (1, 0, 0, 0), (0, 0, 0, 1), (1, 1, 0, 0), (-1, 0, 1, 0), (0, 1, 0, -1))
"""How often A11, A12, A21, A22 stand in each left factor."""

RIGHT = ((1, 0, 0, 1), (1, 0, 0, 0), (0, 1, 0, -1), (-1, 0, 1, 0), (0, 0, 0, 1), (1, 1, 0, 0), (0, 0, 1, 1))
"""How often B11, B12, B21, B22 stand in each right factor."""

FETCHED = (1, 2, 0, 3, 3, 3, 3)
"""The quarter of the right operand that is fetched while a product is computed: of the first two, one that is needed two products
later; of the others, one of the next panel."""

RESULT = ((1, 0, 0, 1, -1, 0, 1), (0, 0, 1, 0, 1, 0, 0), (0, 1, 0, 1, 0, 0, 0), (1, -1, 1, 0, 0, 1, 0))
"""How often each product stands in C11, C12, C21, C22."""


@dataclass(frozen=True)
class _Room:
    """Where things lie in a worker's memory, in elements: the left factors, one right factor, the products."""

    h: Halves
    tile: Tile
    per_block: int

    @property
    def pitch(self) -> int:
        """From one row of a left factor to the next: a little more than the row, or many rows would share a set of the cache."""
        return self.h.depth + LINE_BYTES // 4

    @property
    def left(self) -> int:
        """Elements of the left factors, which lie row by row."""
        return self.per_block * self.tile.rows * FACTORS * self.pitch

    @property
    def right(self) -> int:
        """Elements of a panel's part of a quarter of the right operand."""
        return self.h.depth * self.tile.width

    @property
    def made(self) -> int:
        """Elements of a chunk of a right factor."""
        return self.h.chunk * self.tile.width

    @property
    def sums(self) -> int:
        """Elements of one product."""
        return self.per_block * self.tile.rows * self.tile.width

    @property
    def elements(self) -> int:
        return self.left + FACTORS * self.sums + self.made


def strassen_bytes(h: Halves, params: Params) -> int:
    """Working memory of a worker."""
    return _Room(h, tile_of(params), int(params["tiles"])).elements * 4


@dataclass(frozen=True)
class Ends:
    """What a kernel gives: the left operand's first element, the packed right operand, initial values, the stores, and memory."""

    left: Value
    right: Value
    start: Callable[[Sequence[Int]], Sequence[Value]]
    finish: Finish
    own: Value


@dataclass(frozen=True)
class _Emission:
    f: Function
    target: Target
    h: Halves
    tile: Tile
    room: _Room
    ends: Ends

    @property
    def panels(self) -> int:
        """Panels of each half of the columns."""
        return panels_of(self.h, self.tile) // 2

    @property
    def quarters(self) -> tuple[int, ...]:
        """Where B11, B12, B21, B22 begin in the packed operand, for the first panel."""
        across = self.panels * 2 * self.room.right
        return 0, across, self.room.right, across + self.room.right

    @property
    def chunks(self) -> int:
        """Pieces that the depth is done in."""
        return self.h.depth // self.h.chunk

    @property
    def cut(self) -> Blocks:
        return Blocks(-(-self.h.height // self.tile.rows), self.room.per_block)

    def first_row(self, number: Int) -> Int:
        """The first row of a tile; the last tile is moved back to end at the last row."""
        first, height = self.f.mul(number, self.tile.rows), self.h.height
        return first if height % self.tile.rows == 0 else self.f.minimum(first, height - self.tile.rows)


def emit_strassen(
    f: Function, target: Target, h: Halves, params: Params, worker: Value, workers: Value, ends: Ends
) -> None:
    """Emit the loops."""
    tile, per_block = tile_of(params), int(params["tiles"])
    e = _Emission(f, target, h, tile, _Room(h, tile, per_block), ends)

    def block(unit: Int, low: Int, high: Int) -> None:
        f.when(f.compare("icmp slt", low, high), lambda: _block(e, unit, low, high))

    if e.cut.blocks == 1:
        deal(f, worker, workers, e.cut.blocks, e.panels, True, block, per_block)
    else:
        deal_tiles(f, worker, workers, 1, e.cut, e.panels, block)


def _block(e: _Emission, unit: Int, pair_low: Int, pair_high: Int) -> None:
    """Some (panel, tile) pairs of a block of rows, panel by panel."""
    f, per_block = e.f, e.room.per_block
    low, end = e.cut.begin(f, unit), e.cut.begin(f, f.add(unit, 1))
    first = e.first_row(low)
    coming = f.at(e.ends.right, f.mul(f.udiv(pair_low, per_block), 2 * e.room.right))
    _left_factors(e, first, f.sub(f.add(e.first_row(f.sub(end, 1)), e.tile.rows), first), coming)

    def panel(p: Value, _: Sequence[Value]) -> None:
        before = f.mul(p, per_block)
        begin = f.add(low, f.maximum(f.sub(pair_low, before), 0))
        stop = f.minimum(f.add(low, f.minimum(f.sub(pair_high, before), per_block)), end)
        _panel(e, low, begin, stop, p)

    f.loop(f.udiv(pair_low, per_block), ceiling(f, pair_high, per_block), 1, panel, rolled=True)


def _combined(f: Function, signs: Sequence[int], values: Sequence[Value]) -> Value:
    """The sum of values with signs; the first that is there counts positively, if any does."""
    chosen = sorted((v for v in zip(signs, values, strict=True) if v[0]), key=lambda v: -v[0])
    total = chosen[0][1]
    for sign, value in chosen[1:]:
        total = f.fadd(total, value) if sign > 0 else f.fsub(total, value)
    return total


def _left_factors(e: _Emission, first: Int, count: Int, coming: Value) -> None:
    """Write the left factors of `count` pairs of rows from `first` on; a row that the last pair lacks is its first over again.

    The right factor of the first product against the panel at `coming` is fetched meanwhile.
    """
    f, h, tile = e.f, e.h, e.tile
    steps = h.depth // tile.lanes
    lines = -(-e.room.made * 4 // (LINE_BYTES * e.room.per_block * tile.rows * steps))
    x, y = (f.at(coming, e.quarters[k]) for k in (0, 3))

    def row(r: Value, _: Sequence[Value]) -> None:
        upper = f.mul(f.add(first, r), 2)
        lower = f.add(upper, 1)
        if h.product.height % 2:
            lower = f.minimum(lower, h.product.height - 1)
        starts = [f.at(e.ends.left, f.add(f.mul(at, h.pitch), k)) for at in (upper, lower) for k in (0, h.depth)]
        to = f.at(e.ends.own, f.mul(r, FACTORS * e.room.pitch))

        def step(k: Value, _: Sequence[Value]) -> None:
            turn = f.add(f.mul(r, steps), f.udiv(k, tile.lanes))
            for line in range(lines):
                for start in (x, y):
                    f.prefetch(f.at(start, f.mul(f.add(f.mul(turn, lines), line), LINE_BYTES), "i8"), 2)
            quarters = [f.load(tile.kind, f.at(start, k)) for start in starts]
            for number, signs in enumerate(LEFT):
                f.store(_combined(f, signs, quarters), f.at(to, f.add(k, number * e.room.pitch)))

        f.loop(0, h.depth, tile.lanes, step, rolled=True)

    f.loop(0, count, 1, row, rolled=True)


@dataclass(frozen=True)
class _Right:
    """A right factor x + y, signed, made by the first tile of a panel; `following` is fetched meanwhile."""

    x: Value
    y: Value
    sign: Sign
    made: Value
    following: Value


def _panel(e: _Emission, block: Int, low: Int, high: Int, p: Int) -> None:
    """The tiles low..high of the block that begins at tile `block`, against one panel of each half of the columns."""
    f, room = e.f, e.room
    sums = f.at(e.ends.own, room.left + room.made)
    tables = _tables(e)

    def factor(chunk: Int, number: Value) -> None:
        right = _right_factor(e, tables, number, p, chunk)
        left = f.at(e.ends.own, f.add(f.mul(number, room.pitch), f.mul(chunk, e.h.chunk)))
        to = f.at(sums, f.mul(number, room.sums))
        _tile(e, left, right, block, low, chunk, to, True)
        f.loop(f.add(low, 1), high, 1, lambda t, _: _tile(e, left, right, block, t, chunk, to, False), rolled=True)

    def factors(chunk: Int) -> None:
        f.loop(0, FACTORS, 1, lambda number, _: factor(chunk, number), rolled=True)

    if e.chunks == 1:
        factors(0)
    else:
        f.loop(0, e.chunks, 1, lambda chunk, _: factors(chunk), rolled=True)
    _finish(e, sums, block, low, high, p)


def _tables(e: _Emission) -> Mapping[str, Value]:
    """For every right factor: where x and y begin in the packed operand, the sign of y, and what is fetched: of this panel
    where `soon` is 1."""
    f = e.f
    rows: dict[str, list[int]] = {"x": [], "y": [], "following": [], "soon": [], "keep": [], "flip": []}
    for number, signs in enumerate(RIGHT):
        x = signs.index(1)
        y = next((k for k in range(4) if signs[k] and k != x), x)
        rows["x"].append(e.quarters[x])
        rows["y"].append(e.quarters[y])
        rows["following"].append(e.quarters[FETCHED[number]])
        rows["soon"].append(1 if number < 2 else 0)
        rows["keep"].append(0 if x == y else -1)
        rows["flip"].append(1 << 31 if signs[y] < 0 else 0)
    return {name: f.module.table(name, _element(name), numbers) for name, numbers in rows.items()}


def _element(name: str) -> str:
    """What the numbers of a table are: the bits of floats, or offsets."""
    return "i32" if name in ("keep", "flip") else "i64"


def _right_factor(e: _Emission, tables: Mapping[str, Value], number: Value, p: Int, chunk: Int) -> _Right:
    """A chunk of right factor `number` of panel `p`."""
    f, room = e.f, e.room
    here = f.at(e.ends.right, f.add(f.mul(p, 2 * room.right), f.mul(chunk, room.made)))
    entry = {name: f.load(_element(name), f.at(table, number, _element(name))) for name, table in tables.items()}
    after: Int = 2 * room.right
    if e.chunks > 1:
        last = f.compare("icmp eq", chunk, e.chunks - 1)
        after = f.select(last, f.i64(f.sub(after, (e.chunks - 1) * room.made)), f.i64(room.made))
    beyond = f.select(f.compare("icmp eq", entry["soon"], 1), f.i64(0), f.i64(after))
    x, y, following = f.at(here, entry["x"]), f.at(here, entry["y"]), f.at(here, f.add(entry["following"], beyond))
    return _Right(x, y, Sign(entry["keep"], entry["flip"]), f.at(e.ends.own, room.left), following)


def _tile(e: _Emission, left: Value, right: _Right, block: Int, t: Int, chunk: Int, to: Value, makes: bool) -> None:
    """Reduce a chunk of a tile of one product; it makes the right factor on the way if it `makes` it, or finds it made."""
    f, h, tile, room = e.f, e.h, e.tile, e.room
    turn = f.sub(t, block)
    start = f.at(left, f.mul(f.sub(e.first_row(t), e.first_row(block)), FACTORS * room.pitch))
    rows = [f.at(start, r * FACTORS * room.pitch) for r in range(tile.rows)]
    columns = right.x if makes else right.made
    plus = Sum(right.y, right.sign, right.made) if makes else None
    panel = Panel(tuple(f.at(columns, v * tile.lanes) for v in range(tile.vectors)), tile.width, plus=plus)
    zero = [f.constant(0.0, tile.kind)] * (tile.rows * tile.vectors)
    ahead = [next_panel(f, tile, h.chunk, room.per_block, right.following, turn, 0)]
    found: Sequence[Value] = accumulate(f, e.target, tile, rows, panel, (Level(h.chunk, 1),), zero, ahead=ahead)
    begin = f.at(to, f.mul(turn, tile.rows * tile.width))
    places = [f.at(begin, k * tile.lanes) for k in range(len(found))]
    if e.chunks > 1:
        first = f.compare("icmp eq", chunk, 0)
        before = f.when(first, lambda: zero, lambda: [f.load(tile.kind, place) for place in places])
        found = [f.fadd(a, b) for a, b in zip(before, found, strict=True)]
    for value, place in zip(found, places, strict=True):
        f.store(value, place)


def _finish(e: _Emission, sums: Value, block: Int, low: Int, high: Int, p: Int) -> None:
    """Add the products of the tiles low..high up and run the stores, for a pair of rows after the other."""
    f, h, tile, room = e.f, e.h, e.tile, e.room
    outer = [0] * len(h.product.outer)
    columns = [
        [column_at(h.product, tile, f.add(beside * e.panels, p), v, f) for v in range(tile.vectors)]
        for beside in range(2)
    ]
    initial = [e.ends.start(places) for places in columns]

    def pair(number: Int, at: Value) -> None:
        products = [
            [f.load(tile.kind, f.at(at, f.add(n * room.sums, v * tile.lanes))) for v in range(tile.vectors)]
            for n in range(FACTORS)
        ]

        def half(below: int) -> None:
            for beside in range(2):
                signs = RESULT[2 * below + beside]
                sums = [_combined(f, signs, [vectors[v] for vectors in products]) for v in range(tile.vectors)]
                values = [f.fadd(a, b) for a, b in zip(sums, initial[beside], strict=True)]
                row = f.add(f.mul(number, 2), below)
                finish_row(f, h.product, tile, outer, 0, row, columns[beside], values, e.ends.finish)

        half(0)
        if h.product.height % 2 == 0:
            half(1)
        else:
            f.when(f.compare("icmp slt", number, h.height - 1), lambda: half(1))

    def each(t: Value, _: Sequence[Value]) -> None:
        first = e.first_row(t)
        there = f.at(sums, f.mul(f.sub(t, block), tile.rows * tile.width))
        f.loop(0, tile.rows, 1, lambda r, _: pair(f.add(first, r), f.at(there, f.mul(r, tile.width))), rolled=True)

    f.loop(low, high, 1, each, rolled=True)

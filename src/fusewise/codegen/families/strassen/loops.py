"""The loops of Strassen's algorithm, in the form of `strassen.form`.

The halves of the rows are every other one, so that a block of rows has both, and those of the columns every other panel: two that
share columns, where the last is moved back, are then done one after the other. The depth has a first half and a second.

For a block each worker writes the four left sums, row by row, and the rows too where they are computed. For every panel of columns
it then takes one right factor after the other: quarters where they lie; the first tile of the block makes a difference on the way,
in instructions that multiplications leave free, from quarters and the difference before it, and the other tiles find it made. At
last the seven products are added up and the stores run, where registers are left while the next tile is reduced. The weights lie
as other products have them; of those of 16 bits a worker widens a chunk of four quarters first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from fusewise.codegen.families.product.dealing import ceiling, deal, deal_tiles
from fusewise.codegen.families.product.places import column_at, row_address
from fusewise.codegen.families.product.prefetch import later_of, next_panel
from fusewise.codegen.families.product.results import ResultPlace, fetch_row, finish_row
from fusewise.codegen.families.product.short_weights import widened_copy
from fusewise.codegen.families.strassen.form import (
    LEFT,
    LEFT_STEPS,
    LEFT_SUMS,
    MADE,
    PRODUCTS,
    RESULT_STEPS,
    RIGHT,
    extend,
)
from fusewise.codegen.families.strassen.plan import PAIR
from fusewise.codegen.families.strassen.room import Ends, Room, StrassenEmission
from fusewise.codegen.llvm.share import Share
from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.tails import fitted
from fusewise.codegen.nest.tile import Difference, Meanwhile, Panel, Reduction, ReductionLoop, accumulate, meanwhile
from fusewise.codegen.nest.tree import Int, Value
from fusewise.codegen.target import LINE_BYTES, SECOND_LEVEL, InstructionSet
from fusewise.ir.deciding import known_one, known_zero
from fusewise.ir.dtypes import FLOAT32, DType
from fusewise.records import record

__all__ = ["emit_strassen"]

FETCHED = (0, 1, 3, 2, 0, 1, 3)
"""The quarter of what comes next that is fetched while a product is computed; the last three are there already."""

AGAIN = 3
"""How many products at the end fetch what is there already, or else as much of the next step's weights."""

PAIRS_AHEAD = 4
"""How many pairs of rows ahead the left operand is fetched while its sums are written, if it is large."""

ROWS_FETCHED = 2
"""Rows of a tile whose results' memory is fetched with each of its products, the first ones."""


def emit_strassen(f: Function, instructions: InstructionSet, room: Room, share: Share, ends: Ends) -> None:
    """Emit the loops."""
    e = StrassenEmission(f, instructions, room, ends)
    per_block, prefetch = e.schedule.per_block, e.schedule.prefetch
    if ends.later is not None and prefetch is not None:
        times = e.cut.blocks * e.panels * per_block * e.chunks * PRODUCTS
        e = replace(e, later=later_of(f, share, ends.later, prefetch, times))

    def block(unit: Int, low: Int, high: Int) -> None:
        f.when(f.compare("icmp slt", low, high), lambda: _block(e, unit, low, high))

    if known_one(e.cut.blocks):
        deal(f, share, e.cut.blocks, e.panels, True, block, per_block)
    else:
        deal_tiles(f, share, 1, e.cut, e.panels, block)


def _block(e: StrassenEmission, unit: Int, pair_low: Int, pair_high: Int) -> None:
    """Some (panel, tile) pairs of a block of rows, panel by panel."""
    f, per_block = e.f, e.schedule.per_block
    low, end = e.cut.begin(f, unit), e.cut.begin(f, f.add(unit, 1))
    first = e.first_row(low)
    coming = e.packed(f.udiv(pair_low, per_block), 0)
    count = f.sub(f.add(e.first_row(f.sub(end, 1)), e.tile.rows), first)
    f.stage(e.ends.tag, unit, lambda: _left_sums(e, first, count, coming))

    panels = f.udiv(pair_low, per_block), ceiling(f, pair_high, per_block)

    def panel(p: Value, _: Sequence[Value]) -> None:
        before = f.mul(p, per_block)
        begin = f.add(low, f.maximum(f.sub(pair_low, before), 0))
        stop = f.minimum(f.add(low, f.minimum(f.sub(pair_high, before), per_block)), end)
        run = _Run(low, end, begin, stop, p, *panels)
        _panel(e, run, f.mul(f.add(f.mul(unit, e.panels), p), per_block))

    f.loop(*panels, 1, panel, rolled=True)


def _left_sums(e: StrassenEmission, first: Int, count: Int, panel: Value) -> None:
    """Write the left sums of `count` pairs of rows from `first` on, and the rows themselves if they are computed; a row that the
    last pair lacks is its first over again, and a last vector that the depth does not fill is moved back.

    The first quarters of the next `panel` are fetched meanwhile.
    """
    f, h, tile = e.f, e.h, e.tile
    steps = -(-h.depth // tile.lanes)
    size = FLOAT32.itemsize if h.short is None else h.short.itemsize
    lines = -(-e.room.made * size // (LINE_BYTES * e.schedule.per_block * tile.rows * steps))
    needed = [f.at(panel, e.packed_quarters[k], e.stored) for k in FETCHED[:2]]
    is_far = len(h.rows) == 1 and e.schedule.is_far

    def row(r: Value, _: Sequence[Value]) -> None:
        upper = f.mul(f.add(first, r), 2)
        lower = f.add(upper, 1)
        if not known_zero(h.product.height % 2):
            lower = f.minimum(lower, h.product.height - 1)
        rows = [e.ends.rows(number) for number in (upper, lower)]
        coming = [e.ends.rows(f.add(number, 2 * PAIRS_AHEAD)) for number in (upper, lower)] if is_far else []
        to = f.at(e.ends.own, f.mul(r, LEFT_SUMS * e.room.pitch))

        def step(begin: Value, _: Sequence[Value]) -> None:
            turn = f.add(f.mul(r, steps), f.udiv(begin, tile.lanes))
            k = fitted(f, begin, tile.lanes, h.depth)
            for line in range(lines):
                for start in needed:
                    f.prefetch(f.at(start, f.mul(f.add(f.mul(turn, lines), line), LINE_BYTES), "i8"), SECOND_LEVEL)
            for far in coming:
                for half in range(2):
                    far.fetch(f.add(k, half * h.depth))
            quarters = [near.value(f.add(k, half * h.depth)) for near in rows for half in range(2)]
            if h.computed:
                pitch = h.rows[0].stride
                own = f.at(e.left, f.add(f.mul(r, 2 * pitch), k))
                for number, quarter in enumerate(quarters):
                    f.store(quarter, f.at(own, number // 2 * pitch + number % 2 * h.apart))
            for number, total in enumerate(extend(quarters, LEFT_STEPS, f.fadd, f.fsub)[len(quarters) :]):
                f.store(total, f.at(to, f.add(k, number * e.room.pitch)))

        f.loop(0, h.depth, tile.lanes, step, rolled=True)

    f.loop(0, count, 1, row, rolled=True)


@record(frozen=True)
class _Run:
    """The tiles low..high of the block of tiles block..end, against panel `p`, one of the panels first..last."""

    block: Int
    end: Int
    low: Int
    high: Int
    p: Int
    first: Int
    last: Int


@record(frozen=True)
class _Factors:
    """The factors of one product, of one chunk and the block whose first tile is `block`.

    Row r of the left one, counted from the block's first, begins at `left` + r * `pitch`, and the last one is row `last`; where it
    is `whole`, a quarter of an operand whose rows are not at equal distances, at `left` + that of row `first` + 2 r of the operand.
    The right one is `x`, or where it `makes` a difference, x - y, which the first tile writes to `made`. `following` is fetched
    meanwhile. `turn` is how many tiles of products there were before for each of the block's.
    """

    block: Int
    whole: Value
    first: Value
    left: Value
    pitch: Value
    last: Value
    x: Value
    y: Value
    makes: Value
    made: Value
    following: Value
    turn: Int


def _panel(e: StrassenEmission, run: _Run, before: Int) -> None:
    """Some tiles of a block, against one panel of each half of the columns; `before` is how many tiles of all panels and blocks
    before there are."""
    f, room, per_block = e.f, e.room, e.schedule.per_block
    sums = f.at(e.ends.own, room.left + room.made)
    table = _Tables.written(e)

    def product(chunk: Int, number: Value) -> None:
        turn = f.add(f.mul(f.add(f.mul(before, e.chunks), f.mul(chunk, per_block)), PRODUCTS), f.mul(number, per_block))
        given = replace(table.factors(e, number, run.block, run.p, chunk), turn=turn)
        to = f.at(sums, f.mul(number, room.sums))

        def fetch(t: Int) -> None:
            _fetch_results(e, t, run.p, chunk, number)

        def make() -> None:
            fetch(run.low)
            _tile(e, given, run.low, chunk, to, True)

        f.when(given.makes, make)
        found, rest = (
            f.select(given.makes, given.made, given.x),
            f.select(given.makes, f.i64(f.add(run.low, 1)), f.i64(run.low)),
        )
        others, order = replace(given, x=found), f.add(f.mul(chunk, PRODUCTS), number)

        def reduce(t: Int, meanwhile: Meanwhile | None = None) -> None:
            fetch(t)
            _tile(e, others, t, chunk, to, False, meanwhile)

        finished = _finished_beside if e.schedule.parts else _finished_alone
        finished(e, run, sums, order, rest, reduce)

    def products(chunk: Int) -> None:
        if e.h.short is not None:
            _widen(e, e.h.short, run.p, chunk)
        f.loop(0, PRODUCTS, 1, lambda number, _: product(chunk, number), rolled=True)

    if e.chunks == 1:
        products(0)
    else:
        f.loop(0, e.chunks, 1, lambda chunk, _: products(chunk), rolled=True)


def _widen(e: StrassenEmission, dtype: DType, p: Int, chunk: Int) -> None:
    """Write a chunk of the four quarters of a pair of panels as float32."""
    f, room, lanes = e.f, e.room, e.tile.lanes
    first = e.packed(p, chunk)
    for source, to in zip(e.packed_quarters, e.quarters, strict=True):
        there = f.at(first, source, e.stored)
        widened_copy(f, e.instructions, there, dtype, f.at(e.widened, to), room.made // lanes, lanes)


@record(frozen=True)
class _Tables:
    """Numbers for each product, in the module: where factors begin, and whether they are quarters."""

    columns: Mapping[str, Value]

    @classmethod
    def written(cls, e: StrassenEmission) -> _Tables:
        h, room, quarters = e.h, e.room, (*e.quarters, 0)
        in_place = [factor < 4 for factor in LEFT]
        upper = h.product.height - h.product.height // 2
        pitch = h.rows[0].stride if len(h.rows) == 1 else 0
        columns = {
            "whole": [int(own) for own in in_place],
            "below": [int(factor in (2, 3)) for factor in LEFT],
            "left": [
                factor // 2 * pitch + factor % 2 * h.apart if factor < 4 else (factor - 4) * room.pitch
                for factor in LEFT
            ],
            "pitch": [2 * pitch if own else LEFT_SUMS * room.pitch for own in in_place],
            "last": [0 if h.free else (h.product.height // 2 if factor in (2, 3) else upper) - 1 for factor in LEFT],
            "x": [quarters[sources[0]] for sources in RIGHT],
            "x_made": [int(sources[0] == MADE) for sources in RIGHT],
            "y": [quarters[sources[-1]] for sources in RIGHT],
            "y_made": [int(sources[-1] == MADE) for sources in RIGHT],
            "makes": [len(sources) - 1 for sources in RIGHT],
            "following": [e.packed_quarters[k] for k in FETCHED],
        }
        return cls({name: e.f.module.table(name, "i64", numbers) for name, numbers in columns.items()})

    def factors(self, e: StrassenEmission, number: Value, block: Int, p: Int, chunk: Int) -> _Factors:
        """The factors of product `number`, a block of rows that begins with tile `block` and panel `p`, of one chunk."""
        f, h, room, first = e.f, e.h, e.room, e.first_row(block)
        entry = {name: f.load("i64", f.at(table, number, "i64")) for name, table in self.columns.items()}

        def is_set(name: str) -> Value:
            return f.compare("icmp eq", entry[name], 1)

        skip = f.mul(chunk, e.schedule.chunk)
        before = f.mul(first, 2 * h.rows[0].stride) if len(h.rows) == 1 and not h.computed else 0
        left = f.select(is_set("whole"), f.at(e.left, before), e.ends.own)
        packed = e.packed(p, chunk)
        here = packed if h.short is None else e.widened
        made = f.at(e.ends.own, room.left)
        last_row: Int = entry["last"]
        if h.free:
            ends = f.i64(h.product.height // 2 - 1), f.i64(h.height - 1)
            last_row = f.select(f.compare("icmp eq", entry["below"], 1), *ends)
        after: Int = room.pair
        if e.chunks > 1:
            last = f.compare("icmp eq", chunk, e.chunks - 1)
            after = f.select(last, f.i64(f.sub(after, (e.chunks - 1) * room.made)), f.i64(room.made))
        return _Factors(
            block=block,
            whole=is_set("whole"),
            first=f.i64(f.add(f.mul(first, 2), entry["below"])),
            left=f.at(left, f.add(entry["left"], skip)),
            pitch=entry["pitch"],
            last=f.i64(f.sub(last_row, first)),
            x=f.select(is_set("x_made"), made, f.at(here, entry["x"])),
            y=f.select(is_set("y_made"), made, f.at(here, entry["y"])),
            makes=is_set("makes"),
            made=made,
            following=self._following(e, number, p, chunk, f.at(packed, f.add(entry["following"], after), e.stored)),
            turn=0,
        )

    def _following(self, e: StrassenEmission, number: Value, p: Int, chunk: Int, panel: Value) -> Value:
        """What is fetched while product `number` is computed: of the next panel, or in the end of the next step's weights."""
        f, step = e.f, e.ends.following
        if step is None:
            return panel
        pieces = f.add(f.mul(f.add(f.mul(p, e.chunks), chunk), AGAIN), f.sub(number, PRODUCTS - AGAIN))
        piece = f.at(step, f.mul(pieces, e.room.made))
        return f.select(f.compare("icmp slt", number, PRODUCTS - AGAIN), panel, piece)


def _tile(
    e: StrassenEmission,
    given: _Factors,
    t: Int,
    chunk: Int,
    to: Value,
    makes: bool,
    meanwhile: Meanwhile | None = None,
) -> None:
    """Reduce a chunk of a tile of one product; it makes the right factor on the way if it `makes` it, or finds it at `x`."""
    f, h, tile, schedule = e.f, e.h, e.tile, e.schedule
    turn, first = f.sub(t, given.block), f.sub(e.first_row(t), e.first_row(given.block))
    numbers = [f.add(first, r) for r in range(tile.rows)]
    if not known_zero(h.product.height % 2):
        numbers = [f.minimum(number, given.last) for number in numbers]
    rows = tuple(f.at(given.left, _row(e, given, number)) for number in numbers)
    minus = Difference(given.y, given.made) if makes else None
    panel = Panel(tuple(f.at(given.x, v * tile.lanes) for v in range(tile.vectors)), tile.width, minus=minus)
    start = [f.constant(0.0, tile.kind)] * (tile.rows * tile.vectors)
    begin = f.at(to, f.mul(turn, tile.rows * tile.width))
    places = [f.at(begin, k * tile.lanes) for k in range(len(start))]
    fetched = tile if h.short is None else replace(tile, instruction=h.product.instruction)
    ahead = [next_panel(f, fetched, schedule.chunk, schedule.per_block, given.following, turn, SECOND_LEVEL)]
    if e.later is not None:
        ahead.append(e.later.ahead(f, f.add(given.turn, turn), schedule.chunk))
    reduction = Reduction(rows, panel, (ReductionLoop(schedule.chunk, 1),), ahead=tuple(ahead), meanwhile=meanwhile)
    found = accumulate(f, tile, reduction, start)

    def keep() -> None:
        values = found
        if e.chunks > 1:  # sums of chunks are added up: one run over all of the depth would round more

            def added() -> list[Value]:
                return [f.fadd(f.load(tile.kind, place), value) for value, place in zip(found, places, strict=True)]

            values = f.when(f.compare("icmp eq", chunk, 0), lambda: found, added)
        for value, place in zip(values, places, strict=True):
            f.store(value, place)

    if meanwhile is None:
        keep()
    else:
        f.when(meanwhile.reduces, keep)


def _row(e: StrassenEmission, given: _Factors, number: Int) -> Int:
    """Where a row of the left factor begins, in elements from its first."""
    f, evenly = e.f, e.f.mul(number, given.pitch)
    if len(e.h.rows) == 1:
        return evenly
    apart = row_address(f, e.h.rows, f.add(given.first, f.mul(number, 2)))
    return f.select(given.whole, f.i64(apart), f.i64(evenly))


def _finished_alone(
    e: StrassenEmission, run: _Run, sums: Value, order: Int, first: Int, reduce: Callable[[Int], None]
) -> None:
    """The tiles from `first` on of product number `order` of all chunks, each finished after its last product."""
    f = e.f
    is_last = f.compare("icmp eq", order, e.chunks * PRODUCTS - 1)

    def finish(t: Int) -> None:
        row = _finish(e, sums, run.block, t, run.p)
        f.loop(0, e.tile.rows, 1, lambda r, _: row(r), rolled=True)

    def one(t: Value, _: Sequence[Value]) -> None:
        reduce(t)
        f.when(is_last, lambda: finish(t))

    f.loop(first, run.high, 1, one, rolled=True)


def _finished_beside(
    e: StrassenEmission, run: _Run, sums: Value, order: Int, first: Int, reduce: Callable[[Int, Meanwhile], None]
) -> None:
    """The same, each finished while the last product of the next one is reduced, the last of a panel while the first product of
    the next panel's first is. Behind the very last comes one that is not reduced."""
    f, parts = e.f, e.schedule.parts
    begins, ends = f.compare("icmp eq", order, 0), f.compare("icmp eq", order, e.chunks * PRODUCTS - 1)
    follows = f.binary("and", begins, f.compare("icmp sgt", run.p, run.first))
    is_over = f.binary("and", ends, f.compare("icmp eq", f.add(run.p, 1), run.last))

    def one(t: Value, _: Sequence[Value]) -> None:
        is_first = f.compare("icmp eq", t, run.low)
        crosses = f.binary("and", follows, is_first)
        waits = f.select(is_first, follows, ends)
        tile = f.select(crosses, f.i64(f.sub(run.end, 1)), f.i64(f.sub(t, 1)))
        row = _finish(e, sums, run.block, tile, f.select(crosses, f.i64(f.sub(run.p, 1)), f.i64(run.p)))

        def part(k: Value) -> None:
            has_row = waits if parts == e.tile.rows else f.binary("and", waits, f.compare("icmp slt", k, e.tile.rows))
            f.when(has_row, lambda: row(k), rarely=True)

        reduces = f.compare("icmp slt", t, run.high)
        reduce(t, meanwhile(f, parts, part, reduces))

    f.loop(first, f.select(is_over, f.i64(f.add(run.high, 1)), f.i64(run.high)), 1, one, rolled=True)


def _columns(e: StrassenEmission, p: Int) -> list[list[Int]]:
    """The columns of a pair of panels."""
    panels = [e.f.add(e.f.mul(p, PAIR), half) for half in range(PAIR)]
    return [[column_at(e.h.product, e.tile, panel, v, e.f, PAIR) for v in range(e.tile.vectors)] for panel in panels]


def _fetch_results(e: StrassenEmission, t: Int, p: Int, chunk: Int, number: Value) -> None:
    """Fetch, while product `number` of its last chunk is computed, what some rows of a tile will read and write at the end."""
    f, fetch, height = e.f, e.ends.fetch, e.h.product.height
    if fetch is None:
        return

    def rows() -> None:
        columns, outer = _columns(e, p), [0] * len(e.h.product.outer)
        for k in range(ROWS_FETCHED):
            r = f.minimum(f.add(f.mul(number, ROWS_FETCHED), k), e.tile.rows - 1)
            upper = f.mul(f.add(e.first_row(t), r), 2)
            for row in (upper, f.minimum(f.add(upper, 1), height - 1)):
                for half in columns:
                    fetch_row(f, e.h.product, e.tile, ResultPlace(outer, 0, half), row, fetch)

    has_rows = f.compare("icmp slt", f.mul(number, ROWS_FETCHED), e.tile.rows)
    is_last = f.compare("icmp eq", f.i64(chunk), e.chunks - 1)
    f.when(f.binary("and", has_rows, is_last), rows)


def _finish(e: StrassenEmission, sums: Value, block: Int, t: Int, p: Int) -> Callable[[Int], None]:
    """What adds the products of a pair of rows of a tile up and runs the stores; those of a tile that is moved back leave what the
    one before stores alone, so that results may lie on what they are added to."""
    f, h, tile, room = e.f, e.h, e.tile, e.room
    outer = [0] * len(h.product.outer)
    columns = _columns(e, p)
    initial = [e.ends.start(places) for places in columns]
    first, there = e.first_row(t), f.at(sums, f.mul(f.sub(t, block), tile.rows * tile.width))

    def pair(number: Int, at: Value) -> None:
        quarters = []
        for v in range(tile.vectors):
            places = [f.at(at, n * room.sums + v * tile.lanes) for n in range(PRODUCTS)]
            products = [f.load(tile.kind, place) for place in places]
            quarters.append(extend(products, RESULT_STEPS, f.fadd, f.fsub)[-4:])

        def half(below: int) -> None:
            for beside in range(2):
                totals = [each[2 * below + beside] for each in quarters]
                values = [f.fadd(a, b) for a, b in zip(totals, initial[beside], strict=True)]
                row = f.add(f.mul(number, 2), below)
                finish_row(f, h.product, tile, ResultPlace(outer, 0, columns[beside]), row, values, e.ends.finish)

        half(0)
        if known_zero(h.product.height % 2):
            half(1)
        else:
            f.when(f.compare("icmp slt", number, h.product.height // 2), lambda: half(1))

    def finish(r: Int) -> None:
        def own() -> None:
            pair(f.add(first, r), f.at(there, f.mul(r, tile.width)))

        if known_zero(h.height % tile.rows):
            own()
        else:
            f.when(f.compare("icmp sge", f.add(first, r), f.mul(t, tile.rows)), own)

    return finish

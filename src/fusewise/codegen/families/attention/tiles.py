"""Scaled dot-product attention by a matrix unit: of bfloat16, of float16, and of float32 in parts (`product.in_parts`). Of bfloat16
also by an instruction that multiplies pairs: operands lie as for a unit, and tiles are in registers.

As `attention.packed`, with sums in memory. A worker copies keys and values of a head into panels of whole tiles once, then takes
strips of queries:

    for head:  copy keys, copy values
      for strip of queries:  copy queries;  scores = queries keys^T, tile by tile, scaled and masked;  their exponentials and sums;
                             exponentials as rows of tiles;  their products with the values / sums

Exponentials, at most 1, are rounded to the operands' type or taken in parts; their sums are of float32. Beyond the last key scores
are -inf up to whole panels and blocks. What is odd in parts is added up in float32, judged for each query, and for keys and values
of a head as wholes. As products in parts it is of the numeric class reassociating, so not under `--exact`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from fusewise.codegen.cost import finish_cycles, matrix_cycles, matrix_finish, step_cycles
from fusewise.codegen.families.attention.packed import AttentionSchedule
from fusewise.codegen.families.attention.rows import ScoreRows, end_row, exponentials, masked
from fusewise.codegen.families.attention.shape import AttentionShape, understand
from fusewise.codegen.families.product.dealing import ceiling
from fusewise.codegen.families.product.in_parts import IS_ODD, NOTE_BYTES, FloatSums, is_in_parts, split
from fusewise.codegen.families.product.lanes import STEP, ComputedOperands
from fusewise.codegen.families.product.matrix_unit import by_unit
from fusewise.codegen.families.product.places import column_at
from fusewise.codegen.families.product.plan import SAME_SET_BYTES, Product, RowAxis
from fusewise.codegen.families.product.repack import repacked_elements
from fusewise.codegen.families.product.tile_copy import TileCopy, block_of, pitch_of, stored_lanes
from fusewise.codegen.families.product.tiles import TiledProduct, favourite_tiles, too_few_rows, widths
from fusewise.codegen.instructions.table import AMX_BF16, AMX_FP16, AMX_PARTS, DPBF16
from fusewise.codegen.kernel import Argument, Kernel, working_memory
from fusewise.codegen.llvm.entry import OpenFunction, Writer, areas, operand_arguments, written
from fusewise.codegen.llvm.plain import read_operand
from fusewise.codegen.llvm.registers import narrow
from fusewise.codegen.llvm.share import pieces_of
from fusewise.codegen.nest.instruction import Instruction
from fusewise.codegen.nest.tails import fitted
from fusewise.codegen.nest.tile import Panel, Reduction, ReductionLoop, Tile, accumulate, accumulate_tiles, with_tiles
from fusewise.codegen.nest.tree import Int, Value, vector
from fusewise.codegen.target import LINE_BYTES, InstructionSet, Target, whole_lines
from fusewise.ir.dtypes import FLOAT32
from fusewise.lower.task import RefusalReason, Task
from fusewise.ops.expr import Expr, const, index
from fusewise.records import record

__all__ = ["TILE_ATTENTION", "tile_attention"]

LEAST_ROWS = 32
"""Queries of a strip where there are so many."""

_KEY = "key"
"""The index variable of keys."""

COPY_CYCLES = {True: 6.0, False: 3.0}
"""Cycles that a vector of an operand or of exponentials takes about on its way into lanes, in parts or not: counted, not
measured."""


def _understood(instruction: Instruction, task: Task, instructions: InstructionSet) -> AttentionShape | RefusalReason:
    """The attention by an instruction of a matrix unit, or why it is none."""
    s = understand(task, (instruction.left,))
    if isinstance(s, RefusalReason):
        return s
    if not task.is_fixed:
        return RefusalReason("how many queries or keys there are is not known")
    if is_in_parts(instruction) and task.exact:
        return RefusalReason("exact")
    return too_few_rows(instruction, s.queries) or s


# --- schedules --------------------------------------------------------------------------------------------------------


def _schedules(instruction: Instruction, s: AttentionShape, task: Task, target: Target) -> Iterable[AttentionSchedule]:
    room, both = instruction.room(target), max(2 * instruction.rows, LEAST_ROWS)
    fitting = max(1, target.l2_bytes // target.figures.caches.part // (2 * FLOAT32.itemsize * s.keys))
    strips = max(-(-s.queries // fitting), -(-target.figures.sharing.units // max(1, s.batch * s.heads)))
    rows = -(-s.queries // max(1, min(strips, -(-s.queries // both))))
    wanted = min(s.queries, _strip_of(s.queries, rows, both))

    def tiles(columns: int, depth: int) -> list[Tile]:
        product = TiledProduct(wanted, columns, depth, both, instruction=instruction)
        found = favourite_tiles(room, product, widths(target, columns, instruction))
        return [tile for tile in found if tile.vectors & (tile.vectors - 1) == 0][:3]

    depths = stored_lanes(s.size, instruction), stored_lanes(s.keys, instruction)
    for pair in zip(tiles(s.keys, depths[0]), tiles(s.width, depths[1]), strict=False):
        yield AttentionSchedule(wanted, *pair)


def _strip_of(queries: int, most: int, multiple: int) -> int:
    """Queries of a strip, about so many at most and a multiple of some, of which strips that are moved back repeat few."""
    return min(range(multiple, most + multiple, multiple), key=lambda rows: (-(-queries // rows) * rows, -rows))


def _products(s: AttentionShape, instruction: Instruction) -> tuple[Product, Product]:
    """That of queries and keys, and that of exponentials and values, of copied rows."""

    def product(shared: int, column: str, columns: int, numbers: int) -> Product:
        depth = stored_lanes(numbers, instruction)
        rows = (RowAxis("query", s.queries, pitch_of(depth, instruction)),)
        outer = (("batch", s.batch), ("head", shared))
        return Product(outer, rows, column, columns, depth, dtype=instruction.lane, instruction=instruction)

    return product(s.heads // s.sharing, _KEY, s.keys, s.size), product(
        s.heads // s.sharing, "element", s.width, s.keys
    )


@record(frozen=True)
class _Plan:
    """Both products with their tiles, and where scratch memory is cut; `block` is how many numbers a block of lanes has."""

    scores: Product
    context: Product
    schedule: AttentionSchedule
    keys: int

    @property
    def instruction(self) -> Instruction:
        return self.scores.instruction

    @property
    def parts(self) -> int:
        return block_of(self.instruction)[1]

    @property
    def lanes(self) -> int:
        """Stored lanes of a block."""
        steps, parts = block_of(self.instruction)
        return steps * parts

    @property
    def block(self) -> int:
        return block_of(self.instruction)[0] * self.instruction.terms

    @property
    def trim(self) -> int:
        """Scores are computed and left out in runs of so many: of whole panels, and of whole blocks."""
        return math.lcm(self.block, self.schedule.scores.width)

    @property
    def padded(self) -> int:
        """Scores of a row."""
        return -(-self.keys // self.trim) * self.trim

    @property
    def pitch(self) -> int:
        """From one row of scores to the next."""
        line = LINE_BYTES // FLOAT32.itemsize
        return self.padded + (0 if self.padded * FLOAT32.itemsize % SAME_SET_BYTES else line)

    @property
    def sizes(self) -> Mapping[str, int]:
        """Bytes of each part of the memory."""
        size, strip, tiles = FLOAT32.itemsize, self.schedule.strip, (self.schedule.scores, self.schedule.context)
        rows = [strip * product.rows[0].stride * size for product in (self.scores, self.context)]
        return {
            "keys": _panel_bytes(self.scores, tiles[0]),
            "values": _panel_bytes(self.context, tiles[1]),
            "queries": rows[0],
            "powers": rows[1],
            "tile": max(tile.rows * tile.width for tile in tiles) * size,
            "scores": strip * self.pitch * size,
            "sums": strip * size,
        }


def _panel_bytes(product: Product, tile: Tile) -> int:
    """Panels of a head, and what is noted of them."""
    return repacked_elements(product, tile) * tile.instruction.lane.itemsize + whole_lines(NOTE_BYTES)


def _plan(s: AttentionShape, schedule: AttentionSchedule) -> _Plan:
    return _Plan(*_products(s, schedule.scores.instruction), schedule, s.keys)


def _arguments(s: AttentionShape, task: Task, schedule: AttentionSchedule) -> tuple[Argument, ...]:
    sizes = _plan(s, schedule).sizes.values()
    return operand_arguments(task, [working_memory(sum(map(whole_lines, sizes)))])


# --- what is written --------------------------------------------------------------------------------------------------


@record(frozen=True)
class _Emission(Writer):
    shape: AttentionShape
    plan: _Plan
    at: Mapping[str, Value]
    tag: Value
    queries: TileCopy
    keys: TileCopy
    values: TileCopy

    @property
    def odd(self) -> bool:
        """May there be numbers that are not multiplied in parts?"""
        return is_in_parts(self.plan.instruction)


def _emission(o: OpenFunction, s: AttentionShape, plan: _Plan) -> _Emission:
    """The function's parts. Rows are copied and what is noted of keys and values read as products have it."""
    f, anchor, flat = o.f, o.task.anchored, s.flat
    at = areas(f, o.scratch(), plan.sizes)
    tag = o.tag()
    rows_tag = o.share.tag(f, f.at(tag, 1, "i64"))

    def element(position: int, row: str, size: int, number: str) -> Expr:
        batch, head, token, one = index("batch"), index("head"), index(row), index(number)
        return read_operand(
            anchor, position, (batch, token, head * const(size) + one) if flat else (batch, head, token, one)
        )

    def copy(product: Product, of: ComputedOperands, name: str, turned: bool) -> TileCopy:
        tile = plan.schedule.scores if product.column == _KEY else plan.schedule.context
        note = f.at(at["keys" if product.column == _KEY else "values"], repacked_elements(product, tile), "i32")
        return TileCopy(o.elements, product, of, at[name], rows_tag, note, turned)

    query, key = element(0, "query", s.size, STEP), element(1, _KEY, s.size, STEP)
    value = element(2, STEP, s.width, "element")
    heads = replace(plan.scores, outer=(("batch", s.batch), ("head", s.heads)))
    return _Emission(
        o,
        s,
        plan,
        at,
        tag,
        copy(heads, ComputedOperands(query, None, s.size), "queries", False),
        copy(plan.scores, ComputedOperands(query, key, s.size), "keys", s.key.element == 1),
        copy(plan.context, ComputedOperands(query, value, s.keys), "values", s.value.row == 1 != s.value.element),
    )


def _write(o: OpenFunction, s: AttentionShape, schedule: AttentionSchedule) -> None:
    f, plan = o.f, _plan(s, schedule)
    e = _emission(o, s, plan)
    strips = -(-s.queries // schedule.strip)
    low, high = o.share.run(f, s.batch * s.heads * strips)

    def head(number: Value, _: Sequence[Value]) -> None:
        batch, own = f.udiv(number, s.heads), f.urem(number, s.heads)
        f.stage(e.tag, f.udiv(number, s.sharing), lambda: _copy(e, batch, f.udiv(own, s.sharing)))
        before = f.mul(number, strips)
        first, last = f.maximum(f.sub(low, before), 0), f.minimum(f.sub(high, before), strips)
        f.loop(first, last, 1, lambda strip, _: _strip(e, batch, own, strip), rolled=True)

    heads = f.udiv(low, strips), ceiling(f, high, strips)

    def every() -> None:
        with_tiles(f, plan.instruction, lambda: _done(f.loop(*heads, 1, head, rolled=True)))

    f.when(f.compare("icmp slt", low, high), every)


def _done(found: Sequence[Value]) -> None:
    """A loop that leaves nothing."""


def _copy(e: _Emission, batch: Int, head: Int) -> None:
    """Keys and values of a head, which some heads of queries share, as panels."""
    e.keys.columns(e.plan.schedule.scores, (batch, head), e.at["keys"])
    e.values.columns(e.plan.schedule.context, (batch, head), e.at["values"])


def _strip(e: _Emission, batch: Int, head: Int, number: Int) -> None:
    """One strip of queries; the last is moved back to end at the last query."""
    f, s, plan, rows = e.f, e.shape, e.plan, e.plan.schedule.strip
    first = f.minimum(f.mul(number, rows), s.queries - rows)
    e.queries.rows((batch, head), first, f.add(first, rows - 1))
    seen: Int = plan.padded
    if s.trims:
        seen = f.minimum(f.mul(ceiling(f, f.add(first, rows), plan.trim), plan.trim), plan.padded)
    _scores(e, (batch, head, first), seen)
    lanes = min(e.instructions.lanes, plan.trim)
    exponentials(f, e.instructions, ScoreRows(e.at["scores"], e.at["sums"], rows, plan.pitch, plan.padded, seen), lanes)
    seen = f.minimum(seen, plan.context.depth // plan.lanes * plan.block)
    _powers(e, seen)
    _context(e, (batch, head, first), seen)


def _tiles(e: _Emission, tile: Tile, body: Callable[[Int], None]) -> None:
    """`body(row)` for the first row, within the strip, of every tile; the last is moved back."""
    f, rows = e.f, e.plan.schedule.strip
    f.loop(0, -(-rows // tile.rows), 1, lambda t, _: body(fitted(f, f.mul(t, tile.rows), tile.rows, rows)), rolled=True)


def _multiply(e: _Emission, tile: Tile, of: TileCopy, rows: str, row: Int, start: Value, seen: Int | None) -> None:
    """The products of a tile of rows, which lie at `rows` with their notes, and a panel at `start`; of the stored lanes those that
    are `seen`."""
    f, depth, pitch = e.f, of.product.depth, of.product.rows[0].stride
    left = f.at(e.at[rows], f.mul(row, pitch), "i32"), pitch
    right, sums, steps = (start, tile.width), e.at["tile"], e.plan.lanes
    levels: tuple[ReductionLoop, ...] = (ReductionLoop(depth, 1),)
    if seen is not None:
        levels = ReductionLoop(depth // steps, steps, 0, f.i64(f.udiv(seen, steps))), ReductionLoop(steps, 1)

    def by_unit() -> None:
        if tile.instruction.matrix is not None:
            accumulate_tiles(f, tile, sums, left, right, levels, from_zero=True)
            return
        lines = tuple(f.at(left[0], r * pitch, "i32") for r in range(tile.rows))
        columns = tuple(f.at(start, v * tile.lanes, "i32") for v in range(tile.vectors))
        panel = Panel(columns, tile.width, tile.instruction.stored)
        begun = [f.constant(0.0, tile.kind)] * (tile.rows * tile.vectors)
        for k, total in enumerate(accumulate(f, tile, Reduction(lines, panel, levels, tile.instruction.lane), begun)):
            f.store(total, f.at(sums, k * tile.lanes))

    if not e.odd:
        by_unit()
        return
    assert of.note is not None, "numbers in parts are noted"
    zero, none = f.constant(0.0, tile.kind), f.constant(0, "i32")
    whole = f.binary("and", f.load("i32", of.note), f.constant(IS_ODD, "i32"))
    some = f.load("i32", f.at(e.at[rows], depth + 1, "i32"))
    otherwise = FloatSums(f, e.instructions, (ReductionLoop(depth, 1, 0, seen),), depth, of.note, 0)
    f.when(f.compare("icmp eq", whole, none), by_unit)
    f.when(
        f.compare("icmp ne", f.binary("or", some, whole), none),
        lambda: otherwise.add(tile, sums, [zero] * tile.vectors, left, right, whole),
        rarely=True,
    )


def _each_vector(e: _Emission, tile: Tile, body: Callable[[Value, int, Value], None]) -> None:
    """`body(row, slot, sums)` for the rows of the tile that was multiplied last, and for each vector of them."""
    f = e.f

    def one(r: Value, _: Sequence[Value]) -> None:
        for v in range(tile.vectors):
            body(r, v, f.load(tile.kind, f.at(e.at["tile"], f.add(f.mul(r, tile.width), v * tile.lanes))))

    f.loop(0, tile.rows, 1, one, rolled=True)


def _scores(e: _Emission, at: tuple[Int, Int, Int], seen: Int) -> None:
    """scores[row, key] = scale * query . key, masked, for the keys that are seen, from a (batch, head, query) on."""
    f, s, plan, tile, (batch, head, first) = e.f, e.shape, e.plan, e.plan.schedule.scores, at

    def panel(p: Value, _: Sequence[Value]) -> None:
        columns = [column_at(plan.scores, tile, p, v, f) for v in range(tile.vectors)]
        start = f.at(e.at["keys"], f.mul(p, plan.scores.depth * tile.width), "i32")

        def one(row: Int) -> None:
            _multiply(e, tile, e.keys, "queries", row, start, None)

            def keep(r: Value, v: int, value: Value) -> None:
                own = f.add(row, r)
                score = f.fmul(value, f.constant(s.scale, tile.kind))
                score = masked(e.o, s, (batch, head, f.add(first, own), columns[v]), score)
                f.store(score, f.at(e.at["scores"], f.add(f.mul(own, plan.pitch), columns[v])))

            _each_vector(e, tile, keep)

        _tiles(e, tile, one)

    panels = -(-s.keys // tile.width)
    f.loop(0, f.minimum(ceiling(f, seen, tile.width), panels), 1, panel, rolled=True)
    if s.keys < plan.padded:
        f.loop(0, plan.schedule.strip, 1, lambda row, _: _end(e, row), rolled=True)


def _end(e: _Emission, row: Int) -> None:
    """Keys that are not there take no part."""
    f, keys, lanes = e.f, e.shape.keys, e.plan.schedule.scores.lanes
    place = f.at(e.at["scores"], f.mul(row, e.plan.pitch))
    if keys % lanes:
        end_row(f, place, lanes, keys)
    for beyond in range(-(-keys // lanes) * lanes, e.plan.padded, lanes):
        f.store(f.constant(-math.inf, vector("float", lanes)), f.at(place, beyond))


def _powers(e: _Emission, seen: Int) -> None:
    """The exponentials of the keys that are seen as rows of tiles."""
    f, plan, product = e.f, e.plan, e.plan.context
    width = min(plan.block, e.instructions.lanes)

    def one(row: Value, _: Sequence[Value]) -> None:
        source = f.at(e.at["scores"], f.mul(row, plan.pitch))
        to = f.at(e.at["powers"], f.mul(row, product.rows[0].stride), "i32")

        def block(number: Value, _: Sequence[Value]) -> None:
            for first in range(0, plan.block, width):
                x = f.load(vector("float", width), f.at(source, f.add(f.mul(number, plan.block), first)))
                parts = split(f, x) if e.odd else (narrow(f, e.instructions, x, plan.instruction.left),)
                for part, value in enumerate(parts):
                    place = f.add(f.mul(number, plan.block * plan.parts), part * plan.block + first)
                    f.store(value, f.at(to, place, "i16"))

        f.loop(0, f.udiv(seen, plan.block), 1, block, rolled=True)
        if e.odd:
            for note in range(2):
                f.store(f.constant(0, "i32"), f.at(to, product.depth + note, "i32"))

    f.loop(0, plan.schedule.strip, 1, one, rolled=True)


def _context(e: _Emission, at: tuple[Int, Int, Int], seen: Int) -> None:
    """out[row, element] = sum of exponential * value over the keys that are seen, over the row's sum."""
    f, s, plan, tile, (batch, head, first) = e.f, e.shape, e.plan, e.plan.schedule.context, at
    count, lanes = min(tile.lanes, s.width), f.mul(f.udiv(seen, plan.block), plan.lanes)
    finish = e.o.finish

    def panel(p: Value, _: Sequence[Value]) -> None:
        columns = [column_at(plan.context, tile, p, v, f) for v in range(tile.vectors)]
        start = f.at(e.at["values"], f.mul(p, plan.context.depth * tile.width), "i32")

        def one(row: Int) -> None:
            _multiply(e, tile, e.values, "powers", row, start, lanes if isinstance(seen, Value) else None)

            def keep(r: Value, v: int, value: Value) -> None:
                own = f.add(row, r)
                factor = f.splat(f.load("float", f.at(e.at["sums"], own)), tile.lanes)
                indices, lane = s.place(f, batch, head, f.add(first, own), columns[v])
                finish(indices, lane, f.fmul(value, factor), count)

            _each_vector(e, tile, keep)

        _tiles(e, tile, one)

    f.loop(0, -(-s.width // tile.width), 1, panel, rolled=True)


# --- what it costs ----------------------------------------------------------------------------------------------------


def _cycles(s: AttentionShape, target: Target, schedule: AttentionSchedule) -> float:
    """Of all products of one core."""
    plan, found = _plan(s, schedule), 0.0
    for product, tile in ((plan.scores, schedule.scores), (plan.context, schedule.context)):
        found += (
            _tile_cycles(target, tile, product.depth)
            * -(-schedule.strip // tile.rows)
            * -(-product.columns // tile.width)
        )
    return found * -(-s.queries // schedule.strip) * s.batch * s.heads


def _tile_cycles(target: Target, tile: Tile, depth: int) -> float:
    """Of a tile's reduction over so many stored lanes."""
    if tile.instruction.matrix is not None:
        return matrix_cycles(target, tile) * depth + matrix_finish(tile)
    adds, bits, latency = tile.rows * tile.vectors, tile.lanes * FLOAT32.bits, tile.instruction.latency
    return step_cycles(target, adds, tile.rows + tile.vectors, bits, latency) * depth + finish_cycles(target, adds)


def _declines(instruction: Instruction, s: AttentionShape, task: Task, target: Target) -> RefusalReason | None:
    """Is it slower than multiply-adds, with all that is copied for it? Those copy keys and values, too."""
    schedule = next(iter(_schedules(instruction, s, task, target)))
    heads, numbers, scores = s.batch * s.heads, s.keys * (s.size + s.width), s.queries * s.keys
    vectors = heads * (numbers + s.queries * s.size + scores) / target.lanes
    copies = vectors * COPY_CYCLES[is_in_parts(instruction)]
    others = heads * (2 * numbers + s.queries * numbers / target.multiplies(target.vector_bits)) / target.lanes
    if _cycles(s, target, schedule) + copies < others:
        return None
    return RefusalReason("copies take longer than the products save")


def _pieces(s: AttentionShape, target: Target, schedule: AttentionSchedule) -> int:
    return pieces_of(s.batch * s.heads, _cycles(s, target, schedule), target, s.batch * s.heads)


def tile_attention(name: str, instruction: Instruction) -> Kernel[AttentionShape, AttentionSchedule]:
    """Attention by an instruction of a matrix unit."""
    return Kernel(
        name,
        partial(_understood, instruction),
        partial(_schedules, instruction),
        _arguments,
        written(_arguments, _write),
        declines=partial(_declines, instruction),
        pieces=_pieces,
    )


TILE_ATTENTION = (
    by_unit(tile_attention("bfloat16-tiles-attention", AMX_BF16), AMX_BF16),
    by_unit(tile_attention("float16-tiles-attention", AMX_FP16), AMX_FP16),
    by_unit(tile_attention("float32-in-parts", AMX_PARTS), AMX_PARTS),
    by_unit(tile_attention("bfloat16-attention", DPBF16), DPBF16),
)
"""By the unit of the machine, each of another type, or by what multiplies pairs."""

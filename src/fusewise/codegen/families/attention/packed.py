"""Scaled dot-product attention as one kernel: scores, mask, softmax and the sum over values, strip by strip.

Takes a task whose anchor is ONNX's Attention, which is computed in float32; gives LLVM IR. A worker packs the keys and values of a
head into panels once for all queries that share them, then takes strips of these. A strip's scores are a few rows that stay in a
cache from the product that makes them to the one that uses them, so no tensor of queries times keys is ever in memory:

    for head:  pack keys, pack values
      for strip of queries:  scores = queries keys^T, scaled and masked;  their exponentials and sums;  exponentials values / sums

How many queries and keys there are need not be known: a panel that keys do not fill ends in what takes no part
(`attention.panels`), whose scores are masked afterwards. Strips and tiles of queries are moved back as always, so that a tile of
several rows is for as many queries at least.

Under a causal mask, keys after the last query of a strip are left out. In exact code they are not, as infinite values and NaN
make NaN with their weight of zero. (The division comes last as in T. Dao et al., "FlashAttention", NeurIPS 2022; a strip sees all
of its keys at once, so nothing is rescaled.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from fusewise.codegen.families.attention.few import FEW_QUERIES
from fusewise.codegen.families.attention.panels import StoredNumbers, pack_keys, pack_values
from fusewise.codegen.families.attention.rows import ScoreRows, bends, exponentials, mask_columns, masked
from fusewise.codegen.families.attention.shape import AttentionShape, understand
from fusewise.codegen.families.product.dealing import ceiling
from fusewise.codegen.families.product.places import column_at
from fusewise.codegen.families.product.plan import Product, RowAxis
from fusewise.codegen.families.product.repack import repack, repacked_elements
from fusewise.codegen.families.product.tiles import TiledProduct, favourite_tiles, too_few_rows, widths
from fusewise.codegen.kernel import Argument, Kernel, working_memory
from fusewise.codegen.llvm.entry import OpenFunction, Writer, operand_arguments, written
from fusewise.codegen.llvm.share import pieces_of
from fusewise.codegen.llvm.stores import Finish
from fusewise.codegen.nest.instruction import FUSED, Instruction
from fusewise.codegen.nest.tails import fitted
from fusewise.codegen.nest.tile import Panel, Reduction, ReductionLoop, Tile, accumulate
from fusewise.codegen.nest.tree import Int, Value
from fusewise.codegen.nest.types import memory_type
from fusewise.codegen.target import InstructionSet, Target
from fusewise.ir.deciding import hint
from fusewise.ir.dtypes import BFLOAT16, FLOAT16, FLOAT32
from fusewise.ir.size import least
from fusewise.lower.task import RefusalReason, Task
from fusewise.records import record

__all__ = ["ATTENTION", "AttentionSchedule", "attention_by"]

TRIM = 16
"""Keys are left out under a causal mask in runs of this many."""

STEPS = 4
"""Keys that are summed over in a row where it is not known how many there are."""


@record(frozen=True)
class AttentionSchedule:
    """`strip` queries have their scores in memory at once; `scores` and `context` are the register tiles of both products."""

    strip: int
    scores: Tile
    context: Tile


def _understand(instruction: Instruction, task: Task, instructions: InstructionSet) -> AttentionShape | RefusalReason:
    s = understand(task, (FLOAT32, FLOAT16, BFLOAT16), widens=True)
    if isinstance(s, RefusalReason):
        return s
    if s.dtype != FLOAT32 and (s.free_queries or s.free_keys):
        return RefusalReason("how many queries or keys of short floats there are is not known")
    if instruction.lane != FLOAT32:
        return RefusalReason(f"{instruction.name} takes no float32 one by one")
    if s.free_queries or s.free_keys:
        return RefusalReason(f"{instruction.name} takes several rows") if instruction.rows > 1 else s
    return too_few_rows(instruction, s.queries) or s


def _schedules(instruction: Instruction, s: AttentionShape, task: Task, target: Target) -> Iterable[AttentionSchedule]:
    target = instruction.room(target)
    fitting = max(1, target.l2_bytes // target.figures.caches.part // (4 * s.keys))
    strips = max(-(-s.queries // fitting), -(-target.figures.sharing.units // max(1, s.batch * s.heads)))
    rows = -(-s.queries // max(1, min(strips, -(-s.queries // 16))))
    wanted = min(s.queries, max(instruction.rows, -(-rows // 4) * 4))

    def tiles(columns: int, depth: int) -> list[Tile]:
        product = TiledProduct(wanted, columns, depth, instruction=instruction)
        return favourite_tiles(target, product, widths(target, columns, instruction)[:1])[:3]

    columns = max(s.keys, target.lanes) if s.free_keys else s.keys
    for pair in zip(tiles(columns, s.size), tiles(s.width, s.keys), strict=False):
        yield AttentionSchedule(wanted, *pair)


@record(frozen=True)
class _Plan:
    """Both products with their tiles, and where scratch memory is cut; sizes in elements."""

    scores: Product
    score_tile: Tile
    context: Product
    context_tile: Tile
    strip: int
    free_keys: bool

    @property
    def pitch(self) -> int:
        """From one row of scores to the next: whole vectors."""
        return -(-self.scores.columns // TRIM) * TRIM

    @property
    def parts(self) -> tuple[int, int, int, int]:
        """Where packed keys, packed values, scores and sums end."""
        ends, total = [], 0
        for size in (
            repacked_elements(self.scores, self.score_tile),
            repacked_elements(self.context, self.context_tile),
            self.strip * self.pitch + (TRIM if self.free_keys else 0),
            self.strip,
        ):
            total += -(-size // 16) * 16
            ends.append(total)
        return ends[0], ends[1], ends[2], ends[3]


def _plan(s: AttentionShape, schedule: AttentionSchedule) -> _Plan:
    rows, columns, depth = (RowAxis("row", s.queries, 1),), s.keys, s.keys
    if s.free_keys:
        columns = -(-s.keys // schedule.scores.width) * schedule.scores.width
        depth = -(-s.keys // STEPS) * STEPS
    return _Plan(
        Product((), rows, "column", columns, s.size, dtype=s.stored),
        schedule.scores,
        Product((), rows, "column", s.width, depth, dtype=s.stored),
        schedule.context,
        schedule.strip,
        s.free_keys,
    )


def _arguments(s: AttentionShape, task: Task, schedule: AttentionSchedule) -> tuple[Argument, ...]:
    nbytes = 4 * _plan(s, schedule).parts[-1]
    return operand_arguments(task, [working_memory(nbytes)])


@record(frozen=True)
class _Emission(Writer):
    shape: AttentionShape
    plan: _Plan
    keys: Value
    values: Value
    scores: Value
    sums: Value
    finish: Finish

    @property
    def strips(self) -> int:
        return -(-self.shape.queries // self.plan.strip)

    @property
    def rows(self) -> int:
        """Queries of a strip."""
        rows, queries = self.plan.strip, self.shape.queries
        found: int = least(rows, queries) if self.shape.free_queries and rows > 1 else rows
        return found

    @property
    def lanes(self) -> int:
        return self.plan.score_tile.lanes


def _write(o: OpenFunction, s: AttentionShape, schedule: AttentionSchedule) -> None:
    f, plan, scratch, tag = o.f, _plan(s, schedule), o.scratch(), o.tag()
    values, scores, sums = (f.at(scratch, end) for end in plan.parts[:3])
    e = _Emission(o, s, plan, scratch, values, scores, sums, o.finish)
    most = max(plan.score_tile.rows, plan.context_tile.rows)
    assert most == 1 or s.queries >= most, "a tile has as many rows as there are at most"
    if s.free_keys and plan.score_tile.width <= hint(s.keys):  # with fewer keys most of a panel would be for nothing
        assert s.keys >= plan.score_tile.width, "what a hint is comes true"
    low, high = o.share.run(f, s.batch * s.heads * e.strips)

    def head(number: Value, _: Sequence[Value]) -> None:
        batch, own = f.udiv(number, s.heads), f.urem(number, s.heads)
        shared = f.udiv(number, s.sharing) if s.sharing > 1 else number
        f.stage(tag, shared, lambda: _pack(e, batch, own))
        before = f.mul(number, e.strips)
        first, last = f.maximum(f.sub(low, before), 0), f.minimum(f.sub(high, before), e.strips)
        f.loop(first, last, 1, lambda strip, _: _strip(e, batch, own, strip), rolled=True)

    heads = f.udiv(low, e.strips), ceiling(f, high, e.strips)
    f.when(f.compare("icmp slt", low, high), lambda: f.loop(*heads, 1, head, rolled=True))


def _pack(e: _Emission, batch: Int, head: Int) -> None:
    """Keys and values of one head as panels."""
    f, s = e.f, e.shape
    shared = f.udiv(head, s.sharing)
    key = f.at(e.pointers[s.key.operand], s.key.at(f, batch, shared, 0), memory_type(s.stored))
    along = s.key.element, s.key.row
    if s.free_keys:
        pack_keys(StoredNumbers(f, e.instructions, s.stored), e.plan.score_tile, (s.keys, s.size), key, along, e.keys)
    else:
        repack(f, e.instructions, e.plan.scores, e.plan.score_tile, key, along, e.keys)
    value = f.at(e.pointers[s.value.operand], s.value.at(f, batch, shared, 0), memory_type(s.stored))
    along = s.value.row, s.value.element
    if s.free_keys:
        given = StoredNumbers(f, e.instructions, s.stored)
        pack_values(given, e.plan.context_tile, e.plan.context, s.keys, value, along, e.values)
    else:
        repack(f, e.instructions, e.plan.context, e.plan.context_tile, value, along, e.values)


def _strip(e: _Emission, batch: Int, head: Int, number: Int) -> None:
    """One strip of queries; the last is moved back to end at the last query."""
    f, s, rows = e.f, e.shape, e.rows
    first = f.minimum(f.mul(number, e.plan.strip), s.queries - rows)
    seen: Int = s.keys
    if s.trims and (s.free_keys or s.keys % TRIM == 0):
        last = f.mul(ceiling(f, f.add(first, rows), TRIM), TRIM)
        seen = f.minimum(last, s.keys)
    _scores(e, batch, head, first, seen)
    if s.free_keys and bends(s):
        _mask_rest(e, (batch, head, first), seen)
    exponentials(f, e.instructions, ScoreRows(e.scores, e.sums, rows, e.plan.pitch, s.keys, seen), e.lanes)
    _context(e, batch, head, first, seen)


def _tiles(e: _Emission, tile: Tile, body: Callable[[Int], None]) -> None:
    """`body(row)` for the first row, within the strip, of every tile; the last is moved back."""
    f, rows = e.f, e.rows

    def one(t: Value, _: Sequence[Value]) -> None:
        body(fitted(f, f.mul(t, tile.rows), tile.rows, rows))

    f.loop(0, -(-rows // tile.rows), 1, one, rolled=True)


def _whole(e: _Emission) -> int:
    """Keys in panels that are full of them."""
    return e.shape.keys // e.plan.score_tile.width * e.plan.score_tile.width


def _mask_rest(e: _Emission, at: tuple[Int, Int, Int], seen: Int) -> None:
    """Mask the scores of a strip, from query `at` on, for keys in a panel that is not full of them."""
    f, (batch, head, first) = e.f, at

    def one(row: Value, _: Sequence[Value]) -> None:
        place = f.at(e.scores, f.mul(row, e.plan.pitch))
        mask_columns(e.o, e.shape, (batch, head, f.add(first, row)), place, (_whole(e), seen), e.lanes)

    f.loop(0, e.rows, 1, one, rolled=True)


def _scores(e: _Emission, batch: Int, head: Int, first: Int, seen: Int) -> None:
    """scores[row, key] = scale * query . key, for the keys that are seen; masked, or where the number of keys is not known only in
    panels full of them."""
    f, s, plan, tile = e.f, e.shape, e.plan, e.plan.score_tile
    zero, stored = [f.constant(0.0, tile.kind)] * (tile.rows * tile.vectors), memory_type(s.dtype)

    def panel(p: Value, _: Sequence[Value]) -> None:
        if s.free_keys:
            columns = [f.add(f.mul(p, tile.width), v * tile.lanes) for v in range(tile.vectors)]
        else:
            columns = [column_at(plan.scores, tile, p, v, f) for v in range(tile.vectors)]
        full = f.compare("icmp slt", columns[0], _whole(e)) if s.free_keys and bends(s) else None
        start = f.at(e.keys, f.mul(p, s.size * tile.width))
        strip = Panel(tuple(f.at(start, v * tile.lanes) for v in range(tile.vectors)), tile.width)

        def one(row: Int) -> None:
            query = f.add(first, row)
            origin = f.at(e.pointers[s.query.operand], s.query.at(f, batch, head, query), stored)
            rows = tuple(f.at(origin, r * s.query.row, stored) for r in range(tile.rows))
            levels = (ReductionLoop(s.size, s.query.element),)
            sums = accumulate(f, tile, Reduction(rows, strip, levels, s.dtype), zero)

            def keep(bend: bool) -> None:
                for r in range(tile.rows):
                    for v, column in enumerate(columns):
                        score = f.fmul(sums[r * tile.vectors + v], f.constant(s.scale, tile.kind))
                        if bend:
                            score = masked(e.o, s, (batch, head, f.add(query, r), column), score)
                        f.store(score, f.at(e.scores, f.add(f.mul(f.add(row, r), plan.pitch), column)))

            if full is None:
                keep(bend=True)
            else:
                f.when(full, lambda: keep(bend=True), lambda: keep(bend=False))

        _tiles(e, tile, one)

    f.loop(0, ceiling(f, seen, tile.width), 1, panel, rolled=True)


def _context(e: _Emission, batch: Int, head: Int, first: Int, seen: Int) -> None:
    """out[row, element] = sum of exponential * value over the keys that are seen, over the row's sum."""
    f, s, plan, tile = e.f, e.shape, e.plan, e.plan.context_tile
    zero = [f.constant(0.0, tile.kind)] * (tile.rows * tile.vectors)
    levels: tuple[ReductionLoop, ...] = (ReductionLoop(s.keys, 1),)
    if s.free_keys:
        levels = (
            ReductionLoop(plan.context.depth // STEPS, STEPS, 0, f.i64(ceiling(f, seen, STEPS))),
            ReductionLoop(STEPS, 1),
        )
    elif isinstance(seen, Value):
        levels = (ReductionLoop(s.keys // TRIM, TRIM, 0, f.udiv(seen, TRIM)), ReductionLoop(TRIM, 1))
    count = min(tile.lanes, s.width)

    def panel(p: Value, _: Sequence[Value]) -> None:
        columns = [column_at(plan.context, tile, p, v, f) for v in range(tile.vectors)]
        start = f.at(e.values, f.mul(p, plan.context.depth * tile.width))
        strip = Panel(tuple(f.at(start, v * tile.lanes) for v in range(tile.vectors)), tile.width)

        def one(row: Int) -> None:
            rows = tuple(f.at(e.scores, f.mul(f.add(row, r), plan.pitch)) for r in range(tile.rows))
            sums = accumulate(f, tile, Reduction(rows, strip, levels), zero)
            for r in range(tile.rows):
                factor = f.splat(f.load("float", f.at(e.sums, f.add(row, r))), tile.lanes)
                for v, column in enumerate(columns):
                    indices, lane = s.place(f, batch, head, f.add(first, f.add(row, r)), column)
                    e.finish(indices, lane, f.fmul(sums[r * tile.vectors + v], factor), count)

        _tiles(e, tile, one)

    f.loop(0, -(-s.width // tile.width), 1, panel, rolled=True)


def _pieces(s: AttentionShape, target: Target, schedule: AttentionSchedule) -> int:
    cycles = s.batch * s.heads * s.queries * s.keys * (s.size + s.width) / target.lanes / 2
    return pieces_of(s.batch * s.heads, cycles, target, s.batch * s.heads)


def attention_by(name: str, instruction: Instruction) -> Kernel[AttentionShape, AttentionSchedule]:
    """The kernel whose products are made of an instruction that takes float32 one by one."""
    return Kernel(
        name,
        partial(_understand, instruction),
        partial(_schedules, instruction),
        _arguments,
        written(_arguments, _write),
        pieces=_pieces,
        level=lambda schedule: "tidy",
    )


PACKED = attention_by("attention", FUSED)

ATTENTION: tuple[Kernel[AttentionShape, Any], ...] = (FEW_QUERIES, PACKED)
"""Both ways to run attention in float32, without a matrix unit; what the last refuses runs from the operator's definition."""

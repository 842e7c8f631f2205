"""Attention of few queries, as in a step of decoding: keys and values are read once, where they lie, and nothing is packed.

Takes the tasks of `attention`; gives LLVM IR. A worker takes whole heads of keys and values, with all queries that share them, or
where there are fewer heads than workers a part of these queries:

    for head:  for vector of keys:  a sum for each key along its numbers, then the sums side by side as scores, masked
               exponentials and their sums;  for vectors of the value:  the sum of exponential * value over all keys

Queries are written out, so that they are a number; how many keys there are need not be known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from fusewise.codegen.families.attention.rows import ScoreRows, bends, exponentials, mask_columns, masked
from fusewise.codegen.families.attention.shape import AttentionShape, Heads, understand
from fusewise.codegen.kernel import Argument, Kernel, working_memory
from fusewise.codegen.llvm.entry import OpenFunction, Writer, operand_arguments, written
from fusewise.codegen.llvm.registers import widen
from fusewise.codegen.llvm.stores import Finish
from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.instruction import multiply_add
from fusewise.codegen.nest.tree import Int, Value, vector
from fusewise.codegen.nest.types import memory_type
from fusewise.codegen.target import InstructionSet, Target
from fusewise.ir.deciding import hint, known_equal
from fusewise.ir.dtypes import FLOAT32, DType
from fusewise.lower.task import RefusalReason, Task
from fusewise.records import record

__all__ = ["FEW_QUERIES", "FewSchedule"]

MOST_ROWS = 8
"""Queries at a time, of heads that share keys. With more than one query for each of more heads, packing pays."""

WHOLE = 16
"""A row of scores is a whole number of so many."""

WRITTEN_OUT = 8
"""Vectors of a key that are written out one after the other."""


def _understand(task: Task, instructions: InstructionSet) -> AttentionShape | RefusalReason:
    s = understand(task, widens=True)
    if isinstance(s, RefusalReason):
        return s
    lanes = instructions.lanes
    queries = hint(s.queries)
    if queries > 1 and (s.sharing * queries > MOST_ROWS or s.free_queries):
        return RefusalReason("many queries", str(s.sharing * queries))
    if s.free_queries and known_equal(s.queries, s.keys):
        return RefusalReason("as many queries as keys, of one token one")
    if s.free_queries and s.queries == 1:
        s = replace(s, queries=1, free_queries=False)
    if s.key.element != 1 or s.value.element != 1 or s.query.element != 1:
        return RefusalReason("numbers of a head do not lie side by side")
    too_few = lanes == 1 if s.free_keys else s.keys < lanes
    if lanes > WHOLE or s.size % lanes or s.width % lanes or too_few:
        return RefusalReason("no whole vectors", f"{s.keys} keys of {s.size} and {s.width}")
    return s


@record(frozen=True)
class FewSchedule:
    """In how many `parts` the heads of queries that share keys are dealt out."""

    parts: int = 1


def _schedules(s: AttentionShape, task: Task, target: Target) -> tuple[FewSchedule]:
    """As few parts as every worker has one of, and not too many queries in one."""
    units, least = hint(s.batch) * s.heads // s.sharing, s.sharing * s.queries / MOST_ROWS
    divisors = [n for n in range(1, s.sharing + 1) if s.sharing % n == 0]
    return (FewSchedule(next((n for n in divisors if n >= least and units * n >= target.workers), s.sharing)),)


@record(frozen=True)
class _Emission(Writer):
    s: AttentionShape
    parts: int
    scores: Value
    sums: Value
    finish: Finish

    @property
    def lanes(self) -> int:
        return self.instructions.lanes

    @property
    def kind(self) -> str:
        return vector("float", self.lanes)

    @property
    def rows(self) -> int:
        """Queries of a part of the heads that share keys."""
        return self.s.sharing // self.parts * self.s.queries

    @property
    def pitch(self) -> int:
        return _pitch(self.s)

    def row_of(self, heads: Heads, batch: Int, head: Int, row: Int, dtype: DType = FLOAT32) -> Value:
        return self.f.at(self.pointers[heads.operand], heads.at(self.f, batch, head, row), memory_type(dtype))

    def given(self, row: Value, at: Int) -> Value:
        """A vector of a row of keys or values."""
        stored = memory_type(self.s.stored)
        raw = self.f.load(vector(stored, self.lanes), self.f.at(row, at, stored))
        return widen(self.f, self.instructions, raw, self.s.stored)

    def mad(self, a: Value, b: Value, c: Value) -> Value:
        return multiply_add(self.f, self.instructions, a, b, c)


def _pitch(s: AttentionShape) -> int:
    return -(-s.keys // WHOLE) * WHOLE


def _room(s: AttentionShape, schedule: FewSchedule) -> int:
    """Elements that all rows of scores take."""
    return s.sharing // schedule.parts * s.queries * _pitch(s) + (WHOLE if s.free_keys else 0)


def _arguments(s: AttentionShape, task: Task, schedule: FewSchedule) -> tuple[Argument, ...]:
    nbytes = 4 * (_room(s, schedule) + MOST_ROWS)
    return operand_arguments(task, [working_memory(nbytes)])


def _write(o: OpenFunction, s: AttentionShape, schedule: FewSchedule) -> None:
    f, scratch, units = o.f, o.scratch(), s.heads // s.sharing * schedule.parts
    e = _Emission(o, s, schedule.parts, scratch, f.at(scratch, _room(s, schedule)), o.finish)

    def unit(number: Value, _: Sequence[Value]) -> None:
        batch, part = f.udiv(number, units), f.urem(number, units)
        head = _Shared(f.udiv(part, schedule.parts), f.mul(part, s.sharing // schedule.parts))
        _scores(e, batch, head)
        exponentials(f, o.instructions, ScoreRows(e.scores, e.sums, e.rows, e.pitch, s.keys, s.keys), e.lanes)
        _context(e, batch, head)

    f.loop(*o.share.run(f, s.batch * units), 1, unit, rolled=True)


@record(frozen=True)
class _Shared:
    """A head of keys, and the first of the heads of queries that are taken with it."""

    keys: Int
    queries: Int


def _each_row(e: _Emission, head: _Shared, body: Callable[[Int, Int, Int], None]) -> None:
    """`body(row, head, query)` for every query that shares the keys of a head, in a loop."""
    f, s = e.f, e.s

    def one(row: Value, _: Sequence[Value]) -> None:
        body(row, f.add(head.queries, f.udiv(row, s.queries)), f.urem(row, s.queries))

    f.loop(0, e.rows, 1, one, rolled=True)


def _scores(e: _Emission, batch: Int, head: _Shared) -> None:
    """scores[row, key] = scale * query . key, masked; the last vector of keys is moved back to end at the last key, or where it is
    not known that they fill one, has that key in the lanes beyond."""
    f, s, lanes = e.f, e.s, e.lanes
    if not s.free_keys:

        def some(number: Value, _: Sequence[Value]) -> None:
            first = f.minimum(f.mul(number, lanes), s.keys - lanes)
            _scores_of(e, (batch, head), first)

        f.loop(0, -(-s.keys // lanes), 1, some, rolled=True)
        return
    whole = s.keys // lanes * lanes
    f.loop(0, whole, lanes, lambda first, _: _scores_of(e, (batch, head), first), rolled=True)
    f.loop(whole, s.keys, lanes, lambda first, _: _scores_of(e, (batch, head), first, s.keys - 1), rolled=True)
    if bends(s):

        def mask_rest(number: Int, own: Int, query: Int) -> None:
            row = f.at(e.scores, f.mul(number, e.pitch))
            mask_columns(e.o, s, (batch, own, query), row, (whole, s.keys), lanes)

        _each_row(e, head, mask_rest)


def _scores_of(e: _Emission, at: tuple[Int, _Shared], first: Int, last: Int | None = None) -> None:
    """The scores of a vector of keys from `first` on, of a batch and head; masked, but where they reach beyond the `last`."""
    f, s, lanes, (batch, head) = e.f, e.s, e.lanes, at

    def key(j: int) -> Value:
        number = f.add(first, j)
        return e.row_of(s.key, batch, head.keys, number if last is None else f.minimum(number, last), s.stored)

    keys = [key(j) for j in range(lanes)]

    def row(number: Int, own: Int, query: Int) -> None:
        along = e.row_of(s.query, batch, own, query)

        def more(at: Int, sums: Sequence[Value]) -> list[Value]:
            given = f.load(e.kind, f.at(along, at))
            return [e.mad(given, e.given(key, at), total) for key, total in zip(keys, sums, strict=True)]

        sums: Sequence[Value] = [f.constant(0.0, e.kind)] * lanes
        if s.size // lanes <= WRITTEN_OUT:
            for v in range(s.size // lanes):
                sums = more(v * lanes, sums)
        else:
            sums = f.loop(0, s.size, lanes, more, sums, rolled=True)
        score = f.fmul(_side_by_side(f, sums), f.constant(s.scale, e.kind))
        if last is None:
            score = masked(e.o, s, (batch, own, query, first), score)
        f.store(score, f.at(e.scores, f.add(f.mul(number, e.pitch), first)))

    _each_row(e, head, row)


def _side_by_side(f: Function, vectors: Sequence[Value]) -> Value:
    """The sums of as many vectors as each has lanes, a lane for each: neighbours are added, of two vectors at a time."""
    lanes = vectors[0].lanes
    while len(vectors) > 1:
        even, odd = range(0, 2 * lanes, 2), range(1, 2 * lanes, 2)
        pairs = zip(vectors[::2], vectors[1::2], strict=True)
        vectors = [f.fadd(f.shuffle(a, b, even), f.shuffle(a, b, odd)) for a, b in pairs]
    return vectors[0]


def _together(e: _Emission) -> int:
    """Vectors of a value at a time: as many sums, for all rows, as there are registers for."""
    whole, most = e.s.width // e.lanes, (24 if e.instructions.vector_bits >= 512 else 12) // e.rows
    return max(n for n in range(1, max(1, min(whole, most)) + 1) if whole % n == 0)


def _context(e: _Emission, batch: Int, head: _Shared) -> None:
    """out[row, element] = sum of exponential * value over all keys, over the row's sum."""
    f, s, lanes, count = e.f, e.s, e.lanes, _together(e)
    value, stored = e.row_of(s.value, batch, head.keys, 0, s.stored), memory_type(s.stored)

    def columns(number: Value, _: Sequence[Value]) -> None:
        first = f.mul(number, count * lanes)

        def key(j: Value, sums: Sequence[Value]) -> list[Value]:
            start = f.at(value, f.add(f.mul(j, s.value.row), first), stored)
            values = [e.given(start, v * lanes) for v in range(count)]
            found = []
            for row in range(e.rows):
                weight = f.splat(f.load("float", f.at(e.scores, f.add(j, row * e.pitch))), lanes)
                own = sums[row * count : (row + 1) * count]
                found += [e.mad(weight, one, total) for one, total in zip(values, own, strict=True)]
            return found

        zeros = [f.constant(0.0, e.kind)] * (e.rows * count)
        sums = f.loop(0, s.keys, 1, key, zeros, rolled=True)
        for row in range(e.rows):
            own = f.add(head.queries, row // s.queries)
            factor = f.splat(f.load("float", f.at(e.sums, row)), lanes)
            for v in range(count):
                element = f.add(first, v * lanes)
                indices, lane = s.place(f, batch, own, row % s.queries, element)
                e.finish(indices, lane, f.fmul(sums[row * count + v], factor), lanes)

    f.loop(0, s.width // (lanes * count), 1, columns, rolled=True)


FEW_QUERIES = Kernel(
    "attention-few", _understand, _schedules, _arguments, written(_arguments, _write), level=lambda schedule: "tidy"
)

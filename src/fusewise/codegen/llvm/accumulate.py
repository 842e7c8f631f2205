"""The reduction of a register tile as operations: its loops, unrolled steps, and sums that are kept apart where it is long."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from fusewise.codegen.llvm.registers import widen
from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.tile import Ahead, Difference, Reduction, ReductionLoop, Tile, accumulate
from fusewise.codegen.nest.tree import Int, Value, vector
from fusewise.codegen.nest.types import memory_type
from fusewise.codegen.target import LINE_BYTES, InstructionSet
from fusewise.ir.deciding import known_equal, known_zero
from fusewise.ir.size import Size
from fusewise.records import record

__all__ = ["CHAIN", "accumulate_in_runs", "fetch", "reduced"]

CHAIN = 512
"""Longest run of additions into one accumulator. Rounding grows with the length of the chain, so a longer reduction is cut
into runs of about this many steps whose results are added up in memory, which costs about one part in a hundred."""


def reduced(
    f: Function, instructions: InstructionSet, tile: Tile, reduction: Reduction, start: Sequence[Value]
) -> tuple[Value, ...]:
    """The accumulators of a tile, row by row."""
    assert tile.rows % tile.instruction.rows == 0, "an instruction takes whole rows of its tile"
    levels, panel, meanwhile = reduction.levels, reduction.panel, reduction.meanwhile
    if meanwhile is not None:
        (level,) = levels
        part = level.extent // meanwhile.parts
        levels = (ReductionLoop(meanwhile.parts, part * level.stride), ReductionLoop(part, level.stride))
    if reduction.together > 1:
        assert len(panel.columns) == tile.instruction.rows == 1, (
            "groups side by side are one vector wide, each row on its own"
        )
    columns = tuple(f.hidden(column) for column in panel.columns)
    cut, fresh = (levels, -1) if reduction.together > 1 or tile.instruction.is_exact else _cut(levels)
    hidden = replace(
        reduction,
        rows=tuple(f.hidden(row) for row in reduction.rows),
        panel=replace(panel, columns=columns, following=None),
        levels=cut,
        ahead=tuple(replace(one, start=f.hidden(one.start)) for one in reduction.ahead),
    )
    written = _Written(f, instructions, tile, hidden, fresh)
    sums = _joined(f, tile, start)
    if fresh < 0:
        return _by_rows(f, tile, _nest(written, 0, 0, 0, sums))
    kept = f.alloca(tile.joined, len(sums))
    places = [f.at(kept, k, tile.joined) for k in range(len(sums))]
    for place, value in zip(places, sums, strict=True):
        f.store(value, place)
    _nest(replace(written, places=tuple(places)), 0, 0, 0, ())
    return _by_rows(f, tile, [f.load(tile.joined, place) for place in places])


def _joined(f: Function, tile: Tile, sums: Sequence[Value]) -> Sequence[Value]:
    """Accumulators row by row as the registers that instructions add to: those of as many rows as one takes side by side."""
    rows, vectors = tile.instruction.rows, tile.vectors
    firsts = [first + v for first in range(0, len(sums), rows * vectors) for v in range(vectors)]
    return [f.joined(sums[first : first + rows * vectors : vectors]) for first in firsts]


def _by_rows(f: Function, tile: Tile, registers: Sequence[Value]) -> tuple[Value, ...]:
    """The other way of `_joined`."""
    rows, vectors = tile.instruction.rows, tile.vectors
    if rows == 1:
        return tuple(registers)
    return tuple(
        f.part(registers[first + v], r * tile.lanes, tile.lanes)
        for first in range(0, len(registers), vectors)
        for r in range(rows)
        for v in range(vectors)
    )


def _cut(levels: Sequence[ReductionLoop]) -> tuple[tuple[ReductionLoop, ...], int]:
    """The levels with a long one split in two, and the depth below which a run starts anew (-1: one run does it all)."""
    if any(isinstance(level.extent, Size) for level in levels):
        return tuple(levels), -1
    if math.prod(level.extent for level in levels) <= CHAIN * 3 // 2:
        return tuple(levels), -1
    below = 1
    for depth in reversed(range(len(levels))):
        level = levels[depth]
        if below * level.extent > CHAIN:
            parts = [n for n in range(1, level.extent + 1) if level.extent % n == 0 and below * n <= CHAIN]
            inner = max(parts, default=1)
            if inner == 1 or level.high is not None:
                return tuple(levels), depth if below >= CHAIN // 8 else -1
            outer = ReductionLoop(level.extent // inner, level.stride * inner)
            split = (*levels[:depth], outer, ReductionLoop(inner, level.stride), *levels[depth + 1 :])
            return split, depth if below * inner >= CHAIN // 8 else -1
        below *= level.extent
    return tuple(levels), -1


@record(frozen=True)
class _Written:
    """One tile's reduction being written."""

    f: Function
    instructions: InstructionSet
    tile: Tile
    of: Reduction
    fresh: int = -1
    places: tuple[Value, ...] = ()

    def row(self, r: int, at: Int, lanes: int = 1) -> Value:
        """Elements of row r, widened."""
        stored = memory_type(self.of.dtype)
        raw = self.f.load(vector(stored, lanes), self.f.at(self.of.rows[r], at, stored))
        return widen(self.f, self.instructions, raw, self.of.dtype)

    def left(self, number: int, at: Int) -> Value:
        """What an instruction takes of the left operand: the scalar of a row, in all lanes, or those of its rows."""
        taken = self.tile.instruction.rows
        if taken == 1:
            return self.f.splat(self.row(number, at), self.tile.lanes)
        return self.f.joined([self.row(r, at) for r in range(number * taken, (number + 1) * taken)])

    def columns(self, position: Int) -> list[Value]:
        """The columns at one step."""
        f, panel = self.f, self.of.panel
        stored = self.tile.element if panel.dtype is None else memory_type(panel.dtype)
        offset = f.mul(position, panel.pitch)
        raw = [f.load(vector(stored, self.tile.lanes), f.at(column, offset, stored)) for column in panel.columns]
        if panel.minus is not None:
            return [self._taken(panel.minus, f.add(offset, v * self.tile.lanes), x) for v, x in enumerate(raw)]
        return raw if panel.dtype is None else [widen(f, self.instructions, value, panel.dtype) for value in raw]

    def _taken(self, minus: Difference, at: Int, x: Value) -> Value:
        f = self.f
        left = f.fsub(x, f.load(self.tile.kind, f.at(minus.other, at)))
        f.store(left, f.at(minus.made, at))
        return left


def _nest(n: _Written, depth: int, at: Int, position: Int, sums: Sequence[Value]) -> Sequence[Value]:
    """The loops from level `depth` inwards, `at` in the rows and at step `position` of the panel."""
    f, level = n.f, n.of.levels[depth]
    below = math.prod(deeper.extent for deeper in n.of.levels[depth + 1 :])
    innermost = depth == len(n.of.levels) - 1
    unroll = _unroll(n, level, len(sums)) if innermost else 1

    def body(i: Int, carried: Sequence[Value]) -> Sequence[Value]:
        inside = f.add(at, f.mul(i, level.stride))
        here = f.add(position, f.mul(i, below))
        if depth == n.fresh:
            return _run(n, depth + 1, inside, here)
        if n.of.meanwhile is not None and depth == 0:
            found = f.when(n.of.meanwhile.reduces, lambda: _nest(n, 1, inside, here, carried), lambda: carried)
            f.same(n.of.meanwhile.index, f.i64(i))
            f.include(n.of.meanwhile.body)
            return found
        if not innermost:
            return _nest(n, depth + 1, inside, here, carried)
        fetch(n.f, n.of.ahead, here, unroll)
        if n.of.together > 1:
            return _side_by_side(n, inside, here, carried)
        for number in range(unroll):
            carried = _step(n, f.add(inside, number * level.stride), f.add(here, number), carried)
        return carried

    if known_equal(level.extent, unroll) and level.high is None:
        return body(0, sums)
    high = level.extent if level.high is None else level.high
    if known_zero(level.extent % unroll):
        return f.loop(level.low, high, unroll, body, tuple(sums), rolled=True)
    whole, unrolled = level.extent // unroll * unroll, unroll
    sums = f.loop(0, whole, unrolled, body, tuple(sums), rolled=True)
    unroll = 1
    return f.loop(whole, level.extent, 1, body, tuple(sums), rolled=True)


def _run(n: _Written, depth: int, at: Int, position: Int) -> tuple[Value, ...]:
    """The levels from `depth` inwards into accumulators of their own, added to the sums in memory."""
    f = n.f
    zero = f.constant(0.0, n.tile.joined)
    for place, value in zip(n.places, _nest(n, depth, at, position, [zero] * len(n.places)), strict=True):
        f.store(f.fadd(f.load(n.tile.joined, place), value), place)
    return ()


def fetch(f: Function, ahead: Sequence[Ahead], position: Int, steps: int) -> None:
    """Ask for what these steps of a reduction are to fetch, a cache line at a time."""
    for one in ahead:
        start = f.at(one.start, f.mul(position, one.step), "i8")
        for line in range(0, steps * one.step, LINE_BYTES):
            f.prefetch(f.at(start, line, "i8"), one.locality)


def _step(n: _Written, at: Int, position: Int, sums: Sequence[Value]) -> list[Value]:
    """One step: every row's scalar times every column."""
    instruction, columns, result = n.tile.instruction, n.columns(position), list(sums)
    rows = range(len(n.of.rows) // instruction.rows)
    held = len(sums) * instruction.registers(n.instructions, n.tile.lanes)

    def add(r: int, value: Value, v: int) -> None:
        index = r * len(columns) + v
        result[index] = instruction.add(n.f, n.instructions, value, columns[v], result[index])

    if held + len(columns) >= n.instructions.registers:
        # all columns beside the sums leave no register for a row: the rows stay, and columns come one by one
        values = [n.left(r, at) for r in rows]
        for v in range(len(columns)):
            for r in rows:
                add(r, values[r], v)
        return result
    for r in rows:
        value = n.left(r, at)
        for v in range(len(columns)):
            add(r, value, v)
    return result


def _side_by_side(n: _Written, at: Int, position: Int, sums: Sequence[Value]) -> list[Value]:
    """All steps of the innermost level: each row's channels of all groups are one vector, shuffled for every step."""
    group, result = n.of.levels[-1].extent, list(sums)
    columns = [n.columns(n.f.add(position, k))[0] for k in range(group)]
    for r in range(len(n.of.rows)):
        every = n.row(r, at, n.of.together * group)
        for k, column in enumerate(columns):
            own = [lane // (n.tile.lanes // n.of.together) * group + k for lane in range(n.tile.lanes)]
            value = n.f.shuffle(every, Value("poison", every.type), own)
            result[r] = n.tile.instruction.add(n.f, n.instructions, value, column, result[r])
    return result


def _unroll(n: _Written, level: ReductionLoop, accumulators: int) -> int:
    """Steps written out per iteration: all of a short level, else a few that divide it. Where other things are done between its
    parts there are two iterations at least: LLVM spills accumulators in the middle of steps that are not a loop of their own."""
    if n.of.together > 1:
        return level.extent
    if isinstance(level.extent, Size):
        return 4 if level.high is None and n.of.meanwhile is None and not n.tile.instruction.is_exact else 1
    if n.tile.instruction.is_exact or level.high is not None:
        return 1
    if n.of.meanwhile is None and level.extent * accumulators <= 96:
        return level.extent
    most = level.extent if n.of.meanwhile is None else level.extent // 2
    return next(u for u in (4, 3, 2, 1) if level.extent % u == 0 and ((u * accumulators <= 56 and u <= most) or u == 1))


def accumulate_in_runs(f: Function, tile: Tile, reduction: Reduction, runs: int) -> Sequence[Value]:
    """The same of so many runs of adjacent steps, from nothing on: the sums of all of them, which round less than one run would.
    What is reduced is one run, the first."""
    found: Sequence[Value] = ()
    panel, (level,) = reduction.panel, reduction.levels
    for skip in range(0, level.extent * runs, level.extent):
        one = replace(
            reduction,
            rows=tuple(f.at(row, skip) for row in reduction.rows),
            panel=replace(panel, columns=tuple(f.at(column, skip * panel.pitch) for column in panel.columns)),
            ahead=tuple(replace(each, start=f.at(each.start, skip * each.step, "i8")) for each in reduction.ahead),
        )
        begin = [f.constant(0.0, tile.kind)] * (tile.rows * tile.vectors)
        sums = accumulate(f, tile, one, begin)
        found = [f.fadd(a, b) for a, b in zip(found, sums, strict=True)] if found else sums
    return found

"""The reduction of a tile whose sums lie in memory, as operations: by a matrix unit, or by what stands for it."""

from __future__ import annotations

import math
from collections.abc import Callable

from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.instruction import MatrixForm, TileIn
from fusewise.codegen.nest.tile import AccumulateTiles, WithTiles
from fusewise.codegen.nest.tree import Int, Value
from fusewise.codegen.target import InstructionSet
from fusewise.ir.dtypes import DType

__all__ = ["add_tiles", "section"]


def section(f: Function, instructions: InstructionSet, node: WithTiles) -> None:
    """A stretch in which a matrix unit is used."""
    form = node.instruction.matrix
    assert form is not None, "a matrix unit multiplies tiles"
    if not node.instruction.is_native(instructions):
        f.include(node.body)
        return
    form.unit.begin(f)
    f.include(node.body)
    form.unit.end(f)


def add_tiles(f: Function, instructions: InstructionSet, node: AccumulateTiles) -> None:
    """Add to the sums of a tile."""
    form = node.tile.instruction.matrix
    assert form is not None, "a matrix unit multiplies tiles"
    places = _Places(f, node, form)
    if node.tile.instruction.is_native(instructions):
        _by_unit(places)
    else:
        _apart(places, instructions)


class _Places:
    """Where the tiles of a reduction lie."""

    def __init__(self, f: Function, node: AccumulateTiles, form: MatrixForm) -> None:
        tile = node.tile
        self.f, self.form, self.node = f, form, node
        self.lane = tile.instruction.lane
        self.rows, self.vectors = range(tile.rows // tile.instruction.rows), range(tile.vectors)
        self._rows_each, self._lanes, self._width = tile.instruction.rows, tile.lanes, tile.width
        self._sum: DType = tile.instruction.sum

    def sums(self, row: int, vector: int) -> TileIn:
        """The sums of one instruction."""
        size = self._sum.itemsize
        skip = (row * self._rows_each * self._width + vector * self._lanes) * size
        return TileIn(self.f.at(self.node.sums, skip, "i8"), self._width * size)

    def left(self, row: int, part: int, at: Int) -> TileIn:
        """A part of the left operand, `at` so many lanes from the first of its row."""
        f, size, pitch = self.f, self.lane.itemsize, self.node.left_pitch
        lanes = f.add(f.add(f.mul(pitch, row * self._rows_each), at), part * self.form.steps)
        return TileIn(f.at(self.node.left, f.mul(lanes, size), "i8"), f.mul(pitch, size))

    def right(self, vector: int, part: int, position: Int) -> TileIn:
        """A part of the right operand, at this step of the panel."""
        f, size, pitch = self.f, self.lane.itemsize, self.node.right_pitch
        lanes = f.add(f.mul(f.add(position, part * self.form.steps), pitch), vector * self._lanes)
        return TileIn(f.at(self.node.right, f.mul(lanes, size), "i8"), pitch * size)

    def each(self, emit: Callable[[Int, Int], None]) -> None:
        """`emit(at, position)` for each time that the instruction is used: where in the rows, and at which step of the panel."""
        self._level(0, 0, 0, emit)

    def _level(self, depth: int, at: Int, position: Int, emit: Callable[[Int, Int], None]) -> None:
        f, levels = self.f, self.node.levels
        if depth == len(levels):
            emit(at, position)
            return
        level, below = levels[depth], math.prod(deeper.extent for deeper in levels[depth + 1 :])
        step = self.node.tile.instruction.steps if depth == len(levels) - 1 else 1

        def body(i: Value, _: tuple[Value, ...]) -> None:
            self._level(depth + 1, f.add(at, level.at(f, i)), f.add(position, f.mul(i, below)), emit)

        f.loop(level.low, level.extent if level.high is None else level.high, step, body, rolled=True)


def _by_unit(places: _Places) -> None:
    """All sums in registers of the unit, where there are enough: behind them tiles of the left operand, then of the right."""
    f, form, unit = places.f, places.form, places.form.unit
    rows, vectors = places.rows, places.vectors
    left, right = len(rows) * len(vectors), len(rows) * len(vectors) + len(rows)
    assert right < unit.registers, "a tile has room for its operands"
    free = unit.registers - right

    def register(row: int, vector: int) -> int:
        return row * len(vectors) + vector

    def step(at: Int, position: Int) -> None:
        here: tuple[int, ...] = (-1, -1)
        for parts in form.products:
            if parts[0] != here[0]:
                for r in rows:
                    unit.load(f, left + r, places.left(r, parts[0], at))
            if parts[1] != here[1] and free >= len(vectors):
                for v in vectors:
                    unit.load(f, right + v, places.right(v, parts[1], position))
            for v in vectors:
                if free < len(vectors):
                    unit.load(f, right + v % free, places.right(v, parts[1], position))
                for r in rows:
                    form.multiply(f, register(r, v), left + r, right + v % free)
            here = parts

    for r in rows:
        for v in vectors:
            if places.node.from_zero:
                unit.zero(f, register(r, v))
            else:
                unit.load(f, register(r, v), places.sums(r, v))
    places.each(step)
    for r in rows:
        for v in vectors:
            unit.store(f, register(r, v), places.sums(r, v))


def _apart(places: _Places, instructions: InstructionSet) -> None:
    f, form, node = places.f, places.form, places.node
    if node.from_zero:
        f.clear(node.sums, node.tile.rows * node.tile.width * node.tile.instruction.sum.itemsize)

    def step(at: Int, position: Int) -> None:
        for left_part, right_part in form.products:
            for r in places.rows:
                for v in places.vectors:
                    left, right = places.left(r, left_part, at), places.right(v, right_part, position)
                    form.emulate(f, instructions, places.sums(r, v), left, right)

    places.each(step)

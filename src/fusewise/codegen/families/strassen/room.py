"""What the loops of Strassen's algorithm share: where things lie in a worker's memory, and what a kernel gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fusewise.codegen.families.product.dealing import TileBlocks
from fusewise.codegen.families.product.prefetch import StepPrefetch
from fusewise.codegen.families.strassen.form import LEFT_SUMS, PRODUCTS
from fusewise.codegen.families.strassen.plan import LINE, Halves, StrassenSchedule, panels_of
from fusewise.codegen.llvm.stores import Fetch, Finish
from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.tails import fitted
from fusewise.codegen.nest.tile import Tile
from fusewise.codegen.nest.tree import Int, Value
from fusewise.codegen.nest.types import memory_type
from fusewise.codegen.target import InstructionSet
from fusewise.records import record

__all__ = ["Ends", "OperandRow", "Room", "Rows", "StrassenEmission", "strassen_bytes"]


@record(frozen=True)
class OperandRow:
    """A row of the left operand: `value(k)` is a vector of its elements from k on, `fetch(k)` fetches the memory it comes from."""

    value: Callable[[Int], Value]
    fetch: Callable[[Int], None]


Rows = Callable[[Int], OperandRow]
"""The row of a number; to fetch from, there need be none."""


@record(frozen=True)
class Room:
    """Where things lie in a worker's memory, in elements: left sums, one right factor, products, rows of the left operand."""

    h: Halves
    schedule: StrassenSchedule

    @property
    def pitch(self) -> int:
        """From one row of a left sum to the next: a line more than the row takes, or many rows would share a set of the cache."""
        return (-(-self.h.depth // LINE) + 1) * LINE

    @property
    def left(self) -> int:
        """Elements of the left sums, which lie row by row."""
        return self._rows * LEFT_SUMS * self.pitch

    @property
    def right(self) -> int:
        """Elements of a panel's part of a quarter of the right operand."""
        return self.h.depth * self.schedule.tile.width

    @property
    def pair(self) -> int:
        """Elements of two panels, one of each half of the columns: four quarters one behind the other."""
        return 4 * self.right

    @property
    def made(self) -> int:
        """Elements of a chunk of a right factor."""
        return self.schedule.chunk * self.schedule.tile.width

    @property
    def sums(self) -> int:
        """Elements of one product."""
        return self._rows * self.schedule.tile.width

    @property
    def written(self) -> int:
        """Elements of the left operand's rows, if they are written first."""
        return 2 * self._rows * self.h.rows[0].stride if self.h.computed else 0

    @property
    def widened(self) -> int:
        """Elements of a chunk of all four quarters of two panels, if they are widened."""
        return 0 if self.h.short is None else 4 * self.made

    @property
    def elements(self) -> int:
        return self.left + PRODUCTS * self.sums + self.made + self.widened + self.written

    @property
    def _rows(self) -> int:
        """Pairs of rows of a block."""
        return self.schedule.per_block * self.schedule.tile.rows


def strassen_bytes(h: Halves, schedule: StrassenSchedule) -> int:
    """Working memory of a worker."""
    return Room(h, schedule).elements * 4


@record(frozen=True)
class Ends:
    """What a kernel gives: the left operand's rows, and its first element unless it is computed; the packed right operand, initial
    values, the stores and what fetches their memory, if that pays; memory, a tag that says whose left sums lie there (`Stage`),
    what is to be fetched for a later step, see `Kernel.cycles`, and weights of the next step, see `steps.prefetch.followers`."""

    rows: Rows
    left: Value | None
    right: Value
    start: Callable[[Sequence[Int]], Sequence[Value]]
    finish: Finish
    fetch: Fetch | None
    own: Value
    tag: Value
    later: Value | None
    following: Value | None


@record(frozen=True)
class StrassenEmission:
    f: Function
    instructions: InstructionSet
    room: Room
    ends: Ends
    later: StepPrefetch | None = None

    @property
    def h(self) -> Halves:
        return self.room.h

    @property
    def schedule(self) -> StrassenSchedule:
        return self.room.schedule

    @property
    def tile(self) -> Tile:
        return self.schedule.tile

    @property
    def panels(self) -> int:
        """Panels of each half of the columns."""
        return panels_of(self.h, self.tile) // 2

    @property
    def packed_quarters(self) -> tuple[int, ...]:
        """Where B11, B12, B21, B22 begin in the packed operand, for the first panel."""
        return self._quarters(self.room.right)

    @property
    def quarters(self) -> tuple[int, ...]:
        """Where they begin in what is multiplied: there, or where a chunk of them is widened."""
        return self._quarters(self.room.right if self.h.short is None else self.room.made)

    def _quarters(self, half: int) -> tuple[int, ...]:
        return 0, 2 * half, half, 3 * half

    @property
    def stored(self) -> str:
        """The LLVM type of the packed operand's elements."""
        return "float" if self.h.short is None else memory_type(self.h.short)

    def packed(self, p: Int, chunk: Int) -> Value:
        """Where a chunk of the first quarter of a pair of panels is packed."""
        f = self.f
        return f.at(self.ends.right, f.add(f.mul(p, self.room.pair), f.mul(chunk, self.room.made)), self.stored)

    @property
    def chunks(self) -> int:
        """Pieces that the depth is done in."""
        return self.h.depth // self.schedule.chunk

    @property
    def left(self) -> Value:
        """Where the left operand's first row lies, or the block's first where this worker writes it."""
        if self.ends.left is not None:
            return self.ends.left
        return self.f.at(self.ends.own, self.room.elements - self.room.written)

    @property
    def widened(self) -> Value:
        """Where a chunk of two panels lies, widened."""
        return self.f.at(self.ends.own, self.room.left + self.room.made + PRODUCTS * self.room.sums)

    @property
    def cut(self) -> TileBlocks:
        return TileBlocks(self.h.tiles(self.tile), self.schedule.per_block)

    def first_row(self, number: Int) -> Int:
        """The first row of a tile; the last tile is moved back to end at the last row."""
        return fitted(self.f, self.f.mul(number, self.tile.rows), self.tile.rows, self.h.height)

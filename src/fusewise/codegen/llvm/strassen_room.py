"""What the loops of Strassen's algorithm share: where things lie in a worker's memory, and what a kernel gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fusewise.codegen.kernel import Params
from fusewise.codegen.llvm.emit import Function, Int, Value
from fusewise.codegen.llvm.gemm_fetch import Later
from fusewise.codegen.llvm.gemm_finish import Fetch, Finish
from fusewise.codegen.llvm.gemm_plan import tile_of
from fusewise.codegen.llvm.gemm_share import Blocks
from fusewise.codegen.llvm.gemm_tile import Tile
from fusewise.codegen.llvm.strassen_form import LEFT_SUMS, PRODUCTS
from fusewise.codegen.llvm.strassen_plan import LINE, Halves, is_wide, panels_of
from fusewise.codegen.target import Target
from fusewise.records import record

__all__ = ["Emission", "Ends", "Row", "Rows", "room_of", "strassen_bytes"]


@record(frozen=True)
class Row:
    """A row of the left operand: `value(k)` is a vector of its elements from k on, `fetch(k)` fetches the memory it comes from."""

    value: Callable[[Int], Value]
    fetch: Callable[[Int], None]


Rows = Callable[[Int], Row]
"""The row of a number; to fetch from, there need be none."""

FINISHED_DEPTH = 512
"""The largest depth of a product whose tiles are finished beside others: of deeper ones it is a hundredth of the time or less."""

FREE_REGISTERS = 12
"""Registers that a tile leaves for finishing another one meanwhile: of 11 rows by two vectors, which leave 8, sums spilled."""


@record(frozen=True)
class Room:
    """Where things lie in a worker's memory, in elements: left sums, one right factor, products, rows of the left operand."""

    h: Halves
    tile: Tile
    per_block: int
    chunk: int

    @property
    def pitch(self) -> int:
        """From one row of a left sum to the next: a line more than the row takes, or many rows would share a set of the cache."""
        return (-(-self.h.depth // LINE) + 1) * LINE

    @property
    def left(self) -> int:
        """Elements of the left sums, which lie row by row."""
        return self.per_block * self.tile.rows * LEFT_SUMS * self.pitch

    @property
    def right(self) -> int:
        """Elements of a panel's part of a quarter of the right operand."""
        return self.h.depth * self.tile.width

    @property
    def pair(self) -> int:
        """Elements of two panels, one of each half of the columns: four quarters one behind the other."""
        return 4 * self.right

    @property
    def made(self) -> int:
        """Elements of a chunk of a right factor."""
        return self.chunk * self.tile.width

    @property
    def sums(self) -> int:
        """Elements of one product."""
        return self.per_block * self.tile.rows * self.tile.width

    @property
    def written(self) -> int:
        """Elements of the left operand's rows, if they are written first."""
        return 2 * self.per_block * self.tile.rows * self.h.rows[0].stride if self.h.computed else 0

    @property
    def elements(self) -> int:
        return self.left + PRODUCTS * self.sums + self.made + self.written


def room_of(h: Halves, params: Params) -> Room:
    return Room(h, tile_of(params), int(params["tiles"]), int(params["chunk"]))


def strassen_bytes(h: Halves, params: Params) -> int:
    """Working memory of a worker."""
    return room_of(h, params).elements * 4


@record(frozen=True)
class Ends:
    """What a kernel gives: the left operand's rows, and its first element unless it is computed; the packed right operand, initial
    values, the stores, whether they are simple and what fetches their memory, if that pays; memory, a tag that says whose left
    sums lie there (`prepared`), what is to be fetched for a later step, see `Kernel.cycles`, and weights of the next step, see
    `foresight.followers`."""

    rows: Rows
    left: Value | None
    right: Value
    start: Callable[[Sequence[Int]], Sequence[Value]]
    finish: Finish
    is_simple: bool
    fetch: Fetch | None
    own: Value
    tag: Value
    later: Value | None
    following: Value | None


@record(frozen=True)
class Emission:
    f: Function
    target: Target
    h: Halves
    tile: Tile
    room: Room
    ends: Ends
    later: Later | None = None

    @property
    def panels(self) -> int:
        """Panels of each half of the columns."""
        return panels_of(self.h, self.tile) // 2

    @property
    def quarters(self) -> tuple[int, ...]:
        """Where B11, B12, B21, B22 begin in the packed operand, for the first panel."""
        half = self.room.right
        return 0, 2 * half, half, 3 * half

    @property
    def chunks(self) -> int:
        """Pieces that the depth is done in."""
        return self.h.depth // self.room.chunk

    @property
    def parts(self) -> int:
        """In how many parts a chunk's steps are done, for a row of the tile before to be finished after each; 0 where tiles are
        finished by themselves: long stores have multiply-adds enough of their own."""
        free = self.target.registers - (self.tile.rows + 1) * self.tile.vectors
        pays = self.h.product.depth <= FINISHED_DEPTH and self.ends.is_simple and not is_wide(self.target, self.tile)
        if not pays or free < FREE_REGISTERS:
            return 0
        return next((n for n in range(self.tile.rows, self.room.chunk + 1) if self.room.chunk % n == 0), 0)

    @property
    def left(self) -> Value:
        """Where the left operand's first row lies, or the block's first where this worker writes it."""
        if self.ends.left is not None:
            return self.ends.left
        return self.f.at(self.ends.own, self.room.elements - self.room.written)

    @property
    def cut(self) -> Blocks:
        return Blocks(-(-self.h.height // self.tile.rows), self.room.per_block)

    def first_row(self, number: Int) -> Int:
        """The first row of a tile; the last tile is moved back to end at the last row."""
        first, height = self.f.mul(number, self.tile.rows), self.h.height
        return first if height % self.tile.rows == 0 else self.f.minimum(first, height - self.tile.rows)

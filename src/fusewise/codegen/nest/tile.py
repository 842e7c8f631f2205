"""The register tile as data: `rows` x `vectors` accumulators that live in registers over a whole reduction.

Every product-like kernel (matrix products, convolutions, transposed convolutions) is this tile under different addresses.
Per step of the reduction a panel gives `vectors` vectors of columns, each row gives one scalar that is broadcast, and every
accumulator takes one fused multiply-add, or another instruction (`instructions.table`). An outer product takes the scalars of
several rows, whose accumulators are meanwhile one register; what a matrix unit adds to lies in memory. The reduction may be a nest
of loops, for example over kernel rows and over the channels of a kernel row; only the row addresses know, the panel is always read
forwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.instruction import FUSED, Instruction
from fusewise.codegen.nest.tree import Block, Composite, Int, Value, vector
from fusewise.ir.dtypes import FLOAT32, DType
from fusewise.records import record

__all__ = [
    "Accumulate",
    "AccumulateTiles",
    "Ahead",
    "Difference",
    "Meanwhile",
    "Panel",
    "Reduction",
    "ReductionLoop",
    "Tile",
    "WithTiles",
    "accumulate",
    "accumulate_tiles",
    "meanwhile",
    "with_tiles",
]


@record(frozen=True)
class ReductionLoop:
    """One loop of the reduction: `extent` steps, `stride` elements apart in the left operand.

    `low` and `high` narrow it at run time; the panel is still counted from 0. With several `phases` so many steps are
    `phase_stride` elements apart, and runs of them `stride`: only where sums lie in memory.
    """

    extent: int
    stride: int
    low: Int = 0
    high: Int | None = None
    phases: int = 1
    phase_stride: int = 0

    def at(self, f: Function, k: Int) -> Int:
        """Where a step is, in elements from the first."""
        whole, phase = f.udiv(k, self.phases), f.urem(k, self.phases)
        return f.add(f.mul(whole, self.stride), f.mul(phase, self.phase_stride))


@record(frozen=True)
class Tile:
    """`rows` x (`vectors` * `lanes`) accumulators, and the instruction that adds to them, which divides the rows."""

    rows: int
    vectors: int
    lanes: int
    instruction: Instruction = FUSED

    @property
    def element(self) -> str:
        """The LLVM type of an accumulator's lane."""
        return self.instruction.element

    @property
    def width(self) -> int:
        """Columns of the tile."""
        return self.vectors * self.lanes

    @property
    def kind(self) -> str:
        """The LLVM type of one accumulator."""
        return vector(self.element, self.lanes)

    @property
    def joined(self) -> str:
        """The LLVM type of what one instruction adds to: the accumulators of its rows side by side."""
        return vector(self.element, self.instruction.rows * self.lanes)


@record(frozen=True)
class Difference:
    """What is taken from a panel of float32 on the way in: the panel at `other`; the difference is written at `made`.

    Where additions have units of their own, it costs a product nothing.
    """

    other: Value
    made: Value


@record(frozen=True)
class Panel:
    """Where the columns lie: a pointer per vector of the tile, `pitch` elements between steps of the reduction.

    `dtype` is given when they are stored otherwise than the accumulators. `following` points to the panel that comes next,
    when it is worth fetching ahead of its use.
    """

    columns: tuple[Value, ...]
    pitch: int
    dtype: DType | None = None
    following: Value | None = None
    minus: Difference | None = None


@record(frozen=True)
class Ahead:
    """Memory that is needed soon, fetched while a tile is reduced: `step` bytes for every step, from `start` on.

    `locality` is how near the processor it should come: 3 the first cache level, 2 the second.
    """

    start: Value
    step: int
    locality: int


@record(frozen=True)
class Meanwhile:
    """What else is done while a tile is reduced, so that it takes instructions which multiply-adds leave free: `body`, for `index`,
    after each of so many `parts` of the steps, which they divide. Where `reduces` is not set nothing else is."""

    parts: int
    index: Value
    body: Block
    reduces: Value


@record(frozen=True)
class Reduction:
    """What one tile is reduced over: `rows[r]` points to the first element of row r, a `dtype`, `panel` to the columns.

    Normally a row gives one scalar per step, to all lanes. With `together` > 1, the lanes of the one vector belong to that many
    groups side by side, and each group's lanes take its own channel: one load brings the innermost level of all groups, and
    every step shuffles it. What `ahead` names is fetched along the way, and what `meanwhile` says done.
    """

    rows: tuple[Value, ...]
    panel: Panel
    levels: tuple[ReductionLoop, ...]
    dtype: DType = FLOAT32
    together: int = 1
    ahead: tuple[Ahead, ...] = ()
    meanwhile: Meanwhile | None = None


@record(frozen=True)
class Accumulate(Composite):
    """The reduction of a register tile from `start` on: `results` are its accumulators, row by row."""

    tile: Tile
    reduction: Reduction
    start: tuple[Value, ...]
    results: tuple[Value, ...]


@record(frozen=True)
class AccumulateTiles(Composite):
    """The reduction of a tile by an instruction of a matrix unit. To its sums, which lie at `sums` row by row, are added the
    products of rows that begin at `left`, `left_pitch` lanes apart, with columns at `right`, `right_pitch` lanes from a step to
    the next. Sums `from_zero` are written and not read.

    The innermost of `levels` has steps side by side in a row, in multiples of what the instruction takes at once.
    """

    tile: Tile
    sums: Value
    left: Value
    left_pitch: Int
    right: Value
    right_pitch: int
    levels: tuple[ReductionLoop, ...]
    from_zero: bool = False


@record(frozen=True)
class WithTiles(Composite):
    """A stretch in which an instruction of a matrix unit is used; behind it the unit holds nothing."""

    instruction: Instruction
    body: Block


def accumulate_tiles(
    f: Function,
    tile: Tile,
    sums: Value,
    left: tuple[Value, Int],
    right: tuple[Value, int],
    levels: Sequence[ReductionLoop],
    from_zero: bool = False,
) -> None:
    """Add to the sums of a tile, or to zeros, what they are reduced over: operands are a pointer and a pitch in lanes."""
    f.append(AccumulateTiles(tile, sums, *left, *right, tuple(levels), from_zero))


def accumulate(f: Function, tile: Tile, reduction: Reduction, start: Sequence[Value]) -> tuple[Value, ...]:
    """The accumulators of a tile after its reduction, row by row."""
    results = tuple(f.named(tile.kind) for _ in start)
    f.append(Accumulate(tile, reduction, tuple(start), results))
    return results


def meanwhile(f: Function, parts: int, body: Callable[[Value], None], reduces: Value) -> Meanwhile:
    """What is done while a tile is reduced, where `reduces` says that it is: `body` for the number of each part of the steps."""
    index = f.named("i64")
    return Meanwhile(parts, index, f.block(lambda: body(index))[0], reduces)


def with_tiles(f: Function, instruction: Instruction, body: Callable[[], None]) -> None:
    """What `body` writes, with the matrix unit of an instruction where it is one of such."""
    if instruction.matrix is None:
        body()
    else:
        f.append(WithTiles(instruction, f.block(body)[0]))

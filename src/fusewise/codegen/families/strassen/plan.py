"""Strassen's algorithm: which products are halved, by which tiles and in which blocks.

One halving saves an eighth of the multiplications. Its additions take time by the element of an operand or of the result, the
multiplications by all three extents; so it is for large products.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import fields, replace
from functools import lru_cache

from fusewise.codegen.cost import slim_cycles, step_cycles
from fusewise.codegen.families.product.plan import SAME_SET_BYTES, Product, RowAxis, merged
from fusewise.codegen.families.product.tiles import (
    TiledProduct,
    favourite_tiles,
    is_slim,
    lanes_for,
    widths,
)
from fusewise.codegen.families.strassen.form import PRODUCTS
from fusewise.codegen.kernel import Prefetch
from fusewise.codegen.llvm.accumulate import CHAIN
from fusewise.codegen.llvm.stores import Far, far_of, is_simple
from fusewise.codegen.nest.instruction import FMA_LATENCY
from fusewise.codegen.nest.tile import Tile
from fusewise.codegen.steps.prefetch import next_bytes
from fusewise.codegen.target import LINE_BYTES, InstructionSet, Target
from fusewise.ir.dtypes import FLOAT32, DType
from fusewise.ir.size import Size
from fusewise.lower.task import RefusalReason, Task
from fusewise.records import record

__all__ = [
    "LINE",
    "PAIR",
    "FreeStrassenSchedule",
    "Halves",
    "StrassenSchedule",
    "completed",
    "declined",
    "free_schedule",
    "halves_of",
    "panels_of",
    "strassen_cycles",
    "strassen_space",
]

LINE = LINE_BYTES // 4
"""float32 elements of a cache line."""

PAIR = 2
"""Panels of columns that go together, one of each half."""


@record(frozen=True)
class Sums:
    """Cycles that a vector of each quarter takes: of the left operand; of the same for each other worker who makes it too, and then
    has half of every row to read from another core; of that where rows are so few that other products are shared like this as well;
    of the right operand, while a tile is reduced; of the result."""

    left: int
    again: int
    few_again: int
    right: int
    result: int


LONGEST_SUM = 8192
"""Terms of a sum beyond which it is not taken apart: with 12544 a detector's scores were 9.5e-6 of their largest value from
another runtime's, where 1e-5 is what a model may differ by, and 8.0e-6 with plain products."""

LONGEST_CHUNK, CONVOLUTION_CHUNK = CHAIN // 2, CHAIN // 4
"""Most steps of the depth that are added up in one go, and of a convolution: rounding grows with the run, and networks of many
convolutions add it up. MobileNetV1-SSD's scores were up to 1.17e-5 from another runtime's with 256 steps (12 inputs), 9.2e-6 with
128, and no slower. Where registers are few twice as many, in fewer sums."""

LEAST_SUMS = 2 * math.ceil(FMA_LATENCY)
"""Fewest accumulators of a tile: a few more than multiply-adds are under way at any time on a core of two in a cycle; of one, see
`product.tiles.SLIM_ROWS`."""

SPARE = 4
"""Registers that a tile leaves for making its factors."""

FREE_REGISTERS = 12
"""Registers that a tile leaves for finishing another one meanwhile: of 11 rows by two vectors, which leave 8, sums spilled."""


@record(frozen=True)
class Halves:
    """A product of two matrices: `product` has one group and nothing outer, and the depth is contiguous and even. It may be what a
    convolution comes to, which `convolves`. Where the left operand is `computed` on the way in, each worker writes its rows first.
    `free`: how many rows there are is not known, also where schedules are made for some. `short`: the type of 16 bits that the
    right operand has, of which a worker widens what it multiplies next.
    """

    product: Product
    convolves: bool = False
    computed: bool = False
    free: bool = False
    short: DType | None = None

    @property
    def rows(self) -> list[RowAxis]:
        """The axes that rows of the left operand lie along: one where they are at equal distances. A worker's own lie a line
        further apart than they take, or many would share a set of the cache."""
        if self.computed:
            return [RowAxis("row", self.product.height, 2 * self.apart + LINE)]
        return merged(self.product.rows)

    @property
    def apart(self) -> int:
        """Elements from the first half of a row of the left operand to the second: whole lines where a worker writes it."""
        return -(-self.depth // LINE) * LINE if self.computed else self.depth

    @property
    def height(self) -> int:
        """Rows of the upper half; the lower one has as many, or one less."""
        return -(-self.product.height // 2)

    @property
    def depth(self) -> int:
        return self.product.depth // 2

    @property
    def columns(self) -> float:
        return self.product.columns / 2

    def tiles(self, tile: Tile) -> int:
        """Tiles of all rows of a half."""
        return -(-self.height // tile.rows)

    def is_written_once(self, tile: Tile) -> bool:
        """Do panels fit, so that none is moved back over its neighbour or is paired with itself?"""
        return self.product.columns % (PAIR * tile.width) == 0


@record(frozen=True)
class StrassenSchedule:
    """How a product in halves is cut, when its tiles are finished, and what is fetched meanwhile.

    - `tile`: of accumulators in registers. `per_block`: how many share a block of the left operand.
    - `chunk`: steps of a half of the depth that are done at once, a divisor of it.
    - `parts`: in how many parts a chunk's steps are done, for a row of the tile before to be finished after each; 0: tiles are
      finished by themselves.
    - `is_far`: is the left operand likely to be, so that its rows are fetched?
    - `far`: what the stores touch that is fetched. `fetches_next`: are the weights of the next step (`steps.prefetch`)?
    - `prefetch`: what is for a later step.
    """

    tile: Tile
    per_block: int
    chunk: int
    parts: int = 0
    is_far: bool = False
    far: Far = Far()
    fetches_next: bool = False
    prefetch: Prefetch | None = None

    def with_prefetch(self, prefetch: Prefetch) -> StrassenSchedule:
        return replace(self, prefetch=prefetch)


@record(frozen=True)
class FreeStrassenSchedule(StrassenSchedule):
    """The same where it is not known how many rows there are: for `least` and more."""

    least: int = 0


def free_schedule(schedule: StrassenSchedule, h: Halves, target: Target) -> FreeStrassenSchedule:
    """A schedule for a product of so many rows, and how few it is for: half as often as it does not pay any more."""
    fewer, rows = h, h.product.height
    while rows // 2 >= 2 * schedule.tile.rows and declined(fewer, target) is None:
        rows //= 2
        fewer = replace(h, product=replace(h.product, rows=(RowAxis("row", rows, h.rows[-1].stride),)))
    known = {one.name: getattr(schedule, one.name) for one in fields(schedule)}
    least = rows if declined(fewer, target) is None else 2 * rows
    return FreeStrassenSchedule(**known, least=max(least, 2 * schedule.tile.rows))


def halves_of(
    product: Product, instructions: InstructionSet, convolves: bool = False, computed: bool = False
) -> Halves | RefusalReason:
    """A product in halves, or why it has none; it may be what a convolution comes to, and its left operand `computed`."""
    if any(isinstance(size, Size) for size in (product.depth, product.columns, product.repeats)):
        return RefusalReason("halves of sizes that are not known")
    found = Halves(product, convolves, computed, isinstance(product.height, Size))
    if len(found.rows) == 1 and isinstance(found.rows[0].stride, Size):
        return RefusalReason("rows lie apart by a size that is not known")
    if product.depth % 2 or product.depth < 2 * lanes_for(instructions, product.columns):
        return RefusalReason("the depth has no halves, or they fill no vector")
    if product.depth > LONGEST_SUM:
        return RefusalReason(f"sums of more than {LONGEST_SUM} terms would round too often")
    return found


def declined(h: Halves, target: Target) -> RefusalReason | None:
    """Why a product is better whole, if it is."""
    if not target.adds_apart:
        return RefusalReason("additions take the units that multiply, as long as what they save")
    if _chunk(h, target, Tile(1, 1, lanes_for(target, h.product.columns))) < _shortest(h, target):
        return RefusalReason("the depth is short, or has no divisor of a good length")
    if 2 * h.height < target.figures.strassen.shortest:
        return RefusalReason("too few rows to halve")
    return None if strassen_space(h, target) else RefusalReason("no tile saves more than it costs")


@lru_cache(maxsize=64)  # asked whether it is worth it, for schedules, and for each step of many alike
def strassen_space(h: Halves, target: Target) -> tuple[StrassenSchedule, ...]:
    """Schedules that save more than they cost, the analytic favourite first, to be `completed` for a task."""
    lanes, figures = widths(target, h.product.columns)[:1], target.figures.strassen
    tiles = favourite_tiles(target, TiledProduct(h.height, math.ceil(h.columns), h.depth), lanes)
    whole = favourite_tiles(target, TiledProduct(h.product.height, h.product.columns, h.product.depth), lanes)
    plain = min(_reduced(target, tile, h.product.height, h.product.depth, h.product.columns) for tile in whole)
    fit = [tile for tile in tiles if _is_fit(h, target, tile)]
    slim = [tile for tile in fit if is_slim(target, tile)]
    plans = [_Plan(h, target, tile, blocks) for tile in slim or fit for blocks in _cuts(h, target, tile)]
    best = sorted(plans, key=lambda plan: plan.products + plan.sums)[:4]
    worth = figures.few_worth if target.has_few_registers else figures.worth
    return tuple(plan.schedule for plan in best if plain - plan.products > worth * plan.sums)


def completed(schedule: StrassenSchedule, h: Halves, task: Task, target: Target) -> StrassenSchedule:
    """A schedule with what depends on the task's stores, and what is worth fetching ahead: weights of the next step are where
    its own are so few that they find room beside them."""
    parts = _parts(h, schedule, target) if is_simple(task) else 0
    is_far = h.product.height * h.product.depth * FLOAT32.itemsize > target.figures.caches.near_bytes
    is_small = h.short is None and h.product.depth * h.product.columns * FLOAT32.itemsize <= next_bytes(target)
    return replace(schedule, parts=parts, is_far=is_far, far=far_of(task, target), fetches_next=is_small)


def _parts(h: Halves, schedule: StrassenSchedule, target: Target) -> int:
    """In how many parts a chunk is done, see `StrassenSchedule`. Of stores that are simple, and where a tile's end is not a
    hundredth of its time: long ones have multiply-adds enough of
    their own."""
    tile = schedule.tile
    free = target.registers - (tile.rows + 1) * tile.vectors
    if h.product.depth > CHAIN or _is_wide(target, tile) or free < FREE_REGISTERS:
        return 0
    return next((n for n in range(tile.rows, schedule.chunk + 1) if schedule.chunk % n == 0), 0)


def strassen_cycles(h: Halves, target: Target, tile: Tile) -> int:
    """Cycles that the multiply-adds of all seven products take one core, see `Kernel.cycles`."""
    steps = PRODUCTS * h.height * h.depth * math.ceil(h.columns) // tile.lanes
    return int(steps / target.multiplies(tile.lanes * 32))


def _is_fit(h: Halves, target: Target, tile: Tile) -> bool:
    """Has a tile of halves sums enough and registers to spare, and is the depth done in chunks of a good length?"""
    has_room = (tile.rows + 1) * tile.vectors <= target.registers - SPARE
    is_large = (tile.rows >= 2 * tile.vectors and tile.rows * tile.vectors >= LEAST_SUMS) or is_slim(target, tile)
    has_ways = tile.rows <= target.l1_bytes // SAME_SET_BYTES or not _share_a_set(h)
    is_cut_well = _is_paired(h, tile) and _chunk(h, target, tile) >= _shortest(h, target)
    return is_cut_well and has_room and is_large and has_ways


def _chunk(h: Halves, target: Target, tile: Tile) -> int:
    """Steps of the depth that are taken at once: as many as their share of the first cache level holds and divide the depth."""
    longest = (CONVOLUTION_CHUNK if h.convolves else LONGEST_CHUNK) * (2 if target.has_few_registers else 1)
    share = target.figures.strassen.chunk[2 if target.has_few_registers else _is_wide(target, tile)]
    room = int(target.l1_bytes * share)
    most = min(h.depth, longest, room // (tile.width * 4))
    return next(n for n in range(most, 0, -1) if h.depth % n == 0)


def _share_a_set(h: Halves) -> bool:
    """Do the rows of a quarter, every other one of the operand's, lie in one set of the first cache level? Tiles of more rows than
    it has places then took up to 13 % longer."""
    return 2 * h.rows[-1].stride * 4 % SAME_SET_BYTES == 0


def _shortest(h: Halves, target: Target) -> int:
    """Steps that a chunk of the depth has at least."""
    shortest = target.figures.strassen.shortest
    return 4 * shortest if target.has_few_registers else min(h.depth, shortest)


def _is_wide(target: Target, tile: Tile) -> bool:
    """Does a core begin more than one multiply-add of the tile's vectors in a cycle?"""
    return target.multiplies(tile.lanes * 32) > 1


def _reduced(target: Target, tile: Tile, height: int, depth: int, columns: int) -> float:
    """Cycles of all tiles of a product."""
    r, v, bits = tile.rows, tile.vectors, tile.lanes * 32
    if is_slim(target, tile):
        step = slim_cycles(target, r * v, bits)
    else:
        step = step_cycles(target, r * v, r + v, bits, is_filled=True)
    return (step * depth + target.figures.strassen.store * r * v) * -(-height // r) * -(-columns // tile.width)


def panels_of(h: Halves, tile: Tile) -> int:
    """Panels of all columns, an even number: the last may be another of the one before."""
    return -(-h.product.columns // (PAIR * tile.width)) * PAIR


def _is_paired(h: Halves, tile: Tile) -> bool:
    """Do no two pairs of panels share columns? Of an odd number the last would be moved back over one of another pair."""
    return h.product.columns % tile.width == 0 or -(-h.product.columns // tile.width) % PAIR == 0


def _cuts(h: Halves, target: Target, tile: Tile) -> Iterable[int]:
    """Numbers of blocks worth trying: as many for every worker, or a single one that all share, who deal out panels."""
    tiles = h.tiles(tile)
    sharing, least = target.figures.strassen.sharing, target.figures.sharing.least_tiles
    each, best = tiles / target.workers, max(sharing, -(-8 * sharing // tile.rows))
    found = [1] if tiles <= 2 * best or each < least else []
    return found if each < least else [target.workers * max(1, round(each / best)), *found]


@record(frozen=True)
class _Plan:
    """A tile, and how many blocks its rows are cut into."""

    h: Halves
    target: Target
    tile: Tile
    blocks: int

    @property
    def per_block(self) -> int:
        """Tiles of a block."""
        return -(-self.h.tiles(self.tile) // self.blocks)

    @property
    def schedule(self) -> StrassenSchedule:
        return StrassenSchedule(self.tile, self.per_block, _chunk(self.h, self.target, self.tile))

    @property
    def products(self) -> float:
        """Cycles of the seven products. Where blocks are as many for every worker, some wait for others that have a tile more."""
        h, workers, height = self.h, self.target.workers, self.h.height
        if self.blocks > 1:
            height = -(-h.tiles(self.tile) // workers) * workers * self.tile.rows
        return PRODUCTS * _reduced(self.target, self.tile, height, h.depth, math.ceil(h.columns))

    @property
    def sums(self) -> float:
        """Cycles of all additions; workers that share a block make its left sums each for itself."""
        h, figures = self.h, self.target.figures.strassen
        cycles = figures.twice if _is_wide(self.target, self.tile) else figures.once
        others = max(0.0, self.target.workers / self.blocks - 1)
        is_few = h.tiles(self.tile) < self.target.figures.sharing.least_tiles * self.target.workers
        lost = (cycles.few_again if is_few else cycles.again) * (
            figures.apart if self.target.has_few_registers else 1.0
        )
        is_far = h.product.height * h.product.depth * 4 > self.target.workers * self.target.l2_bytes
        left = cycles.left * (figures.apart if is_far and self.target.has_few_registers else 1.0)
        left *= figures.apart if h.depth % self.tile.lanes else figures.computed if h.computed else 1.0
        rows = h.height * h.depth * (left + lost * others) + h.height * h.columns * cycles.result
        return (rows + h.depth * h.columns * self.blocks * cycles.right) / self.tile.lanes

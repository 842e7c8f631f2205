"""Strassen's algorithm: which products are halved, by which tiles and in which blocks.

One halving saves an eighth of the multiplications. Its additions take time by the element of an operand or of the result, the
multiplications by all three extents; so it is for large products.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

from fusewise.codegen.families.product.plan import SAME_SET_BYTES, Product, RowAxis, merged
from fusewise.codegen.families.product.tile import Tile
from fusewise.codegen.families.product.tiles import (
    LOAD_CYCLES,
    SLIM_SHARE,
    TiledProduct,
    favourite_tiles,
    is_slim,
    lanes_for,
    widths,
)
from fusewise.codegen.families.strassen.form import PRODUCTS
from fusewise.codegen.instructions.table import FMA_LATENCY
from fusewise.codegen.kernel import Prefetch
from fusewise.codegen.llvm.stores import Far, far_of, is_simple
from fusewise.codegen.steps.prefetch import next_bytes
from fusewise.codegen.target import LINE_BYTES, InstructionSet, Target
from fusewise.ir.dtypes import FLOAT32
from fusewise.lower.task import RefusalReason, Task
from fusewise.records import record

__all__ = [
    "LINE",
    "PAIR",
    "Halves",
    "StrassenSchedule",
    "completed",
    "declined",
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


SUM_CYCLES = {False: Sums(16, 250, 16, 10, 10), True: Sums(14, 150, 150, 3, 16)}
"""Measured on a core of one multiply-add in a cycle, and on one of two."""

AGAIN_SHARE = 2.0
"""How many times as much a worker loses by what others make too, where registers are few."""

FAR_SHARE = 2.0
"""How many times as long sums of the left operand take there when a worker's part of it does not fit the second level: 512
channels at 28 x 28 to 256 then took 1.03 to 1.07 times as long as whole, and 0.97 to 0.99 at 14 x 14."""

UNEVEN_SHARE = 2.0
"""How many times as long they take where halves of the depth are not whole vectors, which then lie across cache lines: chosen. 528
channels to 88 at 14 x 14 and 264 to 88 at 28 x 28, which stay whole by it, took 0.98 to 1.01 times as fast, in busy spells 0.90."""

COMPUTED_SHARE = 1.25
"""How many times as long they take where a worker writes rows of the left operand, too: chosen. 576 channels to 96 at 19 x 19,
which stay whole by it, were 1.06 times as fast, in busy spells 0.83 to 0.95."""

WORTH, FEW_WORTH = 1.5, 1.7
"""How many times the cycles of all sums those saved of the products must be: inside a model, operands are further away. And where
registers are few: what was estimated at 1.6 times, 768 to 192 channels at 17 x 17, took 1.03 to 1.11 times as long as whole
there."""

LEAST_ROWS = 24
"""Rows of a half from which on a tile fills the registers."""

LONGEST_SUM = 8192
"""Terms of a sum beyond which it is not taken apart: with 12544 a detector's scores were 9.5e-6 of their largest value from
another runtime's, where 1e-5 is what a model may differ by, and 8.0e-6 with plain products."""

SHARING, LEAST_SHARING = 7, 4
"""Tiles that share a right factor: so many do best, and `LEAST_SHARING` at least are worth one."""

SHARING_ROWS = 56
"""Rows of a half that do best where tiles are lower than these are: `SHARING` tiles of 8."""

STORE_CYCLES = 3
"""Cycles that a vector of a product takes to be written at the end of its tile."""

LONGEST_CHUNK, FEW_LONGEST_CHUNK, SHORTEST_CHUNK = 256, 512, 48
"""Most steps of the depth that are added up in one go, also where registers are few, and fewest, if the depth has them."""

CONVOLUTION_CHUNK, FEW_CONVOLUTION_CHUNK = 128, 256
"""Most of a convolution, and where registers are few: rounding grows with the run, and networks of many convolutions add it up.
MobileNetV1-SSD's scores were up to 1.17e-5 from another runtime's with 256 steps (12 inputs), 9.2e-6 with 128, and no slower."""

CHUNK_SHARE, FEW_CHUNK_SHARE = {False: 1.3, True: 0.6}, 1.0
"""Of the first cache level, what a chunk of a right factor takes at most: it is written there once and read by every tile. A core
of one multiply-add in a cycle has the time to read it from the second level, which one of two has not. More, too, where registers
are few: a tile's steps are soon done, and a chunk begins and ends with all of its sums in memory."""

FEW_SHORTEST = 192
"""Where registers are few, the fewest steps of a chunk, however short the depth is: products of a depth of 256 took up to 7 %
longer than plain ones, those of 512 up to 6 % less."""

LEAST_SUMS = 10
"""Fewest accumulators of a tile: a few more than multiply-adds are under way at any time on a core of two in a cycle; of one, see
`product.tiles.SLIM_ROWS`."""

SPARE = 4
"""Registers that a tile leaves for making its factors."""

FINISHED_DEPTH = 512
"""The largest depth of a product whose tiles are finished beside others: of deeper ones it is a hundredth of the time or less."""

FREE_REGISTERS = 12
"""Registers that a tile leaves for finishing another one meanwhile: of 11 rows by two vectors, which leave 8, sums spilled."""


@record(frozen=True)
class Halves:
    """A product of two matrices: `product` has one group and nothing outer, and the depth is contiguous and even. It may be what a
    convolution comes to, which `convolves`. Where the left operand is `computed` on the way in, each worker writes its rows first.
    """

    product: Product
    convolves: bool = False
    computed: bool = False

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
    - `far`: what the stores touch that is fetched. `fetches_next`: are the weights of the next step (`steps.prefetch`)?
    - `prefetch`: what is for a later step.
    """

    tile: Tile
    per_block: int
    chunk: int
    parts: int = 0
    far: Far = Far()
    fetches_next: bool = False
    prefetch: Prefetch | None = None

    def with_prefetch(self, prefetch: Prefetch) -> StrassenSchedule:
        return replace(self, prefetch=prefetch)


def halves_of(
    product: Product, instructions: InstructionSet, convolves: bool = False, computed: bool = False
) -> Halves | RefusalReason:
    """A product in halves, or why it has none; it may be what a convolution comes to, and its left operand `computed`."""
    if product.depth % 2 or product.depth < 2 * lanes_for(instructions, product.columns):
        return RefusalReason("the depth has no halves, or they fill no vector")
    if product.depth > LONGEST_SUM:
        return RefusalReason(f"sums of more than {LONGEST_SUM} terms would round too often")
    return Halves(product, convolves, computed)


def declined(h: Halves, target: Target) -> RefusalReason | None:
    """Why a product is better whole, if it is."""
    if not target.adds_apart:
        return RefusalReason("additions take the units that multiply, as long as what they save")
    if _chunk(h, target, Tile(1, 1, lanes_for(target, h.product.columns))) < _shortest(h, target):
        return RefusalReason("the depth is short, or has no divisor of a good length")
    if h.height < LEAST_ROWS:
        return RefusalReason("too few rows to halve")
    return None if strassen_space(h, target) else RefusalReason("no tile saves more than it costs")


@lru_cache(maxsize=64)  # asked whether it is worth it, for schedules, and for each step of many alike
def strassen_space(h: Halves, target: Target) -> tuple[StrassenSchedule, ...]:
    """Schedules that save more than they cost, the analytic favourite first, to be `completed` for a task."""
    lanes = widths(target, h.product.columns)[:1]
    tiles = favourite_tiles(target, TiledProduct(h.height, math.ceil(h.columns), h.depth), lanes)
    whole = favourite_tiles(target, TiledProduct(h.product.height, h.product.columns, h.product.depth), lanes)
    plain = min(_reduced(target, tile, h.product.height, h.product.depth, h.product.columns) for tile in whole)
    fit = [tile for tile in tiles if _is_fit(h, target, tile)]
    slim = [tile for tile in fit if is_slim(target, tile)]
    plans = [_Plan(h, target, tile, blocks) for tile in slim or fit for blocks in _cuts(h, target, tile)]
    best = sorted(plans, key=lambda plan: plan.products + plan.sums)[:4]
    worth = FEW_WORTH if target.has_few_registers else WORTH
    return tuple(plan.schedule for plan in best if plain - plan.products > worth * plan.sums)


def completed(schedule: StrassenSchedule, h: Halves, task: Task, target: Target) -> StrassenSchedule:
    """A schedule with what depends on the task's stores, and what is worth fetching ahead: weights of the next step are where
    its own are so few that they find room beside them."""
    parts = _parts(h, schedule, target) if is_simple(task) else 0
    is_small = h.product.depth * h.product.columns * FLOAT32.itemsize <= next_bytes(target)
    return replace(schedule, parts=parts, far=far_of(task, target), fetches_next=is_small)


def _parts(h: Halves, schedule: StrassenSchedule, target: Target) -> int:
    """In how many parts a chunk is done, see `StrassenSchedule`. Of stores that are simple: long ones have multiply-adds enough of
    their own."""
    tile = schedule.tile
    free = target.registers - (tile.rows + 1) * tile.vectors
    if h.product.depth > FINISHED_DEPTH or _is_wide(target, tile) or free < FREE_REGISTERS:
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
    wide, few = (CONVOLUTION_CHUNK, FEW_CONVOLUTION_CHUNK) if h.convolves else (LONGEST_CHUNK, FEW_LONGEST_CHUNK)
    share = FEW_CHUNK_SHARE if target.has_few_registers else CHUNK_SHARE[_is_wide(target, tile)]
    room = int(target.l1_bytes * share)
    most = min(h.depth, few if target.has_few_registers else wide, room // (tile.width * 4))
    return next(n for n in range(most, 0, -1) if h.depth % n == 0)


def _share_a_set(h: Halves) -> bool:
    """Do the rows of a quarter, every other one of the operand's, lie in one set of the first cache level? Tiles of more rows than
    it has places then took up to 13 % longer."""
    return 2 * h.rows[-1].stride * 4 % SAME_SET_BYTES == 0


def _shortest(h: Halves, target: Target) -> int:
    """Steps that a chunk of the depth has at least."""
    return FEW_SHORTEST if target.has_few_registers else min(h.depth, SHORTEST_CHUNK)


def _is_wide(target: Target, tile: Tile) -> bool:
    """Does a core begin more than one multiply-add of the tile's vectors in a cycle?"""
    return target.multiplies(tile.lanes * 32) > 1


def _reduced(target: Target, tile: Tile, height: int, depth: int, columns: int) -> float:
    """Cycles of all tiles of a product."""
    (r, v), multiplies = (tile.rows, tile.vectors), target.multiplies(tile.lanes * 32)
    step = max(r * v / multiplies, (r + v) * LOAD_CYCLES, FMA_LATENCY) + target.beside.load * (r + v)
    if is_slim(target, tile):
        step = r / multiplies * SLIM_SHARE
    return (step * depth + STORE_CYCLES * r * v) * -(-height // r) * -(-columns // tile.width)


def panels_of(h: Halves, tile: Tile) -> int:
    """Panels of all columns, an even number: the last may be another of the one before."""
    return -(-h.product.columns // (PAIR * tile.width)) * PAIR


def _is_paired(h: Halves, tile: Tile) -> bool:
    """Do no two pairs of panels share columns? Of an odd number the last would be moved back over one of another pair."""
    return h.product.columns % tile.width == 0 or -(-h.product.columns // tile.width) % PAIR == 0


def _cuts(h: Halves, target: Target, tile: Tile) -> Iterable[int]:
    """Numbers of blocks worth trying: as many for every worker, or a single one that all share, who deal out panels."""
    tiles = h.tiles(tile)
    each, best = tiles / target.workers, max(SHARING, -(-SHARING_ROWS // tile.rows))
    found = [1] if tiles <= 2 * best or each < LEAST_SHARING else []
    return found if each < LEAST_SHARING else [target.workers * max(1, round(each / best)), *found]


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
        h, cycles = self.h, SUM_CYCLES[_is_wide(self.target, self.tile)]
        others = max(0.0, self.target.workers / self.blocks - 1)
        is_few = h.tiles(self.tile) < LEAST_SHARING * self.target.workers
        lost = (cycles.few_again if is_few else cycles.again) * (AGAIN_SHARE if self.target.has_few_registers else 1.0)
        is_far = h.product.height * h.product.depth * 4 > self.target.workers * self.target.l2_bytes
        left = cycles.left * (FAR_SHARE if is_far and self.target.has_few_registers else 1.0)
        left *= UNEVEN_SHARE if h.depth % self.tile.lanes else COMPUTED_SHARE if h.computed else 1.0
        rows = h.height * h.depth * (left + lost * others) + h.height * h.columns * cycles.result
        return (rows + h.depth * h.columns * self.blocks * cycles.right) / self.tile.lanes

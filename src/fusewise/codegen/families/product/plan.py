"""What a matrix product is to the loops: its axes, which register tiles suit it, how it is cut into blocks and dealt out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from fusewise.codegen.cost import matrix_cycles
from fusewise.codegen.families.product.prefetch import panel_level
from fusewise.codegen.families.product.tiles import TiledProduct, favourite_tiles
from fusewise.codegen.kernel import Prefetch
from fusewise.codegen.llvm.share import LEAST_PIECES, pieces_of
from fusewise.codegen.llvm.stores import Far, far_of
from fusewise.codegen.nest.instruction import FUSED, Instruction
from fusewise.codegen.nest.tile import Tile
from fusewise.codegen.nest.tree import Int
from fusewise.codegen.target import Target
from fusewise.ir.deciding import known_below, known_equal, known_one, known_zero
from fusewise.ir.dtypes import FLOAT32, DType
from fusewise.lower.task import Task
from fusewise.records import record

__all__ = [
    "SAME_SET_BYTES",
    "Product",
    "ProductSchedule",
    "RowAxis",
    "cycles_of",
    "is_long",
    "merged",
    "plan_product",
    "prefetched",
    "product_pieces",
    "rows_apart",
    "tiles_for",
]

LONGEST_TILE = 48
"""Rows of a tile of a matrix unit at most: beyond, it loads no less."""

SAME_SET_BYTES, WAYS = 4096, 8
"""Rows of the left operand that lie a multiple of this apart share one set of the first cache level, which has so many places."""


@record(frozen=True)
class RowAxis:
    """A row axis: the index variable it is in the stores, and its stride in the left operand. Where `results` says how many of its
    rows are results, others are computed, for rows to lie at equal distances, and dropped."""

    name: str
    extent: int
    stride: int
    results: int | None = None


@record(frozen=True)
class Product:
    """What is computed: for each outer index and group, rows x columns, reduced over `depth` steps.

    `outer` are axes (index variable, extent) that nothing is shared across; `column` is the index variable of the columns,
    which run over groups * columns. `joined` names the row axis that the stores take the flat row index for, if they do.
    `dtype` is what the left operand is stored as; a step of the reduction is one of `instruction`'s, of all its terms.
    """

    outer: tuple[tuple[str, int], ...]
    rows: tuple[RowAxis, ...]
    column: str
    columns: int
    depth: int
    groups: int = 1
    joined: str | None = None
    dtype: DType = FLOAT32
    instruction: Instruction = FUSED

    @property
    def height(self) -> int:
        """Rows of one outer index."""
        return math.prod(axis.extent for axis in self.rows)

    @property
    def has_gaps(self) -> bool:
        """Are there rows that are no results?"""
        return any(axis.results is not None for axis in self.rows)

    @property
    def results(self) -> int:
        """Rows of one outer index that are results."""
        return math.prod(axis.extent if axis.results is None else axis.results for axis in self.rows)

    @property
    def repeats(self) -> int:
        """How many outer indices there are."""
        return math.prod(extent for _, extent in self.outer)

    def outer_at(self, indices: Sequence[Int]) -> dict[str, Int]:
        """The outer index variables at `indices`."""
        return {name: index for (name, _), index in zip(self.outer, indices, strict=True)}

    @property
    def written(self) -> int:
        """Bytes of the results of one outer index, in the type of the left operand."""
        return self.height * self.groups * self.columns * self.dtype.itemsize

    def tiles(self, tile: Tile) -> int:
        """Register tiles of all outer indices."""
        panels = self.groups * -(-self.columns // tile.width)
        return self.repeats * -(-self.height // tile.rows) * panels

    def is_written_once(self, tile: Tile) -> bool:
        """Do tiles fit, so that none is moved back over its neighbour and computes some results a second time?"""
        fits = known_zero(self.columns % tile.width) or (tile.vectors == 1 and known_below(self.columns, tile.lanes))
        return fits and known_zero(self.height % tile.rows)

    def kept(self, tile: Tile) -> int:
        """Elements of memory for the sums of all tiles, between the chunks of a reduction."""
        return self.tiles(tile) * tile.rows * tile.width


@record(frozen=True)
class ProductSchedule:
    """How a product is cut, dealt out, and what is fetched meanwhile.

    - `tile`: of accumulators in registers. `per_block`: how many share a block of the left operand.
    - `by_columns`: workers share out columns, else blocks.
    - `chunk`: steps of the reduction that are done at once for all tiles; 0: all.
    - `panel_level`: the cache level that the next panel is fetched to; 0: none. `next_rows`: are rows of the next tile?
    - `far`: what the stores touch that is fetched, too. `prefetch`: what is for a later step.
    """

    tile: Tile
    per_block: int
    by_columns: bool
    chunk: int = 0
    panel_level: int = 0
    next_rows: bool = False
    far: Far = Far()
    prefetch: Prefetch | None = None


def plan_product(product: Product, target: Target, tile: Tile, row_bytes: int, right_bytes: int) -> ProductSchedule:
    """Blocking for a tile: how many tiles share a block, and how work is dealt out.

    `row_bytes` is what one row of the left operand occupies in cache, `right_bytes` the size of the right operand.
    """
    rows, figures = tile.rows, target.figures.sharing
    tiles = -(-product.height // rows)
    panels = product.groups * -(-product.columns // tile.width)
    left_bytes = product.height * row_bytes
    if left_bytes <= target.l2_bytes * 3 // 4:
        by_columns = panels * tiles >= figures.units // 2 and right_bytes > figures.columns * (
            left_bytes + product.written
        )
    else:
        by_columns = panels >= figures.units and right_bytes > left_bytes
    # a large right operand comes from memory: use each panel for all rows, as long as these stay in the third level
    room = target.l3_bytes // 8 if by_columns else target.l2_bytes // 2
    blocks = max(1, -(-tiles // max(1, room // max(1, rows * row_bytes))))
    if not by_columns:
        wanted = -(-figures.units // max(1, panels * product.repeats))
        blocks = max(blocks, min(max(1, tiles), wanted, max(2, tiles // figures.tiles)))
        if target.workers <= tiles:  # else one block for all, of which each worker takes some panels
            blocks = -(-blocks // target.workers) * target.workers
    per_block = max(1, -(-tiles // blocks))
    return ProductSchedule(tile, per_block, by_columns)


def prefetched(schedule: ProductSchedule, product: Product, task: Task, target: Target) -> ProductSchedule:
    """A schedule that is otherwise complete, with what is worth fetching ahead."""
    level = panel_level(target, schedule.tile, schedule.chunk or product.depth, schedule.per_block)
    next_rows = product.height * product.depth * FLOAT32.itemsize > target.l2_bytes // target.figures.caches.rows
    return replace(schedule, panel_level=level, next_rows=next_rows, far=far_of(task, target))


def is_long(panel_bytes: int, target: Target) -> bool:
    """Is a panel, with the next one that is fetched beside it, too long for the caches, so that tiles that share it had better be
    reduced in chunks?"""
    return panel_bytes > min(target.l2_bytes // 2, target.figures.caches.near_bytes)


def cycles_of(product: Product, target: Target, tile: Tile) -> int:
    """Cycles that the multiply-adds take a core at least."""
    tiles = product.tiles(tile)
    if tile.instruction.matrix is not None:
        return int(tiles * product.depth * matrix_cycles(target, tile))
    size = tile.instruction.sum.bits
    return tiles * product.depth * tile.rows * tile.vectors // target.multiplies(tile.lanes * size)


def product_pieces(product: Product, target: Target, schedule: ProductSchedule) -> int:
    """See `Kernel.pieces`. Whole panels of a block are best, as the first tile of a panel has to wait for it; a reduction in chunks
    reads the left operand anew in every call, so there are few of them."""
    tile = schedule.tile
    tiles = -(-product.height // tile.rows)
    panels = product.groups * -(-product.columns // tile.width)
    units = product.tiles(tile)
    if schedule.chunk:
        units = min(units, 2 * LEAST_PIECES * target.workers)
    blocks = 1 if schedule.by_columns else product.repeats * -(-tiles // schedule.per_block)
    return pieces_of(units, cycles_of(product, target, tile), target, blocks * panels)


def tiles_for(product: Product, target: Target, lanes: Sequence[int], reserved: int = 0) -> list[Tile]:
    """Tiles worth trying for a product, best first; `reserved` registers are needed for something else."""
    most = max(1, target.registers - reserved - 2)
    axes = merged(product.rows)
    if axes[-1].stride * product.dtype.itemsize % SAME_SET_BYTES == 0:
        most = min(most, WAYS)
    return favourite_tiles(
        target,
        TiledProduct(
            product.height,
            product.columns,
            product.depth,
            max_rows=min(16, most) if product.instruction.matrix is None else LONGEST_TILE,
            row_extent=axes[-1].extent if len(axes) > 1 else None,
            written=product.repeats * product.written,
            instruction=product.instruction,
        ),
        lanes,
    )


def rows_apart(axes: Sequence[RowAxis], pitch: int) -> tuple[RowAxis, ...]:
    """Row axes of an operand that is copied, rows one behind the other, so far apart."""
    found: list[RowAxis] = []
    for axis in reversed(axes):
        found.insert(0, replace(axis, stride=pitch))
        pitch *= axis.extent
    return tuple(found)


def merged(axes: Sequence[RowAxis]) -> list[RowAxis]:
    """Row axes with neighbours joined where the left operand's strides continue each other."""
    found: list[RowAxis] = []
    for axis in axes:
        if known_one(axis.extent) and len(axes) > 1:
            continue
        if found and known_equal(found[-1].stride, axis.extent * axis.stride):
            found[-1] = RowAxis(axis.name, found[-1].extent * axis.extent, axis.stride)
        else:
            found.append(axis)
    return found or [RowAxis("", 1, 0)]

"""Strassen's algorithm: which products are halved, by which tiles and in which blocks.

One halving saves an eighth of the multiplications. Its additions take time by the element of an operand or of the result, the
multiplications by all three extents; so it is for large products.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from fusewise.codegen.kernel import Params
from fusewise.codegen.llvm.gemm_plan import COLUMNS_SHARE, Product
from fusewise.codegen.llvm.gemm_tile import FMA_LATENCY, LOAD_CYCLES, Tile, favourite_tiles, widths
from fusewise.codegen.target import Target
from fusewise.lower.task import Reason

__all__ = ["FACTORS", "Halves", "halves_of", "panels_of", "strassen_space"]

FACTORS = 7
"""Products of halves."""

LEFT_CYCLES, RIGHT_CYCLES, RESULT_CYCLES = 28, 6, 56
"""Cycles that a vector of each quarter takes: of the left operand, of the right one (while a tile is reduced), of the result.
Measured on a machine of one multiply-add in a cycle, in caches."""

WIDE_SHARE = 0.7
"""What share of them they take on a machine of two, which moves and adds twice as much in a cycle: with it models on a Zen 5 take
the products that make them faster, and leave those that make them slower."""

WORTH = 2.0
"""How many times the cycles of all sums those of the multiplications saved must be: inside a model, operands are further away."""

LEAST_ROWS = 24
"""Rows of a half from which on a tile fills the registers."""

LEAST_BLOCKS, LEAST_SHARING = 8, 7
"""Blocks that rows are cut into at least, where they are dealt out, unless fewer tiles would then share a right factor."""

STORE_CYCLES = 3
"""Cycles that a vector of a product takes to be written at the end of its tile."""

LONGEST_CHUNK, SHORTEST_CHUNK = 512, 64
"""Most steps of the depth that are added up in one go, and fewest, if the depth has them."""

SPARE = 4
"""Registers that a tile leaves for making its factors."""


@dataclass(frozen=True)
class Halves:
    """A product of two matrices: `product` has one group and nothing outer, row r of the left operand begins r * `pitch` elements
    after its first, the depth is contiguous."""

    product: Product
    pitch: int

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

    @property
    def chunk(self) -> int:
        """Steps of the depth that are taken at once: all, or as many as panels and rounding allow."""
        return next(n for n in range(min(self.depth, LONGEST_CHUNK), 0, -1) if self.depth % n == 0)


def halves_of(product: Product, pitch: int, target: Target) -> Halves | Reason:
    """A product in halves, or why it is better whole."""
    halves = Halves(product, pitch)
    lanes = widths(target, product.columns)[0]
    if not target.adds_apart:
        return Reason("additions take the units that multiply, as long as what they save")
    if not product.depth or product.depth % (2 * lanes):
        return Reason("halves of the depth are not whole vectors")
    if halves.chunk < min(halves.depth, SHORTEST_CHUNK):
        return Reason("the depth has no divisor of a good length")
    if halves.height < LEAST_ROWS:
        return Reason("too few rows to halve")
    if not any(True for _ in strassen_space(halves, target)):
        return Reason("no tile saves more than it costs")
    return halves


def strassen_space(h: Halves, target: Target) -> Iterable[Params]:
    """Parameters that save more than they cost, the analytic favourite first."""
    lanes = widths(target, h.product.columns)[:1]
    tiles = favourite_tiles(target, h.height, math.ceil(h.columns), h.depth, lanes)
    room = target.registers - SPARE
    fitting = [t for t in tiles if _is_halved(h, t) and (t.rows + 1) * t.vectors <= room]
    fitting = [t for t in fitting if t.rows >= 2 * t.vectors]
    for tile in sorted(fitting, key=lambda tile: _cycles(h, target, tile))[:4]:
        params = _plan(h, target, tile)
        if _saved(h, target, tile) > WORTH * _sums(h, target, tile, params):
            yield params


def panels_of(h: Halves, tile: Tile) -> int:
    """Panels of all columns."""
    return -(-h.product.columns // tile.width)


def _is_halved(h: Halves, tile: Tile) -> bool:
    """Are panels paired, and do no two of them share columns?"""
    rest = h.product.columns % tile.width
    return panels_of(h, tile) % 2 == 0 and (rest == 0 or rest >= tile.lanes)


def _cycles(h: Halves, target: Target, tile: Tile) -> float:
    """Cycles of one product, for comparing tiles."""
    r, v = tile.rows, tile.vectors
    step = max(r * v / target.multiplies(tile.lanes * 32), (r + v) * LOAD_CYCLES, FMA_LATENCY)
    step += target.beside.load * (r + v)
    return (step * h.depth + STORE_CYCLES * r * v) * -(-h.height // r) * panels_of(h, tile) / 2


def _plan(h: Halves, target: Target, tile: Tile) -> Params:
    """Blocking: rows in blocks whose factors fit the second cache level, or all in one block, whose panels are dealt out.

    As in other products, columns are dealt out where the right operand is much larger than rows and results.
    """
    tiles = -(-h.height // tile.rows)
    per_tile = FACTORS * tile.rows * (h.chunk + tile.width) * 4
    left, right = h.product.height * h.product.depth * 4, h.product.depth * h.product.columns * 4
    by_columns = right > COLUMNS_SHARE * (left + h.product.written) and tiles * per_tile <= target.l2_bytes * 3 // 2
    if not by_columns:
        wanted = max(LEAST_SHARING, -(-tiles // LEAST_BLOCKS))
        tiles = max(1, min(tiles, target.l2_bytes * 3 // 4 // per_tile, wanted))
    return {"rows": tile.rows, "vectors": tile.vectors, "lanes": tile.lanes, "tiles": tiles}


def _saved(h: Halves, target: Target, tile: Tile) -> float:
    """Cycles of the multiplications that are saved."""
    return h.height * h.depth * h.columns / (tile.lanes * target.multiplies(tile.lanes * 32))


def _sums(h: Halves, target: Target, tile: Tile, params: Params) -> float:
    """Cycles of all additions; workers that share a block make its left factors each for itself."""
    blocks = -(-h.height // (tile.rows * int(params["tiles"])))
    left = h.height * h.depth * LEFT_CYCLES * max(1.0, target.workers / blocks)
    right = h.depth * h.columns * blocks * RIGHT_CYCLES
    share = WIDE_SHARE if target.multiplies(tile.lanes * 32) > 1 else 1.0
    return (left + right + h.height * h.columns * RESULT_CYCLES) / tile.lanes * share

"""Which of Winograd's forms computes a convolution, with its filters in memory or in registers: what each is estimated to cost.

Transformed filters lie in memory, for many tiles to use; or they are transformed again for every few tiles and never leave the
registers (`winograd_few`), which costs loads and additions beside the multiply-adds. A core that begins two of these in a cycle
has no room for that unless the tiles are few; one that begins a single one, of vectors this wide, has.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from fusewise.codegen.foresight import FETCHED_BYTES
from fusewise.codegen.kernel import Params
from fusewise.codegen.llvm.gemm_tile import Tile, favourite_tiles
from fusewise.codegen.llvm.pairs import has_bfloat_products
from fusewise.codegen.llvm.winograd_plan import Planes
from fusewise.codegen.llvm.winograd_transform import Form
from fusewise.codegen.target import LINE_BYTES, Target
from fusewise.ir.dtypes import BFLOAT16

__all__ = ["Choice", "choices", "direct_cycles", "parameters"]

LEAST_TILES, MOST_TILES = 16, 112
"""Tiles of a strip: with more, its transformed inputs leave the caches; with fewer, filters are transformed too often."""

MOST_DEPTH = 32
"""Input channels of a block, at most: more, and the transformed filters crowd the second cache level."""

DIRECT_SHARE, PAIRS_SHARE, PRODUCT_SHARE, TAPS_SHARE = 0.87, 1.75, 0.85, 0.7
"""Share of a core's multiply-adds that the direct form, the direct form on pairs and the products here reach, and what of its share
the direct form keeps where it goes tap by tap; measured, as are the next."""

INPUT_CYCLES, OUTPUT_CYCLES, FILTER_CYCLES = 4.8, 4.4, 3.0
"""Cycles to transform a vector of channels, per position: mostly stores beyond the first cache level."""

LOADS, LEAST_ROW = 2, 11
"""Loads that a core begins in a cycle, as taken; and cycles that a row of positions takes of a filter in registers with one tile,
measured on a Zen 4."""

AGAIN_CYCLES = (0.5, 2.0)
"""Cycles lost for a cache line of filters that another strip reads again from the third cache level, and from memory: derived from
one convolution each on a Zen 4, of 512 channels and of 1024."""

DEAR_LOAD = 0.1
"""Cycles that a load costs beside the multiply-adds from which on panels may be four vectors wide, whose tiles load less; that they
pay was measured there alone."""

ODD_MARGIN = 1.06
"""By what F(3, 3) has to be estimated better than another form where loads are cheap. Estimates know nothing of the rows of
register tiles, of which 5 for its 25 tiles of a map of 14 x 14 do better than 4 for 16 tiles where loads are dear: there it was
measured, before the last of 16 tiles could be shorter."""

BESIDE_SUMS = 8
"""Registers that a filter being transformed takes, beside the sums of a row of positions."""


@dataclass(frozen=True)
class Choice:
    """A form; how many tiles share a filter in registers, 0 with filters in memory; and estimated cycles of a core."""

    form: Form
    in_registers: int
    cycles: float


def choices(planes: Planes, target: Target) -> list[Choice]:
    """Forms with filters in memory and, where there are registers for them, in registers; best first."""
    found = []
    for form in planes.forms:
        most = (target.registers - BESIDE_SUMS) // form.columns.span
        tiles = planes.grid(form).tiles
        counts = [-(-tiles // -(-tiles // most))] if most and tiles else []
        counts.append(0)
        found += [Choice(form, count, _cycles(planes, form, count, target)) for count in counts]
    margin = 1.0 if target.beside.load > DEAR_LOAD or planes.is_phased else ODD_MARGIN
    return sorted(found, key=lambda choice: choice.cycles * (margin if choice.form.is_odd else 1.0))


def direct_cycles(planes: Planes, target: Target) -> float:
    """Estimated cycles of the direct form on one core."""
    shape = planes.shape
    in_pairs = shape.dtype == BFLOAT16 and shape.inputs % 2 == 0 and has_bfloat_products(target)
    share = PAIRS_SHARE if in_pairs else DIRECT_SHARE
    pixels = shape.batch * math.prod(axis.out for axis in shape.spatial)
    cycles = pixels * shape.taps * shape.inputs * shape.outputs / target.lanes / _multiplies(target) / share
    if shape.is_sparse:  # tap by tap, those outside left out as far as whole tiles lack them
        cycles *= math.prod(axis.present for axis in shape.spatial) / TAPS_SHARE
    return cycles


def parameters(planes: Planes, target: Target) -> Iterable[Params]:
    """Parameters worth trying, the analytic favourite first."""
    depth = _depth(planes, target)
    for choice in choices(planes, target):
        common = {"outputs": choice.form.tile, "lanes": target.lanes, "panels": 1, "depth": depth}
        if choice.in_registers:
            yield {**common, "rows": choice.in_registers, "vectors": 1, "tiles": 1, "filters": "registers"}
            continue
        for tile, per_strip in _tiles(planes, choice.form, depth, target)[:3]:
            yield {**common, "rows": tile.rows, "vectors": tile.vectors, "tiles": per_strip}


def _tiles(planes: Planes, form: Form, depth: int, target: Target) -> list[tuple[Tile, int]]:
    """Register tiles for filters in memory, the favourite first, and how many of each make a strip."""
    tiles, outputs, strips = planes.grid(form).tiles, planes.shape.outputs, _strips(planes, form, target)

    def waiting(tile: Tile) -> float:
        """Strips and panels are dealt out, and not all tiles have all values."""
        shares, rows = strips * -(-outputs // tile.width), tile.rows
        taken = _covered(planes, form, rows) / (form.positions * -(-tiles // rows) * rows)
        return taken * -(-shares // target.workers) * target.workers / shares

    found = favourite_tiles(target, tiles, outputs, depth, (target.lanes,), waiting=waiting)
    # an even number of vectors fills whole cache lines, so that transformed filters are written line by line
    widest = 4 if target.beside.load > DEAR_LOAD else 2
    even = [tile for tile in found if tile.vectors in (2, widest)] or found
    return [(tile, math.ceil(math.ceil(tiles / tile.rows) / strips)) for tile in even]


def _depth(planes: Planes, target: Target) -> int:
    """Input channels of a block."""
    if planes.is_phased:  # a block belongs to one phase
        fitting = range(target.lanes, MOST_DEPTH + 1, target.lanes)
        return max(depth for depth in fitting if planes.shape.inputs % depth == 0)
    depth = -(-planes.channels // -(-planes.channels // MOST_DEPTH))
    return min(planes.channels, -(-depth // target.lanes) * target.lanes)


def _multiplies(target: Target) -> int:
    return target.multiplies(target.vector_bits)


def _cycles(planes: Planes, form: Form, in_registers: int, target: Target) -> float:
    """Products, and per vector of channels the transforms."""
    tiles = planes.grid(form).tiles
    inputs, outputs = planes.channels / target.lanes, -(-planes.shape.outputs // target.lanes)
    transforms = form.positions * tiles * (inputs * INPUT_CYCLES + outputs * OUTPUT_CYCLES)
    pairs = planes.channels * outputs
    filters = outputs * planes.taps * target.vector_bits // 8
    fetched = filters / FETCHED_BYTES
    if in_registers:
        strips, row = -(-tiles // in_registers), _row_cycles(planes, form, in_registers, target)
        again = AGAIN_CYCLES[filters > target.l3_bytes] if filters > target.l2_bytes else 0.0
        products = strips * form.rows.span * row * pairs * _multiplied(planes, form) / PRODUCT_SHARE
        if strips == 1:
            products *= _covered(planes, form, 1) / (form.positions * tiles)
        return transforms + max(products, fetched) + (strips - 1) * filters / LINE_BYTES * again
    products = min(_covered(planes, form, rows) for rows in (4, 5, 6)) * pairs / _multiplies(target) / PRODUCT_SHARE
    products *= _multiplied(planes, form)
    transforms += _strips(planes, form, target) * pairs * FILTER_CYCLES * form.positions
    return transforms + max(products, fetched)


def _covered(planes: Planes, form: Form, rows: int) -> int:
    """Products of a filter and register tiles of so many rows, some of which are for nothing at the end of a run."""
    grid, (high, wide) = planes.grid(form), (form.rows.span, form.columns.span)
    (a, b) = (1 if tiling.short else 0 for tiling in (grid.rows, grid.columns))
    runs = [
        (number, len(grid.with_values(*which)))
        for number, which in (
            ((high - a) * (wide - b), (False, False)),
            (a * (wide - b), (True, False)),
            ((high - a) * b, (False, True)),
            (a * b, (True, True)),
        )
    ]
    return sum(number * math.ceil(tiles / rows) * rows for number, tiles in runs)


def _multiplied(planes: Planes, form: Form) -> float:
    """The share of products that is not zero for want of a tap."""
    missing = [[a - b for a, b in zip(planes.sides, planes.taps_of(k), strict=True)] for k in range(planes.phases)]
    kept = sum((form.rows.span - high) * (form.columns.span - wide) for high, wide in missing)
    return kept / (planes.phases * form.positions)


def _row_cycles(planes: Planes, form: Form, tiles: int, target: Target) -> float:
    """Cycles for a row of positions of one filter in registers and so many tiles: multiply-adds, loads or sums, which overlap."""
    products = form.columns.span * tiles
    # a row of positions takes both halves of a pair of points again
    down, along = form.rows.filter_steps, form.columns.filter_steps
    multiplies, sums = (form.columns.taps * 2 * a / form.rows.span + b for a, b in zip(down, along, strict=True))
    rate = _multiplies(target)
    return max(
        (products + multiplies) / rate, sums / rate, (products + planes.taps / planes.channels) / LOADS, LEAST_ROW
    )


def _strips(planes: Planes, form: Form, target: Target) -> int:
    """As few strips as the caches allow: in each, all filters are transformed."""
    each, products = form.positions * planes.channels * 4, form.positions * 2 * target.lanes * 4
    most = max(LEAST_TILES, min(MOST_TILES, target.l3_bytes // 4 // each, target.l2_bytes // 2 // products))
    return -(-planes.grid(form).tiles // most)

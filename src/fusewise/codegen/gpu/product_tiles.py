"""Which tile of a product a block computes, and in how many parts the depth is done: from the device's row, before anything is run.

Large tiles read less from the cache and keep tensor cores busier; small ones, and the depth in several parts, are more blocks,
where a multiprocessor would have none. Parts are written to memory, and added up in their order by a second kernel. What each way
takes is estimated from its steps, and the least is taken. Tiles are those whose operands, as often as stages say, fit shared
memory, and whose sums fit registers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from fusewise.codegen.gpu.contraction import Contraction
from fusewise.codegen.gpu.depth import walked
from fusewise.codegen.gpu.device import Device
from fusewise.codegen.gpu.nests import next_power
from fusewise.records import record

__all__ = ["ProductWay", "best_way", "kind_of", "ways"]


@record(frozen=True)
class ProductWay:
    """A tile of `rows` by `columns` in steps of `depth`; `splits`: parts of the depth. `vector`: no tensor cores, one of the
    factors being a vector, and `rows` 1."""

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int
    splits: int = 1
    vector: bool = False

    def __str__(self) -> str:
        parts = f", depth in {self.splits} parts" if self.splits > 1 else ""
        if self.vector:
            return f"vector, {self.columns} results by {self.depth} lanes{parts}"
        return f"tile {self.rows} x {self.columns} x {self.depth}{parts}"


@record(frozen=True)
class _Kind:
    """How tiles are multiplied: which column of `_TILES` is theirs, `nbytes` of an element there, at the peak of which type and how
    many `times`, and the elements of a tile that is large enough for the best share of it."""

    column: int
    nbytes: int
    peak: str
    times: int = 1
    full: int = 128 * 128


_KINDS: Mapping[str, _Kind] = MappingProxyType(
    {
        "half": _Kind(0, 2, "float16"),
        "int8": _Kind(0, 1, "float16"),
        "tf32": _Kind(1, 4, "tf32"),
        "tf32x3": _Kind(2, 4, "tf32", 3),
        "ieee": _Kind(3, 4, "float32", full=64 * 64),
    }
)

_How = tuple[int, int, int] | None

_TILES: tuple[tuple[tuple[int, int], _How, _How, _How, _How], ...] = (
    ((128, 128), (64, 8, 3), (32, 8, 3), None, None),
    ((128, 64), (64, 8, 4), (32, 4, 4), (32, 8, 3), None),
    ((64, 128), (64, 4, 4), (32, 4, 4), (32, 8, 3), None),
    ((64, 64), (64, 4, 4), (32, 4, 4), (32, 4, 3), (16, 8, 2)),
    ((32, 128), (64, 4, 4), (32, 4, 4), (32, 4, 3), None),
    ((128, 32), (64, 4, 4), (32, 4, 4), (32, 4, 3), None),
    ((64, 32), (64, 4, 4), (32, 4, 4), (32, 4, 3), (16, 4, 2)),
    ((32, 64), (64, 4, 4), (32, 4, 4), (32, 4, 3), (16, 4, 2)),
    ((32, 32), (64, 4, 4), (32, 4, 4), (32, 2, 3), (16, 4, 2)),
    ((16, 128), (64, 4, 4), (32, 4, 4), (32, 8, 3), None),
    ((16, 64), (64, 4, 4), (32, 4, 4), (32, 4, 3), (16, 4, 2)),
    ((64, 16), (64, 4, 4), (32, 4, 4), (32, 4, 3), (16, 4, 2)),
    ((16, 32), (128, 2, 3), (32, 4, 3), (32, 2, 3), (32, 2, 2)),
    ((32, 16), (128, 4, 3), (64, 4, 3), (32, 2, 3), (32, 2, 2)),
    ((16, 16), (128, 2, 3), (64, 2, 3), (64, 2, 3), (32, 2, 2)),
)
"""(rows, columns), the largest first, and for `half`, `tf32`, `tf32x3` and `ieee` (depth, warps, stages), where it fits the
registers."""

_FULL = 0.8
"""Blocks of a multiprocessor that keep it busy, of vectors."""
_PARTS = (1, 2, 3, 4, 6, 8, 12, 16)
"""Into how many parts the depth may be taken."""
_LEAST_STEPS = 4
"""Steps of a part of the depth, at least."""
_REACHED = 0.7
"""What of the peak of its type a tile of 128 by 128 may reach; smaller ones less, as the root of what they have. Estimated."""
_L2_TIMES = 2.0
"""How much faster than memory the level-2 cache is; estimated."""
_WAIT = 2.5e-7
"""Seconds from a step to the next with one block at a multiprocessor, which `_HIDING` of them hide; estimated."""
_HIDING = 4


def kind_of(c: Contraction, precision: str) -> str:
    """What a contraction's tiles are multiplied as: a row of the table."""
    if c.kind != "float32":
        return c.kind if c.kind == "int8" else "half"
    return {"exact": "ieee", "tf32": "tf32"}.get(precision, "tf32x3")


def _blocks(c: Contraction, way: ProductWay) -> int:
    rows, columns, _, matrices = c.sizes
    return -(-rows // way.rows) * -(-columns // way.columns) * matrices


def _fits(way: ProductWay, kind: str, device: Device) -> bool:
    needed = way.stages * (way.rows + way.columns) * way.depth * _KINDS[kind].nbytes
    return needed <= device.shared_per_block


def _tiles(kind: str) -> Iterator[ProductWay]:
    column = _KINDS[kind].column
    for (rows, columns), *by_kind in _TILES:
        how = by_kind[column]
        if how is not None:
            yield ProductWay(rows, columns, *how)


def ways(c: Contraction, device: Device, kind: str) -> list[ProductWay]:
    """Ways to compute a contraction, by what they are estimated to take."""
    rows, columns, depth, _ = c.sizes
    if rows == 1 or columns == 1:
        return list(_vector_ways(c, device))
    most = max(16, next_power(rows)), max(16, next_power(columns))
    deep = max(32 if kind == "int8" else 16, next_power(depth))
    found: dict[ProductWay, float] = {}
    tiles = [replace(tile, depth=min(tile.depth, deep)) for tile in _tiles(kind)]
    counts = {block: walked(c, block).count for block in {tile.depth for tile in tiles}}
    for tile in tiles:
        if tile.rows > most[0] or tile.columns > most[1] or not _fits(tile, kind, device):
            continue
        steps = counts[tile.depth]
        for parts in _PARTS:
            if parts == 1 or steps // parts >= _LEAST_STEPS:
                way = replace(tile, splits=-(-steps // -(-steps // parts)))  # no part is empty
                found[way] = _seconds(c, way, steps, device, kind)
    return sorted(found, key=lambda way: found[way])


def _seconds(c: Contraction, way: ProductWay, steps: int, device: Device, kind: str) -> float:
    """What a way may take: its steps one after the other at a multiprocessor, which multiply or wait for what they read."""
    rows, columns, depth, matrices = c.sizes
    how = _KINDS[kind]
    size = how.nbytes
    share = _REACHED * min(1.0, way.rows * way.columns / how.full) ** 0.5
    multiply = how.times * 2 * way.rows * way.columns * way.depth / (device.peak(how.peak) / device.sms * share)
    fetch = (way.rows + way.columns) * way.depth * size / (_L2_TIMES * device.bytes_per_second / device.sms)
    each = -(-steps // way.splits)
    turns = -(-_blocks(c, way) * way.splits // device.sms)
    moved = size * matrices * ((rows + columns) * depth + rows * columns)
    busy = each * max(turns * max(multiply, fetch), _WAIT * -(-turns // _HIDING))
    found: float = max(busy, moved / device.bytes_per_second)
    if way.splits > 1:
        parts = 2 * 4 * way.splits * rows * columns * matrices
        found += device.launch_us * 1e-6 + parts / (_L2_TIMES * device.bytes_per_second)
    return found


def _vector_ways(c: Contraction, device: Device) -> Iterator[ProductWay]:
    """Results of a block by lanes along the depth: 2,048 elements at a step."""
    results, depth = max(c.sizes[0], c.sizes[1]), c.sizes[2]
    lanes = min(next_power(depth), 128)
    for columns in (64, 32, 16, 8):
        tile = ProductWay(
            1, min(columns, next_power(results)), min(next_power(depth), max(lanes, 2048 // columns)), 4, 3, 1, True
        )
        blocks = -(-results // tile.columns) * c.sizes[3]
        if blocks >= _FULL * device.sms:
            yield tile
            return
    steps = walked(c, tile.depth).count
    splits = min(-(-device.sms // blocks), steps // _LEAST_STEPS, _PARTS[-1])
    if splits > 1:
        each = -(-steps // splits)
        saved = steps * 4e-7 * (1 - 1 / splits)
        if saved > device.launch_us * 1e-6:
            yield ProductWay(1, tile.columns, tile.depth, 4, 3, -(-steps // each), True)
    yield tile


def best_way(c: Contraction, device: Device, kind: str) -> ProductWay:
    """The first of `ways`."""
    return ways(c, device, kind)[0]

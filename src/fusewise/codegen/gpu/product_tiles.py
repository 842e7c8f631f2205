"""Which tile of a product a block computes, and in how many parts the depth is done: from the device's row, before anything is run.

The largest tile that gives at least 0.8 blocks to a multiprocessor. Where none does, and a second launch costs less than it saves,
the depth is done in parts by several blocks, which a second kernel adds up in their order. Tiles are those whose operands, as often
as stages say, fit shared memory, and whose sums fit registers.
"""

from __future__ import annotations

from collections.abc import Iterator

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


_Row = tuple[int, int, int, int, int]

_TILES: dict[str, tuple[_Row, ...]] = {
    "half": (
        (128, 256, 64, 8, 3),
        (128, 128, 64, 8, 3),
        (128, 64, 64, 4, 4),
        (64, 128, 64, 4, 4),
        (64, 64, 64, 4, 4),
        (32, 128, 64, 4, 4),
        (128, 32, 64, 4, 4),
        (64, 32, 64, 4, 4),
        (32, 64, 64, 4, 4),
        (32, 32, 64, 4, 4),
        (16, 128, 64, 4, 4),
        (16, 64, 64, 4, 4),
        (64, 16, 64, 4, 4),
        (16, 32, 128, 4, 3),
        (32, 16, 128, 4, 3),
        (16, 16, 128, 2, 3),
    ),
    "tf32": (
        (128, 128, 32, 8, 3),
        (128, 64, 32, 4, 4),
        (64, 128, 32, 4, 4),
        (64, 64, 32, 4, 4),
        (32, 128, 32, 4, 4),
        (128, 32, 32, 4, 4),
        (64, 32, 32, 4, 4),
        (32, 64, 32, 4, 4),
        (32, 32, 32, 4, 4),
        (16, 128, 32, 4, 4),
        (16, 64, 32, 4, 4),
        (64, 16, 32, 4, 4),
        (16, 32, 64, 4, 3),
        (32, 16, 64, 4, 3),
        (16, 16, 64, 2, 3),
    ),
    "tf32x3": (
        (128, 64, 32, 8, 3),
        (64, 128, 32, 8, 3),
        (64, 64, 32, 4, 3),
        (32, 128, 32, 4, 3),
        (128, 32, 32, 4, 3),
        (64, 32, 32, 4, 3),
        (32, 64, 32, 4, 3),
        (32, 32, 32, 4, 3),
        (16, 128, 32, 4, 3),
        (16, 64, 32, 4, 3),
        (64, 16, 32, 4, 3),
        (16, 32, 32, 2, 3),
        (32, 16, 32, 2, 3),
        (16, 16, 64, 2, 3),
    ),
    "ieee": (
        (64, 64, 16, 8, 2),
        (64, 32, 16, 4, 2),
        (32, 64, 16, 4, 2),
        (32, 32, 16, 4, 2),
        (16, 64, 16, 4, 2),
        (64, 16, 16, 4, 2),
        (16, 32, 32, 2, 2),
        (32, 16, 32, 2, 2),
        (16, 16, 32, 2, 2),
    ),
}
"""(rows, columns, depth, warps, stages), the largest first."""

_FULL = 0.8
"""Blocks of a multiprocessor that keep it busy."""
_PADDED = 1.34
"""How much more than the least padded tile a tile may compute."""
_MOST_SPLITS = 16
_LEAST_STEPS = 4
"""Steps of a part of the depth, at least."""
_SHARE = {"half": 0.5, "tf32": 0.5, "tf32x3": 0.5 / 3, "ieee": 0.5}
"""What of the peak of its type a full tile may reach, estimated."""


def kind_of(c: Contraction, precision: str) -> str:
    """What a contraction's tiles are multiplied as: a row of the table."""
    if c.kind in ("float16", "bfloat16"):
        return "half"
    return {"exact": "ieee", "tf32": "tf32"}.get(precision, "tf32x3")


def _peak(kind: str, device: Device) -> float:
    name = {"half": "float16", "tf32": "tf32", "tf32x3": "tf32", "ieee": "float32"}[kind]
    return device.peak(name) * _SHARE[kind]


def _blocks(c: Contraction, way: ProductWay) -> int:
    rows, columns, _, matrices = c.sizes
    return -(-rows // way.rows) * -(-columns // way.columns) * matrices


def _fits(way: ProductWay, kind: str, device: Device) -> bool:
    each = 2 if kind == "half" else 4
    needed = way.stages * (way.rows + way.columns) * way.depth * each
    return needed <= device.shared_per_block


def ways(c: Contraction, device: Device, kind: str) -> Iterator[ProductWay]:
    """Ways to compute a contraction, the one to begin with first."""
    rows, columns, depth, _ = c.sizes
    if rows == 1 or columns == 1:
        yield from _vector_ways(c, device)
        return
    tiles = [ProductWay(*row) for row in _TILES[kind]]
    least, most = 16, (max(16, next_power(rows)), max(16, next_power(columns)))
    tiles = [t for t in tiles if t.rows <= most[0] and t.columns <= most[1] and _fits(t, kind, device)]
    deep = max(least, next_power(depth))
    tiles = [t if t.depth <= deep else ProductWay(t.rows, t.columns, deep, t.warps, t.stages) for t in tiles]
    area = min(_blocks(c, t) * t.rows * t.columns for t in tiles)
    even = [t for t in tiles if _blocks(c, t) * t.rows * t.columns <= _PADDED * area]
    full = [t for t in even if _blocks(c, t) >= _FULL * device.sms]
    parted = [p for t in even if t not in full and (p := _split(c, t, device, kind)) is not None]
    first = full[:1] or sorted(parted or even, key=lambda t: -_blocks(c, t) * t.splits)[:1]
    if not full and parted:
        busy = [p for p in parted if _blocks(c, p) * p.splits >= _FULL * device.sms]
        first = busy[:1] or first
    yield from dict.fromkeys([*first, *full, *parted, *even])


def _split(c: Contraction, tile: ProductWay, device: Device, kind: str) -> ProductWay | None:
    """The tile with the depth in so many parts that all multiprocessors have something to do, if that is worth a second launch."""
    steps = walked(c, tile.depth).count
    wanted = -(-device.sms // max(1, _blocks(c, tile)))
    splits = min(wanted, steps // _LEAST_STEPS, _MOST_SPLITS)
    if splits < 2:
        return None
    splits = -(-steps // -(-steps // splits))  # no part is empty
    work = 2 * tile.rows * tile.columns * tile.depth
    step = max(work / (_peak(kind, device) / device.sms), 2e-7)
    rows, columns, _, matrices = c.sizes
    traffic = 2 * 4 * splits * rows * columns * matrices / device.bytes_per_second
    saved = step * steps * (1 - 1 / splits)
    if saved < device.launch_us * 1e-6 + traffic:
        return None
    return ProductWay(tile.rows, tile.columns, tile.depth, tile.warps, tile.stages, splits)


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
    splits = min(-(-device.sms // blocks), steps // _LEAST_STEPS, _MOST_SPLITS)
    if splits > 1:
        each = -(-steps // splits)
        saved = steps * 4e-7 * (1 - 1 / splits)
        if saved > device.launch_us * 1e-6:
            yield ProductWay(1, tile.columns, tile.depth, 4, 3, -(-steps // each), True)
    yield tile


def best_way(c: Contraction, device: Device, kind: str) -> ProductWay:
    """The first of `ways`."""
    return next(ways(c, device, kind))

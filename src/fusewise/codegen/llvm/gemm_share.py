"""How the tiles of a product are dealt out: every worker gets an equal run of them, known before it begins.

Tiles of rows are grouped into blocks, each of which meets all panels of columns before the next begins. A run is given by units
(blocks, over all outer indices) and pairs (panel, tile) within the first and the last of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fusewise.codegen.llvm.emit import Function, Int, Value

__all__ = ["Blocks", "ceiling", "deal", "deal_tiles", "deal_weighted", "share"]

Block = Callable[[Int, Int, Int], None]
"""`block(unit, low, high)` does the pairs low..high of a unit; they count panel by panel."""


@dataclass(frozen=True)
class Blocks:
    """`tiles` cut into blocks of at most `most` tiles, whose sizes differ by one at most."""

    tiles: int
    most: int

    @property
    def blocks(self) -> int:
        """How many blocks there are."""
        return -(-self.tiles // self.most)

    def first(self, block: int) -> int:
        """The first tile of a block, as `begin` has it."""
        return block * self.most if self.tiles % self.most == 0 else block * self.tiles // self.blocks

    def begin(self, f: Function, block: Int) -> Int:
        """The first tile of a block."""
        if self.tiles % self.most == 0:
            return f.mul(block, self.most)
        return f.udiv(f.mul(block, self.tiles), self.blocks)


def deal_tiles(
    f: Function, worker: Value, workers: Value, repeats: int, cut: Blocks, panels: int, block: Block
) -> None:
    """Give each worker an equal run of tiles, counted block by block and panel by panel; a run may begin within a panel."""
    whole = cut.tiles * panels

    def place(number: Int) -> tuple[Int, Int]:
        """The unit and the pair in it where the run of a worker begins."""
        at = f.udiv(f.mul(number, repeats * whole), workers)
        inside = f.urem(at, whole)
        which = f.udiv(f.sub(f.mul(f.add(f.udiv(inside, panels), 1), cut.blocks), 1), cut.tiles)
        first = cut.begin(f, which)
        size = f.sub(cut.begin(f, f.add(which, 1)), first)
        rest = f.sub(inside, f.mul(first, panels))
        pair = f.add(f.mul(f.udiv(rest, size), cut.most), f.urem(rest, size))
        return f.add(f.mul(f.udiv(at, whole), cut.blocks), which), pair

    (low, begin), (high, end) = place(worker), place(f.add(worker, 1))

    def some(unit: Value, _: Sequence[Value]) -> None:
        start = f.select(f.compare("icmp eq", unit, low), f.i64(begin), f.i64(0))
        stop = f.select(f.compare("icmp eq", unit, high), f.i64(end), f.i64(panels * cut.most))
        block(unit, start, stop)

    beyond = f.select(f.compare("icmp sgt", end, 0), f.i64(1), f.i64(0))
    f.loop(low, f.add(high, beyond), 1, some, rolled=True)


def deal(
    f: Function,
    worker: Value,
    workers: Value,
    units: int,
    panels: int,
    by_columns: bool,
    block: Block,
    tiles: int = 1,
) -> None:
    """Give each worker an equal run of (unit, panel) pairs, or an equal run of (panel, tile) pairs of every unit.

    `block(unit, low, high)` does the (panel, tile) pairs low..high, which count panel by panel, `tiles` to each.
    """
    pairs = panels * tiles
    if by_columns:
        low, high = share(f, worker, workers, pairs)
        f.loop(0, units, 1, lambda unit, _: block(unit, low, high), rolled=True)
        return
    _pairs(f, *share(f, worker, workers, units * panels), panels, tiles, block)


def _pairs(f: Function, low: Int, high: Int, panels: int, tiles: int, block: Block) -> None:
    """Do the (unit, panel) pairs low..high, unit by unit."""

    def some(unit: Value, _: Sequence[Value]) -> None:
        before = f.mul(unit, panels)
        first = f.mul(f.maximum(f.sub(low, before), 0), tiles)
        block(unit, first, f.minimum(f.mul(f.sub(high, before), tiles), panels * tiles))

    f.loop(f.udiv(low, panels), ceiling(f, high, panels), 1, some, rolled=True)


def deal_weighted(
    f: Function, worker: Value, workers: Value, weights: Sequence[tuple[int, int]], panels: int, block: Block
) -> None:
    """Give each worker a run of (unit, panel) pairs, of equal work: `weights` are numbers of units one after the other, and the
    work of each of these; `block` is as in `deal`."""
    total = panels * sum(count * weight for count, weight in weights)

    def until(number: Int) -> Int:
        """Pairs before the share of this number: as many as fit of each kind."""
        before, found, beyond = 0, f.i64(0), f.udiv(f.mul(number, total), workers)
        for count, weight in weights:
            fitting = f.udiv(f.maximum(f.sub(f.add(beyond, weight // 2), before), 0), weight)
            found = f.i64(f.add(found, f.minimum(fitting, count * panels)))
            before += count * panels * weight
        return found

    _pairs(f, until(worker), until(f.add(worker, 1)), panels, 1, block)


def share(f: Function, worker: Value, workers: Value, count: int) -> tuple[Int, Int]:
    """The equal run of `count` pieces that is this worker's."""
    low = f.udiv(f.mul(worker, count), workers)
    return low, f.udiv(f.mul(f.add(worker, 1), count), workers)


def ceiling(f: Function, a: Int, by: int) -> Int:
    """a / by, rounded up."""
    return f.udiv(f.add(a, by - 1), by)

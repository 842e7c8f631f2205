"""How the tiles of a product are dealt out: a call does a run of them.

Tiles of rows are grouped into blocks, each of which meets all panels of columns before the next begins. A run is given by units
(blocks, over all outer indices) and pairs (panel, tile) within the first and the last of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fusewise.codegen.llvm.share import Share
from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.tree import Int, Value
from fusewise.ir.deciding import known_zero
from fusewise.records import record

__all__ = ["TileBlocks", "ceiling", "deal", "deal_tiles", "deal_weighted"]

Block = Callable[[Int, Int, Int], None]
"""`block(unit, low, high)` does the pairs low..high of a unit; they count panel by panel."""


@record(frozen=True)
class TileBlocks:
    """`tiles` cut into blocks of at most `most` tiles, whose sizes differ by one at most."""

    tiles: int
    most: int

    @property
    def blocks(self) -> int:
        """How many blocks there are."""
        return -(-self.tiles // self.most)

    def first(self, block: int) -> int:
        """The first tile of a block, as `begin` has it."""
        return block * self.most if known_zero(self.tiles % self.most) else block * self.tiles // self.blocks

    def begin(self, f: Function, block: Int) -> Int:
        """The first tile of a block."""
        if known_zero(self.tiles % self.most):
            return f.mul(block, self.most)
        return f.udiv(f.mul(block, self.tiles), self.blocks)


def deal_tiles(f: Function, share: Share, repeats: int, cut: TileBlocks, panels: int, block: Block) -> None:
    """Do the share's run of tiles, counted block by block and panel by panel; a run may begin within a panel."""
    whole = cut.tiles * panels

    def place(at: Int) -> tuple[Int, Int]:
        """The unit and the pair in it of a tile."""
        inside = f.urem(at, whole)
        which = f.udiv(f.sub(f.mul(f.add(f.udiv(inside, panels), 1), cut.blocks), 1), cut.tiles)
        first = cut.begin(f, which)
        size = f.sub(cut.begin(f, f.add(which, 1)), first)
        rest = f.sub(inside, f.mul(first, panels))
        pair = f.add(f.mul(f.udiv(rest, size), cut.most), f.urem(rest, size))
        return f.add(f.mul(f.udiv(at, whole), cut.blocks), which), pair

    run = share.run(f, repeats * whole)

    def units() -> None:
        (low, begin), (high, end) = place(run[0]), place(run[1])

        def some(unit: Value, _: Sequence[Value]) -> None:
            start = f.select(f.compare("icmp eq", unit, low), f.i64(begin), f.i64(0))
            stop = f.select(f.compare("icmp eq", unit, high), f.i64(end), f.i64(panels * cut.most))
            block(unit, start, stop)

        beyond = f.select(f.compare("icmp sgt", end, 0), f.i64(1), f.i64(0))
        f.loop(low, f.add(high, beyond), 1, some, rolled=True)

    f.when(f.compare("icmp slt", *run), units)


def deal(
    f: Function,
    share: Share,
    units: int,
    panels: int,
    by_columns: bool,
    block: Block,
    tiles: int = 1,
) -> None:
    """Do the share's run of (unit, panel) pairs, or its run of (panel, tile) pairs of every unit.

    `block(unit, low, high)` does the (panel, tile) pairs low..high, which count panel by panel, `tiles` to each.
    """
    pairs = panels * tiles
    if by_columns:
        low, high = share.run(f, pairs)
        some = f.compare("icmp slt", low, high)
        f.when(some, lambda: f.loop(0, units, 1, lambda unit, _: block(unit, low, high), rolled=True))
        return
    _pairs(f, *share.run(f, units * panels), panels, tiles, block)


def _pairs(f: Function, low: Int, high: Int, panels: int, tiles: int, block: Block) -> None:
    """Do the (unit, panel) pairs low..high, unit by unit."""

    def some(unit: Value, _: Sequence[Value]) -> None:
        before = f.mul(unit, panels)
        first = f.mul(f.maximum(f.sub(low, before), 0), tiles)
        block(unit, first, f.minimum(f.mul(f.sub(high, before), tiles), panels * tiles))

    units = f.udiv(low, panels), ceiling(f, high, panels)
    f.when(f.compare("icmp slt", low, high), lambda: f.loop(*units, 1, some, rolled=True))


def deal_weighted(f: Function, share: Share, weights: Sequence[tuple[int, int]], panels: int, block: Block) -> None:
    """Do a run of (unit, panel) pairs, so that equal shares are equal work: `weights` are numbers of units one after the other, and
    the work of each of these; `block` is as in `deal`."""
    total = panels * sum(count * weight for count, weight in weights)

    def until(number: Int) -> Int:
        """Pairs before the share of this number: as many as fit of each kind."""
        before, found, beyond = 0, f.i64(0), f.udiv(f.mul(number, total), share.of)
        for count, weight in weights:
            fitting = f.udiv(f.maximum(f.sub(f.add(beyond, weight // 2), before), 0), weight)
            found = f.i64(f.add(found, f.minimum(fitting, count * panels)))
            before += count * panels * weight
        return found

    _pairs(f, until(share.low), until(share.high), panels, 1, block)


def ceiling(f: Function, a: Int, by: int) -> Int:
    """a / by, rounded up."""
    return f.udiv(f.add(a, by - 1), by)

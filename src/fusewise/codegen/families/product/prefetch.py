"""What the tiles of a product fetch while they are reduced: the panel after their own, and weights of a later step."""

from __future__ import annotations

import math

from fusewise.codegen.kernel import Prefetch
from fusewise.codegen.llvm.share import MOST_PIECES, Share
from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.tile import Ahead, Tile
from fusewise.codegen.nest.tree import Int, Value
from fusewise.codegen.target import FIRST_LEVEL, LINE_BYTES, SECOND_LEVEL, Target
from fusewise.records import record

__all__ = ["StepPrefetch", "later_of", "next_panel", "panel_level"]


def panel_level(target: Target, tile: Tile, depth: int, tiles: int) -> int:
    """The cache level that a panel of so many steps is fetched to ahead of its use, where so many tiles share one; 0: it is not. Of
    very many the first one's wait is lost among the others."""
    nbytes = _width(tile) * depth
    if not target.figures.sharing.least_tiles <= tiles <= MOST_PIECES or nbytes > target.l2_bytes:
        return 0
    return FIRST_LEVEL if nbytes <= target.l1_bytes // 2 else SECOND_LEVEL


def next_panel(f: Function, tile: Tile, depth: int, tiles: int, following: Value, turn: Int, level: int) -> Ahead:
    """The part of the next panel, at `following`, that tile number `turn` of `tiles` fetches, so that none waits for memory."""
    step = -(-_width(tile) // tiles)
    start = f.at(following, f.mul(turn, step * depth), "i8")
    return Ahead(start, step, level)


def _width(tile: Tile) -> int:
    """Bytes of a panel at one step."""
    return tile.width * tile.instruction.panel_bytes


@record(frozen=True)
class StepPrefetch:
    """What a worker fetches for a later step: the same number of cache lines with each tile, from `start` on, beginning with tile
    number `first`."""

    start: Value
    first: Int
    lines: int

    def ahead(self, f: Function, number: Int, depth: int) -> Ahead:
        """What tile `number`, of so many steps, fetches, and perhaps a little of what the next one does."""
        start = f.at(self.start, f.mul(f.sub(number, self.first), self.lines * LINE_BYTES), "i8")
        return Ahead(start, 2 ** max(2, math.ceil(math.log2(self.lines * LINE_BYTES / depth))), 2)


def later_of(f: Function, share: Share, start: Value, prefetch: Prefetch, tiles: int) -> StepPrefetch:
    """A share's part of what all tiles together are to fetch from `start` on, see `Kernel.cycles`."""
    first, _ = share.run(f, tiles)
    begin, _ = share.run(f, prefetch.of)
    return StepPrefetch(f.at(start, begin, "i8"), first, -(-prefetch.nbytes // (LINE_BYTES * tiles)))

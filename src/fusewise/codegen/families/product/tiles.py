"""Which register tiles suit a product.

A tile is chosen by counting: multiply-adds, loads and latency bound the cycles of a step, the registers bound the tile, and rows
or columns that a tile computes twice at the edge count as work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from fusewise.codegen.families.product.tile import Tile
from fusewise.codegen.instructions.table import FUSED, Instruction
from fusewise.codegen.target import LINE_BYTES, InstructionSet, Target
from fusewise.records import record

__all__ = [
    "LOAD_CYCLES",
    "SLIM_ROWS",
    "SLIM_SHARE",
    "TiledProduct",
    "favourite_tiles",
    "is_slim",
    "lanes_for",
    "widths",
]

LOAD_CYCLES = 0.6
"""Cycles that a load, or a scalar load into all lanes, takes of a core's throughput; measured, a little above one half."""

ODD_CYCLES = 0.25
"""Cycles lost where an odd number of multiply-adds is shared by two pipes; measured."""

RUN_CYCLES = 32
"""Cycles that a tile takes at least for each of its rows when results do not fit the second cache level and other tiles write the
rest of the row. Measured, of 16 to 96 channels, as twice that on a machine of one multiply-add in a cycle; half of it for two is a
guess, and so is why: that memory is fetched ahead of writing only along a row."""

NARROW_SHARE = 1.08
"""How much longer a tile is taken to last with vectors of half the width, where they multiply as fast: it has more instructions.
Measured without columns to save: 10 to 17 % for tiles of one whole vector, up to 2 % for wider ones."""

SLIM_ROWS = range(5, 11)
"""Rows of a tile that has one vector where a core begins one multiply-add of it in a cycle: it waits for none with so many sums,
each takes its row's scalar from memory itself, and what is made of the right operand for it takes half the room or less."""

SLIM_SHARE = 1.02
"""How many times as long as its multiply-adds a step of a slim tile takes, whatever its rows: 420 x 128 x 256 in halves of 210 rows
by tiles of 5, 6, 7 and 10 took 229 to 233 us."""

NEAR_ROWS, NEAR_DEPTH = (7, 8), 64
"""Rows of slim tiles, and the least depth, of products in general that do better by them: of whole tiles, with operands and results
that stay in the second level. In ten models such steps took 1.02 to 1.06 times less; with tiles of 5 rows 1.02 times more, of 9 and
10 that do not divide a row of pixels 1.1 to 1.4, over 32 steps up to 1.4, from beyond the second level 1.01 to 1.03. Not of
attention's, which write nothing: MobileBERT's took 1.04 times more."""

MAX_VECTORS = 8
"""Widest tile, in vectors: beyond this a single row gains nothing."""


def lanes_for(instructions: InstructionSet, columns: int, element_bits: int = 32) -> int:
    """Lanes that suit this many columns: a full vector, or the next power of two when the columns do not fill one."""
    lanes = max(1, instructions.vector_bits // element_bits)
    while lanes > 1 and lanes // 2 >= columns:
        lanes //= 2
    return lanes


def widths(target: Target, columns: int, element_bits: int = 32) -> tuple[int, ...]:
    """Lanes worth trying for this many columns: those that suit, and half as many where they multiply as fast."""
    lanes = lanes_for(target, columns, element_bits)
    half = lanes // 2
    is_free = half and target.multiplies(half * element_bits) > target.multiplies(lanes * element_bits)
    return (lanes, half) if is_free else (lanes,)


@record(frozen=True)
class TiledProduct:
    """A product as tiles see it: rows x columns, reduced over `depth` steps of an instruction, by tiles of at most `max_rows`.

    `row_extent` is the length of a run of rows at equal distances; a tile that does not divide it addresses every row anew.
    None: all rows are at equal distances. `written` is how many bytes all results take in memory.
    """

    rows: int
    columns: int
    depth: int
    max_rows: int = 16
    row_extent: int | None = None
    written: int = 0
    instruction: Instruction = FUSED


def favourite_tiles(
    target: Target,
    product: TiledProduct,
    lanes: Sequence[int],
    waiting: Callable[[Tile], float] = lambda tile: 1.0,
) -> list[Tile]:
    """Every tile of one of these `lanes` that fits the registers, the one with the fewest estimated cycles first.

    `waiting(tile)` is how many times as long the busiest worker takes as all do on average.
    """
    written, element_bits = product.written, product.instruction.sum.bits
    is_far, operand_bytes = written > target.l2_bytes, product.rows * product.depth * element_bits // 8
    is_near = max(written, operand_bytes) <= target.l2_bytes and written and product.depth >= NEAR_DEPTH

    def cycles(tile: Tile) -> float:
        r, v, each = tile.rows, tile.vectors, tile.lanes
        vectors, pace = -(-product.columns // each), 2 / target.multiplies(each * element_bits)
        multiplying = r * v * pace / 2 + (ODD_CYCLES * (r * v % 2) if pace == 1 else 0)
        step = max(multiplying, (r + v) * LOAD_CYCLES, product.instruction.latency)
        # a tile that needs (nearly) every register is scheduled worse
        tight = _registers(target, product.instruction, r, v) > target.registers - target.registers // 16
        step = step * (1.01 if tight else 1.0) + target.beside.load * (r + v)
        crossing = product.row_extent is not None and (product.row_extent % r != 0 or product.rows % r != 0)
        if is_near and is_slim(target, tile) and r in NEAR_ROWS and product.rows % r == 0 and not crossing:
            step = r * SLIM_SHARE
        if each < lanes[0]:
            step *= NARROW_SHARE
        if product.depth * tile.width * 4 > target.l1_bytes // 2:
            lines = tile.width * 4 / LINE_BYTES  # panels come from the second cache level
            step += target.beside.line * lines + target.beside.fourth * max(0.0, lines - 3)
        # small tiles finish while the next one has begun
        once = 4 + target.beside.finish * max(0, r * v - target.registers // 2) + (2 * r if crossing else 0)
        run = RUN_CYCLES * pace * r if is_far and v < vectors else 0
        return max(step * product.depth + once, run) * -(-product.rows // r) * -(-vectors // v) * waiting(tile)

    useful = [
        Tile(r, v, each)
        for each in lanes
        for r, v in _fitting(target, product.instruction)
        if r <= min(product.rows, product.max_rows) and v <= min(MAX_VECTORS, -(-product.columns // each))
    ]
    return sorted(useful or [Tile(1, 1, lanes[0])], key=cycles)


def is_slim(target: Target, tile: Tile) -> bool:
    """Is it one of `SLIM_ROWS`, where they pay?"""
    is_widest = tile.lanes * 32 == target.vector_bits
    return target.multiplies_once and is_widest and tile.vectors == 1 and tile.rows in SLIM_ROWS


def _registers(instructions: InstructionSet, instruction: Instruction, r: int, v: int) -> int:
    """Vector registers of a tile: accumulators, a step's columns, a broadcast, and what products take on their way to be added.
    One row takes its columns from memory."""
    return (v + 2 if r == 1 else r * v + v + 1) + instruction.in_flight(instructions)


def _fitting(instructions: InstructionSet, instruction: Instruction) -> Iterator[tuple[int, int]]:
    """Tiles that fit the registers."""
    for r in range(1, instructions.registers):
        for v in range(1, instructions.registers):
            if _registers(instructions, instruction, r, v) <= instructions.registers:
                yield r, v

"""Which register tiles suit a product.

A tile is chosen by counting: multiply-adds, loads and latency bound the cycles of a step, the registers bound the tile, and rows
or columns that a tile computes twice at the edge count as work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from fusewise.codegen.cost import finish_cycles, line_cycles, matrix_cycles, matrix_finish, slim_cycles, step_cycles
from fusewise.codegen.instructions.table import DPBF16
from fusewise.codegen.nest.instruction import FUSED, Instruction
from fusewise.codegen.nest.tile import Tile
from fusewise.codegen.target import InstructionSet, Target
from fusewise.lower.task import RefusalReason
from fusewise.records import record

__all__ = [
    "SLIM_ROWS",
    "TiledProduct",
    "favourite_tiles",
    "is_slim",
    "lanes_for",
    "too_few_rows",
    "widths",
]

SLIM_ROWS = range(5, 11)
"""Rows of a tile that has one vector where a core begins one multiply-add of it in a cycle: it waits for none with so many sums,
each takes its row's scalar from memory itself, and what is made of the right operand for it takes half the room or less."""

MAX_VECTORS = 8
"""Widest tile, in vectors: beyond this a single row gains nothing."""


def lanes_for(instructions: InstructionSet, columns: int, element_bits: int = 32) -> int:
    """Lanes that suit this many columns: a full vector, or the next power of two when the columns do not fill one."""
    lanes = max(1, instructions.vector_bits // element_bits)
    while lanes > 1 and lanes // 2 >= columns:
        lanes //= 2
    return lanes


def widths(target: Target, columns: int, instruction: Instruction = FUSED) -> tuple[int, ...]:
    """Lanes worth trying for this many columns: those that suit, and half as many where they multiply as fast; or those that an
    instruction is made for."""
    if instruction.lanes:
        return (instruction.lanes,)
    element_bits = instruction.sum.bits
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
    figures, written, element_bits = target.figures.tile, product.written, product.instruction.sum.bits
    is_far, operand_bytes = written > target.l2_bytes, product.rows * product.depth * element_bits // 8
    is_near = max(written, operand_bytes) <= target.l2_bytes and written and product.depth >= figures.near_depth

    def cycles(tile: Tile) -> float:
        r, v, each = tile.rows, tile.vectors, tile.lanes
        vectors, bits = -(-product.columns // each), each * element_bits
        crossing = product.row_extent is not None and (product.row_extent % r != 0 or product.rows % r != 0)
        is_whole = r in figures.near_rows and product.rows % r == 0 and not crossing
        is_pairs = product.instruction.name == DPBF16.name
        if tile.instruction.matrix is not None:
            step = matrix_cycles(target, tile)
        elif is_near and is_whole and not is_pairs and is_slim(target, tile):
            step = slim_cycles(target, r * v, bits)
        else:
            tight = _is_tight(target, tile)
            step = step_cycles(target, r * v, r + v, bits, product.instruction.latency, tight)
        if is_pairs and v == 1 < r and target.multiplies_once:
            step *= figures.pairs
        if each < lanes[0]:
            step *= figures.narrow
        if product.depth * tile.width * 4 > target.l1_bytes // 2:
            step += line_cycles(target, tile.width * 4)
        finish = finish_cycles(target, r * v) if tile.instruction.matrix is None else matrix_finish(tile)
        once = finish + (2 * r if crossing else 0)
        run = figures.run * 2 / target.multiplies(bits) * r if is_far and v < vectors else 0
        return max(step * product.depth + once, run) * -(-product.rows // r) * -(-vectors // v) * waiting(tile)

    taken = product.instruction.rows
    useful = [
        Tile(r, v, each, product.instruction)
        for each in lanes
        for r, v in _fitting(target, product.instruction, each)
        if r <= max(taken, min(product.rows, product.max_rows)) and v <= min(MAX_VECTORS, -(-product.columns // each))
    ]
    return sorted(useful or [Tile(taken, 1, lanes[0], product.instruction)], key=cycles)


def too_few_rows(instruction: Instruction, rows: int) -> RefusalReason | None:
    """Why an instruction is none for a product of so many rows, if it takes more: the last tile ends at the last of them."""
    return RefusalReason(f"{instruction.name} takes more rows", f"{rows}") if rows < instruction.rows else None


def is_slim(target: Target, tile: Tile) -> bool:
    """Is it one of `SLIM_ROWS`, where they pay?"""
    is_widest = tile.lanes * 32 == target.vector_bits
    return target.multiplies_once and is_widest and tile.vectors == 1 and tile.rows in SLIM_ROWS


def _is_tight(target: Target, tile: Tile) -> bool:
    """Does a tile need nearly every register, and is scheduled worse?"""
    needed = _registers(target, tile.instruction, tile.rows, tile.vectors, tile.lanes)
    return needed > target.registers - target.registers // 16


def _registers(instructions: InstructionSet, instruction: Instruction, r: int, v: int, lanes: int) -> int:
    """Vector registers of a tile: accumulators, a step's columns, a broadcast, and what products take on their way to be added.
    One row takes its columns from memory."""
    sums = r // instruction.rows * v * instruction.registers(instructions, lanes)
    if instruction.matrix is not None:
        return sums + r // instruction.rows + 1
    return (sums + 2 if r == 1 else sums + v + 1) + instruction.in_flight(instructions)


def _fitting(instructions: InstructionSet, instruction: Instruction, lanes: int) -> Iterator[tuple[int, int]]:
    """Tiles that fit the registers."""
    for r in range(instruction.rows, instruction.rows * instructions.registers, instruction.rows):
        for v in range(1, instructions.registers):
            if _registers(instructions, instruction, r, v, lanes) > instructions.registers:
                break
            yield r, v

"""What a step of a register tile takes a core: the one price by which kernels choose among tiles.

A step multiplies, loads, and cannot add to a sum before what was added last has come; the longest of the three bounds it. On
top come what loads cost beside multiply-adds, and cache lines of a panel that the first level does not hold. All figures are the
target's.
"""

from __future__ import annotations

from fusewise.codegen.machine.figures import TileFigures
from fusewise.codegen.nest.instruction import FMA_LATENCY
from fusewise.codegen.nest.tile import Tile
from fusewise.codegen.target import LINE_BYTES, Target

__all__ = ["bound", "finish_cycles", "line_cycles", "matrix_cycles", "matrix_finish", "slim_cycles", "step_cycles"]


def bound(adding: float, loads: float, figures: TileFigures, latency: float = FMA_LATENCY) -> float:
    """Cycles that a step takes at least which adds for so many, and loads so often."""
    return max(adding, loads * figures.load, latency)


def step_cycles(
    target: Target,
    adds: float,
    loads: float,
    bits: int,
    latency: float = FMA_LATENCY,
    is_tight: bool = False,
    is_filled: bool = False,
) -> float:
    """Cycles of a step whose panel lies in the first cache level: of so many multiply-adds of vectors of `bits`, and loads of
    vectors, or of scalars into all lanes. A sum can be added to again after `latency` cycles. `is_tight`: nearly all registers are
    needed; `is_filled`: other work takes what an odd number of multiply-adds leaves."""
    figures, rate = target.figures.tile, target.multiplies(bits)
    odd = figures.odd * (adds % 2) if rate == 2 and not is_filled else 0
    cycles = bound(adds / rate + odd, loads, figures, latency) * (figures.tight if is_tight else 1.0)
    return cycles + target.figures.overhead.load * loads


def slim_cycles(target: Target, adds: float, bits: int) -> float:
    """The same of a slim tile, which takes scalars from memory where a core begins one multiply-add in a cycle."""
    return adds / target.multiplies(bits) * target.figures.tile.slim


def line_cycles(target: Target, nbytes: float) -> float:
    """Cycles lost in a step to so many bytes of a panel that come from the second cache level."""
    lines, figures = nbytes / LINE_BYTES, target.figures.overhead
    return figures.line * lines + figures.fourth * max(0.0, lines - 3)


def finish_cycles(target: Target, sums: int) -> float:
    """Cycles of beginning and ending a tile of so many sums: small ones finish while the next one has begun."""
    return 4 + target.figures.overhead.finish * max(0, sums - target.registers // 2)


def matrix_cycles(target: Target, tile: Tile) -> float:
    """The same of a stored lane of the reduction by a matrix unit, which multiplies while operands are loaded: once for each part,
    or columns for each product where there are not enough registers. A sum can be added to again after the latency."""
    instruction = tile.instruction
    form, rows = instruction.matrix, tile.rows // instruction.rows
    assert form is not None, "a matrix unit multiplies tiles"
    products = len(form.products)
    is_kept = form.unit.registers - rows * tile.vectors - rows >= tile.vectors
    loads = form.parts * rows + (form.parts if is_kept else products) * tile.vectors
    adding = max(products * rows * tile.vectors * form.unit.cycles, products * instruction.latency)
    cycles = max(adding, loads * form.unit.load_cycles) + target.figures.overhead.load * loads
    return cycles / instruction.steps


def matrix_finish(tile: Tile) -> float:
    """The same of beginning and ending such a tile, whose sums are loaded and stored."""
    form, sums = tile.instruction.matrix, tile.rows // tile.instruction.rows * tile.vectors
    assert form is not None, "a matrix unit multiplies tiles"
    return 4 + sums * (form.unit.load_cycles + form.unit.store_cycles)

"""What a step of a register tile takes a core: the one price by which kernels choose among tiles.

A step multiplies, loads, and cannot add to a sum before what was added last has come; the longest of the three bounds it. On top come
what loads cost beside multiply-adds, and cache lines of a panel that the first level does not hold. All figures are the target's.
"""

from __future__ import annotations

from fusewise.codegen.instructions.table import FMA_LATENCY
from fusewise.codegen.machine.figures import TileFigures
from fusewise.codegen.target import LINE_BYTES, Target
from fusewise.records import record

__all__ = ["TileStep", "bound", "finish_cycles", "line_cycles", "step_cycles"]


@record(frozen=True)
class TileStep:
    """`adds` multiply-adds of vectors of `bits`, and `loads` of vectors, or of scalars into all lanes. `latency` is how many cycles
    pass until a sum can be added to again; `is_tight` says that nearly all registers are needed, `is_slim` that it is a step of one
    vector at a time where a core begins one multiply-add in a cycle."""

    adds: float
    loads: float
    bits: int
    latency: float = FMA_LATENCY
    is_tight: bool = False
    is_slim: bool = False


def bound(adding: float, loads: float, latency: float, figures: TileFigures) -> float:
    """Cycles that a step takes at least which adds for so many, and loads so often."""
    return max(adding, loads * figures.load, latency)


def step_cycles(step: TileStep, target: Target) -> float:
    """Cycles of a step whose panel lies in the first cache level."""
    figures, rate = target.figures.tile, target.multiplies(step.bits)
    if step.is_slim:
        return step.adds / rate * figures.slim
    odd = figures.odd * (step.adds % 2) if rate == 2 else 0
    cycles = bound(step.adds / rate + odd, step.loads, step.latency, figures)
    return cycles * (figures.tight if step.is_tight else 1.0) + target.figures.overhead.load * step.loads


def line_cycles(nbytes: float, target: Target) -> float:
    """Cycles lost in a step to so many bytes of a panel that come from the second cache level."""
    lines, figures = nbytes / LINE_BYTES, target.figures.overhead
    return figures.line * lines + figures.fourth * max(0.0, lines - 3)


def finish_cycles(sums: int, target: Target) -> float:
    """Cycles of beginning and ending a tile of so many sums: small ones finish while the next one has begun."""
    return 4 + target.figures.overhead.finish * max(0, sums - target.registers // 2)

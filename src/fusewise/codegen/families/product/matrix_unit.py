"""Matrix products by a matrix unit: MatMul and Gemm of bfloat16, and of float32 in parts.

Rows of the left operand are copied a block of tiles at a time, in whole steps of the instruction (`product.tile_copy`); those that
lie so are read in place. A constant right operand is packed at compile time, others are copied by every worker. Float32 in parts
is of the numeric class reassociating: an error of about 2^-16 of each product, so not under `--exact`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np

from fusewise.codegen.families.product.in_parts import COPY_LANES, IS_ODD, FloatSums, is_in_parts, pack_in_parts
from fusewise.codegen.families.product.lanes import STEP, ComputedOperands
from fusewise.codegen.families.product.loops import Otherwise, Parts
from fusewise.codegen.families.product.matrix import PRODUCT, MatrixSchedule, Pack, arguments_by, note_of, write_by
from fusewise.codegen.families.product.places import Left
from fusewise.codegen.families.product.plan import SAME_SET_BYTES, cycles_of, merged, rows_apart, tiles_for
from fusewise.codegen.families.product.repack import repacked_elements
from fusewise.codegen.families.product.shape import MatrixProduct, in_lanes, understand
from fusewise.codegen.families.product.tile_copy import pitch_of, row_lanes
from fusewise.codegen.families.product.tiles import too_few_rows, widths
from fusewise.codegen.instructions.table import AMX_BF16, AMX_FP16, AMX_PARTS, DPBF16, PMADDWD, for_bytes
from fusewise.codegen.kernel import Kernel
from fusewise.codegen.llvm.entry import OpenFunction, written
from fusewise.codegen.llvm.plain import anchor_call, read_operand
from fusewise.codegen.nest.instruction import Instruction
from fusewise.codegen.nest.tile import Tile
from fusewise.codegen.nest.tree import Int, Value
from fusewise.codegen.packing import packed, panels
from fusewise.codegen.target import InstructionSet, Target
from fusewise.ir.deciding import hint, known_one
from fusewise.ir.dtypes import BFLOAT16, FLOAT32
from fusewise.ir.size import Size
from fusewise.lower.program import Packing
from fusewise.lower.task import Anchor, RefusalReason, Task
from fusewise.ops.contract import matmul_indices
from fusewise.ops.expr import Expr, index

__all__ = [
    "TILE_PRODUCTS",
    "by_unit",
    "copied_rows",
    "copied_to_tiles",
    "copy_cycles",
    "is_in_place",
    "lane_panels",
    "tile_product",
    "tiles_decline",
]

COPY_CYCLES, PLAIN_CYCLES, SCALAR_CYCLES = 6.0, 2.0, 2.0
"""Cycles that copying a vector of an operand takes about, in parts and as it is, and a number that has no neighbours: counted, not
measured."""

T = TypeVar("T")
S = TypeVar("S")

STRASSEN_SHARE = 7 / 8
"""Of the multiplications, what the fastest other way does of float32."""


def _understood(instruction: Instruction, task: Task, instructions: InstructionSet) -> MatrixProduct | RefusalReason:
    """The product by an instruction of a matrix unit, or why it is none."""
    m = understand(task, instructions)
    if isinstance(m, RefusalReason):
        return m
    if isinstance(m.product.depth, Size) or isinstance(m.product.columns, Size):
        return RefusalReason("how many steps or columns there are is not known")
    if m.dtype != instruction.left:
        return RefusalReason(f"not a product of {instruction.left.name}", m.dtype.name)
    if is_in_parts(instruction) and task.exact:
        return RefusalReason("exact")
    if m.product.depth == 0:
        return RefusalReason("nothing to add up")
    if m.alpha != 1.0 and m.right.operand.constant and not is_in_parts(instruction):
        return RefusalReason("the packed operand would have to be scaled")
    few = too_few_rows(instruction, m.product.height)
    if few is not None:
        return few
    found = in_lanes(m, instruction)
    return found if is_in_place(found) else copied_to_tiles(m, task, instruction)


def is_in_place(m: MatrixProduct | RefusalReason) -> bool:
    """Does the left operand lie in whole steps of the instruction, its rows at equal distances and not all in one set?"""
    if isinstance(m, RefusalReason) or is_in_parts(m.product.instruction):
        return False
    axes, instruction = merged(m.product.rows), m.product.instruction
    if len(axes) > 1 or isinstance(axes[0].stride, Size) or m.product.depth % instruction.steps:
        return False
    return axes[0].stride * instruction.lane.itemsize % SAME_SET_BYTES != 0


def copied_to_tiles(m: MatrixProduct, task: Task, instruction: Instruction) -> MatrixProduct:
    """The product of rows that are copied, and of columns that are packed or copied."""
    anchor = task.anchored
    left, right = _indices(anchor)
    computed = ComputedOperands(
        read_operand(anchor, 0, left),
        None if m.right.operand.constant else read_operand(anchor, 1, right),
        m.product.depth,
    )
    return copied_rows(m, computed, instruction)


def _indices(anchor: Anchor) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    """Where each operand has the factors of a result."""
    at = tuple(index(f"i{k}") for k in range(anchor.output.rank))
    if anchor.op != "Gemm":
        left, right, _ = matmul_indices(anchor_call(anchor), at)
        return left, right
    (line, column), k = at, index(STEP)
    left = (k, line) if anchor.attribute("transA", 0) else (line, k)
    return left, (column, k) if anchor.attribute("transB", 0) else (k, column)


def lane_panels(matrices: np.ndarray, tile: Tile, depth: int) -> np.ndarray:
    """Constants [..., steps, columns] in panels of so many lanes, as they are."""
    lanes = tile.instruction.pack(matrices.astype(tile.instruction.right.numpy, copy=False), -2)
    missing = ((0, 0),) * (lanes.ndim - 2) + ((0, depth - lanes.shape[-2]), (0, 0))
    return panels(np.pad(lanes, missing), tile.lanes, tile.vectors)


def _packing(m: MatrixProduct, tile: Tile) -> Packing:
    """A constant right operand in panels of whole steps of the instruction."""
    instruction, depth = tile.instruction, m.product.depth

    def arrange(matrices: np.ndarray) -> np.ndarray:
        if is_in_parts(instruction):
            return pack_in_parts(matrices * np.float32(m.alpha), tile, depth)
        return lane_panels(matrices, tile, depth)

    of = f"{instruction!r} alpha {m.alpha!r} to {depth} lanes"
    return packed(m.matrices, f"tiles of {of} in panels {tile.vectors}x{tile.lanes}", arrange)


def _parts(o: OpenFunction, m: MatrixProduct, schedule: MatrixSchedule, parts: Parts) -> Parts:
    """The loops, with another way for what cannot be multiplied in parts."""
    product, f = m.product, o.f
    if not is_in_parts(product.instruction):
        return parts
    note, lanes = note_of(o, m, schedule)
    copied = m.computed
    assert copied is not None, "numbers in parts are copied"
    row = row_lanes(copied, product.instruction)

    def odd(left: Left, outer: Sequence[Int]) -> tuple[Value, Value]:
        right = f.binary("and", f.load("i32", note), f.constant(IS_ODD, "i32"))
        return f.load("i32", f.at(left.pointer, row + 1, "i32")), right

    sums = FloatSums(f, o.instructions, copied.levels(product.depth), row, note, lanes + COPY_LANES)
    return replace(parts, otherwise=Otherwise(odd, sums.add))


Understand = Callable[[Instruction, Task, InstructionSet], MatrixProduct | RefusalReason]
"""`understand(instruction, task, instructions)`: the task as a product by an instruction."""


def _at_once(instruction: Instruction, target: Target) -> float:
    """Products that a core begins in a cycle by the fastest other way."""
    each = target.lanes * target.multiplies(target.vector_bits)
    if instruction.left == FLOAT32:
        return each / STRASSEN_SHARE
    if instruction.is_exact:
        return each * (for_bytes(target) or PMADDWD).terms
    return each * (DPBF16.terms if instruction.left == BFLOAT16 and DPBF16.is_native(target) else 1)


def tiles_decline(m: MatrixProduct, task: Task, target: Target, share: float = 1.0) -> RefusalReason | None:
    """Is it slower than multiply-adds, with all that is copied for it? Another way does only this `share` of them."""
    product, instruction = m.product, m.product.instruction
    tile = tiles_for(product, instruction.room(target), widths(target, product.columns, instruction))[0]
    room = target.l3_bytes // target.workers
    if not m.right.operand.constant and repacked_elements(product, tile) * tile.instruction.sum.itemsize > room:
        return RefusalReason("the right operand is too large for every worker to copy it")
    copies, steps = copy_cycles(m, target.vector_bits, target.workers), _steps(m)
    multiplications = product.repeats * product.results * product.groups * product.columns * steps
    if cycles_of(product, target, tile) + copies < multiplications / _at_once(instruction, target) * share:
        return None
    return RefusalReason("copies take longer than the products save")


def copy_cycles(m: MatrixProduct, vector_bits: int, workers: int = 1) -> float:
    """Cycles that copies of rows take, and those of the right operand, which each worker makes."""
    product, instruction, of, total = m.product, m.product.instruction, m.computed, 0.0
    vector = (COPY_CYCLES if is_in_parts(instruction) else PLAIN_CYCLES) / (vector_bits // instruction.left.bits)
    if of is not None:
        rows = product.height if of.shared is None else of.shared.count
        total += hint(rows) * of.depth * of.taps * (vector if known_one(m.depth_stride) else SCALAR_CYCLES)
    if not m.right.operand.constant:
        total += product.columns * workers * _steps(m) * (vector if known_one(m.right_column) else SCALAR_CYCLES)
    return total * hint(product.repeats)


def _steps(m: MatrixProduct) -> int:
    """Numbers that a result is added up of."""
    if m.computed is None or m.computed.shared is None:
        return m.depth * (1 if m.computed is None else m.computed.taps)
    *runs, _ = m.computed.shared.levels
    return math.prod(run.extent for run in runs) * m.depth // m.product.groups


def copied_rows(m: MatrixProduct, computed: ComputedOperands, instruction: Instruction) -> MatrixProduct:
    """The product of rows that are copied one behind the other."""
    lanes = row_lanes(computed, instruction)
    depth = math.prod(level.extent for level in computed.levels(lanes))
    rows = rows_apart(m.product.rows, pitch_of(lanes, instruction))
    product = replace(m.product, rows=rows, depth=depth, dtype=instruction.lane, instruction=instruction)
    return replace(m, product=product, computed=computed)


def tile_product(
    name: str, instruction: Instruction, understand: Understand = _understood, pack: Pack = _packing
) -> Kernel[MatrixProduct, MatrixSchedule]:
    """Products by an instruction of a matrix unit, of what `understand` makes of a task."""
    arguments = partial(arguments_by, pack)
    return replace(
        PRODUCT,
        name=name,
        understand=partial(understand, instruction),
        arguments=arguments,
        build=written(arguments, partial(write_by, _parts), overwrites=True),
        declines=tiles_decline,
    )


def by_unit(kernel: Kernel[T, S], instruction: Instruction) -> Kernel[T, S]:
    """The same on machines that have the instruction."""

    def understood(task: Task, instructions: InstructionSet) -> T | RefusalReason:
        if not instruction.is_native(instructions):
            return RefusalReason(f"the machine has no {instruction!r}")
        return kernel.understand(task, instructions)

    return replace(kernel, understand=understood)


TILE_PRODUCTS = (
    by_unit(tile_product("bfloat16-tiles", AMX_BF16), AMX_BF16),
    by_unit(tile_product("float16-tiles", AMX_FP16), AMX_FP16),
    by_unit(tile_product("float32-in-parts", AMX_PARTS), AMX_PARTS),
)
"""By the unit of the machine, each of another type."""

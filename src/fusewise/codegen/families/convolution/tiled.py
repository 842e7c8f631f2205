"""Convolutions by a matrix unit: products of windows, which are the rows, and output channels.

Windows are copied a block of tiles at a time (`product.tile_copy`), zeros where a tap is outside: each by itself, or what they
share once (`convolution.windows`), whichever is counted to take less. Windows of one pixel that lie so are read in place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from fusewise.codegen.families.convolution.shape import Convolution, convolution_of, integer_convolution_of
from fusewise.codegen.families.convolution.windows import product_of, windows_apart, windows_shared
from fusewise.codegen.families.product.byte_tiles import as_bytes, byte_tile_product, instruction_for, with_sums
from fusewise.codegen.families.product.in_parts import is_in_parts, pack_in_parts
from fusewise.codegen.families.product.matrix import MatrixSchedule
from fusewise.codegen.families.product.matrix_unit import (
    by_unit,
    copy_cycles,
    is_in_place,
    lane_panels,
    tile_product,
    tiles_decline,
)
from fusewise.codegen.families.product.shape import MatrixProduct, in_lanes
from fusewise.codegen.families.product.tiles import too_few_rows
from fusewise.codegen.instructions.table import AMX_BF16, AMX_FP16, AMX_INT8, AMX_PARTS
from fusewise.codegen.kernel import Kernel
from fusewise.codegen.nest.instruction import Instruction
from fusewise.codegen.nest.tile import Tile
from fusewise.codegen.packing import packed
from fusewise.codegen.target import InstructionSet, Target
from fusewise.ir.deciding import hint
from fusewise.ir.dtypes import FLOAT32, INT16
from fusewise.lower.program import Packing
from fusewise.lower.task import RefusalReason, Task

__all__ = ["BYTE_TILE_CONV", "TILE_CONVOLUTIONS", "WAYS", "Way", "byte_tile_convolution", "tile_convolution"]

WINOGRAD_TAPS, WINOGRAD_SHARE = range(3, 8), 1 / 3
"""Taps along both axes of windows a pixel apart, of whose multiplications Winograd's algorithm does about this share, transforms
among them."""


Way = Callable[[MatrixProduct, Convolution, Task, Instruction], MatrixProduct | RefusalReason]
"""`way(m, shape, task, instruction)`: the product of windows that are copied so, or why they are not."""

WAYS: tuple[Way, ...] = (windows_apart, windows_shared)


def _understood(
    ways: Sequence[Way], instruction: Instruction, task: Task, instructions: InstructionSet
) -> MatrixProduct | RefusalReason:
    """The convolution by an instruction of a matrix unit, or why it is none."""
    shape = convolution_of(task, (instruction.left,))
    if isinstance(shape, RefusalReason):
        return shape
    if shape.weight.operand.dtype != instruction.left:
        return RefusalReason(f"not a product of {instruction.left.name}", shape.weight.operand.dtype.name)
    if is_in_parts(instruction) and task.exact:
        return RefusalReason("exact")
    if shape.taps * shape.inputs == 0:
        return RefusalReason("nothing to add up")
    return _placed(ways, shape, task, instruction, instructions)


def _understood_bytes(
    ways: Sequence[Way], rows: Sequence[Instruction], task: Task, instructions: InstructionSet
) -> MatrixProduct | RefusalReason:
    """The convolution of bytes by the instruction for the signs of its operands, or why there is none."""
    shape = integer_convolution_of(task)
    if isinstance(shape, RefusalReason):
        return shape
    kinds = (shape.dtype, shape.weight.operand.dtype)
    instruction = instruction_for(rows, *kinds)
    if instruction is None:
        return RefusalReason("not bytes", " and ".join(kind.name for kind in kinds))
    if shape.taps * shape.inputs == 0:
        return RefusalReason("nothing to add up")
    if shape.weight.operand.dtype == INT16:
        return _wide(shape, task, instruction)
    return _placed(ways, shape, task, instruction, instructions)


def _wide(shape: Convolution, task: Task, instruction: Instruction) -> MatrixProduct | RefusalReason:
    """By weights that are no bytes without their zero point, so that a window has to have the sum of its numbers."""
    if shape.groups > 1:
        return RefusalReason("weights of groups that are not bytes")
    m = product_of(shape, task)
    return too_few_rows(instruction, m.product.height) or windows_apart(m, shape, task, instruction, summed=True)


def _placed(
    ways: Sequence[Way],
    shape: Convolution,
    task: Task,
    instruction: Instruction,
    instructions: InstructionSet,
) -> MatrixProduct | RefusalReason:
    """Read in place where windows of one pixel lie so, else copied."""
    form = instruction.matrix
    assert form is not None, "a matrix unit multiplies tiles"
    if shape.groups > 1 and (shape.inputs % (form.steps * instruction.terms) or is_in_parts(instruction)):
        return RefusalReason("the channels of a group do not fill blocks of the unit", str(shape.inputs))
    m = product_of(shape, task)
    few = too_few_rows(instruction, m.product.height)
    if few is not None:
        return few
    is_one = shape.groups == shape.taps == 1 and all(axis.is_inside for axis in shape.spatial)
    if is_one and shape.computed is None:
        found = in_lanes(m, instruction)
        if not isinstance(found, RefusalReason) and is_in_place(found):
            return found
    made = [way(m, shape, task, instruction) for way in ways]
    taken = [one for one in made if not isinstance(one, RefusalReason)]
    return min(taken, key=lambda one: _counted(one, instructions)) if taken else made[0]


def _counted(m: MatrixProduct, instructions: InstructionSet) -> float:
    """Cycles that copies and products take, of whole tiles."""
    product, form, row = m.product, m.product.instruction.matrix, m.product.instruction
    assert form is not None, "a matrix unit multiplies tiles"
    columns = product.groups * -(-product.columns // row.lanes) * hint(product.height)
    products = columns * product.depth / row.steps / row.rows * len(form.products)
    return products * form.unit.cycles + copy_cycles(m, instructions.vector_bits)


def _packing(m: MatrixProduct, tile: Tile) -> Packing:
    """Weights in panels, tap by tap, of each of which channels fill whole blocks; of bytes, with the sums of columns."""
    instruction, depth, groups = tile.instruction, m.product.depth, m.product.groups

    def arrange(weight: np.ndarray) -> np.ndarray:
        outputs, inputs, *taps = weight.shape
        by_tap = weight.reshape(groups, outputs // groups, inputs, -1).transpose(0, 3, 2, 1)
        numbers = depth * instruction.terms // (math.prod(taps) * (2 if is_in_parts(instruction) else 1))
        given = by_tap.reshape(groups, -1, outputs // groups)
        narrow, beside = as_bytes(given)
        by_tap = np.pad(narrow.reshape(by_tap.shape), ((0, 0), (0, 0), (0, numbers - inputs), (0, 0)))
        rows = by_tap.reshape(groups, -1, outputs // groups)
        if is_in_parts(instruction):
            return pack_in_parts(rows, tile, depth)
        if not instruction.is_exact:
            return lane_panels(rows, tile, depth)
        notes = (note.reshape(-1) for note in (given.sum(1, dtype=np.int32), beside))
        return with_sums(m, tile, lane_panels(rows, tile, depth), *notes)

    what = f"windows of {instruction!r} to {depth} lanes in {groups} groups of panels {tile.vectors}x{tile.lanes}"
    return packed(m.right, what, arrange)


def _declines(m: MatrixProduct, task: Task, target: Target) -> RefusalReason | None:
    window = () if m.computed is None else m.computed.window
    suits = [taps in WINOGRAD_TAPS and axis.stride == 1 for taps, axis in zip(m.right.shape[2:], window, strict=False)]
    is_theirs = m.product.instruction.left == FLOAT32 and len(suits) == 2 and all(suits)
    return tiles_decline(m, task, target, WINOGRAD_SHARE if is_theirs else 1.0)


def tile_convolution(
    name: str, instruction: Instruction, ways: Sequence[Way] = WAYS
) -> Kernel[MatrixProduct, MatrixSchedule]:
    """Convolutions by an instruction of a matrix unit, of windows that are copied in the cheapest of these ways."""
    return replace(tile_product(name, instruction, partial(_understood, ways), _packing), declines=_declines)


TILE_CONVOLUTIONS = (
    by_unit(tile_convolution("bfloat16-tiles-convolution", AMX_BF16), AMX_BF16),
    by_unit(tile_convolution("float16-tiles-convolution", AMX_FP16), AMX_FP16),
    by_unit(tile_convolution("float32-in-parts", AMX_PARTS), AMX_PARTS),
)
"""By the unit of the machine, each of another type."""


def byte_tile_convolution(
    name: str, rows: Sequence[Instruction], ways: Sequence[Way] = WAYS
) -> Kernel[MatrixProduct, MatrixSchedule]:
    """Convolutions of bytes, by the one of several instructions that is for their signs."""
    return byte_tile_product(name, rows, partial(_understood_bytes, ways), _packing)


BYTE_TILE_CONV = by_unit(byte_tile_convolution("byte-tiles-convolution", AMX_INT8), AMX_INT8[0])

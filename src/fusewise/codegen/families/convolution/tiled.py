"""Convolutions by a matrix unit: products of windows, which are the rows, and output channels.

A row is [tap][channel], every tap in whole blocks of the instruction; rows are copied a block of tiles at a time
(`product.tile_copy`), zeros where a tap is outside. Windows of one pixel that lie so are read in place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fusewise.codegen.families.convolution.shape import Convolution, convolution_of, integer_convolution_of
from fusewise.codegen.families.product.byte_tiles import byte_tile_product, with_sums
from fusewise.codegen.families.product.in_parts import is_in_parts, pack_in_parts
from fusewise.codegen.families.product.lanes import STEP, ComputedOperands, WindowAxis
from fusewise.codegen.families.product.matrix import MatrixSchedule
from fusewise.codegen.families.product.matrix_unit import (
    by_unit,
    copied_rows,
    is_in_place,
    lane_panels,
    tile_product,
    tiles_decline,
)
from fusewise.codegen.families.product.plan import Product, RowAxis
from fusewise.codegen.families.product.shape import MatrixProduct, in_lanes
from fusewise.codegen.families.product.tiles import too_few_rows
from fusewise.codegen.instructions.table import AMX_BF16, AMX_FP16, AMX_INT8, AMX_PARTS
from fusewise.codegen.kernel import Kernel
from fusewise.codegen.llvm.plain import read_operand, zero_point
from fusewise.codegen.llvm.stores import joined_axis
from fusewise.codegen.nest.instruction import Instruction
from fusewise.codegen.nest.tile import Tile
from fusewise.codegen.packing import packed
from fusewise.codegen.target import InstructionSet, Target
from fusewise.ir.dtypes import FLOAT32
from fusewise.lower.program import Packing
from fusewise.lower.task import RefusalReason, Task
from fusewise.ops.expr import cast, index

__all__ = ["BYTE_TILE_CONV", "TILE_CONVOLUTIONS", "byte_tile_convolution", "tile_convolution"]

WINOGRAD_TAPS, WINOGRAD_SHARE = range(3, 8), 1 / 3
"""Taps along both axes of windows a pixel apart, of whose multiplications Winograd's algorithm does about this share, transforms
among them."""


def _understood(instruction: Instruction, task: Task, instructions: InstructionSet) -> MatrixProduct | RefusalReason:
    """The convolution by an instruction of a matrix unit, or why it is none."""
    shape = convolution_of(task, (instruction.left,))
    if isinstance(shape, RefusalReason):
        return shape
    if shape.groups > 1 or shape.planar:
        return RefusalReason("channels do not lie side by side in one group")
    if shape.weight.operand.dtype != instruction.left:
        return RefusalReason(f"not a product of {instruction.left.name}", shape.weight.operand.dtype.name)
    if is_in_parts(instruction) and task.exact:
        return RefusalReason("exact")
    if shape.taps * shape.inputs == 0:
        return RefusalReason("nothing to add up")
    m = _product(shape, task)
    few = too_few_rows(instruction, m.product.height)
    if few is not None:
        return few
    return _placed(m, shape, task, instruction)


def _understood_bytes(
    rows: Sequence[Instruction], task: Task, instructions: InstructionSet
) -> MatrixProduct | RefusalReason:
    """The convolution of bytes by the instruction for the signs of its operands, or why there is none."""
    shape = integer_convolution_of(task)
    if isinstance(shape, RefusalReason):
        return shape
    kinds = (shape.dtype, shape.weight.operand.dtype)
    instruction = next((row for row in rows if (row.left, row.right) == kinds), None)
    if instruction is None:
        return RefusalReason("not bytes", " and ".join(kind.name for kind in kinds))
    if shape.groups > 1 or shape.planar or shape.taps * shape.inputs == 0:
        return RefusalReason("channels do not lie side by side in one group")
    m = _product(shape, task)
    return too_few_rows(instruction, m.product.height) or _placed(m, shape, task, instruction)


def _placed(m: MatrixProduct, shape: Convolution, task: Task, instruction: Instruction) -> MatrixProduct:
    """Read in place where windows of one pixel lie so, else copied."""
    if shape.computed is None and shape.taps == 1 and all(axis.is_inside for axis in shape.spatial):
        found = in_lanes(m, instruction)
        if not isinstance(found, RefusalReason) and is_in_place(found):
            return found
    return copied_rows(m, _windows(shape, task), instruction)


def _product(shape: Convolution, task: Task) -> MatrixProduct:
    """Its rows as the windows' first taps lie; the right operand is the weights as they are."""
    strides = shape.data.strides
    spatial = zip(shape.out_axes, shape.spatial, strides[2:], strict=True)
    rows = [
        RowAxis("i0", shape.batch, strides[0]),
        *(RowAxis(name, axis.out, axis.stride * by) for name, axis, by in spatial),
    ]
    product = Product(
        outer=(),
        rows=tuple(rows),
        column="i1",
        columns=shape.outputs,
        depth=shape.inputs,
        joined=joined_axis(task, [(axis.name, axis.extent) for axis in rows]),
        dtype=shape.dtype,
    )
    outputs, inputs = shape.weight.strides[:2]
    return MatrixProduct(product, shape.data, (), strides[1], shape.weight, (), inputs, outputs, shape.bias)


def _windows(shape: Convolution, task: Task) -> ComputedOperands:
    """The numbers of a window, in its places."""
    places = [f"p{k + 2}" for k in range(len(shape.spatial))]
    at = (index("i0"), index(STEP), *(index(name) for name in places))
    window = tuple(
        WindowAxis(row, place, axis.extent, axis.kernel, axis.stride, axis.dilation, axis.before)
        for row, place, axis in zip(shape.out_axes, places, shape.spatial, strict=True)
    )
    zero = zero_point(task.anchored) if shape.dtype.is_integer else None
    outside = None if zero is None else cast(zero, shape.dtype)
    return ComputedOperands(read_operand(task.anchored, 0, at), None, shape.inputs, window, outside)


def _packing(m: MatrixProduct, tile: Tile) -> Packing:
    """Weights in panels, tap by tap, of each of which channels fill whole blocks; of bytes, with the sums of columns."""
    instruction, depth = tile.instruction, m.product.depth

    def arrange(weight: np.ndarray) -> np.ndarray:
        outputs, inputs, *taps = weight.shape
        by_tap = weight.reshape(outputs, inputs, -1).transpose(2, 1, 0)
        numbers = depth * instruction.terms // (math.prod(taps) * (2 if is_in_parts(instruction) else 1))
        rows = np.pad(by_tap, ((0, 0), (0, numbers - inputs), (0, 0))).reshape(-1, outputs)
        if is_in_parts(instruction):
            return pack_in_parts(rows, tile, depth)
        found = lane_panels(rows, tile, depth)
        return with_sums(m, tile, found, rows.sum(0, dtype=np.int32)) if instruction.is_exact else found

    return packed(
        m.right, f"windows of {instruction!r} to {depth} lanes in panels {tile.vectors}x{tile.lanes}", arrange
    )


def _declines(m: MatrixProduct, task: Task, target: Target) -> RefusalReason | None:
    window = () if m.computed is None else m.computed.window
    suits = [axis.taps in WINOGRAD_TAPS and axis.stride == 1 for axis in window]
    is_theirs = m.product.instruction.left == FLOAT32 and len(suits) == 2 and all(suits)
    return tiles_decline(m, task, target, WINOGRAD_SHARE if is_theirs else 1.0)


def tile_convolution(name: str, instruction: Instruction) -> Kernel[MatrixProduct, MatrixSchedule]:
    """Convolutions by an instruction of a matrix unit."""
    return replace(tile_product(name, instruction, _understood, _packing), declines=_declines)


TILE_CONVOLUTIONS = (
    by_unit(tile_convolution("bfloat16-tiles-convolution", AMX_BF16), AMX_BF16),
    by_unit(tile_convolution("float16-tiles-convolution", AMX_FP16), AMX_FP16),
    by_unit(tile_convolution("float32-in-parts", AMX_PARTS), AMX_PARTS),
)
"""By the unit of the machine, each of another type."""


def byte_tile_convolution(name: str, rows: Sequence[Instruction]) -> Kernel[MatrixProduct, MatrixSchedule]:
    """Convolutions of bytes, by the one of several instructions that is for their signs."""
    return byte_tile_product(name, rows, _understood_bytes, _packing)


BYTE_TILE_CONV = by_unit(byte_tile_convolution("byte-tiles-convolution", AMX_INT8), AMX_INT8[0])

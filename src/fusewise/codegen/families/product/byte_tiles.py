"""Products of bytes by a matrix unit, summed exactly in 32 bits: MatMulInteger with constant weights around zero.

Either operand may be signed or not; each pair has an instruction. Bytes are read or copied as they are, around the zero point z of
the left operand, which is taken out of the sums:

    sum (x - z) * w  =  sum x * w  -  z * sum w

Behind its panels the right operand has the sums of its columns, which are what a tile begins with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from fusewise.codegen.families.product.integer import constant_around_zero, dense, integer_anchor
from fusewise.codegen.families.product.loops import Parts
from fusewise.codegen.families.product.matrix import PRODUCT, MatrixSchedule, Pack, arguments_by, write_by
from fusewise.codegen.families.product.matrix_unit import (
    by_unit,
    copied_to_tiles,
    is_in_place,
    lane_panels,
    tiles_decline,
)
from fusewise.codegen.families.product.places import flat_index
from fusewise.codegen.families.product.shape import MatrixProduct, in_lanes, matmul_of
from fusewise.codegen.families.product.tiles import too_few_rows
from fusewise.codegen.instructions.table import AMX_INT8
from fusewise.codegen.kernel import Kernel
from fusewise.codegen.llvm.entry import OpenFunction, written
from fusewise.codegen.llvm.plain import zero_point
from fusewise.codegen.nest.instruction import Instruction
from fusewise.codegen.nest.tile import Tile
from fusewise.codegen.nest.tree import Int, Value
from fusewise.codegen.packing import packed
from fusewise.codegen.target import InstructionSet
from fusewise.codegen.view import view_of
from fusewise.ir.dtypes import INT32
from fusewise.lower.program import Packing
from fusewise.lower.task import RefusalReason, Task
from fusewise.ops.expr import cast

__all__ = ["BYTE_TILES", "Understand", "byte_tile_product", "with_sums"]


def _understood(rows: Sequence[Instruction], task: Task, _: InstructionSet) -> MatrixProduct | RefusalReason:
    """The product by the instruction for the signs of its operands, or why there is none."""
    anchor = integer_anchor(task)
    if isinstance(anchor, RefusalReason):
        return anchor
    right, kinds = constant_around_zero(task, anchor), [kind.dtype for kind in anchor.inputs[:2] if kind is not None]
    if isinstance(right, RefusalReason):
        return right
    instruction = next((row for row in rows if [row.left, row.right] == kinds), None)
    if instruction is None:
        return RefusalReason("not bytes", " and ".join(kind.name for kind in kinds))
    if len(anchor.inputs) > 2 and anchor.inputs[2] is not None and anchor.inputs[2].size != 1:
        return RefusalReason("rows have zero points of their own")
    left = view_of(task, 0)
    m = matmul_of(task, dense(anchor.inputs[0]) if isinstance(left, RefusalReason) else left, right)
    few = too_few_rows(instruction, m.product.height)
    if few is not None:
        return few
    found = RefusalReason("copied") if isinstance(left, RefusalReason) else in_lanes(m, instruction)
    return (
        found if not isinstance(found, RefusalReason) and is_in_place(found) else copied_to_tiles(m, task, instruction)
    )


def with_sums(m: MatrixProduct, tile: Tile, panels: np.ndarray, sums: np.ndarray) -> np.ndarray:
    """Panels, and behind them the sums of columns [..., columns]: a vector of them at least."""
    missing = ((0, 0),) * (sums.ndim - 1) + ((0, _width(m, tile) - sums.shape[-1]),)
    return np.concatenate([panels.reshape(-1), np.pad(sums, missing).reshape(-1)])


def _width(m: MatrixProduct, tile: Tile) -> int:
    return (m.product.groups - 1) * m.product.columns + max(tile.lanes, m.product.columns)


def _packing(m: MatrixProduct, tile: Tile) -> Packing:
    """Panels of whole steps of the instruction, and then the sums of columns."""
    depth = m.product.depth

    def arrange(matrices: np.ndarray) -> np.ndarray:
        return with_sums(m, tile, lane_panels(matrices, tile, depth), matrices.sum(-2, dtype=np.int32))

    what = f"{tile.instruction!r} to {depth} lanes in panels {tile.vectors}x{tile.lanes}"
    return packed(m.matrices, f"tiles of {what} and sums of columns", arrange)


def around_zero(o: OpenFunction, m: MatrixProduct, schedule: MatrixSchedule, parts: Parts) -> Parts:
    """The loops, with sums that begin with what the zero point makes of them."""
    given = zero_point(o.task.anchored)
    if given is None:
        return parts
    f, product, tile = o.f, m.product, schedule.product.tile
    zero = o.elements.at({}).value(cast(given, INT32))
    panels = product.repeats * product.groups * -(-product.columns // tile.width)
    sums = f.at(o.pointers[m.right.operand.name], panels * product.depth * tile.width, "i32")
    extents = [extent for _, extent in product.outer]

    def start(outer: Sequence[Int], columns: Sequence[Int]) -> list[Value]:
        before, less = (
            f.mul(flat_index(f, outer, extents), _width(m, tile)),
            f.binary("sub", f.constant(0, "i32"), zero),
        )
        found = (f.load(tile.kind, f.at(sums, f.add(before, column), "i32")) for column in columns)
        return [f.binary("mul", total, f.splat(less, tile.lanes)) for total in found]

    return replace(parts, start=start)


Understand = Callable[[Sequence[Instruction], Task, InstructionSet], MatrixProduct | RefusalReason]
"""`understand(rows, task, instructions)`: the task as a product by one of several instructions."""


def byte_tile_product(
    name: str, rows: Sequence[Instruction], understand: Understand = _understood, pack: Pack = _packing
) -> Kernel[MatrixProduct, MatrixSchedule]:
    """Products by the one of several instructions that is for the signs of the operands, of what `understand` makes of a task."""
    arguments = partial(arguments_by, pack)
    return replace(
        PRODUCT,
        name=name,
        understand=partial(understand, rows),
        arguments=arguments,
        build=written(arguments, partial(write_by, around_zero), overwrites=True),
        declines=tiles_decline,
    )


BYTE_TILES = by_unit(byte_tile_product("byte-tiles", AMX_INT8), AMX_INT8[0])
"""By the unit of the machine."""

"""Products of bytes by a matrix unit, summed exactly in 32 bits: MatMulInteger, of constant weights or not.

Either operand may be signed or not; each pair has an instruction. Bytes are read or copied as they are, around the zero points z of
the left operand and u of a column of the right one, which are taken out of the sums:

    sum (x - z) * (w - u)  =  sum x * w  -  u * sum x  -  z * sum (w - u)

Behind its panels the right operand has the sums of its columns, and -u; sums of rows are noted as these are copied. Both are what a
tile begins with. Constant weights whose zero point is taken from them already, and that are no bytes then, are packed as signed
bytes and a number for each column, which is as good as -u.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from fusewise.codegen.families.product.integer import constant_around_zero, dense, integer_anchor, names_in
from fusewise.codegen.families.product.lanes import STEP, ComputedOperands
from fusewise.codegen.families.product.loops import Parts
from fusewise.codegen.families.product.matrix import PRODUCT, MatrixSchedule, Pack, arguments_by, write_by
from fusewise.codegen.families.product.matrix_unit import (
    by_unit,
    copied_rows,
    copied_to_tiles,
    is_in_place,
    lane_panels,
    tiles_decline,
)
from fusewise.codegen.families.product.places import Left, flat_index
from fusewise.codegen.families.product.results import ResultPlace
from fusewise.codegen.families.product.shape import MatrixProduct, in_lanes, matmul_of
from fusewise.codegen.families.product.tile_copy import noted_width, row_lanes
from fusewise.codegen.families.product.tiles import too_few_rows
from fusewise.codegen.instructions.table import AMX_INT8
from fusewise.codegen.kernel import Kernel
from fusewise.codegen.llvm.entry import OpenFunction, written
from fusewise.codegen.llvm.plain import element_of_anchor, zero_point
from fusewise.codegen.nest.instruction import Instruction
from fusewise.codegen.nest.tile import Tile
from fusewise.codegen.nest.tree import Int, Value
from fusewise.codegen.packing import packed
from fusewise.codegen.target import InstructionSet
from fusewise.codegen.view import view_of
from fusewise.ir.dtypes import INT8, INT16, INT32, DType
from fusewise.lower.program import Packing
from fusewise.lower.task import Anchor, RefusalReason, Task
from fusewise.ops.expr import Expr, cast, index

__all__ = [
    "BYTE_TILES",
    "Understand",
    "around_zero",
    "as_bytes",
    "byte_tile_product",
    "instruction_for",
    "packing_with_sums",
    "with_sums",
]


def _understood(rows: Sequence[Instruction], task: Task, _: InstructionSet) -> MatrixProduct | RefusalReason:
    """The product by the instruction for the signs of its operands, or why there is none."""
    anchor = integer_anchor(task)
    if isinstance(anchor, RefusalReason):
        return anchor
    right, kinds = constant_around_zero(task, anchor), [kind.dtype for kind in anchor.inputs[:2] if kind is not None]
    is_wide = kinds[1] == INT16
    instruction = instruction_for(rows, *kinds)
    if instruction is None:
        return RefusalReason("not bytes", " and ".join(kind.name for kind in kinds))
    if len(anchor.inputs) > 2 and anchor.inputs[2] is not None and anchor.inputs[2].size != 1:
        return RefusalReason("rows have zero points of their own")
    if isinstance(right, RefusalReason) and is_wide:
        return right
    left = view_of(task, 0)
    view = dense(anchor.inputs[1]) if isinstance(right, RefusalReason) else right
    m = matmul_of(task, dense(anchor.inputs[0]) if isinstance(left, RefusalReason) else left, view)
    few = too_few_rows(instruction, m.product.height)
    if few is not None:
        return few
    if isinstance(right, RefusalReason) or is_wide:
        return _around_columns(m, anchor, instruction)
    found = RefusalReason("copied") if isinstance(left, RefusalReason) else in_lanes(m, instruction)
    return (
        found if not isinstance(found, RefusalReason) and is_in_place(found) else copied_to_tiles(m, task, instruction)
    )


def instruction_for(rows: Sequence[Instruction], left: DType, right: DType) -> Instruction | None:
    """The one for operands of these types. Wide numbers are signed bytes and a number for each column."""
    narrow = INT8 if right == INT16 else right
    return next((row for row in rows if (row.left, row.right) == (left, narrow)), None)


def _around_columns(m: MatrixProduct, anchor: Anchor, instruction: Instruction) -> MatrixProduct | RefusalReason:
    """The product with a right operand around a zero point, constant or not: bytes, and what is taken from a column of them."""
    sums = element_of_anchor(anchor, tuple(index(f"i{k}") for k in range(anchor.output.rank)))
    if sums is None or sums.op != "reduce" or sums.args[0].op != "mul":
        return RefusalReason("no sum of products")
    ((_, depth),) = sums.value[1]
    (left, _), (right, zero) = (_taken_apart(factor) for factor in sums.args[0].args)
    if left is None or right is None:
        return RefusalReason("no bytes less a zero point")
    outer = {name for name, _ in m.product.outer}
    rows, columns = outer | {axis.name for axis in m.product.rows} | {STEP}, outer | {m.product.column}
    if not (names_in(left) <= rows and names_in(right) <= columns | {STEP} and names_in(zero) <= columns):
        return RefusalReason("a zero point varies where its operand does not")
    is_constant = m.right.operand.constant
    if is_constant:
        right, zero = None, None
    summed = is_constant or zero is not None or zero_point(anchor) is not None
    return copied_rows(m, ComputedOperands(left, right, depth, summed=summed, zero=zero), instruction)


def _taken_apart(factor: Expr) -> tuple[Expr | None, Expr | None]:
    """Bytes and their zero point, which the definition takes from them in 32 bits."""
    wide, zero = factor.args if factor.op == "sub" else (factor, None)
    return (wide.args[0] if wide.op == "cast" and wide.dtype == INT32 else None), zero


def as_bytes(matrices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Numbers [..., steps, columns] as signed bytes, and what each column [..., columns] has beside them: wide ones are
    bytes less a number, the same for a column."""
    if matrices.dtype != np.int16:
        return matrices, np.zeros((*matrices.shape[:-2], matrices.shape[-1]), np.int32)
    beside = matrices.min(-2).astype(np.int32) + 128
    return (matrices - beside[..., None, :]).astype(np.int8), beside


def with_sums(m: MatrixProduct, tile: Tile, panels: np.ndarray, *notes: np.ndarray) -> np.ndarray:
    """Panels, and behind them what is noted of columns [..., columns]: of a vector of them at least."""
    width = noted_width(m.product, tile)
    padded = (np.pad(note, ((0, 0),) * (note.ndim - 1) + ((0, width - note.shape[-1]),)) for note in notes)
    return np.concatenate([panels.reshape(-1).view(np.int32), *(note.astype(np.int32).reshape(-1) for note in padded)])


def packing_with_sums(m: MatrixProduct, tile: Tile) -> Packing:
    """Panels of whole steps of the instruction, then the sums of columns, and what they have beside bytes."""
    depth = m.product.depth

    def arrange(matrices: np.ndarray) -> np.ndarray:
        narrow, beside = as_bytes(matrices)
        return with_sums(m, tile, lane_panels(narrow, tile, depth), matrices.sum(-2, dtype=np.int32), beside)

    what = f"{tile.instruction!r} to {depth} lanes in panels {tile.vectors}x{tile.lanes}"
    return packed(m.matrices, f"tiles of {what} and sums of columns", arrange)


def around_zero(o: OpenFunction, m: MatrixProduct, schedule: MatrixSchedule, parts: Parts) -> Parts:
    """The loops, with sums that begin with what the zero points make of them."""
    given, summed = zero_point(o.task.anchored), m.computed is not None and m.computed.summed
    if given is None and not summed:
        return parts
    f, product, tile, width = o.f, m.product, schedule.product.tile, noted_width(m.product, schedule.product.tile)
    zero = f.constant(0, "i32") if given is None else o.elements.at({}).value(cast(given, INT32))
    is_copied = schedule.right == "repacked"
    repeats = 1 if is_copied else product.repeats
    panels = repeats * product.groups * -(-product.columns // tile.width)
    notes = o.scratch() if is_copied else o.pointers[m.right.operand.name]
    sums = f.at(notes, panels * product.depth * tile.width, tile.instruction.panel_element)
    extents = [extent for _, extent in product.outer]

    def noted(outer: Sequence[Int], columns: Sequence[Int], beside: bool) -> list[Value]:
        before: Int = 0 if is_copied else f.mul(flat_index(f, outer, extents), width)
        first = f.at(sums, repeats * width * beside, "i32")
        return [f.load(tile.kind, f.at(first, f.add(before, column), "i32")) for column in columns]

    def start(outer: Sequence[Int], columns: Sequence[Int]) -> list[Value]:
        less = f.splat(f.binary("sub", f.constant(0, "i32"), zero), tile.lanes)
        return [f.binary("mul", total, less) for total in noted(outer, columns, False)]

    def of_row(left: Left, row: Int, results: ResultPlace) -> list[Value]:
        assert m.computed is not None, "rows with sums are copied"
        lanes = row_lanes(m.computed, product.instruction)
        at = f.add(f.add(left.offset, f.mul(row, product.rows[-1].stride)), lanes)
        total = f.splat(f.load("i32", f.at(left.pointer, at, "i32")), tile.lanes)
        return [f.binary("mul", beside, total) for beside in noted(results.outer, results.columns, True)]

    return replace(parts, start=start, of_row=of_row if summed else None)


Understand = Callable[[Sequence[Instruction], Task, InstructionSet], MatrixProduct | RefusalReason]
"""`understand(rows, task, instructions)`: the task as a product by one of several instructions."""


def byte_tile_product(
    name: str, rows: Sequence[Instruction], understand: Understand = _understood, pack: Pack = packing_with_sums
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

"""Products of 8-bit integers, summed exactly in 32 bits: MatMulInteger by instructions of several terms.

Where the machine multiplies unsigned by signed bytes and the right operand is a constant matrix, four neighbours of the reduction
are a lane (`product.bytes`): unsigned left operands are read in place where their rows lie so, others are copied, signed ones with
128 added. All others are products of pairs of 16-bit numbers less their zero points, whatever these are one for: left operands are
copied, right operands packed at compile time where they are constant around zero, else copied into panels.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

import numpy as np

from fusewise.codegen.families.product.bytes import (
    LEAST_LANES,
    by_bytes,
    byte_panels,
    byte_tiles,
    unsigned,
    unsigned_zero,
)
from fusewise.codegen.families.product.lanes import STEP, ComputedOperands
from fusewise.codegen.families.product.loops import Parts
from fusewise.codegen.families.product.matrix import MatrixSchedule, arguments_by, product_by, write_by
from fusewise.codegen.families.product.plan import plan_product, prefetched, rows_apart
from fusewise.codegen.families.product.shape import MatrixProduct, in_lanes, matmul_of
from fusewise.codegen.families.product.tiles import lanes_for
from fusewise.codegen.instructions.table import PMADDWD, for_bytes
from fusewise.codegen.kernel import Kernel
from fusewise.codegen.llvm.entry import OpenFunction, written
from fusewise.codegen.llvm.plain import anchor_call, element_of_anchor, read_operand
from fusewise.codegen.llvm.stores import reads
from fusewise.codegen.nest.instruction import Instruction
from fusewise.codegen.nest.tile import Tile
from fusewise.codegen.target import InstructionSet, Target
from fusewise.codegen.view import OperandView, view_of
from fusewise.ir.dtypes import INT8, INT16, UINT8
from fusewise.ir.types import TensorType
from fusewise.lower.program import Packing
from fusewise.lower.task import Anchor, Operand, RefusalReason, Task
from fusewise.ops.contract import matmul_indices
from fusewise.ops.expr import Expr, cast, index, walk

__all__ = ["BYTE_PRODUCT", "INTEGER_PRODUCT", "constant_around_zero", "copied", "dense", "integer_anchor", "names_in"]

LEAST_ROWS = 5
"""Rows from which on a right operand is copied: of what the definition reads for each row, a byte, a copy reads one, writes two and
reads them again."""


def integer_anchor(task: Task) -> Anchor | RefusalReason:
    """The product of integers at the anchor, or why it is none."""
    anchor = task.anchor
    if anchor is None or anchor.op != "MatMulInteger":
        return RefusalReason("no MatMulInteger at the anchor")
    left, right = anchor.inputs[:2]
    if left is None or right is None or left.dtype not in (INT8, UINT8) or right.dtype not in (INT8, UINT8, INT16):
        return RefusalReason("element type has no product of integers", f"{left} and {right}")
    return RefusalReason("nothing to add up") if 0 in left.dims else anchor


def constant_around_zero(task: Task, anchor: Anchor) -> OperandView | RefusalReason:
    """The right operand as a constant around zero, or why it is none."""
    right = view_of(task, 1)
    if isinstance(right, RefusalReason):
        return right
    if len(anchor.inputs) > 3 and anchor.inputs[3] is not None:
        return RefusalReason("the right operand has a zero point")
    if not right.operand.constant:
        return RefusalReason("the right operand is not constant", right.operand.name)
    if reads(task, right.operand.name) or any(right.operand.name == name for name in _loaded(anchor.prologue[0])):
        return RefusalReason("the packed operand is also read otherwise", right.operand.name)
    return right


def _loaded(element: Expr | None) -> Iterable[str]:
    return () if element is None else (str(e.value) for e in walk(element) if e.op == "load")


def dense(kind: TensorType | None) -> OperandView:
    """Stands for an operand that is copied."""
    assert kind is not None
    strides = tuple(int(np.prod(kind.dims[k + 1 :])) for k in range(kind.rank))
    return OperandView(Operand("computed", kind.dtype, kind.dims, strides), kind.dims, strides, 0)


def copied(
    task: Task, anchor: Anchor, right: OperandView, instruction: Instruction, computed: ComputedOperands
) -> MatrixProduct | RefusalReason:
    """The product with rows of the left operand one behind the other, in lanes."""
    m = matmul_of(task, dense(anchor.inputs[0]), right)
    depth = -(-computed.depth // instruction.terms)
    rows = rows_apart(m.product.rows, depth)
    product = replace(m.product, rows=rows, depth=depth, dtype=instruction.lane, instruction=instruction)
    outer = {name for name, _ in product.outer}
    left_names, right_names = outer | {axis.name for axis in rows}, outer | {product.column}
    if not (names_in(computed.left) <= left_names | {STEP} and names_in(computed.right) <= right_names | {STEP}):
        return RefusalReason("a zero point varies where its operand does not")
    return replace(m, product=product, depth_stride=1, computed=computed)


def names_in(element: Expr | None) -> set[str]:
    """The index variables of an element."""
    return set() if element is None else {str(e.value) for e in walk(element) if e.op == "index"}


def _pairs(instruction: Instruction, task: Task, instructions: InstructionSet) -> MatrixProduct | RefusalReason:
    """The product of numbers less their zero points, as the operator's definition takes them."""
    anchor = integer_anchor(task)
    if isinstance(anchor, RefusalReason):
        return anchor
    sums = element_of_anchor(anchor, tuple(index(f"i{k}") for k in range(anchor.output.rank)))
    if sums is None or sums.op != "reduce" or sums.args[0].op != "mul":
        return RefusalReason("no sum of products")
    ((_, depth),) = sums.value[1]
    left, right = (cast(factor, INT16) for factor in sums.args[0].args)
    packed = constant_around_zero(task, anchor)
    view = dense(anchor.inputs[1]) if isinstance(packed, RefusalReason) else packed
    return copied(task, anchor, view, instruction, ComputedOperands(left, right, depth))


def _bytes(task: Task, instructions: InstructionSet) -> MatrixProduct | RefusalReason:
    instruction, anchor = for_bytes(instructions), integer_anchor(task)
    if instruction is None:
        return RefusalReason("the machine has no products of unsigned and signed bytes")
    if isinstance(anchor, RefusalReason):
        return anchor
    right, (data, weights) = constant_around_zero(task, anchor), anchor.inputs[:2]
    if isinstance(right, RefusalReason):
        return right
    assert data is not None and weights is not None
    if weights.dtype == UINT8 or weights.rank != 2:
        return RefusalReason("not a matrix of signed numbers")
    if len(anchor.inputs) > 2 and anchor.inputs[2] is not None and anchor.inputs[2].size != 1:
        return RefusalReason("rows have zero points of their own")
    if lanes_for(instructions, weights.dims[1]) < LEAST_LANES:
        return RefusalReason("too few columns for a vector")
    left = view_of(task, 0)
    if not isinstance(left, RefusalReason):
        found = in_lanes(matmul_of(task, left, right), instruction)
        if not isinstance(found, RefusalReason):
            return found
    at = tuple(index(f"i{k}") for k in range(anchor.output.rank))
    into, _, depth = matmul_indices(anchor_call(anchor), at)
    element = unsigned(read_operand(anchor, 0, into))
    return copied(task, anchor, right, instruction, ComputedOperands(element, None, depth))


def _byte_schedules(m: MatrixProduct, task: Task, target: Target) -> Iterable[MatrixSchedule]:
    row_bytes, right_bytes = m.product.depth * 4, m.product.depth * m.product.columns * 6
    for tile in byte_tiles(m.product, target)[:6]:
        schedule = plan_product(m.product, target, tile, row_bytes, right_bytes)
        yield MatrixSchedule(prefetched(schedule, m.product, task, target), "packed")


def _byte_packing(m: MatrixProduct, tile: Tile) -> Packing:
    places = np.arange(m.product.depth, dtype=np.int32)
    return byte_panels(m.matrices, "of rows", lambda matrix: m.product.instruction.pack(matrix, -2), places, tile)


def _byte_parts(o: OpenFunction, m: MatrixProduct, schedule: MatrixSchedule, parts: Parts) -> Parts:
    elements, tile = o.elements, schedule.product.tile
    zero = elements.at({}).value(unsigned_zero(elements.task.anchored))
    return by_bytes(elements, m.product, tile, elements.pointers[m.right.operand.name], zero, parts)


BYTE_PRODUCT = Kernel(
    "byte-product",
    _bytes,
    _byte_schedules,
    partial(arguments_by, _byte_packing),
    written(partial(arguments_by, _byte_packing), partial(write_by, _byte_parts)),
)


def _declines(m: MatrixProduct, task: Task, target: Target) -> RefusalReason | None:
    is_copied = not m.right.operand.constant and m.product.height < LEAST_ROWS
    return RefusalReason("too few rows for a copy of the right operand") if is_copied else None


INTEGER_PRODUCT = replace(product_by("integer-product", PMADDWD, _pairs), declines=_declines)

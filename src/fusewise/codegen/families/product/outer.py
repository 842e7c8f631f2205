"""Products by instructions that take several rows at a time: AArch64's, of bfloat16 and of bytes.

They are the products that other instructions of several terms make, in lanes of 64 bits: four bfloat16, or eight bytes around the
zero point of the left operand, which sums begin with as those of a matrix unit do (`product.byte_tiles`). Rows that lie so are read
in place, others copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from fusewise.codegen.families.product.byte_tiles import Understand, around_zero, packing_with_sums
from fusewise.codegen.families.product.integer import constant_around_zero, copied, integer_anchor
from fusewise.codegen.families.product.lanes import ComputedOperands
from fusewise.codegen.families.product.matrix import (
    PRODUCT,
    MatrixSchedule,
    arguments_by,
    of_terms,
    product_by,
    write_by,
)
from fusewise.codegen.families.product.matrix_unit import by_unit
from fusewise.codegen.families.product.pairs import copied_terms, too_few_to_copy
from fusewise.codegen.families.product.shape import MatrixProduct, in_lanes, matmul_of
from fusewise.codegen.families.product.tiles import too_few_rows
from fusewise.codegen.instructions.table import BFMMLA, MMLA
from fusewise.codegen.kernel import Kernel
from fusewise.codegen.llvm.entry import written
from fusewise.codegen.llvm.plain import anchor_call, read_operand
from fusewise.codegen.nest.instruction import Instruction
from fusewise.codegen.target import InstructionSet
from fusewise.codegen.view import view_of
from fusewise.lower.task import RefusalReason, Task
from fusewise.ops.contract import matmul_indices
from fusewise.ops.expr import index

__all__ = ["OUTER_BYTES", "OUTER_FLOATS", "outer_bytes", "outer_floats"]


def _floats(instruction: Instruction, task: Task, instructions: InstructionSet) -> MatrixProduct | RefusalReason:
    """The product of bfloat16 as they lie, or copied, or why it is none."""
    found = of_terms(instruction, task, instructions)
    return copied_terms(found, instruction, task, instructions) if isinstance(found, RefusalReason) else found


def outer_floats(name: str, instruction: Instruction) -> Kernel[MatrixProduct, MatrixSchedule]:
    """Products by an instruction of floats."""
    return replace(product_by(name, instruction, _floats), declines=too_few_to_copy)


def _bytes(rows: Sequence[Instruction], task: Task, instructions: InstructionSet) -> MatrixProduct | RefusalReason:
    """The product by the instruction for the signs of its operands, or why there is none."""
    anchor = integer_anchor(task)
    if isinstance(anchor, RefusalReason):
        return anchor
    right, kinds = constant_around_zero(task, anchor), [kind.dtype for kind in anchor.inputs[:2] if kind is not None]
    if isinstance(right, RefusalReason):
        return right
    instruction = next((row for row in rows if [row.left, row.right] == kinds), None)
    if instruction is None:
        return RefusalReason("no instruction for", " and ".join(kind.name for kind in kinds))
    if len(anchor.inputs) > 2 and anchor.inputs[2] is not None and anchor.inputs[2].size != 1:
        return RefusalReason("rows have zero points of their own")
    left = view_of(task, 0)
    found = left if isinstance(left, RefusalReason) else in_lanes(matmul_of(task, left, right), instruction)
    if isinstance(found, RefusalReason):
        into, _, depth = matmul_indices(anchor_call(anchor), tuple(index(f"i{k}") for k in range(anchor.output.rank)))
        of = ComputedOperands(read_operand(anchor, 0, into), None, depth)
        found = copied(task, anchor, right, instruction, of)
    if isinstance(found, RefusalReason):
        return found
    return too_few_rows(instruction, found.product.height) or found


def outer_bytes(
    name: str, rows: Sequence[Instruction], understand: Understand = _bytes
) -> Kernel[MatrixProduct, MatrixSchedule]:
    """Products by the one of several instructions that is for the signs of the operands."""
    arguments = partial(arguments_by, packing_with_sums)
    return replace(
        PRODUCT,
        name=name,
        understand=partial(understand, rows),
        arguments=arguments,
        build=written(arguments, partial(write_by, around_zero)),
    )


OUTER_FLOATS = by_unit(outer_floats("bfloat16-outer-product", BFMMLA), BFMMLA)

OUTER_BYTES = by_unit(outer_bytes("byte-outer-product", MMLA), MMLA[0])

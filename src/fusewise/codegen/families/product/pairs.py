"""Products of bfloat16 by pairs: two steps of the reduction at once.

Rows whose neighbours lie in pairs are read in place, beside a constant matrix. Where the machine has the instruction, other
operands of a MatMul are copied so: rows of an odd depth or at other distances, and right operands that are known only while
running, by every worker into panels.
"""

from __future__ import annotations

import math
from dataclasses import replace

from fusewise.codegen.families.product.integer import copied, dense
from fusewise.codegen.families.product.lanes import ComputedOperands
from fusewise.codegen.families.product.matrix import of_terms, product_by
from fusewise.codegen.families.product.shape import MatrixProduct, understand
from fusewise.codegen.instructions.table import DPBF16
from fusewise.codegen.llvm.plain import element_of_anchor
from fusewise.codegen.nest.instruction import Instruction
from fusewise.codegen.target import InstructionSet, Target
from fusewise.lower.task import RefusalReason, Task
from fusewise.ops.expr import index

__all__ = ["PAIRS", "copied_terms", "too_few_to_copy"]

LEAST_ROWS = 8
"""Rows for each worker from which on a right operand is copied, by all of them: chosen."""


def _pairs(instruction: Instruction, task: Task, instructions: InstructionSet) -> MatrixProduct | RefusalReason:
    """The product of pairs as they lie, or copied so; or why it is none."""
    found = of_terms(instruction, task, instructions)
    if not isinstance(found, RefusalReason) or not instruction.is_native(instructions):
        return found
    return copied_terms(found, instruction, task, instructions)


def copied_terms(
    found: RefusalReason, instruction: Instruction, task: Task, instructions: InstructionSet
) -> MatrixProduct | RefusalReason:
    """The product of operands that are copied, as they do not lie in lanes for the reason that was `found`, or that."""
    m, anchor = understand(task, instructions), task.anchor
    if isinstance(m, RefusalReason) or anchor is None or anchor.op != "MatMul" or not task.is_fixed:
        return found
    is_constant, ranks = m.right.operand.constant, (len(m.left.shape), len(m.right.shape))
    if m.left.operand.dtype != instruction.left or min(ranks) < 2 or 0 in m.left.shape:
        return found
    element = element_of_anchor(anchor, tuple(index(f"i{k}") for k in range(anchor.output.rank)))
    sums = element if element is None or element.op != "cast" else element.args[0]
    if sums is None or sums.op != "reduce" or sums.args[0].op != "mul" or not sums.args[0].args:
        return found
    factors = [factor.args[0] for factor in sums.args[0].args if factor.op == "cast"]
    if len(factors) != 2 or any(factor.dtype != instruction.left for factor in factors):
        return found
    ((_, depth),) = sums.value[1]
    right = m.right if is_constant else dense(anchor.inputs[1])
    return copied(task, anchor, right, instruction, ComputedOperands(factors[0], factors[1], depth))


def too_few_to_copy(m: MatrixProduct, task: Task, target: Target) -> RefusalReason | None:
    """Are there fewer rows than pay for copies of a right operand?"""
    rows = m.product.height * math.prod(extent for _, extent in m.product.outer)
    if m.computed is None or m.right.operand.constant or rows >= LEAST_ROWS * target.workers:
        return None
    return RefusalReason("too few rows for every worker to copy the right operand", str(rows))


PAIRS = replace(product_by("bfloat16-product", DPBF16, _pairs), declines=too_few_to_copy)

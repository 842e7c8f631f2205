"""The instructions that reductions are made of beside the fused multiply-add, as rows (`nest.instruction`).

The register tile and the families around it take a row as it is. What a machine does not have is written with other instructions.
"""

from __future__ import annotations

from dataclasses import replace

from fusewise.codegen.instructions.byte_products import add_quads, add_quads_by_pairs, has_quads, sums_in_one
from fusewise.codegen.instructions.pair_products import (
    add_bfloat_products,
    add_bfloats_apart,
    add_pairs,
    add_pairs_apart,
    has_bfloat_products,
    has_pair_products,
)
from fusewise.codegen.nest.instruction import FUSED, FUSED_DOUBLE, Instruction
from fusewise.codegen.target import InstructionSet
from fusewise.codegen.view import OperandView
from fusewise.ir.dtypes import BFLOAT16, FLOAT32, INT8, INT16, INT32, UINT8, DType
from fusewise.lower.task import RefusalReason

__all__ = [
    "DPBF16",
    "INSTRUCTIONS",
    "MADDUBS",
    "PMADDWD",
    "VPDPBUSD",
    "for_bytes",
    "lanes_of",
]


def lanes_of(view: OperandView, axis: int, instruction: Instruction) -> OperandView | RefusalReason:
    """A view as one of lanes along an axis, or why its neighbours along it are none."""
    operand, strides, terms = view.operand, view.strides, instruction.terms
    if operand.dtype != instruction.left:
        return RefusalReason(f"not a product of {instruction.left.name}", operand.dtype.name)
    others = (view.offset, *strides[:axis], *strides[axis + 1 :])
    if view.shape[axis] % terms or strides[axis] != 1 or any(step % terms for step in others):
        return RefusalReason(f"neighbours of the reduction do not lie in {instruction.layout}", operand.name)
    shape = (*view.shape[:axis], view.shape[axis] // terms, *view.shape[axis + 1 :])
    fewer = (*(s // terms for s in strides[:axis]), 1, *(s // terms for s in strides[axis + 1 :]))
    return OperandView(replace(operand, dtype=instruction.lane), shape, fewer, view.offset // terms)


def _halves(instructions: InstructionSet) -> int:
    """Both halves of either operand need their own, where nothing multiplies them as they are."""
    return 0 if DPBF16.is_native(instructions) else 4


DPBF16 = Instruction(
    "dpbf16",
    BFLOAT16,
    BFLOAT16,
    FLOAT32,
    has_bfloat_products,
    add_bfloat_products,
    add_bfloats_apart,
    lane=DType("bfloat16 pair", 0, 32, "float"),
    terms=2,
    apart=_halves,
)
"""Elsewhere both products are exact, and every addition rounds to nearest; the instruction does the same but for subnormal
numbers, which it takes for zero."""

PMADDWD = Instruction(
    "pmaddwd", INT16, INT16, INT32, has_pair_products, add_pairs, add_pairs_apart, lane=INT32, terms=2
)

MADDUBS = Instruction("maddubs", UINT8, INT8, INT32, has_quads, add_quads_by_pairs, lane=INT32, terms=4, saturates=True)
"""Two by two in 16 bits, of bytes behind a mask, and then in 32."""

VPDPBUSD = Instruction("vpdpbusd", UINT8, INT8, INT32, sums_in_one, add_quads, lane=INT32, terms=4)

INSTRUCTIONS = (FUSED, FUSED_DOUBLE, DPBF16, PMADDWD, MADDUBS, VPDPBUSD)


def for_bytes(instructions: InstructionSet) -> Instruction | None:
    """What a machine multiplies unsigned by signed bytes with, if it does."""
    return next((row for row in (VPDPBUSD, MADDUBS) if row.is_native(instructions)), None)

"""The instructions that reductions are made of beside the fused multiply-add, as rows (`nest.instruction`).

The register tile and the families around it take a row as it is. What a machine does not have is written with other instructions.
"""

from __future__ import annotations

from dataclasses import replace

from fusewise.codegen.instructions.byte_products import add_quads, add_quads_by_pairs, has_quads, sums_in_one
from fusewise.codegen.instructions.matrix_products import (
    LANES,
    PRODUCT_LATENCY,
    ROWS,
    has_tiles,
    matrix_form,
    of_bytes,
    of_floats,
)
from fusewise.codegen.instructions.outer_products import (
    OUTER_LANES,
    add_outer_bfloats,
    add_outer_bfloats_apart,
    add_outer_bytes,
    has_outer,
    outer_bytes,
)
from fusewise.codegen.instructions.pair_products import (
    add_bfloat_products,
    add_bfloats_apart,
    add_pairs,
    add_pairs_apart,
    has_bfloat_products,
    has_pair_products,
)
from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.instruction import FUSED, FUSED_DOUBLE, Instruction, MatrixForm
from fusewise.codegen.nest.tree import Value
from fusewise.codegen.target import InstructionSet
from fusewise.codegen.view import OperandView
from fusewise.ir.dtypes import BFLOAT16, FLOAT16, FLOAT32, INT8, INT16, INT32, INT64, UINT8, DType
from fusewise.lower.task import RefusalReason

__all__ = [
    "AMX_BF16",
    "AMX_FP16",
    "AMX_INT8",
    "AMX_PARTS",
    "BFMMLA",
    "DPBF16",
    "FUSED_SHORT",
    "INSTRUCTIONS",
    "MADDUBS",
    "MATRIX_INSTRUCTIONS",
    "MMLA",
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


_BFLOAT16_PAIR = DType("bfloat16 pair", 0, 32, "float")


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
    lane=_BFLOAT16_PAIR,
    terms=2,
    apart=_halves,
    latency=6.2,
)
"""Elsewhere both products are exact, and every addition rounds to nearest; the instruction does the same but for subnormal
numbers, which it takes for zero."""

PMADDWD = Instruction(
    "pmaddwd", INT16, INT16, INT32, has_pair_products, add_pairs, add_pairs_apart, lane=INT32, terms=2
)

MADDUBS = Instruction("maddubs", UINT8, INT8, INT32, has_quads, add_quads_by_pairs, lane=INT32, terms=4, saturates=True)
"""Two by two in 16 bits, of bytes behind a mask, and then in 32."""

VPDPBUSD = Instruction("vpdpbusd", UINT8, INT8, INT32, sums_in_one, add_quads, lane=INT32, terms=4)


def _in_memory(f: Function, instructions: InstructionSet, a: Value, b: Value, total: Value) -> Value:
    raise NotImplementedError("a matrix unit multiplies tiles, not vectors")


def _matrix_row(name: str, dtypes: tuple[DType, DType], extension: str, lane: DType, form: MatrixForm) -> Instruction:
    left, right = dtypes
    return Instruction(
        name,
        left,
        right,
        INT32 if left.is_integer else FLOAT32,
        has_tiles(extension),
        _in_memory,
        lane=lane,
        terms=4 if left.is_integer else 2,
        rows=ROWS,
        lanes=LANES,
        latency=PRODUCT_LATENCY,
        matrix=form,
    )


def _of_bytes(name: str, left: DType, right: DType) -> Instruction:
    return _matrix_row(name, (left, right), "amx-int8", INT32, matrix_form(name, of_bytes(left, right)))


_BFLOAT16_FORM = matrix_form("tdpbf16ps", of_floats(BFLOAT16))

AMX_BF16 = _matrix_row("tdpbf16ps", (BFLOAT16, BFLOAT16), "amx-bf16", _BFLOAT16_PAIR, _BFLOAT16_FORM)

AMX_FP16 = _matrix_row(
    "tdpfp16ps",
    (FLOAT16, FLOAT16),
    "amx-fp16",
    DType("float16 pair", 0, 32, "float"),
    matrix_form("tdpfp16ps", of_floats(FLOAT16)),
)

AMX_INT8 = (
    _of_bytes("tdpbssd", INT8, INT8),
    _of_bytes("tdpbsud", INT8, UINT8),
    _of_bytes("tdpbusd", UINT8, INT8),
    _of_bytes("tdpbuud", UINT8, UINT8),
)
"""By the signs of the left and of the right operand."""

AMX_PARTS = _matrix_row(
    "tdpbf16ps.parts",
    (FLOAT32, FLOAT32),
    "amx-bf16",
    _BFLOAT16_PAIR,
    replace(_BFLOAT16_FORM, parts=2, products=((0, 1), (0, 0), (1, 0)), part=BFLOAT16),
)
"""float32 as two bfloat16, what is near it and what is left: their products but that of what is left, which is below 2^-17 of all.
In this order an operand is loaded once for each part."""

MATRIX_INSTRUCTIONS = (AMX_BF16, AMX_FP16, *AMX_INT8, AMX_PARTS)

BFMMLA = Instruction(
    "bfmmla",
    BFLOAT16,
    BFLOAT16,
    FLOAT32,
    has_outer("bf16"),
    add_outer_bfloats,
    add_outer_bfloats_apart,
    lane=DType("bfloat16 quad", 0, 64, "float"),
    terms=4,
    rows=OUTER_LANES,
    lanes=OUTER_LANES,
)


def _mmla(name: str, left: DType, right: DType) -> Instruction:
    return Instruction(
        name,
        left,
        right,
        INT32,
        has_outer("i8mm"),
        add_outer_bytes(name),
        outer_bytes(left, right),
        lane=INT64,
        terms=8,
        rows=OUTER_LANES,
        lanes=OUTER_LANES,
    )


MMLA = (_mmla("smmla", INT8, INT8), _mmla("usmmla", UINT8, INT8), _mmla("ummla", UINT8, UINT8))
"""By the signs of the left and of the right operand."""

FUSED_SHORT = tuple(replace(FUSED, name=f"{FUSED.name}.{dtype.name}", short=dtype) for dtype in (FLOAT16, BFLOAT16))
"""Of float32 and constants of 16 bits."""

INSTRUCTIONS = (FUSED, FUSED_DOUBLE, *FUSED_SHORT, DPBF16, PMADDWD, MADDUBS, VPDPBUSD, BFMMLA, *MMLA)


def for_bytes(instructions: InstructionSet) -> Instruction | None:
    """What a machine multiplies unsigned by signed bytes with, if it does."""
    return next((row for row in (VPDPBUSD, MADDUBS) if row.is_native(instructions)), None)

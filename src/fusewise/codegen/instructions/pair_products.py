"""Products of 16-bit numbers, two to a 32-bit lane: what the kernels of integers and of bfloat16 reduce with.

A lane holds two neighbours of the reduction. One step multiplies both by the two weights in the same lane of another vector
and adds the products: integers exactly, bfloat16 in float32. x86 has an instruction for either; elsewhere they are written with
shifts, since a bfloat16 is the upper half of a float32.
"""

from __future__ import annotations

from dataclasses import replace

from fusewise.codegen.llvm.emit import Function, Value, vector
from fusewise.codegen.llvm.registers import splat
from fusewise.codegen.target import InstructionSet, Target
from fusewise.codegen.view import OperandView
from fusewise.ir.dtypes import BFLOAT16, DType
from fusewise.lower.task import RefusalReason

__all__ = [
    "BFLOAT_PAIR",
    "add_bfloat_products",
    "has_bfloat_products",
    "pair_products",
    "paired_view",
    "with_room_for_pairs",
]

BFLOAT_PAIR = DType("bfloat16 pair", 0, 32, "float")
"""Two neighbours of a reduction as one element, the first in the lower half. Not a type of ONNX's: kernels alone know it."""

_INSTRUCTION = {4: "llvm.x86.sse2.pmadd.wd", 8: "llvm.x86.avx2.pmadd.wd", 16: "llvm.x86.avx512.pmaddw.d.512"}
_BFLOAT_INSTRUCTION = {lanes: f"llvm.x86.avx512bf16.dpbf16ps.{32 * lanes}" for lanes in (4, 8, 16)}


def has_bfloat_products(instructions: InstructionSet) -> bool:
    """Does the machine multiply and add pairs of bfloat16 in one instruction?"""
    return "+avx512bf16" in instructions.features.split(",") and instructions.vector_bits >= 512


def with_room_for_pairs(target: Target) -> Target:
    """The machine with the registers that are left for tiles of pairs: without the instruction, both halves need their own."""
    return target if has_bfloat_products(target) else replace(target, registers=target.registers - 4)


def paired_view(view: OperandView, axis: int) -> OperandView | RefusalReason:
    """A view of bfloat16 as one of pairs along an axis, or why its neighbours along it are none."""
    operand, strides = view.operand, view.strides
    if operand.dtype != BFLOAT16:
        return RefusalReason("not a product of bfloat16", operand.dtype.name)
    others = (view.offset, *strides[:axis], *strides[axis + 1 :])
    if view.shape[axis] % 2 or strides[axis] != 1 or any(step % 2 for step in others):
        return RefusalReason("neighbours of the reduction do not lie in pairs", operand.name)
    shape = (*view.shape[:axis], view.shape[axis] // 2, *view.shape[axis + 1 :])
    halved = (*(s // 2 for s in strides[:axis]), 1, *(s // 2 for s in strides[axis + 1 :]))
    return OperandView(replace(operand, dtype=BFLOAT_PAIR), shape, halved, view.offset // 2)


def add_bfloat_products(f: Function, instructions: InstructionSet, a: Value, b: Value, total: Value) -> Value:
    """total + low(a) * low(b) + high(a) * high(b) of the bfloat16 halves of every i32 lane, in float32.

    Without the instruction both products are exact and every addition rounds to nearest; the instruction does the same but for
    subnormal numbers, which it takes for zero.
    """
    name = _BFLOAT_INSTRUCTION.get(a.lanes)
    if name is not None and has_bfloat_products(instructions):
        halves = vector("bfloat", 2 * a.lanes)
        f.module.declare(name, total.type, [total.type, halves, halves])
        x, y = (f.emit(halves, f"bitcast {value} to {halves}") for value in (a, b))
        return f.emit(total.type, f"call {total.type} @{name}({total}, {x}, {y})")
    sixteen, upper = splat(f, 16, a, "i32"), splat(f, 0xFFFF0000, a, "i32")
    for operation, by in (("shl", sixteen), ("and", upper)):
        x, y = (f.convert("bitcast", f.binary(operation, value, by), "float") for value in (a, b))
        total = f.fma(x, y, total) if instructions.fma else f.fadd(f.fmul(x, y), total)
    return total


def pair_products(f: Function, instructions: InstructionSet, a: Value, b: Value) -> Value:
    """low(a) * low(b) + high(a) * high(b) of the signed 16-bit halves of every i32 lane."""
    lanes = a.lanes
    if instructions.triple.startswith("x86_64") and lanes in _INSTRUCTION and lanes * 32 <= instructions.vector_bits:
        halves = vector("i16", 2 * lanes)
        name = _INSTRUCTION[lanes]
        f.module.declare(name, a.type, [halves, halves])
        x, y = (f.emit(halves, f"bitcast {value} to {halves}") for value in (a, b))
        return f.emit(a.type, f"call {a.type} @{name}({x}, {y})")
    sixteen = splat(f, 16, a, "i32")

    def low(value: Value) -> Value:
        return f.binary("ashr", f.binary("shl", value, sixteen), sixteen)

    def high(value: Value) -> Value:
        return f.binary("ashr", value, sixteen)

    return f.binary("add", f.binary("mul", low(a), low(b)), f.binary("mul", high(a), high(b)))

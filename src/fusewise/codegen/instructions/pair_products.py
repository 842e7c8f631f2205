"""Products of 16-bit numbers, two to a 32-bit lane: what the kernels of integers and of bfloat16 reduce with.

A lane holds two neighbours of the reduction. One step multiplies both by the two weights in the same lane of another vector
and adds the products: integers exactly, bfloat16 in float32. x86 has an instruction for either; elsewhere they are written with
shifts, since a bfloat16 is the upper half of a float32.
"""

from __future__ import annotations

from fusewise.codegen.llvm.registers import splat
from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.tree import Value, vector
from fusewise.codegen.target import InstructionSet

__all__ = [
    "add_bfloat_products",
    "add_bfloats_apart",
    "add_pairs",
    "add_pairs_apart",
    "has_bfloat_products",
    "has_pair_products",
]

_INSTRUCTION = {4: "llvm.x86.sse2.pmadd.wd", 8: "llvm.x86.avx2.pmadd.wd", 16: "llvm.x86.avx512.pmaddw.d.512"}
_BFLOAT_INSTRUCTION = {lanes: f"llvm.x86.avx512bf16.dpbf16ps.{32 * lanes}" for lanes in (4, 8, 16)}


def has_bfloat_products(instructions: InstructionSet, lanes: int) -> bool:
    """Does the machine multiply and add so many pairs of bfloat16 in one instruction?"""
    is_capable = "+avx512bf16" in instructions.features.split(",") and instructions.vector_bits >= 512
    return is_capable and lanes in _BFLOAT_INSTRUCTION


def add_bfloat_products(f: Function, instructions: InstructionSet, a: Value, b: Value, total: Value) -> Value:
    """total + low(a) * low(b) + high(a) * high(b) of the bfloat16 halves of every i32 lane, in float32, by the instruction."""
    name, halves = _BFLOAT_INSTRUCTION[a.lanes], vector("bfloat", 2 * a.lanes)
    return f.call_intrinsic(name, total.type, total, f.bitcast(a, halves), f.bitcast(b, halves))


def add_bfloats_apart(f: Function, instructions: InstructionSet, a: Value, b: Value, total: Value) -> Value:
    """The same by shifts: a bfloat16 is the upper half of a float32."""
    sixteen, upper = splat(f, 16, a, "i32"), splat(f, 0xFFFF0000, a, "i32")
    for operation, by in (("shl", sixteen), ("and", upper)):
        x, y = (f.convert("bitcast", f.binary(operation, value, by), "float") for value in (a, b))
        total = f.fma(x, y, total) if instructions.fma else f.fadd(f.fmul(x, y), total)
    return total


def has_pair_products(instructions: InstructionSet, lanes: int) -> bool:
    """Does the machine multiply so many pairs of 16-bit integers, and add them up two by two, in one instruction?"""
    fits = lanes in _INSTRUCTION and lanes * 32 <= instructions.vector_bits
    return instructions.triple.startswith("x86_64") and fits


def add_pairs(f: Function, instructions: InstructionSet, a: Value, b: Value, total: Value) -> Value:
    """total + low(a) * low(b) + high(a) * high(b) of the signed 16-bit halves of every i32 lane, by the instruction."""
    halves, name = vector("i16", 2 * a.lanes), _INSTRUCTION[a.lanes]
    return f.binary("add", total, f.call_intrinsic(name, a.type, f.bitcast(a, halves), f.bitcast(b, halves)))


def add_pairs_apart(f: Function, instructions: InstructionSet, a: Value, b: Value, total: Value) -> Value:
    """The same by shifts."""
    sixteen = splat(f, 16, a, "i32")

    def low(value: Value) -> Value:
        return f.binary("ashr", f.binary("shl", value, sixteen), sixteen)

    def high(value: Value) -> Value:
        return f.binary("ashr", value, sixteen)

    both = f.binary("add", f.binary("mul", low(a), low(b)), f.binary("mul", high(a), high(b)))
    return f.binary("add", total, both)

"""Products of 16-bit integers, two to a 32-bit lane: what the integer kernels reduce with.

A lane holds two neighbours of the reduction. One step multiplies both by the two weights in the same lane of another vector
and adds the products, exactly. x86 has an instruction for it; elsewhere it is written with shifts and 32-bit products.
"""

from __future__ import annotations

from fusewise.codegen.llvm.emit import Function, Value, vector
from fusewise.codegen.llvm.registers import splat
from fusewise.codegen.target import Target

__all__ = ["pair_products"]

_INSTRUCTION = {4: "llvm.x86.sse2.pmadd.wd", 8: "llvm.x86.avx2.pmadd.wd", 16: "llvm.x86.avx512.pmaddw.d.512"}


def pair_products(f: Function, target: Target, a: Value, b: Value) -> Value:
    """low(a) * low(b) + high(a) * high(b) of the signed 16-bit halves of every i32 lane."""
    lanes = a.lanes
    if target.triple.startswith("x86_64") and lanes in _INSTRUCTION and lanes * 32 <= target.vector_bits:
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

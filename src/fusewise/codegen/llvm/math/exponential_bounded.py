"""e^x for float where tiny results do not matter, as in softmax and sigmoid: a short polynomial times a power of two.

x = n / s ln 2 + r with |r| <= ln 2 / 2s. Where an instruction picks numbers out of a register by another register's lanes, s is
what fits there, 16 or 8, and e^r takes four terms; elsewhere s is 1 and it takes six. The low bits of n pick a power of 2^(1/s),
and those above them are added to its exponent.
"""

from __future__ import annotations

import math
import struct

from fusewise.codegen.llvm.math.exponential import EXP_FLOAT, LN2_FLOAT
from fusewise.codegen.llvm.math.floating import Floats
from fusewise.codegen.nest.tree import Value

__all__ = ["exp_below", "exp_factors"]

_EXP = {  # by s; on |r| < ln 2 / 2s
    1: EXP_FLOAT,
    8: (1.0, 1.0, 0.50006473, 0.16666859),  # 2^-25.2
    16: (1.0, 1.0, 0.50001622, 0.16666719),  # 2^-29.2
}
_LEAST, _MOST = -87.3365, 89.0
"""Limits of the exponent: e^_LEAST comes out as 0, and e^_MOST as infinity."""

_MAGIC = 1.5 * 2.0**23


def exp_factors(m: Floats, x: Value, *, negated: bool = False, below: bool = False) -> tuple[Value, Value]:
    """a and b with e^x = a b, or e^-x with `negated`; b is 0 or nearly so where that is below 2^-125. `below`: x <= 0."""
    steps, sign = _steps(m), -1 if negated else 1
    low, high = sorted((sign * _LEAST, sign * _MOST))
    x = m.select(m.compare("ogt", low, x), low, x) if below else m.limited(x, low, high)
    shifted = m.mad(x, sign * steps / math.log(2), _MAGIC)
    n = m.sub(shifted, _MAGIC)
    r = m.mad(n, -sign * LN2_FLOAT[1] / steps, m.mad(n, -sign * LN2_FLOAT[0] / steps, x))
    # twice the polynomial and half the power, whose exponent would be too large else
    body = m.horner(r, tuple(2 * c * sign**k for k, c in enumerate(_EXP[steps])))
    if steps == 1:
        return body, m.from_bits(m.shift_left(m.int_add(m.bits(shifted), m.bias - 1), m.mantissa))
    whole = m.shift_left(m.bits(shifted), m.mantissa - steps.bit_length() + 1)
    return body, m.from_bits(m.int_add(whole, _picked(m, _powers(steps), m.bits(shifted))))


def exp_below(m: Floats, x: Value) -> Value:
    """e^x of what is not above 0; 0 or nearly so below 2^-125."""
    return m.mul(*exp_factors(m, x, below=True))


def _steps(m: Floats) -> int:
    """Powers of two between 1 and 2 that one instruction picks from."""
    instructions = m.instructions
    if m.double or not instructions.triple.startswith("x86_64"):
        return 1
    if instructions.vector_bits >= 512 and m.lanes in (8, 16):
        return 16
    return 8 if instructions.vector_bits >= 256 and m.lanes == 8 else 1


def _powers(steps: int) -> list[int]:
    """Bits of 2^(j / steps) / 2, less what j adds to them when it is shifted with the exponent."""
    shift = 23 - steps.bit_length() + 1
    bits = (struct.unpack("<I", struct.pack("<f", 2.0 ** (j / steps - 1)))[0] for j in range(steps))
    return [number - (j << shift) for j, number in enumerate(bits)]


def _picked(m: Floats, numbers: list[int], index: Value) -> Value:
    """The numbers that the low bits of each lane of `index` name."""
    kind, lanes = index.type, m.lanes
    tables = [m.function.constants(numbers[at : at + lanes], "i32") for at in range(0, len(numbers), lanes)]
    name = {16: "llvm.x86.avx512.permvar.si.512", 8: "llvm.x86.avx2.permd"}[lanes]
    if len(tables) == 2:
        name = "llvm.x86.avx512.vpermi2var.d.256"
    return m.function.call_intrinsic(name, kind, tables[0], index, *tables[1:])

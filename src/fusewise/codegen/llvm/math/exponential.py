"""exp, expm1, log and log1p for float and double.

exp: x = n ln 2 + r with |r| <= ln 2 / 2, by adding and subtracting 1.5 * 2^mantissa, which rounds and leaves n in the low bits.
log: x = m 2^e with sqrt(1/2) <= m < sqrt(2), from the bit pattern.
"""

from __future__ import annotations

import math

from fusewise.codegen.llvm.math.floating import Floats
from fusewise.codegen.nest.tree import Value

__all__ = ["EXP_FLOAT", "LN2_FLOAT", "exp", "expm1", "log", "log1p", "log_parts", "reduced"]

# ln 2 in two parts; the first has few bits, so that n times it is exact
LN2_FLOAT = (0.693359375, -2.12194440e-4)
_LN2_DOUBLE = (0.6931471804855391, 7.440617110012397e-11)

EXP_FLOAT = (1.0, 1.0, 0.499992251, 0.166671187, 0.0418909788, 0.00831240602)  # 2^-23.2 on |r| < ln2/2
_EXPM1_FLOAT = (0.5, 0.16666542, 0.0416662805, 0.00836671051, 0.0013946679)  # (expm1(r) - r) / r^2, 2^-26
_EXPM1_DOUBLE = (  # likewise, 2^-61
    0.5, 0.16666666666666677, 0.0416666666666667, 0.008333333333321436, 0.0013888888888866444, 0.0001984126988667316,
    2.480158736132501e-05, 2.7557243609160047e-06, 2.7557242105165076e-07, 2.5109261861116833e-08, 2.092464547771031e-09,
)  # fmt: skip


def reduced(m: Floats, x: Value) -> tuple[Value, Value, Value]:
    """(n as an integer with the bits of 1.5 * 2^mantissa above it, n, r) with x = n ln 2 + r."""
    magic = 1.5 * 2.0**m.mantissa
    shifted = m.mad(x, 1 / math.log(2), magic)
    n = m.sub(shifted, magic)
    high, low = _LN2_DOUBLE if m.double else LN2_FLOAT
    r = m.mad(n, -low, m.mad(n, -high, x))
    return m.bits(shifted), n, r


def _expm1_core(m: Floats, r: Value) -> Value:
    tail = m.horner(r, _EXPM1_DOUBLE if m.double else _EXPM1_FLOAT)
    return m.mad(m.mul(r, r), tail, r)


def exp(m: Floats, x: Value, halved: bool = False) -> Value:
    """e^x; with `halved`, e^x / 2 without overflow before that overflows."""
    low, high = (-746.0, 711.0) if m.double else (-105.0, 90.0)
    x = m.limited(x, low, high)
    shifted, _, r = reduced(m, x)
    body = m.add(_expm1_core(m, r), 1.0) if m.double else m.horner(r, EXP_FLOAT)
    # 2^n in two factors, so that neither leaves the exponent's range and a subnormal result is rounded once
    n = m.int_sub(m.int_add(shifted, 4096 - halved), _magic_bits(m))
    first = m.shift_right(n, 1)
    second = m.int_sub(n, first)
    scale = [m.from_bits(m.shift_left(m.int_add(part, m.bias - 2048), m.mantissa)) for part in (first, second)]
    return m.mul(m.mul(body, scale[0]), scale[1])


def _magic_bits(m: Floats) -> int:
    return (0x4338 << 48) if m.double else 0x4B400000


def expm1(m: Floats, x: Value, bounded: bool = False) -> Value:
    """e^x - 1 = 2^n (expm1(r) + 1) - 1; `bounded`: x is known to be moderate."""
    given = x
    if not bounded:
        x = m.limited(x, -60.0, 1024 * math.log(2) if m.double else 128 * math.log(2))
    shifted, n, r = reduced(m, x)
    core = _expm1_core(m, r)
    if bounded:
        scale = m.from_bits(m.shift_left(m.int_add(shifted, m.bias), m.mantissa))
        return m.mad(core, scale, m.sub(scale, 1.0))
    # half the power, then double: n may be one more than the largest exponent
    scale = m.from_bits(m.shift_left(m.int_add(shifted, m.bias - 1), m.mantissa))
    result = m.mul(m.mad(core, scale, m.sub(scale, 0.5)), 2.0)
    result = m.select(m.compare("oeq", n, 0.0), core, result)
    overflow = 709.782712893384 if m.double else 88.72283935546875
    return m.select(m.compare("ogt", given, overflow), math.inf, result)


_LOG_FLOAT = (  # (log1p(f) - f) / f^2, 2^-28 of log1p
    -0.499999881, 0.333333254, -0.250015825, 0.200019747, -0.166090816, 0.141818181, -0.132429853, 0.129044801,
    -0.0762183741,
)  # fmt: skip
_LOG_DOUBLE = (  # (2 atanh(s) / s - 2) / s^2 in s^2, 2^-65
    0.6666666666666666, 0.40000000000006286, 0.28571428569073076, 0.2222222264873817, 0.18181775509272816,
    0.15387097625458868, 0.13249962474704965, 0.1325275165547956,
)  # fmt: skip


def log_parts(m: Floats, x: Value) -> tuple[Value, Value, Value]:
    """(mantissa in [sqrt(1/2), sqrt(2)), biased exponent as integer, exponent as float) of a positive normal number."""
    root = 0x3FE6A09E667F3BCD if m.double else 0x3F3504F3
    one = m.bias << m.mantissa
    bits = m.bits(x)
    biased = m.shift_right(m.int_add(bits, one - root), m.mantissa)
    mantissa = m.from_bits(m.int_sub(bits, m.shift_left(m.int_sub(biased, m.bias), m.mantissa)))
    if m.double:  # no conversion from i64 on most machines: write the bits of 2^52 + biased
        big = m.from_bits(m.function.binary("or", biased, m.whole(0x433 << 52)))
        return mantissa, biased, m.sub(big, 2.0**52 + m.bias)
    whole = m.function.convert("sitofp", m.int_sub(biased, m.bias), "float")
    return mantissa, biased, whole


def _log_core(m: Floats, part: Value, exponent: Value) -> Value:
    """log((1 + part) 2^exponent)."""
    if not m.double:
        high, low = LN2_FLOAT
        curve = m.mul(m.mul(part, part), m.horner(part, _LOG_FLOAT))
        return m.mad(exponent, high, m.add(part, m.mad(exponent, low, curve)))
    high, low = _LN2_DOUBLE
    s = m.div(part, m.add(part, 2.0))
    z = m.mul(s, s)
    half = m.mul(m.mul(part, part), 0.5)
    inner = m.mad(s, m.add(half, m.mul(z, m.horner(z, _LOG_DOUBLE))), m.mul(exponent, low))
    return m.sub(m.mul(exponent, high), m.sub(m.sub(half, inner), part))


def _log_edges(m: Floats, x: Value, zero_at: float, result: Value) -> Value:
    result = m.select(m.compare("ult", x, zero_at), math.nan, result)
    result = m.select(m.compare("oeq", x, zero_at), -math.inf, result)
    return m.select(m.compare("oeq", x, math.inf), math.inf, result)


def log(m: Floats, x: Value) -> Value:
    """Natural logarithm."""
    tiny = m.compare("olt", x, 2.0 ** (1 - m.bias))
    normal = m.select(tiny, m.mul(x, 2.0**m.mantissa), x)
    mantissa, _, exponent = log_parts(m, normal)
    exponent = m.sub(exponent, m.select(tiny, float(m.mantissa), 0.0))
    return _log_edges(m, x, 0.0, _log_core(m, m.sub(mantissa, 1.0), exponent))


def log1p(m: Floats, x: Value) -> Value:
    """log(1 + x): the rounding error of 1 + x is added back to the reduced argument."""
    u = m.add(x, 1.0)
    back = m.sub(u, 1.0)
    lost = m.add(m.sub(1.0, m.sub(u, back)), m.sub(x, back))
    mantissa, biased, exponent = log_parts(m, u)
    kept = m.function.intrinsic("umin", biased, m.whole(2 * m.bias))
    inverse = m.from_bits(m.shift_left(m.int_sub(m.whole(2 * m.bias), kept), m.mantissa))
    part = m.mad(lost, inverse, m.sub(mantissa, 1.0))
    return _log_edges(m, x, -1.0, _log_core(m, part, exponent))

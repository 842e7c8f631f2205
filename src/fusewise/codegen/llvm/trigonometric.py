"""sin, cos, tan and their inverses for float and double.

The circular functions reduce by pi/2 in three parts (Cody and Waite, 1980) in double, for float arguments too; this is good for
|x| < 2^20 pi/2, past which the result loses bits gradually.
"""

from __future__ import annotations

import math

from fusewise.codegen.llvm.emit import Value
from fusewise.codegen.llvm.floating import Floats

__all__ = ["acos", "asin", "atan", "cos", "sin", "tan"]

_HALF_PI = (1.5707963267341256, 6.077100506303966e-11, 2.0222662487959506e-21)
_SIN = (  # (sin(r) / r - 1) / r^2 in r^2 on |r| < pi/4, 2^-68
    -0.16666666666666666, 0.008333333333333323, -0.0001984126984125499, 2.7557319214148867e-06, -2.5052104900542753e-08,
    1.605836519357277e-10, -7.57862551183711e-13,
)  # fmt: skip
_COS = (  # (cos(r) - 1 + r^2/2) / r^4 in r^2, 2^-64
    0.0416666666666666, -0.001388888888887399, 2.480158728939509e-05, -2.75573143260766e-07, 2.087571956468884e-09,
    -1.1359448972661348e-11,
)  # fmt: skip


def _circular(m: Floats, x: Value) -> tuple[Floats, Value, Value, Value]:
    """(double arithmetic, sin r, cos r, quadrant as integer) with x = n pi/2 + r."""
    f = m.function
    wide = Floats(f, m.target, "double", m.lanes)
    d = x if m.double else f.convert("fpext", x, "double")
    magic = 1.5 * 2.0**52
    shifted = wide.add(wide.mul(d, 2 / math.pi), magic)
    n = wide.sub(shifted, magic)
    first = wide.sub(d, wide.mul(n, _HALF_PI[0]))
    second = wide.mul(n, _HALF_PI[1])
    r = wide.sub(first, second)
    rest = wide.sub(wide.sub(wide.sub(first, r), second), wide.mul(n, _HALF_PI[2]))
    z = wide.mul(r, r)
    half = wide.mul(z, 0.5)
    # to first order: sin(r + rest) = sin r + rest cos r, cos(r + rest) = cos r - rest sin r
    sine = wide.mad(wide.mul(r, z), wide.horner(z, _SIN), wide.mad(rest, wide.sub(1.0, half), r))
    # a sine of -0 or of a number too small to square is itself
    base = wide.sub(1.0, half)
    lost = wide.sub(wide.sub(1.0, base), half)
    tail = wide.sub(wide.mul(wide.mul(z, z), wide.horner(z, _COS)), wide.mul(rest, r))
    cosine = wide.add(base, wide.add(lost, tail))
    return wide, sine, cosine, wide.bits(shifted)


def _turned(m: Floats, x: Value, quarter: int) -> Value:
    wide, sine, cosine, bits = _circular(m, x)
    f = m.function
    n = wide.int_add(bits, quarter)
    one = wide.whole(1)
    odd = f.compare("icmp ne", f.binary("and", n, one), wide.whole(0))
    chosen = f.select(odd, cosine, sine)
    sign = wide.shift_left(f.binary("and", n, wide.whole(2)), 62)
    result = wide.from_bits(f.binary("xor", wide.bits(chosen), sign))
    return result if m.double else f.convert("fptrunc", result, "float")


def sin(m: Floats, x: Value) -> Value:
    """Sine of x radians."""
    return _turned(m, x, 0)


def cos(m: Floats, x: Value) -> Value:
    """Cosine of x radians."""
    return _turned(m, x, 1)


def tan(m: Floats, x: Value) -> Value:
    """Tangent of x radians."""
    wide, sine, cosine, bits = _circular(m, x)
    f = m.function
    odd = f.compare("icmp ne", f.binary("and", bits, wide.whole(1)), wide.whole(0))
    over = f.select(odd, wide.neg(cosine), sine)
    under = f.select(odd, sine, cosine)
    result = wide.div(over, under)
    return result if m.double else f.convert("fptrunc", result, "float")


_ATAN_FLOAT = (  # (atan(t) / t - 1) / t^2 in t^2 on [0, 1], 2^-28
    -0.333333015, 0.199986383, -0.142652452, 0.109575756, -0.084194541, 0.058234442, -0.0314555801, 0.0110643683,
    -0.00182719564,
)  # fmt: skip
_ATAN_DOUBLE = (  # likewise on [0, tan(pi/8)], 2^-69
    -0.3333333333333333, 0.19999999999999885, -0.14285714285695558, 0.111111111095743, -0.09090909016414617,
    0.07692305366930612, -0.06666617480117278, 0.05881626732417273, -0.05255564767347374, 0.04705593349139642,
    -0.04055028134748381, 0.02960914576218328, -0.012977311400619473,
)  # fmt: skip


def _half_pi(m: Floats) -> tuple[float, float]:
    """pi/2 rounded, and what the rounding lost."""
    return (math.pi / 2, 6.123233995736766e-17) if m.double else (1.5707963705062866, -4.3711390001862426e-08)


def atan(m: Floats, x: Value) -> Value:
    """Arc tangent: beyond 1 from 1/x; for double, beyond tan(pi/8) from (t-1)/(t+1)."""
    a = m.abs(x)
    beyond = m.compare("ogt", a, 1.0)
    t = m.select(beyond, m.div(1.0, a), a)
    if m.double:
        middle = m.compare("ogt", t, math.tan(math.pi / 8))
        t = m.select(middle, m.div(m.sub(t, 1.0), m.add(t, 1.0)), t)
    z = m.mul(t, t)
    curve = m.mad(m.mul(t, z), m.horner(z, _ATAN_DOUBLE if m.double else _ATAN_FLOAT), t)
    high, low = _half_pi(m)
    if m.double:
        curve = m.select(middle, m.add(m.add(curve, low / 2), high / 2), curve)
    folded = m.sub(high, m.sub(curve, low))
    return m.copysign(m.select(beyond, folded, curve), x)


_ASIN_FLOAT = (0.166666597, 0.0750051066, 0.0445157178, 0.0318176262, 0.0144025646, 0.0375652388)  # 2^-31 on z < 1/4
_ASIN_DOUBLE = (  # 2^-59
    0.16666666666666763, 0.07499999999970255, 0.04464285717512722, 0.030381942683338235, 0.02237221566728487,
    0.017351599981267354, 0.01398096261681675, 0.011397767607829923, 0.010786570356570825, 0.0036829046525926265,
    0.02176379350748815, -0.021077659369391794, 0.03267709212810467,
)  # fmt: skip


def _asin_core(m: Floats, a: Value) -> tuple[Value, Value]:
    """(a > 1/2, asin of a or of sqrt((1-a)/2) where a > 1/2)."""
    outer = m.compare("ogt", a, 0.5)
    z = m.select(outer, m.mul(m.sub(1.0, a), 0.5), m.mul(a, a))
    s = m.select(outer, m.sqrt(z), a)
    return outer, m.mad(m.mul(s, z), m.horner(z, _ASIN_DOUBLE if m.double else _ASIN_FLOAT), s)


def asin(m: Floats, x: Value) -> Value:
    """Arc sine; beyond 1/2, pi/2 - 2 asin(sqrt((1-x)/2))."""
    outer, core = _asin_core(m, m.abs(x))
    high, low = _half_pi(m)
    folded = m.sub(high, m.sub(m.add(core, core), low))
    return m.copysign(m.select(outer, folded, core), x)


def acos(m: Floats, x: Value) -> Value:
    """Arc cosine; beyond 1/2 in size, 2 asin(sqrt((1-|x|)/2)) or pi minus it."""
    outer, core = _asin_core(m, m.abs(x))
    high, low = _half_pi(m)
    double = m.add(core, core)
    far = m.add(m.sub(2 * high, double), 2 * low)
    beyond = m.select(m.compare("olt", x, 0.0), far, double)
    near = m.sub(high, m.sub(m.copysign(core, x), low))
    return m.select(outer, beyond, near)

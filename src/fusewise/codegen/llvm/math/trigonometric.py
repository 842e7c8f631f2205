"""sin, cos, tan and their inverses for float and double.

The circular functions reduce by pi/2 in three parts (Cody and Waite, 1980) in double, for float arguments too. That is exact
for |x| < 2^20 pi/2; lanes beyond are reduced one by one with 2/pi to 192 bits where it matters (Payne and Hanek, 1983).
"""

from __future__ import annotations

import math

from fusewise.codegen.llvm.math.floating import Floats
from fusewise.codegen.nest.build import Module
from fusewise.codegen.nest.tree import Value

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
    wide = Floats(f, m.instructions, "double", m.lanes)
    d = x if m.double else f.convert("fpext", x, "double")
    magic = 1.5 * 2.0**52
    shifted = wide.add(wide.mul(d, 2 / math.pi), magic)
    n = wide.sub(shifted, magic)
    first = wide.sub(d, wide.mul(n, _HALF_PI[0]))
    second = wide.mul(n, _HALF_PI[1])
    r = wide.sub(first, second)
    rest = wide.sub(wide.sub(wide.sub(first, r), second), wide.mul(n, _HALF_PI[2]))
    r, rest, turns = _mend_large(wide, d, r, rest, wide.bits(shifted))
    z = wide.mul(r, r)
    half = wide.mul(z, 0.5)
    # to first order: sin(r + rest) = sin r + rest cos r, cos(r + rest) = cos r - rest sin r
    sine = wide.mad(wide.mul(r, z), wide.horner(z, _SIN), wide.mad(rest, wide.sub(1.0, half), r))
    # a sine of -0 or of a number too small to square is itself
    base = wide.sub(1.0, half)
    lost = wide.sub(wide.sub(1.0, base), half)
    tail = wide.sub(wide.mul(wide.mul(z, z), wide.horner(z, _COS)), wide.mul(rest, r))
    cosine = wide.add(base, wide.add(lost, tail))
    return wide, sine, cosine, turns


def _mend_large(m: Floats, x: Value, r: Value, rest: Value, turns: Value) -> tuple[Value, Value, Value]:
    """The reduction again for lanes too large for it."""
    f = m.function
    size = m.abs(x)
    large = m.both(m.compare("ogt", size, _LARGE), m.compare("olt", size, math.inf))
    found = f.any(large)

    def mended() -> tuple[Value, Value, Value]:
        exact, quarter = r, turns
        for lane in range(m.lanes):
            one = f.extract(x, lane) if m.lanes > 1 else x
            safe = f.select(f.extract(large, lane) if m.lanes > 1 else large, one, f.constant(_LARGE * 2, "double"))
            pair = f.call(_reduction(f.module), "<2 x double>", safe)
            part = f.extract(pair, 0)
            count = f.convert("bitcast", f.extract(pair, 1), "i64")
            exact = f.insert(exact, part, lane) if m.lanes > 1 else part
            quarter = f.insert(quarter, count, lane) if m.lanes > 1 else count
        return (
            m.select(large, exact, r),
            m.select(large, 0.0, rest),
            f.select(large, quarter, turns),
        )

    fixed = f.when(found, mended, lambda: (r, rest, turns))
    return fixed[0], fixed[1], fixed[2]


_LARGE = 2.0**20 * math.pi / 2
_WORDS = 22


def _two_over_pi() -> list[int]:
    """64 zero bits and the binary digits of 2/pi, in words of 64; pi by Machin's formula."""
    bits = 64 * (_WORDS + 2)

    def inverse_tangent(n: int) -> int:
        term = (1 << bits) // n
        total, k = term, 1
        while term:
            term //= n * n
            k += 2
            total += -(term // k) if k % 4 == 3 else term // k
        return total

    pi = 4 * (4 * inverse_tangent(5) - inverse_tangent(239))
    digits = (2 << (2 * bits)) // pi >> (bits - 64 * (_WORDS - 1))
    return [(digits >> (64 * (_WORDS - 1 - k))) & (2**64 - 1) for k in range(_WORDS)]


def _reduction(module: Module) -> str:
    """A function of the module: a large double to (r, number of quarter turns as integer bits)."""
    symbol = "fusewise.reduce"
    if any(function.name == symbol for function in module.functions):
        return symbol
    f = module.function(symbol, ("double",), "<2 x double>", "nounwind willreturn noinline", linkage="internal")
    table = module.table("fusewise.two_over_pi", "i64", _two_over_pi())
    x = f.arguments[0]
    bits = f.convert("bitcast", x, "i64")
    exponent = f.binary("and", f.binary("lshr", bits, f.i64(52)), f.i64(0x7FF))
    mantissa = f.binary("or", f.binary("and", bits, f.i64((1 << 52) - 1)), f.i64(1 << 52))
    # x = mantissa 2^(exponent - 1075); digits of 2/pi that give whole multiples of 4 are skipped
    skip = f.binary("sub", exponent, f.i64(1075 - 62))
    word, shift = f.binary("lshr", skip, f.i64(6)), f.binary("and", skip, f.i64(63))
    words = [f.load("i64", f.at(table, f.add(word, k), "i64")) for k in range(4)]
    top, middle, bottom = (f.intrinsic("fshl", words[k], words[k + 1], shift) for k in range(3))

    def product(a: Value) -> Value:
        return f.binary("mul", f.convert("zext", a, "i128"), f.convert("zext", mantissa, "i128"))

    low = f.binary("lshr", product(bottom), f.constant(64, "i128"))
    high = f.binary("shl", product(top), f.constant(64, "i128"))
    fixed = f.binary("add", f.binary("add", product(middle), low), high)  # x 2/pi mod 4, 126 bits after the point
    quarter = f.binary("lshr", f.binary("add", fixed, f.constant(1 << 125, "i128")), f.constant(126, "i128"))
    part = f.binary("sub", fixed, f.binary("shl", quarter, f.constant(126, "i128")))
    # to double in two pieces, so that leading zeros cost no bits
    upper = f.convert("trunc", f.binary("ashr", part, f.constant(64, "i128")), "i64")
    first = f.convert("sitofp", upper, "double")
    left = f.binary("sub", upper, f.convert("fptosi", first, "i64"))
    second = f.fadd(
        f.fmul(f.convert("sitofp", left, "double"), f.constant(2.0**64, "double")),
        f.convert("uitofp", f.convert("trunc", part, "i64"), "double"),
    )
    scale = math.pi / 2 * 2.0**-126
    first = f.fmul(first, f.constant(2.0**64, "double"))
    tail = f.fadd(
        f.fmul(second, f.constant(scale, "double")),
        f.fmul(first, f.constant(6.123233995736766e-17 * 2.0**-126, "double")),
    )
    r = f.fadd(f.fmul(first, f.constant(scale, "double")), tail)
    turns = f.convert("trunc", quarter, "i64")
    negative = f.compare("fcmp olt", x, f.constant(0.0, "double"))
    r = f.select(negative, f.negated(r), r)
    turns = f.select(negative, f.binary("sub", f.i64(0), turns), turns)
    pair = f.insert(f.unset("<2 x double>"), r, 0)
    f.give_back(f.insert(pair, f.convert("bitcast", turns, "double"), 1))
    return symbol


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

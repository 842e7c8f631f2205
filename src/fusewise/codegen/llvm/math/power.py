"""pow for float and double: exp(y log|x|), with the logarithm kept to more bits than the result has.

float goes through double. double keeps log|x| as an unevaluated sum of two doubles (Dekker, 1971).
"""

from __future__ import annotations

import math

from fusewise.codegen.llvm.math.exponential import exp, log, log_parts
from fusewise.codegen.llvm.math.floating import Floats
from fusewise.codegen.nest.tree import Value

__all__ = ["general_power"]

Pair = tuple[Value, Value]

_TAIL = (  # 2 atanh(s) = 2s + s^3 (2/3 + s^2 P(s^2)), 2^-72
    0.39999999999999974, 0.28571428571446317, 0.2222222221724449, 0.1818181890601586, 0.15384554443529927,
    0.133364105056759, 0.11672934946811603, 0.1200465062176566,
)  # fmt: skip
_TWO_THIRDS = (0.6666666666666666, 3.700743415417188e-17)
_LN2 = (0.6931471805598903, 5.497923018708371e-14)


def general_power(m: Floats, x: Value, y: Value) -> Value:
    """x ** y with the special cases of IEEE 754."""
    f = m.function
    if m.double:
        size = _double_magnitude(m, m.abs(x), y)
    else:
        wide = Floats(f, m.instructions, "double", m.lanes)
        base, exponent = (f.convert("fpext", v, "double") for v in (m.abs(x), y))
        size = f.convert("fptrunc", exp(wide, wide.mul(exponent, log(wide, base))), "float")
    return _signed(m, x, y, size)


def _signed(m: Floats, x: Value, y: Value, size: Value) -> Value:
    whole = m.compare("oeq", m.round("floor", y), y)
    half = m.mul(y, 0.5)
    odd = m.both(whole, m.compare("une", m.round("floor", half), half))
    result = m.select(odd, m.copysign(size, x), size)
    negative = m.both(m.compare("olt", x, 0.0), m.compare("ogt", x, -math.inf))
    broken = m.function.binary("and", negative, m.function.binary("xor", whole, _true(m)))
    result = m.select(broken, math.nan, result)
    unit = m.both(m.compare("oeq", m.abs(x), 1.0), m.compare("oeq", m.abs(y), math.inf))
    one = m.either(m.either(m.compare("oeq", y, 0.0), m.compare("oeq", x, 1.0)), unit)
    return m.select(one, 1.0, result)


def _true(m: Floats) -> Value:
    return m.function.constant(True, "i1" if m.lanes == 1 else f"<{m.lanes} x i1>")


def _sum(m: Floats, a: Value, b: Value) -> Pair:
    """a + b exactly."""
    total = m.add(a, b)
    back = m.sub(total, a)
    return total, m.add(m.sub(a, m.sub(total, back)), m.sub(b, back))


def _short_sum(m: Floats, a: Value, b: Value) -> Pair:
    """a + b exactly when |a| >= |b|."""
    total = m.add(a, b)
    return total, m.sub(b, m.sub(total, a))


def _product(m: Floats, a: Value, b: Value) -> Pair:
    """a * b exactly: by one fused multiply-add, or by splitting each factor in halves."""
    product = m.mul(a, b)
    if m.instructions.fma:
        return product, m.mad(a, b, m.neg(product))
    (ah, al), (bh, bl) = _halves(m, a), _halves(m, b)
    error = m.sub(m.mul(ah, bh), product)
    error = m.add(m.add(error, m.mul(ah, bl)), m.mul(al, bh))
    return product, m.add(error, m.mul(al, bl))


def _halves(m: Floats, a: Value) -> Pair:
    high = m.from_bits(m.function.binary("and", m.bits(a), m.whole(~((1 << 27) - 1))))
    return high, m.sub(a, high)


def _times(m: Floats, a: Pair, b: Pair) -> Pair:
    high, low = _product(m, a[0], b[0])
    low = m.add(low, m.add(m.mul(a[0], b[1]), m.mul(a[1], b[0])))
    return _short_sum(m, high, low)


def _plus(m: Floats, a: Pair, b: Pair) -> Pair:
    high, low = _sum(m, a[0], b[0])
    return _short_sum(m, high, m.add(low, m.add(a[1], b[1])))


def _log_pair(m: Floats, x: Value) -> Pair:
    """log x as a pair, for positive finite x."""
    tiny = m.compare("olt", x, 2.0**-1022)
    normal = m.select(tiny, m.mul(x, 2.0**52), x)
    mantissa, _, exponent = log_parts(m, normal)
    exponent = m.sub(exponent, m.select(tiny, 52.0, 0.0))
    top = m.sub(mantissa, 1.0)
    bottom = _short_sum(m, *((m.number(2.0), top)))
    # s = top / bottom as a pair: one Newton correction of the quotient
    first = m.div(top, bottom[0])
    back = _product(m, first, bottom[0])
    rest = m.sub(m.sub(m.sub(top, back[0]), back[1]), m.mul(first, bottom[1]))
    s = _short_sum(m, first, m.div(rest, bottom[0]))
    z = _times(m, s, s)
    curve = m.mul(z[0], m.horner(z[0], _TAIL))
    inner = _plus(m, (m.number(_TWO_THIRDS[0]), m.number(_TWO_THIRDS[1])), (curve, m.number(0.0)))
    series = _times(m, _times(m, s, z), inner)
    series = _plus(m, (m.add(s[0], s[0]), m.add(s[1], s[1])), series)
    scaled = _sum(m, m.mul(exponent, _LN2[0]), m.mul(exponent, _LN2[1]))
    return _plus(m, scaled, series)


def _double_magnitude(m: Floats, a: Value, y: Value) -> Value:
    logarithm = _log_pair(m, a)
    # beyond this every result is 0 or infinite, and the products below stay finite
    bounded = m.limited(y, -1e300, 1e300)
    high, low = _product(m, logarithm[0], bounded)
    low = m.mad(logarithm[1], bounded, low)
    safe = m.compare("olt", m.abs(high), 1000.0)
    main = exp(m, high)
    finite = m.both(safe, m.both(m.compare("ogt", a, 0.0), m.compare("olt", a, math.inf)))
    refined = m.mad(main, m.select(finite, low, 0.0), main)
    refined = m.select(m.compare("oeq", main, math.inf), math.inf, refined)
    plain = exp(m, m.mul(y, log(m, a)))
    return m.select(finite, refined, plain)

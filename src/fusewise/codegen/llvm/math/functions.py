"""Mathematical functions as LLVM code for float and double, scalars and vectors: exp, log, erf, tanh, pow and their kin.

Each is a range reduction, a polynomial (coefficients found by a Remez exchange in high precision, relative error as
noted), and a reconstruction. Against the exact value the error is 4 units in the last place or less; NaN, infinities and
zeros are as IEEE 754 recommends. `exp` and `log` take and give subnormals; `sigmoid` gives 0 in place of one. A function is
emitted once per module and vector length, as an internal function that LLVM may inline.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from fusewise.codegen.llvm.math.exponential import exp, expm1, log, log1p
from fusewise.codegen.llvm.math.exponential_bounded import exp_below, exp_factors
from fusewise.codegen.llvm.math.floating import Floats, floats_of
from fusewise.codegen.llvm.math.power import general_power
from fusewise.codegen.llvm.math.trigonometric import acos, asin, atan, cos, sin, tan
from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.tree import Value
from fusewise.codegen.target import InstructionSet

__all__ = ["call", "gated", "power", "remainder"]


def _sigmoid(m: Floats, x: Value) -> Value:
    """1 / (1 + exp(-x))."""
    return m.div(1.0, _one_and_exp(m, x))


def _one_and_exp(m: Floats, x: Value) -> Value:
    """1 + exp(-x)."""
    return m.add(exp(m, m.neg(x)), 1.0) if m.double else m.mad(*exp_factors(m, x, negated=True), 1.0)


def _tanh(m: Floats, x: Value) -> Value:
    """expm1(2|x|) / (expm1(2|x|) + 2), with the sign of x; one path for all arguments."""
    magnitude = m.abs(x)
    bound = 20.0 if m.double else 9.5
    e = expm1(m, m.add(*(m.limited(magnitude, 0.0, bound),) * 2), bounded=True)
    return m.copysign(m.div(e, m.add(e, 2.0)), x)


_ERF_FLOAT = (  # erfc(x) = (1 - x P(x) / 4)^4 on 0 < x < 3.95, 2^-26 of erf
    1.1283791065216064, 0.47746530175209045, -0.06185450032353401, -0.07448217272758484, 0.004848468117415905,
    0.007796632591634989, -0.0008224649354815483, -0.0005470140604302287, 0.00015006723697297275, -1.1539624210854527e-05,
)  # fmt: skip
_ERF_NEAR = (  # erf(x) = x P(x^2) on |x| < 1, 2^-57
    1.1283791670955126, -0.3761263890318355, 0.11283791670945253, -0.026866170643276233, 0.005223977607423621,
    -0.0008548325989705839, 0.00012055295320814797, -1.492474467033578e-05, 1.6447517773126462e-06,
    -1.6209176696716323e-07, 1.3722979848171432e-08, -7.801195818646137e-10,
)  # fmt: skip
_ERF_FAR = (  # exp(x^2) erfc(x) as a polynomial in (x-2)/(x+2) on 1 < x < 6, 2^-66 of erf
    0.25539567631050575, -0.4271858474139584, 0.24165819424246676, -0.0789785810157484, 0.003732892404114805,
    0.006997461740176572, -0.0008471432257619716, -0.000981976973008925, 4.3554707555596534e-05,
    0.00017435646210627083, 2.7531690952674678e-05, -2.7487419196175178e-05, -1.3825557490032688e-05,
    9.464979444570072e-07, 2.215111151342569e-06,
)  # fmt: skip


def _erf(m: Floats, x: Value) -> Value:
    if not m.double:
        a = m.abs(x)
        a = m.select(m.compare("ogt", a, 3.95), 3.95, a)
        square, first = m.mul(a, a), m.mul(a, _ERF_FLOAT[0])
        v = m.mad(square, m.estrin(a, _ERF_FLOAT[1:]), first)
        # from 4 (1 - (1 - v/4)) to 2 (1 - (1 - v/4)^2), and to 1 - (1 - v/4)^4: nothing cancels where v is small
        v = m.mad(m.mul(v, -0.125), v, v)
        # a last place less than 1/4 makes it 1 at the end of the polynomial, fused or not: Gelu would not vanish
        return m.copysign(m.mad(m.mul(v, -0.2499999850988388), v, v), x)
    a = m.limited(m.abs(x), 0.0, 6.0)
    z = m.mul(a, a)
    near = m.mul(a, m.horner(z, _ERF_NEAR))
    t = m.div(m.sub(a, 2.0), m.add(a, 2.0))
    far = m.sub(1.0, m.mul(exp(m, m.neg(z)), m.horner(t, _ERF_FAR)))
    return m.copysign(m.select(m.compare("ult", a, 1.0), near, far), x)


def _sinh(m: Floats, x: Value) -> Value:
    """(e + e/(e+1)) / 2 with e = expm1(|x|); far out exp(|x|) / 2, scaled so that it overflows no sooner than sinh."""
    a = m.abs(x)
    e = expm1(m, a)
    near = m.mul(m.add(e, m.div(e, m.add(e, 1.0))), 0.5)
    far = exp(m, a, halved=True)
    return m.copysign(m.select(m.compare("ogt", a, 22.0), far, near), x)


def _cosh(m: Floats, x: Value) -> Value:
    half = exp(m, m.abs(x), halved=True)
    return m.add(half, m.div(0.25, half))


def _asinh(m: Floats, x: Value) -> Value:
    """log1p(a + a^2 / (1 + sqrt(1 + a^2))); far out log(a) + log 2."""
    a = m.abs(x)
    huge = m.compare("ogt", a, 1e9 if m.double else 1e5)
    b = m.select(huge, 1.0, a)
    z = m.mul(b, b)
    near = log1p(m, m.add(b, m.div(z, m.add(m.sqrt(m.add(z, 1.0)), 1.0))))
    far = m.add(log(m, a), math.log(2))
    return m.copysign(m.select(huge, far, near), x)


def _acosh(m: Floats, x: Value) -> Value:
    """log1p(t + sqrt(2t + t^2)) with t = x - 1; far out log(x) + log 2."""
    huge = m.compare("ogt", x, 1e9 if m.double else 1e5)
    t = m.sub(m.select(huge, 2.0, x), 1.0)
    near = log1p(m, m.add(t, m.sqrt(m.mul(t, m.add(t, 2.0)))))
    result = m.select(huge, m.add(log(m, x), math.log(2)), near)
    return m.select(m.compare("ult", x, 1.0), math.nan, result)


def _atanh(m: Floats, x: Value) -> Value:
    """log1p(2a / (1 - a)) / 2."""
    a = m.abs(x)
    return m.copysign(m.mul(log1p(m, m.div(m.add(a, a), m.sub(1.0, a))), 0.5), x)


def _rounding(kind: str) -> Callable[[Floats, Value], Value]:
    return lambda m, x: m.round(kind, x)


_FUNCTIONS: Mapping[str, Callable[[Floats, Value], Value]] = {
    "exp": exp,
    "exp_below": exp_below,
    "expm1": expm1,
    "log": log,
    "log1p": log1p,
    "erf": _erf,
    "tanh": _tanh,
    "sigmoid": _sigmoid,
    "sin": sin,
    "cos": cos,
    "tan": tan,
    "asin": asin,
    "acos": acos,
    "atan": atan,
    "sinh": _sinh,
    "cosh": _cosh,
    "asinh": _asinh,
    "acosh": _acosh,
    "atanh": _atanh,
    "floor": _rounding("floor"),
    "ceil": _rounding("ceil"),
    "round": _rounding("round"),
}

_INLINE = frozenset("exp exp_below erf gated tanh sigmoid floor ceil round".split())


def call(f: Function, instructions: InstructionSet, op: str, x: Value) -> Value:
    """Apply the function named `op` to a float or double, scalar or vector."""
    return _shared(f, instructions, op, (x,), lambda m, args: _FUNCTIONS[op](m, args[0]))


def _shared(
    f: Function,
    instructions: InstructionSet,
    name: str,
    operands: tuple[Value, ...],
    body: Callable[[Floats, tuple[Value, ...]], Value],
) -> Value:
    """Call a function of this module by name; write it first if it is not there yet."""
    first = operands[0]
    symbol = f"fusewise.{name}.{first.element}{first.lanes}"
    if not any(function.name == symbol for function in f.module.functions):
        attributes = "nounwind willreturn memory(none)" + (" alwaysinline" if name in _INLINE else "")
        kinds = [operand.type for operand in operands]
        inner = f.module.function(symbol, kinds, first.type, attributes, linkage="internal")
        inner.give_back(body(floats_of(inner, instructions, first), inner.arguments))
    return f.call(symbol, first.type, *operands)


def gated(f: Function, instructions: InstructionSet, x: Value, gate: Value) -> Value:
    """x * sigmoid(gate) with one division and no product."""
    return _shared(f, instructions, "gated", (x, gate), lambda m, args: m.div(args[0], _one_and_exp(m, args[1])))


def power(f: Function, instructions: InstructionSet, x: Value, y: Value, right: float | None) -> Value:
    """x to the power y; small whole and half exponents known now take multiplications and roots."""
    m = floats_of(f, instructions, x)
    if right is not None:
        short = _short_power(m, x, right)
        if short is not None:
            return short
    return _shared(f, instructions, "pow", (x, y), lambda inner, args: general_power(inner, *args))


def _short_power(m: Floats, x: Value, right: float) -> Value | None:
    if right == 0:
        return m.number(1.0)
    if right == 0.5:  # of -0 it is +0, of -inf +inf
        root = m.add(m.sqrt(x), 0.0)
        return m.select(m.compare("oeq", x, -math.inf), math.inf, root)
    if right == int(right) and abs(right) <= 4 if math.isfinite(right) else False:
        result = x
        if abs(right) == 4:
            square = m.mul(x, x)
            result = m.mul(square, square)
        else:
            for _ in range(int(abs(right)) - 1):
                result = m.mul(result, x)
        return m.div(1.0, result) if right < 0 else result
    return None


def remainder(f: Function, instructions: InstructionSet, x: Value, y: Value) -> Value:
    """The C remainder (sign of x): exact, by subtracting multiples of y that are short enough to be exact products."""
    return _shared(f, instructions, "fmod", (x, y), lambda m, args: _remainder(m, *args))


def _remainder(m: Floats, x: Value, y: Value) -> Value:
    f = m.function
    wide = Floats(f, m.instructions, "double", m.lanes)
    a, b = m.abs(x), m.abs(y)
    if not m.double:
        a, b = f.convert("fpext", a, "double"), f.convert("fpext", b, "double")
    # a quotient of 24 bits times half of b's bits is exact in double
    high = wide.from_bits(f.binary("and", wide.bits(b), wide.whole(~((1 << 27) - 1))))
    low = wide.sub(b, high)

    def is_long(rest: Value) -> Value:
        size = wide.abs(rest)
        known = wide.both(wide.compare("oge", size, b), wide.compare("olt", size, math.inf))
        return wide.both(known, wide.compare("ogt", b, 0.0))

    def shortened(rest: Value) -> tuple[Value]:
        size = wide.abs(rest)
        quotient = wide.round("floor", wide.div(size, b))
        short = wide.from_bits(f.binary("and", wide.bits(quotient), wide.whole(~((1 << 29) - 1))))
        less = wide.sub(wide.sub(size, wide.mul(short, high)), wide.mul(short, low))
        return (wide.select(is_long(rest), wide.mul(less, wide.copysign(wide.number(1.0), rest)), rest),)

    (rest,) = f.repeat(lambda rest: f.any(is_long(rest)), shortened, (a,))
    rest = wide.select(wide.compare("olt", rest, 0.0), wide.add(rest, b), rest)
    if not m.double:
        rest = f.convert("fptrunc", rest, "float")
    invalid = m.either(m.compare("oeq", y, 0.0), m.compare("oeq", m.abs(x), math.inf))
    invalid = m.either(invalid, m.compare("uno", x, y))
    return m.select(invalid, math.nan, m.copysign(rest, x))

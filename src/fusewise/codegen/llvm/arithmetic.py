"""The words of the expression language as LLVM instructions, on scalars and vectors alike.

Takes operands in register form (`registers`) and gives the result in register form. Narrow floats are computed as float and
rounded back. Functions such as exp come from `llvm.math.functions`; nothing here calls a library.
"""

from __future__ import annotations

import math

from fusewise.codegen.llvm.math import functions as mathfn
from fusewise.codegen.llvm.registers import narrow, splat, widen, wrapped
from fusewise.codegen.nest.build import Function
from fusewise.codegen.nest.tree import Value
from fusewise.codegen.nest.types import computed, register_type
from fusewise.codegen.target import InstructionSet
from fusewise.ir.deciding import known_below
from fusewise.ir.dtypes import DType
from fusewise.ir.size import Size

__all__ = ["apply_binary", "apply_compare", "apply_unary", "combine", "identity"]


def apply_unary(f: Function, instructions: InstructionSet, op: str, x: Value, dtype: DType) -> Value:
    """One of `UNARY` applied to `x` of `dtype`; the result is bool for `not isnan isinf`, else of `dtype`."""
    if op == "not":
        if dtype.kind == "bool":
            return f.binary("xor", x, splat(f, 1, x, "i1"))
        wide = widen(f, instructions, x, dtype)
        return f.compare("fcmp oeq" if dtype.is_float else "icmp eq", wide, splat(f, 0, wide, wide.element))
    if op == "bitnot":
        return wrapped(f, f.binary("xor", x, splat(f, -1, x, x.element)), dtype)
    if not dtype.is_float:
        return _unary_integer(f, op, x, dtype)
    wide = widen(f, instructions, x, dtype)
    if op == "isnan":
        return f.compare("fcmp uno", wide, wide)
    if op == "isinf":
        magnitude = f.intrinsic("fabs", wide)
        return f.compare("fcmp oeq", magnitude, splat(f, math.inf, wide, wide.element))
    return narrow(f, instructions, _unary_float(f, instructions, op, wide), dtype)


def _unary_integer(f: Function, op: str, x: Value, dtype: DType) -> Value:
    zero = splat(f, 0, x, x.element)
    signed = dtype.kind == "int"
    if op in ("floor", "ceil", "round"):
        return x
    if op in ("isnan", "isinf"):
        return splat(f, 0, x, "i1")
    if op == "neg":
        return wrapped(f, f.binary("sub", zero, x), dtype)
    if op == "abs":
        return wrapped(f, f.intrinsic("abs", x), dtype) if signed else x
    if op == "sign":
        positive = f.convert("zext", f.compare("icmp ne", x, zero), x.element) if dtype.kind != "bool" else x
        return f.select(f.compare("icmp slt", x, zero), splat(f, -1, x, x.element), positive) if signed else positive
    raise ValueError(f"{op} is not defined on {dtype}")


def _unary_float(f: Function, instructions: InstructionSet, op: str, x: Value) -> Value:
    if op == "neg":
        return f.negated(x)
    if op == "abs":
        return f.intrinsic("fabs", x)
    if op == "sqrt":
        return f.intrinsic("sqrt", x)
    if op == "sign":
        zero = splat(f, 0, x, x.element)
        below = f.select(f.compare("fcmp olt", x, zero), splat(f, -1, x, x.element), x)
        return f.select(f.compare("fcmp ogt", x, zero), splat(f, 1, x, x.element), below)
    return mathfn.call(f, instructions, op, x)


_FLOAT = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_INTEGER = {"add": "add", "sub": "sub", "mul": "mul", "bitand": "and", "bitor": "or", "bitxor": "xor"}
_LOGICAL = {"and": "and", "or": "or", "xor": "xor"}
_BOOL = {
    "add": "or",
    "mul": "and",
    "max": "or",
    "min": "and",
    "bitand": "and",
    "bitor": "or",
    "bitxor": "xor",
    "sub": "xor",
}


def apply_binary(
    f: Function, instructions: InstructionSet, op: str, a: Value, b: Value, dtype: DType, right: float | None = None
) -> Value:
    """One of `BINARY` applied to operands of `dtype` and equal lanes; `right` is the second operand when it is constant."""
    if op in _LOGICAL:
        if dtype.kind != "bool":
            zero = splat(f, 0, a, a.element)
            a, b = (f.compare("icmp ne", v, zero) for v in (a, b))
        return f.binary(_LOGICAL[op], a, b)
    if dtype.kind == "bool":
        return f.binary(_BOOL[op], a, b)
    if dtype.is_integer:
        return wrapped(f, _binary_integer(f, op, a, b, dtype, right), dtype)
    x, y = widen(f, instructions, a, dtype), widen(f, instructions, b, dtype)
    return narrow(f, instructions, _binary_float(f, instructions, op, x, y, right), dtype)


def _binary_float(f: Function, instructions: InstructionSet, op: str, x: Value, y: Value, right: float | None) -> Value:
    if op == "div" and right == 1:
        return x
    if op in _FLOAT:
        return f.binary(_FLOAT[op], x, y)
    if op in ("min", "max"):
        return _extreme(f, op, x, y, right)
    if op == "pow":
        return mathfn.power(f, instructions, x, y, right)
    if op == "fmod":
        return mathfn.remainder(f, instructions, x, y)
    if op in ("mod", "floormod"):
        return _python_remainder(f, mathfn.remainder(f, instructions, x, y), y)
    if op == "floordiv":
        return mathfn.call(f, instructions, "floor", f.binary("fdiv", x, y))
    raise ValueError(f"{op} is not defined on floats")


def _extreme(f: Function, op: str, x: Value, y: Value, right: float | None) -> Value:
    """NaN-propagating min or max. With a constant one compare-and-select (a single instruction on x86) is enough: it gives
    its second operand when unordered, so the constant goes first."""
    predicate = "fcmp ogt" if op == "max" else "fcmp olt"
    if right is not None and right == right:
        return f.select(f.compare(predicate, y, x), y, x)
    chosen = f.select(f.compare(predicate, x, y), x, y)
    return f.select(f.compare("fcmp uno", x, x), x, chosen)


def _python_remainder(f: Function, r: Value, y: Value) -> Value:
    """Move a C remainder to the divisor's sign."""
    zero = splat(f, 0, r, r.element)
    differs = f.binary("xor", f.compare("fcmp olt", r, zero), f.compare("fcmp olt", y, zero))
    other = f.binary("and", f.compare("fcmp une", r, zero), differs)
    return f.select(other, f.fadd(r, y), r)


def _binary_integer(f: Function, op: str, a: Value, b: Value, dtype: DType, right: float | None) -> Value:
    if op in _INTEGER:
        return f.binary(_INTEGER[op], a, b)
    signed = dtype.kind == "int"
    if op in ("min", "max"):
        return f.intrinsic(("s" if signed else "u") + op, a, b)
    if op in ("shl", "shr"):
        return _shift(f, op, a, b, dtype)
    if op == "pow":
        return _integer_power(f, a, b, signed)
    if op in ("div", "fmod", "mod", "floordiv", "floormod"):
        return _divide(f, op, a, b, signed, right)
    raise ValueError(f"{op} is not defined on integers")


def _shift(f: Function, op: str, a: Value, b: Value, dtype: DType) -> Value:
    """A shift by the width or more gives 0 (or the sign), as NumPy has it; LLVM leaves it undefined."""
    width = splat(f, int(a.element[1:]), a, a.element)
    inside = f.compare("icmp ult", b, width)
    amount = f.select(inside, b, splat(f, 0, a, a.element))
    if op == "shr" and dtype.kind == "int":
        most = splat(f, int(a.element[1:]) - 1, a, a.element)
        return f.binary("ashr", a, f.select(inside, b, most))
    moved = f.binary("shl" if op == "shl" else "lshr", a, amount)
    return f.select(inside, moved, splat(f, 0, a, a.element))


def _divide(f: Function, op: str, a: Value, b: Value, signed: bool, right: float | None) -> Value:
    """Division and remainder that never trap: by zero gives 0, the least integer by -1 wraps."""
    zero, one = splat(f, 0, a, a.element), splat(f, 1, a, a.element)
    constant = right is not None and (known_below(0, right) if isinstance(right, Size) else right not in (0, -1))
    by_zero = f.compare("icmp eq", b, zero)
    if not signed:
        divisor = b if constant else f.select(by_zero, one, b)
        result = f.binary("udiv" if op in ("div", "floordiv") else "urem", a, divisor)
        return result if constant else f.select(by_zero, zero, result)
    minus = f.compare("icmp eq", b, splat(f, -1, a, a.element))
    divisor = b if constant else f.select(f.binary("or", by_zero, minus), one, b)
    quotient = f.binary("sdiv", a, divisor)
    rest = f.binary("sub", a, f.binary("mul", quotient, divisor))
    if op in ("mod", "floormod", "floordiv"):
        unlike = f.compare("icmp slt", f.binary("xor", rest, divisor), zero)
        adjust = f.binary("and", f.compare("icmp ne", rest, zero), unlike)
        quotient = f.binary("add", quotient, f.convert("sext", adjust, a.element))
        rest = f.select(adjust, f.binary("add", rest, divisor), rest)
    result = quotient if op in ("div", "floordiv") else rest
    if constant:
        return result
    if op in ("div", "floordiv"):
        result = f.select(minus, f.binary("sub", zero, a), result)
    return f.select(by_zero, zero, result)


def _integer_power(f: Function, a: Value, b: Value, signed: bool) -> Value:
    """Square and multiply over the bits of the exponent; a negative exponent truncates to 0 unless the base is 1 or -1."""
    zero, one = splat(f, 0, a, a.element), splat(f, 1, a, a.element)

    def step(_: Value, carried: tuple[Value, ...]) -> tuple[Value, ...]:
        result, square, exponent = carried
        odd = f.compare("icmp ne", f.binary("and", exponent, one), zero)
        result = f.select(odd, f.binary("mul", result, square), result)
        return result, f.binary("mul", square, square), f.binary("lshr", exponent, one)

    result = f.loop(0, int(a.element[1:]), 1, step, (one, a, b))[0]
    if not signed:
        return result
    minus = splat(f, -1, a, a.element)
    unit = f.binary("or", f.compare("icmp eq", a, one), f.compare("icmp eq", a, minus))
    odd = f.compare("icmp ne", f.binary("and", b, one), zero)
    inverse = f.select(unit, f.select(odd, a, one), zero)
    return f.select(f.compare("icmp slt", b, zero), inverse, result)


def apply_compare(f: Function, instructions: InstructionSet, op: str, a: Value, b: Value, dtype: DType) -> Value:
    """One of `COMPARE` on operands of `dtype`; the result is i1."""
    if dtype.is_float:
        x, y = widen(f, instructions, a, dtype), widen(f, instructions, b, dtype)
        return f.compare("fcmp une" if op == "ne" else f"fcmp o{op}", x, y)
    sign = "" if op in ("eq", "ne") else "s" if dtype.kind == "int" else "u"
    return f.compare(f"icmp {sign}{op}", a, b)


def identity(kind: str, dtype: DType) -> float | int:
    """What an empty reduction gives."""
    if kind in ("sum", "or"):
        return 0
    if kind in ("prod", "and"):
        return -1 if kind == "and" and dtype.is_integer else 1
    if dtype.is_float:
        return -math.inf if kind == "max" else math.inf
    if dtype.kind == "bool":
        return 0 if kind == "max" else 1
    low = -(1 << (dtype.bits - 1)) if dtype.kind == "int" else 0
    high = (1 << (dtype.bits - (dtype.kind == "int"))) - 1
    return low if kind == "max" else high


def combine(f: Function, instructions: InstructionSet, kind: str, a: Value, b: Value, dtype: DType) -> Value:
    """One step of a reduction; `a` and `b` are in the type arithmetic on `dtype` is done in (`computed`)."""
    if kind in ("and", "or"):
        return f.binary(kind, a, b)
    op = {"sum": "add", "prod": "mul"}.get(kind, kind)
    if a.element in ("float", "double"):
        return _binary_float(f, instructions, op, a, b, None)
    assert a.element in (register_type(dtype), computed(dtype))
    return apply_binary(f, instructions, op, a, b, dtype)

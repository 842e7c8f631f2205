"""Scalar formulas that rows share, written over the expression vocabulary.

Each takes and gives expressions of one float dtype. Where the textbook form overflows or cancels, the stable form is used.
"""

from __future__ import annotations

import math

from fusewise.ir.dtypes import DType
from fusewise.ops.expr import Expr, IndexLike, as_expr, binary, cast, compare, const, select, unary

__all__ = [
    "clip",
    "gelu",
    "gelu_tanh",
    "identity",
    "maximum",
    "minimum",
    "mish",
    "quantized",
    "softplus",
    "square",
    "swish",
]


def maximum(a: Expr, b: IndexLike) -> Expr:
    """The larger; NaN when either is."""
    return binary("max", a, b)


def minimum(a: Expr, b: IndexLike) -> Expr:
    """The smaller; NaN when either is."""
    return binary("min", a, b)


def clip(x: Expr, low: IndexLike | None, high: IndexLike | None) -> Expr:
    """min(high, max(low, x)): `high` wins when the bounds cross."""
    y = x if low is None else maximum(x, low)
    return y if high is None else minimum(y, high)


def square(x: Expr) -> Expr:
    return x * x


def softplus(x: Expr) -> Expr:
    """log(1 + exp(x)), without overflow for large x."""
    return maximum(x, 0) + unary("log1p", unary("exp", -unary("abs", x)))


def mish(x: Expr) -> Expr:
    """x * tanh(softplus(x)) with one exponential: with e = exp(x) and n = e * (e + 2), the tanh is n / (n + 2).

    Beyond 20 the quotient is 1 even in double precision, and e * e must not overflow.
    """
    e = unary("exp", minimum(x, 20))
    n = e * (e + 2)
    return x * (n / (n + 2))


def swish(x: Expr, alpha: float = 1.0) -> Expr:
    """x * sigmoid(alpha * x)."""
    return x * unary("sigmoid", x if alpha == 1.0 else x * alpha)


def gelu(x: Expr) -> Expr:
    """x times the standard normal distribution function at x."""
    return x * 0.5 * (unary("erf", x * math.sqrt(0.5)) + 1.0)


def gelu_tanh(x: Expr) -> Expr:
    """The tanh approximation of `gelu` (Hendrycks and Gimpel, 2016); half of 1 + tanh(y) is sigmoid(2y)."""
    inner = (x + x * x * x * 0.044715) * (2 * math.sqrt(2.0 / math.pi))
    return x * unary("sigmoid", inner)


def identity(kind: str, dtype: DType) -> Expr:
    """The neutral element of a reduction: what an empty one gives."""
    if kind in ("sum", "or"):
        return const(0, dtype)
    if kind in ("prod", "and"):
        return const(1, dtype)
    if dtype.is_float:
        return const(-math.inf if kind == "max" else math.inf, dtype)
    if dtype.kind == "bool":
        return const(kind == "min", dtype)
    low, high = integer_range(dtype)
    return const(low if kind == "max" else high, dtype)


def integer_range(dtype: DType) -> tuple[int, int]:
    """The smallest and largest value of an integer type."""
    if dtype.kind == "uint":
        return 0, 2**dtype.bits - 1
    return -(2 ** (dtype.bits - 1)), 2 ** (dtype.bits - 1) - 1


def quantized(x: Expr, zero_point: Expr | None, dtype: DType) -> Expr:
    """Round half to even, shift by the zero point (a number of x's dtype), saturate, convert to the integer `dtype`."""
    rounded = unary("round", x)
    shifted = rounded if zero_point is None else rounded + zero_point
    low, high = integer_range(dtype)
    return cast(clip(shifted, float(low), float(high)), dtype)


def where_positive(x: Expr, then: IndexLike, otherwise: IndexLike) -> Expr:
    """`then` where x > 0, else `otherwise` (also for NaN)."""
    return select(compare("gt", x, 0), as_expr(then, x.dtype), as_expr(otherwise, x.dtype))

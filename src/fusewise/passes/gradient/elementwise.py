"""Gradients of operators on single elements. At a corner the slope is PyTorch's: Relu and Abs 0 at zero, Clip 1 on its bounds."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from fusewise.passes.gradient.row import Gradient, Reverse, pulled, row
from fusewise.passes.notation import Notation, TensorValue

__all__ = ["ELEMENTWISE"]

_FLAT = ("Floor", "Ceil", "Round", "Sign")


def _exponent(g: Notation, d: TensorValue, a: TensorValue, b: TensorValue, y: TensorValue) -> TensorValue:
    """y * log(a), which is 0 where 0 is raised to a power from 0 on."""
    base = g.cast(a, y.dtype)
    zero = g.And(g.Equal(base, 0), g.GreaterOrEqual(g.cast(b, y.dtype), 0))
    return g.cast(d * g.Where(zero, 0, y * g.Log(base)), b.dtype)


def _base(g: Notation, d: TensorValue, a: TensorValue, b: TensorValue, y: TensorValue) -> TensorValue:
    """b * a ** (b - 1), which is 0 for an exponent of 0."""
    power = g.cast(b, a.dtype)
    return d * g.Where(g.Equal(power, 0), 0, power * g.Pow(a, power - 1))


def _clip(g: Notation, at: Reverse) -> list[TensorValue | None]:
    """Min(Max(x, low), high): an element passes `d` on to the one of the three that it is."""
    x, d = at.operand(), at.first
    low, high = (*at.x[1:], None, None)[:2]
    below = None if low is None else g.Less(x, low)
    above = None if high is None else g.Greater(x, high)
    if low is not None and high is not None and not _in_order(at):
        crossed = g.Less(high, low)
        assert below is not None and above is not None
        above = g.Or(above, crossed)
        below = g.And(below, g.Not(crossed))
    held = [None if outside is None else g.Where(outside, d, 0) for outside in (below, above)]
    inner = d
    for outside in (below, above):
        inner = inner if outside is None else g.Where(outside, 0, inner)
    return [inner, *held][: len(at.x)]


def _in_order(at: Reverse) -> bool:
    """Are the bounds known, the lower one below?"""
    low, high = at.call.constant(1), at.call.constant(2)
    return low is not None and high is not None and bool(np.all(low <= high))


def _extreme(g: Notation, at: Reverse) -> list[TensorValue | None]:
    """Every operand that is the largest gets an equal share."""
    (y,) = at.y
    shares = [g.cast(g.Equal(x, y), at.first.dtype) for x in at.x]
    count = shares[0]
    for share in shares[1:]:
        count = count + share
    each = at.first / count
    return [each * share for share in shares]


def _where(g: Notation, at: Reverse) -> list[TensorValue | None]:
    return [None, g.Where(at.x[0], at.first, 0), g.Where(at.x[0], 0, at.first)]


def _cast(g: Notation, at: Reverse) -> list[TensorValue | None]:
    return [g.cast(at.first, at.operand().dtype), *[None] * (len(at.x) - 1)]


def _modulo(g: Notation, at: Reverse) -> list[TensorValue | None] | None:
    """a - b * trunc(a / b), as C's fmod."""
    if not at.call.attribute("fmod", 0):
        return None
    quotient = at.operand(0) / at.operand(1)
    whole = g.Floor(g.Abs(quotient)) * g.Sign(quotient)
    return [at.first, -at.first * whole]


def _dropout(g: Notation, at: Reverse) -> list[TensorValue | None] | None:
    """At inference nothing is dropped."""
    training = at.call.constant(2) if at.call.has(2) else np.array(False)
    return None if training is None or training.any() else [at.first, *[None] * (len(at.x) - 1)]


def _nothing(g: Notation, at: Reverse) -> list[TensorValue | None]:
    return [None] * len(at.x)


def _root(slope: Callable[[Notation, TensorValue], TensorValue]) -> Callable[..., TensorValue]:
    """One over the root of a function of x."""
    return lambda g, d, x, y: d / g.Sqrt(slope(g, x))


def _softplus(g: Notation, d: TensorValue, x: TensorValue, y: TensorValue) -> TensorValue:
    return d * g.Sigmoid(x)


ELEMENTWISE: tuple[Gradient, ...] = (
    pulled("Add", lambda g, d, a, b, y: d, lambda g, d, a, b, y: d),
    pulled("Sub", lambda g, d, a, b, y: d, lambda g, d, a, b, y: -d),
    pulled("Mul", lambda g, d, a, b, y: d * b, lambda g, d, a, b, y: d * a),
    pulled("Div", lambda g, d, a, b, y: d / b, lambda g, d, a, b, y: -d * y / b),
    pulled("Pow", _base, _exponent),
    pulled("Neg", lambda g, d, x, y: -d),
    pulled("Abs", lambda g, d, x, y: d * g.Sign(x)),
    pulled("Reciprocal", lambda g, d, x, y: -d * y * y),
    pulled("Sqrt", lambda g, d, x, y: d / (2 * y)),
    pulled("Exp", lambda g, d, x, y: d * y),
    pulled("Log", lambda g, d, x, y: d / x),
    pulled("Erf", lambda g, d, x, y: d * (2 / math.sqrt(math.pi) * g.Exp(-(x * x)))),
    pulled("Sigmoid", lambda g, d, x, y: d * y * (1 - y)),
    pulled("Tanh", lambda g, d, x, y: d * (1 - y * y)),
    pulled("Softplus", _softplus),
    pulled("Relu", lambda g, d, x, y: g.Where(g.Greater(x, 0), d, 0)),
    pulled("Sin", lambda g, d, x, y: d * g.Cos(x)),
    pulled("Cos", lambda g, d, x, y: -d * g.Sin(x)),
    pulled("Tan", lambda g, d, x, y: d * (1 + y * y)),
    pulled("Asin", _root(lambda g, x: 1 - x * x)),
    pulled("Acos", lambda g, d, x, y: -d / g.Sqrt(1 - x * x)),
    pulled("Atan", lambda g, d, x, y: d / (1 + x * x)),
    pulled("Sinh", lambda g, d, x, y: d * g.Cosh(x)),
    pulled("Cosh", lambda g, d, x, y: d * g.Sinh(x)),
    pulled("Asinh", _root(lambda g, x: x * x + 1)),
    pulled("Acosh", _root(lambda g, x: x * x - 1)),
    pulled("Atanh", lambda g, d, x, y: d / (1 - x * x)),
    pulled("Identity", lambda g, d, x, y: d),
    row("Dropout", _dropout),
    row("Mod", _modulo),
    row("Clip", _clip),
    row("Max", _extreme),
    row("Min", _extreme),
    row("Where", _where),
    row("Cast", _cast),
    row("CastLike", _cast),
    *(row(op, _nothing) for op in _FLAT),
)

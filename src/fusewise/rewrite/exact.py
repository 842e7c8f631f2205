"""Run a graph without rounding: over fractions, or over integers that wrap around.

The values are NumPy arrays, of `fractions.Fraction` as objects or of a small integer dtype. What has no value (a quotient
by zero, the root of a negative number) is `UNDEFINED` and stays so. Functions that leave the rationals are replaced by
others that obey the same laws and do not: the exponential has base two, on whole numbers; Log is its inverse, Sqrt is
defined on squares; Sigmoid and Tanh follow from the exponential; functions of which only the order matters, such as Erf,
by a rational function with the same sign and order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import reduce
from types import MappingProxyType
from typing import Any

import numpy as np

from fusewise.ir.graph import Graph, Node
from fusewise.rewrite.exact_linear import LINEAR
from fusewise.rewrite.undefined import UNDEFINED, elementwise

__all__ = ["UNDEFINED", "run_exactly"]


Array = np.ndarray
_MOST_BITS = 4096


def _quotient(a: Fraction, b: Fraction) -> Any:
    return UNDEFINED if b == 0 else a / b


def _root(x: Fraction) -> Any:
    if x < 0:
        return UNDEFINED
    above, below = math.isqrt(x.numerator), math.isqrt(x.denominator)
    return Fraction(above, below) if (above**2, below**2) == (x.numerator, x.denominator) else UNDEFINED


def _exponential(x: Fraction) -> Any:
    return Fraction(2) ** int(x) if x.denominator == 1 and abs(x) < _MOST_BITS else UNDEFINED


def _logarithm(x: Fraction) -> Any:
    if x <= 0 or 1 not in (x.numerator, x.denominator):
        return UNDEFINED
    power = x.numerator if x.denominator == 1 else x.denominator
    if power & (power - 1):
        return UNDEFINED
    return Fraction((power.bit_length() - 1) * (1 if x.denominator == 1 else -1))


def _logistic(x: Fraction) -> Any:
    power = _exponential(-x)
    return power if power is UNDEFINED else 1 / (1 + power)


def _tangent(x: Fraction) -> Any:
    up, down = _exponential(x), _exponential(-x)
    return UNDEFINED if up is UNDEFINED else (up - down) / (up + down)


def _power(a: Fraction, b: Fraction) -> Any:
    if b == Fraction(1, 2):
        return _root(a)
    if b.denominator != 1 or abs(b) > 64 or (a == 0 and b < 0):
        return UNDEFINED
    return a ** int(b)


def _halves_to_even(x: Fraction) -> Fraction:
    return Fraction(round(x))


def _where(p: Array, a: Array, b: Array) -> Array:
    return np.where(p, a, b)


_FRACTIONS: Mapping[str, Callable[..., Array]] = MappingProxyType(
    {
        "Add": elementwise(lambda a, b: a + b),
        "Sub": elementwise(lambda a, b: a - b),
        "Mul": elementwise(lambda a, b: a * b),
        "Div": elementwise(_quotient),
        "Neg": elementwise(lambda a: -a),
        "Abs": elementwise(abs),
        "Reciprocal": elementwise(lambda a: _quotient(Fraction(1), a)),
        "Sum": elementwise(lambda a, b: a + b),
        "Max": elementwise(max),
        "Min": elementwise(min),
        "Pow": elementwise(_power),
        "Sqrt": elementwise(_root),
        "Exp": elementwise(_exponential),
        "Log": elementwise(_logarithm),
        "Sigmoid": elementwise(_logistic),
        "Tanh": elementwise(_tangent),
        "Relu": elementwise(lambda a: max(a, Fraction(0))),
        "PRelu": elementwise(lambda a, slope: a if a >= 0 else a * slope),
        "Floor": elementwise(lambda a: Fraction(math.floor(a))),
        "Ceil": elementwise(lambda a: Fraction(math.ceil(a))),
        "Round": elementwise(_halves_to_even),
        "Sign": elementwise(lambda a: Fraction((a > 0) - (a < 0))),
        "Erf": elementwise(lambda a: a / (2 + abs(a))),
        "Atan": elementwise(lambda a: a / (3 + abs(a))),
        "Softplus": elementwise(lambda a: a + 1 if a > 0 else 1 / (1 - a)),
        "Cos": elementwise(lambda a: 1 / (1 + a * a)),
        "Where": _where,
    }
)


def _shift(node: Node, a: Array, b: Array) -> Array:
    bits = 8 * a.dtype.itemsize
    amount = np.minimum(b, bits - 1)
    shifted = np.left_shift(a, amount) if node.attribute("direction") == "LEFT" else np.right_shift(a, amount)
    return np.where(b < bits, shifted, 0).astype(a.dtype)


def _truncated(a: Array, b: Array) -> Array:
    """Quotients rounded towards zero, as whole numbers are divided."""
    return np.asarray(np.where((a < 0) == (b < 0), a // b, -(-a // b)), dtype=a.dtype)


def _softmax(node: Node, x: Array) -> Array:
    """Softmax to base two, undefined in a row where any of its powers is; LogSoftmax without a Softmax on the way."""
    axis = int(node.attribute("axis", -1))
    powers = _FRACTIONS["Exp"](x)
    total = np.expand_dims(reduce(_FRACTIONS["Add"], np.moveaxis(powers, axis, 0)), axis)
    if node.op == "Softmax":
        return _FRACTIONS["Div"](powers, total)
    return _FRACTIONS["Sub"](x, _FRACTIONS["Log"](total))


_MACHINE: Mapping[str, Callable[..., Array]] = MappingProxyType(
    {
        "Add": np.add,
        "Sub": np.subtract,
        "Mul": np.multiply,
        "Neg": np.negative,
        "Abs": np.abs,
        "Max": np.maximum,
        "Min": np.minimum,
        "And": np.logical_and,
        "Or": np.logical_or,
        "Xor": np.logical_xor,
        "Not": np.logical_not,
        "BitwiseAnd": np.bitwise_and,
        "BitwiseOr": np.bitwise_or,
        "BitwiseXor": np.bitwise_xor,
        "BitwiseNot": np.invert,
        "Less": np.less,
        "LessOrEqual": np.less_equal,
        "Greater": np.greater,
        "GreaterOrEqual": np.greater_equal,
        "Equal": np.equal,
        "Div": _truncated,
        "Where": _where,
    }
)
"""On booleans and on integers, which NumPy lets wrap around as ONNX does."""

_FOLDS: Mapping[str, tuple[str, str, str]] = MappingProxyType(
    {
        "ReduceSum": ("", "Add", ""),
        "ReduceMean": ("", "Add", "mean"),
        "ReduceProd": ("", "Mul", ""),
        "ReduceMax": ("", "Max", ""),
        "ReduceMin": ("", "Min", ""),
        "ReduceL1": ("Abs", "Add", ""),
        "ReduceSumSquare": ("square", "Add", ""),
        "ReduceL2": ("square", "Add", "Sqrt"),
        "ReduceLogSum": ("", "Add", "Log"),
    }
)
"""What is done to each element, how they are combined, what is done to the result."""


def _reduced(node: Node, scalar: Callable[..., Array], x: Array, axes: Array | None = None) -> Array:
    first, combine, last = _FOLDS[node.op]
    chosen = sorted({int(a) % x.ndim for a in (range(x.ndim) if axes is None or not axes.size else axes)})
    if first:
        x = scalar("Mul", x, x) if first == "square" else scalar(first, x)
    keep = bool(node.attribute("keepdims", 1))
    rows = np.moveaxis(x, chosen, range(len(chosen)))
    rows = rows.reshape((-1, *rows.shape[len(chosen) :]))
    total = reduce(lambda a, b: scalar(combine, a, b), list(rows))
    if last == "mean":
        total = scalar("Div", total, np.full(np.shape(total), Fraction(len(rows)), dtype=object))
    elif last:
        total = scalar(last, total)
    total = np.asarray(total, dtype=x.dtype)
    shape = tuple(1 if d in chosen else n for d, n in enumerate(x.shape))
    return total.reshape(shape) if keep else total


def run_exactly(graph: Graph, feeds: Mapping[str, Array]) -> list[Array]:
    """The outputs of `graph` for object arrays of fractions, or for arrays of integers and booleans.

    Constants of floats count as the fractions they are. Raises `KeyError` for an operator it does not know.
    """
    values: dict[str, Array] = {**{x: _fractions(c.array) for x, c in graph.constants.items()}, **feeds}
    for node in graph.nodes:
        operands = [values[x] if x else None for x in node.inputs]
        with np.errstate(over="ignore"):
            found = LINEAR[node.op](node, *operands) if node.op in LINEAR else [_computed(node, operands)]
            values.update(zip(node.outputs, found, strict=True))
    return [values[x] for x in graph.outputs]


def _computed(node: Node, operands: list[Any]) -> Array:
    if node.op in ("Cast", "Identity"):
        return np.asarray(operands[0])
    if node.op in ("Softmax", "LogSoftmax"):
        return _softmax(node, operands[0])
    if node.op == "BitShift":
        return _shift(node, operands[0], operands[1])
    fractions = any(x is not None and x.dtype == object for x in operands)

    def scalar(op: str, *x: Array) -> Array:
        return np.asarray(reduce((_FRACTIONS if fractions else _MACHINE)[op], x) if _chained(op) else _one(op, *x))

    def _one(op: str, *x: Array) -> Array:
        return (_FRACTIONS if fractions else _MACHINE)[op](*x)

    return _reduced(node, scalar, *operands) if node.op in _FOLDS else scalar(node.op, *operands)


def _chained(op: str) -> bool:
    """Does the operator take any number of operands?"""
    return op in ("Max", "Min", "Add", "Mul", "Sum")


def _fractions(array: Array) -> Array:
    if array.dtype.kind != "f":
        return array
    return np.array([Fraction(float(x)) for x in array.reshape(-1)], dtype=object).reshape(array.shape)

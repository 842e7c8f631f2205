"""Element by element: arithmetic, comparisons, functions, choices. Floats of 16 bits are computed in 32 and rounded once."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from fusewise.ir.dtypes import dtype_of_onnx
from fusewise.ir.graph import Node
from fusewise.ops.plain.row import Other, Plain, PlainFunction, is_number, of_any, plain

__all__ = ["ELEMENTWISE", "divided", "erf"]


def _rounded_once(function: PlainFunction) -> PlainFunction:
    """A function of floats, of float16 by float32."""

    def run(data: Any, *others: Any) -> Any:
        if data.dtype != np.float16:
            return function(data, *others)
        return function(data.astype(np.float32), *(one.astype(np.float32) for one in others)).astype(np.float16)

    return run


def _of_floats(op: str, since: int, function: PlainFunction) -> Plain:
    exact = _rounded_once(function)

    def run(data: Any, *others: Any) -> Any:
        if data.dtype.kind != "f":
            raise Other
        return exact(data, *others)

    return plain(op, since, run)


def _of_settings(op: str, since: int, function: Callable[..., Any], **defaults: float) -> Plain:
    """A function of a float and of the attributes in `defaults`, in their order."""

    def make(node: Node) -> PlainFunction:
        values = [float(node.attribute(name, usual)) for name, usual in defaults.items()]
        exact = _rounded_once(lambda data: function(data, *(data.dtype.type(value) for value in values)))

        def run(data: Any) -> Any:
            if data.dtype.kind != "f":
                raise Other
            return exact(data)

        return run

    return Plain(op, since, make)


def _together(op: str, since: int, function: PlainFunction) -> Plain:
    """A function of two, over any number of operands."""
    return plain(op, since, _rounded_once(lambda *operands: reduce(function, operands)))


def divided(a: Any, b: Any) -> Any:
    """Floats as they are; integers are cut off towards zero, where NumPy goes down."""
    if a.dtype.kind == "f":
        return a / b
    if not np.all(b):
        raise Other
    quotient = a // b
    if a.dtype.kind == "u":
        return quotient
    return (quotient + ((quotient * b != a) & ((a < 0) != (b < 0)))).astype(a.dtype)


def _modulo(node: Node) -> PlainFunction:
    like_c = bool(node.attribute("fmod", 0))

    def run(a: Any, b: Any) -> Any:
        if (a.dtype.kind == "f" and not like_c) or (a.dtype.kind != "f" and not np.all(b)):
            raise Other
        return np.fmod(a, b) if like_c else np.mod(a, b)

    return run


def _power(base: Any, exponent: Any) -> Any:
    if base.dtype.kind != "f":
        raise Other  # what is cut off, and how, is the definition's to say
    wide = np.float64 if base.dtype == np.float64 else np.float32
    return np.power(base.astype(wide, copy=False), exponent.astype(wide, copy=False)).astype(base.dtype, copy=False)


@_rounded_once
def _mean(*operands: Any) -> Any:
    return reduce(np.add, operands) / operands[0].dtype.type(len(operands))


def _clip(node: Node) -> PlainFunction:
    def run(data: Any, low: Any = None, high: Any = None) -> Any:
        found = data if low is None else np.maximum(data, low)
        return found if high is None else np.minimum(found, high)

    return run


def _shift(node: Node) -> PlainFunction:
    shifted = np.left_shift if node.attribute("direction") == "LEFT" else np.right_shift

    def run(data: Any, by: Any) -> Any:
        bits = 8 * data.dtype.itemsize
        return np.where(by < bits, shifted(data, np.minimum(by, data.dtype.type(bits - 1))), data.dtype.type(0))

    return run


def _cast(node: Node) -> PlainFunction:
    wanted = dtype_of_onnx(node.attribute("to")).numpy
    return lambda data: _as_type(data, wanted)


def _cast_like(node: Node) -> PlainFunction:
    return lambda data, like: _as_type(data, like.dtype)


def _as_type(data: Any, target: Any) -> Any:
    lossy = data.dtype.kind == "f" and target.kind in "iu"  # what becomes of NaN is the evaluator's to say
    if not is_number(data.dtype) or not is_number(target) or (lossy and not np.isfinite(data).all()):
        raise Other
    return data.astype(target)


def _is_infinite(node: Node) -> PlainFunction:
    up, down = bool(node.attribute("detect_positive", 1)), bool(node.attribute("detect_negative", 1))
    return lambda data: (np.isposinf(data) & up) | (np.isneginf(data) & down)


def _compared(op: str, since: int, function: Any) -> Plain:
    return plain(op, since, function)


def _equal(node: Node) -> PlainFunction:
    return lambda a, b: np.equal(a, b, dtype=bool) if a.dtype == object else np.equal(a, b)


def _sigmoid(data: Any) -> Any:
    return data.dtype.type(1) / (data.dtype.type(1) + np.exp(-data))


def _gelu(node: Node) -> PlainFunction:
    def run(data: Any) -> Any:
        one, half = data.dtype.type(1), data.dtype.type(0.5)
        if data.dtype.kind != "f":
            raise Other
        if node.attribute("approximate", "none") == "tanh":
            inner = data.dtype.type(math.sqrt(2 / math.pi)) * (data + data.dtype.type(0.044715) * data * data * data)
            return half * data * (one + np.tanh(inner))
        return half * data * (one + erf(data * data.dtype.type(math.sqrt(0.5))))

    exact: PlainFunction = _rounded_once(run)
    return exact


_ERF_ABOVE = (
    -1.60960333262415e-02,
    -2.95459980854025e-03,
    -7.34990630326855e-04,
    -5.69250639462346e-05,
    -2.10102402082508e-06,
    2.77068142495902e-08,
    -2.72614225801306e-10,
)
_ERF_BELOW = (
    -1.42647390514189e-02,
    -7.37332916720468e-03,
    -1.68282697438203e-03,
    -2.13374055278905e-04,
    -1.45660718464996e-05,
)
"""Coefficients of x**1, x**3, ... and x**0, x**2, ... of a rational minimax form of erf on -4 .. 4, for float32 (as in Eigen)."""


def erf(data: Any) -> Any:
    """The error function of floats; of float32 by a quotient of polynomials, to 3e-7."""
    if data.dtype == np.float64:
        return np.vectorize(math.erf, otypes=[np.float64])(data)
    x = np.clip(data, -4, 4)
    square = x * x
    above, below = (np.float32(terms[-1]) for terms in (_ERF_ABOVE, _ERF_BELOW))
    for term in _ERF_ABOVE[-2::-1]:
        above = above * square + np.float32(term)
    for term in _ERF_BELOW[-2::-1]:
        below = below * square + np.float32(term)
    return np.clip(x * above / below, -1, 1)


def _softplus(data: Any) -> Any:
    return np.logaddexp(data, data.dtype.type(0))


def _relu(data: Any) -> Any:
    return np.maximum(data, data.dtype.type(0))


def _leaky(data: Any, alpha: Any) -> Any:
    return np.where(data < 0, alpha * data, data)


def _exponential(data: Any, alpha: Any) -> Any:
    return np.where(data < 0, alpha * np.expm1(np.minimum(data, 0)), data)


def _prelu(data: Any, slope: Any) -> Any:
    return np.where(data < 0, slope * data, data)


def _logical(op: str, function: PlainFunction) -> Plain:
    def run(*operands: Any) -> Any:
        if any(operand.dtype != bool for operand in operands):
            raise Other
        return function(*operands)

    return plain(op, 7 if op != "Not" else 1, run)


_FLOATS: tuple[tuple[str, int, PlainFunction], ...] = (
    *((op, 7, getattr(np, op.lower())) for op in ("Sin", "Cos", "Tan")),
    *((f"A{name}", 7, getattr(np, f"arc{name}")) for name in ("sin", "cos", "tan")),
    *((op, 9, getattr(np, op.lower())) for op in ("Sinh", "Cosh")),
    *((f"A{name}", 9, getattr(np, f"arc{name}")) for name in ("sinh", "cosh", "tanh")),
    *((op, 6, getattr(np, op.lower())) for op in ("Ceil", "Exp", "Floor", "Log", "Sqrt", "Tanh")),
    ("Erf", 9, erf),
    ("Reciprocal", 6, np.reciprocal),
    ("Round", 11, np.rint),
    ("Sigmoid", 6, _sigmoid),
    ("Softplus", 1, _softplus),
    ("Softsign", 1, lambda x: x / (x.dtype.type(1) + np.abs(x))),
    ("Mish", 18, lambda x: x * np.tanh(_softplus(x))),
    ("HardSwish", 14, lambda x: x * np.clip(x / x.dtype.type(6) + x.dtype.type(0.5), 0, 1)),
)

ELEMENTWISE: tuple[Plain, ...] = (
    *(_of_floats(*row) for row in _FLOATS),
    *(plain(op, 7, function) for op, function in (("Add", np.add), ("Mul", np.multiply), ("Sub", np.subtract))),
    plain("Div", 7, divided),
    plain("Abs", 6, np.abs),
    plain("Neg", 6, np.negative),
    plain("Sign", 9, np.sign),
    plain("Relu", 6, _relu),
    plain("Pow", 13, _power),
    Plain("Mod", 10, _modulo),
    Plain("Clip", 12, _clip),
    _together("Max", 8, np.maximum),
    _together("Min", 8, np.minimum),
    _together("Sum", 8, np.add),
    plain("Mean", 8, _mean),
    plain("PRelu", 9, _prelu),
    _of_settings("LeakyRelu", 6, _leaky, alpha=0.01),
    _of_settings("Elu", 6, _exponential, alpha=1.0),
    _of_settings("HardSigmoid", 6, lambda x, a, b: np.clip(a * x + b, 0, 1), alpha=0.2, beta=0.5),
    _of_settings("ThresholdedRelu", 10, lambda x, a: np.where(x > a, x, x.dtype.type(0)), alpha=1.0),
    _of_settings("Swish", 24, lambda x, a: x * _sigmoid(a * x), alpha=1.0),
    Plain("Gelu", 20, _gelu),
    _compared("Greater", 9, np.greater),
    _compared("GreaterOrEqual", 12, np.greater_equal),
    _compared("Less", 9, np.less),
    _compared("LessOrEqual", 12, np.less_equal),
    of_any("Equal", 7, _equal),
    *(_logical(op, function) for op, function in (("And", np.logical_and), ("Or", np.logical_or))),
    *(_logical(op, function) for op, function in (("Xor", np.logical_xor), ("Not", np.logical_not))),
    *(plain(f"Bitwise{name}", 18, getattr(np, f"bitwise_{name.lower()}")) for name in ("And", "Or", "Xor", "Not")),
    Plain("BitShift", 11, _shift),
    Plain("Cast", 6, _cast),
    Plain("CastLike", 15, _cast_like),
    Plain("IsInf", 10, _is_infinite),
    plain("IsNaN", 9, np.isnan),
    of_any("Where", 9, lambda node: np.where),
    of_any("Identity", 1, lambda node: lambda value: value),
)

"""Elementwise operators: each row is a scalar body; broadcasting is added by `definition`.

Narrow floats reach a body as float32. Alternatives for large or negative arguments are written out where the textbook
formula overflows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import reduce as fold
from typing import Any

import numpy as np

from fusewise.ir.dtypes import BOOL, FLOAT64, DType, dtype_of, dtype_of_onnx
from fusewise.ops.cost import free, of_scalar
from fusewise.ops.edges import elementwise
from fusewise.ops.expr import Expr, binary, bits, cast, compare, const, select, unary
from fusewise.ops.indexing import compute_type
from fusewise.ops.narrow import from_narrow, is_narrow, to_narrow
from fusewise.ops.scalar import clip, gelu, gelu_tanh, maximum, mish, softplus, swish, where_positive
from fusewise.ops.spec import Call, NotDefined, OpSpec, Sample

__all__ = ["ELEMENTWISE"]

Scalar = Callable[..., Expr]


def row(name: str, scalar: Scalar, samples: tuple[Sample, ...], *flags: str, over: tuple[str, ...] = ()) -> OpSpec:
    """An elementwise row; `over` are the operators it distributes over."""
    return OpSpec(
        name,
        mapping=elementwise,
        flops=of_scalar(scalar),
        scalar=scalar,
        flags=frozenset(flags),
        distributes_over=over,
        samples=samples,
    )


def unary_samples(
    low: float = -3.0, high: float = 3.0, *dtypes: str, double: bool = True, **attributes: Any
) -> tuple[Sample, ...]:
    """A matrix, a vector of each further dtype, and an empty tensor.

    `double` is false where ONNX's reference has only float32 accuracy on float64.
    """
    further = ("float16", "float64", *dtypes) if double else ("float16", *dtypes)
    return (
        Sample((("float32", (3, 5)),), attributes, low=low, high=high),
        *(Sample(((dtype, (7,)),), attributes, low=low, high=high) for dtype in further),
        Sample((("float32", (0, 4)),), attributes, low=low, high=high),
    )


def binary_samples(*dtypes: str, low: float = -4.0, high: float = 4.0, **attributes: Any) -> tuple[Sample, ...]:
    """Equal shapes, each kind of broadcast, a scalar and an empty operand, over the given dtypes in turn."""
    shapes = (((2, 3), (2, 3)), ((2, 3, 4), (3, 1)), ((1, 4), (3, 1)), ((5,), ()), ((3,), (1, 3)), ((0, 3), (1, 3)))
    plain = tuple(
        Sample(((dtypes[k % len(dtypes)], a), (dtypes[k % len(dtypes)], b)), attributes, low=low, high=high)
        for k, (a, b) in enumerate(shapes)
    )
    others = tuple(Sample(((d, (2, 3)), (d, (3,))), attributes, low=low, high=high) for d in dtypes[1:])
    return plain + others


def _of(op: str) -> Scalar:
    return lambda call, x: unary(op, x)


def _pair(op: str) -> Scalar:
    return lambda call, a, b: binary(op, a, b)


def _comparison(op: str) -> Scalar:
    return lambda call, a, b: compare(op, a, b)


def _variadic(op: str) -> Scalar:
    return lambda call, *operands: fold(lambda a, b: binary(op, a, b), operands)


# -- functions of one operand ---------------------------------------------------------------------------------------------


def _hard_sigmoid(call: Call, x: Expr) -> Expr:
    return clip(x * call.single("alpha", 0.2) + call.single("beta", 0.5), 0, 1)


def _leaky_relu(call: Call, x: Expr) -> Expr:
    return select(compare("lt", x, 0), x * call.single("alpha", 0.01), x)


def _elu(call: Call, x: Expr) -> Expr:
    return select(compare("lt", x, 0), unary("expm1", x) * call.single("alpha", 1.0), x)


def _celu(call: Call, x: Expr) -> Expr:
    alpha = call.single("alpha", 1.0)
    return select(compare("lt", x, 0), unary("expm1", x / alpha) * alpha, x)


def _selu(call: Call, x: Expr) -> Expr:
    # the defaults are ONNX's, given in float32
    alpha = call.single("alpha", 1.6732631921768188)
    gamma = call.single("gamma", 1.0507010221481323)
    return where_positive(x, x, unary("expm1", x) * alpha) * gamma


def _thresholded_relu(call: Call, x: Expr) -> Expr:
    return select(compare("gt", x, call.single("alpha", 1.0)), x, 0)


def _shrink(call: Call, x: Expr) -> Expr:
    bias, bound = call.single("bias", 0.0), call.single("lambd", 0.5)
    wide = cast(x, FLOAT64) if x.dtype.is_integer else x  # the attributes are floats, whatever x is
    inner = select(compare("gt", wide, bound), wide - bias, 0)
    return cast(select(compare("lt", wide, -bound), wide + bias, inner), x.dtype)


def _gelu(call: Call, x: Expr) -> Expr:
    return gelu_tanh(x) if call.attribute("approximate", "none") == "tanh" else gelu(x)


def _is_inf(call: Call, x: Expr) -> Expr:
    positive, negative = int(call.attribute("detect_positive", 1)), int(call.attribute("detect_negative", 1))
    if positive and negative:
        return unary("isinf", x)
    if positive or negative:
        return compare("eq", x, float("inf") if positive else -float("inf"))
    return compare("lt", x, x)  # never


def _cast_to(call: Call, x: Expr, source: DType, target: DType) -> Expr:
    if target == source:
        return x
    if is_narrow(target):
        return to_narrow(x, target, bool(call.attribute("saturate", 1)), call.attribute("round_mode", "up"))
    return cast(from_narrow(x) if is_narrow(source) else x, target)


def _cast(call: Call, x: Expr, like: Expr | None = None) -> Expr:
    return _cast_to(call, x, call.input(0).dtype, call.output().dtype)


# -- functions of several operands ----------------------------------------------------------------------------------------


def _power(call: Call, a: Expr, b: Expr) -> Expr:
    """Mixed types are computed in the type NumPy promotes to, and rounded to the base's.

    A whole power of an integer is an integer, and must not be cut off to the one below for a last bit.
    """
    left, right = call.input(0).dtype, call.input(1).dtype
    if left == right:
        return binary("pow", a, b)
    wide = compute_type(dtype_of(np.result_type(left.numpy, right.numpy)))
    exponent = cast(b, wide)
    power = binary("pow", cast(a, wide), exponent)
    if left.is_integer and wide.is_float:
        power = select(compare("eq", exponent, unary("floor", exponent)), unary("round", power), power)
    return cast(power, compute_type(left))


def _modulo(call: Call, a: Expr, b: Expr) -> Expr:
    return binary("fmod" if call.attribute("fmod", 0) else "mod", a, b)


def _bit_shift(call: Call, a: Expr, b: Expr) -> Expr:
    """Shifts by less than nothing or by the whole width leave only copies of the sign."""
    bits = a.dtype.bits
    if call.attribute("direction") == "LEFT":
        shifted, rest = binary("shl", a, b), const(0, a.dtype)
    else:
        shifted = binary("shr", a, b)
        negative = select(compare("lt", a, 0), const(-1, a.dtype), const(0, a.dtype)) if a.dtype.kind == "int" else None
        rest = const(0, a.dtype) if negative is None else negative
    inside = compare("lt", b, bits)
    if a.dtype.kind == "int":
        inside = binary("and", inside, compare("ge", b, 0))
    return select(inside, shifted, rest)


def _clip(call: Call, x: Expr, low: Expr | None = None, high: Expr | None = None) -> Expr:
    bounds = [call.attribute("min"), call.attribute("max")]
    return clip(x, bounds[0] if low is None else low, bounds[1] if high is None else high)


def _mean(call: Call, *operands: Expr) -> Expr:
    return fold(lambda a, b: a + b, operands) / len(operands)


def _where(call: Call, condition: Expr, a: Expr, b: Expr) -> Expr:
    return select(condition, a, b)


def _prelu(call: Call, x: Expr, slope: Expr) -> Expr:
    return select(compare("lt", x, 0), x * slope, x)


def _swish(call: Call, x: Expr) -> Expr:
    return swish(x, call.single("alpha", 1.0))


def _swiglu(call: Call, gate: Expr, linear: Expr) -> Expr:
    return swish(gate, call.single("alpha", 1.0)) * linear


def _three(dtype: str) -> tuple[Sample, ...]:
    return (
        Sample(((dtype, (2, 3)), (dtype, (2, 3)), (dtype, (3,)))),
        Sample(((dtype, (2, 3)), (dtype, (1, 3)), (dtype, (2, 1))), low=-5, high=5),
        Sample(((dtype, (4,)),)),
        Sample(
            (("float16" if dtype == "float32" else dtype, (4,)), ("float16" if dtype == "float32" else dtype, (4,)))
        ),
    )


def _f32(value: float) -> np.ndarray:
    return np.array(value, np.float32)


_MONOID = ("associative", "commutative")
_ALL_FLOATS = ("float32", "float16", "float64")
_INTEGERS = ("int32", "int64", "int8", "uint8")
_UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
_BITWISE = ("int32", "uint8", "int64", "int8")
_NONZERO_INT = Sample((("int32", (3, 4)), np.array([[3], [-2], [5]], np.int32)), low=-9, high=9)


def _dropout(call: Call, x: Expr, ratio: Expr | None = None, training: Expr | None = None) -> Expr:
    """A copy, unless it is known to train."""
    if call.has(2) and bool(call.known(2).reshape(-1)[0]):
        raise NotDefined("Dropout in training mode")
    return x


def _dropout_mask(call: Call, output: int, at: tuple[Expr, ...]) -> Expr:
    return const(True, BOOL)


def _bit_cast(call: Call, output: int, at: tuple[Expr, ...]) -> Expr:
    return bits(call.at(0, *at), call.output().dtype)


ELEMENTWISE: tuple[OpSpec, ...] = (
    OpSpec(
        "BitCast",
        mapping=elementwise,
        flops=free,
        define=_bit_cast,
        flags=frozenset({"narrow"}),
        samples=(
            Sample((("float32", (2, 3)),), {"to": 6}),
            Sample((("int64", (4,)),), {"to": 11}),
            Sample((("uint16", (4,)),), {"to": 10}, low=0, high=30000),
            Sample((("uint8", (5,)),), {"to": 17}, low=0, high=100),
        ),
    ),
    OpSpec(
        "Dropout",
        mapping=elementwise,
        flops=free,
        scalar=_dropout,
        define=_dropout_mask,
        flags=frozenset({"linear", "copy"}),
        samples=(
            Sample((("float32", (3, 4)),), outputs=2),
            Sample((("float16", (5,)), np.array(0.3, np.float32), np.array(False)), {"seed": 1}),
        ),
    ),
    row("Abs", _of("abs"), unary_samples(-3, 3, "int32", "uint8"), "homomorphic"),
    row("Neg", _of("neg"), unary_samples(-3, 3, "int64", "int8"), "linear"),
    row("Sign", _of("sign"), unary_samples(-3, 3, "int32", "uint8"), "idempotent"),
    row("Ceil", _of("ceil"), unary_samples(-3, 3), "idempotent"),
    row("Floor", _of("floor"), unary_samples(-3, 3), "idempotent"),
    row("Round", _of("round"), unary_samples(-3, 3), "idempotent"),
    row("Sqrt", _of("sqrt"), unary_samples(0, 4), "homomorphic"),
    row("Reciprocal", lambda call, x: 1 / x, unary_samples(0.5, 4), "homomorphic"),
    row("Exp", _of("exp"), unary_samples()),
    row("Log", _of("log"), unary_samples(0.1, 5)),
    row("Erf", _of("erf"), unary_samples(double=False)),
    row("Sin", _of("sin"), unary_samples()),
    row("Cos", _of("cos"), unary_samples()),
    row("Tan", _of("tan"), unary_samples(-1.4, 1.4)),
    row("Asin", _of("asin"), unary_samples(-0.99, 0.99)),
    row("Acos", _of("acos"), unary_samples(-0.99, 0.99)),
    row("Atan", _of("atan"), unary_samples()),
    row("Sinh", _of("sinh"), unary_samples()),
    row("Cosh", _of("cosh"), unary_samples()),
    row("Tanh", _of("tanh"), unary_samples()),
    row("Asinh", _of("asinh"), unary_samples()),
    row("Acosh", _of("acosh"), unary_samples(1.1, 5)),
    row("Atanh", _of("atanh"), unary_samples(-0.95, 0.95)),
    row("Sigmoid", _of("sigmoid"), unary_samples(-12, 12)),
    row("Relu", lambda call, x: maximum(x, 0), unary_samples(-3, 3, "int32"), "idempotent"),
    row("LeakyRelu", _leaky_relu, unary_samples(alpha=0.2)),
    row("ThresholdedRelu", _thresholded_relu, unary_samples(alpha=0.7)),
    row("Elu", _elu, unary_samples(alpha=1.3)),
    row("Celu", _celu, unary_samples(alpha=1.3)),
    row("Selu", _selu, unary_samples()),
    row("HardSigmoid", _hard_sigmoid, unary_samples(-5, 5, alpha=0.3)),
    row("HardSwish", lambda call, x: x * clip(x * (1 / 6) + 0.5, 0, 1), unary_samples(-5, 5, double=False)),
    row("Softplus", lambda call, x: softplus(x), unary_samples(-12, 12)),
    row("Softsign", lambda call, x: x / (unary("abs", x) + 1), unary_samples()),
    row("Mish", lambda call, x: mish(x), unary_samples(-12, 12)),
    row("Gelu", _gelu, unary_samples(double=False) + unary_samples(double=False, approximate="tanh")),
    row("Swish", _swish, unary_samples() + unary_samples(alpha=1.5)),
    row("SwiGLU", _swiglu, (Sample((("float32", (3, 4)),) * 2), Sample((("float16", (5,)),) * 2, {"alpha": 1.7}))),
    row("Shrink", _shrink, unary_samples(-3, 3, "int32", lambd=1.0, bias=0.5)),
    row("Identity", lambda call, x: x, unary_samples(-3, 3, "int64", "bool"), "linear", "idempotent", "narrow"),
    row("Not", _of("not"), (Sample((("bool", (2, 3)),)), Sample((("bool", ()),)))),
    row("BitwiseNot", _of("bitnot"), (Sample((("int32", (2, 3)),)), Sample((("uint8", (4,)),), high=200, low=0))),
    row("IsNaN", _of("isnan"), (Sample((np.array([1, np.nan, -np.inf], np.float32),)), Sample((("float16", (3,)),)))),
    row(
        "IsInf",
        _is_inf,
        tuple(
            Sample((np.array([1, np.nan, -np.inf, np.inf], np.float32),), attributes)
            for attributes in ({}, {"detect_negative": 0}, {"detect_positive": 0})
        ),
    ),
    row(
        "Cast",
        _cast,
        tuple(
            Sample(((source, (2, 3)),), {"to": dtype.onnx}, low=-5, high=5)
            for source, dtype in (
                (a, dtype_of_onnx(b))
                for a, b in (
                    ("float32", 6),
                    ("float32", 10),
                    ("float64", 1),
                    ("int32", 1),
                    ("bool", 1),
                    ("int64", 9),
                    ("float16", 1),
                    ("float32", 9),
                    ("float32", 16),
                    ("int32", 7),
                    ("float16", 7),
                    ("float32", 17),
                    ("float8_e5m2", 1),
                    ("float32", 22),
                )
            )
        ),
        "narrow",
    ),
    row(
        "CastLike",
        _cast,
        (
            Sample((("float32", (2, 3)), ("int32", (1,)))),
            Sample((("int8", (4,)), ("float16", (4,)))),
            Sample((("float32", ()), ("float16", (2, 5)))),
        ),
        "narrow",
    ),
    row("Add", _pair("add"), binary_samples(*_ALL_FLOATS, *_INTEGERS), *_MONOID, "linear"),
    row("Sub", _pair("sub"), binary_samples(*_ALL_FLOATS, *_INTEGERS), "linear"),
    row("Mul", _pair("mul"), binary_samples(*_ALL_FLOATS, *_INTEGERS), *_MONOID, over=("Add", "Sub", "Sum")),
    row("Div", _pair("div"), (*binary_samples(*_ALL_FLOATS, low=0.5), _NONZERO_INT)),
    row(
        "Mod",
        _modulo,
        (
            _NONZERO_INT,
            dataclasses.replace(_NONZERO_INT, attributes={"fmod": 1}),
            *binary_samples("float32", "float16", low=0.5, fmod=1),
            Sample((("float32", (4, 3)), np.array([1.5, -2.5, 0.75], np.float32)), {"fmod": 0}),
        ),
    ),
    row(
        "Pow",
        _power,
        (
            *binary_samples(*_ALL_FLOATS, low=0.5),
            Sample((("float32", (2, 3)), ("int32", (3,))), low=1, high=4),
            Sample((("int32", (2, 3)), ("float32", (3,))), low=1, high=4),
            Sample((("int64", (4,)), ("int64", ())), low=0),
        ),
    ),
    row(
        "BitShift",
        _bit_shift,
        tuple(
            s
            for d in ("LEFT", "RIGHT")
            for s in (
                *binary_samples(*_UNSIGNED, low=0, high=9, direction=d),
                *binary_samples("int32", "int8", low=-9, high=9, direction=d),
            )
        ),
    ),
    row("BitwiseAnd", _pair("bitand"), binary_samples(*_BITWISE), *_MONOID),
    row("BitwiseOr", _pair("bitor"), binary_samples(*_BITWISE), *_MONOID),
    row("BitwiseXor", _pair("bitxor"), binary_samples(*_BITWISE), *_MONOID),
    row("And", _pair("and"), binary_samples("bool"), *_MONOID, over=("Or",)),
    row("Or", _pair("or"), binary_samples("bool"), *_MONOID, over=("And",)),
    row("Xor", _pair("xor"), binary_samples("bool"), *_MONOID),
    row("Equal", _comparison("eq"), binary_samples("int32", "float32", "bool", low=-1, high=1), "commutative"),
    row("Less", _comparison("lt"), binary_samples("float32", "int64", "uint8")),
    row("LessOrEqual", _comparison("le"), binary_samples("float32", "int32", low=-1, high=1)),
    row("Greater", _comparison("gt"), binary_samples("float32", "int32", "float16")),
    row("GreaterOrEqual", _comparison("ge"), binary_samples("float32", "int32", low=-1, high=1)),
    row("Max", _variadic("max"), _three("float32") + _three("int32"), *_MONOID, "idempotent"),
    row("Min", _variadic("min"), _three("float32") + _three("int32"), *_MONOID, "idempotent"),
    row("Sum", _variadic("add"), _three("float32"), *_MONOID, "linear"),
    row("Mean", _mean, _three("float32"), "commutative", "linear"),
    row(
        "Where",
        _where,
        (
            Sample((("bool", (2, 3)), ("float32", (2, 3)), ("float32", (2, 3)))),
            Sample((("bool", (3,)), ("float32", (2, 1)), ("float32", ()))),
            Sample((("bool", (2, 1)), ("int64", (1, 3)), ("int64", (2, 3)))),
        ),
        "narrow",
    ),
    row(
        "Clip",
        _clip,
        (
            Sample((("float32", (3, 4)), _f32(-0.5), _f32(1.0))),
            Sample((("float32", (3, 4)), None, _f32(0.5))),
            Sample((("int32", (5,)), np.array(-1, np.int32))),
            Sample((("float16", (5,)),)),
            Sample((("float32", (3, 4)), ("float32", ()), ("float32", ()))),
        ),
        "idempotent",
    ),
    row(
        "PRelu",
        _prelu,
        (
            Sample((("float32", (2, 3, 4)), ("float32", (3, 1)))),
            Sample((("float32", (3,)), ("float32", ()))),
            Sample((("float16", (2, 3)), ("float16", (2, 3)))),
        ),
    ),
)

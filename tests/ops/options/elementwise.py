"""Elementwise operators: every attribute, the values where formulas change, extremes of integers, NaN and infinities."""

from __future__ import annotations

from collections.abc import Iterator

import ml_dtypes
import numpy as np
from tests.ops.options.case import Case, cases, i64, scalar, x

_SPECIAL = np.array(
    [0.0, -0.0, 1, -1, 0.5, -0.5, 2.5, -2.5, 100, -100, 1e-30, -1e-30, np.inf, -np.inf, np.nan], np.float32
)
_ODD = ((x(7),), (x(1),), (x(2, 0, 3),), (x(),), (x(3, 5),))
_FLOATS = ("float16", "float64")
_UNARY = (
    "Abs Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Erf Exp Floor HardSwish Log Mish Neg Reciprocal Relu Round Sigmoid"
    " Sign Sin Sinh Softplus Softsign Sqrt Tan Tanh Identity IsNaN"
).split()
_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_WITH_INTEGERS = {
    "Abs": _INTEGERS,
    "Neg": ("int8", "int16", "int32", "int64"),
    "Sign": _INTEGERS,
    "Relu": ("int8", "int16", "int32", "int64"),
    "Identity": _INTEGERS,
}


def _extremes(dtype: str) -> np.ndarray:
    kind = np.iinfo(dtype)
    return np.array([kind.min, kind.min + 1, 0, 1, kind.max - 1, kind.max], dtype)


def unary() -> Iterator[Case]:
    for op in _UNARY:
        yield from cases(op, (*_ODD, (_SPECIAL,), *((x(7, dtype=d),) for d in _FLOATS)))
        yield from cases(op, [(_extremes(d),) for d in _WITH_INTEGERS.get(op, ())])
    data = ((_SPECIAL,), (x(7, dtype="float16"),), (x(0),))
    yield from cases("Celu", data[:1] + data[2:], alpha=(None, 0.5, -1.0, 3.0))
    yield from cases("Elu", data, alpha=(None, 0.5, 0.0, 3.0))
    yield from cases("HardSigmoid", data, alpha=(None, 0.5, -0.5), beta=(None, 0.1))
    yield from cases("LeakyRelu", data, alpha=(None, 0.0, -0.5, 2.0))
    yield from cases("Selu", data, alpha=(None, 0.5), gamma=(None, 2.0))
    yield from cases("ThresholdedRelu", data, alpha=(None, 0.0, -1.0, 0.5))
    yield from cases(
        "Shrink", (*data, (x(9, dtype="int32", low=-9, high=9),)), lambd=(None, 0.0, 1.5), bias=(None, 0.5, -2.0)
    )
    yield from cases(
        "Shrink", [(x(9, dtype=d, low=0, high=9),) for d in ("uint8", "int64", "float64")], lambd=(1.5,), bias=(1.0,)
    )
    yield from cases("Gelu", data, approximate=(None, "none", "tanh"))
    yield from cases(
        "IsInf",
        ((_SPECIAL,), (_SPECIAL.astype("float64"),)),
        detect_negative=(None, 0, 1),
        detect_positive=(None, 0, 1),
    )
    yield from cases("Not", ((x(5, dtype="bool"),), (x(0, dtype="bool"),)))
    yield from cases("BitwiseNot", [(_extremes(d),) for d in _INTEGERS])


def binary() -> Iterator[Case]:
    shapes = (((2, 3), (3,)), ((2, 1, 3), (4, 1)), ((), (3,)), ((0, 3), (1, 3)), ((1,), (1,)))
    for op in ("Add", "Sub", "Mul", "Div"):
        yield from cases(op, [(x(*a), x(*b, seed=1)) for a, b in shapes])
        yield from cases(op, [(_SPECIAL[:, None], _SPECIAL)])
        yield from cases(op, [(x(9, dtype=d), x(9, dtype=d, seed=1)) for d in _FLOATS])
        for d in _INTEGERS:
            values = _extremes(d)
            other = values[values != 0] if op == "Div" else values
            pairs = [(a, b) for a in values for b in other if not (op == "Div" and int(b) == -1)]
            yield from cases(op, [tuple(np.array(column, d) for column in zip(*pairs, strict=True))])
    for op in ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"):
        yield from cases(op, [(x(*a), x(*b, seed=1)) for a, b in shapes])
        yield from cases(op, [(_SPECIAL[:, None], _SPECIAL)])
        yield from cases(op, [(_extremes(d)[:, None], _extremes(d)) for d in _INTEGERS])
    yield from cases("Equal", [(x(5, dtype="bool"), x(5, dtype="bool", seed=1))])
    for op in ("And", "Or", "Xor"):
        yield from cases(op, [(x(2, 3, dtype="bool"), x(3, dtype="bool", seed=1))])
    for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
        yield from cases(op, [(_extremes(d)[:, None], _extremes(d)) for d in _INTEGERS])
    for d in ("uint8", "uint16", "uint32", "uint64"):
        yield from cases("BitShift", [(_extremes(d)[:, None], np.array([0, 1, 7], d))], direction=("LEFT", "RIGHT"))
    signed = np.array([7, -7, 8, -8, 127, -128, 0], np.int8)
    for d in ("int8", "int32", "int64"):
        yield from cases("Mod", [(signed.astype(d)[:, None], np.array([3, -3, 7, 1], d))], fmod=(None, 0, 1))
    yield from cases(
        "Mod", [(_extremes(d)[:, None], np.array([3, 7, 1], d)) for d in ("uint8", "uint32", "uint64")], fmod=(0, 1)
    )
    yield from cases(
        "Mod", [(x(9, low=-9, high=9), x(9, seed=1, low=1, high=3)), (_SPECIAL[:, None], _SPECIAL)], fmod=(1,)
    )
    yield from cases("Pow", [(_SPECIAL[:, None], _SPECIAL), (x(9, low=0), x(9, seed=1))])
    bases = np.array([-3, -1, 0, 1, 2, 3], np.int32)
    yield from cases(
        "Pow",
        [
            (bases.astype(d)[:, None], np.array([0, 1, 2, 5], e))
            for d in ("int32", "int64")
            for e in ("int32", "int64", "float32")
        ],
    )
    yield from cases(
        "Pow",
        [(x(5, low=0, dtype="float64"), scalar(2)), (x(5), scalar(3, "int64")), (x(5, low=0), scalar(0.5, "float64"))],
    )
    yield from cases(
        "PRelu", [(x(2, 3, 4), x(3, 1, seed=1)), (x(2, 3), scalar(0.5)), (_SPECIAL, scalar(-0.5)), (x(0, 3), x(3))]
    )
    yield from cases("PRelu", [(x(5, dtype=d, low=-9, high=9), x(1, dtype=d)) for d in ("int32", "int64")])


def variadic() -> Iterator[Case]:
    for op in ("Max", "Min", "Sum", "Mean"):
        yield from cases(op, [(x(3),), (x(3), x(3, seed=1)), (x(2, 3), x(2, 1, seed=1), x(3, seed=2)), (x(0, 3), x(3))])
        yield from cases(op, [(_SPECIAL[:, None], _SPECIAL)])
        yield from cases(op, [(x(3, dtype=d), x(3, dtype=d, seed=1)) for d in _FLOATS])
    for op in ("Max", "Min"):
        yield from cases(op, [(_extremes(d)[:, None], _extremes(d)) for d in _INTEGERS])


def choosing() -> Iterator[Case]:
    c = x(2, 3, dtype="bool")
    yield from cases(
        "Where", [(c, x(2, 3), x(3, seed=1)), (c, scalar(1.5), x(2, 1)), (x(0, 3, dtype="bool"), x(3), x(3))]
    )
    yield from cases(
        "Where", [(c, x(2, 3, dtype=d), x(3, dtype=d, seed=1)) for d in ("int32", "int64", "uint8", "bool", "float64")]
    )
    bounds = ((None, None), (scalar(-1), None), (None, scalar(1)), (scalar(-1), scalar(1)), (scalar(1), scalar(-1)))
    yield from cases("Clip", [(data, *pair) for data in (_SPECIAL, x(2, 0)) for pair in bounds])
    yield from cases("Clip", [(_SPECIAL, scalar(np.nan), scalar(1)), (_SPECIAL, scalar(-np.inf), scalar(np.inf))])
    for d in ("int8", "int32", "int64", "uint8", "uint64", "float64", "float16"):
        yield from cases(
            "Clip", [(x(9, dtype=d, low=-9, high=9), scalar(2, d), scalar(5, d)), (x(9, dtype=d), None, scalar(1, d))]
        )


def casts() -> Iterator[Case]:
    whole = np.array([-3.7, -1, -0.5, 0, 0.5, 1, 2.5, 3.7, 100], np.float32)
    types = (1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13)
    yield from cases(
        "Cast", [(whole.astype(d),) for d in ("float32", "float64", "float16")], to=(1, 3, 5, 6, 7, 9, 10, 11)
    )
    yield from cases("Cast", [(np.abs(whole).astype(d),) for d in ("float32", "float64")], to=(2, 4, 12, 13))
    yield from cases("Cast", [(_extremes(d),) for d in _INTEGERS], to=types)
    yield from cases("Cast", [(x(5, dtype="bool"),), (x(0, dtype="bool"),)], to=types)
    yield from cases("Cast", [(_SPECIAL,), (_SPECIAL.astype("float64"),)], to=(1, 9, 10, 11, 16))
    wide = np.array([0.0, 1.06, -300.0, 448.0, 500.0, 1e6, np.inf, -np.inf, np.nan, 0.001], np.float32)
    yield from cases("Cast", [(wide,), (wide.astype("float16"),)], to=(17, 18, 19, 20), saturate=(None, 0, 1))
    yield from cases("CastLike", [(whole, x(1, dtype=d)) for d in ("float16", "float64", "int32", "int64", "bool")])
    narrow = np.array([1.0], np.float32).astype(ml_dtypes.float8_e4m3fn)
    yield from cases("CastLike", [(wide, narrow)], saturate=(None, 0, 1))
    yield from cases("Cast", [(_SPECIAL.astype(f"float{n}"),) for n in (16, 32, 64)], to=(8,))
    yield from cases("Cast", [(np.array(["1", "-2.5", "1e3", "NaN", "inf"], object),)], to=(1, 11))
    yield from cases("Cast", [(np.array(["1", "-2"], object),)], to=(6, 7))
    yield from cases("Cast", [(i64(-5, 0, 7),)], to=(8,))


ELEMENTWISE = (*unary(), *binary(), *variadic(), *choosing(), *casts())

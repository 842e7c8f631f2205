"""Operators on elements: a row of a transformer's hidden states, and a feature map."""

from __future__ import annotations

from benchmarks.operators.row import Row, one, x

_HIDDEN, _MAP = (128, 768), (1, 64, 112, 112)


def _unary(names: str, low: float = -2.0, high: float = 2.0, of: str = "float32", **attributes: object) -> list[Row]:
    sizes = tuple((x(*dims, of=of, low=low, high=high),) for dims in (_HIDDEN, _MAP))
    return [Row(op, sizes, attributes) for op in names.split()]


def _binary(names: str, low: float = -2.0, high: float = 2.0, of: str = "float32", **attributes: object) -> list[Row]:
    a, b = (x(*_HIDDEN, of=of, low=low, high=high), x(*_HIDDEN, of=of, low=max(low, 1), high=high))
    c, d = (x(*_MAP, of=of, low=low, high=high), x(64, 1, 1, of=of, low=max(low, 1), high=high))
    return [Row(op, ((a, b), (c, d)), attributes) for op in names.split()]


ELEMENTWISE: tuple[Row, ...] = (
    *_unary(
        "Abs Atan Asinh Ceil Celu Cos Cosh Elu Erf Exp Floor Gelu HardSigmoid HardSwish Identity IsInf IsNaN LeakyRelu Mish Neg"
        " Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Swish Tan Tanh ThresholdedRelu"
    ),
    *_unary("Log Sqrt", low=0.01, high=9.0),
    *_unary("Acosh", low=1.0, high=9.0),
    *_unary("Acos Asin Atanh", low=-0.99, high=0.99),
    *_unary("Not", of="bool"),
    *_unary("BitwiseNot", of="int32", low=-999, high=999),
    *_unary("Cast", to=10),
    *_unary("BitCast", to=6),
    *_binary("Add Div Mul Sub Max Mean Min Sum Equal Greater GreaterOrEqual Less LessOrEqual"),
    *_binary("Pow", low=0.5),
    *_binary("And Or Xor", of="bool"),
    *_binary("BitwiseAnd BitwiseOr BitwiseXor", of="int32", low=-999, high=999),
    *_binary("Mod", of="int64", low=-999, high=999),
    *_binary("BitShift", of="uint32", low=0, high=9, direction="LEFT"),
    Row("CastLike", ((x(*_HIDDEN), x(1, of="float16")), (x(*_MAP), x(1, of="int32")))),
    Row(
        "Clip", ((x(*_HIDDEN), one(0, "float32"), one(1, "float32")), (x(*_MAP), one(0, "float32"), one(6, "float32")))
    ),
    Row("PRelu", ((x(*_HIDDEN), x(768)), (x(*_MAP), x(64, 1, 1)))),
    Row("Where", ((x(*_HIDDEN, of="bool"), x(*_HIDDEN), x(768)), (x(*_MAP, of="bool"), x(*_MAP), one(0, "float32")))),
    Row("SwiGLU", ((x(128, 2048), x(128, 2048)), (x(1, 512, 4096), x(1, 512, 4096))), opset=28),
    Row("Dropout", ((x(*_HIDDEN),), (x(*_MAP),))),
)
"""One row an operator."""

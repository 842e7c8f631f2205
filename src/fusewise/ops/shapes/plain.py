"""Shapes of results that are as large as operands: one of them, or all of them broadcast; and of reductions along axes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from fusewise.ir.size import Size
from fusewise.ops.shapes.operands import Operands, Row, Shape, keep

__all__ = ["PLAIN"]


def same(case: Operands) -> tuple[Shape, ...]:
    """Every output has the shape of the first operand."""
    return (case.shape(),) * len(case.node.outputs)


def broadcast(case: Operands) -> tuple[Shape, ...]:
    """All operands are broadcast to one shape."""
    return (case.broadcast(*map(case.shape, range(len(case.node.inputs)))),)


def _alike(case: Operands) -> tuple[Shape, ...]:
    """All operands are of one shape."""
    first = case.shape()
    for i in range(1, len(case.node.inputs)):
        other = case.shape(i)
        for a, b in zip(first, other, strict=False):
            case.equal(a, b, "sizes of operands")
    return (first,)


def _normalized(case: Operands) -> tuple[Shape, ...]:
    """LayerNormalization: mean and inverse deviation have ones from the axis on."""
    data = case.shape()
    axis = case.axis("axis", -1, len(data))
    few = (*data[:axis], *(1,) * (len(data) - axis))
    return (data, few, few)


def _batch_normalized(case: Operands) -> tuple[Shape, ...]:
    return (case.shape(), *(case.shape(3),) * 2)


def _quantized(case: Operands) -> tuple[Shape, ...]:
    return (case.shape(), (), ())


def _reduced(case: Operands) -> tuple[Shape, ...]:
    data = case.shape()
    axes = case.axes(1, len(data))
    if not axes and case.attribute("noop_with_empty_axes", 0):
        return (data,)
    return (_without(case, data, axes or tuple(range(len(data)))),)


def _best(case: Operands) -> tuple[Shape, ...]:
    data = case.shape()
    return (_without(case, data, (case.axis("axis", 0, len(data)),)),)


def _without(case: Operands, data: Shape, axes: tuple[int, ...]) -> Shape:
    if case.attribute("keepdims", 1):
        return tuple(1 if d in axes else size for d, size in enumerate(data))
    return tuple(size for d, size in enumerate(data) if d not in axes)


def _top(case: Operands) -> tuple[Shape, ...]:
    data = case.shape()
    axis = case.axis("axis", -1, len(data))
    (count,) = case.ints(1)
    case.at_least(data[axis], count, f"what the {count} largest are taken of, {data[axis]} elements, is too few: k")
    return (keep(data, axis, count),) * 2


def _scattered(case: Operands) -> tuple[Shape, ...]:
    """ScatterElements: an update for each index."""
    for d, (size, wanted) in enumerate(zip(case.shape(2), case.shape(1), strict=False)):
        case.equal(size, wanted, f"the sizes along axis {d} of updates and indices")
    return (case.shape(),)


def _scattered_nd(case: Operands) -> tuple[Shape, ...]:
    """An update for each index, of the axes that it leaves."""
    data, indices, updates = map(case.shape, range(3))
    depth = indices[-1]
    if not isinstance(depth, Size):
        for d, (size, wanted) in enumerate(zip(updates, (*indices[:-1], *data[depth:]), strict=False)):
            case.equal(size, wanted, f"the sizes along axis {d} of updates and of what they replace")
    return (data,)


def _tensor_scattered(case: Operands) -> tuple[Shape, ...]:
    """Rows for a part of the places along one axis."""
    data, updates = case.shape(0), case.shape(1)
    axis = case.axis("axis", -2, len(data))
    for d, (size, wanted) in enumerate(zip(updates, data, strict=True)):
        if d == axis:
            case.at_least(wanted, size, f"the size along axis {d} of the cache")
        else:
            case.equal(size, wanted, f"the sizes along axis {d} of updates and of what they replace")
    if case.has(2):
        case.equal(case.shape(2)[0], data[0], "the samples of a cache and those that a place is given for")
    return (data,)


_UNARY = (
    "Abs Acos Acosh Asin Asinh Atan Atanh Bernoulli BitCast BitwiseNot Cast CastLike Ceil Celu Clip Cos Cosh Elu Erf Exp Floor "
    "Gelu HardSigmoid HardSwish Identity IsInf IsNaN LeakyRelu Log Mish Neg Not Reciprocal Relu Round Selu Shrink Sigmoid Sign "
    "Sin Sinh Softplus Softsign Sqrt Swish Tan Tanh ThresholdedRelu"
)
_LIKE_FIRST = (
    "CumProd CumSum DequantizeLinear Dropout EyeLike GroupNormalization Hardmax InstanceNormalization LRN LogSoftmax "
    "LpNormalization MeanVarianceNormalization PRelu QuantizeLinear RMSNormalization RandomNormalLike RandomUniformLike "
    "ReverseSequence RotaryEmbedding Softmax Trilu"
)
_BROADCAST = (
    "Add And BitShift BitwiseAnd BitwiseOr BitwiseXor Div Equal Greater GreaterOrEqual Less LessOrEqual Max Mean Min Mod Mul Or "
    "Pow Sub Sum Where Xor"
)
_REDUCTIONS = "L1 L2 LogSum LogSumExp Max Mean Min Prod Sum SumSquare"

PLAIN: Mapping[str, Row] = MappingProxyType(
    {
        **dict.fromkeys(f"{_UNARY} {_LIKE_FIRST}".split(), same),
        **dict.fromkeys(_BROADCAST.split(), broadcast),
        **{f"Reduce{name}": _reduced for name in _REDUCTIONS.split()},
        **dict.fromkeys(("ArgMax", "ArgMin"), _best),
        "BatchNormalization": _batch_normalized,
        "DynamicQuantizeLinear": _quantized,
        "LayerNormalization": _normalized,
        **dict.fromkeys(("Scatter", "ScatterElements"), _scattered),
        "ScatterND": _scattered_nd,
        "SwiGLU": _alike,
        "TensorScatter": _tensor_scattered,
        "TopK": _top,
    }
)
"""Rows by operator."""

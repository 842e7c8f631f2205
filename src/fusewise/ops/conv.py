"""Convolutions of any rank: grouped, strided, dilated, padded, transposed and integer.

Data is N, C, spatial axes; weights are M, C / group, kernel axes (C, M / group, kernel axes when transposed).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from fusewise.ir.deciding import known_one
from fusewise.ir.dtypes import FLOAT32, INT32
from fusewise.ops.edges import per_operand
from fusewise.ops.expr import Expr, Index, binary, cast, compare, const, index, reduce, select
from fusewise.ops.indexing import dims, output_dims, value
from fusewise.ops.scalar import quantized
from fusewise.ops.spec import Call, Mapping, OpSpec, Sample
from fusewise.ops.window import inside, transposed_window_of, window_of

__all__ = ["CONV", "conv_flops"]

Read = Callable[[Index], Expr]
_MANY = Mapping.MANY_TO_MANY
_ONE_TO_MANY = Mapping.ONE_TO_MANY


def _correlation(call: Call, at: Index, x: Read, w: Read, weights: tuple[int, ...]) -> Expr:
    """Sum over channels of the group and kernel taps of x times w; taps outside the input contribute nothing."""
    window = window_of(call, weights[2:])
    group = int(call.attribute("group", 1))
    channels, filters = weights[1], weights[0] // group
    first = const(0) if group == 1 else at[1] // filters * channels
    positions = window.positions(at[2:])
    product = x((at[0], first + index("c"), *positions)) * w((at[1], index("c"), *_taps(window.rank)))
    guard = window.guard(positions, output_dims(call)[2:])
    body = product if guard is None else select(guard, product, const(0, product.dtype))
    return reduce("sum", (("c", channels), *window.taps()), body)


def _taps(rank: int) -> Index:
    return tuple(index(f"k{d}") for d in range(rank))


def _conv(call: Call, output: int, at: Index) -> Expr:
    total = _correlation(call, at, lambda i: value(call, 0, *i), lambda i: value(call, 1, *i), dims(call, 1))
    return total + value(call, 2, at[1]) if call.has(2) else total


def conv_flops(call: Call) -> int:
    """Two for each tap of each output element, padding included, and one for the bias."""
    weights = dims(call, 1)
    return call.output().size * (2 * math.prod(weights[1:]) + int(call.has(2)))


def _conv_transpose(call: Call, output: int, at: Index) -> Expr:
    """Output o gets input i where i * stride = o + begin - tap * dilation, if that divides."""
    weights = dims(call, 1)
    window = transposed_window_of(call, weights[2:])
    group = int(call.attribute("group", 1))
    channels, filters = weights[0] // group, weights[1]
    owner = const(0) if group == 1 else at[1] // filters
    condition: Expr | None = None
    positions: list[Expr] = []
    for d, place in enumerate(at[2:]):
        offset = place + window.begins[d] - index(f"k{d}") * window.dilations[d]
        position = offset // window.strides[d]
        test = inside(position, window.extents[d])
        if window.strides[d] > 1:
            test = binary("and", test, compare("eq", offset % window.strides[d], 0))
        condition = test if condition is None else binary("and", condition, test)
        positions.append(position)
    channel = owner * channels + index("c")
    tap = value(call, 1, channel, at[1] if group == 1 else at[1] % filters, *_taps(window.rank))
    product = value(call, 0, at[0], channel, *positions) * tap
    assert condition is not None
    body = select(condition, product, const(0, product.dtype))
    total = reduce("sum", (("c", channels), *window.taps()), body)
    return total + value(call, 2, at[1]) if call.has(2) else total


def _conv_transpose_flops(call: Call) -> int:
    return 2 * call.input(0).size * math.prod(dims(call, 1)[1:]) + call.output().size * int(call.has(2))


def _centred(call: Call, i: int, zero: int, position: Index) -> Expr:
    """An integer operand minus its zero point, which is one number or one per leading index (output channel)."""
    x = cast(call.at(i, *position), INT32)
    if not call.has(zero):
        return x
    shape = dims(call, zero)
    if known_one(call.input(zero).size):
        return x - cast(call.at(zero, *(0,) * len(shape)), INT32)
    return x - cast(call.at(zero, position[0]), INT32)


def _conv_integer(call: Call, output: int, at: Index) -> Expr:
    return _correlation(call, at, lambda i: _centred(call, 0, 2, i), lambda i: _centred(call, 1, 3, i), dims(call, 1))


def _scalar_of(call: Call, i: int) -> Expr:
    return call.at(i, *(0,) * call.input(i).rank)


def _qlinear_conv(call: Call, output: int, at: Index) -> Expr:
    total = _correlation(call, at, lambda i: _centred(call, 0, 2, i), lambda i: _centred(call, 3, 5, i), dims(call, 3))
    if call.has(8):
        total = total + call.at(8, at[1])
    per_channel = not known_one(call.input(4).size)
    weight_scale = call.at(4, at[1]) if per_channel else _scalar_of(call, 4)
    factor = _scalar_of(call, 1) * weight_scale / _scalar_of(call, 6)
    zero = cast(_scalar_of(call, 7), FLOAT32) if call.has(7) else None
    return quantized(cast(total, FLOAT32) * factor, zero, call.output().dtype)


def _x(*shape: int, dtype: str = "float32") -> tuple[str, tuple[int, ...]]:
    return dtype, shape


_CONV_SAMPLES = (
    Sample((_x(1, 3, 5, 6), _x(4, 3, 3, 3), _x(4)), {"pads": (1, 1, 1, 1)}),
    Sample((_x(2, 4, 7), _x(6, 2, 3)), {"group": 2, "strides": (2,), "dilations": (2,), "pads": (1, 2)}),
    Sample((_x(1, 3, 5, 5), _x(3, 1, 3, 2), _x(3)), {"group": 3, "auto_pad": "SAME_UPPER", "strides": (2, 2)}),
    Sample((_x(1, 2, 5, 5), _x(2, 2, 2, 2)), {"auto_pad": "SAME_LOWER"}),
    Sample((_x(1, 2, 3, 4, 4), _x(3, 2, 2, 2, 2))),
    Sample((_x(1, 3, 4, 4), _x(5, 3, 1, 1), _x(5)), {"auto_pad": "VALID"}),
    Sample((_x(1, 2, 4, 4, dtype="float16"), _x(2, 2, 3, 3, dtype="float16"))),
    Sample((_x(0, 2, 4, 4), _x(3, 2, 3, 3))),
)

_TRANSPOSE_SAMPLES = (
    Sample((_x(1, 2, 3, 3), _x(2, 3, 3, 3), _x(3)), {"strides": (2, 2)}),
    Sample((_x(1, 2, 3, 3), _x(2, 2, 3, 3)), {"strides": (2, 2), "pads": (1, 0, 0, 1), "output_padding": (1, 0)}),
    Sample((_x(2, 2, 4), _x(2, 2, 2)), {"dilations": (2,), "auto_pad": "SAME_UPPER", "strides": (2,)}),
    Sample((_x(1, 2, 3, 3), _x(2, 2, 3, 3)), {"strides": (3, 2), "output_shape": (10, 8)}),
)


def _integer(name: str, value_: int) -> np.ndarray:
    return np.array(value_, name)


CONV: tuple[OpSpec, ...] = (
    OpSpec(
        "Conv",
        mapping=per_operand(_MANY, _MANY),
        flops=conv_flops,
        define=_conv,
        family="conv",
        flags=frozenset({"linear"}),
        samples=_CONV_SAMPLES,
    ),
    OpSpec(
        "ConvTranspose",
        mapping=per_operand(_MANY, _MANY),
        flops=_conv_transpose_flops,
        define=_conv_transpose,
        family="conv_transpose",
        flags=frozenset({"linear"}),
        samples=_TRANSPOSE_SAMPLES,
    ),
    OpSpec(
        "ConvInteger",
        mapping=per_operand(_MANY, _MANY),
        flops=lambda call: 2 * call.output().size * math.prod(dims(call, 1)[1:]),
        define=_conv_integer,
        family="conv_integer",
        samples=(
            Sample(
                (_x(1, 2, 4, 4, dtype="uint8"), _x(3, 2, 3, 3, dtype="uint8"), _integer("uint8", 9)), low=0, high=255
            ),
            Sample(
                (
                    _x(1, 2, 4, 4, dtype="uint8"),
                    _x(3, 2, 3, 3, dtype="int8"),
                    _integer("uint8", 9),
                    _integer("int8", 2),
                ),
                {"pads": (1, 0, 1, 1)},
                low=0,
                high=255,
            ),
        ),
    ),
    OpSpec(
        "QLinearConv",
        mapping=per_operand(_MANY, _ONE_TO_MANY, _ONE_TO_MANY, _MANY),
        flops=lambda call: call.output().size * (2 * math.prod(dims(call, 3)[1:]) + 3 + int(call.has(8))),
        define=_qlinear_conv,
        family="conv_integer",
        samples=(
            Sample(
                (
                    _x(1, 2, 4, 4, dtype="uint8"),
                    np.array(0.02, np.float32),
                    _integer("uint8", 130),
                    _x(3, 2, 3, 3, dtype="uint8"),
                    np.array([0.02, 0.01, 0.03], np.float32),
                    np.array([120, 130, 128], np.uint8),
                    np.array(0.3, np.float32),
                    _integer("uint8", 120),
                    _x(3, dtype="int32"),
                ),
                {"pads": (1, 1, 1, 1)},
                low=0,
                high=255,
            ),
        ),
    ),
)

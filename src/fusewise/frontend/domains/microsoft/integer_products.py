"""Products and convolutions of 8- and 16-bit integers, and what scales their sums."""

from __future__ import annotations

import operator
from functools import reduce

import numpy as np

from fusewise.frontend.domains.microsoft.quantisers import scalar, scalar_or_none
from fusewise.frontend.domains.microsoft.quantized import channels_placed
from fusewise.frontend.domains.row import DomainCall, DomainRow, integer, integers, real, text
from fusewise.frontend.domains.writer import DomainValue, DomainWriter
from fusewise.ir.dtypes import FLOAT32, INT32, dtype_named
from fusewise.ops.validity.rules import flag

__all__ = ["INTEGER_PRODUCTS", "scaled_product"]

_UINT32 = dtype_named("uint32")


def _product(g: DomainWriter, *scales: DomainValue) -> DomainValue:
    """The product of scales, in this order; a constant where they are."""
    known = [found for scale in scales if (found := g.known(scale)) is not None]
    if len(known) == len(scales):
        return g.constant(np.asarray(reduce(np.multiply, known)))
    return reduce(operator.mul, scales)


def _quotient(g: DomainWriter, scale: DomainValue, by: DomainValue) -> DomainValue:
    known, divisor = g.known(scale), g.known(by)
    return scale / by if known is None or divisor is None else g.constant(np.asarray(known / divisor))


Quantized = tuple[DomainValue, DomainValue, DomainValue | None]
"""Integers, their scale and their zero point."""


def scaled_product(g: DomainWriter, left: Quantized, right: Quantized, bias: DomainValue | None) -> DomainValue:
    """The product of two matrices as sums of integers by a scale, in its type, and a bias added. The left one has one scale."""
    total = g.MatMulInteger(left[0], right[0], scalar_or_none(g, left[2]), right[2])
    factor = _product(g, scalar(g, left[1]), right[1])
    return g.total(g.cast(total, factor.dtype) * factor, bias)


def _integers_to_floats(g: DomainWriter, call: DomainCall) -> DomainValue:
    left, right = ((call[n], call[f"{n.lower()}_scale"], call.get(f"{n.lower()}_zero_point")) for n in "AB")
    return scaled_product(g, left, right, call.get("bias"))


def _dynamic_product(g: DomainWriter, call: DomainCall) -> DomainValue:
    x, scale, zero = g.several("DynamicQuantizeLinear", 3, call["A"])
    right = call["B"], call["b_scale"], call.get("b_zero_point")
    return scaled_product(g, (x, scale, zero), right, call.get("bias"))


def _gemm(g: DomainWriter, call: DomainCall) -> DomainValue:
    """Sums, to which a bias of integers is added, by one factor, and shifted and rounded where the result has a zero point."""
    a, b = (g.permute(call[n], [1, 0]) if call.attribute(f"trans{n}") else call[n] for n in "AB")
    total = g.total(g.MatMulInteger(a, b, scalar(g, call["a_zero_point"]), call["b_zero_point"]), call.get("C"))
    factor = _product(g, g.number(call.attribute("alpha"), FLOAT32), scalar(g, call["a_scale"]), call["b_scale"])
    scale, zero = call.get("y_scale"), call.get("y_zero_point")
    if scale is not None:
        factor = _quotient(g, factor, scalar(g, scale))
    y = g.cast(total, FLOAT32) * factor
    return y if zero is None else g.QuantizeLinear(y, 1.0, scalar(g, zero))


def _conv(g: DomainWriter, call: DomainCall, x: DomainValue) -> DomainValue:
    given = {a.name: call.attribute(a.name) for a in call.row.attributes if a.name != "channels_last"}
    return g.QLinearConv(x, *(call.get(name) for name in call.row.operand_names[1:]), **given)


def _product_of_16_bits(g: DomainWriter, call: DomainCall) -> DomainValue:
    wide = _UINT32 if {call["A"].dtype.kind, call["B"].dtype.kind} == {"uint"} else INT32
    return g.MatMul(g.cast(call["A"], wide), g.cast(call["B"], wide))


def _sum(g: DomainWriter, call: DomainCall) -> DomainValue:
    x = call["data"]
    wide = g.cast(x, _UINT32 if x.dtype.kind == "uint" else INT32)
    return g.ReduceSum(wide, list(call.attribute("axes")), keepdims=call.attribute("keepdims"))


def _multiplied(g: DomainWriter, call: DomainCall) -> DomainValue:
    def around_zero(name: str) -> DomainValue:
        x, zero = g.cast(call[name], INT32), scalar_or_none(g, call.get(f"{name}_zero_point"))
        return x if zero is None else x - g.cast(zero, INT32)

    return around_zero("A") * around_zero("B")


INTEGER_PRODUCTS: tuple[DomainRow, ...] = (
    DomainRow(
        "MatMulIntegerToFloat",
        _integers_to_floats,
        operands=("A", "B", "a_scale", "b_scale", "a_zero_point?", "b_zero_point?", "bias?"),
        outputs=("Y",),
        shapes="_, _, one, _, one, _, N",
    ),
    DomainRow(
        "DynamicQuantizeMatMul",
        _dynamic_product,
        operands=("A", "B", "b_scale", "b_zero_point?", "bias?"),
        outputs=("Y",),
        shapes="_, ... K N, one | N | ... 1 N, one | N | ... 1 N, N",
    ),
    DomainRow(
        "QGemm",
        _gemm,
        operands=(
            *("A", "a_scale", "a_zero_point", "B", "b_scale", "b_zero_point", "C?", "y_scale?", "y_zero_point?"),
        ),
        attributes=(real("alpha", 1.0), integer("transA", 0), integer("transB", 0)),
        outputs=("Y",),
        shapes=lambda use: (
            f"{'K M' if use.attribute('transA') else 'M K'}, one, one, {'N K' if use.attribute('transB') else 'K N'}, "
            "one | N, one | N, one | N | 1 N | M 1 | M N, one, one"
        ),
        rules=(flag("transA", "transB"),),
    ),
    DomainRow(
        "QLinearConv",
        lambda g, call: channels_placed(g, call, call["x"], _conv),
        operands=("x", "x_scale", "x_zero_point", "w", "w_scale", "w_zero_point", "y_scale", "y_zero_point", "B?"),
        attributes=(
            text("auto_pad", "NOTSET"),
            integer("channels_last", 0),
            integers("dilations", None),
            integer("group", 1),
            integers("kernel_shape", None),
            integers("pads", None),
            integers("strides", None),
        ),
        outputs=("y",),
        rules=(flag("channels_last"),),
    ),
    DomainRow("MatMulInteger16", _product_of_16_bits, operands=("A", "B"), outputs=("Y",)),
    DomainRow(
        "ReduceSumInteger",
        _sum,
        operands=("data",),
        attributes=(integers("axes"), integer("keepdims")),
        outputs=("reduced",),
        rules=(flag("keepdims"),),
    ),
    DomainRow(
        "MulInteger",
        _multiplied,
        operands=("A", "A_zero_point?", "B", "B_zero_point?"),
        outputs=("C",),
        shapes="_, one, _, one",
    ),
)

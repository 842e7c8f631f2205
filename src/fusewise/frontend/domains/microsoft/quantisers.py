"""Numbers in 4, 8 and 16 bits: from floats and back, and from one scale and zero point to another's."""

from __future__ import annotations

from collections.abc import Callable

from fusewise.frontend.domains.row import DomainCall, DomainRow, integer
from fusewise.frontend.domains.writer import DomainValue, DomainWriter

__all__ = ["QUANTISERS", "dequantized", "quantized", "requantized", "scalar", "scalar_or_none"]


def scalar(g: DomainWriter, x: DomainValue) -> DomainValue:
    """One number, which may stand in a vector of one element, without dimensions."""
    if x.shape == ():
        return x
    known = g.known(x)
    return g.reshape(x, []) if known is None or known.size != 1 else g.constant(known.reshape(()))


def scalar_or_none(g: DomainWriter, x: DomainValue | None) -> DomainValue | None:
    """The same of an operand that may be absent."""
    return None if x is None else scalar(g, x)


def dequantized(g: DomainWriter, x: DomainValue, scale: DomainValue, zero: DomainValue | None) -> DomainValue:
    """(x - zero) * scale; both are one number."""
    return g.DequantizeLinear(x, scalar(g, scale), scalar_or_none(g, zero))


def quantized(
    g: DomainWriter, x: DomainValue, scale: DomainValue, zero: DomainValue | None, like: DomainValue
) -> DomainValue:
    """x / scale + zero, rounded, in the type of `like`; both are one number, and an absent zero point is 0."""
    point = g.number(0, like.dtype) if zero is None else scalar(g, zero)
    return g.QuantizeLinear(x, scalar(g, scale), point)


def requantized(
    g: DomainWriter, of: tuple[DomainValue, DomainValue, DomainValue], scale: DomainValue, zero: DomainValue
) -> DomainValue:
    """Integers with their scale and zero point, by those of another quantiser."""
    if _are_equal(g, of[1], scale) and _are_equal(g, of[2], zero):
        return of[0]
    return quantized(g, dequantized(g, *of), scale, zero, of[0])


def _are_equal(g: DomainWriter, one: DomainValue, other: DomainValue) -> bool:
    """Are two operands the same number, for all that is known?"""
    first, second = g.known(one), g.known(other)
    if one.name == other.name or first is None or second is None:
        return one.name == other.name
    return first.dtype == second.dtype and first.size == second.size == 1 and bool(first.item() == second.item())


def _quantiser(op: str, x: str, scale: str, zero: str) -> Callable[[DomainWriter, DomainCall], DomainValue]:
    """ONNX's operator of the same name, with one scale or one for each index of an axis."""

    def write(g: DomainWriter, call: DomainCall) -> DomainValue:
        factor, point, axis = call[scale], call.get(zero), call.attribute("axis")
        if factor.shape in ((), (1,)):
            return g.several(op, 1, call[x], scalar(g, factor), scalar_or_none(g, point))[0]
        return g.several(op, 1, call[x], factor, point, axis=axis)[0]

    return write


QUANTISERS: tuple[DomainRow, ...] = (
    DomainRow(
        "QuantizeLinear",
        _quantiser("QuantizeLinear", "x", "y_scale", "y_zero_point"),
        operands=("x", "y_scale", "y_zero_point?"),
        attributes=(integer("axis", None),),
        outputs=("y",),
    ),
    DomainRow(
        "DequantizeLinear",
        _quantiser("DequantizeLinear", "x", "x_scale", "x_zero_point"),
        operands=("x", "x_scale", "x_zero_point?"),
        attributes=(integer("axis", None),),
        outputs=("y",),
    ),
)

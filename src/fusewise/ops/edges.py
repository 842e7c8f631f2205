"""How operators map elements, operand by operand: the functions that rows name in `OpSpec.mapping`.

Types are per edge (DNNFusion, section 3.1, read per operand): an elementwise operator is One-to-One along an operand as
large as the output and One-to-Many only along one that is broadcast.
"""

from __future__ import annotations

from collections.abc import Callable

from fusewise.ir.types import TensorType, ValueType
from fusewise.ops.spec import Call, Mapping

__all__ = ["MappingRule", "data_then", "elementwise", "every", "opaque", "per_operand", "same_extent"]

MappingRule = Callable[[Call], tuple[Mapping, ...]]


def same_extent(operand: ValueType | None, output: ValueType | None) -> bool:
    """Do operand and output have as many elements, dimension by dimension (leading ones aside)?"""
    if not isinstance(operand, TensorType) or not isinstance(output, TensorType):
        return False
    if operand.shape is None or output.shape is None:
        return False

    def extents(shape: tuple[object, ...]) -> tuple[object, ...]:
        return tuple(d for d in shape if type(d) is not int or d != 1)

    return extents(operand.shape) == extents(output.shape)


def elementwise(call: Call) -> tuple[Mapping, ...]:
    """One-to-One along operands of the output's size, One-to-Many along those that are broadcast."""
    return tuple(
        Mapping.ONE_TO_ONE if kind is None or same_extent(kind, call.outputs[0]) else Mapping.ONE_TO_MANY
        for kind in call.inputs
    )


def every(kind: Mapping) -> MappingRule:
    """The same type along all operands."""
    return lambda call: (kind,) * len(call.inputs)


def per_operand(*kinds: Mapping) -> MappingRule:
    """A type for each operand in turn; further operands are One-to-Many parameters."""

    def rule(call: Call) -> tuple[Mapping, ...]:
        n = len(call.inputs)
        return (kinds + (Mapping.ONE_TO_MANY,) * n)[:n]

    return rule


def data_then(kind: Mapping | Callable[[Call], Mapping], parameters: tuple[int, ...] = ()) -> MappingRule:
    """`kind` along operand 0, One-to-Many along the rest.

    `parameters` are operands, such as axes or target shapes, that decide which element is read: unless they are constant
    nothing is known before the model runs, and every edge is Opaque.
    """

    def rule(call: Call) -> tuple[Mapping, ...]:
        n = len(call.inputs)
        if any(call.has(i) and not call.is_known(i) for i in parameters):
            return (Mapping.OPAQUE,) * n
        first = kind if isinstance(kind, Mapping) else kind(call)
        return ((first,) + (Mapping.ONE_TO_MANY,) * n)[:n]

    return rule


opaque: MappingRule = every(Mapping.OPAQUE)
"""Never fused, always the border of a group."""

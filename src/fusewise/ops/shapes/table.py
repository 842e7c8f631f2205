"""Shapes in terms of symbols: the rows by operator, and the types that a node's outputs have by them.

ONNX's inference knows names of dimensions and no arithmetic on them. It is asked for element types, with names for sizes; shapes
then come from the operator's row. An operator without a row keeps what ONNX finds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from fusewise.ir.graph import Node
from fusewise.ir.size import Size, Symbol, size_of
from fusewise.ir.types import Dim, OptionalType, SequenceType, TensorType, ValueType
from fusewise.ops.infer import infer_outputs
from fusewise.ops.shapes.contract import CONTRACT
from fusewise.ops.shapes.generate import GENERATE
from fusewise.ops.shapes.movement import MOVEMENT
from fusewise.ops.shapes.operands import Operands, Relations, Row, Shape, Unknown, is_unknown
from fusewise.ops.shapes.parameters import check_parameters
from fusewise.ops.shapes.plain import PLAIN
from fusewise.ops.shapes.windows import WINDOWS

__all__ = ["SHAPES", "has_sizes", "infer_sizes"]

SHAPES: Mapping[str, Row] = MappingProxyType({**PLAIN, **MOVEMENT, **CONTRACT, **WINDOWS, **GENERATE})
"""The shape of each output, by operator."""

Types = tuple[ValueType | None, ...]
Arrays = tuple[np.ndarray | None, ...]


def has_sizes(types: Types, values: Arrays) -> bool:
    """Is a dimension of some operand, or an element of what is known of one, no number?"""
    return any(map(_has_size, types)) or any(value is not None and value.dtype == object for value in values)


def _has_size(kind: ValueType | None) -> bool:
    if isinstance(kind, SequenceType | OptionalType):
        return _has_size(kind.element)
    return isinstance(kind, TensorType) and kind.shape is not None and not all(type(dim) is int for dim in kind.shape)


def infer_sizes(node: Node, types: Types, values: Arrays, opset: int, relations: Relations) -> Types:
    """The type of each output of `node`, with sizes for dimensions that depend on symbols; None for what is not known.

    `relations` is told what must hold for the operands to fit. Raises `InvalidModel` as `infer_outputs` does.
    """
    names: dict[str, int] = {}
    constants = tuple(None if v is None or v.dtype == object else v for v in values)
    found = infer_outputs(node, tuple(_worded(kind, names) for kind in types), constants, opset)
    shapes = _by_row(node, types, values, relations)
    given = (*shapes, *(None,) * (len(found) - len(shapes)))
    return tuple(_better(_sized(kind, names), shape) for kind, shape in zip(found, given, strict=False))


def _by_row(node: Node, types: Types, values: Arrays, relations: Relations) -> Sequence[Shape | None]:
    row = SHAPES.get(f"{node.domain}.{node.op}" if node.domain else node.op)
    if row is None:
        return ()
    try:
        case = Operands(node, tuple(map(_dims, range(len(types)), types)), values, relations)
        found = row(case)
        check_parameters(case)
        return found
    except (Unknown, LookupError, ValueError, TypeError, ArithmeticError, AttributeError):
        return ()  # what does not fit is said by ONNX's inference, or at run time


def _dims(place: int, kind: ValueType | None) -> Shape | None:
    """A shape with symbols that say nothing for dimensions that are not known."""
    if not isinstance(kind, TensorType) or kind.shape is None:
        return None
    return tuple(
        dim if isinstance(dim, int | Size) else size_of(Symbol(f"?{place}_{axis}"))
        for axis, dim in enumerate(kind.shape)
    )


def _better(kind: ValueType | None, shape: Shape | None) -> ValueType | None:
    if shape is None or not isinstance(kind, TensorType):
        return kind
    return TensorType(kind.dtype, tuple(None if is_unknown(dim) else dim for dim in shape))


def _worded(kind: ValueType | None, names: dict[str, int]) -> ValueType | None:
    """A type with names for sizes, which ONNX's inference hands on."""
    if isinstance(kind, SequenceType | OptionalType):
        inner = _worded(kind.element, names)
        assert inner is not None
        return type(kind)(inner)
    if not isinstance(kind, TensorType) or kind.shape is None:
        return kind
    dims: list[Dim] = []
    for dim in kind.shape:
        if isinstance(dim, Size):
            names[str(dim)] = dim
            dims.append(str(dim))
        else:
            dims.append(dim if isinstance(dim, int) else None)
    return TensorType(kind.dtype, tuple(dims))


def _sized(kind: ValueType | None, names: Mapping[str, int]) -> ValueType | None:
    """The type with the sizes that names stand for."""
    if isinstance(kind, SequenceType | OptionalType):
        inner = _sized(kind.element, names)
        assert inner is not None
        return type(kind)(inner)
    if not isinstance(kind, TensorType) or kind.shape is None:
        return kind
    return TensorType(kind.dtype, tuple(names.get(dim) if isinstance(dim, str) else dim for dim in kind.shape))

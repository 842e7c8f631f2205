"""A graph with numbers for its symbols: the static graph that it stands for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fusewise.ir.graph import Constant, Graph, Node, SizesConstant
from fusewise.ir.size import Size, evaluate
from fusewise.ir.types import OptionalType, SequenceType, TensorType, ValueType

__all__ = ["at_sizes", "constant_at", "type_at"]


def at_sizes(graph: Graph, values: Mapping[str, int]) -> Graph:
    """The graph with these sizes for its symbols, by name: in types, constants, attributes. `KeyError` for one without."""
    return graph.replace(
        nodes=tuple(_node_at(node, values) for node in graph.nodes),
        types={name: type_at(kind, values) for name, kind in graph.types.items()},
        constants={name: constant_at(constant, values) for name, constant in graph.constants.items()},
        checks=(),
        contents=(),
        growth=None,
    )


def type_at(kind: ValueType, values: Mapping[str, int]) -> ValueType:
    """A type with numbers for sizes."""
    if isinstance(kind, SequenceType | OptionalType):
        return type(kind)(type_at(kind.element, values))
    if not isinstance(kind, TensorType) or kind.shape is None or kind.is_fixed:
        return kind
    return TensorType(kind.dtype, tuple(evaluate(dim, values) if isinstance(dim, Size) else dim for dim in kind.shape))


def constant_at(constant: Constant, values: Mapping[str, int]) -> Constant:
    """A constant with numbers for sizes."""
    if not isinstance(constant, SizesConstant):
        return constant
    flat = [evaluate(item, values) for item in constant.array.reshape(-1).tolist()]
    return Constant(np.array(flat, constant.dtype.numpy).reshape(constant.array.shape))


def _node_at(node: Node, values: Mapping[str, int]) -> Node:
    if not any(_has_size(value) for _, value in node.attributes):
        return node
    return node.with_attributes(**{name: _value_at(value, values) for name, value in node.attributes})


def _has_size(value: Any) -> bool:
    return isinstance(value, Size | SizesConstant) or (isinstance(value, tuple) and any(map(_has_size, value)))


def _value_at(value: Any, values: Mapping[str, int]) -> Any:
    if isinstance(value, Size):
        return evaluate(value, values)
    if isinstance(value, Constant):
        return constant_at(value, values)
    return tuple(_value_at(item, values) for item in value) if isinstance(value, tuple) else value

"""Output shapes where a dimension or the target shape is symbolic: Reshape, Expand, ConstantOfShape and Resize.

ONNX's inference takes a target as a whole or not at all, and computes a missing dimension from numbers only. With symbolic
dimensions a target such as `[N, 768]` still tells the rank and the known dimensions, and `[-1, 768]` tells N from an operand
`[N, 12, 64]`; this is enough to upgrade old operators and to report a model before it is bound.
"""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

from fusewise.ir.graph import Node
from fusewise.ir.types import Dim, TensorType, ValueType

__all__ = ["partial_type"]


def partial_type(
    node: Node,
    types: tuple[ValueType | None, ...],
    values: tuple[np.ndarray | None, ...],
    found: tuple[ValueType | None, ...],
) -> tuple[ValueType | None, ...]:
    """`found`, with the shape of the first output filled in when it depends on a partly known target."""
    position = _TARGETS.get(node.op)
    if node.domain or position is None or position >= len(values) or not isinstance(found[0], TensorType):
        return found
    target = values[position]
    if target is None or target.ndim != 1 or (found[0].shape is not None and None not in found[0].shape):
        return found
    dims: list[Dim] = target.tolist()
    data = types[0]
    if node.op == "Reshape":
        shape = _reshaped(data.shape if isinstance(data, TensorType) else None, dims, node.attribute("allowzero", 0))
    elif node.op == "Expand":
        expanded = _expanded(data.shape if isinstance(data, TensorType) else None, dims)
        if expanded is None:
            return found
        shape = expanded
    else:
        shape = tuple(dims)
    return (TensorType(found[0].dtype, shape), *found[1:])


def _reshaped(source: tuple[Dim, ...] | None, target: list[Dim], allow_zero: int) -> tuple[Dim, ...]:
    dims: list[Dim] = []
    for i, dim in enumerate(target):
        if dim == 0 and not allow_zero:
            dims.append(source[i] if source is not None and i < len(source) else None)
        else:
            dims.append(dim)
    if -1 in dims:
        hole = dims.index(-1)
        dims[hole] = _quotient(source, dims[:hole] + dims[hole + 1 :])
    return tuple(dims)


def _quotient(source: tuple[Dim, ...] | None, others: list[Dim]) -> Dim:
    """What one dimension must be so that with `others` it makes as many elements as `source`; None when not a size or symbol."""
    if source is None or None in source or None in others:
        return None
    over = math.prod(dim for dim in source if isinstance(dim, int))
    under = math.prod(dim for dim in others if isinstance(dim, int))
    symbols = Counter(dim for dim in source if isinstance(dim, str))
    cancelled = Counter(dim for dim in others if isinstance(dim, str))
    if cancelled - symbols or under <= 0 or over % under:
        return None
    left = list((symbols - cancelled).elements())
    if not left:
        return over // under
    return left[0] if len(left) == 1 and over == under else None


def _expanded(source: tuple[Dim, ...] | None, target: list[Dim]) -> tuple[Dim, ...] | None:
    if source is None:
        return None
    rank = max(len(source), len(target))
    pairs = zip([1] * (rank - len(source)) + list(source), [1] * (rank - len(target)) + target, strict=True)
    return tuple(_broadcast(a, b) for a, b in pairs)


def _broadcast(a: Dim, b: Dim) -> Dim:
    if a == 1 or a == b:
        return b
    if b == 1:
        return a
    if isinstance(a, int):
        return a
    return b if isinstance(b, int) else None


_TARGETS = {"Reshape": 1, "Expand": 1, "ConstantOfShape": 0, "Resize": 3}

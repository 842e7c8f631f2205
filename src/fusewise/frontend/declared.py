"""The shapes a model declares of its values, a second witness where inference cannot tell; not believed where they cannot be.

What is declared may not hold: files are cut out of others, exported for other sizes, or made to mislead. What it says beyond what
is inferred is taken when the operator could give such a result at all; whether it does is checked when it runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

from fusewise.ir.graph import Node
from fusewise.ir.size import Size
from fusewise.ir.types import Dim, OptionalType, SequenceType, TensorType, ValueType

__all__ = ["contradicts", "refine", "settled", "without_shape"]

Shape = tuple[Dim, ...]


def settled(
    node: Node, first: ValueType | None, inferred: ValueType | None, declared: ValueType | None
) -> ValueType | None:
    """The type of an output of `node`, whose first operand is a `first`: what is inferred, filled in from what is declared."""
    best = declared if inferred is None else refine(inferred, declared)
    if best == inferred or not isinstance(best, TensorType) or best.shape is None:
        return best
    could = _COULD.get(node.op) if not node.domain else None
    source = first.shape if isinstance(first, TensorType) else None
    return best if could is None or could(source, best.shape) else inferred or without_shape(best)


def contradicts(inferred: ValueType | None, declared: ValueType | None) -> bool:
    """Does the model say of a tensor what its operator does not: another element type, rank, or size?"""
    if not isinstance(inferred, TensorType) or not isinstance(declared, TensorType):
        return False
    if inferred.dtype != declared.dtype:
        return True
    if inferred.shape is None or declared.shape is None:
        return False
    if len(inferred.shape) != len(declared.shape):
        return True
    pairs = zip(inferred.shape, declared.shape, strict=True)
    return any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs)


def without_shape(kind: ValueType) -> ValueType:
    """The type with its shape forgotten."""
    return TensorType(kind.dtype, None) if isinstance(kind, TensorType) else kind


def refine(inferred: ValueType, declared: ValueType | None) -> ValueType:
    """The inferred type, its unknown parts filled in from the declared one where the two agree."""
    if declared is None or type(inferred) is not type(declared):
        return inferred
    if isinstance(inferred, SequenceType) and isinstance(declared, SequenceType):
        return SequenceType(refine(inferred.element, declared.element))
    if isinstance(inferred, OptionalType) and isinstance(declared, OptionalType):
        return OptionalType(refine(inferred.element, declared.element))
    if not isinstance(inferred, TensorType) or not isinstance(declared, TensorType):
        return inferred
    if inferred.dtype != declared.dtype or declared.shape is None:
        return inferred
    if inferred.shape is None:
        return TensorType(inferred.dtype, declared.shape)
    if len(inferred.shape) != len(declared.shape):
        return inferred
    dims = tuple(_better(a, b) for a, b in zip(inferred.shape, declared.shape, strict=True))
    return TensorType(inferred.dtype, dims)


def _better(inferred: Dim, declared: Dim) -> Dim:
    """A number beats a symbol, a symbol beats nothing; inference beats the declaration."""
    if isinstance(inferred, int | Size) or declared is None:
        return inferred
    return declared if isinstance(declared, int | Size) or inferred is None else inferred


def _same_elements(source: Shape | None, result: Shape) -> bool:
    sizes = [math.prod(dim for dim in shape if isinstance(dim, int)) for shape in (source or (), result)]
    whole = source is not None and all(isinstance(dim, int) for dim in (*source, *result))
    return not whole or sizes[0] == sizes[1]


def _same_rank(source: Shape | None, result: Shape) -> bool:
    return source is None or len(source) == len(result)


def _broadcast(source: Shape | None, result: Shape) -> bool:
    """Expand may make dimensions of 1 longer, and put others before."""
    pairs = zip(reversed(source or ()), reversed(result), strict=False)
    known = [(a, b) for a, b in pairs if isinstance(a, int) and isinstance(b, int)]
    return len(source or ()) <= len(result) and all(a in (1, b) for a, b in known)


def _multiples(source: Shape | None, result: Shape) -> bool:
    """Tile repeats every dimension as a whole."""
    pairs = zip(source or result, result, strict=False)
    known = [(a, b) for a, b in pairs if isinstance(a, int) and isinstance(b, int)]
    return _same_rank(source, result) and all(b % a == 0 if a else b == 0 for a, b in known)


def _a_vector(source: Shape | None, result: Shape) -> bool:
    return len(result) == 1


_COULD: Mapping[str, Callable[[Shape | None, Shape], bool]] = MappingProxyType(
    dict.fromkeys("Flatten Reshape Squeeze Unsqueeze".split(), _same_elements)
    | dict.fromkeys("CenterCropPad CumSum Pad Resize Slice TopK Trilu Upsample".split(), _same_rank)
    | {"Expand": _broadcast, "Tile": _multiples}
    | dict.fromkeys("BlackmanWindow HammingWindow HannWindow Range".split(), _a_vector)
)
"""Operators whose results inference may know nothing of: could they give one of this shape, with a first operand of that?"""

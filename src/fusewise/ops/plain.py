"""Operators on numbers that are a call or two of NumPy: what host steps run where shapes depend on data, without ONNX's evaluator.

That takes a tenth of a millisecond for a node, and a fifth of a second to import. Each function here is tested against it, and
where one does not understand its operands, the evaluator is asked, so errors are its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from fusewise.ir.dtypes import dtype_of_onnx
from fusewise.ir.graph import Node
from fusewise.ops.selection import scatter, top
from fusewise.ops.slices import sliced

__all__ = ["PLAIN", "Evaluator", "plain_evaluator"]

Evaluator = Callable[..., list[Any]]
"""Takes the node's present operands, then its captured values, in order; gives its outputs, None for absent ones.

Tensors are arrays, sequences lists, and an empty optional is None."""

Given = Callable[[Node], Callable[..., Any]]
"""Takes a node; gives a function of its operands by place, None for absent ones."""


class _Other(Exception):
    """Not a case for NumPy alone."""


def plain_evaluator(node: Node, opset: int, reference: Evaluator) -> Evaluator | None:
    """`node` by NumPy, and by `reference` where operands are not numbers or do not fit; None for an operator that is not here."""
    since, make = PLAIN.get(node.op, (0, None))
    if make is None or node.domain or opset < since:
        return None
    present = [place for place, name in enumerate(node.inputs) if name]
    compute = make(node)

    def run(*operands: Any) -> list[Any]:
        if not all(_is_number(operand.dtype) for operand in operands):
            return reference(*operands)
        given = dict(zip(present, operands, strict=True))
        try:
            found = compute(*(given.get(place) for place in range(len(node.inputs))))
        except (_Other, ValueError, IndexError, TypeError, MemoryError, OverflowError):
            return reference(*operands)
        return [np.asarray(one) for one in found] if isinstance(found, tuple) else [np.asarray(found)]

    return run


def _is_number(dtype: np.dtype[Any]) -> bool:
    """Of a type that is NumPy's own: narrow floats are not, which ONNX may want saturated."""
    return dtype.isbuiltin == 1 and dtype.kind in "biuf"


def _of_two(function: Callable[[Any, Any], Any]) -> Given:
    return lambda node: function


def _axes(node: Node, operand: Any) -> tuple[int, ...] | None:
    """Of an operand, or of an attribute as earlier versions have them."""
    found = node.attribute("axes") if operand is None else operand
    return None if found is None else tuple(int(axis) for axis in np.asarray(found).reshape(-1))


def _gather(node: Node) -> Callable[..., Any]:
    axis = node.attribute("axis", 0)
    return lambda data, indices: np.take(data, indices, axis)


def _unsqueeze(node: Node) -> Callable[..., Any]:
    return lambda data, axes=None: np.expand_dims(data, _axes(node, axes) or ())


def _squeeze(node: Node) -> Callable[..., Any]:
    return lambda data, axes=None: np.squeeze(data, _axes(node, axes))


def _nonzero(data: Any) -> np.ndarray:
    if not data.ndim:
        raise _Other
    return np.array(np.nonzero(data), np.int64).reshape(data.ndim, -1)


def _topk(node: Node) -> Callable[..., Any]:
    def run(data: Any, count: Any) -> tuple[np.ndarray, np.ndarray]:
        axis, wanted = node.attribute("axis", -1), int(count.reshape(-1)[0])
        if data.dtype.kind == "b" or not data.ndim or not 0 <= wanted <= data.shape[axis]:
            raise _Other
        return top(data, wanted, axis, bool(node.attribute("largest", 1)))

    return run


def _pad(node: Node) -> Callable[..., Any]:
    def run(data: Any, pads: Any, value: Any = None, axes: Any = None) -> np.ndarray:
        if node.attribute("mode", "constant") != "constant" or axes is not None or pads.size != 2 * data.ndim:
            raise _Other
        filling = 0 if value is None else value.reshape(-1)[0]
        return np.pad(data, pads.reshape(2, -1).T, constant_values=filling)

    return run


def _cast(node: Node) -> Callable[..., Any]:
    def run(data: Any) -> np.ndarray:
        target = dtype_of_onnx(node.attribute("to")).numpy
        lossy = data.dtype.kind == "f" and target.kind in "iu"  # what becomes of NaN is the evaluator's to say
        if not _is_number(target) or (lossy and not np.isfinite(data).all()):
            raise _Other
        return np.asarray(data).astype(target)

    return run


def _reduce_max(node: Node) -> Callable[..., Any]:
    def run(data: Any, axes: Any = None) -> np.ndarray:
        wanted = _axes(node, axes)
        if not wanted and node.attribute("noop_with_empty_axes", 0):
            raise _Other
        kept = bool(node.attribute("keepdims", 1))
        found: np.ndarray = np.max(data, axis=wanted or None, keepdims=kept)
        return found

    return run


def _concat(node: Node) -> Callable[..., Any]:
    return lambda *parts: np.concatenate(parts, axis=node.attribute("axis"))


def _reshape(node: Node) -> Callable[..., Any]:
    def run(data: Any, shape: Any) -> Any:
        wanted = shape.reshape(-1).tolist()
        if not node.attribute("allowzero", 0):
            wanted = [extent or data.shape[axis] for axis, extent in enumerate(wanted)]
        return data.reshape(wanted)

    return run


def _scatter(node: Node) -> Callable[..., Any]:
    def run(data: Any, indices: Any, updates: Any) -> np.ndarray:
        found = np.empty(data.shape, data.dtype)
        if node.attribute("reduction", "none") != "none" or not scatter(data, indices, updates, found):
            raise _Other
        return found

    return run


PLAIN: Mapping[str, tuple[int, Given]] = MappingProxyType(
    {
        "Add": (7, _of_two(np.add)),
        "And": (7, _of_two(np.logical_and)),
        "Cast": (6, _cast),
        "Concat": (4, _concat),
        "Gather": (1, _gather),
        "GreaterOrEqual": (12, _of_two(np.greater_equal)),
        "Mul": (7, _of_two(np.multiply)),
        "NonZero": (9, lambda node: _nonzero),
        "Pad": (11, _pad),
        "ReduceMax": (11, _reduce_max),
        "Reshape": (5, _reshape),
        "ScatterND": (11, _scatter),
        "Slice": (10, lambda node: sliced),
        "Squeeze": (1, _squeeze),
        "Sub": (7, _of_two(np.subtract)),
        "TopK": (10, _topk),
        "Unsqueeze": (1, _unsqueeze),
    }
)
"""By operator, since which version of ONNX's operators it means this, and how it is computed."""

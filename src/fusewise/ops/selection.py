"""TopK and ScatterND for the reference evaluator, without sorting what is not asked for and without loops over elements."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

__all__ = ["scatter", "selection_operators", "top"]

_WORTH_PARTITION = 4
"""Elements a line must have for each one wanted before finding these first is cheaper than sorting all."""


def selection_operators() -> tuple[type[Any], ...]:
    """Classes of both operators for the argument `new_ops` of `ReferenceEvaluator`."""
    from onnx.reference.ops import op_scatternd, op_topk

    slow_top: Any = op_topk.TopK_11
    slow_scatter: Any = op_scatternd.ScatterND

    class TopK(slow_top):  # type: ignore[misc]
        """Numbers; the rest as it was."""

        op_domain = ""

        def _run(self, data: Any, count: Any, axis: Any = None, largest: Any = None, **settings: Any) -> Any:
            wanted = int(np.asarray(count).reshape(-1)[0])
            at = -1 if axis is None else axis
            if data.dtype.kind not in "iuf" or not data.ndim or not 0 <= wanted <= data.shape[at]:
                return super()._run(data, count, axis=at, largest=largest, **settings)
            return top(data, wanted, at, largest is None or bool(largest))

    class ScatterND(slow_scatter):  # type: ignore[misc]
        """Plain writing; the rest as it was."""

        op_domain = ""

        def _run(self, data: Any, indices: Any, updates: Any, reduction: Any = None) -> tuple[Any, ...]:
            if reduction in (None, "none"):
                found = np.empty(data.shape, data.dtype)
                if scatter(data, indices, updates, found):
                    return (found,)
            return tuple(super()._run(data, indices, updates, reduction=reduction))

    return (TopK, ScatterND)


def top(data: np.ndarray, count: int, axis: int, largest: bool) -> tuple[np.ndarray, np.ndarray]:
    """The `count` largest (or smallest) elements along an axis in order, and where they are, int64; of equal ones the first.

    NaN is larger than any number.
    """
    lines = np.ascontiguousarray(np.moveaxis(data, axis, -1))
    flat = lines.reshape(math.prod(lines.shape[:-1]), lines.shape[-1])
    where = _best(_keys(flat, largest), count)
    values = np.take_along_axis(flat, where, axis=-1)

    def as_given(found: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(np.moveaxis(found.reshape(*lines.shape[:-1], count), -1, axis))

    return as_given(values), as_given(where)


def _keys(lines: np.ndarray, largest: bool) -> np.ndarray:
    """Unsigned integers, smaller where an element is better: equal numbers have one, and those that are none."""
    kind = np.dtype(f"u{lines.itemsize}")
    bits = lines.view(kind)
    sign = kind.type(1 << (8 * lines.itemsize - 1))
    if lines.dtype.kind == "f":
        magnitude = bits & (sign - kind.type(1))
        ordered = np.where(bits & sign, ~bits, bits | sign)
        ordered[magnitude == 0] = sign
        ordered[magnitude > np.array(np.inf, lines.dtype).view(kind)] = ~kind.type(0)
    else:
        ordered = bits ^ sign if lines.dtype.kind == "i" else bits
    return ~ordered if largest else ordered


def _best(keys: np.ndarray, count: int) -> np.ndarray:
    """Where the `count` smallest of every line are, in order, the first of equal ones first."""
    if not 0 < count * _WORTH_PARTITION <= keys.shape[1]:
        return np.argsort(keys, axis=1, kind="stable")[:, :count].astype(np.int64)
    worst = np.partition(keys, count - 1, axis=1)[:, count - 1 : count]
    chosen, equal = keys < worst, keys == worst
    missing = count - np.count_nonzero(chosen, axis=1, keepdims=True)
    if (np.count_nonzero(equal, axis=1, keepdims=True) > missing).any():
        equal &= np.cumsum(equal, axis=1) <= missing
    places = np.nonzero(chosen | equal)[1].reshape(-1, count)
    order = np.argsort(np.take_along_axis(keys, places, axis=1), axis=1, kind="stable")
    return np.take_along_axis(places, order, axis=1)


def scatter(data: np.ndarray, indices: np.ndarray, updates: np.ndarray, into: np.ndarray) -> bool:
    """Make `into` what `data` [shape] is with `updates` [..., rest] written at `indices` [..., q], the last one of equal ones.

    `into` may be `data` itself. False, with nothing done, where shapes are not as they should be.
    """
    depth = indices.shape[-1] if indices.ndim else 0
    if not 0 < depth <= data.ndim or updates.shape != (*indices.shape[:-1], *data.shape[depth:]):
        return False
    if into.shape != data.shape or into.dtype != data.dtype:
        return False
    if np.may_share_memory(into, updates) or np.may_share_memory(into, indices):
        updates, indices = updates.copy(), indices.copy()
    same = into.__array_interface__["data"] == data.__array_interface__["data"] and into.strides == data.strides
    if not same:
        np.copyto(into, data)
    into[tuple(np.moveaxis(indices, -1, 0))] = updates
    return True

"""Cutting, picking and numbering for the reference evaluator: Slice, GatherElements, Unique, SequenceInsert.

Its Slice follows Python where a negative step begins in front of the axis, its GatherElements wants indices as large as the
data along every other axis, its Unique sorts whatever it is asked, and its SequenceInsert puts at the beginning what should be
at the end.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fusewise.ops.slices import sliced

__all__ = ["array_operators", "gather_elements", "unique"]


def array_operators() -> tuple[type[Any], ...]:
    """Classes for the argument `new_ops` of `ReferenceEvaluator`."""
    from onnx.reference.op_run import OpRun

    class Slice(OpRun):
        """Opset 10 and later: bounds are operands."""

        op_domain = ""

        def _run(self, data: Any, *bounds: Any, **attributes: Any) -> tuple[Any, ...]:
            if not bounds:  # earlier opsets have attributes
                bounds = tuple(attributes.get(name) for name in ("starts", "ends", "axes"))
            return (sliced(data, *bounds),)

    class GatherElements(OpRun):
        op_domain = ""

        def _run(self, data: Any, indices: Any, axis: Any = None) -> tuple[Any, ...]:
            return (gather_elements(data, indices, axis or 0),)

    class Unique(OpRun):
        op_domain = ""

        def _run(self, data: Any, axis: Any = None, sorted: Any = None) -> tuple[Any, ...]:  # noqa: A002 - ONNX's name
            return unique(data, axis, sorted is None or bool(sorted))[: len(self.onnx_node.output)]

    class SequenceInsert(OpRun):
        op_domain = ""

        def _run(self, sequence: Any, element: Any, position: Any = None) -> tuple[Any, ...]:
            count = len(sequence)
            at = count if position is None else int(np.asarray(position).reshape(-1)[0])
            if not -count <= at <= count:
                raise IndexError(f"position {at} is not within the {count} elements of the sequence")
            at += count * (at < 0)
            return ([*sequence[:at], element, *sequence[at:]],)

    return (Slice, GatherElements, Unique, SequenceInsert)


def gather_elements(data: np.ndarray, indices: np.ndarray, axis: int) -> np.ndarray:
    """Element `data[.., indices[i, j, ..], ..]` for each index, counted from the end where negative.

    Along the other axes `indices` may be smaller than `data`. Raises `IndexError` for one out of range.
    """
    axis = axis % data.ndim
    corner = tuple(slice(None) if d == axis else slice(0, n) for d, n in enumerate(indices.shape))
    return np.asarray(np.take_along_axis(data[corner], indices.astype(np.int64), axis))


def unique(data: np.ndarray, axis: int | None, ordered: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The distinct elements of `data` flattened, or its distinct slices along `axis`; `ordered` by value, else by first place.

    With them, int64: where each is first, which one each element or slice is, and how often each occurs.
    """
    known = _unique_integers(data.reshape(-1)) if axis is None and data.dtype.kind in "iu" and data.size else None
    if known is None:
        keys = data.astype(np.str_) if data.dtype == object else data  # NumPy compares slices of text only so
        _, first, which, counts = np.unique(keys, return_index=True, return_inverse=True, return_counts=True, axis=axis)
        which = which.reshape(-1)
    else:
        first, which, counts = known
    if not ordered:
        order = np.argsort(first, kind="stable")
        first, counts, which = first[order], counts[order], np.argsort(order, kind="stable")[which]
    found = np.take(data.reshape(-1), first) if axis is None else np.take(data, first, axis)
    return found, *(one.astype(np.int64, copy=False) for one in (first, which, counts))


def _unique_integers(data: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Where each of the integers in `data`, which has some, is first, which one each is, and how often each occurs; None where a
    number and its place do not fit 63 bits, which one sort of numbers takes."""
    size, low, high = data.size, data.min(), data.max()
    bits = (size - 1).bit_length()
    if int(high) - int(low) >= 1 << (63 - bits):
        return None
    keys = (data - low if data.dtype.kind == "u" else np.subtract(data, low, dtype=np.int64)).astype(np.int64)
    keys = (keys << bits) | np.arange(size)
    keys.sort()
    places = keys & ((1 << bits) - 1)
    keys >>= bits
    begins = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
    counts = np.diff(begins, append=size)
    which = np.empty(size, np.int64)
    which[places] = np.arange(begins.size).repeat(counts)
    return places[begins], which, counts

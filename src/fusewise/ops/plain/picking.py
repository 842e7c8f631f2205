"""Picking elements by positions and values: gathers, scatters, searches, sorting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fusewise.ir.graph import Node
from fusewise.ops.corrected_arrays import gather_elements, unique
from fusewise.ops.plain.row import Other, Plain, PlainFunction, of_any
from fusewise.ops.selection import scatter, top

__all__ = ["PICKING"]


def _gather(node: Node) -> PlainFunction:
    axis = node.attribute("axis", 0)
    return lambda data, indices: data.take(indices, axis)


def _gather_elements(node: Node) -> PlainFunction:
    axis = node.attribute("axis", 0)
    return lambda data, indices: gather_elements(data, indices, axis)


def _gather_nd(node: Node) -> PlainFunction:
    batch = node.attribute("batch_dims", 0)

    def run(data: Any, indices: Any) -> Any:
        depth = indices.shape[-1]
        if batch + depth > data.ndim or data.shape[:batch] != indices.shape[:batch]:
            raise Other
        leading = np.indices(indices.shape[:batch], sparse=True)
        rank = indices.ndim - 1
        places = [one.reshape(one.shape + (1,) * (rank - batch)) for one in leading]
        return data[(*places, *np.moveaxis(indices, -1, 0))]

    return run


def _scatter_nd(node: Node) -> PlainFunction:
    def run(data: Any, indices: Any, updates: Any) -> Any:
        found = np.empty(data.shape, data.dtype)
        if node.attribute("reduction", "none") != "none" or not scatter(data, indices, updates, found):
            raise Other
        return found

    return run


_INTO = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def _scatter_elements(node: Node) -> PlainFunction:
    """Along an axis; what is written twice at one place is there as it was written last, or all of it by the reduction."""
    axis, reduction = node.attribute("axis", 0), node.attribute("reduction", "none")

    def run(data: Any, indices: Any, updates: Any) -> Any:
        if indices.shape != updates.shape or indices.ndim != data.ndim:
            raise Other
        found, along = data.copy(), axis % max(1, data.ndim)
        places = list(np.indices(indices.shape, sparse=True))
        places[along] = indices
        if reduction == "none":
            found[tuple(places)] = updates
        elif data.dtype == np.float16:
            raise Other
        else:
            _INTO[reduction].at(found, tuple(places), updates)
        return found

    return run


def _nonzero(node: Node) -> PlainFunction:
    def run(data: Any) -> Any:
        if not data.ndim:
            raise Other
        return _positions((data if data.dtype == np.bool_ else data != 0).reshape(-1).nonzero()[0], data.shape)

    return run


def _positions(flat: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Positions in the flattened tensor as indices along every axis: int64 [axes, positions]."""
    found = np.empty((len(shape), flat.size), np.int64)
    for axis in range(len(shape) - 1, 0, -1):
        np.divmod(flat, shape[axis], out=(found[axis - 1], found[axis]))
        flat = found[axis - 1]
    found[0] = flat
    return found


def _topk(node: Node) -> PlainFunction:
    axis, largest = node.attribute("axis", -1), bool(node.attribute("largest", 1))

    def run(data: Any, count: Any) -> Any:
        wanted = int(count.reshape(-1)[0])
        if data.dtype.kind == "b" or not data.ndim or not 0 <= wanted <= data.shape[axis]:
            raise Other
        return top(data, wanted, axis, largest)

    return run


def _compress(node: Node) -> PlainFunction:
    axis = node.attribute("axis")

    def run(data: Any, condition: Any) -> Any:
        lines = data.reshape(-1) if axis is None else data
        return lines.take(condition[: lines.shape[axis or 0]].nonzero()[0], axis or 0)

    return run


def _unique(node: Node) -> PlainFunction:
    def run(data: Any) -> Any:
        found = unique(data, node.attribute("axis"), bool(node.attribute("sorted", 1)))
        return found[: len(node.outputs)]

    return run


def _one_hot(node: Node) -> PlainFunction:
    axis = node.attribute("axis", -1)

    def run(indices: Any, depth: Any, values: Any) -> Any:
        extent = int(depth.reshape(-1)[0])
        if extent < 0 or values.shape != (2,):
            raise Other
        inner = np.where(indices < 0, indices + extent, indices)
        at = axis if axis >= 0 else axis + indices.ndim + 1
        along = np.arange(extent).reshape((extent,) + (1,) * (indices.ndim - at))
        return np.where(np.expand_dims(inner, at) == along, values[1], values[0])

    return run


def _extreme(largest: bool) -> Callable[[Node], PlainFunction]:
    def make(node: Node) -> PlainFunction:
        axis, kept = node.attribute("axis", 0), bool(node.attribute("keepdims", 1))
        last = bool(node.attribute("select_last_index", 0))
        function = np.argmax if largest else np.argmin

        def run(data: Any) -> Any:
            lines = np.flip(data, axis) if last else data
            found = function(lines, axis=axis, keepdims=kept)
            found = data.shape[axis] - 1 - found if last else found
            return np.asarray(found, np.int64)

        return run

    return make


def _reversed(node: Node) -> PlainFunction:
    """The first elements of each line, as many as it says, the other way round."""
    time, batch = node.attribute("time_axis", 0), node.attribute("batch_axis", 1)

    def run(data: Any, lengths: Any) -> Any:
        steps = np.arange(data.shape[time])[:, None]
        places = np.where(steps < lengths, lengths - 1 - steps, steps)
        shape = [1] * data.ndim
        shape[time], shape[batch] = data.shape[time], data.shape[batch]
        places = (places if time < batch else places.T).reshape(shape)
        return np.take_along_axis(data, np.broadcast_to(places, data.shape), time)

    return run


PICKING: tuple[Plain, ...] = (
    Plain("ArgMax", 1, _extreme(True)),
    Plain("ArgMin", 1, _extreme(False)),
    of_any("Compress", 9, _compress),
    of_any("Gather", 1, _gather),
    of_any("GatherElements", 11, _gather_elements),
    of_any("GatherND", 11, _gather_nd),
    Plain("NonZero", 9, _nonzero),
    of_any("OneHot", 9, _one_hot),
    of_any("ReverseSequence", 10, _reversed),
    of_any("ScatterElements", 11, _scatter_elements),
    of_any("ScatterND", 11, _scatter_nd),
    Plain("TopK", 10, _topk),
    of_any("Unique", 11, _unique),
)

"""What a host step reads and where its results go: found once, and kept between runs where it is the same in all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fusewise.errors import ShapeContradicted
from fusewise.ir.types import TensorType
from fusewise.lower.program import HostValue, Place
from fusewise.runtime.arena import RunMemory

__all__ = ["Reader", "Writing", "apart", "checked", "lies_in", "reader", "writing"]


Reader = Callable[[RunMemory, Mapping[str, Any]], Any]
"""Gives an array that may not be written to, or an object."""

Writing = Callable[[RunMemory, dict[str, Any], Any, Sequence[Any]], None]
"""Takes a result, and the operands that lie in the program's memory."""


def lies_in(value: HostValue) -> tuple[Place, TensorType] | None:
    """Where a static tensor lies, and its type; None for an object."""
    _, place, kind = value
    return (place, kind) if place is not None and isinstance(kind, TensorType) else None


def reader(value: HostValue) -> Reader:
    """Reads one value in every run of one program."""
    name, found = value[0], lies_in(value)
    if found is None:
        return lambda memory, objects: objects[name]
    place, kind = found
    kept: np.ndarray | None = None  # where it lies in memory of the program's own
    whole: bool | None = None  # is it an array of the caller's? The same in every run

    def read(memory: RunMemory, objects: Mapping[str, Any]) -> np.ndarray:
        nonlocal kept, whole
        if kept is not None:
            return kept
        if whole is None:
            whole = _is_whole(place, kind, memory)
        view = memory.caller[place.buffer].view() if whole else memory.view(place, kind)
        view.setflags(write=False)
        if memory.own[place.buffer] is not None:
            kept = view
        return view

    return read


def writing(value: HostValue, who: str) -> Writing:
    """Puts one value, which the node `who` gives, where it belongs, in every run of one program."""
    name, found = value[0], lies_in(value)
    if found is None:

        def keep(memory: RunMemory, objects: dict[str, Any], result: Any, views: Sequence[Any]) -> None:
            objects[name] = apart(result, views)

        return keep
    place, kind = found
    kept: np.ndarray | None = None
    whole: bool | None = None

    def put(memory: RunMemory, objects: dict[str, Any], result: Any, views: Sequence[Any]) -> None:
        nonlocal kept, whole
        into = kept
        if into is None:
            if whole is None:
                whole = _is_whole(place, kind, memory)
            into = memory.caller[place.buffer] if whole else memory.view(place, kind)
            if memory.own[place.buffer] is not None:
                kept = into
        into[...] = checked(result, kind, who)

    return put


def _is_whole(place: Place, kind: TensorType, memory: RunMemory) -> bool:
    """Is what lies at a place an array of the caller's, all of it?"""
    if memory.own[place.buffer] is not None or place.offset or place.strides is not None:
        return False
    array = memory.caller[place.buffer]
    return array.shape == kind.dims and array.dtype == kind.dtype.numpy


def checked(result: Any, kind: TensorType, who: str) -> np.ndarray:
    """A result of the node `who` that has the shape which native code was written for; `ShapeContradicted` for another."""
    array = result if type(result) is np.ndarray else np.asarray(result)
    if array.shape != kind.shape:
        raise ShapeContradicted(f"{who} gives the shape {list(array.shape)}, where the model states {list(kind.dims)}")
    return array


def apart(value: Any, views: Sequence[Any]) -> Any:
    """A result that outlives the step: copied where it may share memory with one of `views`, which does not."""
    if not views:
        return value
    if type(value) is np.ndarray:
        return _apart(value, views)
    if isinstance(value, list):
        if value and type(value[0]) is dict:  # then all are maps, of numbers and words
            return value
        return [
            _apart(item, views) if type(item) is np.ndarray else apart(item, views) if isinstance(item, list) else item
            for item in value
        ]
    return value


def _apart(array: np.ndarray, views: Sequence[np.ndarray]) -> np.ndarray:
    base = array.base
    if base is None:  # memory of its own, which no view is
        return array
    for view in views:
        if array is view or base is view.base or np.may_share_memory(array, view):
            return array.copy()
    return array

"""What a host step reads and where its results go: found once, and kept between runs where it is the same in all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fusewise.errors import ShapeContradicted
from fusewise.ir.types import TensorType, ValueType
from fusewise.lower.program import Place
from fusewise.runtime.arena import Memory

__all__ = ["Reader", "Value", "Writing", "apart", "checked", "lies_in", "reader", "writing"]

Value = tuple[str, Place | None, ValueType | None]
"""Name, and place and type of a static tensor in the program's memory; anything else is an object."""

Reader = Callable[[Memory, Mapping[str, Any]], Any]
"""Gives an array that may not be written to, or an object."""

Writing = Callable[[Memory, dict[str, Any], Any, Sequence[Any]], None]
"""Takes a result, and the operands that lie in the program's memory."""


def lies_in(value: Value) -> tuple[Place, TensorType] | None:
    """Where a static tensor lies, and its type; None for an object."""
    _, place, kind = value
    return (place, kind) if place is not None and isinstance(kind, TensorType) else None


def reader(value: Value) -> Reader:
    """Reads one value in every run of one program."""
    name, found = value[0], lies_in(value)
    if found is None:
        return lambda memory, objects: objects[name]
    place, kind = found
    kept: list[np.ndarray] = []

    def read(memory: Memory, objects: Mapping[str, Any]) -> np.ndarray:
        if kept:
            return kept[0]
        view = tensor(memory)
        view.flags.writeable = False
        if memory.own[place.buffer] is not None:
            kept.append(view)
        return view

    tensor = _tensor(place, kind)
    return read


def writing(value: Value, who: str) -> Writing:
    """Puts one value, which the node `who` gives, where it belongs, in every run of one program."""
    name, found = value[0], lies_in(value)
    if found is None:

        def keep(memory: Memory, objects: dict[str, Any], result: Any, views: Sequence[Any]) -> None:
            objects[name] = apart(result, views)

        return keep
    place, kind = found
    kept: list[np.ndarray] = []

    def put(memory: Memory, objects: dict[str, Any], result: Any, views: Sequence[Any]) -> None:
        into = kept[0] if kept else tensor(memory)
        into[...] = checked(result, kind, who)
        if not kept and memory.own[place.buffer] is not None:
            kept.append(into)

    tensor = _tensor(place, kind)
    return put


def _tensor(place: Place, kind: TensorType) -> Callable[[Memory], np.ndarray]:
    """`Memory.view`, sooner for a whole array of the caller's."""
    dims, dtype = kind.dims, kind.dtype.numpy
    whole = place.offset == 0 and place.strides is None

    def view(memory: Memory) -> np.ndarray:
        if whole and memory.own[place.buffer] is None:
            array = memory.caller[place.buffer]
            if array.shape == dims and array.dtype is dtype:
                return array.view()
        return memory.view(place, kind)

    return view


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
    if isinstance(value, list):
        return [apart(item, views) for item in value]
    if not isinstance(value, np.ndarray) or value.base is None:  # memory of its own, which no view is
        return value
    for view in views:
        if value is view or value.base is view.base or np.may_share_memory(value, view):
            return value.copy()
    return value

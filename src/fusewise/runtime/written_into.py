"""Results that are written into arrays which the caller has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fusewise.errors import UsageError
from fusewise.ir.types import TensorType
from fusewise.lower.program import Port

__all__ = ["copied_into", "put_in_place", "writable_in_place"]


def writable_in_place(
    outputs: Sequence[tuple[int, Port]], arrays: Sequence[np.ndarray | None], values: Sequence[Any]
) -> dict[int, np.ndarray]:
    """Of the arrays for `outputs`, each with its number, those that share memory neither with what is read nor with each other.
    `UsageError` for an array of another type than its output, and for one that cannot be written to as it lies."""
    found: dict[int, np.ndarray] = {}
    plain = all(isinstance(value, np.ndarray) for value in values)
    for (number, port), array in zip(outputs, arrays, strict=True):
        if array is None:
            continue
        _require_fitting(port, array)
        others = (*values, *(one for one in arrays if one is not None and one is not array))
        alone = sum(one is array for one in arrays) == 1
        if plain and alone and not any(np.may_share_memory(array, one) for one in others):
            found[number] = array
    return found


def _require_fitting(port: Port, array: Any) -> None:
    kind = port.type
    if not isinstance(kind, TensorType) or kind.dtype.kind == "string":
        raise UsageError(f"output {port.name!r} is {kind}, which cannot be written into memory: leave that open")
    if not isinstance(array, np.ndarray) or array.dtype != kind.dtype.numpy:
        found = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
        raise UsageError(f"output {port.name!r} is written into an array of {kind.dtype.name}, not of {found}")
    flags = array.flags
    if not (flags.c_contiguous and flags.aligned and flags.writeable):
        raise UsageError(f"output {port.name!r} is written into an array that is C-contiguous, aligned and writable")


def put_in_place(
    outputs: Sequence[Port],
    into: Mapping[int, np.ndarray],
    caller: dict[int, np.ndarray],
    fresh: Sequence[tuple[int, object]],
) -> None:
    """Before a run, put the arrays `into` outputs by number where new ones are in `caller`, by buffer, where that is a `fresh`
    one. `UsageError` for another shape."""
    made = {buffer for buffer, _ in fresh}
    for number, array in into.items():
        port = outputs[number]
        if port.buffer in made:
            if caller[port.buffer].shape != array.shape or caller[port.buffer].dtype != array.dtype:
                raise _other_shape(port.name, array.shape, caller[port.buffer].shape)
            caller[port.buffer] = array


def copied_into(results: list[Any], into: Mapping[str, np.ndarray | None]) -> list[Any]:
    """After a run, results that lie elsewhere are copied; `UsageError` for those of another shape."""
    found = []
    for (name, array), result in zip(into.items(), results, strict=True):
        if array is None or result is array:
            found.append(result)
            continue
        if result.shape != array.shape:
            raise _other_shape(name, array.shape, result.shape)
        np.copyto(array, result)
        found.append(array)
    return found


def _other_shape(name: str, given: tuple[int, ...], found: tuple[int, ...]) -> UsageError:
    return UsageError(
        f"output {name!r} has the shape {list(found)}, and the array that it is to be written into {list(given)}"
    )

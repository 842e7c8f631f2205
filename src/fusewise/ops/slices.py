"""What Slice reads along an axis: ONNX's rule, which is not Python's where a negative step begins in front of the axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from fusewise.ir.deciding import known_below
from fusewise.ir.size import greatest, least

__all__ = ["slice_along", "slice_start", "sliced"]


def slice_along(start: int, end: int, step: int, extent: int) -> slice:
    """Bounds as given, negative ones counted from the end, as a Python slice that reads the same elements of `extent`.

    The start is limited to 0 .. extent going up and to 0 .. extent - 1 going down, the end to 0 .. extent and to
    -1 .. extent - 1 (ONNX, Slice). Raises `ValueError` for a step of 0.
    """
    if step == 0:
        raise ValueError("a slice has a step of 0")
    if extent == 0:
        return slice(0, 0, step)
    start, end = (bound + extent if bound < 0 else bound for bound in (start, end))
    least, most = (0, extent) if step > 0 else (-1, extent - 1)
    start, end = max(0, min(start, most)), max(least, min(end, most))
    return slice(start, None if end < 0 else end, step)


def slice_start(start: int, step: int, extent: int) -> int:
    """Where a slice begins that reads something; bounds and extent may be sizes. Raises `ValueError` for a step of 0."""
    if type(start) is type(extent) is int:
        first: int = slice_along(start, 0, step, extent).start
        return first
    if step == 0:
        raise ValueError("a slice has a step of 0")
    if known_below(start, 0):
        start = start + extent
    elif not known_below(-1, start):  # either way: the position modulo the extent, as long as it is no further away
        start = start + extent * (1 - least(greatest(start + 1, 0), 1))
    place: int = greatest(0, least(start, extent if step > 0 else extent - 1))
    return place


def sliced(data: np.ndarray, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Any:
    """The part of `data` that Slice gives, as a view; bounds are arrays, axes the first ones and steps 1 where None."""
    begins, stops = np.asarray(starts).reshape(-1).tolist(), np.asarray(ends).reshape(-1).tolist()
    where = range(len(begins)) if axes is None else np.asarray(axes).reshape(-1).tolist()
    by = [1] * len(begins) if steps is None else np.asarray(steps).reshape(-1).tolist()
    cut = [slice(None)] * data.ndim
    for axis, start, end, step in zip(where, begins, stops, by, strict=True):
        cut[axis] = slice_along(start, end, step, data.shape[axis])
    return data[tuple(cut)]

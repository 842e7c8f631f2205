"""Constant weights rearranged at compile time into the order in which a kernel streams them.

A panel is a run of columns that one register tile covers: `vectors` vectors of `lanes` lanes. For each step of the reduction
the panel holds its columns side by side, so the inner loop reads memory strictly forwards:

    matrix [K, N]  ->  [panel][k][vector][lane]

Columns that do not fill a vector are not padded when there are enough of them: the last vector is moved back to end at the
last column, so a few columns are computed twice and no store needs a mask. Where columns fill panels, but not as many as go
together, it is a panel that is moved back.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fusewise.codegen.view import OperandView
from fusewise.ir.dtypes import BFLOAT16, FLOAT16, FLOAT32, DType
from fusewise.lower.program import Packing, Panels

__all__ = ["Axes", "MatrixAxes", "column_starts", "packed", "panels", "panels_of", "viewed"]

Axes = tuple[tuple[int, int], ...]
"""(extent, stride) of each."""

MatrixAxes = tuple[Axes, Axes, tuple[int, int]]
"""Those of [outer..., depth..., columns]."""


def column_starts(columns: int, lanes: int, vectors: int, multiple: int = 1) -> tuple[int, ...]:
    """The first column of every vector of every panel, a multiple of so many panels; `(0, ...)` when the columns do not fill one
    vector. Where panels fit, the vectors of each lie side by side, and those beyond the last are that one again."""
    width = vectors * lanes
    whole = -(-columns // (width * multiple)) * multiple
    if columns % width == 0:
        return tuple(min(p * width, columns - width) + v * lanes for p in range(whole) for v in range(vectors))
    return tuple(max(0, min(k * lanes, columns - lanes)) for k in range(whole * vectors))


def viewed(array: np.ndarray, view: OperandView) -> np.ndarray:
    """The elements that a view of a constant names, in the anchor's dimensions."""
    flat = np.ascontiguousarray(array).reshape(-1)
    if 0 in view.shape:
        return np.empty(view.shape, array.dtype)
    step = flat.itemsize
    return np.lib.stride_tricks.as_strided(flat[view.offset :], view.shape, tuple(s * step for s in view.strides))


def panels(matrix: np.ndarray, lanes: int, vectors: int, multiple: int = 1) -> np.ndarray:
    """Columns of `[..., K, N]` as `[..., panel, K, vectors * lanes]`, a multiple of so many panels; see the module's text."""
    *lead, depth, columns = matrix.shape
    starts = column_starts(columns, lanes, vectors, multiple)
    width = vectors * lanes
    count = len(starts) // vectors
    if columns < lanes:
        matrix = np.concatenate([matrix, np.zeros((*lead, depth, lanes - columns), matrix.dtype)], axis=-1)
    result = np.empty((*lead, count, depth, width), matrix.dtype)
    for k, start in enumerate(starts):
        panel, slot = divmod(k, vectors)
        result[..., panel, :, slot * lanes : (slot + 1) * lanes] = matrix[..., start : start + lanes]
    return result


def panels_of(
    view: OperandView,
    axes: MatrixAxes,
    lanes: int,
    vectors: int,
    factors: tuple[float, ...] = (1.0,),
    multiple: int = 1,
    kept: DType = FLOAT32,
) -> Panels | None:
    """What `panels` does to a view with these axes, as data; None for what is left to NumPy: a few columns, elements of another
    type than that in which they are `kept`, and other types than float32 and, where nothing is scaled, those of 16 bits.

    `factors` scale the steps of the depth, as in `Panels`; panels are a `multiple` of so many.
    """
    outer, depth, (extent, stride) = axes
    is_known = kept == FLOAT32 or (kept in (FLOAT16, BFLOAT16) and factors == (1.0,))
    if not is_known or view.operand.dtype != kept or extent < lanes or 0 in view.shape:
        return None
    starts = column_starts(extent, lanes, vectors, multiple)
    return Panels(view.offset, outer, depth, stride, starts, lanes, vectors, factors, kept.itemsize)


def packed(
    view: OperandView, recipe: str, arrange: Callable[[np.ndarray], np.ndarray], panels: Panels | None = None
) -> Packing:
    """A packing that views the constant as the anchor does and arranges it; `recipe` must say everything `arrange` does.

    `panels` says the same as data, where it can be said so.
    """

    def pack(array: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(arrange(viewed(array, view)))

    return Packing(f"{recipe} of {view.shape} strides {view.strides} offset {view.offset}", pack, panels)

"""How far two sets of answers are apart, and how far they may be: one number per output, one table by dtype."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fusewise.ir.dtypes import STRING, dtype_of

__all__ = ["TOLERANCES", "relative_error", "tolerance_of", "within", "worst_error"]

TOLERANCES: dict[str, float] = {
    "float64": 1e-12,
    "float32": 1e-5,
    "complex64": 1e-5,
    "complex128": 1e-12,
    "float16": 4e-3,
    "bfloat16": 3e-2,
}
"""Largest `relative_error` that reassociation explains, by dtype. Everything else (integers, booleans, text, the floats
of 8 bits and fewer) must be equal."""

_ROUNDED = {"tf32": "float16", "float16": "float16", "bfloat16": "bfloat16"}
"""The row of `TOLERANCES` that explains what a precision of products rounds to: TF32 has the 11 bits of float16."""


def tolerance_of(answer: Any, precision: str = "float32") -> float:
    """The row of `TOLERANCES` for an answer; that of its elements for a sequence.

    Floats that products computed in a shorter `precision` went into may be as far apart as those of that precision.
    """
    if isinstance(answer, list | tuple):
        return max((tolerance_of(item, precision) for item in answer), default=0.0)
    if answer is None:
        return 0.0
    dtype = dtype_of(np.asarray(answer))
    own = TOLERANCES.get(dtype.name, 0.0)
    return max(own, TOLERANCES[_ROUNDED[precision]]) if own and precision in _ROUNDED else own


def relative_error(found: Any, expected: Any) -> float:
    """max |found - expected| / max |expected|, infinite when shape, dtype or structure differ.

    Differences below the smallest normal number of the type are divided by that at least: steps are as large as there. Where both
    are NaN, or the same infinity, they agree. Text and truth values either agree (0) or do not (infinite); integers are compared
    by value.
    """
    if found is None or expected is None:
        return 0.0 if found is None and expected is None else float("inf")
    if isinstance(expected, list | tuple):
        if not isinstance(found, list | tuple) or len(found) != len(expected):
            return float("inf")
        return worst_error(found, expected)
    a, b = np.asarray(found), np.asarray(expected)
    if a.shape != b.shape or dtype_of(a) != dtype_of(b):
        return float("inf")
    if dtype_of(b) == STRING or b.dtype == bool:
        return 0.0 if np.array_equal(a, b) else float("inf")
    if b.size == 0:
        return 0.0
    if b.dtype.kind in "iu" and np.array_equal(a, b):
        return 0.0
    exact = b.dtype.kind in "iu"
    wide = np.dtype(np.complex128) if b.dtype.kind == "c" else np.dtype(np.float64)
    a, b = a.astype(wide), b.astype(wide)
    finite = np.isfinite(a) & np.isfinite(b)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if not np.all(finite | same):
        return float("inf")
    difference = float(np.max(np.abs(a[finite] - b[finite]), initial=0.0))
    scale = float(np.max(np.abs(b[finite]), initial=0.0))
    if exact:  # not equal, even where float64 cannot tell large integers apart
        difference = max(difference, 1.0)
    if difference == 0.0:
        return 0.0
    least = _least(expected)
    if difference < least:
        scale = max(scale, least)
    return difference / scale if scale else float("inf")


def _least(answer: Any) -> float:
    """The smallest normal number of a type of floats, or of its parts; 0 for others."""
    import ml_dtypes

    kind = dtype_of(np.asarray(answer))
    if kind.kind not in ("float", "complex"):
        return 0.0
    return float((np if kind.kind == "complex" else ml_dtypes).finfo(kind.numpy).smallest_normal)


def worst_error(found: Sequence[Any], expected: Sequence[Any]) -> float:
    """The largest `relative_error` over all outputs."""
    return max((relative_error(a, b) for a, b in zip(found, expected, strict=True)), default=0.0)


def within(found: Sequence[Any], expected: Sequence[Any], tolerance: float | None = None) -> bool:
    """Does every output agree? Each by its dtype's tolerance, or all by the one given."""
    return all(
        relative_error(a, b) <= (tolerance_of(b) if tolerance is None else tolerance)
        for a, b in zip(found, expected, strict=True)
    )

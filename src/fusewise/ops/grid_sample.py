"""GridSample and AffineGrid: an image read at fractional positions, and the positions of an image that was moved.

`ops.grids` says the same in arrays. Where a grid says to read outside the image is decided tap by tap, as in PyTorch.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from fusewise.ir.deciding import known_below, known_equal
from fusewise.ir.dtypes import FLOAT64, DType
from fusewise.ir.size import greatest, least
from fusewise.ops.edges import every
from fusewise.ops.expr import Expr, Index, binary, cast, compare, const, select, unary
from fusewise.ops.grids import CUBIC, FARTHEST, REACH, WHOLE
from fusewise.ops.indexing import clamped, compute_type, dims, output_dims
from fusewise.ops.spec import Call, Mapping, NotDefined, OpSpec, Sample
from fusewise.ops.taps import MOST_TAPS, Tap, sum_of_taps, whole

__all__ = ["GRIDS", "grid_taps"]


_MODES = {"bilinear": "linear", "bicubic": "cubic"}
_WIDTH = {"nearest": 1, "linear": 2, "cubic": 4}


def grid_taps(call: Call, at: Index) -> list[Tap]:
    """What GridSample reads for the element `at` [n, channel, out..] of its result."""
    mode = str(call.attribute("mode", "linear"))
    mode = _MODES.get(mode, mode)
    extents = dims(call)[2:]
    if (
        mode not in _WIDTH
        or _WIDTH[mode] ** len(extents) > MOST_TAPS
        or any(isinstance(n, int) and n > FARTHEST for n in extents)
    ):
        raise NotDefined(f"GridSample by {mode!r} along {len(extents)} axes")
    if not call.input(0).dtype.is_float:
        raise NotDefined(f"GridSample of {call.input(0).dtype.name}")
    dtype = _position_type(call)
    axes = []
    for d, extent in enumerate(extents):
        given = cast(call.at(1, at[0], *at[2:], const(len(extents) - 1 - d)), compute_type(call.input(1).dtype))
        axes.append(_along(call, cast(given, dtype), extent, mode))
    return [
        Tap(at[0], tuple(place for place, _ in taps), math.prod((share for _, share in taps[1:]), start=taps[0][1]))
        for taps in itertools.product(*axes)
    ]


def _position_type(call: Call) -> DType:
    """Positions are computed in the wider type of grid and image."""
    first, second = (compute_type(call.input(k).dtype) for k in (0, 1))
    return FLOAT64 if FLOAT64 in (first, second) else first


def _along(call: Call, position: Expr, extent: int, mode: str) -> list[tuple[Expr, Expr]]:
    """Places and shares along an axis; `position` is -1 at one end of it and 1 at the other."""
    corners = bool(call.attribute("align_corners", 0))
    padding = str(call.attribute("padding_mode", "zeros"))
    size, last = const(extent, position.dtype), const(extent - 1, position.dtype)
    at = (position + 1) / 2 * last if corners else ((position + 1) * size - 1) / 2
    if padding == "reflection":
        at = select(compare("lt", unary("abs", at), WHOLE), at, 0)
    else:
        far = const(extent - 1 + int(REACH), position.dtype)
        at = select(compare("ge", at, -REACH), binary("min", at, far), -REACH)
    if mode == "nearest":
        chosen = [(whole(unary("round", at)), const(1, at.dtype))]
    else:
        base = unary("floor", at)
        part, first = at - base, whole(base)
        if mode == "cubic":
            chosen = [(first + k, _cubic(unary("abs", part - k))) for k in (-1, 0, 1, 2)]
        else:
            chosen = [(first, 1 - part), (first + 1, part)]
    return [_padded(place, share, extent, padding, corners) for place, share in chosen]


def _cubic(distance: Expr) -> Expr:
    """The cubic convolution kernel (Keys, 1981)."""
    near = ((distance * (CUBIC + 2) - (CUBIC + 3)) * distance) * distance + 1
    far = ((distance * CUBIC - 5 * CUBIC) * distance + 8 * CUBIC) * distance - 4 * CUBIC
    return select(compare("le", distance, 1), near, far)


def _padded(place: Expr, share: Expr, extent: int, padding: str, corners: bool) -> tuple[Expr, Expr]:
    """An element that exists, by the way of padding, and the share it then has."""
    if padding == "zeros":
        inside = binary("and", compare("ge", place, 0), compare("lt", place, extent))
        share = select(inside, share, 0)
    elif padding == "reflection" and not (corners and known_below(extent, 2)):
        period, last = (greatest(2 * (extent - 1), 1), 2 * (extent - 1)) if corners else (2 * extent, 2 * extent - 1)
        turned = place % period
        place = select(compare("lt", turned, extent), turned, const(last) - turned)
    return clamped(place, extent), share


def _grid_sample(call: Call, output: int, at: Index) -> Expr:
    if known_equal(call.input(0).size, 0):
        return const(0, call.output().dtype)
    return sum_of_taps(call, grid_taps(call, at), at[1])


def _affine_grid(call: Call, output: int, at: Index) -> Expr:
    """Positions run from -1 to 1: between the centres of the outer elements, or between their edges."""
    extents, dtype = output_dims(call)[1:-1], compute_type(call.input(0).dtype)
    total = cast(call.at(0, at[0], at[-1], len(extents)), dtype)
    for d, extent in enumerate(extents):
        place = _even(cast(at[1 + d], dtype), extent, bool(call.attribute("align_corners", 0)))
        total = total + cast(call.at(0, at[0], at[-1], len(extents) - 1 - d), dtype) * place
    return total


def _even(i: Expr, extent: int, corners: bool) -> Expr:
    """Position `i` of so many between -1 and 1. With the outer ones on `corners`, a single one lies in the middle."""
    if isinstance(extent, int):
        return i * (2 / (extent - 1)) - 1 if corners and extent > 1 else (i * 2 + 1) * (1 / max(extent, 1)) - 1
    if not corners:
        return (i * 2 + 1) / const(extent, i.dtype) - 1
    return i * 2 / const(greatest(extent - 1, 1), i.dtype) - const(least(extent - 1, 1), i.dtype)


def _grid_flops(call: Call) -> int:
    return call.output().size * (3 << max(0, call.input(0).rank - 2))


def _sample(image: tuple[int, ...], grid: tuple[int, ...], dtype: str = "float32", **attributes: Any) -> Sample:
    return Sample(((dtype, image), (dtype, grid)), attributes, low=-1.5, high=1.5)


_IMAGE, _GRID = (2, 3, 4, 5), (2, 3, 2, 2)

GRIDS: tuple[OpSpec, ...] = (
    OpSpec(
        "GridSample",
        mapping=every(Mapping.MANY_TO_MANY),
        flops=_grid_flops,
        define=_grid_sample,
        family="sampled",
        samples=(
            *(
                _sample(_IMAGE, _GRID, mode=mode, padding_mode=padding, align_corners=corners)
                for mode in _WIDTH
                for padding in ("zeros", "border", "reflection")
                for corners in (0, 1)
            ),
            _sample((1, 2, 3, 4, 2), (1, 2, 1, 3, 3)),
            _sample((1, 2, 3, 4, 2), (1, 2, 1, 3, 3), mode="nearest", padding_mode="reflection"),
            _sample(_IMAGE, _GRID, "float16"),
        ),
    ),
    OpSpec(
        "AffineGrid",
        mapping=every(Mapping.MANY_TO_MANY),
        flops=lambda call: 2 * call.output().size * dims(call, 0)[-1],
        define=_affine_grid,
        shaped_by=(1,),
        samples=(
            Sample((("float32", (2, 2, 3)), np.array([2, 3, 4, 5]))),
            Sample((("float32", (1, 3, 4)), np.array([1, 1, 2, 1, 3])), {"align_corners": 1}),
        ),
    ),
)

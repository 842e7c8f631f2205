"""Operators that read at fractional positions as products: DeformConv, which GridSample reads for, and AffineGrid.

For native code alone: other runtimes run the operators better, and know no GridSample whose grid is wider than the image.
"""

from __future__ import annotations

import math

import numpy as np

from fusewise.ir.dtypes import FLOAT64
from fusewise.ops.grids import tap_positions, unmoved_grid
from fusewise.ops.indexing import compute_type
from fusewise.ops.spec import Call
from fusewise.passes.decompositions.row import Decomposition, row
from fusewise.passes.notation import Notation, TensorValue

__all__ = ["SAMPLED"]


def _deform_conv(
    g: Notation,
    call: Call,
    image: TensorValue,
    weight: TensorValue,
    offset: TensorValue,
    bias: TensorValue | None = None,
    mask: TensorValue | None = None,
) -> TensorValue | None:
    """Positions are doubles: to state them as parts of the image then costs no accuracy."""
    (n, channels, *extents), (made, *_) = image.dims, weight.dims
    out, rank = call.output(0).dims[2:], len(extents)
    if not image.dtype.is_float or 0 in (*image.dims, *weight.dims, *out):
        return None
    groups, moved_groups, places = call.attribute("group", 1), call.attribute("offset_group", 1), math.prod(out)
    wide = compute_type(image.dtype)
    grid = _grid(g, call, g.cast(offset, FLOAT64), n * moved_groups, extents, out)
    samples = g.reshape(g.cast(image, wide), [n * moved_groups, channels // moved_groups, *extents])
    read = g.GridSample(samples, grid, mode="linear", padding_mode="zeros", align_corners=0)
    if mask is not None:
        shares = g.reshape(g.cast(mask, wide), [n * moved_groups, 1, *grid.dims[1:-1]])
        read = read * shares
    found = g.reshape(_product(g, read, g.cast(weight, wide), n, groups, places), [n, made, *out])
    if bias is not None:
        found = found + g.reshape(g.cast(bias, wide), [made, *(1,) * rank])
    return g.cast(found, image.dtype)


def _product(g: Notation, read: TensorValue, weight: TensorValue, n: int, groups: int, places: int) -> TensorValue:
    """Filters times what their taps read, [n, groups, filters, places].

    One group's columns have the channels side by side, as they are read, and the filters, mostly constant, are on the right.
    """
    made, part, taps = weight.dims[0] // groups, weight.dims[1], math.prod(weight.dims[2:])
    filters, columns = g.reshape(weight, [groups, made, part, taps]), g.reshape(read, [n, groups, part, taps, places])
    if groups > 1:
        return g.MatMul(
            g.reshape(filters, [groups, made, part * taps]), g.reshape(columns, [n, groups, part * taps, places])
        )
    known = g.edit.constants.get(filters.name)
    turned = g.permute(filters, [0, 3, 2, 1]) if known is None else g.constant(known.array.transpose(0, 3, 2, 1).copy())
    right = g.reshape(turned, [taps * part, made])
    left = g.reshape(g.permute(columns, [0, 1, 4, 3, 2]), [n, places, taps * part])
    return g.permute(g.MatMul(left, right), [0, 2, 1])


def _grid(
    g: Notation, call: Call, offset: TensorValue, samples: int, extents: list[int], out: tuple[int, ...]
) -> TensorValue:
    """Where taps read, from -1 to 1 between the edges of the image, the last axis first: [samples, taps, places, 1.., rank]."""
    rank, places = len(extents), math.prod(out)
    at_taps, at_places = tap_positions(call.attribute, call.input(1).dims[2:], out)
    taps = at_taps.shape[1]
    moved = g.reshape(offset, [samples, taps, rank, places])
    size = np.array(extents, np.float64).reshape(rank, 1)
    starts = ((2 * at_taps + 1).T / size.T - 1).reshape(taps, rank, 1)
    steps = (2 * at_places / size).reshape(rank, places)
    grid = moved * (2 / size) + starts + steps
    last = g.permute(g.slice(grid, 2, rank - 1, -rank - 1, -1), [0, 1, 3, 2])
    if rank == 1:
        return g.reshape(last, [samples, taps * places, 1])
    return g.reshape(last, [samples, taps, places, *(1,) * (rank - 2), rank])


def _affine_grid(g: Notation, call: Call, theta: TensorValue, size: TensorValue) -> TensorValue | None:
    """The positions of an image that is not moved, constant, times the matrices."""
    (n, *extents, rank), wide = call.output(0).dims, compute_type(theta.dtype)
    if not call.is_known(1) or not 0 < math.prod(extents) <= _MOST_PLACES or not n:
        return None
    places = unmoved_grid(extents, bool(call.attribute("align_corners", 0))).reshape(-1, rank + 1)
    found = g.MatMul(g.constant(places.astype(wide.numpy)), g.permute(g.cast(theta, wide), [0, 2, 1]))
    return g.cast(g.reshape(found, [n, *extents, rank]), theta.dtype)


_MOST_PLACES = 1 << 20
"""Of an affine grid that is kept as a constant: 12 MB of an image's."""

SAMPLED: tuple[Decomposition, ...] = (row("DeformConv", _deform_conv), row("AffineGrid", _affine_grid))

"""GridSample, DeformConv, AffineGrid and MaxRoiPool in arrays: what host steps run.

Where a grid says to read outside the image is decided tap by tap, as in PyTorch, whose operators the first two are.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

__all__ = [
    "CUBIC",
    "FARTHEST",
    "REACH",
    "WHOLE",
    "affine_grid",
    "deform_conv",
    "grid_sample",
    "max_roi_pool",
    "tap_positions",
]

REACH = 4
"""Elements outside an axis beyond which no interpolation reads anything but padding."""

FARTHEST = 2**30
"""The corners of boxes lie so far from the image's first element at most."""

WHOLE = 2.0**22
"""Positions up to here have fractions in float32."""

CUBIC = -0.75
"""The parameter of the cubic kernel, as in PyTorch."""


def affine_grid(theta: np.ndarray, size: Sequence[int], align_corners: bool) -> np.ndarray:
    """The positions of an image of `size` (n, channels, spatial..), moved by `theta` [n, d, d + 1]: [n, spatial.., d]."""
    found = np.einsum("...k,nik->n...i", unmoved_grid(size[2:], align_corners), theta.astype(np.float64))
    return np.asarray(found).astype(theta.dtype)


def unmoved_grid(extents: Sequence[int], align_corners: bool) -> np.ndarray:
    """The positions of the elements of an image, the last axis first, and a one behind: float64 [spatial.., d + 1].

    Positions run from -1 to 1: between the centres of the outer elements, or between their edges; that of a single element
    is 0.
    """
    lines = []
    for extent in extents:
        if align_corners and extent > 1:
            lines.append(np.linspace(-1, 1, extent))
        else:
            lines.append((2 * np.arange(extent) + 1) / max(extent, 1) - 1)
    places = np.meshgrid(*lines, indexing="ij")[::-1]
    return np.stack((*places, np.ones_like(places[0])), axis=-1)


@np.errstate(invalid="ignore", over="ignore")  # positions that are no numbers
def grid_sample(image: np.ndarray, grid: np.ndarray, mode: str, padding: str, align_corners: bool) -> np.ndarray:
    """`image` [n, channels, spatial..] read at `grid` [n, out.., d], whose first coordinate is the last axis: [n, channels, out..].

    `mode` is linear, nearest or cubic, `padding` zeros, border or reflection. Positions that are no numbers lie outside.
    """
    extents = image.shape[2:]
    if not image.size or not grid.size:
        return np.zeros((*image.shape[:2], *grid.shape[1:-1]), image.dtype)
    wide = np.promote_types(image.dtype, np.float32)
    exact = np.promote_types(grid.dtype, wide)  # of positions and shares
    axes = [
        _taps(grid[..., len(extents) - 1 - d].astype(exact), extent, mode, padding, align_corners)
        for d, extent in enumerate(extents)
    ]
    samples = np.arange(len(image)).reshape(-1, *(1,) * (grid.ndim - 2))
    found = np.zeros((*grid.shape[:-1], image.shape[1]), wide)
    channels_last = np.moveaxis(image, 1, -1)
    for taps in itertools.product(*axes):
        places = tuple(place for place, _ in taps)
        weight = np.asarray(math.prod((share for _, share in taps), start=np.ones((), exact))).astype(wide)
        read = channels_last[(samples, *places)].astype(wide)
        found += np.where(weight[..., None] != 0, read * weight[..., None], 0)
    return np.moveaxis(found, -1, 1).astype(image.dtype)


def _taps(
    position: np.ndarray, extent: int, mode: str, padding: str, align_corners: bool
) -> list[tuple[np.ndarray, np.ndarray]]:
    """The elements of an axis that positions read, and their shares: zero where padding is."""
    at = (position + 1) / 2 * (extent - 1) if align_corners else ((position + 1) * extent - 1) / 2
    low, high = (0.0, extent - 1.0) if align_corners else (-0.5, extent - 0.5)
    if padding == "reflection":  # beyond where floats have whole numbers, nothing says which element that is
        at = np.where(np.abs(at) < WHOLE, at, 0)
    else:
        at = np.clip(np.where(np.isnan(at), -REACH, at), -REACH, extent - 1 + REACH)
    if mode == "nearest":
        chosen = [(np.rint(at), np.ones_like(at))]
    else:
        base = np.floor(at)
        part = at - base
        if mode == "cubic":
            chosen = [(base + k, _cubic(np.abs(part - k))) for k in (-1, 0, 1, 2)]
        else:
            chosen = [(base, 1 - part), (base + 1, part)]
    return [_padded(place, share, extent, padding, low, high) for place, share in chosen]


def _cubic(distance: np.ndarray) -> np.ndarray:
    """The cubic convolution kernel (Keys, 1981)."""
    near = ((CUBIC + 2) * distance - (CUBIC + 3)) * distance * distance + 1
    far = ((CUBIC * distance - 5 * CUBIC) * distance + 8 * CUBIC) * distance - 4 * CUBIC
    return np.asarray(np.where(distance <= 1, near, far), distance.dtype)


def _padded(
    place: np.ndarray, share: np.ndarray, extent: int, padding: str, low: float, high: float
) -> tuple[np.ndarray, np.ndarray]:
    """An element that exists for each place, by the way of padding, and the share it then has."""
    if padding == "zeros":
        share = np.where((place >= 0) & (place < extent), share, 0)
    elif padding == "reflection" and high > low:
        turned = np.mod(place - low, 2 * (high - low))
        place = np.where(turned > high - low, 2 * (high - low) - turned, turned) + low
    return np.clip(place, 0, extent - 1).astype(np.int64), share


def tap_positions(
    attribute: Callable[[str, Any], Any], kernel: Sequence[int], out: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Where the taps of a convolution read: by tap [axes, taps], in elements from the image's first, and how much further on by
    place of the result [axes, places]. `attribute(name, default)` has its strides, dilations and pads."""
    rank = len(kernel)
    dilations, strides = (attribute(name, None) or (1,) * rank for name in ("dilations", "strides"))
    begins = (attribute("pads", None) or (0,) * (2 * rank))[:rank]

    def positions(extents: Sequence[int], steps: Sequence[int], starts: Sequence[int]) -> np.ndarray:
        shifts = np.reshape(starts, (rank, 1))
        places: np.ndarray = np.indices(tuple(extents)).reshape(rank, -1) * np.reshape(steps, (rank, 1)) - shifts
        return places

    return positions(kernel, dilations, begins), positions(out, strides, (0,) * rank)


def deform_conv(
    image: np.ndarray,
    weight: np.ndarray,
    offset: np.ndarray,
    bias: np.ndarray | None,
    mask: np.ndarray | None,
    attribute: Callable[[str, Any], Any],
) -> np.ndarray:
    """Convolution of `image` [n, channels, spatial..] whose taps read `offset` [n, offset groups * taps * axes, out..] further on.

    Between elements it interpolates, outside of the image it reads zeros; `mask` [n, offset groups * taps, out..] scales what is
    read. `weight` is [made, channels / group, kernel..], `bias` [made]."""
    (n, channels, *extents), out = image.shape, offset.shape[2:]
    groups, moved_groups = attribute("group", 1), attribute("offset_group", 1)
    at_taps, at_places = tap_positions(attribute, weight.shape[2:], out)
    rank, taps = at_taps.shape
    wide = np.promote_types(image.dtype, np.float32)
    moved = offset.reshape(n * moved_groups, taps, rank, -1).astype(np.float64)
    at = moved + at_taps.T[..., None] + at_places
    grid = ((2 * at + 1) / np.reshape(extents, (rank, 1)) - 1)[:, :, ::-1].transpose(0, 1, 3, 2)
    grid = grid.reshape(n * moved_groups, -1, *(1,) * (rank - 1), rank)
    samples = image.reshape(n * moved_groups, channels // moved_groups, *extents).astype(wide)
    read = grid_sample(samples, grid, "linear", "zeros", align_corners=False)
    if mask is not None:
        read = read * mask.reshape(n * moved_groups, 1, -1, *(1,) * (rank - 1)).astype(wide)
    columns = read.reshape(n, groups, channels // groups * taps, at_places.shape[1])
    found = np.matmul(weight.reshape(groups, len(weight) // groups, -1).astype(wide), columns)
    found = found.reshape(n, len(weight), *out)
    if bias is not None:
        found = found + bias.reshape(-1, *(1,) * rank).astype(wide)
    return np.asarray(found).astype(image.dtype)


def max_roi_pool(image: np.ndarray, boxes: np.ndarray, size: Sequence[int], scale: float) -> np.ndarray:
    """The largest element in each cell of a grid of `size` over each box [image, x1, y1, x2, y2]: [boxes, channels, *size].

    Corners are scaled and rounded to elements, which belong to the box; a cell without elements is zero (Girshick, 2015).
    """
    found = np.zeros((len(boxes), image.shape[1], *size), image.dtype)
    corners = boxes[:, 1:].astype(np.float32).astype(np.float64) * scale
    away = np.floor(np.minimum(np.abs(corners), FARTHEST) + 0.5)
    whole = np.where(np.isnan(corners), 0, np.copysign(away, corners)).astype(np.int64)
    for n, (left, top, right, bottom) in enumerate(whole):
        rows, columns = (
            _cells(*each) for each in ((top, bottom, size[0], image.shape[2]), (left, right, size[1], image.shape[3]))
        )
        for y, (above, below) in enumerate(rows):
            line = image[int(boxes[n, 0]), :, above:below]
            if line.shape[1]:
                highest = line.max(axis=1)
                for x, (first, last) in enumerate(columns):
                    if first < last:
                        found[n, :, y, x] = highest[:, first:last].max(axis=1)
    return found


def _cells(begin: int, end: int, count: int, extent: int) -> list[tuple[int, int]]:
    """The first element of each cell along an axis, and the one behind its last."""
    length = max(int(end) - int(begin) + 1, 1)
    bounds = ((k * length // count + begin, -(-(k + 1) * length // count) + begin) for k in range(count))
    return [(min(max(int(a), 0), extent), min(max(int(b), 0), extent)) for a, b in bounds]

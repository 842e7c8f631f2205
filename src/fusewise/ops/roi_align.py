"""RoiAlign: the mean, or the largest, of samples of an image in each cell of a grid over each box.

`ops.rois` says the same in arrays, for boxes that have as many samples as their size asks for. Where the model says how many there
are, a cell is so many taps, the same for all channels.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from fusewise.ir.deciding import known_equal
from fusewise.ops.edges import every
from fusewise.ops.expr import Expr, Index, binary, cast, compare, const, select, unary
from fusewise.ops.grids import FARTHEST
from fusewise.ops.indexing import chosen, clamped, dims, output_dims, value
from fusewise.ops.spec import Call, Mapping, NotDefined, OpSpec, Sample
from fusewise.ops.taps import MOST_TAPS, Tap, max_of_taps, sum_of_taps, whole

__all__ = ["ROI_ALIGN", "roi_taps"]


def roi_taps(call: Call, at: Index) -> list[Tap]:
    """What RoiAlign reads for the element `at` [box, channel, row, column] of its result."""
    ratio = int(call.attribute("sampling_ratio", 0))
    if ratio < 1 or 4 * ratio * ratio > MOST_TAPS or any(isinstance(n, int) and n > FARTHEST for n in dims(call)):
        raise NotDefined(f"RoiAlign with {ratio or 'as many as fit'} samples along a side of a cell")
    image, (height, width), cells = dims(call), dims(call)[2:], output_dims(call)[2:]
    sample = chosen(call, 2, (at[0],), image[0], wraps=False)
    rows = _along(call, at[0], at[2], (1, 3), height, cells[0], ratio)
    columns = _along(call, at[0], at[3], (0, 2), width, cells[1], ratio)
    return [Tap(sample, (y, x), down * across) for (y, down), (x, across) in itertools.product(rows, columns)]


def _along(
    call: Call, box: Expr, cell: Expr, corners: tuple[int, int], extent: int, cells: int, ratio: int
) -> list[tuple[Expr, Expr]]:
    """Places and shares of a cell's samples along an axis, of a mean; the largest is of whole samples."""
    half = call.attribute("coordinate_transformation_mode", "half_pixel") == "half_pixel"
    scale = call.single("spatial_scale", 1.0)
    begin, end = (value(call, 1, box, corner) * scale - (0.5 if half else 0.0) for corner in corners)
    span = end - begin if half else binary("max", end - begin, 1)
    parts = 1 if call.attribute("mode", "avg") == "max" else ratio
    found = []
    for sample in range(ratio):
        point = begin + (cast(cell, begin.dtype) + (sample + 0.5) / ratio) * (span / const(cells, begin.dtype))
        inside = binary("and", compare("ge", point, -1), compare("le", point, const(extent, begin.dtype)))
        near = binary("min", binary("max", select(inside, point, 0), 0), const(extent - 1, begin.dtype))
        low = unary("floor", near)
        first, part = whole(low), near - low
        for place, share in ((first, 1 - part), (first + 1, part)):
            found.append((clamped(place, extent), select(inside, share, 0) / parts))
    return found


def _roi_align(call: Call, output: int, at: Index) -> Expr:
    if not call.input(0).dtype.is_float:
        raise NotDefined(f"RoiAlign of {call.input(0).dtype.name}")
    if known_equal(call.input(0).size, 0):
        return const(0, call.output().dtype)
    combine = max_of_taps if call.attribute("mode", "avg") == "max" else sum_of_taps
    return combine(call, roi_taps(call, at), at[1])


def _sample(dtype: str = "float32", **attributes: Any) -> Sample:
    boxes = np.array([[0, 0, 3, 3], [1, 1, 2.5, 4], [-9, -9, -7, -7]], dtype)
    size = {"output_height": 2, "output_width": 3, "sampling_ratio": 2}
    return Sample(((dtype, (2, 3, 5, 6)), boxes, np.array([0, 1, 1])), {**size, **attributes})


ROI_ALIGN = OpSpec(
    "RoiAlign",
    mapping=every(Mapping.MANY_TO_MANY),
    flops=lambda call: 8 * call.output().size,
    define=_roi_align,
    family="sampled",
    flags=frozenset({"chooses"}),
    samples=(
        _sample(),
        _sample(mode="max"),
        _sample(coordinate_transformation_mode="output_half_pixel", spatial_scale=0.5, sampling_ratio=1),
        _sample("float64"),
    ),
)

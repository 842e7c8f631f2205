"""Nodes of host steps that have better than the reference evaluator: native code where it fits, results written where they belong.

The native functions are kernels of the program (`codegen.families.boxes`), so they come with it, from the cache or from a file.
Where one does not fit the operands, the reference evaluator is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from fusewise.codegen.box_routines import (
    ALIGN_ARGUMENTS,
    ALIGN_BOXES,
    CHUNK,
    LANES,
    SUPPRESS_ARGUMENTS,
    SUPPRESS_BOXES,
)
from fusewise.ir.graph import Node
from fusewise.ops.plain.row import Evaluator
from fusewise.ops.rois import BoxSampling, limits
from fusewise.ops.selection import scatter
from fusewise.runtime.routine import BoundRoutine, Routine

__all__ = ["Suppressor", "Writer", "aligned", "native_evaluator", "writer_of"]

Writer = Callable[[Sequence[Any], np.ndarray], bool]
"""Takes operands and the memory of the one result, and fills it; False when it cannot, and has done nothing."""

_FIRST_OPSET = 16
"""Since when RoiAlign says how coordinates are meant."""


def writer_of(node: Node) -> Writer | None:
    """A function that writes the node's result straight to where it belongs, for operators that have one."""
    if node.domain or node.op != "ScatterND" or node.attribute("reduction", "none") != "none":
        return None

    def write(operands: Sequence[Any], into: np.ndarray) -> bool:
        data, indices, updates = operands
        return scatter(data, indices, updates, into)

    return write


def native_evaluator(node: Node, opset: int, routines: Mapping[str, Routine], reference: Evaluator) -> Evaluator | None:
    """Native code for `node` where `routines` has it, which asks `reference` where the operands do not fit; else None."""
    if not node.domain and node.op == "RoiAlign" and ALIGN_BOXES in routines and opset >= _FIRST_OPSET:
        return _roi_align(node, routines[ALIGN_BOXES], reference)
    if not node.domain and node.op == "NonMaxSuppression" and SUPPRESS_BOXES in routines:
        return _non_max_suppression(node, replace(routines[SUPPRESS_BOXES], workers=1), reference)
    return None


# --- RoiAlign ---------------------------------------------------------------------------------------------------------


def _roi_align(node: Node, routine: Routine, reference: Evaluator) -> Evaluator:
    sampling = BoxSampling.of(dict(node.attributes))
    mean = node.attribute("mode", "avg") == "avg"

    def run(*operands: Any) -> list[Any]:
        features, boxes, images = operands
        fit = features.dtype == boxes.dtype == np.float32 and features.size and boxes.shape == (len(images), 4)
        if not mean or not fit or (len(images) and not 0 <= images.min() <= images.max() < len(features)):
            return reference(*operands)
        found = aligned(features, boxes, images, sampling, routine)
        return [found]

    return run


def aligned(
    features: np.ndarray, boxes: np.ndarray, images: np.ndarray, sampling: BoxSampling, routine: Routine
) -> np.ndarray:
    """`ops.rois.roi_align` by native code, for float32 features that are not empty and images that exist.

    Features [images, channels, height, width] whose channels lie side by side are read where they are.
    """
    if features.strides[1] != features.itemsize or any(stride % features.itemsize for stride in features.strides):
        features = np.ascontiguousarray(features.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    count, channels, size = len(boxes), features.shape[1], sampling.size
    found = np.empty((count, channels, *size), np.float32)
    per_image, _, per_row, per_column = (stride // features.itemsize for stride in features.strides)
    left, top, right, bottom = boxes.T * np.float32(sampling.spatial_scale) - np.float32(sampling.offset)
    axis = partial(_taps, sampling=sampling)
    tables: dict[str, np.ndarray] = {
        "target": found,
        "source": features,
        "scratch": np.empty(routine.workers * size[0] * size[1] * CHUNK, np.float32),
        "header": np.array([count, *size, channels], np.int64),
        "images": images.astype(np.int64) * per_image,
        **_named("row", axis(top, bottom, size[0], features.shape[2], per_row)),
        **_named("column", axis(left, right, size[1], features.shape[3], per_column)),
    }
    routine.run(ALIGN_ARGUMENTS, tables, ("target", "scratch"))
    return found


def _named(axis: str, tables: tuple[np.ndarray, ...]) -> dict[str, np.ndarray]:
    return {
        f"{axis}_{part}": table for part, table in zip(("starts", "taps", "offsets", "weights"), tables, strict=True)
    }


def _taps(
    begin: np.ndarray,
    end: np.ndarray,
    cells: int,
    length: int,
    stride: int,
    *,
    sampling: BoxSampling,
) -> tuple[np.ndarray, ...]:
    """What the cells of each box read along an axis of `length` pixels, `stride` elements apart.

    By box, where its taps begin and how many each of its cells has; by tap (box, cell, sample, lower or upper pixel), its
    offset in elements and its share. `begin` and `end` [boxes] are float32.
    """
    extent = np.maximum(end - begin, np.float32(1)) if sampling.is_one_at_least else end - begin
    if sampling.ratio > 0:
        samples = np.full(len(begin), sampling.ratio, np.int64)
    else:
        wanted = np.ceil(extent / np.float32(cells))
        samples = np.where(np.isfinite(wanted), np.maximum(wanted, 0), 0).astype(np.int64)
    ends = np.cumsum(samples * (2 * cells))
    starts = ends - samples * (2 * cells)
    total = int(ends[-1]) if len(ends) else 0
    offsets, weights = np.empty(total, np.int64), np.empty(total, np.float32)
    for count in np.unique(samples[samples > 0]):
        these = np.flatnonzero(samples == count)
        steps = np.arange(cells)[:, None] + (np.arange(count) + 0.5)[None] / count
        step = (extent[these] / np.float32(cells))[:, None, None]
        points = begin[these][:, None, None] + steps.astype(np.float32) * step
        inside = (points >= -1) & (points <= length)
        points = np.clip(np.where(inside, points, 0), 0, length - 1)
        low = np.floor(points)
        share = np.stack((1 - (points - low), points - low), axis=-1)
        pixels = low.astype(np.int64)
        both = np.stack((pixels, np.minimum(pixels + 1, length - 1)), axis=-1) * stride
        places = starts[these][:, None] + np.arange(2 * cells * int(count))
        offsets[places] = both.reshape(len(these), -1)
        weights[places] = (np.where(inside[..., None], share, 0) / np.float32(count)).reshape(len(these), -1)
    return starts, 2 * samples, offsets, weights


# --- NonMaxSuppression ------------------------------------------------------------------------------------------------


def _non_max_suppression(node: Node, routine: Routine, reference: Evaluator) -> Evaluator:
    present = [place for place, name in enumerate(node.inputs) if name]
    places = [present.index(place) if place in present else None for place in (2, 3, 4)]
    centred = bool(node.attribute("center_point_box", 0))
    suppress = Suppressor(routine)

    def run(*operands: Any) -> list[Any]:
        boxes, scores = operands[:2]
        fit = boxes.dtype == scores.dtype == np.float32 and boxes.shape == (len(scores), scores.shape[2], 4)
        if not fit:
            return reference(*operands)
        bounds = limits(*(None if place is None else operands[place] for place in places))
        return [suppress(boxes, scores, *bounds, centred)]

    return run


class Suppressor:
    """`ops.rois.non_max_suppression` by native code, which one worker runs, for float32 operands.

    What it works in is kept for operands of the same shapes, unless it is large.
    """

    def __init__(self, routine: Routine) -> None:
        self._routine = routine
        self._kept: dict[tuple[int, ...], _Suppression] = {}

    def __call__(
        self, boxes: np.ndarray, scores: np.ndarray, most: int, overlap: float, least: float | None, centred: bool
    ) -> np.ndarray:
        images, classes, count = scores.shape
        most = max(0, min(most, count))
        if not images * classes * most:
            return np.empty((0, 3), np.int64)
        key = (images, classes, count, most, centred, least is None)
        room = self._kept.pop(key, None) or _Suppression(self._routine, key)  # nobody else has it meanwhile
        room.limits[0], room.limits[1] = overlap, 0.0 if least is None else least
        room.call.run(np.ascontiguousarray(boxes), np.ascontiguousarray(scores))
        found = room.rows[: room.count[0]].copy()
        self._kept = {key: room} if room.rows.nbytes <= _KEPT_BYTES else {}
        return found


_KEPT_BYTES = 1 << 20
"""Of the rows that there may be."""


class _Suppression:
    """What one suppression works in, for (images, classes, boxes, most, centred, all) as in `SUPPRESS_HEADER`."""

    def __init__(self, routine: Routine, sizes: tuple[int, ...]) -> None:
        images, classes, count, most, centred, every = sizes
        room = -(-most // LANES) * LANES
        self.rows, self.count = np.empty((images * classes * most, 3), np.int64), np.zeros(1, np.int64)
        self.limits = np.empty(2, np.float32)
        written: dict[str, np.ndarray] = {
            "rows": self.rows,
            "count": self.count,
            "chosen": np.empty((5, room), np.float32),
            "digits": np.empty(1024, np.int32),
            **{name: np.empty(count, np.int32) for name in ("keys", "places", "other_keys", "other_places")},
        }
        header = np.array([images * classes, classes, count, most, room, centred, every], np.int64)
        self.call = BoundRoutine(
            routine, SUPPRESS_ARGUMENTS, {**written, "limits": self.limits, "header": header}, written.keys()
        )

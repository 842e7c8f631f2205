"""RoiAlign and NonMaxSuppression for the reference evaluator, in arrays instead of loops over elements.

ONNX's own take minutes on a detector of usual size. These do the same arithmetic, and are tested against ONNX Runtime.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from fusewise.records import record

__all__ = ["BoxSampling", "chosen_boxes", "detection_operators", "non_max_suppression", "roi_align"]

LOOKED_AT = 4
"""How many times as many boxes as may be chosen are sorted and looked at first; all the others where these are not enough."""


def detection_operators() -> tuple[type[Any], ...]:
    """Classes of both operators for the argument `new_ops` of `ReferenceEvaluator`."""
    from onnx.reference.op_run import OpRun

    class RoiAlign(OpRun):
        op_domain = ""

        def _run(self, features: Any, boxes: Any, images: Any, **settings: Any) -> tuple[Any, ...]:
            found = roi_align(
                features,
                boxes,
                images,
                BoxSampling.of(settings),
                largest=settings.get("mode", "avg") == "max",
            )
            return (found,)

    class NonMaxSuppression(OpRun):
        """The best boxes of every class."""

        op_domain = ""

        def _run(
            self,
            boxes: Any,
            scores: Any,
            most: Any = None,
            overlap: Any = None,
            least: Any = None,
            center_point_box: Any = None,
        ) -> tuple[Any, ...]:
            return (non_max_suppression(boxes, scores, *limits(most, overlap, least), bool(center_point_box)),)

    return (RoiAlign, NonMaxSuppression)


@record(frozen=True)
class BoxSampling:
    """How RoiAlign samples a box: the cells of a grid by height and width, samples in each along an axis (0: as many as it has
    pixels), pixels in each unit of a box's corners, and whether a corner is the middle of a pixel."""

    size: tuple[int, int] = (1, 1)
    ratio: int = 0
    spatial_scale: float = 1.0
    half_pixel: bool = True

    @classmethod
    def of(cls, attributes: Mapping[str, Any]) -> BoxSampling:
        """As the attributes of the operator say."""
        mode = attributes.get("coordinate_transformation_mode", "half_pixel")
        return cls(
            (attributes.get("output_height", 1), attributes.get("output_width", 1)),
            attributes.get("sampling_ratio", 0),
            attributes.get("spatial_scale", 1.0),
            mode == "half_pixel",
        )

    @property
    def offset(self) -> float:
        """How far a corner is from where the pixels are counted from."""
        return 0.5 if self.half_pixel else 0.0

    @property
    def is_one_at_least(self) -> bool:
        """Is a box taken for one pixel high and wide at least?"""
        return not self.half_pixel


def roi_align(
    features: np.ndarray,
    boxes: np.ndarray,
    images: np.ndarray,
    sampling: BoxSampling,
    *,
    largest: bool = False,
) -> np.ndarray:
    """Mean of bilinear samples in each cell of a grid over each box: [n, channels, *size].

    `largest`: the largest share of an element in a sample instead, which is what ONNX Runtime and ONNX's own tests have.

    `features` [images, channels, height, width], `boxes` [n, 4] as corners, `images` [n] says where each box lies. What a
    cell takes from a pixel is a product of what its row and its column do, so a box is two small products of matrices.
    """
    _, channels, height, width = features.shape
    found = np.zeros((len(boxes), *sampling.size, channels), features.dtype)
    last = np.ascontiguousarray(features.transpose(0, 2, 3, 1))  # channels side by side, for products over them all
    size = sampling.size
    for k, (box, image) in enumerate(zip(boxes, images, strict=True)):
        corners = box * features.dtype.type(sampling.spatial_scale) - features.dtype.type(sampling.offset)
        x = _samples(corners[0], corners[2], size[1], width, sampling)
        y = _samples(corners[1], corners[3], size[0], height, sampling)
        if x is not None and y is not None and largest:
            found[k] = _largest(last[image], y, x, size)
        elif x is not None and y is not None:
            (rows, down), (columns, across) = _weights(y, size[0]), _weights(x, size[1])
            patch = last[image, rows, columns]
            half = down @ patch.reshape(len(patch), -1)
            found[k] = across @ half.reshape(size[0], -1, channels)
    return np.ascontiguousarray(found.transpose(0, 3, 1, 2))


def _samples(
    begin: Any, end: Any, cells: int, length: int, sampling: BoxSampling
) -> tuple[np.ndarray, np.ndarray] | None:
    """The pixels of an axis that samples read [2, cells * samples], and their shares; None when there are no samples."""
    kind = np.asarray(begin).dtype
    extent = max(end - begin, kind.type(1)) if sampling.is_one_at_least else end - begin
    samples = sampling.ratio if sampling.ratio > 0 else int(np.ceil(extent / cells))
    if samples <= 0:
        return None
    steps = np.arange(cells)[:, None] + (np.arange(samples) + 0.5)[None] / samples
    points = (begin + steps.astype(kind) * (extent / cells)).reshape(-1)
    inside = (points >= -1) & (points <= length)
    points = np.clip(points, 0, length - 1)
    low = np.floor(points).astype(np.int64)
    part = points - low
    shares = np.where(inside, np.stack((1 - part, part)), 0)
    return np.stack((low, np.minimum(low + 1, length - 1))), shares.astype(kind)


def _weights(samples: tuple[np.ndarray, np.ndarray], cells: int) -> tuple[slice, np.ndarray]:
    """Which pixels of an axis the cells read, and how much of each their mean has [cells, pixels]."""
    places, shares = samples
    first, last, count = int(places.min()), int(places.max()), places.shape[1] // cells
    weights = np.zeros((cells, last - first + 1), shares.dtype)
    cell = np.repeat(np.arange(cells), count)
    for place, share in zip(places, shares, strict=True):
        np.add.at(weights, (cell, place - first), share / count)
    return slice(first, last + 1), weights


def _largest(
    image: np.ndarray,
    rows: tuple[np.ndarray, np.ndarray],
    columns: tuple[np.ndarray, np.ndarray],
    size: tuple[int, int],
) -> np.ndarray:
    """The largest share of an element in any sample of each cell [*size, channels] of an image [height, width, channels]."""
    found = None
    for (y, down), (x, across) in itertools.product(zip(*rows, strict=True), zip(*columns, strict=True)):
        shares = image[y[:, None], x] * (down[:, None] * across)[..., None]
        cells = shares.reshape(size[0], -1, size[1], len(x) // size[1], image.shape[-1]).max(axis=(1, 3))
        found = cells if found is None else np.maximum(found, cells)
    return np.asarray(found)


def limits(most: Any, overlap: Any, least: Any) -> tuple[int, float, float | None]:
    """NonMaxSuppression's optional operands as `non_max_suppression` takes them; absent ones are None or empty."""
    count, limit, floor = (None if x is None or not x.size else x.item(0) for x in (most, overlap, least))
    return count or 0, limit or 0.0, floor


def non_max_suppression(
    boxes: np.ndarray,
    scores: np.ndarray,
    most: int,
    overlap: float,
    least: float | None,
    centred: bool,
) -> np.ndarray:
    """Rows (image, class, box) int64 [n, 3] of boxes that no better box of their class overlaps by more than `overlap`.

    `boxes` [images, n, 4], `scores` [images, classes, n]; at most `most` of a class, the best first, of equal scores the
    first. Boxes whose score is not above `least` never count.
    """
    found = [np.empty((0, 3), np.int64)]
    for image in range(len(boxes)):
        corners = _corners(boxes[image], centred)
        for kind in range(scores.shape[1]):
            for order in _orders(scores[image, kind], least, LOOKED_AT * most):
                low0, high0, low1, high1 = corners[:, order]
                best_first = np.stack((low0, high0, low1, high1, (high0 - low0) * (high1 - low1)))
                kept = order[chosen_boxes(best_first, most, scores.dtype.type(overlap))]
                if len(kept) == most:
                    break
            rows = np.empty((len(kept), 3), np.int64)
            rows[:] = image, kind, 0
            rows[:, 2] = kept
            found.append(rows)
    return np.concatenate(found)


def _corners(boxes: np.ndarray, centred: bool) -> np.ndarray:
    """Lower and upper bounds [4, n]: of the first axis, of the second."""
    a, b, c, d = boxes.T
    if centred:
        half_c, half_d = c / 2, d / 2
        return np.stack((a - half_c, a + half_c, b - half_d, b + half_d))
    return np.stack((np.minimum(a, c), np.maximum(a, c), np.minimum(b, d), np.maximum(b, d)))


def _orders(scores: np.ndarray, least: float | None, wanted: int) -> Iterator[np.ndarray]:
    """Boxes that count, the best first, of equal ones the first: about as many as are wanted, where there are more, then all."""
    counting = np.arange(len(scores)) if least is None else (scores > least).nonzero()[0]
    worse = -scores[counting]
    if 0 < 2 * wanted < len(counting):
        (best,) = (worse <= np.partition(worse, wanted)[wanted]).nonzero()
        if best.size >= wanted:
            yield counting[best[_ascending(worse[best])]]
    yield counting[_ascending(worse)]


def _ascending(values: np.ndarray) -> np.ndarray:
    """A stable order. Of float32 it is that of integers that hold value and place, which NumPy sorts several times as fast."""
    if values.dtype != np.float32 or np.isnan(values).any():
        return np.argsort(values, kind="stable")
    bits = (values + np.float32(0)).view(np.int32).astype(np.int64)  # of two zeros there is one
    bits ^= (bits >> 63) & 0x7FFFFFFF
    found: np.ndarray = np.sort((bits << 32) | np.arange(len(values))) & 0xFFFFFFFF
    return found


def chosen_boxes(best_first: np.ndarray, most: int, limit: Any) -> np.ndarray:
    """Positions int64, ascending, of at most `most` boxes that none chosen before overlaps by more than `limit`.

    `best_first` [5, n] has the bounds of the first axis, of the second, and the areas.
    """
    low0, high0, low1, high1, areas = best_first
    alive = np.arange(best_first.shape[1])
    chosen: list[int] = []
    while alive.size and len(chosen) < most:
        best, alive = alive[0], alive[1:]
        chosen.append(int(best))
        side0 = np.minimum(high0[best], high0[alive]) - np.maximum(low0[best], low0[alive])
        side1 = np.minimum(high1[best], high1[alive]) - np.maximum(low1[best], low1[alive])
        shared = np.maximum(side0, 0) * np.maximum(side1, 0)
        joined = areas[best] + areas[alive] - shared
        with np.errstate(divide="ignore", invalid="ignore"):
            apart = ~((shared > 0) & (shared / joined > limit))
        alive = alive[apart]
    return np.array(chosen, np.int64)

"""The anchors of a region proposal network: three shapes of box at every point of every map."""

from __future__ import annotations

import math

import numpy as np

from fusewise.zoo.extents import counted, divide, extent, known, row, view
from fusewise.zoo.net import Net

__all__ = ["anchors"]

_SIZES = (32, 64, 128, 256, 512)
_RATIOS = (0.5, 1.0, 2.0)  # height over width


def anchors(net: Net, maps: tuple[str, ...], image: str) -> str:
    """All anchors float32 [n, 4] as corners in pixels: map by map, point by point, shape by shape.

    They are whole numbers, as torchvision rounds them. Decomposed, they are made when the model runs, from the sizes of
    the maps and of the image.
    """
    if net.decomposed:
        return net.op("Concat", *(_spread(net, x, image, size) for x, size in zip(maps, _SIZES, strict=True)), axis=0)
    side = net.shape(image)[2]
    every = [_level(net.shape(x)[2], side // net.shape(x)[2], size) for x, size in zip(maps, _SIZES, strict=True)]
    return net.op("Cast", net.constant(np.concatenate(every), "anchors"), to=1)


def _level(points: int, stride: int, size: int) -> np.ndarray:
    along = np.arange(points) * stride
    down, across = (axis.reshape(-1) for axis in np.meshgrid(along, along, indexing="ij"))
    corners = np.stack((across, down, across, down), axis=1)
    return np.asarray((corners[:, None] + _shapes(size)[None]).reshape(-1, 4))


def _spread(net: Net, x: str, image: str, size: int) -> str:
    """The same, written out: `meshgrid(arange(width) * stride, arange(height) * stride)`, and the shapes added."""
    sizes = extent(net, x, 2), extent(net, x, 3)
    strides = [divide(net, extent(net, image, axis), extent(net, x, axis)) for axis in (2, 3)]
    along = [net.op("Mul", counted(net, points), stride.value) for points, stride in zip(sizes, strides, strict=True)]
    down, across = (view(net, axis, *shape) for axis, shape in zip(along, ((-1, 1), (1, -1)), strict=True))
    grid = row(net, sizes)
    dims = (sizes[0].figure, sizes[1].figure)
    down, across = (view(net, known(net, net.op("Expand", axis, grid), dims), -1) for axis in (down, across))
    axes = net.constant([1], "axes")
    corners = net.op("Concat", *(net.op("Unsqueeze", axis, axes) for axis in (across, down, across, down)), axis=1)
    shapes = view(net, net.constant(_shapes(size), "shapes"), 1, -1, 4)
    return view(net, net.op("Cast", net.op("Add", view(net, corners, -1, 1, 4), shapes), to=1), -1, 4)


def _shapes(size: int) -> np.ndarray:
    """The three boxes of one size around a point, int64 [3, 4]."""
    halves = [(size / math.sqrt(ratio) / 2, size * math.sqrt(ratio) / 2) for ratio in _RATIOS]
    return np.array([np.round((-w, -h, w, h)) for w, h in halves]).astype(np.int64)

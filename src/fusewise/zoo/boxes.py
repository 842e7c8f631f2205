"""What detectors do with boxes: decode, clip, drop, suppress, and pool features under them.

Boxes are corners (x1, y1, x2, y2) in pixels, as torchvision has them and its exporter writes them. From the first
selection on, how many there are follows from the data; `first` makes it a number again, with a row of zeros in the place
of each that is missing. Decomposed, sizes are read at run time, and an index of several tensors is written out.
"""

from __future__ import annotations

import math

import numpy as np

from fusewise.ir.graph import Constant
from fusewise.ir.types import Dim, TensorType
from fusewise.zoo.extents import extent, known, row, view
from fusewise.zoo.net import Net

__all__ = [
    "clip",
    "column",
    "decode",
    "first",
    "found_by",
    "kept",
    "large",
    "lengths",
    "picked",
    "pool",
    "suppress",
    "where",
]

_LARGEST = math.log(1000 / 16)  # of the logarithm of a scale
_END = np.iinfo(np.int64).max
_FLOAT, _INT64 = 1, 7
_CANONICAL, _FINEST, _COARSEST = 224.0, 2, 5


def column(net: Net, x: str, index: int) -> str:
    """`x[..., index]`."""
    return net.op("Gather", x, net.constant(np.int64(index), "column"), axis=-1)


def _every(net: Net, x: str, begin: int, step: int, axis: int) -> str:
    """`x[..., begin::step]`, counted along `axis`."""
    figures = {"starts": begin, "ends": _END, "axes": axis, "steps": step}
    return net.op("Slice", x, *(net.constant([figure], name) for name, figure in figures.items()))


def _dims(net: Net, x: str) -> tuple[Dim, ...]:
    kind = net.builder.types[x]
    assert isinstance(kind, TensorType) and kind.shape is not None
    return kind.shape


def _unsqueezed(net: Net, x: str, axis: int) -> str:
    return net.op("Unsqueeze", x, net.constant([axis], "axes"))


def decode(net: Net, deltas: str, boxes: str, weights: tuple[float, float]) -> str:
    """`boxes` [n, 4] moved and scaled by `deltas` [n, 4 * classes], as [n, classes, 4].

    R. Girshick et al., "Rich feature hierarchies", CVPR 2014, appendix C. `weights` divide the shifts and the scales.
    """
    half, centres, halves = net.constant(0.5, "half"), [], []
    for axis in (0, 1):
        begin = column(net, boxes, axis)
        length = net.op("Sub", column(net, boxes, axis + 2), begin)
        centre = net.op("Add", begin, net.op("Mul", length, half))
        shift = net.op("Div", _every(net, deltas, axis, 4, 1), net.constant(weights[0], "weight"))
        scale = net.op("Div", _every(net, deltas, axis + 2, 4, 1), net.constant(weights[1], "weight"))
        scale = net.op("Clip", scale, None, net.constant(_LARGEST, "largest"))
        moved = net.op("Mul", shift, _unsqueezed(net, length, 1))
        centres.append(net.op("Add", moved, _unsqueezed(net, centre, 1)))
        grown = net.op("Mul", net.op("Exp", scale), _unsqueezed(net, length, 1))
        halves.append(net.op("Mul", grown, half))
    corners = [net.op(kind, centres[axis], halves[axis]) for kind in ("Sub", "Add") for axis in (0, 1)]
    return net.op("Concat", *(_unsqueezed(net, corner, 2) for corner in corners), axis=2)


def clip(net: Net, boxes: str, side: int) -> str:
    """`boxes` [..., 4], as many as is known, cut to an image of `side` pixels."""
    rank = len(net.shape(boxes))
    zero, most = net.constant(0.0, "zero"), net.constant(float(side), "side")
    parts = [net.op("Clip", _every(net, boxes, axis, 2, rank - 1), zero, most) for axis in (0, 1)]
    joined = net.op("Concat", *(_unsqueezed(net, part, rank) for part in parts), axis=rank)
    return view(net, joined, *(extent(net, boxes, axis) for axis in range(rank)))


def where(net: Net, mask: str) -> str:
    """The places [n] at which the bool vector `mask` is true."""
    found = net.op("NonZero", mask)
    if not net.decomposed:
        return net.op("Squeeze", found, net.constant([0], "axes"))
    rows = net.op("Transpose", found, perm=(1, 0))
    return net.op("Squeeze", net.op("Gather", rows, net.constant([0], "column"), axis=1), net.constant([1], "axes"))


def kept(net: Net, index: str, *values: str) -> tuple[str, ...]:
    """The rows `index` [n] of each value."""
    return tuple(net.op("Gather", value, index, axis=0) for value in values)


def lengths(net: Net, boxes: str) -> tuple[str, str]:
    """How wide and how high boxes [..., 4] are."""
    wide, high = (net.op("Sub", column(net, boxes, axis + 2), column(net, boxes, axis)) for axis in (0, 1))
    return wide, high


def large(net: Net, boxes: str, least: float) -> str:
    """Where boxes [n, 4] are at least `least` pixels wide and high."""
    wide, high = (net.op("GreaterOrEqual", length, net.constant(least, "least")) for length in lengths(net, boxes))
    return where(net, net.op("And", wide, high))


def suppress(net: Net, boxes: str, scores: str, groups: str, overlap: float) -> str:
    """Non-maximum suppression within each group: places [m] of the boxes that stay, the best first.

    `boxes` [n, 4], `scores` [n], `groups` int64 [n]. Boxes of different groups are moved apart, so that one search does.
    """
    axes = net.constant([0, 1], "axes")
    reach = net.op("Add", net.op("ReduceMax", boxes, axes, keepdims=0), net.constant(1.0, "one"))
    away = net.op("Mul", net.op("Cast", groups, to=_FLOAT), reach)
    apart = net.op("Add", boxes, _unsqueezed(net, away, 1))
    return found_by(net, apart, scores, overlap)


def found_by(net: Net, boxes: str, scores: str, overlap: float) -> str:
    """Places [m] of the boxes [n, 4] that no better one overlaps by more than `overlap`, the best first."""
    found = net.op(
        "NonMaxSuppression",
        _unsqueezed(net, boxes, 0),
        _unsqueezed(net, _unsqueezed(net, scores, 0), 0),
        net.constant(np.array([_END]), "most"),
        net.constant([overlap], "overlap"),
    )
    return column(net, found, 2)


def first(net: Net, index: str, count: int, *values: str) -> tuple[str, ...]:
    """The rows `index` [n] of each value, the first `count` of them; rows of zeros where there are fewer."""
    fill = net.constant(np.full(count, -1), "fill")
    zero, one, axes = net.constant([0], "starts"), net.constant([count], "ends"), net.constant([0], "axes")
    cut = net.op("Slice", net.op("Concat", index, fill, axis=0), zero, one, axes)
    places = known(net, net.op("Reshape", cut, net.constant([count], "shape")), (count,))
    found = []
    for value in values:
        rank = len(_dims(net, value))
        below = net.constant([0] * rank + [1] + [0] * (rank - 1), "pads")
        found.append(net.op("Gather", net.op("Pad", value, below), places, axis=0))
    return tuple(found)


def picked(net: Net, x: str, index: str) -> str:
    """`x[batch, index]`: of `x` [1, n, ...] the entries `index` [1, m], as [1, m, ...]."""
    if not net.decomposed:
        return net.op("Gather", x, net.op("Squeeze", index, net.constant([0], "axes")), axis=1)
    batch = net.op(
        "Range", net.constant(np.int64(0), "zero"), extent(net, x, 0).value, net.constant(np.int64(1), "one")
    )
    batch = _unsqueezed(net, known(net, batch, (1,)), 1)
    sizes = [extent(net, x, axis) for axis in range(len(net.shape(x)))]
    place = net.op("Add", index, net.op("Mul", batch, sizes[1].value))
    flat = view(net, x, -1, *sizes[2:])
    return net.op("Gather", flat, place, axis=0)


def pool(net: Net, maps: tuple[str, ...], boxes: str, side: int, image: int) -> str:
    """Features [n, channels, side, side] under `boxes` [n, 4]: each box looks at the map that suits its size.

    T.-Y. Lin et al., "Feature Pyramid Networks", CVPR 2017, equation 1; K. He et al., "Mask R-CNN", ICCV 2017 (RoIAlign).
    """
    count, channels = net.shape(boxes)[0], net.shape(maps[0])[1]
    level = _level(net, boxes)
    dims = (count, channels, side, side)
    shape = row(net, [extent(net, boxes, 0), extent(net, maps[0], 1), side, side])
    zero = Constant(np.zeros(1, np.float32))
    pooled = known(net, net.op("ConstantOfShape", shape, value=zero), dims)
    batch = net.op("ConstantOfShape", row(net, [extent(net, boxes, 0)]), value=Constant(np.zeros(1, np.int64)))
    batch = known(net, batch, (count,))
    for k, features in enumerate(maps):
        index = where(net, net.op("Equal", level, net.constant(np.int64(k), "level")))
        some, images = kept(net, index, boxes, batch)
        found = net.op(
            "RoiAlign",
            features,
            some,
            images,
            output_height=side,
            output_width=side,
            sampling_ratio=2,
            spatial_scale=2.0 ** round(math.log2(net.shape(features)[2] / image)),
            coordinate_transformation_mode="output_half_pixel",
        )
        pooled = known(net, net.op("ScatterND", pooled, _unsqueezed(net, index, 1), found), dims)
    return pooled


def _level(net: Net, boxes: str) -> str:
    """Which map a box looks at, int64 [n]: 0 is the finest."""
    root = net.op("Sqrt", net.op("Mul", *lengths(net, boxes)))
    octaves = net.op("Log", net.op("Div", root, net.constant(_CANONICAL, "canonical")))
    octaves = net.op("Div", octaves, net.constant(math.log(2), "octave"))
    exact = net.op("Add", octaves, net.constant(4.0 + 1e-6, "middle"))
    finest, coarsest = net.constant(float(_FINEST), "finest"), net.constant(float(_COARSEST), "coarsest")
    bounded = net.op("Clip", net.op("Floor", exact), finest, coarsest)
    return net.op("Cast", net.op("Sub", bounded, finest), to=_INT64)

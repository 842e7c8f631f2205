"""Gradients of convolutions and pooling: a convolution's by its image is one transposed, by its filters one of the image."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fusewise.ops.spec import Call
from fusewise.ops.window import Window, transposed_window_of, window_of
from fusewise.passes.gradient.row import Gradient, Reverse, row
from fusewise.passes.notation import Notation, TensorValue

__all__ = ["WINDOWS"]


def _spread(g: Notation, d: TensorValue, filters: TensorValue, window: Window, groups: int) -> TensorValue:
    """What every tap gave goes back to where it read: the transposed convolution, of the image's extents."""
    reached = [
        (size - 1) * stride + (k - 1) * dilation + 1 - begin - end
        for size, stride, k, dilation, begin, end in zip(
            d.dims[2:], window.strides, window.kernel, window.dilations, window.begins, window.ends, strict=True
        )
    ]
    # elements behind the last window were read by none, and are fewer than a stride
    extra = [size - found for size, found in zip(window.extents, reached, strict=True)]
    held = [min(max(more, 0), stride - 1) for more, stride in zip(extra, window.strides, strict=True)]
    image = g.ConvTranspose(
        d,
        filters,
        strides=list(window.strides),
        dilations=list(window.dilations),
        pads=[*window.begins, *window.ends],
        output_padding=held if any(held) else None,
        group=groups,
    )
    for axis, size in enumerate(window.extents, 2):
        image = g.pad(image, axis, 0, size - image.dims[axis])
    return image


def _filters(g: Notation, image: TensorValue, d: TensorValue, window: Window, groups: int) -> TensorValue:
    """The image correlated with `d`, over samples: strides and dilations change places, and so do samples and channels.

    image [n, c, ...], d [n, m, ...] -> filters [m, c / groups, ...]
    """
    n, channels = image.dims[:2]
    parts = g.reshape(image, [n, groups, channels // groups, *image.dims[2:]])
    # [c / groups, groups * n, ...]
    turned = g.permute(parts, [2, 1, 0, *range(3, image.rank + 1)])
    turned = g.reshape(turned, [channels // groups, groups * n, *image.dims[2:]])
    by_sample = g.permute(d, [1, 0, *range(2, d.rank)])
    found = g.Conv(
        turned,
        by_sample,
        strides=list(window.dilations),
        dilations=list(window.strides),
        pads=[*window.begins, *window.ends],
        group=groups,
    )
    for axis, k in enumerate(window.kernel, 2):
        found = g.slice(found, axis, 0, k)
    return g.permute(found, [1, 0, *range(2, found.rank)])


def _over_samples(g: Notation, d: TensorValue) -> TensorValue:
    """A bias is added to every sample and place."""
    return g.sum(d, [0, *range(2, d.rank)], keep=False)


def _convolution(g: Notation, at: Reverse) -> list[TensorValue | None]:
    x, w = at.operand(0), at.operand(1)
    window, groups = window_of(at.call, w.dims[2:]), at.call.attribute("group", 1)
    return [
        _spread(g, at.first, w, window, groups) if at.wanted[0] else None,
        _filters(g, x, at.first, window, groups) if at.wanted[1] else None,
        *([_over_samples(g, at.first)] if at.wanted[2:3] == (True,) else [None] * (len(at.x) - 2)),
    ]


def _transposed(g: Notation, at: Reverse) -> list[TensorValue | None]:
    """As a convolution with image and result in each other's place."""
    x, w = at.operand(0), at.operand(1)
    window, groups = transposed_window_of(at.call, w.dims[2:]), at.call.attribute("group", 1)
    image = None
    if at.wanted[0]:
        image = g.Conv(
            at.first,
            w,
            strides=list(window.strides),
            dilations=list(window.dilations),
            pads=[*window.begins, *window.ends],
            group=groups,
        )
        for axis, size in enumerate(x.dims[2:], 2):
            image = g.slice(image, axis, 0, size)
    return [
        image,
        _filters(g, at.first, x, window, groups) if at.wanted[1] else None,
        *([_over_samples(g, at.first)] if at.wanted[2:3] == (True,) else [None] * (len(at.x) - 2)),
    ]


def _counts(call: Call, window: Window, outputs: Sequence[int]) -> np.ndarray:
    """Elements that each average is of, [1, 1, ...]: those of the image, or with its padding."""
    padded, counts = bool(call.attribute("count_include_pad", 0)), np.ones((), np.int64)
    for axis, size in enumerate(outputs):
        first = np.arange(size) * window.strides[axis] - window.begins[axis]
        places = first[:, None] + np.arange(window.kernel[axis]) * window.dilations[axis]
        low = -window.begins[axis] if padded else 0
        high = window.extents[axis] + (window.ends[axis] if padded else 0)
        counts = counts[..., None] * ((places >= low) & (places < high)).sum(1)
    return counts[None, None]


def _average(g: Notation, at: Reverse) -> list[TensorValue | None]:
    """A convolution of every map with ones, divided by how many there were."""
    x = at.operand()
    window = window_of(at.call, at.call.attribute("kernel_shape"))
    counts = _counts(at.call, window, at.first.dims[2:])
    share = at.first / g.constant(np.maximum(counts, 1).astype(x.dtype.numpy))
    maps = g.reshape(share, [math.prod(x.dims[:2]), 1, *share.dims[2:]])
    ones = g.constant(np.ones((1, 1, *window.kernel), x.dtype.numpy))
    return [g.reshape(_spread(g, maps, ones, window, 1), x.dims)]


def _largest(g: Notation, at: Reverse) -> list[TensorValue | None]:
    """Every maximum gives back to where it stood: the first of equal ones."""
    x, stated = at.operand(), dict(at.call.node.attributes) | {"storage_order": 0}
    _, places = g.several("MaxPool", 2, x, **stated)
    size = math.prod(x.dims)
    zeros = g.fill(0, [size], x.dtype)
    flat = g.reshape(places, [math.prod(places.dims)])
    total = g.ScatterElements(zeros, flat, g.reshape(at.first, flat.dims), axis=0, reduction="add")
    return [g.reshape(total, x.dims)]


WINDOWS: tuple[Gradient, ...] = (
    row("Conv", _convolution),
    row("ConvTranspose", _transposed),
    row("AveragePool", _average),
    row("MaxPool", _largest),
)

"""Shapes of what slides a window, samples a grid, or cuts boxes: convolutions, pooling, resizing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from types import MappingProxyType

import numpy as np

from fusewise.ir.size import Size, least
from fusewise.ops.shapes.operands import Operands, Row, Shape, Unknown, ceiling, nonnegative, position, share

__all__ = ["WINDOWS"]


def _spatial(case: Operands, dims: Shape, kernel: Sequence[int]) -> Shape:
    """The spatial sizes of what a window of `kernel` taps gives."""
    rank = len(dims)
    strides = case.attribute("strides") or (1,) * rank
    dilations = case.attribute("dilations") or (1,) * rank
    pads = case.attribute("pads") or (0,) * (2 * rank)
    mode = case.attribute("auto_pad", "NOTSET")
    found: list[int] = []
    for d, extent in enumerate(dims):
        reach = (kernel[d] - 1) * dilations[d] + 1
        if mode.startswith("SAME"):
            found.append(ceiling(extent, strides[d]))
            continue
        begin, end = (0, 0) if mode == "VALID" else (pads[d], pads[d + rank])
        found.append(_places(case, extent, (begin, end), reach, strides[d]))
    return tuple(found)


def _places(case: Operands, extent: int, pads: tuple[int, int], reach: int, stride: int) -> int:
    """At how many places a window of `reach` elements fits."""
    room: int = extent + sum(pads)
    case.at_least(room, reach, f"the size {extent} with its padding, {room}, that a window of {reach} has to fit into")
    if not case.attribute("ceil_mode", 0):
        return ceiling(room - reach + 1, stride)
    wide = ceiling(room - reach, stride) + 1  # a window that begins in the padding behind is left out
    found: int = least(wide, ceiling(extent + pads[0], stride))
    return found


def _convolved(weights: int) -> Row:
    def row(case: Operands) -> tuple[Shape, ...]:
        data, taps = case.shape(), case.shape(weights)
        if any(isinstance(dim, Size) for dim in taps[2:]):
            raise Unknown
        case.equal(data[1], taps[1] * case.attribute("group", 1), "the channels of data and weights")
        return ((data[0], taps[0], *_spatial(case, data[2:], case.attribute("kernel_shape") or taps[2:])),)

    return row


def _pooled(case: Operands) -> tuple[Shape, ...]:
    data = case.shape()
    shape = (*data[:2], *_spatial(case, data[2:], case.attribute("kernel_shape")))
    return (shape, shape)


def _pooled_whole(case: Operands) -> tuple[Shape, ...]:
    data = case.shape()
    return ((*data[:2], *(1,) * (len(data) - 2)),)


def _unpooled(case: Operands) -> tuple[Shape, ...]:
    if case.has(2):
        return (tuple(case.ints(2)),)
    data, rank = case.shape(), len(case.shape()) - 2
    kernel, strides = case.attribute("kernel_shape"), case.attribute("strides") or (1,) * rank
    pads = case.attribute("pads") or (0,) * (2 * rank)
    sizes = ((n - 1) * strides[d] + kernel[d] - pads[d] - pads[d + rank] for d, n in enumerate(data[2:]))
    return ((*data[:2], *sizes),)


def _transposed(case: Operands) -> tuple[Shape, ...]:
    """ConvTranspose: see `infer_corrected` for what padding by SAME_* gives."""
    data, taps = case.shape(), case.shape(1)
    rank = len(data) - 2
    case.equal(data[1], taps[0], "the channels of data and weights")
    first = (data[0], taps[1] * case.attribute("group", 1))
    asked = case.attribute("output_shape")
    if asked:
        return ((*first, *asked[-rank:]),)
    kernel = case.attribute("kernel_shape") or taps[2:]
    strides, dilations = (case.attribute(name) or (1,) * rank for name in ("strides", "dilations"))
    extra, pads = case.attribute("output_padding") or (0,) * rank, case.attribute("pads") or (0,) * (2 * rank)
    mode, sizes = case.attribute("auto_pad", "NOTSET"), []
    for d, extent in enumerate(data[2:]):
        whole = strides[d] * (extent - 1) + extra[d] + (kernel[d] - 1) * dilations[d] + 1
        if mode.startswith("SAME"):
            case.at_least(extent, 1, "the size that a transposed convolution begins with")
            sizes.append(least(strides[d] * extent, whole))
        else:
            sizes.append(whole - (0 if mode == "VALID" else pads[d] + pads[d + rank]))
            case.at_least(sizes[-1], 0, "the size that padding leaves")
    return ((*first, *sizes),)


def _from_columns(case: Operands) -> tuple[Shape, ...]:
    data = case.shape()
    image, block = case.ints(1), case.numbers(2)
    return ((data[0], share(case, (data[1],), (math.prod(block),)), *image),)


def _resized(case: Operands) -> tuple[Shape, ...]:
    dims = list(case.shape())
    axes = case.attribute("axes")
    where = range(len(dims)) if axes is None else [position(axis, len(dims)) for axis in axes]
    if case.has(3):
        sizes = case.ints(3)
        if case.attribute("keep_aspect_ratio_policy", "stretch") != "stretch":
            raise Unknown
        for axis, size in zip(where, sizes, strict=True):
            dims[axis] = size
    else:
        for axis, scale in zip(where, case.floats(2 if case.node.op == "Resize" else 1), strict=True):
            dims[axis] = scaled(dims[axis], scale)
    return (tuple(dims),)


_TRIED = 1 << 16
"""Sizes that a fraction is tried with: maps are no larger along an axis."""


def scaled(size: int, scale: float) -> int:
    """floor(size * scale) as float32 has it; `Unknown` for a scale that no simple fraction does the same as."""
    fraction = Fraction(scale).limit_denominator(4096)
    up, by = fraction.numerator, fraction.denominator
    if not isinstance(size, Size):
        return int(np.floor(np.float32(size) * np.float32(scale)))
    tried = np.arange(_TRIED)
    if not np.array_equal(np.floor(tried.astype(np.float32) * np.float32(scale)).astype(np.int64), tried * up // by):
        raise Unknown
    found: int = size * up // by
    return found


def _on_grid(case: Operands) -> tuple[Shape, ...]:
    data, grid = case.shape(), case.shape(1)
    case.equal(data[0], grid[0], "the numbers of samples of data and grid")
    return ((*data[:2], *grid[1:-1]),)


def _affine_grid(case: Operands) -> tuple[Shape, ...]:
    sizes = case.ints(1)
    return ((sizes[0], *sizes[2:], len(sizes) - 2),)


def _boxes(case: Operands) -> tuple[Shape, ...]:
    size = case.attribute("output_height", 1), case.attribute("output_width", 1)
    return ((case.shape(1)[0], case.shape()[1], *size),)


def _pooled_boxes(case: Operands) -> tuple[Shape, ...]:
    return ((case.shape(1)[0], case.shape()[1], *case.attribute("pooled_shape")),)


def _transform(case: Operands) -> tuple[Shape, ...]:
    """DFT: the axis as long as asked for, or half of it, and real and imaginary parts."""
    data = case.shape()
    (at,) = case.numbers(2) if case.has(2) else (case.attribute("axis", -2),)
    axis = position(at, len(data))
    length = case.ints(1)[0] if case.has(1) else data[axis]
    inverse, one_sided = case.attribute("inverse", 0), case.attribute("onesided", 0)
    if one_sided and inverse:
        raise Unknown
    bins = length // 2 + 1 if one_sided else length
    return ((*data[:axis], bins, *data[axis + 1 : -1], 2),)


def _short_transform(case: Operands) -> tuple[Shape, ...]:
    """STFT: frames as long as given, or as the window; half of the bins, and one, of a real signal's."""
    signal, (step,) = case.shape(), case.numbers(1)
    (frame,) = case.numbers(3) if case.has(3) else case.shape(2)
    case.at_least(signal[1], frame, f"the length of a signal that is cut into frames of {frame}")
    bins = frame // 2 + 1 if case.attribute("onesided", 1) else frame
    return ((signal[0], nonnegative((signal[1] - frame) // step + 1), bins, 2),)


WINDOWS: Mapping[str, Row] = MappingProxyType(
    {
        **dict.fromkeys(("AveragePool", "LpPool", "MaxPool"), _pooled),
        **dict.fromkeys(("GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool"), _pooled_whole),
        **dict.fromkeys(("Conv", "ConvInteger", "DeformConv"), _convolved(1)),
        **dict.fromkeys(("Resize", "Upsample"), _resized),
        "AffineGrid": _affine_grid,
        "Col2Im": _from_columns,
        "ConvTranspose": _transposed,
        "DFT": _transform,
        "GridSample": _on_grid,
        "MaxRoiPool": _pooled_boxes,
        "MaxUnpool": _unpooled,
        "QLinearConv": _convolved(3),
        "RoiAlign": _boxes,
        "STFT": _short_transform,
    }
)
"""Rows by operator."""

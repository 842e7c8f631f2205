"""Operators as earlier opsets have them: other attributes for operands, and other meanings."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from tests.ops.options.case import Case, cases, i64, x


def moved() -> Iterator[Case]:
    """Attributes that became operands."""
    data = x(2, 3, 4, low=0.5, high=3)
    for name in ("Sum", "Mean", "Prod", "Max", "Min", "L1", "L2", "SumSquare", "LogSum", "LogSumExp"):
        axes = (None, (1,), (-1, 0), (0, 1, 2))
        yield from cases(f"Reduce{name}", [(data,)], axes=axes, keepdims=(None, 0), opset=11)
    yield from cases("Squeeze", [(x(1, 3, 1),)], axes=(None, (0,), (2, 0)), opset=11)
    yield from cases("Squeeze", [(x(1, 3, 1),)], axes=((-1,),), opset=11)
    yield from cases("Unsqueeze", [(x(2, 3),)], axes=((0,), (1, 3), (0, 1)), opset=8)
    yield from cases("Unsqueeze", [(x(2, 3),)], axes=((-1,), (-1, 1)), opset=11)
    yield from cases("Split", [(x(6, 4),)], outputs=3, axis=(None, 0), split=(None, (1, 2, 3)), opset=11)
    yield from cases("Split", [(x(6, 4),)], outputs=2, axis=(1, -1), split=(None, (1, 3)), opset=11)
    starts = ((1,), (-3,), (-9,), (9,), (0,))
    for end in ((3,), (-1,), (2**31 - 1,), (-9,)):
        yield from cases("Slice", [(x(5, 4),)], starts=starts, ends=(end,), axes=(None, (0,), (1,)), opset=9)
    pads = ((0, 1, 2, 1, 0, 1), (0, -1, 0, 0, 1, -2))
    yield from cases("Pad", [(x(2, 3, 4),)], pads=pads, value=(None, 1.5), mode=(None, "constant"), opset=10)
    yield from cases("Pad", [(x(2, 3, 4),)], pads=pads[:1], mode=("reflect", "edge"), opset=10)
    yield from cases("Clip", [(x(9),)], min=(None, -0.5), max=(None, 0.5), opset=10)
    yield from cases("TopK", [(x(3, 5),)], outputs=2, k=(1, 3), axis=(None, 0, 1, -1), opset=9)
    signal = x(2, 8, 1)
    yield from cases("DFT", [(signal,)], axis=(None, 1), onesided=(None, 0), inverse=(None, 1), opset=17)
    yield from cases("DFT", [(signal,)], axis=(1,), onesided=(1,), opset=17)


def meant() -> Iterator[Case]:
    """Operators that meant something else, or were called something else."""
    for op in ("Softmax", "LogSoftmax", "Hardmax"):
        yield from cases(op, [(x(3, 4),)], axis=(None, 0, 1), opset=11)
        yield from cases(op, [(x(2, 3, 4),)], axis=(None, 0, 1, 2, -1, -2), opset=12)
    image = x(1, 2, 4, 5)
    grow, shrink, both = (np.array(s, np.float32) for s in ([1, 1, 2, 1.5], [1, 1, 0.5, 0.6], [1, 1, 2, 0.5]))
    yield from cases("Upsample", [(image, grow)], mode=(None, "nearest", "linear"), known=[1], opset=9)
    yield from cases("Upsample", [(image,)], scales=((1.0, 1.0, 2.0, 3.0),), mode=(None, "nearest", "linear"), opset=7)
    yield from cases(
        "Resize", [(image, s) for s in (grow, shrink, both)], mode=(None, "nearest", "linear"), known=[1], opset=10
    )
    roi = np.zeros(0, np.float32)
    where = (None, "half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
    rounding = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
    exact = np.array([1, 1, 2, 4], np.float32)
    for scales in (exact, 1 / exact):
        operands = [(image, roi, scales)]
        yield from cases(
            "Resize", operands, mode=("linear", "cubic"), coordinate_transformation_mode=where, known=[1, 2], opset=11
        )
        yield from cases("Resize", operands, mode=("nearest",), nearest_mode=rounding, known=[1, 2], opset=11)
    sized = [(image, roi, np.zeros(0, np.float32), i64(1, 2, 8, 10))]
    yield from cases(
        "Resize",
        sized,
        mode=("nearest",),
        coordinate_transformation_mode=("tf_half_pixel_for_nn",),
        nearest_mode=("floor",),
        known=[1, 2, 3],
        opset=11,
    )
    yield from cases("Resize", sized, mode=("nearest", "linear"), known=[1, 2, 3], opset=11)
    grid = x(2, 3, 2, 2, low=-1.4, high=1.4)
    modes = {"mode": (None, "bilinear", "nearest", "bicubic"), "padding_mode": (None, "border", "reflection")}
    yield from cases("GridSample", [(x(2, 3, 4, 5), grid)], **modes, align_corners=(None, 1), opset=16)
    yield from cases(
        "GroupNormalization", [(x(2, 6, 3), x(2), x(2, seed=1))], num_groups=(2,), epsilon=(None, 0.5), opset=18
    )
    boxes = np.array([[0, 0, 3, 3], [1, 1, 2.5, 4]], np.float32)
    sizes = {"output_height": (2,), "output_width": (None, 3), "sampling_ratio": (None, 2)}
    yield from cases("RoiAlign", [(x(2, 3, 5, 6), boxes, i64(0, 1))], **sizes, mode=(None, "max"), opset=10)
    places, updates = np.array([[0, 2, 1], [1, 0, 2]], np.int64), x(2, 3, seed=3)
    yield from cases("Scatter", [(x(3, 4), places, updates)], axis=(None, 0, 1), opset=9)
    statistics = tuple(x(3, seed=k, low=0.5, high=2) for k in range(4))
    yield from cases(
        "BatchNormalization", [(x(2, 3, 4), *statistics)], epsilon=(None, 0.5), momentum=(None, 0.5), opset=8
    )
    yield from cases("Dropout", [(x(3, 4),)], outputs=2, ratio=(None, 0.3), opset=10)
    yield from cases(
        "CumSum", [(x(3, 4), np.array(1, np.int32))], known=[1], exclusive=(None, 1), reverse=(None, 1), opset=11
    )
    for op in ("Less", "Equal", "And", "Where"):
        pair = (
            (x(2, 3, dtype="bool"), x(3, dtype="bool", seed=1)) if op in ("And", "Equal") else (x(2, 3), x(3, seed=1))
        )
        yield from cases(op, [(x(2, 3, dtype="bool"), *pair) if op == "Where" else pair], opset=9)


def windows() -> Iterator[Case]:
    image, kernel = x(2, 3, 7, 8), {"kernel_shape": ((3, 2),), "strides": (None, (2, 2))}
    yield from cases("MaxPool", [(image,)], **kernel, auto_pad=("SAME_UPPER", "SAME_LOWER", "VALID"), opset=7)
    yield from cases(
        "MaxPool", [(image,)], outputs=2, **kernel, storage_order=(None, 1), pads=(None, (1, 0, 1, 1)), opset=8
    )
    yield from cases("MaxPool", [(image,)], **kernel, ceil_mode=(0, 1), dilations=(None, (2, 1)), opset=11)
    yield from cases("AveragePool", [(image,)], **kernel, count_include_pad=(0, 1), pads=(None, (1, 0, 1, 1)), opset=7)
    yield from cases(
        "AveragePool", [(image,)], **kernel, ceil_mode=(0, 1), count_include_pad=(0, 1), pads=((1, 0, 1, 1),), opset=10
    )
    yield from cases("LpPool", [(image,)], **kernel, p=(None, 1, 3), pads=(None, (1, 0, 1, 1)), opset=11)
    weights = x(3, 2, 3, 2, seed=1)
    yield from cases(
        "ConvTranspose", [(image, weights)], strides=((2, 3),), auto_pad=("SAME_UPPER", "SAME_LOWER", "VALID"), opset=7
    )
    yield from cases("ConvTranspose", [(image, weights)], strides=((2, 2),), output_shape=((15, 16),), opset=11)


OLD = (*moved(), *meant(), *windows())

"""Sliding windows, boxes and grids: convolutions, pooling, their inverses, resizing, sampling."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from tests.ops.options.case import Case, cases, i64, scalar, x

_MODES = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
_SPACE = (None, 1, 2, 3)


def _both(values: tuple[int | None, ...]) -> tuple[tuple[int, int] | None, ...]:
    return tuple(None if value is None else (value, 1 if value == 3 else value) for value in values)


def convolutions() -> Iterator[Case]:
    image, weights = x(2, 4, 7, 6), x(6, 4, 3, 2, seed=1, low=-1, high=1)
    grouped = x(6, 2, 3, 2, seed=1, low=-1, high=1)
    for bias in (None, x(6, seed=2)):
        yield from cases(
            "Conv",
            [(image, weights, bias)],
            strides=_both(_SPACE),
            dilations=_both((None, 2)),
            auto_pad=(None, *_MODES),
        )
    yield from cases(
        "Conv",
        [(image, grouped)],
        group=(2,),
        pads=(None, (1, 0, 2, 1)),
        strides=(None, (2, 1)),
        kernel_shape=(None, (3, 2)),
    )
    yield from cases(
        "Conv",
        [(x(1, 4, 9), x(4, 1, 3, seed=1), x(4))],
        group=(4,),
        pads=(None, (2, 1)),
        dilations=(None, (3,)),
        strides=(None, (2,)),
    )
    yield from cases(
        "Conv",
        [(x(1, 2, 3, 4, 4), x(3, 2, 2, 2, 2, seed=1)), (x(0, 2, 3, 4, 4), x(3, 2, 2, 2, 2, seed=1))],
        auto_pad=(None, "SAME_UPPER", "SAME_LOWER"),
    )
    yield from cases("Conv", [(x(1, 2, 5, 5, dtype="float64"), x(2, 2, 3, 3, dtype="float64"))], pads=((1, 1, 1, 1),))
    turned = (x(2, 4, 5, 3), x(4, 3, 3, 2, seed=1, low=-1, high=1))
    for bias in (None, x(3, seed=2)):
        for extra in (None, (1, 0)):
            yield from cases(
                "ConvTranspose",
                [(*turned, bias)],
                strides=((2, 3), (3, 2)),
                dilations=(None, (2, 1)),
                auto_pad=(None, *_MODES),
                output_padding=(extra,),
            )
    yield from cases(
        "ConvTranspose",
        [turned],
        pads=((1, 0, 0, 1), (1, 1, 1, 1)),
        strides=(None, (2, 2)),
        output_padding=(None, (0, 0)),
    )
    yield from cases(
        "ConvTranspose",
        [turned],
        output_shape=((10, 8), (11, 7)),
        strides=((2, 2),),
        auto_pad=(None, "SAME_UPPER", "SAME_LOWER"),
    )
    yield from cases("ConvTranspose", [turned], output_shape=((10, 8),), strides=((2, 2),), output_padding=((1, 1),))
    yield from cases(
        "ConvTranspose",
        [(x(1, 4, 5), x(4, 3, 2, seed=1))],
        group=(2,),
        strides=(None, (2,)),
        auto_pad=(None, "SAME_UPPER"),
    )
    yield from cases("ConvTranspose", [(x(1, 2, 3, 2, 2), x(2, 3, 2, 2, 2, seed=1))], strides=(None, (2, 1, 2)))
    whole, taps = x(2, 4, 5, 4, dtype="uint8", low=0, high=255), x(2, 4, 3, 2, dtype="uint8", low=0, high=255, seed=1)
    signed = x(2, 4, 3, 2, dtype="int8", low=-128, high=127, seed=1)
    zeros = ((None, None), (scalar(9, "uint8"), None), (scalar(9, "uint8"), scalar(3, "uint8")))
    yield from cases(
        "ConvInteger",
        [(whole, taps, *z) for z in zeros],
        auto_pad=(None, "SAME_UPPER", "SAME_LOWER"),
        strides=(None, (2, 1)),
    )
    yield from cases("ConvInteger", [(whole, taps, scalar(9, "uint8"))], pads=((1, 0, 1, 1),), dilations=(None, (2, 1)))
    point = (scalar(0.02), scalar(128, "uint8"))
    for kernel, zero in ((taps, scalar(120, "uint8")), (signed, scalar(0, "int8"))):
        for bias in (None, x(2, dtype="int32", low=-500, high=500)):
            yield from cases(
                "QLinearConv",
                [
                    (
                        whole,
                        *point,
                        kernel,
                        np.array([0.01, 0.03], np.float32),
                        np.array([zero, zero]),
                        scalar(0.9),
                        scalar(100, "uint8"),
                        bias,
                    )
                ],
                auto_pad=(None, "SAME_LOWER"),
                strides=(None, (2, 2)),
            )
    data, kernel = x(1, 4, 5, 5), x(2, 4, 2, 2, seed=1)
    offset = x(1, 8, 4, 4, seed=2)
    yield from cases(
        "DeformConv",
        [
            (data, kernel, offset),
            (data, kernel, offset, x(2)),
            (data, kernel, offset, x(2), x(1, 4, 4, 4, seed=3)),
            (data, kernel, offset, None, x(1, 4, 4, 4, seed=3)),
        ],
    )
    yield from cases(
        "DeformConv",
        [(data, x(2, 2, 2, 2), x(1, 16, 4, 4, seed=2), None, x(1, 8, 4, 4))],
        group=(2,),
        offset_group=(2,),
    )
    yield from cases(
        "DeformConv",
        [(data, kernel, x(1, 8, 3, 3, seed=2))],
        pads=((1, 1, 1, 1),),
        strides=((2, 2),),
        dilations=((2, 2),),
    )


def pools() -> Iterator[Case]:
    image = x(2, 3, 7, 8)
    window = ((3, 2), (2, 3))
    common = {"kernel_shape": window, "strides": (None, (2, 2), (3, 1)), "auto_pad": _MODES, "ceil_mode": (0, 1)}
    yield from cases("MaxPool", [(image,)], **common)
    yield from cases("AveragePool", [(image,)], **common, count_include_pad=(0, 1))
    yield from cases("LpPool", [(image,)], **common, p=(None, 1, 3))
    padded = {
        "kernel_shape": ((3, 2),),
        "pads": ((1, 0, 1, 1), (2, 1, 0, 1)),
        "strides": (None, (2, 2), (3, 3)),
        "ceil_mode": (0, 1),
        "dilations": (None, (2, 1)),
    }
    yield from cases("MaxPool", [(image,)], **padded)
    yield from cases("MaxPool", [(image,)], outputs=2, **padded, storage_order=(None, 0, 1))
    yield from cases("AveragePool", [(image,)], **padded, count_include_pad=(0, 1))
    yield from cases("LpPool", [(image,)], **padded, p=(2,))
    for op in ("MaxPool", "AveragePool"):
        yield from cases(
            op,
            [(x(1, 2, 9),), (x(0, 2, 9),)],
            kernel_shape=((3,),),
            strides=(None, (2,)),
            ceil_mode=(0, 1),
            pads=(None, (1, 1)),
        )
        yield from cases(
            op,
            [(x(1, 2, 3, 4, 5),)],
            kernel_shape=((2, 2, 3),),
            auto_pad=(None, "SAME_UPPER", "SAME_LOWER"),
            strides=(None, (2, 1, 2)),
        )
        yield from cases(op, [(x(1, 1, 5, 5, dtype=d),) for d in ("float16", "float64")], kernel_shape=((2, 2),))
        yield from cases(op, [(x(1, 1, 1, 1),)], kernel_shape=((1, 1),), strides=((2, 2),), ceil_mode=(0, 1))
        yield from cases(
            op,
            [(x(1, 1, 2, 5),)],
            kernel_shape=((2, 2),),
            strides=((2, 4), (4, 4)),
            ceil_mode=(0, 1),
            pads=(None, (1, 1, 1, 1)),
        )
    for d in ("int8", "uint8"):
        yield from cases(
            "MaxPool",
            [(x(1, 1, 5, 5, dtype=d, low=-100, high=100),)],
            outputs=2,
            kernel_shape=((2, 2),),
            pads=(None, (1, 1, 1, 1)),
        )
    special = x(1, 1, 4, 4)
    special[0, 0, 1, 1], special[0, 0, 3, 3] = np.nan, -np.inf
    yield from cases(
        "MaxPool",
        [(np.full((1, 1, 4, 4), -np.inf, np.float32),)],
        kernel_shape=((2, 2),),
        outputs=2,
        pads=(None, (1, 1, 1, 1)),
    )
    yield from cases("AveragePool", [(special,)], kernel_shape=((2, 2),))
    for op in ("GlobalAveragePool", "GlobalMaxPool"):
        yield from cases(op, [(x(2, 3, 4, 5),), (x(2, 3, 5),), (x(1, 2, 2, 2, 3),), (x(0, 2, 3, 3),), (x(2, 3, 1, 1),)])
    yield from cases("GlobalLpPool", [(x(2, 3, 4, 5),), (x(2, 3, 5),)], p=(None, 1, 2, 3), opset=21)
    places = np.array([[[[5, 7], [13, 15]]]], np.int64)
    yield from cases(
        "MaxUnpool",
        [(x(1, 1, 2, 2), places), (x(1, 1, 2, 2), places, i64(1, 1, 5, 5)), (x(1, 1, 2, 2), places, i64(1, 1, 4, 4))],
        known=[2],
        kernel_shape=((2, 2),),
        strides=((2, 2),),
        opset=21,
    )
    yield from cases(
        "MaxUnpool",
        [(x(1, 1, 3, 3), np.arange(9).reshape(1, 1, 3, 3))],
        kernel_shape=((2, 2),),
        strides=((2, 2),),
        pads=((0, 0, 1, 1), (1, 1, 0, 0)),
        opset=21,
    )
    yield from cases("Col2Im", [(x(1, 8, 12), i64(4, 5), i64(2, 2))], known=[1, 2])
    yield from cases(
        "Col2Im", [(x(1, 8, 9), i64(4, 5), i64(2, 2))], known=[1, 2], pads=((1, 0, 1, 1),), strides=((2, 2),)
    )
    yield from cases("Col2Im", [(x(2, 8, 6), i64(4, 5), i64(2, 2))], known=[1, 2], dilations=((2, 2),))


def resizes() -> Iterator[Case]:
    image = x(1, 2, 4, 5)
    scales = (
        np.array([1, 1, 1.7, 0.6], np.float32),
        np.array([1, 1, 0.6, 2.3], np.float32),
        np.array([1, 1, 2, 2], np.float32),
        np.array([1, 1, 0.5, 0.25], np.float32),
    )
    sizes = (i64(1, 2, 7, 3), i64(1, 2, 3, 9), i64(1, 2, 1, 1))
    given = [(image, None, s) for s in scales] + [(image, None, None, s) for s in sizes]
    known = [1, 2, 3]
    where = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric")
    yield from cases(
        "Resize",
        given,
        known=known,
        mode=("nearest",),
        coordinate_transformation_mode=(None, *where),
        nearest_mode=(None, "round_prefer_floor", "round_prefer_ceil", "floor", "ceil"),
    )
    yield from cases(
        "Resize", given, known=known, mode=("linear",), coordinate_transformation_mode=where, antialias=(None, 1)
    )
    yield from cases(
        "Resize",
        given,
        known=known,
        mode=("cubic",),
        coordinate_transformation_mode=where,
        exclude_outside=(None, 1),
        cubic_coeff_a=(None, -0.5),
    )
    yield from cases("Resize", given, known=known, mode=("cubic",), antialias=(1,), exclude_outside=(0, 1))
    box = np.array([0, 0, 0.1, 0.2, 1, 1, 0.8, 1.3], np.float32)
    yield from cases(
        "Resize",
        [(image, box, None, sizes[0]), (image, box, scales[0])],
        known=known,
        mode=("nearest", "linear", "cubic"),
        coordinate_transformation_mode=("tf_crop_and_resize",),
        extrapolation_value=(None, 7.0),
    )
    yield from cases(
        "Resize",
        [(image, None, np.array([1.5, 2], np.float32)), (image, None, None, i64(7, 3))],
        known=known,
        axes=((2, 3), (3, 2), (-2, -1)),
        mode=("nearest", "linear"),
    )
    yield from cases(
        "Resize",
        [(image, None, None, i64(7, 3)), (image, None, None, i64(8, 8))],
        known=known,
        axes=((2, 3),),
        mode=("nearest", "linear"),
        keep_aspect_ratio_policy=(None, "stretch", "not_larger", "not_smaller"),
    )
    yield from cases(
        "Resize",
        [
            (x(1, 1, 5), None, np.array([1, 1, 1.5], np.float32)),
            (x(3, 4), None, np.array([2, 0.5], np.float32)),
            (x(1, 1, 2, 3, 2), None, np.array([1, 1, 2, 1.5, 2], np.float32)),
        ],
        known=known,
        mode=("nearest", "linear"),
    )
    for op_type in ("int8", "uint8", "float64", "float16"):
        yield from cases(
            "Resize",
            [(x(1, 1, 3, 4, dtype=op_type, low=0, high=9), None, np.array([1, 1, 2, 1.5], np.float32))],
            known=known,
            mode=("nearest",),
        )


def samples() -> Iterator[Case]:
    image, grid = x(2, 3, 4, 5), x(2, 3, 2, 2, low=-1.4, high=1.4)
    choices = {
        "mode": (None, "linear", "nearest", "cubic"),
        "padding_mode": (None, "zeros", "border", "reflection"),
        "align_corners": (None, 0, 1),
    }
    yield from cases("GridSample", [(image, grid)], **choices)
    yield from cases(
        "GridSample",
        [(x(1, 2, 3, 4, 3), x(1, 2, 2, 3, 3, low=-1.3, high=1.3))],
        **{**choices, "mode": ("linear", "nearest")},
    )
    edges = np.array([-1, 1, 0, -1.25, 1.5, 3], np.float32)
    yield from cases("GridSample", [(x(1, 1, 4, 4), np.stack(np.meshgrid(edges, edges), -1)[None])], **choices)
    far = np.array([np.inf, -np.inf, np.nan, 1e30, -1e20, 0], np.float32)
    yield from cases(
        "GridSample",
        [(x(1, 1, 4, 4), np.stack(np.meshgrid(far, far), -1)[None])],
        mode=("linear", "nearest"),
        padding_mode=("zeros",),
        align_corners=(0, 1),
    )
    yield from cases(
        "AffineGrid",
        [(x(2, 2, 3), i64(2, 3, 4, 5)), (x(1, 3, 4), i64(1, 2, 3, 2, 4)), (x(1, 2, 3), i64(1, 1, 1, 1))],
        known=[1],
        align_corners=(None, 0, 1),
    )
    boxes = np.array([[0, 0, 3, 3], [1, 1, 2.5, 4], [-1, -2, 7, 8], [2, 2, 2, 2]], np.float32)
    rows = i64(0, 1, 0, 1)
    features = x(2, 3, 5, 6)
    yield from cases(
        "RoiAlign",
        [(features, boxes, rows)],
        mode=(None, "avg", "max"),
        coordinate_transformation_mode=(None, "half_pixel", "output_half_pixel"),
        output_height=(None, 2),
        output_width=(3,),
        sampling_ratio=(None, 2),
        spatial_scale=(None, 0.5),
        opset=21,
    )
    regions = np.array([[0, 0, 0, 3, 3], [1, 1, 1, 5, 4], [0, 2, 2, 2, 2]], np.float32)
    yield from cases(
        "MaxRoiPool", [(features, regions)], pooled_shape=((1, 1), (2, 3)), spatial_scale=(None, 0.5), opset=21
    )
    corners = np.array([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, -0.1, 1, 0.9], [0, 10, 1, 11], [1, 1, 0, 0]]], np.float32)
    scores = np.array([[[0.9, 0.75, 0.6, 0.95, 0.5], [0.1, 0.2, 0.9, 0.3, 0.9]]], np.float32)
    for most in (None, i64(0), i64(2)):
        for overlap in (None, np.array([0.5], np.float32)):
            yield from cases(
                "NonMaxSuppression",
                [(corners, scores, most, overlap), (corners, scores, most, overlap, np.array([0.4], np.float32))],
                center_point_box=(None, 0, 1),
            )


def further() -> Iterator[Case]:
    """Attributes that the cases above leave as they are."""
    whole, taps = x(2, 4, 5, 4, dtype="uint8", low=0, high=255), x(2, 2, 3, 2, dtype="uint8", low=0, high=255, seed=1)
    settings = {
        "group": (2,),
        "kernel_shape": (None, (3, 2)),
        "pads": (None, (1, 0, 0, 1)),
        "dilations": (None, (2, 1)),
    }
    yield from cases("ConvInteger", [(whole, taps, scalar(9, "uint8"))], **settings)
    point = (scalar(0.02), scalar(128, "uint8"))
    scales = (scalar(0.01), scalar(120, "uint8"), scalar(0.9), scalar(100, "uint8"))
    yield from cases("QLinearConv", [(whole, *point, taps, *scales)], **settings)
    turned = (x(2, 4, 5, 3), x(4, 3, 3, 2, seed=1, low=-1, high=1))
    yield from cases("ConvTranspose", [turned], kernel_shape=(None, (3, 2)), strides=((2, 2),))
    bent = (x(1, 4, 5, 5), x(2, 4, 2, 2, seed=1), x(1, 8, 4, 4, seed=2))
    yield from cases("DeformConv", [bent], kernel_shape=(None, (2, 2)))
    places = np.arange(9).reshape(1, 1, 3, 3)
    yield from cases(
        "MaxUnpool", [(x(1, 1, 3, 3), places)], kernel_shape=((2, 2), (3, 3)), strides=(None, (2, 2)), opset=21
    )
    boxes = np.array([[0, 0, 3, 3], [1, 1, 2.5, 4]], np.float32)
    yield from cases("RoiAlign", [(x(2, 3, 5, 6), boxes, i64(0, 1))], output_width=(None, 2), opset=21)


WINDOWS = (*convolutions(), *pools(), *resizes(), *samples(), *further())

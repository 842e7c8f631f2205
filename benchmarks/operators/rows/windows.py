"""Convolutions, pooling, sampling, recurrences and what detectors need."""

from __future__ import annotations

from benchmarks.operators.row import Row, boxes, distinct, ids, k, one, rois, w, x

_SAME = {"pads": [1, 1, 1, 1]}
_HALF = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
_BYTE, _SCALE = one(128, "uint8"), one(0.05, "float32")
_IMAGES = (x(1, 64, 56, 56), x(1, 64, 112, 112))
_CELL = ((25, 1, 64, 128), (100, 1, 256, 128))
"""Steps, batch, features and hidden units of recurrent cells."""


def _gates(count: int) -> tuple[tuple, ...]:
    return tuple((x(t, b, f), w(1, count * h, f), w(1, count * h, h), w(1, 2 * count * h)) for t, b, f, h in _CELL)


CONVOLUTIONS: tuple[Row, ...] = (
    Row("Conv", ((x(1, 64, 28, 28), w(64, 64, 3, 3), w(64)), (x(1, 256, 28, 28), w(256, 256, 3, 3), w(256))), _SAME),
    Row(
        "Conv",
        ((x(1, 64, 56, 56), w(64, 1, 3, 3), w(64)), (x(1, 64, 112, 112), w(64, 1, 3, 3), w(64))),
        {**_SAME, "group": 64},
        note="depthwise",
    ),
    Row(
        "ConvInteger",
        tuple(
            (x(1, c, n, n, of="uint8", low=0, high=255), w(c, c, 3, 3, of="uint8", low=0, high=255), _BYTE, _BYTE)
            for c, n in ((64, 28), (256, 28))
        ),
        _SAME,
    ),
    Row(
        "ConvTranspose",
        ((x(1, 64, 28, 28), w(64, 32, 2, 2)), (x(1, 128, 64, 64), w(128, 64, 2, 2))),
        {"strides": [2, 2]},
    ),
    Row(
        "DeformConv",
        tuple(
            (x(1, c, n, n), w(c, c, 3, 3), x(1, 18, n, n), w(c), x(1, 9, n, n, low=0, high=1))
            for c, n in ((32, 28), (64, 56))
        ),
        _SAME,
    ),
    Row(
        "QLinearConv",
        tuple(
            (
                x(1, c, n, n, of="uint8", low=0, high=255),
                _SCALE,
                _BYTE,
                w(c, c, 3, 3, of="int8", low=-128, high=127),
                _SCALE,
                one(0, "int8"),
                one(9.0, "float32"),
                _BYTE,
            )
            for c, n in ((64, 28), (256, 28))
        ),
        _SAME,
    ),
)

POOLING: tuple[Row, ...] = (
    Row("AveragePool", tuple((data,) for data in _IMAGES), _HALF),
    Row("MaxPool", tuple((data,) for data in _IMAGES), _HALF),
    Row("MaxPool", tuple((data,) for data in _IMAGES), _HALF, outputs=2, note="with indices"),
    Row("LpPool", tuple((data,) for data in _IMAGES), _HALF),
    *(
        Row(op, tuple((data,) for data in _IMAGES), opset=21)
        for op in ("GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool")
    ),
    Row(
        "MaxUnpool",
        (
            (x(1, 16, 28, 28), distinct(16 * 56 * 56, 1, 16, 28, 28)),
            (x(1, 64, 56, 56), distinct(64 * 112 * 112, 1, 64, 56, 56)),
        ),
        {"kernel_shape": [2, 2], "strides": [2, 2]},
    ),
)

SAMPLING: tuple[Row, ...] = (
    Row("AffineGrid", ((x(1, 2, 3), k(1, 3, 64, 64)), (x(4, 2, 3), k(4, 3, 224, 224)))),
    Row(
        "GridSample",
        ((x(8, 32, 20, 20), x(8, 300, 4, 2, low=-1, high=1)), (x(1, 64, 80, 80), x(1, 80, 80, 2, low=-1.1, high=1.1))),
        {"mode": "linear"},
    ),
    Row(
        "GridSample",
        (
            (x(1, 3, 64, 64), x(1, 64, 64, 2, low=-1.1, high=1.1)),
            (x(1, 64, 80, 80), x(1, 80, 80, 2, low=-1.1, high=1.1)),
        ),
        {"mode": "cubic", "padding_mode": "border"},
        note="cubic",
    ),
    Row(
        "GridSample",
        (
            (x(1, 3, 64, 64), x(1, 64, 64, 2, low=-1.1, high=1.1)),
            (x(1, 64, 80, 80), x(1, 80, 80, 2, low=-1.1, high=1.1)),
        ),
        {"mode": "nearest", "padding_mode": "reflection"},
        note="nearest",
    ),
    Row(
        "GridSample",
        (
            (x(1, 4, 16, 16, 16), x(1, 16, 16, 16, 3, low=-1.1, high=1.1)),
            (x(1, 16, 32, 32, 32), x(1, 32, 32, 32, 3, low=-1.1, high=1.1)),
        ),
        {"mode": "linear"},
        note="of volumes",
    ),
    Row(
        "MaxRoiPool",
        tuple((x(1, c, n, n), rois(r)) for c, n, r in ((64, 32, 16), (256, 50, 100))),
        {"pooled_shape": [7, 7], "spatial_scale": 0.0625},
        opset=21,
    ),
    Row(
        "RoiAlign",
        tuple((x(1, c, n, n), boxes(r), ids(1, r)) for c, n, r in ((64, 32, 16), (256, 64, 100))),
        {"output_height": 7, "output_width": 7, "sampling_ratio": 2, "spatial_scale": 0.125},
        opset=21,
    ),
    Row(
        "RoiAlign",
        tuple((x(1, c, n, n), boxes(r), ids(1, r)) for c, n, r in ((64, 32, 16), (256, 64, 100))),
        {"output_height": 7, "output_width": 7, "sampling_ratio": 2, "spatial_scale": 0.125, "mode": "max"},
        note="max",
        opset=21,
    ),
    Row(
        "NonMaxSuppression",
        tuple(
            (boxes(1, n), x(1, c, n, low=0, high=1), k(m), k(0.5, of="float32"), k(0.3, of="float32"))
            for n, c, m in ((300, 1, 100), (8400, 4, 100))
        ),
    ),
)

RECURRENT: tuple[Row, ...] = (
    Row("LSTM", _gates(4), {"hidden_size": 128}, outputs=3),
    Row("GRU", _gates(3), {"hidden_size": 128}, outputs=2),
    Row("RNN", _gates(1), {"hidden_size": 128}, outputs=2),
)

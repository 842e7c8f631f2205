"""Operators that move, cut, join, repeat, gather and scatter."""

from __future__ import annotations

from benchmarks.operators.row import Row, distinct, ids, k, one, x

_HIDDEN, _MAP = x(1, 128, 768), x(1, 64, 56, 56)

MOVEMENT: tuple[Row, ...] = (
    Row("CenterCropPad", ((x(1, 3, 256, 256), k(224, 224)), (x(1, 64, 56, 56), k(80, 40))), {"axes": [2, 3]}, opset=18),
    Row("Compress", ((x(512, 256), x(512, of="bool")), (x(8400, 80), x(8400, of="bool"))), {"axis": 0}),
    Row("Concat", ((x(1, 64, 28, 28), x(1, 64, 28, 28)), (x(1, 64, 112, 112), x(1, 32, 112, 112))), {"axis": 1}),
    Row("ConstantOfShape", ((k(128, 768),), (k(1, 64, 112, 112),))),
    Row("DepthToSpace", ((x(1, 64, 32, 32),), (x(1, 256, 128, 128),)), {"blocksize": 2}),
    Row("Expand", ((x(128, 1), k(128, 768)), (x(1, 64, 1, 1), k(8, 64, 56, 56)))),
    Row("EyeLike", ((x(128, 128),), (x(1024, 1024),))),
    Row("Flatten", ((_HIDDEN,), (_MAP,))),
    Row("Gather", ((x(30522, 128), ids(30522, 1, 128)), (x(50257, 256), ids(50257, 4, 512)))),
    Row(
        "GatherElements", ((x(1, 300, 256), ids(300, 1, 100, 256)), (x(4, 8400, 4), ids(8400, 4, 300, 4))), {"axis": 1}
    ),
    Row("GatherND", ((x(1, 128, 768), ids(128, 1, 64, 1)), (x(1, 8400, 80), ids(8400, 1, 1000, 1))), {"batch_dims": 1}),
    Row(
        "OneHot",
        ((ids(100, 128), one(100), k(0, 1, of="float32")), (ids(1000, 4096), one(1000), k(0, 1, of="float32"))),
    ),
    Row("Pad", ((_HIDDEN, k(0, 0, 0, 0, 8, 0)), (x(1, 64, 112, 112), k(0, 0, 1, 1, 0, 0, 1, 1)))),
    Row(
        "Pad",
        ((x(1, 3, 224, 224), k(0, 0, 3, 3, 0, 0, 3, 3)), (x(1, 64, 112, 112), k(0, 0, 1, 1, 0, 0, 1, 1))),
        {"mode": "reflect"},
        note="reflect",
    ),
    Row("Range", ((one(0), one(1000), one(1)), (one(0), one(1000000), one(1)))),
    Row("Reshape", ((_HIDDEN, k(1, 128, 12, 64)), (_MAP, k(1, 64, -1)))),
    Row(
        "Resize",
        ((x(1, 64, 40, 40), None, k(1, 1, 2, 2, of="float32")), (x(1, 256, 80, 80), None, k(1, 1, 2, 2, of="float32"))),
        {"mode": "nearest"},
    ),
    Row(
        "Resize",
        ((x(1, 3, 256, 256), None, None, k(1, 3, 224, 224)), (x(1, 64, 64, 64), None, None, k(1, 64, 128, 128))),
        {"mode": "linear"},
        note="linear",
    ),
    Row(
        "Resize",
        (
            (x(1, 3, 128, 128), None, k(1, 1, 2, 2, of="float32")),
            (x(1, 3, 512, 512), None, k(1, 1, 0.5, 0.5, of="float32")),
        ),
        {"mode": "cubic"},
        note="cubic",
    ),
    Row(
        "ReverseSequence",
        ((x(64, 8, 256), ids(65, 8)), (x(512, 32, 256), ids(513, 32))),
        {"time_axis": 0, "batch_axis": 1},
    ),
    Row(
        "ScatterElements",
        (
            (x(1, 300, 256), distinct(300, 1, 64, 256), x(1, 64, 256)),
            (x(1, 8400, 80), distinct(8400, 1, 1000, 80), x(1, 1000, 80)),
        ),
        {"axis": 1},
    ),
    Row(
        "ScatterElements",
        ((x(512, 64), ids(512, 512, 64), x(512, 64)), (x(2708, 128), ids(2708, 10556, 128), x(10556, 128))),
        {"axis": 0, "reduction": "add"},
        note="add",
    ),
    Row(
        "ScatterND",
        ((x(128, 768), distinct(128, 32, 1), x(32, 768)), (x(8400, 85), ids(8400, 1000, 1), x(1000, 85))),
    ),
    Row(
        "ScatterND",
        ((x(512, 64), ids(512, 2048, 1), x(2048, 64)), (x(2708, 128), ids(2708, 10556, 1), x(10556, 128))),
        {"reduction": "add"},
        note="add",
    ),
    Row(
        "TensorScatter",
        ((x(1, 12, 256, 64), x(1, 12, 1, 64), ids(255, 1)), (x(1, 32, 2048, 128), x(1, 32, 16, 128), ids(2000, 1))),
    ),
    Row("Shape", ((_HIDDEN,), (_MAP,))),
    Row("Size", ((_HIDDEN,), (_MAP,))),
    Row("Slice", ((_HIDDEN, k(0), k(64), k(1)), (x(1, 64, 112, 112), k(0, 0), k(112, 112), k(2, 3), k(2, 2)))),
    Row("SpaceToDepth", ((x(1, 3, 224, 224),), (x(1, 64, 256, 256),)), {"blocksize": 2}),
    Row("Split", ((x(1, 128, 2304),), (x(1, 1024, 6144),)), {"axis": -1, "num_outputs": 3}, outputs=3),
    Row("Squeeze", ((x(1, 128, 768), k(0)), (x(1, 64, 112, 112), k(0)))),
    Row("Tile", ((x(1, 64, 64), k(8, 1, 1)), (x(1, 256, 32, 32), k(1, 1, 2, 2)))),
    Row("Transpose", ((x(1, 128, 12, 64),), (x(1, 512, 32, 128),)), {"perm": [0, 2, 1, 3]}),
    Row("Transpose", ((x(1, 3, 224, 224),), (x(1, 64, 112, 112),)), {"perm": [0, 2, 3, 1]}, note="channels last"),
    Row("Trilu", ((x(12, 128, 128),), (x(1, 1024, 1024),)), {"upper": 0}),
    Row("Unsqueeze", ((x(128, 768), k(0)), (x(64, 112, 112), k(0)))),
    Row(
        "Col2Im",
        ((x(1, 64 * 9, 196), k(14, 14), k(3, 3)), (x(1, 64 * 9, 3136), k(56, 56), k(3, 3))),
        {"pads": [1, 1, 1, 1]},
    ),
)

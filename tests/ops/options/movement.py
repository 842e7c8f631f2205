"""Operators that move, cut, join, repeat, gather and scatter."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from tests.ops.options.case import Case, cases, i64, scalar, x

_AXES = (0, 1, -1, -3)


def shapes() -> Iterator[Case]:
    a, empty = x(2, 3, 4), x(0, 3)
    yield from cases(
        "Reshape", [(a, i64(0, -1)), (a, i64(4, 6)), (a, i64(-1)), (x(1), i64()), (a, i64(2, 0, 2, 2))], known=[1]
    )
    yield from cases("Reshape", [(empty, i64(3, 0)), (empty, i64(0, 0))], known=[1], allowzero=(1,))
    yield from cases("Reshape", [(empty, i64(0, 3)), (empty, i64(0, 1, -1))], known=[1], allowzero=(None, 0))
    yield from cases("Flatten", [(a,), (empty,)], axis=(None, 0, 1, 2, -1, -2))
    yield from cases("Flatten", [(a,)], axis=(3, -3))
    yield from cases("Flatten", [(x(),)], axis=(0,))
    yield from cases(
        "Squeeze",
        [
            (x(1, 3, 1), None),
            (x(1, 3, 1), i64(0)),
            (x(1, 3, 1), i64(-1, 0)),
            (x(1, 0), i64(0)),
            (x(2, 3), None),
            (x(2, 3), i64()),
        ],
        known=[1],
    )
    yield from cases(
        "Unsqueeze",
        [(x(2, 3), i64(0)), (x(2, 3), i64(-1, 1)), (x(), i64(0)), (x(0), i64(-2)), (x(3), i64(2, 0))],
        known=[1],
    )
    yield from cases("Transpose", [(a,), (x(2, 0, 3),)], perm=(None, (0, 1, 2), (2, 0, 1), (1, 0, 2)))
    yield from cases("Transpose", [(x(2, 3, dtype=d),) for d in ("bool", "int8", "float16", "float64")])
    yield from cases("DepthToSpace", [(x(1, 8, 2, 3),), (x(2, 8, 0, 3),)], blocksize=(1, 2), mode=(None, "DCR", "CRD"))
    yield from cases("SpaceToDepth", [(x(1, 2, 4, 6),), (x(0, 2, 4, 6),)], blocksize=(1, 2))
    yield from cases("Shape", [(a,), (x(),), (empty,)], start=(None, 0, 1, -1, -9, 5), end=(None, 0, 2, -1, 9, -9))
    yield from cases("Size", [(a,), (x(),), (empty,)])
    yield from cases(
        "Expand",
        [(x(3, 1), i64(2, 3, 4)), (x(3), i64(1)), (x(), i64(2, 2)), (x(3, 1), i64(1, 0)), (x(2, 3), i64(2, 1))],
        known=[1],
    )
    yield from cases(
        "Tile",
        [(x(2, 3), i64(2, 1)), (x(2, 3), i64(0, 2)), (x(2, 3), i64(1, 1)), (x(3), i64(3)), (x(0, 2), i64(2, 2))],
        known=[1],
    )
    yield from cases(
        "ReverseSequence",
        [(x(4, 3, 2), i64(4, 2, 1)), (x(4, 3), i64(1, 1, 1))],
        time_axis=(None, 0),
        batch_axis=(None, 1),
    )
    yield from cases("ReverseSequence", [(x(3, 4, 2), i64(4, 2, 1))], time_axis=(1,), batch_axis=(0,))
    square = x(2, 3, 4)
    yield from cases(
        "Trilu",
        [
            (square, None),
            *((square, scalar(k, "int64")) for k in (0, 1, -1, 5, -5)),
            (x(0, 3), None),
            (x(3, 3, dtype="bool"), None),
            (x(3, 3, dtype="int64"), None),
        ],
        known=[1],
        upper=(None, 0, 1),
    )
    yield from cases("CenterCropPad", [(x(5, 4), i64(3, 7)), (x(4, 5), i64(7, 3)), (x(2, 3), i64(2, 3))], known=[1])
    yield from cases("CenterCropPad", [(x(5, 4, 3), i64(3, 6))], known=[1], axes=((0, 1), (2, 0), (-1, -3)))


def slices() -> Iterator[Case]:
    bounds = (0, 1, -1, 3, -3, 5, -6, 100, -100, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63) + 1)
    for step in (None, 1, 2, -1, -2, 5, -5):
        for start in bounds:
            pairs = [(x(5), i64(start), i64(end), i64(0), None if step is None else i64(step)) for end in bounds[::2]]
            yield from cases("Slice", pairs, known=[1, 2, 3, 4])
    yield from cases(
        "Slice",
        [
            (x(4, 5), i64(1, -9), i64(9, -99), i64(-1, 0), i64(2, -1)),
            (x(4, 5), i64(1, 0), i64(3, 4), None, None),
            (x(4, 5), i64(1), i64(3), None, i64(2)),
            (x(0, 5), i64(0), i64(9), i64(0), i64(1)),
            (x(0, 5), i64(-1), i64(-9), i64(0), i64(-1)),
            (x(1, 5), i64(-7), i64(-8), i64(0), i64(-3)),
            (x(4, 5), i64(2).astype(np.int32), i64(-1).astype(np.int32), i64(1).astype(np.int32), None),
        ],
        known=[1, 2, 3, 4],
    )
    for dtype in ("bool", "int8", "float16", "float64", "int64"):
        yield from cases("Slice", [(x(5, dtype=dtype), i64(-9), i64(-99), i64(0), i64(-2))], known=[1, 2, 3, 4])


def joins() -> Iterator[Case]:
    yield from cases("Concat", [(x(2, 3), x(2, 3, seed=1)), (x(2, 3),)], axis=(0, 1, -1, -2))
    yield from cases("Concat", [(x(2, 0), x(2, 3, seed=1), x(2, 1, seed=2))], axis=(1, -1))
    yield from cases("Split", [(x(6, 4), None)], outputs=2, axis=(None, 0, 1, -1), num_outputs=(2,))
    yield from cases("Split", [(x(7, 5), None)], outputs=3, axis=(0, -2), num_outputs=(3,))
    yield from cases("Split", [(x(6, 4), i64(1, 0, 5))], outputs=3, known=[1], axis=(None, 0, -2))
    yield from cases("Split", [(x(0, 4), i64(0, 0))], outputs=2, known=[1])
    data = x(2, 3, 4)
    pads = (i64(0, 1, 2, 1, 0, 1), i64(0, -1, 0, 0, 1, -2), i64(0, 0, 0, 0, 0, 0))
    for value in (None, scalar(1.5)):
        yield from cases("Pad", [(data, p, value) for p in pads], known=[1, 2], mode=(None, "constant"))
    yield from cases("Pad", [(data, p) for p in pads], known=[1], mode=("reflect", "edge", "wrap"))
    yield from cases(
        "Pad",
        [(data, i64(1, 2), None, i64(-1)), (data, i64(1, 2, 0, 1), None, i64(2, 0))],
        known=[1, 3],
        mode=("constant", "reflect", "edge", "wrap"),
    )
    yield from cases("Pad", [(x(0, 3), i64(1, 0, 1, 0))], known=[1], mode=("constant",))
    for dtype in ("int32", "int64", "uint8", "bool", "float64"):
        yield from cases("Pad", [(x(3, dtype=dtype), i64(1, 2), scalar(1, dtype))], known=[1, 2])


def gathers() -> Iterator[Case]:
    data = x(3, 4, 5)
    indices = (i64(0, 2), i64(-1, 0, -3), i64(1).reshape(()), i64(), i64(0, 1, 2, 0).reshape(2, 2).astype(np.int32))
    yield from cases("Gather", [(data, i) for i in indices], axis=(None, *_AXES))
    yield from cases("Gather", [(x(0, 3), i64())], axis=(0,))
    where = x(2, 2, 2, dtype="int64", low=-3, high=2)
    yield from cases(
        "GatherElements",
        [(data, where), (data, where.astype(np.int32)), (data, x(0, 2, 2, dtype="int64"))],
        axis=(None, *_AXES),
    )
    deep = np.array([[[0, 1], [-1, 2]], [[2, -4], [1, 0]]], np.int64)
    yield from cases(
        "GatherND",
        [(data, deep), (data, i64(1, 2)), (data, i64(2, 3, -1)), (data, i64(0, 2).reshape(2, 1))],
        batch_dims=(None, 0),
    )
    yield from cases(
        "GatherND",
        [(data, x(3, 2, dtype="int64", low=0, high=3)), (data, x(3, 2, 1, dtype="int64", low=-4, high=3))],
        batch_dims=(1,),
    )
    yield from cases("GatherND", [(data, x(3, 4, 1, dtype="int64", low=-5, high=4))], batch_dims=(2,))
    places = np.array([[0, 2, 1], [1, 0, 2]], np.int64)
    twice = np.array([[0, 0, -1], [-1, 0, 0]], np.int64)
    for kind in ("float32", "float64", "int32", "int64", "float16"):
        updates = x(2, 3, dtype=kind, seed=3)
        base = x(3, 4, dtype=kind)
        yield from cases("ScatterElements", [(base, places, updates)], axis=(None, 0, 1, -1), reduction=(None, "none"))
        yield from cases(
            "ScatterElements",
            [(base, i, updates) for i in (places, twice)],
            axis=(0, 1, -2),
            reduction=("add", "mul", "max", "min"),
        )
    yield from cases("ScatterElements", [(x(3, 4), x(0, 3, dtype="int64"), x(0, 3))])
    rows, same = i64(2, 0).reshape(2, 1), i64(1, -2).reshape(2, 1)
    for kind in ("float32", "float64", "int32", "int64", "float16"):
        updates = x(2, 4, dtype=kind, seed=3)
        yield from cases("ScatterND", [(x(3, 4, dtype=kind), rows, updates)], reduction=(None, "none"))
        yield from cases(
            "ScatterND",
            [(x(3, 4, dtype=kind), i, updates) for i in (rows, same)],
            reduction=("add", "mul", "max", "min"),
        )
    yield from cases(
        "ScatterND",
        [(x(3, 4), deep[..., :2][:, :, :].clip(-3, 2), x(2, 2)), (x(3, 4), x(0, 1, dtype="int64"), x(0, 4))],
        reduction=(None, "add"),
    )
    flags = np.array([True, False, True])
    yield from cases("Compress", [(x(3, 4), flags)], axis=(None, 0, 1, -1))
    yield from cases("Compress", [(x(3, 4), np.zeros(3, bool)), (x(3, 4), flags[:1])], axis=(None, 0, -2))
    yield from cases(
        "OneHot",
        [
            (i64(0, 2, -1, 5), scalar(4, "int64"), x(2)),
            (x(2, 2, dtype="float32", low=0, high=3).round(), scalar(3, "float32"), i64(0, 1)),
        ],
        axis=(None, 0, 1, -1),
        known=[1],
    )
    beyond = (i64(0, 1, -1), scalar(3, "int64"), np.array([np.nan, np.inf], np.float32))
    yield from cases("OneHot", [beyond], known=[1])
    yield from cases(
        "NonZero",
        [
            (x(3, 4, dtype="int64", low=0, high=1),),
            (x(5, dtype="bool"),),
            (x(0, 2),),
            (np.array([0.0, -0.0, np.nan, 2], np.float32),),
        ],
    )


def ordered() -> Iterator[Case]:
    data = np.array([[3, 1, 2, 3, -1], [2, 2, 1, 0, 5], [1, 9, 9, 4, 4]], np.float32)
    kinds = ("float32", "float64", "int32", "int64")
    yield from cases(
        "TopK",
        [(data.astype(d), i64(k)) for d in kinds for k in (0, 1, 3)],
        outputs=2,
        known=[1],
        axis=(None, 0, -1),
        largest=(None, 0, 1),
        sorted=(None, 1),
    )
    for dtype in (np.float32, np.int64):
        values = np.array([[2, 1], [0, 5], [2, 1], [-1, 3], [0, 5]], dtype)
        for axis in (None, 0, 1, -1, -2):
            for number in (1, 4):
                yield from cases("Unique", [(values,)], outputs=number, axis=(axis,), sorted=(None, 0, 1))
    words = np.array([["b", "a"], ["a", "c"], ["b", "a"]], object)
    yield from cases("Unique", [(words,)], outputs=4, axis=(None, 0, 1, -2), sorted=(None, 0))
    yield from cases(
        "Unique", [(np.array(["b", "a", "b"], object),), (x(7, dtype="int8"),)], outputs=4, sorted=(None, 0)
    )
    yield from cases("Unique", [(np.zeros(0, np.float32),)], outputs=4, sorted=(None, 0))
    grids = [(x(3, 4, 5).round(),), (x(2, 3, 2, dtype="int32", low=0, high=3),), (x(2, 3, 2, dtype="float64").round(),)]
    for op in ("ArgMax", "ArgMin"):
        yield from cases(op, grids, axis=(None, *_AXES), keepdims=(None, 0, 1), select_last_index=(None, 0, 1))


MOVEMENT = (*shapes(), *slices(), *joins(), *gathers(), *ordered())

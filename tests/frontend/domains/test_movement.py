"""What moves and picks elements in Microsoft's domain and among ONNX's old experiments, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.frontend.domains.one_node import Case, agree, agree_with

RNG = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def i64(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


@pytest.mark.parametrize(
    "case",
    [
        Case("SampleOp", (floats(3),)),
        Case("Trilu", (floats(2, 4, 5), np.array(1)), {"upper": 0}),
        Case("ExpandDims", (floats(2, 3), np.array(-1, np.int32)), constant=(1,)),
        Case("Pad", (floats(2, 3), i64(0, 1, 2, 0), np.array([7], np.float32)), constant=(1,)),
        Case("Pad", (floats(2, 3), i64(0, 1, 1, 0)), {"mode": "reflect"}, constant=(1,)),
        Case("GatherND", (floats(3, 4), np.array([[0, 1], [2, 3]], np.int32))),
        Case("UnfoldTensor", (floats(2, 9, 3),), {"dim": 1, "size": 3, "step": 2}),
        Case("GridSample", (floats(1, 2, 5, 4), floats(1, 3, 3, 2)), {"mode": "bicubic", "padding_mode": "border"}),
    ],
    ids=lambda case: case.op,
)
def test_movement(case: Case) -> None:
    agree(case)


def test_windows_of_any_length() -> None:
    def case(length: int) -> Case:
        return Case("UnfoldTensor", (floats(2, length),), {"size": 4, "step": 3})

    agree(case(11), case(4), case(16), free={0: {1: "length"}}, strict=False)


def test_ranges_and_unique_elements() -> None:
    """Sizes that data decide: not natively."""
    one = np.array([2], np.int64)
    agree(Case("Range", (one, one + 7, one)), Case("Range", (one, one + 9, one)), strict=False)
    agree(Case("Range", (np.array(1.5, np.float32), np.array(5, np.float32))), strict=False)
    agree(Case("Unique", (np.array([2, 1, 1, 3, 4, 3], np.float32),), outputs=3), strict=False)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_no_sequence_is_repeated(size: int) -> None:
    def case(length: int) -> Case:
        return Case("NGramRepeatBlock", (RNG.integers(0, 4, (3, length)), floats(3, 6)), {"ngram_size": size})

    agree(case(9), case(20), case(3), case(1), free={0: {1: "length"}}, strict=False)


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("crop", [(3, 4), (1, 5), (2, 1)])
def test_crop_and_resize(mode: str, crop: tuple[int, int]) -> None:
    boxes = np.array([[0, 0, 1, 1], [0.2, 0.1, 0.7, 0.9], [-0.3, 0.5, 1.2, 0.6], [0.9, 0.8, 0.1, 0.2]], np.float32)
    operands = (floats(2, 3, 6, 7), boxes, np.array([0, 1, 1, 0], np.int32), np.array(crop, np.int32))
    attributes: dict[str, Any] = {"mode": mode, "extrapolation_value": 0.25}
    agree(Case("CropAndResize", operands, attributes, constant=(3,)))


def test_embeddings() -> None:
    table, ids = floats(9, 4), np.array([[1, 8], [0, 3]])
    agree_with(Case("TorchEmbedding", (table, ids)), table[ids])


@pytest.mark.parametrize(
    "case",
    [
        Case("Affine", (floats(3, 4),), {"alpha": 2.0, "beta": 0.5}),
        Case("Scale", (floats(3, 4),), {"scale": 2.0}),
        Case("ParametricSoftplus", (floats(3, 4),), {"alpha": 2.0, "beta": 0.5}),
        Case("ScaledTanh", (floats(3, 4),), {"alpha": 2.0, "beta": 0.5}),
        Case("ImageScaler", (floats(2, 3, 4, 4),), {"scale": 2.0, "bias": [1.0, 2.0, 3.0]}),
        Case("Crop", (floats(1, 2, 8, 9),), {"border": [1, 2, 3, 0]}),
        Case("Crop", (floats(1, 2, 8, 9),), {"border": [1, 2, 3, 4], "scale": [3, 2]}),
        Case("DynamicSlice", (floats(5, 6), i64(1), i64(-1), i64(1)), constant=(1, 2, 3)),
    ],
    ids=lambda case: case.op,
)
def test_old_experiments(case: Case) -> None:
    agree(Case(case.op, case.operands, case.attributes, case.constant, domain="", opset=9))

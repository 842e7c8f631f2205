"""The table of operators: windows, weights and what has no streaming form, on small graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fusewise.accel.operators import AxisWindow, OperatorForm, form_of, image_of
from fusewise.ir.dtypes import FLOAT32
from fusewise.ir.graph import Constant, Graph, Node, attributes_of
from fusewise.ir.types import TensorType
from fusewise.ops.evaluate import evaluate

Shape = tuple[int, ...]


def form(op: str, inputs: list[Shape | np.ndarray | None], output: Shape, **attributes: Any) -> OperatorForm:
    """Arrays are constants, shapes activations, None is absent."""
    names = ["" if one is None else f"x{i}" for i, one in enumerate(inputs)]
    constants = {n: Constant(one) for n, one in zip(names, inputs, strict=True) if isinstance(one, np.ndarray)}
    types = {n: TensorType(FLOAT32, one) for n, one in zip(names, inputs, strict=True) if isinstance(one, tuple)}
    types |= {n: c.type for n, c in constants.items()} | {"y": TensorType(FLOAT32, output)}
    node = Node(op, tuple(names), ("y",), attributes_of(**attributes))
    free = tuple(n for n in names if n and n not in constants)
    return form_of(Graph(free, ("y",), (node,), types, constants), node)


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def test_images() -> None:
    kinds = {(1, 3, 8, 9): (3, 8, 9), (1, 5): (5, 1, 1), (1, 7, 16): (16, 7, 1), (2, 3, 8, 9): None, (8,): None}
    assert {shape: image_of(TensorType(FLOAT32, shape)) for shape in kinds} == kinds


def test_convolutions() -> None:
    plain = form("Conv", [(1, 8, 9, 9), zeros(16, 8, 3, 3), zeros(16)], (1, 16, 9, 9), pads=(1, 1, 1, 1))
    assert plain == OperatorForm(
        "conv", AxisWindow(1, 1, begin=1), AxisWindow(1, 1, begin=1), 16 * 72 + 16, 72, 72 * 16 * 81, filter_channels=8
    )
    flat = form("Conv", [(1, 8, 9, 9), zeros(16, 8, 1, 7)], (1, 16, 9, 9))
    assert (flat.rows.size, flat.columns.size, flat.columns.back) == (1, 7, 3)
    wide = form("Conv", [(1, 8, 65, 65), zeros(8, 8, 3, 3)], (1, 8, 65, 65), dilations=(24, 24))
    assert wide.rows.size == 49
    even = form("Conv", [(1, 8, 8, 8), zeros(8, 8, 2, 2)], (1, 8, 4, 4), strides=(2, 2))
    assert even.rows == AxisWindow(0, 1, (2, 1))
    apart = form("Conv", [(1, 8, 9, 9), zeros(8, 1, 3, 3)], (1, 8, 9, 9), group=8)
    assert (apart.kind, apart.weights, apart.filter_weights) == ("depthwise", 72, 9)
    grouped = form("Conv", [(1, 8, 9, 9), zeros(8, 2, 3, 3)], (1, 8, 9, 9), group=4)
    assert (grouped.kind, grouped.filter_weights) == ("conv", 18)


def test_transposed_convolution_reads_fewer_pixels() -> None:
    found = form("ConvTranspose", [(1, 8, 4, 4), zeros(8, 6, 4, 4)], (1, 6, 8, 8), strides=(2, 2))
    assert (found.kind, found.rows.size, found.rows.stride, found.macs) == ("conv", 2, (4, 8), 6 * 16 * 8 * 16)
    assert found.rows.ranges == tuple((-((3 - y) // 2), y // 2) for y in range(8))
    cut = form("ConvTranspose", [(1, 8, 4, 4), zeros(8, 6, 4, 4)], (1, 6, 8, 8), strides=(2, 2), pads=(1, 1, 1, 1))
    assert cut.rows.ranges == tuple((-((2 - y) // 2), (y + 1) // 2) for y in range(8))


def test_products_are_convolutions_of_one_pixel() -> None:
    gemm = form("Gemm", [(1, 20), zeros(10, 20), zeros(10)], (1, 10), transB=1)
    assert gemm == OperatorForm("conv", AxisWindow(), AxisWindow(), 210, 20, 200, filter_channels=20)
    assert form("MatMul", [(1, 7, 20), zeros(20, 10)], (1, 7, 10)).macs == 1400
    assert form("MatMul", [(1, 7, 20), (1, 20, 7)], (1, 7, 7)).reason == "the weights are not constant"


def test_pools() -> None:
    assert form("MaxPool", [(1, 8, 9, 9)], (1, 8, 4, 4), kernel_shape=(3, 3), strides=(2, 2)).kind == "pool"
    assert form("AveragePool", [(1, 8, 7, 7)], (1, 8, 1, 1), kernel_shape=(7, 7)).kind == "global_pool"
    assert form("GlobalAveragePool", [(1, 8, 7, 7)], (1, 8, 1, 1)).kind == "global_pool"
    assert form("ReduceMean", [(1, 8, 7, 7), np.array([-1, 2])], (1, 8, 1, 1)).kind == "global_pool"
    assert form("ReduceMean", [(1, 8, 7, 7), np.array([1])], (1, 1, 7, 7)).kind == "opaque"


def test_pointwise() -> None:
    assert form("Relu", [(1, 8, 7, 7)], (1, 8, 7, 7)).kind == "pointwise"
    assert form("Mul", [(1, 8, 7, 7), (1, 8, 1, 1)], (1, 8, 7, 7)).kind == "pointwise"
    assert form("Add", [(1, 8, 7, 7), zeros(8, 1, 1)], (1, 8, 7, 7)).weights == 8
    assert form("Mul", [(1, 8, 7, 7), np.array(2, np.float32)], (1, 8, 7, 7)).weights == 0
    assert form("Mul", [(1, 8, 7, 7), (1, 8, 7, 1)], (1, 8, 7, 7)).reason == "x1 is stretched along one axis"
    assert form("Concat", [(1, 8, 7, 7), (1, 4, 7, 7)], (1, 12, 7, 7), axis=1).kind == "pointwise"
    assert form("Concat", [(1, 8, 7, 7), (1, 8, 7, 7)], (1, 8, 14, 7), axis=2).kind == "opaque"
    assert form("LayerNormalization", [(1, 7, 16), zeros(16), zeros(16)], (1, 7, 16)).kind == "pointwise"
    assert form("Softmax", [(1, 8, 7, 7)], (1, 8, 7, 7)).kind == "opaque"


def test_reshapes() -> None:
    assert form("Flatten", [(1, 8, 1, 1)], (1, 8)).kind == "pointwise"
    assert form("Flatten", [(1, 8, 7, 7)], (1, 392)).kind == "flatten"
    assert form("Reshape", [(1, 8, 4, 4), np.array([1, 16, 2, 4])], (1, 16, 2, 4)).reason == "Reshape moves pixels"


@pytest.mark.parametrize("mode, back, ahead", [("nearest", 0.5, 0), ("linear", 1, 0.5)])
def test_resize(mode: str, back: float, ahead: float) -> None:
    """A row is read again for the rows of the result that follow, so it is looked back at though nothing lies between."""
    found = form("Resize", [(1, 8, 4, 4), None, zeros(4)], (1, 8, 8, 8), mode=mode)
    assert (found.kind, found.weights, found.rows.stride) == ("resize", 0, (4, 8))
    assert (found.rows.back, found.rows.ahead, found.rows.reads_two) == (back, ahead, mode == "linear")
    assert form("Resize", [(1, 8, 1, 1), None, zeros(4)], (1, 8, 8, 8), mode=mode).rows.ahead == 0
    assert form("Resize", [(1, 8, 4, 4), None, zeros(4)], (1, 8, 8, 8), mode="cubic").kind == "opaque"


COORDINATES = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric")


@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("sizes", [(4, 8), (5, 7), (9, 4), (1, 3), (6, 1), (17, 65)])
@pytest.mark.parametrize("mode", ["linear", "floor", "ceil", "round_prefer_floor", "round_prefer_ceil"])
def test_resize_reads_what_it_is_made_of(mode: str, sizes: tuple[int, int], coordinates: str) -> None:
    """A pixel of the result changes exactly with the pixels said to be read."""
    before, after = sizes
    chosen = {"mode": "linear"} if mode == "linear" else {"mode": "nearest", "nearest_mode": mode}
    attributes = attributes_of(coordinate_transformation_mode=coordinates, **chosen)
    node = Node("Resize", ("x", "", "", "sizes"), ("y",), attributes)
    ranges = form(
        "Resize",
        [(1, 1, before, before), None, None, np.array([1, 1, after, after])],
        (1, 1, after, after),
        coordinate_transformation_mode=coordinates,
        **chosen,
    ).rows.ranges
    for row in range(before):
        image = np.zeros((1, 1, before, before), np.float32)
        image[:, :, row] = 1
        (found,) = evaluate(node, {"x": image, "sizes": np.array([1, 1, after, after])}, 17)
        moved = np.abs(found[0, 0, :, 0]) > 1e-5
        assert moved.tolist() == [first <= row <= last for first, last in ranges]


def test_cutting_and_padding_shift() -> None:
    pads = np.array([0, 0, 1, 2, 0, 0, 3, 4])
    padded = form("Pad", [(1, 8, 4, 4), pads], (1, 8, 8, 10))
    assert padded == OperatorForm("pointwise", AxisWindow(1, -1, begin=1), AxisWindow(2, -2, begin=2))
    cut = [np.array([1, 0]), np.array([5, 5]), np.array([2, 3])]
    part = form("Slice", [(1, 8, 5, 5), *cut], (1, 8, 4, 5))
    assert part == OperatorForm("pointwise", AxisWindow(-1, 1, begin=-1), AxisWindow(0, 0))
    assert form("Slice", [(1, 8, 5, 5), *cut, np.array([2, 2])], (1, 8, 2, 3)).kind == "opaque"
    assert form("Slice", [(1, 8, 5, 5), np.array([4]), np.array([8]), np.array([1])], (1, 4, 5, 5)).kind == "opaque"


def test_what_has_no_form_says_why() -> None:
    assert form("Softplus", [(2, 8, 7, 7)], (2, 8, 7, 7)).reason == "x0 float32[2,8,7,7] is not one image"
    assert (
        form("Transpose", [(1, 8, 7, 7)], (1, 7, 7, 8), perm=(0, 2, 3, 1)).reason == "Transpose has no streaming form"
    )
    assert form("Conv", [(1, 8, 9, 9), (16, 8, 3, 3)], (1, 16, 9, 9)).kind == "opaque"

"""Types of outputs, and the errors for operands that do not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fusewise.errors import InvalidModel
from fusewise.ir.dtypes import FLOAT32, INT64
from fusewise.ir.graph import Node, attributes_of
from fusewise.ir.types import TensorType
from fusewise.ops.infer import infer_outputs

X = TensorType(FLOAT32, (2, 6))


def test_known_operands_give_static_shapes() -> None:
    node = Node("Reshape", ("x", "s"), ("y",))
    shape = TensorType(INT64, (2,))
    assert infer_outputs(node, (X, shape), (None, np.array([3, -1])), 23) == (TensorType(FLOAT32, (3, 4)),)
    (unknown,) = infer_outputs(node, (X, shape), (None, None), 23)
    assert isinstance(unknown, TensorType)
    assert not unknown.is_static


def test_value_names_do_not_matter() -> None:
    a = Node("Relu", ("p",), ("q",), name="one")
    assert infer_outputs(a, (X,), (None,), 23) == infer_outputs(Node("Relu", ("r",), ("s",)), (X,), (None,), 23)


@pytest.mark.parametrize("op", ["MeanVarianceNormalization", "GroupNormalization"])
def test_operators_that_onnx_infers_no_shape_for(op: str) -> None:
    channel = TensorType(FLOAT32, (6,))
    operands = (X, channel, channel) if op == "GroupNormalization" else (X,)
    names = ("x", "s", "b")[: len(operands)]
    attributes = attributes_of(num_groups=2) if op == "GroupNormalization" else attributes_of(axes=[1])
    found = infer_outputs(Node(op, names, ("y",), attributes), operands, (None,) * len(operands), 23)
    assert found == (X,)


def test_operands_that_do_not_fit_are_named() -> None:
    node = Node("MatMul", ("a", "b"), ("y",), name="product")
    with pytest.raises(InvalidModel, match="'product' \\(MatMul\\)"):
        infer_outputs(node, (X, TensorType(FLOAT32, (5, 2))), (None, None), 23)


def test_an_unknown_operator_is_named() -> None:
    with pytest.raises(InvalidModel, match="NoSuch does not exist in opset 23"):
        infer_outputs(Node("NoSuch", ("x",), ("y",)), (X,), (None,), 23)


@pytest.mark.parametrize(
    ("extent", "kernel", "attributes", "wanted"),
    [
        (4, 3, {"strides": [2], "auto_pad": "SAME_UPPER"}, 8),
        (4, 3, {"strides": [2], "auto_pad": "SAME_LOWER", "output_padding": [1]}, 8),
        (3, 2, {"strides": [3], "auto_pad": "SAME_UPPER"}, 8),
        (3, 2, {"strides": [3], "auto_pad": "SAME_UPPER", "output_padding": [1]}, 9),
        (4, 3, {"strides": [2], "output_padding": [1]}, 10),
        (4, 3, {"strides": [2], "output_shape": [11]}, 11),
    ],
)
def test_sizes_of_a_transposed_convolution(extent: int, kernel: int, attributes: dict[str, Any], wanted: int) -> None:
    types = (TensorType(FLOAT32, (1, 2, extent)), TensorType(FLOAT32, (2, 3, kernel)))
    node = Node("ConvTranspose", ("x", "w"), ("y",), attributes_of(**attributes))
    assert infer_outputs(node, types, (None, None), 22) == (TensorType(FLOAT32, (1, 3, wanted)),)


@pytest.mark.parametrize(
    ("window", "length", "onesided", "bins"),
    [(8, None, None, 5), (8, None, 0, 8), (7, None, 1, 4), (None, 6, None, 4), (8, 8, 1, 5)],
)
def test_bins_of_a_short_time_transform(
    window: int | None, length: int | None, onesided: int | None, bins: int
) -> None:
    size = length or window
    assert size is not None
    given = tuple(None if n is None else TensorType(FLOAT32, (n,)) for n in (window,))
    scalar = TensorType(INT64, ())
    types = (TensorType(FLOAT32, (2, 32, 1)), scalar, *given, scalar if length else None)
    constants = (None, np.array(4), None, None if length is None else np.array(length))
    names = ("x", "s", "w" if window else "", "n" if length else "")
    node = Node("STFT", names, ("y",), attributes_of(**({} if onesided is None else {"onesided": onesided})))
    wanted = TensorType(FLOAT32, (2, (32 - size) // 4 + 1, bins, 2))
    assert infer_outputs(node, types, constants, 17) == (wanted,)


@pytest.mark.parametrize(
    "attributes", [{"strides": [2], "dilations": [2]}, {"dilations": [3]}, {"strides": [4], "dilations": [4]}]
)
def test_a_window_that_does_not_fit_is_refused(attributes: dict[str, Any]) -> None:
    types = (TensorType(FLOAT32, (1, 1, 4)), TensorType(FLOAT32, (1, 1, 3)))
    with pytest.raises(InvalidModel, match="its window reaches over . elements"):
        infer_outputs(Node("Conv", ("x", "w"), ("y",), attributes_of(**attributes)), types, (None, None), 22)


def test_nothing_has_no_place_for_a_window() -> None:
    types = (TensorType(FLOAT32, (1, 1, 0, 4)), TensorType(FLOAT32, (3, 1, 1, 1)))
    node = Node("Conv", ("x", "w"), ("y",), attributes_of(strides=[2, 2]))
    assert infer_outputs(node, types, (None, None), 22) == (TensorType(FLOAT32, (1, 3, 0, 2)),)


def test_what_an_index_leaves_of_the_data() -> None:
    data, index = TensorType(FLOAT32, (3, 4, 5)), TensorType(INT64, (3,))
    assert infer_outputs(Node("GatherND", ("x", "i"), ("y",)), (data, index), (None, None), 13) == (
        TensorType(FLOAT32, ()),
    )
    node = Node("MaxUnpool", ("x", "i", "s"), ("y",), attributes_of(kernel_shape=[2, 2]))
    pooled, places, shape = TensorType(FLOAT32, (1, 1, 2, 2)), TensorType(INT64, (1, 1, 2, 2)), TensorType(INT64, (4,))
    found = infer_outputs(node, (pooled, places, shape), (None, None, np.array([1, 1, 5, 5])), 22)
    assert found == (TensorType(FLOAT32, (1, 1, 5, 5)),)


@pytest.mark.parametrize(
    "op, labels", [("TreeEnsembleClassifier", "classlabels_int64s"), ("LinearClassifier", "classlabels_ints")]
)
def test_labels_and_scores_of_classes(op: str, labels: str) -> None:
    node = Node(
        op, ("x",), ("label", "scores"), attributes_of(**{labels: (3, 4, 5), "coefficients": (1.0,) * 6}), "ai.onnx.ml"
    )
    if op.startswith("Tree"):
        node = node.with_attributes(coefficients=None)
    data = TensorType(FLOAT32, (7, 2))
    assert [str(kind) for kind in infer_outputs(node, (data,), (None,), 1)] == ["int64[7]", "float32[7,3]"]


@pytest.mark.parametrize(
    "data, places, expected",
    [
        ((7, 5), (2,), "float32[7,2]"),
        ((5,), (7,), "float32[1,7]"),
        ((5,), ("n",), "float32[1,n]"),
        ((3, 5), (1, "n"), "float32[3,n]"),
        ((3, 5), (2, "n"), "float32[3,?]"),
    ],
)
def test_features_that_are_picked(data: tuple[int, ...], places: tuple[Any, ...], expected: str) -> None:
    node = Node("ArrayFeatureExtractor", ("x", "i"), ("y",), (), "ai.onnx.ml")
    (found,) = infer_outputs(node, (TensorType(FLOAT32, data), TensorType(INT64, places)), (None, None), 1)
    assert str(found) == expected


@pytest.mark.parametrize("op, targets", [("TreeEnsembleRegressor", "n_targets"), ("SVMRegressor", "targets")])
def test_numbers_for_each_row(op: str, targets: str) -> None:
    """The first version of the operators has no inference of ONNX's."""
    settings = {targets: 2} if op.startswith("Tree") else {"coefficients": (1.0, 1.0)}
    (found,) = infer_outputs(
        Node(op, ("x",), ("y",), attributes_of(**settings), "ai.onnx.ml"), (TensorType(FLOAT32, (7, 3)),), (None,), 1
    )
    assert str(found) == ("float32[7,2]" if op.startswith("Tree") else "float32[7,1]")

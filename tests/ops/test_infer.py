"""Types of outputs, and the errors for operands that do not fit."""

from __future__ import annotations

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

"""The builder: names, types, constants, errors."""

from __future__ import annotations

import numpy as np
import pytest

from fusewise.errors import InvalidModel
from fusewise.ir.dtypes import FLOAT32, INT64
from fusewise.ir.types import TensorType
from fusewise.ops.build import GraphBuilder


def test_a_small_network() -> None:
    b = GraphBuilder("tiny")
    x = b.input("x", (1, 8))
    w = b.constant(np.ones((8, 3), np.float32), "weight")
    y = b.op("Relu", b.op("MatMul", x, w))
    graph = b.finish(y)
    assert graph.inputs == ("x",)
    assert [node.op for node in graph.nodes] == ["MatMul", "Relu"]
    assert graph.types[y] == TensorType(FLOAT32, (1, 3))
    assert graph.producer_of(y) is graph.nodes[1]
    assert [node.origin for node in graph.nodes] == [(node.name,) for node in graph.nodes]


def test_several_outputs_and_absent_operands() -> None:
    b = GraphBuilder()
    x = b.input("x", (4, 2))
    first, second = b.op("Split", x, outputs=2, num_outputs=2)
    assert b.shape(first) == b.shape(second) == (2, 2)
    b.op("Clip", first, None, b.constant(np.float32(1)))
    assert b.nodes[-1].inputs[1] == ""


def test_names_are_never_given_twice() -> None:
    b = GraphBuilder()
    x = b.input("relu", (2,))
    for _ in range(3):
        x = b.op("Relu", x)
    names = [node.name for node in b.nodes]
    assert len(set(names) | {"relu"}) == 4


def test_python_numbers() -> None:
    b = GraphBuilder()
    assert b.types[b.constant([1, 2])] == TensorType(INT64, (2,))
    assert b.types[b.constant([1.5])] == TensorType(FLOAT32, (1,))


def test_wrong_shapes_are_refused() -> None:
    b = GraphBuilder()
    with pytest.raises(InvalidModel, match="MatMul"):
        b.op("MatMul", b.input("x", (2, 3)), b.input("y", (4, 5)))

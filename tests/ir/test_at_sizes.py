"""A graph with numbers for its symbols."""

from __future__ import annotations

import numpy as np
import pytest

from fusewise.ir.at_sizes import at_sizes
from fusewise.ir.dtypes import FLOAT32, INT64
from fusewise.ir.graph import Constant, Graph, Node, SizesConstant, attributes_of
from fusewise.ir.size import Symbol, size_of
from fusewise.ir.types import TensorType
from fusewise.ir.verify import verify

N, M = Symbol("n"), Symbol("m", 1, 8)


def _graph() -> Graph:
    n, m = size_of(N), size_of(M)
    target = np.array([n * m, 3], dtype=object)
    return Graph(
        inputs=("x", "z"),
        outputs=("y",),
        nodes=(Node("Reshape", ("x", "t"), ("y",), attributes_of(sizes=(n, 2))),),
        types={
            "x": TensorType(FLOAT32, (n, m, 3)),
            "z": TensorType(FLOAT32, (m,)),
            "t": TensorType(INT64, (2,)),
            "y": TensorType(FLOAT32, (n * m, 3)),
        },
        constants={"t": SizesConstant(target)},
    )


def test_sizes_become_numbers_everywhere() -> None:
    graph = _graph()
    verify(graph)
    assert graph.symbols == (N, M)
    assert graph.types["y"].is_static and not graph.types["y"].is_fixed
    found = at_sizes(graph, {"n": 4, "m": 5})
    verify(found)
    assert found.types["x"] == TensorType(FLOAT32, (4, 5, 3)) and found.types["y"] == TensorType(FLOAT32, (20, 3))
    assert found.constants["t"] == Constant(np.array([20, 3], np.int64))
    assert found.nodes[0].attribute("sizes") == (4, 2)
    assert not found.symbols
    with pytest.raises(KeyError):
        at_sizes(graph, {"n": 4})


def test_constants_of_sizes_are_told_apart_by_them() -> None:
    n, m = size_of(N), size_of(M)
    one, other = (SizesConstant(np.array([size, 1], dtype=object)) for size in (n, m))
    assert one == SizesConstant(np.array([n, 1], dtype=object)) and one != other
    assert one != Constant(np.array([4, 1]))
    assert str(one.type) == "int64[2]" and hash(one) != hash(other)

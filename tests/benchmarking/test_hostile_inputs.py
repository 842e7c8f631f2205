"""Hostile inputs: each set has what its name says, and what is an index, a size or a divisor stays valid."""

from __future__ import annotations

import numpy as np
import pytest

from fusewise.benchmarking.hostile_inputs import EMPTY, ODD, ORDINARY, free_shapes, hostile_feeds
from fusewise.benchmarking.inputs import random_feeds
from fusewise.ir.dtypes import BFLOAT16, BOOL, FLOAT16, FLOAT32, INT8, INT32, INT64, UINT8
from fusewise.ir.graph import Graph
from fusewise.ops.build import GraphBuilder


def of(dtype, shape=(8, 40)) -> dict[str, np.ndarray]:
    b = GraphBuilder()
    x = b.input("x", shape, dtype)
    return {name: feeds["x"] for name, feeds in hostile_feeds(b.finish(b.op("Identity", x))).items()}


@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT16, BFLOAT16])
@pytest.mark.parametrize("shape", [(), (1,), (8, 40)])
def test_floats_get_zeros_denormals_infinities_and_nan(dtype, shape):
    sets = {name: array.astype(np.float64) for name, array in of(dtype, shape).items()}
    assert list(sets) == [ORDINARY, "zeros", "signed zeros and denormals", "infinities", "NaN"]
    assert not sets["zeros"].any()
    assert np.isinf(sets["infinities"]).any() and not np.isnan(sets["infinities"]).any()
    assert np.isnan(sets["NaN"]).any()
    if shape == (8, 40):
        small = sets["signed zeros and denormals"]
        tiny = float(np.finfo(np.float32 if dtype != FLOAT16 else np.float16).smallest_normal)
        assert ((small != 0) & (np.abs(small) < tiny)).any()
        assert np.signbit(small[small == 0]).any() and not np.signbit(small[small == 0]).all()
        assert np.isfinite(sets["NaN"]).mean() > 0.9, "most elements stay ordinary"


@pytest.mark.parametrize("dtype", [INT8, UINT8, INT32, INT64])
def test_integers_get_the_ends_of_their_type(dtype):
    found = of(dtype)["integer extremes"]
    limits = np.iinfo(dtype.numpy)
    assert found.dtype == dtype.numpy
    assert (found.min(), found.max()) == (limits.min, limits.max)


def test_truth_values_become_false():
    sets = of(BOOL)
    assert list(sets) == [ORDINARY, "zeros"] and not sets["zeros"].any()


def test_the_ordinary_set_is_that_of_random_inputs():
    b = GraphBuilder()
    graph = b.finish(b.op("Relu", b.input("x", (2, 3))))
    np.testing.assert_array_equal(hostile_feeds(graph, 3)[ORDINARY]["x"], random_feeds(graph, 3)["x"])


def test_an_index_stays_inside_its_table():
    b = GraphBuilder()
    ids = b.input("ids", (50,), INT64)
    found = b.op("Gather", b.constant(np.ones((37, 4), np.float32)), b.op("Cast", ids, to=INT32.onnx))
    for name, feeds in hostile_feeds(b.finish(found)).items():
        assert feeds["ids"].min() >= 0 and feeds["ids"].max() < 37, name
    assert hostile_feeds(b.finish(found))["integer extremes"]["ids"].max() == 36


def sized(op: str) -> Graph:
    """A graph whose integer input `n` decides a shape, a place or a quotient, after some arithmetic."""
    b = GraphBuilder()
    x = b.input("x", (4,))
    n = b.input("n", (1,), INT64)
    m = b.op("Add", n, b.constant([1]))
    whole = b.constant([7, 9, 11, 13])
    return b.finish(
        {
            "Expand": lambda: b.op("Expand", x, b.op("Concat", m, b.constant([4]), axis=0)),
            "TopK": lambda: b.op("TopK", x, m, outputs=2)[0],
            "Gather": lambda: b.op("Gather", x, b.op("Mul", m, b.constant([1]))),
            "Div": lambda: b.op("Div", whole, m),
            "Mod": lambda: b.op("Mod", whole, m),
            "Slice": lambda: b.op("Slice", x, b.constant([0]), m),
        }[op]()
    )


@pytest.mark.parametrize("op", ["Expand", "TopK", "Gather", "Div", "Mod", "Slice"])
def test_what_decides_a_shape_a_place_or_a_quotient_stays_ordinary(op):
    graph = sized(op)
    sets = hostile_feeds(graph)
    assert "integer extremes" not in sets
    for feeds in sets.values():
        np.testing.assert_array_equal(feeds["n"], random_feeds(graph)["n"])
    assert np.isnan(sets["NaN"]["x"]).any() if op not in ("Div", "Mod") else sets


def test_free_dimensions_become_empty_and_odd():
    b = GraphBuilder()
    x, y = b.input("x", ("n", 4)), b.input("y", ("n", None))
    fixed = b.input("z", (2, 2))
    graph = Graph((x, y, fixed), (), (), b.types, {})
    assert free_shapes(graph, {}, {}) == {
        EMPTY: {"x": (0, 4), "y": (0, 0)},
        ODD: {"x": (3, 4), "y": (3, 5)},
    }
    assert free_shapes(graph, {}, {"n": 6}) == {EMPTY: {"x": (6, 4), "y": (6, 0)}, ODD: {"x": (6, 4), "y": (6, 3)}}
    assert free_shapes(graph, {"x": (2, 4)}, {})[ODD] == {"x": (2, 4), "y": (2, 3)}
    assert free_shapes(graph, {"x": (2, 4), "y": (2, 2)}, {}) == {}

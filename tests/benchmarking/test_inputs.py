"""Random inputs: seeded, and integers within what the graph does with them."""

from __future__ import annotations

import numpy as np
import pytest

from fusewise.benchmarking.inputs import index_bound, random_feeds
from fusewise.errors import UsageError
from fusewise.ir.dtypes import BOOL, FLOAT16, INT32, INT64, STRING, UINT8
from fusewise.ir.graph import Graph
from fusewise.ir.types import SequenceType, TensorType
from fusewise.ops.build import GraphBuilder


def embedding() -> Graph:
    """Token ids through a Cast and a Reshape into a table of 37 rows, and a mask that is only multiplied."""
    b = GraphBuilder("embedding")
    ids = b.input("ids", (2, 8), INT32)
    mask = b.input("mask", (2, 8), INT64)
    table = b.constant(np.ones((37, 4), np.float32))
    flat = b.op("Reshape", b.op("Cast", ids, to=INT64.onnx), b.constant([16]))
    found = b.op("Gather", table, flat)
    return b.finish(found, b.op("Mul", mask, mask))


def test_token_ids_stay_inside_their_table():
    graph = embedding()
    assert index_bound(graph, "ids") == 37
    feeds = random_feeds(graph)
    assert feeds["ids"].dtype == np.int32 and feeds["ids"].shape == (2, 8)
    assert feeds["ids"].min() >= 0 and 1 < feeds["ids"].max() < 37


def test_a_mask_is_zero_or_one():
    graph = embedding()
    assert index_bound(graph, "mask") is None
    assert set(np.unique(random_feeds(graph)["mask"])) <= {0, 1}


def test_the_smallest_of_several_tables_counts():
    b = GraphBuilder()
    ids = b.input("ids", (4,), INT64)
    wide, narrow = (b.op("Gather", b.constant(np.ones((n, 2), np.float32)), ids) for n in (50, 5))
    assert index_bound(b.finish(wide, narrow), "ids") == 5


def test_gather_looks_at_its_axis_and_onehot_at_its_depth():
    b = GraphBuilder()
    ids = b.input("ids", (4,), INT64)
    hot = b.input("hot", (4,), INT64)
    across = b.op("Gather", b.constant(np.ones((3, 9), np.float32)), ids, axis=1)
    one = b.op("OneHot", hot, b.constant(np.array(6)), b.constant(np.array([0.0, 1.0], np.float32)))
    graph = b.finish(across, one)
    assert (index_bound(graph, "ids"), index_bound(graph, "hot")) == (9, 6)


def test_what_is_scattered_compared_and_turned_stays_inside_too():
    b = GraphBuilder()
    data, scores = b.input("data", (3, 9)), b.input("scores", (4, 7))
    places, classes, turns = (
        b.input("places", (2, 2), INT64),
        b.input("classes", (4,), INT64),
        b.input("turns", (1, 2), INT64),
    )
    scattered = b.op("ScatterND", data, places, b.constant(np.ones(2, np.float32)))
    loss = b.op("NegativeLogLikelihoodLoss", scores, classes)
    table = b.constant(np.ones((5, 2), np.float32))
    turned = b.op("RotaryEmbedding", b.input("x", (1, 1, 2, 4)), table, table, turns)
    graph = b.finish(scattered, loss, turned)
    assert [index_bound(graph, name) for name in ("places", "classes", "turns", "data", "scores")] == [
        3,
        7,
        5,
        None,
        None,
    ]


def test_values_depend_on_the_seed_and_the_name_only():
    graph = embedding()
    first, again, other = random_feeds(graph, 1), random_feeds(graph, 1), random_feeds(graph, 2)
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert not np.array_equal(first["ids"], other["ids"])


@pytest.mark.parametrize("dtype", [FLOAT16, BOOL, UINT8, STRING, INT64])
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
def test_every_type_and_shape(dtype, shape):
    b = GraphBuilder()
    b.input("x", shape, dtype)
    value = random_feeds(b.finish())["x"]
    assert isinstance(value, np.ndarray) and value.shape == shape and value.dtype == dtype.numpy


def test_a_sequence_is_a_list_and_an_open_shape_is_refused():
    kind = TensorType(FLOAT16, (2,))
    sequence = Graph(("s",), (), (), {"s": SequenceType(kind)})
    assert [item.shape for item in random_feeds(sequence)["s"]] == [(2,), (2,)]
    with pytest.raises(UsageError, match="--shape x="):
        random_feeds(Graph(("x",), (), (), {"x": TensorType(FLOAT16, ("n", 2))}))

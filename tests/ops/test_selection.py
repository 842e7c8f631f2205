"""TopK and ScatterND, as host steps run them, against ONNX's own evaluator and ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx.reference.ops.op_scatternd import _scatter_nd_impl
from onnx.reference.ops.op_topk import topk_sorted_implementation

from fusewise.ir.graph import Node, attributes_of
from fusewise.ops.evaluate import evaluate
from fusewise.ops.selection import scatter, top

OPSET = 21


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    shape=st.lists(st.integers(0, 40), min_size=1, max_size=3).map(tuple),
    axis=st.integers(-3, 2),
    share=st.floats(0, 1),
    largest=st.booleans(),
    kind=st.sampled_from((np.float32, np.float64, np.int8, np.uint8, np.int64)),
    strange=st.booleans(),
)
def test_top(
    seed: int, shape: tuple[int, ...], axis: int, share: float, largest: bool, kind: type, strange: bool
) -> None:
    rng = np.random.default_rng(seed)
    axis %= len(shape)
    data = rng.integers(0, 9, shape).astype(kind)  # few different values, so that equal ones occur
    if strange and np.issubdtype(kind, np.floating):
        data[rng.random(shape) < 0.2] = np.nan
        data[rng.random(shape) < 0.2] = -0.0
        data[rng.random(shape) < 0.1] = np.inf
    count = int(share * shape[axis])
    values, where = top(data, count, axis, largest)
    expected, places = topk_sorted_implementation(data, count, axis, largest)
    assert values.dtype == data.dtype
    assert where.dtype == np.int64
    np.testing.assert_array_equal(where, places)
    np.testing.assert_array_equal(values, expected)


@pytest.mark.parametrize("largest", [0, 1])
def test_few_of_many(largest: int) -> None:
    data = np.random.default_rng(largest).integers(0, 500, (2, 5000)).astype(np.float32)
    node = Node("TopK", ("x", "k"), ("v", "i"), attributes_of(largest=largest, axis=1))
    values, where = evaluate(node, {"x": data, "k": np.array([40])}, OPSET)
    order = np.argsort(-data if largest else data, axis=1, kind="stable")[:, :40]
    np.testing.assert_array_equal(where, order)
    np.testing.assert_array_equal(values, np.take_along_axis(data, order, 1))


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    shape=st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple),
    prefix=st.lists(st.integers(0, 4), min_size=1, max_size=2).map(tuple),
    depth=st.integers(1, 3),
    negative=st.booleans(),
    inside=st.booleans(),
)
def test_scatter(
    seed: int, shape: tuple[int, ...], prefix: tuple[int, ...], depth: int, negative: bool, inside: bool
) -> None:
    rng = np.random.default_rng(seed)
    depth = min(depth, len(shape))
    data = rng.standard_normal(shape, dtype=np.float32)
    indices = np.stack([rng.integers(-n if negative else 0, n, prefix) for n in shape[:depth]], axis=-1)
    updates = rng.standard_normal((*prefix, *shape[depth:]), dtype=np.float32)
    expected = _scatter_nd_impl(data, indices, updates)
    kept = data.copy()
    into = data if inside else np.empty_like(data)
    assert scatter(data, indices, updates, into)
    np.testing.assert_array_equal(into, expected)
    if not inside:
        np.testing.assert_array_equal(data, kept)
    node = Node("ScatterND", ("x", "i", "u"), ("y",))
    np.testing.assert_array_equal(evaluate(node, {"x": kept, "i": indices, "u": updates}, OPSET)[0], expected)


def test_updates_that_lie_in_the_same_memory() -> None:
    data = np.arange(6, dtype=np.float32)
    assert scatter(data, np.array([[0], [1], [2]]), data[1:4], data)
    assert data.tolist() == [1, 2, 3, 3, 4, 5]


def test_what_does_not_fit_is_left_alone() -> None:
    data, indices = np.zeros((3, 2), np.float32), np.array([[1]])
    for updates, into in (
        (np.ones((1, 1), np.float32), np.empty((3, 2), np.float32)),
        (np.ones((1, 2), np.float32), np.empty((2, 2), np.float32)),
        (np.ones((1, 2), np.float32), np.empty((3, 2), np.float64)),
    ):
        before = into.copy()
        assert not scatter(data, indices, updates, into)
        np.testing.assert_array_equal(into, before)
    node = Node("ScatterND", ("x", "i", "u"), ("y",), attributes_of(reduction="add"))
    found = evaluate(node, {"x": data, "i": np.array([[1], [1]]), "u": np.ones((2, 2), np.float32)}, OPSET)[0]
    assert found.tolist() == [[0, 0], [2, 2], [0, 0]]

"""Values without elements: anywhere in a graph, through every planner, and reductions over nothing."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fusewise import api
from fusewise.errors import FusewiseError
from fusewise.ir.dtypes import dtype_named
from fusewise.ir.graph import Graph
from fusewise.ops.build import GraphBuilder
from fusewise.ops.spec import Sample
from fusewise.ops.table import OPERATORS

WAYS: tuple[dict[str, Any], ...] = ({}, {"fusion": "patterns"}, {"fusion": "none", "passes": False})
REPEATABLE = [row for row in OPERATORS if not row.domain and row.samples and "Random" not in row.name]


def answers(graph: Graph, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """What all ways to compile agree on."""
    found = [api.compile(graph, cache=False, **way).run(None, feeds) for way in WAYS]
    for other in found[1:]:
        for one, two in zip(found[0], other, strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-5, atol=1e-6)
    assert [array.shape for array in found[0]] == [graph.tensor(value).dims for value in graph.outputs]
    return list(found[0])


def emptied(sample: Sample, operand: int, axis: int) -> Sample:
    """The sample with one axis of an operand empty, and that of others which has its size and its distance from the end."""
    size, behind = sample.inputs[operand][1][axis], axis - len(sample.inputs[operand][1])  # type: ignore[index]
    operands: list[Any] = []
    for k, given_ in enumerate(sample.inputs):
        if not isinstance(given_, tuple):
            operands.append(given_)
            continue
        dims = list(given_[1])
        if k == operand or (size != 1 and len(dims) >= -behind and dims[behind] == size):
            dims[behind] = 0
        operands.append((given_[0], tuple(dims)))
    return Sample(tuple(operands), sample.attributes, sample.outputs, sample.low, sample.high)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_operator_on_nothing(data: st.DataObject) -> None:
    row = data.draw(st.sampled_from(REPEATABLE), label="operator")
    sample = data.draw(st.sampled_from(row.samples))
    sized = [k for k, operand in enumerate(sample.inputs) if isinstance(operand, tuple) and operand[1]]
    assume(sized)
    operand = data.draw(st.sampled_from(sized), label="operand")
    axis = data.draw(st.integers(0, len(sample.inputs[operand][1]) - 1), label="axis")  # type: ignore[index]
    sample = emptied(sample, operand, axis)
    b, rng, feeds, names = GraphBuilder(), np.random.default_rng(0), {}, list[str | None]()
    for k, value in enumerate(sample.inputs):
        if value is None:
            names.append(None)
        elif isinstance(value, np.ndarray):
            names.append(b.constant(value))
        else:
            dtype = dtype_named(value[0])
            names.append(b.input(f"x{k}", value[1], dtype))
            feeds[f"x{k}"] = rng.uniform(sample.low, sample.high, value[1]).astype(dtype.numpy)
    try:
        made = b.op(row.name, *names, outputs=sample.outputs, **sample.attributes)
        outputs = (made,) if isinstance(made, str) else made
        graph = b.finish(*outputs)
        assume(all(graph.tensor(value).is_static for value in outputs))
        api.compile(graph, cache=False, passes=False)
    except FusewiseError:
        assume(False)
    with suppress(FusewiseError):  # what the data decide, such as the extreme of nothing
        answers(graph, feeds)


IDENTITIES = {"Sum": 0, "Prod": 1, "Max": -np.inf, "Min": np.inf, "L1": 0, "L2": 0, "SumSquare": 0, "LogSum": -np.inf}


@pytest.mark.parametrize("op", IDENTITIES)
def test_reductions_over_nothing_give_the_identity(op: str) -> None:
    b = GraphBuilder()
    graph = b.finish(b.op(f"Reduce{op}", b.input("x", (3, 0)), b.constant([1]), keepdims=0))
    (found,) = answers(graph, {"x": np.zeros((3, 0), np.float32)})
    np.testing.assert_array_equal(found, np.full(3, IDENTITIES[op], np.float32))


def test_products_of_no_depth_are_zero() -> None:
    b = GraphBuilder()
    x, w, c = b.input("x", (3, 0)), b.input("w", (0, 5)), b.input("c", (3, 5))
    graph = b.finish(b.op("MatMul", x, w), b.op("Gemm", x, w, c, beta=0.25))
    ones = np.ones((3, 5), np.float32)
    product, added = answers(graph, {"x": np.zeros((3, 0), np.float32), "w": np.zeros((0, 5), np.float32), "c": ones})
    assert not product.any()
    np.testing.assert_array_equal(added, ones / 4)


def test_an_empty_batch_through_a_group_that_transposes() -> None:
    b = GraphBuilder()
    x = b.input("x", (0, 4, 6))
    h = b.op("Add", b.op("MatMul", x, b.constant(np.ones((6, 8), np.float32))), b.constant(np.ones(8, np.float32)))
    t = b.op("Transpose", b.op("Reshape", h, b.constant([0, 4, 2, 4])), perm=[0, 2, 1, 3])
    joined = b.op("Concat", b.op("Relu", t), t, axis=1)
    first, second = b.op("Split", joined, outputs=2, axis=1, num_outputs=2)
    graph = b.finish(h, b.op("Softmax", first), b.op("LayerNormalization", second, b.constant(np.ones(4, np.float32))))
    feeds = {"x": np.zeros((0, 4, 6), np.float32)}
    assert [array.size for array in answers(graph, feeds)] == [0, 0, 0]
    better = api.optimize(graph)
    assert [better.tensor(value).dims for value in better.outputs] == [
        graph.tensor(value).dims for value in graph.outputs
    ]
    assert not better.nodes, "nothing is to be computed"


def test_parts_of_nothing_beside_something() -> None:
    b = GraphBuilder()
    x, none = b.input("x", (2, 3)), b.input("none", (2, 0))
    first, rest = b.op("Split", b.op("Concat", none, x, none, axis=1), b.constant([0, 3]), outputs=2, axis=1)
    graph = b.finish(b.op("Exp", first), b.op("Relu", rest), b.op("Concat", none, none, axis=0))
    data = np.ones((2, 3), np.float32)
    empty, same, both = answers(graph, {"x": data, "none": np.zeros((2, 0), np.float32)})
    assert empty.shape == (2, 0) and both.shape == (4, 0)
    np.testing.assert_array_equal(same, data)

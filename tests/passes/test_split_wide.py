"""Sums of very many operands, a few at a time."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest

from fusewise import api
from fusewise.ir.dtypes import FLOAT16, FLOAT32, DType
from fusewise.ops.build import GraphBuilder
from fusewise.passes.split_wide import MOST_OPERANDS, split_wide
from fusewise.trace import Trace

STEPS = {"Sum": np.add, "Max": np.maximum, "Min": np.minimum, "Mean": np.add}


@pytest.mark.parametrize("op", STEPS)
@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT16], ids=str)
@pytest.mark.parametrize("count", [33, 100])
def test_many_operands_come_from_the_left(op: str, dtype: DType, count: int) -> None:
    b = GraphBuilder()
    shapes = [(3, 1), (1, 5), (5,)]
    operands = [b.input(f"x{k}", shapes[k % 3], dtype) for k in range(count)]
    graph = b.finish(b.op(op, *operands))
    apart = split_wide(graph, Trace())
    assert max(len(node.inputs) for node in apart.nodes) <= MOST_OPERANDS
    assert apart.outputs == graph.outputs and apart.types[apart.outputs[0]] == graph.types[graph.outputs[0]]
    feeds = {
        name: np.random.default_rng(k).standard_normal(shapes[k % 3]).astype(dtype.numpy)
        for k, name in enumerate(operands)
    }
    wide = [array.astype(np.float32) for array in feeds.values()]
    expected = reduce(STEPS[op], wide)
    expected = (expected / np.float32(count) if op == "Mean" else expected).astype(dtype.numpy)
    for options in ({}, {"passes": False, "fusion": "none"}, {"fusion": "patterns", "exact": True}):
        (found,) = api.compile(graph, cache=False, **options).run(None, feeds)
        np.testing.assert_array_equal(found, expected)


def test_few_operands_stay_as_they_are() -> None:
    b = GraphBuilder()
    graph = b.finish(b.op("Sum", *(b.input(f"x{k}", (2,)) for k in range(MOST_OPERANDS))))
    assert split_wide(graph, Trace()) is graph

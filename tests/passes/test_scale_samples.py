"""What several GridSamples read is scaled before it is joined: the same answers, and fewer steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fusewise
from fusewise.ir.graph import Graph
from fusewise.ops.build import GraphBuilder
from fusewise.ops.evaluate import evaluate
from fusewise.passes.scale_samples import scale_samples
from fusewise.trace import Trace

HEADS, CHANNELS, QUERIES, POINTS = 4, 16, 9, 3


def attention(factor: tuple[int, ...], first: bool = True, flat: bool = True, twice: bool = False) -> Graph:
    """Two maps read at points, joined, weighed by `factor`, which comes first or second, and added up."""
    b = GraphBuilder("deformable")
    read = []
    for k, side in enumerate((8, 5)):
        image, grid = b.input(f"x{k}", (HEADS, CHANNELS, side, side)), b.input(f"g{k}", (HEADS, QUERIES, POINTS, 2))
        read.append(b.op("Unsqueeze", b.op("GridSample", image, grid, mode="linear"), b.constant(np.array([-2]))))
    joined = b.op("Concat", *read, axis=-2)
    if flat:
        joined = b.op("Reshape", joined, b.constant(np.array([HEADS, CHANNELS, QUERIES, 2 * POINTS])))
    weights = b.input("w", factor)
    y = b.op("Mul", *((weights, joined) if first else (joined, weights)))
    found = b.op("ReduceSum", y, b.constant(np.array([-1] if flat else [-2, -1])), keepdims=0)
    return b.finish(found, *([joined] if twice else []))


def feeds_of(graph: Graph) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {name: rng.uniform(-1, 1, graph.tensor(name).dims).astype(np.float32) for name in graph.inputs}


def by_evaluator(graph: Graph, feeds: dict[str, np.ndarray]) -> list[Any]:
    known = feeds | {name: constant.array for name, constant in graph.constants.items()}
    for node in graph.nodes:
        known |= dict(zip(node.outputs, evaluate(node, known, graph.opset), strict=True))
    return [known[name] for name in graph.outputs]


FLAT, APART = (HEADS, 1, QUERIES, 2 * POINTS), (HEADS, 1, QUERIES, 2, POINTS)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(
    "factor, flat", [(FLAT, True), ((1, 1, 1, 1), True), (APART, False), ((1, 1, 1, 1, POINTS), False)]
)
def test_each_part_is_scaled_by_itself(factor: tuple[int, ...], flat: bool, first: bool) -> None:
    graph = attention(factor, first, flat)
    after = scale_samples(graph, Trace())
    assert [node.op for node in after.nodes].count("Mul") == 2
    assert scale_samples(after, Trace()) is after
    feeds = feeds_of(graph)
    expected = by_evaluator(graph, feeds)
    np.testing.assert_allclose(by_evaluator(after, feeds)[0], expected[0], rtol=1e-5, atol=1e-5)
    compiled = fusewise.compile(graph, threads=1, strict=True, cache=False)
    np.testing.assert_allclose(compiled.run(None, feeds)[0], expected[0], rtol=1e-5, atol=1e-5)


def test_what_others_read_too_stays() -> None:
    graph = attention(FLAT, twice=True)
    assert scale_samples(graph, Trace()) is graph


def test_factors_that_do_not_divide_stay() -> None:
    graph = attention((2 * POINTS,))
    assert scale_samples(graph, Trace()) is graph

"""Whole models of the four families: gradients in float64 against autograd, and in float32 in two runtimes."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from tests.passes.gradient.computed import apart, in_type
from tests.passes.gradient.in_torch import gradients

import fusewise
from fusewise.benchmarking.inputs import random_feeds
from fusewise.errors import UnsupportedModel, UsageError
from fusewise.ir.dtypes import FLOAT64, INT64
from fusewise.ir.graph import Graph
from fusewise.ir.verify import verify
from fusewise.ops.build import GraphBuilder
from fusewise.passes.gradient.first_order import first_order_gradient, floating_inputs, weights_of, with_gradients
from fusewise.trace import Trace
from fusewise.zoo.scaled import scaled

FAMILIES = ("resnet", "mobilenet", "ssd", "bert")


def _by(graph: Graph) -> list[str]:
    """Inputs, or the embeddings of a model that reads words, and a few weights from front to back."""
    weights = weights_of(graph)
    embedded = [node.outputs[0] for node in graph.nodes if node.op == "Gather" and node.outputs[0] not in graph.inputs]
    return [*(floating_inputs(graph) or embedded[:1]), *weights[:: max(1, len(weights) // 4)]]


def _native(graph: Graph, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    return fusewise.compile(graph, cache=False, threads=1).run(None, feeds)


@pytest.mark.parametrize("family", [pytest.param(f, marks=[pytest.mark.slow] * (f == "ssd")) for f in FAMILIES])
def test_families_in_float64_against_autograd(family: str) -> None:
    graph = in_type(scaled(family), FLOAT64)
    by = _by(graph)
    after = with_gradients(graph, None, by)
    verify(after)
    feeds = random_feeds(graph, 0)
    found = _native(after, feeds)
    expected = gradients(graph, feeds, graph.outputs, by)
    assert len(found) == len(graph.outputs) * (1 + len(by))
    largest = max(float(np.max(np.abs(x))) for x in expected)
    for slope, wanted in zip(found[len(graph.outputs) :], expected, strict=True):
        assert apart(slope, wanted, 1e-6 * largest) < 1e-9


@pytest.mark.parametrize("family", [pytest.param(f, marks=[pytest.mark.slow] * (f == "ssd")) for f in FAMILIES])
def test_families_in_float32_in_two_runtimes(family: str) -> None:
    graph = scaled(family)
    after = with_gradients(graph, None, _by(graph)[:2])
    feeds = random_feeds(graph, 0)
    model = fusewise.to_onnx(after).SerializeToString()
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    expected = session.run(None, feeds)
    for found, wanted in zip(_native(after, feeds), expected, strict=True):
        assert apart(found, wanted) < 1e-4


def test_the_pass_adds_outputs_once() -> None:
    graph = scaled("mobilenet")
    trace = Trace()
    after = first_order_gradient(graph, trace)
    assert after.outputs == ("logits", "gradient_of_logits_by_x")
    assert after.tensor(after.outputs[1]) == graph.tensor("x")
    assert after.nodes[: len(graph.nodes)] == graph.nodes
    assert [event.kind for event in trace] == ["gradient"]
    assert first_order_gradient(after, Trace()) is after
    assert first_order_gradient(graph, Trace(limit=0)) is graph
    words = scaled("bert")
    assert first_order_gradient(words, Trace()) is words, "there is no floating input"


def test_a_second_gradient_is_that_of_the_first() -> None:
    b = GraphBuilder("cube")
    x = b.input("x", (3,), FLOAT64)
    graph = b.finish(b.op("Mul", x, b.op("Mul", x, x)))
    first = with_gradients(graph)
    twice = with_gradients(first, [first.outputs[1]])
    at = np.array([0.5, -1.0, 2.0])
    found = dict(zip(twice.outputs, _native(twice, {"x": at}), strict=True))
    np.testing.assert_allclose(found[first.outputs[1]], 3 * at**2, rtol=1e-12)
    np.testing.assert_allclose(found[twice.outputs[-1]], 6 * at, rtol=1e-12)


def test_where_nothing_depends_the_gradient_is_zeros() -> None:
    b = GraphBuilder("apart")
    x, y, n = b.input("x", (2,)), b.input("y", (3,)), b.input("n", (3,), INT64)
    graph = b.finish(b.op("Relu", x), b.op("Relu", y), n)
    after = with_gradients(graph)
    assert len(after.outputs) == 3 + 4
    feeds = {"x": np.ones(2, np.float32), "y": np.ones(3, np.float32), "n": np.ones(3, np.int64)}
    found = dict(zip(after.outputs, _native(after, feeds), strict=True))
    assert [found[name].tolist() for name in after.outputs[3:]] == [[1, 1], [0, 0, 0], [0, 0], [1, 1, 1]]


def test_operators_without_a_rule_are_named() -> None:
    b = GraphBuilder("odd")
    x = b.input("x", (2, 2))
    graph = b.finish(b.op("Det", x, name="odd_one"))
    with pytest.raises(UnsupportedModel, match="node 'odd_one': there is no gradient of operator Det;"):
        with_gradients(graph)
    b = GraphBuilder("odd")
    x = b.input("x", (1, 2, 4, 4))
    graph = b.finish(b.op("LpPool", x, kernel_shape=[2, 2]), b.op("Relu", x))
    with pytest.raises(UnsupportedModel, match="LpPool"):
        with_gradients(graph)
    assert len(with_gradients(graph, [graph.outputs[1]]).outputs) == 3, "an output that does not depend on it"


def test_wrong_names() -> None:
    b = GraphBuilder("names")
    x, n = b.input("picture", (2,)), b.input("n", (2,), INT64)
    graph = b.finish(b.op("Relu", x), n)
    with pytest.raises(UsageError, match="no floating value 'pictures'; did you mean 'picture'"):
        with_gradients(graph, None, ["pictures"])
    with pytest.raises(UsageError, match="no floating output 'n'; it is int64"):
        with_gradients(graph, ["n"])
    with pytest.raises(UsageError, match="no floating input: say by which"):
        with_gradients(scaled("bert"))
    free = graph.replace(types={**graph.types, "picture": graph.tensor("picture").__class__(FLOAT64, ("k",))})
    with pytest.raises(UnsupportedModel, match="its shape must be known"):
        with_gradients(free)

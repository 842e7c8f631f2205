"""Every rule against PyTorch's autograd and against finite differences, in float64, on random shapes and attributes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.passes.gradient.computed import Computed, along, apart, computed
from tests.passes.gradient.in_torch import gradients, run
from tests.passes.operator_cases import BOUNDS, CASES

from fusewise.ir.dtypes import FLOAT64
from fusewise.ir.graph import Graph
from fusewise.ir.verify import verify
from fusewise.ops.build import GraphBuilder
from fusewise.passes.gradient.first_order import with_gradients
from fusewise.passes.gradient.table import GRADIENTS


def _graph(name: str, data: st.DataObject) -> Graph:
    """The operator, its results weighed: slopes of a plain sum are ones, which hide what is put in a wrong place."""
    b = GraphBuilder(name)
    made = CASES[name](data.draw, b)
    results = made if isinstance(made, tuple) else (made,)
    weights = [b.input(f"weight_{k}", b.shape(x), FLOAT64) for k, x in enumerate(results)]
    return b.finish(*(b.op("Mul", x, w) for x, w in zip(results, weights, strict=True)))


def _feeds(graph: Graph, name: str, seed: int) -> dict[str, np.ndarray]:
    """Numbers that are all apart from one another and from corners by far more than a step of a difference."""
    rng = np.random.default_rng(seed)
    low, high = BOUNDS.get(name, (-2.0, 2.0))
    feeds = {}
    for k, value in enumerate(graph.inputs):
        size = graph.tensor(value).size
        least = 0.5 if value == "positive" else low
        spread = least + (high - least) * (rng.permutation(size) + 0.3 + 0.07 * k) / (size + 0.5)
        feeds[value] = spread.reshape(graph.tensor(value).dims)
    return feeds


@pytest.mark.parametrize("name", CASES)
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_gradients_are_those_of_autograd_and_of_differences(name: str, data: st.DataObject) -> None:
    graph = _graph(name, data)
    feeds = _feeds(graph, name, data.draw(st.integers(0, 99)))
    after = with_gradients(graph)
    verify(after)
    assert after.outputs[: len(graph.outputs)] == graph.outputs
    evaluator = in_torch if name in BY_TORCH else computed
    values = evaluator(after)(feeds)
    slopes = [values[name] for name in after.outputs[len(graph.outputs) :]]
    expected = gradients(graph, feeds, graph.outputs, graph.inputs)
    assert max(map(apart, slopes, expected, [1.0] * len(slopes)), default=0.0) < 1e-11
    rng, forward = np.random.default_rng(1), evaluator(graph)
    for k, output in enumerate(graph.outputs):
        steps = {value: rng.normal(size=x.shape) for value, x in feeds.items()}
        parts = slopes[k * len(feeds) : (k + 1) * len(feeds)]
        found = sum(float(np.sum(part * steps[value])) for value, part in zip(feeds, parts, strict=True))
        size = sum(float(np.sum(np.abs(part * steps[value]))) for value, part in zip(feeds, parts, strict=True))
        assert abs(found - along(forward, feeds, output, steps)) <= 1e-6 * max(size, 1.0)


BY_TORCH = {"Attention", "Erf", "Gelu", "GroupNormalization", "HardSwish"}
"""ONNX's evaluator computes these in float32, or with constants of float32."""


def in_torch(graph: Graph) -> Computed:
    """A function that gives the outputs of the graph by name, computed by PyTorch."""
    return lambda feeds: {
        name: value.numpy()
        for name, value in run(graph, {x: torch.from_numpy(np.array(y)) for x, y in feeds.items()}).items()
        if name in graph.outputs
    }


def test_every_rule_has_a_case() -> None:
    shaped = {"Reshape", "Flatten", "Squeeze", "Unsqueeze"}
    elsewhere = {"Cast", "CastLike", "Ceil", "Dropout", "GatherND", "Mod", "ScatterND"}
    assert set(GRADIENTS) - shaped - elsewhere <= set(CASES)

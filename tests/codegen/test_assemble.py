"""Programs put together from lowered work: where values lie, seen from outside by what a run answers."""

from __future__ import annotations

import numpy as np
import onnxruntime

from fusewise import api
from fusewise.ir.graph import Graph
from fusewise.ops.build import GraphBuilder

RNG = np.random.default_rng(0)


def answers(graph: Graph, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(api.to_onnx(graph).SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def test_a_host_step_reads_values_in_the_order_onnx_has_them():
    """A convolution writes channels last; NonZero, whose shape depends on data, runs on the host."""
    b = GraphBuilder("host")
    x = b.input("x", (1, 3, 8, 8))
    w = b.constant(RNG.standard_normal((4, 3, 3, 3)).astype(np.float32))
    y = b.op("Relu", b.op("Conv", x, w, pads=[1, 1, 1, 1]))
    graph = b.finish(b.op("NonZero", y), y)
    feeds = {"x": RNG.standard_normal((1, 3, 8, 8), dtype=np.float32)}
    model = api.compile(graph, cache=False, passes=False)
    assert [step["op"] for step in model.summary["host"]] == ["NonZero"]
    where, values = model.run(None, feeds)
    wanted_where, wanted = answers(graph, feeds)
    np.testing.assert_allclose(values, wanted, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(where, wanted_where)


def test_inputs_and_constants_may_be_outputs():
    b = GraphBuilder("through")
    x = b.input("x", (2, 3))
    c = b.constant(np.arange(4, dtype=np.float32))
    graph = b.finish(x, c, b.op("Relu", x))
    feeds = {"x": RNG.standard_normal((2, 3), dtype=np.float32)}
    found = api.compile(graph, cache=False).run(None, feeds)
    for value, wanted in zip(found, (feeds["x"], np.arange(4), np.maximum(feeds["x"], 0)), strict=True):
        np.testing.assert_array_equal(value, wanted)

"""Nodes that are one task each, compiled once and run at many sizes, against the evaluator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.passes.test_sizes import freed

import fusewise
from fusewise.ir.dtypes import INT32, INT64
from fusewise.ir.graph import Graph
from fusewise.ops.build import GraphBuilder
from fusewise.ops.evaluate import evaluate

RNG = np.random.default_rng(5)


def floats(*shape: int) -> np.ndarray:
    return (0.3 * RNG.normal(size=shape)).astype(np.float32)


def recurrence(op: str, gates: int, **attributes: Any) -> tuple[Graph, dict[str, Any]]:
    b = GraphBuilder(op)
    x, lengths, h = b.input("x", (5, 2, 6)), b.input("lengths", (2,), INT32), b.input("h", (2, 2, 12))
    weights = (b.constant(floats(2, gates * 12, n)) for n in (6, 12))
    bias = b.constant(floats(2, 2 * gates * 12))
    made = b.op(op, x, *weights, bias, lengths, h, outputs=2, hidden_size=12, direction="bidirectional", **attributes)
    return b.finish(*made), {"x": ("steps", "batch", 6), "lengths": ("batch",), "h": (2, "batch", 12)}


def top_k() -> tuple[Graph, dict[str, Any]]:
    b = GraphBuilder("top_k")
    made = b.op("TopK", b.input("x", (2, 3, 40)), b.constant(np.array([7])), outputs=2, axis=-1)
    return b.finish(*made), {"x": ("batch", "steps", 40)}


def top_k_of_columns() -> tuple[Graph, dict[str, Any]]:
    """Elements of a line are as far apart as there are columns, of which there may be one."""
    b = GraphBuilder("top_k_of_columns")
    made = b.op("TopK", b.input("x", (40, 3)), b.constant(np.array([7])), outputs=2, axis=0)
    return b.finish(*made), {"x": (40, "batch")}


def scatter() -> tuple[Graph, dict[str, Any]]:
    b = GraphBuilder("scatter")
    x, at, u = b.input("x", (5, 4)), b.input("at", (3, 1), INT64), b.input("u", (3, 4))
    made = b.op("ScatterND", x, at, u, reduction="add")
    return b.finish(made), {"x": ("rows", "batch"), "at": ("steps", 1), "u": ("steps", "batch")}


CASES = {
    "LSTM": recurrence("LSTM", 4),
    "GRU": recurrence("GRU", 3, linear_before_reset=1),
    "RNN": recurrence("RNN", 1),
    "TopK": top_k(),
    "TopK of columns": top_k_of_columns(),
    "ScatterND": scatter(),
}


@pytest.mark.parametrize("name", CASES)
def test_one_code_for_every_size(name: str, tmp_path: Any) -> None:
    static, shapes = CASES[name]
    graph = freed(static, **shapes)
    model = fusewise.compile(graph, cache=str(tmp_path))
    assert model.summary["host_steps"] == 0
    (node,) = graph.nodes
    for steps, batch in ((1, 1), (7, 2), (2, 13), (33, 5), (70, 67)):
        env = {"steps": steps, "batch": batch, "rows": 9}
        sizes = {k: tuple(env[d] if isinstance(d, str) else d for d in shape) for k, shape in shapes.items()}
        feeds = {k: floats(*shape) for k, shape in sizes.items()}
        if name == "ScatterND":
            feeds["at"] = RNG.integers(0, 9, sizes["at"])
        if "lengths" in sizes:
            feeds["lengths"] = RNG.integers(0, steps + 1, sizes["lengths"]).astype(np.int32)
        known = {value: constant.array for value, constant in graph.constants.items()}
        expected = evaluate(node, {**feeds, **known}, graph.opset)
        for found, wanted in zip(model.run(None, feeds), expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-6)

"""Attention of short floats that are cast before it and behind it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fusewise import api
from fusewise.codegen.legalize import legalized
from fusewise.codegen.target import MATRIX_TARGET, TARGETS
from fusewise.ir.dtypes import BFLOAT16, FLOAT16, FLOAT32, DType
from fusewise.ir.graph import Graph
from fusewise.ops.build import GraphBuilder
from fusewise.passes.narrow_attention import attention_of
from fusewise.trace import Trace

NARROW = attention_of((BFLOAT16,), 16)


def between_casts(
    dtype: DType = BFLOAT16, queries: int = 16, back: DType = BFLOAT16, moved: bool = False, shared: bool = False
) -> Graph:
    b = GraphBuilder("attention")
    shapes = [(1, 2, rows, 8) for rows in (queries, 24, 24)]
    given = [b.input(name, shape, dtype) for name, shape in zip("qkv", shapes, strict=True)]
    wide = [b.op("Cast", value, to=FLOAT32.onnx) for value in given]
    y = b.op("Attention", *wide, b.input("m", (queries, 24)))
    if moved:
        y = b.op("Transpose", y, perm=[0, 2, 1, 3])
        y = b.op("Reshape", y, b.constant(np.array([1, queries, 16])))
    outputs = [b.op("Cast", y, to=back.onnx) if back != FLOAT32 else b.op("Neg", y)]
    return b.finish(*outputs, *([y] if shared else []))


@pytest.mark.parametrize("moved", [False, True])
def test_both_casts_go(moved: bool) -> None:
    trace = Trace()
    found = NARROW(between_casts(moved=moved), trace)
    assert [node.op for node in found.nodes] == ["Attention", *(["Transpose", "Reshape"] if moved else [])]
    (attention,) = (node for node in found.nodes if node.op == "Attention")
    kinds = [found.types[value].dtype for value in (*attention.inputs, *attention.outputs)]  # type: ignore[union-attr]
    assert kinds == [BFLOAT16, BFLOAT16, BFLOAT16, FLOAT32, BFLOAT16]
    assert "narrow_attention" in {event.what for event in trace if event.kind == "rewrite"}


@pytest.mark.parametrize(
    "graph",
    [
        between_casts(dtype=FLOAT16, back=FLOAT16),
        between_casts(queries=15),
        between_casts(back=FLOAT16),
        between_casts(back=FLOAT32),
        between_casts(shared=True),
    ],
    ids=["another type", "few queries", "to another type", "read as float32", "read twice"],
)
def test_what_stays(graph: Graph) -> None:
    assert NARROW(graph, Trace()) is graph


def test_where_short_floats_are_multiplied() -> None:
    """Not under `--exact`, and not what is switched off."""
    b = GraphBuilder("attention")
    graph = b.finish(b.op("Attention", *(b.input(name, (1, 2, 16, 8), BFLOAT16) for name in "qkv")))
    for target in (MATRIX_TARGET, replace(TARGETS[0], features="+avx512bf16")):
        assert [node.op for node in legalized(graph, target, Trace()).nodes] == ["Attention"]
    none, own = frozenset[str](), frozenset({"narrow_attention"})
    for target, exact, disabled in (
        (TARGETS[0], False, none),
        (MATRIX_TARGET, True, none),
        (MATRIX_TARGET, False, own),
    ):
        trace = Trace(disabled=disabled)
        nodes = legalized(graph, target, trace, exact=exact).nodes
        assert sorted(node.op for node in nodes) == ["Attention", *["Cast"] * 4]


def test_answers_are_those_of_its_definition() -> None:
    """Run as they stand, without a unit, by the kernel for all types."""
    graph, rng = NARROW(between_casts(moved=True), Trace()), np.random.default_rng(0)
    feeds = {
        name: rng.standard_normal(graph.types[name].dims).astype(graph.types[name].dtype.numpy)  # type: ignore[union-attr]
        for name in graph.inputs
    }
    found = api.compile(graph, passes=False).run(None, feeds)[0].astype(np.float32)
    q, k, v = (feeds[name].astype(np.float64) for name in "qkv")
    scores = q @ k.swapaxes(-1, -2) / 8**0.5 + feeds["m"]
    power = np.exp(scores - scores.max(axis=-1, keepdims=True))
    expected = (power / power.sum(axis=-1, keepdims=True)) @ v
    np.testing.assert_allclose(found, expected.transpose(0, 2, 1, 3).reshape(1, 16, 16), atol=1e-2)

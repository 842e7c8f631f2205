"""Before and expected as text, and the same answers from both.

Texts leave out the header, types that can be inferred, and node names. `#w` is a random constant, `#positive` one above
zero.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from textwrap import dedent

import numpy as np
import pytest

from fusewise.frontend.onnx_export import to_model
from fusewise.ir.graph import Constant, Graph
from fusewise.ir.parse import parse_graph
from fusewise.ir.text import print_graph
from fusewise.ir.types import TensorType
from fusewise.ir.verify import verify
from fusewise.ops.infer import infer_outputs
from fusewise.passes.pipeline import Pass
from fusewise.trace import Trace

RELATIVE = 1e-5
"""Largest difference over largest magnitude for passes that may change a rounding, float32."""

_RANDOM = re.compile(r"constant (\S+): float32\[([\d,]*)\] = #(\w+)")
_TYPED = re.compile(r": [a-z]+\w*\[[^\]]*\]")


def random_array(shape: tuple[int, ...], key: str) -> np.ndarray:
    """Values that follow from the key alone."""
    values = np.random.default_rng(zlib.crc32(key.encode())).standard_normal(shape, dtype=np.float32)
    return np.abs(values) + np.float32(0.5) if key.startswith("positive") else values


def graph_of(text: str, opset: int = 23) -> Graph:
    """The graph of a text, with its types inferred and every node named after its first output."""
    table = {
        f"{name}_{key}": Constant(random_array(tuple(map(int, dims.split(","))) if dims else (), f"{key}{name}"))
        for name, dims, key in _RANDOM.findall(text)
    }
    text = _RANDOM.sub(lambda m: f"constant {m[1]}: float32[{m[2]}] = #{m[1]}_{m[3]}", dedent(text))
    graph = parse_graph(f'graph "test" opset {opset}\n{text}', table)
    types = dict(graph.types)
    for node in graph.nodes:
        kinds = tuple(types[v] if v else None for v in node.inputs)
        known = tuple(graph.array(v) if v else None for v in node.inputs)
        for value, kind in zip(node.outputs, infer_outputs(node, kinds, known, opset), strict=True):
            if value and kind is not None:
                types.setdefault(value, kind)
    nodes = tuple(replace(node, name=f"n_{node.writes[0]}", origin=(f"n_{node.writes[0]}",)) for node in graph.nodes)
    graph = graph.replace(types=types, nodes=nodes)
    verify(graph)
    return graph


def short(graph: Graph) -> str:
    """Constants, nodes and outputs, without types and names."""
    lines = [line for line in print_graph(graph, digests=False).splitlines() if not line.startswith(("graph", "input"))]
    return "\n".join(_TYPED.sub("", line.partition(" @")[0]) for line in lines)


def answers(graph: Graph, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """ONNX Runtime's, optimisations off; those of ONNX's reference evaluator for what it does not know."""
    import onnxruntime
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    model = to_model(graph)
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return list(session.run(None, dict(feeds)))
    except (state.Fail, state.NotImplemented, state.InvalidGraph):
        from onnx.reference import ReferenceEvaluator

        return list(ReferenceEvaluator(model).run(None, dict(feeds)))


def feeds_of(graph: Graph) -> dict[str, np.ndarray]:
    """Random inputs: floats around zero with zeros of both signs among them, zeros and ones for all else."""
    rng = np.random.default_rng(7)
    feeds: dict[str, np.ndarray] = {}
    for value in graph.inputs:
        kind = graph.tensor(value)
        if kind.dtype.is_float:
            found = rng.normal(scale=3, size=kind.dims).astype(kind.dtype.numpy)
            found.reshape(-1)[:2] = (0.0, -0.0)[: found.size]
        else:
            found = rng.integers(0, 2, kind.dims).astype(kind.dtype.numpy)
        feeds[value] = found
    return feeds


def assert_same_answers(before: Graph, after: Graph, exact: bool) -> None:
    assert (after.inputs, after.outputs) == (before.inputs, before.outputs)
    feeds = feeds_of(before)
    for name, a, b in zip(before.outputs, answers(before, feeds), answers(after, feeds), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape) == (b.dtype, graph_shape(after, name))
        if exact or a.dtype.kind != "f" or not a.size:
            np.testing.assert_array_equal(a, b)
        else:
            assert np.max(np.abs(a.astype(np.float64) - b)) <= RELATIVE * np.max(np.abs(a))


def graph_shape(graph: Graph, value: str) -> tuple[int, ...]:
    kind = graph.types[value]
    assert isinstance(kind, TensorType)
    return kind.dims


def _rewrites(function: Pass, before: str, expected: str, exact: bool = True, opset: int = 23) -> Graph:
    graph = graph_of(before, opset)
    trace = Trace()
    after = function(graph, trace)
    verify(after)
    assert short(after) == dedent(expected).strip()
    assert function(after, Trace()) is after, "a second time changes nothing"
    assert trace.gates, "no decision without an event"
    assert function(graph, Trace(limit=0)) is graph, "every change asks for leave"
    assert_same_answers(graph, after, exact)
    return after


def _refuses(function: Pass, before: str, opset: int = 23) -> None:
    graph = graph_of(before, opset)
    trace = Trace()
    after = function(graph, trace)
    assert after is graph
    assert not trace.events


@pytest.fixture
def rewrites() -> Callable[..., Graph]:
    """`rewrites(pass, before, expected, exact)`: the pass turns one text into the other, and answers stay."""
    return _rewrites


@pytest.fixture
def refuses() -> Callable[..., None]:
    """`refuses(pass, before)`: the pass leaves the graph alone, and says nothing."""
    return _refuses


@pytest.fixture
def parse() -> Callable[..., Graph]:
    """`parse(text)`: the graph of a short text."""
    return graph_of


@pytest.fixture
def same_answers() -> Callable[[Graph, Graph, bool], None]:
    """`same_answers(before, after, exact)` on random inputs."""
    return assert_same_answers


@pytest.fixture
def shown() -> Callable[[Graph], str]:
    """`shown(graph)`: the short text of a graph."""
    return short

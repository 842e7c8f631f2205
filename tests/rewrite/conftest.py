"""Graphs from functions in graph notation, and back to text, so that tests read as algebra."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fusewise.ir.dtypes import FLOAT32, DType
from fusewise.ir.graph import Graph
from fusewise.ops.build import GraphBuilder
from fusewise.ops.evaluate import evaluate
from fusewise.rewrite.pattern import Apply, Literal, Term, Variable, pattern_of


def graph_of(
    function: Callable[..., Any], /, dtype: DType = FLOAT32, constants: dict[str, Any] | None = None, **shapes: Any
) -> Graph:
    """What the function writes; its parameters are inputs of the given shapes, [2, 3] unless told, or constants."""
    pattern, build = pattern_of(function), GraphBuilder("test")
    values: dict[Term, str] = {}
    for name in pattern.variables:
        array = (constants or {}).get(name)
        kind = shapes.get(name, (2, 3))
        values[Variable(name)] = (
            build.input(name, kind, dtype)
            if array is None
            else build.constant(np.asarray(array, getattr(array, "dtype", dtype.numpy)), name)
        )

    def put(term: Term) -> str:
        if term not in values:
            if isinstance(term, Literal):
                values[term] = build.constant(np.array(term.value, dtype.numpy))
            else:
                assert isinstance(term, Apply)
                values[term] = build.op(term.op, *map(put, term.operands), **dict(term.attributes))
        return values[term]

    return build.finish(*map(put, pattern.roots))


def text_of(graph: Graph) -> str:
    """The outputs as formulas over inputs; uniform constants are numbers, others their names."""

    def term(value: str) -> Term:
        node = graph.producer_of(value)
        if node is None:
            array = graph.array(value)
            uniform = array is not None and array.dtype.kind == "f" and np.unique(array).size == 1
            return Literal(float(array.reshape(-1)[0])) if uniform and array is not None else Variable(value)
        return Apply(node.op, tuple(map(term, node.inputs)), node.attributes, outputs=1)

    return ", ".join(str(term(value)) for value in graph.outputs)


def answers(graph: Graph, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Node by node on ONNX's reference evaluator."""
    values: dict[str, Any] = {**{x: c.array for x, c in graph.constants.items()}, **feeds}
    for node in graph.nodes:
        with np.errstate(all="ignore"):
            values.update(zip(node.outputs, evaluate(node, values, graph.opset), strict=True))
    return [np.asarray(values[x]) for x in graph.outputs]


@pytest.fixture
def written() -> Callable[..., Graph]:
    """`written(lambda g, a, b: a + b, b=(3,))`: a graph of float32 inputs."""
    return graph_of


@pytest.fixture
def shown() -> Callable[[Graph], str]:
    """`shown(graph)`: its outputs as formulas."""
    return text_of


@pytest.fixture
def referred() -> Callable[[Graph, dict[str, np.ndarray]], list[np.ndarray]]:
    """`referred(graph, feeds)`: the answers of ONNX's reference evaluator."""
    return answers

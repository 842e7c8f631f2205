"""The first node that differs, on made-up compiled models whose faults are known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from fusewise.benchmarking import node_by_node
from fusewise.benchmarking.node_by_node import DEFINITIONS, answers_by_nodes, first_fault
from fusewise.errors import UnsupportedModel
from fusewise.ir.dtypes import FLOAT64
from fusewise.ir.graph import Graph, Node
from fusewise.ir.types import TensorType
from fusewise.ops.build import GraphBuilder
from fusewise.ops.expr import unary
from fusewise.ops.table import spec_of

X = np.linspace(-1, 2, 12, dtype=np.float32).reshape(3, 4)


def network() -> Graph:
    """Exp, Relu, Softmax and the difference of two values that are nearly equal."""
    b = GraphBuilder("network")
    x = b.input("x", (3, 4))
    first = b.op("Relu", b.op("Exp", x, name="exp"), name="relu")
    soft = b.op("Softmax", first, name="softmax")
    near = b.op("Sub", first, b.op("Add", first, b.constant(np.full(4, 1e-3, np.float32)), name="add"), name="sub")
    return b.finish(soft, near)


@dataclass
class Faulty:
    """Every value of a graph as it should be, but that of one node, which is changed before anything reads it."""

    graph: Graph
    node: str = ""
    change: Callable[[Any], Any] = lambda found: found
    summary: dict[str, Any] = field(default_factory=lambda: {"host": []})

    def run(self, names: Any, feeds: Mapping[str, Any]) -> list[Any]:
        values = {**feeds, **{name: constant.array for name, constant in self.graph.constants.items()}}
        for node in self.graph.nodes:
            _, found = node_by_node._witnessed(self.graph, node, values)
            found = [self.change(value) for value in found] if node.label == self.node else found
            values.update(zip(node.outputs, found, strict=True))
        return [values[name] for name in self.graph.outputs]


def found_in(node: str, change: Callable[[Any], Any], host: tuple[str, ...] = (), graph: Graph | None = None) -> Any:
    graph = network() if graph is None else graph
    right = answers_by_nodes(graph, {"x": X})
    summary = {"host": [{"node": label} for label in host]}
    return first_fault(graph, {"x": X}, lambda kept: Faulty(kept, node, change, summary), right, "theirs")


@pytest.mark.parametrize("node", ["exp", "relu", "softmax", "sub"])
def test_the_node_that_differs_first_is_named(node):
    fault = found_in(node, lambda found: found * 2)
    assert (fault.node, fault.part) == (node, "native code")
    assert fault.error == pytest.approx(1.0)
    assert fault.witness == "onnxruntime"
    assert f"node {node!r}" in str(fault) and "native code" in str(fault)


def test_a_host_step_is_told_from_native_code():
    assert found_in("softmax", np.negative, host=("softmax", "exp")).part == "host step"
    assert found_in("softmax", np.negative, host=("exp",)).part == "native code"


def test_not_a_number_in_another_place_differs():
    def moved(found: np.ndarray) -> np.ndarray:
        return np.where(np.arange(found.size).reshape(found.shape) == 3, np.float32(np.nan), found)

    assert found_in("relu", moved).node == "relu"


def test_a_definition_is_told_from_native_code(monkeypatch):
    row = spec_of("Relu")
    assert row is not None
    wrong = replace(row, scalar=lambda call, x: unary("neg", x))
    monkeypatch.setattr(node_by_node, "spec_of", lambda op, domain="": wrong if op == "Relu" else spec_of(op, domain))
    assert found_in("relu", np.negative).part == "definition"


@pytest.mark.parametrize("kind", [TensorType(FLOAT64, (3, 4)), ((3, 5)), ((3, 4, 1))], ids=str)
def test_a_wrong_type_is_the_fault_of_the_shape(kind):
    graph = network()
    value = next(node for node in graph.nodes if node.label == "relu").writes[0]
    wrong = kind if isinstance(kind, TensorType) else TensorType(graph.tensor(value).dtype, kind)
    fault = found_in("relu", lambda found: found + 1, graph=graph.replace(types={**graph.types, value: wrong}))
    assert (fault.node, fault.part) == ("relu", "shape")


def test_a_node_that_only_makes_roundings_larger_is_right():
    fault = found_in("add", lambda found: found * np.float32(1 + 5e-6))
    assert (fault.node, fault.part) == ("sub", "rounding")
    assert "roundings" in str(fault)


def test_numbers_drawn_at_random_are_said_to_be():
    b = GraphBuilder()
    graph = b.finish(b.op("RandomNormalLike", b.input("x", (3, 4)), name="draw"))
    fault = found_in("draw", np.negative, graph=graph)
    assert (fault.node, fault.part) == ("draw", "chance")


def test_a_witness_that_stands_alone_is_said_to(monkeypatch):
    def wrong(model: Any, feeds: Any) -> Any:
        name, found = answer(model, feeds)
        return name, [np.negative(value) for value in found] if model.graph.node[0].op_type == "Softmax" else found

    graph = network()
    right = answers_by_nodes(graph, {"x": X})
    answer = node_by_node.answer

    @dataclass
    class Right(Faulty):
        def run(self, names: Any, feeds: Mapping[str, Any]) -> list[Any]:
            with monkeypatch.context() as inside:
                inside.setattr(node_by_node, "answer", answer)
                return super().run(names, feeds)

    monkeypatch.setattr(node_by_node, "answer", wrong)
    fault = first_fault(graph, {"x": X}, Right, right, "theirs")
    assert (fault.node, fault.part) == ("softmax", "witness")


def test_where_no_node_differs_it_is_the_import_or_what_lies_between_nodes():
    graph = network()
    right = answers_by_nodes(graph, {"x": X})
    assert first_fault(graph, {"x": X}, Faulty, right, "theirs").part == "combination"
    other = [right[0] + 1, right[1]]
    fault = first_fault(graph, {"x": X}, Faulty, other, "theirs")
    assert (fault.part, fault.value) == ("import", graph.outputs[0])
    assert "theirs" in str(fault)


def test_what_no_runtime_has_is_worked_out_by_our_definition(monkeypatch):
    def nobody(model: Any, feeds: Any) -> Any:
        raise UnsupportedModel("nobody")

    monkeypatch.setattr(node_by_node, "answer", nobody)
    graph = network()
    found = answers_by_nodes(graph, {"x": X})
    np.testing.assert_allclose(found[0].sum(axis=-1), 1, rtol=1e-6)
    assert found_in("relu", np.negative).witness == DEFINITIONS


def test_a_node_that_nobody_can_run_is_named():
    kind = TensorType(FLOAT64, (2,))
    graph = Graph(("x",), ("y",), (Node("Odd", ("x",), ("y",), (), "some.where", "n"),), {"x": kind, "y": kind}, {})
    with pytest.raises(UnsupportedModel, match="node 'n' \\(Odd\\): no reference"):
        answers_by_nodes(graph, {"x": np.ones(2)})

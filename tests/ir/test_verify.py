"""The verifier accepts sound graphs and names the node of each kind of fault."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from fusewise.errors import BrokenGraph
from fusewise.ir.dtypes import FLOAT32
from fusewise.ir.graph import Constant, Graph, Node, Subgraph, attributes_of
from fusewise.ir.parse import parse_graph
from fusewise.ir.types import TensorType
from fusewise.ir.verify import verify

GRAPH = parse_graph("""
graph "g" opset 23
input x: float32[2]
constant c: float32[] = 0.5
a: float32[2] = Relu(x) @first
b: float32[2] = Mul(a, c) @second
d: float32[2], _ = Dropout(b) @third
return d
""")
BODY = attributes_of(then_branch=Subgraph(b"", ("a", "c")), else_branch=Subgraph(b"", ("a",)))


def with_node(i: int, **changes: object) -> Graph:
    nodes = list(GRAPH.nodes)
    nodes[i] = replace(nodes[i], **changes)  # type: ignore[arg-type]
    return GRAPH.replace(nodes=tuple(nodes))


def without_type(name: str) -> Graph:
    return GRAPH.replace(types={k: v for k, v in GRAPH.types.items() if k != name})


def with_body(*captured: str) -> Graph:
    node = Node("If", ("x",), ("d",), BODY, name="third", captured=captured)
    return GRAPH.replace(nodes=(*GRAPH.nodes[:2], node))


@pytest.mark.parametrize(
    "graph", [GRAPH, with_body("a", "c"), with_body("a", "c", "a")], ids=["plain", "shared", "apart"]
)
def test_sound_graphs_pass(graph: Graph) -> None:
    verify(graph)


@pytest.mark.parametrize(
    "broken, complaint",
    [
        (lambda: with_node(1, inputs=("a", "ghost")), "'second'.*'ghost', which nothing defines"),
        (lambda: with_node(0, inputs=("b",)), "'first'.*'b', which node 'second' writes later"),
        (lambda: with_node(0, inputs=("a",)), "'first'.*'a'"),
        (lambda: with_node(1, outputs=("a",)), "'second'.*writes 'a', which is defined before"),
        (lambda: with_node(1, outputs=("c",)), "'second'.*writes 'c'"),
        (lambda: with_node(1, captured=("ghost",)), "'second'.*'ghost'"),
        (lambda: with_node(1, captured=("a",)), "'second'.*captures 1 values.*ask for 0"),
        (lambda: with_body("a"), "'third'.*captures 1 values.*ask for 3"),
        (lambda: without_type("b"), "'second'.*'b', which has no type"),
        (lambda: without_type("x"), "input 'x'.*no type"),
        (lambda: without_type("c"), "constant 'c'.*no type"),
        (lambda: GRAPH.replace(constants={}), "'second'.*'c', which nothing defines"),
        (
            lambda: GRAPH.replace(constants={"c": Constant(np.zeros(2, np.float32))}),
            "'c'.*float32\\[2\\].*declared float32\\[\\]",
        ),
        (lambda: GRAPH.replace(outputs=("d", "ghost")), "output 'ghost'"),
        (lambda: GRAPH.replace(inputs=("x", "x")), "input 'x'.*twice"),
        (
            lambda: GRAPH.replace(inputs=("x", "c"), types={**GRAPH.types, "c": TensorType(FLOAT32, ())}),
            "constant 'c'.*input as well",
        ),
    ],
)
def test_each_fault_is_named(broken: Callable[[], Graph], complaint: str) -> None:
    with pytest.raises(BrokenGraph, match=complaint) as caught:
        verify(broken())
    assert caught.value.exit_status == 1

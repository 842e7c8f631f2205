"""Structural keys: blind to names and to the order of independent nodes, and to nothing else."""

from __future__ import annotations

import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fusewise
from fusewise.ir.graph import Constant, Graph, Node
from fusewise.ir.key import structural_key
from fusewise.ir.parse import parse_graph

TEXT = """
graph "g" opset 23
input x: float32[2,3]
input y: float32[2,3]
constant c: float32[] = 0.5
a: float32[2,3] = Relu(x)
b: float32[2,3] = Exp(x)
d: float32[2,3] = Sub(a, b)
e: float32[2,3] = LeakyRelu(y) {alpha=0.1}
f: float32[2,3] = Mul(e, c)
g: float32[2,3] = Add(d, f)
return g, d
"""
GRAPH = parse_graph(TEXT)


def renamed(graph: Graph, name: dict[str, str]) -> Graph:
    nodes = tuple(
        replace(
            node,
            inputs=tuple(name[v] for v in node.inputs),
            outputs=tuple(name[v] for v in node.outputs),
            name=f"n{i}",
            origin=("elsewhere",),
        )
        for i, node in enumerate(graph.nodes)
    )
    return graph.replace(
        inputs=tuple(name[v] for v in graph.inputs),
        outputs=tuple(name[v] for v in graph.outputs),
        nodes=nodes,
        types={name[v]: kind for v, kind in graph.types.items()},
        constants={name[v]: data for v, data in graph.constants.items()},
        name="another",
        metadata=(("author", "me"),),
    )


def shuffled(graph: Graph, seed: int) -> Graph:
    """The nodes in another topological order."""
    rng, waiting, done, order = random.Random(seed), list(graph.nodes), set(graph.inputs) | set(graph.constants), []
    while waiting:
        ready = [node for node in waiting if done.issuperset(node.reads)]
        node = rng.choice(ready)
        waiting.remove(node)
        done.update(node.writes)
        order.append(node)
    return graph.replace(nodes=tuple(order))


@settings(deadline=None)
@given(st.integers(0, 10**6), st.permutations([f"v{i}" for i in range(len(GRAPH.types))]))
def test_names_and_order_do_not_matter(seed: int, names: list[str]) -> None:
    other = shuffled(renamed(GRAPH, dict(zip(GRAPH.types, names, strict=True))), seed)
    assert structural_key(other) == structural_key(GRAPH)


@pytest.mark.parametrize(
    "old, new",
    [
        ("Relu(x)", "Relu(y)"),
        ("Relu(x)", "Tanh(x)"),
        ("Sub(a, b)", "Sub(b, a)"),
        ("alpha=0.1", "alpha=0.2"),
        ("{alpha=0.1}", ""),
        ("= 0.5", "= 0.25"),
        ("return g, d", "return d, g"),
        ("return g, d", "return g"),
        ("opset 23", "opset 22"),
        ("[2,3]", "[3,2]"),
        ("input x: float32[2,3]\ninput y: float32[2,3]", "input y: float32[2,3]\ninput x: float32[2,3]"),
        ("return", "h: float32[2,3] = Exp(x)\nreturn"),
    ],
)
def test_everything_else_matters(old: str, new: str) -> None:
    assert old in TEXT
    assert structural_key(parse_graph(TEXT.replace(old, new))) != structural_key(GRAPH)


def test_sharing_matters() -> None:
    """Exp and Log of one Relu, or of two equal ones, is not the same amount of work."""
    head = 'graph "g" opset 23\ninput x: float32[2]\np: float32[2] = Relu(x)\nq: float32[2] = Relu(x)\n'
    tail = "u: float32[2] = Exp({0})\nv: float32[2] = Log({1})\nreturn u, v\n"
    one, both = (parse_graph(head + tail.format(*pair)) for pair in (("p", "p"), ("p", "q")))
    assert structural_key(one) != structural_key(both)


def test_weights_can_be_left_out() -> None:
    def graph(weight: np.ndarray, axes: int) -> Graph:
        text = """
        graph "g" opset 23
        input x: float32[4,32]
        constant w: float32[32,32] = #w
        constant k: int64[1] = [%d]
        y: float32[4,32] = MatMul(x, w)
        z: float32[4,1] = ReduceSum(y, k)
        return z
        """
        return parse_graph(text % axes, {"w": Constant(weight)})

    first, second = (np.full((32, 32), v, np.float32) for v in (1, 2))
    assert structural_key(graph(first, 1)) != structural_key(graph(second, 1))
    assert structural_key(graph(first, 1), False) == structural_key(graph(second, 1), False)
    assert structural_key(graph(first, 1), False) != structural_key(graph(first, 0), False)


def test_key_is_the_same_in_another_process() -> None:
    """Hashing of strings is seeded per process; keys must not be."""
    script = (
        "import sys; from fusewise.ir.parse import parse_graph; from fusewise.ir.key import structural_key;"
        "print(structural_key(parse_graph(sys.stdin.read())))"
    )
    source = Path(fusewise.__file__).parent.parent
    found = subprocess.run(
        [sys.executable, "-c", script],
        input=TEXT,
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(source), "PYTHONHASHSEED": "7"},
    )
    assert found.stdout.strip() == structural_key(GRAPH)


def test_captured_values_matter() -> None:
    node = Node("Loop", ("x",), ("z",), captured=("a",))
    base = GRAPH.replace(nodes=(*GRAPH.nodes, node), types={**GRAPH.types, "z": GRAPH.types["x"]})
    other = base.replace(nodes=(*GRAPH.nodes, replace(node, captured=("b",))))
    assert structural_key(base) != structural_key(other)

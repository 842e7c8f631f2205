"""Equal nodes and equal constants are there once; look-alikes stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fusewise.ir.graph import Constant
from fusewise.ops.build import GraphBuilder
from fusewise.passes.merge_equal import merge_equal
from fusewise.trace import Trace


def test_nodes_in_any_order_of_operands(rewrites: Any) -> None:
    rewrites(
        merge_equal,
        """
        input x: float32[2,3]
        input z: float32[2,3]
        constant c: float32[] = 2.0
        constant d: float32[] = 2.0
        a = Add(x, z)
        b = Add(z, x)
        e = Mul(a, c)
        f = Mul(d, b)
        g = Sub(e, f)
        return g
        """,
        "constant c = 2.0\na = Add(x, z)\ne = Mul(a, c)\ng = Sub(e, e)\nreturn g",
    )


@pytest.mark.parametrize(
    "body",
    [
        "a = Sub(x, z)\nb = Sub(z, x)",
        "a = LeakyRelu(x) {alpha=0.5}\nb = LeakyRelu(x) {alpha=0.25}",
        "a = LeakyRelu(x) {alpha=0.0}\nb = LeakyRelu(x) {alpha=-0.0}",
        "a = RandomNormalLike(x)\nb = RandomNormalLike(x)",
        "constant c: float32[] = 0.0\nconstant d: float32[] = -0.0\na = Add(x, c)\nb = Add(x, d)",
        "constant c: float32[1] = [2.0]\nconstant d: float32[] = 2.0\na = Mul(x, c)\nb = Mul(x, d)",
        "constant c: float32[30] = #c\nconstant d: float32[30] = #d\na = Concat(c, d) {axis=0}\nb = Relu(x)",
        "a = Relu(z)\nb = Relu(x)",
    ],
)
def test_look_alikes_stay(refuses: Any, body: str) -> None:
    refuses(merge_equal, f"input x: float32[2,3]\ninput z: float32[2,3]\n{body}\nreturn a, b")


def test_two_outputs_that_are_equal_keep_both_names(rewrites: Any) -> None:
    """The second is a copy: it has a name of its own, but is not computed again."""
    rewrites(
        merge_equal,
        "input x: float32[2]\na = Exp(x)\nb = Exp(x)\nreturn a, b",
        "a = Exp(x)\nb = Identity(a)\nreturn a, b",
    )


def test_an_output_may_take_the_place_of_an_inner_value(rewrites: Any) -> None:
    rewrites(
        merge_equal,
        "input x: float32[2]\na = Exp(x)\nc = Abs(a)\nb = Exp(x)\nreturn c, b",
        "b = Exp(x)\nc = Abs(b)\nreturn c, b",
    )


def test_large_weights_are_not_hashed_without_need() -> None:
    b = GraphBuilder()
    x = b.input("x", (1, 512))
    for seed in range(3):
        weights = np.random.default_rng(seed).standard_normal((512, 512), dtype=np.float32)
        x = b.op("MatMul", x, b.constant(weights, f"w{seed}"))
    graph = b.finish(x)
    assert merge_equal(graph, Trace()) is graph
    assert all(constant._digest is None for constant in graph.constants.values())


def test_large_equal_weights_are_stored_once() -> None:
    weights = np.random.default_rng(0).standard_normal((64, 64), dtype=np.float32)
    other = weights.copy()
    other[33, 17] += 1  # not among the elements that are sampled
    b = GraphBuilder()
    x = b.input("x", (1, 64))
    for k, array in enumerate((weights, weights.copy(), other)):
        x = b.op("MatMul", x, b.constant(array, f"w{k}"))
    graph = merge_equal(b.finish(x), Trace())
    assert dict(graph.constants) == {"w0": Constant(weights), "w2": Constant(other)}
    assert [node.inputs[1] for node in graph.nodes] == ["w0", "w0", "w2"]

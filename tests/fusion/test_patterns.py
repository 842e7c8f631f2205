"""The kinds of operators and the groups that fixed patterns give."""

from __future__ import annotations

import numpy as np

from fusewise.fusion.ecg import ExtendedGraph
from fusewise.fusion.patterns import Kind, kind_of, pattern_groups
from fusewise.ops.build import GraphBuilder
from fusewise.trace import Trace


def groups(b: GraphBuilder, *outputs: str) -> list[str]:
    graph = b.finish(*outputs)
    found = pattern_groups(ExtendedGraph(graph), Trace())
    return sorted("+".join(node.op for node in group.members(graph)) for group in found)


def test_kinds_follow_the_rows_and_the_shapes() -> None:
    b = GraphBuilder()
    x = b.input("x", (4, 8))
    b.op("Relu", x)
    b.op("Add", x, b.input("row", (8,)))
    b.op("Transpose", x)
    b.op("ReduceSum", x, b.constant([1]))
    b.op("MatMul", x, b.constant(np.ones((8, 8), np.float32)))
    b.op("Softmax", x)
    last = b.op("TopK", x, b.constant([2]), outputs=2)[0]
    ecg = ExtendedGraph(b.finish(last))
    assert [kind_of(ecg, n) for n in range(7)] == [
        Kind.ELEMENTWISE,
        Kind.BROADCAST,
        Kind.INJECTIVE,
        Kind.REDUCTION,
        Kind.HEAVY,
        Kind.OPAQUE,
        Kind.OPAQUE,
    ]


def test_a_diamond_is_fused_into_its_post_dominator() -> None:
    b = GraphBuilder()
    c = b.op("MatMul", b.input("x", (4, 8)), b.constant(np.ones((8, 8), np.float32)))
    assert groups(b, b.op("Mul", b.op("Sigmoid", c), b.op("Tanh", c))) == ["MatMul+Sigmoid+Tanh+Mul"]


def test_a_branch_that_leaves_the_diamond_keeps_it_apart() -> None:
    b = GraphBuilder()
    c = b.op("MatMul", b.input("x", (4, 8)), b.constant(np.ones((8, 8), np.float32)))
    s = b.op("Sigmoid", c)
    assert groups(b, b.op("Mul", s, b.op("Tanh", c)), s) == ["MatMul", "Sigmoid", "Tanh+Mul"]


def test_movement_is_fused_with_movement_but_not_into_a_product() -> None:
    b = GraphBuilder()
    t = b.op("Reshape", b.op("Transpose", b.input("x", (4, 8))), b.constant([4, 8]))
    assert groups(b, b.op("MatMul", t, b.constant(np.ones((8, 8), np.float32)))) == ["MatMul", "Transpose+Reshape"]


def test_elementwise_operators_join_a_reduction() -> None:
    b = GraphBuilder()
    e = b.op("Exp", b.input("x", (4, 8)))
    assert groups(b, b.op("Sqrt", b.op("ReduceSum", e, b.constant([1])))) == ["Exp+ReduceSum", "Sqrt"]

"""Partitions and the walks they stand on."""

from __future__ import annotations

import itertools

import pytest

from fusewise.ir.graph import Graph
from fusewise.ir.partition import Group, Partition, singletons
from fusewise.ir.walk import ancestors, descendants, is_convex
from fusewise.ops.build import GraphBuilder


def diamond() -> Graph:
    """a -> b -> d and a -> c -> d"""
    g = GraphBuilder()
    x = g.input("x", (2,))
    a = g.op("Relu", x, name="a")
    b = g.op("Exp", a, name="b")
    c = g.op("Neg", a, name="c")
    return g.finish(g.op("Add", b, c, name="d"))


def test_convexity_agrees_with_enumerated_paths() -> None:
    graph = diamond()
    for size in range(5):
        for nodes in itertools.combinations(range(4), size):
            between = ancestors(graph, nodes) & descendants(graph, nodes)
            assert is_convex(graph, nodes) == (between <= set(nodes))


def test_group_reads_and_writes() -> None:
    graph = diamond()
    group = Group((1, 3))
    assert group.inputs(graph) == ("a_out", "c_out")
    assert group.outputs(graph) == ("d_out",)


def test_singletons_cover() -> None:
    assert [g.nodes for g in singletons(diamond()).groups] == [(0,), (1,), (2,), (3,)]


@pytest.mark.parametrize(
    "groups, words",
    [
        ([(0,), (1,), (2,)], "in no group"),
        ([(0, 1), (1, 2), (3,)], "in two groups"),
        ([(0, 3), (1,), (2,)], "cycle"),
    ],
)
def test_bad_partitions_are_refused(groups: list[tuple[int, ...]], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Partition.ordered(diamond(), [Group(nodes) for nodes in groups])


def test_order_is_topological() -> None:
    graph = diamond()
    ordered = Partition.ordered(graph, [Group((3,)), Group((1, 2)), Group((0,))])
    assert [g.nodes for g in ordered.groups] == [(0,), (1, 2), (3,)]
    with pytest.raises(ValueError, match="runs later"):
        Partition(graph, (Group((3,)), Group((1, 2)), Group((0,))))

"""What the simple partitioner puts together, and what it must not."""

from __future__ import annotations

import numpy as np

from fusewise.fusion.simple import partition
from fusewise.ir.graph import Graph
from fusewise.ops.build import GraphBuilder
from fusewise.trace import Trace


def groups(graph: Graph, trace: Trace | None = None) -> list[str]:
    found = partition(graph, trace if trace is not None else Trace())
    return ["+".join(node.op for node in group.members(graph)) for group in found.groups]


def conv(b: GraphBuilder, x: str) -> str:
    channels = b.shape(x)[1]
    out: str = b.op("Conv", x, b.constant(np.ones((channels, channels, 1, 1), np.float32)))
    return out


def test_activation_written_as_two_operators_joins_whole() -> None:
    b = GraphBuilder()
    c = conv(b, b.input("x", (1, 4, 4, 4)))
    assert groups(b.finish(b.op("Mul", c, b.op("Sigmoid", c)))) == ["Conv+Sigmoid+Mul"]


def test_residual_add_joins_one_convolution() -> None:
    b = GraphBuilder()
    x = b.input("x", (1, 4, 4, 4))
    y = b.op("Relu", b.op("Add", conv(b, x), conv(b, b.op("Neg", x))))
    assert sorted(groups(b.finish(y))) == ["Conv", "Conv+Add+Relu", "Neg"]


def test_a_value_read_elsewhere_ends_the_group() -> None:
    b = GraphBuilder()
    r = b.op("Relu", conv(b, b.input("x", (1, 4, 4, 4))))
    assert groups(b.finish(b.op("Exp", r), conv(b, r))) == ["Conv+Relu", "Exp", "Conv"]


def test_a_graph_output_ends_the_group() -> None:
    b = GraphBuilder()
    c = conv(b, b.input("x", (1, 4, 4, 4)))
    assert groups(b.finish(b.op("Relu", c), c)) == ["Conv", "Relu"]


def test_broadcasting_up_ends_the_group() -> None:
    b = GraphBuilder()
    small = b.op("Exp", b.input("x", (1, 4, 1, 1)))
    assert groups(b.finish(b.op("Mul", small, b.input("y", (1, 4, 8, 8))))) == ["Exp", "Mul"]


def test_a_chain_may_end_in_one_reduction() -> None:
    b = GraphBuilder()
    x = b.input("x", (2, 8))
    m = b.op("ReduceMean", b.op("Mul", x, x), b.constant([-1]))
    assert groups(b.finish(b.op("Sqrt", m))) == ["Mul+ReduceMean+Sqrt"]


def test_every_fusion_can_be_refused_and_is_recorded() -> None:
    b = GraphBuilder()
    graph = b.finish(b.op("Relu", conv(b, b.input("x", (1, 4, 4, 4)))))
    trace = Trace(limit=0)
    assert groups(graph, trace) == ["Conv", "Relu"]
    assert [event.kind for event in trace if not event.applied] == ["fuse"]

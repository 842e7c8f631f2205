"""Nodes for one back end are put together into few regions, which have an order."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fusewise.ops.build import GraphBuilder
from fusewise.passes.partition_graph import BACK_ENDS, REGIONS, partition_graph, regions_asked, regions_by
from fusewise.trace import Trace


def test_the_pass_leaves_a_wish_once(parse: Any) -> None:
    graph = parse("input x: float32[2]\ny = Relu(x)\nreturn y")
    trace = Trace()
    after = partition_graph(graph, trace)
    assert dict(after.metadata) == {REGIONS: "accelerator native host"}
    assert regions_asked(after) == BACK_ENDS
    assert regions_asked(graph) == ()
    assert [event.kind for event in trace] == ["partition"]
    assert partition_graph(after, Trace()) is after
    assert partition_graph(graph, Trace(limit=0)) is graph


def test_two_ways_to_one_node_are_one_region_each() -> None:
    b = GraphBuilder()
    x = b.input("x", (2,))
    top, left, right = b.op("Relu", x), b.op("Exp", x), b.op("Neg", x)
    graph = b.finish(b.op("Add", b.op("Tanh", left), b.op("Mul", top, b.op("Sin", right))))
    found, kinds = regions_by(graph, ["native", "host", "host", "host", "host", "native", "native"])
    assert [group.nodes for group in found.groups] == [(0,), (1, 2, 3, 4), (5, 6)]
    assert kinds == ("native", "host", "native")


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_graph_has_regions_in_an_order(data: st.DataObject) -> None:
    """`Partition` itself checks that regions cover the graph and read only from those before; a region has one back end."""
    b = GraphBuilder()
    values = [b.input("x", (2,))]
    for _ in range(data.draw(st.integers(1, 14))):
        values.append(b.op("Add", *(data.draw(st.sampled_from(values)) for _ in range(2))))
    graph = b.finish(values[-1])
    nodes = range(len(graph.nodes))
    back_ends = [data.draw(st.sampled_from(BACK_ENDS[1:])) for _ in nodes]
    chain = [n for n in nodes if all(v in (values[0], values[n]) for v in graph.nodes[n].inputs)]
    apart = [chain[:1]] if chain and data.draw(st.booleans()) else []
    for group in apart:
        back_ends[group[0]] = "accelerator"
    found, kinds = regions_by(graph, back_ends, apart)
    for group, kind in zip(found.groups, kinds, strict=True):
        assert {back_ends[node] for node in group.nodes} == {kind}
    assert all(tuple(group) in [found_group.nodes for found_group in found.groups] for group in apart)
    if len(set(back_ends)) == 1:
        assert len(found.groups) == 1

"""The folded tree of a graph: every node once, convex at every level, the same every time, whatever names say."""

from __future__ import annotations

from graphlib import TopologicalSorter
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusewise import api
from fusewise.reporting.document.outline import MOST_BOXES, outline

Data = dict[str, Any]


def node(position: int, op: str, inputs: list[str], name: str = "", **attributes: str) -> Data:
    """A node with one output, as the document has it."""
    return {
        "id": position,
        "name": name or f"{op.lower()}_{position}",
        "op": op,
        "domain": "",
        "inputs": inputs,
        "outputs": [f"v{position}"],
        "attributes": attributes,
        "origin": [],
    }


def graph(nodes: list[Data], shape: str = "float32[1,8]") -> Data:
    read = {value for one in nodes for value in (*one["inputs"], *one["outputs"])}
    values = {value: {"type": shape, "bytes": 32, "constant": value.startswith("w")} for value in read}
    return {"inputs": ["x"], "outputs": [], "nodes": nodes, "values": values}


def layers(count: int, names: str = "", op: str = "MatMul") -> list[Data]:
    """Residual layers of seven nodes each; `names` has a place for the number of the layer."""
    nodes: list[Data] = []
    last = "x"
    for layer in range(count):
        first = len(nodes)
        reads = [[last], [last, "w"], [f"v{first}"], [f"v{first + 2}", "w"], [f"v{first + 1}"], [f"v{first + 3}", last]]
        for position, (kind, inputs) in enumerate(zip(("Norm", op, "Relu", op, "Tanh", "Add"), reads, strict=True)):
            name = f"{names.format(layer)}.{position}" if names else ""
            nodes.append(node(first + position, kind, inputs, name))
        nodes.append(
            node(first + 6, "Sum", [f"v{first + 5}", f"v{first + 4}"], f"{names.format(layer)}.6" if names else "")
        )
        last = f"v{first + 6}"
    return nodes


def inside(item: Data) -> list[int]:
    """The nodes of an item, those of all copies, in the order of the outline."""
    if item["kind"] == "node":
        return [item["node"]]
    if item["kind"] == "repeat":
        return [one for copy in item["copies"] for one in copy]
    return [one for child in item["children"] for one in inside(child)]


def feeds(described: Data) -> list[set[int]]:
    producer = {value: k for k, one in enumerate(described["nodes"]) for value in one["outputs"]}
    return [{producer[v] for v in one["inputs"] if v in producer} for one in described["nodes"]]


def check_level(items: list[Data], before: list[set[int]], nodes: list[Data]) -> None:
    """Boxes of a level read from each other in no circle (so each is convex among them), copies agree, and so on inwards."""
    owner = {one: k for k, item in enumerate(items) for one in inside(item)}
    arrows: dict[int, set[int]] = {k: set() for k in range(len(items))}
    for one, k in owner.items():
        arrows[k] |= {owner[feed] for feed in before[one] if feed in owner} - {k}
    TopologicalSorter(arrows).prepare()
    for item in items:
        children = item.get("children", [])
        if item["kind"] == "repeat":
            assert item["times"] == len(item["copies"]) > 1
            assert [one for child in children for one in inside(child)] == item["copies"][0]
            assert len({tuple(nodes[one]["op"] for one in copy) for copy in item["copies"]}) == 1
            assert len({inner_wires(copy, nodes) for copy in item["copies"]}) == 1
        check_level(children, before, nodes)


def inner_wires(copy: list[int], nodes: list[Data]) -> tuple[Any, ...]:
    place = {value: position for position, one in enumerate(copy) for value in nodes[one]["outputs"]}
    return tuple(tuple(place.get(value) for value in nodes[one]["inputs"]) for one in copy)


def check(described: Data, groups: tuple[Data, ...] = ()) -> list[Data]:
    items = outline(described, groups)
    nodes = described["nodes"]
    assert sorted(one for item in items for one in inside(item)) == list(range(len(nodes)))
    check_level(items, feeds(described), nodes)
    return items


def boxes(items: list[Data]) -> int:
    """The most boxes of any level."""
    return max([len(items), *(boxes(item["children"]) for item in items if item.get("children"))], default=0)


NAMES = st.one_of(
    st.sampled_from(
        ["", "a.b", "a.c", "/a/b/x", "/a/c", "layer.0.x", "layer.1.x", "layer.2", "b.1", "b.2.y", "a", "stage3.1"]
    ),
    st.text(max_size=12),
    st.sampled_from(
        ["." * 40, "/" * 9, "a." * 3000, "\u202e/\u2028.\0", "</script>.<b>", "../../etc", "layer.\u0663.x"]
    ),
)


@st.composite
def graphs(draw: st.DrawFn) -> Data:
    nodes = []
    for position in range(draw(st.integers(0, 40))):
        reads = draw(st.lists(st.integers(-2, position - 1), max_size=3))
        inputs = [f"v{k}" if k >= 0 else "xw"[k] for k in reads]
        one = node(position, draw(st.sampled_from(["Relu", "Add", "Conv"])), inputs)
        nodes.append(one | {"name": draw(NAMES)})
    return graph(nodes)


@given(graphs())
@settings(max_examples=150, deadline=None)
def test_every_node_is_in_the_outline_once_and_every_level_is_acyclic(described: Data) -> None:
    assert check(described) == outline(described)


@given(graphs(), st.data())
@settings(max_examples=100, deadline=None)
def test_groups_stay_whole(described: Data, data: st.DataObject) -> None:
    """Intervals of the order are convex groups in no circle."""
    count = len(described["nodes"])
    cuts = sorted({0, count, *data.draw(st.lists(st.integers(0, count), max_size=8))})
    groups = tuple(
        {"id": k, "title": "G", "nodes": list(range(a, b)), "anchor": data.draw(st.sampled_from([None, a]))}
        for k, (a, b) in enumerate(pairwise(cuts))
    )
    items = check(described, groups)
    whole = [sorted(inside(one)) for one in found(items, "group")]
    repeated = {one for item in found(items, "repeat") for copy in item["copies"][1:] for one in copy}
    assert sorted(whole) == sorted(group["nodes"] for group in groups if not repeated & set(group["nodes"]))


def found(items: list[Data], kind: str) -> list[Data]:
    return [
        one
        for item in items
        for one in (*([item] if item["kind"] == kind else []), *found(item.get("children", []), kind))
    ]


def test_groups_in_a_circle_are_refused() -> None:
    chain = graph([node(0, "Relu", ["x"]), node(1, "Relu", ["v0"]), node(2, "Relu", ["v1"])])
    with pytest.raises(ValueError, match="circle"):
        outline(chain, [{"id": 0, "title": "", "nodes": [0, 2], "anchor": None}])


@pytest.mark.parametrize(
    "names", ["", "encoder.layer.{}", "/model/layers.{}/layers.{}"], ids=["none", "dots", "slashes"]
)
def test_equal_layers_are_one_repeat(names: str) -> None:
    items = check(graph(layers(12, names.replace("{}", "{0}"))))
    assert [(item["kind"], item.get("times")) for item in items] == [("repeat", 12)]
    assert len(items[0]["children"]) == 7


def test_copies_that_read_otherwise_are_no_copies() -> None:
    """The ninth layer skips one, so that it is no copy of those before it; the run that it begins is another."""
    nodes = layers(12)
    nodes[8 * 7 + 5]["inputs"][1] = f"v{7 * 7 - 1}"
    assert [item["times"] for item in check(graph(nodes)) if item["kind"] == "repeat"] == [8, 4]


def test_repeats_are_in_repeats() -> None:
    """Stages of three equal layers and a product each, four times."""
    nodes: list[Data] = []
    for _ in range(4):
        start = len(nodes)
        stage = [*layers(3), node(21, "Pool", ["v20"])]
        for one in stage:
            moved = [f"v{int(v[1:]) + start}" if v[0] == "v" else v for v in one["inputs"]]
            moved = [f"v{start - 1}" if v == "x" and start else v for v in moved]
            nodes.append(one | {"id": one["id"] + start, "inputs": moved, "outputs": [f"v{one['id'] + start}"]})
    (outer,) = check(graph(nodes))
    assert outer["times"] == 4 and [item.get("times") for item in outer["children"]] == [3, None]


def test_unnamed_nodes_lie_where_their_neighbours_do() -> None:
    """Behind the last of its kind stands what stands behind the others; the rest is in no scope."""
    names = ["stage1.0.conv", "", "stage1.1.conv", "", "stage2.0.conv", "", ""]
    ops = ["Conv", "Relu", "Conv", "Relu", "Conv", "Relu", "Flatten"]
    nodes = [
        node(k, op, [f"v{k - 1}" if k else "x"], name, k=str(k))
        for k, (op, name) in enumerate(zip(ops, names, strict=True))
    ]
    items = check(graph(nodes))
    assert [(item["title"], inside(item)) for item in items] == [
        ("stage1", [0, 1, 2, 3]),
        ("stage2.0", [4, 5]),
        ("flatten_6", [6]),
    ]
    assert [child["title"] for child in items[0]["children"]] == ["stage1.0", "stage1.1"]


def test_long_levels_are_cut_where_little_is_handed_over() -> None:
    """Blocks of ten nodes that read all before them in the block, so that one value leaves each block."""
    nodes = []
    for k in range(2000):
        block = k - k % 10
        nodes.append(node(k, f"Op{k % 10}{k}", [f"v{j}" for j in range(max(0, block - 1), k)] or ["x"]))
    items = check(graph(nodes))
    assert boxes(items) <= MOST_BOXES
    assert all(inside(item)[0] % 10 == 0 for item in items)


def test_levels_of_thousands_of_nodes_are_short() -> None:
    """Four thousand nodes in layers that are wired in all ways, as many equal ones, and equal layers."""
    nodes = layers(570)
    for position, one in enumerate(nodes):
        one["inputs"] = [f"v{max(0, position - 1 - position * k % 37)}" if position else "x" for k in (1, 7)]
    alike = [one | {"op": "Relu"} for one in nodes]
    for described in (graph(nodes), graph(alike), graph(layers(570, "a.{}"))):
        assert 0 < boxes(check(described)) <= MOST_BOXES


@pytest.mark.parametrize("name, times", [("zoo:resnet50", {2, 3, 5}), ("zoo:gpt2", {12})])
def test_repeats_of_the_zoo(name: str, times: set[int]) -> None:
    """Of graphs as they are written: bottlenecks within a stage, layers of an encoder and of a decoder."""
    read = api.load(name)
    nodes = [
        node(k, one.op, list(one.reads), one.label, **{key: str(value)[:80] for key, value in one.attributes})
        | {"outputs": list(one.writes)}
        for k, one in enumerate(read.nodes)
    ]
    values = {v: {"type": str(kind), "constant": v in read.constants} for v, kind in read.types.items()}
    items = check({"nodes": nodes, "values": values})
    assert times <= {item["times"] for item in found(items, "repeat")}
    assert len(items) < 16

"""Drawings of a data-flow tree: every value in the text, and a graph that Graphviz can read."""

from __future__ import annotations

import re
from typing import Any

from fusewise import api
from fusewise.ops.build import GraphBuilder
from fusewise.reporting.data_flow import tree_dot, tree_lines


def tree(name: str = "x") -> dict[str, Any]:
    b = GraphBuilder()
    e = b.op("Exp", b.input(name, (2, 3)), name="e")
    graph = b.finish(
        b.op(
            "Add",
            b.op("Transpose", e, perm=[1, 0], name="t"),
            b.op("Reshape", e, b.constant([3, 2]), name="r"),
            name="sum",
        )
    )
    found: dict[str, Any] = api.inspect(graph, tree="sum")["tree"]
    return found


def test_what_two_read_is_drawn_below_the_first() -> None:
    assert tree_lines(tree()) == [
        "Add sum  float32[3,2]  one-to-one, together shuffle, a result",
        "├─ Transpose t  float32[3,2]  shuffle, read one-to-one",
        "│  └─ Exp e  float32[2,3]  one-to-one, read shuffle",
        "│     └─ x  float32[2,3]  input, read one-to-one",
        "└─ Reshape r  float32[3,2]  reorganize, read one-to-one",
        "   ├─ Exp e  float32[2,3]  one-to-one, read reorganize, as above",
        "   └─ const  int64[2]  constant, read one-to-many",
    ]


def test_a_graph_in_dot_has_an_edge_for_every_operand() -> None:
    found = tree()
    text = tree_dot(found)
    assert text.startswith("digraph group_0 {\n") and text.endswith("}\n")
    assert len(re.findall(r"^  n\d+ \[", text, re.MULTILINE)) == len(found["values"]) == 6
    edges = re.findall(r"^  (n\d+) -> (n\d+) ", text, re.MULTILINE)
    assert len(edges) == sum(len(row.get("operands", ())) for row in found["values"]) == 6
    assert text.count("penwidth=2") == 1


def test_names_of_any_characters_stay_inside_their_quotes() -> None:
    text = tree_dot(tree('a"] evil [\\N\n"'))
    label = next(line for line in text.splitlines() if "evil" in line)
    assert label.count("\n") == 0
    assert re.fullmatch(r'  n\d+ \[shape=ellipse, label="(?:[^"\\]|\\.)*"\];', label)
    assert '"a\\"] evil [\\\\N\\n\\"' in label

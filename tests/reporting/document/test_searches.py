"""The report's part about a search: every step with what it did to the graph, which carries one graph into the next."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import numpy as np
import pytest

from fusewise.ir.graph import Graph
from fusewise.ops.build import GraphBuilder
from fusewise.optimizing import Optimization, optimized
from fusewise.reporting.document.searches import search_part


def branches(hostile: str = "") -> Graph:
    """A 1x1 and a 3x3 convolution of one image, added."""
    rng, build = np.random.default_rng(0), GraphBuilder("branches")
    x = build.input(f"x{hostile}", (1, 16, 14, 14))
    small = build.constant(rng.standard_normal((16, 16, 1, 1)).astype(np.float32))
    large = build.constant(rng.standard_normal((16, 16, 3, 3)).astype(np.float32))
    return build.finish(build.op("Add", build.op("Conv", x, small), build.op("Conv", x, large, pads=(1, 1, 1, 1))))


def part(search: str, graph: Graph, **settings: Any) -> tuple[dict[str, Any], Optimization]:
    found = optimized(graph, search=search, machine="gpu", faster_in="none", **settings)
    return search_part(found, graph, alpha=settings.get("alpha", 1.05), budget=300), found


@pytest.mark.parametrize("search", ["relaxed", "backtracking"])
def test_steps_carry_the_first_graph_into_the_last(search: str) -> None:
    graph = branches("<script>")
    told, found = part(search, graph, alpha=1.6)
    assert json.loads(json.dumps(told)) == told
    operators = Counter(told["operators"]["before"])
    assert len(told["points"]) == 1 + len(found.steps) > 2
    for before, point in zip(told["points"], told["points"][1:], strict=False):
        change = point["change"]
        operators += Counter(node["op"] for node in change["added"])
        operators -= Counter(node["op"] for node in change["removed"])
        assert point["rule"] and point["where"] and point["reason"] and point["cost"] <= before["ceiling"]
        values = {
            value for node in (*change["removed"], *change["added"]) for value in (*node["inputs"], *node["outputs"])
        }
        assert values <= change["types"].keys() | change["constants"].keys()
    assert operators == Counter(told["operators"]["after"]), "what is put in and taken out is the whole difference"
    assert told["best"] == len(found.steps) and told["points"][0]["rule"] is None
    assert "x<script>" in told["points"][1]["change"]["types"]


def test_nodes_beside_a_place_are_not_in_it() -> None:
    told, _ = part("relaxed", branches(), alpha=1.6)
    change = told["points"][1]["change"]
    assert [node["op"] for node in change["removed"]] == ["Conv"] == [node["op"] for node in change["added"]]
    assert [node["op"] for node in change["before"]] == ["Add"] == [node["op"] for node in change["after"]]


def test_a_search_that_applies_all_at_once_has_steps_without_places() -> None:
    pytest.importorskip("egglog")
    told, found = part("saturate", branches())
    assert [point["change"] for point in told["points"][1:]] == [None] * len(found.steps)
    assert told["alpha"] is None and all(point["ceiling"] is None for point in told["points"])


def test_no_search_has_one_point() -> None:
    told, _ = part("none", branches())
    assert len(told["points"]) == 1 and told["budget"] is None and told["best"] == 0

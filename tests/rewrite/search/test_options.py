"""What a search keeps from graph to graph: options are those that a search from scratch would find, at the same prices."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fusewise.ir.graph import Graph, Node
from fusewise.ops.build import GraphBuilder
from fusewise.rewrite.cost import Cost, GraphContext, analytic_metrics, machine_named
from fusewise.rewrite.engine import released
from fusewise.rewrite.rules.table import SUBSTITUTIONS
from fusewise.rewrite.search.options import Option, OptionFinder, PricedGraph
from fusewise.rewrite.search.stated import stated
from fusewise.rewrite.substitute import Refused, carried_out

COST = Cost(((1.0, analytic_metrics(machine_named("gpu"))[0]),))
CHANNELS = 4


@st.composite
def cells(draw: st.DrawFn) -> Graph:
    """Convolutions, activations, sums, concatenations and averages of one image, joined in any way."""
    rng, build = np.random.default_rng(0), GraphBuilder("cells")
    images = [build.input("x", (1, CHANNELS, 5, 5))]
    for k, op in enumerate(
        draw(st.lists(st.sampled_from(("Conv1", "Conv3", "Relu", "Add", "Concat")), min_size=3, max_size=8))
    ):
        x = draw(st.sampled_from(images))
        if op.startswith("Conv"):
            size = int(op[-1])
            weights = build.constant(rng.standard_normal((CHANNELS, CHANNELS, size, size)).astype(np.float32), f"w{k}")
            made = build.op("Conv", x, weights, pads=(size // 2,) * 4)
        elif op == "Relu":
            made = build.op("Relu", x)
        elif op == "Add":
            made = build.op("Add", x, draw(st.sampled_from(images)))
        else:
            joined = build.op("Concat", x, draw(st.sampled_from(images)), axis=1)
            weights = build.constant(rng.standard_normal((CHANNELS, 2 * CHANNELS, 1, 1)).astype(np.float32), f"w{k}")
            made = build.op("Conv", joined, weights)
        images.append(str(made))
    graph = build.finish(images[-1])
    return stated(graph.replace(outputs=tuple(x for x in images[1:] if not graph.users[x])))


def places(options: tuple[Option, ...]) -> dict[tuple[str, frozenset[str]], list[float]]:
    """Prices under the rule and the values that it replaces: two roots may be named in either order."""
    found: dict[tuple[str, frozenset[str]], list[float]] = {}
    for option in options:
        found.setdefault((option.draft.rule.name, option.draft.covered), []).append(round(option.change, 9))
    return {key: sorted(prices) for key, prices in found.items()}


@settings(max_examples=25, deadline=None)
@given(cells(), st.lists(st.integers(0, 1000), min_size=3, max_size=3))
def test_options_after_a_step_are_those_found_from_scratch(graph: Graph, choices: list[int]) -> None:
    finder = OptionFinder(SUBSTITUTIONS)
    options = finder.everywhere(PricedGraph(graph, COST))
    for choice in choices:
        if not options:
            return
        done = options[choice % len(options)].draft
        try:
            after = carried_out(graph, [done])
        except Refused:  # a cycle
            continue
        shrunk = len(after.nodes) < len(graph.nodes) - len({graph.producer[x] for x in done.removed}) + len(done.nodes)
        options = finder.after(PricedGraph(after, COST), options, done, released(graph, after) if shrunk else set())
        graph = after
        assert places(options) == places(finder.everywhere(PricedGraph(graph, COST)))


def test_prices_are_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    build = GraphBuilder("row")
    graph = build.finish(build.op("Relu", build.op("Sigmoid", build.input("x", (4, 4)))))
    asked: list[str] = []
    of = Cost.of

    def noted(cost: Cost, node: Node, around: GraphContext) -> float:
        asked.append(node.op)
        return of(cost, node, around)

    monkeypatch.setattr(Cost, "of", noted)
    priced = PricedGraph(graph, COST)
    assert sum(priced.of(i) for i in (0, 1, 1, 0)) == pytest.approx(2 * COST(graph))
    assert asked == ["Sigmoid", "Relu", "Sigmoid", "Relu"], "two by the prices, two by the cost of the graph"

"""Searching in pieces: what a piece is, where cuts fall, that the graph put together is the same model."""

from __future__ import annotations

import numpy as np
import pytest

from fusewise.errors import UsageError
from fusewise.ir.graph import Graph
from fusewise.ir.key import structural_key
from fusewise.ir.verify import verify
from fusewise.ir.walk import is_convex, predecessors
from fusewise.ops.build import GraphBuilder
from fusewise.ops.evaluate import evaluate
from fusewise.rewrite.cost import Cost, analytic_metrics, machine_named
from fusewise.rewrite.rules.table import SUBSTITUTIONS
from fusewise.rewrite.search.found import SearchLimits
from fusewise.rewrite.search.split import Division, SearchTask, piece_of, pieces, replaced, search_in_pieces

COST = Cost(((1.0, analytic_metrics(machine_named("gpu"))[0]),))
pytest.importorskip("scipy")


def cells(count: int, channels: int = 8) -> Graph:
    """Cells in a row: three convolutions of one image, joined, and one that narrows them."""
    rng, build = np.random.default_rng(0), GraphBuilder("cells")

    def conv(x: str, inputs: int, kernel: int) -> str:
        weights = (rng.standard_normal((channels, inputs, kernel, kernel)) / inputs).astype(np.float32)
        return str(build.op("Relu", build.op("Conv", x, build.constant(weights), pads=(kernel // 2,) * 4)))

    x = build.input("x", (1, channels, 6, 6))
    for _ in range(count):
        x = conv(build.op("Concat", *(conv(x, channels, kernel) for kernel in (1, 1, 3)), axis=1), 3 * channels, 1)
    return build.finish(x)


def answer(graph: Graph) -> np.ndarray:
    x = np.random.default_rng(1).standard_normal(graph.tensor("x").dims).astype(np.float32)
    values = {**{name: c.array for name, c in graph.constants.items()}, "x": x}
    for node in graph.nodes:
        values.update(zip(node.outputs, evaluate(node, values, graph.opset), strict=True))
    return np.asarray(values[graph.outputs[0]])


@pytest.mark.parametrize("largest", [4, 9, 20])
def test_pieces_cover_the_graph_in_order(largest: int) -> None:
    graph = cells(4)
    parts = pieces(graph, SUBSTITUTIONS, largest)
    assert sorted(node for part in parts for node in part) == list(range(len(graph.nodes)))
    seen: set[int] = set()
    for part in parts:
        assert is_convex(graph, part)
        seen.update(part)
        assert all(before in seen for node in part for before in predecessors(graph, node))


def test_cuts_fall_between_cells() -> None:
    """Two cells fall apart where only one value crosses, and no substitution is lost."""
    graph = cells(2)
    first, second = pieces(graph, SUBSTITUTIONS, len(graph.nodes) - 1)
    crossing = {x for i in first for x in graph.nodes[i].writes if not set(graph.users[x]).isdisjoint(second)}
    assert len(crossing) == 1
    for nodes in (first, second):
        reading = [x for i in nodes for x in graph.nodes[i].reads if x not in graph.constants]
        assert max(map(reading.count, reading)) == 3, "the three convolutions of one image are together"


def test_a_piece_put_back_is_the_graph() -> None:
    graph = cells(3)
    for part in pieces(graph, SUBSTITUTIONS, 8):
        piece = piece_of(graph, part)
        verify(piece)
        again = replaced(graph, part, piece)
        verify(again)
        assert structural_key(again) == structural_key(graph)


def test_names_of_a_piece_do_not_meet_those_outside() -> None:
    graph = cells(1)
    part = tuple(range(4))
    piece = piece_of(graph, part)
    outside = graph.nodes[-1].outputs[0]
    (inner,) = (x for x in piece.nodes[0].writes if x not in piece.output_set)
    swapped = piece.replace(
        nodes=tuple(
            node.with_inputs(outside if x == inner else x for x in node.inputs)
            if inner in node.inputs
            else type(node)(
                node.op, node.inputs, tuple(outside if x == inner else x for x in node.outputs), node.attributes
            )
            for node in piece.nodes
        ),
        types={**piece.types, outside: piece.types[inner]},
    )
    again = replaced(graph, part, swapped)
    verify(again)
    assert np.array_equal(answer(again), answer(graph))


def test_the_search_in_pieces_finds_a_better_graph_of_the_same_answers() -> None:
    graph = cells(3)
    found = search_in_pieces(SearchTask(graph, 1.1, SearchLimits(60)), SUBSTITUTIONS, COST, Division(10))
    verify(found.graph)
    assert found.cost < found.cost_before
    assert found.cost == pytest.approx(COST(found.graph))
    assert [step.serial for step in found.steps] == list(range(1, len(found.steps) + 1))
    assert found.steps[0].cost_before == found.cost_before
    assert found.steps[-1].cost_after == found.cost
    a, b = answer(graph), answer(found.graph)
    assert np.abs(a - b).max() <= 1e-5 * np.abs(a).max()
    again = search_in_pieces(SearchTask(graph, 1.1, SearchLimits(60)), SUBSTITUTIONS, COST, Division(10))
    assert again.steps == found.steps


def test_graphs_on_the_way_are_kept_the_best_first() -> None:
    graph = cells(4)
    found = search_in_pieces(SearchTask(graph, 1.1, SearchLimits(60)), SUBSTITUTIONS, COST, Division(10), keep=3)
    *kept, (first, _, steps) = found.best
    assert (len(kept), steps) == (3, ())
    assert first is graph
    prices = [price for _, price, _ in found.best]
    assert prices == sorted(prices)
    for better, price, way in kept:
        verify(better)
        assert price == pytest.approx(COST(better))
        assert way == found.steps[: len(way)]


def test_the_whole_graph_comes_last_for_what_no_piece_holds() -> None:
    """Two products share a matrix, far apart."""
    rng, build = np.random.default_rng(0), GraphBuilder("far")
    shared = build.constant(rng.standard_normal((32, 32)).astype(np.float32) / 6)
    first, second = (build.input(name, (2, 32)) for name in "xy")
    x = build.op("MatMul", first, shared)
    for _ in range(12):
        x = build.op("Softmax", x)
    graph = build.finish(x, build.op("Softmax", build.op("MatMul", second, shared)))
    cost = Cost(((1.0, analytic_metrics(machine_named("gpu"))[0]),))
    told: list[float] = []
    pieces_only, whole = (
        search_in_pieces(
            SearchTask(graph, 1.0, SearchLimits(40)), SUBSTITUTIONS, cost, Division(4, whole), progress=told.append
        )
        for whole in (False, True)
    )
    assert not pieces_only.steps
    assert [step.rule for step in whole.steps] == ["merge-products-with-one-matrix"]
    verify(whole.graph)
    assert whole.cost == pytest.approx(cost(whole.graph))
    assert told[-1] == 1.0


def test_time_runs_out_between_pieces() -> None:
    ticks = iter(range(10_000))
    limits = SearchLimits(300, seconds=8, clock=lambda: float(next(ticks)))
    found = search_in_pieces(SearchTask(cells(4), limits=limits), SUBSTITUTIONS, COST, Division(10))
    assert found.ended == "seconds"


@pytest.mark.parametrize("alpha, graphs, ended", [(1.5, 20, "graphs"), (1.0, 1000, "searched")])
def test_a_budget_that_is_used_up_is_told(alpha: float, graphs: int, ended: str) -> None:
    """Pieces of which one could not look at all that is within alpha are not said to have been searched."""
    found = search_in_pieces(SearchTask(cells(2), alpha, SearchLimits(graphs)), SUBSTITUTIONS, COST, Division(20))
    assert found.ended == ended


def test_wrong_alpha_is_named() -> None:
    with pytest.raises(UsageError, match="alpha"):
        search_in_pieces(SearchTask(cells(1), 0.5), SUBSTITUTIONS, COST)

"""The search for an order: seeded, without pricing a graph twice, and able to go on."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from fusewise.errors import UsageError
from fusewise.ir.graph import Graph
from fusewise.select.objective import OBJECTIVES, objective_named
from fusewise.select.order import Searched, search_orders, tried_from
from fusewise.select.pipeline import Pipeline
from fusewise.select.sequence import Outcome
from fusewise.zoo.scaled import scaled

START = Pipeline("start", ("SimplifyInference", "CanonicalizeOps"))
NAMES = ("BackwardFoldScaleAxis", "CanonicalizeOps", "FuseOps")


@pytest.fixture(scope="module")
def graph() -> Graph:
    return scaled("resnet")


def nodes(outcome: Outcome) -> float:
    return float(len(outcome.graph.nodes))


def found(graph: Graph, price: object = nodes, **settings: object) -> Searched:
    given = {"seed": 1, "seconds": 1e9, "budget": 40, **settings}
    return search_orders(graph, (START,), NAMES, price, **given)  # type: ignore[arg-type]


def test_it_finds_that_scales_fold_behind_decomposition(graph: Graph) -> None:
    best = found(graph)
    assert best.cost < best.tried[0].cost
    assert best.tried[0].passes == START.passes
    assert len(best.tried) == 40
    assert best.ended == "budget"
    order = best.best.passes
    assert order.index("SimplifyInference") < order.index("BackwardFoldScaleAxis")


def test_one_pass_more_at_either_end_comes_first(graph: Graph) -> None:
    (start, *more), names = (one.passes for one in found(graph).tried), NAMES
    assert more[: 2 * len(names)] == [order for name in names for order in ((*start, name), (name, *start))]


def test_a_seed_is_a_search_and_graphs_are_priced_once(graph: Graph) -> None:
    priced: list[str] = []

    def price(outcome: Outcome) -> float:
        priced.append(outcome.cost_key)
        return nodes(outcome)

    first = found(graph, price)
    assert len(priced) == len(set(priced)) == len({one.key for one in first.tried})
    assert first.duplicates == len(first.tried) - len(priced)
    assert found(graph).tried == first.tried
    assert found(graph, seed=2).tried != first.tried


def test_it_goes_on_from_what_it_tried(graph: Graph) -> None:
    def never(outcome: Outcome) -> float:
        raise AssertionError("this graph was priced before")

    first = found(graph, budget=20)
    rows = [{"passes": list(t.passes), "fusion": t.fusion, "key": t.key, "cost": t.cost} for t in first.tried]
    assert found(graph, never, budget=20, known=tried_from(rows)).tried == first.tried
    assert found(graph, budget=40, known=first.tried).tried == found(graph, budget=40).tried


def test_an_executor_changes_nothing_but_time(graph: Graph) -> None:
    with ThreadPoolExecutor(2) as executor:
        assert found(graph, budget=20, executor=executor).tried == found(graph, budget=20).tried


def test_it_ends_when_time_is_up(graph: Graph) -> None:
    ticks = iter([0.0, 1.0, 2.0, 3.0, 10.0])
    assert found(graph, seconds=5.0, clock=lambda: next(ticks)).ended == "seconds"


def test_objectives() -> None:
    mixed = objective_named("latency + 0.5*memory")
    assert mixed.terms == ((1.0, "latency"), (0.5, "memory"))
    assert str(mixed) == "latency + 0.5*memory"
    assert mixed.cost({"latency": 2.0, "memory": 4.0}) == 4.0
    assert objective_named("energy").cost({"latency": 2.0}) == float("inf")
    assert all(objective_named(name).unit == unit for name, unit in OBJECTIVES.items())
    with pytest.raises(UsageError, match="no objective 'latncy'; did you mean 'latency'"):
        objective_named("latncy")
    with pytest.raises(UsageError, match="is not a sum such as"):
        objective_named("latency * 2")

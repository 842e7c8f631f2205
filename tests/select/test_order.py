"""The search for an order: over graphs, each priced once; seeded, learning, and able to go on."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from math import inf
from typing import Any

import pytest

from fusewise.errors import UsageError
from fusewise.ir.graph import Graph
from fusewise.select.objective import OBJECTIVES, objective_named
from fusewise.select.order import Earlier, Ending, OrderSpace, Price, Searched, search_orders, tried_from
from fusewise.select.pipeline import Pipeline
from fusewise.select.sequence import Outcome, run_pipeline
from fusewise.zoo.scaled import scaled

START = Pipeline("start", ("SimplifyInference", "absorb_bias"))
NAMES = ("BackwardFoldScaleAxis", "absorb_bias", "FuseOps", "FoldConstant", "AlterOpLayout")


@pytest.fixture(scope="module")
def graph() -> Graph:
    return scaled("resnet")


def nodes(outcome: Outcome) -> float:
    return float(len(outcome.graph.nodes))


def found(graph: Graph, price: Price = nodes, budget: int = 12, ending: Ending | None = None, **given: Any) -> Searched:
    space = OrderSpace(graph, (START,), NAMES)
    return search_orders(space, price, ending or Ending(1e9, budget), **{"seed": 1, **given})


def test_it_finds_that_scales_fold_behind_decomposition(graph: Graph) -> None:
    best = found(graph)
    assert best.cost < best.tried[0].cost
    assert best.tried[0].passes == ("SimplifyInference",), "without what is in vain"
    order = best.best.passes
    assert order.index("SimplifyInference") < order.index("BackwardFoldScaleAxis")


@pytest.mark.parametrize("budget", [1, 2, 5, 12])
def test_a_budget_is_one_of_different_graphs(graph: Graph, budget: int) -> None:
    priced: list[str] = []

    def price(outcome: Outcome) -> float:
        priced.append(outcome.cost_key)
        return nodes(outcome)

    first = found(graph, price, budget)
    assert first.ended == "budget"
    assert len(priced) == len(set(priced)) == budget
    assert [one.key for one in first.tried] == priced
    for one in first.tried:
        outcome = run_pipeline(Pipeline("again", one.passes, one.fusion), graph)
        assert outcome.cost_key == one.key
        assert not outcome.unchanged, "no pass of a found order is in vain"


def test_starts_are_in_the_budget(graph: Graph) -> None:
    starts = (START, Pipeline("other", ()), Pipeline("again", START.passes))
    for budget, tried in ((0, 1), (1, 1), (2, 2)):
        space = OrderSpace(graph, starts, NAMES)
        assert len(search_orders(space, nodes, Ending(1e9, budget)).tried) == tried


def test_whatever_a_short_order_leads_to_is_found(graph: Graph) -> None:
    names = NAMES[:3]
    start = Pipeline("start", ())
    every = search_orders(OrderSpace(graph, (start,), names, ("patterns",)), nodes, Ending(1e9, 10_000))
    assert every.ended == "finished"
    keys = {one.key for one in every.tried}
    assert len(keys) == len(every.tried)
    for length in range(4):
        for order in itertools.product(names, repeat=length):
            for fusion in (start.fusion, "patterns"):
                assert run_pipeline(Pipeline("mine", order, fusion), graph).cost_key in keys, order


def test_a_price_sees_the_runs_of_the_whole_order(graph: Graph) -> None:
    def price(outcome: Outcome) -> float:
        assert [run.name for run in outcome.runs] == list(outcome.pipeline.passes)
        assert all(run.changed for run in outcome.runs)
        return outcome.total_ms

    assert found(graph, price).cost >= 0


def test_a_seed_is_a_search(graph: Graph) -> None:
    first = found(graph)
    assert found(graph) == first
    assert found(graph, seed=2).tried != first.tried


def test_it_goes_on_from_what_it_tried(graph: Graph) -> None:
    def never(outcome: Outcome) -> float:
        raise AssertionError("this graph was priced before")

    first = found(graph, budget=6)
    rows = [{"passes": list(t.passes), "fusion": t.fusion, "key": t.key, "cost": t.cost} for t in first.tried]
    again = found(graph, never, 6, earlier=Earlier(tried_from(rows)))
    assert again.tried == first.tried
    assert not again.learned, "that was learned before"
    more = found(graph, earlier=Earlier(first.tried))
    assert more.tried == found(graph).tried
    assert more.learned


def test_what_a_search_learns_adds_up(graph: Graph) -> None:
    first = found(graph, budget=20)
    counts = first.learned.values()
    assert sum(count.tried for count in counts) == first.duplicates + len(first.tried) - 1
    assert all(count.cheaper <= count.priced <= count.changed <= count.tried for count in counts)
    taken_out = [count for move, count in first.learned.items() if not move.put]
    assert taken_out
    assert all(count.changed == count.tried for count in taken_out), "no pass of an order is in vain"
    priced_out = found(graph, lambda outcome: inf if len(outcome.graph.nodes) % 2 else 1.0)
    assert any(count.changed > count.priced for count in priced_out.learned.values()), "nothing is cheaper than unknown"


def test_what_was_learned_elsewhere_leads_to_the_best_sooner(graph: Graph) -> None:
    other = scaled("mobilenet")
    learned = found(other, budget=30).learned

    def turns(searched: Searched) -> int:
        return [one.cost for one in searched.tried].index(searched.cost)

    alone = [found(graph, budget=30, seed=seed) for seed in range(4)]
    taught = [found(graph, budget=30, seed=seed, earlier=Earlier(moves=learned)) for seed in range(4)]
    assert min(one.cost for one in alone) == max(one.cost for one in taught)
    assert sum(map(turns, taught)) < sum(map(turns, alone))


def test_an_executor_changes_nothing_but_time(graph: Graph) -> None:
    with ThreadPoolExecutor(2) as executor:
        assert found(graph, executor=executor) == found(graph)


def test_it_ends_when_time_is_up(graph: Graph) -> None:
    ticks = iter([0.0, 1.0, 2.0, 3.0, 10.0])
    assert found(graph, ending=Ending(5.0, 100, lambda: next(ticks))).ended == "seconds"


def test_planners_are_moves_too(graph: Graph) -> None:
    start = replace(START, fusion="none")
    tried = search_orders(OrderSpace(graph, (start,), (), ("dnnfusion", "patterns")), nodes, Ending(1e9, 20)).tried
    assert {one.fusion for one in tried} == {"none", "dnnfusion", "patterns"}


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

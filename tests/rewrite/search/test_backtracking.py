"""The search as it was published: improvements are taken at once, and every step may go up by alpha."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.rewrite.search.modules import GPU, agree, branches, cost_on, interrupting, published_module, residual_module

from fusewise.errors import UsageError
from fusewise.ir.graph import Constant, Graph
from fusewise.ir.verify import verify
from fusewise.rewrite.cost import Cost, machine_named
from fusewise.rewrite.engine import drafts_of
from fusewise.rewrite.rule import Rule
from fusewise.rewrite.rules.table import SUBSTITUTIONS, rule_named
from fusewise.rewrite.search.backtracking import backtrack
from fusewise.rewrite.search.found import SearchLimits
from fusewise.rewrite.search.key import search_key
from fusewise.rewrite.search.promise import Promises, deferred
from fusewise.rewrite.search.relaxed import search
from fusewise.rewrite.search.stated import stated
from fusewise.rewrite.substitute import carried_out, folded


def written_down(graph: Graph, rules: Sequence[Rule], cost: Cost, alpha: float) -> tuple[float, int]:
    """The published algorithm line by line, every graph built and priced as a whole: the least cost, and how many were built.

    Weights that were made another way are other weights, as in every search here, whatever numbers come out.
    """
    known: dict[str, tuple[Constant, int]] = {}
    serial = itertools.count(1)
    first = stated(graph)
    queue = [(cost(first), 0, first)]
    met = {search_key(first, known)}
    least, built = cost(first), 0
    while queue:
        _, _, current = heapq.heappop(queue)
        built += 1
        least = min(least, cost(current))
        for rule in rules:
            tried: set[object] = set()
            while True:
                places = [each for each in drafts_of(current, [rule], weigh=Promises()) if each.match.key not in tried]
                if not places:
                    break
                draft = min(places, key=lambda each: current.producer[each.match.roots[0]])
                tried.add(draft.match.key)
                after = carried_out(current, [deferred(draft)])
                price = cost(after)
                key = search_key(after, known)
                if price < cost(current) - 1e-12:
                    current, built, least = after, built + 1, min(least, price)
                    met.add(key)
                elif price < alpha * cost(current) and key not in met:
                    met.add(key)
                    heapq.heappush(queue, (round(price, 9), -next(serial), after))
    return least, built


@settings(max_examples=12, deadline=None)
@given(
    st.lists(st.sampled_from([2, 4]), min_size=1, max_size=2),
    st.lists(st.sampled_from([1, 3]), min_size=2, max_size=2),
    st.sampled_from(["cpu", "gpu", "cudnn"]),
    st.sampled_from([1.0, 1.02, 1.1, 1.5]),
)
def test_it_finds_what_the_algorithm_finds_as_it_is_written_down(
    widths: list[int], kernels: list[int], machine: str, alpha: float
) -> None:
    graph = branches(tuple(widths), tuple(kernels[: len(widths)]))
    cost = cost_on(machine_named(machine))
    names = (
        "enlarge-kernel",
        "merge-parallel-convolutions",
        "relu-after-concat",
        "relu-before-split",
        "concat-of-split",
    )
    rules = [rule for rule in SUBSTITUTIONS if rule.name in names]
    found = backtrack(graph, rules, cost, alpha=alpha, limits=SearchLimits(10_000))
    least, built = written_down(graph, rules, cost, alpha)
    assert found.ended == "searched"
    assert found.cost == pytest.approx(least)
    assert found.explored == built
    agree(graph, found.graph)
    verify(found.graph)


def test_an_improvement_takes_the_place_of_the_graph() -> None:
    """After the cheapest convolutions are merged nothing waits that leaves them apart."""
    graph, cost = branches((16, 16), (3, 3), channels=16), cost_on(GPU)
    found = backtrack(graph, SUBSTITUTIONS, cost, alpha=1.0)
    assert (found.ended, found.explored) == ("searched", 1 + len(found.steps))
    assert all(step.cost_after < step.cost_before for step in found.steps)
    agree(graph, found.graph)


def test_alpha_is_of_the_graph_before_and_not_of_the_best() -> None:
    """Two kernels grow one after the other, though both together cost more than alpha times the input."""
    rule = rule_named("enlarge-kernel")
    assert rule is not None
    graph, cost = branches((32, 32), (1, 1), channels=16), cost_on(machine_named("cpu"))
    once, twice = (step for step in _growths(graph, rule, cost))
    alpha = 1.001 * max(once, twice)
    assert once * twice > alpha
    assert search(graph, [rule], cost, alpha=alpha).explored == 3, "either one"
    assert backtrack(graph, [rule], cost, alpha=alpha).explored == 4, "and both"


def _growths(graph: Graph, rule: Rule, cost: Cost) -> list[float]:
    """How much dearer the graph gets with each place where the rule is applied in turn."""
    found = []
    for _ in range(2):
        after = carried_out(graph, [folded(next(iter(drafts_of(graph, [rule]))))])
        found.append(cost(after) / cost(graph))
        graph = after
    return found


def test_it_is_deterministic_and_never_worse_than_the_input() -> None:
    graph = branches((16, 16, 16), (1, 1, 3), channels=16, size=14)
    runs = [backtrack(graph, SUBSTITUTIONS, cost_on(GPU), alpha=1.3, limits=SearchLimits(40)) for _ in range(2)]
    assert runs[0].steps == runs[1].steps
    assert runs[0].cost < runs[0].cost_before
    assert [step.cost_before for step in runs[0].steps[1:]] == [step.cost_after for step in runs[0].steps[:-1]]
    assert (
        backtrack(branches((8,), (3,)), SUBSTITUTIONS, cost_on(machine_named("cpu")), limits=SearchLimits(5)).steps
        == ()
    )


@pytest.mark.parametrize("graphs", [1, 2, 3, 7])
def test_graphs_that_take_the_place_of_others_count(graphs: int) -> None:
    found = backtrack(published_module(), SUBSTITUTIONS, cost_on(GPU), alpha=1.6, limits=SearchLimits(graphs))
    assert found.explored <= graphs
    assert found.ended == ("graphs" if found.explored == graphs else "searched")


def test_time_runs_out() -> None:
    ticks = iter(range(1000))
    limits = SearchLimits(10_000, seconds=3, clock=lambda: float(next(ticks)))
    found = backtrack(residual_module(), SUBSTITUTIONS, cost_on(GPU), alpha=1.5, limits=limits)
    assert (found.ended, found.explored) == ("seconds", 3)


def test_an_interruption_gives_the_best_so_far() -> None:
    graph, cost = residual_module(), cost_on(GPU)
    whole = backtrack(graph, SUBSTITUTIONS, cost, alpha=1.6)
    assert backtrack(graph, SUBSTITUTIONS, cost, alpha=1.6, progress=interrupting(0)).graph is graph
    found = backtrack(graph, SUBSTITUTIONS, cost, alpha=1.6, progress=interrupting(whole.explored - 1))
    assert (found.ended, found.steps) == ("interrupted", whole.steps)


def test_wrong_alpha_is_named() -> None:
    with pytest.raises(UsageError, match="alpha is 0.9"):
        backtrack(residual_module(), SUBSTITUTIONS, cost_on(GPU), alpha=0.9)

"""Groups that pay, against all groups there are, and the bound against the best of all plans."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.accel.integer_programme import every_group
from tests.accel.search.test_exact import brute_force, random_graphs
from tests.accel.search.test_exact_memory import SCHEMES, by_scheme, problem_of

from fusewise.accel.bits import bits_of, lowest
from fusewise.accel.problem import GroupCosts, Problem
from fusewise.accel.schemes.lbdf import LBDF
from fusewise.accel.search.exact_layers import layers_of
from fusewise.accel.search.exact_pricing import Pricing
from fusewise.ir.graph import Graph


def priced_by_hand(problem: Problem, prices: np.ndarray) -> dict[int, float]:
    """What every group that fits moves less its prices, in elements."""
    return {
        group: by_scheme(problem, group)[1] * 8 / problem.scheme.bits - float(prices[list(bits_of(group))].sum())
        for group in every_group(GroupCosts(problem))
    }


def pricing_of(problem: Problem, shadow: float) -> Pricing:
    layers = layers_of(problem, 10**6)
    assert layers is not None
    return Pricing(layers, problem.room, shadow)


@settings(max_examples=120, deadline=None)
@given(
    random_graphs(), st.sampled_from(SCHEMES), st.floats(0.2, 1.2), st.integers(0, 1000), st.sampled_from([0.01, 1, 30])
)
def test_the_best_group_of_every_root_is_found(
    graph: Graph, scheme: LBDF, share: float, seed: int, shadow: float
) -> None:
    problem = problem_of(graph, scheme, share)
    prices = np.random.default_rng(seed).uniform(0, 2000, len(problem.network))
    reduced = priced_by_hand(problem, prices)
    found = pricing_of(problem, shadow).priced(prices, 1, 0)
    least: dict[int, float] = {}
    for group, value in reduced.items():
        least[lowest(group)] = min(least.get(lowest(group), 0), value)
    assert {saving.root for saving in found.savings} == {root for root, value in least.items() if value < -1e-3}
    for saving in found.savings:
        assert saving.reduced == pytest.approx(reduced[saving.group], abs=1e-6)
        assert saving.reduced == pytest.approx(least[saving.root], abs=1e-3)
    assert found.bound == pytest.approx(prices.sum() + sum(least.values()), abs=0.1)


@settings(max_examples=80, deadline=None)
@given(random_graphs(), st.sampled_from(SCHEMES), st.floats(0.2, 1.2), st.integers(0, 1000), st.floats(0, 0.95))
def test_the_bound_holds_however_vaguely_groups_are_looked_for(
    graph: Graph, scheme: LBDF, share: float, seed: int, vague: float
) -> None:
    problem = problem_of(graph, scheme, share)
    if not problem.fuseable:
        return
    prices = np.random.default_rng(seed).uniform(0, 1000, len(problem.network))
    prices[list(bits_of(problem.excluded))] = 0
    pricing = pricing_of(problem, 1.0)
    found, exact = pricing.priced(prices, 3, vague), pricing.priced(prices, 3, 0)
    assert found.bound <= exact.bound + 1e-6
    assert exact.bound * scheme.bits / 8 <= brute_force(GroupCosts(problem)) + 1e-6
    reduced = priced_by_hand(problem, prices)
    for saving in (*found.savings, *exact.savings):
        assert saving.reduced == pytest.approx(reduced[saving.group], abs=1e-6)


@settings(max_examples=60, deadline=None)
@given(random_graphs(), st.floats(0.2, 1.2), st.integers(0, 1000), st.floats(0, 3000))
def test_groups_near_their_prices(graph: Graph, share: float, seed: int, slack: float) -> None:
    problem = problem_of(graph, LBDF(), share)
    prices = np.random.default_rng(seed).uniform(0, 1000, len(problem.network))
    reduced = priced_by_hand(problem, prices)
    near = pricing_of(problem, 1.0).near(prices, slack, 1000)
    assert all(saving.reduced < slack and saving.group in reduced for saving in near)
    roots = {lowest(group) for group, value in reduced.items() if value < slack - 1e-3}
    assert roots <= {saving.root for saving in near}

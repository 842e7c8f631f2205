"""The bound for networks too wide for a proof: never above the optimum, and above what every plan moves."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.accel.integer_programme import cheapest_cover
from tests.accel.pinned import NAMES, pinned
from tests.accel.search.test_exact import brute_force, random_graphs

from fusewise.accel.network import network_of
from fusewise.accel.problem import Costs, Problem
from fusewise.accel.schemes.brr import BRR
from fusewise.accel.schemes.lbdf import LBDF
from fusewise.accel.search.exact import compulsory_bound, exact_search
from fusewise.accel.search.exact_bound import cut_bound, cuts_of
from fusewise.ir.graph import Graph

SCHEMES = (LBDF(), LBDF("row"), LBDF(excluded_traffic=False, network_io=False), LBDF(bits=8))


def bound_of(costs: Costs) -> float:
    cuts = cuts_of(costs.problem)
    return compulsory_bound(costs, 0 if cuts is None else int(cut_bound(cuts, lambda: False)))


@settings(max_examples=80, deadline=None)
@given(random_graphs(), st.sampled_from(SCHEMES), st.floats(0.1, 1.0))
def test_never_above_the_best_of_all_plans(graph: Graph, scheme: LBDF, share: float) -> None:
    network = network_of(graph)
    top = max(
        [need for v in range(len(network)) if (need := scheme.buffer_bytes(network, 1 << v)) < 1 << 60], default=1
    )
    whole = scheme.buffer_bytes(network, network.everything)
    problem = Problem(network, scheme, max(1, int(share * max(top, whole if whole < 1 << 60 else 1))))
    if problem.fuseable:
        assert compulsory_bound(Costs(problem)) <= bound_of(Costs(problem)) <= brute_force(Costs(problem))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kib", [128, 2048])
def test_never_above_the_proven_optimum(name: str, kib: int) -> None:
    costs = Costs(Problem(pinned(name), LBDF(), kib << 10))
    proven, least, bound = exact_search(costs), compulsory_bound(costs), bound_of(costs)
    assert proven.optimal and least <= bound <= proven.cost
    assert bound > least or len(proven.groups) < 20


def test_every_row_holds_for_the_optimum_of_an_integer_programme() -> None:
    """The plan of least cost by CP-SAT, over all groups that fit, without any code of the search."""
    costs = Costs(Problem(pinned("mobilenet_v2"), LBDF(), 256 << 10))
    least, _ = cheapest_cover(costs)
    assert 0.95 * least < bound_of(costs) <= least


def test_stops_when_told_and_is_a_bound_at_any_time() -> None:
    problem = Problem(pinned("inception_v3"), LBDF(), 256 << 10)
    cuts = cuts_of(problem)
    assert cuts is not None and cuts_of(Problem(pinned("inception_v3"), BRR(), 256 << 10)) is None
    told: list[float] = []
    whole = cut_bound(cuts, lambda: len(told) >= 3, told.append)
    assert len(told) == 3 and told == sorted(told) and told[-1] == whole > 0
    assert compulsory_bound(Costs(problem), int(whole)) <= exact_search(Costs(problem)).cost
    assert cut_bound(cuts, lambda: True) == 0

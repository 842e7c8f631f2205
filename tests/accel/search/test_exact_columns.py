"""Plans composed by column generation: legal, never worse than what they start from, with a bound that no plan is below."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.accel.integer_programme import cheapest_cover
from tests.accel.pinned import NAMES, pinned
from tests.accel.search.test_exact import brute_force, random_graphs, windows_of
from tests.accel.search.test_exact_memory import SCHEMES, problem_of, split_graph

from fusewise.accel.bits import mask_of
from fusewise.accel.estimate import objective_named
from fusewise.accel.hardware import hardware_named
from fusewise.accel.network import network_of, prepare
from fusewise.accel.problem import GroupCosts, Problem
from fusewise.accel.schemes.brr import BRR
from fusewise.accel.schemes.lbdf import LBDF
from fusewise.accel.search.exact import compulsory_bound, exact_search
from fusewise.accel.search.exact_columns import Composed, composed
from fusewise.accel.search.exact_orders import cut_order, drawn_order
from fusewise.accel.search.result import SearchBudget
from fusewise.ir.graph import Graph
from fusewise.zoo.catalogue import build


def composed_of(costs: GroupCosts, plan: tuple[int, ...]) -> Composed:
    return composed(costs, [plan], lambda: False, lambda: 20.0)


def check_plan(costs: GroupCosts, groups: tuple[int, ...]) -> None:
    problem = costs.problem
    assert mask_of(v for group in groups for v in range(len(problem.network)) if group >> v & 1) == problem.fuseable
    assert sum(group.bit_count() for group in groups) == problem.fuseable.bit_count()
    assert all(problem.is_group(group) and costs.fits(group) for group in groups)
    assert problem.ordered(groups) == groups


@settings(max_examples=80, deadline=None)
@given(random_graphs(), st.sampled_from(SCHEMES), st.floats(0.2, 1.2))
def test_the_optimum_lies_between_bound_and_plan(graph: Graph, scheme: LBDF, share: float) -> None:
    costs = GroupCosts(problem_of(graph, scheme, share))
    start = costs.problem.ordered(costs.problem.singletons())
    if not start:
        return
    found, optimum = composed_of(costs, start), brute_force(GroupCosts(costs.problem))
    assert compulsory_bound(costs) <= compulsory_bound(costs, found.bound) <= optimum
    if found.groups is not None:
        check_plan(costs, found.groups)
        assert optimum <= costs.total(found.groups) <= costs.total(start)


@pytest.mark.parametrize("kib", [128, 512])
@pytest.mark.parametrize("name", [*NAMES, "inception_v3"])
def test_as_good_as_the_proven_optimum(name: str, kib: int) -> None:
    costs = GroupCosts(Problem(pinned(name), LBDF(), kib << 10))
    start = costs.problem.ordered(costs.problem.singletons())
    assert start is not None
    found, optimum = composed_of(costs, start), exact_search(GroupCosts(costs.problem)).cost
    assert found.groups is not None
    check_plan(costs, found.groups)
    assert costs.total(found.groups) == optimum
    assert 0.998 * optimum <= compulsory_bound(costs, found.bound) <= optimum


def test_bound_and_plan_of_an_integer_programme() -> None:
    """The plan of least cost by CP-SAT, over all groups that fit, without any code of the search."""
    costs = GroupCosts(Problem(pinned("mobilenet_v2"), LBDF(), 256 << 10))
    found = composed_of(costs, costs.problem.singletons())
    least, _ = cheapest_cover(costs)
    assert found.groups is not None
    assert costs.total(found.groups) == compulsory_bound(costs, found.bound) == pytest.approx(least, abs=0.5)


def test_tensors_that_come_together() -> None:
    costs = GroupCosts(problem_of(split_graph(), LBDF(), 0.7))
    found = composed_of(costs, costs.problem.singletons())
    assert found.groups is not None
    assert (
        costs.total(found.groups)
        == brute_force(GroupCosts(costs.problem))
        == exact_search(GroupCosts(costs.problem)).cost
    )


def test_what_moves_least_serves_another_objective() -> None:
    hardware = hardware_named("edge-256k")
    problem = Problem(pinned("deeplabv3_mobilenet_v3_large"), LBDF(), hardware.buffer_bytes)
    costs = GroupCosts(problem, objective_named("energy", hardware))
    found = exact_search(costs, SearchBudget(plans=0), steps=50)
    check_plan(costs, found.groups)
    assert found.lower_bound is not None and found.lower_bound <= exact_search(costs).cost <= found.cost
    assert found.cost <= 1.01 * exact_search(costs).cost


def test_without_a_proof_by_steps_the_bound_proves_it() -> None:
    costs = GroupCosts(Problem(pinned("inception_v3"), LBDF(), 256 << 10))
    found = exact_search(costs, SearchBudget(plans=0), steps=50)
    assert found.optimal and found.cost == found.lower_bound == exact_search(GroupCosts(costs.problem)).cost
    assert "linear programme" in found.notes[0]


def test_not_for_row_tiles() -> None:
    costs = GroupCosts(Problem(pinned("squeezenet1_1"), BRR(), 256 << 10))
    assert composed_of(costs, costs.problem.singletons()) == Composed(None, 0, False)


def test_without_the_solver_a_plan_is_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "highspy", None)
    costs = GroupCosts(Problem(pinned("squeezenet1_1"), LBDF(), 256 << 10))
    found = exact_search(costs, SearchBudget(plans=5), steps=20)
    check_plan(costs, found.groups)
    assert "fusewise[search]" in found.notes[0]
    assert found.lower_bound is not None and found.lower_bound <= exact_search(GroupCosts(costs.problem)).cost


def test_stops_when_told_and_is_a_bound_at_any_time() -> None:
    costs = GroupCosts(Problem(pinned("inception_v3"), LBDF(), 256 << 10))
    rounds: list[None] = []
    start = costs.problem.singletons()
    found = composed(costs, [start], lambda: len(rounds) >= 5, lambda: 5.0, lambda: rounds.append(None))
    assert len(rounds) == 5
    assert compulsory_bound(costs, found.bound) <= exact_search(GroupCosts(costs.problem)).cost
    if found.groups is not None:
        check_plan(costs, found.groups)


def test_interrupted_it_chooses_among_what_it_has() -> None:
    costs = GroupCosts(Problem(pinned("resnet50"), LBDF(), 256 << 10))
    start = costs.problem.ordered(costs.problem.singletons())
    assert start is not None
    rounds: list[None] = []

    def interrupt() -> None:
        rounds.append(None)
        if len(rounds) == 4:
            raise KeyboardInterrupt

    found = composed(costs, [start], lambda: False, lambda: 5.0, interrupt)
    assert found.interrupted and found.groups is not None and costs.total(found.groups) <= costs.total(start)
    check_plan(costs, found.groups)


@pytest.mark.slow
def test_a_network_of_wide_cells_is_proven() -> None:
    """The stems and the first cell of one; all of its 651 operators take ten times as long."""
    network = network_of(windows_of(prepare(build("nasnet_a_mobile")), set(range(110))))
    costs = GroupCosts(Problem(network, LBDF(), 128 << 10))
    start = cut_order(costs, drawn_order(costs.problem, np.random.default_rng(0)))
    assert start is not None
    found = composed_of(costs, start)
    assert found.groups is not None
    check_plan(costs, found.groups)
    assert compulsory_bound(costs, found.bound) <= costs.total(found.groups) < 0.75 * costs.total(start)
    assert costs.total(found.groups) <= 1.005 * compulsory_bound(costs, found.bound)

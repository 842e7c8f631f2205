"""Plans composed by column generation: legal, never worse than what they start from, and optimal or nearly where that is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.accel.pinned import pinned
from tests.accel.search.test_exact import brute_force, random_graphs
from tests.accel.search.test_exact_parts import SCHEMES, problem_of

from fusewise.accel.bits import mask_of
from fusewise.accel.estimate import objective_named
from fusewise.accel.hardware import hardware_named
from fusewise.accel.network import network_of, prepare
from fusewise.accel.problem import Costs, Problem
from fusewise.accel.schemes.brr import BRR
from fusewise.accel.schemes.lbdf import LBDF
from fusewise.accel.search.exact import exact_search
from fusewise.accel.search.exact_compose import composed
from fusewise.accel.search.exact_orders import cut_order, drawn_order
from fusewise.accel.search.result import Budget
from fusewise.ir.graph import Graph
from fusewise.zoo.catalogue import build


def never() -> bool:
    return False


def check_plan(costs: Costs, groups: tuple[int, ...]) -> None:
    problem = costs.problem
    assert mask_of(v for group in groups for v in range(len(problem.network)) if group >> v & 1) == problem.fuseable
    assert sum(group.bit_count() for group in groups) == problem.fuseable.bit_count()
    assert all(problem.is_group(group) and costs.fits(group) for group in groups)
    assert problem.ordered(groups) == groups


@settings(max_examples=60, deadline=None)
@given(random_graphs(), st.sampled_from(SCHEMES), st.floats(0.2, 1.2))
def test_between_the_optimum_and_its_start_on_random_graphs(graph: Graph, scheme: LBDF, share: float) -> None:
    costs = Costs(problem_of(graph, scheme, share))
    start = costs.problem.ordered(costs.problem.singletons())
    if not start:
        return
    found, _ = composed(costs, [start], never)
    if found is not None:
        check_plan(costs, found)
        assert brute_force(Costs(costs.problem)) <= costs.total(found) <= costs.total(start)


@pytest.mark.parametrize("name", ["inception_v3", "squeezenet1_1", "resnet50", "deeplabv3_mobilenet_v3_large"])
def test_nearly_the_proven_optimum_from_one_order(name: str) -> None:
    costs = Costs(Problem(pinned(name), LBDF(), 256 << 10))
    start = cut_order(costs, drawn_order(costs.problem, np.random.default_rng(0)))
    assert start is not None
    found, _ = composed(costs, [start], never)
    assert found is not None
    check_plan(costs, found)
    optimum = exact_search(Costs(costs.problem)).cost
    assert optimum <= costs.total(found) <= min(1.01 * optimum, costs.total(start))


def test_what_moves_least_serves_another_objective() -> None:
    hardware = hardware_named("edge-256k")
    problem = Problem(pinned("deeplabv3_mobilenet_v3_large"), LBDF(), hardware.buffer_bytes)
    costs = Costs(problem, objective_named("energy", hardware))
    found = exact_search(costs, Budget(plans=0), steps=50)
    check_plan(costs, found.groups)
    assert found.lower_bound is not None and found.lower_bound <= exact_search(costs).cost <= found.cost
    assert found.cost <= 1.01 * exact_search(costs).cost


def test_not_for_row_tiles() -> None:
    costs = Costs(Problem(pinned("squeezenet1_1"), BRR(), 256 << 10))
    assert composed(costs, [costs.problem.singletons()], never) == (None, False)


def test_stops_when_told() -> None:
    costs = Costs(Problem(pinned("inception_v3"), LBDF(), 256 << 10))
    rounds: list[None] = []
    start = costs.problem.singletons()
    found, _ = composed(costs, [start], lambda: len(rounds) >= 3, lambda: rounds.append(None))
    assert len(rounds) == 3
    if found is not None:
        check_plan(costs, found)


def test_interrupted_it_chooses_among_what_it_has() -> None:
    costs = Costs(Problem(pinned("resnet50"), LBDF(), 256 << 10))
    start = costs.problem.ordered(costs.problem.singletons())
    assert start is not None

    def interrupt() -> None:
        raise KeyboardInterrupt

    found, interrupted = composed(costs, [start], never, interrupt)
    assert interrupted and found is not None and costs.total(found) <= costs.total(start)
    check_plan(costs, found)


@pytest.mark.slow
def test_a_network_of_wide_cells_is_planned_better_than_by_cutting_orders() -> None:
    network = network_of(prepare(build("nasnet_a_mobile")))
    costs, rng = Costs(Problem(network, LBDF(), 256 << 10)), np.random.default_rng(0)
    cut = [plan for _ in range(3) if (plan := cut_order(costs, drawn_order(costs.problem, rng))) is not None]
    rounds: list[None] = []
    found, _ = composed(costs, cut, lambda: len(rounds) >= 25, lambda: rounds.append(None))
    assert found is not None
    check_plan(costs, found)
    assert costs.total(found) < 0.92 * min(map(costs.total, cut))

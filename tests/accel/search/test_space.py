"""Groupings: random ones, edits, the encoding by edges, and how they are put in order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.accel.pinned import pinned

from fusewise.accel.bits import is_connected
from fusewise.accel.problem import GroupCosts, Problem
from fusewise.accel.schemes.brr import BRR
from fusewise.accel.schemes.lbdf import LBDF
from fusewise.accel.search.repair import Repair
from fusewise.accel.search.space import Grouping, GroupingSpace

NETWORKS = ("mobilenet_v2", "squeezenet1_1", "efficientnet_b0", "inception_v3", "deeplabv3_mobilenet_v3_large")


def problem_of(name: str, kib: int = 128) -> Problem:
    return Problem(pinned(name), LBDF(), kib << 10)


def check_grouping(problem: Problem, groups: Grouping) -> None:
    """The groups cover the fuseable operators, each once, and hang together."""
    assert sum(groups) == problem.fuseable
    covered = 0
    for group in groups:
        assert not group & covered and is_connected(problem.network.neighbours, group)
        covered |= group


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(NETWORKS), st.sampled_from([64, 256, 1024]), st.integers(0, 10**6))
def test_any_grouping_can_be_put_in_order(name: str, kib: int, seed: int) -> None:
    problem, rng = problem_of(name, kib), np.random.default_rng(seed)
    space = GroupingSpace(problem)
    groups: Grouping = space.random(rng)
    for _ in range(5):
        check_grouping(problem, groups)
        ordered = space.ordered(groups)
        check_grouping(problem, ordered)
        possible = problem.ordered(groups) is not None
        assert set(problem.ordered(ordered) or ()) == set(ordered)
        assert (set(ordered) == set(groups)) == possible
        assert all(any(part & ~group == 0 for group in groups) for part in ordered)
        done = problem.excluded
        for part in ordered:
            done |= part
            assert not any(
                problem.network.predecessors[v] & ~done for v in range(len(problem.network)) if part >> v & 1
            )
        groups = space.edited(ordered, rng)


@pytest.mark.parametrize("name", NETWORKS)
def test_edges_encode_a_grouping(name: str) -> None:
    space, rng = GroupingSpace(problem_of(name)), np.random.default_rng(1)
    for _ in range(10):
        groups = space.random(rng)
        assert set(space.grouping(space.keys(groups))) == set(groups)
    assert set(space.grouping(np.ones(len(space.edges), bool))) == set(space.problem.singletons())
    fuseable = space.problem.fuseable
    inside = space.grouping(np.zeros(len(space.edges), bool))
    assert sum(inside) == fuseable and set(inside) == set(space.problem.runs())


def test_edits_reach_merges_splits_and_moves() -> None:
    space, rng = GroupingSpace(problem_of("squeezenet1_1")), np.random.default_rng(0)
    groups = space.ordered(space.random(rng))
    sizes = {len(space.edited(groups, rng)) - len(groups) for _ in range(200)}
    assert {-1, 0, 1} <= sizes


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("brr", [False, True])
def test_repaired_plans_fit_and_do_not_depend_on_the_batch(name: str, brr: bool) -> None:
    problem = Problem(pinned(name), BRR() if brr else LBDF(), 128 << 10)
    costs, rng = GroupCosts(problem), np.random.default_rng(2)
    repair = Repair(costs, seed=3)
    groupings = [repair.space.random(rng) for _ in range(6)]
    plans = repair(groupings)
    alone = Repair(costs, seed=3)
    assert [alone([groups])[0] for groups in reversed(groupings)][::-1] == plans
    assert (alone.invalid, alone.rectified) == (repair.invalid, 0) and repair.invalid == len(repair.splittings) > 0
    for plan in plans:
        check_grouping(problem, plan)
        assert all(map(costs.fits, plan)) and problem.ordered(plan) is not None
    assert repair(plans) == [tuple(repair.space.ordered(plan)) for plan in plans]

"""How good explanations are: drops are the scheme's, ranks are Spearman's, fidelities have their ends."""

from __future__ import annotations

import random

import numpy as np
import pytest
from scipy.stats import spearmanr
from tests.accel.gnn.untrained import CAPACITY, untrained
from tests.accel.pinned import pinned, random_group

from fusewise.accel.explain.explainer import Edge, Explanation, edges_inside
from fusewise.accel.explain.quality import fidelities, rank_correlation, truth
from fusewise.accel.problem import GroupCosts, Problem
from fusewise.accel.schemes.catalogue import scheme_named
from fusewise.accel.split.cut import Cutter


def costs_of(name: str, scheme: str = "lbdf") -> GroupCosts:
    return GroupCosts(Problem(pinned(name), scheme_named(scheme), CAPACITY))


def groups_of(name: str) -> list[int]:
    rng = random.Random(3)
    found = dict.fromkeys(random_group(pinned(name), rng) for _ in range(30))
    return [group for group in found if len(edges_inside(pinned(name), group)) > 2]


def cut(costs: GroupCosts, group: int, edge: Edge) -> tuple[int, int]:
    return Cutter(costs.problem.network, group).cut(edge)


@pytest.mark.parametrize("scheme", ["lbdf", "brr"])
def test_the_truth_is_what_the_scheme_says_of_both_halves(scheme: str) -> None:
    costs = costs_of("squeezenet1_1", scheme)
    network, equations = costs.problem.network, costs.problem.scheme
    for one in truth(cut)(costs, groups_of("squeezenet1_1")):
        assert [edge for edge, _ in one.scores] == list(edges_inside(network, one.group))
        whole = equations.buffer_bytes(network, one.group)
        for edge, drop in one.scores:
            needs = [equations.buffer_bytes(network, half) for half in Cutter(network, one.group).cut(edge)]
            assert drop == pytest.approx(max(0.0, 1 - max(needs) / whole))
            assert 0 <= drop < 1


def test_ranks_correlate_as_spearman_has_it() -> None:
    rng = np.random.default_rng(1)
    edges = [(i, i + 1) for i in range(8)]
    for _ in range(20):
        first, second = (rng.integers(0, 5, len(edges)).astype(float) for _ in range(2))
        pair = [Explanation(0, tuple(zip(edges, map(float, some), strict=True))) for some in (first, second)]
        assert rank_correlation(*pair) == pytest.approx(spearmanr(first, second).statistic)


def test_edges_left_out_rank_last_and_what_ranks_nothing_has_no_correlation() -> None:
    full = Explanation(0, (((0, 1), 3.0), ((1, 2), 2.0), ((2, 3), 1.0)))
    assert rank_correlation(full, Explanation(0, full.scores[:2])) == pytest.approx(1)
    assert rank_correlation(full, Explanation(0, tuple((edge, 0.0) for edge, _ in full.scores))) is None
    assert rank_correlation(Explanation(0, full.scores[:2]), Explanation(0, full.scores[:2])) is None


def test_fidelity_is_nothing_where_nothing_is_hidden() -> None:
    costs, groups = costs_of("squeezenet1_1"), groups_of("squeezenet1_1")
    inside = {group: edges_inside(costs.problem.network, group) for group in groups}
    plus, minus = fidelities(untrained(), costs, dict.fromkeys(groups, ()))
    assert not plus.any() and minus.any()
    plus_all, minus_all = fidelities(untrained(), costs, inside)
    assert not minus_all.any() and np.allclose(plus_all, minus)

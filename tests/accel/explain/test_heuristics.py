"""The controls: which edges they blame, and how many of them become candidates."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.accel.pinned import pinned, random_group

from fusewise.accel.explain.candidates import EdgeShare, candidates
from fusewise.accel.explain.catalogue import explainer_named
from fusewise.accel.explain.explainer import Edge, Explanation, edges_inside
from fusewise.accel.explain.heuristics import CONTROLS, spread_order
from fusewise.accel.problem import GroupCosts, Problem
from fusewise.accel.schemes.brr import BRR
from fusewise.accel.schemes.lbdf import LBDF
from fusewise.errors import UsageError


def costs_of(name: str, brr: bool = False) -> GroupCosts:
    return GroupCosts(Problem(pinned(name), BRR() if brr else LBDF(), 128 << 10))


def groups_of(name: str, number: int = 12) -> list[int]:
    rng = random.Random(name)
    return [random_group(pinned(name), rng) for _ in range(number)]


def tensor_sizes(name: str, edge: Edge) -> list[int]:
    network = pinned(name)
    read = {entry.tensor for entry in network.operators[edge[1]].reads}
    return [network.tensors[t].elements for t in network.operators[edge[0]].writes if t in read]


@pytest.mark.parametrize("control", sorted(CONTROLS))
@pytest.mark.parametrize("brr", [False, True])
def test_every_control_scores_every_edge_and_needs_no_company(control: str, brr: bool) -> None:
    costs, groups = costs_of("mobilenet_v2", brr), groups_of("mobilenet_v2")
    explained = CONTROLS[control](7)(costs, groups)
    for group, explanation in zip(groups, explained, strict=True):
        inside = edges_inside(costs.problem.network, group)
        assert explanation.group == group
        assert sorted(edge for edge, _ in explanation.scores) == list(inside)
        assert all(group >> u & 1 and group >> v & 1 for u, v in inside)
    alone = [CONTROLS[control](7)(costs, [group])[0] for group in reversed(groups)]
    assert alone[::-1] == list(explained)


def test_smallest_tensor_ranks_by_size() -> None:
    costs, groups = costs_of("squeezenet1_1"), groups_of("squeezenet1_1")
    for explanation in CONTROLS["smallest"](0)(costs, groups):
        sizes = [sum(tensor_sizes("squeezenet1_1", edge)) for edge in explanation.ranked()]
        assert sizes == sorted(sizes)


def test_largest_live_finds_the_map_that_the_gate_waits_for() -> None:
    """In a squeeze-and-excite block the gated map is held whole: the edge into the gate is to blame."""
    costs = costs_of("efficientnet_b0")
    network = costs.problem.network
    gates = [v for v, op in enumerate(network.operators) if op.op == "Mul" and network.predecessors[v].bit_count() == 2]
    pools = [v for v, op in enumerate(network.operators) if op.form.kind == "global_pool"]
    gate = min(v for v in gates if v > pools[0])
    group = (1 << gate + 1) - 1 & ~((1 << pools[0] - 1) - 1)
    (explanation,) = CONTROLS["largest-live"](0)(costs, [group])
    assert explanation.ranked()[0][0] == pools[0] - 1


def test_random_edges_differ_by_seed_and_group() -> None:
    costs, groups = costs_of("mobilenet_v2"), [g for g in groups_of("mobilenet_v2") if g.bit_count() > 5]
    one, two = CONTROLS["random"](1)(costs, groups), CONTROLS["random"](2)(costs, groups)
    assert all(a.ranked() != b.ranked() for a, b in zip(one, two, strict=True))


@given(st.integers(0, 300))
def test_spread_order_is_even_at_every_length(size: int) -> None:
    order = spread_order(size)
    assert sorted(order) == list(range(size))
    for taken in (2**k - 1 for k in range(1, 8)):
        if taken < size:
            places = [-1, *sorted(order[:taken]), size]
            gaps = [b - a for a, b in pairwise(places)]
            assert max(gaps) <= 2 * size / (taken + 1) + 2


def test_candidates_take_a_share_and_the_blamed_nodes() -> None:
    network = pinned("mobilenet_v2")
    group = next(g for g in groups_of("mobilenet_v2", 40) if g.bit_count() > 10)
    inside = edges_inside(network, group)
    scored = Explanation(group, tuple((edge, float(k)) for k, edge in enumerate(inside)))
    assert candidates(network, scored, EdgeShare(0.0, 1)) == inside[-1:]
    assert candidates(network, scored, EdgeShare(0.3, 3)) == tuple(
        reversed(inside[-max(3, -(-3 * len(inside) // 10)) :])
    )
    assert set(candidates(network, scored, EdgeShare(1.0))) == set(inside)
    assert set(candidates(network, Explanation(group, (), group), EdgeShare())) == set(inside)
    assert candidates(network, Explanation(group, ()), EdgeShare()) == ()
    first = (1 << inside[0][0]) | (1 << inside[0][1])
    assert set(candidates(network, Explanation(group, scored.scores, first), EdgeShare(0.0, 1))) >= {
        inside[-1],
        inside[0],
    }


def test_unknown_control_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="smallest"):
        explainer_named("smalest", "lbdf")

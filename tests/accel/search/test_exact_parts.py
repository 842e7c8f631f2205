"""Groups put together from hubs and pieces of chains: the same needs and moves as operator by operator, and no group left out."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.accel.integer_programme import every_group
from tests.accel.pinned import pinned, random_group
from tests.accel.search.test_exact import random_graphs

from fusewise.accel.bits import bits_of
from fusewise.accel.network import network_of
from fusewise.accel.problem import Costs, Problem
from fusewise.accel.schemes.brr import BRR
from fusewise.accel.schemes.lbdf import LBDF
from fusewise.accel.search.exact_hubs import HubSets, Pricing, hub_sets
from fusewise.accel.search.exact_lines import LineGrowth
from fusewise.accel.search.exact_parts import Parts, Skeleton, skeleton_of
from fusewise.ir.graph import Graph

SCHEMES = (LBDF(), LBDF("row"), LBDF(excluded_traffic=False, network_io=False), LBDF(bits=8))


def grown(problem: Problem, scheme: LBDF, group: int) -> tuple[int, int]:
    growth = LineGrowth(problem, scheme)
    for v in bits_of(group):
        growth.push(v)
    return growth.need, growth.traffic


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", ["inception_v3", "efficientnet_b0", "deeplabv3_mobilenet_v3_large"])
def test_needs_and_moves_are_those_of_the_group_grown_operator_by_operator(name: str, scheme: LBDF) -> None:
    problem = Problem(pinned(name), scheme, 256 << 10)
    parts, rng = Parts(problem, scheme), random.Random(1)
    groups = [group for _ in range(200) if not (group := random_group(problem.network, rng)) & problem.excluded]
    assert len(groups) > 40
    for group in groups:
        assert parts.of(group) == grown(problem, scheme, group)


@settings(max_examples=80, deadline=None)
@given(random_graphs(), st.sampled_from(SCHEMES), st.floats(0.2, 1.2))
def test_what_is_added_adds_up(graph: Graph, scheme: LBDF, share: float) -> None:
    problem = problem_of(graph, scheme, share)
    parts = Parts(problem, scheme)
    groups = sorted(every_group(Costs(problem)))
    for small in groups:
        for large in groups:
            if small != large and small & large == small:
                need, moved = parts.of(small)
                more, moves = parts.more(small, large ^ small)
                assert parts.of(large) == (need + more, moved + moves)


def problem_of(graph: Graph, scheme: LBDF, share: float) -> Problem:
    network = network_of(graph)
    needs = [
        scheme.buffer_bytes(network, group) for group in (*(1 << v for v in range(len(network))), network.everything)
    ]
    return Problem(network, scheme, max(1, int(share * max(need for need in needs if need < 1 << 60))))


def best_of_all(skeleton: Skeleton, sets: HubSets, prices: np.ndarray) -> float:
    """The most that a group saves: with some set of hubs, or as a run of links."""
    pricing = Pricing(sets)
    least, bare, priced = pricing.least(prices), pricing.bare(prices), pricing.pieces(prices)
    best = 0.0
    for row in range(len(sets.sets)):
        column = pricing.best(row, float(bare[row]), priced, skeleton.problem.room)
        assert column is not None and least[row] <= column.reduced + 1e-3
        need, moved = skeleton.of(column.atoms)
        assert need >= column.need and moved == column.moved
        assert column.reduced == pytest.approx(moved - prices[list(bits_of(column.atoms))].sum(), abs=1e-3)
        best = min(best, column.reduced)
    for chain in skeleton.chains:
        for at in range(len(chain.links)):
            for end in range(at + 1, len(chain.links) + 1):
                run = sum(1 << link for link in chain.links[at:end])
                best = min(best, skeleton.of(run)[1] - prices[list(chain.links[at:end])].sum())
    return best


@settings(max_examples=120, deadline=None)
@given(random_graphs(), st.sampled_from(SCHEMES), st.floats(0.2, 1.2), st.integers(0, 1000))
def test_no_group_saves_more_than_hubs_and_pieces_say(graph: Graph, scheme: LBDF, share: float, seed: int) -> None:
    problem = problem_of(graph, scheme, share)
    skeleton = skeleton_of(problem)
    assume(skeleton is not None)
    assert skeleton is not None
    sets = hub_sets(skeleton, 10**6, lambda: False)
    assert len(set(sets.sets)) == len(sets.sets)
    prices = np.random.default_rng(seed).uniform(0, 2000, len(skeleton.atoms))
    best = best_of_all(skeleton, sets, prices)
    for group in every_group(Costs(problem)):
        atoms = skeleton.atoms.numbers(group)
        if skeleton.atoms.operators(atoms) == group:
            moved = problem.scheme.dram_bytes(problem.network, group, 0, problem.excluded) * 8 // problem.scheme.bits
            assert moved - prices[list(bits_of(atoms))].sum() >= best - 1e-3


def test_hubs_and_chains_of_a_known_network() -> None:
    """Fire modules: the squeeze's activation is read twice, both ways lead to a concatenation; chains lie between."""
    skeleton = skeleton_of(Problem(pinned("squeezenet1_1"), LBDF(), 256 << 10))
    assert skeleton is not None
    inside = set().union(*(chain.links for chain in skeleton.chains))
    assert not inside & set(skeleton.hubs) and len(skeleton.hubs) + len(inside) <= len(skeleton.atoms)
    assert all(skeleton.atoms.after[chain.links[-1]] == 1 << chain.last for chain in skeleton.chains)
    assert all(chain.before_last[-1].whole for chain in skeleton.chains if len(chain.before_last) == len(chain.links))


def test_row_tiles_do_not_add_up() -> None:
    assert skeleton_of(Problem(pinned("squeezenet1_1"), BRR(), 256 << 10)) is None


def test_so_many_sets_of_hubs_from_each_at_most() -> None:
    skeleton = skeleton_of(Problem(pinned("inception_v3"), LBDF(), 256 << 10))
    assert skeleton is not None
    every, few = hub_sets(skeleton, 10**6, lambda: False), hub_sets(skeleton, 5, lambda: False)
    assert set(few.sets) < set(every.sets) and np.bincount(few.roots).max() < 40

"""The tables about explanations: which sets are tried, and what of the truth an explanation holds."""

from __future__ import annotations

import random
from itertools import combinations

import networkx as nx
import pytest
from benchmarks.explanations import best_drop
from benchmarks.rg_rewards import centre, connected_sets
from tests.accel.pinned import pinned, random_group

from fusewise.accel.bits import bits_of, is_connected, mask_of
from fusewise.accel.explain.explainer import Explanation, edges_inside


@pytest.mark.parametrize("name", ["squeezenet1_1", "efficientnet_b0"])
def test_every_connected_set_is_tried_and_none_twice(name: str) -> None:
    network, rng = pinned(name), random.Random(name)
    for _ in range(10):
        group = random_group(network, rng, most=9)
        members = list(bits_of(group))
        if len(members) > 11:
            continue
        sets = [mask_of(some) for size in range(1, len(members) + 1) for some in combinations(members, size)]
        assert connected_sets(network, group) == sorted(some for some in sets if is_connected(network.neighbours, some))


def test_the_seed_of_a_set_is_in_its_middle() -> None:
    network, rng = pinned("mobilenet_v2"), random.Random(1)
    for _ in range(20):
        group = random_group(network, rng)
        net = nx.Graph(edges_inside(network, group))
        net.add_nodes_from(bits_of(group))
        assert nx.eccentricity(net)[centre(network, group)] == nx.radius(net)


def test_the_best_drop_is_a_share_of_the_largest() -> None:
    true = Explanation(0, (((0, 1), 0.1), ((1, 2), 0.4), ((2, 3), 0.2)))
    assert best_drop(true, [(1, 2), (0, 1)]) == 1
    assert best_drop(true, [(0, 1), (2, 3)]) == pytest.approx(0.5)
    assert best_drop(true, []) == 0
    assert best_drop(Explanation(0, (((0, 1), 0.0),)), [(0, 1)]) is None

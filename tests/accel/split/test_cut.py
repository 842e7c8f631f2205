"""The minimum cut against the enumeration of every set closed under predecessors."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.accel.pinned import pinned, random_group

from fusewise.accel.bits import bits_of, is_connected
from fusewise.accel.explain.explainer import edges_inside
from fusewise.accel.network import Network
from fusewise.accel.problem import GroupCosts, Problem
from fusewise.accel.schemes.lbdf import LBDF
from fusewise.accel.split.cut import Cutter, crossing

NETWORKS = ("squeezenet1_1", "efficientnet_b0", "inception_v3", "deeplabv3_mobilenet_v3_large", "resnet50")


def closed_subsets(network: Network, group: int) -> Iterator[int]:
    """Every subset that holds the predecessors, within the group, of its members."""
    found = [0]
    for node in bits_of(group):
        before = network.predecessors[node] & group
        found += [part | 1 << node for part in found if not before & ~part]
    yield from found


def price(network: Network, group: int, before: int) -> int:
    """The tensors that lie across, each once: read again, and written too unless somebody outside needs them anyway."""
    total = 0
    for tensor in network.tensors:
        if tensor.producer < 0 or not before >> tensor.producer & 1 or not tensor.consumers & group & ~before:
            continue
        total += tensor.elements * (1 if tensor.is_output or tensor.consumers & ~group else 2)
    return total


@settings(max_examples=120, deadline=None)
@given(st.sampled_from(NETWORKS), st.integers(0, 10**6))
def test_cuts_are_the_best_of_all(name: str, seed: int) -> None:
    network = pinned(name)
    group = random_group(network, random.Random(seed), 12)
    cutter, subsets = Cutter(network, group), list(closed_subsets(network, group))
    for edge in edges_inside(network, group):
        before, after = cutter.cut(edge)
        assert before | after == group and not before & after
        assert before in subsets and before >> edge[0] & 1 and after >> edge[1] & 1
        legal = [part for part in subsets if part >> edge[0] & 1 and group & ~part & 1 << edge[1]]
        connected = [
            part
            for part in legal
            if is_connected(network.neighbours, part) and is_connected(network.neighbours, group & ~part)
        ]
        assert before in connected
        assert crossing(network, group, before) == price(network, group, before)
        least = min(price(network, group, part) for part in legal)
        assert price(network, group, before) == min(price(network, group, part) for part in connected) == least


@pytest.mark.parametrize("name", NETWORKS)
def test_a_split_never_lowers_the_traffic(name: str) -> None:
    costs, rng = GroupCosts(Problem(pinned(name), LBDF(), 128 << 10)), random.Random(3)
    network = costs.problem.network
    for _ in range(15):
        group = random_group(network, rng)
        for split in Cutter(network, group).cuts(edges_inside(network, group)):
            moved = costs.dram_bytes(split.before) + costs.dram_bytes(split.after)
            assert moved >= costs.dram_bytes(group) + 2 * crossing(network, group, split.before)


def test_equal_splits_are_given_once() -> None:
    network = pinned("efficientnet_b0")
    group = random_group(network, random.Random(5), 16)
    edges = edges_inside(network, group)
    found = Cutter(network, group).cuts(edges)
    assert len(found) <= len(edges)
    assert {Cutter(network, group).cut(edge) for edge in edges} == set(found)
    assert all(Cutter(network, group).cut(edge) == split for split, edge in found.items())

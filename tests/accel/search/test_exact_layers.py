"""The layers of a problem hold every group that fits once, and no other."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.accel.integer_programme import every_group
from tests.accel.pinned import NAMES, pinned
from tests.accel.search.test_exact import random_graphs
from tests.accel.search.test_exact_memory import SCHEMES, by_scheme, problem_of, split_graph

from fusewise.accel.problem import GroupCosts, Problem
from fusewise.accel.schemes.brr import BRR
from fusewise.accel.schemes.lbdf import LBDF
from fusewise.accel.search.exact_layers import Layer, layered, layers_of
from fusewise.ir.graph import Graph


def every_path(layers: tuple[Layer, ...], room: int) -> list[tuple[int, int, int]]:
    """The groups of all paths, with elements that they need and move."""
    found: list[tuple[int, int, int]] = []

    def follow(node: int, state: int, group: int, need: int, moved: int) -> None:
        if state == 0:
            found.append((group, need, moved))
            return
        layer = layers[node]
        for taken in (0, 1):
            to, more = int(layer.to[taken, state]), need + int(layer.need[taken, state])
            if to < layer.following and more <= room:
                follow(node + 1, to, group | taken << node, more, moved + int(layer.moved[taken, state]))

    for node, layer in enumerate(layers):
        if layer.root is not None:
            follow(node + 1, layer.root.to, 1 << node, layer.root.need, layer.root.moved)
    return found


@settings(max_examples=80, deadline=None)
@given(random_graphs(), st.sampled_from(SCHEMES), st.floats(0.2, 1.2))
def test_paths_are_the_groups_that_fit(graph: Graph, scheme: LBDF, share: float) -> None:
    problem = problem_of(graph, scheme, share)
    layers = layers_of(problem, 10**6)
    assert layers is not None
    paths = every_path(layers, problem.room)
    assert len({group for group, _, _ in paths}) == len(paths)
    assert {group for group, _, _ in paths} == every_group(GroupCosts(problem))
    for group, need, moved in paths:
        assert (need * scheme.bits // 8, moved * scheme.bits // 8) == by_scheme(problem, group)


@pytest.mark.parametrize("name", NAMES)
def test_known_networks_have_few_states(name: str) -> None:
    layers = layers_of(Problem(pinned(name), LBDF(), 512 << 10), 10_000)
    assert layers is not None and len(layers) == len(pinned(name))
    for layer in layers:
        assert layer.to.min() >= 0 and layer.to.max() <= layer.following


def test_no_more_states_than_allowed_and_none_when_told_to_stop() -> None:
    problem = Problem(pinned("inception_v3"), LBDF(), 256 << 10)
    layers = layers_of(problem, 10_000)
    assert layers is not None
    states = sum(layer.following for layer in layers)
    assert layers_of(problem, states) is not None
    assert layers_of(problem, states - 1) is None
    assert layers_of(problem, states, lambda: True) is None


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_paths_where_tensors_come_together(scheme: LBDF) -> None:
    problem = problem_of(split_graph(), scheme, 0.8)
    layers = layers_of(problem, 10**6)
    assert layers is not None
    assert {group for group, _, _ in every_path(layers, problem.room)} == every_group(GroupCosts(problem))


def test_row_tiles_have_none() -> None:
    assert not layered(Problem(pinned("squeezenet1_1"), BRR(), 256 << 10))
    assert layered(Problem(pinned("squeezenet1_1"), LBDF(), 256 << 10))

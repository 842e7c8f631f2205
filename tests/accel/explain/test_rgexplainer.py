"""RG-Explainer: sets grow as they may, decisions are probabilities, rewards are what the formula says."""

from __future__ import annotations

import random
from collections.abc import Iterable
from functools import cache

import networkx as nx
import numpy as np
import pytest
import torch
from tests.accel.gnn.untrained import CAPACITY, batch, literal, untrained
from tests.accel.pinned import pinned, random_group

from fusewise.accel.bits import bits_of, is_connected
from fusewise.accel.explain.candidates import EdgeShare, candidates
from fusewise.accel.explain.catalogue import explainer_named
from fusewise.accel.explain.explainer import Edge, Explanation, edges_inside
from fusewise.accel.explain.heuristics import random_edges
from fusewise.accel.explain.rgexplainer import (
    Policy,
    decide,
    first_of,
    grow,
    log_shares,
    new_policy,
    policy_of,
    rgexplainer,
)
from fusewise.accel.explain.rgrewards import REWARDS, necessary, sufficient
from fusewise.accel.explain.rgtraining import TrainingPlan, teach, train_rg
from fusewise.accel.gnn.engine import at_work
from fusewise.accel.gnn.model import LAYERS, Tensors, weights_of
from fusewise.accel.problem import GroupCosts, Problem
from fusewise.accel.schemes.catalogue import scheme_named
from fusewise.accel.schemes.lbdf import LBDF
from fusewise.accel.search.local import local_search
from fusewise.accel.search.repair import Repair
from fusewise.accel.search.result import SearchBudget
from fusewise.accel.split.cut import Cutter

SHORT = TrainingPlan(sequences=2, sets=2, locator=3, epochs=1, updates=2, batch=8, rollouts=2)


@cache
def groups() -> tuple[int, ...]:
    rng = random.Random(9)
    found = (random_group(pinned("squeezenet1_1"), rng) for _ in range(60))
    return tuple(dict.fromkeys(group for group in found if group.bit_count() > 2))[:12]


@cache
def given() -> Tensors:
    return untrained().tensors(batch(pinned("squeezenet1_1"), groups())[0])


def policy(seed: int = 0) -> Policy:
    with at_work(seed):
        return new_policy(untrained())


def seeds() -> torch.Tensor:
    return first_of(torch.zeros(len(given().x)), given())


@at_work(0)
def test_the_best_node_of_each_graph_is_found() -> None:
    scores = torch.from_numpy(np.random.default_rng(1).integers(0, 3, len(given().x)).astype(np.float32))
    for graph, node in enumerate(first_of(scores, given()).tolist()):
        own = np.flatnonzero(given().graph.numpy() == graph)
        assert node == own[np.argmax(scores.numpy()[own])]


@at_work(0)
def test_log_shares_sum_to_one_over_what_is_allowed() -> None:
    rng = np.random.default_rng(2)
    scores = torch.from_numpy(rng.normal(0, 30, len(given().x)).astype(np.float32))
    allowed = torch.from_numpy(rng.random(len(scores)) < 0.7)
    shares = log_shares(scores, given(), allowed).exp()
    assert not shares[~allowed].any()
    total = torch.zeros(given().graphs).index_add(0, given().graph, shares)
    some = torch.zeros(given().graphs).index_add(0, given().graph, allowed.float()) > 0
    assert torch.allclose(total[some], torch.ones(int(some.sum())), atol=1e-5)


@at_work(0)
def test_decisions_are_about_neighbours() -> None:
    inside = torch.zeros(len(given().x), dtype=torch.bool)
    inside[seeds()] = True
    with torch.no_grad():
        decision = decide(policy(), given(), inside, seeds())
    around = set()
    for u, v in given().edges.T.tolist():
        around |= {v} if inside[u] else set()
        around |= {u} if inside[v] else set()
    assert set(torch.isfinite(decision.nodes).nonzero()[:, 0].tolist()) == around
    assert torch.allclose(decision.stop.exp().sum(dim=1), torch.ones(given().graphs))


@at_work(0)
def test_sets_grow_one_neighbour_at_a_time_from_the_seed() -> None:
    network = pinned("squeezenet1_1")
    for sample in (False, True):
        with at_work(7), torch.no_grad():
            order = grow(policy(), given(), seeds(), sample=sample).numpy()
        for graph, group in enumerate(groups()):
            own = order[given().graph.numpy() == graph]
            members, steps = np.array(list(bits_of(group))), sorted(own[own >= 0])
            assert steps == list(range(len(steps)))
            for last in steps:
                part = sum(1 << int(v) for v in members[(own >= 0) & (own <= last)])
                assert is_connected(network.neighbours, part)


def some_sets() -> torch.Tensor:
    with at_work(3), torch.no_grad():
        return grow(policy(), given(), seeds(), sample=True) >= 0


def graph_of(number: int) -> tuple[nx.DiGraph, list[int], list[int]]:
    """One graph of the block, all its nodes and those of its set, as rows of the block."""
    rows = np.flatnonzero(given().graph.numpy() == number).tolist()
    net = nx.DiGraph([(u, v) for u, v in given().edges.T.tolist() if u in rows])
    net.add_nodes_from(rows)
    return net, rows, [v for v in rows if some_sets()[v]]


def verdict(net: nx.DiGraph, wanted: int) -> float:
    """Cross-entropy of the classifier's verdict on a graph, as the papers write it."""
    kept = sorted(net)
    edges = np.array([(kept.index(u), kept.index(v)) for u, v in net.edges], int).reshape(-1, 2).T
    weights = {**weights_of(untrained()), "mean": np.float32(0), "scale": np.float32(1)}
    logits = literal(weights, given().x.numpy()[kept], edges, np.ones(edges.shape[1]))
    return float(np.logaddexp(*logits) - logits[wanted])


def radius(net: nx.DiGraph, number: int) -> int:
    return max(nx.single_source_shortest_path_length(net.to_undirected(), int(seeds()[number])).values())


@at_work(0)
def test_the_published_reward_is_that_of_the_formula() -> None:
    found = sufficient(untrained(), given(), some_sets(), seeds()).tolist()
    for number in range(given().graphs):
        net, rows, kept = graph_of(number)
        inside = net.subgraph(kept)
        ends = [[kept.index(u), kept.index(v)] for u, v in inside.edges]
        whole = embedding(given().x[rows], given().edges[:, given().edge_graph == number] - rows[0])
        part = embedding(given().x[kept], torch.tensor(ends, dtype=torch.int64).reshape(-1, 2).T)
        size = 0.01 * len(ends) + 0.1 * radius(inside, number) + 0.01 * np.linalg.norm(part - whole)
        assert np.isclose(found[number], -(verdict(inside, 0) + size), rtol=1e-3, atol=1e-4)


@at_work(0)
def test_the_reward_that_ships_asks_what_a_cut_through_the_set_leaves() -> None:
    found = necessary(untrained(), given(), some_sets(), seeds()).tolist()
    several = 0
    for number in range(given().graphs):
        net, rows, kept = graph_of(number)
        below = set().union(*(nx.descendants(net, v) for v in kept)) - set(kept)
        above = set(rows) - set(kept) - below
        inside = net.subgraph(kept)
        rest = net.copy()
        rest.remove_edges_from([(u, v) for u, v in net.edges if {u, v} <= set(kept) or (u in above and v in below)])
        parts = [part for part in nx.weakly_connected_components(rest) if len(part) > 1]
        several += len(parts) > 1
        blame = sum(verdict(rest.subgraph(part), 1) for part in parts)
        size = len(inside.edges) / len(net.edges) + 0.1 * radius(inside, number)
        assert np.isclose(found[number], -(blame + size), rtol=1e-3, atol=1e-4)
    assert several


def embedding(x: torch.Tensor, edges: torch.Tensor) -> np.ndarray:
    for layer in range(LAYERS):
        x = untrained().net.layers[layer](x, edges.long()).relu()
    return x.sum(dim=0).numpy()


@pytest.mark.parametrize("reward", REWARDS)
@at_work(0)
def test_the_teacher_grows_connected_sets_up_to_where_they_earn_most(reward: str) -> None:
    steps = teach(untrained(), given(), REWARDS[reward])
    order, begun = steps.numpy(), first_of((steps == 0).float(), given())
    earned = REWARDS[reward](untrained(), given(), steps >= 0, begun)
    for step in range(1, int(steps.max()) + 1):
        before = REWARDS[reward](untrained(), given(), (steps >= 0) & (steps <= step), begun)
        assert (before <= earned + 1e-5).all()
    for graph, group in enumerate(groups()):
        own = order[given().graph.numpy() == graph]
        part = sum(1 << v for v, step in zip(bits_of(group), own, strict=True) if step >= 0)
        assert is_connected(pinned("squeezenet1_1").neighbours, part)


@at_work(0)
def test_training_repeats_itself_and_explains() -> None:
    classifier, network = untrained(), pinned("squeezenet1_1")
    weights = train_rg(classifier, given(), SHORT, seed=2)
    again = train_rg(classifier, given(), SHORT, seed=2)
    assert all(np.array_equal(array, again[name]) for name, array in weights.items())
    explain, costs = rgexplainer(policy_of(classifier, weights)), GroupCosts(Problem(network, LBDF(), CAPACITY))
    found = explain(costs, groups())
    for group, one in zip(groups(), found, strict=True):
        assert is_connected(network.neighbours, one.nodes) and not one.nodes & ~group
        assert {edge for edge, _ in one.scores} == set(edges_inside(network, group))
        named = edges_inside(network, one.nodes)
        assert named and set(one.ranked()[: len(named)]) == set(named)
        assert explain(costs, [group]) == (one,)


@pytest.mark.parametrize(("name", "scheme"), [("mobilenet_v2", "lbdf"), ("squeezenet1_1", "brr")])
def test_what_ships_names_some_edges_and_better_ones_than_chance(name: str, scheme: str) -> None:
    """As many edges for each group, at random, part fewer groups into pieces that fit."""
    costs = GroupCosts(Problem(pinned(name), scheme_named(scheme), CAPACITY))
    network, repair = costs.problem.network, Repair(costs, seed=5)
    local_search(costs, SearchBudget(plans=300), np.random.default_rng(5), repair)
    found = explainer_named("rg", scheme)(costs, list(repair.splittings)[:150])
    named = {one.group: candidates(network, one, EdgeShare(0.3, 1)) for one in found}
    assert 0.3 <= np.mean([len(edges) / len(edges_inside(network, group)) for group, edges in named.items()]) < 0.5

    def parted(one: Explanation, edges: Iterable[Edge]) -> bool:
        """Does splitting at these edges, one after the other, leave only pieces that fit?"""
        pieces = [one.group]
        for u, v in edges:
            for piece in [piece for piece in pieces if piece >> u & 1 and piece >> v & 1]:
                pieces.remove(piece)
                pieces += Cutter(network, piece).cut((u, v))
        return all(map(costs.fits, pieces))

    rate = np.mean([parted(one, named[one.group]) for one in found])
    for seed in range(3):
        drawn = random_edges(seed)(costs, list(named))
        assert rate > np.mean([parted(one, one.ranked()[: len(named[one.group])]) for one in drawn])

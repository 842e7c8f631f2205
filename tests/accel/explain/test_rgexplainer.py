"""RG-Explainer: sets grow as they may, decisions are probabilities, rewards are what the formula says."""

from __future__ import annotations

import random
from functools import cache

import networkx as nx
import numpy as np
import torch
from tests.accel.gnn.untrained import CAPACITY, batch, literal, untrained
from tests.accel.pinned import pinned, random_group

from fusewise.accel.bits import bits_of, is_connected
from fusewise.accel.explain.explainer import edges_inside
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
from fusewise.accel.explain.rgtraining import Plan, rewards, teach, train_rg
from fusewise.accel.gnn.engine import at_work
from fusewise.accel.gnn.model import LAYERS, Tensors, weights_of
from fusewise.accel.problem import Costs, Problem
from fusewise.accel.schemes.lbdf import LBDF

SHORT = Plan(sequences=2, sets=2, locator=3, epochs=1, updates=2, batch=8, rollouts=2)


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
        return new_policy()


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


@at_work(0)
def test_rewards_are_those_of_the_formula() -> None:
    classifier = untrained()
    with at_work(3), torch.no_grad():
        inside = grow(policy(), given(), seeds(), sample=True) >= 0
    found = rewards(classifier, given(), inside, seeds()).tolist()
    weights = {**weights_of(classifier), "mean": np.float32(0), "scale": np.float32(1)}
    for graph in range(given().graphs):
        rows = np.flatnonzero(given().graph.numpy() == graph)
        kept = rows[inside.numpy()[rows]]
        ends = [(u, v) for u, v in given().edges.T.tolist() if u in kept and v in kept]
        net = nx.Graph(ends)
        net.add_nodes_from(kept.tolist())
        place = {v: i for i, v in enumerate(kept.tolist())}
        edges = np.array([(place[u], place[v]) for u, v in ends], int).reshape(-1, 2).T
        logits = literal(weights, given().x.numpy()[kept], edges, np.ones(len(ends)))
        whole = embedding(given().x[rows], given().edges[:, given().edge_graph == graph] - rows[0])
        part = embedding(given().x[kept], torch.from_numpy(edges))
        blame = np.log(np.exp(logits - logits.max()).sum()) + logits.max() - logits[0]
        radius = max(nx.single_source_shortest_path_length(net, int(seeds()[graph])).values())
        expected = -(blame + 0.01 * len(ends) + 0.1 * radius + 0.01 * np.linalg.norm(part - whole))
        assert np.isclose(found[graph], expected, rtol=1e-3, atol=1e-4)


def embedding(x: torch.Tensor, edges: torch.Tensor) -> np.ndarray:
    for layer in range(LAYERS):
        x = untrained().net.layers[layer](x, edges.long()).relu()
    return x.sum(dim=0).numpy()


@at_work(0)
def test_the_teacher_grows_connected_sets() -> None:
    order = teach(untrained(), given()).numpy()
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
    explain, costs = rgexplainer(classifier, policy_of(weights)), Costs(Problem(network, LBDF(), CAPACITY))
    found = explain(costs, groups())
    for group, one in zip(groups(), found, strict=True):
        assert is_connected(network.neighbours, one.nodes) and not one.nodes & ~group
        assert {edge for edge, _ in one.scores} == set(edges_inside(network, one.nodes))
        assert explain(costs, [group]) == (one,)

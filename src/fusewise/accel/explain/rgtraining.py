"""Training RG-Explainer: imitation first, then reinforcement.

A generator learns from sets grown greedily for the reward (`accel.explain.rgrewards`); then the locator learns which seeds led to
good sets; then both are improved in turn. REINFORCE; the reward of a decision is the mean over 5 sets finished at random after it,
less the mean over all decisions of its group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from fusewise.accel.explain.reading import copies
from fusewise.accel.explain.rgexplainer import (
    Policy,
    decide,
    first_of,
    grow,
    locate,
    log_shares,
    new_policy,
    policy_weights,
)
from fusewise.accel.explain.rgrewards import Reward, necessary
from fusewise.accel.gnn.engine import at_work
from fusewise.accel.gnn.model import Classifier, Tensors

__all__ = ["TrainingPlan", "Watch", "teach", "train_rg"]

Watch = Callable[[Policy, int], None]
"""Told the policy after imitation (epoch 0) and after each epoch of reinforcement."""


class TrainingPlan(NamedTuple):
    """How long to train: epochs of imitation on sequences and on sets, of the locator before and of both in turn; `updates` of the
    locator in each of those; groups of one update; roll-outs; the learning rate."""

    sequences: int = 10
    sets: int = 25
    locator: int = 200
    epochs: int = 10
    updates: int = 10
    batch: int = 64
    rollouts: int = 5
    rate: float = 0.01


def train_rg(
    classifier: Classifier,
    given: Tensors,
    plan: TrainingPlan | None = None,
    *,
    seed: int = 0,
    reward: Reward = necessary,
    progress: Callable[[str, float], None] = lambda what, share: None,
    watch: Watch = lambda policy, epoch: None,
) -> dict[str, np.ndarray]:
    """The weights of generator and locator, from one block of groups that are too large."""
    import torch

    plan, rng = plan or TrainingPlan(), np.random.default_rng(seed)
    with at_work(seed):
        policy = new_policy(classifier)
        generator = torch.optim.Adam(policy.generator.parameters(), lr=plan.rate)
        locator = torch.optim.Adam(policy.locator.parameters(), lr=plan.rate)
        taught = teach(classifier, given, reward)
        progress("RG-Explainer", 0.2)
        for epoch in range(plan.sequences + plan.sets):
            for chosen in _batches(given.graphs, plan.batch, rng):
                block, node_of, _ = copies(given, chosen)
                order = taught[torch.from_numpy(node_of)]
                _step(generator, _imitation(policy, block, order, exact=epoch < plan.sequences))
            progress("RG-Explainer", 0.2 + 0.3 * (epoch + 1) / (plan.sequences + plan.sets))
        some = rng.permutation(given.graphs)[: max(1, given.graphs // 5)]
        block = copies(given, some)[0]
        worth = _worth(policy, block, reward)
        for _ in range(plan.locator):
            _step(locator, _divergence(policy, block, worth))
        watch(policy, 0)
        for epoch in range(plan.epochs):
            chosen = rng.permutation(given.graphs)[: plan.batch]
            _step(generator, _reinforcement(policy, copies(given, chosen)[0], plan.rollouts, reward))
            block = copies(given, rng.permutation(given.graphs)[: max(1, given.graphs // 5)])[0]
            worth = _worth(policy, block, reward)
            for _ in range(plan.updates):
                _step(locator, _divergence(policy, block, worth))
            progress("RG-Explainer", 0.5 + 0.5 * (epoch + 1) / plan.epochs)
            watch(policy, epoch + 1)
    return policy_weights(policy)


def teach(classifier: Classifier, given: Tensors, reward: Reward) -> Any:
    """Sets grown greedily: from the node that alone speaks most for "too large", always the neighbour with which the reward is
    highest, up to where it was highest of all, but for the seed alone. Gives the step of each node, as `grow` does."""
    import torch

    with torch.no_grad():
        alone = classifier.net(given.x, given.edges[:, :0], torch.arange(len(given.x)), len(given.x))
        seeds = first_of(alone[:, 0] - alone[:, 1], given)
        order = torch.full_like(given.graph, -1)
        order[seeds] = 0
        best, cut = torch.full((given.graphs,), -torch.inf), torch.zeros(given.graphs, dtype=torch.int64)
        for step in range(1, int(torch.bincount(given.graph).max())):
            around = _neighbours(given, order >= 0)
            if not around.any():
                break
            options = around.nonzero()[:, 0]
            block, node_of, _ = copies(given, given.graph[options].numpy())
            nodes = torch.from_numpy(node_of)
            inside = (order >= 0)[nodes] | (nodes == options[block.graph])
            begun = (nodes == seeds[given.graph[nodes]]).nonzero()[:, 0]
            worth = torch.full((len(order),), -torch.inf)
            worth[options] = reward(classifier, block, inside, begun)
            growing = torch.bincount(given.graph[options], minlength=given.graphs) > 0
            chosen = first_of(worth, given)[growing]
            order[chosen] = step
            now = torch.full((given.graphs,), -torch.inf)
            now[growing] = worth[chosen]
            better = now > best
            best[better], cut[better] = now[better], step
        order[order > cut[given.graph]] = -1
    return order


def _neighbours(given: Tensors, inside: Any) -> Any:
    import torch

    around = torch.zeros_like(inside)
    for near, far in (given.edges, given.edges.flip(0)):
        around[far[inside[near]]] = True
    return around & ~inside


def _prefixes(given: Tensors, order: Any) -> tuple[Tensors, Any, Any, Any]:
    """Every state on the way to the sets `order`: a block with a graph for each, the order there, how many steps each state has
    taken, and which graph of `given` it is of."""
    import torch

    last = torch.full((given.graphs,), 0).scatter_reduce(0, given.graph, order, "amax").numpy()
    owner = np.repeat(np.arange(given.graphs), last + 1)
    block, node_of, _ = copies(given, owner)
    steps = np.concatenate([np.arange(n + 1) for n in last])
    return block, order[torch.from_numpy(node_of)], torch.from_numpy(steps), torch.from_numpy(owner)


class _Decided(NamedTuple):
    """The decisions on the way to some sets, the last one to stop included: their log-probabilities, 0 where there was nothing to
    decide, [decisions]; a block with a graph for each; the steps of its nodes after the decision, -1 for those left out;
    whether the set grew on; which graph each is of."""

    likelihood: Any
    block: Tensors
    after: Any
    goes_on: Any
    owner: Any


def _decided(policy: Policy, given: Tensors, order: Any, exact: bool = True) -> _Decided:
    """How likely the decisions are that lead to the sets `order`.

    Without `exact` any node of the set that is still left out counts as right.
    """
    import torch

    block, states, taken, owner = _prefixes(given, order)
    inside = (states >= 0) & (states <= taken[block.graph])
    seeds = first_of((states == 0).float(), block)
    decision = decide(policy, block, inside, seeds)
    wanted = states > taken[block.graph]
    if exact:
        wanted &= states == taken[block.graph] + 1
    goes_on = torch.zeros(block.graphs, dtype=torch.bool)
    goes_on[block.graph[wanted]] = True
    chance = torch.zeros(block.graphs).index_add(0, block.graph, torch.where(wanted, decision.nodes, -torch.inf).exp())
    grown = decision.stop[:, 0] + chance.clamp_min(1e-12).log()
    found = torch.where(goes_on, grown, torch.where(decision.possible, decision.stop[:, 1], 0.0))
    after = torch.where(states <= taken[block.graph] + 1, states, -1)
    return _Decided(found, block, after, goes_on, owner)


def _imitation(policy: Policy, given: Tensors, order: Any, *, exact: bool) -> Any:
    return -_decided(policy, given, order, exact).likelihood.mean()


def _reinforcement(policy: Policy, given: Tensors, rollouts: int, reward: Reward) -> Any:
    """-sum over decisions of log-probability x (reward - mean reward of the graph's decisions), for one set in each graph.

    Rewards are negative throughout: without the mean, whatever is tried is unlearned, in the steepest way what is likely.
    """
    import torch

    with torch.no_grad():
        order = grow(policy, given, first_of(locate(policy, given), given), sample=True)
    likelihood, block, after, goes_on, owner = _decided(policy, given, order)
    with torch.no_grad():
        many, node_of, _ = copies(block, np.tile(np.arange(block.graphs), rollouts))
        begun = after[torch.from_numpy(node_of)]
        seeds = first_of((begun == 0).float(), many)
        finished = torch.where(
            goes_on.repeat(rollouts)[many.graph], grow(policy, many, seeds, sample=True, begun=begun), begun
        )
        worth = reward(policy.classifier, many, finished >= 0, seeds).view(rollouts, block.graphs).mean(0)
        usual = torch.zeros(given.graphs).index_add(0, owner, worth) / torch.bincount(owner, minlength=given.graphs)
    return -(likelihood * (worth - usual[owner])).sum() / given.graphs


def _worth(policy: Policy, given: Tensors, reward: Reward) -> Any:
    """The reward of the set that the generator grows from each node, [nodes]."""
    import torch

    with torch.no_grad():
        found = torch.empty(len(given.x))
        owner = given.graph.numpy()
        for start in range(0, len(owner), 512):
            rows = np.arange(start, min(start + 512, len(owner)))
            block, node_of, _ = copies(given, owner[rows])
            seeds = torch.from_numpy(np.flatnonzero(node_of == rows[block.graph.numpy()]))
            found[start : start + len(rows)] = reward(policy.classifier, block, grow(policy, block, seeds) >= 0, seeds)
    return found


def _divergence(policy: Policy, given: Tensors, worth: Any) -> Any:
    """Kullback-Leibler divergence of the locator's choice from the softmax of what each seed is worth, mean over graphs."""
    wanted, found = log_shares(worth, given), log_shares(locate(policy, given), given)
    return (wanted.exp() * (wanted - found)).sum() / given.graphs


def _batches(graphs: int, size: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    order = rng.permutation(graphs)
    for start in range(0, graphs, size):
        yield order[start : start + size]


def _step(optimizer: Any, loss: Any) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

"""Training RG-Explainer: imitation first, then reinforcement.

A generator learns from sets grown greedily for the reward; then the locator learns which seeds led to good sets; then both are
improved in turn. The reward of a set, in the words of Shan et al. 2021:

    -[ CE(f(sub), f(G)) + 0.01 edges(sub) + 0.1 radius(sub from seed) + 0.01 ||emb(sub) - emb(G)|| ]

where f(G) is "too large" for all groups it learns from, and emb the sum of what the classifier knows of the nodes. REINFORCE
without baseline; the reward of a decision is the mean over 5 sets finished at random after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from fusewise.accel.explain.reading import copies
from fusewise.accel.explain.rgexplainer import Policy, decide, first_of, grow, locate, log_shares, new_policy
from fusewise.accel.gnn.engine import at_work
from fusewise.accel.gnn.model import Classifier, Tensors

__all__ = ["Plan", "rewards", "teach", "train_rg"]


class Plan(NamedTuple):
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
    plan: Plan | None = None,
    *,
    seed: int = 0,
    progress: Callable[[str, float], None] = lambda what, share: None,
) -> dict[str, np.ndarray]:
    """The weights of generator and locator, from one block of groups that are too large."""
    import torch

    plan, rng = plan or Plan(), np.random.default_rng(seed)
    with at_work(seed):
        policy = new_policy()
        generator = torch.optim.Adam(policy.generator.parameters(), lr=plan.rate)
        locator = torch.optim.Adam(policy.locator.parameters(), lr=plan.rate)
        taught = teach(classifier, given)
        progress("RG-Explainer", 0.2)
        for epoch in range(plan.sequences + plan.sets):
            for chosen in _batches(given.graphs, plan.batch, rng):
                block, node_of, _ = copies(given, chosen)
                order = taught[torch.from_numpy(node_of)]
                _step(generator, _imitation(policy, block, order, exact=epoch < plan.sequences))
            progress("RG-Explainer", 0.2 + 0.3 * (epoch + 1) / (plan.sequences + plan.sets))
        some = rng.permutation(given.graphs)[: max(1, given.graphs // 5)]
        block = copies(given, some)[0]
        worth = _worth(policy, classifier, block)
        for _ in range(plan.locator):
            _step(locator, _divergence(policy, classifier, block, worth))
        for epoch in range(plan.epochs):
            chosen = rng.permutation(given.graphs)[: plan.batch]
            _step(generator, _reinforcement(policy, classifier, copies(given, chosen)[0], plan.rollouts))
            block = copies(given, rng.permutation(given.graphs)[: max(1, given.graphs // 5)])[0]
            worth = _worth(policy, classifier, block)
            for _ in range(plan.updates):
                _step(locator, _divergence(policy, classifier, block, worth))
            progress("RG-Explainer", 0.5 + 0.5 * (epoch + 1) / plan.epochs)
    return {
        f"{part}.{name}": tensor.detach().numpy().copy()
        for part, module in policy._asdict().items()
        for name, tensor in module.state_dict().items()
    }


def rewards(classifier: Classifier, given: Tensors, inside: Any, seeds: Any) -> Any:
    """The reward of one set in each graph, [graphs]; `inside` bool [nodes], `seeds` the row of each set's seed."""
    import torch

    with torch.no_grad():
        place = torch.cumsum(inside, 0) - 1
        kept = inside[given.edges[0]] & inside[given.edges[1]]
        edges, graph = place[given.edges[:, kept]], given.graph[inside]
        nodes = classifier.net.nodes(given.x[inside], edges)
        width = nodes.shape[1]
        small = torch.zeros(given.graphs, width).index_add(0, graph, nodes)
        whole = torch.zeros(given.graphs, width).index_add(0, given.graph, classifier.net.nodes(given.x, given.edges))
        blame = -torch.log_softmax(classifier.net.out(small), dim=1)[:, 0]
        size = torch.bincount(given.edge_graph[kept], minlength=given.graphs)
        far = _radius(given.graphs, edges, graph, place[seeds])
        return -(blame + 0.01 * size + 0.1 * far + 0.01 * (small - whole).norm(dim=1))


def teach(classifier: Classifier, given: Tensors) -> Any:
    """Sets grown greedily: from the node that alone speaks most for "too large", always the neighbour that does most with the
    set, up to where the reward was highest. Gives the step of each node, as `grow` does."""
    import torch

    with torch.no_grad():
        alone = classifier.net(given.x, given.edges[:, :0], torch.arange(len(given.x)), len(given.x))
        seeds = first_of(alone[:, 0] - alone[:, 1], given)
        order = torch.full_like(given.graph, -1)
        order[seeds] = 0
        best, cut = rewards(classifier, given, order >= 0, seeds), torch.zeros(given.graphs, dtype=torch.int64)
        for step in range(1, int(torch.bincount(given.graph).max())):
            around = _neighbours(given, order >= 0)
            if not around.any():
                break
            options = around.nonzero()[:, 0]
            block, node_of, _ = copies(given, given.graph[options].numpy())
            nodes = torch.from_numpy(node_of)
            inside = (order >= 0)[nodes] | (nodes == options[block.graph])
            gain = torch.full((len(order),), -torch.inf)
            gain[options] = _margin(classifier, block, inside)
            growing = torch.bincount(given.graph[options], minlength=given.graphs) > 0
            order[first_of(gain, given)[growing]] = step
            reward = rewards(classifier, given, order >= 0, seeds)
            better = growing & (reward > best)
            best[better], cut[better] = reward[better], step
        order[order > cut[given.graph]] = -1
    return order


def _margin(classifier: Classifier, given: Tensors, inside: Any) -> Any:
    """How much the classifier is for "too large" when it sees only the nodes `inside`, [graphs]."""
    import torch

    place = torch.cumsum(inside, 0) - 1
    kept = inside[given.edges[0]] & inside[given.edges[1]]
    logits = classifier.net(given.x[inside], place[given.edges[:, kept]], given.graph[inside], given.graphs)
    return logits[:, 0] - logits[:, 1]


def _neighbours(given: Tensors, inside: Any) -> Any:
    import torch

    around = torch.zeros_like(inside)
    for near, far in (given.edges, given.edges.flip(0)):
        around[far[inside[near]]] = True
    return around & ~inside


def _radius(graphs: int, edges: Any, graph: Any, seeds: Any) -> Any:
    """Steps from the seed to the farthest node it reaches, along edges either way, float [graphs]."""
    import torch

    reached = torch.zeros(len(graph), dtype=torch.bool)
    reached[seeds] = True
    far = torch.zeros(graphs)
    step = 0
    while True:
        step += 1
        before = reached.clone()
        for near, to in (edges, edges.flip(0)):
            reached[to[before[near]]] = True
        new = reached & ~before
        if not new.any():
            return far
        far[graph[new]] = float(step)


def _prefixes(given: Tensors, order: Any) -> tuple[Tensors, Any, Any]:
    """Every state on the way to the sets `order`: a block with a graph for each, the order there, and how many steps each state
    has taken."""
    import torch

    last = torch.full((given.graphs,), 0).scatter_reduce(0, given.graph, order, "amax").numpy()
    block, node_of, _ = copies(given, np.repeat(np.arange(given.graphs), last + 1))
    steps = np.concatenate([np.arange(n + 1) for n in last])
    return block, order[torch.from_numpy(node_of)], torch.from_numpy(steps)


class _Decided(NamedTuple):
    """The decisions on the way to some sets, the last one to stop included: their log-probabilities, 0 where there was nothing to
    decide, [decisions]; a block with a graph for each; the steps of its nodes after the decision, -1 for those left out;
    whether the set grew on."""

    likelihood: Any
    block: Tensors
    after: Any
    goes_on: Any


def _decided(policy: Policy, given: Tensors, order: Any, exact: bool = True) -> _Decided:
    """How likely the decisions are that lead to the sets `order`.

    Without `exact` any node of the set that is still left out counts as right.
    """
    import torch

    block, states, taken = _prefixes(given, order)
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
    return _Decided(found, block, after, goes_on)


def _imitation(policy: Policy, given: Tensors, order: Any, *, exact: bool) -> Any:
    return -_decided(policy, given, order, exact).likelihood.mean()


def _reinforcement(policy: Policy, classifier: Classifier, given: Tensors, rollouts: int) -> Any:
    """-sum over decisions of log-probability x reward, for one set in each graph."""
    import torch

    with torch.no_grad():
        order = grow(policy, given, first_of(locate(policy, classifier, given), given), sample=True)
    likelihood, block, after, goes_on = _decided(policy, given, order)
    with torch.no_grad():
        many, node_of, _ = copies(block, np.tile(np.arange(block.graphs), rollouts))
        begun = after[torch.from_numpy(node_of)]
        seeds = first_of((begun == 0).float(), many)
        finished = torch.where(
            goes_on.repeat(rollouts)[many.graph], grow(policy, many, seeds, sample=True, begun=begun), begun
        )
        worth = rewards(classifier, many, finished >= 0, seeds).view(rollouts, block.graphs).mean(0)
    return -(likelihood * worth).sum() / given.graphs


def _worth(policy: Policy, classifier: Classifier, given: Tensors) -> Any:
    """The reward of the set that the generator grows from each node, [nodes]."""
    import torch

    with torch.no_grad():
        found = torch.empty(len(given.x))
        owner = given.graph.numpy()
        for start in range(0, len(owner), 512):
            rows = np.arange(start, min(start + 512, len(owner)))
            block, node_of, _ = copies(given, owner[rows])
            seeds = torch.from_numpy(np.flatnonzero(node_of == rows[block.graph.numpy()]))
            found[start : start + len(rows)] = rewards(classifier, block, grow(policy, block, seeds) >= 0, seeds)
    return found


def _divergence(policy: Policy, classifier: Classifier, given: Tensors, worth: Any) -> Any:
    """Kullback-Leibler divergence of the locator's choice from the softmax of what each seed is worth, mean over graphs."""
    wanted, found = log_shares(worth, given), log_shares(locate(policy, classifier, given), given)
    return (wanted.exp() * (wanted - found)).sum() / given.graphs


def _batches(graphs: int, size: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    order = rng.permutation(graphs)
    for start in range(0, graphs, size):
        yield order[start : start + size]


def _step(optimizer: Any, loss: Any) -> None:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

"""RG-Explainer (Shan et al. 2021, "Reinforcement Learning Enhanced Explainer for Graph Neural Networks"): an explanation is grown.

A seed locator chooses the operator to start from; the generator then adds one neighbour of the set at a time, until it decides to
stop or nothing is left. Both are small networks, trained beforehand (`accel.explain.rgtraining`). Groups of a block grow in step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fusewise.accel.bits import bits_of
from fusewise.accel.explain.explainer import Explainer, Explanation
from fusewise.accel.explain.reading import Inside, by_blocks, copies
from fusewise.accel.explain.rgrewards import remains
from fusewise.accel.gnn.features import COLUMNS
from fusewise.accel.gnn.model import WIDTH, Classifier, Tensors

__all__ = [
    "Decision",
    "Policy",
    "decide",
    "first_of",
    "grow",
    "locate",
    "log_shares",
    "new_policy",
    "policy_of",
    "policy_weights",
    "rgexplainer",
]

HIDDEN = 64
_TRAINED = ("generator", "locator")
_ALIKE = 1e-4
"""Nodes whose scores differ by no more are alike, and the first is taken: twins differ by rounding, which depends on the block."""

_STEPS, _KEPT = 3, 0.15
"""Propagation: x <- (1 - kept) A x + kept x0, so many times (APPNP; Gasteiger et al. 2019)."""


class Policy(NamedTuple):
    """The generator and the seed locator, modules of PyTorch, and the classifier that both look through."""

    generator: Any
    locator: Any
    classifier: Classifier


class Decision(NamedTuple):
    """What the generator thinks of a set of nodes in each graph: log-probability of each node to be the next, given that the set
    grows on (-inf where it is no neighbour of the set), [nodes]; log-probabilities of growing on and of stopping,
    [graphs, 2], where a seed alone always grows on, since it encloses no edge; whether there is a neighbour at all, [graphs]."""

    nodes: Any
    stop: Any
    possible: Any


def rgexplainer(policy: Policy) -> Explainer:
    """Blames the set that the generator grows; of all edges those first that are enclosed first, were it to grow on to the end."""

    def score(given: Tensors, inside: Inside, groups: Sequence[int]) -> list[Explanation]:
        import torch

        with torch.no_grad():
            seeds = first_of(locate(policy, given), given, _ALIKE)
            grown = grow(policy, given, seeds)
            steps = grow(policy, given, seeds, begun=grown, stops=False).tolist()
        found, start = [], 0
        for group, edges in zip(groups, inside, strict=True):
            here = slice(start, start + group.bit_count())
            start = here.stop
            place = {at: rank for rank, at in enumerate(sorted(steps[here]))}
            added = {v: place[at] for v, at in zip(bits_of(group), steps[here], strict=True)}
            scores = tuple((edge, -float(max(added[v] for v in edge))) for edge in edges)
            nodes = sum(1 << v for v, at in zip(bits_of(group), grown[here].tolist(), strict=True) if at >= 0)
            found.append(Explanation(group, scores, nodes))
        return found

    return by_blocks(policy.classifier, score)


def grow(
    policy: Policy, given: Tensors, seeds: Any, *, sample: bool = False, begun: Any = None, stops: bool = True
) -> Any:
    """Grow a set in each graph from its seed ([graphs], rows of `given.x`), or from where it is `begun`.

    Gives the step in which each node was added, 0 for the seed and -1 for those left out, int64 [nodes]. The likeliest decision is
    taken, or with `sample` a random one by its probability. Unless it `stops` it grows to the end.
    """
    import torch

    order = torch.full_like(given.graph, -1) if begun is None else begun.clone()
    order[seeds] = 0
    active = torch.ones(given.graphs, dtype=torch.bool)
    step, view = int(order.max()), _view(policy, given)
    while True:
        step += 1
        decision = decide(policy, given, order >= 0, seeds, view)
        stop, nodes = decision.stop, decision.nodes
        if sample:
            stop, nodes = stop + _gumbel(stop), nodes + _gumbel(nodes)
        active &= decision.possible & ((stop[:, 0] >= stop[:, 1]) | (not stops))
        left = int(active.sum())
        if left:
            order[first_of(nodes, given, 0.0 if sample else _ALIKE)[active]] = step
        if 2 * left <= given.graphs:
            break
    if left:  # the rest goes on among themselves
        block, node_of, _ = copies(given, active.nonzero()[:, 0].numpy())
        rows = torch.from_numpy(node_of)
        place = torch.full_like(given.graph, -1)
        place[rows] = torch.arange(len(rows))
        order[rows] = grow(policy, block, place[seeds[active]], sample=sample, begun=order[rows], stops=stops)
    return order


class _View(NamedTuple):
    """What the generator sees of a block whatever the sets: features, [nodes, HIDDEN]; edges both ways, and their weights."""

    features: Any
    producer: Any
    consumer: Any
    weight: Any
    own: Any


def _view(policy: Policy, given: Tensors) -> _View:
    import torch

    producer, consumer = torch.cat([given.edges, given.edges.flip(0)], dim=1)
    degree = torch.bincount(consumer, minlength=len(given.x)) + 1.0
    weight = (degree[producer] * degree[consumer]).rsqrt()[:, None]
    return _View(policy.generator["features"](given.x), producer, consumer, weight, 1 / degree[:, None])


def decide(policy: Policy, given: Tensors, inside: Any, seeds: Any, view: _View | None = None) -> Decision:
    """What the generator thinks of the sets `inside`, bool [nodes], grown from `seeds`, [graphs]."""
    import torch

    net = policy.generator
    features, producer, consumer, weight, own = view or _view(policy, given)
    start = torch.zeros(len(inside), 2)
    start[seeds, 0] = 1
    start[inside, 1] = 1
    spread = start
    for _ in range(_STEPS):
        moved = (spread * own).index_add(0, consumer, weight * spread[producer])
        spread = (1 - _KEPT) * moved + _KEPT * start
    seen = torch.cat([spread, _left(policy.classifier, given, inside)[:, None]], dim=1)
    hidden = torch.nn.functional.silu(features + net["sets"](seen))
    hidden = torch.nn.functional.silu(net["hidden"](hidden))
    around = torch.zeros(len(inside), dtype=torch.bool)
    around[consumer[inside[producer]]] = True
    around &= ~inside
    nodes = log_shares(net["score"](hidden)[:, 0], given, around)
    attention = log_shares(net["attention"](hidden)[:, 0], given, inside | around).exp()
    pooled = torch.zeros(given.graphs, hidden.shape[1]).index_add(0, given.graph, attention[:, None] * hidden)
    possible = torch.zeros(given.graphs, dtype=torch.bool)
    possible[given.graph[around]] = True
    alone = torch.bincount(given.graph[inside], minlength=given.graphs) < 2
    stop = torch.where(alone[:, None], torch.tensor([0.0, -torch.inf]), torch.log_softmax(net["stop"](pooled), dim=1))
    return Decision(nodes, stop, possible)


def _left(classifier: Classifier, given: Tensors, inside: Any) -> Any:
    """How far the part that a cut through the set leaves of each node is from fitting, as the classifier sees it: its margin for
    "too large" from -1 to 1, -1 for a single operator, [nodes]."""
    import torch

    with torch.no_grad():
        kept, part, owner = remains(given, inside)
        logits = classifier.net(given.x, kept, part, len(owner))
        margin = ((logits[:, 0] - logits[:, 1]) / 2).tanh()
        found: Any = torch.where(torch.bincount(part) > 1, margin, -1.0)[part]
        return found


def locate(policy: Policy, given: Tensors) -> Any:
    """A score for each node as a seed, [nodes]."""
    import torch

    classifier = policy.classifier
    with torch.no_grad():
        nodes = classifier.net.nodes(given.x, given.edges)
        graphs = torch.zeros(given.graphs, WIDTH).index_add(0, given.graph, nodes)
        nodes, graphs = (torch.nn.functional.layer_norm(one, (WIDTH,)) for one in (nodes, graphs))
    return policy.locator(torch.cat([graphs[given.graph], nodes], dim=1))[:, 0]


def log_shares(scores: Any, given: Tensors, allowed: Any = None) -> Any:
    """Log-softmax of [nodes] over the allowed nodes of each graph; -inf elsewhere."""
    import torch

    if allowed is not None:
        scores = scores.masked_fill(~allowed, -torch.inf)
    top = torch.full((given.graphs,), -torch.inf).scatter_reduce(0, given.graph, scores.detach(), "amax")
    scores = scores - torch.where(top.isinf(), 0.0, top)[given.graph]
    total = torch.zeros(given.graphs).index_add(0, given.graph, scores.exp())
    return scores - total.clamp_min(1e-30).log()[given.graph]


def first_of(scores: Any, given: Tensors, within: float = 0.0) -> Any:
    """The first node in each graph whose score is the highest, or `within` so much of it: int64 [graphs]."""
    import torch

    top = torch.full((given.graphs,), -torch.inf).scatter_reduce(0, given.graph, scores.detach(), "amax")
    best = (scores >= top[given.graph] - within).nonzero()[:, 0]
    none = torch.full((given.graphs,), len(scores))
    return none.scatter_reduce(0, given.graph[best], best, "amin")


def new_policy(classifier: Classifier) -> Policy:
    """An untrained one; its weights are drawn from PyTorch's random numbers."""
    from torch.nn import Linear, ModuleDict, ReLU, Sequential

    generator = ModuleDict(
        {
            "features": Linear(COLUMNS, HIDDEN),
            "sets": Linear(3, HIDDEN, bias=False),
            "hidden": Linear(HIDDEN, HIDDEN),
            "score": Linear(HIDDEN, 1),
            "attention": Linear(HIDDEN, 1),
            "stop": Linear(HIDDEN, 2),
        }
    )
    locator = Sequential(Linear(2 * WIDTH, HIDDEN), ReLU(), Linear(HIDDEN, 8), ReLU(), Linear(8, 1))
    return Policy(generator, locator, classifier)


def policy_of(classifier: Classifier, weights: Mapping[str, np.ndarray]) -> Policy:
    """A policy with these weights, as `policy_weights` gave them."""
    import torch

    policy = new_policy(classifier)
    for name in _TRAINED:
        own = {key.removeprefix(f"{name}."): array for key, array in weights.items() if key.startswith(f"{name}.")}
        module = getattr(policy, name)
        module.load_state_dict({key: torch.from_numpy(array.copy()) for key, array in own.items()})
        module.eval()
    return policy


def policy_weights(policy: Policy) -> dict[str, np.ndarray]:
    """Its own weights, named `generator....` and `locator....`."""
    return {
        f"{part}.{name}": tensor.detach().numpy().copy()
        for part in _TRAINED
        for name, tensor in getattr(policy, part).state_dict().items()
    }


def _gumbel(like: Any) -> Any:
    """Noise that turns the largest log-probability into a random draw."""
    import torch

    return -(-torch.rand_like(like).clamp_min(1e-12).log()).log()

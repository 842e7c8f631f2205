"""What RG-Explainer is rewarded for: the published reward, and the one that ships.

Both look at a connected set S of operators, grown from a seed, in a group G that is "too large", and ask the classifier f alone.

Shan et al. 2021 ask whether S stands for the whole (`sufficient`):

    -[ CE(f(S), f(G)) + 0.01 edges(S) + 0.1 radius(S from seed) + 0.01 ||emb(S) - emb(G)|| ]

with emb the sum of what the classifier knows of the nodes. Here nearly the whole group is its optimum (docs/explanations.md): the
need of a group is about the sum of its operators' needs, so of a group a little too large only nearly all is still too large, and a
sum over nodes comes nearer to another with every node that is added. No weight of the size mends what is asked. So what ships
asks whether S is what the verdict hangs on (`necessary`), as counterfactual explanations do (Lucic et al. 2022, CF-GNNExplainer):

    -[ sum over the parts P that a cut through S leaves of CE(f(P), "fits") + edges(S) / edges(G) + 0.1 radius(S from seed) ]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fusewise.accel.gnn.model import Classifier, Tensors

__all__ = ["REWARDS", "Reward", "necessary", "remains", "sufficient"]

Reward = Callable[[Classifier, Tensors, Any, Any], Any]
"""The reward of one set in each graph, [graphs]: of a classifier, a block, `inside` bool [nodes], and `seeds`, the row of each
set's seed."""


def sufficient(
    classifier: Classifier, given: Tensors, inside: Any, seeds: Any, *, size: float = 0.01, likeness: float = 0.01
) -> Any:
    """The published reward; f(G) is "too large" for all groups it is asked about. `size` weighs the number of edges and `likeness`
    the distance from the whole."""
    import torch

    with torch.no_grad():
        edges, graph, far = _set(given, inside, seeds)
        nodes = classifier.net.nodes(given.x[inside], edges)
        width = nodes.shape[1]
        small = torch.zeros(given.graphs, width).index_add(0, graph, nodes)
        whole = torch.zeros(given.graphs, width).index_add(0, given.graph, classifier.net.nodes(given.x, given.edges))
        blame = -torch.log_softmax(classifier.net.out(small), dim=1)[:, 0]
        count = torch.bincount(graph[edges[0]], minlength=given.graphs)
        return -(blame + size * count + 0.1 * far + likeness * (small - whole).norm(dim=1))


def necessary(classifier: Classifier, given: Tensors, inside: Any, seeds: Any) -> Any:
    """The reward of sets without which the rest fits; a part of a single operator is none to blame."""
    import torch

    with torch.no_grad():
        edges, graph, far = _set(given, inside, seeds)
        size = torch.bincount(graph[edges[0]], minlength=given.graphs)
        whole = torch.bincount(given.edge_graph, minlength=given.graphs).clamp_min(1)
        kept, part, owner = remains(given, inside)
        blame = -torch.log_softmax(classifier.net(given.x, kept, part, len(owner)), dim=1)[:, 1]
        blame = torch.where(torch.bincount(part) > 1, blame, 0.0)
        total = torch.zeros(given.graphs).index_add(0, owner, blame)
        return -(total + size / whole + 0.1 * far)


REWARDS: dict[str, Reward] = {"necessary": necessary, "sufficient": sufficient}
"""Rewards by name; the first is the one that ships."""


def remains(given: Tensors, inside: Any) -> tuple[Any, Any, Any]:
    """What a cut through each set leaves: the edges that stay, [2, edges]; the part of each node, [nodes]; the graph of each
    part, [parts].

    No edge inside a set stays, and none that leads past it, from what is not below it to what is: whoever cuts inside the set
    must cut that too.
    """
    import torch

    start, end = given.edges
    below = _spread(inside, [(start, end)]) & ~inside
    above = ~(below | inside)
    kept = given.edges[:, ~(inside[start] & inside[end]) & ~(above[start] & below[end])]
    label = torch.arange(len(given.x))
    while True:
        least = label
        for near, to in (kept, kept.flip(0)):
            least = least.scatter_reduce(0, to, least[near], "amin")
        least = torch.minimum(least, least[least])
        if torch.equal(least, label):
            break
        label = least
    roots, part = torch.unique(label, return_inverse=True)
    return kept, part, given.graph[roots]


def _set(given: Tensors, inside: Any, seeds: Any) -> tuple[Any, Any, Any]:
    """The sets alone: their edges, as positions among their nodes, [2, edges]; the graph of each node; steps from the seed to the
    farthest node it reaches, along edges either way, float [graphs]."""
    import torch

    place = torch.cumsum(inside, 0) - 1
    edges = place[given.edges[:, inside[given.edges[0]] & inside[given.edges[1]]]]
    graph = given.graph[inside]
    reached = torch.zeros(len(graph), dtype=torch.bool)
    reached[place[seeds]] = True
    far, step = torch.zeros(given.graphs), 0
    while True:
        step += 1
        wider = _step(reached, [edges, edges.flip(0)])
        if torch.equal(wider, reached):
            return edges, graph, far
        far[graph[wider & ~reached]] = float(step)
        reached = wider


def _spread(reached: Any, ways: Any) -> Any:
    """All that is reached along edges, bool [nodes]."""
    import torch

    while True:
        wider = _step(reached, ways)
        if torch.equal(wider, reached):
            return reached
        reached = wider


def _step(reached: Any, ways: Any) -> Any:
    wider = reached.clone()
    for near, to in ways:
        wider[to[reached[near]]] = True
    return wider

"""Between groups and neural networks: groups are read in blocks of many, scores of edges become explanations.

Every explainer that asks the classifier works on blocks: the graphs of many groups side by side, as one graph without edges between
them, so that one pass serves all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fusewise.accel.explain.explainer import Edge, Explainer, Explanation
from fusewise.accel.gnn.engine import at_work
from fusewise.accel.gnn.features import batch_of, node_table, spans
from fusewise.accel.gnn.model import Classifier, Tensors
from fusewise.accel.network import Network
from fusewise.accel.problem import GroupCosts

__all__ = ["BLOCK", "Scorer", "by_blocks", "copies", "explanations"]

BLOCK = 256
"""Graphs in a block, at most."""

Inside = Sequence[tuple[Edge, ...]]
"""The edges inside each group, in the order of `Tensors.edges`."""

Scorer = Callable[[Tensors, Inside, Sequence[int]], Sequence[Explanation]]
"""Explains one block: its tensors, the edges of each group, the groups."""


def by_blocks(classifier: Classifier, scorer: Scorer) -> Explainer:
    """An explainer that reads groups for `classifier`, a block at a time; PyTorch works on one thread meanwhile."""
    last: list[tuple[Network, tuple[np.ndarray, np.ndarray]]] = []

    def table_of(network: Network) -> tuple[np.ndarray, np.ndarray]:
        """The network's table; that of the last network is kept."""
        if not last or last[0][0] is not network:
            last[:] = [(network, node_table(network))]
        return last[0][1]

    def explain(costs: GroupCosts, groups: Sequence[int]) -> tuple[Explanation, ...]:
        problem = costs.problem
        several = [group for group in dict.fromkeys(groups) if group & (group - 1)]
        found: dict[int, Explanation] = {}
        with at_work(0):
            for start in range(0, len(several), BLOCK):
                some = several[start : start + BLOCK]
                batch, inside = batch_of(problem, some, table_of(problem.network))
                found.update(zip(some, scorer(classifier.tensors(batch), inside, some), strict=True))
        return tuple(found.get(group) or Explanation(group, ()) for group in groups)

    return explain


def copies(given: Tensors, chosen: np.ndarray) -> tuple[Tensors, np.ndarray, np.ndarray]:
    """A block of some graphs of a block, as often as `chosen` ([copies], graphs) names them; and for each of its nodes and edges
    which one of `given` it is."""
    import torch

    nodes = np.bincount(given.graph.numpy(), minlength=given.graphs)
    edges = np.bincount(given.edge_graph.numpy(), minlength=given.graphs)
    first = np.cumsum(nodes) - nodes
    counts, edge_counts = nodes[chosen], edges[chosen]
    node_of = spans(first[chosen], counts)
    edge_of = spans((np.cumsum(edges) - edges)[chosen], edge_counts)
    shift = np.repeat(np.cumsum(counts) - counts - first[chosen], edge_counts)
    numbers = np.arange(len(chosen))
    block = Tensors(
        given.x[torch.from_numpy(node_of)],
        given.edges[:, torch.from_numpy(edge_of)] + torch.from_numpy(shift),
        torch.from_numpy(np.repeat(numbers, counts)),
        torch.from_numpy(np.repeat(numbers, edge_counts)),
        len(chosen),
    )
    return block, node_of, edge_of


def explanations(groups: Sequence[int], inside: Inside, scores: np.ndarray) -> list[Explanation]:
    """Explanations from a score for each edge, float [edges].

    Sums of floating-point numbers depend a little on what else is in the block; five digits of the score do not.
    """
    found, start = [], 0
    for group, edges in zip(groups, inside, strict=True):
        own = [float(f"{score:.5g}") for score in scores[start : start + len(edges)].tolist()]
        found.append(Explanation(group, tuple(zip(edges, own, strict=True))))
        start += len(edges)
    return found

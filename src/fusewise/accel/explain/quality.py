"""How good explanations are: measured by the classifier they explain, and by the scheme, which knows the truth.

For a group that does not fit, the exact need of every legal split follows from the scheme's equations. The *drop* of an edge is
by which share the largest need falls when the group is split there. An explainer that ranks edges as their drops do
has found what makes the group too large. A split that lowers nothing, or leaves what the scheme refuses, drops nothing.

Fidelities are those of the survey of Yuan et al. 2022, by probability: *plus* is what the verdict "too large" loses when the named
edges are hidden from the classifier (the more, the more they matter), *minus* what it loses when all others are (the less, the
more the named ones suffice).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fusewise.accel.explain.explainer import Edge, Explainer, Explanation, edges_inside, one_by_one
from fusewise.accel.explain.reading import BLOCK
from fusewise.accel.gnn.engine import at_work
from fusewise.accel.gnn.features import batch_of, node_table
from fusewise.accel.gnn.model import Classifier
from fusewise.accel.problem import GroupCosts
from fusewise.accel.schemes.scheme import UNBOUNDED

__all__ = ["fidelities", "rank_correlation", "truth"]

Cut = Callable[[GroupCosts, int, Edge], tuple[int, int]]
"""The two halves of the legal split of a group that separates the ends of an edge (`accel.split.cut`)."""


def truth(cut: Cut) -> Explainer:
    """Blames the edges whose split lowers the largest need most: no explanation, but what explanations are measured by."""

    def explain(costs: GroupCosts, group: int) -> Explanation:
        whole = min(costs.buffer_bytes(group), UNBOUNDED)
        scores = []
        for edge in edges_inside(costs.problem.network, group):
            most = max(min(costs.buffer_bytes(half), UNBOUNDED) for half in cut(costs, group, edge))
            scores.append((edge, max(0.0, (whole - most) / whole)))
        return Explanation(group, tuple(scores))

    return one_by_one(explain)


def fidelities(
    classifier: Classifier, costs: GroupCosts, named: Mapping[int, Sequence[Edge]]
) -> tuple[np.ndarray, np.ndarray]:
    """Fidelity plus and minus of the edges named in each group, float [groups] each."""
    import torch

    groups, table = list(named), node_table(costs.problem.network)
    found = []
    with at_work(0), torch.no_grad():
        for start in range(0, len(groups), BLOCK):
            batch, inside = batch_of(costs.problem, groups[start : start + BLOCK], table)
            given = classifier.tensors(batch)
            blamed = [
                edge in set(named[g])
                for g, edges in zip(groups[start : start + BLOCK], inside, strict=True)
                for edge in edges
            ]
            shown = torch.tensor(blamed, dtype=torch.float32)
            chances = [
                classifier.net(given.x, given.edges, given.graph, given.graphs, weight).softmax(dim=1)[:, 0].numpy()
                for weight in (torch.ones_like(shown), 1 - shown, shown)
            ]
            found.append([chances[0] - chances[1], chances[0] - chances[2]])
    plus, minus = (np.concatenate(parts) for parts in zip(*found, strict=True)) if found else (np.empty(0),) * 2
    return plus, minus


def rank_correlation(one: Explanation, other: Explanation) -> float | None:
    """Spearman's between two explanations of a group; None where fewer than three edges are scored or one scores all alike.

    Edges left out rank last, and equal scores share the mean of their ranks.
    """
    edges = sorted({edge for edge, _ in (*one.scores, *other.scores)})
    ranks = [_ranks([dict(each.scores).get(edge, -np.inf) for edge in edges]) for each in (one, other)]
    if len(edges) < 3 or min(some.std() for some in ranks) == 0:
        return None
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def _ranks(values: Sequence[float]) -> np.ndarray:
    array = np.array(values)
    return np.array([(array < value).sum() + ((array == value).sum() - 1) / 2 for value in array])

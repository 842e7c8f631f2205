"""Gradient saliency: how much the verdict would move if an edge's messages were a little weaker.

One backward pass: the derivative of (logit of "too large" - logit of "fits") by the weight of each edge, in magnitude (Simonyan
et al. 2014, for edges instead of pixels).
"""

from __future__ import annotations

from collections.abc import Sequence

from fusewise.accel.explain.explainer import Explainer, Explanation
from fusewise.accel.explain.reading import Inside, by_blocks, explanations
from fusewise.accel.gnn.model import Classifier, Tensors

__all__ = ["saliency"]


def saliency(classifier: Classifier) -> Explainer:
    """Blames the edges whose weight moves the verdict most."""

    def score(given: Tensors, inside: Inside, groups: Sequence[int]) -> list[Explanation]:
        import torch

        weight = torch.ones(given.edges.shape[1], requires_grad=True)
        logits = classifier.net(given.x, given.edges, given.graph, given.graphs, weight)
        (slope,) = torch.autograd.grad((logits[:, 0] - logits[:, 1]).sum(), weight)
        return explanations(groups, inside, slope.abs().numpy())

    return by_blocks(classifier, score)

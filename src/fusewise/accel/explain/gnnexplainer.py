"""GNNExplainer (Ying et al. 2019) as PyTorch Geometric has it, for many groups at once.

For each group a mask over its edges is fitted by gradient descent, so that the masked group is still called "too large" while the
mask is small and decided. Masks of different groups do not meet, so one descent over a block of groups serves all; what has to
be kept apart for that is the loss, a sum over groups of what each alone would minimise, and the starting masks, drawn per group.

Only the mask is learned, and everything else stands still, so the gradient is written out here: automatic differentiation takes
several times as long on groups as small as these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fusewise.accel.explain.explainer import Explainer, Explanation
from fusewise.accel.explain.reading import Inside, by_blocks, explanations
from fusewise.accel.gnn.model import Classifier, Tensors

__all__ = ["gnnexplainer"]

_SIZE, _DECIDED, _TINY = 0.005, 1.0, 1e-15
"""Weights of the mask's size and of its entropy in the loss, and what keeps logarithms finite: PyTorch Geometric's."""

_FIRST, _SECOND, _ROOM = 0.9, 0.999, 1e-8
"""Adam's."""


def gnnexplainer(classifier: Classifier, *, seed: int = 0, epochs: int = 100, rate: float = 0.01) -> Explainer:
    """Blames the edges with the largest fitted masks, which start as random numbers that depend on `seed` and the group alone."""

    def score(given: Tensors, inside: Inside, groups: Sequence[int]) -> list[Explanation]:
        import torch

        with torch.no_grad():
            mask = _fitted(_Masked(classifier, given), _start(inside, groups, seed), epochs, rate)
        return explanations(groups, inside, mask)

    return by_blocks(classifier, score)


def _start(inside: Inside, groups: Sequence[int], seed: int) -> np.ndarray:
    """Starting masks as GNNExplainer draws them for a group alone: normal, with spread sqrt(2) * sqrt(2 / (2 * nodes))."""
    drawn = [
        np.random.default_rng([seed, group]).normal(0, np.sqrt(2 / group.bit_count()), len(edges))
        for group, edges in zip(groups, inside, strict=True)
    ]
    return np.concatenate(drawn).astype(np.float32)


def _fitted(masked: _Masked, start: np.ndarray, epochs: int, rate: float) -> np.ndarray:
    """The mask, float32 [edges], after so many steps of Adam.

    The first step follows the prediction alone; then edges that had no part in it stay out.
    """
    import torch

    given = masked.given
    raw = torch.from_numpy(start)
    share = 1.0 / torch.bincount(given.edge_graph, minlength=given.graphs)[given.edge_graph]
    mean, square, kept = torch.zeros_like(raw), torch.zeros_like(raw), torch.ones_like(raw)
    for epoch in range(epochs):
        mask = raw.sigmoid()
        slope = masked.gradient(mask)
        if epoch:
            unsure = ((1 - mask + _TINY) / (mask + _TINY)).log()
            slope = slope + kept * (_SIZE + _DECIDED * share * unsure)
        slope = slope * mask * (1 - mask)
        if not epoch:
            kept = (slope != 0).to(raw.dtype)
        mean = _FIRST * mean + (1 - _FIRST) * slope
        square = _SECOND * square + (1 - _SECOND) * slope * slope
        step = (square / (1 - _SECOND ** (epoch + 1))).sqrt() + _ROOM
        raw = raw - rate / (1 - _FIRST ** (epoch + 1)) * mean / step
    found: np.ndarray = (raw.sigmoid() * kept).numpy()
    return found


class _Masked:
    """The classifier on one block, each edge's messages scaled by a mask.

    A layer is h' = relu(h R + b + sum over edges of mask * (h M)), so that one product gives both what a node keeps and what it
    sends; in the first layer neither depends on the mask.
    """

    def __init__(self, classifier: Classifier, given: Tensors) -> None:
        import torch

        first, *rest = classifier.net.layers
        self.given = given
        self._first = first.lin_root(given.x) + first.lin_rel.bias, given.x @ first.lin_rel.weight.T
        self._weights = [torch.cat([layer.lin_root.weight, layer.lin_rel.weight]) for layer in rest]
        self._biases = [layer.lin_rel.bias for layer in rest]
        self._out = classifier.net.out
        self._target = classifier.net(given.x, given.edges, given.graph, given.graphs).argmax(dim=1)

    def gradient(self, mask: Any) -> Any:
        """By how much the loss, -log of the probability of what is predicted without a mask, changes with each edge's mask."""
        import torch

        start, end = self.given.edges
        kept, sent = self._first
        weight = mask[:, None]
        passed: list[tuple[Any, Any]] = []
        for layer in range(len(self._weights) + 1):
            if layer:
                kept, sent = (passed[-1][1] @ self._weights[layer - 1].T).chunk(2, dim=1)
                kept = kept + self._biases[layer - 1]
            message = sent[start]
            passed.append((message, torch.index_add(kept, 0, end, message * weight).relu_()))
        slope = self._loss_slope(passed[-1][1]) * (passed[-1][1] > 0)
        found = torch.zeros_like(mask)
        for layer in reversed(range(len(passed))):
            arrived = slope[end]
            found += (passed[layer][0] * arrived).sum(dim=1)
            if layer:
                back = torch.zeros_like(slope).index_add_(0, start, arrived * weight)
                slope = torch.cat([slope, back], dim=1) @ self._weights[layer - 1]
                slope *= passed[layer - 1][1] > 0
        return found

    def _loss_slope(self, known: Any) -> Any:
        """By how much the loss changes with what the last layer knows of each node. The probability of the other class is
        computed as such: 1 less that of the target would be 0 where the classifier is sure."""
        import torch

        given, out = self.given, self._out
        pooled = torch.zeros(given.graphs, known.shape[1]).index_add_(0, given.graph, known)
        logits = out(pooled)
        sign = 1 - 2 * self._target  # 1 where class 0 is the target
        other = ((logits[:, 1] - logits[:, 0]) * sign).sigmoid()
        return ((other * sign)[:, None] * (out.weight[1] - out.weight[0]))[given.graph]

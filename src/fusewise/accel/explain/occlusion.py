"""Occlusion: by how much the verdict softens when one edge is hidden (Zeiler and Fergus 2014, for edges instead of patches)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fusewise.accel.explain.explainer import Explainer, Explanation
from fusewise.accel.explain.reading import Inside, by_blocks, copies, explanations
from fusewise.accel.gnn.model import Classifier, Tensors

__all__ = ["occlusion"]

_NODES = 20_000
"""Nodes of one pass, at most: each group stands there once for each of its edges."""


def occlusion(classifier: Classifier) -> Explainer:
    """Blames the edges without which (logit of "too large" - logit of "fits") is least."""

    def score(given: Tensors, inside: Inside, groups: Sequence[int]) -> list[Explanation]:
        import torch

        owner = given.edge_graph.numpy()
        scores = np.empty(len(owner))
        most = max(1, _NODES // int(np.bincount(given.graph.numpy()).max()))
        for start in range(0, len(owner), most):
            hidden = np.arange(start, min(start + most, len(owner)))
            block, _, edge_of = copies(given, owner[hidden])
            weight = torch.from_numpy((edge_of != hidden[block.edge_graph.numpy()]).astype(np.float32))
            logits = classifier.net(block.x, block.edges, block.graph, block.graphs, weight).numpy()
            scores[hidden] = logits[:, 1] - logits[:, 0]
        return explanations(groups, inside, scores)

    return by_blocks(classifier, score)

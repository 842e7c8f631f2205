"""GNNExplainer (Ying et al. 2019) as PyTorch Geometric has it, for many groups at once.

For each group a mask over its edges is fitted by gradient descent, so that the masked group is still called "too large" while the
mask is small and decided. Masks of different groups do not meet, so one descent over a block of groups serves all; what has to
be kept apart for that is the loss, a sum over groups of what each alone would minimise, and the starting masks, drawn per group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fusewise.accel.explain.explainer import Explainer, Explanation
from fusewise.accel.explain.reading import Inside, by_blocks, explanations
from fusewise.accel.gnn.model import Classifier, Tensors

__all__ = ["gnnexplainer"]


def gnnexplainer(classifier: Classifier, *, seed: int = 0, epochs: int = 100, rate: float = 0.01) -> Explainer:
    """Blames the edges with the largest fitted masks, which start as random numbers that depend on `seed` and the group alone."""

    def score(given: Tensors, inside: Inside, groups: Sequence[int]) -> list[Explanation]:
        from torch_geometric.explain import Explainer as Runner
        from torch_geometric.explain.algorithm.utils import clear_masks

        runner = Runner(
            model=classifier.net,
            algorithm=_algorithm(given, _start(inside, groups, seed), epochs, rate),
            explanation_type="model",
            node_mask_type=None,
            edge_mask_type="object",
            model_config={"mode": "multiclass_classification", "task_level": "graph", "return_type": "raw"},
        )
        try:
            found = runner(given.x, given.edges, graph=given.graph, graphs=given.graphs)
        finally:  # PyTorch Geometric plants the masks in the layers and, when interrupted, leaves them there
            clear_masks(classifier.net)
        return explanations(groups, inside, found.edge_mask.numpy())

    return by_blocks(classifier, score)


def _start(inside: Inside, groups: Sequence[int], seed: int) -> np.ndarray:
    """Starting masks as GNNExplainer draws them for a group alone: normal, with spread sqrt(2) * sqrt(2 / (2 * nodes))."""
    drawn = [
        np.random.default_rng([seed, group]).normal(0, np.sqrt(2 / group.bit_count()), len(edges))
        for group, edges in zip(groups, inside, strict=True)
    ]
    return np.concatenate(drawn).astype(np.float32)


def _algorithm(given: Tensors, start: np.ndarray, epochs: int, rate: float) -> Any:
    """GNNExplainer with a loss that is the sum over the groups of a block."""
    import torch
    from torch_geometric.explain import GNNExplainer

    edges = torch.bincount(given.edge_graph, minlength=given.graphs)
    share = 1.0 / edges[given.edge_graph]

    class Blocks(GNNExplainer):  # type: ignore[misc]
        def _initialize_masks(self, x: Any, edge_index: Any) -> None:
            self.node_mask = self.hard_node_mask = self.hard_edge_mask = None
            self.edge_mask = torch.nn.Parameter(torch.from_numpy(start))

        def _loss(self, logits: Any, labels: Any) -> Any:
            loss = torch.nn.functional.cross_entropy(logits, labels, reduction="sum")
            if self.hard_edge_mask is None:
                return loss
            mask = self.edge_mask.sigmoid()
            tiny = self.coeffs["EPS"]
            unsure = -mask * (mask + tiny).log() - (1 - mask) * (1 - mask + tiny).log()
            penalty = self.coeffs["edge_size"] * mask + self.coeffs["edge_ent"] * share * unsure
            return loss + (penalty * self.hard_edge_mask).sum()

    return Blocks(epochs=epochs, lr=rate)

"""PGExplainer (Luo et al. 2020, "Parameterized Explainer for Graph Neural Network") as PyTorch Geometric has it.

One small network, trained once on many groups, scores every edge from what the classifier knows of its two ends. Edges are ranked
by that score before its sigmoid, because trained masks all lie near 1.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fusewise.accel.explain.explainer import Explainer, Explanation
from fusewise.accel.explain.reading import Inside, by_blocks, explanations
from fusewise.accel.gnn.engine import at_work
from fusewise.accel.gnn.model import WIDTH, Classifier, Tensors

__all__ = ["EPOCHS", "pgexplainer", "train_pg"]

EPOCHS, _RATE = 25, 0.003
_SIZE = 0.05
"""Weight of the share of edges kept. Weighted per edge, as published, the term would drown the others in large groups."""


def pgexplainer(classifier: Classifier, weights: Mapping[str, np.ndarray]) -> Explainer:
    """Blames the edges with the highest scores; `weights` are those of `train_pg`."""
    import torch

    scorer = _algorithm(1).mlp
    scorer.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in weights.items()})

    def score(given: Tensors, inside: Inside, groups: Sequence[int]) -> list[Explanation]:
        with torch.no_grad():
            known = _embedding(classifier, given)
            found = scorer(torch.cat([known[given.edges[0]], known[given.edges[1]]], dim=1))[:, 0]
        return explanations(groups, inside, found.numpy())

    return by_blocks(classifier, score)


def train_pg(
    classifier: Classifier,
    blocks: Sequence[Tensors],
    *,
    epochs: int = EPOCHS,
    seed: int = 0,
    progress: Callable[[str, float], None] = lambda what, share: None,
) -> dict[str, np.ndarray]:
    """The weights of the scoring network, from blocks of groups that are too large."""
    import torch
    from torch_geometric.explain import Explainer as Runner
    from torch_geometric.explain.algorithm.utils import clear_masks

    with at_work(seed), warnings.catch_warnings():
        algorithm = _algorithm(epochs)
        Runner(
            model=classifier.net,
            algorithm=algorithm,
            explanation_type="phenomenon",
            edge_mask_type="object",
            model_config={"mode": "multiclass_classification", "task_level": "graph", "return_type": "raw"},
        )
        try:
            warnings.simplefilter("ignore", UserWarning)  # PyTorch on how PyTorch Geometric reads its loss
            for epoch in range(epochs):
                for given in blocks:
                    algorithm.coeffs["edge_size"] = _SIZE / given.edges.shape[1]
                    target = torch.zeros(given.graphs, dtype=torch.int64)
                    arguments = {"graph": given.graph, "graphs": given.graphs}
                    algorithm.train(epoch, classifier.net, given.x, given.edges, target=target, **arguments)
                progress("PGExplainer", (epoch + 1) / epochs)
        finally:
            clear_masks(classifier.net)
    return {name: tensor.detach().numpy().copy() for name, tensor in algorithm.mlp.state_dict().items()}


def _algorithm(epochs: int) -> Any:
    """PGExplainer with coefficients of its own: those of the class are shared by all. Its network is made here rather than on
    first use, so that random numbers are drawn in a fixed place."""
    import torch
    from torch_geometric.explain import PGExplainer

    algorithm = PGExplainer(epochs=epochs, lr=_RATE)
    algorithm.coeffs = dict(algorithm.coeffs)
    algorithm.mlp = torch.nn.Sequential(torch.nn.Linear(2 * WIDTH, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    algorithm.optimizer = torch.optim.Adam(algorithm.mlp.parameters(), lr=_RATE)
    return algorithm


def _embedding(classifier: Classifier, given: Tensors) -> Any:
    """What PGExplainer reads of a node: the result of the last layer before its ReLU, [nodes, WIDTH]."""
    from torch_geometric.explain.algorithm.pg_explainer import get_embeddings

    return get_embeddings(classifier.net, given.x, given.edges, graph=given.graph, graphs=given.graphs)[-1]

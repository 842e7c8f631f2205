"""A classifier that learned nothing, and groups as it reads them: enough to check arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from fusewise.accel.explain.explainer import Edge
from fusewise.accel.gnn.engine import at_work
from fusewise.accel.gnn.features import Batch, batch_of, node_table
from fusewise.accel.gnn.model import LAYERS, Classifier, load, new_classifier, standard, weights_of
from fusewise.accel.network import Network
from fusewise.accel.problem import Problem
from fusewise.accel.schemes.lbdf import LBDF

CAPACITY = 128 * 1024


def batch(network: Network, groups: Sequence[int]) -> tuple[Batch, list[tuple[Edge, ...]]]:
    """Groups under LBDF with a buffer of `CAPACITY`."""
    return batch_of(Problem(network, LBDF(), CAPACITY), groups, node_table(network))


@cache
def untrained(seed: int = 3) -> Classifier:
    """Random weights; features standardised over SqueezeNet."""
    from tests.accel.pinned import pinned

    network = pinned("squeezenet1_1")
    with at_work(seed):
        return load(weights_of(new_classifier(*standard(batch(network, [network.everything])[0].x))))


def literal(weights: dict[str, np.ndarray], x: np.ndarray, edges: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """The logits of one graph, as the papers write them; `scale` weighs the message of each edge."""
    x = (x - weights["mean"]) / weights["scale"]
    for layer in range(LAYERS):
        related, bias = (weights[f"layers.{layer}.lin_rel.{part}"] for part in ("weight", "bias"))
        summed = np.zeros_like(x)
        for (u, v), one in zip(edges.T, scale, strict=True):
            summed[v] += one * x[u]
        x = np.maximum(0, x @ weights[f"layers.{layer}.lin_root.weight"].T + summed @ related.T + bias)
    return x.sum(axis=0) @ weights["out.weight"].T + weights["out.bias"]

"""The validity classifier: a graph neural network that says whether a group fits its buffer.

Four k-GNN layers (`GraphConv` of PyTorch Geometric; Morris et al. 2019 in its 1-WL form, x_i' = W1 x_i + W2 sum_j e_ji x_j), 128
wide, ReLU, the sum over the nodes, a linear layer to two logits: 0 "too large", 1 "fits". It serves explainers only; whether a
group fits is always computed.
"""

from __future__ import annotations

import itertools
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fusewise.accel.gnn.features import COLUMNS, FLAGS, Batch
from fusewise.errors import UsageError

__all__ = [
    "LAYERS",
    "SHIPPED",
    "WIDTH",
    "Classifier",
    "Tensors",
    "load",
    "new_classifier",
    "read_tensors",
    "standard",
    "weights_of",
]

LAYERS, WIDTH = 4, 128

SHIPPED = ("lbdf", "brr")
"""Schemes for which trained weights come with the package."""


class Tensors(NamedTuple):
    """A `Batch` as the classifier takes it: features standardised, in tensors of PyTorch."""

    x: Any
    edges: Any
    graph: Any
    edge_graph: Any
    graphs: int


class Classifier(NamedTuple):
    """`net(x, edges, graph, graphs, weight=None)` gives logits [graphs, 2], `net.nodes(x, edges, weight=None)` what its last layer
    knows of each node, [nodes, WIDTH]; `weight` scales the message of each edge. `mean` and `scale`, float32 [COLUMNS],
    standardise features."""

    net: Any
    mean: np.ndarray
    scale: np.ndarray

    def tensors(self, batch: Batch) -> Tensors:
        """The batch as tensors."""
        import torch

        x, edges, graph, edge_graph = map(
            torch.from_numpy, ((batch.x - self.mean) / self.scale, batch.edges, batch.graph, batch.edge_graph)
        )
        return Tensors(x, edges, graph, edge_graph, batch.graphs)

    def logits(self, batch: Batch) -> np.ndarray:
        """float32 [graphs, 2]."""
        import torch

        given = self.tensors(batch)
        with torch.no_grad():
            found: np.ndarray = self.net(given.x, given.edges, given.graph, given.graphs).numpy()
        return found


def new_classifier(mean: np.ndarray, scale: np.ndarray) -> Classifier:
    """An untrained one; its weights are drawn from PyTorch's random numbers."""
    import torch
    from torch_geometric.nn import GraphConv, global_add_pool

    class GraphNetwork(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            sizes = [COLUMNS, *[WIDTH] * LAYERS]
            self.layers = torch.nn.ModuleList(
                GraphConv(before, after, aggr="add") for before, after in itertools.pairwise(sizes)
            )
            self.out = torch.nn.Linear(WIDTH, 2)

        def nodes(self, x: Any, edges: Any, weight: Any = None) -> Any:
            for layer in self.layers:
                x = layer(x, edges, weight).relu()
            return x

        def forward(self, x: Any, edges: Any, graph: Any, graphs: int, weight: Any = None) -> Any:
            return self.out(global_add_pool(self.nodes(x, edges, weight), graph, graphs))

    return Classifier(GraphNetwork(), mean, scale)


def standard(x: np.ndarray, shown: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Mean and spread of each column of features; flags stay as they are.

    A column that never varies, or is not `shown` (bool [COLUMNS]; all by default), has an infinite spread, so that it is read as 0
    ever after: its weights would stay as random as they were drawn, and speak as soon as another network has it vary.
    """
    mean, scale = x.mean(axis=0, dtype=np.float64), x.std(axis=0, dtype=np.float64)
    silent = scale < 1e-6 if shown is None else (scale < 1e-6) | ~shown
    mean[:FLAGS] = 0
    scale[:FLAGS] = 1
    scale[silent] = np.inf
    return mean.astype(np.float32), scale.astype(np.float32)


def weights_of(classifier: Classifier) -> dict[str, np.ndarray]:
    """Its weights by name."""
    state = {name: tensor.detach().numpy() for name, tensor in classifier.net.state_dict().items()}
    return {**state, "mean": classifier.mean, "scale": classifier.scale}


def load(weights: dict[str, np.ndarray]) -> Classifier:
    """A classifier with these weights, as `weights_of` gave them."""
    import torch

    weights = dict(weights)
    classifier = new_classifier(weights.pop("mean"), weights.pop("scale"))
    classifier.net.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in weights.items()})
    classifier.net.eval()
    for parameter in classifier.net.parameters():
        parameter.requires_grad_(False)
    return classifier


def read_tensors(scheme: str, part: str, *, path: Path | None = None) -> dict[str, np.ndarray]:
    """The trained weights of one part ("classifier", "pg", "rg") for a scheme, from the package or a file of the same form."""
    from safetensors import SafetensorError
    from safetensors.numpy import load as parse

    if path is None and scheme not in SHIPPED:
        raise UsageError(f"there are no trained weights for scheme {scheme!r}; known are {', '.join(SHIPPED)}.")
    source = files("fusewise.accel.gnn") / "weights" / f"{scheme}.safetensors" if path is None else path
    try:
        data = parse(source.read_bytes())
    except (OSError, SafetensorError) as error:
        raise UsageError(f"the weights {source} cannot be read: {error}") from error
    found = {name.removeprefix(f"{part}."): array for name, array in data.items() if name.startswith(f"{part}.")}
    if not found:
        raise UsageError(f"the weights {source} hold nothing for {part!r}; train them anew.")
    return found

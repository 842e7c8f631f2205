"""A network under construction: the graph builder, its random weights, and what is expected of every value.

Random weights only make a useful model when activations keep a sensible size through a hundred layers and batch
normalisation centres what really arrives. So each value carries a `Spread`, the mean and variance its elements are
expected to have over random weights and a standard normal input. Layers move it forward analytically, and batch
normalisation takes its running statistics from it: no data has to be run through the network.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from fusewise.ir.graph import Graph
from fusewise.ops.build import GraphBuilder

__all__ = ["Net", "Spread", "finish", "gaussian", "normal", "spread_through", "start", "weight"]

_POINTS, _WEIGHTS = np.polynomial.hermite_e.hermegauss(40)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


@dataclass(frozen=True, slots=True)
class Spread:
    """Expected mean and variance of a value's elements: one figure each, or one a channel."""

    mean: np.ndarray
    variance: np.ndarray

    @property
    def pooled(self) -> tuple[float, float]:
        """Mean and variance averaged over the channels."""
        return float(self.mean.mean()), float(self.variance.mean())


@dataclass(frozen=True, slots=True)
class Net:
    """What every layer needs: where nodes go, where weights come from, and how LayerNorm, GELU and such are written.

    `decomposed` writes them with elementary operators, as exporters did before ONNX had them. It never changes the
    weights, so both forms compute the same function.
    """

    builder: GraphBuilder
    rng: np.random.Generator
    decomposed: bool = False
    spreads: dict[str, Spread] = field(default_factory=dict)

    def shape(self, value: str) -> tuple[int, ...]:
        return self.builder.shape(value)

    def spread(self, value: str) -> Spread:
        """The expectation recorded for `value`; standard normal when nothing was."""
        return self.spreads.get(value, gaussian(0.0, 1.0))

    def record(self, value: str, spread: Spread) -> str:
        """Remember what is expected of `value`, and hand it back."""
        self.spreads[value] = spread
        return value


def start(name: str, *, seed: int, decomposed: bool) -> Net:
    """An empty network whose weights follow from `seed` alone."""
    return Net(GraphBuilder(name), np.random.default_rng(seed), decomposed)


def gaussian(mean: float, variance: float) -> Spread:
    """A spread with the same figures for every channel."""
    return Spread(np.asarray(mean), np.asarray(variance))


def normal(net: Net, shape: tuple[int, ...], deviation: float, mean: float = 0.0) -> np.ndarray:
    """Fresh float32 weights, normally distributed."""
    array = net.rng.standard_normal(shape, dtype=np.float32)
    array *= np.float32(deviation)
    if mean:
        array += np.float32(mean)
    return array


def weight(net: Net, name: str, shape: tuple[int, ...], deviation: float, mean: float = 0.0) -> str:
    """The weight called `name`, drawn the first time it is asked for: layers of one name share their weights."""
    if name in net.builder.constants:
        return name
    return net.builder.constant(normal(net, shape, deviation, mean), name)


def spread_through(spread: Spread, function: Callable[[np.ndarray], np.ndarray]) -> Spread:
    """What an elementwise function makes of a normally distributed value, by Gauss-Hermite quadrature."""
    mean, variance = spread.pooled
    samples = function(mean + np.sqrt(variance) * _POINTS)
    centre = float(samples @ _WEIGHTS)
    return gaussian(centre, float((samples - centre) ** 2 @ _WEIGHTS))


def finish(net: Net, **outputs: str) -> Graph:
    """The finished graph, its outputs renamed to the given keywords."""
    graph = net.builder.finish(*outputs.values())
    names = {value: name for name, value in outputs.items()}
    return graph.replace(
        outputs=tuple(outputs),
        nodes=tuple(
            replace(
                node,
                inputs=tuple(names.get(value, value) for value in node.inputs),
                outputs=tuple(names.get(value, value) for value in node.outputs),
            )
            for node in graph.nodes
        ),
        types={names.get(value, value): kind for value, kind in graph.types.items()},
    )

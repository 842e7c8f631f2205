"""A network under construction: the graph builder, its random weights, and a probe that runs along.

Random weights only make a useful model when activations keep a sensible size through a hundred layers, and batch
normalisation does that only when its running statistics are those of what really arrives. So convolutional networks
carry a probe: a few rings of a few pixels, each ring a tiny image, pushed through every layer as it is written.
Neighbours of a pixel are its neighbours on the ring, strides are ignored, and batch normalisation takes its statistics
from all pixels of all rings. That costs a few milliseconds a layer, where running the network itself would cost
seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fusewise.ir.graph import Graph
from fusewise.ops.build import GraphBuilder

__all__ = ["Net", "finish", "image", "spread_out", "start", "weight"]

_RINGS, _PIXELS = 16, 16


@dataclass(frozen=True, slots=True)
class Net:
    """What every layer needs: where nodes go, where weights come from, and how LayerNorm, GELU and such are written.

    `decomposed` writes them with elementary operators, as exporters did before ONNX had them, and sizes as reads of
    shapes. It never changes what is drawn, so both forms compute the same function. `probe` has the pixels [channels,
    rings, pixels] of a value; values behind an input that carries none have none.
    """

    builder: GraphBuilder
    rng: np.random.Generator
    decomposed: bool = False
    probe: dict[str, np.ndarray] = field(default_factory=dict)

    def op(self, kind: str, *inputs: str | None, name: str = "", **attributes: Any) -> str:
        """Append a node with one output, and return that."""
        value: str = self.builder.op(kind, *inputs, name=name, **attributes)
        return value

    def constant(self, array: Any, name: str) -> str:
        """Add a constant that is no weight: an axis, a shape, a scalar."""
        return self.builder.constant(array, name)

    def shape(self, value: str) -> tuple[int, ...]:
        return self.builder.shape(value)

    def array(self, name: str) -> np.ndarray:
        """The contents of a weight."""
        return self.builder.constants[name].array

    def follow(self, value: str, sources: tuple[str, ...], function: Callable[..., np.ndarray]) -> str:
        """Give `value` the pixels that `function` makes of those of `sources`, if all have some; returns `value`."""
        if all(source in self.probe for source in sources):
            self.probe[value] = function(*(self.probe[source] for source in sources))
        return value


def start(name: str, *, seed: int, decomposed: bool, opset: int = 23) -> Net:
    """An empty network whose weights follow from `seed` alone."""
    return Net(GraphBuilder(name, opset), np.random.default_rng(seed), decomposed)


def image(net: Net, shape: tuple[int, ...], name: str = "x") -> str:
    """A float32 input [batch, channels, ...] with a probe of standard normal pixels."""
    value = net.builder.input(name, shape)
    net.probe[value] = net.rng.standard_normal((shape[1], _RINGS, _PIXELS), dtype=np.float32)
    return value


def spread_out(pixels: np.ndarray) -> np.ndarray:
    """A probe at full size again, where a global average had left one pixel."""
    return np.repeat(pixels, _PIXELS // pixels.shape[2], axis=2)


def weight(net: Net, name: str, shape: tuple[int, ...], deviation: float, mean: float = 0.0) -> str:
    """The normally distributed float32 weight called `name`.

    It is drawn the first time it is asked for: layers of one name share their weights.
    """
    if name in net.builder.constants:
        return name
    array = net.rng.standard_normal(shape, dtype=np.float32)
    array *= np.float32(deviation)
    if mean:
        array += np.float32(mean)
    return net.builder.constant(array, name)


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

"""Batch normalisation as exporters leave it: folded into the convolution before it, or still there.

Both take a convolution's weights apart without changing what the pair computes, but for rounding.
"""

from __future__ import annotations

import numpy as np

from fusewise.ir.graph import Constant, Graph, Node
from fusewise.zoo.layers import Size, conv
from fusewise.zoo.net import Net

__all__ = ["folded_norms", "normed_conv"]


def folded_norms(graph: Graph) -> Graph:
    """Every BatchNormalization that alone reads a convolution goes into its filters and bias.

    y = Conv(x, w); z = BatchNormalization(y, ...)   ->   z = Conv(x, w', b')
    """
    constants, types = dict(graph.constants), dict(graph.types)
    kept: dict[str, Node] = {}
    for node in graph.nodes:
        before = kept.get(node.inputs[0]) if node.inputs else None
        if node.op != "BatchNormalization" or before is None or before.op != "Conv":
            kept[node.outputs[0]] = node
            continue
        gamma, beta, mean, variance = (constants[value].array for value in node.inputs[1:5])
        slope = gamma / np.sqrt(variance + np.float32(node.attribute("epsilon")))
        filters, offset = before.inputs[1], f"{before.inputs[1].removesuffix('.weight')}.bias"
        array = constants[filters].array
        constants[filters] = Constant(array * slope.reshape(-1, *(1,) * (array.ndim - 1)))
        constants[offset] = Constant(beta - slope * mean)
        types[offset] = constants[offset].type
        del kept[before.outputs[0]]
        kept[node.outputs[0]] = Node(
            "Conv", (before.inputs[0], filters, offset), node.outputs, before.attributes, name=before.name,
            origin=before.origin + node.origin,
        )  # fmt: skip
    return graph.replace(nodes=tuple(kept.values()), constants=constants, types=types).pruned()


def normed_conv(net: Net, x: str, name: str, channels: int, kernel: Size, *, epsilon: float = 1e-5) -> str:
    """A convolution with bias; decomposed, one without and the batch normalisation it was trained with."""
    y = conv(net, x, name, channels, kernel)
    if not net.decomposed:
        return y
    b = net.builder
    last = b.nodes.pop()
    filters, offset = net.array(last.inputs[1]), net.array(last.inputs[2])
    draw = np.random.default_rng(channels)  # of its own, so that both forms have the same weights
    mean, variance = draw.normal(0, 0.1, channels), draw.uniform(0.5, 1.5, channels)
    gamma = draw.normal(1, 0.1, channels)
    slope = gamma / np.sqrt(variance + epsilon)
    b.constants[last.inputs[1]] = Constant((filters / slope.reshape(-1, 1, 1, 1)).astype(np.float32))
    del b.constants[last.inputs[2]], b.types[last.inputs[2]]
    y = net.op("Conv", x, last.inputs[1], name=name, **dict(last.attributes))
    settings = {"weight": gamma, "bias": offset + slope * mean, "running_mean": mean, "running_var": variance}
    operands = [net.constant(array.astype(np.float32), f"{name}.norm.{part}") for part, array in settings.items()]
    return net.op("BatchNormalization", y, *operands, name=f"{name}.norm", epsilon=epsilon, momentum=0.9)

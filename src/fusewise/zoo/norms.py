"""Batch normalisation as exporters leave it: folded into the convolution before it, or still there.

Both take a convolution's weights apart without changing what the pair computes, but for rounding.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from fusewise.ir.graph import Constant, Graph, Node
from fusewise.ops.build import GraphBuilder
from fusewise.zoo.layers import Size, conv
from fusewise.zoo.net import Net

__all__ = ["folded_norms", "frozen_norms", "normed_conv"]


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


def frozen_norms(graph: Graph) -> Graph:
    """Every BatchNormalization spelled out, as torchvision's detectors compute it with statistics that never change.

    `scale = weight * (variance + epsilon).rsqrt()`, `x * scale + (bias - mean * scale)`, all four reshaped to
    [1, channels, 1, 1] first.
    """
    b = GraphBuilder(graph.name, graph.opset)
    b.types, b.constants, b.inputs = dict(graph.types), dict(graph.constants), list(graph.inputs)
    for node in graph.nodes:
        if node.op != "BatchNormalization":
            b.nodes.append(node)
            continue
        write = partial(b.op, name=f"{node.name}.frozen")
        shape = b.constant([1, -1, 1, 1], "shape")
        gamma, beta, mean, variance = (write("Reshape", value, shape) for value in node.inputs[1:5])
        epsilon = b.constant(float(node.attribute("epsilon")), "epsilon")
        scale = write("Mul", gamma, write("Reciprocal", write("Sqrt", write("Add", variance, epsilon))))
        offset = write("Sub", beta, write("Mul", mean, scale))
        last = Node("Add", (write("Mul", node.inputs[0], scale), offset), node.outputs, name=node.name)
        b.nodes.append(replace(last, origin=node.origin))
    return b.finish(*graph.outputs)

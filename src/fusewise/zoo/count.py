"""What a graph holds and costs: parameters as torchvision counts them, and multiply-accumulates."""

from __future__ import annotations

import math

from fusewise.ir.graph import Graph, Node

__all__ = ["macs", "parameters"]

_NOT_TRAINED = {
    "BatchNormalization": (3, 4),
    "Resize": (1, 2),
    "Clip": (1, 2),
    "QuantizeLinear": (1, 2),
    "NonMaxSuppression": (3, 4),
}
"""Operands that are statistics or settings, by operator."""


def parameters(graph: Graph) -> int:
    """Trained weights: float constants of rank 1 or more that a node reads, each counted once however often it is used.

    Running statistics, scales of a Resize and scalars written by an exporter are not trained.
    """
    trained = {
        value
        for node in graph.nodes
        for k, value in enumerate(node.inputs)
        if value in graph.constants and k not in _NOT_TRAINED.get(node.op, ())
    }
    types = [graph.constants[value].type for value in trained]
    return sum(kind.size for kind in types if kind.dtype.is_float and kind.rank > 0)


def macs(graph: Graph) -> int:
    """Multiply-accumulates of all Conv, ConvTranspose, Gemm and MatMul nodes; elementwise work is not counted."""
    return sum(_node_macs(graph, node) for node in graph.nodes)


def _node_macs(graph: Graph, node: Node) -> int:
    if node.op == "Conv":
        # Each output element reads one filter: [out, in / groups, kernel...].
        return graph.tensor(node.outputs[0]).size * math.prod(graph.tensor(node.inputs[1]).dims[1:])
    if node.op == "ConvTranspose":
        # Each input element is spread by one filter: [in, out / groups, kernel...].
        return graph.tensor(node.inputs[0]).size * math.prod(graph.tensor(node.inputs[1]).dims[1:])
    if node.op == "MatMul":
        return graph.tensor(node.outputs[0]).size * graph.tensor(node.inputs[0]).dims[-1]
    if node.op == "Gemm":
        depth = graph.tensor(node.inputs[0]).dims[0 if node.attribute("transA", 0) else 1]
        return graph.tensor(node.outputs[0]).size * depth
    return 0

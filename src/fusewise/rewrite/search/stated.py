"""Convolutions with every attribute written out, so that rules which ask for equal attributes see equal ones as equal.

Exporters leave out defaults as they like; what a rule puts in place states them.
"""

from __future__ import annotations

from fusewise.ir.graph import Graph, Node
from fusewise.ir.types import TensorType

__all__ = ["stated"]


def stated(graph: Graph) -> Graph:
    """The graph with the defaults of convolutions and averages stated; the same object when all are."""
    nodes = tuple(_stated(graph, node) for node in graph.nodes)
    return graph if all(a is b for a, b in zip(nodes, graph.nodes, strict=True)) else graph.replace(nodes=nodes)


def _stated(graph: Graph, node: Node) -> Node:
    if node.op != "Conv" or node.domain or node.attribute("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return node
    weights = graph.types[node.inputs[1]]
    if not isinstance(weights, TensorType) or not weights.is_static:
        return node
    kernel = weights.dims[2:]
    ones = (1,) * len(kernel)
    defaults = {"kernel_shape": kernel, "strides": ones, "dilations": ones, "pads": (0,) * 2 * len(kernel), "group": 1}
    found = node.with_attributes(
        auto_pad=None, **{name: node.attribute(name, value) for name, value in defaults.items()}
    )
    return node if found.attributes == node.attributes else found

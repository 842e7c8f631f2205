"""Convolutions with every attribute written out, and sums of two as an Add, so that rules see equal things as equal.

Exporters leave out defaults as they like; what a rule puts in place states them.
"""

from __future__ import annotations

from dataclasses import replace

from fusewise.ir.graph import Graph, Node
from fusewise.ir.types import TensorType
from fusewise.ops.spec import Call, NotDefined
from fusewise.ops.window import window_of

__all__ = ["stated"]


def stated(graph: Graph) -> Graph:
    """The graph with the attributes of convolutions stated and no Sum of two operands; the same object when it is so."""
    nodes = tuple(_stated(graph, node) for node in graph.nodes)
    return graph if all(a is b for a, b in zip(nodes, graph.nodes, strict=True)) else graph.replace(nodes=nodes)


def _stated(graph: Graph, node: Node) -> Node:
    if node.op == "Sum" and not node.domain and len(node.inputs) == 2:
        return replace(node, op="Add")
    if node.op != "Conv" or node.domain:
        return node
    weights = graph.types[node.inputs[1]]
    if not isinstance(weights, TensorType) or not weights.is_static:
        return node
    kernel = weights.dims[2:]
    ones = (1,) * len(kernel)
    pads = _pads(graph, node, kernel)
    if pads is None:
        return node
    defaults = {"kernel_shape": kernel, "strides": ones, "dilations": ones, "pads": pads, "group": 1}
    found = node.with_attributes(
        auto_pad=None, **{name: node.attribute(name, value) for name, value in defaults.items()}
    )
    return node if found.attributes == node.attributes else found


def _pads(graph: Graph, node: Node, kernel: tuple[int, ...]) -> tuple[int, ...] | None:
    """What a convolution is padded by that does not state it; None where that depends on a size that is not known."""
    if node.attribute("auto_pad", "NOTSET") not in ("SAME_UPPER", "SAME_LOWER"):
        return (0,) * 2 * len(kernel)
    inputs, outputs = (tuple(graph.types[x] if x else None for x in names) for names in (node.inputs, node.outputs))
    try:
        window = window_of(Call(node, inputs, outputs), kernel)
    except NotDefined:
        return None
    return (*window.begins, *window.ends)

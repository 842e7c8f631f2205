"""Write the nodes Gradient of ai.onnx.preview.training out: the slopes that they name, behind what they are slopes of. Numeric
class exact."""

from __future__ import annotations

from contextlib import suppress

from fusewise.errors import UnsupportedModel
from fusewise.ir.graph import Graph, Node
from fusewise.passes.canonical_ops import LOWEST_OPSET
from fusewise.passes.edit import Edit
from fusewise.passes.notation import Notation
from fusewise.trace import Trace

__all__ = ["write_gradients"]

DOMAIN = "ai.onnx.preview.training"


def write_gradients(graph: Graph, trace: Trace) -> Graph:
    """Slopes of one value by others, as the operators that compute them.

    c = Mul(a, b); p, q = Gradient(a, b) {xs=["a", "b"], y="c"}   ->   c = Mul(a, b); p = b; q = a

    Refused: values other than those that the node names, names that no value has, shapes that are not known, and operators on the
    way that have no gradient.
    """
    for node in graph.nodes:
        if node.op == "Gradient" and node.domain == DOMAIN and graph.opset >= LOWEST_OPSET:
            with suppress(UnsupportedModel):
                graph = _written(graph, node, trace)
    return graph


def _written(graph: Graph, node: Node, trace: Trace) -> Graph:
    from fusewise.passes.gradient.reverse import Sweep

    by, given, of = _names(node, "xs"), (*_names(node, "xs"), *_names(node, "zs")), _names(node, "y")
    known = len(of) == 1 and all(value in graph.types for value in (*of, *given))
    if not known or given != node.inputs or not trace.allows("rewrite", "write_gradients", (node.label,), "slopes"):
        return graph
    edit, place = Edit(graph), graph.nodes.index(node)
    g = Notation(edit, node.label)
    before = graph.nodes[:place]
    for output, value, slope in zip(node.outputs, by, Sweep(edit, g, before, by).slopes(of[0], by), strict=False):
        if output:
            like = g.value(value)
            found = g.fill(0, like.dims, like.dtype) if slope is None else slope
            g.nodes.append(Node("Identity", (found.name,), (output,), name=output, origin=node.origin))
            edit.types[output] = like.kind
    nodes = (*before, *g.nodes, *graph.nodes[place + 1 :])
    return graph.replace(nodes=nodes, types=edit.types, constants=edit.constants).pruned()


def _names(node: Node, attribute: str) -> tuple[str, ...]:
    found = node.attribute(attribute, ())
    return tuple(str(one) for one in ((found,) if isinstance(found, str | bytes) else found))

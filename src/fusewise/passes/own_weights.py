"""Give every product its own copy of what dequantises weights that several read. Numeric class exact.

Products dequantise their weights for themselves. What several products read would be a matrix of floats, made in every run.
"""

from __future__ import annotations

from dataclasses import replace

from fusewise.ir.graph import Graph, Node
from fusewise.passes.edit import Change, Edit, LocalRule, sweep
from fusewise.passes.packed_weights import dequantised_weights
from fusewise.trace import Trace

__all__ = ["own_weights"]


def own_weights(graph: Graph, trace: Trace) -> Graph:
    """d = DequantizeLinear(w, s); y = MatMul(x, d); z = MatMul(y, d)

    ->   c = DequantizeLinear(w, s); y = MatMul(x, c); d = DequantizeLinear(w, s); z = MatMul(y, d)

    What looks weights up, turns or casts them on the way is copied, too.
    """
    shared = {
        node.outputs[0]: chain
        for node in graph.nodes
        if (chain := dequantised_weights(graph, node)) and not all(graph.is_inner(one.outputs[0]) for one in chain)
    }

    def copied(edit: Edit, node: Node) -> Change | None:
        chain = shared.pop(node.outputs[0], ())
        own, nodes = dict[str, str](), list[Node]()
        for one in chain:
            value = edit.value(one.outputs[0], graph.types[one.outputs[0]])
            nodes.append(replace(one, inputs=tuple(own.get(v, v) for v in one.inputs), outputs=(value,), name=""))
            own[one.outputs[0]] = value
        product = node.with_inputs(own.get(v, v) for v in node.inputs)
        return Change((*chain, node), "other nodes read the weights, too", (*nodes, product)) if chain else None

    return sweep(graph, trace, (LocalRule("own_weights", ("MatMul", "Gemm"), copied),)) if shared else graph
